"""Tasks with several outputs: one kernel computes the reduction, and other kernels compute the outputs from it. A
kernel has one output. If K is large, the first kernel stores the reduction of each pair as a matrix, which the others
read.
"""

from __future__ import annotations

from functools import lru_cache

from ptxgen.expr.node import node, variable
from ptxgen.operations.task.assembling import program_of
from ptxgen.operations.task.group_sums import SUM_TYPES
from ptxgen.operations.task.program import ACCUMULATOR, Input, Output, Program, Store
from ptxgen.operations.task.roles import with_variables

#: names of inputs that no text can have: the two operands without elements, the matrix of the reduction, the extent of
#: k
LEFT, RIGHT, REDUCTION, EXTENT = "%a", "%b", "%accum", "%K"
LEAST_K = 32  #: from this K on, reading the reduction takes less time than computing it
MOST_BYTES = 1 << 30  #: the most bytes of a matrix of the reduction that no output stores


@lru_cache(maxsize=256)
def single(program: Program, output: Output) -> Program:
    """The program with only the output ``output``."""
    parts = program.step, program.reduction, program.accumulator
    return program_of(*parts, (output,), program.initial, program.when)


def stored_output(program: Program) -> Output | None:
    """The output that stores the reduction itself as a matrix, or None."""
    reduction = variable(ACCUMULATOR, program.accumulator)
    return next((x for x in program.outputs if isinstance(x, Store) and x == Store(x.name, reduction)), None)


@lru_cache(maxsize=256)
def storing(program: Program) -> Program:
    """The program that stores the reduction of each pair."""
    return single(program, Store(REDUCTION, variable(ACCUMULATOR, program.accumulator)))


@lru_cache(maxsize=256)
def reading(program: Program, output: Output) -> Program:
    """The program of one output that reads the stored reduction in place of computing it; its K is 0."""
    element_type = program.accumulator if program.accumulator in SUM_TYPES else "f32"
    a, b = (Input(name, element_type).variable(axes) for name, axes in ((LEFT, ("i", "k")), (RIGHT, ("k", "j"))))
    changes = {
        ACCUMULATOR: Input(REDUCTION, program.accumulator).variable(("i", "j")),
        "K": Input(EXTENT, "s32").variable(),
    }
    changed = with_variables(output, changes)
    return program_of(node("*", element_type, a, b), "+", element_type, (changed,), None, program.when)
