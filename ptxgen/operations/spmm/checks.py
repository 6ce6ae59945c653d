"""Checks of sparse products, and the operand sets that they are timed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.spmm.checked_rows import checked_rows, rows_deviation, stored_rows
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.reference import Array, Deviation, reference, verdict
from ptxgen.runtime.check import CASES, CheckResult
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Runner

PRODUCTS = 1 << 26  #: the approximate number of multiply-adds that a comparison computes


def padded(array: Array, ld: int, fill: complex) -> Array:
    """A matrix whose rows are padded to ``ld`` elements, with ``fill`` in the gaps."""
    if array.shape[1] == ld:
        return array
    out = np.full((len(array), ld), fill, array.dtype)
    out[:, : array.shape[1]] = array
    return out


def stored(p: Spmm, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays as kernels read them; gaps are NaN."""
    poison = p.element.poison
    b = arrays["B"].T if p.column_major_b else arrays["B"]
    c = arrays["C"].T if p.column_major_c else arrays["C"]
    return {**arrays, "B": padded(b, p.ldb, poison), "C": padded(c, p.ldc, poison)}


def check_spmm(
    driver: Driver, problem: Spmm, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """The results of checking a configuration of a sparse product in all cases."""
    p = replace(problem, ldb=problem.ldb + row_padding, ldc=problem.ldc + row_padding)
    runner = Runner.of(driver, p, config)
    for inputs, alpha, beta, initial in CASES:
        arrays = arrays_of(p, seed, inputs)
        if initial == "nan":
            arrays["C"] = np.full_like(arrays["C"], p.output.poison)
        out = runner.compute(stored(p, arrays), alpha, beta)["C"]
        length = p.m if p.column_major_c else p.n
        result = out[:, :length].T if p.column_major_c else out[:, :length]
        deviation = verdict(inputs, result, reference(p, arrays, alpha, beta))
        if not np.isnan(out[:, length:].astype(np.float64)).all():
            deviation = Deviation(np.inf, (-1, -1), deviation.worst)
        yield CheckResult(inputs if beta == 0 else f"{inputs}, alpha={alpha:g}, beta={beta:g}", deviation)


class SpmmOperandSets(OperandSets):
    """``OperandSets`` of a sparse product."""

    problem: Spmm

    def __init__(self, driver: Driver, problem: Spmm, timing: Timing, seed: int = 0) -> None:
        self.problem, self.arrays = problem, arrays_of(problem, seed)
        inputs: dict[str, Any] = stored(problem, self.arrays)
        del inputs["C"]
        lines = problem.n if problem.column_major_c else problem.m
        outputs = {"C": lines * problem.ldc * problem.output.bytes}
        least = inputs["values"].nbytes + inputs["B"].nbytes  # prepared formats may have shorter indices
        super().__init__(driver, timing, inputs, outputs, {}, least)

    def deviation(self, limit: int) -> Deviation:
        """The deviation of C of the first set from the float64 reference, over some rows, among them the longest."""
        p = self.problem
        each = max(p.nnz * p.n // max(p.m, 1), 1)  # products of a row
        rows = checked_rows(p.row_lengths, max(min(limit // max(p.n, 1), PRODUCTS // each), 1))
        return rows_deviation(p, self.arrays, rows, partial(stored_rows, self.driver, p, self.sets[0]["C"]))
