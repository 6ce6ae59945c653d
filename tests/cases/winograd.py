"""Random legal Winograd convolutions and gradients."""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxgen.codegen.config.config import FAMILIES, SPLIT_WORKSPACE, Columns, Config
from ptxgen.families.common.rules import legal
from ptxgen.families.winograd.axes import TILES
from ptxgen.lowering.lower import lower
from ptxgen.lowering.winograd import LEAST_CHANNELS, LEAST_PIXELS, MOST_PADDING
from ptxgen.operations.conv.problem import FILTERS, Conv
from ptxgen.problem.device import Device
from tests.cases import simt
from tests.cases.columns import random_columns
from tests.cases.source import RandomCases

DRAWS = 20000
EPILOGUES = ("", "", "bias", "residual", "bias,relu", "scale,bias,residual,silu", "gelu", "residual,relu_grad")


def problem(family: str, rng: np.random.Generator, limit: int, d: Device) -> Conv:
    """A random problem of a family: odd extents, any padding, channels that are no multiples of tiles. ``limit``: of channels."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    tile = TILES[family]
    least_channels, least_pixels = LEAST_CHANNELS[tile], LEAST_PIXELS[tile]
    direction = str(rng.choice(["forward", "input_grad", "weight_grad"]))
    # with less padding, images of weight gradients have enough results
    least = least_pixels + 2 if direction == "weight_grad" else 3
    most = max(12, least + 2)
    low, high = 0, 3
    if tile in MOST_PADDING and direction != "weight_grad":  # that of input gradients is of the opposite side
        low, high = (2 - MOST_PADDING[tile], 3) if direction == "input_grad" else (0, MOST_PADDING[tile])
    return Conv(
        some(1, 4),
        some(least_channels, limit),
        some(least, most),
        some(least, most),
        some(least_channels, limit),
        3,
        3,
        padding=tuple(some(low, high + 1) for _ in range(4)) if rng.random() < 0.5 else some(low, min(high, 2) + 1),
        layout=str(rng.choice(["NCHW", "NCHW", "NHWC", "CHWN"])),
        filters=str(rng.choice(["", "", *FILTERS.values()])),
        direction=direction,
        epilogue="" if direction == "weight_grad" else str(rng.choice(EPILOGUES)),
        deterministic=bool(rng.random() < 0.2),
    )


def config(family: str, v: Conv, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn: of the values that the search visits, or of others."""
    if rng.random() < 0.5:
        c = random_columns(family, rng, DRAWS)
        c = c.replace(pdl=c.pdl if d.sm >= 90 else 0)
    else:
        c = Columns(simt.columns(rng, DRAWS).columns, DRAWS)
    kg = np.full(DRAWS, 1)
    if v.direction == "weight_grad":
        kg = rng.choice(np.array([1, 2, 3, 5]), DRAWS)
    c = c.replace(family=FAMILIES.index(family), kg=kg, splitk=np.where(kg > 1, SPLIT_WORKSPACE, 0))
    c = c.take(np.flatnonzero(c.ml // c.ms * (c.nl // c.ns) * c.kl <= threads))
    rows = np.flatnonzero(legal(lower(v), c, d))
    return c.row(int(rng.choice(rows))) if len(rows) else None


SOURCES = tuple(RandomCases(name, partial(problem, name), partial(config, name), limit=70) for name in TILES)
