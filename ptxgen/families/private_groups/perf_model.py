"""The performance model of kernels with private groups, from bytes of memory and the loads that warps have in
flight."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import WARP, ceil_div, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.private_groups.geometry import PrivateGroupsGeometry, array_bytes, key_bytes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LATENCY = 1100.0  #: cycles of a load from device memory under load
CHAIN = 46.0  #: cycles to read, combine and store a group, for two elements at once
ELEMENT = 8.0  #: instructions for an element and its key
LOAD = 4.0  #: instructions of a load
CLEAR = 1.5  #: cycles to clear the copies of a group
SM_BYTES = 40.0  #: most bytes of global memory that one multiprocessor loads per cycle
START = 1800.0  #: cycles of a block besides its loop and the clearing and joining of copies
JOIN_US = 2.0  #: microseconds of the second kernel besides its loads
AT_ONCE = 4  #: slices that the second kernel loads at once
#: bytes of column keys that stay in L1 beside shared memory; if there are more, keys are read from L2 for each row
L1_KEYS = 24 << 10
NARROW = 0.04  #: share of time that rows in pieces of 128 bytes add; longer pieces add less


def work(p: KernelProblem, c: Columns, g: PrivateGroupsGeometry, d: Device) -> Work:
    """The cost of a stage of a warp. The fields of ``Work`` mean: ``latency``: least cycles of its loads; ``busy``:
    cycles of the multiprocessor; ``math``: warps of a block; ``stages``: rows, or vectors along a row, of a block's
    stage; ``store``: cycles of clearing and joining copies; ``straddle_a``: share of time that narrow pieces of rows
    add; ``straddle_b``: bytes of keys per byte of the array."""
    size, held, rows = array_bytes(p), p.sink.value_bytes, p.sink.by_rows
    vectors = c.loads * c.warp_rows
    elements = vectors * c.array_vec  # of a lane
    chain = CHAIN * np.maximum((c.loads if rows else c.loads * c.array_vec) / 2, 1)
    # keys are read, and made to groups, once for the rows, or the columns, that share them
    shared_keys = c.array_vec if rows else c.warp_rows
    issued = elements * (ELEMENT / 2 + ELEMENT / 2 / shared_keys) + vectors * LOAD
    wavefronts = elements * (1 + (2 * held + size) / 12 * 2)
    busy = np.maximum(issued / perf_costs.ISSUE, np.maximum(wavefronts, 1))
    clear = CLEAR * (p.sink.count + 1) * c.warp_rows
    if rows:
        join = p.sink.count * WARP * c.array_vec / g.threads * (2.0 * c.copy_warps + 40)
    else:
        join = ceil_div(p.sink.count, WARP) * c.warp_rows * WARP * 5.0
    segment = np.minimum(WARP * c.array_vec * size, 512)
    return Work.of(
        len(c),
        resident=resident_blocks(c, g, d),
        busy=busy,
        latency=LATENCY + chain,
        math=c.copy_warps,
        stages=c.loads * c.copy_warps if rows else c.loads,
        store=clear + join + START,
        straddle_a=NARROW * 128 / segment if rows else 0 * segment,
        straddle_b=0 * segment if rows else key_bytes(p) / (size * c.warp_rows),
    )


def cell(p: KernelProblem, c: Columns, g: PrivateGroupsGeometry, d: Device) -> Cells:
    """The number of blocks, and the microseconds of the second kernel."""
    elements = p.sink.groups[0] * p.sink.groups[1] * p.sink.value_bytes
    waits = ceil_div(c.kg, AT_ONCE) * perf_costs.GLOBAL_LATENCY / d.clock
    second = JOIN_US + waits + elements * (c.kg * 1.5 + 1) / (d.bandwidth * 1e3 * perf_costs.DRAM)
    extra = np.where(c.kg > 1, second, 0.0)
    none = float32(0)
    return Cells(
        iterations=float32(g.units) / float32(c.kg),
        blocks=float32(g.blocks),
        extra=float32(extra),
        queue=none,
        c_cost=none,
    )


def _most(*terms: Any) -> Any:
    """A smooth maximum. Its smoothness stands for latency that overlaps better, the more loads are in flight."""
    return sum(np.asarray(x, np.float64) ** 4 for x in terms) ** 0.25


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch: waves of blocks, each at the speed of memory or of its own loads."""
    read = float(p.m) * p.n * array_bytes(p)
    blocks, resident = x.blocks[cell], w.resident[rows]
    bandwidth = np.float32(d.bandwidth * 1e3 * perf_costs.DRAM / d.clock) / (1 + w.straddle_a[rows])  # bytes a cycle
    own = np.float32(read) / np.maximum(blocks, 1)  # bytes of a block
    stages = np.ceil(x.iterations[cell] / w.stages[rows])
    alone = stages * w.latency[rows]
    crowded = stages * w.math[rows] * w.busy[rows]
    sms = np.float32(d.sms)
    full = np.floor(blocks / (resident * sms))
    rest = blocks - full * resident * sms
    keys = w.straddle_b[rows] if p.n * key_bytes(p) > L1_KEYS else 0 * own  # bytes for each byte of the array
    # of one multiprocessor, by its own loads or where all load from L2
    each = own * np.maximum(np.float32(1 / SM_BYTES), (1 + keys) / np.float32(perf_costs.L2_BYTES))
    wave = _most(alone, crowded * resident, each * resident, own * resident * sms / bandwidth)
    some = np.ceil(rest / sms)
    last = _most(alone, crowded * some, each * some, own * rest / bandwidth)
    last = np.where(rest > 0, last, 0)
    waves = full + (rest > 0)
    # blocks of a multiprocessor clear and join while others load
    overhead = w.store[rows] * (1 + (waves - 1) / np.maximum(resident, 1))
    total = full * wave + last + overhead
    out: Floats = float32(total / np.float32(d.clock) + x.extra[cell] + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
