"""Computes natural joins, the pairs with x[i] == y[j], on rows and columns in the order of their keys.

In this order the pairs of a key are adjacent, so most tiles have no pair, and kernels skip them (``Task.sorted_keys``).
A call counts the lesser keys to find the position of each row and column in this order, permutes the arrays, and
computes the program of the permuted arrays. Its results have the indices, group keys and elements of the original rows
and columns. Equal keys are in the order of their indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ptxgen.expr.node import Node, node, substituted, variable
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.assembling import array_of, mapped, program_of
from ptxgen.operations.task.joined_keys import joined_keys
from ptxgen.operations.task.lowering import algebra_of, in_loop
from ptxgen.operations.task.program import (
    AXES,
    POSITIONS,
    Distinct,
    Input,
    Output,
    Program,
    RowReduce,
    Scatter,
    Store,
    Top,
)
from ptxgen.operations.task.roles import Roles
from ptxgen.problem.dtypes import dtype

#: names of arrays of the program of permuted arrays: the original index of each row, and of each column
ROWS, COLUMNS = "rows", "columns"
#: names of arrays of the programs that permute: the positions along the first and the second axis, and the array to
#: permute
POSITION, OTHER, VALUES = "position", "other", "X"
#: from so many steps on, sorting and permuting takes less time than computing tiles without equal keys
LEAST = 1 << 33
LEAST_PRODUCTS = 1 << 36  #: the same for products that tensor cores compute
COMPARISON = 16  #: the time of a comparison of two keys, in steps
#: the most rows and columns: to count lesser keys takes memory for each tile of comparisons
MOST = 1 << 17


@dataclass(frozen=True)
class Join:
    """A join as a product of permuted arrays. ``program``: the program of the permuted arrays, with roles as names;
    ``keys``: the roles of the arrays of keys of rows and of columns; ``scattered``: the axis along which results are in
    the order of keys, and must be stored at the original indices; empty: none."""

    program: Program
    keys: tuple[str, str]
    scattered: str


@lru_cache(maxsize=256)
def join_of(roles: Roles) -> Join | None:
    """The program of permuted arrays that computes a program. None: the pairs of the program are not those of equal
    keys, or its results are positions."""
    program = roles.program
    keys = joined_keys(program.when)
    if keys is None or len(program.outputs) > 1:
        return None
    output = program.outputs[0]
    if isinstance(output, Top | Distinct) or (isinstance(output, RowReduce) and output.op in POSITIONS):
        return None
    indices = {"i": _index(ROWS, "i"), "j": _index(COLUMNS, "j")}
    changed = mapped(program, lambda x: substituted(x, indices))
    if isinstance(output, Store):
        stored = changed.outputs[0].value
        changed = _with_output(changed, Scatter("C", stored, indices["i"], indices["j"]))
    x, y = (array_of(str(key.value)) for key in keys)
    return Join(changed, (x, y), output.axis if isinstance(output, RowReduce) else "")


def pays(roles: Roles, extents: Mapping[str, int], compute: str = "") -> bool:
    """True if the join takes less time in the order of keys than over all pairs. ``compute``: the value of the task's
    field."""
    m, n, k = (extents[axis] for axis in AXES)
    narrow = dtype(roles.use("A").dtype).bytes < 4 or compute == "tf32"
    product = narrow and algebra_of(in_loop(roles)[0]) is PLUS_TIMES
    steps = m * n * k
    if max(m, n) > MOST:
        return False
    return steps >= (LEAST_PRODUCTS if product else LEAST) and COMPARISON * (m * m + n * n) <= steps


def _index(array: str, axis: str) -> Node:
    return Input(array, "s32").variable((axis,))


def _with_output(program: Program, output: Output) -> Program:
    parts = program.step, program.reduction, program.accumulator
    return program_of(*parts, (output,), program.initial, program.when)


def _of_pairs(output: Output) -> Program:
    """The program of an output without steps: its operands A and B have no elements."""
    a, b = Input("A", "f32").variable(("i", "k")), Input("B", "f32").variable(("k", "j"))
    return program_of(node("*", "f32", a, b), "+", "f32", (output,))


@lru_cache(maxsize=64)
def positions(element_type: str) -> Program:
    """The program that counts, for each element i of the array X of keys, the keys before it in the order of keys: the
    lesser keys, and equal keys with a lesser index. ``element_type``: the type of keys."""
    keys = Input(VALUES, element_type)
    mine, other = keys.variable(("i",)), keys.variable(("j",))
    i, j = variable("i", "s32"), variable("j", "s32")
    equal = node("&", PRED, node("==", PRED, other, mine), node("<", PRED, j, i))
    before = node("|", PRED, node("<", PRED, other, mine), equal)
    return _of_pairs(RowReduce("C", cast(before, "s32"), "i", "+"))


@lru_cache(maxsize=64)
def permuting(element_type: str, axes: tuple[str, ...]) -> Program:
    """The program that stores the element (i, j) of the array X at the positions of i and j. ``element_type``: the type
    of its elements; ``axes``: the axes of the array in the task, of which k keeps its order. An array with one axis is
    a column."""
    column = len(axes) == 1
    values = Input(VALUES, element_type).variable(("i",) if column else ("i", "j"))
    keys: list[Node] = []
    for axis, name, array in zip("ij", (*axes, "k"), (POSITION, OTHER), strict=False):
        keys.append(variable(axis, "s32") if name == "k" else _index(array, axis))
    return _of_pairs(Scatter("C", values, *keys))


@lru_cache(maxsize=1)
def inverse() -> Program:
    """The program that stores each index i at the position of i, in a column."""
    return _of_pairs(Scatter("C", variable("i", "s32"), _index(POSITION, "i"), variable("j", "s32")))
