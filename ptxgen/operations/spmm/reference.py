"""The reference of sparse products: random operands, and the float64 product."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.lowering.csr import INDEX_BYTES
from ptxgen.operations.spmm import patterns
from ptxgen.operations.spmm.graph_batches import global_columns, grouped_arrays
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.reference import Array, operands

HELD = 1 << 20  #: the most products that are in memory at once


def arrays_of(p: Spmm, seed: int = 0, inputs: str = "normal") -> dict[str, Array]:
    """Random arrays of the problem, with its pattern; B (K×N) and C (M×N) are row-major. InputError: the pattern only
    states statistics."""
    made = patterns.pattern(p.m, p.k, p.pattern)
    dense = operands(p, seed, inputs)
    index = f"i{INDEX_BYTES[p.index]}"
    pattern = {"indptr": made.indptr.astype(index), "indices": made.indices.astype(index)}
    arrays = {**pattern, "values": dense["A"], "B": dense["B"], "C": dense["C"]}
    return grouped_arrays(p, arrays) if p.groups else arrays


def product(p: Spmm, arrays: Mapping[str, Array], region: slice | None = None) -> tuple[Array, Array]:
    """The float64 sums Σab and Σ|a||b| for each element of C. ``region``: the rows to compute; None: all."""
    rows = range(*(region or slice(None)).indices(p.m))
    indptr = arrays["indptr"].astype(np.int64)[rows.start : rows.stop + 1]
    columns = global_columns(p, arrays)
    exact, scale = np.zeros((len(rows), p.n)), np.zeros((len(rows), p.n))
    step = max(HELD // max(p.n, 1), 1)
    for first in range(int(indptr[0]), int(indptr[-1]), step) if len(rows) else ():
        nonzeros = np.arange(first, min(first + step, indptr[-1]))
        row = np.searchsorted(indptr, nonzeros, "right") - 1
        begins = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        values = arrays["values"][nonzeros].astype(np.float64)[:, None]
        some = arrays["B"][columns[nonzeros]].astype(np.float64)
        exact[row[begins]] += np.add.reduceat(values * some, begins)
        scale[row[begins]] += np.add.reduceat(np.abs(values) * np.abs(some), begins)
    return exact, scale


def slices(p: Spmm, region: slice | None = None) -> tuple[slice, ...]:
    """The slices of a region in C."""
    return () if region is None else (region,)
