"""The reference of GEMMs: float64 products of matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.block_scales import DEPTH
from ptxgen.problem.reference import Array, magnitudes, wide

BLOCKS = 8  #: the blocks along K whose operands are scaled together


def as_matrices(p: Gemm, a: Array, b: Array) -> tuple[Array, Array]:
    """A as M×K and B as K×N, in float64 or complex128. The first axis of a batch is the item."""
    wide_a, wide_b = (
        np.conj(wide(x)) if conjugated else wide(x) for x, conjugated in zip((a, b), p.conjugates, strict=True)
    )
    transposed_a, transposed_b = np.swapaxes(wide_a, -1, -2), np.swapaxes(wide_b, -1, -2)
    return (wide_a if p.orders[0] == "N" else transposed_a), (wide_b if p.orders[1] == "N" else transposed_b)


def product(p: Gemm, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    """The float64 sums Σab and Σ|a||b| for each element of C. The first axis of a batch is the item."""
    wide_a, wide_b = as_matrices(p, arrays["A"], arrays["B"])
    if p.scalings:
        exact, scale = _scaled(p, wide_a, wide_b, arrays)
    else:
        exact = wide_a @ wide_b
        scale = magnitudes(wide_a) @ magnitudes(wide_b)
    if exact.ndim == 3 and len(exact) < p.batch:  # A and B have batch stride 0
        return np.repeat(exact, p.batch, axis=0), np.repeat(scale, p.batch, axis=0)
    return exact, scale


def _scaled(p: Gemm, a: Array, b: Array, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
    """``product`` with block scales. Where the product of two scales is infinite, Σ|a||b| is, too, and the sum is NaN:
    kernels may multiply parts of a block, whose sums have both signs or are 0."""
    columns = []
    for name, extent in (("A", p.m), ("B", p.n)):
        s, x = p.scalings[name], arrays[f"scale_{name.lower()}"]
        x = np.swapaxes(x, -1, -2) if s.by_k else x
        columns.append(np.repeat(x, s.rows, axis=-2)[..., :extent, :])
    exact = scale = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), p.m, p.n))
    limits = np.finfo(np.float32)
    sizes = [np.abs(x[np.nonzero(x)]) for x in columns]
    greatest, least = (math.prod(float(f(x, initial=1)) for x in sizes) for f in (np.max, np.min))
    if limits.tiny <= least and greatest <= limits.max:  # no product of two scales leaves the normal numbers of f32
        for first in range(0, columns[0].shape[-1], BLOCKS):
            of_k = slice(first * DEPTH, (first + BLOCKS) * DEPTH)
            left, right = a[..., of_k], b[..., of_k, :]
            by_k = [np.repeat(np.float64(x[..., first : first + BLOCKS]), DEPTH, axis=-1) for x in columns]
            left = left * by_k[0][..., : left.shape[-1]]
            right = right * np.swapaxes(by_k[1], -1, -2)[..., : right.shape[-2], :]
            exact, scale = exact + left @ right, scale + np.abs(left) @ np.abs(right)
        return exact, scale
    for n in range(columns[0].shape[-1]):
        of_k = slice(n * DEPTH, (n + 1) * DEPTH)
        left, right = a[..., of_k], b[..., of_k, :]
        scales = columns[0][..., n, None] * columns[1][..., None, :, n]  # in f32
        parts = np.where(np.isinf(scales), np.inf, np.nan_to_num(np.abs(scales) * (np.abs(left) @ np.abs(right))))
        scales = np.where(np.isinf(scales), np.nan, scales).astype(np.float64)
        exact, scale = exact + scales * (left @ right), scale + parts
    return exact, scale


def slices(p: Gemm, region: Any = None) -> tuple[slice, ...]:
    """The whole result. Regions are not used: a part of a GEMM is a smaller GEMM."""
    return ()
