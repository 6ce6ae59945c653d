"""Random programs of the language: each is read back from its canonical text, and its digest forgets names."""

from __future__ import annotations

import os
from random import Random

import pytest

from ptxgen.errors import TaskError
from ptxgen.expr.node import variables
from ptxgen.operations.task.assembling import renamed, roots
from ptxgen.operations.task.language.canonical import canonical, digest, erased
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import evaluate
from ptxgen.operations.task.program import Aggregate, RowReduce, Select, Store, Top
from tests.random_programs import ALL, OUTPUTS, Choices, random_arrays, random_program, square


def test_programs_are_read_back_from_their_canonical_text() -> None:
    """``PTXGEN_TEST_PROGRAMS`` is their number."""
    seen: set[str] = set()
    for seed in range(int(os.environ.get("PTXGEN_TEST_PROGRAMS", "200"))):
        draw = Random(seed)
        program = random_program(draw)
        text = canonical(program)
        assert parse(text) == program, text
        assert canonical(parse(text)) == text
        assert not set(text) & set(" \t\r\n"), text
        names = [x.name for x in program.inputs]
        others = [f"Q{n}" for n in range(len(names))]
        draw.shuffle(others)
        other = renamed(program, dict(zip(names, others, strict=True)), {x.name: f"z{x.name}" for x in program.outputs})
        assert digest(other) == digest(program), text
        bare, mapping = erased(program)
        assert erased(other)[0] == bare
        assert {mapping[x.name] for x in program.inputs} == {x.name for x in bare.inputs}
        seen |= {program.reduction, *(type(x).__name__ for x in program.outputs), *(x.dtype for x in program.inputs)}
        seen |= {use and "".join(use) for x in program.inputs for use in x.uses}
    assert set(ALL.reductions) | set(ALL.types) | {"Store", "Aggregate", "RowReduce", "Select"} <= seen
    assert {"ik", "ki", "kj", "jk", "ij", "ji", "i", "j", "k"} <= seen


@pytest.mark.parametrize("form", [*OUTPUTS, "top"])
def test_choices_are_kept(form: str) -> None:
    choices = Choices(
        reductions=("max", "+"),
        outputs=(form,),
        types=("f32", "u8"),
        functions=False,
        when=False,
        initial=False,
        most=1,
    )
    classes = {"store": Store, "aggregate": Aggregate, "rows": RowReduce, "select": Select, "top": Top}
    for seed in range(30):
        program = random_program(Random(seed), choices)
        assert program.reduction in ("max", "+")
        assert program.when is None
        assert program.initial is None
        assert [type(x) for x in program.outputs] == [classes[form]]
        assert parse(canonical(program)) == program
        assert {x.dtype for x in program.inputs if x.name not in ("gi", "gj")} <= {"f32", "u8"}
        assert not any(function in canonical(program) for function in ("exp(", "sqrt(", "log2(", "/"))


def test_steps_with_two_sides_read_one_array_of_each() -> None:
    for seed in range(60):
        program = random_program(Random(seed), Choices(sides=True, indices=False))
        sides = [frozenset(use) for x in program.inputs for use in x.uses if len(use) == 2 and "k" in use]
        assert sorted(map(sorted, sides)) == [["i", "k"], ["j", "k"]]
        assert all(len(x.uses) <= 1 for x in program.inputs)
        assert not {"i", "j", "k", "M", "N", "K"} & set(variables(*(x for x in roots(program) if x.op != "variable")))


def test_arrays_have_the_extents_of_the_program() -> None:
    for seed in range(30):
        draw = Random(seed)
        program = random_program(draw)
        extents = {axis: extent for group in square(program) for extent in [draw.choice((0, 1, 3))] for axis in group}
        arrays = random_arrays(program, extents, draw, 0.2)
        assert set(evaluate(program, arrays, extents)) == {x.name for x in program.outputs}
    program = parse("R: f32[i, k]; where (i, j) { reduce (k) { accum += R[i, k] * R[j, k]; } C[i, j] = accum; }")
    assert square(program) == [{"i", "j"}, {"k"}]
    with pytest.raises(TaskError, match="two shapes"):
        random_arrays(program, {"i": 2, "j": 3, "k": 1}, Random(0))
