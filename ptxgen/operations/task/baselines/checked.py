"""Times the candidates of a baseline, each after its result was compared with the oracle."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxgen.errors import DtypeError, LaunchError, ShapeError
from ptxgen.expr.node import constant, substituted, variables
from ptxgen.operations.task.assembling import mapped, roots
from ptxgen.operations.task.baselines.operands import downloaded, on_device, padded_arrays, padded_extents, rows_of
from ptxgen.operations.task.baselines.parts import Parts
from ptxgen.operations.task.checks import STEPS
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.operation import VendorTimes
from ptxgen.problem.reference import Array
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing

ROWS = 16  #: the most rows that are compared
ONCE_US = 2e5  #: in microseconds; a slower candidate runs only once after its check
#: a candidate that takes so many times as long as the fastest one, and LAUNCHES_US more, runs only once after its check
SLOWER, LAUNCHES_US = 1.5, 50
FACTOR = 8.0  #: the tolerance as a multiple of the oracle's error: libraries round more often than kernels


@dataclass(frozen=True)
class Candidate:
    """One way to compute a task. ``launches``: for each operand set, the function that queues the computation on the
    driver's stream."""

    name: str
    launches: Sequence[Callable[[], object]]


class TaskBaseline:
    """A task computed by another library. Subclasses yield candidates, whose fastest counts.

    ShapeError: there is nothing to compute. LaunchError: the library cannot express the program.
    """

    title: str
    errors: tuple[type[Exception], ...] = ()  #: errors of candidates that mean: the library cannot compute the task

    def __init__(self, driver: CudaDriver, problem: Task, addresses: Mapping[str, int] | None = None) -> None:
        if 0 in (problem.m, problem.n, problem.k):
            raise ShapeError(f"{problem.key()}: an extent is 0, which is not timed")
        self.problem, self.driver = problem, driver

    def sampled_rows(self) -> Array:
        """The indices of the rows that are compared, evenly spread."""
        p = self.problem
        count = max(min(ROWS, STEPS // (p.n * p.k), p.m), 1)
        if "i" in variables(*roots(p.program)):  # the oracle counts the rows that it gets
            return np.arange(count)
        return np.unique(np.linspace(0, p.m - 1, count).astype(int))

    def timed(self, candidate: Candidate, timing: Timing, least: float) -> float:
        """The time of a candidate in microseconds. ``least``: the time of the fastest candidate so far."""
        us = self.driver.elapsed(candidate.launches[0])
        if us > min(ONCE_US, SLOWER * least + LAUNCHES_US):
            return us
        return statistics.median(self.repeated(candidate.launches, timing))

    def repeated(self, launches: Sequence[Callable[[], object]], timing: Timing) -> list[float]:
        """The microseconds of launches, ``timing.samples`` values."""
        return self.driver.time([_called(x) for x in launches], timing)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the fastest candidate: the median of the samples in microseconds. ``sets``: addresses by name of
        the array. LaunchError: no candidate computes the problem."""
        times: dict[str, float] = {}
        failures: list[str] = []
        try:
            for candidate, wrong in self.checked(sets):
                if wrong:
                    failures.append(f"{candidate.name}: {wrong}")
                    continue
                times[candidate.name] = self.timed(candidate, timing, min(times.values(), default=float("inf")))
        except (DtypeError, LaunchError) as error:
            self.driver.synchronize()  # raises if the context is lost
            failures.append(str(error).partition("\n")[0])
        if not times:
            raise LaunchError(f"{self.title} does not compute {self.problem.key()}: {'; '.join(failures)}")
        return VendorTimes(min(times.values()), same_layout=min(times.values()))

    def checked(self, sets: Sequence[Mapping[str, int]]) -> Iterator[tuple[Candidate, str]]:
        """The candidates one after the other, each with the fault of its result, or "" if it is correct."""
        raise NotImplementedError


class TileBaseline(TaskBaseline):
    """A baseline whose kernel, generated from the parts of the program, computes whole tiles. Its operands are padded
    and in the layout that suits the kernel; the time to make them does not count."""

    def __init__(self, driver: CudaDriver, problem: Task, addresses: Mapping[str, int] | None = None) -> None:
        super().__init__(driver, problem, addresses)
        try:
            self.parts = Parts.of_matrix(problem)
        except LaunchError as error:
            raise LaunchError(f"{self.title} does not compute {problem.key()}: {error}") from error

    def candidates(self, sets: Sequence[Mapping[str, int]]) -> Iterator[Candidate]:
        """The candidates of the baseline. ``sets``: the addresses of padded arrays and of C."""
        raise NotImplementedError

    def checked(self, sets: Sequence[Mapping[str, int]]) -> Iterator[tuple[Candidate, str]]:
        p, driver = self.problem, self.driver
        arrays = downloaded(driver, p, sets[0])
        rows = self.sampled_rows()
        part, some = rows_of(p, arrays, rows)
        rows_known = {"M": constant(p.m, "s32")}  # the oracle has fewer
        program = mapped(p.program, lambda x: substituted(x, rows_known))
        expected = evaluate(program, {**some, **p.typical_scalars}, {"i": part.m, "j": p.n, "k": p.k})["C"]
        m, n, _ = padded_extents(p)
        out = dtype(p.out)
        whole = padded_arrays(self.parts, arrays)
        with on_device(driver, whole, m * n * out.bytes, len(sets)) as made:
            for candidate in self.candidates(made):
                driver.fill(made[0]["C"], m * n * out.bytes, 0xFF)
                try:
                    candidate.launches[0]()  # compiles
                except self.errors as error:
                    driver.synchronize()  # raises if the context is lost
                    yield candidate, str(error).strip().partition("\n")[0]
                    continue
                driver.synchronize()
                got = np.empty((len(rows), n), out.numpy)
                for at, row in enumerate(rows):
                    driver.download(made[0]["C"] + int(row) * n * out.bytes, got[at])
                yield candidate, difference(expected, got[:, : p.n], FACTOR)


def _called(launch: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        launch()

    return call
