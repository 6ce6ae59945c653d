"""Times that no kernel can have: what an import refuses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from ptxgen.errors import CorruptError
from ptxgen.families.perf_model import roofline
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import DEVICES
from ptxgen.problem.registry import Problem
from ptxgen.tuning.measurement import Measurement

LAUNCH = 0.1  #: microseconds; no GPU launches a kernel in less
CYCLE = 1e-3  #: microseconds; a cycle of the emulated device


@lru_cache(maxsize=4096)
def time_floor(problem: Problem, device: str, clock: str) -> float:
    """Microseconds that no kernel for ``problem`` stays below: a quarter of the roofline, and ``LAUNCH``.

    Of a convolution only the stores of its results count: a kernel may skip padding, and images that strides skip.
    Without a row in ``DEVICES`` the extents do not count, nor do they on the emulated device, whose clock is a model.
    """
    row = DEVICES.get(device)
    if clock != "hardware":
        return CYCLE
    if row is None:
        return LAUNCH
    if not problem.COUNTS_PADDING:
        return max(LAUNCH, roofline(lower(problem), row) / 4)
    return max(LAUNCH, lower(problem).results * lower(problem).output.bytes / (row.bandwidth * 1e3) / 4)


def possible(path: Path, measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """``measurements`` of a file. CorruptError: one is faster than ``time_floor``, or its extents exceed int32."""
    for m in measurements:
        device, us = m.environment.device, min(m.samples, default=math.inf)
        try:
            least = time_floor(m.problem, device, m.environment.clock) if m.samples else 0.0
        except OverflowError as error:
            raise CorruptError(f"{path}: {m.problem.key()} has extents that no kernel counts to") from error
        if us < least:
            raise CorruptError(f"{path}: {m.problem.key()} takes {us} us on {device}; it must take {least:.3g} or more")
        yield m
