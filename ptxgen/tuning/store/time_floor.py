"""Lower bounds of kernel times: an import rejects measurements below them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from ptxgen.errors import CorruptError
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import DEVICES
from ptxgen.problem.registry import Problem
from ptxgen.tuning.roofline import roofline_us
from ptxgen.tuning.store.measurement import Measurement

MIN_LAUNCH_US = 0.1  #: the least time of a launch on any GPU
MIN_MODEL_US = 1e-3  #: the least time on the emulated device: one cycle


@lru_cache(maxsize=4096)
def time_floor(problem: Problem, device: str, clock: str) -> float:
    """The lower bound, in microseconds, for ``problem``: a quarter of the roofline time, at least ``MIN_LAUNCH_US``.

    For a convolution only the stores of results count, because a kernel may skip padding and pixels that no window
    covers; for a join in the order of keys, nothing, because most pairs may have no result. For devices without
    built-in data the bound is ``MIN_LAUNCH_US``, for the clock ``model`` it is ``MIN_MODEL_US``.
    """
    row = DEVICES.get(device)
    if clock != "hardware":
        return MIN_MODEL_US
    if row is None:
        return MIN_LAUNCH_US
    if not problem.skipped:
        return max(MIN_LAUNCH_US, roofline_us(lower(problem), row) / 4)
    stored = 0 if problem.skipped == "results" else lower(problem).results * lower(problem).output.bytes
    return max(MIN_LAUNCH_US, float(stored) / (row.bandwidth * 1e3) / 4)


def require_possible(path: Path, measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """The ``measurements`` of the file ``path``. CorruptError: a time is below ``time_floor``, or extents exceed
    int32."""
    before: Measurement | None = None
    least = 0.0
    for m in measurements:
        if m.samples:
            e = m.environment
            # a lookup compares all fields of the problem, and files have hundreds of rows of one
            if before is None or m.problem is not before.problem or e is not before.environment:
                try:
                    least = time_floor(m.problem, e.device, e.clock)
                except OverflowError as error:
                    raise CorruptError(f"{path}: {m.problem.key()} has extents beyond int32") from error
                before = m
            if (us := min(m.samples)) < least:
                rule = f"it must take {least:.3g} or more"
                raise CorruptError(f"{path}: {m.problem.key()} takes {us} µs on {e.device}; {rule}")
        yield m
