"""Tasks with several outputs: one kernel computes the reduction, others compute outputs from it.

A kernel has one output. Where K is large, the first one stores the reduction of each pair as a matrix, and the others
read it.
"""

from __future__ import annotations

from functools import lru_cache

from ptxgen.expr.node import node, variable
from ptxgen.operations.task.assembling import program_of
from ptxgen.operations.task.group_sums import SUM_TYPES
from ptxgen.operations.task.program import ACCUMULATOR, Input, Output, Program, Store
from ptxgen.operations.task.roles import with_variables

#: names that no text gives an input: operands without elements, the matrix of the reduction, the extent of k
LEFT, RIGHT, REDUCTION, EXTENT = "%a", "%b", "%accum", "%K"
LEAST_K = 32  #: from which reading the reduction takes less time than computing it
MOST_BYTES = 1 << 30  #: of a matrix of the reduction that no output stores


@lru_cache(maxsize=256)
def single(program: Program, output: Output) -> Program:
    """The program with one of its outputs."""
    parts = program.step, program.reduction, program.accumulator
    return program_of(*parts, (output,), program.initial, program.when)


def stored_output(program: Program) -> Output | None:
    """The output that is the reduction itself, as a matrix; None: there is none."""
    reduction = variable(ACCUMULATOR, program.accumulator)
    return next((x for x in program.outputs if isinstance(x, Store) and x == Store(x.name, reduction)), None)


@lru_cache(maxsize=256)
def storing(program: Program) -> Program:
    """The program that stores the reduction of each pair."""
    return single(program, Store(REDUCTION, variable(ACCUMULATOR, program.accumulator)))


@lru_cache(maxsize=256)
def reading(program: Program, output: Output) -> Program:
    """The program of one of the outputs that reads the reduction, and has no k."""
    element_type = program.accumulator if program.accumulator in SUM_TYPES else "f32"
    a, b = (Input(name, element_type).variable(axes) for name, axes in ((LEFT, ("i", "k")), (RIGHT, ("k", "j"))))
    changes = {
        ACCUMULATOR: Input(REDUCTION, program.accumulator).variable(("i", "j")),
        "K": Input(EXTENT, "s32").variable(),
    }
    changed = with_variables(output, changes)
    return program_of(node("*", element_type, a, b), "+", element_type, (changed,), None, program.when)
