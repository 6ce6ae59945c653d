"""Groups whose kernels store the sums beside the activation: jagged along M and K, and lists; executed with checks for
bounds and races."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.grouped import checks
from ptxgen.operations.grouped.checks import check_grouped
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import CASES
from ptxgen.runtime.emulated import EmulatedDriver
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right

H200 = replace(device("h200"), sms=4)
SIZES = (5, 0, 33, 1, 70)
SIMT = "ms=4 ns=4 ml=32 nl=32 u=8 cp_async_a=0 cp_async_b=0"
MMA = "family=mma ms=16 ns=32 ml=32 nl=64 u=32 stages=2 vec_a=8 vec_b=8"
WGMMA = "family=wgmma u=32 stages=2 persistent=1"
#: type, configuration and epilogue of groups that are jagged along M, in each layout
ROWS = (
    ("f32", f"{SIMT} vec_c=2", "residual,store_sums,gelu"),
    ("f64", "ms=2 ns=2 ml=16 nl=16 lanes_m=8 cp_async_a=0 cp_async_b=0", "store_sums,relu"),
    ("f16", f"{SIMT} vec_c=2", "bias_column,store_sums,swiglu"),
    ("f32", f"{SIMT} vec_c=2", "scale,store_sums,silu(x)*up"),
    ("f16", f"{MMA} vec_c=2", "scale_rows,bias_row,store_sums,x*aux"),
    ("bf16", f"{MMA} vec_c=2", "bias_column,store_sums,geglu"),
    ("bf16 f32", f"{MMA} vec_c=2", "residual,store_sums,sigmoid"),
    ("bf16", f"{WGMMA} ml=64 nl=32", "bias_column,store_sums,gelu"),
    ("f16", f"{WGMMA} ml=64 nl=32 vec_c=2", "scale,store_sums,swiglu"),
    ("bf16 f32", f"{WGMMA} ml=128 nl=64 math_warpgroups=2", "residual,store_sums,relu"),
    ("bf16", f"{WGMMA} ml=32 nl=64 transposed_mma=1 cluster_x=2 cluster_y=2", "scale_rows,store_sums,x*aux"),
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("types", "text", "epilogue"), ROWS)
def test_rows_of_experts(types: str, text: str, epilogue: str, layout: str) -> None:
    """Each layout has one of the inputs; rows of C have gaps in two layouts."""
    n, (dtype, *out) = LAYOUTS.index(layout), types.split()
    if "wgmma" in text and layout[0] == "T":  # TMA cannot read the columns of an item
        layout = {"TN": "NN", "TT": "NT"}[layout]
    if layout[0] == "T":  # an item begins at any column
        text = text.replace("vec_a=8", "vec_a=1 cp_async_a=0")
    p = GroupedGemm(tuple((m, 80, 64) for m in SIZES), layout, dtype, out=(*out, "")[0], jagged="m", epilogue=epilogue)
    if n % 2:
        p = replace(p, ld=write_leading_dimensions(p.lds + np.array([0, 0, 8])))
    right(p, parse_config(text), n, H200, (CASES[n],))


@pytest.mark.parametrize(
    ("jagged", "layout", "text"),
    [
        ("k", "TN", f"{SIMT} vec_c=2"),
        ("k", "TN", f"{MMA} vec_c=2"),
        ("k", "TN", f"{WGMMA} ml=64 nl=32 vec_c=2"),
        ("", "NT", f"{SIMT} vec_c=2 kg=2 splitk=last_cta"),
        ("", "NT", f"{MMA} vec_c=2 kg=2 splitk=last_cta"),
        ("", "TN", f"{SIMT} vec_c=2 stream_k=1"),
    ],
)
@pytest.mark.parametrize("epilogue", ["bias_column,store_sums,sigmoid", "store_sums,swiglu"])
def test_lists_and_ranges_of_k(jagged: str, layout: str, text: str, epilogue: str) -> None:
    items = tuple((72, 48, k) for k in SIZES) if jagged else ((33, 18, 24), (0, 4, 8), (7, 10, 0), (5, 2, 160))
    right(GroupedGemm(items, layout, "f16", jagged=jagged, epilogue=epilogue), parse_config(text), 1, H200)


@pytest.mark.parametrize("family", ["simt", "mma", "wgmma"])
def test_random_groups(family: str) -> None:
    before = {"simt": "bias_row,", "mma": "residual,", "wgmma": "scale,bias_column,"}[family]
    checked = 0
    for n, (p, c) in enumerate(SOURCES[f"grouped_{family}"].cases(7, 18, H200, limit=40, threads=128)):
        if p.output.bytes == 1:
            continue
        p = replace(p, epilogue=f"{before}store_sums,clamp(-1,2)")
        if first_violation(lower(p), c, H200) is None:
            right(p, c, n, H200, (CASES[n % 4],))
            checked += 1
    assert checked > 3


def test_the_checks_compare_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sum, and a value between items, are deviations."""
    p = GroupedGemm(((5, 8, 16), (3, 8, 16)), "NN", "f32", ld="16:8:11", epilogue="store_sums,relu")
    p = replace(p, jagged="m")
    config = parse_config(f"{SIMT} vec_c=1")
    right_sums = checks.group_deviation
    for at, where in ((1 + 6 * 11, (1, 1, 1)), (9, (-1, -1, -1))):

        def wrong(p: GroupedGemm, arrays, out, *rest, at=at):
            if not p.epilogue:
                out[at] = 7
            return right_sums(p, arrays, out, *rest)

        monkeypatch.setattr(checks, "group_deviation", wrong)
        first = next(iter(check_grouped(EmulatedDriver(H200), p, config)))
        assert not first.ok
        assert first.deviation.where == where


@pytest.mark.parametrize(("types", "text", "epilogue"), ROWS)
def test_kernels_assemble(types: str, text: str, epilogue: str) -> None:
    dtype, *out = types.split()
    p = GroupedGemm(((64, 80, 64),) * 2, "NT", dtype, out=(*out, "")[0], jagged="m", epilogue=epilogue)
    assert assemble(render(plan_for(p, parse_config(text), H200))).cubin
    assert p.outputs == ("C", "sums")


def test_bytes_of_groups_that_store_sums() -> None:
    plain = GroupedGemm(((5, 8, 16), (3, 8, 16)), dtype="f16")
    stored = replace(plain, epilogue="store_sums,swiglu")
    assert stored.bytes == plain.bytes + 2 * 8 * 4
    assert np.array_equal(stored.of_sums().lds, plain.lds)
