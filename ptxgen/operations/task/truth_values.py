"""Handles arrays of truth values, whose bytes are 0 or 1, in programs on bytes. A step that depends only on truth
values can be computed by counting bits (``lowering.bit_products``). Such a step is recognized if each element x of
these arrays is written as ``x != 0``, which has the same value.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ptxgen.expr.node import constant, node, rewritten
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.bit_products import truth_operator
from ptxgen.operations.task.lowering import inner_of
from ptxgen.operations.task.problem import read_again
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of


@lru_cache(maxsize=256)
def with_truth_values(program: Program, names: frozenset[str]) -> Program:
    """The program whose step reads the arrays ``names``, of type u8, as truth values, if kernels can then count bits;
    else ``program`` itself."""
    elements = {x.variable(axes) for x in program.inputs if x.name in names for axes in x.uses}
    if not elements or any(x.type != "u8" for x in elements):
        return program
    step = rewritten(
        program.step,
        lambda x: node("cast", "u8", node("!=", PRED, x, constant(0, "u8"))) if x in elements else x,
    )
    made = read_again(replace(program, step=step))
    algebra = inner_of(roles_of(made))
    return made if isinstance(algebra, InnerExpression) and truth_operator(algebra) else program
