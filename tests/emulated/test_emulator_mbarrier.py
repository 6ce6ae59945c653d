"""mbarrier objects: counts, phases, bytes, and faults."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import AsyncFault, BarrierFault, DeadlockFault, MisalignedFault, RaceFault, UninitialisedFault

MODES = [(seed, completion) for seed in range(3) for completion in ("early", "late")]
SHARED = ".shared .align 16 .b8 sm[2048]; .shared .align 8 .b64 bar; .shared .align 8 .b64 two;"
#: %r0 thread, %r1 its word of sm; one thread initialises `bar` for COUNT arrivals
START = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; setp.eq.u32 %p0, %r0, 0;
    mov.u32 %r31, %ntid.x;
@%p0 mbarrier.init.shared::cta.b64 [bar], COUNT; bar.sync 0;"""


def start(count: int) -> str:
    return START.replace("COUNT", str(count))


def wait(parity: str | int = 0, bar: str = "bar", label: str = "W", how: str = "try_wait") -> str:
    return f"{label}: mbarrier.{how}.parity.shared::cta.b64 %p9, [{bar}], {parity}; @!%p9 bra {label};"


@pytest.mark.parametrize("how", ["try_wait", "test_wait"])
@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_threads_synchronise_repeatedly(seed, completion, how):
    """Every thread passes its number round the block, through ten phases."""
    x = np.zeros(96, "u4")
    run(
        start(96)
        + f"""mov.u32 %r2, %r0; mov.u32 %r3, 0;
    L: st.shared.u32 [%r1], %r2; mbarrier.arrive.shared::cta.b64 %d1, [bar];
    W: mbarrier.{how}.shared::cta.b64 %p1, [bar], %d1; @!%p1 bra W;
    add.u32 %r4, %r0, 1; rem.u32 %r4, %r4, 96; mad.lo.u32 %r4, %r4, 4, %r9; ld.shared.u32 %r2, [%r4];
    mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];
    V: mbarrier.{how}.parity.acquire.cta.shared::cta.b64 %p1, [bar], 1;
    @!%p1 bra V; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 10; @%p2 bra L;
    mad.wide.u32 %d0, %r0, 4, %q0;
    st.global.u32 [%d0], %r2;""",
        x,
        block=96,
        extra=SHARED,
        seed=seed,
        completion=completion,
    )
    assert (x == (np.arange(96) + 10) % 96).all()


def test_generic_addresses():
    x = np.zeros(64, "u4")
    run(
        start(1)
        + """mov.u64 %d1, bar; cvta.shared.u64 %d1, %d1; @%p0 mbarrier.inval.b64 [%d1]; bar.sync 0;
    @%p0 mbarrier.init.b64 [%d1], 64; bar.sync 0; st.shared.u32 [%r1], %r0; mbarrier.arrive.b64 %d2, [%d1];
    W: mbarrier.test_wait.b64 %p1, [%d1], %d2; @!%p1 bra W;
    xor.b32 %r4, %r0, 63; mad.lo.u32 %r4, %r4, 4, %r9; ld.shared.u32 %r2, [%r4];
    mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r2;""",
        x,
        block=64,
        extra=SHARED,
    )
    assert (x == 63 - np.arange(64)).all()


def test_counts_and_states():
    """Pending counts before each arrival, arrivals that complete intermediate phases, and arrive_drop."""
    x = np.zeros(16, "u4")
    run(
        """mbarrier.init.shared.b64 [bar], 10;
    mbarrier.arrive.noComplete.shared.b64 %d1, [bar], 3; mbarrier.pending_count.b64 %r0, %d1; st.global.u32 [%q0], %r0;
    mbarrier.arrive.noComplete.shared.b64 %d2, [bar], 2; mbarrier.pending_count.b64 %r0, %d2;
    st.global.u32 [%q0+4], %r0;
    mbarrier.test_wait.shared.b64 %p0, [bar], %d1; selp.u32 %r0, 1, 0, %p0; st.global.u32 [%q0+8], %r0;
    mbarrier.arrive_drop.shared.b64 %d3, [bar], 5; mbarrier.test_wait.shared.b64 %p0, [bar], %d1;
    selp.u32 %r0, 1, 0, %p0;
    st.global.u32 [%q0+12], %r0; mbarrier.arrive.shared.b64 %d4, [bar]; mbarrier.pending_count.b64 %r0, %d4;
    st.global.u32 [%q0+16], %r0; mbarrier.test_wait.shared.b64 %p0, [bar], %d3; selp.u32 %r0, 1, 0, %p0;
    st.global.u32 [%q0+20], %r0;
    mbarrier.arrive.shared.b64 %d5, [bar], 4; mbarrier.test_wait.parity.shared.b64 %p0, [bar], 1;
    selp.u32 %r0, 1, 0, %p0;
    st.global.u32 [%q0+24], %r0; mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0; selp.u32 %r0, 1, 0, %p0;
    st.global.u32 [%q0+28], %r0;""",
        x,
        block=1,
        extra=SHARED,
    )
    assert x[:8].tolist() == [10, 7, 0, 1, 5, 1, 1, 0]


def test_lanes_of_one_instruction_may_complete_several_phases():
    x = np.zeros(32, "u4")
    stats = run(
        start(8)
        + """mbarrier.arrive.shared.b64 %d1, [bar]; mbarrier.pending_count.b64 %r2, %d1;
    mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r2; mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1;
    @!%p1 trap; mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @%p1 trap;""",
        x,
        extra=SHARED,
    )
    assert any("complete 4 phases of an mbarrier object: more lanes arrive than it expects" in n for n in stats.notes)
    assert sorted(x.tolist()) == sorted([*range(1, 9)] * 4)


def test_pending_bytes_keep_a_phase_open():
    x = np.zeros(8, "u4")
    look = "mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0; selp.u32 %r0, 1, 0, %p0; st.global.u32 [%q0+AT], %r0;"
    body = "mbarrier.init.shared.b64 [bar], 1;"
    for at, step in enumerate(
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 100;",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 28;",
            "mbarrier.complete_tx.shared.b64 [bar], 100;",
            "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 28;",
            "mbarrier.complete_tx.shared.b64 [bar], 64;",  # of the next phase, before they are expected
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;",
        )
    ):
        body += step + look.replace("AT", str(4 * at))
    run(body, x, block=1, extra=SHARED)
    assert x[:6].tolist() == [0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("noinc", ["", ".noinc"])
def test_arrivals_of_copies(seed, completion, noinc):
    """cp.async of one warp, awaited by another; without .noinc the arrival adds its own count."""
    x, y = np.arange(1000, 1128, dtype="u4"), np.zeros(32, "u4")
    count = 32 if noinc else 1
    body = (
        start(count)
        + f"""setp.ge.u32 %p1, %r0, 32; @%p1 bra READ; mad.lo.u32 %r2, %r0, 16, %r9;
    mad.wide.u32 %d0, %r0, 16, %q0;
    cp.async.cg.shared.global [%r2], [%d0], 16; cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [bar];
    ARRIVE bra END; READ: W: WAIT
    sub.u32 %r3, %r0, 32; mad.lo.u32 %r2, %r3, 16, %r9; ld.shared.u32 %r4, [%r2+4]; mad.wide.u32 %d0, %r3, 4, %q1;
    st.global.u32 [%d0], %r4;
    END: ret;"""
    )
    arrive = "" if noinc else "@%p0 mbarrier.arrive.shared::cta.b64 _, [bar];"
    body = body.replace("ARRIVE", arrive)
    # without .noinc the phase must not complete before the last lane's copies have been counted in: warp 0 is one warp
    waits = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra W;"
    options = {"block": 64, "extra": SHARED, "seed": seed, "completion": completion}
    run(body.replace("WAIT", waits), x, y, **options)
    assert (y == x[1::4]).all()
    with pytest.raises((AsyncFault, RaceFault, UninitialisedFault)):
        run(body.replace("WAIT", ""), x, y, **options)


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_copies_of_an_earlier_arrival(seed, completion):
    """A warp copies twice, and another waits for each copy; it may read the first while the second is in flight."""
    x, y = np.arange(1000, 1256, dtype="u4"), np.zeros(32, "u4")
    body = (
        start(32)
        + """@%p0 mbarrier.init.shared::cta.b64 [two], 32; bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra READ;
    mad.lo.u32 %r2, %r0, 16, %r9; mad.wide.u32 %d0, %r0, 16, %q0;
    cp.async.cg.shared.global [%r2], [%d0], 16; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];
    cp.async.cg.shared.global [%r2+512], [%d0+512], 16; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [two];
    bra END; READ: W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra W;
    sub.u32 %r3, %r0, 32; mad.lo.u32 %r2, %r3, 16, %r9; ld.shared.u32 %r4, [%r2+4];
    SECOND ld.shared.u32 %r5, [%r2+516]; add.u32 %r4, %r4, %r5; mad.wide.u32 %d0, %r3, 4, %q1; st.global.u32 [%d0], %r4;
    END: ret;"""
    )
    options = {"block": 64, "extra": SHARED, "seed": seed, "completion": completion}
    run(body.replace("SECOND", wait(bar="two", label="V")), x, y, **options)
    assert (y == x[1:128:4] + x[129::4]).all()
    with pytest.raises((AsyncFault, RaceFault, UninitialisedFault)):
        run(body.replace("SECOND", ""), x, y, **options)


def test_ring_of_a_producer_and_consumers():
    """Four slots, full and empty barriers: a pipeline whose warps are at very different positions."""
    x = np.zeros(1, "u4")
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mov.u32 %r8, full; setp.eq.u32 %p0, %r0, 0; mov.u32 %r5, 0;
    mov.u32 %r6, 0;
    mov.u32 %r7, 0; mov.u32 %r2, 0; @!%p0 bra READY;
    mbarrier.init.shared.b64 [full], 32; mbarrier.init.shared.b64 [full+8], 32; mbarrier.init.shared.b64 [full+16], 32;
    mbarrier.init.shared.b64 [full+24], 32; mbarrier.init.shared.b64 [full+32], 3;
    mbarrier.init.shared.b64 [full+40], 3;
    mbarrier.init.shared.b64 [full+48], 3; mbarrier.init.shared.b64 [full+56], 3;
    READY: bar.sync 0; setp.ge.u32 %p1, %r0, 32; and.b32 %r1, %r0, 31; setp.eq.u32 %p5, %r1, 0; @%p1 bra CONSUME;
    P: xor.b32 %r3, %r6, 1; mad.lo.u32 %r4, %r5, 8, %r8;
    PW: mbarrier.try_wait.parity.shared.b64 %p2, [%r4+32], %r3; @!%p2 bra PW;
    mad.lo.u32 %r10, %r5, 32, %r1; mad.lo.u32 %r10, %r10, 4, %r9; mad.lo.u32 %r11, %r7, 32, %r1;
    st.shared.u32 [%r10], %r11;
    mbarrier.arrive.shared.b64 _, [%r4]; add.u32 %r7, %r7, 1; add.u32 %r5, %r5, 1; setp.eq.u32 %p3, %r5, 4;
    @%p3 mov.u32 %r5, 0;
    @%p3 xor.b32 %r6, %r6, 1; setp.lt.u32 %p4, %r7, 40; @%p4 bra P; bra END;
    CONSUME: mad.lo.u32 %r4, %r5, 8, %r8;
    CW: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r6; @!%p2 bra CW;
    mad.lo.u32 %r10, %r5, 32, %r1; mad.lo.u32 %r10, %r10, 4, %r9; ld.shared.u32 %r11, [%r10]; add.u32 %r2, %r2, %r11;
    RELEASE
    add.u32 %r7, %r7, 1; add.u32 %r5, %r5, 1; setp.eq.u32 %p3, %r5, 4; @%p3 mov.u32 %r5, 0;
    @%p3 xor.b32 %r6, %r6, 1; setp.lt.u32 %p4, %r7, 40; @%p4 bra CONSUME; red.global.add.u32 [%q0], %r2;
    END: ret;"""
    extra = ".shared .align 16 .b8 sm[512]; .shared .align 8 .b64 full[8];"
    good = "bar.warp.sync -1; @%p5 mbarrier.arrive.shared.b64 _, [%r4+32];"
    for seed in range(4):
        x[:] = 0
        run(body.replace("RELEASE", good), x, block=128, extra=extra, seed=seed)
        assert x[0] == 3 * (1280 * 1279 // 2)
    # released before it is read: the producer may overwrite it
    body = body.replace("ld.shared.u32 %r11, [%r10];", good + "ld.shared.u32 %r11, [%r10];")
    for seed in range(4):
        with pytest.raises(RaceFault, match="no barrier between"):
            run(body.replace("RELEASE", ""), x, block=128, extra=extra, seed=seed)


FAULTS = {
    # name: (fault, words, what is wrong, what would be right); S: .shared.b64
    "before init": (
        BarrierFault,
        "execute mbarrier.init first",
        "mbarrier.arriveS _, [two];",
        "mbarrier.initS [two], 1; mbarrier.arriveS _, [two];",
    ),
    "after inval": (
        BarrierFault,
        "no mbarrier object",
        "mbarrier.invalS [bar]; mbarrier.arriveS _, [bar];",
        "mbarrier.arriveS _, [bar]; mbarrier.invalS [bar];",
    ),
    "twice": (
        BarrierFault,
        "with no mbarrier.inval",
        "mbarrier.initS [bar], 2;",
        "mbarrier.invalS [bar]; mbarrier.initS [bar], 2;",
    ),
    "count": (BarrierFault, "the count is 0", "mbarrier.initS [two], 0;", "mbarrier.initS [two], 1048575;"),
    "large count": (
        BarrierFault,
        "must be 1 to 1048575",
        "mbarrier.initS [two], 1048576;",
        "mbarrier.initS [two], 1048575;",
    ),
    "too many": (BarrierFault, "expects 1 more", "mbarrier.arriveS _, [bar], 2;", "mbarrier.arriveS _, [bar], 1;"),
    "too many while bytes are to come": (
        BarrierFault,
        "64 bytes are pending",
        "mbarrier.arrive.expect_txS _, [bar], 64; mbarrier.arriveS _, [bar];",
        "mbarrier.expect_txS [bar], 64; mbarrier.arriveS _, [bar];",
    ),
    "bytes": (
        BarrierFault,
        "counts up to 1048575",
        "mbarrier.expect_txS [bar], 1048576;",
        "mbarrier.expect_txS [bar], 1048575;",
    ),
    "noComplete": (
        BarrierFault,
        "noComplete",
        "mbarrier.arrive.noCompleteS %d1, [bar], 1;",
        "mbarrier.arriveS %d1, [bar], 1;",
    ),
    "two phases behind": (
        BarrierFault,
        "a wait for phase 0 .* in phase 2",
        "mbarrier.arriveS %d1, [bar]; mbarrier.arriveS _, [bar]; mbarrier.test_waitS %p1, [bar], %d1;",
        "mbarrier.arriveS %d1, [bar]; mbarrier.arriveS %d1, [bar]; mbarrier.test_waitS %p1, [bar], %d1;",
    ),
    "no state": (
        BarrierFault,
        "not a state",
        "mov.u64 %d1, 5; mbarrier.test_waitS %p1, [bar], %d1;",
        "mbarrier.arriveS %d1, [bar]; mbarrier.test_waitS %p1, [bar], %d1;",
    ),
    "parity": (
        BarrierFault,
        "the parity is 2",
        "mov.u32 %r1, 2; mbarrier.test_wait.parityS %p1, [bar], %r1;",
        "mbarrier.test_wait.parityS %p1, [bar], 1;",
    ),
    "misaligned": (
        MisalignedFault,
        "multiple of 8",
        "mov.u32 %r1, two; mbarrier.initS [%r1+4], 1;",
        "mov.u32 %r1, two; mbarrier.initS [%r1], 1;",
    ),
    "stored to": (
        BarrierFault,
        "in use",
        "st.shared.u32 [bar+4], 1;",
        "mbarrier.invalS [bar]; st.shared.u32 [bar+4], 1;",
    ),
    "loaded from": (
        BarrierFault,
        "in use",
        "ld.shared.u64 %d1, [bar];",
        "mbarrier.invalS [bar]; st.shared.u64 [bar], 1; ld.shared.u64 %d1, [bar];",
    ),
    "deadlock": (DeadlockFault, "1 of 1 arrivals and 0 bytes pending", wait(0), wait(1)),
    "bytes that never come": (
        DeadlockFault,
        "0 of 1 arrivals and 32 bytes pending",
        "mbarrier.arrive.expect_txS _, [bar], 32; " + wait(0),
        "mbarrier.arriveS _, [bar]; " + wait(0),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_and_fixed_kernel(name):
    fault, words, wrong, right = FAULTS[name]
    before = "mbarrier.init.shared.b64 [bar], 1;"
    run(before + re.sub(r"(?<=[a-z])S ", ".shared.b64 ", right), block=1, extra=SHARED)
    with pytest.raises(fault, match=words) as caught:
        run(before + re.sub(r"(?<=[a-z])S ", ".shared.b64 ", wrong), block=1, extra=SHARED)
    assert caught.value.line > 5


def test_try_wait_without_a_loop():
    """A try_wait may return false before the phase completes: the code after it must not rely on the phase."""
    body = (
        start(1)
        + """setp.lt.u32 %p1, %r0, 32; @%p1 bra WRITE;
    W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; LOOP
    ld.shared.u32 %r2, [%r9]; bra END; WRITE: @%p0 st.shared.u32 [%r9], 7; @%p0 mbarrier.arrive.shared.b64 _, [bar];
    END: ret;"""
    )
    for seed in range(8):
        run(body.replace("LOOP", "@!%p2 bra W;"), block=64, extra=SHARED, seed=seed)
    caught = 0
    for seed in range(8):
        try:
            run(body.replace("LOOP", ""), block=64, extra=SHARED, seed=seed)
        except RaceFault:
            caught += 1
    assert caught  # of the orders of warps, some have the phase complete at once


@pytest.mark.parametrize("seed", range(4))
def test_lanes_of_one_warp_wait_for_different_objects(seed):
    """Warps 1 and 2 each complete a phase; a wait of warp 0 acquires the words that both stored."""
    x = np.zeros(32, "u4")
    body = (
        start(32)
        + """@%p0 mbarrier.init.shared::cta.b64 [two], 32; bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra STORE;
    and.b32 %r2, %r0, 1; setp.eq.u32 %p2, %r2, 0; mov.u32 %r3, bar; mov.u32 %r4, two; selp.u32 %r5, %r3, WAITED, %p2;
    W: mbarrier.HOW.parity.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W; bar.warp.sync 0xffffffff;
    mad.lo.u32 %r2, %r2, 128, %r1; ld.shared.u32 %r6, [%r2+128]; mad.wide.u32 %d0, %r0, 4, %q0;
    st.global.u32 [%d0], %r6; bra END;
    STORE: st.shared.u32 [%r1], %r0; setp.lt.u32 %p2, %r0, 64;
    @%p2 mbarrier.arrive.shared::cta.b64 _, [bar]; @!%p2 mbarrier.arrive.shared::cta.b64 _, [two]; END: ret;"""
    )
    for how in ("try_wait", "test_wait"):
        run(body.replace("WAITED", "%r4").replace("HOW", how), x, block=96, extra=SHARED, seed=seed)
        assert (x == np.arange(32, 64) + 32 * (np.arange(32) % 2)).all()
        with pytest.raises((RaceFault, UninitialisedFault)):
            run(body.replace("WAITED", "%r3").replace("HOW", how), x, block=96, extra=SHARED, seed=seed)


def test_relaxed_arrival_orders_only_fenced_accesses():
    body = (
        start(1)
        + """setp.lt.u32 %p1, %r0, 32; @%p1 bra WRITE;
    W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;
    ld.shared.u32 %r2, [%r9]; bra END; WRITE: @%p0 st.shared.u32 [%r9], 7; FENCE
    @%p0 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar]; END: ret;"""
    )
    run(body.replace("FENCE", "fence.acq_rel.cta;"), block=64, extra=SHARED)
    with pytest.raises(RaceFault):
        run(body.replace("FENCE", ""), block=64, extra=SHARED)


def test_relaxed_wait_orders_only_after_a_fence():
    body = (
        start(1)
        + """setp.lt.u32 %p1, %r0, 32; @%p1 bra WRITE;
    W: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p2, [bar], 0; @!%p2 bra W; FENCE
    ld.shared.u32 %r2, [%r9]; bra END; WRITE: @%p0 st.shared.u32 [%r9], 7; @%p0 mbarrier.arrive.shared.b64 _, [bar];
    END: ret;"""
    )
    run(body.replace("FENCE", "fence.acq_rel.cta;"), block=64, extra=SHARED)
    with pytest.raises(RaceFault):
        run(body.replace("FENCE", ""), block=64, extra=SHARED)


def test_try_wait_starves_no_warp():
    """A warp that polls at a low position lets the one at a high position run."""
    x = np.zeros(1, "u4")
    run(
        start(1)
        + """setp.ge.u32 %p1, %r0, 32; @%p1 bra PRODUCE;
    W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0, 100; @!%p2 bra W;
    ld.shared.u32 %r2, [%r9]; @%p0 st.global.u32 [%q0], %r2; bra END;
    PRODUCE: mov.u32 %r3, 0; L: add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 500; @%p3 bra L; setp.eq.u32 %p4, %r0, 32;
    @%p4 st.shared.u32 [%r9], %r3; @%p4 mbarrier.arrive.shared.b64 _, [bar];
    END: ret;""",
        x,
        block=64,
        extra=SHARED,
    )
    assert x[0] == 500


@pytest.mark.parametrize("completion", ["late", "early"])
def test_a_loop_that_polls_and_counts_in_local_memory(completion):
    """Stores to local memory, as in builds without optimisation, are no progress that delays a copy for ever."""
    body = """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 4, %r1;
    setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [b], 32; bar.warp.sync -1; mov.u32 %r2, 0;
    cp.async.ca.shared.global [%r1], [%d0], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [b];
    W: add.u32 %r2, %r2, 1; st.local.u32 [count], %r2; mbarrier.test_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra W;
    xor.b32 %r1, %r1, 4; ld.shared.u32 %r3, [%r1]; st.global.u32 [%d0], %r3;"""
    y = np.arange(32, dtype="u4")
    registers = ".shared .align 8 .b64 b; .shared .align 128 .b8 s[128]; .local .b32 count;"
    run(body, y, registers=registers, completion=completion)
    assert (y == np.arange(32) ^ 1).all()
