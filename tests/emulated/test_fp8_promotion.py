"""fp8 products with long sums of one sign: promotion to f32 keeps the error independent of K, ``f32_fast_accum`` does not."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_runs import execute, right

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import FAST_ACCUM
from ptxgen.problem.reference import compare, operands, reference
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.emulated import EmulatedDriver

K = 2080  #: not a multiple of 128
SHORTER = 1056  #: likewise
#: layout, configuration: both operands of wgmma in shared memory, or the 64-row side in registers; stages that hold less
#: than a sum before its promotion, one, several; slices of K
KERNELS = {
    "one sum a stage": ("NT", "ml=64 nl=32 u=128 stages=3"),
    "half a sum a stage": ("NT", "ml=64 nl=32 u=64 stages=3"),
    "two sums a stage": ("NT", "ml=64 nl=32 u=256 stages=2"),
    "two warpgroups, persistent": ("NT", "ml=128 nl=32 u=128 stages=3 math_warpgroups=2 persistent=1"),
    "two instructions along X": ("NT", "ml=128 nl=16 u=256 stages=2"),
    "X from registers": ("NN", "ml=16 nl=64 u=128 stages=3 transposed_mma=1"),
    "X from registers, two sums a stage": ("NN", "ml=16 nl=64 u=256 stages=2 transposed_mma=1"),
    "slices in a cluster": ("NT", "ml=64 nl=32 u=128 stages=3 cluster_k=2"),
    "slices in a grid": ("NT", "ml=64 nl=32 u=128 stages=3 kg=2 splitk=workspace"),
}


def deviation(p: Gemm, config: str, inputs: str, on: str = "h200"):
    """How the kernel's result differs from what ``compute=f32`` allows."""
    a, b, c = operands(p, 5, inputs).values()
    out = execute(p, parse_config(config), (a, b, c), on=on)
    return compare(out, reference(Gemm(p.m, p.n, p.k, p.layout, p.dtype, out="f32"), {"A": a, "B": b}))


@pytest.mark.each_value
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_sums_of_one_sign_are_right_at_any_k(name: str, dtype: str) -> None:
    layout, text = KERNELS[name]
    inputs = ("positive", "integers")[list(KERNELS).index(name) // 2 % 2]
    assert deviation(Gemm(64, 64, SHORTER, layout, dtype, out="f32"), f"family=wgmma {text}", inputs).ok


@pytest.mark.parametrize("layout", ["NT", "NN"])
def test_fast_accumulation_exceeds_the_tolerance_of_f32(layout: str) -> None:
    """The check can fail: the same kernel without promotion is outside the tolerance of f32, within its own."""
    m, n, text = (64, 16, "") if layout == "NT" else (16, 64, " transposed_mma=1")
    text = f"family=wgmma ml={m} nl={n} u=128 stages=3{text}"
    p = Gemm(m, n, K, layout, "e4m3", FAST_ACCUM, out="f32")
    assert deviation(p, text, "positive").ratio > 4
    right(p, text, cases=CASES[3:4])


def test_filter_rows_have_several_sums_a_stage() -> None:
    """A stage of three taps of 128 channels has three sums."""
    p = Conv(1, 128, 6, 6, 64, 3, 3, padding=1, layout="NHWC", dtype="e4m3", out="f32")
    results = check(
        EmulatedDriver(device("h200")), p, parse_config("family=wgmma ml=64 nl=32 u=128 stages=2 row_taps=3")
    )
    assert all(r.ok for r in results), [str(r.deviation) for r in results]


MMA = {
    "mma": (32, "family=mma ms=16 ns=16 ml=32 nl=32 u=64 vec_a=16 vec_b=16"),
    "skinny": (8, "family=skinny ml=8 ms=2 nl=16 ns=2 lanes_long=8 kl=1 u=64 vec_a=16 vec_b=16 long_n=1 mma_m16=1"),
}


def promotes(p: Gemm, text: str, on: str) -> bool:
    return "add.f32 %acc" in render(plan_for(p, parse_config(text), device(on))).text


@pytest.mark.parametrize("name", MMA)
def test_mma_promotes_where_its_accumulator_may_lose_bits(name: str) -> None:
    """mma.sync of sm_90 keeps all bits; no other target was measured, so each instruction starts from zero there."""
    m, text = MMA[name]
    p = Gemm(m, 32, 160, "NT", "e4m3", out="f32")
    assert promotes(p, text, "rtx4090")
    assert not promotes(Gemm(m, 32, 160, "NT", "e4m3", FAST_ACCUM, out="f32"), text, "rtx4090")
    for inputs in ("positive", "integers", "scaled"):
        assert deviation(p, text, inputs, "rtx4090").ok


def test_mma_of_hopper_does_not_promote() -> None:
    m, text = MMA["skinny"]
    assert not promotes(Gemm(m, 32, 160, "NT", "e4m3", out="f32"), text, "h200")


def test_lost_bits_do_not_depend_on_k() -> None:
    """Each result is within two thousandths, from 128 to 4096 terms."""
    for k in (128, 1024, 4096):
        p = Gemm(64, 32, k, "NT", "e4m3", out="f32")
        a, b, c = operands(p, 7, "positive").values()
        out = execute(p, parse_config("family=wgmma ml=64 nl=32 u=128 stages=3"), (a, b, c), on="h200")
        exact = reference(p, {"A": a, "B": b}).exact
        assert np.abs(out / exact - 1).max() < 2e-3
