"""Gradients of tasks: their programs, computed by the oracle, against differences of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxgen.errors import TaskError
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.gradients import Computed, Filled, Gradients, gradients
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import evaluate, extents_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.suites import SUITES

DRAW = np.random.default_rng(3)
EXTENTS = {"i": 3, "j": 4, "k": 5}
TYPES = dict.fromkeys(("A", "B", "t", "u", "w", "E", "s"), "f64")


def result(program: Program, arrays: dict[str, Any], extents: dict[str, int]) -> Any:
    """The result of the only output."""
    with np.errstate(all="ignore"):
        [value] = evaluate(program, arrays, extents).values()
    values = value.values
    return values if value.written is None else np.where(value.written, values, 0)


def computed(program: Program, arrays: dict[str, Any], gradient: Any, plan: Gradients) -> dict[str, Any]:
    """The gradients by array."""
    extents = extents_of(program, arrays)
    known = {**arrays, plan.gradient: gradient, plan.result: result(program, arrays, extents)}
    known |= {name: np.int32(extents[axis]) for name, axis in plan.extents.items()}
    for step in plan.steps:
        if isinstance(step, Filled):
            known[step.name] = np.full([extents[axis] if axis else 0 for axis in step.axes], step.value)
        elif isinstance(step, Computed):
            own = {x.name: known[x.name] for x in step.program.inputs}
            known[step.name] = result(step.program, own, extents_of(step.program, own))
        else:
            known[step.name] = known[step.array][places(step.axes, known[step.positions])]
    slopes = {}
    for name, parts in plan.parts.items():
        slopes[name] = np.zeros(np.shape(arrays[name]))
        for part in parts:
            if part.gathered is None:
                slopes[name] += known[part.name]
            else:
                at = places(part.gathered.axes, known[part.gathered.positions])
                np.add.at(slopes[name], at, known[part.name])
    return slopes


def places(axes: tuple[str, ...], positions: Any) -> tuple[Any, ...]:
    i, j = np.indices(positions.shape)
    return tuple({"i": i, "j": j, "k": positions}[axis] for axis in axes)


def differences(program: Program, arrays: dict[str, Any], name: str, gradient: Any) -> Any:
    """The gradient of an array by central differences."""
    extents, quotients = extents_of(program, arrays), np.zeros(arrays[name].shape)
    for at in np.ndindex(quotients.shape):
        ends = []
        for sign in (1, -1):
            changed = arrays[name].copy()
            changed[at] += sign * 2.0**-20
            ends.append(result(program, {**arrays, name: changed}, extents))
        quotients[at] = ((ends[0] - ends[1]) * gradient).sum() * 2.0**19
    return quotients


def check(program: Program, expand: bool = False) -> None:
    arrays = {}
    for x in program.inputs:
        shape = [EXTENTS[axis] for axis in (x.uses[0] if x.uses else ())]
        arrays[x.name] = DRAW.uniform(0.5, 2, shape) * DRAW.choice((-1, 1), shape)
        if x.dtype != "f64":
            arrays[x.name] = np.asarray(arrays[x.name] * 4).astype(np.int32)
    wanted = frozenset(x.name for x in program.inputs if x.uses and x.dtype == "f64")
    gradient = DRAW.standard_normal(result(program, arrays, EXTENTS).shape)
    slope = computed(program, arrays, gradient, gradients(program, wanted, expand))
    for name in wanted:
        expected = differences(program, arrays, name, gradient)
        np.testing.assert_allclose(slope.get(name, 0 * expected), expected, rtol=1e-4, atol=1e-4, err_msg=f"d{name}")


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize(
    ("step", "output"),
    [
        ("accum += abs(A[i,k] - B[j,k]);", "C[i,j] = accum;"),
        ("accum += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j]);", "C[j,i] = sqrt(accum);"),
        ("accum += A[i,k]*B[j,k] + (A[i,k]*B[j,k] > t[i]) * (A[i,k]*B[j,k] - t[i]);", "C[i,j] = accum;"),
        ("accum += abs(A[k,i] - B[j,k]) / (abs(A[k,i]) + abs(B[j,k]));", "C[i,j] = accum * t[i] + E[i,j] * accum;"),
        ("accum += A[i,k] * u[j] + abs(B[k,j] - E[i,j]) * w[k];", "C[i] += accum * accum * s;"),
        ("accum += max(A[i,k], u[j]) + B[j,k];", "C[j] mean= accum;"),
        ("accum += fma(A[i,k], B[j,k], w[k]);", "C[i] max= accum * K;"),
        ("accum mean= min(A[i,k], B[j,k]) * t[i] * t[i];", "C[j] min= accum;"),
        ("accum max= A[i,k] + B[j,k] * w[k];", "C[i,j] = accum * u[j];"),
        ("accum = fmin(accum, abs(A[i,k] - B[j,k]) + k);", "C[i] += accum;"),
        ("accum += A[i,k] < B[j,k] ? A[i,k] * E[j,i] : B[j,k] / (2 + A[i,k] * A[i,k]);", "C[i,j] = accum / M;"),
        ("accum += A[i,k] * A[i,k] * B[k,j];", "C[i,j] = accum;"),
        ("accum += (A[i,k] < B[k,j]) + (B[k,j] > 1);", "C[i,j] = accum * t[i];"),
    ],
)
def test_gradients_are_differences_of_results(step: str, output: str, expand: bool) -> None:
    when = "when (i != j)" if "max" in output else ""
    check(parse(f"where (i, j) {when} {{ reduce (k) {{ {step} }} {output} }}", TYPES), expand)


def test_the_suite_has_gradients_as_tasks() -> None:
    texts = [x.problem.description[0] for x in SUITES["gradients"].build() if x.problem.m == 1024]
    l1, l2, q1 = texts
    assert "A:f32[i,k];B:f32[k,j];input0:f32[i,j];" in l1
    assert "accum+=(input0[i,j]-B[k,j])*A[i,k];}C[i,j]=accum*2;" in l2
    assert "f32(input0[i]<B[j,k]*input1[i,j])" in q1


@pytest.mark.parametrize(
    ("step", "output", "message"),
    [
        ("accum *= A[i,k] + B[j,k];", "C[i,j] = accum;", "`[*]` has no derivative as a reduction over k"),
        ("accum += A[i,k] + B[j,k];", "C[i] *= accum;", "`[*]` has no derivative as a reduction of rows"),
        ("accum += A[i,k] + B[j,k];", "accum > 0 ? h.add(i, j);", "h is a list, which has no derivative"),
        ("accum += A[i,k] + B[j,k];", "C[g[i], h[j]] += accum;", "C is a result in groups, which has no"),
    ],
)
def test_what_has_no_gradient(step: str, output: str, message: str) -> None:
    program = parse(f"where (i, j) {{ reduce (k) {{ {step} }} {output} }}", {**TYPES, "g": "s32", "h": "s32"})
    with pytest.raises(TaskError, match=message):
        gradients(program, frozenset("A"), False)


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_gradients_of_products_of_matrices_are_kernels_of_gemms(dtype: str) -> None:
    text = f"where (i, j) {{ reduce (k) {{ accum += A[i,k] * B[k,j]; }} C[i,j] = {dtype}(accum); }}"
    names = []
    for step in gradients(parse(text, {"A": dtype, "B": dtype}), frozenset("AB"), False).steps:
        assert isinstance(step, Computed)
        roles = roles_of(step.program)
        names.append(lower(Task(8, 8, 8, roles.layout, "", text=Task.text_of(roles))).name)
    assert sorted(names) == [f"gemm_{dtype}_nt", f"gemm_{dtype}_tn"]
