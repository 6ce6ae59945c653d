"""The performance model of vector_mma kernels, from instructions, bytes of L2 and memory, and the latency of long
windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.axes import BY_LENGTH
from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import ceil_div, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.matrix_instructions import instruction
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.vector_mma.geometry import WINDOW, VectorMmaGeometry, lane_rows
from ptxgen.families.vector_mma.row_windows import PAD
from ptxgen.lowering.csr import SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

OVERHEAD = 8.0  #: instructions for a block besides those of its loads and products
ROW_BYTES = 32  #: bytes that a load of a row of B costs in addition to the bytes it loads
L2_SPEED = 2.4  #: ratio of the bandwidths of L2 and device memory
#: cycles of an iteration if a warp is alone: fixed, for each block, and for each element
ROUND, BLOCK, ELEMENT = 250.0, 80.0, 10.0
AHEAD = 0.65  #: share of the latency that remains if columns and values are loaded ahead
LIST_US, PART_US = 0.2, 1.0  #: microseconds for reading a work list; microseconds for adding the parts of windows
PART_ROWS = 4.0  #: accesses to a part in the workspace: it is stored, read and set to zero, and has a counter
START = 1500.0  #: cycles from the start of a window to its first products, plus those of its store


def work(p: KernelProblem, c: Columns, g: VectorMmaGeometry, d: Device) -> Work:
    """The cost of a block of vectors in a slab: warp instructions, bytes of L2, and latency of one iteration."""
    i, rows = instruction(p), lane_rows(p)
    loads = rows * c.lane_vectors
    pieces = 5 if p.element.bytes == 2 else 5.5  # of a left operand: permutes or roundings, and the product
    moved = i.k * (np.maximum(g.slab * p.element.bytes, ROW_BYTES) + ROW_BYTES + 4) + WINDOW * i.k * p.element.bytes
    return Work.of(
        len(c),
        resident=resident_blocks(c, g, d),
        busy=(OVERHEAD + rows + 3 * loads + pieces * g.elements / 2) / perf_costs.ISSUE,
        latency=np.where(c.columns_ahead == 1, AHEAD, 1)
        * (ROUND + c.blocks_in_flight * (BLOCK + ELEMENT * g.elements)),
        moved_b=moved,
        stages=c.blocks_in_flight,
        part_m=np.where(c.row_order == BY_LENGTH, np.where(c.longest_part > 0, c.longest_part, np.inf), 0),
    )


def cell(p: KernelProblem, c: Columns, g: VectorMmaGeometry, d: Device) -> Cells:
    """The number of blocks; no other number depends on extents."""
    return Cells.of_slabs(g.slabs, g.blocks)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch."""
    e: SparseExtents = p.extents
    depth, windows = instruction(p).k, int(ceil_div(max(e.m, 1), WINDOW))
    blocks_of_vectors = max(e.vectors / depth + PAD * min(windows, e.vectors), 1.0)
    steps = np.float32(blocks_of_vectors) * x.iterations[cell]
    issue = steps * w.busy[rows] / np.float32(d.sms * d.clock)
    bandwidth = np.float32(d.bandwidth * 1e3 * perf_costs.DRAM)
    b_bytes = float(e.k) * e.n * p.element.bytes
    speed = L2_SPEED if b_bytes < d.l2 else L2_SPEED * max(d.l2 / b_bytes, 1.6 / L2_SPEED)
    cached = steps * w.moved_b[rows] / (bandwidth * np.float32(speed))
    memory = np.float32(p.bytes) / bandwidth
    mean, share = blocks_of_vectors / windows, e.longest_window / max(e.nnz, 1)  # its vectors are taken to be as dense
    longest, part = np.float32(max(blocks_of_vectors * share, mean)), w.part_m[rows]
    limit = np.where(part > 0, np.minimum(longest, part), longest)
    parts = np.where((part > 0) & (longest > part), np.float32(blocks_of_vectors) / np.maximum(part, 1), 0)
    added = parts * np.float32(PART_ROWS * WINDOW * e.n * 4) / (bandwidth * np.float32(speed))
    each = np.ceil(np.minimum(np.float32(mean), limit) / w.stages[rows]) * w.latency[rows] + np.float32(START)
    warps = x.blocks[cell] / (w.resident[rows] * np.float32(d.sms))
    waves = np.ceil(np.maximum(warps, parts * x.iterations[cell] / np.float32(d.sms * 32)))
    last = np.ceil(limit / w.stages[rows]) * w.latency[rows] + np.float32(START)
    waited = np.maximum(waves * each, last) / np.float32(d.clock)
    total = (issue**3 + cached**3 + memory**3 + waited**3) ** np.float32(1 / 3)
    total = total + added + np.where(part > 0, LIST_US, 0) + np.where(parts > 0, PART_US, 0)
    out: Floats = float32(total + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
