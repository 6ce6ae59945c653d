"""Which rows of a large space are scored: the best by the performance model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.families.space import Candidates

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]


def shortlist(c: Candidates, us: Floats, factor: float, limit: int) -> tuple[Rows, float]:
    """The rows of ``c`` that the performance model puts within ``factor`` times of its best, ``limit`` at most, the
    best; and how far they reach, if not to ``factor``. No family has less than half of an equal part: the performance
    model may be wrong about one."""
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
    """The indices of the ``k`` smallest, in order; of equals the first."""
    k = min(max(k, 0), len(us))
    if k == 0:
        return np.zeros(0, np.intp)
    worst = np.partition(us, k - 1)[k - 1]
    picked = np.flatnonzero(us <= worst)
    return picked[np.argsort(us[picked], kind="stable")][:k]
