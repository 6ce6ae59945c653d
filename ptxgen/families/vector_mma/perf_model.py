"""The performance model of vector_mma kernels: instructions, bytes of L2 and memory, latency of long windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import ceil_div, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.matrix_instructions import instruction
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.vector_mma.geometry import WINDOW, VectorMmaGeometry, lane_rows
from ptxgen.lowering.csr import SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

OVERHEAD = 8.0  #: instructions of a block besides those of its loads and products
ROW_BYTES = 32  #: bytes that a load of a row of B costs besides its own
L2_SPEED = 2.4  #: bandwidth of the L2 cache over that of device memory
PAD = 0.45  #: the mean share of the last block of a window that is padding
#: cycles of an iteration: fixed, and of each block and element, with a warp alone
ROUND, BLOCK, ELEMENT = 250.0, 80.0, 10.0
START = 1500.0  #: cycles from the start of a window to its first products, and of its store


def work(p: KernelProblem, c: Columns, g: VectorMmaGeometry, d: Device) -> Work:
    """The cost of a block of vectors in a slab: warp instructions, bytes of L2; the latency of one iteration."""
    i, rows = instruction(p), lane_rows(p)
    loads = rows * c.lane_vectors
    pieces = 5 if p.element.bytes == 2 else 5.5  # of a left operand: permutes or roundings, and the product
    moved = i.k * (np.maximum(g.slab * p.element.bytes, ROW_BYTES) + ROW_BYTES + 4) + WINDOW * i.k * p.element.bytes
    return Work.of(
        len(c),
        resident=resident_blocks(c, g, d),
        busy=(OVERHEAD + rows + 3 * loads + pieces * g.elements / 2) / perf_costs.ISSUE,
        latency=ROUND + c.blocks_in_flight * (BLOCK + ELEMENT * g.elements),
        moved_b=moved,
        stages=c.blocks_in_flight,
        store=c.block_windows,
    )


def cell(p: KernelProblem, c: Columns, g: VectorMmaGeometry, d: Device) -> Cells:
    """The blocks; nothing else depends on extents."""
    return Cells(
        iterations=float32(g.slabs), blocks=float32(g.blocks), extra=float32(0), queue=float32(0), c_cost=float32(0)
    )


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """Microseconds of a launch."""
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
    each = np.ceil(np.float32(blocks_of_vectors / windows) / w.stages[rows]) * w.latency[rows] + np.float32(START)
    waves = np.ceil(x.blocks[cell] / (w.resident[rows] * np.float32(d.sms)))
    share = e.longest_window / max(e.nnz, 1)  # of the longest window: its vectors are taken to be as dense
    longest = np.ceil(np.float32(blocks_of_vectors * share) / w.stages[rows]) * w.latency[rows]
    waited = np.maximum(waves * each, longest) / np.float32(d.clock)
    total = (issue**3 + cached**3 + memory**3 + waited**3) ** np.float32(1 / 3)
    out: Floats = float32(total + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
