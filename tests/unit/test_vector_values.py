"""Values of vectors alone in the programs of exact filters."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.expr.evaluate import values
from ptxgen.expr.node import variables, walk
from ptxgen.operations.task.exact_nearest import ExactNearest
from ptxgen.operations.task.language.texts import parse
from ptxgen.operations.task.pair_suites import KNN, cases
from ptxgen.operations.task.program import RowReduce, Select
from ptxgen.operations.task.vector_values import separated
from ptxgen.problem.device import device

TYPES = {"A": "f32", "B": "f32", "p": "f32", "r": "f32", "s": "f32", "n": "s32"}
STEP = "where (i, j) {{ reduce (k) {{ accum += A[i,k] * B[j,k]; }} {} }}"


def test_a_value_of_one_vector_is_an_array_in_all_programs() -> None:
    root = "accum * sqrt(abs(p[i]) + s)"
    texts = (STEP.format(f"C[i] min= {root};"), STEP.format(f"{root} < 1 - r[j] ? C.add(i, j);"))
    programs = [parse(x, TYPES) for x in texts]
    (least, listed), made = separated(programs)
    assert [(x.name, x.axis) for x in made] == [("row_values_0", "i"), ("column_values_1", "j")]
    assert isinstance(least.outputs[0], RowReduce)
    assert set(variables(least.outputs[0].value)) == {"accum", "row_values_0[i]"}
    assert isinstance(listed.outputs[0], Select)
    assert set(variables(listed.outputs[0].condition)) == {"accum", "row_values_0[i]", "column_values_1[j]"}
    assert {x.name for x in listed.inputs} == {"A", "B", "row_values_0", "column_values_1"}
    column = made[1].program(programs[1].inputs)
    assert {x.name: x.uses for x in column.inputs if x.name == "r"} == {"r": (("i",),)}
    (value,) = values([column.outputs[0].value], {"r[i]": np.float32([0.25, 3])})
    np.testing.assert_array_equal(value, np.float32([0.75, -2]))


@pytest.mark.parametrize(
    "value",
    [
        "max(accum - (p[i] + r[j]) * s, f32(n[i]) * f32(i))",  # of pairs and of indices
        "accum + p[i] * p[i]",  # kernels contract it
        "accum * sqrt(p[i] * p[i]) + p[i] * p[i]",  # of two uses, which kernels do not
    ],
)
def test_other_values_stay(value: str) -> None:
    program = parse(STEP.format(f"C[i] min= {value};"), TYPES)
    (same,), made = separated([program])
    assert made == []
    assert same.outputs[0].value is program.outputs[0].value


def test_candidates_of_nearest_rows_take_few_instructions() -> None:
    for case in cases(KNN, ((1 << 16, 1 << 16, 64),)):
        exact = ExactNearest.of(case.problem, device("h200"))
        if exact is not None:
            for stage in exact.stages[-2:]:
                output = stage.problem.program.outputs[0]
                value = output.condition if isinstance(output, Select) else output.value
                assert not {"sqrt", "select"} & {x.op for x in walk(value)}, case.name


def test_values_that_are_used_often_are_visited_once() -> None:
    value = "accum + p[i]"
    for _ in range(5):
        value = f"max({value}, r[j]) - min({value}, -r[j])"
    (program,), made = separated([parse(STEP.format(f"C[i] min= {value};"), TYPES)])
    assert [x.name for x in made] == ["column_values_0"]
    assert "column_values_0[j]" in variables(program.outputs[0].value)
