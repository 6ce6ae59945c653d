"""Registers of 8 bits and predicates, and instructions that write registers that they also read."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from emulator_kernels import module, run

from ptxgen.emulator import launch
from ptxgen.errors import ParseError, UnsupportedError

ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]
BYTES = ".reg .u8 %u, %u1, %u2, %u3; .reg .s8 %s, %s1; .reg .b8 %b, %b1;"
ROW = "mov.u32 %r0, %tid.x; cvt.u64.u32 %d0, %r0; add.u64 %d0, %q0, %d0; mad.wide.u32 %d1, %r0, 4, %q1;"
N = np.arange(256, dtype="i8")
SIGNED = N.astype("u1").view("i1")

#: code from %u, a byte, and %r0, its number, to %r1; the result
OF_BYTES = {
    "u8": ("cvt.u32.u8 %r1, %u;", N),
    "s8 of u8": ("cvt.s32.s8 %r1, %u;", SIGNED),
    "inner scope": ("{ .reg .u8 x; ld.global.nc.u8 x, [%d0]; cvt.u16.u8 %h0, x; } cvt.u32.u16 %r1, %h0;", N),
    "ld.s8": ("ld.global.s8 %s, [%d0]; cvt.s32.s8 %r1, %s;", SIGNED),
    "ld.b8": ("ld.global.b8 %b, [%d0]; cvt.s64.s8 %d2, %b; cvt.u32.u64 %r1, %d2;", SIGNED),
    "narrowing": ("add.u32 %r2, %r0, 300; cvt.u8.u32 %b, %r2; cvt.u32.u8 %r1, %b;", N + 300 & 255),
    "clamping": (
        "sub.s32 %r2, %r0, 130; cvt.sat.s8.s32 %s, %r2; cvt.s32.s8 %r1, %s;",
        np.clip(N - 130, -128, 127),
    ),
    "clamping of bytes": ("cvt.sat.s8.u8 %s, %u; cvt.s32.s8 %r1, %s;", np.minimum(N, 127)),
    "numbers": ("cvt.rn.f32.s8 %f0, %u; cvt.rzi.s8.f32 %s, %f0; cvt.s32.s8 %r1, %s;", SIGNED),
    "two packed": ("mov.b16 %h0, {%u, %u}; cvt.u32.u16 %r1, %h0;", N * 0x101),
    "four packed": ("cvt.u8.u32 %b, %r0; mov.b32 %r1, {%u, %b, %u, %b};", N * 0x1010101),
    "two unpacked": ("mul.lo.u32 %r2, %r0, 256; cvt.u16.u32 %h0, %r2; mov.b16 {_, %b}, %h0; cvt.u32.u8 %r1, %b;", N),
    "four unpacked": (
        "prmt.b32 %r2, %r0, 0x332211, 0x6540; mov.b32 {%u1, %s, _, %b}, %r2; mov.b32 %r1, {%b, %s, %u1, %b};",
        0x1133 | N << 16 | 0x33 << 24,
    ),
    "guard": ("setp.lt.u32 %p0, %r0, 77; mov.u32 %r1, 5; @%p0 cvt.u32.u8 %r1, %u;", np.where(N < 77, N, 5)),
    "guarded byte": (
        "mov.u32 %r1, 9; cvt.u8.u32 %b, %r1; setp.lt.u32 %p0, %r0, 77; @!%p0 cvt.u8.u8 %b, %u; cvt.u32.u8 %r1, %b;",
        np.where(N < 77, 9, N),
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", OF_BYTES)
def test_registers_of_8_bits(engine, name):
    code, want = OF_BYTES[name]
    x, out = N.astype("u1"), np.zeros(256, "u4")
    body = f"{ROW} ld.global.u8 %u, [%d0]; {code} st.global.u32 [%d1], %r1;"
    run(body, x, out, block=256, registers=BYTES, engine=engine)
    assert np.array_equal(out, np.asarray(want).astype("u4"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_memory_of_registers_of_8_bits(engine, space):
    x = np.random.default_rng(0).integers(0, 256, (64, 8), "u1")
    out = np.zeros_like(x)
    at, declared = "[%d1", ""
    if space != "global":
        at, declared = "[%d2", f".{space} .align 8 .b8 place[{512 if space == 'shared' else 8}];"
    body = f"""mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 8, %q0; mad.wide.u32 %d1, %r0, 8, %q1;
    mov.u64 %d2, place; {"mad.wide.u32 %d2, %r0, 8, %d2;" if space == "shared" else ""}
    ld.global.v4.u8 {{%u, %u1, %u2, %u3}}, [%d0]; ld.global.v2.s8 {{%s, %s1}}, [%d0+4]; ld.global.b8 %b, [%d0+6];
    ld.global.u8 %b1, [%d0+7];
    st.{space}.v4.b8 {at}], {{%u3, %u2, %s, %u}}; st.{space}.v2.u8 {at}+4], {{%u1, %b}}; st.{space}.s8 {at}+6], %s1;
    st.{space}.u8 {at}+7], %b1;
    ld.{space}.v4.s8 {{%u, %s, %b, %u1}}, {at}]; ld.{space}.v4.b8 {{%s1, %u2, %u3, %b1}}, {at}+4];
    st.global.v4.u8 [%d1], {{%b1, %u3, %u2, %s1}}; st.global.v4.u8 [%d1+4], {{%u, %s, %b, %u1}};"""
    if space == "global":
        body = body.replace("mov.u64 %d2, place;", "")
    run(body, x, out, block=64, registers=BYTES + declared, engine=engine)
    assert np.array_equal(out, x[:, [7, 5, 6, 1, 3, 2, 4, 0]])


FUNCTIONS = """
.func (.reg .u8 z) swap(.reg .u8 x, .reg .pred p) {
    .reg .u16 h; cvt.u16.u8 h, x; @p xor.b16 h, h, 255; cvt.u8.u16 z, h; ret;
}
.func (.param .b8 z) copy(.param .b8 x, .param .align 4 .b8 y[4]) {
    .reg .u8 a, c; .reg .u32 w; ld.param.u8 a, [x]; ld.param.s8 c, [y+1]; cvt.u32.u8 w, a; { .reg .u32 v;
    cvt.u32.u8 v, c; add.u32 w, w, v; } cvt.u8.u32 a, w; st.param.b8 [z], a; ret;
}
.func (.param .b8 z) sum(.param .b8 x) {
    .reg .u8 a; .reg .u32 w, v; .reg .pred p; ld.param.u8 a, [x]; cvt.u32.u8 w, a; setp.lt.u32 p, w, 4;
    @p bra done; sub.u32 v, w, 4; { .reg .u8 c; cvt.u8.u32 c, v; .param .b8 n; .param .b8 m; st.param.b8 [n], c;
    call (m), sum, (n); ld.param.b8 c, [m]; cvt.u32.u8 v, c; add.u32 w, w, v; }
    done: cvt.u8.u32 a, w; st.param.b8 [z], a; ret;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("setp.lt.u32 %p0, %r0, 99; call (%b), swap, (%u, %p0); cvt.u32.u8 %r1, %b;", np.where(N < 99, 255 - N, N)),
        (
            "{ .param .b8 a; .param .align 4 .b8 c[4]; .param .b8 z; st.param.b8 [a], %u; st.param.b8 [c+1], %u;"
            "call (z), copy, (a, c); ld.param.b8 %b, [z]; } cvt.u32.u8 %r1, %b;",
            2 * N & 255,
        ),
        (
            "{ .param .b8 a; .param .b8 z; st.param.b8 [a], %u; call (z), sum, (a); ld.param.b8 %b, [z]; }"
            "cvt.u32.u8 %r1, %b;",
            np.array([sum(range(n, -1, -4)) & 255 for n in N]),
        ),
    ],
    ids=["register parameters", "parameters", "recursive"],
)
def test_calls_pass_registers_of_8_bits(engine, code, want):
    x, out = N.astype("u1"), np.zeros(256, "u4")
    body = f"{ROW} ld.global.u8 %u, [%d0]; {code} st.global.u32 [%d1], %r1;"
    run(body, x, out, block=256, registers=BYTES, extra=FUNCTIONS, engine=engine)
    assert np.array_equal(out, want.astype("u4"))


@pytest.mark.parametrize(
    "code",
    [
        "mov.u8 %u, %u1;",
        "mov.b8 %b, 5;",
        "mov.v2.u8 {%u, %u1}, {%u1, %u};",
        "mov.b64 {%u, %u1, %u2, %u3, %s, %s1, %b, %b1}, %d0;",
        "setp.eq.u8 %p0, %u, %u1;",
        "setp.lt.s8 %p0, %r0, %r1;",
        "set.lt.u32.u8 %r0, %r1, %r2;",
        "selp.b8 %b, %b, %b, %p0;",
        "add.u8 %u, %u, %u1;",
        "and.b8 %b, %b, %b;",
        "not.b8 %b, %b;",
        "shl.b8 %b, %b, 1;",
        "add.u16 %h0, %u, %h1;",
        "shl.b32 %r0, %r0, %u;",
        "mov.u16 %h0, %u;",
        "mov.u32 %r0, %u;",
        "cvt.u32.u16 %r0, %u;",
        "cvt.u8.u32 %p0, %r0;",
        "cvt.u16.u32 %u, %r0;",
        "ld.global.u16 %u, [%q0];",
        "ld.global.u8 %p0, [%q0];",
        "ld.global.pred %p0, [%q0];",
        "st.global.u16 [%q0], %u;",
        "st.global.u8 [%q0], %p0;",
        "atom.global.add.u8 %u, [%q0], %u1;",
        "and.pred %p0, %u, %p1;",
        "mov.pred %p0, %u;",
        "@%u mov.u32 %r0, 1;",
        "mov.v4.b64 {%d0, %d1, %d2, %d3}, {%d3, %d2, %d1, %d0};",
        "mov.v2.pred {%p0, %p1}, {%p1, %p0};",
        "mov.v2.b128 {%d0, %d1}, {%d1, %d0};",
        "mov.u32 %r0, %is_explicit_cluster;",
        "mov.u64 %d0, %is_explicit_cluster;",
        "mov.u16 %h0, %is_explicit_cluster;",
        "mov.pred %p0, %laneid;",
        "mov.pred %p0, %clock64;",
        "popc.pred %r0, %p0;",
        "brev.pred %p0, %p1;",
        "sad.pred %p0, %p1, %p2, %p3;",
        "add.pred %p0, %p1, %p2;",
        "bmsk.clamp.b32 %r0, %r1;",
        "mad24.lo.u32 %r0, %r1;",
        "max.f32 %f0, %f1;",
        "addc.f16 %h0, %h1, %h2;",
        "copysign.b32 %r0, %r1, %r2;",
        "slct.f16x2.f32 %r0, %r1, %r2, %f0;",
        "bfind.f16x2 %r0, %r1;",
        "bra;",
        "call;",
    ],
)
def test_instructions_that_ptxas_refuses(code):
    with pytest.raises((ParseError, UnsupportedError), match=r"line \d+: "):
        run(code, np.zeros(4, "u4"), registers=BYTES)


@pytest.mark.parametrize("declaration", [".global .pred x;", ".shared .pred x[4];"])
def test_variables_are_no_predicates(declaration):
    with pytest.raises(ParseError, match="type"):
        launch(module("ret;", extra=declaration), "k", 1, 1, [])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clusters", [False, True])
def test_explicit_cluster(engine, clusters):
    out = np.zeros(32, "u4")
    run(
        "mov.pred %p0, %is_explicit_cluster; mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; selp.u32 %r1, 3, 4, %p0;"
        "st.global.u32 [%d0], %r1;",
        out,
        directives=".reqnctapercluster 1, 1, 1" if clusters else "",
        engine=engine,
    )
    assert (out == (3 if clusters else 4)).all()


# ---- destinations among the sources


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("count", "bits"), [(2, 16), (4, 16), (2, 32), (4, 32), (2, 64)])
def test_moves_of_vectors_read_before_they_write(engine, guarded, count, bits):
    rng = np.random.default_rng(count * bits)
    x = rng.integers(0, 1 << bits, (32, 4), "u8")
    out, want = np.zeros_like(x), x.copy()
    letter = {16: "h", 32: "r", 64: "d"}[bits]
    at = range(10, 14)
    lines = ["mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 32, %q0; mad.wide.u32 %d1, %r0, 32, %q1;"]
    lines += ["setp.lt.u32 %p0, %r0, 20;"]
    lines += [f"ld.global.u64 %d2, [%d0+{8 * i}]; cvt.u{bits}.u64 %{letter}{at[i]}, %d2;" for i in range(4)]
    for _ in range(12):
        to, source = rng.permutation(4)[:count], rng.permutation(4)[:count]
        names = [", ".join(f"%{letter}{at[i]}" for i in which) for which in (to, source)]
        lines.append(f"{'@%p0 ' if guarded else ''}mov.v{count}.b{bits} {{{names[0]}}}, {{{names[1]}}};")
        some = slice(0, 20) if guarded else slice(None)
        want[some, to] = want[some][:, source]
    lines += [f"cvt.u64.u{bits} %d2, %{letter}{at[i]}; st.global.u64 [%d1+{8 * i}], %d2;" for i in range(4)]
    run("\n".join(lines), x, out, engine=engine)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("engine", ENGINES)
def test_predicates_of_a_pair_are_combined_before_they_are_written(engine):
    out = np.zeros((32, 4), "u4")
    x = np.random.default_rng(1).choice(np.array([0x3C003C00, 0x3C00BC00, 0xBC003C00, 0xBC00BC00], "u4"), 32)
    run(
        "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; ld.global.u32 %r1, [%d0]; mov.u32 %r2, 0; "
        "mad.wide.u32 %d1, %r0, 16, %q1; and.b32 %r3, %r0, 1; setp.ne.u32 %p0, %r3, 0; mov.pred %p1, %p0;"
        "setp.gt.xor.f16x2 %p0|%p2, %r1, %r2, %p0; setp.gt.and.f16x2 %p3|%p1, %r1, %r2, !%p1;"
        "selp.u32 %r4, 1, 0, %p0; selp.u32 %r5, 1, 0, %p2; selp.u32 %r6, 1, 0, %p3; selp.u32 %r7, 1, 0, %p1;"
        "st.global.v4.u32 [%d1], {%r4, %r5, %r6, %r7};",
        x,
        out,
        engine=engine,
    )
    odd = np.arange(32) % 2 == 1
    low, high = x & 0x8000 == 0, x >> 31 == 0
    assert np.array_equal(out, np.stack([low ^ odd, high ^ odd, low & ~odd, high & ~odd], axis=1))


@pytest.mark.parametrize("engine", ENGINES)
def test_vectors_of_atomics_read_before_they_write(engine):
    x = np.arange(64, dtype="f4").reshape(32, 2)
    out = np.zeros((32, 2), "f4")
    run(
        "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 8, %q0; mad.wide.u32 %d1, %r0, 8, %q1;"
        "mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f42C80000;"
        "atom.global.add.v2.f32 {%f1, %f0}, [%d0], {%f0, %f1}; st.global.v2.f32 [%d1], {%f1, %f0};",
        x,
        out,
        engine=engine,
    )
    old = np.arange(64).reshape(32, 2)
    assert np.array_equal(x, old + np.array([1, 100]))
    assert np.array_equal(out, old)
