"""Which reductions are computed on pairs of elements of 16 bits."""

from __future__ import annotations

import pytest

from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task

SUM = "accum = max(accum, A[i,k] + B[k,j])"
LEAST = "accum = min(accum, max(A[i,k], B[k,j]))"
LIST = "accum > 0 ? L.add(i, j);"


def paired(dtype: str, step: str, output: str = "C[i,j] = accum;", declared: bool = False, k: int = 8) -> str:
    """The step of pairs, empty: there is none."""
    head = f"accum: {dtype}; " if declared else ""
    types = {"A": dtype, "B": dtype, "t": dtype, "w": "f32"}
    source = f"{head}where (i, j) {{ reduce (k) {{ {step}; }} {output} }}"
    text = canonical(parse(source, {name: of for name, of in types.items() if f"{name}[" in source}))
    algebra = lower(Task(8, 8, k, dtype=dtype, text=text)).algebra
    assert isinstance(algebra, InnerExpression)
    return "" if algebra.paired is None else algebra.paired.step.op


@pytest.mark.parametrize("dtype", ["f16", "bf16", "s16", "u16"])
def test_minima_and_maxima_of_elements_are_exact(dtype: str) -> None:
    assert paired(dtype, LEAST) == "max"
    assert paired(dtype, LEAST, LIST) == "max"
    assert paired(dtype, LEAST.replace("B[k,j]", "min(B[k,j], 5)")) == "max"
    assert paired(dtype, LEAST.replace("B[k,j]", "B[k,j] + t[i]")) == ""  # another array


def test_floats_are_rounded_once_where_only_rounded_results_are_read() -> None:
    assert paired("f16", SUM, "C[i,j] = f16(accum);") == "+"
    assert paired("f16", SUM, "C[i,j] = accum;") == paired("f16", SUM, "C[i,j] = bf16(accum);") == ""
    assert paired("f16", SUM, "C[i,j] = f16(accum) + t[i];") == "+"
    assert paired("f16", SUM, "C[i,j] = f16(accum + w[i]);") == paired("f16", SUM, LIST) == ""
    assert paired("f16", SUM, declared=True) == "+"
    assert paired("f16", SUM, LIST, declared=True) == "+"
    assert paired("f16", SUM.replace("B[k,j]", "B[k,j] + 1"), declared=True) == "+"
    assert paired("f16", SUM.replace("B[k,j]", "B[k,j] + 1"), "C[i,j] = f16(accum);") == ""  # rounded twice
    assert paired("f16", SUM.replace("A[i,k] +", "A[i,k] *"), "C[i,j] = f16(accum);") == "*"
    assert paired("bf16", SUM.replace("A[i,k] +", "A[i,k] *"), "C[i,j] = bf16(accum);") == ""  # subnormal in f32
    assert paired("bf16", SUM.replace("A[i,k] +", "A[i,k] *"), declared=True) == "*"
    assert paired("f16", "accum += abs(A[i,k] - B[k,j])", declared=True) == ""  # summed in f32


def test_sums_of_integers_are_paired_where_they_may_wrap_around() -> None:
    assert paired("s16", SUM) == paired("s16", SUM, "C[i,j] = s16(accum);") == ""
    assert paired("s16", SUM, declared=True) == paired("s16", SUM, LIST, declared=True) == "+"
    assert paired("s16", "accum += A[i,k] + B[k,j]", "C[i,j] = s16(accum);") == "+"
    assert paired("s16", "accum += A[i,k] + B[k,j]") == ""
    assert paired("u16", "accum |= A[i,k] & B[k,j]") == "&"
    assert paired("s16", "accum += A[i,k] * B[k,j]", declared=True) == ""  # no instruction
    assert paired("s16", LEAST, k=0) == ""  # the identity of s32


def test_the_explanation_counts_instructions_of_pairs() -> None:
    source = f"accum: s16; where (i, j) {{ reduce (k) {{ {SUM}; }} C[i,j] = accum; }}"
    lines = explanation(parse(source, {"A": "s16", "B": "s16"}))
    assert "pairs of columns: two steps at once on s16x2, 1 alu (sm_90)" in lines
    assert "reduction: s16 is computed in s32, from steps that wrap around in s16" in lines
    assert not any("pairs of columns" in x for x in explanation(parse(source, {"A": "s16", "B": "s8"})))
