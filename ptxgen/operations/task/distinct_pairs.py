"""The two programs that find distinct pairs of keys: the first marks the groups that have a pair, the second lists the
marked groups."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.expr.node import constant, node, variable
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import PRED
from ptxgen.operations.task.assembling import program_of
from ptxgen.operations.task.program import Aggregate, Distinct, Input, Program, Select

MARKS = "marks"  #: the name of the array of marks that the second program reads


@lru_cache(maxsize=256)
def marking(program: Program) -> Program:
    """The program that marks the groups with a pair for which the condition holds."""
    output = program.outputs[0]
    assert isinstance(output, Distinct)
    parts = program.step, program.reduction, program.accumulator
    marks = Aggregate(output.name, cast(output.value, "s32"), output.row, output.column, "|")
    return program_of(*parts, (marks,), program.initial, program.when)


@lru_cache(maxsize=1)
def listing() -> Program:
    """The program that lists the marked groups. Its operands A and B have no elements."""
    a, b = Input("A", "f32").variable(("i", "k")), Input("B", "f32").variable(("k", "j"))
    i, j = variable("i", "s32"), variable("j", "s32")
    marked = node("!=", PRED, Input(MARKS, "s32").variable(("i", "j")), constant(0, "s32"))
    return program_of(node("*", "f32", a, b), "+", "f32", (Select("C", i, marked, (i, j)),))
