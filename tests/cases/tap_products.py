"""Random legal convolutions with few results per pixel, computed from products of taps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.errors import ShapeError
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.tap_products import tap_products_of
from ptxgen.problem.device import Device
from tests.cases.source import RandomCases

TYPES = (("f16", ""), ("f32", ""), ("bf16", ""), ("f64", ""), ("f32", "tf32"))


def problem(rng: np.random.Generator, limit: int, d: Device) -> Conv:
    """A small convolution or input gradient with few results per pixel."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    while True:
        dtype, compute = TYPES[int(rng.choice(len(TYPES), p=(0.4, 0.25, 0.15, 0.1, 0.1)))]
        gradient = rng.random() < 0.3
        channels = 8 * some(2, 20) if rng.random() < 0.6 else some(16, 70)
        sides = (some(1, 5), channels)[:: 1 if gradient else -1]
        try:
            v = Conv(
                some(1, 4),
                sides[0],
                some(1, 14),
                some(1, 40) if rng.random() < 0.3 else some(1, 14),
                sides[1],
                some(1, 4),
                some(1, 4),
                stride=1 if gradient else (some(1, 4), some(1, 4)),
                padding=tuple(some(0, 3) for _ in range(4)),
                dilation=(some(1, 3), some(1, 3)),
                layout=str(rng.choice(("NHWC", "NHWC", "NCHW"))),
                filters=str(rng.choice(("", "", "KCRS", "CRSK"))),
                direction="input_grad" if gradient else "forward",
                dtype=dtype,
                compute=compute,
                epilogue=str(rng.choice(("", "", "bias,relu", "residual"))),
            )
        except ShapeError:
            continue
        if rng.random() < 0.2:
            v = replace(v, aligned_input=v.element.bytes, aligned_output=v.element.bytes)
        if tap_products_of(v) is not None:
            return v


def config(v: Conv, d: Device, rng: np.random.Generator, threads: int = 128) -> Config | None:
    """A random legal configuration; None: none was drawn."""
    products = tap_products_of(v)
    assert products is not None
    for _ in range(20):
        mma = int(products.vec == 8 and v.compute == "f32" and rng.random() < 0.7)
        vec = 8 if mma else int(rng.choice([n for n in (1, 2, 4, 8) if n <= products.vec]))
        c = Config(
            family="tap_products",
            tile_height=int(rng.integers(1, 9)),
            tile_width=int(rng.integers(1, 17)),
            block_threads=int(rng.choice([n for n in (32, 64, 128) if n <= threads])),
            thread_pixels=int(rng.choice((1, 2, 4))),
            vec_channel=vec,
            u=int(rng.choice((32, 64) if mma else (vec, 2 * vec, 8))),
            filter_channels=64,
            tap_mma=mma,
        )
        if first_violation(lower(v), c, d) is None:
            return c
    return None


SOURCE = RandomCases("conv_tap_products", problem, config)
