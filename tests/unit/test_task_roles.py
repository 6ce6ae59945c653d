"""The roles of the arrays of programs in kernels."""

from __future__ import annotations

from random import Random

import pytest

from ptxgen.errors import InputError
from ptxgen.operations.task.checks import random_arrays
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.symmetry import computes_half
from ptxgen.problem.registry import parse as parse_problem
from tests.random_programs import random_program


@pytest.mark.parametrize("seed", range(20))
def test_roles_are_the_names_in_the_text_of_a_problem(seed: int) -> None:
    """Calls bind arrays by the roles of their program, kernels by those of the text, in which the first use of an array
    may be at another place."""
    draw, checked = Random(seed), 0
    while checked < 10:
        program = parse(canonical(random_program(draw)))
        try:
            roles = roles_of(program)
        except InputError:
            continue
        if len(program.outputs) > 1:
            continue
        again = roles_of(parse(Task.text_of(roles)))
        assert computes_half(again) == computes_half(roles)
        assert [name for _, name, _ in again.scalars] == [role for role, _, _ in again.scalars]
        assert [(u.role, u.axes, u.dtype) for u in again.uses] == [(u.role, u.axes, u.dtype) for u in roles.uses]
        checked += 1


@pytest.mark.parametrize(
    "body",
    [
        "reduce (k) { accum = max(accum, r[i] * r[j] - abs(X[i,k] - X[j,k])); } C[i] = min(C[i], accum + c[j]);",
        "reduce (k) { accum += (v[i,j] + v[j,i]) * min(X[i,k], X[j,k]); } C[i,j] = accum * r[i];",
        "when (r[i] < r[j] or r[j] < r[i]) { reduce (k) { accum += abs(X[i,k] - X[j,k]); } C[i,j] = accum; }",
    ],
)
def test_the_text_of_a_problem_names_each_array_once(body: str) -> None:
    """The problem of the text also computes half of the pairs; with two arrays in place of r or v it computes all."""
    where = f"where (i, j) {body}" if body.startswith("when") else f"where (i, j) {{ {body} }}"
    p = Task(40, 40, 12, text=where)
    again = parse_problem(p.key())
    assert again == p
    assert again.mirrored
    arrays = random_arrays(p)
    assert arrays["input1"] is arrays["input0"]
    assert not Task(40, 40, 12, text=where.replace("r[j]", "q[j]").replace("v[j,i]", "w[j,i]")).mirrored
