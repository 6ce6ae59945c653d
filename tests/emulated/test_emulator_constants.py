"""Constant expressions in operands, addresses and initial values; elements of arrays; operands that are computed."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.emulator import launch
from ptxgen.emulator.ptx.parser import parse
from ptxgen.errors import OutOfBoundsFault, ParseError

HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]
ALL = (1 << 64) - 1

#: the values are those that ptxas 13.0 stores, but for the last three: those of PTX, where ptxas differs
INTEGERS = {
    "1 << 4 | 3": 19,
    "1 << 4 - 1": 8,
    "7 - 2 * 3": 1,
    "1 ^ 5 & 4": 5,
    "1 | 2 ^ 3 & 1": 3,
    "0xF0 >> 4 + 1": 7,
    "-7 / 2": -3,
    "0x7FFFFFFFFFFFFFF / (-0x100000000)": -0x7FFFFFF,
    "-7 % 2": 1,
    "-8 % 3": 2,
    "-1 > 0": 0,
    "-1 > 0U": 1,
    "1U - 2 > 0": 1,
    "(1 & -1) - 2 > 0": 0,
    "(.u64) -1 / 2": ALL >> 1,
    "-1 >> 1": -1,
    "(~0) >> 1": ALL >> 1,
    "0xFFFFFFFFFFFFFFFF >> 1": ALL >> 1,
    "-0x8000000000000000 / 2": 1 << 62,
    "9223372036854775807 + 1 > 0": 0,
    "1 << 65": 2,
    "!3": 0,
    "!0 + !!5": 2,
    "- - 1 + +1": 2,
    "3 && 0 || 2": 1,
    "1 < 2 < 3": 1,
    "2 >= 2 == 1": 1,
    "1 == 1 != 0": 1,
    "-1 == 0xFFFFFFFFFFFFFFFF": 1,
    "0 ? 1 : 0 ? 2 : 3": 3,
    "3.0 < 4.0": 1,
    "WARP_SZ * 2 - 1": 63,
    "(.s64) 9": 9,
    "(1 ? -2 : 3U) >> 1": ALL >> 1,
    "(5 % 3) - 3 > 0": 0,
    "-5 % 7 > -1": 1,
}
FLOATS = {
    "1.0 + 2.0 * 3.0": 7.0,
    "3.0 * (1.0 - 2.0)": -3.0,
    "1.0 / 3.0": 1 / 3,
    "-(1.5) - -2.0": 0.5,
    "0d3FF0000000000000 + +1.0": 2.0,
    "0.1 + 0.2": 0.1 + 0.2,
    "1 ? 2.5 : 3.0": 2.5,
}


def test_values():
    """As initial values and as operands."""
    y, z = np.zeros((2, len(INTEGERS)), "i8"), np.zeros((2, len(FLOATS)), "f8")
    body = "".join(
        f"ld.global.{dtype} {r}, g{dtype}[{i}]; st.global.{dtype} [{q}+8 * {i}], {r};"
        f"mov.{dtype} {r}, {text}; st.global.{dtype} [{q}+8 * ({len(values)} + {i})], {r};"
        for dtype, r, q, values in (("s64", "%d0", "%q0", INTEGERS), ("f64", "%g0", "%q1", FLOATS))
        for i, text in enumerate(values)
    )
    extra = "".join(
        f".global .{dtype} g{dtype}[{len(values)}] = {{{', '.join(values)}}};\n"
        for dtype, values in (("s64", INTEGERS), ("f64", FLOATS))
    )
    run(body, y, z, block=1, extra=extra)
    assert y.view("u8").tolist() == [[value & ALL for value in INTEGERS.values()]] * 2
    assert z.tolist() == [list(FLOATS.values())] * 2


ADDRESSES = {
    "ld.shared.u32 %r1, s[5];": 55,
    "ld.shared.u32 %r1, [s+2*4+4];": 53,
    "ld.shared.u32 %r1, s[%r0];": 52,
    "ld.shared.u32 %r1, s[%d0+1];": 54,
    "mov.u32 %r2, s[%r0 + 3]; ld.shared.u32 %r1, [%r2];": 55,
    "mov.u32 %r2, s; ld.shared.u32 %r1, [%r2 + (1 << 4) - -4];": 55,
    "ld.global.u32 %r1, g[%d0 + -1];": 102,
    "ld.global.u32 %r1, g[%h0];": 101,
    "mov.u64 %d1, g[4]; ld.u32 %r1, [%d1+-8];": 102,
    "cvta.global.u64 %d1, g[%r0]; ld.u32 %r1, [%d1];": 102,
    "mov.u64 %d1, g + 2 * 4; ld.global.u32 %r1, [%d1];": 102,
    "add.u64 %d1, g + 4, 8; ld.global.u32 %r1, [%d1];": 103,
    "ld.const.v2.u32 {%r2, %r1}, c[2];": 203,  # the elements are numbered, not the vectors
    "ld.param.u8 %r1, w[3];": 13,
    "ld.param.u8 %r1, w[%r0 + 3];": 15,
    "st.shared.u32 s[1], 70 + 1; st.shared.u32 s[%r0+-2], %r0 + 5; ld.shared.v2.u32 {%r2, %r1}, s[0]; "
    "mad.lo.u32 %r1, %r1, 100, %r2;": 7107,
    "mad.lo.u32 %r1, %r0 + 1, %r0 + 2, %r0 + -3;": 11,
    "shl.b32 %r1, %r0 + 1, 4 / 2;": 12,
    "add.u16 %h1, %h0 + 65535, 1; cvt.u32.u16 %r1, %h1;": 1,
    # under a false guard, neither the address nor its undefined index matters
    "mov.u32 %r1, 8; setp.eq.u32 %p0, %r0, 3; @%p0 ld.shared.u32 %r1, s[%r9];": 8,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_addresses(engine):
    """Offsets of variables and registers, elements of arrays, and registers plus constants."""
    y = np.zeros(len(ADDRESSES), "u4")
    text = f"""{HEADER}.global .u32 g[8] = {{100, 101, 102, 103}}; .const .align 8 .v2 .u32 c[2] = {{200, 201, 202, 203}};
    .shared .align 8 .u32 s[8];
    .visible .entry k(.param .u64 y, .param .b8 w[8])
    {{
    .reg .pred %p0; .reg .b16 %h<2>; .reg .b32 %r<10>; .reg .b64 %d<2>; .reg .b64 %q0; ld.param.u64 %q0, [y];
    mov.u32 %r0, 0; FILL: add.u32 %r1, %r0, 50; st.shared.u32 s[%r0], %r1; add.u32 %r0, %r0, 1;
    setp.lt.u32 %p0, %r0, 8; @%p0 bra FILL;
    mov.u32 %r0, 2; mov.u64 %d0, 3; mov.u16 %h0, 1;
    {"".join(f"{load} st.global.u32 [%q0+4 * {i}], %r1;" for i, load in enumerate(ADDRESSES))} ret; }}"""
    launch(text, "k", grid=1, block=1, args=[y, np.arange(10, 18, dtype=np.uint8)], engine=engine)
    assert dict(zip(ADDRESSES, y.tolist(), strict=True)) == ADDRESSES


def test_an_element_outside_its_array():
    with pytest.raises(OutOfBoundsFault, match="4 bytes at offset 40, 8 bytes past the end of g") as error:
        run("mov.u32 %r0, 9; ld.global.u32 %r1, g[%r0 + 1];", block=1, extra=".global .u32 g[8];")
    assert error.value.instruction == "ld.global.u32 %r1, g[%r0 + 1];"


def test_initial_addresses():
    """Addresses of variables, generic or not, with offsets; single bytes of them; addresses of functions."""
    y = np.zeros(4, "u8")
    run(
        """ld.global.u64 %d0, p[0]; ld.u32 %r0, [%d0]; ld.global.u64 %d0, p[1]; ld.u32 %r1, [%d0];
        ld.global.u64 %d0, [bytes]; ld.global.u32 %r2, [%d0]; mov.u64 %d1, f; ld.global.u64 %d0, p[2];
        setp.eq.u64 %p0, %d0, %d1; selp.u32 %r3, 1, 0, %p0;
        cvt.u64.u32 %d0, %r0; cvt.u64.u32 %d1, %r1; cvt.u64.u32 %d2, %r2; cvt.u64.u32 %d3, %r3;
        st.global.v2.u64 [%q0], {%d0, %d1}; st.global.v2.u64 [%q0+2*8], {%d2, %d3};""",
        y,
        block=1,
        extra=f""".func f() {{ ret; }} .global .u32 g[4] = {{7, 8, 9, 10}};
        .global .u64 p[3] = {{generic(g) + 1 * 4, g+(1 << 3), f}};
        .global .align 8 .u8 bytes[8] = {{{", ".join(f"{0xFF << 8 * i:#x}(generic(g)+12)" for i in range(8))}}};""",
    )
    assert y.tolist() == [8, 9, 10, 1]


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (".b64 p = g;", "an address is an initial value of type .u64, .u32 or, with a mask, .u8"),
        (".u8 p = g;", "an address of 8 bits has a mask, such as 0xFF(x)"),
        (".u8 p = 0xFFFF(g);", "a mask of an address is 0xFF, 0xFF00, ... 0xFF00000000000000"),
        (".u64 p = g - 4;", "'-' is unexpected; it must be ';'"),
        (".f16 p = 1.0;", "a variable of type .f16 has no initial value"),
        (".u64 p = f + 8;", "computes with the address of f; that of a function must stand alone"),
        (".u64 p = s;", "has the address of s; it must be a .global or .const variable or a function"),
        (".u32 p = 1 / 0;", "the divisor of a constant is 0; it must be another number"),
        (".u64 p = later; .global .u32 later;", "the initial value of p names later, which is not declared"),
    ],
)
def test_initial_values_that_are_refused(variable, message):
    with pytest.raises(ParseError) as error:
        run("ret;", extra=f".func f() {{ ret; }} .global .u32 g; .shared .u32 s; .global {variable}")
    assert message in str(error.value)


PREDICATES = {
    "mov.pred %p2, !%p1;": False,
    "mov.pred %p2, !%p0;": True,
    "mov.pred %p2, !1;": False,
    "not.pred %p2, !%p1;": True,
    "and.pred %p2, !%p0, %p1;": True,
    "and.pred %p2, !%p0, !%p1;": False,
    "or.pred %p2, !%p1, !%p1;": False,
    "xor.pred %p2, %p1, !%p1;": True,
    "and.pred %p2, !%p0, !0;": True,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_negated_predicates(engine):
    y = np.zeros(len(PREDICATES), "u4")
    body = "setp.ne.u64 %p0, %q0, %q0; setp.eq.u64 %p1, %q0, %q0;" + "".join(
        f"{text} selp.u32 %r0, 1, 0, %p2; st.global.u32 [%q0+4 * {i}], %r0;" for i, text in enumerate(PREDICATES)
    )
    run(body, y, block=1, engine=engine)
    assert y.tolist() == list(PREDICATES.values())


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("mov.u32 %r0, 1 / 0;", "the divisor of a constant is 0; it must be another number"),
        (
            "mov.f32 %f0, 1.5 / 2;",
            "the operands of / are an integer and a floating-point number; they must be of one type",
        ),
        ("mov.u32 %r0, 1.0 ? 1 : 2;", "'1.0' is unexpected; it must be an integer constant expression"),
        ("mov.f32 %f0, 1.0 % 2.0;", "the operands of % are floating-point numbers; they must be integers"),
        ("mov.u32 %r0, (.u32) -1;", "'.u32' is unexpected; a cast is (.s64) or (.u64)"),
        ("mov.f32 %f0, -0f3F800000;", "a number of 32 bits is no part of an expression"),
        ("mov.u32 %r0, (1 + x);", "'x' is unexpected; it must be a constant"),
        ("mov.u64 %d0, s - 8;", "'-' is unexpected; it must be ';'"),
        ("ld.global.u32 %r0, [%d0 - 4];", "an offset follows +, a negative one +-"),
        (
            "mov.u32 %r0 + 1, %r1;",
            "operand 1 of `mov.u32` is the sum %r0+1 of a .b32 register; it must be a .u32 register",
        ),
        ("add.f32 %f0, %f1 + 1, %f2;", "only a register of an integer or bit type is added to a constant"),
        ("mov.b64 %d0, {%r1 + 1, %r2};", "an element of a vector is a register, a variable or a constant"),
        ("atom.shared.add.u32 %r0, s[1], 1;", "an element of s, which only ld, st, mov and cvta take"),
        ("ld.shared.u32 %r0, t[0];", "'t' is unexpected; it must be a variable that is declared as an array"),
        ("ld.shared.u32 %r0, s[%f0];", "an index is an integer constant or a register of an integer or bit type"),
        ("ld.shared.u32 %r0, s[1.0];", "'1.0' is unexpected; it must be an integer constant expression"),
        ("mov.pred %p0, !%r0;", "it must be a .pred register, which ! may negate"),
        ("mov.u32 %r0, !%p0;", "operand 2 of `mov.u32` is negated by !"),
    ],
)
def test_messages(statement, message):
    text = f""".shared .align 8 .b32 s[8]; .shared .b32 t;
    .visible .entry k() {{ .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<2>; .reg .f32 %f<3>; {statement} ret; }}"""
    with pytest.raises(ParseError) as error:
        parse(HEADER + text)
    assert message in str(error.value)
