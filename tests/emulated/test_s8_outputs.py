"""s8 GEMMs with s32 sums and other output types: converted to f32, then the epilogue, then the output type."""

from __future__ import annotations

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import DtypeError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.reference import compare, operands, reference
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import CASES
from tests.emulated.test_epilogue import D, right

OPTIONS = {
    "wgmma": "family=wgmma ml=64 nl=32 u=128 stages=2 vec_c=2",
    "wgmma, packed stores": "family=wgmma ml=128 nl=96 u=64 math_warpgroups=2 stages=2 persistent=1 vec_c=8",
    "wgmma, packed stores, split-K": "family=wgmma ml=64 nl=64 u=64 stages=2 kg=2 splitk=distributed vec_c=8",
    "wgmma, transposed": "family=wgmma transposed_mma=1 ml=64 nl=64 u=32 stages=2",
    "wgmma, TMA store": "family=wgmma ml=64 nl=64 u=64 stages=2 epilogue_smem=1 persistent=1 epilogue_subtiles=2",
    "wgmma, cluster": "family=wgmma ml=64 nl=64 u=64 stages=2 cluster_k=2",
    "wgmma, distributed": "family=wgmma ml=64 nl=64 u=32 stages=2 kg=2 splitk=distributed",
    "wgmma, last_cta": "family=wgmma ml=64 nl=64 u=32 stages=2 kg=2 splitk=last_cta",
    "wgmma, workspace": "family=wgmma ml=64 nl=64 u=32 stages=2 kg=2 splitk=workspace",
    "mma": "family=mma ms=16 ns=16 ml=32 nl=32 u=64 vec_a=16 vec_b=16 vec_c=2",
    "mma, epilogue_smem": "family=mma ms=16 ns=16 ml=32 nl=32 u=128 kl=2 vec_a=16 vec_b=16 vec_c=4 epilogue_smem=1",
    "mma, workspace": "family=mma ms=16 ns=16 ml=32 nl=32 u=64 vec_a=16 vec_b=16 kg=2 splitk=workspace vec_c=4",
}
EPILOGUES = ("scale_rows,bias_column,residual,gelu", "scale,bias_row,relu")


def problem(out: str, epilogue: str = "") -> Gemm:
    return Gemm(70, 72, 144, "NT", "s8", out=out, epilogue=epilogue)


def supported(options: str, out: str) -> bool:
    if "packed stores" in options:
        return out in ("s8", "e4m3", "e5m2")
    return options != "wgmma, TMA store" or out in ("f16", "bf16")


@pytest.mark.each_value
@pytest.mark.parametrize(("m", "n"), [(1, 8), (70, 72), (129, 104), (64, 96)])
@pytest.mark.parametrize("dtype", ["s8", "e4m3"])
def test_packed_8_bit_stores_at_edges(dtype: str, m: int, n: int) -> None:
    options = ("wgmma, packed stores", "wgmma, packed stores, split-K")[n // 8 % 2]
    p, c = Gemm(m, n, 144, "NT", dtype, out=dtype, epilogue="scale_rows"), parse_config(OPTIONS[options])
    plan = plan_for(p, c, D)
    assert ".v2.b32" in render(plan).text.partition("// ---- epilogue")[2]
    right(p, c, m, cases=(CASES[m % len(CASES)],))


@pytest.mark.every(2)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_output_type_with_every_epilogue_path(options: str) -> None:
    """``test_fp8_outputs`` has the other kernels."""
    first = list(OPTIONS).index(options)
    outs = [out for out in OUT_DTYPES["s8"] if out != "s32" and supported(options, out)]
    n = first // 2 % 2
    right(problem(outs[first // 2 % len(outs)], EPILOGUES[n]), OPTIONS[options], n, cases=(CASES[3 * n],))


@pytest.mark.parametrize("out", OUT_DTYPES["s8"])
def test_without_an_epilogue(out: str) -> None:
    right(problem(out), OPTIONS["mma"], cases=CASES[:1])
    right(problem(out), OPTIONS["wgmma"], cases=CASES[3:])


@pytest.mark.parametrize("out", OUT_DTYPES["s8"])
def test_kernels_assemble_without_spills(out: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for options in ("wgmma", "wgmma, distributed", "wgmma, TMA store", "mma, epilogue_smem"):
        if supported(options, out):
            p = problem(out, EPILOGUES[0] if out != "s32" else "")
            made = assemble(render(plan_for(p, parse_config(OPTIONS[options]), D)))
            assert made.cubin
            assert "C75" not in made.log
            assert not any(made.spills.values())


def test_error_above_half_a_unit_is_found() -> None:
    """The check can fail: half a unit is rounding, more is an error; values above 127 saturate at 127."""
    p = problem("s8", "scale")
    a, b, _ = operands(p).values()
    ref = reference(p, {"A": a, "B": b, "scale_a": np.ones(1, np.float32), "scale_b": np.full(1, 2.0**-8, np.float32)})
    nearest = np.clip(np.rint(ref.exact), -128, 127)
    assert (np.abs(nearest) == 127).any()
    assert compare(nearest.astype(np.int8), ref).ok
    i, j = np.argwhere(np.abs(nearest) < 100)[0]
    nearest[i, j] += 1
    assert not compare(nearest.astype(np.int8), ref).ok


def test_gemm_quantises(monkeypatch) -> None:
    """int8 in, int8 out, with a scale per row and per column, and a bias in float32."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    from ptxgen.api import choice, driver_state, drivers, first_call, gemm

    for cached in (
        x
        for m in (gemm, choice, driver_state, drivers, first_call)
        for x in vars(m).values()
        if hasattr(x, "cache_clear")
    ):
        cached.cache_clear()
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-127, 128, s).astype(np.int8) for s in ((33, 64), (64, 48)))
    rows, columns = (np.exp2(rng.integers(-9, -5, n)).astype(np.float32) for n in (33, 48))
    bias = rng.standard_normal(48).astype(np.float32)
    out = ptxgen.gemm(a, b, out=np.zeros((33, 48), np.int8), scale_a=rows, scale_b=columns, bias=bias)
    exact = (a.astype(np.float64) @ b) * rows[:, None] * columns + bias
    assert np.abs(out - np.clip(exact, -128, 127)).max() <= 0.5 + 1e-4


def test_s32_output_refuses_activations() -> None:
    with pytest.raises(DtypeError, match="s32"):
        problem("s32", "relu")
