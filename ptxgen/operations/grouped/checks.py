"""Checks of grouped products, item by item, and the operand sets that they are timed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import A, B, C
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.reference import epilogue_view, item_view, scale_views
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.reference import quantized_arrays
from ptxgen.problem.base import ELEMENTWISE_OPERANDS
from ptxgen.problem.reference import Array, Deviation, epilogue_arrays, operands, reference, verdict
from ptxgen.runtime.check import CASES, CheckResult, scale_cases
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Runner

SAMPLED_COLUMNS = 256  #: the most columns of an item that a check of a part of the elements compares


def check_grouped(
    driver: Driver, problem: GroupedGemm, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """The results of checking a configuration of a group in all cases. ``row_padding`` is not used: rows have the
    leading dimensions of the problem."""
    runner = Runner.of(driver, problem, config)
    try:
        for inputs, alpha, beta, initial in (*CASES, *scale_cases(problem)):
            if problem.epilogue_dtype.integer:
                alpha, beta = round(alpha), round(beta)
            beta = 0.0 if problem.gated else beta
            arrays = random_group(problem, seed, inputs)
            if initial == "nan":
                arrays["C"][...] = problem.output.poison
            results = runner.compute(arrays, alpha, beta)
            deviation = group_deviation(problem, arrays, results["C"], inputs, alpha, beta)
            if problem.stores_sums:
                of_sums = _deviation_of_sums(problem, arrays, results["sums"], inputs, alpha, beta)
                deviation = max(deviation, of_sums, key=lambda x: x.ratio)
            label = inputs if beta == 0 else f"{inputs}, alpha={alpha:g}, beta={beta:g}"
            yield CheckResult(label, deviation)
    finally:
        runner.workspace.release()


def random_group(p: GroupedGemm, seed: int = 0, inputs: str = "normal") -> dict[str, Array]:
    """Random arrays that hold A, B and C of all items, with poisoned gaps, the operands of the epilogue, and the
    offsets. Arrays that a kernel writes besides C have poison."""
    arrays = {
        name: np.full(size, dtype.poison, dtype.numpy)
        for name, size, dtype in zip("ABC", p.sizes, p.types, strict=True)
    }
    for name in p.epilogue_operands:
        dtype = p.epilogue_operand_dtype(name)
        arrays[name] = np.full(p.broadcast_shapes[name][0], dtype.poison, dtype.numpy)
    arrays |= {name: np.full(shape, np.nan, np.float32) for name, shape in p.scale_shapes.items()}
    weights = [_weights(p.item(i), seed + i, inputs) for i in range(len(p.items))]
    arrays |= {name: np.stack([each[name] for each in weights]) for name in p.item_arrays if name not in arrays}
    for i in range(len(p.items)):
        item, scales = p.item(i), scale_views(p, arrays, i)
        values = operands(item, seed + i, inputs) | weights[i]
        for x, name in enumerate("ABC"):
            item_view(p, x, arrays[name], i)[...] = values[name]
        for name, operand in epilogue_arrays(item, seed + i, inputs).items():
            if name in scales:
                scales[name][...] = operand
            if name in scales or name in p.outputs:
                continue
            into = epilogue_view(p, name, arrays[name], i)
            into[...] = operand[:, : into.shape[1]] if name in ELEMENTWISE_OPERANDS else operand
    if p.jagged:
        arrays["offsets"] = p.offsets.astype(np.int32)
    return arrays


def _weights(item: Gemm, seed: int, inputs: str) -> dict[str, Array]:
    """Random quantized weights of an item, with their scales and zero points; none for other products."""
    return quantized_arrays(item, seed, inputs) if isinstance(item, QuantizedGemm) else {}


def group_deviation(
    p: GroupedGemm, arrays: Mapping[str, Array], out: Array, inputs: str, alpha: float = 1.0, beta: float = 0.0
) -> Deviation:
    """The largest deviation of an item of ``out`` from its float64 reference; ``where`` is (item, row, column). A value
    written between items counts as a deviation at (-1, -1, -1)."""
    worst, rest = Deviation(0.0, (0, 0, 0), 0.0), out.copy()
    for i in range(len(p.items)):
        item = p.item(i)
        if not item.results:
            continue
        mine = {name: item_view(p, x, arrays[name], i) for x, name in enumerate("ABC")} | scale_views(p, arrays, i)
        for name in p.epilogue_operands:
            view = epilogue_view(p, name, arrays[name], i)
            mine[name] = _with_pitch(view, item.ldc) if name in ELEMENTWISE_OPERANDS else view
        deviation = verdict(inputs, item_view(p, C, out, i), reference(item, mine, alpha, beta))
        if not deviation.ratio <= worst.ratio:
            worst = Deviation(deviation.ratio, (i, *deviation.where), deviation.worst)
        item_view(p, C, rest, i)[...] = p.output.poison
    gaps = arrays["C"].copy()
    for i in range(len(p.items)):
        item_view(p, C, gaps, i)[...] = p.output.poison
    if not np.array_equal(rest, gaps, equal_nan=True):
        return Deviation(np.inf, (-1, -1, -1), worst.worst)
    return worst


def _deviation_of_sums(
    p: GroupedGemm, arrays: Mapping[str, Array], out: Array, inputs: str, alpha: float, beta: float
) -> Deviation:
    """``group_deviation`` of the sums ``out``, which the kernel stores beside C."""
    before = dict(arrays) | {"C": arrays["sums"]} if p.gated else arrays  # a gated activation has no beta
    return group_deviation(p.of_sums(), before, out, inputs, alpha, beta)


def sampled_deviation(p: GroupedGemm, arrays: Mapping[str, Array], out: Array, limit: int) -> Deviation:
    """The largest deviation among sampled elements: some rows of every item, in at most SAMPLED_COLUMNS columns, about
    ``limit`` elements in all. alpha is 1 and beta is 0."""
    worst = Deviation(0.0, (0, 0, 0), 0.0)
    for i in range(len(p.items)):
        item = p.item(i)
        if not item.results:
            continue
        columns_c = _sample(item.columns_c, SAMPLED_COLUMNS)
        columns = (2 * columns_c[:, None] + [0, 1]).ravel() if p.gated else columns_c
        rows = _sample(item.m, max(1, limit * item.m // p.results * item.n // len(columns)))
        a, b = item_view(p, A, arrays["A"], i), item_view(p, B, arrays["B"], i)
        mine = {
            "A": np.ascontiguousarray(a[rows] if p.layout[0] == "N" else a[:, rows]),
            "B": np.ascontiguousarray(b[:, columns] if p.layout[1] == "N" else b[columns]),
        }
        for name in (name for name in p.epilogue_operands if name not in p.outputs):
            view = epilogue_view(p, name, arrays[name], i)
            if name in ELEMENTWISE_OPERANDS:
                mine[name] = np.ascontiguousarray(view[np.ix_(rows, columns_c)])
            else:
                length = p.epilogue_length(name)
                mine[name] = view[rows] if length == "m" else view[columns] if length == "n" else view
        scales = scale_views(p, arrays, i)
        for name in ("scales", "zeros"):
            if name in scales:
                mine[name] = scales[name][columns]
        for (name, s), each in zip(p.scalings.items(), (rows, columns), strict=False):
            x = scales[f"scale_{name.lower()}"]
            mine[f"scale_{name.lower()}"] = (x.T if s.by_k else x)[each // s.rows]
        block = "1x128" if p.scalings else ""
        few = replace(item, m=len(rows), n=len(columns), lda=0, ldb=0, ldc=0, block_a=block, block_b=block)
        ref = reference(few, mine)
        deviation = verdict("normal", item_view(p, C, out, i)[np.ix_(rows, columns_c)], ref)
        if not deviation.ratio <= worst.ratio:
            worst = Deviation(
                deviation.ratio, (i, int(rows[deviation.where[0]]), int(columns_c[deviation.where[1]])), deviation.worst
            )
    return worst


def _sample(extent: int, count: int) -> Array:
    """``count`` numbers, evenly spread from 0 to ``extent`` - 1; all of them if ``extent`` is not larger than
    ``count``."""
    places: Array = np.unique(np.linspace(0, extent - 1, min(count, extent)).round().astype(np.int64))
    return places


def _with_pitch(x: Array, pitch: int) -> Array:
    """A copy of a matrix whose rows are padded with zeros to ``pitch`` elements."""
    out = np.zeros((len(x), pitch), x.dtype)
    out[:, : x.shape[1]] = x
    return out


class GroupedOperandSets(OperandSets):
    """``OperandSets`` of a group."""

    problem: GroupedGemm

    def __init__(self, driver: Driver, problem: GroupedGemm, timing: Timing, seed: int = 0) -> None:
        self.problem, self.arrays = problem, random_group(problem, seed)
        inputs = {name: self.arrays[name] for name in ("A", "B", *problem.item_arrays)}
        shared = {name: x for name, x in self.arrays.items() if name not in (*inputs, "C")}
        super().__init__(driver, timing, inputs, {"C": self.arrays["C"].nbytes}, shared)

    def deviation(self, limit: int) -> Deviation:
        """The deviation of C of the first set on the device from the float64 reference, over all elements or over
        sampled rows of every item."""
        out = np.empty_like(self.arrays["C"])
        if out.nbytes:
            self.driver.download(self.sets[0]["C"], out)
        if self.problem.results > limit:
            return sampled_deviation(self.problem, self.arrays, out, limit)
        before = self.arrays | {"C": np.full_like(out, self.problem.output.poison)}
        return group_deviation(self.problem, before, out, "normal")
