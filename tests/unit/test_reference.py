"""Float64 references, error bounds, and inputs that expose errors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.operations.gemm.reference import as_matrices
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.reference import quantized_arrays
from ptxgen.problem.reference import (
    EXTREME_SCALES,
    FACTOR,
    INPUTS,
    Reference,
    compare,
    epilogue_arrays,
    operands,
    reference,
)

TYPES = [("f32", ""), ("f64", ""), ("f16", "f32"), ("f16", "f16")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_are_stored_in_the_layout(layout):
    p = Gemm(3, 4, 5, layout)
    a, b, c = operands(p, 1).values()
    assert p.stored == (a.shape, b.shape, c.shape)
    assert a.shape == ((3, 5) if layout[0] == "N" else (5, 3))
    assert b.shape == ((5, 4) if layout[1] == "N" else (4, 5))
    assert c.shape == (3, 4)
    wide_a, wide_b = as_matrices(p, a, b)
    assert wide_a.shape == (3, 5)
    assert wide_b.shape == (5, 4)
    assert wide_a.dtype == wide_b.dtype == np.float64
    assert wide_a[2, 1] == (a[2, 1] if layout[0] == "N" else a[1, 2])
    assert wide_b[2, 1] == (b[2, 1] if layout[1] == "N" else b[1, 2])


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize(("dtype", "compute"), TYPES)
def test_equal_seeds_give_equal_operands(inputs, dtype, compute):
    p = Gemm(20, 30, 40, "TN", dtype, compute)
    one, two, other = (operands(p, seed, inputs).values() for seed in (1, 1, 2))
    for x, y, z in zip(one, two, other, strict=True):
        assert x.dtype == p.element.numpy
        assert np.array_equal(x, y)
        assert not np.array_equal(x, z)
        assert np.isfinite(x.astype(float)).all()


@pytest.mark.parametrize(("dtype", "compute"), TYPES)
@pytest.mark.parametrize("k", [1, 100, 5000])
def test_integer_sums_are_exact_in_any_order(dtype, compute, k):
    """Every partial sum of any products is an integer that the accumulator and C represent."""
    p = Gemm(40, 40, k, "NN", dtype, compute)
    a, b, _ = operands(p, 3, "integers").values()
    largest = (np.abs(a.astype(float)) @ np.abs(b.astype(float))).max()
    assert largest <= min(1 / p.accumulator.roundoff, 1 / p.output.roundoff)
    assert largest > 0


def test_scaled_operands_are_badly_scaled():
    a, b, _ = operands(Gemm(200, 200, 50), 1, "scaled").values()
    rows, columns = np.abs(a).mean(axis=1), np.abs(b).mean(axis=0)
    assert rows.max() / rows.min() > 500
    assert columns.max() / columns.min() > 500


def test_reference_is_the_product():
    p = Gemm(3, 4, 5, "TT")
    a, b, c = operands(p, 1).values()
    ref = reference(p, {"A": a, "B": b, "C": c}, alpha=-0.5, beta=2.0)
    for i in range(3):
        for j in range(4):
            exact = sum(Fraction(float(a[k, i])) * Fraction(float(b[j, k])) for k in range(5))
            scale = sum(abs(Fraction(float(a[k, i])) * Fraction(float(b[j, k]))) for k in range(5))
            assert ref.exact[i, j] == pytest.approx(float(-exact / 2 + 2 * Fraction(float(c[i, j]))), abs=1e-13)
            assert ref.scale[i, j] == pytest.approx(float(scale / 2 + 2 * abs(Fraction(float(c[i, j])))))


def test_beta_zero_does_not_read_c():
    p = Gemm(3, 4, 5)
    a, b, c = operands(p, 1).values()
    assert np.isfinite(reference(p, {"A": a, "B": b, "C": np.full_like(c, np.nan)}).exact).all()
    assert np.isnan(reference(p, {"A": a, "B": b, "C": np.full_like(c, np.nan)}, beta=1.0).exact).all()
    assert reference(p, {"A": a, "B": b}).exact.shape == (3, 4)


def naive(p: Gemm, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products are added one by one in the accumulator's type, then rounded to C's."""
    inputs = p.accumulator.numpy
    out = np.zeros((p.m, p.n), inputs)
    for k in range(p.k):
        out = (out + a[:, k : k + 1].astype(inputs) * b[k : k + 1].astype(inputs)).astype(inputs)
    return out.astype(p.output.numpy)


@pytest.mark.parametrize(("dtype", "compute"), TYPES)
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("k", [1, 7, 300])
def test_right_sums_pass_and_wrong_sums_fail(dtype, compute, inputs, k):
    p = Gemm(33, 31, k, "NN", dtype, compute)
    a, b, _ = operands(p, 5, inputs).values()
    ref, right = reference(p, {"A": a, "B": b}), naive(p, a, b)
    deviation = compare(right, ref)
    assert deviation.ok, str(deviation)
    assert deviation.ratio <= 0.75  # room for other orders
    if p.output is p.accumulator and dtype != "f16":  # which underflows
        assert deviation.worst <= (FACTOR if inputs != "integers" else 0)
    assert not compare(np.roll(right, 1, axis=1), ref).ok
    if k == 300 and p.accumulator.name == "f16":
        return  # a product in 300 is less than such sums may err by
    # a product left out, one taken twice
    wide = a[:, :1].astype(float) * b[:1].astype(float)
    i, j = np.unravel_index(np.argmax(np.abs(wide)), wide.shape)
    for change in (-1, 1):
        wrong = right.astype(np.float64)
        wrong[i, j] += change * wide[i, j]
        deviation = compare(wrong.astype(p.output.numpy), ref)
        assert not deviation.ok
        assert deviation.where == (i, j)


def test_worst_case_bounds_the_tolerance_of_short_sums():
    """For one or two products the tolerance is their roundings, not the square-root estimate."""
    for k, factor in ((1, 4), (9, 12), (10000, 400)):
        p = Gemm(1, 1, k)
        ref = Reference(p, np.zeros((1, 1)), np.ones((1, 1)))
        assert ref.tolerance()[0, 0] <= (factor + 1) * 2.0**-24
        assert ref.tolerance()[0, 0] >= min(k, factor) * 2.0**-24


def made(values: list[float], exact: list[float], dtype: str = "f32") -> float:
    p = Gemm(1, len(values), 4, "NN", dtype)
    scale = np.abs(np.nan_to_num(np.array([exact]), nan=1.0, posinf=1.0, neginf=1.0))
    return compare(np.array([values], p.output.numpy), Reference(p, np.array([exact]), scale)).ratio


def test_infinities_and_nan_must_agree():
    inf, nan = np.inf, np.nan
    assert made([inf, -inf, nan, 1.0], [inf, -inf, nan, 1.0]) == 0
    for got, exact in ((inf, 1.0), (1.0, inf), (nan, 1.0), (1.0, nan), (inf, -inf), (inf, nan), (nan, inf)):
        assert made([1.0, got], [1.0, exact]) == inf
    p = Gemm(2, 3, 4)
    deviation = compare(
        np.array([[1, 1, 1], [1, np.nan, 1]], np.float32), Reference(p, np.ones((2, 3)), np.ones((2, 3)))
    )
    assert not deviation.ok
    assert deviation.where == (1, 1)


def test_overflow_tolerance():
    """Near 65504, the largest f16, a result may be rounded to it or to infinity; further off only to infinity."""
    inf = np.inf
    for exact in (65504.0, 65510.0, 65519.0, 65521.0, 65536.0):
        assert made([65504.0], [exact], "f16") <= 1
        assert made([inf], [exact], "f16") <= 1
        assert made([-inf], [exact], "f16") > 1
        assert made([-inf], [-exact], "f16") <= 1
    assert made([inf], [1e6], "f16") == 0
    assert made([65504.0], [1e6], "f16") > 1
    assert made([inf], [60000.0], "f16") > 1
    assert made([inf], [1e39], "f32") == 0


def test_text_of_deviations():
    p = Gemm(2, 3, 4)
    exact = np.zeros((2, 3))
    exact[1, 2] = 1.0
    deviation = compare(np.zeros((2, 3), np.float32), Reference(p, exact, np.ones((2, 3))))
    assert not deviation.ok
    assert "at [1, 2]" in str(deviation)
    empty = compare(np.zeros((0, 3), np.float32), Reference(Gemm(0, 3, 4), np.zeros((0, 3)), np.zeros((0, 3))))
    assert empty.ok
    assert empty.where == (0, 0)


def test_tiny_results_may_underflow():
    p = Gemm(1, 1, 1, "NN", "f16", "f16")
    a, b = np.array([[2.0**-14]], np.float16), np.array([[2.0**-14]], np.float16)
    assert compare(np.zeros((1, 1), np.float16), reference(p, {"A": a, "B": b})).ok


def test_f16_sums_may_lose_bits_to_underflow():
    """A chain of f16 multiply-adds on operands whose products are below the smallest normal number."""
    p = Gemm(588, 256, 40, "NN", "f16", "f16")
    a, b, _ = operands(p, 2, "scaled").values()
    sums = np.zeros((p.m, p.n))
    for k in range(p.k):
        step = a[:, k : k + 1].astype(np.float64) * b[k : k + 1].astype(np.float64)
        sums = (sums + step).astype(np.float16).astype(np.float64)
    deviation = compare(sums.astype(np.float16), reference(p, {"A": a, "B": b}))
    assert 0.3 < deviation.ratio <= 1.0


def test_block_scales_have_both_signs_and_extreme_values():
    p = Gemm(300, 200, 500, "NT", "e4m3", block_a="1x128", block_b="1x128t")
    for inputs in (*INPUTS, "extreme"):
        for name, x in epilogue_arrays(p, 1, inputs).items():
            assert x.shape == p.scale_shapes[name]
            assert (x < 0).any() == (inputs != "positive")
            assert np.isin(np.array(EXTREME_SCALES, np.float32), x).sum() == (
                8 if inputs == "extreme" else 0
            )  # not NaN
            assert np.isnan(x).any() == (inputs == "extreme")
    few = epilogue_arrays(Gemm(1, 200, 100, "NT", "e4m3", block_a="1x128", block_b="1x128"), 1, "extreme")
    assert np.isfinite(few["scale_a"]).all()


@pytest.mark.parametrize(
    ("scale_a", "scale_b", "right", "wrong"),
    [
        (np.inf, 2.0, (np.inf, np.nan), (0.0, 3e38)),
        (1e30, -1e30, (-np.inf, np.inf, np.nan), (-3e38,)),
        (np.inf, 0.0, (np.nan,), (np.inf, 0.0)),
        (np.nan, 1.0, (np.nan,), (np.inf, 0.0)),
        (0.0, 1.0, (0.0,), (np.nan, 1.0)),
        (1e-30, 1e-10, (8e-40,), (0.0, 1e-30)),
        (-0.5, 1.0, (-4.0,), (4.0, np.nan)),
    ],
)
def test_scales_that_are_no_usual_numbers(scale_a, scale_b, right, wrong):
    p = Gemm(1, 1, 8, "NT", "e4m3", out="f32", block_a="1x128", block_b="1x128")
    one = np.ones((1, 8), p.element.numpy)
    arrays = {"A": one, "B": one, "scale_a": np.float32([[scale_a]]), "scale_b": np.float32([[scale_b]])}
    with np.errstate(all="ignore"):
        ref = reference(p, arrays)
    for results, ok in ((right, True), (wrong, False)):
        for result in results:
            assert compare(np.float32([[result]]), ref).ok == ok, result


@pytest.mark.parametrize("weights", ["s8", "u4"])
def test_scales_of_weights_have_both_signs_and_extreme_values(weights):
    p = QuantizedGemm(3, 300, 256, weights=weights, group=64, zeros=weights == "u4")
    for inputs in (*INPUTS, "extreme"):
        x = quantized_arrays(p, 1, inputs)["scales"].astype(np.float32)
        assert (x < 0).any() == (inputs != "positive")
        for extreme in (np.isnan(x), np.isinf(x), x == 0, (np.abs(x) < 2.0**-20) & (x != 0)):
            assert extreme.any() == (inputs == "extreme")
        assert 100 < np.isfinite(x).all(1).sum() <= (280 if inputs == "extreme" else 300)
    assert np.isfinite(quantized_arrays(replace(p, n=1), 1, "extreme")["scales"]).any()


@pytest.mark.parametrize(
    ("scale", "right", "wrong"),
    [
        (np.inf, (np.inf, -np.inf, np.nan), (0.0, 3e38)),
        (np.nan, (np.nan,), (np.inf, 0.0)),
        (0.0, (0.0,), (np.nan, 1.0)),
        (1e-40, (64e-40,), (0.0, 1e-30)),
        (-0.5, (-32.0,), (32.0, np.nan)),
    ],
)
def test_scales_of_weights_that_are_no_usual_numbers(scale, right, wrong):
    p = QuantizedGemm(1, 1, 64, out="f32", scales="f32")
    arrays = {"A": np.ones((1, 64), np.float16), "B": np.ones((1, 64), np.int8), "scales": np.float32([[scale]])}
    with np.errstate(all="ignore"):
        ref = reference(p, arrays)
    for results, ok in ((right, True), (wrong, False)):
        for result in results:
            assert compare(np.float32([[result]]), ref).ok == ok, result
