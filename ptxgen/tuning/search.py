"""Selects the rows of a large space that are scored: the best by the performance model, one per equivalence class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.families.space import Candidates

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]


def representatives(c: Candidates, us: Floats, near: Rows, limit: int, factor: float) -> tuple[Rows, float]:
    """One row of each equivalence class of the rows ``near``: the ``limit`` best by the performance model, and the
    factor by which the first row left out is slower than the best (``factor`` if all fit). Each family has at least
    half of an equal share, because the performance model may be wrong about a family."""
    representative, rows_near = np.zeros(len(near), bool), c.take(near)
    for part, where, rows, _ in rows_near.groups():
        representative[where] = part.base.is_representative[rows]
    found = near[representative]
    if len(found) <= limit:
        return found, factor
    groups = c.take(found).groups()
    kept = np.zeros(len(found), bool)
    for _, where, _, _ in groups:
        mine = np.arange(len(found))[where]
        kept[mine[fastest(us[found[mine]], limit // (2 * len(groups)))]] = True
    rest = np.flatnonzero(~kept)
    kept[rest[fastest(us[found[rest]], limit - int(kept.sum()))]] = True
    return found[kept], float(us[found[~kept]].min() / us.min())


def same_class(c: Candidates, near: Rows, chosen: Rows) -> Rows:
    """The rows of ``near`` whose equivalence class and slices of K are those of a row of ``chosen``."""
    wanted = {id(part): (part.base.equivalence_class[rows], cells) for part, _, rows, cells in c.take(chosen).groups()}
    kept = np.zeros(len(near), bool)
    every = np.arange(len(near))
    for part, where, rows, cells in c.take(near).groups():
        if id(part) not in wanted:
            continue
        classes, cell = wanted[id(part)]
        some = np.zeros(len(part.cells), bool)
        some[cell] = True
        maybe = np.flatnonzero(some[cells])  # most slices have no chosen row
        mine = part.base.equivalence_class[rows[maybe]].astype(np.int64) << 32 | cells[maybe]
        kept[every[where][maybe]] = np.isin(mine, classes.astype(np.int64) << 32 | cell)
    return near[kept]


def fastest(us: Floats, k: int) -> Rows:
    """The indices of the ``k`` smallest values, in order; ties by index."""
    k = min(max(k, 0), len(us))
    if k == 0:
        return np.zeros(0, np.intp)
    worst = np.partition(us, k - 1)[k - 1]
    picked = np.flatnonzero(us <= worst)
    return picked[np.argsort(us[picked], kind="stable")][:k]
