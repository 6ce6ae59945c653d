"""The candidates of a problem: the whole legal space, and the neighbourhood of one configuration.

The space is one table with a column for every axis, family by family. The rows that do not depend on extents are built
once for each class of problems (types, layout, alignment, device) and cached; a problem adds its K slices, tile by
tile. The rules in ``rules.RULES`` decide legality; each is evaluated once, on the smallest table with the columns that
it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import AXIS, FAMILIES, Columns, Config, config_of
from ptxgen.families import registry
from ptxgen.families.common.candidates import CandidateSpace, FlatGrid, Ints, whole_waves
from ptxgen.families.common.geometry import LazyGeometry
from ptxgen.families.common.rules import RULES, legal
from ptxgen.families.common.space_bases import (
    BASES,
    SPACES,
    Base,
    base,
    cache_key,
    class_key,
    families,
    refused_rows,
    rejected_rows,
    searched_families,
    unsupported_by,
)
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

Where = slice | NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Part:
    """The candidates of one family for a problem: its base, and its tiles combined with K slices. Rows and cells are
    numbered over all parts; the numbers of this part begin at ``row`` and ``cell``."""

    problem: KernelProblem
    base: Base
    cells: Columns
    row: int
    cell: int

    @property
    def _grid(self) -> FlatGrid | None:
        """The cells as a grid, if their geometry is computed on a grid. None for groups, whose items are counted for
        each cell."""
        return self.cells if isinstance(self.cells, FlatGrid) and not grouped(self.problem) else None

    @property
    def table(self) -> Columns:
        """The columns from which ``geometry`` is computed: the cells, or the grid from which the cells are taken."""
        return self.cells if self._grid is None else self._grid.grid

    @cached_property
    def geometry(self) -> Any:
        """The geometry of ``table``."""
        known = None if self._grid is None else self._grid.geometry
        return LazyGeometry(self.problem, self.table) if known is None else known

    @cached_property
    def costs(self) -> Any:
        """The costs of the cells by the performance model."""
        model = cost_model(self.problem, self.base.family.name)
        costs = model.cell(self.problem, self.table, self.geometry, self.base.device)
        if (grid := self._grid) is None:
            return costs
        columns = ((f.name, getattr(costs, f.name)) for f in fields(costs))
        return replace(costs, **{n: grid.expanded(v) for n, v in columns if isinstance(v, np.ndarray)})

    def of_cells(self, values: Sequence[Any], cells: NDArray[Any]) -> list[Any]:
        """The values for ``cells``, from ``values`` that were computed from ``table``; a number stays a number."""
        if self._grid is None:
            return [x[cells] if np.ndim(x) else x for x in values]
        rows = self._grid.at(cells)
        return [rows.number_or_values(x) for x in values]


def cost_model(p: KernelProblem, family: str) -> Any:
    """The module that predicts the time of a launch from the cost of its blocks, for a family."""
    row = registry.FAMILIES[family]
    return (row.grouped_model if grouped(p) else None) or row.model


class _Lazy(Mapping[str, Ints]):
    """The columns of candidates. A column is gathered when it is first read."""

    def __init__(self, owner: Candidates) -> None:
        self.owner, self.ready = owner, dict[str, Ints]()

    def __getitem__(self, name: str) -> Ints:
        if name not in self.ready:
            out = np.empty(len(self.owner), np.int64)
            for part, where, rows, cells in self.owner.groups():
                if name in part.base.family.cell:
                    out[where] = part.cells.column(name)[cells]
                else:
                    out[where] = part.base.columns.at(rows).column(name)
            self.ready[name] = out
        return self.ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("family", *AXIS))

    def __len__(self) -> int:
        return 1 + len(AXIS)


class Candidates(Columns):
    """Legal configurations of one problem. For configuration i, ``rows[i]`` is the number of its row in the bases of
    all parts, and ``cell[i]`` the number of its cell in the cells of all parts.

    Reads like ``Columns``. Code that visits the whole space reads the small tables part by part instead (``groups``).
    """

    def __init__(self, parts: tuple[Part, ...], rows: NDArray[np.int32], cell: NDArray[np.int32]) -> None:
        """Combines rows of bases with cells."""
        self.parts, self.rows, self.cell = parts, rows, cell
        self.length = len(rows)
        self.columns = _Lazy(self)  # type: ignore[assignment]
        self._groups: list[tuple[Part, Where, NDArray[np.int32], NDArray[np.int32]]] | None = None

    def take(self, rows: NDArray[Any]) -> Candidates:
        return Candidates(self.parts, self.rows[rows], self.cell[rows])

    def groups(self) -> list[tuple[Part, Where, NDArray[np.int32], NDArray[np.int32]]]:
        """For each part: the part, the positions of its candidates among all, and their rows of its base and their
        cells."""
        if self._groups is None:
            self._groups = []
            for n, part in enumerate(self.parts):
                end = self.parts[n + 1].row if n + 1 < len(self.parts) else None
                where = self._between(part.row, end)
                rows, cell = self.rows[where], self.cell[where]
                if len(rows):
                    self._groups.append((part, where, rows - part.row, cell - part.cell))
        return self._groups

    def _between(self, first: int, end: int | None) -> Where:
        """The positions of configurations whose rows are from ``first`` up to ``end``: a slice if they are
        contiguous."""
        if len(self.parts) == 1:
            return slice(0, self.length)
        inside = self.rows >= first if end is None else (self.rows >= first) & (self.rows < end)
        indices = np.flatnonzero(inside)
        together = len(indices) and indices[-1] - indices[0] + 1 == len(indices)
        return slice(int(indices[0]), int(indices[-1]) + 1) if together else indices

    def row(self, i: int) -> Config:
        row, cell = int(self.rows[i]), int(self.cell[i])
        part = next(p for p in reversed(self.parts) if row >= p.row)
        f = part.base.family
        values = part.base.columns.numbers(row - part.row)
        values.update({n: int(part.cells.column(n)[cell - part.cell]) for n in f.cell})
        return config_of(f.code, values)


def candidates(
    p: KernelProblem,
    d: Device,
    representatives: bool = False,
    searched: bool = False,
    whole: KernelProblem | None = None,
) -> Candidates:
    """The whole legal space of ``p`` on ``d`` over the axes that are not refined; refined axes have good defaults.

    ``representatives``: True for one configuration of each equivalence class and slice count, which ``members``
    expands. ``searched``: True for the families and tiles that are not dominated only. ``whole``: the problem of which
    ``p`` is a form; only families that compute it by this form are candidates.
    """
    parts: list[Part] = []
    rows, cell = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    first_row = first_cell = 0
    for f in searched_families(p, d) if searched else families(p, d):
        b, product = base(f, p, d), f.form(p)
        if not len(b.columns) or (whole is not None and f.form(whole) is not p):
            continue
        cells, broken = f.cells(product, d, b.tiles)
        parts.append(Part(product, b, cells, first_row, first_cell))
        open_ = (broken == -1).reshape(len(b.tiles), -1)
        if searched and (dominated := f.dominated_tiles(product, b.tiles)) is not None:
            open_ &= ~dominated[:, None]
        every = b.representatives if representatives else np.arange(len(b.columns), dtype=np.int32)
        tile = b.columns.at(every).values(b.tile)
        accepted = b.accepted if b.accepted is None or not representatives else b.accepted[every]
        for j in range(open_.shape[1]):
            if open_[:, j].any():
                taken = open_[tile, j] if accepted is None else open_[tile, j] & accepted[:, j]
                rows.append(every[taken] + np.int32(first_row))
                cell.append((tile[taken] * open_.shape[1] + (j + first_cell)).astype(np.int32))
        first_row, first_cell = first_row + len(b.columns), first_cell + len(cells)
    return Candidates(tuple(parts), np.concatenate(rows), np.concatenate(cell))


def members(c: Candidates) -> Candidates:
    """All configurations of the equivalence classes of ``c``, with the same K slices, in the order of
    ``candidates``."""
    all_rows, all_cells = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for part, _, rows, cells in c.groups():
        b, options = part.base, len(part.cells) // len(part.base.tiles)
        every, place = b.members(b.equivalence_class[rows])
        cell = cells[place]
        if b.accepted is not None:
            legal = b.accepted[every, cell % options]
            every, cell = every[legal], cell[legal]
        order = np.lexsort((every, cell % options))
        all_rows.append((every[order] + part.row).astype(np.int32))
        all_cells.append((cell[order] + part.cell).astype(np.int32))
    return Candidates(c.parts, np.concatenate(all_rows), np.concatenate(all_cells))


def explain(p: KernelProblem, d: Device) -> dict[str, int]:
    """The number of rows of the space that each rule rejected, by rule name; all other rows are ``candidates(p, d)``. A
    family that cannot compute the problem counts as one row."""
    counts = {rule.name: 0 for rule in RULES}
    for f in SPACES:
        bar = unsupported_by(f, p, d)
        if bar >= 0:
            counts[RULES[bar].name] += 1
            continue
        b = base(f, p, d)
        tiles = f.tiles(f.neutral(f.form(p)))
        broken = f.cells(f.form(p), d, tiles)[1].reshape(len(tiles), -1)
        slices = (broken != -2).sum(axis=1)
        for i, per_tile in rejected_rows(f, p, d).items():
            counts[RULES[i].name] += int((per_tile * slices).sum())
        tile = b.tile_numbers[b.columns.values(b.tile)]
        legal_rows = np.bincount(tile, minlength=len(tiles))
        for i in np.unique(broken[broken >= 0]):
            counts[RULES[i].name] += int((legal_rows * (broken == i).sum(axis=1)).sum())
        refused = refused_rows(b)
        if refused is not None:
            refused = np.where(broken[tile] == -1, refused, -1)
            for i, n in zip(*np.unique(refused[refused >= 0], return_counts=True), strict=True):
                counts[RULES[i].name] += int(n)
    return {name: n for name, n in counts.items() if n}


def canonical(p: KernelProblem, c: Columns) -> Columns:
    """The same kernels with every axis that has no effect at its default, so that each kernel has one configuration.
    Rows of ``c`` must be legal for ``p``."""
    codes = np.unique(c.family)
    if len(codes) <= 1:
        f = SPACES[int(codes[0])] if len(c) else None
        return c if f is None else f.canonical(f.form(p), c)
    places = [np.flatnonzero(c.family == code) for code in codes]
    parts = [canonical(p, c.take(rows)) for rows in places]
    return Columns.concat(parts).take(np.argsort(np.concatenate(places)))


def unique(c: Columns) -> Columns:
    """The distinct rows, in order of first appearance."""
    if not len(c):
        return c
    table = np.stack([c.column(name) for name in c.columns], axis=1)
    _, first = np.unique(table, axis=0, return_index=True)
    return c.take(np.sort(first))


def refinements(p: KernelProblem, d: Device, config: Config) -> Columns:
    """The neighbourhood of ``config`` within its family: every change of one axis, of a tile with its thread tile, of
    the K slices to other whole waves, and of an operand's copy mode. The result is legal, canonical and distinct, and
    excludes ``config``."""
    f = SPACES[FAMILIES.index(config.family)]
    p = f.form(p)
    rows = [near for changes in f.changes(p, d, config) for near in f.with_dependent_axes(p, config, changes)]
    c = Columns.of(rows)
    c = unique(canonical(p, c.take(legal(p, c, d))))
    c = c.take(legal(p, c, d))
    own = canonical(p, Columns.of([config]))
    same = np.logical_and.reduce([c.column(name) == own.column(name)[0] for name in own.columns])
    return c.take(~same)


def fitted(p: KernelProblem, d: Device, config: Config) -> Config | None:
    """The configuration ``config`` of another problem with the same loop over K, changed so that it is legal for ``p``.
    The changes are narrower accesses to C; an epilogue without shared memory, with one more stage if that fits; and, if
    ``p`` skips many tiles, another assignment of tiles to blocks. None: no change makes it legal."""
    f = SPACES[FAMILIES.index(config.family)]
    p, axes = f.form(p), dict(config.items())
    own = f.balanced(p, config)
    narrow = {**own, "vec_c": min(config.vec_c, p.vectors[2])} if "vec_c" in axes else own
    direct = {**narrow, "epilogue_smem": 0} if axes.get("epilogue_smem") else narrow
    deeper = {**direct, "stages": config.stages + 1} if direct != narrow and "stages" in axes else narrow
    rows = [near for changes in (own, narrow, deeper, direct) for near in f.with_dependent_axes(p, config, changes)]
    c = Columns.of(rows)
    indices = np.flatnonzero(legal(p, c, d))
    return None if not len(indices) else canonical(p, c.take(indices[:1])).row(0)


__all__ = [
    "BASES",
    "FAMILIES",
    "SPACES",
    "Base",
    "CandidateSpace",
    "Candidates",
    "Part",
    "base",
    "cache_key",
    "candidates",
    "canonical",
    "class_key",
    "explain",
    "families",
    "fitted",
    "members",
    "refinements",
    "searched_families",
    "unique",
    "unsupported_by",
    "whole_waves",
]
