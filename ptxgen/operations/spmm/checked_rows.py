"""Compares some rows of a product with the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.random_numbers import Ints
from ptxgen.problem.reference import Array, Deviation, compare, reference
from ptxgen.runtime.driver import Driver

RUNS = 8  #: the number of ranges of adjacent rows that are compared


def checked_rows(lengths: Ints, count: int) -> list[slice]:
    """Ranges with about ``count`` rows in all: all rows, or the longest row and ranges that are evenly spread over the
    matrix."""
    m = len(lengths)
    if m <= count:
        return [slice(0, m)]
    run = max(count // RUNS, 1)
    starts = [round(i * (m - run) / (RUNS - 1)) for i in range(RUNS)]
    longest = int(lengths.argmax())
    return [slice(longest, longest + 1), *(slice(start, start + run) for start in dict.fromkeys(starts))]


def rows_deviation(
    p: Spmm, arrays: Mapping[str, Array], rows: Sequence[slice], read: Callable[[slice], Array]
) -> Deviation:
    """The largest deviation in the ranges ``rows``. ``read(range)``: returns these rows of the result."""
    worst = Deviation(0.0, (0, 0), 0.0)
    for some in rows:
        deviation = compare(read(some), reference(p, arrays, box=some))
        deviation = replace(deviation, where=(deviation.where[0] + some.start, *deviation.where[1:]))
        worst = max(worst, deviation, key=lambda d: d.ratio)
    return worst


def stored_rows(driver: Driver, p: Spmm, c: int, rows: slice) -> Array:
    """The rows ``rows`` of a result at the address ``c``."""
    if p.column_major_c:
        columns = np.empty((p.n, p.ldc), p.output.numpy)
        driver.download(c, columns)
        return columns[:, rows].T
    got = np.empty((rows.stop - rows.start, p.ldc), p.output.numpy)
    driver.download(c + rows.start * p.ldc * p.output.bytes, got)
    return got[:, : p.n]


def downloaded(driver: Driver, p: Spmm, addresses: Mapping[str, int]) -> dict[str, Array]:
    """The arrays A and B of an operand set."""
    shapes = {
        "indptr": ((p.m + 1,), np.int32),
        "indices": ((p.nnz,), np.int32),
        "values": ((p.nnz,), p.element.numpy),
        "B": ((p.k, p.ldb), p.element.numpy),
        **({"offsets": ((p.groups,), np.int32)} if p.groups else {}),
    }
    out: dict[str, Array] = {}
    for name, (shape, element) in shapes.items():
        out[name] = np.empty(shape, element)
        driver.download(addresses[name], out[name])
    return {**out, "B": out["B"][:, : p.n]}
