"""The operand sets that GEMMs are timed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter

import numpy as np

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import C, elements, span, store_operand, stored_epilogue_operands, strided
from ptxgen.problem.reference import Array, Deviation, Reference, compare, epilogue_arrays, random_operands, reference
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets

RUNS = 8  #: ranges of rows, or of products of a batch, that are compared
HELD = 1 << 22  #: elements of C that are compared at once


def _ranges(extent: int, count: int) -> Iterator[slice]:
    """At most RUNS ranges with ``count`` indices in all, evenly spread over ``extent``; one range of everything if
    ``extent`` is not larger than ``count``."""
    if extent <= count:
        yield slice(0, extent)
        return
    runs = min(RUNS, max(count, 1))
    run = max(1, count // runs)
    starts = {round(i * (extent - run) / max(runs - 1, 1)) for i in range(runs)}
    yield from (slice(s, s + run) for s in sorted(starts))


class GemmOperandSets(OperandSets):
    """``OperandSets`` of a GEMM."""

    problem: Gemm

    def __init__(self, driver: Driver, problem: Gemm, timing: Timing, seed: int = 0) -> None:
        drawn = enumerate(islice(random_operands(problem, seed), 2))
        inputs = {name: store_operand(problem, i, x) for i, (name, x) in drawn}
        self.problem, self.arrays = problem, epilogue_arrays(problem, seed)
        epilogue = stored_epilogue_operands(problem, self.arrays)
        self.arrays |= {name: elements(problem, i, x) for i, (name, x) in enumerate(inputs.items())}
        self._references: dict[tuple[int, int, bytes], Reference] = {}
        super().__init__(driver, timing, inputs, {"C": span(problem, C) * problem.output.bytes}, epilogue)

    def blocks(self, limit: int) -> Iterator[tuple[slice, slice]]:
        """Pairs (range of products, range of rows of C) with at most ``limit`` elements in all. They cover all of C, or
        are spread evenly over it."""
        p = self.problem
        lines = max(1, limit // max(p.n, 1))
        if lines >= p.m * p.batch:
            step = max(1, HELD // max(p.m * p.n, 1))
            yield from ((slice(i, min(i + step, p.batch)), slice(0, p.m)) for i in range(0, p.batch, step))
        elif lines >= RUNS * p.m:
            yield from ((items, slice(0, p.m)) for items in _ranges(p.batch, lines // p.m))
        else:
            few = list(_ranges(p.batch, min(RUNS, lines)))
            for items in few:
                yield from ((items, rows) for rows in _ranges(p.m, max(1, lines // len(few))))

    def deviation(self, limit: int) -> Deviation:
        """The deviation of C of the first set on the device from the float64 reference."""
        p, worst = self.problem, Deviation(0.0, (0,) * (2 + (self.problem.batch != 1)), 0.0)
        if not p.results:
            return worst
        for items, blocks in groupby(self.blocks(limit), itemgetter(0)):
            runs = [rows for _, rows in blocks]
            rows = np.concatenate([np.arange(run.start, run.stop) for run in runs])
            got = np.concatenate([self._result(items, run) for run in runs], axis=-2)
            deviation = compare(got, self._reference(items, rows))
            if not deviation.ratio <= worst.ratio:
                *item, row, column = deviation.where
                where = (*(items.start + i for i in item), int(rows[row]), column)
                worst = Deviation(deviation.ratio, where, deviation.worst)
        return worst

    def _reference(self, items: slice, rows: Array) -> Reference:
        """The reference for rows ``rows`` of the products ``items``, cached."""
        p, key = self.problem, (items.start, items.stop, rows.tobytes())
        if key not in self._references:
            a, b = self.arrays["A"], self.arrays["B"]
            a = (a if p.orders[0] == "N" else np.swapaxes(a, -1, -2))[..., rows, :]
            a, b = (x[items] if x.ndim == 3 and len(x) > 1 else x for x in (a, b))
            along = {"scale_a"} if "scale_rows" in p.epilogue_ops else set()
            along |= {"bias"} if "bias_row" in p.epilogue_ops else set()
            if p.batch == 1:
                along |= set(p.elementwise_operands)
            arrays = {"A": np.ascontiguousarray(a), "B": b}
            for name in p.epilogue_operands:
                x = self.arrays[name]
                arrays[name] = x[rows] if name in along else x[items, rows] if name in p.elementwise_operands else x
            arrays |= self._scales(items, rows)
            layout, block = "NR"[p.conjugates[0]] + p.layout[1], "1x128" if p.scalings else ""
            part = replace(p, m=len(rows), batch=1, layout=layout, lda=0, block_a=block)
            self._references[key] = reference(part, arrays)
        return self._references[key]

    def _scales(self, items: slice, rows: Array) -> dict[str, Array]:
        """The block scales of the products ``items``: those of A with one row for each of ``rows``, and those of B."""
        scales = {}
        for name, s in self.problem.scalings.items():
            array = f"scale_{name.lower()}"
            x = self.arrays[array]
            x = x[items] if x.ndim == 3 and len(x) > 1 else x
            if name == "A":
                x = np.swapaxes(x, -1, -2) if s.by_k else x
                x = x[..., rows // s.rows, :]
            scales[array] = x
        return scales

    def _result(self, items: slice, rows: slice) -> Array:
        """The rows ``rows`` of the products ``items`` in C of the first set. The last row in memory may lack its
        padding."""
        p = self.problem
        shape, strides = [rows.stop - rows.start, p.columns_c], [p.ldc, 1]
        if p.batch != 1:
            shape, strides = [items.stop - items.start, *shape], [p.strides[C], *strides]
        size, first = p.output.bytes, items.start * p.strides[C] + rows.start * p.ldc
        flat = np.empty(1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)), p.output.numpy)
        self.driver.download(self.sets[0]["C"] + first * size, flat)
        return strided(flat, shape, strides)
