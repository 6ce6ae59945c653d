"""cp.async.bulk and cp.reduce.async.bulk of plain ranges."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import (
    AsyncFault,
    DeadlockFault,
    MisalignedFault,
    OutOfBoundsFault,
    ParseError,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)

MODES = [(seed, completion) for seed in range(2) for completion in ("early", "late")]
SHARED = ".shared .align 128 .b8 sm[4096]; .shared .align 8 .b64 bar;"
SIGNAL = "mbarrier::complete_tx::bytes"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0; @!%p9 bra W;"
#: %r0 thread, %r1 its word of sm, %r9 sm; `bar` expects one arrival; %p0 thread 0
START = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; setp.eq.u32 %p0, %r0, 0; mov.u32 %r8, bar;
@%p0 mbarrier.init.shared::cta.b64 [bar], 1; bar.sync 0; mov.u32 %r10, %ctaid.x;
"""


@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta"])
@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_copy_to_shared_and_back(seed, completion, space):
    """Blocks copy 256 words in, change them, and copy them out."""
    x, y = np.arange(4 * 256, dtype="u4"), np.zeros(4 * 256, "u4")
    run(
        START
        + f"""mul.wide.u32 %d1, %r10, 1024; add.u64 %d2, %q0, %d1; add.u64 %d3, %q1, %d1; @!%p0 bra LOADED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    cp.async.bulk.{space}.global.{SIGNAL} [sm], [%d2], 1024, [bar];
    LOADED: {WAIT} mov.u32 %r11, 0;
    L: mad.lo.u32 %r12, %r11, 256, %r1; ld.shared.u32 %r13, [%r12]; mul.lo.u32 %r13, %r13, 3;
    st.shared.u32 [%r12], %r13;
    add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 4; @%p1 bra L;
    fence.proxy.async.shared::cta; bar.sync 0; @!%p0 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%d3], [sm], 512; cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%d3+512], [sm+512], 512; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0; ld.global.u32 %r13, [%d3]; st.global.u32 [%d2], %r13;
    END: ret;""",
        x,
        y,
        grid=4,
        block=64,
        extra=SHARED,
        seed=seed,
        completion=completion,
    )
    assert (y == np.arange(1024) * 3).all()
    assert (x[::256] == y[::256]).all()


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_multicast(seed, completion):
    """Rank 1 of a cluster of four loads for ranks 0, 2 and 3."""
    x, y = np.arange(64, dtype="u4"), np.zeros((8, 64), "u4")
    run(
        START
        + f"""mov.u32 %r2, %cluster_ctarank; {SYNC} mov.b16 %h0, 0xd; setp.eq.u32 %p1, %r2, 1;
    setp.ne.u32 %p2, %r2, 1;
    and.pred %p3, %p0, %p2; and.pred %p4, %p0, %p1; @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    @%p4 cp.async.bulk.shared::cluster.global.{SIGNAL}.multicast::cluster.L2::cache_hint [%r9], [%q0], 256, [%r8], %h0, %d9;
    @%p1 bra END; {WAIT} ld.shared.u32 %r3, [%r1]; mad.lo.u32 %r4, %r10, 64, %r0; mad.wide.u32 %d1, %r4, 4, %q1;
    st.global.u32 [%d1], %r3;
    END: {SYNC}""".replace("mov.b16 %h0", "createpolicy.fractional.L2::evict_first.b64 %d9, 0f3F800000; mov.b16 %h0"),
        x,
        y,
        grid=8,
        block=64,
        extra=SHARED,
        directives=".explicitcluster .reqnctapercluster 4",
        seed=seed,
        completion=completion,
    )
    want = np.tile(np.arange(64), (8, 1))
    want[[1, 5]] = 0
    assert (y == want).all()


BETWEEN = (
    START
    + f"""mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mad.lo.u32 %r4, %r10, 64, %r0;
    st.shared.u32 [%r1], %r4;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256; FENCE {SYNC}
mapa.shared::cluster.u32 %r5, %r9, %r3; add.u32 %r5, %r5, 1024; mapa.shared::cluster.u32 %r6, %r8, %r3;
@%p0 cp.async.bulk.shared::cluster.shared::cta.{SIGNAL} [%r5], [%r9], 256, [%r6];
{WAIT} ld.shared.u32 %r7, [%r1+1024]; mad.wide.u32 %d1, %r4, 4, %q0; st.global.u32 [%d1], %r7; END"""
)


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_copy_between_blocks(seed, completion):
    x = np.zeros(4 * 64, "u4")
    options = {
        "grid": 4,
        "block": 64,
        "extra": SHARED,
        "seed": seed,
        "completion": completion,
        "directives": ".explicitcluster .reqnctapercluster 2",
    }
    run(BETWEEN.replace("FENCE", "fence.proxy.async;").replace("END", SYNC), x, **options)
    assert (x == np.arange(256) ^ 64).all()
    with pytest.raises(AsyncFault, match=r"no fence\.proxy\.async between"):
        run(BETWEEN.replace("FENCE", "").replace("END", SYNC), x, **options)
    # a block that only waits for what it gets may exit before the other has read what it sends
    with pytest.raises(AsyncFault, match=r"exits before a wait for the bulk copy .* out of its"):
        run(BETWEEN.replace("FENCE", "fence.proxy.async;").replace("END", ""), x, **options)


TYPES = {
    "u32": "u4",
    "s32": "i4",
    "u64": "u8",
    "s64": "i8",
    "f32": "f4",
    "f64": "f8",
    "f16": "f2",
    "bf16": ml_dtypes.bfloat16,
    "b32": "u4",
    "b64": "u8",
}
REDUCTIONS = [("add", t) for t in ("u32", "s32", "u64", "f32", "f64", "f16", "bf16")]
REDUCTIONS += [(op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")]
REDUCTIONS += [("inc", "u32"), ("dec", "u32")] + [(op, t) for op in ("and", "or", "xor") for t in ("b32", "b64")]


@pytest.mark.parametrize("completion", ["early", "late"])
@pytest.mark.parametrize(("op", "element"), REDUCTIONS)
def test_reductions_to_global(op, element, completion):
    dtype = np.dtype(TYPES[element])
    n = 512 // dtype.itemsize
    rng = np.random.default_rng(0)
    if dtype.kind in "iu":
        x, y = (rng.integers(0, 200, n).astype(dtype) - (dtype.kind == "i") * 100 for _ in range(2))
        x[:4], y[:4] = (5, 0, 7, 7), (5, 3, 6, 8)
    else:
        x, y = (rng.standard_normal(n).astype(dtype) for _ in range(2))
    x, y = np.ascontiguousarray(x.astype(dtype)), np.ascontiguousarray(y.astype(dtype))
    want = {
        "add": lambda: y + x,
        "min": lambda: np.minimum(y, x),
        "max": lambda: np.maximum(y, x),
        "and": lambda: y & x,
        "or": lambda: y | x,
        "xor": lambda: y ^ x,
        "inc": lambda: np.where(y >= x, 0, y + 1),
        "dec": lambda: np.where((y == 0) | (y > x), x, y - 1),
    }[op]()
    noftz = ".noftz" if op == "add" and element in ("f16", "bf16") else ""
    xs, ys = x.view("u1"), y.copy().view("u1")
    run(
        START
        + f"""@!%p0 bra END; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
    cp.async.bulk.shared::cluster.global.{SIGNAL} [sm], [%q0], 512, [bar]; {WAIT}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}{noftz}.{element} [%q1], [%r9], 512;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    END: ret;""",
        xs,
        ys,
        extra=SHARED,
        completion=completion,
    )
    assert (ys.view(f"u{dtype.itemsize}") == want.astype(dtype).view(f"u{dtype.itemsize}")).all()


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_reductions_between_blocks(seed, completion):
    """Ranks 1 to 3 add to rank 0."""
    x = np.zeros(64, "u4")
    run(
        START
        + f"""mov.u32 %r2, %cluster_ctarank; mad.lo.u32 %r4, %r2, 1000, %r0; st.shared.u32 [%r1], %r4;
    setp.eq.u32 %p1, %r2, 0;
    and.pred %p2, %p0, %p1; @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 768; fence.proxy.async; {SYNC}
    mapa.shared::cluster.u32 %r5, %r9, 0; mapa.shared::cluster.u32 %r6, %r8, 0; @%p1 bra ZERO;
    @%p0 cp.reduce.async.bulk.shared::cluster.shared::cta.{SIGNAL}.add.u32 [%r5], [%r9], 256, [%r6]; bra END;
    ZERO: {WAIT} ld.shared.u32 %r7, [%r1]; mad.wide.u32 %d1, %r0, 4, %q0; st.global.u32 [%d1], %r7;
    END: {SYNC}""",
        x,
        grid=4,
        block=64,
        extra=SHARED,
        directives=".explicitcluster .reqnctapercluster 4",
        seed=seed,
        completion=completion,
    )
    assert (x == 4 * np.arange(64) + 6000).all()


def test_hints_and_prefetches_have_no_effect():
    x = np.arange(64, dtype="u4")
    run(
        """createpolicy.fractional.L2::evict_last.b64 %d1, 0f3F800000; cp.async.bulk.prefetch.L2.global [%q0], 256;
    cp.async.bulk.prefetch.L2.global.L2::cache_hint [%q0], 256, %d1;""",
        x,
    )
    assert (x == np.arange(64)).all()


IN = f"@%p0 cp.async.bulk.shared::cluster.global.{SIGNAL} [sm], [%q0], 256, [bar];"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;"
OUT = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%q0], [sm], 256; @%p0 cp.async.bulk.commit_group;"
FILL = "st.shared.u32 [%r1], %r0;"
FENCE = "fence.proxy.async.shared::cta;"
ALL = "@%p0 cp.async.bulk.wait_group 0;"
READ = "@%p0 cp.async.bulk.wait_group.read 0;"
USE = "ld.shared.u32 %r2, [%r1]; mad.wide.u32 %d1, %r0, 4, %q0; st.global.u32 [%d1+256], %r2;"
#: by the order of warps, it may be another of these that shows first
ANY = (AsyncFault, RaceFault, UninitialisedFault)
FAULTS = {
    # name: (fault, words, what is wrong, what would be right)
    "no wait": (
        ANY,
        r"read before a wait for the bulk copy|no barrier between",
        EXPECT + IN + USE,
        EXPECT + IN + WAIT + USE,
    ),
    "waits alone": (
        ANY,
        r"read before a wait for the bulk copy|no barrier between",
        EXPECT + IN + "@!%p0 bra SKIP;" + WAIT + "SKIP: " + USE,
        EXPECT + IN + "@!%p0 bra SKIP;" + WAIT + "SKIP: bar.sync 0;" + USE,
    ),
    "overwrites": (
        ANY,
        r"written before a wait|with no barrier between|by warp 1",
        EXPECT + IN + FILL + WAIT,
        EXPECT + IN + WAIT + FILL,
    ),
    "exits": (AsyncFault, "exits before a wait for the bulk copy", EXPECT + IN, EXPECT + IN + WAIT),
    "too few bytes": (
        (DeadlockFault, AsyncFault),
        "-16 bytes|too few|before a wait",
        EXPECT.replace("256", "240") + IN + WAIT + USE,
        EXPECT + IN + WAIT + USE,
    ),
    "no fence": (
        AsyncFault,
        "with no fence.proxy.async between",
        FILL + "bar.sync 0;" + OUT + ALL,
        FILL + FENCE + "bar.sync 0;" + OUT + ALL,
    ),
    "no barrier": (
        ANY,
        r"with no barrier between|before it is written",
        FILL + FENCE + OUT + ALL,
        FILL + FENCE + "bar.sync 0;" + OUT + ALL,
    ),
    "fence of global memory": (
        AsyncFault,
        "with no fence.proxy.async between",
        FILL + "fence.proxy.async.global; bar.sync 0;" + OUT + ALL,
        FILL + "bar.sync 0; fence.proxy.async;" + OUT + ALL,
    ),
    "fence before the write": (
        AsyncFault,
        "with no fence.proxy.async between",
        FENCE + FILL + "bar.sync 0;" + OUT + ALL,
        FILL + FENCE + "bar.sync 0;" + OUT + ALL,
    ),
    "source changed": (
        AsyncFault,
        "written before a wait for the bulk copy",
        FILL + FENCE + "bar.sync 0;" + OUT + "bar.sync 0;" + FILL + READ,
        FILL + FENCE + "bar.sync 0;" + OUT + READ + "bar.sync 0;" + FILL,
    ),
    "source changed by another": (
        ANY,
        r"written before a wait for the bulk copy|no barrier between|by warp 1",
        FILL + FENCE + "bar.sync 0;" + OUT + READ + FILL,
        FILL + FENCE + "bar.sync 0;" + OUT + READ + "bar.sync 0;" + FILL,
    ),
    "not committed": (
        AsyncFault,
        "exits before a wait",
        FILL + FENCE + "bar.sync 0;" + OUT.replace("@%p0 cp.async.bulk.commit_group;", "") + ALL,
        FILL + FENCE + "bar.sync 0;" + OUT + ALL,
    ),
    "exits before the source is read": (
        AsyncFault,
        "exits before a wait for the bulk copy",
        FILL + FENCE + "bar.sync 0;" + OUT,
        FILL + FENCE + "bar.sync 0;" + OUT + READ,
    ),
    "a generic write below a copy": (
        AsyncFault,
        "overwrites shared memory that warp",
        FILL + "bar.sync 0;" + EXPECT + IN + WAIT + USE,
        FILL + FENCE + "bar.sync 0;" + EXPECT + IN + WAIT + USE,
    ),
    "read by others while it is overwritten": (
        ANY,
        r"the bulk copy by warp 0 and read by warp 1|read before a wait",
        FILL + "bar.sync 0; ld.shared.u32 %r2, [%r1]; fence.proxy.async;" + EXPECT + IN + WAIT,
        FILL + "bar.sync 0; ld.shared.u32 %r2, [%r1]; fence.proxy.async; bar.sync 0;" + EXPECT + IN + WAIT,
    ),
    "unwritten source": (
        UninitialisedFault,
        "copied before it is written",
        OUT + ALL,
        FILL + FENCE + "bar.sync 0;" + OUT + ALL,
    ),
    "misaligned source": (
        MisalignedFault,
        "multiple of 16",
        EXPECT + IN.replace("[%q0]", "[%q0+8]") + WAIT,
        EXPECT + IN.replace("[%q0]", "[%q0+16]") + WAIT,
    ),
    "misaligned destination": (
        MisalignedFault,
        "multiple of 16",
        EXPECT + IN.replace("[sm]", "[sm+4]") + WAIT,
        EXPECT + IN.replace("[sm]", "[sm+16]") + WAIT,
    ),
    "size": (
        MisalignedFault,
        "not a multiple of 16",
        EXPECT + "mov.u32 %r9, 250;" + IN.replace("256", "%r9") + WAIT,
        EXPECT + IN + WAIT,
    ),
    "beyond global memory": (
        OutOfBoundsFault,
        "past the end",
        EXPECT + IN.replace("[%q0]", "[%q0+272]") + WAIT,
        EXPECT + IN.replace("[%q0]", "[%q0+256]") + WAIT,
    ),
    "beyond shared memory": (
        OutOfBoundsFault,
        "256 bytes of shared",
        EXPECT + IN.replace("[sm]", "[sm+4000]") + WAIT,
        EXPECT + IN.replace("[sm]", "[sm+3840]") + WAIT,
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_and_fixed_kernel(name, seed, completion):
    fault, words, wrong, right = FAULTS[name]
    x = np.arange(128, dtype="u4")
    run(START + right, x, block=64, extra=SHARED, seed=seed, completion=completion)
    with pytest.raises(fault, match=words) as caught:
        run(START + wrong, x, block=64, extra=SHARED, seed=seed, completion=completion)
    assert caught.value.entry == "k"


def test_phase_that_completes_before_its_copy():
    """The arrival expects no bytes, so the phase completes first; the copy signals the next one."""
    arrive, next_phase = (
        "@%p0 mbarrier.arrive.shared::cta.b64 _, [bar];",
        WAIT.replace("W", "V").replace(", 0;", ", 1;"),
    )
    x = np.arange(128, dtype="u4")
    with pytest.raises(AsyncFault, match="phase 0 of an mbarrier object completed before the work that signals it"):
        run(START + IN + arrive + WAIT + next_phase, x, block=64, extra=SHARED, completion="late")
    run(START + EXPECT + IN + WAIT + arrive + next_phase, x, block=64, extra=SHARED, completion="late")


def test_early_and_late_completion():
    """A copy completes as soon as it starts, or not before a wait needs it."""
    for completion in ("early", "late"):
        x = np.zeros(128, "u4")
        body = START + EXPECT + IN + "mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0; selp.u32 %r2, 1, 0, %p1;"
        run(body + "@%p0 st.global.u32 [%q0], %r2;" + WAIT, x, extra=SHARED, completion=completion)
        assert x[0] == (completion == "early")


def test_invalid_text():
    for wrong in (
        "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%q0], [sm], 16, [bar];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%q0], [sm], 16;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%q0], 16;",
    ):
        with pytest.raises((UnsupportedError, ParseError)):
            run(wrong, np.zeros(4, "u4"), extra=SHARED)


def test_lanes_that_issue_the_same_store():
    """A note, not a race; copies of different bytes to one place race."""
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
    fence.proxy.async.shared::cta; bar.sync 0; FROM
    cp.async.bulk.global.shared::cta.bulk_group [%q0], [%r1], 64;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    y = np.zeros(16, "u4")
    options = {"registers": ".shared .align 128 .b8 s[128];"}
    stats = run(body.replace("FROM", ""), y, **options)
    assert (y == np.arange(16)).all()
    assert any("several lanes of a warp issue the same copy" in note for note in stats.notes)
    with pytest.raises(RaceFault):
        run(body.replace("FROM", "and.b32 %r3, %r0, 1; mad.lo.u32 %r1, %r3, 64, %r1;"), y, **options)
