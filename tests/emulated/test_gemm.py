"""SIMT kernels, executed with checks for races, bounds and uninitialised reads; every element is compared."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import execute, inputs, verify

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.launches import c_kernels
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers, Runner
from ptxgen.runtime.workspace import Workspace
from tests.cases.simt import config, problem, wide_config

SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0), (0.0, 1.0), (-0.5, 0.25))
#: serves every alignment and every target
ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
TYPES = (("f32", ""), ("f64", ""), ("f16", "f32"), ("f16", "f16"))


# ---- anything that is legal


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(24))
def test_random_problems_and_configurations(n):
    """Types, layouts, extents, leading dimensions, alignment, every axis; warp order and copy completion differ per
    run."""
    rng = np.random.default_rng(1000 + n)
    on = ("emulated", "t4", "a100", "rtx4090")[n % 4]
    draw = wide_config if n % 8 >= 4 else config
    c = None
    while c is None:
        p = problem(rng, 80, device(on))
        if rng.random() < 0.4:
            size = p.element.bytes
            starts = [int(rng.choice([x for x in (1, 2, 4, 8, 16) if x >= size])) for _ in range(3)]
            p = replace(p, aligned_a=starts[0], aligned_b=starts[1], aligned_c=starts[2])
        c = draw(p, device(on), rng, 128)
    inputs = ("integers", "normal", "scaled")[n % 3]
    alpha, beta = SCALES[n % len(SCALES)]
    verify(p, c, inputs, alpha, beta, n, on=on, shift=bool(n % 2), seed=n, completion=("late", "early")[n // 2 % 2])


# ---- every slot with every other


def combinations():
    """Types x layouts x reductions; the other switches vary in turn."""
    rest = itertools.cycle(
        [
            "bounds=clamp kl=2 fragment_prefetch=0",
            "bounds=predicate ks=2 raster_group=4",
            "epilogue_smem=1 deferred_sts=1",
            "bounds=predicate kl=4 u=32 min_ctas_per_sm=2",
            "stages=4 raster_group=8 mma_order=column_serpentine",
            "kmajor_smem_a=1 kmajor_smem_b=1 u=8",
            "bounds=predicate epilogue_smem=1 lane_interleave=1 prefetch_k=3",
            "kl=2 ks=2 u=16",
            "cp_async_a=1 cp_async_b=1 mma_order=row_major",
            "bounds=predicate cp_async_a=1 cp_async_b=1 store_policy=streaming",
            "kmajor_smem_a=1 kmajor_smem_b=1 cp_async_a=1 cp_async_b=1 kl=2 u=16 vec_a=2 vec_b=2",
        ]
    )
    for (dtype, compute), layout, split in itertools.product(
        TYPES, LAYOUTS, ("", "kg=3 splitk=memset_red", "kg=2 splitk=flag_red", "kg=3 splitk=workspace")
    ):
        p = Gemm(34, 36, 50, layout, dtype, compute)
        for _ in range(11):
            text = next(rest)
            if layout[0] == "T":
                text = text.replace("kmajor_smem_a=1", "")
            if layout[1] == "N":
                text = text.replace("kmajor_smem_b=1", "")
            c = parse_config(
                f"ms=2 ns=4 ml=16 nl=32 {'' if 'cp_async_a' in text else 'cp_async_a=0 cp_async_b=0'} {text} {split}"
            )
            if first_violation(lower(p), c, device("emulated")) is None:
                yield pytest.param(p, c, id=f"{p.key()} {c}")
                break


@pytest.mark.parametrize(("p", "c"), list(combinations()))
def test_every_type_layout_and_reduction(p, c):
    verify(p, c, "integers", 2.0, -1.0, data=len(str(c)), completion="early" if c.stages > 2 else "late")


def test_combinations_cover_every_switch():
    """The combinations contain each value of each switch."""
    seen = [x.values for x in combinations()]
    assert len(seen) == 2 * 4 * 4 + 2 * 4 * 2  # 16-bit C takes no red
    for name, values in (
        ("bounds", (1, 2)),
        ("kl", (1, 2, 4)),
        ("ks", (1, 2)),
        ("kg", (1, 2, 3)),
        ("splitk", (0, 1, 2)),
        ("epilogue_smem", (0, 1)),
        ("deferred_sts", (0, 1)),
        ("raster_group", (1, 4, 8)),
        ("cp_async_a", (0, 1)),
        ("kmajor_smem_b", (0, 1)),
        ("stages", (3, 4)),
        ("min_ctas_per_sm", (1, 2)),
        ("prefetch_k", (0, 3)),
        ("mma_order", (0, 1, 2)),
    ):
        assert {getattr(c, name) for _, c in seen} >= set(values), name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "raster_group=8",
        "kg=2",
        "kg=2 splitk=flag_red",
        "kg=2 splitk=workspace",
        "kl=2 epilogue_smem=1",
        "vec_a=4 vec_b=4 vec_c=4",
    ],
)
def test_kernels_without_bounds_checks(text):
    verify(Gemm(32, 64, 48, "TN"), parse_config(f"ms=4 ns=4 ml=32 nl=32 bounds=none {text}"), "integers", 1.0, 1.0)


# ---- extents


@pytest.mark.each_value
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 1, 37), (1, 37, 1), (37, 1, 1), (2, 3, 5), (13, 17, 19), (31, 37, 41), (61, 7, 3)]
)
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_extents_of_one_and_primes(shape, layout):
    verify(Gemm(*shape, layout), replace(ANY, bounds=1 + shape[0] % 2, kl=2 if shape[2] % 2 else 1), "scaled", 1.0, 0.5)


@pytest.mark.parametrize(("dm", "dn", "dk"), [(-1, 0, 1), (0, 1, -1), (1, -1, 0), (1, 1, 1), (-1, -1, -1), (0, 0, 0)])
def test_extents_around_a_tile(dm, dn, dk):
    """And K slices that are one shorter, and longer; two of the configurations in turn."""
    p = Gemm(32 + dm, 32 + dn, 32 + dk, "NT")
    texts = ("", "bounds=predicate raster_group=4", "kg=2 splitk=flag_red", "kg=4 splitk=workspace kl=2")
    for text in texts[dn % 2 :: 2]:
        verify(p, parse_config(f"ms=4 ns=2 ml=32 nl=32 cp_async_a=0 cp_async_b=0 {text}"), "integers")


@pytest.mark.each_value
@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_zero_k_gives_beta_c(dtype, beta):
    for layout, bounds in (("NN", 1), ("TT", 2)):
        out = verify(Gemm(17, 9, 0, layout, dtype), replace(ANY, bounds=bounds), "normal", 3.0, beta)
        assert (out == 0).all() == (beta == 0)


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_zero_extents_write_nothing(m, n):
    assert verify(Gemm(m, n, 7), ANY).shape == (m, n)


def test_long_k_with_small_u():
    verify(Gemm(4, 5, 3001, "TN"), replace(ANY, stages=4, u=8), "integers")
    verify(Gemm(4, 5, 3001, "NT"), replace(ANY, u=8, kg=7, splitk=1), "normal")


@pytest.mark.parametrize("raster", [2, 3, 4, 6, 7, 8])
def test_raster_groups(raster):
    """Seven tiles along M: the last group is full, short or the only one."""
    verify(Gemm(7 * 16 - 3, 35, 9, "TN"), replace(ANY, raster_group=raster), "integers")
    verify(
        Gemm(7 * 16, 32, 16, "TN"), replace(ANY, raster_group=raster, bounds=0, kg=2, splitk=1), "integers", 1.0, 1.0
    )


def test_wide_and_tall_matrices():
    verify(Gemm(2, 900, 9, "NT"), replace(ANY, raster_group=4), "integers")
    verify(Gemm(900, 2, 9, "TN"), ANY, "integers")


# ---- memory


@pytest.mark.each_value
@pytest.mark.parametrize(("dtype", "compute"), TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_leading_dimensions_and_unaligned_starts(dtype, compute, layout):
    """Operands begin one element past 16 bytes, in rows of odd length, with NaN before, between and after."""
    size = {"f64": 8, "f32": 4, "f16": 2}[dtype]
    plain = Gemm(19, 21, 23, layout, dtype, compute, aligned_a=size, aligned_b=size, aligned_c=size)
    p = replace(plain, lda=plain.columns_a + 3, ldb=plain.columns_b + 5, ldc=28)
    for bounds in (1, 2):
        verify(p, replace(ANY, bounds=bounds), "integers", 1.0, float(bounds - 1), shift=True)


@pytest.mark.parametrize(
    "split", ["", "kg=3", "kg=3 splitk=flag_red", "kg=3 splitk=workspace", "kl=2", "epilogue_smem=1"]
)
def test_vectors_are_limited_by_alignment(split):
    """Rows of even length from an address that is a multiple of 8 allow pairs at most."""
    p = Gemm(18, 22, 26, "TN", lda=20, ldb=22, ldc=26, aligned_a=8, aligned_b=8, aligned_c=8)
    assert p.vectors == (2, 2, 2)
    c = parse_config(f"ms=2 ns=4 ml=16 nl=32 vec_a=2 vec_b=2 vec_c=2 {split}")
    verify(p, c, "integers", 1.0, 1.0, shift=True)
    assert first_violation(lower(p), replace(c, vec_a=4), device("emulated")).name == "simt_vec_a"


# ---- numbers


def special(p: Gemm, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands with infinities and NaN at a few positions, also in the last column of K, and such a C."""
    rng = np.random.default_rng(seed)
    arrays = tuple(operands(p, seed, "normal").values())
    for x in arrays:
        for value in (np.inf, -np.inf, np.nan):
            x[tuple(rng.integers(0, n) for n in x.shape)] = value
        x[-1, -1] = np.inf
    return arrays


@pytest.mark.each_value
@pytest.mark.parametrize(("dtype", "compute"), TYPES)
@pytest.mark.parametrize("text", ["", "bounds=predicate", "kg=2 splitk=workspace", "kl=2 ks=2 u=8"])
def test_infinities_and_nan_propagate(dtype, compute, text):
    p = Gemm(33, 20, 21, "NT", dtype, compute)
    c = parse_config(f"ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 {text}")
    for beta in (0.0, 2.0):
        arrays = special(p, 5)
        out = verify(p, c, "normal", 1.5, beta, arrays=arrays)
        bad = ~np.isfinite(out.astype(float))
        assert bad.any()
        assert not bad.all()


def test_overflow_becomes_infinite():
    p = Gemm(9, 9, 40, "NN", "f16")
    a, b, c = operands(p, 1).values()
    a[:4], b[:, :5] = 60, 60
    out = verify(p, ANY, arrays=(a, b, np.full_like(c, np.nan)))
    assert np.isinf(out[:4, :5]).all()
    assert np.isfinite(out[4:, 5:]).all()


@pytest.mark.parametrize(
    "text", ["", "kg=3", "kg=3 splitk=flag_red", "kg=3 splitk=workspace", "kl=2", "bounds=predicate"]
)
def test_alpha_zero_gives_beta_c(text):
    p, c = Gemm(18, 19, 40, "TT"), parse_config(f"ms=2 ns=2 ml=16 nl=16 {text}")
    a, b, old = operands(p, 1).values()
    assert np.array_equal(execute(p, c, (a, b, old), 0.0, 2.0), 2 * old)
    assert (execute(p, c, (a, b, np.full_like(old, np.nan)), 0.0, 0.0) == 0).all()


@pytest.mark.parametrize(
    "text", ["", "kg=3", "kg=3 splitk=flag_red", "kg=3 splitk=workspace", "kl=2", "epilogue_smem=1"]
)
def test_beta_zero_does_not_read_c(text):
    p, c = Gemm(18, 19, 40, "TT"), parse_config(f"ms=2 ns=2 ml=16 nl=16 {text}")
    a, b, old = operands(p, 1, "integers").values()
    for value in (np.nan, np.inf, -np.inf):
        assert np.array_equal(execute(p, c, (a, b, np.full_like(old, value))), reference(p, {"A": a, "B": b}).exact)


# ---- order


ORDERS = ("kg=3 splitk=workspace", "kl=4 u=32", "kg=3 splitk=workspace kl=2 epilogue_smem=1", "")


@pytest.mark.each_value
@pytest.mark.parametrize(("dtype", "compute"), TYPES)
@pytest.mark.parametrize("text", ORDERS)
def test_deterministic_kernels_give_the_same_bits(dtype, compute, text):
    """In any order of warps and blocks, and any completion time of copies."""
    p = Gemm(20, 19, 100, "TN", dtype, compute, deterministic=True)
    copies = "" if dtype in ("f32", "f64") else "cp_async_a=0 cp_async_b=0"
    c = parse_config(f"ms=2 ns=2 ml=16 nl=16 {copies} {text}")
    arrays = inputs(p, "scaled", 3, 1.0)
    runs = [
        execute(p, c, arrays, 1.0, 1.0, seed=seed, completion=when)
        for seed, when in ((1, "late"), (2, "early"), (3, "late"))
    ]
    assert all(np.array_equal(runs[0], x) for x in runs[1:])


@pytest.mark.parametrize("split", [0, 1])
def test_deterministic_problems_refuse_atomic_reductions(split):
    p = Gemm(20, 19, 100, "TN", deterministic=True)
    assert first_violation(lower(p), Config(kg=2, splitk=split), device("emulated")).name == "splitk"


def test_slices_may_run_in_any_order():
    p = Gemm(20, 19, 100, "TN")
    for seed in range(5):
        for split in (0, 1):
            verify(p, replace(ANY, kg=5, splitk=split, raster_group=1 + 3 * (seed % 2)), "normal", 1.0, 1.0, seed=seed)


# ---- launches after launches


@pytest.mark.parametrize(
    "text",
    [
        "kg=4",
        "kg=4 splitk=flag_red",
        "kg=4 splitk=workspace",
        "kg=3 splitk=flag_red raster_group=4",
        "kg=2 splitk=flag_red kl=2",
    ],
)
def test_kernel_can_be_launched_again(text):
    p, c = Gemm(37, 35, 64, "NT"), parse_config(f"ms=2 ns=2 ml=16 nl=16 {text}")
    a, b, old = operands(p, 1, "integers").values()
    assert np.array_equal(execute(p, c, (a, b, old), 1.0, 1.0, times=3), 3 * reference(p, {"A": a, "B": b}).exact + old)


@pytest.mark.parametrize("split", ["memset_red", "workspace"])
def test_auxiliary_kernels_loop_over_rows_past_the_grid(monkeypatch, split):
    """A tall C has more rows than the grid has blocks; here the limit is two."""
    monkeypatch.setattr(c_kernels, "GRID_LIMIT", 2)
    p = Gemm(300, 3, 40, "TN", ldc=5)
    verify(p, parse_config(f"ms=2 ns=2 ml=64 nl=16 lanes_m=8 kg=2 splitk={split}"), "integers", 1.0, 2.0)


def test_consecutive_kernels_share_a_workspace():
    """Flags are reset, and partial sums are elsewhere: any kernel may follow any other."""
    driver = EmulatedDriver(stats="off")
    workspace = Workspace(driver)
    for n, text in enumerate(
        (
            "kg=4 splitk=flag_red",
            "kg=3 splitk=workspace",
            "kg=2 splitk=flag_red raster_group=4",
            "",
            "kg=4 splitk=flag_red",
            "kg=5 splitk=workspace",
        )
    ):
        p = Gemm(20 + 16 * (n % 3), 33, 64, "TN")
        runner = Runner.of(driver, p, parse_config(f"ms=2 ns=2 ml=16 nl=16 {text}"), workspace)
        a, b, old = operands(p, n, "integers").values()
        with Buffers(driver, {"A": a, "B": b, "C": old}) as at:
            runner.bind(at.addresses)()
            driver.download(at.addresses["C"], old)
        assert np.array_equal(old, reference(p, {"A": a, "B": b}).exact)


@pytest.mark.parametrize(
    "text", ["kl=8 u=16", "kl=4 u=8 vec_c=4", "kl=8 u=16 vec_c=4 raster_group=4", "kl=2 epilogue_smem=1"]
)
def test_more_threads_than_vectors_of_the_tile(text):
    """Slice 0 scales its own tile; threads without a vector do not touch the next tile."""
    p = Gemm(64, 32, 64, "TN")
    verify(p, parse_config(f"ms=2 ns=2 ml=16 nl=16 kg=2 splitk=flag_red {text}"), "integers", 1.0, -1.0)


# ---- time


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (
            Gemm(64, 64, 64, "NT"),
            "ms=4 ns=4 ml=32 nl=32 u=32 kmajor_smem_a=1 kmajor_smem_b=1 vec_a=4 vec_b=4 vec_c=4 kl=2",
        ),
        (
            Gemm(64, 64, 64, "NT"),
            "ms=4 ns=4 ml=64 nl=32 u=16 kmajor_smem_a=1 kmajor_smem_b=1 vec_a=4 vec_b=4 vec_c=4 lanes_m=8",
        ),
        (Gemm(64, 64, 64, "TN"), "ms=8 ns=8 ml=64 nl=64 u=8 vec_a=4 vec_b=4 vec_c=4"),
        (Gemm(64, 64, 64, "NT"), "ms=4 ns=4 ml=32 nl=32 u=16 cp_async_a=0 cp_async_b=0"),
    ],
)
def test_shared_memory_has_no_bank_conflicts(p, text):
    """As the emulated device counts: copies, fragments and the staged tile of C."""
    stats = []
    execute(p, parse_config(text), inputs(p, "normal", 1, 0.0), stats=stats)
    assert stats[0].shared.wavefronts > 100
    assert stats[0].bank_conflicts <= 0.05 * stats[0].shared.wavefronts
