"""The program of a task: what text and Python functions become, and what kernels are generated from.

A program computes, for each pair (i, j) of its index set, the reduction over k of a step, and gives the result to an
output. The variables of its expressions are:

- ``P[i,k]``: the element of array P at these axes; another use of P with other axes is another variable;
- a name alone: a scalar;
- ``i``, ``j``, ``k``: the indices, of type s32;
- ``M``, ``N``, ``K``: their extents, of type s32;
- ``accum``: the reduction over k, in outputs alone. The reductions argmin and argmax give a position, of type s32: the
  first of equal ones, or of NaNs; −1 if there is no k.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.expr.node import Node, variable

ACCUMULATOR = "accum"
AXES = ("i", "j", "k")
EXTENTS = ("M", "N", "K")  #: of the axes, in the same order
#: reductions over k that are no operator: the position of an extreme, and the mean
POSITIONS = ("argmin", "argmax")
MEAN = "mean"
#: the most values that an output of the greatest or least ones has
MOST_TOP = 1 << 16


@dataclass(frozen=True)
class Input:
    """An array, or a scalar. ``dtype``: of its elements; ``uses``: the axes of each use, as ``("i", "k")``, in the
    order in which the array is stored; a scalar has none."""

    name: str
    dtype: str
    uses: tuple[tuple[str, ...], ...] = ()

    def variable(self, axes: tuple[str, ...] = ()) -> Node:
        """The variable of an element at these axes, or of the scalar."""
        return variable(f"{self.name}[{','.join(axes)}]" if axes else self.name, self.dtype)


@dataclass(frozen=True)
class Output:
    """Where results go. ``name``: of the array. Its type is that of ``value``."""

    name: str
    value: Node


@dataclass(frozen=True)
class Store(Output):
    """C[i,j] = value. ``axes``: ``("i", "j")``, or ``("j", "i")``: C is stored by columns."""

    axes: tuple[str, str] = ("i", "j")


@dataclass(frozen=True)
class Aggregate(Output):
    """C[row,column] op= value: many pairs (i, j) have one element. ``row``, ``column``: variables of key arrays, or of
    an index; ``op``: +, *, max, min, &, | or ^."""

    row: Node
    column: Node
    op: str


@dataclass(frozen=True)
class Scatter(Output):
    """C[row,column] = value. ``row``, ``column``: as of ``Aggregate``; pairs must have different keys. Elements without
    a pair keep their values; pairs with a key out of range are not stored."""

    row: Node
    column: Node


@dataclass(frozen=True)
class Distinct(Output):
    """The pairs of keys (row, column) that a pair (i, j) has for which ``value`` holds, a condition, each once.
    ``row``, ``column``: as of ``Aggregate``."""

    row: Node
    column: Node


@dataclass(frozen=True)
class RowReduce(Output):
    """C[axis] op= value, over the other spatial axis. ``axis``: i or j. ``op``: an operator, or argmin, argmax,
    logsumexp or mean."""

    axis: str
    op: str


@dataclass(frozen=True)
class Select(Output):
    """The ``values`` of the pairs for which ``condition`` holds (the constant True: of all), as a list of unspecified
    order. ``value`` is the first of ``values``."""

    condition: Node
    values: tuple[Node, ...]


@dataclass(frozen=True)
class Top(Output):
    """The ``count`` greatest values, or the least ones, of the pairs for which ``condition`` holds, the best first,
    with their indices. ``count``: a constant, or the variable of a scalar, of type s32; ``axis``: i or j, then of each
    row or column; empty: of all pairs; ``greatest``: False: the least ones.

    NaN is greater than all numbers. Of equal values, the first in the order of (i, j) is the better one."""

    condition: Node
    count: Node
    axis: str
    greatest: bool


@dataclass(frozen=True)
class Program:
    """What the text of a task means. ``inputs``: arrays and scalars in the order of first use; ``step``: what each k
    adds to the reduction; ``reduction``: an operator of ``expr.operators``, or argmin, argmax or mean; ``accumulator``:
    the type of ``accum``; ``initial``: combined once with the reduction, None: nothing; ``when``: the pairs (i, j) that
    are computed, None: all; ``outputs``: at least one."""

    inputs: tuple[Input, ...]
    step: Node
    reduction: str
    accumulator: str
    outputs: tuple[Output, ...]
    initial: Node | None = None
    when: Node | None = None
