"""Control flow, barriers, warp-wide instructions, and whole kernels."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import launch, run

PTX = Path(__file__).parent / "emulator_ptx"
STORE = "mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r1;"


def test_divergent_loops():
    """Data-dependent trip counts: Collatz steps."""
    x = np.arange(1, 513, dtype="u4")
    run(
        """mov.u32 %r5, %tid.x; mov.u32 %r6, %ctaid.x; mad.lo.u32 %r0, %r6, 128, %r5; mad.wide.u32 %d0, %r0, 4, %q0;
    ld.global.u32 %r2, [%d0]; mov.u32 %r1, 0;
    L: setp.eq.u32 %p0, %r2, 1; @%p0 bra DONE; and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra EVEN;
    mad.lo.u32 %r2, %r2, 3, 1; add.u32 %r1, %r1, 1; bra L;
    EVEN: shr.u32 %r2, %r2, 1; add.u32 %r1, %r1, 1; bra L; DONE: st.global.u32 [%d0], %r1;""",
        x,
        grid=4,
        block=128,
    )

    def steps(n: int) -> int:
        k = 0
        while n != 1:
            n, k = (n // 2 if n % 2 == 0 else 3 * n + 1), k + 1
        return k

    assert x.tolist() == [steps(n) for n in range(1, 513)]


@pytest.mark.parametrize("threads", [1, 31, 33, 100, 128, 1000])
@pytest.mark.parametrize("blocks", [1, 3])
def test_tree_reduction_with_any_block(threads, blocks):
    y = np.zeros(blocks, "u4")
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; mov.u32 %r7, %ntid.x; mov.u32 %r8, %ctaid.x;
    add.u32 %r2, %r0, 1; st.shared.u32 [%r1], %r2; mov.u32 %r3, 512;
    L: bar.sync 0; add.u32 %r4, %r0, %r3; setp.lt.u32 %p0, %r0, %r3; setp.lt.and.u32 %p0, %r4, %r7, %p0;
    @!%p0 bra SKIP; mad.lo.u32 %r5, %r3, 4, %r1; ld.shared.u32 %r6, [%r5]; ld.shared.u32 %r2, [%r1]; add.u32 %r2, %r2, %r6;
    st.shared.u32 [%r1], %r2; SKIP: shr.u32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L; bar.sync 0;
    setp.eq.u32 %p0, %r0, 0; ld.shared.u32 %r2, [%r9]; mad.wide.u32 %d0, %r8, 4, %q0; @%p0 st.global.u32 [%d0], %r2;""",
        y,
        grid=blocks,
        block=threads,
        extra=".shared .align 16 .b8 sm[4096];",
    )
    assert (y == threads * (threads + 1) // 2).all()


def test_special_registers():
    y = np.zeros((24, 64, 8), "u4")
    names = ["tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z", "laneid", "warpid"]
    load = "".join(f"mov.u32 %r1{i}, %{n};" for i, n in enumerate(names))
    store = "".join(f"st.global.u32 [%d0+{4 * i}], %r1{i};" for i in range(8))
    run(
        load
        + """mov.u32 %r1, %nctaid.x; mov.u32 %r2, %nctaid.y; mad.lo.u32 %r3, %r15, %r2, %r14; mad.lo.u32 %r3, %r3, %r1, %r13;
    mov.u32 %r1, %ntid.x; mov.u32 %r2, %ntid.y; mad.lo.u32 %r4, %r12, %r2, %r11; mad.lo.u32 %r4, %r4, %r1, %r10;
    mad.lo.u32 %r3, %r3, 64, %r4; mad.wide.u32 %d0, %r3, 32, %q0;"""
        + store,
        y,
        grid=(2, 3, 4),
        block=(8, 4, 2),
    )
    b, t = np.divmod(np.arange(24 * 64), 64)
    want = np.stack([t % 8, t // 8 % 4, t // 32, b % 2, b // 2 % 3, b // 6, t % 32, t // 32], axis=1)
    assert (y.reshape(-1, 8) == want).all()


def test_exited_warps_count_as_arrived():
    y = np.zeros(96, "u4")
    run("""mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 ret; bar.sync 0; mov.u32 %r1, 1;""" + STORE, y, block=96)
    assert y.tolist() == [0] * 32 + [1] * 64


@pytest.mark.parametrize("seed", range(6))
def test_producer_and_consumer(seed):
    """Two named barriers hand a word back and forth between two warps, ten times."""
    y = np.zeros(1, "u4")
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mov.u32 %r2, 0; mov.u32 %r3, 0; setp.ge.u32 %p0, %r0, 32; @%p0 bra.uni CONSUMER;
    P: st.shared.u32 [%r9], %r2; bar.arrive 1, 64; bar.sync 2, 64; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 10; @%p1 bra P; bra.uni END;
    CONSUMER: bar.sync 1, 64; ld.shared.u32 %r4, [%r9]; add.u32 %r3, %r3, %r4; bar.arrive 2, 64; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 10; @%p1 bra CONSUMER; st.global.u32 [%q0], %r3; END: ret;""",
        y,
        block=64,
        seed=seed,
        extra=".shared .align 16 .b8 sm[16];",
    )
    assert y[0] == 45


def test_barrier_reductions():
    y = np.zeros((3, 64), "u4")
    run(
        """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 20; bar.red.popc.u32 %r1, 0, %p0; mad.wide.u32 %d0, %r0, 4, %q0;
    st.global.u32 [%d0], %r1; setp.lt.u32 %p1, %r0, 64; bar.red.and.pred %p2, 0, %p1; selp.u32 %r1, 1, 0, %p2;
    st.global.u32 [%d0+256], %r1; bar.red.or.pred %p2, 0, !%p1; selp.u32 %r1, 1, 0, %p2; st.global.u32 [%d0+512], %r1;""",
        y,
        block=64,
    )
    assert y.tolist() == [[20] * 64, [1] * 64, [0] * 64]


def test_waits_for_a_flag_of_an_earlier_block():
    y = np.zeros(600, "u4")
    run(
        """mov.u32 %r8, %ctaid.x; mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r8, 0; @%p1 bra FIRST;
    @%p0 bra READY; L: ld.acquire.gpu.global.u32 %r2, [%q0]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L; READY: bar.sync 0; bra END;
    FIRST: bar.sync 0; @!%p0 red.release.gpu.global.add.u32 [%q0], 1; END: mad.wide.u32 %d0, %r8, 4, %q0; @!%p0 st.global.u32 [%d0+4], 1;""",
        y,
        grid=500,
        block=64,
        lanes=512,
    )
    assert y[1:501].all()
    assert y[0] == 1


@pytest.mark.parametrize("lanes", [64, 16384])
def test_waits_for_a_flag_of_a_later_block(lanes):
    """The first block waits for the last: all must be resident."""
    y = np.zeros(40, "u4")
    run(
        """mov.u32 %r8, %ctaid.x; setp.eq.u32 %p1, %r8, 31; @%p1 red.release.gpu.global.add.u32 [%q0], 1;
    L: ld.acquire.gpu.global.u32 %r2, [%q0]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L; mad.wide.u32 %d0, %r8, 4, %q0; st.global.u32 [%d0+4], 1;""",
        y,
        grid=32,
        block=32,
        lanes=lanes,
    )
    assert y[1:33].all()


def test_spinning_lane_does_not_starve_its_warp():
    """One lane polls, at a lower position, for a store of another lane of the same warp."""
    y = np.zeros(2, "u4")
    run(
        """mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 5; @%p0 bra STORE;
    L: ld.volatile.global.u32 %r1, [%q0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.global.u32 [%q0+4], 9; bra END;
    STORE: setp.eq.u32 %p1, %r0, 6; @%p1 st.volatile.global.u32 [%q0], 1; END: ret;""",
        y,
    )
    assert y.tolist() == [1, 9]


# ---- warps


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(mode, width):
    by = 3
    y = np.zeros((2, 64), "u4")
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    run(
        f"""mov.u32 %r0, %tid.x; add.u32 %r2, %r0, 100; shfl.sync.{mode}.b32 %r1|%p0, %r2, {by}, {clamp}, 0xffffffff;
    selp.u32 %r3, 1, 0, %p0; {STORE} st.global.u32 [%d0+256], %r3;""",
        y,
        block=64,
    )
    want, valid = [], []
    for t in range(64):
        lane, base = t % 32, t % 32 // width * width
        j = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": base + by % width}[mode]
        ok = base <= j < base + width
        want.append(t // 32 * 32 + (j if ok else lane) + 100)
        valid.append(int(ok))
    assert y.tolist() == [want, valid]


def test_votes_and_matches():
    y = np.zeros((7, 32), "u4")
    run(
        """mov.u32 %r0, %tid.x; and.b32 %r2, %r0, 3; setp.eq.u32 %p0, %r2, 1; vote.sync.ballot.b32 %r1, %p0, 0xffffffff;"""
        + STORE
        + """vote.sync.any.pred %p1, %p0, 0xffffffff; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%d0+128], %r1;
    vote.sync.all.pred %p1, %p0, 0xffffffff; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%d0+256], %r1;
    match.any.sync.b32 %r1, %r2, 0xffffffff; st.global.u32 [%d0+384], %r1;
    match.all.sync.b32 %r1|%p1, %r2, 0xffffffff; selp.u32 %r3, 1, 0, %p1; add.u32 %r1, %r1, %r3; st.global.u32 [%d0+512], %r1;
    redux.sync.add.u32 %r1, %r0, 0xffffffff; st.global.u32 [%d0+640], %r1;
    elect.sync %r1|%p1, 0xffffffff; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%d0+768], %r3;""",
        y,
    )
    assert (y[0] == 0x22222222).all()
    assert (y[1] == 1).all()
    assert (y[2] == 0).all()
    assert y[3].tolist() == [0x11111111 << t % 4 for t in range(32)]
    assert (y[4] == 0).all()
    assert (y[5] == 496).all()
    assert y[6].sum() == 1


def test_parts_of_a_warp_vote_separately():
    """Two halves diverge: a vote among sixteen lanes each."""
    y = np.zeros(32, "u4")
    run(
        """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 bra LOW; setp.eq.u32 %p1, %r0, 20;
    vote.sync.ballot.b32 %r1, %p1, 0xffff0000; redux.sync.max.u32 %r2, %r0, 0xffff0000; bra END;
    LOW: setp.lt.u32 %p1, %r0, 3; vote.sync.ballot.b32 %r1, %p1, 0xffff; redux.sync.max.u32 %r2, %r0, 0xffff;
    END: bar.warp.sync 0xffffffff; add.u32 %r1, %r1, %r2;"""
        + STORE,
        y,
    )
    assert y.tolist() == [7 + 15] * 16 + [(1 << 20) + 31] * 16


# ---- whole kernels


def test_naive_product_is_exact():
    """Compiled CUDA C: every element equals a chain of correctly rounded fma."""
    m, n, k = 21, 19, 18
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    c = np.full((m, n), np.nan, "f4")
    text = (PTX / "naive_sgemm.ptx").read_text()
    launch(text, "sgemm", (2, 2), (16, 16), [a, b, c, np.int32(m), np.int32(n), np.int32(k)])
    for i in range(m):
        for j in range(n):
            total = Fraction(0)
            for p in range(k):
                exact = Fraction(float(a[i, p])) * Fraction(float(b[p, j])) + total
                near = np.float32(float(exact))
                # float() rounds to nearest float64: correct it where that was half way
                candidates = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
                total = min(
                    (abs(Fraction(float(x)) - exact), int(x.view("u4")) & 1, Fraction(float(x))) for x in candidates
                )[2]
            assert Fraction(float(c[i, j])) == total


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("completion", ["late", "early"])
@pytest.mark.parametrize("shape", [(131, 77, 45), (1, 1, 1), (3, 65, 130)])
def test_pipelined_split_product(shape, seed, completion):
    """cp.async stages, warp groups that split K, and K slices added by red behind a flag."""
    m, n, k = shape
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    c, flags = np.full((m, n), np.nan, "f4"), np.zeros(64, "u4")
    u = np.uint32
    slices = (k + 2) // 3
    chunk = (slices + 15) // 16 * 16
    text = (PTX / "split_sgemm.ptx").read_text()
    launch(
        text,
        "gemm",
        (-(-m // 32) * -(-n // 32), 1, 3),
        128,
        [a, b, c, flags, u(m), u(n), u(k), u(k), u(n), u(n), u(chunk), np.float32(2)],
        1 << 15,
        seed=seed,
        completion=completion,
    )
    want = 2 * (a.astype("f8") @ b)
    scale = 2 * (np.abs(a).astype("f8") @ np.abs(b))
    assert (np.abs(c - want) <= 4 * 6e-8 * np.sqrt(k) * scale).all()
    assert not flags.any()


@pytest.mark.parametrize("seed", range(3))
def test_missing_barrier_is_found(seed):
    """The check can fail: the same kernel without the barrier of its main loop."""
    from ptxgen.errors import AsyncFault, RaceFault

    m = n = k = 64
    a, b = np.ones((m, k), "f4"), np.ones((k, n), "f4")
    c, flags = np.zeros((m, n), "f4"), np.zeros(64, "u4")
    u = np.uint32
    text = (PTX / "split_sgemm.ptx").read_text()
    head, loop = text.split("LOOP:", 1)
    wrong = head + "LOOP:" + loop.replace("bar.sync 0;", "", 1)
    assert wrong != text
    with pytest.raises((RaceFault, AsyncFault)):
        launch(
            wrong,
            "gemm",
            (4, 1, 3),
            128,
            [a, b, c, flags, u(m), u(n), u(k), u(k), u(n), u(n), u(32), np.float32(1)],
            1 << 15,
            seed=seed,
        )


def test_votes_of_lanes_with_different_member_masks():
    """The two halves of a warp vote in one instruction, each with its own member mask."""
    y = np.zeros((4, 32), "u4")
    run(
        """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; selp.u32 %r2, 0x0000ffff, 0xffff0000, %p0;
    setp.lt.u32 %p1, %r0, 20; """
        + "".join(
            f"vote.sync.{mode}.pred %p2, %p1, %r2; selp.u32 %r1, 1, 0, %p2; {STORE} add.u64 %q0, %q0, 128; "
            for mode in ("all", "any", "uni")
        )
        + "vote.sync.ballot.b32 %r1, %p1, %r2; "
        + STORE,
        y,
    )
    low = np.arange(32) < 16
    assert (y == [low, np.ones(32), low, np.where(low, 0xFFFF, 0xF0000)]).all()


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_active_lanes_and_performance_events(engine):
    y = np.zeros(32, "u4")
    run(
        "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 5; mov.u32 %r1, 7; @!%p0 bra END; pmevent 1; activemask.b32 %r1;"
        f" END: {STORE}",
        y,
        engine=engine,
    )
    assert y.tolist() == [31] * 5 + [7] * 27


@pytest.mark.parametrize(
    ("name", "clock"), [("clock", "u4"), ("clock_hi", "u4"), ("clock64", "u8"), ("globaltimer", "u8")]
)
def test_clocks_never_run_backwards(name, clock):
    y = np.zeros((2, 32), clock)
    bits, register, store = 8 * np.dtype(clock).itemsize, "%r1" if clock == "u4" else "%d1", np.dtype(clock).itemsize
    run(
        f"""mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 3; mad.wide.u32 %d0, %r0, {store}, %q0;
    mov.u{bits} {register}, 0; mov.u{bits} {register}, %{name}; st.global.u{bits} [%d0], {register};
    @%p0 mov.u{bits} {register}, %{name}; st.global.u{bits} [%d0+{32 * store}], {register};""",
        y,
    )
    later = y[1] - y[0]  # unsigned: a clock of 32 bits may wrap around
    assert (later < 1 << min(bits - 1, 36)).all()
    assert later[3] == 0
    assert name == "clock_hi" or later[4] > 0


def test_blocks_that_have_exited_do_not_count():
    """The blocks of a wave execute together; the first of three goes on alone."""
    body = (
        "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p0, %r1, 0; @%p0 exit; xor.b32 %r2, %r1, 1; bar.sync 0; not.b32 %r3, %r2;"
    )
    stats = run(body, grid=3, block=64)
    assert [stats.opcodes[name] for name in ("mov.u32", "xor.b32", "bar.sync", "not.b32")] == [6, 2, 2, 2]
