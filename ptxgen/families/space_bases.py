"""The rows of a family's space that do not depend on extents, built once for each class of problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import Columns
from ptxgen.families.candidates import CandidateSpace, Ints, crossed, picked, violations
from ptxgen.families.registry import SPACES
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device


@dataclass(frozen=True, eq=False)
class Base:
    """The legal rows of one family and a class of problems, without the axes of its cells.

    ``problem``: the representative of the class, with neutral extents; ``tile``: for each row the index of its tile in
    ``tiles``; ``rejected``: rule index -> rejected rows by tile; ``refused``: for each row and option of slices the
    rule that it breaks, -1 if none, -2 if it is not a candidate with it; None if that does not depend on the row. Rows
    that differ only in the family's axes ``alike``, which have nearly equal predicted times, form an
    ``equivalence_class``; one of each ``is_representative``.
    """

    family: CandidateSpace
    problem: KernelGemm
    device: Device
    columns: Columns
    tile: NDArray[np.intp]
    tiles: Columns
    rejected: Mapping[int, Ints]
    refused: Ints | None
    equivalence_class: NDArray[np.intp]
    is_representative: NDArray[np.bool_]


def unsupported_by(f: CandidateSpace, p: KernelGemm, d: Device) -> int:
    """The rule by which a family cannot compute a problem at all, or -1."""
    one = Columns({}, 1).replace(family=f.code)
    return int(violations(f, p, one, d, ("output_dtype", "grouped", *f.fixed))[0])


def families(p: KernelGemm, d: Device) -> list[CandidateSpace]:
    """The families that compute ``p`` on ``d``."""
    return [f for f in SPACES if unsupported_by(f, p, d) < 0]


def base(f: CandidateSpace, p: KernelGemm, d: Device) -> Base:
    """The part of a family's space that ``p`` shares with every problem of its class; cached."""
    return _base(f, f.neutral(p), d)


def kind(p: KernelGemm, d: Device) -> tuple[tuple[str, KernelGemm], ...]:
    """The key of a class: problems with the same key share all bases."""
    return tuple((f.name, f.neutral(p)) for f in families(p, d))


@lru_cache(maxsize=24)
def _base(f: CandidateSpace, p: KernelGemm, d: Device) -> Base:
    tiles, shapes = f.tiles(p), f.shapes(p)
    violated = violations(f, p, shapes, d, f.tile_rules)
    ways = f.variants(p)
    index = _Index(tiles, f.tile)
    rejected = {int(i): len(ways) * index.count(shapes, violated == i) for i in np.unique(violated[violated >= 0])}
    rows = f.finalize(p, d, crossed(picked(shapes, violated < 0), ways))
    violated = violations(f, p, rows, d, None, skip=f.tile_rules)
    for i in np.unique(violated[violated >= 0]):
        rejected[int(i)] = index.count(rows, violated == i)
    distinct = _distinct(f, p, picked(rows, violated < 0))
    classes, representative = _classes(f, distinct)
    return Base(
        f, p, d, distinct, index.of(distinct), tiles, rejected, _refused(f, p, d, distinct), classes, representative
    )


def _distinct(f: CandidateSpace, p: KernelGemm, c: Columns) -> Columns:
    """The rows without duplicates of a kernel, with the width of accesses to C that the kernel has."""
    if not len(c):
        return c
    plain = f.canonical(p, c)
    same = np.logical_and.reduce(
        [c.column(n) == v for n, v in plain.columns.items() if n != "vec_c" and c.columns.get(n) is not v]
    )
    return picked(c.replace(vec_c=plain.vec_c), np.broadcast_to(same, len(c)))


def _refused(f: CandidateSpace, p: KernelGemm, d: Device, rows: Columns) -> Ints | None:
    options = f.slice_options(p)
    if not options or not len(rows):
        return None
    skip = (*f.tile_rules, *f.extent_rules)
    known: dict[tuple[tuple[str, int], ...], Ints] = {}
    for option in options:
        key = tuple(option.items())
        if key not in known:
            violated = violations(f, p, rows.replace(**option), d, None, skip)
            known[key] = np.where(f.accepts(option, rows), violated, -2)
    return np.stack([known[tuple(option.items())] for option in options], axis=1)


class _Index:
    """Finds the row of each configuration's tile in a table of them."""

    def __init__(self, tiles: Columns, names: tuple[str, ...]) -> None:
        self.names, self.size = names, len(tiles)
        self.values = [np.unique(tiles.column(n)) for n in names]
        key = self._key(tiles)
        self.place = np.zeros(int(np.prod([len(v) for v in self.values])), np.intp)
        self.place[key] = np.arange(len(tiles))

    def _key(self, c: Columns) -> NDArray[np.intp]:
        key = np.zeros(len(c), np.intp)
        for name, values in zip(self.names, self.values, strict=True):
            key = key * len(values) + np.searchsorted(values, c.column(name))
        return key

    def of(self, c: Columns) -> NDArray[np.intp]:
        return self.place[self._key(c)]

    def count(self, c: Columns, mask: NDArray[np.bool_]) -> Ints:
        """How many of the rows that ``mask`` picks each tile has."""
        return np.bincount(self.of(c)[mask], minlength=self.size).astype(np.int64)


def _classes(f: CandidateSpace, c: Columns) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """(equivalence class of each row, whether a row represents its class)."""
    key = np.zeros(len(c), np.int64)
    for name, column in c.columns.items():
        if name not in f.alike and name not in f.derived and column.strides != (0,):
            values, code = np.unique(column, return_inverse=True)
            key = key * len(values) + code
    _, classes = np.unique(key, return_inverse=True)
    best = [_distance(c.column(name), liked) for name, liked in f.alike.items()]
    order = np.lexsort((*best[::-1], classes))
    representative = np.zeros(len(c), bool)
    representative[order[np.unique(classes[order], return_index=True)[1]]] = True
    return classes, representative


def _distance(column: Ints, liked: tuple[int, ...]) -> Ints:
    """0 for the first value of ``liked``, then its others, then by the distance of a value from the first."""
    out = len(liked) + np.abs(column - liked[0])
    for rank, value in enumerate(liked):
        out = np.where(column == value, rank, out)
    return out


__all__ = ["SPACES", "Base", "base", "families", "kind", "unsupported_by"]
