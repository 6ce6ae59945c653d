"""Batches, executed: every family and reduction, with strides of all kinds, in guarded memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import execute, right, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.parts import scheduler as grid_scheduler
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.wgmma.matrix import scheduler
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands
from tests.cases import SOURCES

SIMT = "ms=4 ns=4 ml=32 nl=32 u=8 stages=2"
MMA = "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 cp_async_a=0 cp_async_b=0"
WGMMA = "family=wgmma u=32 stages=2 ml=64 nl=32"


@pytest.mark.parametrize("family", ["simt", "mma", "wgmma", "skinny"])
def test_random_batches(family):
    """Counts, strides with gaps, interleaved rows, shared operands; memory outside the elements must not change."""
    on = "h200" if family == "wgmma" else "emulated"
    cases = SOURCES[f"batch_{family}"].cases(1, 10, device(on), limit=33, threads=128)
    chosen = [(p, c) for p, c in cases if p.results * p.k < 1 << 16 and not p.epilogue]
    p, c = chosen[0]
    n = ["simt", "mma", "wgmma", "skinny"].index(family)
    inputs, (alpha, beta) = ("integers", "normal", "scaled")[n % 3], ((1.0, 0.0), (2.0, 1.0))[n % 2]
    a, b, before = operands(p, n, inputs).values()
    before = np.full_like(before, p.output.poison) if beta == 0 else before
    verify(p, c, inputs, alpha, beta, arrays=(a, b, before), on=on, seed=n)


OPTIONS = (
    *(
        (SIMT, w)
        for w in (
            "raster_group=4",
            "kg=3",
            "kg=3 splitk=flag_red",
            "kg=3 splitk=workspace",
            "kl=2 kg=2 splitk=flag_red raster_group=2",
        )
    ),
    *(
        (MMA, w)
        for w in (
            "kg=2",
            "kg=2 splitk=flag_red",
            "kg=2 splitk=workspace",
            "operand_path_a=pack operand_path_b=pack vec_a=8 vec_b=8 kg=2 splitk=workspace",
        )
    ),
    *(
        (WGMMA, w)
        for w in (
            "",
            "kg=2 splitk=memset_red",
            "kg=2 splitk=workspace",
            "kg=2 splitk=last_cta",
            "kg=2 splitk=distributed",
            "cluster_k=2",
            "cluster_x=2 raster_group=4",
            "persistent=1",
            "persistent=1 math_warpgroups=2 pingpong=1 cluster_x=2",
        )
    ),
)


@pytest.mark.parametrize(("base", "options"), OPTIONS)
def test_reductions_and_schedulers(base, options):
    """Three items that share B, launched twice: flags that the first launch leaves set break the second."""
    dtype = {SIMT: "f32", MMA: "f16", WGMMA: "bf16"}[base]
    p = Gemm(40, 40, 64, "NN", dtype, out="f32", batch=3, stride_b=0, ldc=120, stride_c=40)
    c, on = parse_config(f"{base} {options}"), "h200" if base == WGMMA else "emulated"
    assert first_violation(lower(p), c, device(on)) is None
    if "splitk" in options:
        verify(p, c, "integers", on=on, times=2)
    else:
        verify(p, c, "integers", 2.0, -1.0, on=on)


def test_items_share_both_operands():
    for text, dtype, on in ((SIMT, "f32", "emulated"), (WGMMA, "bf16", "h200")):
        p = Gemm(9, 16, 24, "NN", dtype, batch=3, stride_a=0, stride_b=0)
        out = verify(p, parse_config(text), "integers", on=on)
        assert np.array_equal(out[0], out[1])
        assert np.array_equal(out[0], out[2])


@pytest.mark.parametrize(
    ("base", "options"),
    [
        (SIMT, "kg=2 splitk=flag_red"),
        (SIMT, "kg=2 splitk=workspace"),
        (MMA, "operand_path_a=pack operand_path_b=pack vec_a=8 vec_b=8"),
        (WGMMA, "kg=2 splitk=workspace"),
        (WGMMA, "persistent=1 epilogue_smem=1"),
    ],
)
def test_more_items_than_a_launch_holds(monkeypatch, base, options):
    """Several launches compute them; each reuses the workspace of the previous one."""
    monkeypatch.setattr(grid_scheduler, "GRID_LIMIT", 6)
    monkeypatch.setattr(scheduler, "GRID_LIMIT", 6)
    monkeypatch.setattr(scheduler, "TILES_LIMIT", 7)
    dtype, on = ("f32", "emulated") if base == SIMT else ("f16", "emulated") if base == MMA else ("bf16", "h200")
    p = Gemm(20, 40, 64, "NN", dtype, batch=8, stride_a=20 * 64 + 8)
    c = parse_config(f"{base} {options}")
    made = plan_for(p, c, device(on))
    assert sum(step.entry == made.entry for step in made.launch(lower(p)).steps) > 1
    verify(p, c, "integers", on=on)


@pytest.mark.parametrize(
    ("base", "options", "on"),
    [
        (SIMT, "kg=2 splitk=workspace", "emulated"),
        (MMA, "", "emulated"),
        (WGMMA, "", "h200"),
        (WGMMA, "epilogue_smem=1", "h200"),
    ],
)
def test_epilogues_of_batches(base, options, on):
    """All items share bias and scales; each has its own residual."""
    dtype = "f32" if base == SIMT else "bf16"
    p = Gemm(20, 24, 40, "NN", dtype, batch=3, epilogue="scale_rows,bias_column,residual,relu", stride_c=20 * 24 + 8)
    right(p, f"{base} {options}", 2, on)


def test_empty_batches():
    for changes in ({"batch": 0}, {"m": 0}, {"n": 0}):
        p = replace(Gemm(8, 8, 8, batch=3), **changes)
        assert execute(p, parse_config(SIMT), tuple(operands(p).values())).size == 0
    p = Gemm(8, 8, 0, batch=3)
    assert (execute(p, parse_config(SIMT), tuple(operands(p).values())) == 0).all()
