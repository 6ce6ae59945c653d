"""Times configurations, after a check of their results, and compares suites with vendor libraries."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.source import Source
from ptxgen.errors import AssembleError, EmulatorError, LaunchError, ShapeError, UnavailableError
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.operation import (
    HEURISTIC,
    MeasuredCeiling,
    Parts,
    VendorKernel,
    VendorTimes,
    operation_of,
    vendor_of,
)
from ptxgen.problem.reference import Deviation
from ptxgen.problem.registry import Problem
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Runner
from ptxgen.runtime.workspace import Workspace
from ptxgen.tuning.measure import copy_bandwidth
from ptxgen.tuning.measure.observing import observe
from ptxgen.tuning.store.measurement import Environment, Measurement, VendorMeasurement
from ptxgen.tuning.store.observation import Observation

CHECKED_ELEMENTS = 1 << 17  #: elements of C that a measurement compares
#: the most elements of C that a full check compares, and the most multiply-adds that it computes for them, so that it
#: does not take minutes
FULL_ELEMENTS, FULL_PRODUCTS = 1 << 24, 1 << 38
SEARCH_TIMING = Timing(samples=3, target_ms=1.5)
FINAL_TIMING = Timing(samples=7, target_ms=6.0)
PAIRED_TIMING = Timing(samples=1, target_ms=3.0)  #: timing of one round of a paired comparison


def environment(driver: Driver, timing: Timing, commit: str = "") -> Environment:
    """The environment of measurements on this driver."""
    return Environment(driver.device.name, driver.clock, driver.version, driver.assembler, str(timing), commit)


def full_check_elements(problem: Problem) -> int:
    """The number of elements of C that a full check compares."""
    return max(CHECKED_ELEMENTS, min(FULL_ELEMENTS, FULL_PRODUCTS // max(int(lower(problem).extents.item[1]), 1)))


class Bench:
    """Times configurations on a driver; keeps the operands of the last problem."""

    def __init__(self, driver: Driver, commit: str = "") -> None:
        self.driver, self.commit = driver, commit
        self.workspace = Workspace(driver)
        self.operand_sets: OperandSets | None = None
        self._last_runner: Runner | None = None  # its offset tables serve the next configuration of the problem
        self.last_deviation: Deviation | None = None  #: of the last result
        self.preparation_us = math.nan  #: of the last configuration, for one operand set; NaN: it prepares nothing

    def operand_sets_for(self, problem: Problem, timing: Timing) -> OperandSets:
        if self.operand_sets is None or self.operand_sets.problem != problem:
            if self.operand_sets is not None:
                self.operand_sets.release()
                self.operand_sets = None
            self.operand_sets = operation_of(problem).operand_sets(self.driver, problem, timing)
        return self.operand_sets

    def measure(
        self,
        problem: Problem,
        config: Config,
        timing: Timing = SEARCH_TIMING,
        purpose: str = "",
        full: bool = False,
        elements: int = CHECKED_ELEMENTS,
        source: Source | None = None,
        operand_sets: OperandSets | None = None,
        observed: bool = False,
    ) -> Measurement:
        """Loads, checks and times ``config``; a failure is the measurement's outcome. ``elements``: the number of
        elements of C that are compared; ``full``: ``full_check_elements`` instead. ``source``: the kernel, if it was
        generated before. ``operand_sets``: operand sets of another problem with the same operands; None: those of
        ``problem``. ``observed``: True if energy, power and clock are observed, too. UnavailableError: the device has
        no sensors for them."""
        made: dict[str, Any] = {
            "purpose": purpose,
            "created": round(time.time(), 3),
            "operands": problem.operands_digest,
        }
        env = environment(self.driver, timing, self.commit)
        try:
            runner = self._last_runner = Runner.of(self.driver, problem, config, self.workspace, source)
        except AssembleError as error:
            return Measurement(problem, config, "ptxas_error", env, message=str(error)[:500], **made)
        kernel = runner.kernel
        made.update(digest=kernel.source.digest, registers=kernel.registers, spills=kernel.spills)

        def bound(sets: Sequence[Mapping[str, int]]) -> list[Callable[[], None]]:
            runners = [runner.on(addresses) for addresses in sets]
            self.preparation_us = _preparation_us(runners)
            return [each.bind(addresses) for each, addresses in zip(runners, sets, strict=True)]

        checked = full_check_elements(problem) if full else elements
        return self._timed(problem, config, timing, env, made, checked, bound, operand_sets, observed)

    def measure_parts(
        self,
        problem: Problem,
        parts: Parts,
        configs: Sequence[Config],
        timing: Timing,
        full: bool = False,
        observed: bool = False,
    ) -> Measurement | None:
        """Loads, checks and times the parts of ``problem``, as ``measure`` does: the problems that calls compute in its
        place, each with its configuration. The measurement has the configuration of the last part. None: the results of
        a part had no room, and a call would compute the problem itself."""
        made: dict[str, Any] = {"purpose": "bench", "created": round(time.time(), 3)}
        env = environment(self.driver, timing, self.commit)
        try:
            runners = [
                Runner.of(self.driver, part.problem, config, self.workspace)
                for part, config in zip(parts.steps, configs, strict=True)
            ]
        except AssembleError as error:
            return Measurement(problem, configs[-1], "ptxas_error", env, message=str(error)[:500], **made)
        last = parts.last.load(self.driver) if parts.last else None
        memory = {name: Allocation(self.driver, max(size, 16)) for name, size in parts.memory.items()}

        def bound(sets: Sequence[Mapping[str, int]]) -> list[Callable[[], None]]:
            self.preparation_us = math.nan
            bounds = []
            for addresses in sets:
                at = {**addresses, **{name: x.address for name, x in memory.items()}}
                calls = [
                    runner.bind({name: at[whole] for name, whole in part.arrays.items()}, scalars=part.scalars)
                    for runner, part in zip(runners, parts.steps, strict=True)
                ]
                bounds.append(_in_order([*calls, *([partial(last, at)] if last else [])]))
            return bounds

        checked = full_check_elements(problem) if full else CHECKED_ELEMENTS
        measured = self._timed(problem, configs[-1], timing, env, made, checked, bound, observed=observed)
        addresses = {name: x.address for name, x in memory.items()}
        computed = measured.outcome in ("ok", "wrong_result")
        return None if computed and parts.last and not parts.last.fits(self.driver, addresses) else measured

    def _timed(
        self,
        problem: Problem,
        config: Config,
        timing: Timing,
        env: Environment,
        made: dict[str, Any],
        elements: int,
        bound: Callable[[Sequence[Mapping[str, int]]], list[Callable[[], None]]],
        operand_sets: OperandSets | None = None,
        observed: bool = False,
    ) -> Measurement:
        """Checks and times calls. ``bound(sets)`` returns a call for each operand set; the other arguments are those of
        ``measure``."""
        try:
            operand_sets = operand_sets or self.operand_sets_for(problem, timing)
            calls = bound(operand_sets.sets)
            with self.driver.lock:
                operand_sets.poison()
                calls[0]()
                self.driver.synchronize()
            self.last_deviation = deviation = operand_sets.deviation(elements)
            if not deviation.ok:
                self._renew()
                return Measurement(problem, config, "wrong_result", env, message=str(deviation), **made)
            samples = self.driver.time(calls, timing)
            if observed:
                made["message"] = str(observe(self.driver, calls))
        except (LaunchError, EmulatorError) as error:
            self._renew()
            return Measurement(problem, config, "launch_error", env, message=str(error)[:500], **made)
        return Measurement(problem, config, "ok", env, tuple(round(s, 4) for s in samples), **made)

    def compare(
        self,
        problem: Problem,
        configs: Sequence[Config],
        timing: Timing = PAIRED_TIMING,
        rounds: int = 1,
        vendor: VendorKernel | None = None,
    ) -> list[list[float]]:
        """Times configurations whose results were found correct, and a vendor's kernel, alternately (A B, B A, …), so
        that slow changes of clock rate or temperature affect all alike. Returns, for each configuration and last for
        the vendor, the microseconds of every round. On the emulated device, which has no noise, there is one round.
        AssembleError, LaunchError: a configuration or the vendor's kernel fails."""
        operand_sets = self.operand_sets_for(problem, timing)
        runners = [Runner.of(self.driver, problem, config, self.workspace) for config in configs]
        calls = [[r.bind(addresses) for addresses in operand_sets.sets] for r in runners]
        if vendor is not None:
            memory = Allocation(self.driver, max(vendor.workspace, 16))
            calls.append([partial(vendor.launch, each, memory.address, 0) for each in operand_sets.sets])
        samples: list[list[float]] = [[] for _ in calls]
        try:
            for n in range(rounds if self.driver.clock == "hardware" else 1):
                for i in range(len(calls))[:: 1 if n % 2 == 0 else -1]:
                    samples[i] += self.driver.time(calls[i], timing)
        except (LaunchError, EmulatorError):
            self._renew()
            raise
        return samples

    def compare_with_vendor(
        self, problem: Problem, configs: Sequence[Config], timing: Timing = PAIRED_TIMING, rounds: int = 1
    ) -> tuple[list[list[float]], VendorMeasurement | None]:
        """The samples of the configurations, timed in turn with the fastest algorithm of the vendor's library (see
        ``compare``), and the measurement of that algorithm, None if there is no library. Errors: those of
        ``compare``."""
        measured, kernel = self._vendor_kernel(problem, timing)
        samples = self.compare(problem, configs, timing, rounds, kernel)
        if measured is None or kernel is None:
            return samples, measured
        return samples[:-1], replace(measured, samples=tuple(round(us, 4) for us in samples[-1]))

    def heuristic(self, problem: Problem, timing: Timing, elements: int) -> VendorMeasurement | None:
        """The measurement of the algorithm that the heuristic of the vendor's library names, after a check of its
        result; None: there is no library. ``elements``: the number of elements of C that are compared. LaunchError: it
        failed while it was timed."""
        measured, kernel = self._vendor_kernel(problem, timing, HEURISTIC, elements)
        if measured is None or kernel is None:
            return measured
        samples = self.compare(problem, (), timing, 1, kernel)
        return replace(measured, samples=tuple(round(us, 4) for us in samples[-1]))

    def _vendor_kernel(
        self, problem: Problem, timing: Timing, algorithm: str | None = None, elements: int = CHECKED_ELEMENTS
    ) -> tuple[VendorMeasurement | None, VendorKernel | None]:
        """An algorithm of the vendor's library, whose result is checked, and its measurement, still without samples.
        ``algorithm``: its text, None: the fastest; ``elements``: the number of elements of C that are compared."""
        library = vendor_of(problem, self.driver.clock)
        version = library.calls.version() if library is not None and library.calls is not None else None
        if library is None or library.calls is None or version is None:
            return None, None
        env, now = environment(self.driver, timing, self.commit), round(time.time(), 3)
        done = VendorMeasurement(problem, library.name, version, "launch_error", env, created=now)
        try:
            sets = self.operand_sets_for(problem, timing)
            with self.driver.lock:
                if algorithm is None:
                    algorithm = library.calls.search(self.driver, problem, sets.sets, SEARCH_TIMING)
                kernel = library.calls.kernel(self.driver, problem, algorithm)
                memory = Allocation(self.driver, max(kernel.workspace, 16))
                sets.poison()
                kernel.launch(sets.sets[0], memory.address, 0)
                self.driver.synchronize()
        except (LaunchError, EmulatorError, UnavailableError, ShapeError) as error:
            return replace(done, message=str(error)[:500]), None
        deviation = sets.deviation(elements)
        if not deviation.ok:
            return replace(done, outcome="wrong_result", message=str(deviation)), None
        return replace(done, outcome="ok", algorithm=algorithm), kernel

    def vendor(self, problem: Problem, baseline: str, timing: Timing) -> VendorTimes:
        """The times of the vendor library ``baseline``; NaN if it does not compute the problem."""
        ring = self.operand_sets_for(problem, timing)
        library = operation_of(problem).baselines[baseline]
        try:
            with self.driver.lock:  # cuDNN searches its algorithms with launches of its own
                return library.best(self.driver, problem, ring.sets, timing)
        except (LaunchError, UnavailableError):
            return VendorTimes(float("nan"))

    def _renew(self) -> None:
        """Replaces memory that a kernel may have corrupted: the workspace with its flags, and the operands."""
        with suppress(LaunchError):
            self.workspace.release()
            if self.operand_sets is not None:
                self.operand_sets.release()
        self.workspace, self.operand_sets, self._last_runner = Workspace(self.driver), None, None


def _in_order(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """One function that makes all calls in order."""

    def call() -> None:
        for each in calls:
            each()

    return call


def _preparation_us(runners: Sequence[Runner]) -> float:
    """The median time in microseconds of the preparation of one operand set; NaN: the kernel needs none."""
    prepared = [each.prepared or () for each in runners]
    return statistics.median(sum(made.us for made in each) for each in prepared) if any(prepared) else math.nan


@dataclass(frozen=True)
class BenchRow:
    """One row of a comparison. All times are in microseconds; NaN: unknown. ``us``: the time of ptxgen's kernel;
    ``vendor_us``: the time of the vendor's best candidate in the same run; ``vendor_first_us``: that of the candidate
    that the vendor's heuristic names; ``vendor_same_layout_us``: that of the best candidate on operands in the layout
    of the problem; ``note``: why a row is empty; ``scheduling_us``: the time of the host before a launch, NaN if the
    operation does not report one; ``preparation_us``: the time of the preparation of constant operands, NaN if there is
    none; ``unprepared_us``: the time of the configuration that is chosen where nothing may be prepared; ``ceiling_us``:
    the least time by the instructions or bytes of the problem, NaN if the operation has no ceiling;
    ``measured_ceiling``: the ceiling by a loop that was timed in the same run, None if none was; ``moved``: the bytes
    that bound the time, NaN where memory does not bound it; ``observed``: energy, power and clock, None if they were
    not observed."""

    name: str
    problem: Problem
    selection: Any
    us: float
    vendor_us: float = float("nan")
    vendor_first_us: float = float("nan")
    vendor_same_layout_us: float = float("nan")
    deviation: Deviation | None = None
    note: str = ""
    scheduling_us: float = float("nan")
    preparation_us: float = float("nan")
    unprepared_us: float = float("nan")
    ceiling_us: float = float("nan")
    measured_ceiling: MeasuredCeiling | None = None
    moved: float = float("nan")
    observed: Observation | None = None

    @property
    def bandwidth(self) -> float:
        """The bandwidth in GB/s of the bytes that bound the time."""
        return self.moved / self.us * 1e-3 if self.us > 0 else float("nan")

    @property
    def preparation_products(self) -> float:
        """The time of the preparation in units of one product."""
        return self.preparation_us / self.us if self.us > 0 else float("nan")

    @property
    def pays_from_calls(self) -> float:
        """The least number of products that take less time with the preparation than without it; infinity if no number
        does."""
        saved = self.unprepared_us - self.us
        if not saved > 0:
            return saved if math.isnan(saved) else math.inf
        return math.floor(self.preparation_us / saved) + 1.0

    @property
    def speed(self) -> float:
        """The speed in the unit of the operation; 0: there is no time."""
        return operation_of(self.problem).speed.cell(self.problem, self.us)

    @property
    def ceiling_share(self) -> float:
        """The predicted least time, as a fraction of the time."""
        return self.ceiling_us / self.us if self.us > 0 else float("nan")

    @property
    def measured_ceiling_share(self) -> float:
        """The least time by the measured loop, as a fraction of the time."""
        ceiling = self.measured_ceiling
        return ceiling.least_us / self.us if ceiling is not None and self.us > 0 else float("nan")

    @property
    def ratio(self) -> float:
        """The vendor's best time over ptxgen's."""
        return self.vendor_us / self.us if self.us > 0 else float("nan")


def bench(
    cases: Iterable[Any],
    driver: Driver,
    choose: Callable[[Problem, Device], Any],
    baseline: str | None = None,
    timing: Timing = FINAL_TIMING,
    ceiling: bool = False,
    in_parts: bool = True,
    observed: bool = False,
) -> Iterator[BenchRow]:
    """Checks and times each case (``name``, ``problem``) with the configuration that ``choose`` selects, and times the
    vendor's library, the operation's ``baseline``, between two timings of ptxgen's kernel, which are averaged.
    ``ceiling``: also times the loop of the operation's ceiling; ``in_parts``: problems that calls compute in parts are
    timed in parts; ``observed``: energy, power and clock of ptxgen's kernel are observed, too."""
    work = Bench(driver)
    for case in cases:
        problem = case.problem
        find = operation_of(problem).parts
        parts = find(problem, driver.device) if find and in_parts else None
        row = _in_parts(work, case, parts, choose, baseline, timing, ceiling, observed) if parts else None
        if row is not None:
            yield row
            continue
        selection = choose(problem, driver.device)
        first = work.measure(problem, selection.config, timing, "bench", full=True, observed=observed)
        if first.outcome != "ok":
            yield BenchRow(case.name, problem, selection, float("nan"), note=f"{first.outcome}: {first.message}")
            continue
        operand_sets, deviation = work.operand_sets_for(problem, timing), work.last_deviation
        preparation, unprepared = work.preparation_us, float("nan")
        vendor = VendorTimes(float("nan"))
        us, note = first.us, "" if first.us > 0 else "C has no element: there is nothing to time"
        if baseline is not None:
            try:
                vendor = operation_of(problem).baselines[baseline].best(driver, problem, operand_sets.sets, timing)
            except LaunchError as error:  # it cannot compute this: no algorithm, or another epilogue
                note = str(error)
            us = (us + work.measure(problem, selection.config, timing, "bench").us) / 2
        scheduling = operation_of(problem).scheduling
        host = scheduling(problem, selection.config, driver.device) if scheduling else float("nan")
        plain = operation_of(problem).unprepared
        if plain is not None and preparation > 0:
            other = plain(problem)
            best = choose(other, driver.device).config
            unprepared = work.measure(other, best, timing, "bench", operand_sets=operand_sets).us
        limit, measured = operation_of(problem).ceiling, None
        least = limit.least_us(problem, driver.device) if limit else float("nan")
        if ceiling and limit:
            measured = limit.measure(driver, problem)
        moved = limit.moved(problem) if limit else float("nan")
        times = (host, preparation, unprepared, least)
        yield BenchRow(
            *(case.name, problem, selection, us, *vendor, deviation, note, *times),
            measured_ceiling=measured,
            observed=first.observed,
            moved=moved,
        )


def _in_parts(
    work: Bench,
    case: Any,
    parts: Parts,
    choose: Callable[[Problem, Device], Any],
    baseline: str | None,
    timing: Timing,
    ceiling: bool,
    observed: bool,
) -> BenchRow | None:
    """The row of a problem that calls compute in parts; the arguments are those of ``bench``. The configuration of the
    row is that of the last part. Its ceiling is the time of its bytes at the bandwidth of the device, and, with
    ``ceiling``, at the bandwidth of a measured copy. None: a call computes this problem with these inputs itself."""
    problem, driver = case.problem, work.driver
    selections = [choose(part.problem, driver.device) for part in parts.steps]
    configs = [selection.config for selection in selections]
    first = work.measure_parts(problem, parts, configs, timing, full=True, observed=observed)
    if first is None:
        return None
    if first.outcome != "ok":
        message = f"{first.outcome}: {first.message}"
        return BenchRow(case.name, problem, selections[-1], float("nan"), note=message)
    us, note, deviation, vendor = first.us, parts.note, work.last_deviation, VendorTimes(float("nan"))
    if baseline is not None:
        sets = work.operand_sets_for(problem, timing).sets
        try:
            vendor = operation_of(problem).baselines[baseline].best(driver, problem, sets, timing)
        except LaunchError as error:
            note = f"{note}; {error}"
        if (again := work.measure_parts(problem, parts, configs, timing)) is not None:
            us = (us + again.us) / 2
    least = parts.moved / (driver.device.bandwidth * 1e3)
    return BenchRow(
        case.name,
        problem,
        selections[-1],
        us,
        *vendor,
        deviation,
        note,
        ceiling_us=least,
        measured_ceiling=copy_bandwidth.measured(driver, parts.moved, timing) if ceiling and parts.moved > 0 else None,
        moved=parts.moved,
        observed=first.observed,
    )
