"""Vectors of rows and columns with which tasks are timed. The number of candidates of a filter depends on them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.expr.node import Node, variables, walk
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.assembling import array_of
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import ACCUMULATOR, Select
from ptxgen.problem.reference import Array


def typical_vectors(p: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Vectors by role, as users pass them with sums of products of floats: an addend of the sum is the sum of squares
    of the row of A or the column of B, as in a squared distance, and a factor is its reciprocal norm, as in a cosine.
    ``arrays``: the operands by role, with the axes by which the program indexes them."""
    output = p.program.outputs[0]
    if p.accumulator.integer or p.batch > 1 or algebra_of(p.roles) is not PLUS_TIMES:
        return {}
    combined = _combined(output.condition if isinstance(output, Select) else output.value)
    vectors = {}
    for use in p.roles.others:
        operator = combined.get(use.role)
        if use.axes in (("i",), ("j",)) and use.dtype == p.accumulator.name and operator is not None:
            role = "A" if use.axes == ("i",) else "B"
            along = p.roles.use(role).axes.index("k")
            squares = np.square(arrays[role], dtype=np.float64).sum(along)
            values = squares if operator in ("+", "-") else 1 / np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
            vectors[use.role] = values.astype(p.accumulator.numpy)
    return vectors


def _combined(value: Node) -> dict[str, str]:
    """Name of an array -> the operator that combines it with a value of the sum."""
    combined: dict[str, str] = {}
    for x in walk(value):
        if x.op in ("+", "-", "*", "/") and ACCUMULATOR in variables(x):
            for free in (y for y in x.arguments if ACCUMULATOR not in variables(y)):
                combined |= dict.fromkeys((array_of(name) for name in variables(free)), x.op)
    return combined
