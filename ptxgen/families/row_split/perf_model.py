"""The performance model of row_split kernels, from instructions, bytes of L2 and memory, and the latency of long
rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import WARP, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.row_split.geometry import RowSplitGeometry
from ptxgen.lowering.csr import SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: value of ``index_loads`` -> instructions of a nonzero besides those of its vectors
OVERHEAD = np.array((4.0, 2.5), np.float32)
SECTOR = 32  #: bytes of a sector of L2, the least that a load moves
L2_SPEED = 1.8  #: ratio of the bandwidths of L2 and device memory
START = 1500.0  #: cycles from the start of a row to its first products, plus those of its store
INDEX = 4
NO_LIMIT = 1 << 30


def work(p: KernelProblem, c: Columns, g: RowSplitGeometry, d: Device) -> Work:
    """The cost of a nonzero in a slab: warp instructions, bytes of L2, and latency of one round of loads. ``red``: the
    most nonzeros of a part of a row."""
    size = p.element.bytes
    elements = c.lane_vectors * c.vec_b
    converted = 1.5 if size == 2 else 1.0
    slow = 64 / d.fma64 if size == 8 else 1.0
    share = c.row_lanes / WARP
    moved = np.maximum(c.row_lanes * c.vec_b * size, SECTOR) * c.lane_vectors + INDEX + size
    return Work.of(
        len(c),
        resident=resident_blocks(c, g, d),
        busy=share * (OVERHEAD[c.index_loads] + 2 * c.lane_vectors + elements * converted * slow) / perf_costs.ISSUE,
        latency=perf_costs.GLOBAL_LATENCY * 2 + 4 * c.nonzeros_in_flight * (c.lane_vectors + 1),
        moved_b=moved,
        stages=c.nonzeros_in_flight * c.nonzero_groups,
        start=g.slab,
        store=c.block_groups,
        red=np.where(c.longest_part == 0, NO_LIMIT, c.longest_part),
    )


def cell(p: KernelProblem, c: Columns, g: RowSplitGeometry, d: Device) -> Cells:
    """The number of blocks; no other number depends on extents."""
    return Cells.of_slabs(g.slabs, g.blocks)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch."""
    e: SparseExtents = p.extents
    blocks, slabs = x.blocks[cell], x.iterations[cell]
    nonzeros = np.float32(e.nnz) * slabs
    issue = nonzeros * w.busy[rows] / np.float32(d.sms * d.clock)
    bandwidth = np.float32(d.bandwidth * 1e3 * perf_costs.DRAM)
    b_bytes = float(e.k) * e.n * p.element.bytes
    speed = L2_SPEED if b_bytes < d.l2 else L2_SPEED * max(d.l2 / b_bytes, 1 / L2_SPEED)
    cached = nonzeros * w.moved_b[rows] / (bandwidth * np.float32(speed))
    memory = np.float32(p.bytes) / bandwidth
    each = np.ceil(np.float32(e.nnz / max(e.m, 1)) / w.stages[rows]) * w.latency[rows] + np.float32(START)
    waves = np.ceil(blocks / (w.resident[rows] * np.float32(d.sms)))
    longest = np.ceil(np.minimum(np.float32(e.longest), w.red[rows]) / w.stages[rows]) * w.latency[rows]
    waited = np.maximum(waves * each, longest) / np.float32(d.clock)
    total = (issue**4 + cached**4 + memory**4 + waited**4) ** np.float32(0.25)
    out: Floats = float32(total + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
