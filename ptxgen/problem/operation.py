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
    """A problem with a name. ``column_major``: the problem in column-major terms, for problems that are given so, as
    those of the paper's Table 4; ``count``: the number of times that a program computes the problem, its weight in
    tuning."""

    name: str
    problem: ProblemBase
    column_major: Any = None
    count: float = 1.0


@dataclass(frozen=True)
class Suite:
    """A named set of problems. ``build(**fields)``: its cases, with these fields of the problem (dtype, compute, …);
    ``layouts``: whether the suite sets the layout of each case itself."""

    name: str
    meaning: str
    build: Callable[..., Iterator[Case]]
    layouts: bool = False


class VendorTimes(NamedTuple):
    """Microseconds of a vendor's library for one problem; NaN: unknown. ``best``: of its fastest algorithm, in any of
    its layouts, without the time of transpositions; ``heuristic``: of the algorithm that its heuristic ranks first;
    ``same_layout``: of the fastest algorithm on operands in the layout of the problem."""

    best: float
    heuristic: float = math.nan
    same_layout: float = math.nan


@dataclass(frozen=True)
class Installation:
    """What ``doctor`` reports of a vendor's library. ``version()``: its name and version, None: it is missing;
    ``absent``: says so; ``remedy()``: how to install it."""

    version: Callable[[], str | None]
    absent: str
    remedy: Callable[[], str]


HEURISTIC = ""  #: the text of the algorithm that the heuristic of a vendor's library names


class VendorKernel(Protocol):
    """An algorithm of a vendor's library for one problem, with alpha = 1 and beta = 0. ``workspace``: bytes of device
    memory that a launch needs."""

    workspace: int

    def launch(self, addresses: Mapping[str, int], workspace: int, stream: int) -> None:
        """Queues the algorithm on ``stream``, a raw handle; 0: the driver's own. ``addresses``: of the arrays of the
        problem; ``workspace``: of its memory, 0 if it needs none. LaunchError: the library returned an error."""


@dataclass(frozen=True)
class VendorCalls:
    """How calls use a vendor's library in place of a kernel. ``version()``: its name and version, None: it is
    missing; ``search(driver, problem, sets, timing)``: a text of its fastest algorithm on these operand sets,
    LaunchError: it does not compute the problem; ``kernel(driver, problem, text)``: that algorithm, or, for the text
    ``HEURISTIC``, the one that its heuristic names."""

    version: Callable[[], str | None]
    search: Callable[[Any, Any, Sequence[Mapping[str, int]], Any], str]
    kernel: Callable[[Any, Any, str], VendorKernel]


@dataclass(frozen=True)
class Baseline:
    """A vendor library to compare with. ``title``: its name in tables; ``load()``: loads the library, or raises
    UnavailableError, and returns what is called with (driver, problem, addresses of one operand set);
    ``installation``: None: ``doctor`` does not report it; ``emulated``: its kernels are ptxgen's own, which the
    emulated device runs; ``calls``: how calls use it, None: they do not."""

    name: str
    title: str
    load: Callable[[], Callable[..., Any]]
    installation: Installation | None = None
    emulated: bool = False
    calls: VendorCalls | None = None

    def require(self) -> None:
        """UnavailableError: the library is missing."""
        self.load()

    def best(self, driver: Any, problem: ProblemBase, sets: Sequence[Mapping[str, int]], timing: Any) -> VendorTimes:
        """The times of the library.

        ``sets``: the operand sets that the kernel of ptxgen was timed on: addresses by name of the array.
        UnavailableError: the library or a GPU is missing; LaunchError: the library cannot compute the problem.
        """
        times: VendorTimes = self.load()(driver, problem, sets[0]).best(sets, timing)
        return times


@dataclass(frozen=True)
class Speed:
    """A speed of kernels of an operation, in documents and tables. ``title``: its unit; ``of(problem, us)``: its value
    for a time of ``us`` microseconds."""

    name: str
    title: str
    of: Callable[[Any, float], float]

    def cell(self, problem: Any, us: float) -> float:
        """The value; 0: there is no time."""
        return self.of(problem, us) if us > 0 and math.isfinite(us) else 0.0


FLOPS = Speed("tflops", "TFLOP/s", lambda problem, us: problem.flops / us * 1e-6)


class MeasuredCeiling(NamedTuple):
    """The least time of a task, by a loop of its steps that was measured. ``least_us``: of the problem at the measured
    speed and clock; ``steps``: per clock and multiprocessor; ``clock``: in MHz while the loop ran."""

    least_us: float
    steps: float
    clock: float


@dataclass(frozen=True)
class Ceiling:
    """The least time of problems of an operation, by the instructions of their loops or the bytes that they read.
    ``least_us(problem, device)``: predicted; ``measure(driver, problem)``: times a loop of them, or a copy, on the
    device, None: none limits the problem; ``moved(problem)``: the bytes that bound the time, NaN: instructions do."""

    least_us: Callable[[Any, Any], float]
    measure: Callable[[Any, Any], MeasuredCeiling | None]
    moved: Callable[[Any], float] = lambda problem: math.nan


@dataclass(frozen=True)
class Part:
    """One of several problems that together compute another one. ``name``: what it computes; ``arrays``: for each of
    its arrays the name of the other problem's array, or of memory between the parts."""

    name: str
    problem: ProblemBase
    arrays: Mapping[str, str]


@dataclass(frozen=True)
class Parts:
    """The problems that calls compute, one after the other, in place of another one. ``memory``: the bytes of what they
    leave for each other, by name; ``moved``: the bytes that bound their time; ``note``: what they are."""

    steps: tuple[Part, ...]
    memory: Mapping[str, int]
    moved: float
    note: str


@dataclass(frozen=True)
class RandomProblems:
    """Random problems of one class, which models are trained on. ``draw(rng, values, limits)``: one problem with the
    fields ``values`` (dtype, compute) within ``tuning.draws.Limits``; ShapeError: to be drawn again;
    ``weight``: its share unless told otherwise. ``vary(rng, problem, limits)``: the problem with other extents of about
    the same alignment; ShapeError as of ``draw``. None: these problems are not varied."""

    draw: Callable[..., ProblemBase]
    weight: float
    vary: Callable[..., ProblemBase] | None = None


class Schedule(Protocol):
    """Another way to compute problems of an operation than one tuned kernel, which ``--schedule`` names.

    A choice has ``problem``, ``facts()``, plain data of it, and ``sources()``, (name of a tile, ``Source``) of each
    kernel. ``suite``: what is tuned without a problem; ``none_tuned``: the error if no problem can be tuned;
    ``titles``, ``cells(row)``: columns of tables, and their cells for the facts of a choice.
    """

    name: str
    suite: str
    none_tuned: str
    titles: tuple[str, ...]

    def cells(self, row: dict[str, Any]) -> list[Any]: ...

    def settings(self, device: Any, database: Path) -> dict[str, Any]:
        """What choices depend on besides the problem, by name."""

    def settings_text(self, document: dict[str, Any]) -> str: ...

    def choose(self, problem: Any, device: Any, database: Path) -> Any:
        """The choice for a problem, by the settings that are stored next to ``database``."""

    def choice_us(self, problem: Any, device: Any, database: Path) -> float:
        """Microseconds of the host for one choice, by the settings of ``choose``."""

    def launches(self, driver: Any, choice: Any) -> Any:
        """Its loaded kernels: ``steps(addresses)``, ``run(steps)``, ``best(sets, timing)``, ``check(seed)``."""

    def tunes(self, problem: Any) -> bool: ...

    def every(self, problem: Any, device: Any) -> Iterator[Any]:
        """The choices that tuning times."""

    def tuned(
        self, measured: list[list[tuple[Any, float]]], device: Any, database: Path
    ) -> tuple[dict[str, Any], Path, dict[str, Any]]:
        """The settings with the least mean time of the (choice, microseconds) of each problem; the file that stores
        them, and its contents."""


class NamedSchedule(NamedTuple):
    """A schedule. ``meaning``: what help says of it; ``load()``: imports it."""

    meaning: str
    load: Callable[[], Schedule]


@dataclass(frozen=True)
class Operation:
    """An operation, registered once.

    ``problem``: its problem type, which also reads and writes the text form; ``lowering(problem)``: what
    kernels compute; ``product(problem, arrays, region)``: Σab and Σ|a||b| of every element of the result in
    float64, from arrays by name; ``slices(problem, region)``: the slices of a region in the stored result; ``region``:
    an argument of ``product`` that selects a part of the result, None for all of it; ``checks(driver, problem, config,
    seed, row_padding)``: yields a ``CheckResult`` for each set of inputs; ``operand_sets(driver, problem, timing)``:
    the operands that a kernel is timed on (``runtime.operand_sets.OperandSets``); ``suites``: named sets of problems;
    ``titles``, ``cells(row)``: the columns of tables that identify a problem, and their cells for a row of a command's
    JSON document; ``baselines``: vendor libraries, by name; ``random_problems``: classes of random problems, by names
    that are different in all operations; ``column_major(fields)``: the case of a problem whose fields are in
    column-major (BLAS) terms, None: the operation has no such form; ``scheduling(problem, config, device)``:
    microseconds of the host before a launch, to be reported with its time, None: nothing to report; ``speed``: how fast
    a time is; ``ceiling``: what a time is compared with, None: nothing; ``c_form``: its function in exported
    libraries, None: it has none; ``schedules``: by name; ``operands``: how errors call A and B;
    ``unprepared(problem)``: the same problem without preparation of constant operands, None: nothing is prepared;
    ``features``: features of the model, functions of the problem; for problems of other operations they are 0. One
    with the name of a feature of extents that others have replaces it for problems of this operation;
    ``parts(problem)``: the problems that calls compute in its place, None: one kernel computes it;
    ``separate(problem)``: the problems of its outputs, by what they compute, of which commands have a row each; None: a
    problem is one. ``plain(problem)``: the problem of the same loop over K that stores its sums as they are, the
    problem itself if it does; None: the one without epilogue operations.
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
    parts: Callable[[Any], Parts | None] | None = None
    separate: Callable[[Any], Mapping[str, ProblemBase]] | None = None
    plain: Callable[[Any], ProblemBase] | None = None

    @property
    def name(self) -> str:
        return self.problem.operation

    @property
    def options(self) -> tuple[str, ...]:
        """The fields that options of the command line set (``--aligned-a`` sets ``aligned_a``); ``--shape`` gives the
        others."""
        return tuple(f.name for f in fields(self.problem) if f.name not in self.problem.SHAPE)


DEFAULT = "gemm"  #: the operation of commands and shapes files that name none
#: the operations by name, in the order of registration; ``ptxgen.operations`` adds those of the package
OPERATIONS: dict[str, Operation] = {}


def register(operation: Operation) -> None:
    """Adds an operation. InputError: there is one with this name."""
    if operation.name in operation_names():
        raise InputError(f"operation {operation.name!r} is registered already")
    OPERATIONS[operation.name] = operation


def add_baseline(operation: str, baseline: Baseline) -> None:
    """Adds a vendor's library to an operation, before those that it has, in place of one of the same name."""
    others = {name: x for name, x in operation_named(operation).baselines.items() if name != baseline.name}
    OPERATIONS[operation] = replace(OPERATIONS[operation], baselines={baseline.name: baseline, **others})


def unregister(name: str) -> None:
    """Removes an operation that ``register`` added."""
    del OPERATIONS[name]


def has_registered() -> bool:
    """True if the process has an operation that is not of the package."""
    return not all(x.problem.__module__.startswith("ptxgen.") for x in OPERATIONS.values())


def operation_names() -> tuple[str, ...]:
    plugins.load()
    return tuple(OPERATIONS)


def operation_named(name: str) -> Operation:
    """The operation ``name``. InputError: there is none."""
    names = operation_names()
    if name not in OPERATIONS:
        raise InputError(f"operation is {name!r}; it must be one of {', '.join(names)}")
    return OPERATIONS[name]


def operation_of(problem: ProblemBase) -> Operation:
    return operation_named(problem.operation)


def operations() -> list[Operation]:
    return [operation_named(name) for name in operation_names()]


def vendor_of(problem: ProblemBase, clock: str) -> Baseline | None:
    """The vendor's library that calls may use for ``problem`` on a device with this clock. None: there is none, or the
    problem is deterministic, which no library promises."""
    if problem.deterministic:
        return None
    baselines = operation_of(problem).baselines.values()
    return next((b for b in baselines if b.calls is not None and (clock == "hardware" or b.emulated)), None)


def by_name(*suites: Suite) -> dict[str, Suite]:
    return {s.name: s for s in suites}
