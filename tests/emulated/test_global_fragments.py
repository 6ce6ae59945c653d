"""SIMT kernels without shared memory (``stages=0``), executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import right, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device
from tests.lowered import first_violation, rules, space

UNSTAGED = "stages=0 cp_async_a=0 cp_async_b=0 fragment_prefetch=0"
TILE = f"ms=2 ns=4 ml=16 nl=32 lanes_m=4 {UNSTAGED}"
TYPES = (("f32", ""), ("f64", ""), ("f16", "f32"), ("bf16", "f32"), ("f32", "tf32"))
H100 = device("h100")


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 8])
def test_every_layout_and_depth(layout, k):
    """Odd extents, rows longer than a tile; K below, at and above an iteration."""
    first = k + LAYOUTS.index(layout)
    for n, ((dtype, compute), u) in enumerate(zip(TYPES, (1, 2, 4, 8, 4), strict=True)):
        if (n - first) % 5 > 2:  # three of the types
            continue
        p = Gemm(19, 37, k, layout, dtype, compute)
        bounds = ("clamp", "predicate")[(n + k) % 2]
        verify(p, parse_config(f"{TILE} u={u} bounds={bounds}"), "integers", 2.0, -1.0, on="h100")


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "compute"), TYPES)
def test_vector_loads(layout, dtype, compute):
    """Along K where an operand is K-major, else along M or N; the last iteration is a part of one."""
    wide, most, u = (2, 4, 4) if dtype == "f64" else (4, 8, 8)
    p = Gemm(24, 40, 12, layout, dtype, compute)
    text = f"ms={most} ns={most} ml=32 nl=64 lanes_m=4 {UNSTAGED} u={u} vec_a={wide} vec_b={wide} vec_c={wide}"
    bounds = ("clamp", "predicate")[(LAYOUTS.index(layout) + TYPES.index((dtype, compute))) % 2]
    verify(p, parse_config(f"{text} bounds={bounds}"), "normal", 1.0, 0.5, on="h100")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_bounds_checks(layout):
    verify(Gemm(32, 64, 8, layout), parse_config(f"{TILE} u=4 vec_c=4 bounds=none"), "integers", 1.0, 1.0)


@pytest.mark.parametrize("k", [0, 1, 5])
def test_unaligned_rows_and_starts(k):
    p = Gemm(19, 21, k, "TN", lda=23, ldb=25, ldc=27, aligned_a=4, aligned_b=8, aligned_c=4)
    verify(p, parse_config(f"{TILE} u=2 raster_group=4"), "integers", 1.0, -1.0, shift=True)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_batch_and_fused_epilogue(dtype):
    for batch, epilogue in ((3, ""), (1, "bias_column,relu"), (2, "bias_row,residual,relu")):
        right(
            Gemm(19, 36, 3, "NT", dtype, batch=batch, epilogue=epilogue), f"{TILE} u=4 vec_c=4 pdl=on_exit", on="h100"
        )


@pytest.mark.parametrize("splitk", ["memset_red", "flag_red", "workspace"])
def test_slices_of_k(splitk):
    verify(Gemm(19, 37, 9, "TN"), parse_config(f"{TILE} u=2 kg=3 splitk={splitk}"), "integers", 1.0, 1.0)


@pytest.mark.parametrize(
    "p",
    [
        Gemm(37, 84, 1, "NT", "f32", "tf32"),
        Gemm(37, 84, 3, "TN", "bf16"),
        Gemm(36, 282, 8, "TT", "f64"),
        Gemm(37, 83, 16, "NN"),
    ],
    ids=lambda p: p.key(),
)
def test_candidates_are_legal_and_correct(p):
    """One iteration along K; warps that store whole cache lines where the tile is wide enough."""
    c = space.candidates(p, H100)
    columns = c.take(np.flatnonzero((c.family == 0) & (c.stages == 0)))
    assert len(columns) > 20
    assert rules.legal(p, columns, H100).all()
    assert set(columns.u.tolist()) == {1 << (p.k - 1).bit_length()}
    staged = c.take(np.flatnonzero((c.family == 0) & (c.stages > 0)))
    assert set(staged.u.tolist()) <= {8, 16, 32}
    assert bool(len(staged)) == (p.compute != "tf32")
    lanes_n = 32 // columns.lanes_m
    assert (lanes_n == np.minimum(columns.nl // columns.ns, 32)).all()
    rng = np.random.default_rng(p.k)
    for i in rng.choice(len(columns), 3, replace=False):
        verify(Gemm(p.m, p.n, p.k, p.layout, p.dtype, p.compute), columns.row(int(i)), "normal", on="h100")


def test_neighbours_have_other_depths_and_stages():
    p = Gemm(536, 1984, 3, "TN")
    near = space.refinements(p, H100, parse_config("ms=4 ns=4 ml=32 nl=64 u=8 vec_a=4 vec_b=4 vec_c=4 lanes_m=2"))
    assert {1, 2, 4, 8} <= set(near.u[near.stages == 0].tolist())


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (Gemm(64, 64, 4, "NT"), f"{TILE} u=4 ks=2"),
        (Gemm(64, 64, 4, "NT"), f"{TILE} u=4 epilogue_smem=1"),
        (Gemm(64, 64, 4, "NT"), f"{TILE} u=2 vec_a=4"),
        (Gemm(64, 64, 4, "NT"), f"{TILE} u=4".replace("prefetch=0", "prefetch=1")),
        (Gemm(64, 64, 4, "NT"), f"{TILE} u=4".replace("stages=0", "stages=1")),
        (Gemm(64, 64, 4, "NT"), "ms=2 ns=4 ml=16 nl=32 lanes_m=4 u=1"),
        (Gemm(64, 64, 4, "NT", "f16", "f16"), f"{TILE} u=4"),
        (Gemm(64, 64, 4, "NT", "f32", "tf32"), "ms=2 ns=4 ml=16 nl=32 lanes_m=4 u=8"),
        (lower(Conv(1, 3, 8, 8, 4, 2, 2)), f"{TILE} u=4"),
    ],
)
def test_illegal_configurations_name_the_rule(p, text):
    rule = first_violation(p, parse_config(text), H100)
    assert rule is not None
    assert rule.name in ("simt_stages", "simt_vec_a")


def test_tf32_with_a_large_k_is_for_tensor_cores():
    p = Gemm(64, 64, 17, "NT", "f32", "tf32")
    rule = first_violation(p, parse_config(f"{TILE} u=1"), H100)
    assert rule is not None
    assert rule.name == "simt_dtype"
    assert first_violation(replace(p, k=16), parse_config(f"{TILE} u=1"), H100) is None
