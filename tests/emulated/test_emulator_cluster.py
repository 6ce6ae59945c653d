"""Clusters: special registers, distributed shared memory, and synchronisation."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import (
    AsyncFault,
    BarrierFault,
    DeadlockFault,
    Fault,
    InputError,
    OutOfBoundsFault,
    RaceFault,
    UninitialisedFault,
)

MODES = [(seed, completion) for seed in range(3) for completion in ("early", "late")]
SHARED = ".shared .align 16 .b8 sm[1024]; .shared .align 8 .b64 bar;"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
#: %r0 thread, %r1 its word of sm, %r2 the rank, %r3 the rank of the next block, %d0 where this thread's result goes
START = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; mov.u32 %r2, %cluster_ctarank;
mov.u32 %r4, %cluster_nctarank; add.u32 %r3, %r2, 1; rem.u32 %r3, %r3, %r4; mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x;
mad.lo.u32 %r5, %r5, %r6, %r0; mad.wide.u32 %d0, %r5, 4, %q0; setp.eq.u32 %p0, %r0, 0;
"""


def cluster(n: int) -> str:
    return f".explicitcluster .reqnctapercluster {n}"


def passed_on(blocks: int, threads: int, size: int) -> np.ndarray:
    """Results of threads that write their global number and read the next block's."""
    b, t = np.divmod(np.arange(blocks * threads), threads)
    return (b // size * size + (b % size + 1) % size) * threads + t


def test_special_registers():
    names = [
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_ctarank",
        "cluster_nctarank",
        "clusterid.x",
        "clusterid.y",
        "nclusterid.x",
        "nclusterid.y",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "is_explicit_cluster",
    ]
    y = np.zeros((8, 6, len(names)), "u4")
    types = ["pred" if n == "is_explicit_cluster" else "u32" for n in names]
    body = "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;"
    body += f"mad.wide.u32 %d0, %r1, {4 * len(names)}, %q0;"
    for i, (n, t) in enumerate(zip(names, types, strict=True)):
        body += f"mov.pred %p1, %{n}; selp.u32 %r0, 1, 0, %p1;" if t == "pred" else f"mov.u32 %r0, %{n};"
        body += f"st.global.u32 [%d0+{4 * i}], %r0;"
    run(body, y, grid=(6, 8), block=1, directives=".reqnctapercluster 3, 2")
    for cy in range(8):
        for cx in range(6):
            want = [cx % 3, cy % 2, cx % 3 + cy % 2 * 3, 6, cx // 3, cy // 2, 2, 4, 3, 2, 1]
            assert y[cy, cx].tolist() == want


@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_access_to_the_next_block(seed, completion, size):
    x = np.zeros(12 * 64, "u4")
    body = (
        START
        + "st.shared.u32 [%r1], %r5;"
        + SYNC
        + "mapa.shared::cluster.u32 %r7, %r1, %r3; ld.shared::cluster.u32 %r8, [%r7];"
    )
    run(
        body + SYNC + "st.global.u32 [%d0], %r8;",
        x,
        grid=12,
        block=64,
        extra=SHARED,
        directives=cluster(size),
        seed=seed,
        completion=completion,
    )
    assert (x == passed_on(12, 64, size)).all()
    body = START + SYNC + "mapa.shared::cluster.u32 %r7, %r1, %r3; st.shared::cluster.u32 [%r7], %r5;" + SYNC
    run(
        body + "ld.shared.u32 %r8, [%r1]; st.global.u32 [%d0], %r8;",
        x,
        grid=12,
        block=64,
        extra=SHARED,
        directives=cluster(size),
        seed=seed,
        completion=completion,
    )
    b, t = np.divmod(np.arange(12 * 64), 64)
    assert (x == (b // size * size + (b % size - 1) % size) * 64 + t).all()


def test_generic_addresses_vectors_and_a_launch_cluster():
    """The same kernel with generic addresses; the launch gives its cluster."""
    x = np.zeros((8, 32), "u4")
    body = (
        START
        + "st.shared.u32 [%r1], %r5; cvt.u64.u32 %d1, %r9; cvta.shared.u64 %d1, %d1; mapa.u64 %d2, %d1, %r3;"
        + SYNC
    )
    body += """isspacep.shared::cluster %p1, %d2; isspacep.shared::cta %p2, %d2; isspacep.shared %p3, %d1; @!%p1 trap;
    @%p2 trap;
    @!%p3 trap; getctarank.u64 %r10, %d2; setp.ne.u32 %p4, %r10, %r3; @%p4 trap;
    getctarank.shared::cluster.u32 %r10, sm;
    setp.ne.u32 %p4, %r10, %r2; @%p4 trap; and.b32 %r11, %r0, 28; mad.wide.u32 %d3, %r11, 4, %d2;
    ld.v4.u32 {%r20, %r21, %r22, %r23}, [%d3];
    and.b32 %r12, %r0, 3; setp.eq.u32 %p5, %r12, 1; selp.b32 %r20, %r21, %r20, %p5; setp.eq.u32 %p5, %r12, 2;
    selp.b32 %r20, %r22, %r20, %p5; setp.eq.u32 %p5, %r12, 3; selp.b32 %r20, %r23, %r20, %p5;"""
    run(body + SYNC + "st.global.u32 [%d0], %r20;", x, grid=8, block=32, extra=SHARED, cluster=4)
    assert (x.reshape(-1) == passed_on(8, 32, 4)).all()
    with pytest.raises(InputError, match="it must be a multiple of the cluster size 4"):
        run(body, x, grid=6, block=32, extra=SHARED, cluster=4)
    with pytest.raises(InputError, match="cluster is None; it must be the cluster size"):
        run(body, x, grid=6, block=32, extra=SHARED, directives=".explicitcluster")
    with pytest.raises(InputError, match=r"\.reqnctapercluster of k"):
        run(body, x, grid=6, block=32, extra=SHARED, directives=cluster(2), cluster=3)
    with pytest.raises(InputError, match="1 to 16"):
        run(body, x, grid=32, block=32, extra=SHARED, cluster=32)
    with pytest.raises(InputError, match="1 to 2"):
        run(body, x, grid=32, block=32, extra=SHARED, directives=".maxclusterrank 2", cluster=4)


@pytest.mark.parametrize("seed", range(3))
def test_atomics_in_another_block(seed):
    x = np.zeros(8, "u4")
    body = (
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p0, %r0, 0;
    mov.u32 %r5, %ctaid.x;
    @%p0 st.shared.u32 [sm], 0; @%p0 st.shared.u32 [sm+4], 0;"""
        + SYNC
    )
    body += (
        """mapa.shared::cluster.u32 %r7, %r9, 0; atom.shared::cluster.add.u32 %r8, [%r7], 1;
    red.relaxed.cluster.shared::cluster.add.u32 [%r7+4], %r8;"""
        + SYNC
    )
    body += """ld.shared.u32 %r10, [sm]; ld.shared.u32 %r11, [sm+4]; setp.eq.u32 %p1, %r2, 0; and.pred %p1, %p1, %p0;
    mad.wide.u32 %d0, %r5, 4, %q0; @%p1 st.global.u32 [%d0], %r10; @%p1 st.global.u32 [%d0+4], %r11;"""
    run(body, x, grid=8, block=64, extra=SHARED, directives=cluster(4), seed=seed)
    assert x.tolist() == [256, 256 * 255 // 2, 0, 0] * 2


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_arrivals_at_another_blocks_mbarrier(seed, completion):
    """Every thread of the cluster stores in rank 0's memory and arrives there; rank 0 adds up."""
    x = np.zeros(4, "u4")
    body = (
        START
        + f"""@%p0 mbarrier.init.shared::cta.b64 [bar], 128; fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
    mad.lo.u32 %r10, %r2, 128, %r1; mapa.shared::cluster.u32 %r11, %r10, 0; mov.u32 %r12, bar;
    mapa.shared::cluster.u32 %r12, %r12, 0;
    st.shared::cluster.u32 [%r11], %r5; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
    setp.ne.u32 %p1, %r2, 0; @%p1 bra END; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0;
    @!%p2 bra W;
    ld.shared.u32 %r13, [%r1]; ld.shared.u32 %r14, [%r1+128]; ld.shared.u32 %r15, [%r1+256];
    ld.shared.u32 %r16, [%r1+384];
    add.u32 %r13, %r13, %r14; add.u32 %r13, %r13, %r15; add.u32 %r13, %r13, %r16; red.global.add.u32 [%q0], %r13;
    END: {SYNC}"""
    )
    run(body, x, grid=4, block=32, extra=SHARED, directives=cluster(4), seed=seed, completion=completion)
    assert x[0] == 128 * 127 // 2


ASYNC = (
    START
    + f"""@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; {SYNC}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; mad.lo.u32 %r10, %r0, 16, %r9;
    mapa.shared::cluster.u32 %r11, %r10, %r3;
mov.u32 %r12, bar; mapa.shared::cluster.u32 %r12, %r12, %r3; add.u32 %r13, %r5, 1000;
st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r11], {{%r5, %r13, %r5, %r13}}, [%r12];
WAIT ld.shared.v2.u32 {{%r14, %r15}}, [%r10]; sub.u32 %r15, %r15, %r14; setp.ne.u32 %p3, %r15, 1000; @%p3 trap;
st.global.u32 [%d0], %r14; """
)
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;"


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_st_async(seed, completion):
    x = np.zeros(4 * 64, "u4")
    options = {
        "grid": 4,
        "block": 64,
        "extra": SHARED,
        "directives": cluster(4),
        "seed": seed,
        "completion": completion,
    }
    run(ASYNC.replace("WAIT", WAIT) + SYNC, x, **options)
    b, t = np.divmod(np.arange(256), 64)
    assert (x == (b - 1) % 4 * 64 + t).all()
    with pytest.raises((AsyncFault, UninitialisedFault), match=r"st\.async|uninitialised shared memory"):
        run(ASYNC.replace("WAIT", "") + SYNC, x, **options)


@pytest.mark.parametrize("completion", ["early", "late"])
def test_expected_bytes_decide(completion):
    x = np.zeros(4 * 64, "u4")
    options = {"grid": 4, "block": 64, "extra": SHARED, "directives": cluster(4), "completion": completion}
    few = ASYNC.replace("WAIT", WAIT).replace("], 1024;", "], 1008;")
    with pytest.raises((AsyncFault, DeadlockFault), match=r"too few|-16 bytes|before a wait"):
        run(few + SYNC, x, **options)
    with pytest.raises(DeadlockFault, match="16 bytes pending"):
        run(few.replace("1008", "1040") + SYNC, x, **options)


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_red_async(seed, completion):
    """Every thread of ranks 1 to 3 increments rank 0's counter."""
    x = np.zeros(2, "u4")
    run(
        START
        + f"""@%p0 mbarrier.init.shared::cta.b64 [bar], 1; @%p0 st.shared.u32 [sm], 5;
    @%p0 st.shared.u32 [sm+4], 5;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 768; fence.mbarrier_init.release.cluster; {SYNC}
    mapa.shared::cluster.u32 %r10, %r9, 0; mov.u32 %r12, bar; mapa.shared::cluster.u32 %r12, %r12, 0;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra READ;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r10], 3, [%r12];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%r10+4], %r5, [%r12]; bra END;
    READ: W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0; @!%p2 bra W;
    ld.shared.v2.u32 {{%r14, %r15}}, [sm]; @%p0 st.global.v2.u32 [%q0], {{%r14, %r15}};
    END: {SYNC}""",
        x,
        grid=4,
        block=32,
        extra=SHARED,
        directives=cluster(4),
        seed=seed,
        completion=completion,
    )
    assert x.tolist() == [5 + 3 * 96, 127]


def test_blocks_are_clusters():
    x = np.zeros(2 * 3 * 32, "u4")
    run(
        START + "st.global.u32 [%d0], %r2;",
        x,
        grid=2,
        block=32,
        directives=".reqntid 32, 1, 1 .reqnctapercluster 3, 1, 1 .blocksareclusters",
        extra=SHARED,
    )
    assert (x.reshape(6, 32)[:, 0] == [0, 1, 2, 0, 1, 2]).all()


PEER = "mapa.shared::cluster.u32 %r7, %r1, %r3;"
FAULTS = {
    # name: (fault, words, what is wrong, what would be right)
    "no barrier": (
        RaceFault,
        "rank",
        f"st.shared.u32 [%r1], %r5; {SYNC} {PEER} st.shared::cluster.u32 [%r7], %r5; ld.shared.u32 %r8, [%r1]; {SYNC}",
        f"st.shared.u32 [%r1], %r5; {SYNC} {PEER} st.shared::cluster.u32 [%r7], %r5; {SYNC} ld.shared.u32 %r8, [%r1];",
    ),
    "relaxed arrival": (
        RaceFault,
        "rank",
        f"""st.shared.u32 [%r1], %r5; barrier.cluster.arrive.relaxed.aligned;
    barrier.cluster.wait.aligned; {PEER}
        ld.shared::cluster.u32 %r8, [%r7]; {SYNC}""",
        f"""st.shared.u32 [%r1], %r5; fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned;
    barrier.cluster.wait.aligned;
        {PEER} ld.shared::cluster.u32 %r8, [%r7]; {SYNC}""",
    ),
    "exits too early": (
        RaceFault,
        "exits|has exited",
        f"st.shared.u32 [%r1], %r5; {SYNC} {PEER} ld.shared::cluster.u32 %r8, [%r7];",
        f"st.shared.u32 [%r1], %r5; {SYNC} {PEER} ld.shared::cluster.u32 %r8, [%r7]; {SYNC}",
    ),
    "exits before an arrival": (
        RaceFault,
        "exits|has exited",
        f"""@%p0 mbarrier.init.shared.b64 [bar], 1; {SYNC} mov.u32 %r10, bar; mapa.shared::cluster.u32 %r10, %r10, %r3;
        @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];""",
        f"""@%p0 mbarrier.init.shared.b64 [bar], 1; {SYNC} mov.u32 %r10, bar; mapa.shared::cluster.u32 %r10, %r10, %r3;
        @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10]; {WAIT}""",
    ),
    "exits before data": (
        AsyncFault,
        "the block exits before a wait for st.async",
        ASYNC[len(START) :].split("WAIT")[0],
        ASYNC[len(START) :].split("WAIT")[0] + WAIT,
    ),
    "no such rank": (
        OutOfBoundsFault,
        "of rank 2 in a cluster of 2",
        f"mapa.shared::cluster.u32 %r7, %r1, 2; {SYNC} st.shared::cluster.u32 [%r7], 1; {SYNC}",
        f"mapa.shared::cluster.u32 %r7, %r1, 0; {SYNC} setp.eq.u32 %p1, %r2, 0; "
        f"@%p1 st.shared::cluster.u32 [%r7], 1; {SYNC}",
    ),
    "another block's address without ::cluster": (
        OutOfBoundsFault,
        "only .shared::cluster can access",
        f"{PEER} {SYNC} st.shared.u32 [%r7], 1; {SYNC}",
        f"{PEER} {SYNC} st.shared::cluster.u32 [%r7], 1; {SYNC}",
    ),
    "beyond": (
        OutOfBoundsFault,
        "outside",
        f"{PEER} {SYNC} st.shared::cluster.u32 [%r7+1024], 1; {SYNC}",
        f"{PEER} {SYNC} st.shared::cluster.u32 [%r7+128], 1; {SYNC}",
    ),
    "no arrival": (BarrierFault, "before it has arrived", "barrier.cluster.wait.aligned;", SYNC),
    "two arrivals": (
        BarrierFault,
        "arrives .* twice",
        "barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;",
        SYNC + SYNC,
    ),
    "some never arrive": (
        DeadlockFault,
        "barrier: 1 of 2 warps",
        "setp.eq.u32 %p1, %r2, 0; @%p1 bra OTHER; " + SYNC + " bra END; OTHER: L: nanosleep.u32 10; bra L; END:",
        "setp.eq.u32 %p1, %r2, 0; @%p1 bra OTHER; " + SYNC + " bra END; OTHER: " + SYNC + " END:",
    ),
    "unwritten": (
        UninitialisedFault,
        "uninitialised shared memory",
        f"{SYNC} {PEER} ld.shared::cluster.u32 %r8, [%r7]; {SYNC} st.global.u32 [%d0], %r8;",
        f"st.shared.u32 [%r1], 1; {SYNC} {PEER} ld.shared::cluster.u32 %r8, [%r7]; {SYNC} st.global.u32 [%d0], %r8;",
    ),
    "st.async into another block than its mbarrier's": (
        Fault,
        "in different blocks",
        ASYNC[len(START) :].replace("WAIT", WAIT).replace("%r12, %r12, %r3", "%r12, %r12, %r2") + SYNC,
        ASYNC[len(START) :].replace("WAIT", WAIT) + SYNC,
    ),
}


@pytest.mark.parametrize("completion", ["early", "late"])
@pytest.mark.parametrize("name", FAULTS)
def test_fault_and_fixed_kernel(name, completion):
    fault, words, wrong, right = FAULTS[name]
    threads = 64 if "st.async" in right else 32
    x = np.zeros(2 * threads, "u4")
    for seed in range(3):
        options = {
            "grid": 2,
            "block": threads,
            "extra": SHARED,
            "directives": cluster(2),
            "seed": seed,
            "completion": completion,
        }
        run(START + right, x, **options)
        with pytest.raises(fault, match=words):
            run(START + wrong, x, **options)


def test_st_async_in_a_cluster_of_one_block_is_a_fault():
    with pytest.raises(Fault, match="cluster of one block"):
        run(ASYNC.replace("WAIT", WAIT), np.zeros(64, "u4"), block=64, extra=SHARED)


def test_release_through_another_block_orders():
    """Warp 0 of rank 0 signals rank 1, which signals warp 1 of rank 0: no race between the two warps."""
    body = (
        START
        + f"""@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; {SYNC}
    mov.u32 %r10, bar; mapa.shared::cluster.u32 %r11, %r10, %r3; shr.u32 %r12, %r0, 5; and.b32 %r13, %r0, 31;
    setp.eq.u32 %p4, %r13, 0;
    setp.eq.u32 %p1, %r2, 0; @!%p1 bra ONE; setp.ne.u32 %p2, %r12, 0; @%p2 bra SECOND;
    st.shared.u32 [sm], 1; @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11]; bra END;
    SECOND: MORE ld.shared.u32 %r14, [sm]; bra END;
    ONE: @%p2 bra END; {WAIT} @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11]; END: {SYNC}"""
    )
    body = body.replace("ONE: @%p2", "ONE: setp.ne.u32 %p2, %r12, 0; @%p2")
    wait = "V: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0; @!%p3 bra V;"
    for seed in range(4):
        run(
            body.replace("MORE", wait),
            np.zeros(128, "u4"),
            grid=2,
            block=64,
            extra=SHARED,
            directives=cluster(2),
            seed=seed,
        )
        with pytest.raises(RaceFault):
            run(
                body.replace("MORE", ""),
                np.zeros(128, "u4"),
                grid=2,
                block=64,
                extra=SHARED,
                directives=cluster(2),
                seed=seed,
            )


@pytest.mark.parametrize("fence", ["fence.mbarrier_init.release.cluster;", "fence.acq_rel.cluster;", ""])
def test_fence_makes_an_initialisation_visible(fence):
    """A relaxed arrival makes an mbarrier visible to other blocks only after a fence."""
    body = (
        START
        + f"""@%p0 mbarrier.init.shared::cta.b64 [bar], 1; {fence}
    barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
    mov.u32 %r10, bar; mapa.shared::cluster.u32 %r10, %r10, %r3;
    @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10]; {WAIT}"""
    )
    options = {"grid": 4, "block": 32, "extra": SHARED, "directives": cluster(2)}
    if fence:
        run(body, np.zeros(128, "u4"), **options)
        return
    with pytest.raises(RaceFault, match="after its initialisation"):
        run(body, np.zeros(128, "u4"), **options)
    run(body.replace("relaxed", "release"), np.zeros(128, "u4"), **options)


def test_access_to_a_block_that_has_not_started():
    body = START + f"{PEER} BEGUN st.shared::cluster.u32 [%r7], %r5; {SYNC}"
    options = {"grid": 4, "block": 32, "extra": SHARED, "directives": cluster(2)}
    run(body.replace("BEGUN", SYNC), np.zeros(128, "u4"), **options)
    with pytest.raises(RaceFault, match="has started"):
        run(body.replace("BEGUN", ""), np.zeros(128, "u4"), **options)
