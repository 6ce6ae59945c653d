"""Random convolutions, and gradients of them, with random legal configurations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxgen import space
from ptxgen.config import Config
from ptxgen.conv import DIRECTIONS, FILTERS, Conv
from ptxgen.device import Device
from ptxgen.errors import ShapeError

#: dtype, compute, out
TYPES = (("f32", "", ""), ("f32", "tf32", ""), ("f64", "", ""), ("f16", "", ""), ("f16", "f16", ""), ("f16", "", "f32"),
         ("bf16", "", ""))  # fmt: skip


def problem(rng: np.random.Generator, limit: int = 40_000) -> Conv:
    """Any layouts, direction, strides, pads (uneven ones too), dilation, groups, now and then depth; at most ``limit``
    elements of each tensor."""
    while True:
        groups = int(rng.choice((1, 1, 1, 2, 3)))
        some = {name: int(rng.choice((1, 1, 2, 3, 4, 7, 8, 12, 16))) for name in "nck"}
        layout = str(rng.choice(list(FILTERS)))
        deep = rng.random() < 0.15
        taps = [int(rng.choice((1, 1, 2, 3, 3, 5))) for _ in "trs"]
        extents = [int(rng.integers(1, 14)) for _ in "dhw"]
        axes = 3 if deep else 2
        pads = [int(rng.choice((0, 0, 1, 1, 2, 4))) for _ in range(2 * axes)]
        direction = str(rng.choice(DIRECTIONS))
        dtype, compute, out = TYPES[int(rng.integers(len(TYPES)))]
        stages = [s for s in ("bias", "residual", "relu") if rng.random() < 0.3] if direction == "forward" else []
        try:
            p = Conv(
                some["n"], some["c"] * groups, extents[1], extents[2], some["k"] * groups, taps[1], taps[2],
                extents[0] if deep else 1, taps[0] if deep else 1,
                [int(x) for x in rng.choice((1, 1, 2, 3), axes)], pads, [int(x) for x in rng.choice((1, 1, 2), axes)],
                groups, layout, str(rng.choice(list(FILTERS.values()))), dtype, compute, out, ",".join(stages),
                direction=direction,
            )  # fmt: skip
        except ShapeError:
            continue
        if max(np.prod(shape) for shape in p.stored) <= limit:
            return p


def cases(seed: int, count: int, d: Device, limit: int = 40_000) -> Iterator[tuple[Conv, Config]]:
    """``count`` random problems that kernels compute on ``d``, each with a random configuration of those that tuning
    would visit."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        p = problem(rng, limit)
        found = space.candidates(p.gemm, d)
        if len(found):
            made += 1
            yield p, found.row(int(rng.integers(len(found))))
