"""The time of a grouped kernel: blocks take tiles of different lengths one after the other, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.geometry import MultistageGeometry, TileGeometry
from ptxgen.codegen.vectorized import SECTOR, WARP
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Floats, Work, bound
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: instructions of a thread for each vector of a row of C that a warp stores, and for each further thread group whose
#: sums are added to it
STORE_ISSUE, SUM_ISSUE = 5.6, 1.5
PARTS = tuple(1 << i for i in range(10))  #: possible numbers of rows or columns of a part of a tile
COPY_SHARE = 0.15  #: share of an iteration that a warp takes even if it multiplies nothing
#: cycles at the end of a K slice for a fence and the counter of its tile; the same for the last slice, which also reads
#: the sums of the others
SLICE_CYCLES, LAST_SLICE_CYCLES = 1200.0, 1500.0
#: cycles from a block's tile to the first loads of its next tile: search for the tile and load of a descriptor
TILE_CYCLES = 1100.0


def calibrated(p: KernelProblem) -> bool:
    """True if copies and stores of ``p`` have the costs measured for groups, which are those of f32."""
    return grouped(p) and p.dtype == p.compute == "f32"


def store_cycles(p: KernelProblem, c: Columns, g: TileGeometry, width: Any, adjacent: Any) -> Any:
    """The number of cycles in which a block stores a whole tile of C, in 32-byte sectors. ``width``: elements of an
    access; ``adjacent``: elements that a thread has side by side in registers. If accesses are narrower than these
    elements, a warp visits a sector several times. Through shared memory, a warp stores whole rows, and the last sector
    of one row is the first of the next."""
    bytes_ = c.ml * c.nl * p.output.bytes
    visits = np.maximum(np.minimum(adjacent * p.output.bytes, SECTOR) / (width * p.output.bytes), 1)
    rows = np.where(width * p.output.bytes < 16, 1 + SECTOR / np.minimum(c.nl * p.output.bytes, perf_costs.LINE), 1)
    staged = 2 * c.kl * c.ml * c.nl * g.sum_bytes / perf_costs.WAVEFRONT + 2 * perf_costs.BARRIER
    staged = staged + c.ml * c.nl / width / WARP * perf_costs.LDG
    issued = c.ml * c.nl / width / WARP * (STORE_ISSUE + SUM_ISSUE * (c.kl - 1)) / perf_costs.ISSUE
    via_smem = (c.epilogue_smem == 1) | (c.kl > 1)
    moved = np.where(via_smem, rows, visits) * bytes_ / perf_costs.L2_BYTES
    return np.where(via_smem, bound(moved, staged, issued), moved)


def load_latency(c: Columns, path: Any) -> Any:
    """The least cycles of a K iteration whose instructions take ``path`` cycles. Loads to registers are stored to
    shared memory in the same iteration, whatever the number of stages; cp.async has the time of the other stages."""
    asynchronous = (c.cp_async_a == 1) & (c.cp_async_b == 1)
    load = np.where(c.l2_prefetch == 1, perf_costs.L2_LOAD, perf_costs.COLD_LOAD)
    waited = load / np.where(asynchronous, np.maximum(c.stages - 1, 1), 1)
    return bound(path, waited) + np.where(asynchronous, 0, perf_costs.REGISTER_COPY)


def slice_cycles(p: KernelProblem, c: Columns) -> Any:
    """The number of cycles in which one block stores the sums of a K slice of a tile and another block loads them."""
    return 2 * c.ml * c.nl * c.kl * c.ks * p.accumulator.bytes / perf_costs.L2_BYTES


def parts(g: MultistageGeometry) -> dict[str, Any]:
    """The columns ``part_m`` and ``part_n`` of Work."""
    return {"part_m": np.log2(np.maximum(g.part_m, 1)), "part_n": np.log2(np.maximum(g.part_n, 1))}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class GroupedCells:
    """The numbers that depend on the items, one entry for each tile of blocks and slice count."""

    tiles: Floats  #: tiles of all items
    iterations: Floats  #: mean K iterations of a tile
    longest: Floats  #: K iterations of the longest tile
    filled: Floats  #: share of the elements of tiles that are inside C
    products: Floats  #: multiply-adds of all tiles if each is computed as a whole tile
    split: Floats  #: share of the tiles that are one of several K slices
    whole: Floats  #: fraction of the tiles that store C
    padded: Floats  #: at [i, j]: multiply-adds with M padded to multiples of 2**i and N to multiples of 2**j


def cell(p: KernelProblem, c: Columns, g: TileGeometry, d: Device) -> GroupedCells:
    """The cells of the configurations ``c``."""
    mean, longest = p.extents.tile_iterations(c.ml, c.nl, c.u, c.kg)
    tiles = p.extents.tiles(c.ml, c.nl, c.u, c.kg)
    numbers = {
        "tiles": tiles,
        "iterations": mean,
        "longest": longest,
        "filled": p.results / np.maximum(g.tiles * c.ml * c.nl, 1),
        "products": p.extents.tile_products(c.ml, c.nl),
        "split": p.extents.split_tiles(c.ml, c.nl, c.u, c.kg) / np.maximum(tiles, 1),
        "whole": g.tiles / np.maximum(tiles, 1),
    }
    columns = {n: np.asarray(np.broadcast_to(v, len(c)), np.float32) for n, v in numbers.items()}
    return GroupedCells(padded=p.extents.padded_products(PARTS).astype(np.float32), **columns)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: GroupedCells, cell: Any) -> Floats:
    """The microseconds of a launch: the larger of the longest tile and a multiprocessor's share of all tiles, plus a
    tail of half a tile; but at least the time of the memory traffic."""
    each = x.tiles[cell] / np.float32(d.sms)
    together = np.clip(np.ceil(each), 1, w.resident[rows])  # tiles that a multiprocessor computes at once
    busy = np.maximum(w.busy[rows], (w.moved_a[rows] + w.moved_b[rows]) / np.float32(perf_costs.L2_BYTES))
    # warps skip parts of tiles that have no element of C, but copy
    padded = x.padded[w.part_m[rows].astype(np.intp), w.part_n[rows].astype(np.intp)]
    multiplied = np.minimum(padded / np.maximum(x.products[cell], 1), 1)
    computed = np.float32(COPY_SHARE) + np.float32(1 - COPY_SHARE) * multiplied
    iteration = np.maximum(together * busy * computed + w.idle[rows], w.latency[rows])
    start = w.start[rows] + np.float32(TILE_CYCLES)
    # a slice stores its sums, which the last one of the tile loads
    sums = x.split[cell] * w.partial[rows]
    start = start + x.split[cell] * np.float32(SLICE_CYCLES)
    # blocks hide each other's stores and starts, as far as several of them share a multiprocessor
    store = w.store[rows] * x.filled[cell]
    stored = store * x.whole[cell] + sums
    tile = x.iterations[cell] * iteration + start / np.sqrt(together) + together * stored
    share = each / together * tile
    longest = x.longest[cell] * iteration + start + store + (x.split[cell] > 0) * np.float32(LAST_SLICE_CYCLES)
    cycles = np.maximum(share + np.where(each > 1, tile / 2, 0), longest)
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    table = np.float32(perf_costs.TABLE_US if "offsets" in p.arrays else 0.0)
    out: Floats = np.maximum(cycles / np.float32(d.clock), memory) + np.float32(perf_costs.LAUNCH_US) + table
    return out.astype(np.float32)
