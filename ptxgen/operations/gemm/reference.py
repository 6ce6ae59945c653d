"""Float64 products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.reference import Array, magnitudes, wide


def as_matrices(p: Gemm, a: Array, b: Array) -> tuple[Array, Array]:
    """A as M×K and B as K×N in float64, or complex of it. The first axis of a batch is the item."""
    wide_a, wide_b = (
        np.conj(wide(x)) if conjugated else wide(x) for x, conjugated in zip((a, b), p.conjugates, strict=True)
    )
    transposed_a, transposed_b = np.swapaxes(wide_a, -1, -2), np.swapaxes(wide_b, -1, -2)
    return (wide_a if p.orders[0] == "N" else transposed_a), (wide_b if p.orders[1] == "N" else transposed_b)


def product(p: Gemm, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    """Σab and Σ|a||b| of each element in float64. The first axis of a batch is the item."""
    wide_a, wide_b = as_matrices(p, arrays["A"], arrays["B"])
    exact = wide_a @ wide_b
    scale = magnitudes(wide_a) @ magnitudes(wide_b)
    if exact.ndim == 3 and len(exact) < p.batch:  # A and B have batch stride 0
        return np.repeat(exact, p.batch, axis=0), np.repeat(scale, p.batch, axis=0)
    return exact, scale


def slices(p: Gemm, region: Any = None) -> tuple[slice, ...]:
    """The whole result. Regions are not used: a part of a GEMM is a smaller GEMM."""
    return ()
