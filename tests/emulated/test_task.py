"""Tasks on the emulated device, with checks for races, bounds and uninitialised reads; every element is compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.parts.algebra import ExpressionReducer
from ptxgen.codegen.render import render
from ptxgen.errors import DtypeError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

SPLIT = parse_config("ms=4 ns=4 ml=16 nl=32 u=16 ks=2 kl=2 kg=3 splitk=workspace vec_b=1 vec_c=1")
NUMPY: dict[str, Any] = {
    "plus_times": (np.sum, np.multiply),
    "min_plus": (np.min, np.add),
    "max_plus": (np.max, np.add),
    "min_times": (np.min, np.multiply),
    "max_times": (np.max, np.multiply),
    "min_max": (np.min, np.maximum),
    "max_min": (np.max, np.minimum),
    "or_and": (np.bitwise_or.reduce, np.bitwise_and),
}


@pytest.mark.first(3)
@pytest.mark.parametrize("n", range(24))
def test_random_programs_and_configurations(n: int) -> None:
    on = device(("emulated", "a100", "h200", "b200")[n % 4])
    for p, c in SOURCES["task"].cases(900 + n, 1, on, limit=100, threads=128):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(on), p, c, n) if not r.ok]
        assert not wrong, f"{p.key()} | {c}: {wrong}"


@pytest.mark.each_value
@pytest.mark.parametrize("name", SEMIRINGS)
@pytest.mark.parametrize("shape", [(33, 35, 61), (16, 8, 1), (1, 70, 130)], ids=str)
def test_semirings(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng, dtype = np.random.default_rng(3), np.int32 if name == "or_and" else np.float32
    a, b = rng.integers(-9, 10, (m, k)).astype(dtype), rng.integers(-9, 10, (k, n)).astype(dtype)
    reduce, combine = NUMPY[name]
    expected = reduce(combine(a[:, :, None], b[None]), axis=1)
    got = ptxgen.matmul_over(name, a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(ptxgen.matmul_over(name, a.T.copy().T, b.T.copy().T), expected)


def test_without_k_the_result_is_the_identity() -> None:
    a, b = np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32)
    assert (ptxgen.matmul_over("min_plus", a, b) == np.inf).all()
    assert (ptxgen.matmul_over("max_plus", a, b) == -np.inf).all()
    assert (ptxgen.matmul_over("plus_times", a, b) == 0).all()


def test_nan_reaches_the_result() -> None:
    a, b = np.ones((4, 9), np.float32), np.ones((9, 5), np.float32)
    a[2, 8] = np.nan
    got = ptxgen.matmul_over("max_plus", a, b)
    assert np.isnan(got[2]).all()
    assert (np.delete(got, 2, 0) == 2).all()


@pytest.mark.each_value
@pytest.mark.parametrize("semiring", ["max_plus", "min_plus", "max_times", "min_max"])
@pytest.mark.parametrize("name", ["identity", "guarded"])
def test_wrong_padding_is_found(name: str, semiring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction that begins with 0 in place of its identity, and steps beyond K that are reduced."""
    p = ptxgen.Task(17, 20, 13, text=text_of(semiring))
    assert all(r.ok for r in check(EmulatedDriver(), p, SPLIT.replace(kg=1, splitk=0)))
    wrong = {"identity": property(lambda self: "0f00000000"), "guarded": property(lambda self: False)}
    monkeypatch.setattr(ExpressionReducer, name, wrong[name])
    assert not all(r.ok for r in check(EmulatedDriver(), p, SPLIT.replace(kg=1, splitk=0)))


def text_of(semiring: str) -> str:
    return ptxgen.Task.text_of(ptxgen.operations.task.roles.roles_of(semiring_program(semiring, "f32")))


def test_slices_of_k_are_joined_by_the_reduction() -> None:
    p = ptxgen.Task(33, 40, 61, text=text_of("min_max"))
    assert all(r.ok for r in check(EmulatedDriver(), p, SPLIT))


SWIZZLED = "ms=4 ns=2 ml=32 nl=16 u=16 kl=2 ks=2 kmajor_smem_a=1 kmajor_smem_b=1 vec_a=1 vec_b=1 cp_async_b={async_b}"


@pytest.mark.each_value
@pytest.mark.parametrize("k", [1, 5, 8, 9, 15, 16, 47])
@pytest.mark.parametrize("config", [SWIZZLED.format(async_b=1), "ms=2 ns=4 ml=16 nl=32 u=8 kl=2 vec_a=1 vec_b=1"])
def test_the_remainder_of_k_has_its_exact_length(k: int, config: str) -> None:
    """Some groups of threads have all of their steps, one or none; A and B are swizzled in shared memory or not."""
    text = "A:f32[i,k];B:f32[j,k];input0:f32[k];input1:f32[k,j];accum:f32;where(i,j){reduce(k){accum=max(accum,"
    text += "A[i,k]-B[j,k]-abs(input0[k])-f32(k)*input1[k,j]);}C[i,j]=accum;}"
    p = ptxgen.Task(33, 18, k, text=text, algebra=False)
    assert all(r.ok for r in check_some(EmulatedDriver(), p, parse_config(config)))


def test_the_remainder_of_k_is_one_step_of_code() -> None:
    p, config = ptxgen.Task(33, 40, 61, text=text_of("max_plus")), parse_config("ms=4 ns=4 ml=32 nl=32 u=16 vec_b=4")
    assert render(plan_for(p, config, device("h200"))).text.count("max.NaN.f32") == 16 * (16 + 1)


def test_the_paper_query_1() -> None:
    query = ptxgen.task("""where (i in [0, M], j in [0, N]) { accum = 0;
        reduce (k in [0, K]) {
            accum += S[i,k]*W[k,j] + (S[i,k]*W[k,j] > thres[i])*(S[i,k]*W[k,j]-thres[i]);
        } N[i,j] = accum; }""")
    rng = np.random.default_rng(1)
    s, w, t = (rng.integers(-5, 6, shape).astype(np.float32) for shape in ((20, 31), (31, 17), (20,)))
    p = s[:, :, None] * w[None]
    expected = (p + np.maximum(p - t[:, None, None], 0)).sum(1)
    np.testing.assert_array_equal(query(S=s, W=w, thres=t), expected)
    np.testing.assert_array_equal(query(s, w, t), expected)


def test_numbers_are_arguments_of_the_kernel() -> None:
    """Another number makes no other problem."""
    scaled = ptxgen.task("where (i, j) { reduce (k) { accum max= A[i,k] - B[k,j]; } C[i,j] = accum * s + r[i]; }")
    rng = np.random.default_rng(2)
    a, b, r = (rng.integers(-5, 6, shape).astype(np.float32) for shape in ((6, 7), (7, 9), (6,)))
    runners = ptxgen.api.runners.runners
    before = len(runners)
    for number in (2.0, -0.5, 3):
        expected = (a[:, :, None] - b[None]).max(1) * number + r[:, None]
        np.testing.assert_array_equal(scaled(A=a, B=b, s=float(number), r=r), expected)
    assert len(runners) == before + 1


def test_a_result_by_columns() -> None:
    """C[j,i] is the transpose of C[i,j]."""
    rng = np.random.default_rng(4)
    a, b, r = (rng.integers(-5, 6, shape).astype(np.float32) for shape in ((9, 7), (7, 12), (9,)))
    text = "where (i, j) { reduce (k) { accum max= A[i,k] * B[k,j] - r[i]; } C[j,i] = accum + f32(i); }"
    expected = (a[:, :, None] * b[None] - r[:, None, None]).max(1) + np.arange(9)[:, None]
    np.testing.assert_array_equal(ptxgen.task(text)(A=a, B=b, r=r), expected.T)


@pytest.mark.parametrize("batched", ["ab", "a", "b"])
def test_batches(batched: str) -> None:
    """The batch is the first axis of one operand or both; other arrays serve all items."""
    rng = np.random.default_rng(6)
    a, b, r = (rng.integers(-5, 6, shape).astype(np.float32) for shape in ((3, 9, 7), (3, 7, 12), (9,)))
    a, b = (x if name in batched else x[1] for name, x in (("a", a), ("b", b)))
    wide_a, wide_b = np.broadcast_to(a, (3, 9, 7)), np.broadcast_to(b, (3, 7, 12))
    expected = (wide_a[:, :, :, None] + wide_b[:, None]).min(2)
    np.testing.assert_array_equal(ptxgen.matmul_over("min_plus", a, b), expected)
    scaled = ptxgen.task("where (i, j) { reduce (k) { accum min= A[i,k] + B[k,j]; } C[i,j] = accum * r[i]; }")
    np.testing.assert_array_equal(scaled(A=a, B=b, r=r), expected * r[:, None])


def test_products_may_be_computed_in_tf32() -> None:
    sums = ptxgen.task("where (i, j) { reduce (k) { accum += A[i,k] * B[k,j]; } C[i,j] = accum * 2; }")
    lists = ptxgen.task(
        "where (i, j) { reduce (k) { accum += A[i,k] * B[k,j]; } accum != 65568 ? L.add(accum, i, j); }"
    )
    a, b = np.full((64, 32), 2049, np.float32), np.ones((32, 64), np.float32)  # tf32 has 11 bits
    assert (sums(a, b) == 131136).all()
    assert set(np.unique(sums(a, b, compute="tf32"))) <= {131072, 131200}
    assert lists(a, b).count == 0
    assert lists(a, b, compute="tf32").count == 4096
    distances = ptxgen.task("where (i, j) { reduce (k) { accum += abs(A[i,k] - B[k,j]); } C[i,j] = accum; }")
    with pytest.raises(DtypeError, match="compute is tf32; it must be f32: the step is no product"):
        distances(a, b, compute="tf32")
