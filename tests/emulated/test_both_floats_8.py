"""Products of e4m3 and e5m2: A has one 8-bit float and B the other."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gemm_runs import right

from ptxgen import gemm, gemm_grouped, gemm_jagged, gemm_jagged_weight_grad
from ptxgen.errors import DtypeError
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.registry import parse

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
PAIRS = (("e4m3", "e5m2"), ("e5m2", "e4m3"))
#: problem without its types -> configuration: each family, with A and with B as the first operand of the instruction
KERNELS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "wgmma": ((65, 40, 144, "NT"), {}, "family=wgmma ml=64 nl=32 u=64 stages=2"),
    "wgmma of transposed tiles": ((33, 70, 144, "NT"), {}, "family=wgmma ml=24 nl=64 u=64 stages=2 transposed_mma=1"),
    "wgmma with scales": (
        (65, 40, 144, "NT"),
        {"block_a": "1x128", "block_b": "128x128"},
        "family=wgmma ml=64 nl=32 u=128 stages=2",
    ),
    "mma": ((33, 17, 65, "NN"), {}, "family=mma ms=16 ns=16 ml=32 nl=32 u=64 kl=1 kg=1 cp_async_a=0 cp_async_b=0"),
    "skinny, few columns": (
        (50, 3, 100, "NT"),
        {},
        "family=skinny ms=2 ns=4 ml=16 nl=4 u=128 kl=2 lanes_long=4 vec_a=4",
    ),
    "skinny, few rows": ((3, 50, 100, "NN"), {}, "family=skinny ms=4 ns=4 ml=4 nl=32 u=32 kl=1 lanes_long=8 long_n=1"),
    "skinny by mma, few columns": (
        (50, 3, 96, "NT"),
        {},
        "family=skinny ms=2 ns=2 ml=16 nl=8 u=512 kl=2 kg=1 vec_a=16 lanes_long=8 mma_m16=1",
    ),
    "skinny by mma, few rows": (
        (3, 50, 96, "NT"),
        {},
        "family=skinny ms=2 ns=2 ml=8 nl=32 u=512 kl=1 kg=1 vec_a=2 vec_b=16 lanes_long=8 long_n=1 mma_m16=1",
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_right(name: str, types: tuple[str, str]) -> None:
    shape, fields, text = KERNELS[name]
    p = Gemm(*shape, types[0], dtype_b=types[1], out="f16", **fields)
    assert parse(p.key()) == p
    right(p, text)


@pytest.mark.parametrize("types", PAIRS)
def test_parts_of_an_array_are_right(types: tuple[str, str]) -> None:
    items = (33, 40, 80), (0, 40, 80), (70, 40, 80)
    p = GroupedGemm(items, "NT", types[0], jagged="m", dtype_b=types[1])
    assert parse(p.key()) == p
    right(p, "family=wgmma ml=64 nl=32 u=64 stages=3 persistent=1")


@pytest.mark.parametrize("types", [(E4M3, E5M2), (E5M2, E4M3)])
def test_calls_take_both_types(types: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(1)
    a, b = (
        np.ldexp(rng.choice([1.0, -1.5], (n, n)), rng.integers(-3, 4, (n, n))).astype(t)
        for n, t in ((24, t) for t in types)
    )
    wide = a.astype(np.float64) @ b.astype(np.float64)

    def check(result: Any, expected: Any) -> None:
        assert np.abs(result.astype(np.float64) - expected).max() <= np.abs(expected).max() / 128

    check(gemm(a, b), wide)
    check(gemm(a, b, out=np.empty((24, 24), ml_dtypes.bfloat16, order="F")), wide)
    for result in gemm_grouped([a, a], [b, b]):
        check(result, wide)
    ends = np.array([8, 24], np.int32)
    check(gemm_jagged(a, np.stack([b, b]), ends), wide)
    products = gemm_jagged_weight_grad(a, b, ends)
    x, y = a.astype(np.float64), b.astype(np.float64)
    check(products, np.stack([x[:8].T @ y[:8], x[8:].T @ y[8:]]))


def test_names_of_kernels_say_both_types() -> None:
    assert lower(Gemm(8, 8, 8, "NT", "e4m3", dtype_b="float8_e5m2")).name == "gemm_e4m3_e5m2_nt"
    assert lower(Gemm(8, 8, 8, "NT", "e4m3", dtype_b="e4m3")).name == "gemm_e4m3_nt"


def test_other_pairs_of_types_are_refused() -> None:
    with pytest.raises(DtypeError, match="dtype_b is 'e5m2' and dtype is f16; they must be the same, or e4m3 and e5m2"):
        Gemm(8, 8, 8, dtype="f16", dtype_b="e5m2")
    with pytest.raises(DtypeError, match="a is e4m3 and b is f16; they must be the same, or e4m3 and e5m2"):
        gemm(np.ones((4, 4), E4M3), np.ones((4, 4), np.float16))
    one, other = np.ones((4, 4), E4M3), np.ones((4, 4), E5M2)
    with pytest.raises(DtypeError, match="item 1: a is e4m3, b is e4m3 and out is bf16; they must be e4m3, e5m2 and"):
        gemm_grouped([one, one], [other, one])
