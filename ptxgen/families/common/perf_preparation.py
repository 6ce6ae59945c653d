"""The time of preparations: launches, waits and allocations by the host, and the bytes that kernels move."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.preparation import Preparation
from ptxgen.families import registry
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Floats
from ptxgen.families.common.perf_model import by_family
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: microseconds of the host for: a launch or memset that is packed for the first time; an allocation; reading sizes
#: after the steps of a stage; the wait for the last step. They are near the medians on an H100 (39 preparations of 2
#: and 3 launches took 110 to 322)
LAUNCH_US, ALLOCATION_US, READ_US, WAIT_US = 25.0, 130.0, 22.0, 11.0


def preparation_us(preparations: Iterable[Preparation], p: KernelProblem, d: Device) -> float:
    """The predicted microseconds of the preparations ``preparations`` of operands of ``p``."""
    return sum(_us(each, p, d) for each in preparations)


@lru_cache(maxsize=1024)
def _us(preparation: Preparation, p: KernelProblem, d: Device) -> float:
    cost = preparation.cost(p)
    host = LAUNCH_US * cost.launches + ALLOCATION_US * cost.allocations + READ_US * cost.reads + WAIT_US
    return host + cost.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM)


def share_of_call(p: KernelProblem, c: Config | Columns, d: Device) -> Any:
    """The microseconds that the preparation adds to each of the ``p.calls`` products that use it: a float for one
    configuration, a float32 column for many."""
    if isinstance(c, Config):
        return float(share_of_call(p, Columns.of([c]), d)[0])
    out: Floats = np.zeros(len(c), np.float32)
    if not p.calls:
        return out
    for code, rows in by_family(c):
        family = registry.by_code(code)
        some = c if len(rows) == len(c) else c.take(rows)
        first, place = _distinct(some, family.preparation_axes)
        form = family.form(p)
        us = [preparation_us(family.preparations(form, some.row(int(i))), form, d) for i in first]
        out[rows] = np.array(us, np.float32)[place] / np.float32(p.calls)
    return out


def _distinct(c: Columns, axes: tuple[str, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns one row for each distinct combination of values of ``axes``, and for each row the index of its
    combination."""
    key = np.zeros(len(c), np.int64)
    for name in axes:
        values = c.column(name)
        key = key * (int(values.max(initial=0)) + 1) + values
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return first, place
