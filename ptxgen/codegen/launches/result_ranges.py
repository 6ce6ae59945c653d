"""Ranges of the results of a reduction of rows or columns: each has launches of its own, with the same workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxgen.codegen.vectorized import ceil_div
from ptxgen.expr.index_sets import INDEX
from ptxgen.expr.node import Node, constant, rewritten, variable, variables
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.problem.dtypes import dtype

LIMIT = 1 << 25  #: bytes of workspace above which results are computed in several ranges
STEP = 64  #: ranges begin at multiples of this number, so that the parts of arrays are aligned like the arrays


@dataclass(frozen=True)
class ResultRange:
    """The results from ``first`` to ``end`` of ``results`` in all. They are rows (columns, if ``axis`` is j) of C.

    ``mirrored``: True if results (j, i) are computed from the sums of (i, j), i ≤ j. A range is then one of rows i,
    with the columns j from ``first`` on; the other pairs are in ranges before. Indices are counted from ``first`` on
    both sides. ``kept``: the offset in the workspace of the states that the sink keeps of all results.
    """

    axis: str
    first: int
    end: int
    results: int
    mirrored: bool = False
    kept: int = 0

    def problem(self, p: KernelProblem) -> KernelProblem:
        """The part of ``p`` whose results are these."""
        count = self.end - self.first
        if self.mirrored:
            return p.with_extents(packed="", m=count, n=self.results - self.first)
        return p.with_extents(packed="", **{"m" if self.axis == "i" else "n": count})

    def offsets(self, p: KernelProblem) -> dict[str, int]:
        """Array -> bytes from the address of the array to the part of it that these results read or are."""
        moved = "ij" if self.mirrored else self.axis
        offsets = {} if self.mirrored else {"C": self.first * p.output.bytes}
        for side, x in zip("ij", p.operands, strict=True):
            if side in moved:
                offsets[x.name] = x.access.offset(self.first, x.element.bytes)
        for v in (*p.sink.vectors, *p.algebra.vectors):
            if v.axis in moved:
                offsets[v.name] = self.first * dtype(v.element.type).bytes
        for e in p.sink.elements:
            steps = sum(step for side, step in zip(e.axes, (e.ld, 1), strict=True) if side in moved)
            offsets[e.name] = self.first * steps * dtype(e.element.type).bytes
        return offsets


def ranges_of(p: KernelProblem, partial_bytes: Callable[[], int]) -> list[ResultRange]:
    """The ranges in which the results of ``p`` are computed; none: they are computed together. ``partial_bytes()``: the
    bytes of workspace for partial results of all, which are proportional to the number of results."""
    if not isinstance(p.sink, RowReduce) or not separable(p):
        return []
    size, axis = partial_bytes(), p.sink.axis
    if not isinstance(size, int) or size <= LIMIT:  # an exported library has symbols, and one sequence of launches
        return []
    results = int(p.m if axis == "i" else p.n)
    most = max(results * LIMIT // size // STEP, 1) * STEP
    count = ceil_div(ceil_div(results, ceil_div(results, most)), STEP) * STEP  # of about the same size
    starts = range(0, results, count)
    return [ResultRange(axis, n, min(n + count, results), results, p.mirrored) for n in starts]


def separable(p: KernelProblem) -> bool:
    """True if a range of results is a problem of the same kernel, whose indices are counted from the first one."""
    axis, sink = p.sink.axis, p.sink
    if p.batch != 1 or p.parts or p.k == 0:
        return False
    if p.mirrored:
        roots = [_apart(x) for x in (*sink.expressions, *([] if sink.when is None else [sink.when]))]
        return not {"i", "j", "M", "N"} & {*variables(*roots)} and not p.algebra.matrices
    read = variables(*sink.expressions, *([] if sink.guard is None else [sink.guard]))
    return not {axis, "M" if axis == "i" else "N"} & {*read} and not any(axis in v.axis for v in p.algebra.matrices)


def _apart(x: Node) -> Node:
    """The expression with constants for what depends only on the difference of i and j."""
    i, j = (variable(name, INDEX) for name in "ij")

    def changed(y: Node) -> Node:
        apart = y.op in ("-", "==", "!=", "<", "<=") and set(y.arguments) == {i, j}
        return constant(0, y.type) if apart else y

    return rewritten(x, changed)
