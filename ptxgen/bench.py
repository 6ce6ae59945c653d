"""Measures configurations, and compares suites with the vendor's library in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.baselines import BASELINES
from ptxgen.config import Config
from ptxgen.device import Device
from ptxgen.drivers import Driver, Timing
from ptxgen.errors import AssembleError, EmulatorError, LaunchError
from ptxgen.measurement import Environment, Measurement
from ptxgen.operations import Problem
from ptxgen.problem import Gemm
from ptxgen.reference import Array, Deviation, Reference, compare, epilogue_arrays, operands, reference
from ptxgen.runner import Runner, Workspace

CHECKED_ELEMENTS = 1 << 17  #: elements of C that a measurement compares; a full check compares all
SEARCH_TIMING = Timing(samples=3, target_ms=1.5)
FINAL_TIMING = Timing(samples=7, target_ms=6.0)


def environment(driver: Driver, timing: Timing, commit: str = "") -> Environment:
    """What the driver's times depend on."""
    return Environment(driver.device.name, driver.clock, driver.version, driver.assembler, str(timing), commit)


class Ring:
    """Sets of operands on the device, together larger than the caches, that launches use in turn.

    The first set's values are known to the host: results are compared on it.
    """

    def __init__(self, driver: Driver, problem: Problem, timing: Timing, seed: int = 0) -> None:
        assert isinstance(problem, Gemm)
        self.driver, self.problem = driver, problem
        self.a, self.b, _ = operands(problem, seed)
        bytes_ = (problem.element.bytes, problem.element.bytes, problem.output.bytes)
        sizes = [max(rows * ld, 1) * size for (rows, _), ld, size in
                 zip(problem.stored, (problem.lda, problem.ldb, problem.ldc), bytes_, strict=True)]  # fmt: skip
        count = 1
        if driver.clock == "hardware":
            count = int(min(timing.most, max(2, -(-timing.ring * driver.device.l2 // sum(sizes)))))
        self.sets: list[tuple[int, int, int]] = []
        wide = self._wide(self.a, problem.lda), self._wide(self.b, problem.ldb)
        for _ in range(count):
            a, b, c = (driver.allocate(size) for size in sizes)
            driver.upload(a, wide[0])
            driver.upload(b, wide[1])
            driver.fill(c, sizes[2], 0xFF)
            self.sets.append((a, b, c))
        self.bytes_c = sizes[2]
        self.more = epilogue_arrays(problem, seed)
        self.more_at = tuple(driver.allocate(x.nbytes) for x in self.more)
        for address, x in zip(self.more_at, self.more, strict=True):
            driver.upload(address, x)
        self._references: dict[tuple[int, int], Reference] = {}

    @staticmethod
    def _wide(array: Array, ld: int) -> Array:
        if array.shape[1] == ld:
            return array
        out = np.zeros((array.shape[0], ld), array.dtype)
        out[:, : array.shape[1]] = array
        return out

    def blocks(self, limit: int) -> list[slice]:
        """Runs of rows of C, at most ``limit`` elements in all: all of it, or eight runs from first to last."""
        p = self.problem
        rows = max(1, limit // max(p.n, 1))
        if rows >= p.m:
            return [slice(0, p.m)]
        run = max(1, rows // 8)
        starts = sorted({round(i * (p.m - run) / 7) for i in range(8)})
        return [slice(s, s + run) for s in starts]

    def deviation(self, limit: int = CHECKED_ELEMENTS) -> Deviation:
        """Compares the first set's C, as the device holds it, with float64."""
        p, worst = self.problem, Deviation(0.0, (0, 0), 0.0)
        if 0 in (p.m, p.n):
            return worst
        for rows in self.blocks(limit):
            key = rows.start, rows.stop
            if key not in self._references:
                a = (self.a if p.layout[0] == "N" else self.a.T)[rows]
                part = Gemm(len(a), p.n, p.k, "N" + p.layout[1], p.dtype, p.compute, out=p.out, epilogue=p.epilogue)
                along = {"residual", *(("scale_a",) if "scale_rows" in p.stages else ()),
                         *(("bias",) if "bias_row" in p.stages else ())}  # fmt: skip
                more = tuple(x[rows] if name in along else x for name, x in zip(p.reads, self.more, strict=True))
                self._references[key] = reference(part, np.ascontiguousarray(a), self.b, more=more)
            got = np.empty((rows.stop - rows.start, p.ldc), p.output.numpy)
            if rows.stop == p.m:  # the last row need not be whole
                flat = np.empty((rows.stop - rows.start - 1) * p.ldc + p.n, p.output.numpy)
                self.driver.download(self.sets[0][2] + rows.start * p.ldc * p.output.bytes, flat)
                got.reshape(-1)[: flat.size] = flat
            else:
                self.driver.download(self.sets[0][2] + rows.start * p.ldc * p.output.bytes, got)
            found = compare(got[:, : p.n], self._references[key])
            if not found.ratio <= worst.ratio:
                worst = Deviation(found.ratio, (found.where[0] + rows.start, *found.where[1:]), found.worst)
        return worst

    def release(self) -> None:
        for address in (*(address for addresses in self.sets for address in addresses), *self.more_at):
            self.driver.release(address)
        self.sets.clear()
        self.more_at = ()


class Bench:
    """Measures configurations of one problem after another on a driver; keeps the problem's ring between them."""

    def __init__(self, driver: Driver, commit: str = "") -> None:
        self.driver, self.commit = driver, commit
        self.workspace = Workspace(driver)
        self.ring: Ring | None = None

    def ring_for(self, problem: Problem, timing: Timing) -> Ring:
        if self.ring is None or self.ring.problem != problem:
            if self.ring is not None:
                self.ring.release()
                self.ring = None
            self.ring = Ring(self.driver, problem, timing)
        return self.ring

    def measure(self, problem: Problem, config: Config, timing: Timing = SEARCH_TIMING, purpose: str = "",
                full: bool = False) -> Measurement:  # fmt: skip
        """Loads, checks and times ``config``; whatever goes wrong is the outcome. ``full``: compare all of C."""
        made: dict[str, Any] = {"purpose": purpose, "created": time.time()}
        env = environment(self.driver, timing, self.commit)
        try:
            runner = Runner.of(self.driver, problem, config, self.workspace)
        except AssembleError as error:
            return Measurement(problem, config, "ptxas_error", env, message=str(error)[:500], **made)
        kernel = runner.kernel
        made.update(digest=kernel.source.digest, registers=kernel.registers, spills=kernel.spills)
        try:
            ring = self.ring_for(problem, timing)
            calls = [runner.bind(*addresses, more=ring.more_at) for addresses in ring.sets]
            self.driver.fill(ring.sets[0][2], ring.bytes_c, 0xFF)
            calls[0]()
            self.driver.synchronize()
            found = ring.deviation(1 << 40 if full else CHECKED_ELEMENTS)
            if not found.ok:
                self._renew()
                return Measurement(problem, config, "wrong_result", env, message=str(found), **made)
            samples = self.driver.time(calls, timing)
        except (LaunchError, EmulatorError) as error:
            self._renew()
            return Measurement(problem, config, "launch_error", env, message=str(error)[:500], **made)
        return Measurement(problem, config, "ok", env, tuple(round(s, 4) for s in samples), **made)

    def _renew(self) -> None:
        """Forgets memory that a kernel may have spoilt: flags left raised, operands written over."""
        with suppress(LaunchError):
            self.workspace.release()
            if self.ring is not None:
                self.ring.release()
        self.workspace, self.ring = Workspace(self.driver), None


@dataclass(frozen=True)
class BenchRow:
    """One row of a comparison. ``us``: microseconds of ours; ``vendor_us``: of the vendor's best candidate in the same
    run, ``vendor_first_us``: of the one its heuristic names (NaN without a baseline); ``note``: why a row is empty."""

    name: str
    problem: Problem
    selection: Any
    us: float
    vendor_us: float = float("nan")
    vendor_first_us: float = float("nan")
    deviation: Deviation | None = None
    note: str = ""

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.us * 1e-6 if self.us > 0 else 0.0

    @property
    def ratio(self) -> float:
        """How many times faster than the vendor's best."""
        return self.vendor_us / self.us if self.us > 0 else float("nan")


def bench(
    cases: Iterable[Any], driver: Driver, choose: Callable[[Problem, Device], Any], baseline: str | None = None,
    timing: Timing = FINAL_TIMING,
) -> Iterator[BenchRow]:  # fmt: skip
    """Times each case (``name``, ``problem``) with the configuration that ``choose`` selects, checked in full, beside
    the vendor's library (``baseline``, of BASELINES): ours, theirs, ours again; the two of ours are averaged."""
    work = Bench(driver)
    for case in cases:
        problem = case.problem
        selection = choose(problem, driver.device)
        first = work.measure(problem, selection.config, timing, "bench", full=True)
        if first.outcome != "ok":
            yield BenchRow(case.name, problem, selection, float("nan"), note=f"{first.outcome}: {first.message}")
            continue
        ring = work.ring_for(problem, timing)
        found = ring.deviation(1 << 40)
        vendor = vendor_first = float("nan")
        us = first.us
        if baseline is not None:
            vendor, vendor_first = BASELINES[baseline].best(driver, problem, ring.sets, timing)
            us = (us + work.measure(problem, selection.config, timing, "bench").us) / 2
        yield BenchRow(case.name, problem, selection, us, vendor, vendor_first, found)
