"""Convolutions with few results per pixel, from products of taps, executed with checks for bounds, races and
uninitialised reads; every element is compared."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from gemm_runs import right

from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering.tap_products import tap_products
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.device import device
from tests.cases import SOURCES
from tests.lowered import form

TILE = "family=tap_products tile_height=4 tile_width=8 block_threads=64 filter_channels=64"
MMA = "vec_channel=8 u=32 tap_mma=1"


@pytest.mark.first(4)
@pytest.mark.parametrize("n", range(24))
def test_random_convolutions_and_configurations(n: int) -> None:
    for v, c in SOURCES["conv_tap_products"].cases(500 + n, 2, device("emulated")):
        right(v, c)


CASES = {
    "folded pixels, one bias": (Conv(2, 17, 6, 37, 1, 3, 3, padding=1, epilogue="bias,relu"), "thread_pixels=1"),
    "strides and dilation, doubles": (
        Conv(2, 16, 9, 11, 2, 3, 2, padding=(0, 1, 2, 1), stride=(2, 3), dilation=(1, 2), dtype="f64"),
        "thread_pixels=4 u=4",
    ),
    "a gradient of three channels": (
        Conv(2, 3, 9, 7, 40, 3, 2, padding=(0, 1, 1, 1), layout="NHWC", direction="input_grad", epilogue="bias"),
        "thread_pixels=1 vec_channel=4",
    ),
    "taps of channels in two parts": (Conv(1, 72, 6, 7, 3, 3, 3, padding=1, layout="NHWC", dtype="bf16"), MMA),
    "nine filters": (
        Conv(1, 40, 5, 5, 9, 3, 3, padding=1, layout="NHWC", dtype="f16", epilogue="residual"),
        f"{MMA} thread_pixels=1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: str) -> None:
    v, text = CASES[case]
    right(v, parse_config(f"{TILE} {text}"))


@pytest.mark.parametrize(
    "v",
    [
        Conv(2, 16, 6, 7, 1, 1, 1),
        Conv(2, 32, 6, 7, 2, 3, 3, groups=2),
        Conv(2, 16, 6, 7, 11, 3, 3),
        Conv(2, 15, 6, 7, 1, 3, 3),
        Conv(2, 16, 6, 7, 1, 3, 3, d=2, t=2),
        Conv(2, 16, 6, 7, 1, 3, 3, layout="CHWN"),
        Conv(2, 1, 6, 7, 16, 3, 3, stride=2, direction="input_grad"),
        Conv(2, 16, 6, 7, 1, 3, 3, direction="weight_grad"),
        Conv(2, 16, 6, 7, 1, 3, 3, dtype="f16", compute="f16"),
        Conv(2, 16, 6, 7, 1, 3, 3, dtype="s8"),
    ],
    ids=lambda v: v.key(),
)
def test_other_convolutions_have_no_products_of_taps(v: Conv) -> None:
    assert tap_products(form(v, "tap_products")) is None


def test_lanes_of_mma_store_to_different_banks() -> None:
    """The 32 words that a warp stores at once, as those that the lanes of a group load."""
    from ptxgen.families.tap_products.geometry import geometry

    v = Conv(2, 40, 19, 19, 1, 3, 3, padding=1, layout="NHWC", dtype="f16")
    for height, width in product((3, 8), (5, 10, 16)):
        g = geometry(
            form(v, "tap_products"), parse_config(f"{TILE} {MMA}").replace(tile_height=height, tile_width=width)
        )
        lanes = np.arange(32)
        assert len(set((lanes % 4 * 2 * g.pitch + lanes // 4) % 32)) == 32
        assert g.filter_pitch % 128 == 64
