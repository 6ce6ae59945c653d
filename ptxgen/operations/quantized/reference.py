"""The reference of products with quantized weights, in float64, and random weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.operations.quantized.problem import FAST, QuantizedGemm
from ptxgen.problem.reference import Array


def unpacked(p: QuantizedGemm, stored: Array) -> Array:
    """The stored weights, N rows of bytes, as N×K integers."""
    if p.format.per_byte == 1:
        return stored.astype(np.int64)
    low, high = stored & 15, stored >> 4
    values = np.stack([low, high], axis=-1).reshape(*stored.shape[:-1], -1).astype(np.int64)
    return (values ^ 8) - 8 if p.format.signed else values


def packed(p: QuantizedGemm, values: Array) -> Array:
    """The bytes in which N×K integers are stored: the inverse of ``unpacked``."""
    if p.format.per_byte == 1:
        return values.astype(p.types[1].numpy)
    nibbles = (values & 15).astype(np.uint8)
    out: Array = nibbles[..., ::2] | nibbles[..., 1::2] << 4
    return out


def product(p: QuantizedGemm, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    """The float64 sums Σab and Σ|a||b| for each element of C, in which the sum of each scale group is multiplied by its
    scale. Where a scale is infinite, Σ|a||b| is, too, and the sum is NaN: kernels may multiply parts of a group."""
    a, b = arrays["A"].astype(np.float64), unpacked(p, arrays["B"]).astype(np.float64)
    scales = arrays["scales"].astype(np.float64).reshape(p.n, p.groups)
    exact, magnitude = np.zeros((2, len(a), p.n))
    infinite, sizes = np.isinf(scales), np.nan_to_num(np.abs(scales), posinf=0.0)
    factors = np.where(infinite, np.nan, scales)
    for g in range(p.groups):
        part = slice(g * p.group, (g + 1) * p.group) if p.group else slice(None)
        weights = b[:, part]
        if p.zeros:
            zeros = arrays["zeros"] & p.format.largest_zero
            weights = weights - zeros.reshape(p.n, p.groups)[:, g, None].astype(np.float64)
        exact += (a[:, part] @ weights.T) * factors[:, g]
        magnitude += (np.abs(a[:, part]) @ np.abs(weights).T) * sizes[:, g] + np.where(infinite[:, g], np.inf, 0.0)
    return exact, magnitude


#: scales of the inputs ``extreme``, among others; those after NaN are as small and as large as a type of scales has
EXTREME_SCALES = (0.0, np.inf, -np.inf, np.nan)
SMALL_AND_LARGE = {
    "f16": (2.0**-24, -6e-6, 6e4),
    "bf16": (1e-40, -1e-20, 1e30),
    "f32": (2.0**-149, 1e-40, -1e-20, 1e30),
}


def quantized_arrays(p: QuantizedGemm, seed: int = 0, inputs: str = "normal") -> dict[str, Array]:
    """Random weights as stored, in contiguous rows, with their scales and zero points. Scales have random signs, but
    for ``inputs`` = "positive". With "integers", scales are powers of two and weights are small, so that sums of
    products with integers are exact; with "extreme", four in ten rows have a scale that is extreme."""
    rng = np.random.default_rng([seed, 4])
    f, shape, rows = p.format, (p.n, p.k), (p.n, p.groups)
    zeros = rng.integers(0, f.largest + 1, rows) if p.zeros else np.zeros(rows, np.int64)
    if inputs == "scaled":  # a few beyond the weights
        zeros = np.where(rng.random(rows) < 0.1, rng.integers(0, f.largest_zero + 1, rows), zeros) * p.zeros
    if inputs == "integers":
        zeros = rng.integers(3, 6, rows) if p.zeros else zeros
        exact = 1 / max(p.output.roundoff, 2.0**-24)
        values = rng.integers(-3 if p.zeros or f.signed else 0, 4, shape)
        values *= rng.random(shape) < min(1.0, (exact / 16 / max(p.k, 1)) ** 0.5)
        scales = np.exp2(rng.integers(0, 2, rows))
        values += np.repeat(zeros, p.k // p.groups, axis=1)
    else:
        values = rng.integers(f.least, f.largest + 1, shape)
        if inputs == "positive":
            values = np.maximum(values, np.repeat(zeros, p.k // p.groups, axis=1))
        # weights of about unit size, as those of layers are before they are quantized
        scales = np.exp2(rng.uniform(-1, 0, rows)) / (f.largest - f.least) * (1 if p.k < 256 else 0.25)
        if inputs == "scaled":
            scales *= np.exp2(rng.integers(-6, 1, rows))
    if inputs != "positive":
        scales *= rng.choice((-1, 1), rows)
    if inputs == "extreme" and scales.size:
        extreme = rng.random(rows) < 0.5 / p.groups
        if p.n > 1:  # a single row would leave no finite result
            extreme.flat[rng.integers(extreme.size)] = True
        # products of weights and scales that kernels round have no bound if they are denormal or overflow
        more = () if p.precision == FAST else SMALL_AND_LARGE[p.scales]
        scales = np.where(extreme, rng.choice((*EXTREME_SCALES, *more), rows), scales)
    arrays = {"B": packed(p, values), "scales": scales.astype(p.scale_type.numpy)}
    return arrays | ({"zeros": zeros.astype(np.uint8)} if p.zeros else {})
