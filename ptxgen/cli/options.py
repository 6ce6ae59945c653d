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

Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
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
        """The database, opened for reading; None if none was named and the default one does not exist."""
        from ptxgen.tuning.database import Database

        if self.database is None and not self.path.exists():
            yield None
            return
        with Database(self.path, readonly=True) as database:
            yield database


@dataclass(frozen=True)
class Fields(Stored):
    """The fields of problems that are not extents, by their names. Each operation takes those that it has."""

    layout: Annotated[
        str | None, typer.Option(help="gemm: NN, NT, TN, TT (N: A is MxK, B is KxN). conv: NCHW, NHWC, CHWN.")
    ] = None
    filters: Annotated[
        str | None, typer.Option(help="conv: KCRS, KRSC, CRSK. [default: the natural one of the layout]")
    ] = None
    direction: Annotated[str | None, typer.Option(help="conv: forward (default), input_grad or weight_grad.")] = None
    dtype: Annotated[
        str | None, typer.Option(help="Type of the operands: f16, bf16, f32, f64, e4m3, e5m2, s8. [default: f32]")
    ] = None
    compute: Annotated[
        str | None,
        typer.Option(
            help="Arithmetic of the sums: f16 takes f32, f16; f32 takes f32, tf32, f32_bf16x6. [default: the first]"
        ),
    ] = None
    out: Annotated[str | None, typer.Option(help="Type of the result. [default: depends on the dtype]")] = None
    epilogue: Annotated[
        str | None,
        typer.Option(
            metavar="OPS",
            help="Fused operations, as bias_column,relu (gemm), bias,relu (conv). [default: none]",
        ),
    ] = None
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Sum in an order that does not depend on timing.")
    ] = False
    lda: Annotated[int | None, typer.Option(help="Leading dimension of A in elements. [default: packed]")] = None
    ldb: Annotated[int | None, typer.Option(help="Leading dimension of B.")] = None
    ldc: Annotated[int | None, typer.Option(help="Leading dimension of C.")] = None
    aligned_a: Annotated[int | None, typer.Option(help="Alignment of the start of A in bytes. [default: 16]")] = None
    aligned_b: Annotated[int | None, typer.Option(help="Alignment of B.")] = None
    aligned_c: Annotated[int | None, typer.Option(help="Alignment of C.")] = None
    batch: Annotated[int | None, typer.Option(help="Number of products. [default: 1]")] = None
    stride_a: Annotated[
        int | None, typer.Option(help="Batch stride of A in elements, 0: all products share A. [default: packed]")
    ] = None
    stride_b: Annotated[int | None, typer.Option(help="Batch stride of B.")] = None
    stride_c: Annotated[int | None, typer.Option(help="Batch stride of C; C cannot be shared.")] = None
    aligned_input: Annotated[
        int | None, typer.Option(help="conv: alignment of the start of images in bytes. [default: 16]")
    ] = None
    aligned_filter: Annotated[int | None, typer.Option(help="conv: alignment of filters.")] = None
    aligned_output: Annotated[int | None, typer.Option(help="conv: alignment of results.")] = None


#: the options that are fields of some problem
FIELDS = tuple(f.name for f in fields(Fields) if f.name not in {f.name for f in fields(Stored)})


@dataclass(frozen=True)
class Target(Fields):
    """The problems and the device: the options of every command on problems."""

    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="The operation: gemm or conv.")] = "gemm"
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="EXTENTS", help="Extents of a problem: M,N,K; conv: N=16,C=32,...; repeatable."),
    ] = None
    suite: Annotated[
        str | None, typer.Option(help="A named set of problems: isaac, odd, small, ...; the reference lists them.")
    ] = None
    shapes_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSON lines, {"m": 1, "n": 2, "k": 3, ...}; - is stdin.'),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="h200, sm_86, emulated, ... [default: the GPU of this machine, else emulated]")
    ] = None

    def fields(self, options: tuple[str, ...]) -> dict[str, Any]:
        """The fields of problems that options set. ``options``: the fields that the operation has. InputError: an
        option belongs to another operation."""
        said = {name: getattr(self, name) for name in FIELDS}
        given = {name: value for name, value in said.items() if value is not None and value is not False}
        for name in given:
            if name not in options:
                raise InputError(f"{_flag(name)} is given; {self.operation} takes {', '.join(map(_flag, options))}")
        return given

    def cases(self, default: str = "") -> list[Case]:
        """The problems that the options name. ``default``: the suite, if they name none."""
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
        """The driver of the device that the options name, or of the default device.

        DeviceError: there is no such device; UnavailableError: this machine does not have it.
        """
        from ptxgen.problem.device import device
        from ptxgen.runtime.open_driver import open_driver
        from ptxgen.settings import settings

        wanted = device(self.device).name if self.device is not None else ""
        driver = open_driver("emulated" if wanted == "emulated" else settings().driver)
        if wanted and driver.device.name != wanted:
            raise UnavailableError(f"device is {self.device!r}; this machine runs kernels on {driver.device.name} only")
        return driver

    def find_device(self) -> Device:
        """The facts of the device that the options name, which this machine need not have, or of the default device."""
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
