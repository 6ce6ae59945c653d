"""Floating-point arithmetic of PTX on NumPy arrays: one rounding in any mode, canonical NaNs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.reductions import any_true, flatnonzero

Array = NDArray[Any]


BF16 = np.dtype(ml_dtypes.bfloat16)


F16, F32, F64 = np.dtype("<f2"), np.dtype("<f4"), np.dtype("<f8")


TINY32 = float(np.finfo(np.float32).tiny)


NAN_BITS: dict[str, Any] = {"f32": np.uint32(0x7FFFFFFF), "f16": np.uint16(0x7FFF), "bf16": np.uint16(0x7FFF)}


BITS: dict[str, Any] = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}


FLOAT = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


#: the reduction operations that one NumPy function computes
REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


class Underflow:
    """Counts the underflows that NumPy reports: an inexact result below the normal range."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: object) -> None:
        self.count += 1


UNDERFLOW = Underflow()


def canonical(out: Array, dtype: str) -> None:
    """Replaces NaN results by the canonical NaN of the hardware; NaNs in f64 are unchanged."""
    if dtype == "f32":
        top = np.maximum.reduce(out)
        if top != top:
            out.view(np.uint32)[out != out] = NAN_BITS["f32"]
    elif dtype != "f64":
        bits = out.view(np.uint16)
        limit = 0x7C00 if dtype == "f16" else 0x7F80
        bad = (bits & np.uint16(0x7FFF)) > limit
        if any_true(bad):
            bits[bad] = NAN_BITS[dtype]


QUIET64, INVALID64 = np.uint64(1 << 51), np.uint64(0xFFF8 << 48)


def propagate_nans(value: Array, *operands: Array) -> Array:
    """Replaces NaN results in f64 by those of the hardware: the first NaN operand, made quiet, or the default NaN."""
    bad = value != value
    if not any_true(bad):
        return value
    word: Array = np.full(value.shape, INVALID64)
    for x in reversed(operands):
        word = np.where(x != x, np.asarray(x).view(np.uint64) | QUIET64, word)
    return np.where(bad, word, value.view(np.uint64)).view(F64)


def sqrt64(a: Array, mode: str) -> Array:
    """The square root of float64 values, rounded in the direction ``mode``."""
    near = np.sqrt(a)
    small = a < 2.0**-900
    x, r = np.where(small, a * 2.0**200, a), np.where(small, near * 2.0**100, near)
    big = x > 2.0**900
    x, r = np.where(big, x * 2.0**-200, x), np.where(big, r * 2.0**-100, r)
    high, low = two_product(r, r)
    excess = (high - x) + low  # exact: high and x are close
    if mode == "rp":
        return np.where(excess < 0, np.nextafter(near, np.inf), near)
    return np.where(excess > 0, np.nextafter(near, 0.0), near)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The pair (a + b rounded to float64, exact rounding error); sums must not overflow."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def to_odd(s: Array, lost: Array) -> Array:
    """Rounds sums to odd: sets the last bit of ``s`` where ``lost``, its rounding error, is not 0."""
    bits = np.array(s).view(np.int64)  # a copy; an array even if every operand is a constant
    inexact = (lost != 0) & np.isfinite(s) & np.isfinite(lost) & (bits & 1 == 0)
    step = np.where((lost > 0) == (s > 0), 1, -1)
    bits[inexact] += step[inexact]
    return bits.view(np.float64)


def round_to(x: Array, dtype: str, mode: str = "rn") -> Array:
    """Converts float64 values to ``dtype``. If inexact values were rounded to odd before, the result is as from one
    rounding."""
    if dtype == "f64":
        return x
    if dtype == "f32":
        return directed(x, x.astype(F32), mode)
    if dtype == "f16":
        return directed(x, x.astype(F16), mode)
    if mode == "rn":
        near = directed(x, x.astype(F32), "rz")
        bits = near.view(np.uint32)
        bits = bits | (near.astype(F64) != x) * np.isfinite(x)
        return bf16_from_f32(bits.astype(np.uint32).view(F32))
    down = directed(x, x.astype(F32), "rz")
    bits = down.view(np.uint32)
    high = (bits >> np.uint32(16)).astype(np.uint16)
    inexact = ((bits & np.uint32(0xFFFF)) != 0) | (down.astype(F64) != x)
    away = (
        inexact & np.isfinite(x) & ((x > 0) if mode == "rp" else (x < 0) if mode == "rm" else np.zeros(x.shape, bool))
    )
    high = high + away.astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), high).astype(np.uint16).view(BF16)


def bf16_from_f32(x: Array) -> Array:
    """Converts float32 to bf16, to nearest even; NaN becomes canonical."""
    bits = x.view(np.uint32)
    near = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    near[np.isnan(x)] = 0x7FFF
    return near.view(BF16)


def directed(exact: Array, near: Array, mode: str) -> Array:
    """Corrects a result that was rounded to nearest to the rounding mode ``mode``; ``exact``: the result in float64."""
    if mode == "rn":
        return near
    back = near.astype(F64)
    if mode == "rz":
        wrong = np.abs(back) > np.abs(exact)
        toward = np.zeros_like(near)
    elif mode == "rm":
        wrong = back > exact
        toward = np.full_like(near, -np.inf)
    elif mode == "rp":
        wrong = back < exact
        toward = np.full_like(near, np.inf)
    elif mode == "rna":
        return near
    else:
        raise AssertionError(mode)
    return np.where(wrong, np.nextafter(near, toward), near)


TINY = {"f32": TINY32, "f16": 2.0**-14, "bf16": TINY32, "f64": 2.0**-1022}


def flush(x: Array, dtype: str) -> Array:
    """Replaces subnormal numbers by zero of the same sign."""
    tiny = TINY[dtype]
    return np.where(np.abs(x) < np.array(tiny, x.dtype), np.copysign(np.zeros_like(x), x), x)


def flush_rounded(value: Array, dtype: str, mode: str, exact: Callable[[], Array]) -> Array:
    """Flushes subnormal results; ``exact``: the result before rounding (float64, rounded to odd).

    The hardware tests the result as rounded with an unbounded exponent. A result that rounds up to the smallest normal
    number only because subnormal numbers have fewer bits is therefore flushed, too.
    """
    out = flush(value, dtype)
    edge = np.abs(out) == np.array(TINY[dtype], out.dtype)
    if any_true(edge):
        again = round_to(np.ascontiguousarray(np.broadcast_to(exact(), out.shape)) * 256.0, dtype, mode)
        edge &= np.abs(again) < np.array(TINY[dtype] * 256.0, out.dtype)
        out = np.where(edge, np.copysign(np.zeros_like(out), out), out)
    return out


def saturate(x: Array) -> Array:
    """Clamps to [0, 1]; NaN and -0 become +0."""
    one = np.ones((), x.dtype)
    return np.where(x > 0, np.where(x > one, one, x), np.zeros((), x.dtype))


def wide(x: Array) -> Array:
    return x.astype(F64)


def add_odd(a: Array, b: Array) -> Array:
    """a + b of float64 values, rounded to odd."""
    s, lost = two_sum(a, b)
    return to_odd(s, lost)


# ---- float64: products are not exact in a wider type


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The pair (a * b rounded to float64, exact rounding error), by Veltkamp's and Dekker's splitting."""
    p = a * b
    k = 134217729.0
    t = k * a
    ah = t - (t - a)
    al = a - ah
    t = k * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c with one rounding."""
    a, b, c = np.broadcast_arrays(np.asarray(a, F64), np.asarray(b, F64), np.asarray(c, F64))
    ph, pl = two_product(a, b)
    sh, sl = two_sum(c, pl)
    vh, vl = two_sum(ph, sh)
    out = vh + to_odd(*two_sum(vl, sl))
    # an infinite c is the result even if the product overflows float64
    plain = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c)
    if mode == "rm":
        opposite = np.signbit(a) ^ np.signbit(b) ^ np.signbit(c)
        plain = np.where(((a == 0) | (b == 0)) & (c == 0) & opposite, -0.0, plain)
    special = ~np.isfinite(plain) | (a == 0) | (b == 0)
    hard = np.zeros(a.shape, bool)
    for x in (a, b):
        hard |= np.abs(x) > 2.0**900
    size = np.abs(ph)
    hard |= (size < 2.0**-900) | (size > 2.0**1000) | (np.abs(c) > 2.0**1000) | (np.abs(out) < 2.0**-960)
    hard &= np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    if mode != "rn":
        hard |= np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    out = np.where(special & ~hard, plain, out)
    if any_true(hard):
        out = out.copy()
        for i in flatnonzero(hard):
            (an, ad), (bn, bd), (cn, cd) = (float(x[i]).as_integer_ratio() for x in (a, b, c))
            exact = an * bn * cd + cn * ad * bd
            if exact:
                out[i] = ratio_to_f64(exact, ad * bd * cd, mode)
            else:
                zero = float(plain[i]) if plain[i] == 0 else 0.0
                if mode == "rm" and not (a[i] * b[i] == 0 and c[i] == 0):
                    zero = -0.0
                out[i] = zero
    return out


def ratio_to_f64(n: int, d: int, mode: str) -> float:
    """n / d as float64 by the given rounding; n / d is not zero. A Fraction would first divide by common factors."""
    sign = -1 if (n < 0) != (d < 0) else 1
    n, d = abs(n), abs(d)
    exponent = n.bit_length() - d.bit_length()
    if d << max(exponent, 0) > n << max(-exponent, 0):
        exponent -= 1
    unit = max(exponent, -1022) - 52
    d <<= max(unit, 0)
    whole, rest = divmod(n << max(-unit, 0), d)
    up = {
        "rn": 2 * rest > d or (2 * rest == d and whole & 1 == 1),
        "rz": False,
        "rp": rest > 0 and sign > 0,
        "rm": rest > 0 and sign < 0,
    }[mode]
    whole += up
    if whole.bit_length() + unit > 1024:
        inward = mode == "rz" or (mode == "rp" and sign < 0) or (mode == "rm" and sign > 0)
        return sign * (float(np.finfo(F64).max) if inward else math.inf)
    return sign * math.ldexp(whole, unit)


def directed_f64(operation: str, mode: str, a: Array, b: Array) -> Array:
    """add, mul or div of float64, rounded in the direction ``mode``, lane by lane."""
    with np.errstate(all="ignore"):
        out = np.array({"add": np.add, "mul": np.multiply, "div": np.divide}[operation](a, b), F64, ndmin=1)
    a, b = np.broadcast_to(a, out.shape), np.broadcast_to(b, out.shape)
    for i in flatnonzero(np.isfinite(a) & np.isfinite(b) & ~((operation == "div") & (b == 0))):
        (xn, xd), (yn, yd) = (float(x[i]).as_integer_ratio() for x in (a, b))
        n, d = {"add": (xn * yd + yn * xd, xd * yd), "mul": (xn * yn, xd * yd), "div": (xn * yd, xd * yn)}[operation]
        if n:
            out[i] = ratio_to_f64(n, d, mode)
        elif operation == "add" and mode == "rm" and (a[i] or np.signbit(a[i]) != np.signbit(b[i])):
            out[i] = -0.0
    return out
