"""The approximate instructions, on inputs for which PTX bounds their error."""

from __future__ import annotations

import math
import struct

from .draw import Draw
from .kernel import Case, Kernel

TAU = 2 * math.pi


def f32(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def angle(d: Draw, limit: float) -> int:
    """Mostly angles up to a limit, also tiny ones and NaN."""
    how = d.below(8)
    if how == 0:
        return d.pick((0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x80000001, 0x007FFFFF, 0x00800000))
    if how == 1:
        return d.bits(1) << 31 | d.between(90, 127) << 23 | d.bits(23)
    if how == 2:
        return f32(d.between(-int(limit / math.pi * 4), int(limit / math.pi * 4)) * math.pi / 4 * 0.9999)
    return f32((d.bits(24) / (1 << 23) - 1) * limit)


def moderate(d: Draw) -> int:
    """A float32 of any size between 2^-126 and 2^126."""
    return d.bits(1) << 31 | d.between(1, 252) << 23 | d.bits(23)


def exponent(d: Draw) -> int:
    """An argument of ex2: mostly such that the result is finite."""
    if d.chance(30):
        return d.value("f32")
    return f32((d.bits(24) / (1 << 23) - 1) * d.pick((1.0, 8.0, 152.0)))


def small_f16(d: Draw) -> int:
    return d.value("f16") if d.chance(40) else d.bits(1) << 15 | d.between(5, 18) << 10 | d.bits(10)


def small_bf16(d: Draw) -> int:
    return d.value("bf16") if d.chance(40) else d.bits(1) << 15 | d.between(115, 133) << 7 | d.bits(7)


def near_f32(d: Draw) -> int:
    return d.value("f32") if d.chance(60) else d.bits(1) << 31 | d.between(117, 132) << 23 | d.bits(23)


def near_one(d: Draw) -> int:
    return f32(0.5 + 1.5 * d.bits(24) / (1 << 24))


#: (instruction, kinds, rule, what draws each operand; None: any value)
TABLE = (
    ("rcp.approx.f32", "f32", "ulp 1", (None,)),
    ("rcp.approx.ftz.f32", "f32", "ulp 1", (None,)),
    ("sqrt.approx.f32", "f32", f"rel {2**-23}", (None,)),
    ("sqrt.approx.ftz.f32", "f32", f"rel {2**-23}", (None,)),
    ("rsqrt.approx.f32", "f32", f"rel {2**-22.9}", (None,)),
    ("rsqrt.approx.ftz.f32", "f32", f"rel {2**-22.9}", (None,)),
    ("sin.approx.f32", "f32", f"abs {2**-20.5}", (lambda d: angle(d, TAU),)),
    ("cos.approx.f32", "f32", f"abs {2**-20.5}", (lambda d: angle(d, TAU),)),
    ("sin.approx.ftz.f32", "f32", f"abs {2**-14.7}", (lambda d: angle(d, 50 * TAU),)),
    ("cos.approx.ftz.f32", "f32", f"abs {2**-14.7}", (lambda d: angle(d, 50 * TAU),)),
    ("lg2.approx.f32", "f32", f"abs {2**-22}", (near_one,)),
    ("lg2.approx.f32", "f32", f"log {2**-22}", (None,)),
    ("lg2.approx.ftz.f32", "f32", f"log {2**-22}", (None,)),
    ("ex2.approx.f32", "f32", "ulp 2", (exponent,)),
    ("ex2.approx.ftz.f32", "f32", "ulp 2", (exponent,)),
    ("tanh.approx.f32", "f32", f"rel {2**-11}", (near_f32,)),
    ("div.approx.f32", "f32", "ulp 2", (None, moderate)),
    ("div.approx.ftz.f32", "f32", "ulp 2", (None, moderate)),
    ("div.full.f32", "f32", "ulp 2", (None, None)),
    ("div.full.ftz.f32", "f32", "ulp 2", (None, None)),
    ("rcp.approx.ftz.f64", "f64", f"rel {2**-19}", (None,)),
    ("rsqrt.approx.ftz.f64", "f64", f"rel {2**-19}", (None,)),
    ("rsqrt.approx.f64", "f64", f"rel {2**-19}", (None,)),
    ("ex2.approx.f16", "f16", f"rel {2**-9.9}", (small_f16,)),
    ("ex2.approx.f16x2", "f16x2", f"rel {2**-9.9}", (lambda d: small_f16(d) | small_f16(d) << 16,)),
    ("ex2.approx.ftz.bf16", "bf16", f"rel {2**-7}", (small_bf16,)),
    ("ex2.approx.ftz.bf16x2", "bf16x2", f"rel {2**-7}", (lambda d: small_bf16(d) | small_bf16(d) << 16,)),
    ("tanh.approx.f16", "f16", f"abs {2**-10.987}", (small_f16,)),
    ("tanh.approx.f16x2", "f16x2", f"abs {2**-10.987}", (lambda d: small_f16(d) | small_f16(d) << 16,)),
    ("tanh.approx.bf16", "bf16", f"abs {2**-8}", (small_bf16,)),
    ("tanh.approx.bf16x2", "bf16x2", f"abs {2**-8}", (lambda d: small_bf16(d) | small_bf16(d) << 16,)),
)


def kernel(name: str, row: tuple) -> Case:
    op, dtype, rule, draws = row
    k = Kernel(name, "approximate", (64,), (2,))
    operands = []
    for draw in draws:
        operands.append(k.load(dtype, None if draw is None else [draw(k.draw) for _ in range(k.total)]))
    out = k.reg_of(dtype)
    k.emit(f"{op} {out}, {', '.join(operands)};")
    k.store(out, dtype, rule, op)
    return k.case()


def cases() -> list[Case]:
    return [kernel(f"approximate_{i:02d}_{turn}", row) for turn in range(2) for i, row in enumerate(TABLE)]
