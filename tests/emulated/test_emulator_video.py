"""Video instructions, as ptxas assembles them, against integers of Python; registers of two and four elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emulator_kernels import compute, launch, run

from ptxgen.errors import ParseError, UnsupportedError

WORD, LONG = (1 << 32) - 1, (1 << 64) - 1


def s(x: int, bits: int = 32) -> int:
    """The low bits as a signed number."""
    x &= (1 << bits) - 1
    return x - (x >> (bits - 1) << bits)


def byte(x: int, i: int) -> int:
    return x >> (8 * i) & 255


def half(x: int, i: int) -> int:
    return x >> (16 * i) & 65535


def clip(x: int, bits: int, signed: bool = True) -> int:
    low = -(1 << (bits - 1)) if signed else 0
    return min(max(x, low), low + (1 << bits) - 1)


def most(x: int, high: int) -> int:
    """Saturation to a byte or half word: negative numbers are read as large ones."""
    return x if 0 <= x <= high else high


def put(c: int, x: int, at: int, bits: int) -> int:
    mask = (1 << bits) - 1 << at
    return c & ~mask | x << at & mask


def pack(lanes: list[int], bits: int) -> int:
    return sum((x & (1 << bits) - 1) << (bits * i) for i, x in enumerate(lanes))


Reference = Callable[[int, int, int], int]
FORMS: dict[str, Reference] = {
    "vadd.s32.u32.s32.sat %z, %a, %b": lambda a, b, c: clip(a + s(b), 32),
    "vadd.u32.u32.u32 %z, %a.b0, %b.h1": lambda a, b, c: byte(a, 0) + half(b, 1),
    "vadd.s32.s32.s32.add %z, %a.b3, %b.h0, %c": lambda a, b, c: s(byte(a, 3), 8) + s(half(b, 0), 16) + c,
    "vadd.s32.s32.u32.sat %z.b2, %a, %b.h1, %c": lambda a, b, c: put(c, most(s(a) + half(b, 1), 127), 16, 8),
    "vsub.s32.u32.u32.sat.min %z, %a.b1, %b.b2, %c": lambda a, b, c: min(byte(a, 1) - byte(b, 2), s(c)),
    "vsub.u32.u32.u32.sat %z, %a, %b": lambda a, b, c: clip(a - b, 32, False),
    "vabsdiff.u32.s32.s32.add %z, %a.h0, %b.h1, %c": lambda a, b, c: abs(s(half(a, 0), 16) - s(half(b, 1), 16)) + c,
    "vmin.s32.s32.s32 %z.h1, %a, %b, %c": lambda a, b, c: put(c, min(s(a), s(b)) >> 16, 16, 16),
    "vmax.u32.u32.u32.max %z, %a, %b, %c": lambda a, b, c: max(a, b, c),
    "vsub.u32.u32.s32.sat %z.h0, %a.h1, %b.b3, %c": lambda a, b, c: put(
        c, most(half(a, 1) - s(byte(b, 3), 8), 65535), 0, 16
    ),
    "vadd.u32.u32.u32.max %z, %a, %b, %c": lambda a, b, c: max(s(a + b) & LONG, c),
    "vadd.s32.u32.u32.max %z, %a, %b, %c": lambda a, b, c: max(s(a + b), s(c)),
    "vmin.u32.s32.u32.min %z, %a, %b, %c": lambda a, b, c: min(min(s(a), b) & LONG, c),
    "vmax.s32.u32.s32.min %z, %a, %b, %c": lambda a, b, c: min(max(a, s(b)), s(c)),
    "vshl.s32.u32.u32.wrap.min %z, %a, %b, %c": lambda a, b, c: min(a << (b & 31), s(c)),
    "vshl.u32.u32.u32.clamp %z, %a, %b.b0": lambda a, b, c: a << min(byte(b, 0), 32),
    "vshl.s32.s32.u32.sat.clamp %z, %a, %b.b0": lambda a, b, c: clip(s(s(a) << min(byte(b, 0), 32), 34), 32),
    "vshl.u32.u32.u32.sat.clamp %z, %a, %b.b0": lambda a, b, c: clip(s(a << min(byte(b, 0), 32), 34), 32, False),
    "vshr.s32.s32.u32.wrap.add %z, %a, %b, %c": lambda a, b, c: (s(a) >> (b & 31)) + c,
    "vshr.u32.s32.u32.sat.clamp %z.b1, %a, %b.b0, %c": lambda a, b, c: put(
        c, clip(s(a) >> min(byte(b, 0), 32), 32, False), 8, 8
    ),
    "vmad.s32.s32.u32 %z, %a.h0, %b.b1, %c": lambda a, b, c: s(half(a, 0), 16) * byte(b, 1) + s(c),
    "vmad.u32.u32.u32.po.shr7 %z, %a, %b, %c": lambda a, b, c: (a * b + c + 1) >> 7,
    "vmad.s32.u32.u32.sat.shr15 %z, %a.h1, %b, -%c": lambda a, b, c: clip((half(a, 1) * b - s(c)) >> 15, 32),
    "vmad.s32.s32.s32.sat %z, -%a, %b, %c": lambda a, b, c: clip(-s(a) * s(b) + s(c), 32),
    "vmad.u32.u32.u32.sat %z, %a, %b, %c": lambda a, b, c: clip(a * b + c, 32, False),
    "vset.u32.u32.lt %z, %a.b0, %b": lambda a, b, c: byte(a, 0) < b,
    "vset.s32.u32.ge.max %z, %a, %b, %c": lambda a, b, c: max(s(a) >= b, s(c)),
    "vset.u32.s32.ge.max %z, %a, %b, %c": lambda a, b, c: max(a >= s(b), c),
    "vset.s32.s32.ge.add %z, %a, %b.h0, %c": lambda a, b, c: (s(a) >= s(half(b, 0), 16)) + c,
    "vset.u32.u32.ne %z.b0, %a, %b, %c": lambda a, b, c: put(c, a != b, 0, 8),
    "vadd2.s32.s32.s32 %z, %a, %b, %c": lambda a, b, c: pack([half(a, i) + half(b, i) for i in (0, 1)], 16),
    "vadd2.s32.u32.s32.sat %z.h10, %a.h32, %b.h01, %c": lambda a, b, c: pack(
        [clip(half(b, i) + s(half(a, 1 - i), 16), 16) for i in (0, 1)], 16
    ),
    "vadd2.u32.u32.u32.add %z.h0, %a, %b, %c": lambda a, b, c: half(a, 0) + half(b, 0) + c,
    "vsub2.s32.s32.s32.sat %z.h1, %a, %b.h13, %c": lambda a, b, c: put(
        c, clip(s(half(a, 1), 16) - s(half(a, 1), 16), 16), 16, 16
    ),
    "vavrg2.s32.s32.s32 %z, %a, %b, %c": lambda a, b, c: pack(
        [(t + (t >= 0)) >> 1 for i in (0, 1) for t in [s(half(a, i), 16) + s(half(b, i), 16)]], 16
    ),
    "vavrg4.u32.u32.u32 %z, %a, %b, %c": lambda a, b, c: pack([byte(a, i) + byte(b, i) + 1 >> 1 for i in range(4)], 8),
    "vabsdiff4.u32.u32.u32.add %z, %a, %b, %c": lambda a, b, c: sum(abs(byte(a, i) - byte(b, i)) for i in range(4)) + c,
    "vmin2.s32.s32.s32 %z, %a, %b, %c": lambda a, b, c: pack(
        [min(s(half(a, i), 16), s(half(b, i), 16)) for i in (0, 1)], 16
    ),
    "vmax4.u32.u32.u32 %z.b31, %a, %b, %c": lambda a, b, c: put(
        put(c, max(byte(a, 1), byte(b, 1)), 8, 8), max(byte(a, 3), byte(b, 3)), 24, 8
    ),
    "vset2.u32.u32.lt %z, %a, %b, %c": lambda a, b, c: pack([half(a, i) < half(b, i) for i in (0, 1)], 16),
    "vset4.s32.s32.gt.add %z, %a, %b, %c": lambda a, b, c: (
        sum(s(byte(a, i), 8) > s(byte(b, i), 8) for i in range(4)) + c
    ),
    "vadd4.s32.s32.s32.sat %z.b3210, %a.b7654, %b.b0123, %c": lambda a, b, c: pack(
        [clip(s(byte(b, i), 8) + s(byte(a, 3 - i), 8), 8) for i in range(4)], 8
    ),
    "vsub4.u32.u32.s32.add %z.b10, %a, %b, %c": lambda a, b, c: (
        sum(byte(a, i) - s(byte(b, i), 8) for i in range(2)) + c
    ),
    "vsub4.u32.u32.s32 %z.b1, %a, %b, %c": lambda a, b, c: put(c, byte(a, 1) - s(byte(b, 1), 8), 8, 8),
}


@pytest.mark.parametrize("text", FORMS)
def test_forms(text):
    edges = [
        0,
        1,
        0x7F,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x7FFFFFFF,
        0x80000000,
        WORD,
        0x80FF7F01,
        0x8000FFFF,
        0x1F2021,
    ]
    pairs = np.array([(x, y) for x in edges for y in edges], "u4")
    generator = np.random.default_rng(4)
    pairs = np.concatenate([pairs, generator.integers(0, 1 << 32, (100, 2), dtype="u8").astype("u4")])
    third = generator.permutation(np.resize(np.array(edges, "u4"), len(pairs)))
    got = compute(f"{text};", np.uint32, pairs[:, 0], pairs[:, 1], third)
    want = [FORMS[text](int(a), int(b), int(c)) & WORD for (a, b), c in zip(pairs, third, strict=True)]
    assert got.tolist() == want


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("vadd.s32.s32.s32 %r1, %r2.b10, %r3;", ParseError),
        ("vadd.s32.s32.s32.add %r1.b0, %r2, %r3, %r4;", ParseError),
        ("vadd2.s32.s32.s32 %r1, %r2.b10, %r3, %r4;", ParseError),
        ("vadd4.s32.s32.s32 %r1, %r2, %r3;", ParseError),
        ("vmad.s32.s32.s32.po %r1, -%r2, %r3, %r4;", ParseError),
        ("vadd.s16.s16.s16 %r1, %r2, %r3;", UnsupportedError),
        ("vshl.u32.u32.u32 %r1, %r2, %r3;", UnsupportedError),
        ("add.u32 %r1, %r2.b0, %r3;", ParseError),
    ],
)
def test_invalid_text(text, error):
    with pytest.raises(error, match="line"):
        run(f"{text} ret;", uninitialised=False)


VECTORS = """.version 8.0
.target sm_80
.address_size 64
.func (.reg .v2 .f32 r) swapped(.reg .v4 .f32 p) { .reg .f32 %a; add.f32 %a, p.x, p.w; mov.f32 r.x, %a; mov.f32 r.y, p.g; ret; }
.func (.param .v2 .f32 r) ends(.param .v4 .f32 p)
{ .reg .v4 .f32 v; .reg .v2 .f32 w; ld.param.v4.f32 v, [p]; mov.f32 w.r, v.x; mov.f32 w.g, v.w; st.param.v2.f32 [r], w; ret; }
.visible .entry k(.param .u64 q, .param .v4 .f32 s)
{
.reg .b64 %d, %e; .reg .v4 .f32 %v<2>; .reg .v2 .u32 %u; .reg .v2 .f32 o; .reg .v4 .f32 t;
ld.param.u64 %d, [q]; ld.param.v4.f32 %v0, [s]; ld.global.v2.u32 %u, [%d];
mov.f32 %v1.x, %v0.y; mov.f32 %v1.y, %v0.x; mov.f32 %v1.z, %v0.a; mov.f32 %v1.w, %v0.b;
st.global.v4.f32 [%d], %v1; mov.b64 %e, %u; st.global.u64 [%d+16], %e;
call (o), swapped, (%v0); st.global.v2.f32 [%d+24], o;
mov.v4.f32 t, %v1; st.global.v4.f32 [%d+32], {t.w, t.z, t.y, t.x};
{ .param .v4 .f32 a; .param .v2 .f32 b; st.param.v4.f32 [a], %v0; call (b), ends, (a); ld.param.v2.f32 o, [b]; }
st.global.v2.f32 [%d+48], o;
ret;
}
"""


@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_registers_of_several_elements(engine):
    y = np.array([7, 9, *[0] * 12], "u4").view("f4")
    launch(VECTORS, "k", 1, 1, [y, np.array([1, 2, 3, 4], "f4")], engine=engine)
    assert y[:4].tolist() == [2, 1, 4, 3]
    assert y[4:6].view("u4").tolist() == [7, 9]
    assert y[6:].tolist() == [5, 2, 3, 4, 1, 2, 1, 4]
