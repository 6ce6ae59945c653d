"""Skinny kernels, executed with checks for races, bounds and uninitialised reads; every element is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import execute, random_epilogues, right, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from tests.cases.skinny import TYPES, config, converts, problem

SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0), (0.0, 1.0))
ON = ("emulated", "a100", "rtx4090", "b200", "t4")


def random_case(rng, limit, on, types=None, layout=None, **fixed):
    """A random problem with the given fields, and a configuration."""
    while True:
        p = problem(rng, limit, on, types)
        if layout is not None:
            m, n = (fixed["thin"], p.m) if rng.random() < 0.5 else (p.m, fixed["thin"])
            p = Gemm(m, n, p.k | 1 if rng.random() < 0.5 else p.k, layout, p.dtype, p.compute, out=p.out)
            pads = [int(x) for x in rng.choice([0, 0, 1, 16], 3)]
            p = replace(p, lda=p.columns_a + pads[0], ldb=p.columns_b + pads[1], ldc=n + pads[2])
        c = config(lower(p), on, rng, 128)
        if c is not None:
            return p, c


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(20))
def test_random_problems_and_configurations(n):
    """Types, layouts, extents, leading dimensions, alignment, every axis; warp order and copy completion differ per
    run."""
    rng, on = np.random.default_rng(8000 + n), device(ON[n % len(ON)])
    p, c = random_case(rng, 90, on)
    inputs, (alpha, beta) = ("integers", "normal", "scaled")[n % 3], SCALES[n % 4]
    verify(
        p,
        c,
        inputs,
        alpha,
        beta,
        data=n,
        on=on.name,
        shift=bool(n % 2),
        seed=n,
        completion=("late", "early")[n // 2 % 2],
    )


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("types", dict.fromkeys(TYPES))
def test_every_type_and_layout(types, layout):
    """A small M and a small N in turn, from one to eight; half of the problems have an odd K."""
    on = device("emulated")
    rng = np.random.default_rng(sum(map(ord, "".join(types) + layout)))
    for thin in rng.choice([1, 2, 3, 4, 5, 7, 8], 1):
        p, c = random_case(rng, 70, on, types, layout, thin=int(thin))
        verify(p, c, "integers", 2.0, -1.0)


OPTIONS = {
    "quads": ("NT", "s8", "ml=1 ms=1 nl=16 ns=2 lanes_long=4 kl=2 u=256 vec_a=16 vec_b=16"),
    "transposed": ("NN", "s8", "ml=1 ms=1 nl=64 ns=16 lanes_long=4 kl=2 u=256 vec_a=8 vec_b=16"),
    "halves": ("NT", "f16", "ml=1 ms=1 nl=16 ns=2 lanes_long=4 kl=2 u=256 vec_a=8 vec_b=8"),
    "across": ("TN", "bf16", "ml=1 ms=1 nl=64 ns=8 lanes_long=8 kl=4 u=64 vec_a=1 vec_b=8"),
    "column": ("TT", "e4m3", "ml=1 ms=1 nl=8 ns=4 lanes_long=1 kl=2 u=1024 vec_a=16 vec_b=16 fragment_prefetch=0"),
    "double": ("NT", "f64", "ml=1 ms=1 nl=16 ns=4 lanes_long=4 kl=2 u=32 vec_a=2 vec_b=2"),
    "fragments": ("NT", "f16", "mma_m16=1 ml=8 ms=2 nl=64 ns=4 lanes_long=8 kl=2 u=128 vec_a=8 vec_b=8"),
    "packed": ("TT", "bf16", "mma_m16=1 ml=8 ms=2 nl=32 ns=2 lanes_long=8 kl=2 u=128 vec_a=1 vec_b=8"),
    "bytes": ("NT", "s8", "mma_m16=1 ml=8 ms=2 nl=32 ns=2 lanes_long=8 kl=2 u=128 vec_a=1 vec_b=16"),
    "pairs": (
        "NT",
        "e4m3",
        "mma_m16=1 ml=8 ms=2 nl=64 ns=4 lanes_long=8 kl=2 u=256 vec_a=2 vec_b=16 fragment_prefetch=0",
    ),
    "rounded": ("NT", "f32", "mma_m16=1 ml=8 ms=2 nl=64 ns=4 lanes_long=8 kl=2 u=64 vec_a=4 vec_b=4"),
}


SPLITS = ("", "kg=2 splitk=memset_red", "kg=2 splitk=flag_red", "kg=2 splitk=workspace")
#: each math path with two reductions, each reduction with half of the paths
REDUCED = [(options, split) for i, options in enumerate(OPTIONS) for j, split in enumerate(SPLITS) if (i + j) % 2 == 0]


@pytest.mark.parametrize(("options", "split"), REDUCED)
def test_every_math_path_and_reduction(options, split):
    """A vector times a matrix, with remainders of K and N."""
    layout, dtype, text = OPTIONS[options]
    out = {"e4m3": "f32", "s8": "s32", "f64": "f64"}.get(dtype, "f32")
    compute = "tf32" if options == "rounded" else ""
    p = Gemm(1, 144, 1296, layout, dtype, compute, out=out)
    verify(p, parse_config(f"family=skinny long_n=1 {text} {split}"), "integers", 2.0, 1.0, times=1)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "e5m2", "f32", "f64", "f16 fed", "s8 fed", "f32 fed"])
@pytest.mark.parametrize("k", [3, 16, 131, 387])
def test_unaligned_rows_are_loaded_in_16_byte_chunks(k, dtype):
    """No access outside an operand; NaN between rows, which chunks contain, do not reach sums; slices end at chunk
    boundaries."""
    dtype, _, fed = dtype.partition(" ")
    size = {"f16": 2, "f32": 4, "f64": 8}.get(dtype, 1)
    text = "mma_m16=1 ml=64 ms=4 nl=8 ns=2" if fed else "ml=32 ms=2 nl=4 ns=4"
    text = f"family=skinny {text} lanes_long=8 kl=2 vec_a={16 // size} u={128 // size}"
    compute = "tf32" if fed and size == 4 else ""
    for n, (lda, m, split) in enumerate(
        ((k, 33, ""), (k + 1, 7, "kg=3 splitk=workspace"), (k + 3, 70 if fed else 50, ""))
    ):
        if n == 2 * ((k + len(text)) % 2):  # of the two without slices, one
            continue
        p = Gemm(m, 3, k, "NT", dtype, compute, lda=lda, ldb=k + 2, aligned_a=size, aligned_b=size)
        c = parse_config(f"{text} {split if k > 384 // size else ''}")
        verify(p, c, "integers", 1.0, 0.0, data=n, times=1, shift=bool(n % 2))


@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 37, 1), (8, 8, 32), (61, 7, 3), (33, 1, 0), (0, 5, 9), (5, 3, 1000)])
@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_extents(shape, layout):
    p = Gemm(*shape, layout, "f16")
    sides = "long_n=0 ml=32 ms=4 nl=8 ns=8" if shape[1] <= 8 else "long_n=1 nl=32 ns=4 ml=1 ms=1"
    verify(p, parse_config(f"family=skinny {sides} lanes_long=8 kl=2 u=32"), "integers", 1.0, 1.0)


def test_infinities_and_nan_propagate():
    p = Gemm(20, 5, 41, "NN", "f32")
    a, b, c = operands(p, 1, "integers").values()
    a[3, 5], a[4, 6], b[7, 2] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        exact = reference(p, {"A": a, "B": b, "C": c}, 1.0, 1.0).exact
    out = execute(p, parse_config("family=skinny ml=16 ms=4 nl=8 ns=8 lanes_long=4 kl=1 u=32"), (a, b, c), 1.0, 1.0)
    np.testing.assert_array_equal(out.astype(np.float64), exact)


@pytest.mark.parametrize(
    "options",
    [
        "mma_m16=1 ms=4 ml=32 ns=2 vec_a=8 vec_b=8 u=32",
        "ms=2 ml=16 ns=8 vec_a=8 u=32",
        "mma_m16=1 ms=2 ml=16 ns=2 vec_a=8 u=32",
    ],
)
def test_infinities_and_nan_stay_in_their_rows_and_columns(options):
    """With mma, and with chunks of unaligned rows."""
    p = Gemm(20, 5, 40 if "vec_b" in options else 41, "NT", "f16", out="f32")
    a, b, c = operands(p, 1, "integers").values()
    a[3, 5], a[4, 0], a[19, -1], b[2, 7] = np.nan, np.inf, np.nan, -np.inf
    with np.errstate(all="ignore"):
        exact = reference(p, {"A": a, "B": b, "C": c}, 1.0, 1.0).exact
    out = execute(p, parse_config(f"family=skinny nl=8 lanes_long=8 kl=1 {options}"), (a, b, c), 1.0, 1.0)
    np.testing.assert_array_equal(out.astype(np.float64), exact)


def test_random_epilogues():
    on = device("emulated")
    random_epilogues(6, 5, lambda rng: problem(rng, 48, on), lambda p, rng: config(p, on, rng, 128))


@pytest.mark.first(4)
@pytest.mark.parametrize("n", range(10))
def test_batches(n):
    """Items at strides, or with a shared operand; slices are reduced per item."""
    rng, on = np.random.default_rng(300 + n), device("emulated")
    p, c = random_case(rng, 40, on, TYPES[n])
    rows = (p.m if p.layout[0] == "N" else p.k, p.k if p.layout[1] == "N" else p.n, p.m)
    strides = [rows[i] * ld + int(rng.choice([0, 1, 16])) for i, ld in enumerate((p.lda, p.ldb, p.ldc))]
    shared = int(rng.integers(3))  # A, B or neither
    strides = [0 if i == shared and i < 2 else s for i, s in enumerate(strides)]
    p = replace(p, batch=3, stride_a=strides[0], stride_b=strides[1], stride_c=strides[2])
    right(p, config(p, on, rng, 128) or c, n, "emulated")


def test_types_without_conversions_are_refused():
    assert converts("f16", device("t4"))
    assert not converts("bf16", device("t4"))
    assert not converts("e4m3", device("a100"))
