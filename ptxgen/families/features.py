"""What the regressor sees of a problem and a configuration: logarithms of both, and what follows from them.

Three blocks of columns: what the configuration alone decides (kept for a whole class of problems), what extents and
slices decide (one row a tile and slice count), and what needs both. A million rows are gathered, not recomputed. The
columns are the same for every family; what a family does not have is at its axis's default, or zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import PACK, REALIGN, Columns
from ptxgen.codegen.geometry import Geometry
from ptxgen.families import perf_costs, registry
from ptxgen.families import perf_model as clock
from ptxgen.families.geometry import WARP, geometry
from ptxgen.families.space import Base, Candidates, Part
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

Floats = NDArray[np.float32]

#: axes whose logarithm is a feature, and axes that are codes or switches; slices come with the extents
_LOGS = (
    "ms",
    "ns",
    "ml",
    "nl",
    "u",
    "ks",
    "kl",
    "stages",
    "lanes_m",
    "vec_a",
    "vec_b",
    "vec_c",
    "min_ctas_per_sm",
    "math_warpgroups",
    "cluster_x",
    "cluster_y",
    "cluster_k",
    "epilogue_subtiles",
    "epilogue_buffers",
)
_CODES = (
    "family",
    "cp_async_a",
    "cp_async_b",
    "kmajor_smem_a",
    "kmajor_smem_b",
    "epilogue_smem",
    "bounds",
    "lane_interleave",
    "mma_order",
    "fragment_prefetch",
    "prefetch_k",
    "deferred_sts",
    "transposed_mma",
    "pingpong",
    "dsmem_completion",
    "persistent",
    "epilogue_aliases_ab",
    "tma_rows",
    "operand_path",
)
_OWN = (
    "threads",
    "shared",
    "registers",
    "fits",
    "warps_sm",
    "tile_intensity",
    "thread_intensity",
    "loop",
    "loads_a",
    "loads_b",
    "busy",
    "alone",
    "store",
    "red",
    "rate",
    "math",
    "traffic",
    "wavefronts",
    "ring",
)
_EXTENT = (
    "kg",
    "splitk",
    "raster_group",
    "store_policy",
    "m",
    "n",
    "k",
    "tiles",
    "blocks",
    "iterations",
    "padding",
    "moved",
    "reduced",
    "problem_intensity",
    "flops",
    "roofline",
    "element",
    "accumulator",
    "kmajor_a",
    "kmajor_b",
    "l2_evict_first",
    "output",
    "digits",
    "after",
    "pitch_a",
    "pitch_b",
    "pitch_c",
    "tiles_m",
    "tiles_n",
)
_BOTH = ("waves", "wave_efficiency", "blocks_sm", "thread_work", "brought", "clock", "over_roofline")

#: the columns of the matrix, in order; a model of other names is another model
NAMES = (*_LOGS, *_CODES, *_OWN, *_EXTENT, *_BOTH)
OWN, EXTENT = len(_LOGS) + len(_CODES) + len(_OWN), len(NAMES) - len(_BOTH)  #: where the first two blocks end

CHUNK = 1 << 13  #: rows filled at a time, so that the matrix is written while it is in the cache


def _axis(c: Columns, name: str) -> Any:
    """The feature of an axis. A family fills it from another of its axes, if it says so; one that has none leaves the
    axis's default."""
    own = registry.of(c).features
    return own[name](c) if name in own else c.column(name)


def _code(c: Columns, name: str) -> Floats:
    """A feature that is a code or a switch. ``operand_path`` has bits: 1 A is packed, 2 B, 4 A is realigned, 8 B."""
    if name == "operand_path":
        a, b = c.operand_path_a, c.operand_path_b
        return np.asarray((a == PACK) + 2 * (b == PACK) + 4 * (a == REALIGN) + 8 * (b == REALIGN), np.float32)
    return np.asarray(_axis(c, name), np.float32)


def _log(x: object) -> Floats:
    return np.log2(np.maximum(np.asarray(x, np.float32), np.float32(1e-6)))


def _parts(p: KernelGemm, c: Columns, g: Geometry) -> tuple[Any, Any, Any, Any, Any]:
    """Rows and columns of C of what multiplies on its own, its products an iteration, and accesses of A and B a thread:
    a thread's, a warp's or a warpgroup's tile; an access of TMA counts as if it were of 16 bytes."""
    return registry.of(c).issuer_tile(p, c, g)


def _own(p: KernelGemm, c: Columns, g: Geometry, w: clock.Work, d: Device) -> Floats:
    """The block of the configuration alone; of ``p`` only what its class shares is read."""
    warps = np.maximum(g.threads // WARP, 1)
    rows, cols, depth, loads_a, loads_b = _parts(p, c, g)
    moved = w.moved_a + w.moved_b
    columns = [_log(_axis(c, n)) for n in _LOGS] + [_code(c, n) for n in _CODES]
    columns += [
        _log(g.threads),
        _log(g.shared),
        np.asarray(g.registers, np.float32),
        _log(w.resident),
        _log(w.resident * warps),
        _log(c.ml * c.nl / (c.ml + c.nl)),
        _log(rows * cols / (rows + cols)),
        _log(depth * rows * cols),
        _log(loads_a / g.threads),
        _log(loads_b / g.threads),
        _log(w.busy / (c.ml * c.nl * c.u)),
        _log(w.latency / c.u),
        _log(w.store),
        _log(w.red),
        _log(clock.rate(p, int(c.family[0]), d)),
        _log(w.math / w.busy),
        _log(moved / (c.ml * c.nl * c.u)),
        _log(w.shared / w.busy),
        _log(w.resident * (c.stages - 1) * moved),
    ]
    return np.stack([np.broadcast_to(x, len(c)) for x in columns], axis=1)


def _pitch(p: KernelGemm, operand: str) -> float:
    """log2 of the bytes, up to a cache line, that every row of an operand starts at a multiple of."""
    size, start = (p.output if operand == "c" else p.element).bytes, getattr(p, f"aligned_{operand}")
    return math.log2(math.gcd(getattr(p, f"ld{operand}") * size, perf_costs.LINE if start >= 16 else start))


def _extent(p: KernelGemm, c: Columns, g: Geometry, roofline: float) -> Floats:
    """The block of extents and slices; of ``c`` only tiles and slices are read."""
    size = p.element.bytes
    moved = g.tiles * (c.ml + c.nl) * p.k * size
    columns = [
        _log(g.slices),
        c.splitk,
        c.raster_group,
        c.store_policy,
        _log(p.m),
        _log(p.n),
        _log(p.k),
        _log(g.tiles),
        _log(g.blocks),
        _log(np.minimum(g.chunk, max(p.k, 1)) / c.u),
        p.results / np.maximum(g.tiles * c.ml * c.nl, 1),
        _log(moved),
        _log((g.slices - 1) * (p.results * g.sum_bytes) + 1),
        _log(p.flops / max(p.bytes, 1)),
        _log(p.flops),
        _log(roofline),
        size,
        p.accumulator.bytes,
        p.layout[0] == "N",
        p.layout[1] == "T",
        _axis(c, "l2_evict_first"),
        p.output.bytes,
        -math.log2(p.element.roundoff) if p.element.roundoff else 8,
        len(p.epilogue_ops),
        _pitch(p, "a"),
        _pitch(p, "b"),
        _pitch(p, "c"),
        _log(g.tiles_m),
        _log(g.tiles_n),
    ]
    return np.stack([np.broadcast_to(np.asarray(x, np.float32), len(c)) for x in columns], axis=1)


def _both(
    d: Device,
    out: Floats,
    blocks: Floats,
    iterations: Floats,
    own: tuple[Floats, Floats, Floats],
    us: Floats,
    roofline: float,
) -> None:
    """Fills the block that needs both. ``own``: what ``_thread`` returns."""
    fits, thread, moved = own
    waves = blocks / (fits * np.float32(d.sms))
    rounded = np.ceil(waves)
    most = np.ceil(blocks / np.float32(d.sms))
    out[:, 0] = np.log2(np.maximum(waves, np.float32(1e-6)))
    out[:, 1] = waves / np.maximum(rounded, 1)
    out[:, 2] = np.minimum(most, fits)
    out[:, 3] = np.log2(thread * iterations)
    out[:, 4] = np.log2(moved * iterations * np.maximum(most, 1))
    out[:, 5] = np.log2(us)
    out[:, 6] = out[:, 5] - np.float32(np.log2(roofline))


def _own_of_rows(b: Base, rows: NDArray[Any]) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
    """(block of the configuration alone, what the block of both takes of it) of some rows of a base, all different."""
    parts, of_row = [], []
    for at in range(0, len(rows), 1 << 15):
        some = rows[at : at + (1 << 15)]
        c, w = b.columns.take(some), clock.work_of_rows(b, some)
        parts.append(_own(b.problem, c, geometry(b.problem, c), w, b.device))
        of_row.append(_thread(b.problem, c, w))
    fits, thread, moved = (np.concatenate(x) for x in zip(*of_row, strict=True))
    return np.concatenate(parts), (fits, thread, moved)


def _thread(p: KernelGemm, c: Columns, w: clock.Work) -> tuple[Floats, Floats, Floats]:
    """Blocks that fit; products of a thread, or of a thread's share of what multiplies on its own, an iteration; bytes
    that an iteration brings."""
    each = registry.of(c).thread_products(c)
    return w.resident, np.asarray(each, np.float32), w.moved_a + w.moved_b


def features(p: KernelGemm, c: Columns, d: Device, us: Floats | None = None) -> Floats:
    """One row a configuration, one column a name of NAMES: float32, C-contiguous. Rows must be legal.

    ``us``: ``clock.predict(p, c, d)``, where it is known already.
    """
    us = clock.predict(p, c, d) if us is None else us
    x = np.empty((len(c), len(NAMES)), np.float32)
    if isinstance(c, Candidates):
        for part, where, rows, cells in c.groups():
            table = _Table(p, part, d, rows)
            for at in range(0, len(rows), CHUNK):
                these = slice(at, at + CHUNK)
                if isinstance(where, slice):  # filled in place
                    place = slice(where.start + at, min(where.start + at + CHUNK, where.stop))
                    table.fill(x[place], these, cells[these], us[place])
                else:
                    block = np.empty((len(rows[these]), len(NAMES)), np.float32)
                    table.fill(block, these, cells[these], us[where[these]])
                    x[where[these]] = block
        return x
    for _, found in clock.by_family(c):
        mine = c.take(found)
        w, one, g = clock.work(p, mine, d), clock.without_slices(mine), geometry(p, mine)
        block = np.empty((len(found), len(NAMES)), np.float32)
        block[:, :OWN] = _own(p, one, geometry(p, one), w, d)
        roofline = clock.roofline(p, d)
        block[:, OWN:EXTENT] = _extent(p, mine, g, roofline)
        blocks = np.asarray(g.blocks, np.float32)
        _both(d, block[:, EXTENT:], blocks, _iterations(p, mine, g), _thread(p, mine, w), us[found], roofline)
        x[found] = block
    return x


class _Table:
    """The two small tables of one part of the candidates of a problem: of the rows of its base, and of its cells."""

    def __init__(self, p: KernelGemm, part: Part, d: Device, rows: NDArray[np.int32]) -> None:
        self.device = d
        some, self.place = part.base.distinct(rows)
        self.own, self.of_row = _own_of_rows(part.base, some)
        g, self.roofline = part.geometry, clock.roofline(p, d)
        self.extent = _extent(p, part.cells, g, self.roofline)
        self.blocks = np.asarray(g.blocks, np.float32)
        self.iterations = _iterations(p, part.cells, g)

    def fill(self, out: Floats, these: slice, cells: NDArray[np.int32], us: Floats) -> None:
        """The rows of the matrix of these of the part's rows and of these cells."""
        rows = self.place[these]
        out[:, :OWN] = self.own[rows]
        out[:, OWN:EXTENT] = self.extent[cells]
        fits, thread, moved = (x[rows] for x in self.of_row)
        blocks, iterations = self.blocks[cells], self.iterations[cells]
        _both(self.device, out[:, EXTENT:], blocks, iterations, (fits, thread, moved), us, self.roofline)


def _iterations(p: KernelGemm, c: Columns, g: Geometry) -> Floats:
    return np.asarray(np.maximum(-(-np.minimum(g.chunk, p.k) // c.u), 1), np.float32)
