"""The performance model of compressed_tiles kernels, from bytes of memory and of L2, instructions of tiles, and
latency."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import WARP, ceil_div, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.compressed_tiles.axes import OFFSETS
from ptxgen.families.compressed_tiles.geometry import GROUP, CompressedTilesGeometry
from ptxgen.families.compressed_tiles.layout import COLUMNS, PIECE, ROWS, WORDS, pieces
from ptxgen.lowering.csr import SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: warp instructions of the loop over tiles on sm_90, counted in the machine code of ptxas 13.0: for a copied tile; for
#: a word of the bitmap of 16-bit elements, and of other elements; for a tile of zeros, and for 32 nonzeros stored to
#: it; the further instructions if elements of B are loaded as fragments
PREFETCH = 62.0
WORD_16, WORD = 6.5, 7.5
ZEROS, SCATTER = 40.0, 12.0
GATHER = 70.0
#: further instructions with 16-bit elements for each group of columns after the first, fitted to times on an H100
MORE_16 = 130.0
#: the share of the issue rate that loops over tiles reach with many warps; and the number of warps per scheduler that
#: reach 63 % of that share, for 16-bit elements and for others. Fitted to 16 kernels on an H100 (layers of 4096x4096, N
#: = 1, 8, 16)
ISSUED = 0.75
HIDING_16, HIDING = 3.0, 1.0
START = 1800.0  #: cycles from the start of a block to its first products, plus those of the final sum over its warps
ROUND = 900.0  #: cycles from the start of a tile's copy to its arrival


def work(p: KernelProblem, c: Columns, g: CompressedTilesGeometry, d: Device) -> Work:
    """The costs of a block: cycles of a multiprocessor for a tile, bytes of B of a tile, tiles in flight."""
    half = p.element.bytes == 2
    groups = ceil_div(c.b_columns, GROUP)
    products = (
        4 * groups + np.where((c.vec_b == 1) & (c.vector_b == 0), GATHER, 2.0) * groups + MORE_16 * (groups - 1)
        if half
        else WORDS * (c.b_columns * 128 / d.fma + np.maximum(c.b_columns / 4, 1))
    )
    offsets = c.tile_index == OFFSETS
    expanded = np.where(
        offsets, ROWS * COLUMNS * p.element.bytes / (WARP * PIECE) * 2 + ZEROS, (WORD_16 if half else WORD) * WORDS
    )
    return Work.of(
        len(c),
        resident=resident_blocks(c, g, d),
        busy=(PREFETCH + expanded + products) / perf_costs.ISSUE,
        latency=ROUND,
        moved_b=COLUMNS * np.where(c.vector_b == 1, 1, c.b_columns) * p.element.bytes,
        stages=c.stages - 1,
        store=c.tile_warps,
        part_m=offsets,
    )


def cell(p: KernelProblem, c: Columns, g: CompressedTilesGeometry, d: Device) -> Cells:
    """The number of blocks; no other number depends on extents."""
    return Cells.of_slabs(g.slabs, g.blocks)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch."""
    e: SparseExtents = p.extents
    blocks, slabs = x.blocks[cell], x.iterations[cell]
    each = float(ceil_div(max(e.k, 1), COLUMNS))  # tiles of 32 rows
    tiles = each * float(ceil_div(max(e.m, 1), ROWS))
    mean = e.nnz / max(tiles, 1.0)  # nonzeros of a tile
    offsets = w.part_m[rows]
    bytes_a = np.float32(tiles * PIECE) * np.where(offsets > 0, *(pieces(p.element.bytes, mean, n) for n in (1, 0)))
    bandwidth = np.float32(d.bandwidth * 1e3 * perf_costs.DRAM)
    memory = (bytes_a + np.float32((e.k + e.m) * float(e.n) * p.element.bytes)) / bandwidth
    cached = (bytes_a + np.float32(tiles) * w.moved_b[rows]) * slabs
    cached = cached / np.float32(perf_costs.L2_BYTES * d.sms * d.clock)
    waves = np.ceil(blocks / np.float32(d.sms))  # of blocks on the busiest multiprocessor
    scattered = offsets * np.float32(SCATTER * np.ceil(mean / WARP) / perf_costs.ISSUE)
    warps = w.store[rows] * np.minimum(waves, w.resident[rows]) / np.float32(perf_costs.ISSUE)  # of a scheduler
    hiding = HIDING_16 if p.element.bytes == 2 else HIDING
    reached = np.float32(ISSUED) * (1 - np.exp(-warps / np.float32(hiding)))
    issue = waves * np.float32(each) * (w.busy[rows] + scattered) / reached / np.float32(d.clock)
    mine = np.ceil(np.float32(each) / w.store[rows])  # tiles of a warp
    rounds = np.ceil(waves / w.resident[rows]) * (np.ceil(mine / w.stages[rows]) * w.latency[rows] + np.float32(START))
    waited = rounds / np.float32(d.clock)
    total = (memory**3 + cached**3 + issue**3 + waited**3) ** np.float32(1 / 3)
    out: Floats = float32(total + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
