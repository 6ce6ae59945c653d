"""The registry of operations. An ``Operation`` object describes one operation to the whole package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ptxgen import plugins
from ptxgen.errors import InputError
from ptxgen.problem.base import ProblemBase
from ptxgen.problem.c_form import CForm


@dataclass(frozen=True)
class Case:
    """A problem with a name. ``column_major``: the same problem in column-major terms, if it was stated so, as those of
    the paper's Table 4; ``count``: how often a program computes the problem, which is its weight in tuning."""

    name: str
    problem: ProblemBase
    column_major: Any = None
    count: float = 1.0


@dataclass(frozen=True)
class Suite:
    """A named set of problems. ``build(**fields)``: the cases, whose problems have these fields (dtype, compute, …);
    ``layouts``: True if the suite sets the layout of each case itself."""

    name: str
    meaning: str
    build: Callable[..., Iterator[Case]]
    layouts: bool = False


class VendorTimes(NamedTuple):
    """Times of a vendor's library for one problem, in microseconds; NaN: unknown. ``best``: the fastest algorithm in
    any layout of the library, without transpositions; ``heuristic``: the algorithm that the library's heuristic ranks
    first; ``same_layout``: the fastest algorithm on operands in the layout of the problem."""

    best: float
    heuristic: float = math.nan
    same_layout: float = math.nan


@dataclass(frozen=True)
class Installation:
    """How a vendor's library is installed, for the command ``doctor``. ``version()``: name and version of the library,
    None if it is missing; ``absent``: text for a missing library; ``remedy()``: how to install it."""

    version: Callable[[], str | None]
    absent: str
    remedy: Callable[[], str]


HEURISTIC = ""  #: the text of the algorithm that the heuristic of a vendor's library names


class VendorKernel(Protocol):
    """An algorithm of a vendor's library for one problem, with alpha = 1 and beta = 0. ``workspace``: bytes of device
    memory that a launch needs; ``allocates``: launches allocate memory of their own, so that they must not be captured
    into a graph of others than the library's."""

    workspace: int
    allocates: bool

    def launch(self, addresses: Mapping[str, int], workspace: int, stream: int) -> None:
        """Queues the algorithm on a stream.

        ``addresses``: device addresses of the problem's arrays by name; ``workspace``: address of the workspace, 0 if
        none is needed; ``stream``: a raw handle, 0: the driver's stream. LaunchError: the library returned an error.
        """


@dataclass(frozen=True)
class VendorCalls:
    """How calls run a vendor's library in place of a kernel. ``version()``: name and version of the library, None if it
    is missing; ``search(driver, problem, sets, timing)``: finds the fastest algorithm on these operand sets and returns
    a text that names it, or raises LaunchError if the library cannot compute the problem; ``kernel(driver, problem,
    text)``: the algorithm that ``text`` names; for ``HEURISTIC``, the algorithm that the library's heuristic ranks
    first; ``features``: features of problems, besides those of what kernels compute, by which its time is predicted;
    ``computes(problem)``: False if calls never use the library for the problem."""

    version: Callable[[], str | None]
    search: Callable[[Any, Any, Sequence[Mapping[str, int]], Any], str]
    kernel: Callable[[Any, Any, str], VendorKernel]
    features: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    computes: Callable[[Any], bool] = lambda problem: True


@dataclass(frozen=True)
class Baseline:
    """A vendor's library that ptxgen is compared with.

    ``title``: its name in tables; ``load()``: loads the library and returns a function of (driver, problem, addresses
    of one operand set), or raises UnavailableError; ``installation``: what ``doctor`` reports, None: nothing;
    ``emulated``: True if the baseline is made of ptxgen's own kernels, which the emulated device can run; ``calls``:
    how calls use the library, None: they do not.
    """

    name: str
    title: str
    load: Callable[[], Callable[..., Any]]
    installation: Installation | None = None
    emulated: bool = False
    calls: VendorCalls | None = None

    def require(self) -> None:
        """Loads the library. UnavailableError: it is missing."""
        self.load()

    def best(self, driver: Any, problem: ProblemBase, sets: Sequence[Mapping[str, int]], timing: Any) -> VendorTimes:
        """Times the library on one problem.

        ``sets``: the operand sets on which ptxgen's kernel was timed, each with addresses by array name.
        UnavailableError: the library or a GPU is missing. LaunchError: the library cannot compute the problem.
        """
        times: VendorTimes = self.load()(driver, problem, sets[0]).best(sets, timing)
        return times


@dataclass(frozen=True)
class Speed:
    """A measure of speed for an operation's kernels, in documents and tables. ``title``: its unit; ``of(problem, us)``:
    the speed if the problem takes ``us`` microseconds."""

    name: str
    title: str
    of: Callable[[Any, float], float]

    def cell(self, problem: Any, us: float) -> float:
        """The speed for a table; 0 if ``us`` is not a time."""
        return self.of(problem, us) if us > 0 and math.isfinite(us) else 0.0


FLOPS = Speed("tflops", "TFLOP/s", lambda problem, us: problem.flops / us * 1e-6)


class MeasuredCeiling(NamedTuple):
    """The least time of a task by a measured loop of its steps. ``least_us``: microseconds of the problem at the speed
    and clock of the loop; ``steps``: steps of the loop per clock and multiprocessor; ``clock``: MHz during the loop."""

    least_us: float
    steps: float
    clock: float


@dataclass(frozen=True)
class Ceiling:
    """How to find the least time of an operation's problems, by the instructions of their loops or the bytes that they
    read.

    ``least_us(problem, device)``: the predicted least time in microseconds; ``measure(driver, problem)``: times a loop
    of the instructions, or a copy of the bytes, on the device, None: nothing limits the problem; ``moved(problem)``:
    the bytes that bound the time, NaN: instructions bound it.
    """

    least_us: Callable[[Any, Any], float]
    measure: Callable[[Any, Any], MeasuredCeiling | None]
    moved: Callable[[Any], float] = lambda problem: math.nan


@dataclass(frozen=True)
class Part:
    """One of several problems that together compute a larger problem. ``name``: what the part computes; ``arrays``:
    name of an array of the part -> name of an array of the larger problem, or of memory between parts; ``scalars``: the
    numbers that its kernel takes, None: those with which it is timed by itself."""

    name: str
    problem: ProblemBase
    arrays: Mapping[str, str]
    scalars: Mapping[str, float] | None = None


class LastLaunches(Protocol):
    """The launches after the parts of a problem that no problem describes."""

    def load(self, driver: Any) -> Callable[[Mapping[str, int]], None]:
        """Loads the kernels, and returns a function that queues them on arrays and memory at addresses, by name."""

    def fits(self, driver: Any, addresses: Mapping[str, int]) -> bool:
        """False if the results of the parts had no room, so that the launches computed nothing."""


@dataclass(frozen=True)
class Parts:
    """The problems that a call computes, one after the other, in place of one problem. ``memory``: memory between the
    parts, name -> bytes; ``moved``: the bytes that bound the total time, NaN: instructions bound it; ``note``: a text
    that describes the parts; ``last``: launches after the parts, None: there are none."""

    steps: tuple[Part, ...]
    memory: Mapping[str, int]
    moved: float
    note: str
    last: LastLaunches | None = None


@dataclass(frozen=True)
class RandomProblems:
    """Random problems of one class, on which models are trained.

    ``draw(rng, values, limits)``: draws a problem that has the fields ``values`` (dtype, compute) and is within
    ``limits``, a ``tuning.draws.Limits``; ShapeError: draw again. ``weight``: default share of this class. ``vary(rng,
    problem, limits)``: draws a problem with other extents of about the same alignment; ShapeError: draw again; None:
    the problems of this class are not varied.
    """

    draw: Callable[..., ProblemBase]
    weight: float
    vary: Callable[..., ProblemBase] | None = None


class Schedule(Protocol):
    """A way to compute problems other than by one tuned kernel; the option ``--schedule`` names it.

    ``suite``: the suite that is tuned if no problem is given; ``none_tuned``: the error message if no problem can be
    tuned; ``titles``: titles of table columns; ``cells(row)``: their cells for the facts of a choice. A *choice* of a
    schedule has the attribute ``problem`` and the methods ``facts()``, which returns plain data, and ``sources()``,
    which returns (name of a tile, ``Source``) for each kernel.
    """

    name: str
    suite: str
    none_tuned: str
    titles: tuple[str, ...]

    def cells(self, row: dict[str, Any]) -> list[Any]: ...

    def settings(self, device: Any, database: Path) -> dict[str, Any]:
        """The values on which choices depend besides the problem, by name."""

    def settings_text(self, document: dict[str, Any]) -> str: ...

    def choose(self, problem: Any, device: Any, database: Path) -> Any:
        """The choice for a problem, by the settings stored next to ``database``."""

    def choice_us(self, problem: Any, device: Any, database: Path) -> float:
        """The time that the host takes for one choice, in microseconds."""

    def launches(self, driver: Any, choice: Any) -> Any:
        """The loaded kernels of a choice, an object with ``steps(addresses)``, ``run(steps)``, ``best(sets, timing)``
        and ``check(seed)``."""

    def tunes(self, problem: Any) -> bool: ...

    def every(self, problem: Any, device: Any) -> Iterator[Any]:
        """All choices that tuning times."""

    def tuned(
        self, measured: list[list[tuple[Any, float]]], device: Any, database: Path
    ) -> tuple[dict[str, Any], Path, dict[str, Any]]:
        """The settings with the least mean time, the path of the file that stores settings, and the new contents of the
        file. ``measured``: for each problem the pairs (choice, microseconds)."""


class NamedSchedule(NamedTuple):
    """A schedule that is loaded when it is used. ``meaning``: its help text; ``load()``: imports and returns the
    schedule."""

    meaning: str
    load: Callable[[], Schedule]


@dataclass(frozen=True)
class Operation:
    """An operation, registered once. The fields describe it to the whole package.

    - ``problem``: the problem type, which also reads and writes the text form.
    - ``lowering(problem)``: the kernel problem.
    - ``product(problem, arrays, region)``: Σab and Σ|a||b| of every element of the result in float64, from arrays by
      name. ``region`` selects a part of the result; None: all of it.
    - ``slices(problem, region)``: the slices of the stored result that the region has.
    - ``checks(driver, problem, config, seed, row_padding)``: yields a ``CheckResult`` for each set of inputs.
    - ``operand_sets(driver, problem, timing)``: the operands for timing (``runtime.operand_sets.OperandSets``).
    - ``titles``, ``cells(row)``: the table columns that identify a problem, and their cells for a row of a command's
      JSON document.
    - ``suites``: named sets of problems. ``baselines``: vendor libraries by name. ``schedules``: schedules by name.
    - ``random_problems``: classes of random problems; their names are unique over all operations.
    - ``column_major(fields)``: the case of a problem stated in column-major (BLAS) terms. None: there is no such form.
    - ``scheduling(problem, config, device)``: microseconds of the host before a launch, reported beside its time. None:
      not reported.
    - ``speed``: the measure of speed. ``ceiling``: the least time that times are compared with. None: there is none.
    - ``c_form``: its form in exported C libraries. None: it is not exported.
    - ``operands``: the words for A and B in error messages.
    - ``unprepared(problem)``: the same problem without preparation of constant operands. None: nothing is prepared.
    - ``features``: features of the model, name -> function of the problem; 0 for problems of other operations. A
      feature with the name of a feature of extents replaces that for this operation.
    - ``parts(problem, device)``: the problems that calls compute in its place. None: one kernel computes it.
      ``device``: None: only problems that calls compute on every device.
    - ``separate(problem)``: the problems of the single outputs, by name of the output; commands show a row for each.
      None: every problem has one output.
    - ``plain(problem)``: the problem with the same loop over K that stores its sums unchanged; ``problem`` itself if it
      does so, or if no problem does. None: it is the problem without epilogue operations.
    """

    problem: type[ProblemBase]
    lowering: Callable[[Any], Any]
    product: Callable[..., tuple[Any, Any]]
    slices: Callable[[Any, Any], tuple[slice, ...]]
    checks: Callable[..., Iterable[Any]]
    operand_sets: Callable[[Any, Any, Any], Any]
    titles: tuple[str, ...]
    cells: Callable[[dict[str, Any]], list[Any]]
    suites: Mapping[str, Suite] = field(default_factory=dict)
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    random_problems: Mapping[str, RandomProblems] = field(default_factory=dict)
    column_major: Callable[[dict[str, Any]], Case] | None = None
    scheduling: Callable[[Any, Any, Any], float] | None = None
    speed: Speed = FLOPS
    ceiling: Ceiling | None = None
    c_form: CForm | None = None
    schedules: Mapping[str, NamedSchedule] = field(default_factory=dict)
    operands: str = "operands"
    unprepared: Callable[[Any], ProblemBase] | None = None
    features: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    parts: Callable[[Any, Any], Parts | None] | None = None
    separate: Callable[[Any], Mapping[str, ProblemBase]] | None = None
    plain: Callable[[Any], ProblemBase] | None = None

    @property
    def name(self) -> str:
        return self.problem.operation

    @property
    def options(self) -> tuple[str, ...]:
        """The fields that the command line sets by an option each (``--aligned-a`` sets ``aligned_a``); ``--shape``
        sets the others."""
        return tuple(f.name for f in fields(self.problem) if f.name not in self.problem.SHAPE)


DEFAULT = "gemm"  #: the operation of commands and shapes files that do not name one
#: operations by name, in the order of registration, each as an ``Operation`` or, before its first use, as a function
#: that imports it; ``ptxgen.operations`` adds those of the package
OPERATIONS: dict[str, Operation | Callable[[], Operation]] = {}


def register(operation: Operation) -> None:
    """Adds an operation. InputError: an operation with this name exists."""
    if operation.name in operation_names():
        raise InputError(f"operation {operation.name!r} is registered already")
    OPERATIONS[operation.name] = operation


def add_baseline(operation: str, baseline: Baseline) -> None:
    """Adds a baseline to an operation as the first one. It replaces a baseline of the same name."""
    known = operation_named(operation)
    others = {name: x for name, x in known.baselines.items() if name != baseline.name}
    OPERATIONS[operation] = replace(known, baselines={baseline.name: baseline, **others})


def unregister(name: str) -> None:
    """Removes an operation that ``register`` added."""
    del OPERATIONS[name]


def has_registered() -> bool:
    """True if operations have been added to those of the package."""
    return not all(x.problem.__module__.startswith("ptxgen.") for x in OPERATIONS.values() if isinstance(x, Operation))


def operation_names() -> tuple[str, ...]:
    plugins.load()
    return tuple(OPERATIONS)


def operation_named(name: str) -> Operation:
    """The operation ``name``. InputError: there is none."""
    names = operation_names()
    if name not in OPERATIONS:
        raise InputError(f"operation is {name!r}; it must be one of {', '.join(names)}")
    return registered(name)


def registered(name: str) -> Operation:
    """The operation ``name``, which is registered."""
    operation = OPERATIONS[name]
    if not isinstance(operation, Operation):
        operation = OPERATIONS[name] = operation()
    return operation


def operation_of(problem: ProblemBase) -> Operation:
    return operation_named(problem.operation)


def operations() -> list[Operation]:
    return [operation_named(name) for name in operation_names()]


def vendor_of(problem: ProblemBase, clock: str) -> Baseline | None:
    """The vendor's library that calls may use for ``problem`` on a device with clock ``clock`` (``hardware`` or
    ``model``). None: there is none for it, or the problem must be deterministic, which no library promises."""
    if problem.deterministic:
        return None
    baselines = operation_of(problem).baselines.values()
    there = (b for b in baselines if clock == "hardware" or b.emulated)
    return next((b for b in there if b.calls is not None and b.calls.computes(problem)), None)


def by_name(*suites: Suite) -> dict[str, Suite]:
    return {s.name: s for s in suites}
