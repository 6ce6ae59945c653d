"""Barriers that lanes of a warp reach separately, arrivals without a wait, and kernels that never end."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.emulator import Options
from ptxgen.errors import BarrierFault, DeadlockFault, DivergenceFault, InputError, RaceFault, UninitialisedFault

SHARED = ".shared .align 16 .b8 sm[4096];"
#: %r0 thread, %r1 its word of `sm`, %r2 the word of the thread opposite, %p0 the lower half of each warp
START = """
mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; mov.u32 %r8, %ntid.x; sub.u32 %r3, %r8, 1;
sub.u32 %r3, %r3, %r0; mad.lo.u32 %r2, %r3, 4, %r9; and.b32 %r4, %r0, 31; setp.lt.u32 %p0, %r4, 16;
mov.u32 %r5, %ctaid.x; mad.lo.u32 %r6, %r5, %r8, %r0; mad.wide.u32 %d0, %r6, 4, %q0;
"""
END = "END: ld.shared.u32 %r7, [%r2]; st.global.u32 [%d0], %r7;"


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threads", [64, 96, 80])
def test_halves_of_a_warp_at_two_barriers(threads, seed):
    """The same barrier at two positions: a warp has arrived when both its halves have."""
    y = np.zeros((3, threads), "u4")
    body = (
        START
        + """@%p0 bra LOW; st.shared.u32 [%r1], %r0; SYNC 0; bra END;
    LOW: add.u32 %r7, %r0, 1000; st.shared.u32 [%r1], %r7; SYNC 0;"""
        + END
    )
    run(body.replace("SYNC", "barrier.sync"), y, grid=3, block=threads, extra=SHARED, seed=seed)
    other = threads - 1 - np.arange(threads)
    assert (y == np.where(other % 32 < 16, other + 1000, other)).all()
    for aligned in ("barrier.sync.aligned", "bar.sync"):
        with pytest.raises(DivergenceFault, match="never reach"):
            run(body.replace("SYNC", aligned), y, grid=3, block=threads, extra=SHARED, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_lanes_arrive_one_by_one(seed):
    """Every lane reaches the barrier in its own iteration of a loop, in different blocks."""
    y = np.zeros((4, 64), "u4")
    run(
        START
        + """st.shared.u32 [%r1], %r0; mov.u32 %r10, 0; mad.lo.u32 %r11, %r5, 7, %r4; and.b32 %r11, %r11, 31;
    L: setp.eq.u32 %p1, %r10, %r11; @%p1 barrier.cta.sync 3, 64; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 32;
    @%p2 bra L;"""
        + END,
        y,
        grid=4,
        block=64,
        extra=SHARED,
        seed=seed,
    )
    assert (y == 63 - np.arange(64)).all()


def test_rest_of_a_warp_may_exit():
    """Exited lanes do not count: the others make a warp."""
    y = np.zeros((1, 64), "u4")
    body = (
        START
        + """setp.ge.u32 %p1, %r0, 32; @%p1 bra ALL; @%p0 bra STAY; mov.u32 %r10, 0;
    L: add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 50; @%p2 bra L; LEAVE; STAY: st.shared.u32 [%r1], 5;
    barrier.sync 1; bra DONE;
    ALL: barrier.sync 1; sub.u32 %r7, %r0, 32; and.b32 %r7, %r7, 15; mad.lo.u32 %r7, %r7, 4, %r9;
    ld.shared.u32 %r7, [%r7];
    st.global.u32 [%d0], %r7; DONE: ret;"""
    )
    run(body.replace("LEAVE", "exit"), y, block=64, extra=SHARED)
    assert y.tolist() == [[0] * 32 + [5] * 32]
    with pytest.raises(DeadlockFault, match="other lanes of its warp are missing") as caught:
        run(body.replace("LEAVE", "barrier.sync 2"), y, block=64, extra=SHARED)
    assert "barrier 1: 32 of 64 threads" in str(caught.value)
    assert "barrier 2: other lanes" in str(caught.value)


def test_votes_of_halves_of_a_warp():
    y = np.zeros((2, 64), "u4")
    run(
        START
        + """setp.lt.u32 %p1, %r0, 40; @%p0 bra LOW; barrier.red.popc.u32 %r7, 0, %p1; bra OUT;
    LOW: barrier.red.popc.u32 %r7, 0, !%p1;
    OUT: st.global.u32 [%d0], %r7;""",
        y,
        grid=2,
        block=64,
        extra=SHARED,
    )
    t = np.arange(64)
    assert (y == np.count_nonzero((t < 40) ^ (t % 32 < 16))).all()


def test_counts_that_differ_within_a_warp():
    body = START + "@%p0 bra LOW; barrier.sync 1, 64; bra OUT; LOW: barrier.sync 1, COUNT; OUT: ret;"
    y = np.zeros((1, 64), "u4")
    run(body.replace("COUNT", "64"), y, block=64, extra=SHARED)
    with pytest.raises(BarrierFault, match="while others wait for"):
        run(body.replace("COUNT", "32"), y, block=64, extra=SHARED)


@pytest.mark.parametrize("seed", range(3))
def test_halves_arrive_without_waiting(seed):
    """A producer warp whose halves arrive at two positions, without waiting for the consumer."""
    y = np.zeros((1, 64), "u4")
    body = (
        START
        + """setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUMER; st.shared.u32 [%r1], %r0; @%p0 bra LOW;
    barrier.arrive 1, 64; bra OUT; LOW: barrier.arrive 1, 64; bra OUT;
    CONSUMER: WAIT ld.shared.u32 %r7, [%r2]; st.global.u32 [%d0], %r7; OUT: ret;"""
    )
    run(body.replace("WAIT", "barrier.sync 1, 64;"), y, block=64, extra=SHARED, seed=seed)
    assert (y[0, 32:] == 31 - np.arange(32)).all()
    with pytest.raises(RaceFault):
        run(
            body.replace("WAIT", "").replace("barrier.arrive 1, 64;", "", 1),
            y,
            block=64,
            extra=SHARED,
            seed=seed,
            uninitialised=False,
        )


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_accesses_after_an_arrival_are_not_ordered_by_it(seed, asynchronous):
    """A producer arrives after each of three words; its clock advances before the consumer waits."""
    y = np.zeros((1, 64), "u4")
    body = (
        START
        + """FIRST setp.lt.u32 %p1, %r0, 32; @%p1 bra PRODUCER; WAIT
    ld.shared.u32 %r7, [%r9+AT]; st.global.u32 [%d0], %r7; bar.sync 3, 64; bra OUT;
    PRODUCER: setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.u32 [%r9], 1; bar.arrive 1, 64; @%p2 st.shared.u32 [%r9+128], 2;
    bar.arrive 2, 64; @%p2 st.shared.u32 [%r9+256], 3; bar.arrive 3, 64; OUT: ret;"""
    )
    object_ = "setp.eq.u32 %p3, %r0, 0; @%p3 mbarrier.init.shared.b64 [mb], 1;"
    body = body.replace("FIRST", object_ if asynchronous else "")
    for waits, ordered in (("bar.sync 2, 64; bar.sync 1, 64;", (0, 128)), ("bar.sync 1, 64;", (0,))):
        for word, at in enumerate((0, 128, 256), 1):
            text = body.replace("WAIT", waits).replace("AT", str(at))
            if "2, 64" not in waits:
                text = text.replace("bar.arrive 2, 64", "bar.arrive 2, 96")
            options = {"block": 64, "seed": seed, "uninitialised": False}
            options["extra"] = SHARED + ".shared .align 8 .b64 mb;"
            if at in ordered:
                run(text, y, **options)
                assert (y[0, 32:] == word).all()
            else:
                with pytest.raises(RaceFault):
                    run(text, y, **options)


# ---- without an end


@pytest.mark.parametrize("block", [32, 64])
def test_infinite_loop(block):
    y = np.zeros((1, 64), "u4")
    body = (
        START
        + """mov.u32 %r10, 0; L: add.u32 %r10, %r10, STEP; setp.ne.u32 %p1, %r10, 5000; @%p1 bra L;
    st.global.u32 [%d0], %r10;"""
    )
    run(body.replace("STEP", "1"), y, block=block, extra=SHARED, watchdog=20_000)
    assert (y[0, :block] == 5000).all()
    with pytest.raises(DeadlockFault, match="option watchdog") as caught:
        run(body.replace("STEP", "3"), y, block=block, extra=SHARED, watchdog=20_000)
    assert "warp 0 of block (0, 0, 0), line" in str(caught.value)
    assert "(runs)" in str(caught.value)
    assert "add.u32 %r10" in caught.value.instruction


def test_infinite_loop_while_others_wait():
    """The report names the other warps' state too."""
    y = np.zeros((1, 64), "u4")
    body = START + "setp.ge.u32 %p1, %r0, 32; @%p1 bra WAIT; L: add.u32 %r9, %r9, 1; bra L; WAIT: bar.sync 0;"
    with pytest.raises(DeadlockFault, match="option watchdog") as caught:
        run(body, y, block=64, extra=SHARED, watchdog=100_000)
    assert "barrier 0: 32 of 64 threads" in str(caught.value)


@pytest.mark.parametrize(("expects", "ends"), [(5, True), (6, False)])
def test_swaps_that_store_the_same_value(expects, ends):
    """A swap that finds what it expects is progress, also if memory does not change; a swap that does not is a poll."""
    y = np.full((1, 1), 5, "u4")
    body = f"""mov.u32 %r10, 0; mov.u32 %r11, {expects};
    L: atom.global.cas.b32 %r7, [%q0], %r11, %r11; setp.ne.u32 %p0, %r7, %r11; @%p0 bra L;
    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 20; @%p1 bra L;"""
    if ends:
        run(body, y, block=1)
    else:
        with pytest.raises(DeadlockFault, match="no warp can make progress"):
            run(body, y, block=1)


def test_livelock_of_two_warps():
    """Both poll and both write: neither is blocked, and neither makes progress."""
    y = np.zeros((1, 64), "u4")
    body = (
        START
        + "mov.u32 %r10, 0; L: st.volatile.global.u32 [%d0], %r10; add.u32 %r10, %r10, 1; ld.acquire.gpu.global.u32 %r7, [%q0]; bra L;"
    )
    with pytest.raises(DeadlockFault, match="option watchdog"):
        run(body, y, block=64, extra=SHARED, watchdog=5_000)


def test_watchdog_may_be_off():
    y = np.zeros((1, 32), "u4")
    body = (
        START
        + "mov.u32 %r10, 0; L: add.u32 %r10, %r10, 1; setp.ne.u32 %p1, %r10, 30000; @%p1 bra L; st.global.u32 [%d0], %r10;"
    )
    run(body, y, extra=SHARED, watchdog=0)
    assert (y == 30000).all()
    with pytest.raises(DeadlockFault):
        run(body, y, extra=SHARED, watchdog=1000)
    with pytest.raises(InputError, match="watchdog"):
        Options(watchdog=-1)


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_barrier_number_from_a_register(engine):
    """Each pair of warps has its own barrier."""
    y = np.zeros(128, "u4")
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; xor.b32 %r2, %r0, 32;
    mad.lo.u32 %r2, %r2, 4, %r9; shr.u32 %r3, %r0, 6; add.u32 %r3, %r3, 1; mad.wide.u32 %d0, %r0, 4, %q0;
    st.shared.u32 [%r1], %r0; bar.sync %r3, 64; ld.shared.u32 %r7, [%r2]; st.global.u32 [%d0], %r7;""",
        y,
        block=128,
        extra=SHARED,
        engine=engine,
    )
    assert (y == (np.arange(128) ^ 32)).all()


def test_lanes_of_a_warp_with_different_barrier_numbers():
    with pytest.raises(BarrierFault, match="lanes of one warp give different") as caught:
        run("mov.u32 %r0, %tid.x; shr.u32 %r3, %r0, 4; barrier.sync.aligned %r3;")
    assert caught.value.thread == (0, 0, 0)


def test_barrier_number_from_an_undefined_register():
    with pytest.raises(UninitialisedFault, match="%r3"):
        run("mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 64; @!%p0 mov.u32 %r3, 1; bar.sync %r3;")
