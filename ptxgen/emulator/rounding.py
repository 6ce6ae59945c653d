"""How a tensor core adds: products and the accumulator at one alignment, cut off, summed exactly.

Hopper takes all products of one instruction and the accumulator, shifts them to the largest of their exponents, drops
what lies below 25 fractional bits (13 for the 8-bit floats of wgmma), adds without error, and rounds once: toward zero
to f32, to nearest even to f16. The exponent of a product is the sum of its factors' exponents; that of zero is -126.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: smallest exponent of a normal number, which subnormal ones share
LOWEST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}
_ZERO = -126
#: powers of two by exponent + _BIAS
_BIAS = 1000
_POWERS = np.ldexp(1.0, np.arange(-_BIAS, _BIAS + 1))
#: elements of the result that are worked on at a time: they and two scratch arrays stay in the cache
_TILE = 1 << 15
_NAN32 = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
_NAN16 = np.array(0x7FFF, np.uint16).view(np.float16)


def exponents(x: Array, kind: str) -> Array:
    """Exponents of finite values of a type, as the adder sees them."""
    e = np.frexp(x)[1].astype(np.int16) - np.int16(1)
    np.maximum(e, np.int16(LOWEST[kind]), out=e)
    e[x == 0] = _ZERO
    return e


def toward_zero(x: Array, kept: int = 23) -> Array:
    """float64 to float32, rounded toward zero; `kept` fractional bits of the significand remain."""
    bits = x.view(np.int64) & np.int64(-1 << (52 - kept))
    out = bits.view(np.float64).astype(np.float32)
    small = np.abs(x) < 2.0**-126
    if small.any():
        least = 2.0 ** (126 + kept)
        out[small] = np.trunc(x[small] * least) / least
    return out


def fused(a: Array, b: Array, c: Array, kinds: tuple[str, str], bits: int = 25, kept: int = 23) -> Array:
    """c[..., m, n] + sum over k of a[..., m, k] * b[..., n, k], as one instruction of a Hopper tensor core computes it.

    `a`, `b`: values of the types `kinds`, in float32 or float64. `c` is float32 or float16, and so is the result.
    `bits`: fractional bits that survive the alignment; `kept`: those of a float32 result.
    """
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    m, n, k = a.shape[-2], b.shape[-2], a.shape[-1]
    a = np.broadcast_to(a, (*shape, m, k)).reshape(-1, m, k).astype(np.float64)
    b = np.broadcast_to(b, (*shape, n, k)).reshape(-1, n, k).astype(np.float64)
    c = np.broadcast_to(c, (*shape, m, n)).reshape(-1, m, n)
    special: Array | None = None
    finite = [np.isfinite(x) for x in (a, b, c)]
    if not all(f.all() for f in finite):
        with np.errstate(all="ignore"):
            special = np.matmul(a, b.transpose(0, 2, 1)) + c.astype(np.float64)
        a, b, c = (np.where(f, x, np.zeros((), x.dtype)) for f, x in zip(finite, (a, b, c), strict=True))
    out = np.empty(c.shape, c.dtype)
    rows = max(_TILE // max(n, 1), 1)
    batch = max(rows // m, 1)
    rows = min(rows, m)
    for i in range(0, len(a), batch):
        for j in range(0, m, rows):
            part = slice(i, i + batch), slice(j, j + rows)
            out[part] = _tile(a[part], b[i : i + batch], c[part], kinds, bits, kept)
    if special is not None:
        bad = ~np.isfinite(special)
        with np.errstate(all="ignore"):
            out[bad] = special[bad].astype(out.dtype)
        out[np.isnan(special)] = _NAN16 if out.dtype == np.float16 else _NAN32
    return out.reshape(*shape, m, n)


def _tile(a: Array, b: Array, c: Array, kinds: tuple[str, str], bits: int, kept: int) -> Array:
    depth = a.shape[-1]
    ea = np.ascontiguousarray(exponents(a, kinds[0]).transpose(2, 0, 1))[:, :, :, None]
    eb = np.ascontiguousarray(exponents(b, kinds[1]).transpose(2, 0, 1))[:, :, None, :]
    a = np.ascontiguousarray(a.transpose(2, 0, 1))[:, :, :, None]
    b = np.ascontiguousarray(b.transpose(2, 0, 1))[:, :, None, :]
    wide = c.astype(np.float64)
    top = exponents(wide, "f16" if c.dtype == np.float16 else "f32")
    e = np.empty_like(top)
    for k in range(depth):
        np.maximum(top, np.add(ea[k], eb[k], out=e), out=top)
    top -= np.int16(bits)
    scale = _POWERS.take(np.subtract(np.int16(_BIAS), top, out=e), mode="clip")
    total = np.trunc(wide * scale)
    term = np.empty_like(total)
    for k in range(depth):
        np.multiply(a[k], b[k], out=term)
        np.multiply(term, scale, out=term)
        np.trunc(term, out=term)
        np.add(total, term, out=total)
    np.multiply(total, _POWERS.take(np.add(top, np.int16(_BIAS), out=e), mode="clip"), out=total)
    total += 0.0  # a sum of zero is +0
    with np.errstate(over="ignore"):
        return total.astype(np.float16) if c.dtype == np.float16 else toward_zero(total, kept)
