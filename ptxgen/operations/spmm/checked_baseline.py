"""Compares a vendor library's result with the reference before its time counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from ptxgen.errors import LaunchError
from ptxgen.operations.spmm.checked_rows import checked_rows, downloaded, rows_deviation, stored_rows
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.reference import Array
from ptxgen.runtime.driver import Driver

ELEMENTS = 1 << 17  #: the approximate number of elements of C that are compared


class BaselineCheck:
    """Compares rows of results with the reference on one operand set. ``arrays``: the arrays of A and B of the set.
    LaunchError: B or C is column-major, or indices have 64 bits, which the comparison does not support."""

    def __init__(self, driver: Driver, problem: Spmm, addresses: Mapping[str, int]) -> None:
        if problem.column_major_b or problem.column_major_c or problem.index != "i32":
            raise LaunchError("it is compared on row-major B and C and int32 indices alone")
        self._driver, self.problem, self._c = driver, problem, addresses["C"]
        self.arrays = downloaded(driver, problem, addresses)
        lengths = np.diff(self.arrays["indptr"])
        self._rows = checked_rows(lengths, max(ELEMENTS // problem.n, 1))

    def require(self, run: Callable[[], object]) -> None:
        """Runs a product that writes C of the operand set. LaunchError: its result is wrong."""
        p = self.problem
        self._driver.fill(self._c, p.m * p.ldc * p.output.bytes, 0xFF)  # NaN
        run()
        self._driver.synchronize()
        self.require_rows(partial(stored_rows, self._driver, p, self._c))

    def require_rows(self, read: Callable[[slice], Array]) -> None:
        """Checks rows of a result. ``read(rows)``: returns these rows of the result. LaunchError: a row is wrong."""
        deviation = rows_deviation(self.problem, self.arrays, self._rows, read)
        if not deviation.ok:
            raise LaunchError(f"its result is wrong: {deviation}")
