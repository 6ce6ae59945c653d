"""Terms without k leave the loop of a task, on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxgen.api.task import task
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.loop_terms import without_terms
from ptxgen.operations.task.oracle import Dense, evaluate
from ptxgen.operations.task.printing import printed
from ptxgen.operations.task.problem import Task

RNG = np.random.default_rng(8)
#: (reduction with its step, type, the step that stays in the loop, the reduction of all steps)
TERMS = [
    ("max= P[i,k] * R[k,j] + t[i]", "f32", "P[i,k]*R[k,j]", "accum+t[i]"),
    ("min= (s + P[i,k] + R[k,j]) - t[i]", "f32", "s+P[i,k]+R[k,j]", "accum-t[i]"),
    ("fmax= s + abs(P[i,k] - R[k,j])", "f64", "abs(P[i,k]-R[k,j])", "s+accum"),
    ("max= t[i] - P[i,k] * R[k,j]", "f32", "", ""),
    ("max= P[i,k] + R[k,j] + t[i]", "s32", "", ""),
    ("+= P[i,k] * R[k,j] + t[i]", "s32", "P[i,k]*R[k,j]", "accum+K*t[i]"),
    ("+= (P[i,k] - t[i]) + R[k,j] - s", "s32", "P[i,k]-t[i]+R[k,j]", "accum-K*s"),
    ("+= P[i,k] * R[k,j] + t[i]", "f32", "", ""),
    ("+= abs(P[i,k] - R[k,j]) + abs(t[i])", "f32", "abs(P[i,k]-R[k,j])", "accum+f32(K)*abs(t[i])"),
    ("+= abs(P[i,k] - R[k,j]) - abs(t[i])", "f32", "", ""),
    ("*= P[i,k] * R[k,j] + t[i]", "f32", "", ""),
]


@pytest.mark.each_value
@pytest.mark.parametrize(("statement", "element", "step", "whole"), TERMS)
@pytest.mark.parametrize("output", ["C[i,j] = accum + 1", "C[i] max= accum"])
def test_results_are_those_of_the_program(statement: str, element: str, step: str, whole: str, output: str) -> None:
    text = f"where (i, j) {{ accum = 2; reduce (k) {{ accum {statement}; }} {output}; }}"
    names = {"P": element, "R": element, "t": element, "s": element}
    program = parse(text, {name: x for name, x in names.items() if name in text})
    loop, reduction = without_terms(program)
    if step:
        assert (printed(loop.step), printed(reduction)) == (step, whole)
    else:
        assert loop is program or loop == program
    dtype = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[element]
    for m, n, k in ((37, 20, 13), (3, 5, 0)):
        shapes: dict[str, tuple[int, ...]] = {"P": (m, k), "R": (k, n), "t": (m,)}
        given: dict[str, Any] = {
            x: RNG.integers(-4, 5, shape).astype(dtype) for x, shape in shapes.items() if x in text
        }
        given |= {"s": dtype(3)} if "s" in {x.name for x in program.inputs} else {}
        given = {x.name: given[x.name] for x in program.inputs}
        expected = evaluate(program, given)["C"]
        assert isinstance(expected, Dense)
        for algebra in (True, False) if k else (True,):
            np.testing.assert_allclose(
                task(text)(**given, algebra=algebra), expected.values, rtol=1e-6 * ("*=" in text)
            )


def test_sums_of_integers_wrap_around() -> None:
    p, r = RNG.integers(-9, 9, (5, 40)).astype(np.int32), RNG.integers(-9, 9, (40, 6)).astype(np.int32)
    t = np.full(5, 2**31 - 5, np.int32)
    text = "where (i, j) { reduce (k) { accum += P[i,k] * R[k,j] + t[i]; } C[i,j] = accum; }"
    expected = (p @ r).astype(np.int64) + 40 * t[:, None].astype(np.int64)
    np.testing.assert_array_equal(task(text)(P=p, R=r, t=t), expected.astype(np.int32))


def test_kernels_have_the_shorter_step() -> None:
    text = "P:f32[i,k];R:f32[k,j];t:f32[i];where(i,j){reduce(k){accum max= P[i,k]*R[k,j]+t[i];}C[i,j]=accum;}"
    assert lower(Task(5, 6, 7, text=text)).algebra.arrays == ()
    assert len(lower(Task(5, 6, 7, text=text, algebra=False)).algebra.arrays) == 1
    told = "rewriting: terms without k leave the loop, whose reduction becomes accum+"
    program = parse(text, {})
    assert any(line.startswith(told) for line in explanation(program))
    assert not any(line.startswith(told) for line in explanation(program, False))


@pytest.mark.parametrize(("step", "symmetric"), [
    ("max(X[i,k], X[j,k])", True), ("(X[i,k] - X[j,k]) * (X[i,k] - X[j,k])", True), ("abs(X[i,k] - X[j,k])", True),
    ("X[i,k] * X[j,k] * w[k]", True), ("X[i,k] * X[j,k] + t[i]", False), ("X[i,k] - X[j,k]", False),
    ("X[i,k] * X[k,j]", False), ("X[i,k] * X[j,k] + f32(i)", False),
])  # fmt: skip
def test_explanation_of_symmetric_tasks(step: str, symmetric: bool) -> None:
    text = f"where (i, j) {{ reduce (k) {{ accum += {step}; }} C[i,j] = accum; }}"
    lines = explanation(parse(text, {name: "f32" for name in "Xwt" if f"{name}[" in text}))
    assert any("(i, j) and (j, i) have the same reduction" in line for line in lines) == symmetric
