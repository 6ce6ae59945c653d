"""The roles of the arrays of programs in kernels."""

from __future__ import annotations

from random import Random

import pytest

from ptxgen.errors import InputError
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.roles import roles_of
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
        assert all(u.name in (u.role, "A" if u.role == "B" else u.role) for u in again.uses)
        assert [name for _, name, _ in again.scalars] == [role for role, _, _ in again.scalars]
        assert [(u.role, u.axes, u.dtype) for u in again.uses] == [(u.role, u.axes, u.dtype) for u in roles.uses]
        checked += 1
