"""ldmatrix, stmatrix, movmatrix and mma against matrices assembled element by element."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import (
    AsyncFault,
    DivergenceFault,
    MisalignedFault,
    OutOfBoundsFault,
    ParseError,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)

SHARED = ".shared .align 16 .b8 sm[4096];"
#: %r0 thread, %r7 lane, %r6 warp, %r9 the warp's 512 bytes of shared memory, all of them filled from q0,
#: %r8 the address of the row that the lane gives: row l of 16 bytes
FILLED = """
mov.u32 %r0, %tid.x; and.b32 %r7, %r0, 31; shr.u32 %r6, %r0, 5; mov.u32 %r9, sm; mad.lo.u32 %r9, %r6, 512, %r9;
mad.lo.u32 %r8, %r7, 16, %r9; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r5, %r5, 64, %r0; mad.wide.u32 %d0, %r5, 16, %q0;
ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%d0]; st.shared.v4.u32 [%r8], {%r20, %r21, %r22, %r23}; bar.sync 0;
mad.wide.u32 %d1, %r5, 16, %q1;
"""
REGISTERS = {1: "{%r10}", 2: "{%r10, %r11}", 4: "{%r10, %r11, %r12, %r13}"}
STORE = "".join(f"st.global.u32 [%d1+{4 * i}], %r1{i};" for i in range(4))


def fragment(matrix, lane, transposed):
    """The two 16-bit elements of an 8x8 matrix that a lane holds, as one word."""
    r, c = divmod(lane, 4)
    low, high = (matrix[2 * c][r], matrix[2 * c + 1][r]) if transposed else (matrix[r][2 * c], matrix[r][2 * c + 1])
    return int(low) | int(high) << 16


def halves(seed=1):
    """Two blocks of two warps of four 8x8 matrices, all elements different."""
    return np.random.default_rng(seed).permutation(1 << 16)[: 2 * 2 * 4 * 64].astype("u2").reshape(2, 2, 4, 8, 8)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_ldmatrix(count, transposed, space):
    x = halves()
    y = np.zeros((2, 2, 32, 4), "u4")
    address = "%r8"
    body = FILLED + "mov.u32 %r10, 7; mov.u32 %r11, 7; mov.u32 %r12, 7; mov.u32 %r13, 7;"
    if not space:
        body += "cvt.u64.u32 %d2, %r8; cvta.shared.u64 %d2, %d2;"
        address = "%d2"
    trans = ".trans" if transposed else ""
    run(
        f"{body} ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {REGISTERS[count]}, [{address}]; {STORE}",
        x,
        y,
        grid=2,
        block=64,
        extra=SHARED,
    )
    for block in range(2):
        for warp in range(2):
            for lane in range(32):
                want = [fragment(x[block, warp, i], lane, transposed) if i < count else 7 for i in range(4)]
                assert y[block, warp, lane].tolist() == want


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(count, transposed):
    """Registers hold fragments of known matrices; memory must hold the matrices, and be unchanged elsewhere."""
    x = halves(2)
    y = np.zeros((2, 2, 4, 8, 8), "u2")
    held = np.array(
        [
            [[[fragment(x[b, w, i], lane, transposed) for i in range(4)] for lane in range(32)] for w in range(2)]
            for b in range(2)
        ],
        "u4",
    )
    before = halves(3)
    trans = ".trans" if transposed else ""
    body = (
        FILLED
        + f"""mad.wide.u32 %d2, %r5, 16, %q2; ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%d2];
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r8], {REGISTERS[count]}; bar.sync 0;
    ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r8]; st.global.v4.u32 [%d1], {{%r20, %r21, %r22, %r23}};"""
    )
    run(body, before, y, held, grid=2, block=64, extra=SHARED)
    want = before.copy()
    want[:, :, :count] = x[:, :, :count]
    assert (y == want).all()


def test_rows_at_any_address():
    """Rows in reverse order, 48 bytes apart, the matrices interleaved."""
    x = np.arange(2048, dtype="u2")
    y = np.zeros((32, 4), "u4")
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mov.u32 %r1, 0;
    L: mad.lo.u32 %r2, %r1, 128, 0; mad.lo.u32 %r2, %r0, 4, %r2; cvt.u64.u32 %d0, %r2; add.u64 %d0, %d0, %q0;
    ld.global.u32 %r3, [%d0]; add.u32 %r2, %r2, %r9; st.shared.u32 [%r2], %r3; add.u32 %r1, %r1, 1;
    setp.lt.u32 %p0, %r1, 32; @%p0 bra L;
    bar.warp.sync 0xffffffff; sub.u32 %r4, 31, %r0; mad.lo.u32 %r4, %r4, 48, %r9;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4+16];
    mad.wide.u32 %d1, %r0, 16, %q1;"""
        + STORE,
        x,
        y,
        extra=SHARED,
    )
    for lane in range(32):
        for i in range(4):
            first = (48 * (31 - 8 * i - lane // 4) + 16) // 2 + 2 * (lane % 4)
            assert y[lane, i] == first | (first + 1) << 16


def test_movmatrix():
    x = halves(4)
    y = np.zeros((2, 2, 32, 4), "u4")
    held = np.array(
        [
            [[[fragment(x[b, w, i], lane, False) for i in range(4)] for lane in range(32)] for w in range(2)]
            for b in range(2)
        ],
        "u4",
    )
    body = FILLED + "".join(
        f"ld.global.u32 %r10, [%d0+{4 * i}]; "
        f"movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10; st.global.u32 [%d1+{4 * i}], %r11;"
        for i in range(4)
    )
    run(body, held, y, grid=2, block=64, extra=SHARED)
    for b, w, lane, i in np.ndindex(2, 2, 32, 4):
        assert y[b, w, lane, i] == fragment(x[b, w, i].T, lane, False)


LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r8];"


@pytest.mark.parametrize("what", ["ldmatrix", "stmatrix"])
def test_rows_in_bounds_and_aligned(what):
    x, y = halves(), np.zeros((2, 2, 32, 4), "u4")
    op = LDMATRIX if what == "ldmatrix" else "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r20, %r21, %r22, %r23};"
    place = "mov.u32 %r2, sm; mov.u32 %r1, AT; add.u32 %r1, %r1, %r2; setp.eq.u32 %p0, %r0, 43; @%p0 mov.u32 %r8, %r1;"
    body = FILLED + "bar.sync 0;" + place + op
    run(body.replace("AT", "1008"), x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(MisalignedFault, match="16 bytes") as caught:
        run(body.replace("AT", "1000"), x, y, grid=2, block=64, extra=SHARED)
    assert caught.value.thread == (43, 0, 0)
    with pytest.raises(OutOfBoundsFault) as caught:
        run(body.replace("AT", "4096"), x, y, grid=2, block=64, extra=SHARED)
    assert caught.value.thread == (43, 0, 0)
    assert what in caught.value.instruction


def test_lanes_without_a_row_may_have_any_address():
    x, y = halves(), np.zeros((2, 2, 32, 4), "u4")
    body = (
        FILLED
        + """setp.ge.u32 %p0, %r7, LAST; @%p0 mov.u32 %r8, 13;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [%r8];"""
    )
    run(body.replace("LAST", "16"), x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(OutOfBoundsFault):
        run(body.replace("LAST", "15"), x, y, grid=2, block=64, extra=SHARED)


def test_generic_address_outside_shared_memory():
    x, y = halves(), np.zeros((2, 2, 32, 4), "u4")
    body = FILLED + "cvt.u64.u32 %d2, %r8; WHERE ldmatrix.sync.aligned.m8n8.x4.b16 {%r10, %r11, %r12, %r13}, [%d2];"
    run(body.replace("WHERE", "cvta.shared.u64 %d2, %d2;"), x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(OutOfBoundsFault, match="generic"):
        run(body.replace("WHERE", ""), x, y, grid=2, block=64, extra=SHARED)


@pytest.mark.parametrize("transposed", ["", ".trans"])
def test_ldmatrix_of_unwritten_memory(transposed):
    """Only the registers and lanes that receive the missing bytes are undefined."""
    y = np.zeros((32, 4), "u4")
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r8, %r0, 16, %r9; mov.u32 %r1, 5;
    setp.ne.u32 %p0, %r0, SKIP;
    st.shared.v2.u32 [%r8], {{%r1, %r1}}; st.shared.u32 [%r8+8], %r1; @%p0 st.shared.u32 [%r8+12], %r1;
    bar.warp.sync 0xffffffff;
    ldmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r8];
    mad.wide.u32 %d1, %r0, 16, %q0; USE"""
    every = STORE
    others = STORE.replace("st.global.u32 [%d1+8], %r12;", "")
    run(body.replace("SKIP", "32").replace("USE", every), y, extra=SHARED)
    run(body.replace("SKIP", "17").replace("USE", others), y, extra=SHARED)
    with pytest.raises(UninitialisedFault, match="%r12 is used") as caught:
        run(body.replace("SKIP", "17").replace("USE", every), y, extra=SHARED)
    # row 1 of matrix 2, columns 6 and 7: lane 4 + 3; transposed the low or high half of lanes 24 and 28
    assert caught.value.thread == ((24, 0, 0) if transposed else (7, 0, 0))
    assert "st.global" in caught.value.instruction
    run(body.replace("SKIP", "17").replace("USE", every), y, extra=SHARED, uninitialised=False)


def test_stmatrix_defines_what_it_writes():
    y = np.zeros(32, "u4")
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r8, %r0, 16, %r9; mad.lo.u32 %r7, %r0, 4, %r9;
    mad.wide.u32 %d0, %r0, 4, %q0;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r8], {%r0}; bar.warp.sync 0xffffffff; ld.shared.u32 %r1, [%r7+AT];
    st.global.u32 [%d0], %r1;"""
    run(body.replace("AT", "0"), y, extra=SHARED)
    assert (y == np.arange(32)).all()
    with pytest.raises(UninitialisedFault) as caught:
        run(body.replace("AT", "4"), y, extra=SHARED)
    assert caught.value.thread == (31, 0, 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r20, %r21, %r22, %r23};",
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4];",
        ),
        ("st.shared.u32 [%r8+12], %r0;", LDMATRIX.replace("x4", "x4.trans").replace("r8", "r4")),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r8];", "st.shared.u16 [%r4+14], %r0;"),
    ],
)
def test_matrices_race(before, after, seed):
    """The other warp's rows, with and without a barrier between."""
    x, y = halves(), np.zeros((2, 2, 32, 4), "u4")
    start = (
        FILLED
        + """xor.b32 %r3, %r6, 1; mov.u32 %r4, sm; mad.lo.u32 %r4, %r3, 512, %r4; mad.lo.u32 %r4, %r7, 16, %r4;
    bar.sync 0;"""
    )
    run(start + before + "bar.sync 0;" + after + "bar.sync 0;", x, y, grid=2, block=64, extra=SHARED, seed=seed)
    with pytest.raises(RaceFault):
        run(start + before + after + "bar.sync 0;", x, y, grid=2, block=64, extra=SHARED, seed=seed)


def test_ldmatrix_of_a_copy_in_flight():
    x, y = halves(), np.zeros((2, 2, 32, 4), "u4")
    body = FILLED + "cp.async.cg.shared.global [%r8], [%d0], 16; WAIT bar.warp.sync 0xffffffff;" + LDMATRIX + STORE
    run(body.replace("WAIT", "cp.async.wait_all;"), x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(AsyncFault):
        run(body.replace("WAIT", ""), x, y, grid=2, block=64, extra=SHARED)


@pytest.mark.parametrize(
    "op",
    [
        LDMATRIX,
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r20, %r21, %r22, %r23};",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r20;",
    ],
)
def test_matrix_instructions_need_whole_warps(op):
    x, y = halves(), np.zeros((2, 2, 32, 4), "u4")
    guarded = FILLED + "setp.lt.u32 %p0, %r0, LIMIT; @%p0 " + op
    run(guarded.replace("LIMIT", "32"), x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(DivergenceFault, match="24 lanes of the warp are missing") as caught:
        run(guarded.replace("LIMIT", "40"), x, y, grid=2, block=64, extra=SHARED)
    assert caught.value.thread == (32, 0, 0)
    run(guarded.replace("LIMIT", "32") + "bar.sync 0;", x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(DivergenceFault, match="never reach"):
        run(guarded.replace("LIMIT", "40") + "bar.sync 0;", x, y, grid=2, block=64, extra=SHARED)
    exited = FILLED + "setp.ge.u32 %p0, %r0, LIMIT; @%p0 exit; " + op
    run(exited.replace("LIMIT", "32"), x, y, grid=2, block=64, extra=SHARED)
    with pytest.raises(DivergenceFault, match="lanes of the warp are missing") as caught:
        run(exited.replace("LIMIT", "40"), x, y, grid=2, block=64, extra=SHARED)
    assert caught.value.thread == (32, 0, 0)


@pytest.mark.parametrize(
    "op",
    [
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r10, %r11}, [%r8];",
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r10, %r11, %r12}, [%r8];",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r8], {%r10};",
        "movmatrix.sync.aligned.m8n8.b16 %r10, %r11;",
    ],
)
def test_matrix_shapes_that_hopper_lacks(op):
    with pytest.raises(UnsupportedError, match=op.split(".")[0]):
        run("mov.u32 %r8, sm; mov.u32 %r10, 0; mov.u32 %r11, 0;" + op, extra=SHARED)


def test_number_of_registers_must_match():
    with pytest.raises(ParseError, match="2 registers"):
        run("mov.u32 %r8, sm; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10}, [%r8];", extra=SHARED)


def test_ldmatrix_bank_conflicts():
    """Rows 128 bytes apart share four banks: eight wavefronts per matrix instead of one."""
    body = (
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r8, %r0, STRIDE, %r9; mov.u32 %r1, %r9;
    mad.lo.u32 %r1, %r0, 4, %r9; mov.u32 %r2, 0;
    L: st.shared.u32 [%r1], %r0; add.u32 %r1, %r1, 128; add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 32; @%p0 bra L;
    bar.warp.sync 0xffffffff;
    """
        + LDMATRIX
    )
    good = run(body.replace("STRIDE", "16"), extra=SHARED, stats="full")
    bad = run(body.replace("STRIDE", "128"), extra=SHARED, stats="full")
    assert good.bank_conflicts == 0
    assert bad.bank_conflicts == 4 * 7
    assert good.warp_instructions["shared_load"] == 1
