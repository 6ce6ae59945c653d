"""Selects the rows of a large space that the model scores: those that are best by the performance model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.families.common.space import Candidates

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]


def shortlist(c: Candidates, us: Floats, factor: float, limit: int) -> tuple[Rows, float]:
    """The ``limit`` best rows of ``c`` whose time by the performance model, ``us``, is at most ``factor`` times the
    least one; and the factor by which the best row that is left out is slower than the best of all (``factor`` if none
    is). Each family has at least half of an equal share of the rows, because the performance model may be wrong about a
    family."""
    near = np.flatnonzero(us <= factor * us.min()) if len(us) else np.zeros(0, np.intp)
    if len(near) <= limit:
        return near, factor
    groups = c.take(near).groups()
    kept = np.zeros(len(near), bool)
    for _, where, _, _ in groups:
        mine = np.arange(len(near))[where]
        kept[mine[fastest(us[near[mine]], limit // (2 * len(groups)))]] = True
    rest = np.flatnonzero(~kept)
    kept[rest[fastest(us[near[rest]], limit - int(kept.sum()))]] = True
    return near[kept], float(us[near[~kept]].min() / us.min())


def fastest(us: Floats, k: int) -> Rows:
    """The indices of the ``k`` smallest values, in order; ties by index."""
    k = min(max(k, 0), len(us))
    if k == 0:
        return np.zeros(0, np.intp)
    worst = np.partition(us, k - 1)[k - 1]
    picked = np.flatnonzero(us <= worst)
    return picked[np.argsort(us[picked], kind="stable")][:k]
