"""Unaligned operands, which math warpgroups realign in shared memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gemm_runs import verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device

H200 = device("h200")
#: rows of 32, 64 and 128 bytes of K, several boxes a row; extents whose last rows not all threads have
OPTIONS = {
    "a warpgroup": "ml=64 nl=64 u=64 stages=3 operand_path_a=realign operand_path_b=realign",
    "narrow rows": "ml=64 nl=48 u=32 stages=3 operand_path_a=realign operand_path_b=realign",
    "narrowest rows": "ml=64 nl=16 u=16 math_warpgroups=2 pingpong=1 persistent=1 stages=3 operand_path_a=realign operand_path_b=realign",
    "wide rows, transposed": "transposed_mma=1 ml=80 nl=64 u=128 stages=3 operand_path_a=realign operand_path_b=realign",
    "two warpgroups": "ml=128 nl=96 math_warpgroups=2 u=64 stages=3 operand_path_a=realign operand_path_b=realign epilogue_smem=1",
    "more threads than rows": "ml=128 nl=16 math_warpgroups=2 u=16 stages=3 operand_path_a=realign operand_path_b=realign",
    "only A": "ml=64 nl=64 u=64 stages=3 operand_path_a=realign operand_path_b=pack",
    "only B": "ml=64 nl=64 u=64 stages=3 operand_path_a=pack operand_path_b=realign",
    "last-slice fix-up": "ml=64 nl=32 u=32 stages=3 kg=2 splitk=last_cta operand_path_a=realign operand_path_b=realign",
    "cluster reduction": "ml=64 nl=32 u=32 stages=3 cluster_k=2 operand_path_a=realign operand_path_b=realign",
}


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_of_any_alignment(options):
    """Starts of 2, 4, 8 and 16 bytes between guards of NaN, every residue of a leading dimension, the ends of M, N and
    K inside a tile."""
    c = parse_config(f"family=wgmma {OPTIONS[options]}")
    index = list(OPTIONS).index(options)
    n = index // 2 % 2 + 2 * (index % 2)
    layout, seed = LAYOUTS[n], n + index
    p = Gemm(
        67 + seed % 3,
        71 - seed % 5,
        (77, 131, 203, 66)[seed % 4],
        layout,
        ("f16", "bf16")[seed % 2],
        aligned_a=(2, 4, 8, 16)[seed % 4],
        aligned_b=2,
    )
    inputs, beta = ("integers", "normal")[n // 2], float(n // 2)
    assert first_violation(lower(p), c, H200) is None
    verify(p, c, inputs, 1.0, beta, data=n, on="h200", shift=True)


@pytest.mark.parametrize("ld", range(40, 48))
def test_every_leading_dimension(ld):
    p = Gemm(9, 37, 40, "TT" if ld % 2 else "NN", "f16", lda=ld, ldb=ld, aligned_a=2, aligned_b=4)
    c = parse_config("family=wgmma ml=64 nl=48 u=32 stages=3 operand_path_a=realign operand_path_b=realign")
    verify(p, c, "integers", data=ld, on="h200", shift=True)


@pytest.mark.each_value
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 8), (1, 65, 9), (65, 1, 31), (7, 5, 65)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fewer_rows_than_residues(m, n, k, layout):
    p = Gemm(m, n, k, layout, "f16", aligned_a=2, aligned_b=2)
    c = parse_config("family=wgmma ml=64 nl=16 u=32 stages=3 operand_path_a=realign operand_path_b=realign")
    verify(p, c, "integers", data=m, on="h200", shift=True)


@pytest.mark.parametrize("options", ["math_warpgroups=1", "math_warpgroups=2 pingpong=1"])
def test_tile_begins_at_any_stage_of_the_ring(options):
    """Blocks of a small device compute three or four tiles, with more K iterations than stages."""
    p = Gemm(133, 71, 70, "NT", "f16", aligned_a=2, aligned_b=4)
    c = parse_config(
        f"family=wgmma ml=64 nl=8 u=16 stages=3 persistent=1 operand_path_a=realign operand_path_b=realign {options}"
    )
    verify(p, c, "integers", data=1, on=replace(H200, sms=8), shift=True)
