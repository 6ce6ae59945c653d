"""GEMMs with e4m3 and e5m2 outputs: every epilogue path, rounding, saturation, NaN, subnormal numbers."""

from __future__ import annotations

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, driver_state, drivers, first_call, gemm
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import DtypeError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import compare, operands, reference
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.selection import select
from tests.emulated.gemm_runs import right
from tests.emulated.test_s8_outputs import EPILOGUES, OPTIONS

TINY = ("e4m3", "e5m2")
#: device, dtype, configuration
KERNELS = {
    **{
        options: ("h200", "e4m3", text)
        for options, text in OPTIONS.items()
        if options.startswith("wgmma") and "TMA store" not in options
    },
    **{options: ("rtx4090", "e5m2", text) for options, text in OPTIONS.items() if options.startswith("mma")},
    "mma, 16 bits": ("h200", "bf16", "family=mma ms=16 ns=16 ml=32 nl=32 u=32 vec_a=8 vec_b=8"),
    "simt": ("h200", "f16", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=4"),
    "simt, sums in f16": ("h200", "f16 f16", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0"),
    "simt, gathered": ("h200", "bf16", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 kl=2 u=16 cp_async_a=0 cp_async_b=0 vec_c=2"),
    "skinny": (
        "h200",
        "e4m3",
        "family=skinny ml=1 ms=1 nl=8 ns=4 lanes_long=1 kl=2 u=1024 vec_a=16 vec_b=16 long_n=1 fragment_prefetch=0",
    ),
}
#: without those whose paths ``test_s8_outputs`` executes
OWN = {options: KERNELS[options] for options in KERNELS if options not in [*OPTIONS][::2]}


def problem(options: str, out: str, epilogue: str = "") -> Gemm:
    dtype, _, compute = KERNELS[options][1].partition(" ")
    return Gemm(1 if options == "skinny" else 70, 72, 80, "NT", dtype, compute, out=out, epilogue=epilogue)


@pytest.mark.first(len(OWN))
@pytest.mark.parametrize("options", dict.fromkeys([*OWN, *KERNELS]))
def test_both_types_with_every_epilogue_path(options: str) -> None:
    """Scales, bias, residual and activations, combined and alone: for each kernel every third one."""
    on, _, text = KERNELS[options]
    some = [*enumerate((*EPILOGUES, ""))][[*KERNELS].index(options) % 3 :: 3]
    for n, epilogue in some:
        p = problem(options, TINY[(n + len(options)) % 2], epilogue)
        right(p, text, n, on, (CASES[n * 3 % len(CASES)],))


@pytest.mark.parametrize("out", TINY)
def test_kernels_assemble_without_spills(out: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for options in ("wgmma", "wgmma, distributed", "mma, epilogue_smem", "simt", "skinny"):
        on, _, text = KERNELS[options]
        made = assemble(render(plan_for(problem(options, out, EPILOGUES[0]), parse_config(text), device(on))))
        assert made.cubin
        assert not any(made.spills.values())


def nearest(x: np.ndarray, out: str) -> np.ndarray:
    """By search over every number of the type: the nearest, ties to even, saturated at the largest."""
    table = np.arange(128, dtype=np.uint8).view(dtype(out).numpy).astype(np.float64)
    table = table[np.isfinite(table)]
    above = np.clip(np.searchsorted(table, np.abs(x)), 1, len(table) - 1)
    low, high = np.abs(x) - table[above - 1], table[above] - np.abs(x)
    code = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return np.where(np.isnan(x), np.nan, np.copysign(table[code], x))


@pytest.mark.each_value
@pytest.mark.parametrize("out", TINY)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_conversion_of_every_number_and_midpoint(out: str, width: int) -> None:
    """One product per element: each number, each midpoint and its neighbours, down to underflow and up to infinity;
    also + beta C with such numbers."""
    element = dtype(out)
    table = np.arange(128, dtype=np.uint8).view(element.numpy).astype(np.float32)
    table = table[np.isfinite(table)]
    middles = np.append((table[:-1] + table[1:]) / 2, float(table[-1]) * np.array([1.01, 1.0625, 1.125, 1.5, 4]))
    near = [np.nextafter(middles.astype(np.float32), to, dtype=np.float32) for to in (0, np.float32(np.inf))]
    x = np.concatenate([table, middles, *near, [2.0**-20, 1e-30, 3e38, np.inf, np.nan]]).astype(np.float32)
    p = Gemm(len(x), 8, 1, "NN", "f16", out=out, epilogue="scale_rows")
    text = f"ms=4 ns=8 ml=32 nl=32 lanes_m=8 cp_async_a=0 cp_async_b=0 vec_c={width}"
    runner = Runner.of(EmulatedDriver(device("h200")), p, parse_config(text))
    a, b = np.ones((len(x), 1), np.float16), np.ones((1, 8), np.float16)
    signs = np.array([1, -1] * 4, np.float32)
    c = np.resize(table, (len(x), 8)).astype(element.numpy)
    more = {"scale_a": x, "scale_b": signs}  # in f32: A's rows and B's columns times these
    with np.errstate(all="ignore"):
        exact = x[:, None] * signs
        np.testing.assert_array_equal(
            runner.compute({"A": a, "B": b, "C": c, **more})["C"].astype(np.float64), nearest(exact, out)
        )
        both = (exact + c.astype(np.float32)).astype(np.float64)
        got = runner.compute({"A": a, "B": b, "C": c, **more}, beta=1.0)["C"].astype(np.float64)
        np.testing.assert_array_equal(got, nearest(both, out))


def test_overflow_saturates() -> None:
    """The check can fail: infinity is wrong, and so is the number below the largest."""
    p = Gemm(16, 16, 32, "NT", "e5m2", out="e5m2", epilogue="scale")
    a, b, _ = operands(p).values()
    ref = reference(p, {"A": a, "B": b, "scale_a": np.full(1, 2.0**15, np.float32), "scale_b": np.ones(1, np.float32)})
    right = nearest(ref.exact, "e5m2")
    assert (np.abs(right) == 57344).any()
    assert compare(right.astype(dtype("e5m2").numpy), ref).ok
    for wrong in (np.inf, 24576.0):
        with_error = np.where(np.abs(right) == 57344, np.copysign(wrong, right), right).astype(dtype("e5m2").numpy)
        assert not compare(with_error, ref).ok


@pytest.fixture
def emulated(monkeypatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    for cached in (
        x
        for m in (gemm, choice, driver_state, drivers, first_call)
        for x in vars(m).values()
        if hasattr(x, "cache_clear")
    ):
        cached.cache_clear()


@pytest.mark.usefixtures("emulated")
def test_gemm_quantises() -> None:
    """8-bit floats in and out, with a scale per row and per column, and a bias in float32."""
    rng = np.random.default_rng(0)
    element = dtype("e4m3").numpy
    a, b = (rng.standard_normal(s).astype(element) for s in ((33, 64), (64, 48)))
    rows, columns = (np.exp2(rng.integers(-1, 6, n)).astype(np.float32) for n in (33, 48))
    bias = rng.standard_normal(48).astype(np.float32)
    out = ptxgen.gemm(a, b, out=np.zeros((33, 48), element), scale_a=rows, scale_b=columns, bias=bias)
    exact = (a.astype(np.float64) @ b.astype(np.float64)) * rows[:, None] * columns + bias
    assert (np.abs(exact) > 448).any()
    clipped = np.clip(exact, -448, 448)
    assert (np.abs(out.astype(np.float64) - clipped) <= 2.0**-4 * np.abs(clipped) + 2.0**-3).all()


@pytest.mark.usefixtures("emulated")
def test_conv2d_with_8_bit_output() -> None:
    element = dtype("e4m3").numpy
    rng = np.random.default_rng(1)
    images, filters = (rng.standard_normal(s).astype(element) for s in ((2, 5, 5, 16), (8, 3, 3, 16)))
    bias, out = rng.standard_normal(8).astype(np.float32), np.zeros((2, 3, 3, 8), element)
    got = ptxgen.conv2d(images, filters, layout="NHWC", out=out, bias=bias).astype(np.float64)
    wide = ptxgen.conv2d(images, filters, layout="NHWC", out=out.astype(np.float32), bias=bias)
    assert (np.abs(got - wide) <= 2.0**-4 * np.abs(wide) + 2.0**-8).all()
    v = Conv(2, 16, 5, 5, 8, 3, 3, layout="NHWC", dtype="e4m3", out="e4m3")
    deviation = check(EmulatedDriver(device("h200")), v, select(v, device("h200"))[0].config)
    assert all(x.ok for x in deviation)
    assert [x.inputs for x in deviation if x.deviation.ratio == 0] == ["integers"]
    with pytest.raises(DtypeError, match="must be f32"):
        ptxgen.conv2d(images, filters, layout="NHWC", out=out, bias=bias.astype(element))
