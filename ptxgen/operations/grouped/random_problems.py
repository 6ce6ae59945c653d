"""Random grouped products to measure."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.gemm.random_problems import BATCH, MULTIPLE, extent
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.tuning.draws import Limits, log_uniform

LEAST_BOUND = 64  #: the least upper bound of the extents of a group


def grouped(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> GroupedGemm:
    """A random group. Half of the groups are lists, whose extents are uniform from 1 to a random bound; in a third,
    experts share the rows of one array in random proportions, in a sixth, its K."""
    multiple = MULTIPLE if rng.random() < 0.5 else 1
    count = log_uniform(rng, min(BATCH, limits.extent))
    bound = max(limits.extent // 4, 1)
    largest = [max(extent(rng, bound, multiple), min(LEAST_BOUND, bound) // multiple * multiple) for _ in "mnk"]
    jagged = ("", "", "", "m", "m", "k")[rng.integers(6)]
    layout = str(rng.choice(LAYOUTS))
    if not jagged:
        drawn = rng.integers(1, np.array(largest) // multiple + 1, (count, 3)) * multiple
        return GroupedGemm(tuple((m, n, k) for m, n, k in drawn.tolist()), layout, **values)
    share = np.arange(1, count + 1) ** -float(rng.choice([0.0, 0.5, 1.0]))
    total = extent(rng, 4 * limits.extent, 1)
    sizes = rng.multinomial(total, rng.permutation(share / share.sum())).tolist()
    m, n, k = largest
    items = tuple((s, n, k) if jagged == "m" else (m, n, s) for s in sizes)
    layout = ("N" + layout[1]) if jagged == "m" else "TN"
    return GroupedGemm(items, layout, jagged=jagged, **values)
