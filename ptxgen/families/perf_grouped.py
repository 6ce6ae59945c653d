"""The time of a grouped kernel: tiles of many lengths, which blocks take one after the other, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.config import Columns
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import SECTOR, WARP
from ptxgen.families import perf_costs
from ptxgen.families.perf_blocks import Floats, Work
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

TILE_CYCLES = 1100.0  #: from one tile of a block to the first loads of the next: the search and a descriptor


def calibrated(p: KernelGemm) -> bool:
    """Whether copies and stores of ``p`` have the costs that were measured for groups: those of f32."""
    return p.grouped and p.dtype == p.compute == "f32"


def store_cycles(p: KernelGemm, c: Columns, g: Geometry, width: Any, adjacent: Any) -> Any:
    """Cycles in which a block stores a whole tile of C, in 32-byte sectors. ``width``: elements of an access;
    ``adjacent``: elements that a thread has side by side in registers, so that a warp's narrower accesses visit a
    sector several times. Through shared memory, a warp stores whole rows, whose ends share sectors."""
    bytes_ = c.ml * c.nl * p.output.bytes
    visits = np.maximum(np.minimum(adjacent * p.output.bytes, SECTOR) / (width * p.output.bytes), 1)
    rows = np.where(width * p.output.bytes < 16, 1 + SECTOR / np.minimum(c.nl * p.output.bytes, perf_costs.LINE), 1)
    staged = 2 * c.kl * c.ml * c.nl * g.sum_bytes / perf_costs.WAVEFRONT + 2 * perf_costs.BARRIER
    staged = staged + c.ml * c.nl / width / WARP * perf_costs.LDG
    via_smem = (c.epilogue_smem == 1) | (c.kl > 1)
    return np.where(via_smem, rows, visits) * bytes_ / perf_costs.L2_BYTES + np.where(via_smem, staged, 0)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class GroupedCells:
    """The numbers that depend on the items, one entry per tile of a block."""

    tiles: Floats  #: tiles of all items
    iterations: Floats  #: K iterations of a tile, on average
    longest: Floats  #: K iterations of the longest tile
    filled: Floats  #: share of the elements of tiles that are inside C


def cell(p: KernelGemm, c: Columns, g: Geometry, d: Device) -> GroupedCells:
    """The cells of ``c``."""
    mean, longest = p.tile_iterations(c.ml, c.nl, c.u)
    return GroupedCells(
        tiles=np.asarray(np.broadcast_to(g.tiles, len(c)), np.float32),
        iterations=np.asarray(np.broadcast_to(mean, len(c)), np.float32),
        longest=np.asarray(np.broadcast_to(longest, len(c)), np.float32),
        filled=np.asarray(np.broadcast_to(p.results / np.maximum(g.tiles * c.ml * c.nl, 1), len(c)), np.float32),
    )


def microseconds(p: KernelGemm, d: Device, w: Work, rows: Any, x: GroupedCells, cell: Any) -> Floats:
    """Microseconds of a launch: the larger of a multiprocessor's share of all tiles and the longest tile, and the tail,
    which is half a tile; but at least the memory traffic."""
    each = x.tiles[cell] / np.float32(d.sms)
    together = np.clip(np.ceil(each), 1, w.resident[rows])  # tiles that a multiprocessor computes at once
    busy = np.maximum(w.busy[rows], (w.moved_a[rows] + w.moved_b[rows]) / np.float32(perf_costs.L2_BYTES))
    iteration = np.maximum(together * busy + w.idle[rows], w.latency[rows])
    start = w.start[rows] + np.float32(TILE_CYCLES)
    # blocks hide each other's stores and starts, as far as several of them share a multiprocessor
    store = w.store[rows] * x.filled[cell]
    tile = x.iterations[cell] * iteration + start / np.sqrt(together) + together * store
    share = each / together * tile
    longest = x.longest[cell] * iteration + start + store
    cycles = np.maximum(share + np.where(each > 1, tile / 2, 0), longest)
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    table = np.float32(perf_costs.TABLE_US if "offsets" in p.arrays else 0.0)
    out: Floats = np.maximum(cycles / np.float32(d.clock), memory) + np.float32(perf_costs.LAUNCH_US) + table
    return out.astype(np.float32)
