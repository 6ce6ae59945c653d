"""Which configurations there are: the whole legal space, and the neighbourhood of one configuration.

The space is columnar. What does not depend on extents is built once for each class of problems (types, layout,
alignment, device) and kept; a problem adds its slices of K, tile by tile. Nothing here decides legality: rows of
``rules.RULES`` do, each evaluated once on the smallest table that has the columns it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.config import AXES, AXIS, FAMILIES, SPLIT_FLAG, SPLIT_MEMSET, SPLIT_WORKSPACE, Columns, Config
from ptxgen.device import Device
from ptxgen.geometry import WARP, geometry, warp_rows
from ptxgen.problem import Gemm
from ptxgen.rules import RULES, legal, reducible

Ints = NDArray[np.int64]

#: blocks a multiprocessor for which slices of K fill whole waves
WAVES = (1, 2, 3, 4, 6, 8)

#: rules that read only the axes of TILE, and rules that read an extent or a slice count; tests hold both to it
TILE_RULES = ("axis", "range", "tile_m", "tile_n", "warps", "threads", "depth")
EXTENT_RULES = ("range", "bounds", "slices", "split", "grid")
TILE = ("ms", "ns", "ml", "nl", "u", "ks", "kl")

#: axes that SIMT kernels read; those of other families keep their defaults here
SIMT_AXES = (
    "ms", "ns", "ml", "nl", "u", "ks", "kl", "kg", "stages", "copy_a", "copy_b", "keep_a", "keep_b", "vec_a", "vec_b",
    "vec_c", "wm", "split", "stage_c", "bounds", "lanes", "order", "ahead", "request", "hold", "raster", "stream",
    "resident",
)  # fmt: skip

#: axes that a problem's extents or slices decide; a base has the rest
_EXTENT = 1 << 16
SIMT = FAMILIES.index("simt")
_WAY = ("stages", "copy_a", "keep_a", "vec_a", "copy_b", "keep_b", "vec_b")
_CELL_AXES = ("kg", "split", "raster", "stream")


def modes(p: Gemm, operand: str) -> list[tuple[int, int, int]]:
    """(copy, keep, vec) of an operand, one triple a meaning: cp.async transposes single elements only, a kept operand
    lies in chunks of 16 bytes, and one that is not K-major lies in shared memory as it does in global memory."""
    first = operand == "a"
    widest = p.vectors[0 if first else 1]
    kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
    if not kmajor:
        return [(0, 0, widest), (1, 0, widest)]
    chunk = min(widest, 16 // p.accumulator.bytes)
    return [(0, 0, widest), (1, 0, 1), (0, 1, chunk), (1, 1, chunk)]


def whole_waves(tiles: Any, d: Device) -> Ints:
    """Slice counts that fill whole waves, one row for each number of tiles; the last column is 1."""
    tiles = np.maximum(np.atleast_1d(np.asarray(tiles, np.int64)), 1)
    counts = [np.maximum(d.sms * w // tiles, 1) for w in WAVES]
    return np.stack([*counts, np.ones_like(tiles)], axis=-1)


def split_for(p: Gemm, kg: Any) -> Any:
    """The ``split`` that slices take unless the search on hardware finds better."""
    return np.where(np.asarray(kg) > 1, SPLIT_FLAG if reducible(p) else SPLIT_WORKSPACE, SPLIT_MEMSET)


def _first_broken(p: Gemm, c: Columns, d: Device, names: tuple[str, ...] | None, skip: tuple[str, ...] = ()) -> Ints:
    """As ``rules.rejections``, over the named rows of the table only (None: all) but ``skip``."""
    result = np.full(len(c), -1, np.int64)
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        for i, rule in enumerate(RULES):
            if rule.family in (-1, SIMT) and (names is None or rule.name in names) and rule.name not in skip:
                result[(result < 0) & ~np.broadcast_to(rule.holds(p, c, g, d), len(c))] = i
    return result


def width_c(p: Gemm, c: Any, g: SimpleNamespace) -> Any:
    """Elements of one access of C: no wider than 16 bytes of sums, nor, straight from the accumulators, than what lies
    side by side in them."""
    side = np.where(g.b.kept, 1, np.minimum(g.b.chunk, c.ns))
    return np.minimum(np.minimum(c.vec_c, 16 // g.sum_bytes), np.where(g.gathers, c.vec_c, side))


@dataclass(frozen=True, eq=False)
class Base:
    """The legal rows of a class of problems without what extents decide.

    ``problem``: a stand-in of the class, with neutral extents; ``tile``: for each row the index of its (ml, nl, u)
    in ``tiles``; ``rejected``: rule index -> rejected rows by tile. Rows of one ``kin`` differ in ks and stages only,
    which no clock tells apart; one of each kin ``leads``.
    """

    problem: Gemm
    device: Device
    columns: Columns
    tile: NDArray[np.intp]
    tiles: Columns
    rejected: Mapping[int, Ints]
    kin: NDArray[np.intp]
    leads: NDArray[np.bool_]


def base(p: Gemm, d: Device) -> Base:
    """The part of the space that ``p`` shares with every problem of its class. Kept between calls."""
    # a neutral problem of the class: what it is, how its operands are aligned, no extents
    size, (a, b, c) = p.element.bytes, p.vectors
    plain = Gemm(_EXTENT, _EXTENT, _EXTENT, p.layout, p.dtype, p.compute, out=p.out, deterministic=p.deterministic)
    return _base(replace(plain, aligned_a=a * size, aligned_b=b * size, aligned_c=c * p.output.bytes), d)


@lru_cache(maxsize=8)
def _base(p: Gemm, d: Device) -> Base:
    tiles = Columns.product({n: AXIS[n].values for n in ("ml", "nl", "u")})
    shapes = Columns.product({n: AXIS[n].values for n in TILE})
    shapes = shapes.replace(wm=warp_rows(shapes), raster=8)
    broken = _first_broken(p, shapes, d, TILE_RULES)
    ways = [(s, a, b) for s in AXIS["stages"].values for a in modes(p, "a") for b in modes(p, "b")]
    rejected = {int(i): len(ways) * _per_tile(shapes, broken == i, len(tiles)) for i in np.unique(broken[broken >= 0])}
    shapes = shapes.take(broken < 0)
    values = {n: np.tile(shapes.columns[n], len(ways)) for n in (*TILE, "wm")}
    for name, column in zip(_WAY, np.array([(s, *a, *b) for s, a, b in ways], np.int64).T, strict=True):
        values[name] = np.repeat(column, len(shapes))
    size = len(values["ms"])
    values["lanes"] = _lanes(values)
    rows = Columns(values, size).replace(vec_c=p.vectors[2], raster=8)
    # a staged C is the better default where direct stores are scalar, as long as it fits
    wants = (values["keep_b"] == 1) & (values["kl"] == 1)
    values["stage_c"] = np.zeros(size, np.int64)
    if wants.any():
        values["stage_c"][wants] = _first_broken(p, rows.take(wants).replace(stage_c=1), d, None) < 0
    rows = rows.replace(stage_c=values["stage_c"])
    broken = _first_broken(p, rows, d, None, skip=TILE_RULES)
    for i in np.unique(broken[broken >= 0]):
        rejected[int(i)] = _per_tile(rows, broken == i, len(tiles))
    keep = broken < 0
    kept = Columns({n: v[keep] for n, v in values.items()}, int(keep.sum())).replace(vec_c=p.vectors[2], raster=8)
    kept = kept.replace(vec_c=width_c(p, kept, geometry(p, kept)))
    kin, leads = _kin(kept)
    return Base(p, d, kept, _tile_index(kept), tiles, rejected, kin, leads)


def _kin(c: Columns) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """(group of rows that differ in ks and stages only, whether a row leads its group: three stages, one set)."""
    key = np.zeros(len(c), np.int64)
    for name in ("ms", "ns", "ml", "nl", "u", "kl", "copy_a", "keep_a", "copy_b", "keep_b"):
        values = np.array(AXIS[name].values)
        key = key * len(values) + np.searchsorted(values, c.columns[name])
    _, kin = np.unique(key, return_inverse=True)
    order = np.lexsort((c.ks, np.abs(c.stages - AXIS["stages"].default), kin))
    leads = np.zeros(len(c), bool)
    leads[order[np.unique(kin[order], return_index=True)[1]]] = True
    return kin, leads


def _lanes(values: Mapping[str, Ints]) -> Ints:
    """Interleaved lane numbers pay on small tiles; along a single row or column of threads they mean nothing."""
    small = values["ml"] * values["nl"] < 128 * 128
    return (small & (values["wm"] > 1) & (values["wm"] < WARP)).astype(np.int64)


def _tile_index(c: Columns) -> NDArray[np.intp]:
    """The row of each configuration's (ml, nl, u) in the product of their values."""
    index = np.zeros(len(c), np.intp)
    for name in ("ml", "nl", "u"):
        values = np.array(AXIS[name].values)
        index = index * len(values) + np.searchsorted(values, c.columns[name])
    return index


def _per_tile(c: Columns, mask: NDArray[np.bool_], tiles: int) -> Ints:
    return np.bincount(_tile_index(c)[mask], minlength=tiles).astype(np.int64)


class _Lazy(Mapping[str, Ints]):
    """The columns of candidates, each gathered when it is first read."""

    def __init__(self, owner: Candidates) -> None:
        self.owner, self.ready = owner, dict[str, Ints]()

    def __getitem__(self, name: str) -> Ints:
        if name not in self.ready:
            o = self.owner
            source, rows = (o.cells, o.cell) if name in _CELL_AXES else (o.base.columns, o.rows)
            self.ready[name] = source.columns[name][rows]
        return self.ready[name]

    def __iter__(self) -> Iterator[str]:
        return (a.name for a in AXES)

    def __len__(self) -> int:
        return len(AXES)


class Candidates(Columns):
    """Legal configurations of one problem: row i is row ``rows[i]`` of ``base`` with the slices of ``cells[cell[i]]``.

    Reads like ``Columns``; what works on the whole space reads the two small tables instead.
    """

    def __init__(self, base: Base, cells: Columns, rows: NDArray[np.int32], cell: NDArray[np.int32]) -> None:
        self.base, self.cells, self.rows, self.cell = base, cells, rows, cell
        self.length = len(rows)
        self.columns = _Lazy(self)  # type: ignore[assignment]

    def take(self, rows: NDArray[Any]) -> Candidates:
        return Candidates(self.base, self.cells, self.rows[rows], self.cell[rows])

    def row(self, i: int) -> Config:
        values = {n: int(v[self.rows[i]]) for n, v in self.base.columns.columns.items()}
        values.update({n: int(self.cells.columns[n][self.cell[i]]) for n in _CELL_AXES})
        return Config(**values)


def _cells(p: Gemm, b: Base, d: Device) -> tuple[Columns, Ints]:
    """Every tile of ``b`` crossed with its slices of K, and the rule that each breaks (-1: legal, -2: a repetition)."""
    count = len(b.tiles)
    sliced = whole_waves(geometry(p, b.tiles).tiles, d)
    columns = {n: np.repeat(b.tiles.columns[n], sliced.shape[1]) for n in ("ml", "nl", "u")}
    c = Columns({**columns, "kg": sliced.ravel()}, sliced.size)
    c = c.replace(split=split_for(p, c.kg), stream=int(p.k < 512), raster=8)
    g = geometry(p, c)
    c = c.replace(raster=np.where(g.tiles > 2 * d.sms, 8, 1))
    broken = _first_broken(p, c, d, EXTENT_RULES)
    wide = (broken >= 0) & (c.raster == 1)  # the plain order has the narrower grid
    if wide.any():
        c = c.replace(raster=np.where(wide, 8, c.raster))
        broken = _first_broken(p, c, d, EXTENT_RULES)
    kg = np.where(broken == -1, g.slices, c.kg).reshape(count, -1)
    seen = np.zeros_like(kg, bool)
    for j in range(1, kg.shape[1]):
        seen[:, j] = (kg[:, :j] == kg[:, j : j + 1]).any(axis=1)
    return c.replace(kg=kg.ravel(), split=split_for(p, kg.ravel())), np.where(seen.ravel(), -2, broken)


def candidates(p: Gemm, d: Device) -> Candidates:
    """The whole legal space of ``p`` on ``d`` over the axes that are not refined, the others at good defaults."""
    b = base(p, d)
    cells, broken = _cells(p, b, d)
    open_ = (broken == -1).reshape(len(b.tiles), -1)
    rows, cell = [], []
    for j in range(open_.shape[1]):
        picked = np.flatnonzero(open_[b.tile, j]) if not open_[:, j].all() else np.arange(len(b.tile))
        rows.append(picked.astype(np.int32))
        cell.append((b.tile[picked] * open_.shape[1] + j).astype(np.int32))
    return Candidates(b, cells, np.concatenate(rows), np.concatenate(cell))


def explain(p: Gemm, d: Device) -> dict[str, int]:
    """How many rows of the space each rule rejected; what no rule rejected is ``candidates(p, d)``."""
    b = base(p, d)
    _, broken = _cells(p, b, d)
    broken = broken.reshape(len(b.tiles), -1)
    slices = (broken != -2).sum(axis=1)
    counts = {rule.name: 0 for rule in RULES}
    for i, per_tile in b.rejected.items():
        counts[RULES[i].name] += int((per_tile * slices).sum())
    legal_rows = np.bincount(b.tile, minlength=len(b.tiles))
    for i in np.unique(broken[broken >= 0]):
        counts[RULES[i].name] += int((legal_rows * (broken == i).sum(axis=1)).sum())
    return {name: n for name, n in counts.items() if n}


def canonical(p: Gemm, c: Columns) -> Columns:
    """The same kernels, with every axis that has no effect at its default: one kernel, one configuration.

    Rows must be legal for ``p``.
    """
    g = geometry(p, c)
    one_way = (c.wm == 1) | (c.wm == WARP)
    columns = c.ns // (2 if p.compute == "f16" else 1)
    kg = np.minimum(g.slices, c.kg)
    return c.replace(
        kg=kg,
        split=np.where(kg > 1, c.split, SPLIT_MEMSET),
        stage_c=np.where(c.kl > 1, AXIS["stage_c"].default, c.stage_c),
        lanes=np.where(one_way, AXIS["lanes"].default, c.lanes),
        order=np.where((c.ms == 1) | (columns == 1), AXIS["order"].default, c.order),
        vec_c=width_c(p, c, g),
    )


def unique(c: Columns) -> Columns:
    """The distinct rows, in order of first appearance."""
    if not len(c):
        return c
    table = np.stack([c.columns[a.name] for a in AXES], axis=1)
    _, first = np.unique(table, axis=0, return_index=True)
    return c.take(np.sort(first))


def refinements(p: Gemm, d: Device, config: Config) -> Columns:
    """The neighbourhood of ``config``: every change of one axis, of a tile with its thread tile, of the slices to
    other whole waves, of an operand's way into shared memory. Legal, canonical, distinct, without ``config``."""
    rows = [_settle(p, config, changes) for changes in _changes(p, d, config)]
    c = Columns.of([r for pair in rows for r in pair])
    c = unique(canonical(p, c.take(legal(p, c, d))))
    c = c.take(legal(p, c, d))
    own = canonical(p, Columns.of([config]))
    same = np.logical_and.reduce([c.columns[a.name] == own.columns[a.name][0] for a in AXES])
    return c.take(~same)


def _changes(p: Gemm, d: Device, config: Config) -> Iterator[dict[str, int]]:
    for axis in AXES:
        if axis.name in SIMT_AXES:
            yield from ({axis.name: v} for v in axis.values)
    yield from ({"stages": config.stages + step} for step in (-1, 1))
    for thread, block in (("ms", "ml"), ("ns", "nl")):
        for value in AXIS[thread].values:
            yield {thread: value, block: getattr(config, block) * value // getattr(config, thread)}
    for a in (1, 2, 4):
        yield from ({"ml": config.ml * a // 2, "nl": config.nl * b // 2} for b in (1, 2, 4))
    for name in "ab":
        for copy, keep, vec in modes(p, name):
            yield {f"copy_{name}": copy, f"keep_{name}": keep, f"vec_{name}": vec}
    tiles = geometry(p, config).tiles
    counts = {int(v) for v in whole_waves(tiles, d)[0]} | {config.kg * 2, config.kg // 2}
    yield from ({"kg": kg} for kg in sorted(counts) if kg >= 1)
    for kl in AXIS["kl"].values:  # groups of a block for slices of the grid
        yield {"kl": kl, "kg": max(1, config.kg * config.kl // kl)}


def _settle(p: Gemm, config: Config, changes: dict[str, int]) -> list[Config]:
    """``config`` with ``changes``, and with what must follow from them: the most square warp, a way to add slices,
    registers for a store that was held. ``changes`` may name an axis twice over; illegal rows are cut later."""
    values = {**dict(config.items()), **changes}
    if "kg" in changes and "split" not in changes:
        kept = config.split if config.kg > 1 else int(split_for(p, values["kg"]))
        values["split"] = kept if values["kg"] > 1 else SPLIT_MEMSET
    if values["copy_a"] == values["copy_b"] == 1 and "hold" not in changes:
        values["hold"] = 0
    plain = Config(**values)
    square = {**values, "wm": int(warp_rows(SimpleNamespace(**values)))} if "wm" not in changes else values
    return [plain, Config(**square)]
