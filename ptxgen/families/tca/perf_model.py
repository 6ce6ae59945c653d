"""The performance model of tca kernels, from steps of warps (8 nonzeros by a tile of columns) and the latency of the
longest row. The constants were fitted to a kernel of the same method on an H100."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.tca import layout
from ptxgen.lowering.csr import SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: cycles of a multiprocessor per step of a warp: in rows of up to 64 nonzeros, which wait at barriers and add diagonals
#: in each tile, and in longer rows
SHORT_STEP, LONG_STEP = 185.0, 58.0
LATENCY = 1900.0  #: cycles from the loads of 64 column indices to the second barrier after their products
ACCESS = 0.08  #: share of a step per access to B
ROW = 0.7  #: steps for each row and tile in addition to its whole parts of 8 nonzeros


def work(p: KernelProblem, c: Columns, g: Geometry, d: Device) -> Work:
    """The cost of a step relative to a step with accesses of 8 elements."""
    accesses = layout.PART // c.vec_b
    relative = 1 + ACCESS * (accesses - 1)
    return Work.of(len(c), resident=resident_blocks(c, g, d), busy=relative, latency=LATENCY * relative)


def cell(p: KernelProblem, c: Columns, g: Geometry, d: Device) -> Cells:
    """The number of tiles of columns; no other number depends on extents."""
    return Cells.of_slabs(layout.tiles(p.extents.n) + c.vec_b * 0, g.blocks)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch. Most rows are assumed to have about the mean length."""
    e: SparseExtents = p.extents
    tiles = x.iterations[cell]
    filled = min(e.m, e.nnz)
    long = e.nnz > layout.NONZEROS * filled
    steps = np.float32(e.nnz / layout.PART + filled * (layout.WARPS / 2 if long else ROW)) * tiles
    step = np.float32(LONG_STEP if long else SHORT_STEP)
    busy = steps * step * w.busy[rows] / np.float32(d.sms * d.clock)
    parts = -(-e.longest // layout.NONZEROS)
    tiles_of_block = np.ceil(tiles / np.float32(max(parts, 1))) if long else tiles
    waited = np.maximum(parts * tiles_of_block, tiles * (e.nnz > 0)) * w.latency[rows] / np.float32(d.clock)
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    out: Floats = float32((busy**4 + waited**4 + memory**4) ** np.float32(0.25) + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
