"""Every fault: a kernel that has just that one, and a twin without it that passes."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import launch, module, run

from ptxgen.errors import (
    AsyncFault,
    BarrierFault,
    DeadlockFault,
    DivergenceFault,
    Fault,
    InputError,
    MisalignedFault,
    OutOfBoundsFault,
    ParseError,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)

SHARED = ".shared .align 16 .b8 sm[4096];"
#: %r0 thread, %r1 its word of `sm`, %r2 the word of the thread opposite in a block of 64
ADDRESSES = """
mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9;
xor.b32 %r3, %r0, 32; mad.lo.u32 %r2, %r3, 4, %r9;
"""


@pytest.mark.parametrize("past", [0, 4, -4 * 33])
def test_out_of_bounds(past):
    x = np.arange(32, dtype=np.int32)
    body = f"mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; ld.global.u32 %r1, [%d0+{past}]; st.global.u32 [%d0], %r1;"
    if not past:
        run(body, x)
        assert (x == np.arange(32)).all()
        return
    with pytest.raises(OutOfBoundsFault) as caught:
        run(body, x)
    fault = caught.value
    assert fault.entry == "k"
    assert "ld.global.u32 %r1" in fault.instruction
    assert fault.thread == ((31, 0, 0) if past > 0 else (0, 0, 0))
    assert fault.address is not None
    assert fault.line > 5


def test_out_of_bounds_only_under_a_true_guard():
    x = np.arange(20, dtype=np.int32)
    body = """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; setp.lt.u32 %p0, %r0, LIMIT;
    @%p0 ld.global.u32 %r1, [%d0]; @%p0 add.u32 %r1, %r1, 1; @%p0 st.global.u32 [%d0], %r1;"""
    run(body.replace("LIMIT", "20"), x)
    assert (x == np.arange(20) + 1).all()
    with pytest.raises(OutOfBoundsFault) as caught:
        run(body.replace("LIMIT", "21"), x)
    assert caught.value.thread == (20, 0, 0)


def test_between_two_allocations():
    a, b = np.zeros(8, np.int32), np.zeros(8, np.int32)
    with pytest.raises(OutOfBoundsFault):
        run("st.global.u32 [%q0+32], 1;", a, b, block=1)
    run("st.global.u32 [%q0+28], 1; st.global.u32 [%q1], 2;", a, b, block=1)
    assert a[7] == 1
    assert b[0] == 2


def test_read_only_argument():
    a = np.zeros(8, np.int32)
    run("st.global.u32 [%q0], 1;", a, block=1)
    a.flags.writeable = False
    with pytest.raises(OutOfBoundsFault, match="read-only"):
        run("st.global.u32 [%q0], 1;", a, block=1)


@pytest.mark.parametrize(("shared", "ok"), [(4096, True), (4092, False)])
def test_dynamic_shared_bounds(shared, ok):
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, sm; mad.lo.u32 %r1, %r0, 4, %r1; st.shared.u32 [%r1], %r0;"""
    if ok:
        run(body, block=1024, shared=shared, extra=".extern .shared .align 16 .b8 sm[];")
    else:
        with pytest.raises(OutOfBoundsFault) as caught:
            run(body, block=1024, shared=shared, extra=".extern .shared .align 16 .b8 sm[];")
        assert caught.value.thread == (1023, 0, 0)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("offset", [0, 2, 8])
def test_misaligned(space, offset):
    x = np.zeros(64, np.float32)
    base = "%q0" if space == "global" else "sm"
    body = f"mov.f32 %f0, 0f3F800000; st.{space}.v4.f32 [{base}+{offset}], {{%f0, %f0, %f0, %f0}};"
    if offset == 0:
        run(body, x, block=1, extra=SHARED)
    else:
        with pytest.raises(MisalignedFault) as caught:
            run(body, x, block=1, extra=SHARED)
        assert f"st.{space}.v4.f32" in caught.value.instruction


def test_uninitialised_register():
    x = np.zeros(32, np.int32)
    body = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 mov.u32 %r1, 7; MORE mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r1;"
    with pytest.raises(UninitialisedFault, match="%r1") as caught:
        run(body.replace("MORE", ""), x)
    assert caught.value.thread == (16, 0, 0)
    run(body.replace("MORE", "@!%p0 mov.u32 %r1, 8;"), x)
    assert (x == np.repeat([7, 8], 16)).all()
    run(body.replace("MORE", ""), x, uninitialised=False)


def test_uninitialised_register_on_one_path():
    x = np.zeros(32, np.int32)
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 bra SKIP; mov.u32 %r1, 7; SKIP:
    mad.wide.u32 %d0, %r0, 4, %q0; @!%p0 st.global.u32 [%d0], %r1; USE"""
    run(body.replace("USE", ""), x)
    with pytest.raises(UninitialisedFault):
        run(body.replace("USE", "st.global.u32 [%d0], %r1;"), x)


def test_uninitialised_shared():
    x = np.zeros(64, np.int32)
    body = (
        ADDRESSES
        + """
    setp.lt.u32 %p0, %r0, LIMIT; @%p0 st.shared.u32 [%r1], %r0; bar.sync 0; ld.shared.u32 %r4, [%r2];
    mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r4;"""
    )
    run(body.replace("LIMIT", "64"), x, block=64, extra=SHARED)
    assert (x == np.arange(64) ^ 32).all()
    with pytest.raises(UninitialisedFault, match="nobody had written") as caught:
        run(body.replace("LIMIT", "63"), x, block=64, extra=SHARED)
    assert caught.value.thread == (31, 0, 0)
    assert "st.global" in caught.value.instruction


def test_uninitialised_shared_may_be_loaded_and_dropped():
    x = np.zeros(64, np.int32)
    body = (
        ADDRESSES
        + """ld.shared.u32 %r4, [%r1]; MORE
    mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r4;"""
    )
    run(body.replace("MORE", "mov.u32 %r4, %r0;"), x, block=64, extra=SHARED)
    assert (x == np.arange(64)).all()
    with pytest.raises(UninitialisedFault):
        run(body.replace("MORE", ""), x, block=64, extra=SHARED)


RACES = {
    # name: (before, after): the barrier between them is what the faulty kernel lacks
    "write then read": ("st.shared.u32 [%r1], %r0;", "ld.shared.u32 %r4, [%r2];"),
    "write then write": ("st.shared.u32 [%r1], %r0;", "st.shared.u32 [%r2], %r0;"),
    "read then write": ("ld.shared.u32 %r4, [%r1];", "st.shared.u32 [%r2], %r0;"),
    "write then atomic": ("st.shared.u32 [%r1], %r0;", "red.shared.add.u32 [%r2], 1;"),
    "bytes": ("st.shared.u8 [%r1+1], %r0;", "st.shared.u16 [%r2], %h0;"),
    "vector": ("st.shared.v2.u32 [%r5], {%r0, %r0};", "ld.shared.u32 %r4, [%r2];"),
}


@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize("seed", range(4))
def test_race(name, seed):
    before, after = RACES[name]
    start = ADDRESSES + "cvt.u16.u32 %h0, %r0; st.shared.u32 [%r1], 0; mad.lo.u32 %r5, %r0, 8, %r9; bar.sync 0;"
    if name == "vector":
        start += "setp.ge.u32 %p0, %r0, 16; @%p0 mov.u32 %r5, 512; @%p0 add.u32 %r5, %r5, %r9; @%p0 mad.lo.u32 %r5, %r0, 8, %r5;"
    end = "bar.sync 0;"
    run(start + before + "bar.sync 0;" + after + end, block=64, extra=SHARED, seed=seed)
    with pytest.raises(RaceFault, match="no barrier between"):
        run(start + before + after + end, block=64, extra=SHARED, seed=seed)
    run(start + before + after + end, block=64, extra=SHARED, seed=seed, races=False)


def test_no_race_within_a_word():
    """Warps that write different bytes of the same words do not race."""
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; mad.lo.u32 %r3, %r1, 4, %r2;
    add.u32 %r3, %r3, %r9; st.shared.u8 [%r3], %r0; bar.sync 0; ld.shared.u16 %h0, [%r9];""",
        block=64,
        extra=SHARED,
    )


def test_race_between_partial_barriers():
    """Two warps meet at a barrier of their own; the third never did."""
    body = (
        ADDRESSES
        + """shr.u32 %r6, %r0, 5; setp.eq.u32 %p0, %r6, 2; st.shared.u32 [%r1], %r0; @%p0 bra.uni LAST;
    bar.sync 1, 64; ld.shared.u32 %r4, [%r2]; bra.uni END;
    LAST: NEED ld.shared.u32 %r4, [%r9]; END: THERE"""
    )
    run(body.replace("NEED", "bar.sync 2, 96;").replace("THERE", "setp.ne.u32 %p1, %r6, 2; @%p1 bar.arrive 2, 96;"),
        block=96, extra=SHARED)  # fmt: skip
    with pytest.raises(RaceFault):
        run(body.replace("NEED", "").replace("THERE", ""), block=96, extra=SHARED)


COPY = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 16, %r9; mad.wide.u32 %d0, %r0, 16, %q0;
mad.wide.u32 %d1, %r0, 4, %q1; xor.b32 %r2, %r0, 32; mad.lo.u32 %r2, %r2, 16, %r9;
cp.async.cg.shared.global [%r1], [%d0], 16; cp.async.commit_group;
"""
COPY_END = "ld.shared.u32 %r4, [%r2]; st.global.u32 [%d1], %r4;"


@pytest.mark.parametrize("completion", ["late", "early"])
def test_copy_used_before_its_wait(completion):
    x, y = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    with pytest.raises(AsyncFault, match="in flight"):
        run(COPY + "bar.sync 0;" + COPY_END, x, y, block=64, extra=SHARED, completion=completion)
    with pytest.raises(AsyncFault):
        run(COPY + "cp.async.wait_group 1; bar.sync 0;" + COPY_END, x, y, block=64, extra=SHARED, completion=completion)
    run(COPY + "cp.async.wait_group 0; bar.sync 0;" + COPY_END, x, y, block=64, extra=SHARED, completion=completion)
    assert (y == 4 * (np.arange(64) ^ 32)).all()


def test_copy_overwritten_before_its_wait():
    x, y = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    with pytest.raises(AsyncFault, match="written"):
        run(COPY + "st.shared.u32 [%r1], 0;", x, y, block=64, extra=SHARED)
    run(COPY + "cp.async.wait_all; st.shared.u32 [%r1], 0;", x, y, block=64, extra=SHARED)


@pytest.mark.parametrize("seed", range(4))
def test_copy_waited_for_but_no_barrier(seed):
    """A wait orders a thread's own copies; what others see needs a barrier."""
    x, y = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    with pytest.raises((RaceFault, AsyncFault, UninitialisedFault)):
        run(COPY + "cp.async.wait_all;" + COPY_END, x, y, block=64, extra=SHARED, seed=seed)


def test_uniform_branch_that_diverges():
    body = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, LIMIT; @%p0 bra.uni L; add.u32 %r0, %r0, 1; L: ret;"
    run(body.replace("LIMIT", "32"), block=64)
    with pytest.raises(DivergenceFault, match="uni") as caught:
        run(body.replace("LIMIT", "40"), block=64)
    assert caught.value.thread == (40, 0, 0)


def test_aligned_barrier_reached_by_part_of_a_warp():
    body = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, LIMIT; @%p0 bra L; bar.sync 0; bra.uni END; L: bar.sync 0; END: ret;"
    run(body.replace("LIMIT", "32"), block=64)
    with pytest.raises(DivergenceFault, match="never come"):
        run(body.replace("LIMIT", "16"), block=64)


def test_shuffle_outside_its_mask():
    body = "mov.u32 %r0, %tid.x; shfl.sync.idx.b32 %r1, %r0, 0, 31, MASK;"
    run(body.replace("MASK", "0xffffffff"))
    with pytest.raises(DivergenceFault, match="member mask") as caught:
        run(body.replace("MASK", "0xffff"))
    assert caught.value.thread == (16, 0, 0)


def test_shuffle_from_an_absent_lane():
    body = """mov.u32 %r0, %laneid; setp.ge.u32 %p0, %r0, 16; @%p0 bra END;
    shfl.sync.idx.b32 %r1, %r0, LANE, 31, 0xffff; END: ret;"""
    run(body.replace("LANE", "15"))
    with pytest.raises(DivergenceFault, match="does not take part"):
        run(body.replace("LANE", "16"))


def test_barrier_counts_that_disagree():
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 bra.uni A; bar.sync 1, 64; bra.uni END;
    A: bar.sync 1, COUNT; END: ret;"""
    run(body.replace("COUNT", "64"), block=64)
    with pytest.raises(BarrierFault, match="while others wait for"):
        run(body.replace("COUNT", "96"), block=64)


@pytest.mark.parametrize(("number", "count", "words"), [(16, 64, "16"), (1, 48, "multiple"), (1, 64, "")])
def test_barrier_numbers(number, count, words):
    body = f"bar.sync {number}, {count};"
    if words:
        with pytest.raises(BarrierFault, match=words):
            run(body, block=64)
    else:
        run(body, block=64)


def test_barrier_that_nobody_completes():
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; bar.sync 1, COUNT;"""
    run(body.replace("COUNT", "64"), block=64)
    with pytest.raises(DeadlockFault, match="barrier 1: 64 of 96 threads") as caught:
        run(body.replace("COUNT", "96"), block=64)
    assert "bar.sync 1, 96" in caught.value.instruction


def test_poll_that_nobody_answers():
    body = "st.global.u32 [%q0], VALUE; L: ld.acquire.gpu.global.u32 %r1, [%q0]; setp.eq.u32 %p0, %r1, 0; @%p0 bra L;"
    x = np.zeros(1, np.int32)
    run(body.replace("VALUE", "1"), x)
    with pytest.raises(DeadlockFault, match="polls"):
        run(body.replace("VALUE", "0"), x)


def test_trap():
    body = "mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, LANE; @%p0 trap;"
    run(body.replace("LANE", "32"))
    with pytest.raises(Fault, match="trap") as caught:
        run(body.replace("LANE", "5"))
    assert caught.value.thread == (5, 0, 0)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("frob.u32 %r0, 1;", UnsupportedError, "frob.u32"),
        ("add.weird.u32 %r0, %r0, 1;", UnsupportedError, "weird"),
        ("mov.u32 %r0, %nosuch;", ParseError, "%nosuch"),
        ("mov.u32 %r99, 1;", ParseError, "%r99"),
        ("bra NOWHERE;", ParseError, "NOWHERE"),
        ("mov.u32 %r0 1;", ParseError, "line"),
        ("mov.u32 %d0, 1;", ParseError, "64 bits"),
        ("add.f32 %f0, %f1, 1;", ParseError, "integer constant"),
        ("L: ret; L: ret;", ParseError, "twice"),
        ("mov.u32 %r0, `;", ParseError, "`"),
        ("ret", ParseError, "'}'"),
        (".frobnicate 3;", UnsupportedError, ".frobnicate"),
    ],
)
def test_text_that_cannot_run(body, error, words):
    with pytest.raises(error) as caught:
        launch(module(body), "k", 1, 1, [])
    assert words in str(caught.value)
    assert "line " in str(caught.value)


def test_arguments_that_do_not_fit():
    text = module("ret;", ".param .u64 a, .param .u32 n")
    x = np.zeros(4, np.float32)
    launch(text, "k", 1, 1, [x, np.uint32(1)])
    for args, words in [
        ([x], "2 arguments"),
        ([x, 1], "NumPy scalar"),
        ([x, 1.0], "NumPy scalar"),
        ([x, np.uint64(1)], "8 bytes"),
        ([x, x], "no pointer"),
        ([np.uint32(1), np.uint32(1)], "4 bytes"),
        ([np.zeros((4, 4))[:, 1], np.uint32(1)], "contiguous"),
        (["x", np.uint32(1)], "str"),
    ]:
        with pytest.raises(InputError, match=words):
            launch(text, "k", 1, 1, args)
    for grid, block, shared, words in [
        (0, 1, 0, "grid.x"), (1, (1, 2000), 0, "block.y"), (1, (32, 33), 0, "1056"), (1, 1, 300000, "shared_bytes"),
        ("a", 1, 0, "grid"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=words):
            launch(text, "k", grid, block, [x, np.uint32(1)], shared)
    with pytest.raises(InputError, match="nope"):
        launch(text, "nope", 1, 1, [])
    with pytest.raises(InputError, match="completion"):
        launch(text, "k", 1, 1, [x, np.uint32(1)], completion="never")
    limited = module("ret;", directives=".maxntid 64")
    with pytest.raises(InputError, match="maxntid"):
        launch(limited, "k", 1, 65, [])
