"""Options that commands share: the database, the problems to work on, the device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxgen.cli.command import Common
from ptxgen.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from ptxgen.problem.device import Device
    from ptxgen.problem.suites import Case
    from ptxgen.runtime.driver import Driver
    from ptxgen.tuning.database import Database

Seed = Annotated[int, typer.Option(min=0, help="Of everything random.")]
Forced = Annotated[
    str | None, typer.Option("--config", metavar="AXES", help="A configuration, as 'ms=8 ns=8 ml=64 ...'.")
]


@dataclass(frozen=True)
class Stored(Common):
    """Options of commands that use the database."""

    database: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tuning database. [default: PTXGEN_DATABASE, or the user's own]")
    ] = None

    @property
    def path(self) -> Path:
        from ptxgen.settings import settings

        return self.database or settings().database

    @contextmanager
    def reading(self) -> Iterator[Database | None]:
        """The database, for reading; None where there is none and none was named."""
        from ptxgen.tuning.database import Database

        if self.database is None and not self.path.exists():
            yield None
            return
        with Database(self.path, readonly=True) as database:
            yield database


@dataclass(frozen=True)
class Fields(Stored):
    """What a problem is beside its extents: fields of problems, by their own names. An operation takes its own ones."""

    layout: Annotated[
        str | None, typer.Option(help="gemm: NN, NT, TN, TT (N: A is MxK, B is KxN). conv: NCHW, NHWC, CHWN.")
    ] = None
    filters: Annotated[
        str | None, typer.Option(help="conv: KCRS, KRSC, CRSK. [default: what goes with the layout]")
    ] = None
    direction: Annotated[str | None, typer.Option(help="conv: forward (default), input_grad or weight_grad.")] = None
    dtype: Annotated[
        str | None, typer.Option(help="Type of the operands: f16, bf16, f32, f64, e4m3, e5m2, s8. [default: f32]")
    ] = None
    compute: Annotated[
        str | None,
        typer.Option(
            help="How products are summed: f16 takes f32, f16; f32 takes f32, tf32, f32_bf16x6. [default: the first]"
        ),
    ] = None
    out: Annotated[str | None, typer.Option(help="Type of the result. [default: what goes with the dtype]")] = None
    epilogue: Annotated[
        str | None,
        typer.Option(
            metavar="STAGES", help="What follows: gemm's as bias_column,relu, conv's as bias,relu. [default: nothing]"
        ),
    ] = None
    deterministic: Annotated[bool, typer.Option("--deterministic", help="No sum's order depends on timing.")] = False
    lda: Annotated[int | None, typer.Option(help="Elements from a row of A to the next. [default: packed]")] = None
    ldb: Annotated[int | None, typer.Option(help="Likewise of B.")] = None
    ldc: Annotated[int | None, typer.Option(help="Likewise of C.")] = None
    aligned_a: Annotated[int | None, typer.Option(help="Bytes that A's start is a multiple of. [default: 16]")] = None
    aligned_b: Annotated[int | None, typer.Option(help="Likewise of B.")] = None
    aligned_c: Annotated[int | None, typer.Option(help="Likewise of C.")] = None
    batch: Annotated[int | None, typer.Option(help="How many such products. [default: 1]")] = None
    stride_a: Annotated[
        int | None, typer.Option(help="Elements from one A of a batch to the next, 0: all share it. [default: packed]")
    ] = None
    stride_b: Annotated[int | None, typer.Option(help="Likewise of B.")] = None
    stride_c: Annotated[int | None, typer.Option(help="Likewise of C, which cannot be shared.")] = None
    aligned_input: Annotated[
        int | None, typer.Option(help="conv: bytes that the start of images is a multiple of. [default: 16]")
    ] = None
    aligned_filter: Annotated[int | None, typer.Option(help="conv: likewise of filters.")] = None
    aligned_output: Annotated[int | None, typer.Option(help="conv: likewise of results.")] = None


#: the options that are fields of some problem
FIELDS = tuple(f.name for f in fields(Fields) if f.name not in {f.name for f in fields(Stored)})


@dataclass(frozen=True)
class Target(Fields):
    """The problems to work on, and the device: all commands on problems take these in the same way."""

    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="What is computed: gemm or conv.")] = "gemm"
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="EXTENTS", help="A problem's extents: M,N,K, or of conv N=16,C=32,...; repeatable."),
    ] = None
    suite: Annotated[
        str | None, typer.Option(help="A named set of problems, as isaac, odd, small; the reference lists them.")
    ] = None
    shapes_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help='JSON lines, each {"m": 1, "n": 2, "k": 3, ...}; - is stdin.')
    ] = None
    device: Annotated[
        str | None, typer.Option(help="As h200, sm_86, emulated. [default: the GPU found, else emulated]")
    ] = None

    def fields(self, options: tuple[str, ...]) -> dict[str, Any]:
        """What the options say of every problem, by the problem's own names, of which ``options`` are its operation's.
        InputError: one is of another operation."""
        said = {name: getattr(self, name) for name in FIELDS}
        given = {name: value for name, value in said.items() if value is not None and value is not False}
        for name in given:
            if name not in options:
                raise InputError(f"{_flag(name)} is given; {self.operation} takes {', '.join(map(_flag, options))}")
        return given

    def cases(self, default: str = "") -> list[Case]:
        """The problems that the options name; ``default``: the suite where they name none."""
        from ptxgen.problem import suites
        from ptxgen.problem.operation import operation_named

        of = operation_named(self.operation)
        chosen = self.fields(of.options)
        cases: list[Case] = []
        for text in self.shape or ():
            problem = of.problem(**of.problem.read_shape(text), **chosen)
            cases.append(suites.Case(problem.key(), problem))
        if self.shapes_file is not None:
            with _opened(self.shapes_file) as lines:
                cases += suites.read(lines, str(self.shapes_file), of.name, **chosen)
        if suite := self.suite or ("" if self.shape or self.shapes_file is not None else default):
            cases += suites.cases(suite, of.name, **chosen)
        if not cases:
            if self.shapes_file is not None:
                raise InputError(f"shapes-file {self.shapes_file} names no problem; it must have a JSON object a line")
            raise InputError("no problem is named; give --shape, --suite or --shapes-file")
        return cases

    def find_driver(self) -> Driver:
        """The driver of the device that the options name, or of whatever is here.

        DeviceError: no such device; UnavailableError: it is not here.
        """
        from ptxgen.problem.device import device
        from ptxgen.runtime.open_driver import open_driver
        from ptxgen.settings import settings

        wanted = device(self.device).name if self.device is not None else ""
        driver = open_driver("emulated" if wanted == "emulated" else settings().driver)
        if wanted and driver.device.name != wanted:
            raise UnavailableError(f"device is {self.device!r}; kernels can run here on {driver.device.name} only")
        return driver

    def find_device(self) -> Device:
        """The facts of the device that the options name, which need not be here, or of whatever is."""
        from ptxgen.problem.device import device

        return device(self.device) if self.device is not None else self.find_driver().device


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str | bytes]]:
    if str(path) == "-":
        yield iter(getattr(sys.stdin, "buffer", sys.stdin))
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"shapes-file {path} cannot be read: {error.strerror}") from error
    with file:
        yield iter(file)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
