"""Tasks on arrays of every type: operands of two types, wide and narrow results, truth values."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxgen.api.task import matmul_over, task
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import DtypeError
from ptxgen.families.common.rules import first_violation
from ptxgen.families.common.space import candidates
from ptxgen.lowering import step_rate
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.checks import stored
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right

EACH = 1
PLAIN = "ms=4 ns=4 ml=16 nl=32 lanes_m=4 u=8 vec_a=1 vec_b=1 vec_c=1 cp_async_a=0 cp_async_b=0"


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("on", ["h200", "t4"])
def test_random_programs_of_every_type(on, seed):
    for n, (p, c) in enumerate(SOURCES["task_types"].cases(seed, EACH, device(on), limit=40, threads=256)):
        right(p, c, n, on)


def dense(step: str, value: str) -> str:
    return f"where (i in [0, M], j in [0, N]) {{ reduce (k in [0, K]) {{ {step}; }} C[i,j] = {value}; }}"


def program(a: str, b: str, step: str, value: str, sums: str) -> str:
    return f"A:{a}[i,k];B:{b}[k,j];accum:{sums};where(i,j){{reduce(k){{{step};}}C[i,j]={value};}}"


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["s8", "u8", "s16", "u16", "s32", "u32"])
@pytest.mark.parametrize(("sums", "layout"), [("s32", "NN"), ("f32", "TT"), ("f64", "NN")])
def test_integers_are_widened_in_vectors(dtype, sums, layout):
    """Both ways to shared memory: transposed, and in rows; vectors of one to 16 bytes."""
    text = program(dtype, dtype, f"accum=max(accum,{sums}(A[i,k])-{sums}(B[k,j]))", "accum", sums)
    if dtype == sums:
        text = text.replace(f"{sums}(A[i,k])", "A[i,k]").replace(f"{sums}(B[k,j])", "B[k,j]")
    p = Task(32, 64, 48, layout, "", text=text)
    widest = min(p.vectors[:2])
    for vec in [v for v in (1, 2, 4, 8, 16) if v <= widest][:: 2 if widest < 16 else 3]:
        c = f"ms=4 ns=4 ml=16 nl=32 lanes_m=4 u=16 vec_a={vec} vec_b={vec} vec_c=2 cp_async_a=0 cp_async_b=0 stages=2"
        right(p, c)


@pytest.mark.each_value
@pytest.mark.parametrize("element", ["s8", "u8", "s16", "u16", "s32", "u32"])
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_extremes_of_integers_keep_their_sign(element, layout):
    own, t = dtype(element).numpy, np.iinfo(dtype(element).numpy)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(t.min, t.max, shape, endpoint=True).astype(own) for shape in ((16, 48), (48, 32)))
    a[:, ::5], b[::7] = t.max, t.min
    sums = "u32" if element == "u32" else "s32"
    x, y = (v if element == sums else f"{sums}({v})" for v in ("A[i,k]", "B[k,j]"))
    p = Task(
        16,
        32,
        48,
        layout,
        "",
        text=program(element, element, f"accum=max(accum,min({x},{y}))", f"{element}(accum)", sums),
    )
    expected = np.minimum(a[:, :, None], b[None]).max(1)
    for vec in (1, 4, min(p.vectors[:2])):
        c = f"ms=4 ns=4 ml=16 nl=32 lanes_m=4 u=16 vec_a={vec} vec_b={vec} vec_c=2 cp_async_a=0 cp_async_b=0 stages=2"
        given = stored(p, {"A": a, "B": b})
        result = Runner.of(EmulatedDriver(device("h200")), p, parse_config(c)).compute(given)["C"]
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("shape", [(1, 1, 0), (5, 3, 0), (1, 1, 1), (17, 33, 9)])
def test_no_step_gives_the_identity(shape):
    p = Task(*shape, "NN", "", text=program("u8", "s16", "accum=min(accum,s32(A[i,k])*s32(B[k,j]))", "accum", "s32"))
    right(p, PLAIN)


@pytest.mark.parametrize(
    ("out", "numbers", "expected"),
    [
        ("s8", [300, -300, 127, -129], [44, -44, 127, 127]),
        ("u8", [300, -1, 255, 256], [44, 255, 255, 0]),
        ("s16", [40000, -40000, 1, 2], [-25536, 25536, 1, 2]),
        ("u16", [70000, -1, 1, 2], [4464, 65535, 1, 2]),
    ],
)
def test_casts_of_integers_wrap(out, numbers, expected):
    run = task(dense("accum += P[i,k] * R[k,j]", f"{out}(accum)"))
    result = run(P=np.array(numbers, np.int32)[:, None], R=np.ones((1, 3), np.int32))
    assert result.dtype == np.dtype({"s": "int", "u": "uint"}[out[0]] + out[1:])
    assert result.tolist() == [[x] * 3 for x in expected]


@pytest.mark.parametrize(
    ("out", "numbers", "expected"),
    [
        ("s8", [300.5, -300.0, 1.9, -1.9, np.nan], [127, -128, 1, -1, 0]),
        ("u8", [300.5, -1.0, 254.9, np.inf, np.nan], [255, 0, 254, 255, 0]),
        ("s16", [40000.0, -40000.0, 1.5, 2.5, np.nan], [32767, -32768, 1, 2, 0]),
        ("u32", [5e9, -3.0, 1.5, 2.5, np.nan], [2**32 - 1, 0, 1, 2, 0]),
    ],
)
def test_casts_of_floats_saturate(out, numbers, expected):
    run = task(dense("accum = max(accum, P[i,k] * R[k,j])", f"{out}(accum)"))
    result = run(P=np.array(numbers, np.float32)[:, None], R=np.ones((1, 2), np.float32))
    assert result.tolist() == [[x] * 2 for x in expected]


COUNT = task(dense("accum += P[i,k] * R[k,j]", "accum > t"))


def test_conditions_are_truth_values():
    p, r = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 5), np.float32)
    expected = p @ r > 20
    result = COUNT(P=p, R=r, t=20.0)
    assert result.dtype == bool
    assert np.array_equal(result, expected)
    out = np.zeros((5, 3), bool).T.copy()
    assert COUNT(P=p, R=r, t=20.0, out=out) is out
    assert np.array_equal(out, expected)
    numbers = np.full((3, 5), 7, np.uint8)
    assert COUNT(P=p, R=r, t=20.0, out=numbers) is numbers
    assert np.array_equal(numbers, expected.astype(np.uint8))


def test_conditions_of_tensors():
    torch = pytest.importorskip("torch")
    p, r = torch.arange(12.0).reshape(3, 4), torch.ones(4, 5)
    result = COUNT(P=p, R=r, t=20.0)
    assert result.dtype == torch.bool
    assert torch.equal(result, p @ r > 20)
    out = torch.zeros(3, 5, dtype=torch.bool)
    COUNT(P=p, R=r, t=20.0, out=out)
    assert torch.equal(out, result)


def test_numbers_are_no_truth_values():
    x = np.ones((4, 4), np.uint8)
    with pytest.raises(DtypeError, match="out has dtype bool"):
        matmul_over("max_min", x, x, out=np.zeros((4, 4), bool))


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["max", "min", "+", "*"])
def test_reductions_in_16_bits(dtype, op):
    """Each operation rounds to 16 bits; minima and maxima are exact."""
    step = f"{dtype}(A[i,k]*B[k,j])" if op in ("+", "*") else "min(A[i,k]+B[k,j],A[i,k]*B[k,j])"
    reduced = f"accum{op}={step}" if op in ("+", "*") else f"accum={op}(accum,{step})"
    p = Task(18, 33, 21, "", "", text=program(dtype, dtype, reduced, f"max(accum,{dtype}(1.5))", dtype))
    right(p, PLAIN, on="h200")


def test_a_step_is_rounded_to_16_bits():
    one = np.ones((1, 1), np.float16)
    tiny = np.full((1, 1), 2.0**-11, np.float16)
    text = "accum: f16;" + dense("accum = max(accum, P[i,k] + R[k,j])", "accum - f16(1.0)")
    assert task(text)(P=one, R=tiny) == 0  # 1 + 2**-11 is halfway between 1 and the next number of f16
    assert task(text.replace("accum: f16;", ""))(P=one, R=tiny) == 2.0**-11
    nested = "accum: f16;" + dense("accum += (P[i,k] + R[k,j]) - P[i,k]", "accum")
    assert task(nested)(P=one, R=tiny) == 0
    assert task(nested)(P=one, R=2 * tiny) == 2.0**-10
    lowered = lower(
        Task(64, 64, 64, "", "", text=program("f16", "f16", "accum=max(accum,A[i,k]+B[k,j])", "accum", "f16"))
    )
    assert step_rate.instructions(lowered, device("h200")).issued == 2  # the result is rounded once


def test_values_of_sums_in_16_bits_have_kernels_of_tensor_cores():
    text = program("f16", "f16", "accum+=A[i,k]*B[k,j]", "accum*2.0", "f16")
    lowered = lower(Task(64, 64, 64, "", "", text=text))
    assert lowered.algebra is PLUS_TIMES
    assert lowered.compute == "f32"
    plain = lower(Task(64, 64, 64, "", "", text=text.replace("accum*2.0", "accum")))
    assert plain.algebra is PLUS_TIMES
    assert plain.compute == "f16"


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int8])
@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_positions_along_k(op: str, dtype: type) -> None:
    run = task(dense(f"accum = {op}(accum, (P[i,k] + R[k,j], k))", "accum"))
    rng = np.random.default_rng(7)
    for m, n, k in ((33, 17, 1), (17, 35, 61), (5, 7, 0)):
        p, r = rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)
        if k > 20:
            p[0] = r[:, 0] = 1  # all values of a pair are equal
            if p.dtype.kind == "f":
                p[3, 5] = p[3, 9] = np.nan
                p[4] = np.inf if op == "argmin" else -np.inf
                r[7, 4] = -np.inf
        with np.errstate(invalid="ignore"):
            sums = p[:, :, None].astype(np.float64) + r[None]
        result = run(P=p, R=r)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, getattr(np, op)(sums, axis=1) if k else np.full((m, n), -1))


POSITIONS = "A:f32[i,k];B:f32[k,j];where(i,j){reduce(k){accum=argmin(accum,(A[i,k]+B[k,j],k));}C[i,j]=accum;}"


@pytest.mark.parametrize(("axes", "name"), [("kl=2", "simt_positions"), ("kg=2 splitk=workspace", "positions")])
def test_positions_are_joined_in_registers(axes: str, name: str) -> None:
    p, d = lower(Task(64, 64, 64, text=POSITIONS)), device("h100")
    assert first_violation(p, parse_config(f"{PLAIN} ks=2"), d) is None
    rule = first_violation(p, parse_config(f"{PLAIN} {axes}"), d)
    assert rule is not None
    assert rule.name == name


def test_candidates_reduce_positions_in_registers() -> None:
    p, d = lower(Task(300, 200, 5000, text=POSITIONS)), device("h100")
    columns = candidates(p, d)
    assert len(columns)
    assert set(columns.columns["kl"]) == set(columns.columns["kg"]) == {1}


@pytest.mark.parametrize("element", ["f16", "bf16", "s8", "u8", "s16", "u16", "s32", "u32", "f32", "f64"])
def test_numbers_of_every_type(element: str) -> None:
    run = task(f"s:{element};where(i,j){{reduce(k){{accum=max(accum,A[i,k]+B[k,j]);}}C[i,j]=f32(accum)+f32(s);}}")
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 5), np.float32)
    number = 2.71 if element[0] in "fb" else 7
    result = run(A=a, B=b, s=number)
    expected = a.max(1)[:, None] + 1 + np.float32(dtype(element).numpy.type(number))
    np.testing.assert_array_equal(result, np.tile(expected, 5))


def test_operands_of_two_types():
    rng = np.random.default_rng(5)
    p, r = rng.integers(-128, 128, (19, 13)).astype(np.int8), rng.standard_normal((13, 21)).astype(np.float16)
    run = task(dense("accum += f32(P[i,k]) * R[k,j]", "accum"))
    np.testing.assert_allclose(run(P=p, R=r), p.astype(np.float64) @ r.astype(np.float64), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("a", "sums", "on", "message"),
    [
        ("bf16", "f32", "t4", "A is bf16 and B is bf16, reduced in f32 on sm_75; .* reads bf16 from sm_80 on"),
    ],
)
def test_types_without_a_kernel(a, sums, on, message):
    x, y = ("A[i,k]", "B[k,j]") if a == sums else (f"{sums}(A[i,k])", f"{sums}(B[k,j])")
    p, c, d = (
        Task(8, 8, 8, "NN", "", text=program(a, a, f"accum=min(accum,{x}+{y})", "accum", sums)),
        Config(),
        device(on),
    )
    rule = first_violation(lower(p), c, d)
    assert rule is not None
    assert rule.name == "simt_dtype"
    assert re.match(message, rule.worded(lower(p), c, None, d))


def test_16_bit_reductions_with_a_term_without_k_of_special_values() -> None:
    """The term leaves the loop: of -inf in one step, and a term inf, the result is that of the other steps."""
    text = """A:f32[i,k]; B:f32[k,j]; r:f32[j]; accum:bf16; where (i, j) {
        reduce (k) { accum = max(accum, bf16(A[i,k])*bf16(B[k,j]) - bf16(r[j])); } C[i,j] = f32(accum); }"""
    p, c = Task(33, 34, 19, text=text), parse_config("family=simt ms=2 ns=4 ml=16 nl=32 u=8")
    for seed in range(2):
        assert all(x.ok for x in check(EmulatedDriver(), p, c, seed)), seed


def test_steps_beyond_k_change_no_fmin_of_nan() -> None:
    a, b = np.full((7, 2), np.inf, np.float32), np.ones((3, 2), np.float32)
    least = task("where (i, j) { reduce (k) { accum = fmin(accum, (P[i,k] + R[j,k]) * 0); } C[i,j] = accum; }")
    assert np.isposinf(least(P=a, R=b, algebra=False)).all()
