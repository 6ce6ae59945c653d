"""Random small convolutions of any kind, the same for every tier of tests."""

from __future__ import annotations

import numpy as np

from ptxgen.conv import DIRECTIONS, FILTERS, Conv
from ptxgen.errors import ShapeError


def drawn(rng: np.random.Generator) -> Conv:
    """A small convolution of any kind."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    while True:
        deep, flat, groups = rng.random() < 0.2, rng.random() < 0.15, int(rng.choice([1, 1, 1, 2, 3]))
        pads = tuple(some(0, 4) for _ in range(4)) if rng.random() < 0.5 else 0 if flat else some(0, 3)
        try:
            return Conv(
                0 if rng.random() < 0.05 else some(1, 4), groups * some(1, 4), 1 if flat else some(1, 9), some(1, 9),
                groups * some(1, 4), 1 if flat else some(1, 4), some(1, 4), d=some(1, 5) if deep else 1,
                t=some(1, 3) if deep else 1, stride=(some(1, 4), some(1, 4)) if rng.random() < 0.7 else some(1, 4),
                padding=pads, dilation=some(1, 4), groups=groups, layout=str(rng.choice(list(FILTERS))),
                filters=str(rng.choice(["", *FILTERS.values()])), direction=str(rng.choice(DIRECTIONS)),
            )  # fmt: skip
        except ShapeError as error:
            if "reaches" not in str(error):
                raise


def problems(seed: int, n: int) -> list[Conv]:
    rng = np.random.default_rng(seed)
    return [drawn(rng) for _ in range(n)]
