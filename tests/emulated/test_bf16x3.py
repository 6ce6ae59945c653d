"""``compute=f32_bf16x6``, executed: 24-bit inputs are exact, sums are more accurate than a chain of fma, and values
that three bf16 cannot represent behave as the guide says."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_runs import execute, right, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device
from tests.cases import SOURCES

COMPUTE = "f32_bf16x6"
SMALL = parse_config("family=wgmma ml=64 nl=16 u=32 stages=2")


def stored(p: Gemm, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (M×K) and B (K×N) as the problem stores them, and a C that must not be read."""
    a, b = a if p.layout[0] == "N" else a.T, b if p.layout[1] == "N" else b.T
    c = np.full((p.m, p.n), np.nan, np.float32)
    return np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32), c


def test_random_kernels():
    """Any layout, alignment and extent, in guarded memory; ``right`` runs batches and epilogues."""
    for n, (p, c) in enumerate(SOURCES["bf16x3"].cases(61, 3, device("h200"), 60)):
        if p.epilogue or p.batch > 1:
            right(p, c, n)
            continue
        alpha, beta = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))[n % 3]
        inputs = ("normal", "integers", "scaled")[n % 3]
        verify(p, c, inputs, alpha, beta, data=n, shift=True, times=2 if beta == 0 else 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_24_bit_inputs_are_exact(layout):
    """Odd 24-bit integers of either sign, times powers of two: one per row, so that nothing is rounded."""
    rng = np.random.default_rng(1)
    p = Gemm(37, 19, 67, layout, "f32", COMPUTE)
    wide = rng.integers(1 << 23, 1 << 24, (37, 67)) | 1
    wide = np.where(rng.random(wide.shape) < 0.5, wide, -wide).astype(np.float32)
    chosen = np.zeros((67, 19), np.float32)
    chosen[rng.integers(0, 67, 19), np.arange(19)] = np.exp2(rng.integers(-20, 20, 19))
    out = execute(p, SMALL, stored(p, wide, chosen))
    assert np.array_equal(out.astype(np.float64), wide.astype(np.float64) @ chosen.astype(np.float64))
    transposed = Gemm(19, 37, 67, layout, "f32", COMPUTE)
    out = execute(transposed, SMALL, stored(transposed, chosen.T, wide.T))
    assert np.array_equal(out.astype(np.float64), (wide.astype(np.float64) @ chosen.astype(np.float64)).T)


@pytest.mark.parametrize("batch", [1, 2])
def test_empty_sums_are_zero(batch):
    """The workspace then has one zero and no planes, which would be longer than the least allocation."""
    p = Gemm(9, 700, 0, "NN", "f32", COMPUTE, batch=batch)
    verify(p, parse_config("family=wgmma ml=16 nl=64 u=32 stages=2 transposed_mma=1"), "normal", 1.0, 0.5)


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums by fma.rn.f32, one product after the other."""
    out = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out = (a[:, k : k + 1].astype(np.float64) * b[k].astype(np.float64) + out).astype(np.float32)
    return out


@pytest.mark.parametrize("inputs", ["normal", "uniform", "scaled"])
def test_sums_are_more_accurate_than_an_fma_chain(inputs):
    """RMS and maximum error over Σ|a||b|. Without promotion, sums in the tensor core's accumulators err ten times as
    much."""
    rng = np.random.default_rng(2)
    k = 1024
    a, b = (rng.random(s) if inputs == "uniform" else rng.standard_normal(s) for s in ((32, k), (k, 16)))
    if inputs == "scaled":
        a, b = (x * np.exp2(rng.integers(-12, 13, x.shape)) for x in (a, b))
    a, b = a.astype(np.float32), b.astype(np.float32)
    exact, scale = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
    p = Gemm(32, 16, k, "NT", "f32", COMPUTE)
    ours, theirs = (
        np.abs(x - exact) / scale
        for x in (execute(p, parse_config("family=wgmma ml=64 nl=16 u=64 stages=2"), stored(p, a, b)), chain(a, b))
    )
    assert np.sqrt((ours**2).mean()) < 0.6 * np.sqrt((theirs**2).mean())
    assert ours.max() < theirs.max()


def test_non_finite_inputs_give_nan():
    """Infinities, NaN, and numbers that round to an infinite bf16 make their own results NaN, and no others."""
    rng = np.random.default_rng(3)
    p = Gemm(20, 9, 40, "NN", "f32", COMPUTE)
    a, b = rng.integers(-3, 4, (20, 40)).astype(np.float32), rng.integers(-3, 4, (40, 9)).astype(np.float32)
    clean = a @ b
    a[[2, 5, 7], [3, 3, 39]] = np.inf, np.nan, np.finfo(np.float32).max
    b[11, 4] = -np.inf
    out = execute(p, SMALL, stored(p, a, b))
    affected = np.zeros((20, 9), bool)
    affected[[2, 5, 7]] = True
    affected[:, 4] = True
    assert np.isnan(out[affected]).all()
    assert np.array_equal(out[~affected], clean[~affected])
    a[[2, 5, 7], [3, 3, 39]] = 0
    a[6] = 0
    a[6, 1] = largest = np.float32(np.uint32(0x7F7F7FFF).view(np.float32))  # rounds to the largest bf16
    b[:] = 0
    b[1] = 1
    assert (execute(p, SMALL, stored(p, a, b))[6] == largest).all()


def test_small_inputs_lose_low_bits():
    """bf16 has no bits below 2^-133: inputs from 2^-110 are exact, smaller ones lose at most half of that."""
    rng = np.random.default_rng(4)
    p = Gemm(16, 8, 8, "NN", "f32", COMPUTE)
    for exponent, lost in ((-110, 0.0), (-120, 2.0**-134), (-140, 2.0**-134)):
        a = np.zeros((16, 8), np.float32)
        a[:, 0] = np.ldexp(rng.integers(1 << 23, 1 << 24, 16) / 2.0**23, exponent)
        b = np.zeros((8, 8), np.float32)
        b[0] = 2.0**60
        out = execute(p, SMALL, stored(p, a, b)).astype(np.float64)
        error = np.abs(out - a.astype(np.float64) @ b.astype(np.float64)).max() / 2.0**60
        assert error <= lost
        assert lost == 0 or error > 0
