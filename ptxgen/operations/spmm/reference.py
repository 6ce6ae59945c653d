"""Random operands of products of a sparse matrix and a matrix, and the float64 product."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.operations.spmm import patterns
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.reference import Array, operands


def arrays_of(p: Spmm, seed: int = 0, kind: str = "normal") -> dict[str, Array]:
    """The arrays of the problem with its pattern; B and C are contiguous. InputError: the pattern states statistics."""
    found = patterns.pattern(p.m, p.k, p.pattern)
    dense = operands(p, seed, kind)
    return {"indptr": found.indptr, "indices": found.indices, "values": dense["A"], "B": dense["B"], "C": dense["C"]}


def product(p: Spmm, arrays: Mapping[str, Array], region: slice | None = None) -> tuple[Array, Array]:
    """Σab and Σ|a||b| of each element in float64. ``region``: the rows to compute; None: all."""
    rows = range(*(region or slice(None)).indices(p.m))
    indptr, b = arrays["indptr"], arrays["B"].astype(np.float64)
    exact, scale = np.zeros((len(rows), p.n)), np.zeros((len(rows), p.n))
    for i, row in enumerate(rows):
        at = slice(indptr[row], indptr[row + 1])
        values, some = arrays["values"][at].astype(np.float64), b[arrays["indices"][at]]
        exact[i], scale[i] = values @ some, np.abs(values) @ np.abs(some)
    return exact, scale


def slices(p: Spmm, region: slice | None = None) -> tuple[slice, ...]:
    """The slices of a region in C."""
    return () if region is None else (region,)
