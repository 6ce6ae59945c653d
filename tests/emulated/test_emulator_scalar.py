"""Scalar instructions, against plain Python integers and exact rationals, where the recording of a GPU has few or no
values: shifts by the width, division by zero, bit fields. ``test_emulator_hardware.py`` compares all forms with it."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import compute

rng = np.random.default_rng(7)
EDGES = {
    32: [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0x12345678, 0xFF, 0x8000],
    64: [0, 1, 63, 64, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x123456789ABCDEF0, 0xFFFFFFFF, 1 << 32],
    16: [0, 1, 15, 16, 0x7FFF, 0x8000, 0xFFFF, 0x1234],
}


def values(bits: int, n: int = 400):
    """Every pair of edge values, then random ones."""
    e = EDGES[bits]
    a = (
        [x for x in e for _ in e] + [int(x) for x in rng.integers(0, 1 << bits, n, dtype=np.uint64, endpoint=False)]
        if bits < 64
        else [x for x in e for _ in e] + [int(x) for x in rng.integers(0, (1 << 64) - 1, n, dtype=np.uint64)]
    )
    b = [y for _ in e for y in e] + a[: len(e) * len(e) - 1 : -1]
    return a, b


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def array(values: list[int], bits: int):
    return np.array(values, f"u{bits // 8}")


@pytest.mark.parametrize("dtype", ["u32", "s32", "u64", "s64"])
def test_division_by_zero(dtype):
    """The recording has no zero divisors: PTX leaves the result open, and the hardware gives all ones."""
    bits = int(dtype[1:])
    a = array(EDGES[bits], bits)
    for op in ("div", "rem"):
        got = compute(f"{op}.{dtype} %z, %a, %b;", f"u{bits // 8}", a, np.zeros_like(a))
        assert got.tolist() == [(1 << bits) - 1] * len(a)


@pytest.mark.parametrize(
    ("name", "source", "sign"), [("u32", 32, False), ("s32", 32, True), ("u16", 16, False), ("s16", 16, True)]
)
def test_wide_products(name, source, sign):
    a, b = values(source)
    out = 2 * source
    got = compute(f"mul.wide.{name} %z, %a, %b;", f"u{out // 8}", array(a, source), array(b, source))
    both = [(signed(x, source), signed(y, source)) if sign else (x, y) for x, y in zip(a, b, strict=True)]
    assert got.tolist() == [x * y & ((1 << out) - 1) for x, y in both]
    c = array(values(out)[0], out)
    c = np.resize(c, len(a))
    got = compute(f"mad.wide.{name} %z, %a, %b, %c;", f"u{out // 8}", array(a, source), array(b, source), c)
    assert got.tolist() == [(x * y + int(k)) & ((1 << out) - 1) for (x, y), k in zip(both, c, strict=True)]


def test_mad_lo_and_hi():
    a, b = values(32)
    c = a[::-1]
    got = compute("mad.lo.s32 %z, %a, %b, %c;", "u4", array(a, 32), array(b, 32), array(c, 32))
    assert got.tolist() == [(x * y + z) & 0xFFFFFFFF for x, y, z in zip(a, b, c, strict=True)]
    got = compute("mad.hi.u32 %z, %a, %b, %c;", "u4", array(a, 32), array(b, 32), array(c, 32))
    assert got.tolist() == [((x * y >> 32) + z) & 0xFFFFFFFF for x, y, z in zip(a, b, c, strict=True)]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts(bits):
    a, _ = values(bits)
    by = [(i * 7) % (2 * bits + 3) for i in range(len(a))]
    by[0:3] = [0xFFFFFFFF, bits, bits - 1]
    mask = (1 << bits) - 1
    for code, want in [
        (f"shl.b{bits}", lambda x, n: x << n if n < bits else 0),
        (f"shr.u{bits}", lambda x, n: x >> n),
        (f"shr.s{bits}", lambda x, n: signed(x, bits) >> min(n, bits - 1)),
    ]:
        got = compute(f"{code} %z, %a, %b;", f"u{bits // 8}", array(a, bits), array(by, 32))
        assert got.tolist() == [want(x, n) & mask for x, n in zip(a, by, strict=True)]
        for n in (0, 3, bits - 1, bits, 200):
            got = compute(f"{code} %z, %a, {n};", f"u{bits // 8}", array(a, bits))
            assert got.tolist() == [want(x, n) & mask for x in a]


def test_funnel_shift():
    a, b = values(32)
    by = [i % 70 for i in range(len(a))]
    for mode, clamp in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        args = array(a, 32), array(b, 32), array(by, 32)
        got = compute(f"shf.l.{mode}.b32 %z, %a, %b, %c;", "u4", *args)
        want = [((y << 32 | x) << clamp(n) >> 32) & 0xFFFFFFFF for x, y, n in zip(a, b, by, strict=True)]
        assert got.tolist() == want
        got = compute(f"shf.r.{mode}.b32 %z, %a, %b, %c;", "u4", *args)
        assert got.tolist() == [(y << 32 | x) >> clamp(n) & 0xFFFFFFFF for x, y, n in zip(a, b, by, strict=True)]


@pytest.mark.parametrize("dtype", ["u32", "s32", "u64", "s64"])
def test_bit_fields(dtype):
    bits = int(dtype[1:])
    a, _ = values(bits)
    at = np.array([(i * 5) % 80 for i in range(len(a))], "u4")
    length = np.array([(i * 3) % 75 for i in range(len(a))], "u4")
    got = compute(f"bfe.{dtype} %z, %a, %b, %c;", f"u{bits // 8}", array(a, bits), at, length)

    def extract(x: int, pos: int, n: int) -> int:
        top = min(pos + n - 1, bits - 1)
        fill = x >> top & 1 if dtype[0] == "s" and n else 0
        out = 0
        for i in range(bits):
            out |= (x >> (pos + i) & 1 if i < n and pos + i < bits else fill) << i
        return out

    assert got.tolist() == [extract(x, int(p), int(n)) for x, p, n in zip(a, at, length, strict=True)]


def test_bit_field_insert():
    a, b = values(32)
    got = compute(
        "bfi.b32 %z, %a, %b, 5, %c;", "u4", array(a, 32), array(b, 32), array([i % 40 for i in range(len(a))], 32)
    )
    want = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        for k in range(i % 40):
            if 5 + k < 32:
                y = y & ~(1 << (5 + k)) | (x >> k & 1) << (5 + k)
        want.append(y)
    assert got.tolist() == want


def test_counting_bits():
    for bits in (32, 64):
        a, _ = values(bits)
        x = array(a, bits)
        assert compute(f"popc.b{bits} %z, %a;", "u4", x).tolist() == [v.bit_count() for v in a]
        assert compute(f"clz.b{bits} %z, %a;", "u4", x).tolist() == [bits - v.bit_length() for v in a]
        assert compute(f"bfind.u{bits} %z, %a;", "u4", x).tolist() == [(v.bit_length() - 1) & 0xFFFFFFFF for v in a]
        got = compute(f"bfind.s{bits} %z, %a;", "u4", x).tolist()
        assert got == [((v if signed(v, bits) >= 0 else ~v & (1 << bits) - 1).bit_length() - 1) & 0xFFFFFFFF for v in a]
        got = compute(f"brev.b{bits} %z, %a;", f"u{bits // 8}", x)
        assert got.tolist() == [int(f"{v:0{bits}b}"[::-1], 2) for v in a]


def test_prmt():
    a, b = values(32)
    c = [int(x) for x in rng.integers(0, 1 << 16, len(a))]

    def permute(x: int, y: int, select: int) -> int:
        source = (y << 32 | x).to_bytes(8, "little")
        out = []
        for i in range(4):
            n = select >> (4 * i) & 15
            byte = source[n & 7]
            out.append((0xFF if byte & 0x80 else 0) if n & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    got = compute("prmt.b32 %z, %a, %b, %c;", "u4", array(a, 32), array(b, 32), array(c, 32))
    assert got.tolist() == [permute(*t) for t in zip(a, b, c, strict=True)]
    got = compute("prmt.b32.f4e %z, %a, %b, 1;", "u4", array(a, 32), array(b, 32))
    assert got.tolist() == [permute(x, y, 0x4321) for x, y in zip(a, b, strict=True)]


def test_extended_carry():
    a, b = values(64)
    got = compute(
        """{ .reg .b32 %l, %h, %m, %n, %x, %y; mov.b64 {%l, %h}, %a; mov.b64 {%m, %n}, %b;
        add.cc.u32 %x, %l, %m; addc.u32 %y, %h, %n; mov.b64 %z, {%x, %y}; }""",
        "u8",
        array(a, 64),
        array(b, 64),
    )
    assert got.tolist() == [(x + y) & (1 << 64) - 1 for x, y in zip(a, b, strict=True)]
    got = compute(
        """{ .reg .b32 %l, %h, %m, %n, %x, %y; mov.b64 {%l, %h}, %a; mov.b64 {%m, %n}, %b;
        sub.cc.u32 %x, %l, %m; subc.u32 %y, %h, %n; mov.b64 %z, {%x, %y}; }""",
        "u8",
        array(a, 64),
        array(b, 64),
    )
    assert got.tolist() == [(x - y) & (1 << 64) - 1 for x, y in zip(a, b, strict=True)]


def test_dp4a():
    a, b = values(32)
    pieces = lambda x: [signed(x >> 8 * i, 8) for i in range(4)]  # noqa: E731
    got = compute("dp4a.s32.s32 %z, %a, %b, %c;", "u4", array(a, 32), array(b, 32), array(a[::-1], 32))
    want = [
        (sum(p * q for p, q in zip(pieces(x), pieces(y), strict=True)) + z) & 0xFFFFFFFF
        for x, y, z in zip(a, b, a[::-1], strict=True)
    ]
    assert got.tolist() == want


# ---- floating point


def rounded(x: Fraction, digits: int, low: int, high: int, mode: str = "rn") -> float:
    """A rational to a binary format with `digits` bits, smallest exponent `low`, largest `high`."""
    if x == 0:
        return 0.0
    sign = -1 if x < 0 else 1
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** e > x:
        e -= 1
    unit = Fraction(2) ** (max(e, low) - digits + 1)
    whole = x // unit
    rest = x - whole * unit
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2),
        "rz": False,
        "rp": rest and sign > 0,
        "rm": rest and sign < 0,
    }[mode]
    whole += 1 if up else 0
    value = whole * unit
    if value >= Fraction(2) ** (high + 1):
        inward = mode == "rz" or (mode == "rp" and sign < 0) or (mode == "rm" and sign > 0)
        return sign * (float((2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** high) if inward else math.inf)
    return sign * float(value)


FORMATS = {"f32": (24, -126, 127), "f16": (11, -14, 15), "bf16": (8, -126, 127), "f64": (53, -1022, 1023)}


def test_fma_rounds_once():
    """a*b + c where float64 rounds to half way, and then float32 to the wrong side."""
    one = np.array([1 + 2**-12, 1 + 2**-12, -(1 + 2**-12)], "f4")
    c = np.array([2.0**-60, -(2.0**-60), 2.0**-60], "f4")
    got = compute("fma.rn.f32 %z, %a, %b, %c;", "f4", one, np.abs(one), c)
    exact = [Fraction(float(x)) * Fraction(float(abs(x))) + Fraction(float(y)) for x, y in zip(one, c, strict=True)]
    assert got.tolist() == [rounded(x, *FORMATS["f32"]) for x in exact]
    twice = (one.astype("f8") * np.abs(one) + c).astype("f4")
    assert (got != twice).any()


def test_fma_rounds_once_to_subnormals():
    a = np.array([2.0**-75 * (1 + 2**-10), 2.0**-74, 2.0**-100], "f4")
    b = np.array([2.0**-75 * (1 + 2**-12), 2.0**-76 * (1 + 2**-23), 2.0**-40 * (1 + 2**-20)], "f4")
    rows = [(x, y, s * 2.0**e) for x, y in zip(a, b, strict=True) for e in range(-149, -140) for s in (1, -1)]
    rows += [(2.0**-75, 2.0**-75, 1.5 * 2.0**-148), (2.0**-75 + 2.0**-98, 2.0**-75, 2.0**-149)]
    x, y, z = (np.array(column, "f4") for column in zip(*rows, strict=True))
    got = compute("fma.rn.f32 %z, %a, %b, %c;", "f4", x, y, z)
    for g, (p, q, r) in zip(got, zip(x, y, z, strict=True), strict=True):
        exact = Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))
        assert float(g) == rounded(exact, *FORMATS["f32"])


def test_flush_to_zero():
    a = np.array([1e-40, -1e-40, 1e-20, 2.0**-126, 1.0], "f4")
    b = np.array([1.0, 1.0, 1e-20, -0.5, 1.0], "f4")
    got = compute("mul.ftz.f32 %z, %a, %b;", "f4", a, b)
    assert got.view("u4").tolist() == [0, 0x80000000, 0, 0x80000000, 0x3F800000]
    got = compute("add.ftz.f32 %z, %a, %b;", "f4", a, -b)
    assert got[0] == -1
    assert compute("add.rn.f32 %z, %a, %b;", "f4", a, np.zeros(5, "f4"))[0] == a[0]


def test_saturation():
    a = np.array([-1.0, 0.5, 2.0, np.nan, -0.0, np.inf], "f4")
    got = compute("add.sat.f32 %z, %a, %b;", "f4", a, np.zeros(6, "f4"))
    assert got.view("u4").tolist() == [0, 0x3F000000, 0x3F800000, 0, 0, 0x3F800000]


@pytest.mark.parametrize("op", ["min", "max"])
def test_minimum_and_maximum(op):
    nan, inf = np.nan, np.inf
    a = np.array([0.0, -0.0, nan, 1.0, nan, -inf, 3.0], "f4")
    b = np.array([-0.0, 0.0, 1.0, nan, nan, 1.0, 2.0], "f4")
    got = compute(f"{op}.f32 %z, %a, %b;", "f4", a, b).view("u4").tolist()
    if op == "min":
        assert got == [0x80000000, 0x80000000, 0x3F800000, 0x3F800000, 0x7FFFFFFF, 0xFF800000, 0x40000000]
    else:
        assert got == [0, 0, 0x3F800000, 0x3F800000, 0x7FFFFFFF, 0x3F800000, 0x40400000]
    got = compute(f"{op}.NaN.f32 %z, %a, %b;", "f4", a, b)
    assert np.isnan(got).tolist() == [False, False, True, True, True, False, False]


# ---- conversions


def test_tf32():
    a = np.array([0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0x7F7FFFFF, 0x7FC00001, 0xFF800000], "u4")
    x = a.view("f4")
    got = compute("cvt.rna.tf32.f32 %z, %a;", "u4", x)
    assert got.tolist() == [0x3F800000, 0x3F802000, 0x3F802000, 0x3F804000, 0x7F800000, 0x7FC00000, 0xFF800000]
    got = compute("cvt.rn.tf32.f32 %z, %a;", "u4", x)
    assert got.tolist() == [0x3F800000, 0x3F800000, 0x3F802000, 0x3F804000, 0x7F800000, 0x7FFFE000, 0xFF800000]


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
def test_fp8(element):
    dtype = ml_dtypes.float8_e4m3fn if element == "e4m3" else ml_dtypes.float8_e5m2
    big = 448.0 if element == "e4m3" else 57344.0
    a = np.concatenate(
        [rng.standard_normal(500) * 2.0 ** rng.integers(-20, 20, 500), [0.0, -0.0, 1e9, -1e9, np.inf]]
    ).astype("f4")
    b = np.roll(a, 1)
    got = compute(f"cvt.rn.satfinite.{element}x2.f32 %z, %a, %b;", "u2", a, b)
    want = np.clip(a, -big, big).astype(dtype)
    assert (np.ascontiguousarray(got >> 8).astype("u1").view(dtype).astype("f4") == want.astype("f4")).all()
    back = compute(f"cvt.rn.f16x2.{element}x2 %z, %a;", "u4", got)
    assert ((back >> 16).astype("u2").view("f2").astype("f4") == want.astype("f4")).all()


def test_integer_conversions():
    a, _ = values(32)
    x = array(a, 32)
    assert compute("cvt.s64.s32 %z, %a;", "i8", x).tolist() == [signed(v, 32) for v in a]
    assert compute("cvt.u64.u32 %z, %a;", "u8", x).tolist() == a
    assert compute("cvt.s32.s8 %z, %a;", "i4", x).tolist() == [signed(v, 8) for v in a]
    assert compute("cvt.u16.u32 %z, %a;", "u2", x).tolist() == [v & 0xFFFF for v in a]
    assert compute("cvt.sat.s16.s32 %z, %a;", "i2", x).tolist() == [max(-32768, min(32767, signed(v, 32))) for v in a]
    assert compute("cvt.sat.u8.s32 %z, %a;", "u4", x).tolist() == [max(0, min(255, signed(v, 32))) for v in a]


def test_functions():
    x = np.abs(rng.standard_normal(500)).astype("f4") + np.float32(0.01)
    for code, f in [
        ("rcp.rn.f32", lambda t: 1 / t),
        ("sqrt.rn.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda t: 1 / np.sqrt(t)),
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
    ]:
        got = compute(f"{code} %z, %a;", "f4", x)
        assert np.allclose(got, f(x.astype("f8")), rtol=2e-7, atol=1e-7)


def test_packing():
    a, b = values(32)
    got = compute("mov.b64 %z, {%a, %b};", "u8", array(a, 32), array(b, 32))
    assert got.tolist() == [y << 32 | x for x, y in zip(a, b, strict=True)]
    got = compute("{ .reg .b16 %l, %h; mov.b32 {%l, %h}, %a; mov.b32 %z, {%h, %l}; }", "u4", array(a, 32))
    assert got.tolist() == [x >> 16 | (x & 0xFFFF) << 16 for x in a]


def test_predicate_logic():
    a, b = values(32)
    got = compute(
        """{ .reg .pred %s, %t, %u; setp.lt.u32 %s, %a, %b; setp.eq.u32 %t, %a, 1; xor.pred %u, %s, %t;
    not.pred %s, %s; or.pred %u, %u, %s; mov.pred %t, %u; selp.u32 %z, 5, 7, %t; }""",
        "u4",
        array(a, 32),
        array(b, 32),
    )
    assert got.tolist() == [5 if ((x < y) != (x == 1)) or not x < y else 7 for x, y in zip(a, b, strict=True)]


def test_slct_and_selp_of_halves():
    a = np.array([-1.0, -0.0, 0.0, 3.0], "f4")
    got = compute("slct.u32.f32 %z, 10, 20, %a;", "u4", a)
    assert got.tolist() == [20, 10, 10, 10]


@pytest.mark.parametrize(
    ("what", "want"),
    [
        ("finite", [1, 1, 1, 0, 0, 1]),
        ("infinite", [0, 0, 0, 1, 0, 0]),
        ("number", [1, 1, 1, 1, 0, 1]),
        ("notanumber", [0, 0, 0, 0, 1, 0]),
        ("normal", [1, 1, 0, 0, 0, 1]),
        ("subnormal", [0, 0, 1, 0, 0, 0]),
    ],
)
def test_testp(what, want):
    a = np.array([0.0, 1.0, -1e-40, -np.inf, np.nan, 2.0**-126], "f4")
    got = compute(f"{{ .reg .pred %s; testp.{what}.f32 %s, %a; selp.u32 %z, 1, 0, %s; }}", "u4", a)
    assert got.tolist() == want
