"""The base of a family's space: the rows that do not depend on extents, built once for each class of problems."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import AXIS, Columns
from ptxgen.families.common import array_cache
from ptxgen.families.common.candidates import (
    CandidateSpace,
    Grid,
    GridRows,
    Ints,
    distinct,
    legal_rows,
    picked,
    satisfied,
    violations,
)
from ptxgen.families.common.geometry import LazyGeometry
from ptxgen.families.common.rules import rules_of
from ptxgen.families.registry import SPACES
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

DENSE = 1 << 20  #: the most keys of equivalence classes in a table; more are numbered in the order of their values
BASES = 128  #: the number of bases that a process keeps; a base takes a megabyte on average


@dataclass(frozen=True, eq=False)
class Base:
    """The legal rows of one family and a class of problems, without the axes of its cells.

    - ``problem``: the representative of the class, with neutral extents.
    - ``tiles``: the tiles of the family that have rows; ``tile_numbers``: their indices among all tiles; ``tile``: the
      index of the tile in ``tiles``, a column of the grid of ``columns``.
    - ``accepted``: for each row and each slice option, True if the row is a candidate with the option. None: this does
      not depend on the row.
    - ``equivalence_class``: the class of each row. Rows of one class differ only in the family's ``class_axes`` and
      have nearly equal predicted times.
    - ``representatives``: the best row of each class, in ascending order.
    """

    family: CandidateSpace
    problem: KernelProblem
    device: Device
    columns: GridRows
    tile: NDArray[np.int32]
    tiles: Columns
    tile_numbers: NDArray[np.intp]
    accepted: NDArray[np.bool_] | None
    equivalence_class: NDArray[np.int32]
    representatives: NDArray[np.int32]

    def is_representative(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """A mask of the rows that represent their class."""
        mask: NDArray[np.bool_] = self.representatives[self.equivalence_class[rows]] == rows
        return mask

    def members(self, classes: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Returns the rows of ``classes``, class by class, and for each row the index of its class in ``classes``."""
        wanted = np.zeros(len(self.representatives), np.bool_)
        wanted[classes] = True
        rows = np.flatnonzero(wanted[self.equivalence_class])
        rows = rows[np.argsort(self.equivalence_class[rows], kind="stable")]
        first, end = (np.searchsorted(self.equivalence_class[rows], classes, side) for side in ("left", "right"))
        sizes = end - first
        place = np.repeat(np.arange(len(classes)), sizes)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows[first[place] + offset], place


def unsupported_by(f: CandidateSpace, p: KernelProblem, d: Device) -> int:
    """The index of the rule that says why a family cannot compute a problem at all; -1: it can."""
    one = Columns({}, 1).replace(family=f.code)
    names = ("output_dtype", "capabilities", *f.fixed)
    p = f.form(p)
    broken = (i for i, rule in rules_of(f.name) if rule.name in names and not np.all(rule.holds(p, one, None, d)))
    return next(broken, -1)


def families(p: KernelProblem, d: Device) -> list[CandidateSpace]:
    """The families that compute ``p`` on ``d``."""
    return [*_families(p, d, tuple(SPACES))]


@lru_cache(maxsize=32)
def _families(p: KernelProblem, d: Device, spaces: tuple[CandidateSpace, ...]) -> tuple[CandidateSpace, ...]:
    return tuple(f for f in spaces if unsupported_by(f, p, d) < 0)


def searched_families(p: KernelProblem, d: Device) -> list[CandidateSpace]:
    """The spaces of a search: those of the families that compute ``p``, without the dominated ones."""
    able = families(p, d)
    names = [f.name for f in able]
    kept = (f for f in able if not f.is_dominated(f.form(p), [n for n in names if n != f.name]))
    return [f.searched(f.form(p)) for f in kept]


def base(f: CandidateSpace, p: KernelProblem, d: Device) -> Base:
    """The part of a family's space that all problems of the class of ``p`` share; cached."""
    return _base(f, f.neutral(f.form(p)), d)


def class_key(p: KernelProblem, d: Device) -> tuple[tuple[str, KernelProblem], ...]:
    """The key of the class of ``p``: problems with the same key share all bases."""
    return tuple((f.name, f.neutral(f.form(p))) for f in families(p, d))


@lru_cache(maxsize=BASES)
def _base(f: CandidateSpace, p: KernelProblem, d: Device) -> Base:
    key = cache_key("base", f, p, d)
    if (stored := array_cache.read(key)) is not None:
        return _from_arrays(f, p, d, stored)
    b = _computed(f, p, d)
    array_cache.write_later(key, _as_arrays(b))
    return b


def cache_key(content: str, f: CandidateSpace, p: KernelProblem, d: Device) -> str:
    """The key of arrays of a base in the disk cache. ``content``: a name for what the arrays hold."""
    facts = [(x.name, getattr(p, x.name)) for x in fields(p) if x.compare]
    return array_cache.package_key(content, f.key, type(p).__name__, facts, d)


#: the arrays of a base; ``accepted`` may be missing
_ARRAYS = ("tile", "tile_numbers", "accepted", "equivalence_class", "representatives")


def _as_arrays(b: Base) -> dict[str, NDArray[Any]]:
    """The arrays of a base, for the disk cache."""
    arrays = {n: v for n in _ARRAYS if (v := getattr(b, n)) is not None}
    arrays |= {f"tiles.{n}": v for n, v in b.tiles.columns.items()}
    arrays |= {f"grid.{n}": v for n, v in b.columns.grid.columns.items()}
    return arrays | {"size": np.array(b.columns.grid.size), "rows": b.columns.rows}


def _from_arrays(f: CandidateSpace, p: KernelProblem, d: Device, arrays: dict[str, NDArray[Any]]) -> Base:
    """The base of which ``_as_arrays`` made ``arrays``."""

    def under(prefix: str) -> dict[str, NDArray[Any]]:
        return {n.removeprefix(prefix): v for n, v in arrays.items() if n.startswith(prefix)}

    tiles = Columns(under("tiles."), len(arrays["tile_numbers"]))
    columns = GridRows(Grid(under("grid."), tuple(arrays["size"].tolist())), arrays["rows"])
    given = {n: arrays.get(n) for n in _ARRAYS}
    return Base(family=f, problem=p, device=d, columns=columns, tiles=tiles, **given)  # type: ignore[arg-type]


def _computed(f: CandidateSpace, p: KernelProblem, d: Device) -> Base:
    tiles, shapes = f.tiles(p), f.shapes(p)
    shapes = _legal_shapes(f, p, d, shapes)
    if not len(shapes):
        none, tile = np.zeros(0, np.int32), np.zeros(0, np.intp)
        return Base(f, p, d, GridRows(Grid({}, (0,)), none), none, tiles.take(tile), tile, None, none, none)
    grid = f.finalize(p, d, Grid.crossed(shapes, f.variants(p, d)))
    legal = legal_rows(f, p, grid, d, skip=f.tile_rules)
    used = np.asarray(legal.any(axis=tuple(range(legal.ndim - 1))))
    grid, legal = grid.shapes(used), legal[..., used]
    kept, widths = _distinct(f, p, grid, legal)
    grid = grid.replace(**widths)
    columns = GridRows(grid, np.flatnonzero(kept).astype(np.int32))
    tile = _Index(tiles, f.tile).of(grid)
    has_rows = kept.any(axis=tuple(i for i, n in enumerate(tile.shape) if n == 1), keepdims=True)
    numbers, place = distinct(tile[has_rows], len(tiles))
    of_grid = np.zeros(tile.shape, np.int32)
    of_grid[has_rows] = place
    accepted = _accepted(f, p, d, kept, columns)
    return Base(f, p, d, columns, of_grid, tiles.take(numbers), numbers, accepted, *_classes(f, columns))


def _legal_shapes(f: CandidateSpace, p: KernelProblem, d: Device, shapes: Columns) -> Columns:
    """The shapes that satisfy the rules of tiles and have a variant that satisfies the rules of shapes."""
    if not isinstance(shapes, Grid):
        return picked(shapes, legal_rows(f, p, Grid.crossed(shapes, []), d, f.tile_rules))
    with np.errstate(all="ignore"):
        g, variants = LazyGeometry(p, shapes), f.variants(p, d)
        legal = satisfied(f, p, shapes, g, d, f.tile_rules)
        if f.shape_rules:
            each = satisfied(f, p, Grid.crossed(shapes, variants), g, d, f.shape_rules)
            legal = legal & each.any(axis=tuple(range(len(variants))))
    rows = GridRows(shapes, np.flatnonzero(np.broadcast_to(legal, shapes.size)))
    return Columns(rows.columns, len(rows))


def rejected_rows(f: CandidateSpace, p: KernelProblem, d: Device) -> dict[int, Ints]:
    """For each rule index, the number of rows of the base that the rule rejects, by tile."""
    p = f.neutral(f.form(p))
    shapes, variants, index = f.shapes(p), f.variants(p, d), _Index(f.tiles(p), f.tile)
    shapes = shapes.flat() if isinstance(shapes, Grid) else shapes
    violated = violations(f, p, shapes, d, f.tile_rules)
    each = math.prod(map(len, variants))
    rejected = {int(i): each * index.count(shapes, violated == i) for i in np.unique(violated[violated >= 0])}
    shapes = picked(shapes, violated < 0)
    if not len(shapes):
        return rejected
    rows = f.finalize(p, d, Grid.crossed(shapes, variants)).flat()
    violated = violations(f, p, rows, d, None, skip=f.tile_rules)
    later = {int(i): index.count(rows, violated == i) for i in np.unique(violated[violated >= 0])}
    return {**rejected, **later}


def _distinct(
    f: CandidateSpace, p: KernelProblem, c: Grid, legal: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], dict[str, Any]]:
    """Returns a mask of the legal rows without duplicates of a kernel, and the ``widened`` axes with the values that
    the kernels have."""
    kept = legal.copy()
    widths: dict[str, list[Any]] = {name: [] for name in f.widened}
    for shapes, part in c.parts():
        with np.errstate(all="ignore"):
            plain = f.canonical(p, part)
        for n, v in plain.columns.items():
            if n not in f.widened and part.columns.get(n) is not v:
                kept[..., shapes] &= part.column(n) == v
        for n, columns in widths.items():
            width = plain.column(n)
            columns.append(np.broadcast_to(width, (*width.shape[:-1], part.size[-1])))
    return kept, {n: np.concatenate(columns, axis=-1) if columns else c.column(n) for n, columns in widths.items()}


def _accepted(
    f: CandidateSpace, p: KernelProblem, d: Device, kept: NDArray[np.bool_], rows: GridRows
) -> NDArray[np.bool_] | None:
    """For each row and each slice option: True if the row is a legal candidate with the option. None: this does not
    depend on the row. ``kept``: mask of the rows of the grid that are legal without slices."""
    options, c = f.slice_options(p), rows.grid
    if not options or not len(rows):
        return None
    sliced = list({tuple(o.items()): o for o in options if any(AXIS[n].default != v for n, v in o.items())}.values())
    may = [kept & f.accepts(o, c) for o in sliced]
    some, places = c.around(np.logical_or.reduce(may))
    legal = legal_rows(f, p, some.options(sliced), d, f.slice_rules, skip=(*f.tile_rules, *f.extent_rules))
    accepted = np.ones((len(options), len(rows)), np.bool_)
    for o, mask, whole in zip(sliced, legal, may, strict=True):
        inside = np.zeros(c.size, np.bool_)
        inside[places] = whole[places] & mask
        accepted[[other == o for other in options]] = rows.values(inside)
    return accepted.T


def refused_rows(b: Base) -> Ints | None:
    """For each row of a base and each slice option the rule that the row breaks; -1: none, -2: the row is not a
    candidate with the option. None: this does not depend on the row."""
    f, options = b.family, b.family.slice_options(b.problem)
    if not options or not len(b.columns):
        return None
    skip = (*f.tile_rules, *f.extent_rules)
    each = [
        np.where(f.accepts(o, b.columns), violations(f, b.problem, b.columns.replace(**o), b.device, None, skip), -2)
        for o in options
    ]
    return np.stack(each, axis=1)


class _Index:
    """Finds the tile of each configuration in a table of tiles."""

    def __init__(self, tiles: Columns, names: tuple[str, ...]) -> None:
        self.names, self.size = names, len(tiles)
        self.values = [np.flatnonzero(np.bincount(tiles.column(n))) for n in names]
        key = self._key(tiles)
        self.place = np.zeros(int(np.prod([len(v) for v in self.values])), np.intp)
        self.place[key] = np.arange(len(tiles))

    def _key(self, c: Columns) -> NDArray[np.intp]:
        key: Any = 0
        for name, values in zip(self.names, self.values, strict=True):
            key = key * len(values) + np.searchsorted(values, c.column(name))
        return np.asarray(key, np.intp)

    def of(self, c: Columns) -> NDArray[np.intp]:
        return self.place[self._key(c)]

    def count(self, c: Columns, mask: NDArray[np.bool_]) -> Ints:
        """The number of rows of each tile among the rows that ``mask`` selects."""
        return np.bincount(self.of(c)[mask], minlength=self.size).astype(np.int64)


def _classes(f: CandidateSpace, rows: GridRows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The fields ``equivalence_class`` and ``representatives`` of a base."""
    # columns of the same dimensions have one key, which is gathered once
    c = rows.grid
    keys: dict[tuple[int, ...], Any] = {}
    for name, column in c.columns.items():
        if name not in f.class_axes and name not in f.derived and column.size > 1:
            values, code = _distinct_codes(column)
            keys[column.shape] = keys.get(column.shape, 0) * len(values) + code
    key, span = np.zeros(len(rows), np.int64), 1
    for shape_key in keys.values():
        values, code = np.unique(shape_key, return_inverse=True)
        # NumPy before 2.0 returns the codes without dimensions
        key, span = key * len(values) + rows.values(code.reshape(shape_key.shape)), span * len(values)
        if span > DENSE:
            values, key = np.unique(key, return_inverse=True)
            span = len(values)
    order = np.zeros(len(rows), np.int64)
    for name, preferred in f.class_axes.items():
        distance = _distance(c.column(name), preferred)
        order = order * (int(distance.max(initial=0)) + 1) + rows.values(distance)
    order = order * len(rows) + np.arange(len(rows))
    none = np.iinfo(np.int64).max
    best = np.full(span, none)
    np.minimum.at(best, key, order)
    representatives = np.sort(best[best < none] % len(rows)).astype(np.int32)
    number = np.empty(span, np.int32)
    number[key[representatives]] = np.arange(len(representatives))
    return number[key], representatives


def _distinct_codes(column: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Returns the distinct values, sorted, and for each entry the index of its value. Values are small natural numbers,
    so no sorting is needed, unlike in ``np.unique``."""
    counts = np.bincount(column.ravel())
    values, code = np.flatnonzero(counts), np.zeros(len(counts), np.int32)
    code[values] = np.arange(len(values))
    return values, code[column]


def _distance(column: Ints, preferred: tuple[int, ...]) -> Ints:
    """The rank of each value: 0 for the first of ``preferred``, then the other preferred values in order, then the rest
    by distance from the first."""
    out = len(preferred) + np.abs(column - preferred[0])
    for rank, value in enumerate(preferred):
        out = np.where(column == value, rank, out)
    return out


__all__ = ["SPACES", "Base", "base", "class_key", "families", "refused_rows", "rejected_rows", "unsupported_by"]
