"""What the regressor sees of a problem and a configuration: logarithms of both, and what follows from them.

Three blocks of columns: what the configuration alone decides (kept for a whole class of problems), what extents and
slices decide (one row a tile and slice count), and what needs both. A million rows are gathered, not recomputed.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from ptxgen import clock
from ptxgen.config import Columns
from ptxgen.device import Device
from ptxgen.geometry import WARP, geometry
from ptxgen.problem import Gemm
from ptxgen.space import Base, Candidates

Floats = NDArray[np.float32]

#: axes whose logarithm is a feature, and axes that are codes or switches; slices come with the extents
_LOGS = ("ms", "ns", "ml", "nl", "u", "ks", "kl", "stages", "wm", "vec_a", "vec_b", "vec_c", "resident")
_CODES = (
    "family",
    "copy_a",
    "copy_b",
    "keep_a",
    "keep_b",
    "stage_c",
    "bounds",
    "lanes",
    "order",
    "ahead",
    "request",
    "hold",
)
# fmt: off
_OWN = ("threads", "shared", "registers", "fits", "warps_sm", "tile_intensity", "thread_intensity", "loop", "loads_a",
        "loads_b", "busy", "alone", "store", "red")
_EXTENT = ("kg", "split", "raster", "stream", "m", "n", "k", "tiles", "blocks", "iterations", "padding", "moved",
           "reduced", "problem_intensity", "flops", "roofline", "element", "accumulator", "kmajor_a", "kmajor_b")
# fmt: on
_BOTH = ("waves", "wave_efficiency", "blocks_sm", "thread_work", "clock", "over_roofline")

#: the columns of the matrix, in order; a model of other names is another model
NAMES = (*_LOGS, *_CODES, *_OWN, *_EXTENT, *_BOTH)

CHUNK = 1 << 13  #: rows filled at a time, so that the matrix is written while it is in the cache


def _log(x: object) -> Floats:
    return np.log2(np.maximum(np.asarray(x, np.float32), np.float32(1e-6)))


def _own(p: Gemm, c: Columns, g: SimpleNamespace, w: clock.Work, d: Device) -> Floats:
    """The block of the configuration alone; of ``p`` only what its class shares is read."""
    warps = np.maximum(g.threads // WARP, 1)
    columns = [_log(c.columns[n]) for n in _LOGS] + [np.asarray(c.columns[n], np.float32) for n in _CODES]
    columns += [
        _log(g.threads), _log(g.shared), np.asarray(g.registers, np.float32), _log(w.resident),
        _log(w.resident * warps), _log(c.ml * c.nl / (c.ml + c.nl)), _log(c.ms * c.ns / (c.ms + c.ns)),
        _log(g.uk * c.ms * c.ns), _log(g.a.loads / g.threads), _log(g.b.loads / g.threads),
        _log(w.busy / (c.ml * c.nl * c.u)), _log(w.alone / c.u), _log(w.store), _log(w.red),
    ]  # fmt: skip
    return np.stack(columns, axis=1)


def _extent(p: Gemm, c: Columns, g: SimpleNamespace, d: Device) -> Floats:
    """The block of extents and slices; of ``c`` only tiles and slices are read."""
    size = p.element.bytes
    moved = (g.tiles_m * c.ml * p.k * g.tiles_n + g.tiles_n * c.nl * p.k * g.tiles_m) * size
    columns = [
        _log(g.slices), c.split, c.raster, c.stream, _log(p.m), _log(p.n), _log(p.k), _log(g.tiles), _log(g.blocks),
        _log(np.minimum(g.chunk, max(p.k, 1)) / c.u), p.m * p.n / np.maximum(g.tiles * c.ml * c.nl, 1), _log(moved),
        _log((g.slices - 1) * (p.m * p.n * g.sum_bytes) + 1), _log(p.flops / max(p.bytes, 1)), _log(p.flops),
        _log(clock.roofline(p, d)), size, p.accumulator.bytes, p.layout[0] == "N", p.layout[1] == "T",
    ]  # fmt: skip
    return np.stack([np.broadcast_to(np.asarray(x, np.float32), len(c)) for x in columns], axis=1)


def _both(
    p: Gemm, d: Device, out: Floats, blocks: Floats, iterations: Floats, fits: Floats, thread: Floats, us: Floats
) -> None:
    """Fills the block that needs both. ``thread``: products of one thread an iteration."""
    waves = blocks / (fits * np.float32(d.sms))
    rounded = np.ceil(waves)
    out[:, 0] = np.log2(np.maximum(waves, np.float32(1e-6)))
    out[:, 1] = waves / np.maximum(rounded, 1)
    out[:, 2] = np.minimum(np.ceil(blocks / np.float32(d.sms)), fits)
    out[:, 3] = np.log2(thread * iterations)
    out[:, 4] = np.log2(us)
    out[:, 5] = out[:, 4] - np.float32(np.log2(clock.roofline(p, d)))


@lru_cache(maxsize=8)
def _base_own(b: Base) -> tuple[Floats, Floats, Floats]:
    """(block of the configuration alone, resident blocks, products of a thread an iteration) of a base's rows."""
    w = clock.base_work(b)
    parts = []
    for at in range(0, len(b.columns), 1 << 15):
        rows = slice(at, at + (1 << 15))
        c = b.columns.take(np.arange(len(b.columns))[rows])
        part = clock.Work(*(getattr(w, n)[rows] for n in w.__dataclass_fields__))
        parts.append(_own(b.problem, c, geometry(b.problem, c), part, b.device))
    return np.concatenate(parts), w.resident, _thread(b.columns, b.problem)


def _thread(c: Columns, p: Gemm) -> Floats:
    return np.asarray(c.ms * c.ns * (c.u // np.maximum(c.kl, 1)), np.float32)


def features(p: Gemm, c: Columns, d: Device, us: Floats | None = None) -> Floats:
    """One row a configuration, one column a name of NAMES: float32, C-contiguous. Rows must be legal.

    ``us``: ``clock.predict(p, c, d)``, where it is known already.
    """
    us = clock.predict(p, c, d) if us is None else us
    x = np.empty((len(c), len(NAMES)), np.float32)
    if not len(c):
        return x
    own, extent = len(_LOGS) + len(_CODES) + len(_OWN), len(NAMES) - len(_BOTH)
    if not isinstance(c, Candidates):
        g = geometry(p, c)
        w = clock.work(p, c, g, d)
        x[:, :own] = _own(p, c, g, w, d)
        x[:, own:extent] = _extent(p, c, g, d)
        iterations = _iterations(p, c, g)
        _both(p, d, x[:, extent:], np.asarray(g.blocks, np.float32), iterations, w.resident, _thread(c, p), us)
        return x
    table, fits, thread = _base_own(c.base)
    g = geometry(p, c.cells)
    cells, blocks, iterations = _extent(p, c.cells, g, d), np.asarray(g.blocks, np.float32), _iterations(p, c.cells, g)
    for at in range(0, len(c), CHUNK):
        rows, cell, out = c.rows[at : at + CHUNK], c.cell[at : at + CHUNK], x[at : at + CHUNK]
        out[:, :own] = table[rows]
        out[:, own:extent] = cells[cell]
        _both(p, d, out[:, extent:], blocks[cell], iterations[cell], fits[rows], thread[rows], us[at : at + CHUNK])
    return x


def _iterations(p: Gemm, c: Columns, g: SimpleNamespace) -> Floats:
    return np.asarray(np.maximum(-(-np.minimum(g.chunk, p.k) // c.u), 1), np.float32)
