"""The predicted ceilings of steps, compared with those that an H100 reached in loops on shared memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering import step_rate
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.problem.device import device
from ptxgen.tuning.roofline import roofline_us
from tests.lowered import predict

H100 = device("h100")
REDUCE = "where (i in [0, M], j in [0, N]) {{ reduce (k in [0, K]) {{ {} }} C[i,j] = accum; }}"
Q1 = "accum += A[i,k]*B[k,j] + (A[i,k]*B[k,j] > t[i])*(A[i,k]*B[k,j]-t[i]);"
#: (type, step or semiring, steps per clock and multiprocessor of an H100, instructions by pipe)
MEASURED = [
    ("f32", "plus_times", 99.7, {"fma": 1}),
    ("f32", "max_plus", 51.0, {"fma": 1, "alu": 1}),
    ("f32", "max_times", 50.5, {"fma": 1, "alu": 1}),
    ("f32", "max_min", 31.4, {"alu": 2}),
    ("f32", Q1, 29.0, {"fma": 3, "alu": 1}),
    ("f32", "accum += max(A[i,k],B[k,j])*max(A[i,k],B[k,j]);", 52.3, {"fma": 1, "alu": 1}),
    ("f32", "accum += abs(A[i,k]-B[k,j]);", 56.6, {"fma": 2}),
    ("f32", "accum += (A[i,k]-B[k,j])*(A[i,k]-B[k,j]);", 56.8, {"fma": 2}),
    ("f32", "accum = max(accum, abs(A[i,k]-B[k,j]));", 51.1, {"fma": 1, "alu": 1}),
    ("f32", "accum += exp2(A[i,k]-B[k,j]);", 15.8, {"fma": 4, "alu": 1, "xu": 1}),
    ("f16", "max_plus", 94.6, {"fma": 1, "alu": 1}),  # two steps at once, as in the next line
    ("s16", "accum = max(accum, A[i,k]+B[k,j]);", 124.0, {"alu": 1}),
    ("s32", "max_min", 31.4, {"alu": 2}),
    ("s32", "max_plus", 61.9, {"alu": 1}),
    ("u32", "or_and", 61.9, {"alu": 1}),
    ("u32", "accum += popcount(A[i,k]^B[k,j]);", 15.8, {"alu": 2, "xu": 1}),
]


def problem(dtype: str, step: str) -> Task:
    if step in SEMIRINGS:
        return Task(64, 64, 64, text=canonical(semiring_program(step, dtype)))
    types = {"A": dtype, "B": dtype} | ({"t": dtype} if "t[i]" in step else {})
    declared = f"accum: {dtype}; " if dtype == "s16" else ""
    text = canonical(parse(declared + REDUCE.format(step), types))
    return Task(64, 64, 64, text=text, algebra="popcount" not in step)


@pytest.mark.parametrize(
    ("dtype", "step", "measured", "pipes"), MEASURED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_predicted_ceilings_are_near_measured_ones(
    dtype: str, step: str, measured: float, pipes: dict[str, int]
) -> None:
    p = lower(problem(dtype, step))
    counted = step_rate.of_pairs(p.algebra, H100) or step_rate.instructions(p, H100)
    assert dict(counted.by_pipe) == pipes
    assert step_rate.ceiling(p, H100) == pytest.approx(measured, rel=0.04)


def test_older_targets_have_fewer_pipes_and_instructions_that_join_less() -> None:
    t4, a100, h100 = (device(name) for name in ("t4", "a100", "h100"))
    plus = lower(problem("f32", "accum += abs(A[i,k]-B[k,j]);"))
    assert [step_rate.ceiling(plus, d) for d in (t4, a100)] == [32, 32]
    integers = lower(problem("s32", "max_plus"))
    assert [dict(step_rate.instructions(integers, d).by_pipe)["alu"] for d in (a100, h100)] == [2, 1]
    # without max.NaN a maximum is three instructions
    assert dict(step_rate.instructions(lower(problem("f32", "max_plus")), t4).by_pipe) == {"fma": 1, "alu": 3}
    wide = lower(problem("f64", "max_plus"))
    assert dict(step_rate.instructions(wide, h100).by_pipe)["fp64"] >= 3
    assert step_rate.ceiling(wide, h100) < 64 / 3 + 1


def test_products_have_the_rate_of_their_units() -> None:
    def ceiling(p: Gemm) -> float:
        return step_rate.ceiling(lower(p), H100)

    assert ceiling(Gemm(64, 64, 64)) == pytest.approx(128 / 1.26)
    assert ceiling(Gemm(64, 64, 64, dtype="f16")) == 2048
    assert ceiling(Gemm(64, 64, 64, compute="tf32")) == 1024
    plain = lower(Gemm(64, 64, 64))
    assert dict(step_rate.instructions(plain, H100).by_pipe) == {"fma": 1}
    assert step_rate.instructions(plain, H100).mixed == 0
    assert ceiling(Task(64, 64, 64)) == ceiling(Gemm(64, 64, 64))


def test_bits_have_the_rate_of_tensor_cores_that_count_them() -> None:
    different = "accum += popcount(A[i,k]^B[k,j]);"
    words = lower(replace(problem("u32", different), algebra=True))
    a100, h100, b200 = (step_rate.ceiling(words, device(name)) for name in ("a100", "h100", "b200"))
    assert (a100, h100) == (512, 256)  # two products of common bits from sm_90 on
    assert b200 == pytest.approx(15.8, rel=0.04)
    truths = Task(64, 64, 256, dtype="u8", text=REDUCE.format("accum |= A[i,k] != 0 and B[k,j] != 0;"))
    assert step_rate.ceiling(lower(truths), H100) == 32 * 512


def test_bounds_are_not_below_ceilings() -> None:
    for dtype, step, *_ in MEASURED[1:]:
        p = lower(problem(dtype, step))
        assert step_rate.bound(p.algebra, H100) >= step_rate.ceiling(p, H100)


#: milliseconds of the fastest reference kernel (CUDA C++, Triton or Gluon) on an H100, cubes of 16384
REFERENCES = [("max_plus", 343.0), ("max_min", 544.0), ("accum += abs(A[i,k]-B[k,j]);", 301.0), (Q1, 608.0)]


@pytest.mark.parametrize(("step", "ms"), REFERENCES)
def test_the_performance_model_counts_the_instructions_of_steps(step: str, ms: float) -> None:
    p = replace(problem("f32", step), m=16384, n=16384, k=16384, lda=0, ldb=0, ldc=0)
    c = parse_config("family=simt ml=128 nl=128 ms=8 ns=8 u=16 stages=3 raster_group=8 vec_a=1 vec_b=4 vec_c=4")
    predicted = predict(p, c, H100) / 1e3
    assert ms * 0.93 < predicted < ms * 1.2
    assert predicted > roofline_us(lower(p), H100) / 1e3 > ms * 0.75
