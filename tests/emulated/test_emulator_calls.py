"""Calls of device functions, and branches by index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import launch, module, run

from ptxgen.emulator import Machine
from ptxgen.errors import (
    DivergenceFault,
    Fault,
    OutOfBoundsFault,
    ParseError,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)

PTX = Path(__file__).parent / "emulator_ptx"
THREAD = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0;"
STORE = "st.global.u32 [%d0], %r1;"
LANE = np.arange(32)

# ---- compiled code: emulator_ptx/calls.ptx is nvcc's of C++ that does what `expected` says

WORD = 0xFFFFFFFF


def mix(a: int, b: int) -> int:
    for _ in range(b & 7):
        a = (a * 1664525 + 1013904223 + b) & WORD
    return a


def gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def pick(a: int, b: int) -> int:
    choices = (b, mix(b, a), gcd((a + 1) & WORD, (b + 1) & WORD), a ^ b, (a - b) & WORD, ~b & WORD, 17)
    return choices[a % 7]


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def expected(a: int, b: int, i: int) -> list[int]:
    """A switch of calls, a struct by value and back, narrow and boolean arguments, a store through a pointer to local
    memory, a function from a table."""
    r = pick(a, b)
    if a & 1:
        r = (r + gcd(a, b)) & WORD
    low, high, tag = float(a & 255), float(b & 255), i
    if low > high:
        low, high, tag = high, low, tag + 1
    times = signed(b, 16) * (-1 if a >> 3 & 1 else 1)
    x = [v * times for v in (1.5, -2.0, float(a))]
    memory = [r, a, b, 0]
    memory[b & 3] = r ^ 0x5555
    return [
        r,
        int(np.float32(low).view("u4")),
        int(np.float32(high).view("u4")),
        tag,
        int(x[0] + x[2]) & WORD,
        (signed(b, 8) + signed(a, 8)) & 255,
        (memory[a & 3] + memory[3]) & WORD,
        (mix, gcd, pick, mix)[b & 3](a, b),
    ]


@pytest.mark.parametrize("seed", range(2))
def test_compiled_calls(seed):
    n = 300
    pairs = np.random.default_rng(seed).integers(0, 1 << 32, (n, 2), dtype="u8").astype("u4")
    pairs[::3] &= 15
    pairs[5] = 0
    out = np.zeros((n, 8), "u4")
    text = (PTX / "calls.ptx").read_text()
    launch(text, "calls", -(-n // 128), 128, [out, pairs.reshape(-1), np.int32(n)], seed=seed)
    assert out.tolist() == [expected(int(a), int(b), i) for i, (a, b) in enumerate(pairs)]


# ---- written by hand

ADD = """.func (.param .b32 r) add(.param .b32 a, .param .b32 b)
{ .reg .b32 %x, %y; ld.param.u32 %x, [a]; ld.param.u32 %y, [b]; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }
"""
SUM = """{ .param .b32 p; .param .b32 q; .param .b32 s; st.param.b32 [p], %r2; st.param.b32 [q], %r3;
GUARD call.uni (s), add, (p, q); GUARD ld.param.b32 %r1, [s]; }
"""


def test_params_by_value():
    y = np.zeros(32, "u4")
    stats = run(f"{THREAD} mov.u32 %r2, %r0; mov.u32 %r3, 100; {SUM.replace('GUARD', '')} {STORE}", y, extra=ADD)
    assert (y == LANE + 100).all()
    # what the text has, and nothing that a call is made of
    assert stats.opcodes["call.uni"] == stats.opcodes["add.u32"] == 1
    assert stats.opcodes["ld.param.u32"] == 2
    assert stats.opcodes["st.param.b32"] == 3
    assert sum(stats.opcodes.values()) == stats.lanes // 32 == 15


def test_registers_and_constants_as_arguments():
    """.reg parameters take registers and constants of any type; a result may be dropped."""
    f = """.func (.reg .u32 r, .reg .pred big) three(.reg .u32 a, .reg .f32 b, .reg .pred p, .reg .b64 c)
    { .reg .b32 %x; cvt.rzi.u32.f32 %x, b; @p add.u32 %x, %x, 1000; add.u32 r, a, %x; cvt.u32.u64 %x, c;
    add.u32 r, r, %x; setp.gt.u32 big, r, 1040; mov.u32 a, 0; ret; }
    """
    y = np.zeros((3, 32), "u4")
    run(
        THREAD
        + """setp.lt.u32 %p0, %r0, 16; mov.f32 %f0, 0f40E00000; mov.u64 %d1, 30;
    call (%r1, %p1), three, (%r0, %f0, %p0, %d1); st.global.u32 [%d0], %r1; selp.u32 %r1, 1, 0, %p1;
    st.global.u32 [%d0+128], %r1;
    call (%r1, _), three, (5, 0f41000000, %p0, 1); st.global.u32 [%d0+256], %r1;""",
        y,
        extra=f,
    )
    want = LANE + 7 + 30 + 1000 * (LANE < 16)
    assert (y[0] == want).all()
    assert (y[1] == (want > 1040)).all()
    assert (y[2] == 5 + 8 + 1 + 1000 * (LANE < 16)).all()


def test_registers_as_param_arguments():
    """A caller may name registers for .param parameters, and .param variables for .reg ones."""
    f = """.func (.reg .b32 r) half(.reg .b32 a) { shr.u32 r, a, 1; ret; }
    """
    y = np.zeros((2, 32), "u4")
    run(
        THREAD
        + """call (%r1), add, (%r0, 7); st.global.u32 [%d0], %r1; .param .b32 p; .param .b32 q;
    st.param.b32 [p], %r1;
    call (q), half, (p); ld.param.b32 %r1, [q]; st.global.u32 [%d0+128], %r1;""",
        y,
        extra=ADD + f,
    )
    assert (y[0] == LANE + 7).all()
    assert (y[1] == (LANE + 7) // 2).all()


def test_structures():
    """Parts of different sizes, vectors, bytes and sign: some of it in registers, some in memory."""
    f = """.func (.param .align 16 .b8 r[32]) turn(.param .align 16 .b8 a[32], .param .b32 n)
    { .reg .b32 %x<5>; .reg .b64 %z; .reg .b16 %h; .reg .b64 %w;
    ld.param.v4.u32 {%x0, %x1, %x2, %x3}, [a]; st.param.v4.b32 [r], {%x3, %x2, %x1, %x0};
    ld.param.u64 %z, [a+16]; not.b64 %z, %z; st.param.b64 [r+16], %z; ld.param.s8 %x4, [n+1]; ld.param.u16 %h, [n+2];
    cvt.u32.u16 %x0, %h; add.u32 %x4, %x4, %x0; st.param.b32 [r+24], %x4; ld.param.s16 %w, [n];
    st.param.b32 [r+28], %w; ret; }
    """
    y = np.zeros((32, 8), "u4")
    run(
        THREAD
        + """mad.wide.u32 %d0, %r0, 32, %q0; .param .align 16 .b8 p[32]; .param .b32 q;
    .param .align 16 .b8 s[32];
    add.u32 %r1, %r0, 1; add.u32 %r2, %r0, 2; add.u32 %r3, %r0, 3; cvt.u64.u32 %d1, %r0;
    st.param.v4.b32 [p], {%r0, %r1, %r2, %r3}; st.param.b64 [p+16], %d1; mov.u32 %r4, 0x7F0F9C83; st.param.b32 [q], %r4;
    call.uni (s), turn, (p, q); ld.param.v2.b32 {%r10, %r11}, [s]; ld.param.v2.b32 {%r12, %r13}, [s+8];
    ld.param.b64 %d2, [s+16];
    ld.param.b32 %r14, [s+24]; ld.param.b32 %r15, [s+28]; st.global.v4.u32 [%d0], {%r10, %r11, %r12, %r13};
    st.global.u64 [%d0+16], %d2; st.global.v2.u32 [%d0+24], {%r14, %r15};""",
        y,
        extra=f,
    )
    low, high = 0x9C - 256, 0x7F0F
    for t in range(32):
        assert y[t].tolist() == [t + 3, t + 2, t + 1, t, ~t & WORD, WORD, low + high, signed(0x9C83, 16) & WORD]


def test_nested_calls_and_loops():
    """Each call has its own registers; a function is called from two positions, one of them itself a function, in a
    loop."""
    f = (
        ADD
        + """.func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %x; .reg .b32 %y; .param .b32 p; .param .b32 s;
    ld.param.u32 %x, [a]; st.param.b32 [p], %x; call (s), add, (p, p); ld.param.u32 %y, [s]; sub.u32 %x, %y, %x;
    st.param.b32 [r], %y; setp.ne.u32 %odd, %x, 0; @%odd ret; st.param.b32 [r], 77; ret; }
    """.replace(".reg .b32 %y;", ".reg .b32 %y; .reg .pred %odd;")
    )
    y = np.zeros(32, "u4")
    run(
        THREAD
        + """mov.u32 %r2, %r0; mov.u32 %r5, 0; .param .b32 t; .param .b32 u;
    L: mov.u32 %r3, 1; """
        + SUM.replace("GUARD", "")
        + """st.param.b32 [t], %r2; call (u), twice, (t);
    ld.param.u32 %r2, [u];
    xor.b32 %r2, %r2, %r1; add.u32 %r5, %r5, 1; setp.le.u32 %p0, %r5, %r0; @%p0 bra L;
    mov.u32 %r1, %r2;"""
        + STORE,
        y,
        extra=f,
    )
    want = []
    for t in range(32):
        x = t
        for _ in range(t + 1):
            x = (2 * x & WORD or 77) ^ (x + 1) & WORD
        want.append(x)
    assert y.tolist() == want


def test_call_by_some_lanes():
    y = np.zeros(32, "u4")
    body = f"{THREAD} mov.u32 %r2, %r0; mov.u32 %r3, 50; mov.u32 %r1, 9; setp.ge.u32 %p0, %r0, 8;"
    run(body + SUM.replace("GUARD", "@%p0").replace(".uni", "") + STORE, y, extra=ADD)
    assert (y == np.where(LANE >= 8, LANE + 50, 9)).all()


def test_divergent_uniform_call():
    y = np.zeros(64, "u4")
    body = f"{THREAD} mov.u32 %r2, %r0; mov.u32 %r3, 50; mov.u32 %r1, 9; setp.ge.u32 %p0, %r0, LIMIT;"
    body += SUM.replace("GUARD", "@%p0") + STORE
    run(body.replace("LIMIT", "32"), y, block=64, extra=ADD)
    assert (y == np.where(np.arange(64) >= 32, np.arange(64) + 50, 9)).all()
    with pytest.raises(DivergenceFault, match="uni call") as caught:
        run(body.replace("LIMIT", "40"), y, block=64, extra=ADD)
    assert caught.value.thread == (40, 0, 0)


@pytest.mark.parametrize("seed", range(2))
def test_barriers_and_shared_memory_in_functions(seed):
    """One shared variable for all calls of a function, of which one has a barrier."""
    f = """.func put(.reg .u32 i, .reg .u32 v) { .reg .b32 %a; mov.u32 %a, sm; mad.lo.u32 %a, i, 4, %a;
    st.shared.u32 [%a], v; MEET ret; }
    .func (.reg .u32 v) get(.reg .u32 i) { .reg .b32 %a; mov.u32 %a, sm; mad.lo.u32 %a, i, 4, %a;
    ld.shared.u32 v, [%a]; ret; }
    """
    y = np.zeros(64, "u4")
    body = THREAD + "add.u32 %r2, %r0, 5; call put, (%r0, %r2); xor.b32 %r3, %r0, 33; call (%r1), get, (%r3);" + STORE
    shared = ".shared .align 4 .b8 sm[256];"
    run(body, y, block=64, extra=shared + f.replace("MEET", "bar.sync 0;"), seed=seed)
    assert (y == (np.arange(64) ^ 33) + 5).all()
    with pytest.raises(RaceFault):
        run(body, y, block=64, extra=shared + f.replace("MEET", ""), seed=seed)


def test_local_memory_of_functions():
    """Each call has its own, and each lane."""
    f = """.func (.reg .u32 r) spill(.reg .u32 v, .reg .b64 other) { .local .align 4 .b8 mem[16]; .reg .b64 %a;
    .reg .b32 %x;
    mov.u64 %a, mem; cvta.local.u64 %a, %a; st.u32 [%a+4], v; ld.u32 r, [other+4]; add.u32 r, r, v; ld.u32 %x, [%a+4];
    mad.lo.u32 r, %x, 1000, r; ret; }
    """
    y = np.zeros(32, "u4")
    run(
        THREAD
        + """.local .align 8 .b8 mine[8]; mov.u64 %d1, mine; cvta.local.u64 %d1, %d1; add.u32 %r2, %r0, 7;
    st.u32 [%d1+4], %r2;
    call (%r3), spill, (%r0, %d1); call (%r1), spill, (%r3, %d1);"""
        + STORE,
        y,
        extra=f,
    )
    first = 1000 * LANE + LANE + 7 + LANE
    assert (y == (1000 * first + LANE + 7 + first) & WORD).all()


POINTERS = """.func (.reg .u32 r) plus(.reg .u32 a) { add.u32 r, a, 10; ret; }
.func (.reg .u32 r) times(.reg .u32 a) { mul.lo.u32 r, a, 3; ret; }
.func (.reg .u32 r) zero(.reg .u32 a) { mov.u32 r, 0; ret; }
.func (.reg .u32 r) two(.reg .u32 a, .reg .u32 b) { add.u32 r, a, b; ret; }
.global .align 8 .u64 table[2] = { plus, times };
"""
CHOOSE = THREAD + "mov.u64 %d1, plus; mov.u64 %d2, times; and.b32 %r2, %r0, 1; setp.ne.u32 %p0, %r2, 0;"


@pytest.mark.parametrize("how", ["targets", "prototype", "table"])
def test_pointers_to_functions(how):
    y = np.zeros(32, "u4")
    if how == "table":
        body = (
            THREAD
            + """and.b32 %r2, %r0, 1; mov.u64 %d1, table; mad.wide.u32 %d1, %r2, 8, %d1; ld.global.u64 %d3, [%d1];
        call (%r1), %d3, (%r0), table;"""
        )
    else:
        body = CHOOSE + "selp.b64 %d3, %d2, %d1, %p0; "
        body += {
            "targets": "F: .calltargets zero, times, plus;",
            "prototype": "F: .callprototype (.reg .u32 _) _ (.reg .u32 _);",
        }[how]
        body += "call (%r1), %d3, (%r0), F;"
    run(body + STORE, y, extra=POINTERS)
    assert (y == np.where(LANE & 1, 3 * LANE, LANE + 10)).all()


def test_invalid_function_pointer():
    y = np.zeros(32, "u4")
    body = (
        CHOOSE
        + """F: .calltargets TARGETS; setp.eq.u32 %p1, %r0, 20; selp.b64 %d3, %d2, %d1, %p1;
    call (%r1), %d3, (%r0), F;"""
        + STORE
    )
    run(body.replace("TARGETS", "plus, times"), y, extra=POINTERS)
    assert (y == np.where(LANE == 20, 3 * LANE, LANE + 10)).all()
    with pytest.raises(Fault, match="not the address of a function") as caught:
        run(body.replace("TARGETS", "plus, zero"), y, extra=POINTERS)
    assert caught.value.thread == (20, 0, 0)
    assert caught.value.address is not None
    uniform = body.replace("TARGETS", "plus, times").replace("call (", "call.uni (")
    with pytest.raises(DivergenceFault, match="uni call"):
        run(uniform, y, extra=POINTERS)
    run(uniform.replace("%r0, 20", "%r0, 99"), y, extra=POINTERS)


def test_result_that_is_not_always_set():
    f = """.func (.param .b32 r) some(.param .b32 a) { .reg .b32 %x; .reg .pred %p; ld.param.u32 %x, [a];
    setp.lt.u32 %p, %x, LIMIT;
    @%p st.param.b32 [r], %x; ret; }
    """
    y = np.zeros(32, "u4")
    body = (
        THREAD
        + ".param .b32 p; .param .b32 s; st.param.b32 [p], %r0; call.uni (s), some, (p); ld.param.b32 %r1, [s];"
        + STORE
    )
    run(body, y, extra=f.replace("LIMIT", "32"))
    assert (y == LANE).all()
    with pytest.raises(UninitialisedFault) as caught:
        run(body, y, extra=f.replace("LIMIT", "31"))
    assert caught.value.thread == (31, 0, 0)
    assert "st.global.u32 [%d0], %r1" in caught.value.instruction
    assert "%r1 is used; it depends on s" in str(caught.value)


def test_fault_in_a_function():
    f = ".func put(.reg .b64 p) { st.global.u32 [p+4], 1; ret; }"
    y = np.zeros(2, "u4")
    run("call put, (%q0);", y, block=1, extra=f)
    assert y.tolist() == [0, 1]
    with pytest.raises(Fault) as caught:
        run("call put, (%q0);", np.zeros(1, "u4"), block=1, extra=f)
    assert caught.value.entry == "k"
    assert caught.value.instruction == "st.global.u32 [p+4], 1;"
    assert caught.value.line < 6


@pytest.mark.parametrize(
    ("function", "call", "error", "words"),
    [
        (
            ".func f(.param .b32 a) { .reg .b32 %x; ld.param.u32 %x, [a]; ld.param.u16 %x, [a+2];"
            ".param .b32 p; st.param.b32 [p], %x; call f, (p); ret; }",
            ".param .b32 p; st.param.b32 [p], 1; call f, (p);",
            UnsupportedError,
            "recursive call whose parameter a",
        ),
        (".extern .func f(.reg .u32 a);", "call f, (1);", UnsupportedError, "no body"),
        (".func f(.reg .u32 a) { ret; }", "call f, (1, 2);", ParseError, "1 parameters"),
        (".func f(.reg .u32 a) { ret; }", "call (%r1), f, (1);", ParseError, "0 results"),
        (".func f(.reg .u32 a) { ret; }", "call g, (1);", ParseError, "no function g"),
        (".func f(.param .b32 a) { ret; }", ".param .b64 p; call f, (p);", ParseError, "8 bytes"),
        (
            ".func f(.param .b32 a) { ret; }",
            ".param .b32 p; st.param.b32 [p+4], 1; call f, (p);",
            OutOfBoundsFault,
            "offset 4",
        ),
        (".func f() { ret; }", "call.weird f;", UnsupportedError, "weird"),
    ],
)
def test_invalid_calls(function, call, error, words):
    with pytest.raises(error, match=words) as caught:
        run(call, extra=function)
    assert "line" in str(caught.value)


def test_kernel_in_a_module_with_an_unsupported_one():
    text = module("call f; ret;", extra=".extern .func f;") + ".visible .entry fine() { ret; }"
    machine = Machine()
    loaded = machine.load(text)
    machine.launch(loaded, "fine", 1, 32, b"")
    with pytest.raises(UnsupportedError, match="no body"):
        machine.launch(loaded, "k", 1, 32, b"")


# ---- brx.idx

TABLE = """T: .branchtargets A, B, C, D; GUARD brx.idx %r2, T; mov.u32 %r1, 5; bra END; A: mov.u32 %r1, 10; bra END;
B: mov.u32 %r1, 11; bra END; C: mov.u32 %r1, 12; D: add.u32 %r1, %r0, 100; END:"""


def test_branches_by_index():
    y = np.zeros(32, "u4")
    stats = run(THREAD + "and.b32 %r2, %r0, 3;" + TABLE.replace("GUARD", "") + STORE, y)
    assert (y == np.choose(LANE & 3, [10, 11, LANE + 100, LANE + 100])).all()
    assert stats.opcodes["brx.idx"] == 1
    assert stats.opcodes["bra"] == 2
    run(THREAD + "setp.lt.u32 %p0, %r0, 11; and.b32 %r2, %r0, 3;" + TABLE.replace("GUARD", "@!%p0") + STORE, y)
    assert (y == np.where(LANE >= 11, np.choose(LANE & 3, [10, 11, LANE + 100, LANE + 100]), 5)).all()


def test_loop_by_index():
    """Backward targets: a state machine."""
    y = np.zeros(32, "u4")
    run(
        THREAD
        + """T: .branchtargets UP, DOWN, END; mov.u32 %r2, %r0; mov.u32 %r1, 0; mov.u32 %r3, 0;
    UP: add.u32 %r1, %r1, 5; bra NEXT; DOWN: sub.u32 %r1, %r1, 2;
    NEXT: and.b32 %r3, %r2, 1; shr.u32 %r2, %r2, 1; setp.eq.u32 %p0, %r2, 0; selp.u32 %r3, 2, %r3, %p0;
    brx.idx %r3, T; END:"""
        + STORE,
        y,
    )
    want = []
    for t in range(32):
        x, total = t, 5
        while x > 1:
            total += -2 if x & 1 else 5
            x >>= 1
        want.append(total & WORD)
    assert y.tolist() == want


def test_index_past_the_table():
    y = np.zeros(32, "u4")
    body = THREAD + "mov.u32 %r2, 3; setp.eq.u32 %p0, %r0, 17; @%p0 mov.u32 %r2, INDEX;" + TABLE + STORE
    run(body.replace("INDEX", "2").replace("GUARD", ""), y)
    with pytest.raises(Fault, match="index is 4, there are 4") as caught:
        run(body.replace("INDEX", "4").replace("GUARD", ""), y)
    assert caught.value.thread == (17, 0, 0)
    run(body.replace("INDEX", "4").replace("GUARD", "@!%p0"), y)


def test_divergent_uniform_index():
    y = np.zeros(64, "u4")
    body = (
        THREAD
        + "setp.lt.u32 %p0, %r0, LIMIT; selp.u32 %r2, 1, 3, %p0;"
        + TABLE.replace("brx.idx", "brx.idx.uni")
        + STORE
    )
    run(body.replace("LIMIT", "32").replace("GUARD", ""), y, block=64)
    assert (y == np.where(np.arange(64) < 32, 11, np.arange(64) + 100)).all()
    with pytest.raises(DivergenceFault, match="uni brx"):
        run(body.replace("LIMIT", "40").replace("GUARD", ""), y, block=64)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("brx.idx %r2, NONE; A: ret;", "no label NONE"),
        ("T: .branchtargets A, B; brx.idx %r2, T; A: ret;", "no label B"),
        ("A: brx.idx %r2, A;", "no label A"),
        ("T: .branchtargets A, B", "';'"),
    ],
)
def test_invalid_tables(body, words):
    with pytest.raises(ParseError, match=words):
        run("mov.u32 %r2, 0;" + body)


FITTING = """.visible .func (.param .b32 r) same(.param .b32 a)
{ .reg .b32 %x; ld.param.u32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret; }
.visible .func (.param .b32 r) two(.param .b32 a, .param .b32 b)
{ .reg .b32 %x; ld.param.u32 %x, [b]; st.param.b32 [r], %x; ret; }
.visible .func (.param .b64 r) wide(.param .b64 a)
{ .reg .b64 %x; ld.param.u64 %x, [a]; st.param.b64 [r], %x; ret; }
.global .u64 table[3] = {two, same, wide};
"""


@pytest.mark.parametrize("where", ["table", "p: .calltargets two, same, wide;"])
def test_tables_with_functions_of_other_signatures(where):
    """A call reaches the functions that take its operands; a pointer to another one is a fault."""
    label = where.partition(":")[0]
    call = f"""{"" if label == "table" else where} mov.u64 %d1, table; cvta.global.u64 %d1, %d1; ld.u64 %d2, [%d1+AT];
    {{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r0; call (r), %d2, (a), {label}; ld.param.b32 %r1, [r]; }}"""
    y = np.zeros(32, "u4")
    run(THREAD + call.replace("AT", "8") + STORE, y, extra=FITTING)
    assert (y == LANE + 1).all()
    for at in ("0", "16"):
        with pytest.raises(Fault, match="not the address of a function that this call may reach"):
            run(THREAD + call.replace("AT", at) + STORE, y, extra=FITTING)


# ---- recursion


def test_infinite_recursion():
    with pytest.raises(Fault, match="recursive calls save more than"):
        run("call f, (1); ret;", extra=".func f(.reg .u32 a) { call f, (a); ret; }")


def test_recursion_with_register_arguments():
    """Parameters and results in .reg: they swap from call to call, and each call keeps its own."""
    f = """.func (.reg .u32 r) mix(.reg .u32 a, .reg .u32 b)
    { .reg .pred %p; .reg .b32 %x, %y; setp.eq.u32 %p, a, 0; mov.u32 r, b; @%p ret; sub.u32 %x, a, 1;
    call (%y), mix, (%x, a); @!%p call (%x), mix, (%x, %y); mad.lo.u32 r, %x, 3, b; add.u32 r, r, %y; ret; }"""

    def mix(a: int, b: int) -> int:
        if a == 0:
            return b
        y = mix(a - 1, a)
        return (3 * mix(a - 1, y) + b + y) & WORD

    y = np.zeros(32, "u4")
    run(THREAD + "and.b32 %r2, %r0, 7; call (%r1), mix, (%r2, %r0);" + STORE, y, extra=f)
    assert y.tolist() == [mix(i & 7, i) for i in range(32)]


def test_recursion_through_a_pointer():
    f = """.func (.param .b32 r) down(.param .b32 n, .param .b64 f)
    { .reg .pred %p; .reg .b32 %x, %y; .reg .b64 %f; ld.param.u32 %x, [n]; ld.param.u64 %f, [f]; setp.eq.u32 %p, %x, 0;
    mov.u32 %y, 0; @%p bra END; sub.u32 %y, %x, 1;
    { .param .b32 m; .param .b64 g; .param .b32 s; st.param.b32 [m], %y; st.param.b64 [g], %f;
    call (s), %f, (m, g), p; ld.param.b32 %y, [s]; } add.u32 %y, %y, %x; END: st.param.b32 [r], %y; ret;
    p: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _); }"""
    y = np.zeros(32, "u4")
    run(
        THREAD
        + """mov.u64 %d1, down; { .param .b32 n; .param .b64 f; .param .b32 s; st.param.b32 [n], %r0;
    st.param.b64 [f], %d1; call (s), down, (n, f); ld.param.b32 %r1, [s]; }"""
        + STORE,
        y,
        extra=f,
    )
    assert (y == LANE * (LANE + 1) // 2).all()


def test_recursion_with_memory_and_structures():
    """Each call has an array of its own in local memory, reached by name and by a generic address; a structure by value."""
    f = """.func (.param .align 8 .b8 r[16]) sum(.param .align 8 .b8 s[16], .param .b64 up)
    { .reg .pred %p; .reg .b32 %n, %x, %z; .reg .b64 %t, %a, %u, %v; .local .align 8 .b8 own[16]; .local .b32 other;
    ld.param.u32 %n, [s]; ld.param.u64 %t, [s+8]; ld.param.u64 %u, [up]; ld.u32 %z, [%u]; st.local.u32 [own+4], %n;
    mad.lo.u32 %z, %n, 100, %z; st.u32 [other], %z; mov.u64 %a, own; cvta.local.u64 %a, %a; add.u64 %a, %a, 4;
    setp.eq.u32 %p, %n, 0; @%p bra END; sub.u32 %x, %n, 1;
    { .param .align 8 .b8 q[16]; .param .b64 g; .param .align 8 .b8 o[16]; st.param.u32 [q], %x; st.param.u64 [q+8], %t;
    st.param.b64 [g], %a; call (o), sum, (q, g); ld.param.u32 %x, [o]; ld.param.u64 %t, [o+8]; }
    ld.u32 %n, [%a]; ld.local.u32 %z, [other]; add.u32 %n, %n, %x; cvt.u64.u32 %v, %z; add.u64 %t, %t, %v;
    END: st.param.u32 [r], %n; st.param.u64 [r+8], %t; ret; }"""
    y = np.zeros((2, 32), "u4")
    run(
        THREAD
        + """mov.u64 %d1, top; cvta.local.u64 %d1, %d1; st.local.u32 [top], 9; mov.u64 %d2, 1000;
    { .param .align 8 .b8 q[16]; .param .b64 g; .param .align 8 .b8 o[16]; st.param.u32 [q], %r0; st.param.u64 [q+8], %d2;
    st.param.b64 [g], %d1; call (o), sum, (q, g); ld.param.u32 %r1, [o]; ld.param.u64 %d3, [o+8]; }
    st.global.u32 [%d0+128], %d3;"""
        + STORE,
        y,
        extra=f,
        registers=".local .b32 top;",
    )
    assert (y[0] == LANE * (LANE + 1) // 2).all()
    # each call but the last adds 100 n, and the n of the call above it, or 9
    want = [1000 + sum(100 * n + (n + 1 if n < i else 9) for n in range(1, i + 1)) for i in range(32)]
    assert y[1].tolist() == want


ALIASED = """.func (.reg .b32 %r) foo(.reg .b32 %a) { add.u32 %r, %a, 1; ret; }
.func (.reg .b32 %r) bar(.reg .b32 %a); .func (.reg .b32 %r) car(.reg .b32 %a); .func (.reg .b64 %r) other();
"""


def test_aliases_of_functions():
    """A function is called by name, through a pointer and a table; an alias of an alias; the address is that of the function."""
    y = np.zeros(4, "u4")
    run(
        """call (%r0), bar, (10); call (%r1), car, (20); ld.global.u64 %d0, [table+8];
        targets: .calltargets bar; call (%r2), %d0, (30), targets; mov.u64 %d1, foo; setp.eq.u64 %p0, %d0, %d1;
        selp.u32 %r3, 1, 0, %p0; st.global.v4.u32 [%q0], {%r0, %r1, %r2, %r3};""",
        y,
        block=1,
        extra=f"{ALIASED} .alias bar, foo; .alias car, bar; .global .u64 table[2] = {{foo, bar}};",
    )
    assert y.tolist() == [11, 21, 31, 1]


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        (".alias bar, baz;", "'baz' is unexpected; it must be a function that is declared before"),
        (".alias bar, car;", "'car' is unexpected; the function of an alias is defined in this module and not .weak"),
        (".alias foo, foo;", "an alias has no body and no other alias"),
        (".alias bar, foo; .alias bar, foo;", "an alias has no body and no other alias"),
        (".alias other, foo;", "'other' is unexpected; an alias has the parameters and results of its function foo"),
        (
            ".weak .func w() { ret; } .func v(); .alias v, w;",
            "'w' is unexpected; the function of an alias is defined in this module and not .weak",
        ),
        (".alias bar foo;", "'foo' is unexpected; it must be ','"),
    ],
)
def test_aliases_that_are_refused(directive, message):
    with pytest.raises(ParseError) as error:
        run("ret;", extra=ALIASED + directive)
    assert message in str(error.value)


# ---- memory on the stack

ALLOCATING = """.func (.reg .u64 %sum) reversed(.reg .u64 %n) {
    .reg .u64 %p<4>; .reg .pred %q; mul.lo.u64 %p0, %n, 8; alloca.u64 %p1, %p0, 32; mov.u64 %p2, 0;
    L: mad.lo.u64 %p3, %p2, 8, %p1; st.local.u64 [%p3], %p2; add.u64 %p2, %p2, 1; setp.lt.u64 %q, %p2, %n; @%q bra L;
    ld.local.u64 %sum, [%p3]; and.b64 %p1, %p1, 31; add.u64 %sum, %sum, %p1; ret; }
"""


def test_memory_on_the_stack():
    """Each thread has its own sizes; a function frees what it allocated, and stackrestore what came after stacksave."""
    y = np.zeros((4, 32), "u4")
    run(
        f"""{THREAD} mov.u32 %r9, 0; cvt.u64.u32 %d1, %r0; add.u64 %d1, %d1, 1; stacksave.u64 %d9;
        L: call (%d2), reversed, (%d1); add.u32 %r9, %r9, 1; setp.lt.u32 %p0, %r9, 200; @%p0 bra L;
        stacksave.u64 %d8; sub.u64 %d8, %d8, %d9; cvt.u32.u64 %r1, %d2; cvt.u32.u64 %r2, %d8;
        alloca.u64 %d3, 24; alloca.u64 %d4, 8, 64; st.local.u32 [%d3+20], %r0; st.local.u32 [%d4], 7;
        ld.local.u32 %r3, [%d3+20]; and.b64 %d5, %d4, 63; cvt.u32.u64 %r4, %d5; stackrestore.u64 %d9;
        alloca.u64 %d6, 8; sub.u64 %d6, %d6, %d3; cvt.u32.u64 %r5, %d6; add.u32 %r4, %r4, %r5;
        st.global.u32 [%d0], %r1; st.global.u32 [%d0+128], %r2; st.global.u32 [%d0+256], %r3;
        st.global.u32 [%d0+384], %r4;""",
        y,
        extra=ALLOCATING,
    )
    assert (y == [LANE, 0 * LANE, LANE, 0 * LANE]).all()


def test_a_stack_that_is_too_small():
    body = "mov.u32 %r0, %tid.x; mul.lo.u32 %r0, %r0, 1024; alloca.u32 %r1, %r0; alloca.u32 %r1, 2048;"
    with pytest.raises(Fault, match="alloca of 2048 bytes: 1024 of the 32768 bytes of a thread are left") as error:
        run(body)
    assert error.value.thread == (31, 0, 0)
    with pytest.raises(ParseError, match=r"operand 3 of `alloca\.u64` is 12; it must be a power of two"):
        run("alloca.u64 %d0, 8, 12;")
