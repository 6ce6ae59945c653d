"""The rounding of tensor cores: products and the accumulator are aligned, truncated, and summed exactly."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.numerics import BF16, F16, F32, F64
from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.emulator.reductions import any_true

Array = NDArray[Any]

_finfo: Any = ml_dtypes.finfo


#: smallest exponent of a normal number of each type; subnormal numbers have the same exponent
LOWEST = {
    "f16": -14,
    "bf16": -126,
    "tf32": -126,
    "f32": -126,
    **{name: int(_finfo(dtype).minexp) for name, dtype in FP8.items()},
}


#: exponents that stand for zero, and for infinity and NaN: outside the range of sums and products of finite numbers
ZERO, NON_FINITE = -8000, 12000


#: the powers of two; the index is the exponent + _BIAS
_BIAS = 1000


_POWERS = np.ldexp(1.0, np.arange(-_BIAS, _BIAS + 1))


#: number of elements that are processed at once, so that they and scratch arrays fit in the cache
TILE = 1 << 15


_NANS: dict[int, Any] = {2: np.uint16(0x7FFF), 4: np.uint32(0x7FFFFFFF)}


_TYPES: dict[str, Any] = {
    "f16": F16,
    "bf16": BF16,
    **FP8,
}


class Terms(NamedTuple):
    """The factors of a product in float64, and the exponents by which they are aligned."""

    value: Array
    exponent: Array

    def take(self, where: Array, out: Terms) -> Terms:
        """Gathers rows of both arrays into ``out``."""
        self.value.take(where, axis=0, out=out.value, mode="clip")
        self.exponent.take(where, axis=0, out=out.exponent, mode="clip")
        return out

    @staticmethod
    def empty(*shape: int) -> Terms:
        return Terms(np.empty(shape), np.empty(shape, np.int16))


def exponents(x: Array, lowest: int) -> Array:
    """The exponents by which values are aligned; ``lowest``: the exponent of subnormal numbers."""
    e = np.frexp(x)[1].astype(np.int16) - np.int16(1)
    np.maximum(e, np.int16(lowest), out=e)
    e[x == 0] = ZERO
    e[~np.isfinite(x)] = NON_FINITE
    return e


@cache
def _table(element_type: str, lowest: int) -> Terms:
    size = _TYPES[element_type].itemsize
    bits = np.arange(1 << 8 * size, dtype=f"u{size}")
    with np.errstate(all="ignore"):
        value = bits.view(_TYPES[element_type]).astype(F64)
        return Terms(value, exponents(value, lowest))


def values(bits: Array, element_type: str) -> Array:
    """The values in float64 of elements of f16, bf16, tf32, f32 or an 8-bit floating-point type, from their bits."""
    if element_type in _TYPES:
        return _table(element_type, LOWEST[element_type]).value.take(bits)
    return (bits & np.uint32(0xFFFFE000) if element_type == "tf32" else bits).view(F32).astype(F64)


def decode(bits: Array, element_type: str, lowest: int | None = None) -> Terms:
    """The values of elements, as in ``values``, with their exponents; ``lowest``: the exponent of subnormal 8- and
    16-bit numbers (None: ``LOWEST`` of the type)."""
    if element_type in _TYPES:
        table = _table(element_type, LOWEST[element_type] if lowest is None else lowest)
        return Terms(table.value.take(bits), table.exponent.take(bits))
    if element_type == "tf32":
        bits = bits & np.uint32(0xFFFFE000)
    field = (bits >> np.uint32(23)).astype(np.int16) & np.int16(0xFF)
    exponent = np.maximum(field, np.int16(1)) - np.int16(127)
    exponent[bits & np.uint32(0x7FFFFFFF) == 0] = ZERO
    exponent[field == 0xFF] = NON_FINITE
    return Terms(values(bits, element_type), exponent)


def aligned_sum(a: Terms, b: Terms, c: Terms, bits: int = 25, scratch: Terms | None = None) -> Array:
    """c + the sum of a * b over the first axis, in float64; only the alignment truncates terms. Arrays broadcast.

    ``bits``: fractional bits after the alignment. ``scratch``: work space for some of the products; may be ``a``.
    """
    depth, shape = len(a.value), c.value.shape
    scratch = scratch or Terms.empty(min(max(TILE // c.value.size, 1), depth), *shape)
    step = len(scratch.value)
    steps = [slice(k, min(k + step, depth)) for k in range(0, depth, step)]
    top = c.exponent.copy()
    for k in steps:
        exponent = scratch.exponent[: k.stop - k.start]
        np.add(a.exponent[k], b.exponent[k], out=exponent)
        np.maximum(top, exponent[0] if step == 1 else np.maximum.reduce(exponent, axis=0), out=top)
    non_finite = top > NON_FINITE // 4
    special = np.add.reduce(a.value * b.value, axis=0) + c.value if any_true(non_finite) else None
    top -= np.int16(bits)
    scale = _POWERS.take(_BIAS - top, mode="clip")
    total: Array = np.trunc(c.value * scale)
    for k in steps:
        product = scratch.value[: k.stop - k.start]
        np.multiply(a.value[k], b.value[k], out=product)
        np.multiply(product, scale, out=product)
        np.trunc(product, out=product)
        total += product[0] if step == 1 else np.add.reduce(product, axis=0)
    np.multiply(total, _POWERS.take(top + _BIAS, mode="clip"), out=total)
    return total if special is None else np.where(non_finite, special, total)


def canonical_nan(x: Array) -> Array:
    """Replaces NaNs in float16 or float32 by the canonical NaN of the hardware."""
    nan = np.isnan(x)
    if any_true(nan):
        x.view(f"u{x.itemsize}")[nan] = _NANS[x.itemsize]
    return x


def toward_zero(x: Array, fraction_bits: int = 23) -> Array:
    """Rounds float64 to float32 toward zero, to ``fraction_bits`` bits of the significand. Zero results are
    positive."""
    bits = x.view(np.int64) & np.int64(-1 << (52 - fraction_bits))
    out = bits.view(F64).astype(F32) + np.float32(0)
    small = np.abs(x) < 2.0**-126
    if any_true(small):
        least = 2.0 ** (126 + fraction_bits)
        out[small] = np.trunc(x[small] * least) / least + 0.0
    return out


def narrow(x: Array, element_type: str, fraction_bits: int = 23) -> Array:
    """Rounds a sum in float64 to the accumulator type: f32 toward zero, f16 to nearest."""
    with np.errstate(over="ignore"):
        return canonical_nan(x.astype(F16) + np.float16(0) if element_type == "f16" else toward_zero(x, fraction_bits))


def fused(
    a: Array, b: Array, c: Array, element_types: tuple[str, str], bits: int = 25, fraction_bits: int = 23
) -> Array:
    """c[..., m, n] + sum over k of a[..., m, k] * b[..., n, k], as one instruction of a Hopper tensor core computes it.

    ``a``, ``b``: values of the types ``element_types``, in float32 or float64. ``c`` is float32 or float16, and so is
    the result. ``bits``: fractional bits after the alignment; ``fraction_bits``: those of a float32 result.
    """
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    m, n, k = a.shape[-2], b.shape[-2], a.shape[-1]
    c = np.broadcast_to(c, (*shape, m, n)).reshape(-1, m, n)
    element_type = "f16" if c.dtype == F16 else "f32"
    with np.errstate(all="ignore"):
        x = terms_of(np.broadcast_to(a, (*shape, m, k)).reshape(-1, m, k), element_types[0])
        y = terms_of(np.broadcast_to(b, (*shape, n, k)).reshape(-1, n, k), element_types[1])
        z = c.astype(F64)
        out = np.empty(c.shape, c.dtype)
        tile_rows = max(TILE // max(n, 1), 1)
        batch = max(tile_rows // m, 1)
        tile_rows = min(tile_rows, m)
        for i in range(0, len(c), batch):
            items = slice(i, i + batch)
            right = Terms(y.value[:, items, None, :], y.exponent[:, items, None, :])
            for j in range(0, m, tile_rows):
                tile = items, slice(j, j + tile_rows)
                left = Terms(x.value[:, *tile, None], x.exponent[:, *tile, None])
                sums = Terms(z[tile], exponents(z[tile], LOWEST[element_type]))
                out[tile] = narrow(aligned_sum(left, right, sums, bits), element_type, fraction_bits)
    return out.reshape(*shape, m, n)


def terms_of(x: Array, element_type: str) -> Terms:
    """Converts values with k as the last axis to terms with k as the first."""
    value = np.ascontiguousarray(x.transpose(2, 0, 1)).astype(F64)
    return Terms(value, exponents(value, LOWEST[element_type]))
