"""Registers of 128 bits."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import MisalignedFault, ParseError, RaceFault, UninitialisedFault, UnsupportedError

WIDE = ".reg .b128 %q, %s, %t;"
SHARED = ".shared .align 16 .b8 sm[2048];"
ROW = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 16, %q0; mad.wide.u32 %d1, %r0, 16, %q1;"


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
def test_loads_stores_and_moves(space):
    x = np.random.default_rng(0).integers(0, 1 << 32, (64, 4), dtype="u8").astype("u4")
    y = np.zeros_like(x)
    between = {
        "global": "",
        "shared": "mov.u32 %r1, sm; mad.lo.u32 %r1, %r0, 16, %r1; st.shared.b128 [%r1], %s; ld.shared.b128 %s, [%r1];",
        "generic": "st.b128 [%d1], %s; mov.b128 %s, %q; ld.b128 %s, [%d1];",
    }[space]
    run(
        ROW
        + f"""ld.global.b128 %q, [%d0]; mov.b128 {{%r2, %r3, %r4, %r5}}, %q; mov.b128 %s, {{%r5, %r2, %r4, %r3}};
    {between}
    mov.b128 {{%d2, %d3}}, %s; mov.b128 %t, {{%d3, %d2}}; mov.b128 %s, %t; st.global.b128 [%d1], %s;""",
        x,
        y,
        block=64,
        registers=WIDE,
        extra=SHARED,
    )
    assert (y == x[:, [2, 1, 3, 0]]).all()


@pytest.mark.parametrize("offset", [0, 8])
def test_alignment(offset):
    x = np.zeros(8, "u4")
    body = f"ld.global.b128 %q, [%q0+{offset}];"
    if offset:
        with pytest.raises(MisalignedFault, match="16 bytes"):
            run(body, x, block=1, registers=WIDE)
    else:
        run(body, x, block=1, registers=WIDE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("space", ["global", "shared"])
def test_exchange(seed, space):
    """Every value is returned exactly once, halves together."""
    y = np.zeros((65, 2), "u8")
    at = "[%q0+1024]" if space == "global" else "[sm]"
    start = (
        ""
        if space == "global"
        else """setp.eq.u32 %p0, %r0, 0; mov.u32 %r9, 0;
    @%p0 st.shared.v4.u32 [sm], {%r9, %r9, %r9, %r9}; bar.sync 0;"""
    )
    end = (
        "" if space == "global" else """bar.sync 0; @%p0 ld.shared.b128 %q, [sm]; @%p0 st.global.b128 [%q0+1024], %q;"""
    )
    run(
        f"""mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 16, %q0; {start} add.u32 %r1, %r0, 1; cvt.u64.u32 %d1, %r1;
    not.b64 %d2, %d1;
    mov.b128 %q, {{%d1, %d2}}; atom.{space}.exch.b128 %s, {at}, %q; st.global.b128 [%d0], %s; {end}""",
        y,
        block=64,
        registers=WIDE,
        extra=SHARED,
        seed=seed,
    )
    got = {(int(a), int(b)) for a, b in y}
    assert got == {(0, 0)} | {(t, t ^ (1 << 64) - 1) for t in range(1, 65)}


def test_compare_and_swap():
    """A counter in both halves, each lane adding one; a comparison of half of it would fail."""
    y = np.zeros((1, 2), "u8")
    body = """mov.u32 %r0, %tid.x; L: ld.relaxed.gpu.global.b128 %q, [%q0]; mov.b128 {%d1, %d2}, %q;
    add.u64 %d1, %d1, 1; add.u64 %d2, %d2, STEP;
    mov.b128 %s, {%d1, %d2}; atom.global.b128.cas %t, [%q0], %q, %s; mov.b128 {%d3, %d4}, %t; sub.u64 %d1, %d1, 1;
    setp.ne.u64 %p0, %d1, %d3; @%p0 bra L;"""
    run(body.replace("STEP", "3"), y, block=96, registers=WIDE)
    assert y.tolist() == [[96, 288]]
    y = np.array([[5, 1], [0, 0]], "u8")
    run(
        """mov.u64 %d1, 5; mov.u64 %d2, 2; mov.b128 %q, {%d1, %d2}; atom.global.cas.b128 %s, [%q0], %q, %q;
    mov.b128 {_, %d3}, %s; st.global.u64 [%q0+16], %d3;""",
        y,
        block=1,
        registers=WIDE,
    )
    assert y.tolist() == [[5, 1], [1, 0]]


def test_undefined_halves():
    x = np.zeros(64, "u4")
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, LIMIT; mov.u64 %d1, 1; @%p0 mov.b128 %q, {%d1, %d1};
    mad.wide.u32 %d0, %r0, 16, %q0; setp.lt.u32 %p1, %r0, 16; @%p1 st.global.b128 [%d0], %q;"""
    run(body.replace("LIMIT", "16"), x, registers=WIDE)
    with pytest.raises(UninitialisedFault, match="%q") as caught:
        run(body.replace("LIMIT", "15"), x, registers=WIDE)
    assert caught.value.thread == (15, 0, 0)


def test_races_of_wide_accesses():
    body = """mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; mov.u32 %r2, sm; mad.lo.u32 %r1, %r1, 16, %r2;
    cvt.u64.u32 %d1, %r0;
    mov.b128 %q, {%d1, %d1}; setp.lt.u32 %p0, %r0, 32; @%p0 st.shared.b128 [%r1], %q;
    MEET @!%p0 ld.shared.b128 %q, [%r1]; bar.sync 0;"""
    run(body.replace("MEET", "bar.sync 0;"), block=64, registers=WIDE, extra=SHARED)
    with pytest.raises(RaceFault):
        run(body.replace("MEET", ""), block=64, registers=WIDE, extra=SHARED)


def test_through_a_function():
    f = """.func (.param .align 16 .b128 r) turn(.param .align 16 .b128 a) { .reg .b128 %x; .reg .b64 %l, %h;
    ld.param.b128 %x, [a]; mov.b128 {%l, %h}, %x; mov.b128 %x, {%h, %l}; st.param.b128 [r], %x; ret; }
    .func (.reg .b128 r) same(.reg .b128 a) { mov.b128 r, a; ret; }
    """
    x, y = np.arange(128, dtype="u4").reshape(32, 4), np.zeros((32, 4), "u4")
    run(
        ROW
        + """.param .align 16 .b128 p; .param .align 16 .b128 s; ld.global.b128 %q, [%d0]; st.param.b128 [p], %q;
    call.uni (s), turn, (p); ld.param.b128 %t, [s]; call (%s), same, (%t); st.global.b128 [%d1], %s;""",
        x,
        y,
        registers=WIDE,
        extra=f,
    )
    assert (y == x[:, [2, 3, 0, 1]]).all()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("ld.global.v2.b128 {%q, %s}, [%q0];", UnsupportedError),
        ("atom.global.add.b128 %q, [%q0], %s;", ParseError),
        ("xor.b128 %q, %q, %s;", UnsupportedError),
        ("mov.b128 %q, {%r0, %r1, %r2};", ParseError),
        ("mov.b64 %q, %d0;", ParseError),
        ("ld.global.b128 %d0, [%q0];", ParseError),
    ],
)
def test_invalid_text(body, error):
    with pytest.raises(error, match="line"):
        run("mov.b128 %q, {%d1, %d1}; mov.b128 %s, %q;" + body, np.zeros(8, "u4"), registers=WIDE)
