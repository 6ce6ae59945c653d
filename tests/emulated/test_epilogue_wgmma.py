"""What follows a product, fused into every way in which wgmma kernels leave, on the emulated device, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.problem.base import EPILOGUE
from ptxgen.problem.gemm import Gemm
from ptxgen.problem.reference import operands
from ptxgen.problem.strided_arrays import padded
from ptxgen.runtime.runner import Runner
from tests.emulated.test_epilogue import D, EmulatedDriver, parse_config, right

WAYS = {
    "fragments": "ml=64 nl=32 u=64 stages=2 vec_c=2",
    "fragments, a block walks": "ml=64 nl=32 u=64 stages=2 persistent=1",
    "a boxful": "ml=64 nl=32 u=64 stages=2 stage_c=1",
    "parts": "ml=128 wg=2 nl=64 u=64 stages=2 stage_c=1 chunks=4 buffers=2",
    "parts along M": "swap=1 ml=64 nl=128 wg=2 u=64 stages=3 stage_c=1 chunks=2 reuse=1",
    "a block walks": "ml=64 nl=64 u=64 stages=2 stage_c=1 persistent=1 chunks=2",
    "in turn": "ml=64 wg=2 pingpong=1 persistent=1 nl=32 u=64 stages=3 stage_c=1",
    "cluster's sum": "ml=64 nl=64 u=64 stages=2 kc=2 stage_c=1",
    "last slice": "ml=64 nl=64 u=32 stages=2 kg=2 split=3 stage_c=1",
    "shares": "ml=64 nl=64 u=32 stages=2 kg=2 split=4 stage_c=1 chunks=2 buffers=2",
}
STAGES = [stage for row in EPILOGUE for stage in row]
#: columns past the last whole box, rows past the last tile
P = Gemm(150, 72, 130, "NT", "f16", lda=136, ldb=136)


@pytest.mark.parametrize("way", WAYS)
def test_all_in_company(way: str) -> None:
    for n, stages in enumerate(("scale_rows,bias_row,residual,gelu", "scale,bias_column,relu")):
        right(replace(P, epilogue=stages), f"family=2 {WAYS[way]}", n)


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage(stage: str) -> None:
    right(replace(P, m=70, dtype="bf16", out="bf16", epilogue=stage), "family=2 " + WAYS["a block walks"])


def test_a_residual_that_is_not_added_is_found() -> None:
    """The check can fail: the kernel gets another residual than the reference."""
    p = replace(P, epilogue="residual")
    runner = Runner.of(EmulatedDriver(D), p, parse_config("family=2 " + WAYS["parts"]))
    a, b, c = padded(p, operands(p))
    outs = [runner.compute(a, b, c, more=(np.full_like(c, x),)) for x in (0.0, 8.0)]
    assert np.abs(outs[1] - outs[0]).min() > 7
