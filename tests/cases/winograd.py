"""Random legal Winograd convolutions and gradients."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config import FAMILIES, SPLIT_WORKSPACE, Columns, Config
from ptxgen.families.rules import legal
from ptxgen.lowering.lower import lower
from ptxgen.lowering.winograd import LEAST_CHANNELS, LEAST_PIXELS
from ptxgen.problem.conv import FILTERS, Conv
from ptxgen.problem.device import Device
from tests.cases import simt
from tests.cases.columns import random_columns
from tests.cases.source import RandomCases

DRAWS = 20000
EPILOGUES = ("", "", "bias", "residual", "bias,relu", "scale,bias,residual,silu", "gelu", "residual,relu_grad")


def problem(rng: np.random.Generator, limit: int, d: Device) -> Conv:
    """A random problem: odd extents, any padding, channels that are no multiples of tiles. ``limit``: of channels."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    direction = str(rng.choice(["forward", "input_grad", "weight_grad"]))
    # with less padding, images of weight gradients have enough results
    least = LEAST_PIXELS + 2 if direction == "weight_grad" else 3
    return Conv(
        some(1, 4),
        some(LEAST_CHANNELS, limit),
        some(least, 12),
        some(least, 12),
        some(LEAST_CHANNELS, limit),
        3,
        3,
        padding=tuple(some(0, 4) for _ in range(4)) if rng.random() < 0.5 else some(0, 3),
        layout=str(rng.choice(["NCHW", "NCHW", "NHWC"])),
        filters=str(rng.choice(["", "", *FILTERS.values()])),
        direction=direction,
        epilogue="" if direction == "weight_grad" else str(rng.choice(EPILOGUES)),
        deterministic=bool(rng.random() < 0.2),
    )


def config(v: Conv, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn: of the values that the search visits, or of others."""
    if rng.random() < 0.5:
        c = random_columns("winograd", rng, DRAWS)
        c = c.replace(pdl=c.pdl if d.sm >= 90 else 0)
    else:
        c = Columns(simt.columns(rng, DRAWS).columns, DRAWS)
    kg = np.full(DRAWS, 1)
    if v.direction == "weight_grad":
        kg = rng.choice(np.array([1, 2, 3, 5]), DRAWS)
    c = c.replace(family=FAMILIES.index("winograd"), kg=kg, splitk=np.where(kg > 1, SPLIT_WORKSPACE, 0))
    small = c.ml // c.ms * (c.nl // c.ns) * c.kl <= threads
    rows = np.flatnonzero(legal(lower(v), c, d) & small)
    return c.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("winograd", problem, config, limit=70)
