"""Programs that list the pairs among which are the greatest or least values of a program's output."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.expr.node import variable
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.assembling import program_of
from ptxgen.operations.task.program import Program, Select, Top

INDICES = tuple(variable(axis, "s32") for axis in "ij")


@lru_cache(maxsize=256)
def listing(program: Program) -> Program:
    """The program that lists the value, i and j of all pairs that count."""
    output = program.outputs[0]
    assert isinstance(output, Top)
    parts = program.step, program.reduction, program.accumulator
    listed = Select(output.name, output.value, output.condition, (output.value, *INDICES))
    return program_of(*parts, (listed,), program.initial, program.when)


def missing(kind: str, greatest: bool) -> float:
    """The value of a place without a pair: no number is behind it."""
    t = type_of(kind)
    return t.least if greatest else t.greatest
