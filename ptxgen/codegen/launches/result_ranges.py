"""Ranges of the results of a reduction of rows or columns: each has launches of its own, with the same workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxgen.codegen.vectorized import ceil_div
from ptxgen.expr.node import variables
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.problem.dtypes import dtype

LIMIT = 1 << 25  #: bytes of workspace above which results are computed in several ranges
STEP = 64  #: ranges begin at multiples of this number, so that the parts of arrays are aligned like the arrays


@dataclass(frozen=True)
class ResultRange:
    """The results from ``first`` to ``end``, which are rows (columns, if ``axis`` is j) of C."""

    axis: str
    first: int
    end: int

    def part(self, p: KernelProblem) -> KernelProblem:
        """The problem whose results are these."""
        extent = {"m" if self.axis == "i" else "n": self.end - self.first}
        return p.with_extents(packed="", **extent)

    def offsets(self, p: KernelProblem) -> dict[str, int]:
        """Array -> bytes from the address of the array to the part of it that these results read or are."""
        sink, x = p.sink, p.operand("A" if self.axis == "i" else "B")
        offsets = {x.name: x.access.offset(self.first, x.element.bytes), "C": self.first * p.output.bytes}
        for v in (*sink.vectors, *p.algebra.vectors):
            if v.axis == self.axis:
                offsets[v.name] = self.first * dtype(v.element.type).bytes
        for e in sink.elements:
            rows = self.first * (e.ld if e.axes[0] == self.axis else 1)
            offsets[e.name] = rows * dtype(e.element.type).bytes
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
    return [ResultRange(axis, first, min(first + count, results)) for first in range(0, results, count)]


def separable(p: KernelProblem) -> bool:
    """True if a part of the rows (columns, if these are reduced) is a problem of the same kernel: no expression reads
    their index or their number, and no sum is that of two results."""
    axis = p.sink.axis
    read = variables(*p.sink.expressions, *([] if p.sink.guard is None else [p.sink.guard]))
    if p.mirrored or p.batch != 1 or p.parts or {axis, "M" if axis == "i" else "N"} & {*read}:
        return False
    return not any(axis in v.axis for v in p.algebra.matrices)
