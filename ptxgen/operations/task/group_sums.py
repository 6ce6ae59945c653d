"""Computes sums of products in groups from sums of rows and of columns in groups.

If C[g[i],h[j]] += c · Σ_k A[i,k]·B[k,j], then C[g,h] = c · Σ_k (Σ_i A[i,k]) · (Σ_j B[k,j]), with i in group g and j in
group h: (M + N)·K additions and the product of the sums replace the product of the matrices. Sums of integers do not
depend on the order, modulo a power of two. Sums of floats are as exact as the sums over all pairs; infinities and NaN
may give other results, because they reach all sums of their group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ptxgen.expr.node import Node, constant, node, select, variable, variables
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import PRED
from ptxgen.operations.task.assembling import array_of, axes_of
from ptxgen.operations.task.joined_keys import exact_source
from ptxgen.operations.task.program import ACCUMULATOR, AXES, Aggregate, Input, Program, Store
from ptxgen.operations.task.roles import Roles, Use

SUM_TYPES = ("f32", "f64", "s32", "u32")  #: the types of sums that are computed so
#: from so many steps on, three launches take less time than one
LEAST = 1 << 28
FEWER = 4  #: there must be at least so many pairs (i, j) for each pair of groups
#: up to so many pairs of groups, one kernel computes all products, even if only those of equal groups are wanted: that
#: takes less time than a kernel that stores zeros and a second one that computes fewer tiles
ALL_PAIRS = 1 << 15


@dataclass(frozen=True)
class Sums:
    """The sums of one operand in groups. ``program``: a program of the arrays X, the operand, and ``key``; its own A
    and B have no elements; ``array``, ``key``: the names of both arrays in the task; ``keyed_first``: True if keys are
    along the first axis of X."""

    program: Program
    array: str
    key: str
    keyed_first: bool

    def shape(self, groups: int, k: int) -> tuple[int, int]:
        """The shape of the array of sums."""
        return (groups, k) if self.keyed_first else (k, groups)


@dataclass(frozen=True)
class GroupSums:
    """A task of sums in groups as a product of sums. ``rows``, ``columns``: the sums for the rows and for the columns
    of C; ``product``: the program of their product, with these sums as A and B. If only elements of equal groups are
    wanted, ``zeros`` is a program that first makes all elements 0, and ``masked`` a product that stores 0 in the other
    elements."""

    rows: Sums
    columns: Sums
    product: Program
    zeros: Program | None = None
    masked: Program | None = None

    def products(self, groups: tuple[int, int]) -> tuple[Program | None, Program]:
        """The program that makes elements 0 before the product, or None, and the program of the product. ``groups``:
        the rows and columns of C."""
        rows, columns = groups
        if self.masked is not None and rows * columns <= ALL_PAIRS:
            return None, self.masked
        return self.zeros, self.product


@lru_cache(maxsize=256)
def group_sums(roles: Roles) -> GroupSums | None:
    """The sums in groups whose product is the result of a program; None: the program is not a sum of products in
    groups."""
    program = roles.program
    output, accumulator = program.outputs[0], program.accumulator
    if (
        len(program.outputs) > 1
        or not isinstance(output, Aggregate)
        or output.op != "+"
        or accumulator not in SUM_TYPES
    ):
        return None
    if program.reduction != "+" or program.initial is not None or not _is_product(program, roles):
        return None
    if output.value.type != accumulator or not _is_linear(output.value):
        return None
    keys = [axes_of(str(x.value)) if x.op == "variable" else () for x in (output.row, output.column)]
    if sorted(keys) != [("i",), ("j",)] or not _compares(program.when, output):
        return None
    made = []
    for key, axes in zip((output.row, output.column), keys, strict=True):
        use = roles.use("A" if axes == ("i",) else "B")
        made.append(_sums(use, next(u for u in roles.others if u.role == array_of(str(key.value))), accumulator))
    rows, columns = made
    product = _product(program, output.value, rows, columns)
    if program.when is None:
        return GroupSums(rows, columns, product)
    diagonal = node("==", PRED, variable("i", "s32"), variable("j", "s32"))
    zeros = replace(product, inputs=product.inputs[:2], outputs=(Store("C", variable(ACCUMULATOR, accumulator)),))
    masked = replace(product, outputs=(Store("C", select(diagonal, output.value, constant(0, accumulator))),))
    return GroupSums(rows, columns, replace(product, when=diagonal), zeros, masked)


def pays(extents: Mapping[str, int], groups: tuple[int, int]) -> bool:
    """True if sums in groups take less time than the product of the matrices. ``extents``: the extents of i, j and
    k."""
    (m, n, k), (rows, columns) = (extents[axis] for axis in AXES), groups
    return m * n * k >= LEAST and 0 < FEWER * rows * columns <= m * n and rows <= m and columns <= n


def _is_product(program: Program, roles: Roles) -> bool:
    """True if the step is the product of an element of A and one of B, in the type of the reduction."""
    accumulator = program.accumulator
    a, b = (
        cast(variable(f"{u.role}[{','.join(u.axes)}]", u.dtype), accumulator) for u in (roles.use("A"), roles.use("B"))
    )
    return program.step in (node("*", accumulator, a, b), node("*", accumulator, b, a))


def _is_linear(value: Node) -> bool:
    """True if a value is the reduction, times numbers."""
    if value.op == "variable":
        return value is variable(ACCUMULATOR, value.type)
    if value.op == "neg":
        return _is_linear(value.arguments[0])
    if value.op == "*":
        return any(_is_linear(x) and _is_number(y) for x, y in (value.arguments, value.arguments[::-1]))
    return value.op == "/" and _is_linear(value.arguments[0]) and _is_number(value.arguments[1])


def _is_number(x: Node) -> bool:
    """True if a value does not depend on the pair or on the extents M and N."""
    return not any("[" in name or name in (*AXES, "M", "N", ACCUMULATOR) for name in variables(x))


def _compares(when: Node | None, output: Aggregate) -> bool:
    """True if all pairs are computed, or exactly the pairs whose keys are equal."""
    if when is None:
        return True
    keys = [output.row, output.column]
    return when.op == "==" and [exact_source(x) for x in when.arguments] in (keys, keys[::-1])


def _operands(element_type: str, *axes: tuple[str, str]) -> tuple[tuple[Input, Input], Node]:
    """The inputs A and B with these axes, and the expression of their product."""
    a, b = Input("A", element_type, axes[:1]), Input("B", element_type, axes[1:])
    return (a, b), node("*", element_type, a.variable(axes[0]), b.variable(axes[1]))


def _sums(use: Use, key: Use, element_type: str) -> Sums:
    """The sums of an operand in the groups of a key."""
    keyed_first = use.axes[0] != "k"
    operands, step = _operands(element_type, ("i", "k"), ("k", "j"))
    x = Input("X", use.dtype, (("i", "j"),))
    keys = Input("key", key.dtype, (("i",) if keyed_first else ("j",),))
    row, column = variable("i", "s32"), variable("j", "s32")
    row, column = (keys.variable(("i",)), column) if keyed_first else (row, keys.variable(("j",)))
    output = Aggregate("C", cast(x.variable(("i", "j")), element_type), row, column, "+")
    return Sums(Program((*operands, keys, x), step, "+", element_type, (output,)), use.name, key.name, keyed_first)


def _product(program: Program, value: Node, rows: Sums, columns: Sums) -> Program:
    """The program of the product of the sums ``rows`` and ``columns``, which stores ``value``."""
    operands, step = _operands(
        program.accumulator,
        ("i", "k") if rows.keyed_first else ("k", "i"),
        ("j", "k") if columns.keyed_first else ("k", "j"),
    )
    scalars = tuple(x for x in program.inputs if x.name in variables(value))
    return Program((*operands, *scalars), step, "+", program.accumulator, (Store("C", value),))
