"""Mistakes in pipelines of copies, mbarriers, warpgroups and clusters: each fault, and the corrected kernel."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import (
    AsyncFault,
    BarrierFault,
    DeadlockFault,
    DivergenceFault,
    RaceFault,
    UninitialisedFault,
)

MODES = [(0, "early"), (1, "late")]
SIGNAL = "mbarrier::complete_tx::bytes"
SHARED = ".shared .align 128 .b8 sm[512]; .shared .align 8 .b64 bar[4];"
#: by the order of warps, a missing wait may show as any of these
LOST = (AsyncFault, RaceFault, UninitialisedFault)

# ---- a ring of two stages: thread 0 copies 128 bytes to a stage, warp 1 adds them up

#: %r8 the full barriers, 16 bytes further the empty ones; %r11 and %r12 the barrier and the data of a stage
RING = f"""mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mov.u32 %r8, bar; and.b32 %r1, %r0, 31; setp.eq.u32 %p0, %r0, 0;
setp.eq.u32 %p1, %r1, 0; setp.ge.u32 %p2, %r0, 32; mov.u32 %r5, 0; mov.u32 %r14, 0; @!%p0 bra READY;
mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [bar+8], 1;
mbarrier.init.shared.b64 [bar+16], 1; mbarrier.init.shared.b64 [bar+24], 1;
fence.mbarrier_init.release.cluster;
READY: bar.sync 0; @%p2 bra CONSUME; @!%p0 bra END;
PRODUCE: and.b32 %r6, %r5, 1; shr.u32 %r7, %r5, 1; and.b32 %r7, %r7, 1; xor.b32 %r10, %r7, 1;
mad.lo.u32 %r11, %r6, 8, %r8; mad.lo.u32 %r12, %r6, 128, %r9;
EMPTY: mbarrier.try_wait.parity.shared.b64 %p3, [%r11+16], %r10; @!%p3 bra EMPTY;
mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
cp.async.bulk.shared::cluster.global.{SIGNAL} [%r12], [%q0], 128, [%r11];
add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 5; @%p4 bra PRODUCE; bra END;
CONSUME: and.b32 %r6, %r5, 1; shr.u32 %r7, %r5, 1; and.b32 %r7, %r7, 1;
mad.lo.u32 %r11, %r6, 8, %r8; mad.lo.u32 %r12, %r6, 128, %r9; mad.lo.u32 %r13, %r1, 4, %r12;
FULL: mbarrier.try_wait.parity.shared.b64 %p3, [%r11], %r7; @!%p3 bra FULL;
ld.shared.u32 %r15, [%r13];
add.u32 %r14, %r14, %r15;
bar.warp.sync 0xffffffff;
@%p1 mbarrier.arrive.shared.b64 _, [%r11+16];
add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 5; @%p4 bra CONSUME;
mad.wide.u32 %d1, %r1, 4, %q1; st.global.u32 [%d1], %r14;
END: ret;"""
ARRIVE = "bar.warp.sync 0xffffffff;\n@%p1 mbarrier.arrive"
FULL = "FULL: mbarrier.try_wait.parity.shared.b64 %p3, [%r11], %r7; @!%p3 bra FULL;"
RINGS = {
    # name: (fault, words, what is right, what is wrong)
    "one lane arrives for its warp": (
        RaceFault,
        r"the bulk copy by warp 0 and read by warp 1 \(line LOAD\).* arrival of line ARRIVAL .* bar\.warp\.sync",
        ARRIVE,
        "\n@%p1 mbarrier.arrive",
    ),
    "an elected lane arrives for its warp": (
        RaceFault,
        r"read by warp 1 \(line LOAD\).* arrival of line ARRIVAL ",
        ARRIVE,
        "elect.sync _|%p5, 0xffffffff;\n@%p5 mbarrier.arrive",
    ),
    "the warp synchronises after the arrival": (
        RaceFault,
        r"read by warp 1 \(line LOAD\).* arrival of line ARRIVAL ",
        ARRIVE + ".shared.b64 _, [%r11+16];",
        "\n@%p1 mbarrier.arrive.shared.b64 _, [%r11+16]; bar.warp.sync 0xffffffff;",
    ),
    "bytes of two stages are expected": (DeadlockFault, "128 bytes pending", "[%r11], 128;", "[%r11], 256;"),
    "half of the bytes are expected": (
        (*LOST, DeadlockFault),
        "too few|bytes|before a wait",
        "[%r11], 128;",
        "[%r11], 64;",
    ),
    "the consumer waits for the other phase": (
        (*LOST, DeadlockFault),
        "before a wait for the bulk copy|uninitialised|no barrier|in phase",
        "CONSUME: and.b32 %r6, %r5, 1; shr.u32 %r7, %r5, 1;",
        "CONSUME: and.b32 %r6, %r5, 1; shr.u32 %r7, %r5, 1; not.b32 %r7, %r7;",
    ),
    "the producer waits for the other phase": (DeadlockFault, "in phase 0", "[%r11+16], %r10;", "[%r11+16], %r7;"),
    "a stage is filled before the consumer has arrived": (
        (*LOST, BarrierFault),
        "",
        "EMPTY: mbarrier.try_wait.parity.shared.b64 %p3, [%r11+16], %r10; @!%p3 bra EMPTY;",
        "",
    ),
    "a stage is read before it is full": (
        LOST,
        "before a wait for the bulk copy|no barrier|uninitialised",
        FULL,
        "",
    ),
    "one lane waits for its warp": (
        LOST,
        r"read before a wait for the bulk copy of line COPY.* by this lane: bar\.warp\.sync must|no barrier|uninitialised",
        FULL,
        f"@!%p1 bra SKIP; {FULL}\nSKIP:",
    ),
    "the arrival precedes the read": (
        RaceFault,
        r"the bulk copy by warp 0 and read by warp 1 \(line [0-9]+\)",
        "ld.shared.u32 %r15, [%r13];",
        "@%p1 mbarrier.arrive.shared.b64 _, [%r11+16]; ld.shared.u32 %r15, [%r13]; setp.ne.u32 %p1, %r1, %r1;",
    ),
    "every lane arrives where one is expected": (
        (DeadlockFault, BarrierFault),
        "in phase 32|arrivals at an mbarrier object|arrival too many",
        "@%p1 mbarrier.arrive",
        "mbarrier.arrive",
    ),
}


def ring(right: str = "", wrong: str = "", **options: object) -> np.ndarray:
    """The sums of a ring, in which `wrong` replaces `right`."""
    x, y = np.arange(32, dtype="u4"), np.zeros(32, "u4")
    assert right in RING
    run(RING.replace(right, wrong) if right else RING, x, y, block=64, extra=SHARED, **options)
    return y


def line_of(body: str, part: str) -> int:
    """The line of the module of `run` on which a part of a body begins, with two array arguments."""
    return 13 + body[: body.index(part)].count("\n")


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_ring(seed, completion):
    for at, with_shuffle in (("", ""), ("add.u32 %r14, %r14, %r15;", "shfl.sync.bfly.b32 %r15, %r15, 0, 31, -1;")):
        # lanes that have exchanged what they read have read it
        wrong = with_shuffle + at
        assert (ring(at, wrong, seed=seed, completion=completion, strict=True) == 5 * np.arange(32)).all()
    shuffled = "shfl.sync.bfly.b32 %r15, %r15, 0, 31, -1;\n@%p1 mbarrier.arrive"
    ring(ARRIVE, shuffled, seed=seed, completion=completion)


@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("name", RINGS)
def test_mistakes_in_a_ring(name, seed, completion):
    kinds, words, right, wrong = RINGS[name]
    body = RING.replace(right, wrong)
    words = words.replace("LOAD", str(line_of(body, "ld.shared"))).replace(
        "ARRIVAL", str(line_of(body, "mbarrier.arrive.shared"))
    )
    words = words.replace("COPY", str(line_of(body, "cp.async.bulk")))
    with pytest.raises(kinds, match=words or None) as caught:
        ring(right, wrong, seed=seed, completion=completion)
    assert caught.value.line > 10


def test_one_lane_in_compiled_code():
    """Compiled reads are one record of the checks."""
    pytest.importorskip("llvmlite")
    read = "ld.shared.u32 %r15, [%r13];"
    x = np.zeros(64, "u4")
    twice = RING.replace(read, f"{read} ld.shared.u32 %r16, [%r13+0]; add.u32 %r15, %r15, %r16;")
    run(twice, x, x.copy(), block=64, extra=SHARED, engine="llvm")
    with pytest.raises(RaceFault, match=r"read by warp 1 \(line 28\).* arrival of line 31 "):
        run(twice.replace(ARRIVE, "\n@%p1 mbarrier.arrive"), x, x.copy(), block=64, extra=SHARED, engine="llvm")


def test_initialisation_without_a_fence():
    """A note, since Triton and ThunderKittens rely on it; a fault with the option `strict`."""
    fence = "fence.mbarrier_init.release.cluster;"
    x = np.arange(32, dtype="u4")
    init, copy = line_of(RING, "mbarrier.init"), line_of(RING, "cp.async.bulk")
    words = f"signals an mbarrier object that line {init} initialised, with no fence.mbarrier_init or fence.proxy.async"
    stats = run(RING.replace(fence, ""), x, x.copy(), block=64, extra=SHARED)
    assert any(f"line {copy}: the copy {words}" in note for note in stats.notes)
    for wrong in ("", "fence.proxy.async.global;", "fence.acq_rel.cta;"):
        with pytest.raises(AsyncFault, match=words) as caught:
            ring(fence, wrong, strict=True)
        assert caught.value.line == copy
    ring(fence, "fence.proxy.async.shared::cta;", strict=True)
    after_barrier = "READY: bar.sync 0;"
    ring(f"{fence}\n{after_barrier}", f"{after_barrier} fence.proxy.async;", strict=True)
    assert not run(RING, x, x.copy(), block=64, extra=SHARED).notes


def test_parity_as_a_negated_bit():
    """Triton tests the parity -(phase & 1)."""
    full = FULL.replace("%r7;", "%r16;")
    assert (ring(FULL, f"neg.s32 %r16, %r7;\n{full}") == 5 * np.arange(32)).all()
    with pytest.raises(BarrierFault, match="the parity is 0xffffffff; it must be 0 or 1"):
        ring(FULL, f"neg.s32 %r16, %r7;\n{full}", strict=True)


def test_one_lane_publishes_the_stores_of_its_warp():
    """Warp 0 stores a word a lane; its lane 0 arrives, and warp 1 reads them, or copies them by a bulk copy."""
    x = np.zeros(32, "u4")
    head = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; and.b32 %r1, %r0, 31; setp.eq.u32 %p1, %r1, 0; setp.ge.u32 %p2, %r0, 32;
    setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; mad.lo.u32 %r10, %r1, 4, %r9;
    @%p2 bra READ; st.shared.u32 [%r10], %r0; fence.proxy.async; SYNC
    @%p1 mbarrier.arrive.shared.b64 _, [bar]; bra END;
    READ: W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W;"""
    read = "ld.shared.u32 %r2, [%r10]; mad.wide.u32 %d1, %r1, 4, %q0; st.global.u32 [%d1], %r2; END: ret;"
    copy = """@!%p1 bra END; cp.async.bulk.global.shared::cta.bulk_group [%q0], [sm], 128; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; END: ret;"""
    for body, words in (
        (read, r"and write by warp 0 \(line 13\)"),
        (copy, r"reads .* warp 0 wrote \(line 13\).* no barrier"),
    ):
        run(head.replace("SYNC", "bar.warp.sync -1;") + body, x, block=64, extra=SHARED)
        assert (x == np.arange(32)).all()
        for seed in range(2):
            with pytest.raises(RaceFault, match=f"{words}|read by warp 1 .line"):
                run(head.replace("SYNC", "") + body, x, block=64, extra=SHARED, seed=seed)
    # lanes that arrive themselves, in two parts of the warp, release their own stores
    parts = head.replace("[bar], 1;", "[bar], 32;").replace("@%p1 mbarrier.arrive.shared.b64 _, [bar];", "PARTS")
    parts = parts.replace("PARTS", "setp.lt.u32 %p4, %r1, 7; @%p4 mbarrier.arrive.shared.b64 _, [bar]; MORE")
    parts = parts.replace("MORE", "@!%p4 mbarrier.arrive.shared.b64 _, [bar];").replace("SYNC", "")
    run(parts + read, x, block=64, extra=SHARED)
    # a mask that leaves lanes out
    half = "setp.lt.u32 %p4, %r1, 16; @%p4 bra LOW; bra HIGH; LOW: bar.warp.sync 0xffff; HIGH:"
    with pytest.raises(RaceFault):
        run(head.replace("SYNC", half) + read, x, block=64, extra=SHARED)


def test_one_lane_waits_for_its_warp():
    """A lane waits for a copy into shared memory, or out of it, and the other lanes of its warp rely on that."""
    x = np.arange(32, dtype="u4")
    ring(FULL, f"@!%p1 bra SKIP; {FULL} SKIP: bar.warp.sync 0xffffffff;", strict=True)
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; setp.eq.u32 %p0, %r0, 0;
    st.shared.u32 [%r1], %r0; fence.proxy.async; bar.warp.sync -1; @!%p0 bra COPIED;
    cp.async.bulk.global.shared::cta.bulk_group [%q0], [sm], 128; cp.async.bulk.commit_group;
    COPIED: WAIT st.shared.u32 [%r1], 5; @%p0 cp.async.bulk.wait_group 0;"""
    for wait in ("@%p0 cp.async.bulk.wait_group.read 0; bar.warp.sync -1;", "cp.async.bulk.wait_group.read 0;"):
        run(body.replace("WAIT", wait), x, extra=SHARED)
        assert (x == np.arange(32)).all()
    with pytest.raises(
        AsyncFault, match=r"written before a wait for the bulk copy of line 13.* by this lane"
    ) as caught:
        run(body.replace("WAIT", "@%p0 cp.async.bulk.wait_group.read 0;"), x, extra=SHARED)
    assert caught.value.thread == (1, 0, 0)


def test_one_lane_waits_for_the_stores_of_another_warp():
    head = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 32; bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra READ;
    st.shared.u32 [%r1], %r0; mbarrier.arrive.shared.b64 _, [bar]; bra END;
    READ: setp.ne.u32 %p2, %r0, 32; @%p2 bra SKIP; W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W;
    SKIP: SYNC ld.shared.u32 %r3, [%r1+-128]; END: ret;"""
    for seed in range(3):
        for sync in ("bar.warp.sync -1;", "shfl.sync.idx.b32 %r4, %r0, 0, 31, -1;", "bar.sync 1, 32;"):
            run(head.replace("SYNC", sync), block=64, extra=SHARED, seed=seed)
        for sync in ("", "elect.sync _|%p4, -1;"):
            with pytest.raises(RaceFault, match=r"by warp 1 and write by warp 0|write by warp 0 and read by warp 1"):
                run(head.replace("SYNC", sync), block=64, extra=SHARED, seed=seed)


def test_one_lane_fences_for_its_warp():
    """A proxy fence covers the stores that precede it: those of other lanes need bar.warp.sync before the fence."""
    x = np.zeros(32, "u4")
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; setp.eq.u32 %p0, %r0, 0;
    setp.lt.u32 %p1, %r0, 16; st.shared.u32 [%r1], %r0; FENCE
    @%p0 cp.async.bulk.global.shared::cta.bulk_group [%q0], [sm], 128; @%p0 cp.async.bulk.commit_group;
    @%p0 cp.async.bulk.wait_group 0;"""
    for fence in (
        "bar.warp.sync -1; @%p0 fence.proxy.async;",
        "fence.proxy.async; bar.warp.sync -1;",
        "@%p1 fence.proxy.async; @!%p1 fence.proxy.async; bar.warp.sync -1;",
    ):
        run(body.replace("FENCE", fence), x, extra=SHARED)
        assert (x == np.arange(32)).all()
    for fence in ("@%p0 fence.proxy.async; bar.warp.sync -1;", "@%p1 fence.proxy.async; bar.warp.sync -1;"):
        with pytest.raises(AsyncFault, match=r"wrote \(line 12\), with no fence.proxy.async between"):
            run(body.replace("FENCE", fence), x, extra=SHARED)


# ---- clusters

CLUSTER = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; mov.u32 %r2, %cluster_ctarank;
xor.b32 %r3, %r2, 1; setp.eq.u32 %p0, %r0, 0; mov.u32 %r8, bar; @%p0 mbarrier.init.shared.b64 [bar], 32;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 %r7, %r1, %r3; mapa.shared::cluster.u32 %r6, %r8, %r3;
st.shared.u32 [%r1], %r0;
"""
LOAD = "ld.shared::cluster.u32 %r10, [%r7];"
DONE = " barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
BARRIER = "FENCE barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" + LOAD + DONE
ARRIVAL = """FENCE mbarrier.arrive.ARRIVE.shared::cluster.b64 _, [%r6];
W: mbarrier.try_wait.parity.WAIT.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;"""
SCOPES = {
    # name: (what is right, what is wrong)
    "fence of the block": (
        BARRIER.replace("FENCE", "fence.acq_rel.cluster;"),
        BARRIER.replace("FENCE", "fence.acq_rel.cta;"),
    ),
    "membar of the block": (BARRIER.replace("FENCE", "membar.gl;"), BARRIER.replace("FENCE", "membar.cta;")),
    "relaxed arrival without a fence": (
        BARRIER.replace("FENCE", "").replace("relaxed", "release"),
        BARRIER.replace("FENCE", ""),
    ),
    "arrival of the block": (
        ARRIVAL.replace("FENCE", "").replace("ARRIVE", "release.cluster").replace("WAIT", "acquire.cluster")
        + LOAD
        + DONE,
        ARRIVAL.replace("FENCE", "").replace("ARRIVE", "release.cta").replace("WAIT", "acquire.cluster") + LOAD + DONE,
    ),
    "wait of the block": (
        ARRIVAL.replace("FENCE", "").replace("ARRIVE", "release.cluster").replace("WAIT", "acquire.cluster")
        + LOAD
        + DONE,
        ARRIVAL.replace("FENCE", "").replace("ARRIVE", "release.cluster").replace("WAIT", "acquire.cta") + LOAD + DONE,
    ),
    "fence of the block before a relaxed arrival at an mbarrier": (
        ARRIVAL.replace("FENCE", "fence.acq_rel.cluster;")
        .replace("ARRIVE", "relaxed.cluster")
        .replace("WAIT", "acquire.cluster")
        + LOAD
        + DONE,
        ARRIVAL.replace("FENCE", "fence.acq_rel.cta;")
        .replace("ARRIVE", "relaxed.cluster")
        .replace("WAIT", "acquire.cluster")
        + LOAD
        + DONE,
    ),
    "fence of the block after a relaxed wait": (
        ARRIVAL.replace("FENCE", "").replace("ARRIVE", "release.cluster").replace("WAIT", "relaxed.cluster")
        + "fence.acq_rel.cluster;"
        + LOAD
        + DONE,
        ARRIVAL.replace("FENCE", "").replace("ARRIVE", "release.cluster").replace("WAIT", "relaxed.cluster")
        + "fence.acq_rel.cta;"
        + LOAD
        + DONE,
    ),
}


@pytest.mark.parametrize("name", SCOPES)
def test_scopes_of_data_that_crosses_the_cluster(name):
    right, wrong = SCOPES[name]
    options = {"grid": 2, "block": 32, "extra": SHARED, "directives": ".explicitcluster .reqnctapercluster 2"}
    for seed in range(2):
        run(CLUSTER + right, seed=seed, **options)
        with pytest.raises(RaceFault, match=r"by warp 0 of rank [01] \(line 15\)|rank") as caught:
            run(CLUSTER + wrong, seed=seed, **options)
        assert "ld.shared::cluster" in caught.value.instruction or "st.shared" in caught.value.instruction


def test_order_within_the_block_at_a_cluster_barrier():
    """A fence of the block and a relaxed arrival order the warps of the block."""
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; st.shared.u32 [%r1], %r0; FENCE
    barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned; xor.b32 %r2, %r0, 32;
    mad.lo.u32 %r1, %r2, 4, %r9; ld.shared.u32 %r3, [%r1];"""
    options = {"grid": 2, "block": 64, "extra": SHARED, "directives": ".explicitcluster .reqnctapercluster 2"}
    run(body.replace("FENCE", "fence.acq_rel.cta;"), **options)
    with pytest.raises(RaceFault):
        run(body.replace("FENCE", ""), **options)


# ---- warpgroups

REGISTERS = {
    # name: (words, what is right, what is wrong); %r4: the warp
    "half a warpgroup": (
        r"only part of a warpgroup executes this setmaxnreg: warp [23] exits without it; all four warps, 0 to 3",
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "setp.ge.u32 %p1, %r4, 2; @%p1 bra END; setmaxnreg.dec.sync.aligned.u32 40;",
    ),
    "half a warpgroup releases what another waits for": (
        r"only part of a warpgroup executes this setmaxnreg: warp [01] waits without it",
        "setp.ge.u32 %p1, %r4, 4; @%p1 bra UP; setmaxnreg.dec.sync.aligned.u32 40; bar.sync 1, 128; bra END;"
        "UP: setmaxnreg.inc.sync.aligned.u32 168; END:",
        "setp.ge.u32 %p1, %r4, 4; @%p1 bra UP; setp.lt.u32 %p2, %r4, 2; @%p2 bra WAIT; "
        "setmaxnreg.dec.sync.aligned.u32 80; WAIT: bar.sync 1, 256; bra END;"
        "UP: setmaxnreg.inc.sync.aligned.u32 248; bar.sync 1, 256; END:",
    ),
    "different numbers": (
        r"executed another setmaxnreg \(line 12\)|executed another setmaxnreg \(line 13\)",
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "setp.ge.u32 %p1, %r4, 2; @%p1 bra UP;\nsetmaxnreg.dec.sync.aligned.u32 40; bra END;\n"
        "UP: setmaxnreg.dec.sync.aligned.u32 48; END:",
    ),
    "no barrier between two": (
        "nothing orders this setmaxnreg after the preceding one",
        "setmaxnreg.dec.sync.aligned.u32 40; bar.sync 0; setmaxnreg.dec.sync.aligned.u32 32;",
        "setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 32;",
    ),
}


@pytest.mark.parametrize("name", REGISTERS)
def test_setmaxnreg_of_a_whole_warpgroup(name):
    words, right, wrong = REGISTERS[name]
    head = "mov.u32 %r0, %tid.x; shr.u32 %r4, %r0, 5;\n"
    options = {"block": 256 if "UP" in right else 128, "directives": ".maxntid 256, 1, 1 .minnctapersm 1"}
    options["directives"] = ".maxnreg 168"
    for seed in range(2):
        run(head + right + " END: ret;".replace("END:", "" if "END:" in right else "END:"), seed=seed, **options)
        options["strict"] = name == "no barrier between two"
        with pytest.raises(DivergenceFault, match=words) as caught:
            run(head + wrong + (" ret;" if "END:" in wrong else " END: ret;"), seed=seed, **options)
        assert "setmaxnreg" in caught.value.instruction


GROUPS = """mov.u32 %r0, %tid.x; shr.u32 %r4, %r0, 6; setp.eq.u32 %p1, %r4, 0; @%p1 bra ONE;
SECOND bar.sync NUMBER, 64; bra END; ONE: bar.sync 1, 64; FIRST END: ret;"""


@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_two_groups_of_warps_use_one_barrier(engine):
    """Arrivals of both groups may count together, whichever completes it first in a run."""

    def use(number: int, first: str = "", second: str = "") -> None:
        body = GROUPS.replace("NUMBER", str(number)).replace("FIRST", first).replace("SECOND", second)
        for seed in range(4):
            run(body, block=128, seed=seed, engine=engine)

    use(2)
    use(1, "bar.arrive 3, 128;", "bar.sync 3, 128;")
    with pytest.raises((BarrierFault, DeadlockFault), match=r"barrier 1 was used by other warps \([0-9, ]+\) before"):
        use(1)


# ---- warps

MISTAKES = {
    # name: (fault, words, threads, what is right, what is wrong)
    "a shuffle reads a lane that has exited": (
        DivergenceFault,
        "reads the value of a lane that does not execute it|never reach",
        32,
        "setp.ge.u32 %p1, %r0, 32; @%p1 ret; shfl.sync.down.b32 %r2, %r0, 1, 31, -1;",
        "setp.ge.u32 %p1, %r0, 16; @%p1 ret; shfl.sync.down.b32 %r2, %r0, 1, 31, -1;",
    ),
    "a barrier in a branch counts all threads": (
        (DeadlockFault, BarrierFault),
        "barrier 1: 32 of 64 threads|32 of 64",
        64,
        "setp.ge.u32 %p1, %r0, 32; @%p1 bra B; bar.sync 1, 32; bra END; B: bar.sync 2, 32; END:",
        "setp.ge.u32 %p1, %r0, 32; @%p1 bra B; bar.sync 1, 64; bra END; B: bar.sync 2, 32; END:",
    ),
    "branches give one barrier different counts": (
        (BarrierFault, DeadlockFault),
        "barrier 1 is used for|barrier 1: 32 of 96",
        96,
        "setp.ge.u32 %p1, %r0, 32; @%p1 bra B; bar.sync 1, 96; bra END; B: bar.sync 1, 96; END:",
        "setp.ge.u32 %p1, %r0, 32; @%p1 bra B; bar.sync 1, 96; bra END; B: bar.sync 1, 64; END:",
    ),
    "half a warp at a barrier in a branch": (
        (DivergenceFault, DeadlockFault),
        "never reach|lanes",
        32,
        "setp.ge.u32 %p1, %r0, 16; @!%p1 mov.u32 %r2, 1; bar.sync 0;",
        "setp.ge.u32 %p1, %r0, 16; @%p1 bra END; bar.sync 0; END: bar.warp.sync -1;",
    ),
    "lanes read what a branch stored": (
        RaceFault,
        r"\(line 12\).* no bar\.warp\.sync between",
        32,
        "setp.ge.u32 %p1, %r0, 16; @%p1 bra R; st.shared.u32 [%r1], %r0; R: bar.warp.sync -1;"
        "and.b32 %r2, %r0, 15; mad.lo.u32 %r2, %r2, 4, %r9; ld.shared.u32 %r3, [%r2];",
        "setp.ge.u32 %p1, %r0, 16; @%p1 bra R; st.shared.u32 [%r1], %r0; R: "
        "and.b32 %r2, %r0, 15; mad.lo.u32 %r2, %r2, 4, %r9; ld.shared.u32 %r3, [%r2];",
    ),
    "ldmatrix of the group after the one waited for": (
        AsyncFault,
        r"read while the copy of line 12 to it is in flight",
        32,
        "COPY(0); COPY(128); cp.async.wait_group 0; bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r5];",
        "COPY(0); COPY(128); cp.async.wait_group 1; bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r5];",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_warps(name):
    kinds, words, threads, right, wrong = MISTAKES[name]
    x = np.zeros(128, "u4")
    head = "mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; "
    head += "and.b32 %r5, %r0, 7; mad.lo.u32 %r5, %r5, 16, %r9; add.u32 %r5, %r5, 128; mad.wide.u32 %d1, %r0, 4, %q0;\n"
    for at in (0, 128):
        copy = f"cp.async.ca.shared.global [%r1+{at}], [%d1+{at}], 4; cp.async.commit_group"
        right, wrong = right.replace(f"COPY({at})", copy), wrong.replace(f"COPY({at})", copy)
    run(head + right, x, block=threads, extra=SHARED)
    with pytest.raises(kinds, match=words):
        run(head + wrong, x, block=threads, extra=SHARED)
