"""The performance model of shared_slab kernels, from copies of tiles of B, instructions, and accesses to shared
memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import WARP, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.shared_slab.axes import SEVERAL
from ptxgen.families.shared_slab.geometry import SharedSlabGeometry
from ptxgen.lowering.csr import SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

OVERHEAD = 2.0  #: instructions for a nonzero of each group besides its products
STAGING = 29.0  #: instructions to stage nonzeros once
STAGED = 9.0  #: further instructions to stage each 32 nonzeros
ROW = 65.0  #: instructions of a row in a tile besides its nonzeros
PRODUCTS = 0.8  #: share of the issue rate that loops over nonzeros reach
WARPS = 8.0  #: warps of a multiprocessor with which half of the latency overlaps
START = 2500.0  #: cycles from the start of a block to its first products, plus those of its last store


def work(p: KernelProblem, c: Columns, g: SharedSlabGeometry, d: Device) -> Work:
    """The cost of a block: cycles of a multiprocessor for a nonzero of each group of a warp, cycles for a row in a
    tile, bytes of rows."""
    size = p.element.bytes
    elements = VECTOR // size
    converted = 2 if size == 2 else 1
    slow = 128 / d.fma64 if size == 8 else 128 / d.fma
    staging = (STAGING * WARP / c.nonzeros_staged + STAGED) / g.lanes
    issue = (OVERHEAD + staging + 1 / c.nonzeros_read + elements * converted * slow) / perf_costs.ISSUE
    conflicts = np.where(g.row_bytes < perf_costs.WAVEFRONT, 1.5, 1.0)
    shared = VECTOR * WARP / perf_costs.WAVEFRONT * conflicts + 1.0
    resident = resident_blocks(c, g, d)
    idle = 1 + WARPS / (resident * c.block_warps) / c.nonzeros_in_flight
    return Work.of(
        len(c),
        resident=resident,
        busy=np.maximum(issue, shared) / PRODUCTS * idle,
        latency=ROW / perf_costs.ISSUE / PRODUCTS * idle,
        moved_b=g.row_bytes,
        stages=np.where(c.tile_buffers > 1, 2, np.minimum(resident, 2)),
        start=np.where(c.k_tiles == SEVERAL, c.tile_k, 0),
        store=c.c_rows,
        part_n=WARP // g.lanes,
        part_m=c.nonzeros_read,
    )


def cell(p: KernelProblem, c: Columns, g: SharedSlabGeometry, d: Device) -> Cells:
    """The number of blocks; no other number depends on extents."""
    return Cells.of_slabs(g.slabs, g.blocks)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch."""
    e: SparseExtents = p.extents
    blocks = x.blocks[cell]
    k, tile_k = np.float32(max(e.k, 1)), w.start[rows]
    tiles = np.ceil(k / np.where(tile_k > 0, tile_k, k))
    groups, least = w.part_n[rows], w.part_m[rows]
    length = np.float32(e.nnz / max(e.m, 1)) / tiles
    steps = length / groups + least / 2
    row = steps * w.busy[rows] + w.latency[rows]
    longest = np.float32(e.longest) / groups * w.busy[rows] * perf_costs.ISSUE
    compute = np.maximum(np.minimum(w.store[rows], e.m) * tiles * row, longest)
    copy = k * w.moved_b[rows] / np.float32(perf_costs.L2_BYTES)
    waves = np.ceil(blocks / np.float32(d.sms))
    overlapped = (compute**4 + copy**4) ** np.float32(0.25) + copy / tiles
    each = np.where(w.stages[rows] > 1, overlapped, compute + copy)
    memory = np.float32(p.bytes) / np.float32(d.bandwidth * 1e3 * perf_costs.DRAM)
    busy = (waves * each + np.float32(START)) / np.float32(d.clock)
    total = (busy**4 + memory**4) ** np.float32(0.25)
    out: Floats = float32(total + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
