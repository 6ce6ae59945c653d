"""Options that several commands share: database, problems, device."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from ptxgen.cli.command import DATABASE_PANEL, PROBLEM_PANEL, SELECT_PANEL, Common
from ptxgen.cli.help_lists import registered
from ptxgen.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from ptxgen.problem.device import Device
    from ptxgen.problem.operation import Operation
    from ptxgen.problem.suites import Case
    from ptxgen.runtime.driver import Driver
    from ptxgen.tuning.store.database import Database

SeedOption = Annotated[int, typer.Option(min=0, help="Random seed.")]
TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        min=0,
        help="Stop measuring after this time. [default: none; emulated device: 100]",
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Use only shard I of N (1/N to N/N). Each problem is in one shard."),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help="{schedules}. [default: one tuned kernel]",
    ),
]
ModelOption = Annotated[bool, typer.Option("--model", help="Use only the model, not the stored winners.")]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="AXES", help="Use this configuration: 'ms=8 ns=8 ml=64 ...'.")
]


@dataclass(frozen=True)
class DatabaseOptions(Common):
    """The options of commands that use the database."""

    panel: ClassVar[str] = DATABASE_PANEL

    database: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="SQLite file with tuning results. [default: PTXGEN_DATABASE, or a file in the user data directory]",
        ),
    ] = None

    @property
    def path(self) -> Path:
        from ptxgen.settings import settings

        return self.database or settings().database

    @contextmanager
    def reading(self) -> Iterator[Database | None]:
        """Opens the database read-only. None: the option is not given, and the default database does not exist or
        cannot be used; the latter gives a warning."""
        from ptxgen.tuning.store.database import Database, readable

        given = os.environ.get("PTXGEN_DATABASE")
        if given and self.database is None and not self.path.exists():
            print(
                f"warning: PTXGEN_DATABASE is {given!r}, which does not exist: only shipped winners and models select;"
                " tune creates it",
                file=sys.stderr,
                flush=True,
            )
        opened = readable(self.path) if self.database is None else Database(self.path, readonly=True)
        with opened or nullcontext() as database:
            yield database


@dataclass(frozen=True)
class ProblemOptions(DatabaseOptions):
    """The options for the fields of problems, except extents. An operation accepts only its own fields. ``own``: the
    values of fields that only some operations have."""

    panel: ClassVar[str] = PROBLEM_PANEL

    layout: Annotated[str | None, typer.Option(help="Memory layout. {layouts}")] = None
    dtype: Annotated[str | None, typer.Option(help="Dtype of A and B: one of {dtypes}. [default: f32]")] = None
    compute: Annotated[
        str | None,
        typer.Option(help="Arithmetic of products and sums: {compute_modes}. [default: the first]"),
    ] = None
    out: Annotated[
        str | None, typer.Option(help="Dtype of C. [default: that of A, bf16 for 8-bit floats, s32 for s8]")
    ] = None
    epilogue: Annotated[
        str | None,
        typer.Option(
            metavar="OPERATIONS",
            help="Fused epilogue operations, as bias_column,relu (gemm) or bias,relu (conv); an activation may be an"
            " expression, as 'x*sigmoid(2*x)'. [default: none]",
        ),
    ] = None
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Use only kernels whose results are bitwise reproducible.")
    ] = False

    @classmethod
    def operations(cls) -> list[Operation]:
        """The operations whose problems the command takes."""
        return registered()

    @classmethod
    def more_options(cls) -> dict[str, tuple[Any, Any]]:
        """The options for the fields that only some operations have."""
        from ptxgen.problem.base import text_of

        options: dict[str, dict[str, tuple[Any, Any]]] = {}  # by field and operation: (its type, the field)
        for operation in cls.operations():
            for f in fields(operation.problem):
                value_type = FIELD_TYPES.get(str(f.type))
                if f.name in operation.options and f.name not in PROBLEM_FIELDS and value_type is not None:
                    options.setdefault(f.name, {})[operation.name] = value_type, f
        out: dict[str, tuple[Any, Any]] = {}
        for name, uses in options.items():
            operation_name, (value_type, f) = next(iter(uses.items()))
            described = text_of(f)
            switch, on = described.flag, value_type is bool and f.default is True
            if on:
                word = name.replace("_", "-")
                value_type, switch = bool | None, f"--{word}/--no-{word}"
            help, metavar = described.option or f"{operation_name}: {name}. [default: {f.default}]", described.metavar
            if len({str(value_type) for value_type, _ in uses.values()}) > 1:  # each operation reads the text
                value_type, metavar = str | None, "TEXT"
                help = " ".join(f"{operation}: {text_of(f).option}" for operation, (_, f) in uses.items())
            value = typer.Option(*((switch,) if switch else ()), help=help, metavar=metavar or None)
            out[name] = (Annotated[value_type, value], False if value_type is bool else None)
        return out


#: type of a field of a problem -> type of its option
FIELD_TYPES: dict[str, Any] = {"int": int | None, "str": str | None, "bool": bool}
#: the options that are fields of every problem
PROBLEM_FIELDS = ("layout", "dtype", "compute", "out", "epilogue", "deterministic")


@dataclass(frozen=True)
class Target(ProblemOptions):
    """The options that select the problems and the device of a command."""

    panel: ClassVar[str] = SELECT_PANEL

    operation: Annotated[
        str | None,
        typer.Argument(
            metavar="OPERATION", help="{operations}. [default: gemm, and in a shapes file that of each line]"
        ),
    ] = None
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXTENTS",
            help="Extents: {shapes}. Repeatable.",
        ),
    ] = None
    suite: Annotated[
        str | None,
        typer.Option(help="A named set of problems, for example isaac, odd or small (see docs/reference.md)."),
    ] = None
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Only the cases of the suite or the file whose names contain this text. Repeatable. [default: all]",
        ),
    ] = None
    shapes_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='File with one JSON object per line, {"m": 1, "n": 2, "k": 3, ...}; - reads standard input.',
        ),
    ] = None
    column_major: Annotated[
        bool,
        typer.Option(
            "--column-major",
            help="{column_major}: extents, layout and options of A and B are in column-major order, as in BLAS and the"
            " paper.",
        ),
    ] = False
    device: Annotated[
        str | None,
        typer.Option(
            help="A device (h200, emulated), a target, for which one GPU is assumed (sm_86), or a file with the facts"
            " of another GPU (NAME.json). [default: the GPU, else emulated]"
        ),
    ] = None

    @property
    def operation_name(self) -> str:
        """The name of the operation that ``shape`` and ``suite`` are for."""
        from ptxgen.problem.operation import DEFAULT

        return self.operation or DEFAULT

    def fields(self, options: tuple[str, ...]) -> dict[str, Any]:
        """The values of problem fields that the command line gives. ``options``: the names of the operation's fields.
        InputError: a given field belongs to another operation."""
        from ptxgen.problem.operation import operation_named

        values = {name: getattr(self, name) for name in PROBLEM_FIELDS} | self.own
        off = {name for name, (_, default) in self.more_options().items() if default is None} if self.own else ()
        given = {
            name: value for name, value in values.items() if value is not None and (value is not False or name in off)
        }
        integers = {f.name for f in fields(operation_named(self.operation_name).problem) if str(f.type) == "int"}
        for name, value in given.items():
            if name not in options:
                raise InputError(
                    f"{_flag(name)} is given; {self.operation_name} takes {', '.join(map(_flag, options))}"
                )
            if name in integers and isinstance(value, str):
                if not value.strip().isdecimal():
                    raise InputError(f"{_flag(name)} is {value!r}; for {self.operation_name} it must be an integer")
                given[name] = int(value)
        return given

    def cases(self, default: str = "") -> list[Case]:
        """The problems that the options select. ``default``: the suite that is used if the options select no
        problem."""
        from ptxgen.problem import suites
        from ptxgen.problem.operation import operation_named

        of = operation_named(self.operation_name)
        chosen = self.fields(of.options)
        cases: list[Case] = []
        if self.shapes_file is not None:
            with open_lines(self.shapes_file) as lines:
                file, name = str(self.shapes_file), self.operation or ""
                cases += suites.read(lines, file, name, column_major=self.column_major, **chosen)
        if suite := self.suite or ("" if self.shape or self.shapes_file is not None else default):
            if self.column_major:
                raise InputError(f"--column-major is given; suite {suite} sets the order of its extents itself")
            cases += suites.cases(suite, of.name, **chosen)
        if self.case:
            cases = suites.named(cases, self.case)
        shapes = ({"operation": of.name, **of.problem.read_shape(text), **chosen} for text in self.shape or ())
        cases = [*(suites.case_of(values, self.column_major) for values in shapes), *cases]
        if not cases:
            if self.shapes_file is not None:
                raise no_problem(self.shapes_file)
            raise InputError("no problem is given; use --shape, --suite or --shapes-file")
        return suites.separated(cases)

    def find_driver(self) -> Driver:
        """The driver of the selected device; default: the GPU, else the emulated device.

        DeviceError: there is no such device. UnavailableError: this machine does not have the device.
        """
        from ptxgen.problem.device import device
        from ptxgen.runtime.open_driver import open_driver
        from ptxgen.settings import settings

        wanted = device(self.device).name if self.device is not None else ""
        driver = open_driver("emulated" if wanted == "emulated" else settings().driver)
        if wanted and driver.device.name != wanted:
            raise UnavailableError(
                f"device is {self.device!r}; this machine can run kernels only on {driver.device.name}"
            )
        return driver

    def warn_if_emulated(self, driver: Driver, estimate: str) -> None:
        """Prints one warning if kernels run on the emulated device although no option or environment variable selects
        it. ``estimate``: the text on how long the command takes there."""
        if self.device is None:
            warn_if_emulated(driver.clock, estimate, "--device emulated")

    def find_device(self) -> Device:
        """The selected device, which need not be in this machine; default: the device of the driver. If the option is
        an architecture as ``sm_90``, a note says which device is assumed."""
        from ptxgen.problem.device import assumed_for, device

        if self.device is None:
            return self.find_driver().device
        if (d := assumed_for(self.device)) is not None:
            facts = f"{d.sms} multiprocessors, {d.clock} MHz, {d.bandwidth} GB/s"
            note(f"{self.device} is taken for the {d.name} ({facts}); --device names another GPU")
        return device(self.device)


def note(text: str) -> None:
    """Prints the line "note: …" on standard error."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def no_problem(shapes_file: Path) -> InputError:
    """The error for a shapes file that has no problem."""
    return InputError(f"shapes-file {shapes_file} has no problem; it must have one JSON object per line")


def time_limit_text(seconds: float) -> str:
    """The text of a time limit, as the argument ``estimate`` of ``warn_if_emulated``. Infinity means no limit."""
    return f"for at most {seconds:g} s" if math.isfinite(seconds) else "without a time limit"


def warn_if_emulated(clock: str, estimate: str, option: str) -> None:
    """Prints one warning if kernels run on the emulated device although no environment variable selects it.
    ``estimate``: the text on how long the command takes there; ``option``: the option that hides the warning."""
    from ptxgen.settings import settings

    if clock == "model" and settings().driver == "auto":
        text = (
            f"warning: there is no usable NVIDIA GPU: kernels run on the emulated device,\n"
            f"  {estimate}; times are modelled. {option} hides this warning"
        )
        print(text, file=sys.stderr, flush=True)


def emulated_time(cases: Sequence[Case], launches: int) -> str:
    """The text of an estimate, for a warning, of the time that the emulated device takes for ``launches`` launches of
    each problem."""
    from ptxgen.runtime.emulated import estimate_text, estimated_seconds

    return estimate_text(estimated_seconds((case.problem.flops for case in cases), launches))


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[str | bytes]]:
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
