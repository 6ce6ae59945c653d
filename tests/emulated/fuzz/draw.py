"""Random choices that are the same in every version of Python, and edge values of arithmetic."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

#: bits of a value of each kind; packed kinds are two values
BITS = {
    "pred": 8,
    "b8": 8,
    "u8": 8,
    "s8": 8,
    "e4m3": 8,
    "e5m2": 8,
    "b16": 16,
    "u16": 16,
    "s16": 16,
    "f16": 16,
    "bf16": 16,
    "e4m3x2": 16,
    "e5m2x2": 16,
    "b32": 32,
    "u32": 32,
    "s32": 32,
    "f32": 32,
    "tf32": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "u16x2": 32,
    "s16x2": 32,
    "b64": 64,
    "u64": 64,
    "s64": 64,
    "f64": 64,
}
#: (exponent bits, mantissa bits) of each floating-point format
FORMAT = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
    "tf32": (8, 23),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}


class Draw:
    """A stream of random numbers, seeded by its name."""

    def __init__(self, name: str) -> None:
        self.random = random.Random(name)  # seeding from text and getrandbits are stable across versions

    def bits(self, n: int) -> int:
        return self.random.getrandbits(n)

    def below(self, n: int) -> int:
        return self.random.getrandbits(48) % n

    def between(self, low: int, high: int) -> int:
        """A random integer; both ends are included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def shuffled(self, items: Sequence[T]) -> list[T]:
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            k = self.below(i + 1)
            out[i], out[k] = out[k], out[i]
        return out

    # ---- values, as bits

    def value(self, dtype: str) -> int:
        if dtype in ("f16x2", "bf16x2", "u16x2", "s16x2", "e4m3x2", "e5m2x2"):
            half = dtype[:-2]
            return self.value(half) | self.value(half) << BITS[half]
        if dtype == "pred":
            return self.bits(1)
        if dtype in FORMAT:
            return self.real(dtype)
        return self.integer(BITS[dtype])

    def integer(self, bits: int) -> int:
        top = (1 << bits) - 1
        how = self.below(8)
        if how < 2:
            return self.bits(bits)
        if how == 2:
            return self.bits(self.between(1, bits))  # of any size
        if how == 3:
            return -self.bits(self.between(1, bits)) & top
        power = 1 << self.below(bits)
        return (
            self.pick((0, 1, 2, 3, -1, -2, 1 << (bits - 1), (1 << (bits - 1)) - 1, power, power - 1, -power, ~power))
        ) & top

    def real(self, dtype: str) -> int:
        e, m = FORMAT[dtype]
        bias = (1 << (e - 1)) - 1
        sign = self.bits(1) << (e + m)
        top = (1 << e) - 1
        how = self.below(16)
        if how < 3:
            return sign | self.pick(
                (
                    0,
                    1,
                    (1 << m) - 1,
                    1 << m,
                    (1 << m) + 1,
                    (bias << m),
                    (bias << m) + 1,
                    (bias << m) - 1,
                    (bias + 1) << m,
                    (top << m) - 1,
                    ((top - 1) << m),
                    top << m,
                    (top << m) | 1 << (m - 1),
                    (top << m) | 1,
                    (top << m) | ((1 << m) - 1),
                )
            )
        if how < 5:
            return self.bits(1 + e + m)
        if how == 5:
            return sign | self.bits(m)  # subnormal
        mantissa = self.bits(m)
        if how < 10:  # few bits: products and sums that are exact or half way
            keep = self.between(0, m)
            mantissa = mantissa >> (m - keep) << (m - keep)
            if self.chance(30):
                mantissa |= 1
        if how == 15:
            return sign | self.below(top) << m | mantissa
        spread = 4 if how < 13 else 14 if e > 5 else 6
        return sign | (bias + self.between(-min(spread, bias - 1), min(spread, bias - 1))) << m | mantissa

    def related(self, dtype: str, other: int) -> int:
        """A value related to another one: equal, near, or of the other sign."""
        if dtype in ("f16x2", "bf16x2", "u16x2", "s16x2"):
            half = dtype[:-2]
            return self.related(half, other & 0xFFFF) | self.related(half, other >> 16) << 16
        bits = BITS[dtype]
        top = (1 << bits) - 1
        how = self.below(6)
        if dtype in FORMAT:
            flip = 1 << (bits - 1)
            return (
                other,
                other ^ flip,
                other ^ flip ^ 1,
                (other ^ flip) + self.between(-3, 3) & top,
                other ^ self.bits(3),
                other ^ flip ^ self.bits(bits // 2),
            )[how]
        return (other, other + 1 & top, other - 1 & top, ~other & top, -other & top, other ^ 1 << self.below(bits))[how]

    def literal(self, dtype: str) -> str:
        """A constant in PTX syntax."""
        bits = self.value(dtype)
        if dtype == "f32":
            return f"0f{bits:08X}"
        if dtype == "f64":
            return f"0d{bits:016X}"
        if dtype in ("s16", "s32", "s64") and bits >> (BITS[dtype] - 1):
            return str(bits - (1 << BITS[dtype]))
        return str(bits)


def pack(values: Sequence[int], dtype: str) -> bytes:
    """Values of one kind, one after another."""
    return struct.pack(f"<{len(values)}{'BHIQ'[(BITS[dtype] // 8).bit_length() - 1]}", *values)
