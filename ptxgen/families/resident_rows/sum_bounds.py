"""Lower bounds of sums of squares of differences. A bound takes K + 1 instructions, a sum 2 K.

Let x be a row of A, y a column of B, u = 2⁻²⁴ and h = 1/2 − (2 K + 8) u. A kernel computes g = Σ x·y − h |y|² by K
fused multiply-adds. If the sum of the squares in f32 is at most b, then g is at least the *limit* of the row, h |x|² −
(1/2 + (K + 8) u) b − 2⁻¹⁰⁰. A pair whose g is below the limit therefore does not change results, and its sum is not
computed.

- The sum in f32 is at least (1 − (K + 3) u) D for the exact D = |x|² + |y|² − 2 Σ x·y: a square has 2 roundings and a
  third for its product, the sum K. So Σ x·y − |y|² / 2 is at least (|x|² − (1 + (K + 3) u) b) / 2.
- The K roundings of g lose at most 1.01 K u (|x|² / 2 + |y|²). Norms in f32 differ by at most K u of themselves, and h
  times a norm rounds once: h is less than 1/2 by more than these losses, of both norms.
- Values below the normal numbers lose at most 2⁻¹⁴⁹ an instruction, which 2⁻¹⁰⁰ covers.
- Norms of 2¹⁰⁰ or more are replaced by NaN: a comparison with NaN never excludes a pair. Smaller norms do not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.expr.instructions import literal
from ptxgen.expr.node import Node, constant, node, variable, variables
from ptxgen.expr.ptx import Temporaries, combined, statements
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import ACCUMULATOR, InnerExpression
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues

TYPE = "f32"
ROUNDING = 2.0**-24
LEAST = 2.0**-100  #: covers the losses of values below the normal numbers
MOST = 2.0**100  #: norms from this value on are replaced by NaN
SUM = variable(ACCUMULATOR, TYPE)
BEST = variable("best_sum", TYPE)  #: the least sum of a row so far, or the last of its least sums
ROOT = node("sqrt", TYPE, SUM)
SQUARED = 1 + 2.0**-20  #: what covers the roundings of a root, which has one, and of its square
EXTREMES = ("argmin", "min")


def sums_squares(p: KernelProblem) -> bool:
    """True if a problem sums squares of differences of f32."""
    x = p.algebra
    if not isinstance(x, InnerExpression) or x.reduce != "+" or x.type != TYPE or x.step.op != "*":
        return False
    first, second = x.step.arguments
    elements = {x.a, x.b}
    return first is second and first.op == "-" and set(first.arguments) == elements and p.dtype == TYPE


def bound_of(p: KernelProblem) -> Node | None:
    """The bound of a problem: a pair whose sum exceeds it does not change results. It is ``BEST``, or an expression of
    numbers and of arrays along i. None: there is no bound, or the sums are not sums of squares of differences."""
    sink = p.sink
    if not sums_squares(p):
        return None
    if isinstance(sink, SelectValues):
        return greatest_sum(sink.condition, p)
    if isinstance(sink, RowTop):
        return BEST if sink.value is SUM and not sink.greatest else None
    if not isinstance(sink, RowReduce):
        return None
    if sink.op in EXTREMES:
        return BEST if sink.value is SUM else None
    counts = sink.op == "+" and sink.value.op == "cast" and sink.value.arguments[0].type == PRED
    return greatest_sum(sink.value.arguments[0], p) if counts else None


def greatest_sum(condition: Node, p: KernelProblem) -> Node | None:
    """The greatest sum, other than NaN, for which ``condition`` may hold. None: it is not an expression of numbers and
    of arrays along i."""
    if condition.op in ("<", "<=", "=="):
        first, second = condition.arguments
        if condition.op == "==" and first not in (SUM, ROOT):
            first, second = second, first
        return _end(first, second, p)
    if condition.op == "not" and condition.arguments[0].op in ("<", "<="):
        first, second = condition.arguments[0].arguments
        return _end(second, first, p)
    if condition.op not in ("&", "|"):
        return None
    ends = [greatest_sum(x, p) for x in condition.arguments]
    known = list(dict.fromkeys(x for x in ends if x is not None))
    if not known or (condition.op == "|" and None in ends):
        return None
    return known[0] if condition.op == "&" else reduce(lambda x, y: node("max", TYPE, x, y), known)


def _end(value: Node, most: Node, p: KernelProblem) -> Node | None:
    """The greatest sum if ``value``, a sum or its root, is at most ``most``. None: ``value`` or ``most`` is another
    expression."""
    if value not in (SUM, ROOT) or not _is_of_row(most, p):
        return None
    return most if value is SUM else node("*", TYPE, most, node("*", TYPE, most, constant(SQUARED, TYPE)))


def _is_of_row(x: Node, p: KernelProblem) -> bool:
    vectors = {v.element.value for v in p.sink.vectors if v.axis == "i"}
    return set(variables(x)) <= vectors | {s.name for s in p.sink.scalars}


@dataclass(frozen=True)
class SumBounds(Part):
    """The bounds of a kernel. ``rows``: rows of a thread; ``k``: elements of a row; ``vec``: columns that are computed
    together; ``columns``: columns of the tile in shared memory; ``threads``: threads of the block."""

    problem: KernelProblem
    sm: int
    rows: int
    k: int
    vec: int
    columns: int
    threads: int

    @cached_property
    def best(self) -> Tile:
        """The registers with the greatest g of each row over the columns computed together."""
        return Tile("best_bound", TYPE, (self.rows,))

    @cached_property
    def limit(self) -> Tile:
        """The registers with the limit of each row; NaN before the first sum."""
        return Tile("limit", TYPE, (self.rows,))

    @cached_property
    def half(self) -> Tile:
        """The registers with h |x|² − 2⁻¹⁰⁰ of each row."""
        return Tile("half_norm", TYPE, (self.rows,))

    @cached_property
    def columns_half(self) -> Tile:
        """The registers with −h |y|² of the columns computed together."""
        return Tile("column_half", TYPE, (self.vec,))

    @cached_property
    def bound(self) -> Node:
        """The result of ``bound_of``, which must not be None."""
        bound = bound_of(self.problem)
        assert bound is not None
        return bound

    @property
    def follows_best(self) -> bool:
        """True if the limit follows the least sum of the row so far."""
        return self.bound is BEST

    @property
    def share(self) -> float:
        """The number h."""
        return 0.5 - (2 * self.k + 8) * ROUNDING

    @property
    def row_share(self) -> str:
        return _number(self.share)

    @property
    def column_share(self) -> str:
        return _number(-self.share)

    @property
    def sum_share(self) -> str:
        """The factor of the greatest sum in the limit."""
        return _number(-0.5 - (self.k + 8) * ROUNDING)

    less = property(lambda self: _number(-LEAST))
    most = property(lambda self: _number(MOST))
    unknown = property(lambda self: _number(math.nan))

    @property
    def column_starts(self) -> range:
        """The distances from the first column whose norm a thread computes to each of its columns."""
        return range(0, self.columns, self.threads)

    @property
    def last_column(self) -> int:
        return self.columns - 1

    @cached_property
    def column(self) -> Tile:
        """The registers of the elements of a column."""
        return Tile("element", TYPE, (self.k,))

    @property
    def column_elements(self) -> list[tuple[str, int]]:
        """For each element of a column: its register, and its offset in shared memory."""
        return [(self.column[k], 4 * k * self.columns) for k in range(self.k)]

    @property
    def norm_offset(self) -> int:
        """The offset of the columns' norms in shared memory."""
        return 4 * self.k * self.columns

    def greatest(self, into: str, values: Sequence[str], used: Temporaries) -> list[str]:
        """The instructions that compute the greatest of several values; NaN if one of them is NaN."""
        return combined("max", TYPE, values, into, sm=self.sm, temporaries=used)

    @property
    def temporaries(self) -> list[str]:
        """The declarations of temporary registers for these instructions."""
        greatest, limit = Temporaries("g"), Temporaries("l")
        self.greatest("%best", [f"%value{n}" for n in range(self.vec)], greatest)
        if not self.follows_best:
            names = {variable(x, TYPE): f"%{x}" for x in variables(self.bound)}
            known = names | {v.element: f"%{v.name}" for v in self.problem.sink.vectors}
            statements([self.bound], known, ["%into"], sm=self.sm, temporaries=limit)
        return [*greatest.declarations, *limit.declarations]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [
            (self.limit, "limits of the rows: pairs whose bounds are below do not matter"),
            (self.half, "halves of the squared norms of the rows, less the errors of bounds"),
            (self.columns_half, "halves of the squared norms of the columns, negative"),
        ]


@dataclass(frozen=True)
class RowBounds:
    """The bounds of the thread's row number ``row`` for columns that are computed together. ``elements``: the registers
    of the row; ``columns``: the registers of the columns, by k; ``sums``: the registers of the bounds; ``known``: the
    registers of the variables that the greatest sum reads."""

    bounds: SumBounds
    row: int
    elements: list[str]
    columns: list[list[str]]
    sums: list[str]
    known: Mapping[Node, str]

    @property
    def best(self) -> str:
        return self.bounds.best[self.row]

    @property
    def limit(self) -> str:
        return self.bounds.limit[self.row]

    @property
    def half(self) -> str:
        return self.bounds.half[self.row]

    @property
    def greatest_sum(self) -> list[str]:
        """The instructions that compute the sum above which a pair does not change results."""
        used = Temporaries("l")
        into = ["%greatest_sum"]
        return statements([self.bounds.bound], self.known, into, sm=self.bounds.sm, temporaries=used).lines

    @property
    def products(self) -> list[tuple[str, str, str, str]]:
        """For each fused multiply-add of the bounds, the registers of the bound, of both factors and of the addend."""
        return [
            (x, element, column[q], x if k else self.bounds.columns_half[q])
            for k, (element, column) in enumerate(zip(self.elements, self.columns, strict=True))
            for q, x in enumerate(self.sums)
        ]

    @property
    def greatest(self) -> list[str]:
        """The instructions that compute the greatest bound."""
        return self.bounds.greatest(self.best, self.sums, Temporaries("g"))


def _number(x: float) -> str:
    return literal(constant(x, TYPE))
