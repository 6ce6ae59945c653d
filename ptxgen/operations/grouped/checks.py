"""Checks of grouped products, item by item, and the operand sets that they are timed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config import Config
from ptxgen.operations.grouped.reference import epilogue_view, item_view
from ptxgen.problem.base import ELEMENTWISE_OPERANDS
from ptxgen.problem.grouped import GroupedGemm
from ptxgen.problem.reference import Array, Deviation, epilogue_arrays, operands, reference, verdict
from ptxgen.problem.strided_arrays import A, B, C
from ptxgen.runtime.check import CASES, CheckResult
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Runner

Values = tuple[Array, Array, Array, tuple[Array, ...]]

SAMPLED_COLUMNS = 256  #: of an item, whose sums a measurement of many elements compares


def check_grouped(
    driver: Driver, problem: GroupedGemm, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """The checks of a group. ``row_padding`` is not used: rows have the leading dimensions of the problem."""
    runner = Runner.of(driver, problem, config)
    try:
        for kind, alpha, beta, initial in CASES:
            if problem.epilogue_dtype.integer:
                alpha, beta = round(alpha), round(beta)
            values = random_group(problem, seed, kind)
            if initial == "nan":
                values[2][...] = problem.output.poison
            out = runner.compute(*values[:3], alpha, beta, values[3])
            deviation = group_deviation(problem, values, out, kind, alpha, beta)
            label = kind if beta == 0 else f"{kind}, alpha={alpha:g}, beta={beta:g}"
            yield CheckResult(label, deviation)
    finally:
        runner.workspace.release()


def random_group(p: GroupedGemm, seed: int = 0, kind: str = "normal") -> Values:
    """Arrays that hold A, B and C of all items, with poisoned gaps, and the operands of the epilogue."""
    arrays = [
        np.full(size, dtype.poison, dtype.numpy)
        for size, dtype in zip(p.sizes, (p.element, p.element, p.output), strict=True)
    ]
    more = [
        np.full(
            p.broadcast_shapes[name][0], p.epilogue_operand_dtype(name).poison, p.epilogue_operand_dtype(name).numpy
        )
        for name in p.epilogue_operands
    ]
    if p.jagged:
        more.append(p.offsets.astype(np.int32))
    for i in range(len(p.items)):
        item = p.item(i)
        for x, values in zip((A, B, C), operands(item, seed + i, kind), strict=True):
            item_view(p, x, arrays[x], i)[...] = values
        for name, whole, values in zip(p.epilogue_operands, more, epilogue_arrays(item, seed + i, kind), strict=False):
            into = epilogue_view(p, name, whole, i)
            into[...] = values[:, : into.shape[1]] if name in ELEMENTWISE_OPERANDS else values
    return arrays[0], arrays[1], arrays[2], tuple(more)


def group_deviation(
    p: GroupedGemm, values: Values, out: Array, kind: str, alpha: float = 1.0, beta: float = 0.0
) -> Deviation:
    """The largest deviation of an item of ``out`` from its float64 reference; ``where`` is (item, row, column). A value
    written between items counts as a deviation at (-1, -1, -1)."""
    a, b, c, more = values
    worst, rest = Deviation(0.0, (0, 0, 0), 0.0), out.copy()
    for i in range(len(p.items)):
        item = p.item(i)
        if not item.results:
            continue
        mine = tuple(
            _with_pitch(epilogue_view(p, name, x, i), item.ldc)
            if name in ELEMENTWISE_OPERANDS
            else epilogue_view(p, name, x, i)
            for name, x in zip(p.epilogue_operands, more, strict=False)
        )
        views = item_view(p, A, a, i), item_view(p, B, b, i), item_view(p, C, c, i)
        found = verdict(kind, item_view(p, C, out, i), reference(item, *views, alpha, beta, mine))
        if not found.ratio <= worst.ratio:
            worst = Deviation(found.ratio, (i, *found.where), found.worst)
        item_view(p, C, rest, i)[...] = p.output.poison
    gaps = c.copy()
    for i in range(len(p.items)):
        item_view(p, C, gaps, i)[...] = p.output.poison
    if not np.array_equal(rest, gaps, equal_nan=True):
        return Deviation(np.inf, (-1, -1, -1), worst.worst)
    return worst


def sampled_deviation(p: GroupedGemm, values: Values, out: Array, limit: int) -> Deviation:
    """The largest deviation of rows of every item, about ``limit`` elements in all, in at most SAMPLED_COLUMNS columns.
    alpha is 1 and beta is 0."""
    a, b, _, more = values
    worst = Deviation(0.0, (0, 0, 0), 0.0)
    for i in range(len(p.items)):
        item = p.item(i)
        if not item.results:
            continue
        columns = _sample(item.n, SAMPLED_COLUMNS)
        rows = _sample(item.m, max(1, limit * item.m // p.results * item.n // len(columns)))
        part_a, part_b = item_view(p, A, a, i), item_view(p, B, b, i)
        part_a = np.ascontiguousarray(part_a[rows] if p.layout[0] == "N" else part_a[:, rows])
        part_b = np.ascontiguousarray(part_b[:, columns] if p.layout[1] == "N" else part_b[columns])
        operands = []
        for name, x in zip(p.epilogue_operands, more, strict=False):
            mine = epilogue_view(p, name, x, i)
            if name in ELEMENTWISE_OPERANDS:
                operands.append(np.ascontiguousarray(mine[np.ix_(rows, columns)]))
            else:
                length = p.epilogue_length(name)
                operands.append(mine[rows] if length == "m" else mine[columns] if length == "n" else mine)
        few = replace(item, m=len(rows), n=len(columns), lda=0, ldb=0, ldc=0)
        ref = reference(few, part_a, part_b, more=tuple(operands))
        found = verdict("normal", item_view(p, C, out, i)[np.ix_(rows, columns)], ref)
        if not found.ratio <= worst.ratio:
            worst = Deviation(found.ratio, (i, int(rows[found.where[0]]), int(columns[found.where[1]])), found.worst)
    return worst


def _sample(extent: int, count: int) -> Array:
    """``count`` numbers below ``extent``, evenly spread from 0 to the last one; all if there are no more."""
    found: Array = np.unique(np.linspace(0, extent - 1, min(count, extent)).round().astype(np.int64))
    return found


def _with_pitch(x: Array, pitch: int) -> Array:
    """A copy of a matrix in rows of ``pitch`` elements."""
    out = np.zeros((len(x), pitch), x.dtype)
    out[:, : x.shape[1]] = x
    return out


class GroupedOperandSets(OperandSets):
    """``OperandSets`` of a group."""

    problem: GroupedGemm

    def __init__(self, driver: Driver, problem: GroupedGemm, timing: Timing, seed: int = 0) -> None:
        self.problem, self.values = problem, random_group(problem, seed)
        a, b, c, more = self.values
        super().__init__(driver, timing, a, b, c.nbytes, more)

    def deviation(self, limit: int) -> Deviation:
        """Compares the first set's C on the device with float64: all of it, or rows of every item."""
        out = np.empty_like(self.values[2])
        if out.nbytes:
            self.driver.download(self.sets[0][2], out)
        a, b, _, more = self.values
        if self.problem.results > limit:
            return sampled_deviation(self.problem, self.values, out, limit)
        return group_deviation(self.problem, (a, b, np.full_like(out, self.problem.output.poison), more), out, "normal")
