"""The program of a task: texts and Python functions are converted to it, and kernels are generated from it.

A program computes, for each pair (i, j) of its index set, the reduction over k of a step, and passes the result to its
outputs. The variables of its expressions are:

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
EXTENTS = ("M", "N", "K")  #: the names of the extents, in the order of ``AXES``
#: reductions over k that are not operators: the position of an extreme; and the mean
POSITIONS = ("argmin", "argmax")
MEAN = "mean"
#: the most values of a row, and the largest K, for which kernels keep the best values of rows
MOST_KEPT, LONGEST_KEPT = 32, 32
#: the most values that an output of the greatest or least values may have
MOST_TOP = 1 << 16


@dataclass(frozen=True)
class Input:
    """An array or a scalar that a program reads. ``dtype``: the type of its elements; ``uses``: for each use of the
    array its axes, as ``("i", "k")``, in the order in which the array is stored; empty: it is a scalar."""

    name: str
    dtype: str
    uses: tuple[tuple[str, ...], ...] = ()

    def variable(self, axes: tuple[str, ...] = ()) -> Node:
        """The variable for the element at these axes, or for the scalar."""
        return variable(f"{self.name}[{','.join(axes)}]" if axes else self.name, self.dtype)


@dataclass(frozen=True)
class Output:
    """An output of a program. ``name``: the name of its array; ``value``: the expression of its results, whose type the
    array has."""

    name: str
    value: Node


@dataclass(frozen=True)
class Store(Output):
    """C[i,j] = value. ``axes``: ``("i", "j")``, or ``("j", "i")``: C is stored by columns."""

    axes: tuple[str, str] = ("i", "j")


@dataclass(frozen=True)
class Aggregate(Output):
    """C[row,column] op= value: many pairs (i, j) are reduced to one element. ``row``, ``column``: variables of key
    arrays, or of an index; ``op``: +, *, max, min, &, | or ^."""

    row: Node
    column: Node
    op: str


@dataclass(frozen=True)
class Scatter(Output):
    """C[row,column] = value. ``row``, ``column``: as for ``Aggregate``; no two pairs may have the same keys. Elements
    without a pair keep their values; pairs with a key out of range are not stored."""

    row: Node
    column: Node


@dataclass(frozen=True)
class Distinct(Output):
    """The distinct pairs of keys (row, column) of the pairs (i, j) for which ``value``, a condition, holds. ``row``,
    ``column``: as for ``Aggregate``."""

    row: Node
    column: Node


@dataclass(frozen=True)
class RowReduce(Output):
    """C[axis] op= value, reduced over the other spatial axis. ``axis``: i or j. ``op``: an operator, or argmin, argmax,
    logsumexp or mean."""

    axis: str
    op: str


@dataclass(frozen=True)
class Select(Output):
    """The ``values`` of the pairs for which ``condition`` holds (the constant True: of all pairs), as a list of
    unspecified order. ``value`` is the first of ``values``."""

    condition: Node
    values: tuple[Node, ...]


@dataclass(frozen=True)
class Top(Output):
    """The ``count`` greatest values, or the least ones, of the pairs for which ``condition`` holds, the best first,
    with their indices. ``count``: a constant of type s32, or the variable of a scalar of this type; ``axis``: i: the
    values of each row, j: of each column, empty: of all pairs; ``greatest``: True: the greatest values, False: the
    least ones.

    NaN is greater than all numbers. Of equal values, the first in the order of (i, j) is the better one."""

    condition: Node
    count: Node
    axis: str
    greatest: bool


@dataclass(frozen=True)
class Program:
    """The program of a task, in typed expressions. ``inputs``: arrays and scalars in the order of first use; ``step``:
    the value that is reduced over k; ``reduction``: an operator of ``expr.operators``, or argmin, argmax or mean;
    ``accumulator``: the type of ``accum``; ``initial``: a value that is combined once with the reduction, None: there
    is none; ``when``: the condition of the pairs (i, j) that are computed, None: all pairs are; ``outputs``: at least
    one output."""

    inputs: tuple[Input, ...]
    step: Node
    reduction: str
    accumulator: str
    outputs: tuple[Output, ...]
    initial: Node | None = None
    when: Node | None = None
