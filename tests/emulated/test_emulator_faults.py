"""Every fault: a kernel with exactly that fault, and the fixed kernel, which passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import launch, module, run

from ptxgen.emulator import Machine
from ptxgen.emulator.engine.jit_blocks import available
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


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "mad.wide.u32 %d0, %r0, 4, %q1; ld.global.u32 %r1, [%d0];",
            "4 bytes at offset 124, 0 bytes past the end of q1, s32[31]",
        ),
        ("ld.global.u32 %r1, [%q1+128];", "4 bytes at offset 128, 4 bytes past the end of q1, s32[31]"),
        ("ld.global.u32 %r1, [%q0+-8];", "4 bytes at offset -8, 8 bytes before the start of q0 and q2, f16[4x8]"),
        (
            "ld.global.v4.u32 {%r1, %r1, %r1, %r1}, [%q1+112];",
            "16 bytes at offset 112, 4 of them past the end of q1, s32[31]",
        ),
        (
            "mov.u64 %d0, table; ld.global.u16 %h1, [%d0+10];",
            "2 bytes at offset 10, 0 bytes past the end of table, u16[5]",
        ),
        # far past the end of the first, nearer to the second: the other lanes tell which one is meant
        (
            "mad.wide.u32 %d0, %r0, 60000, %q0; ld.global.u8 %h1, [%d0];",
            "1 bytes at offset 60000, 59936 bytes past the end of q0",
        ),
    ],
)
def test_out_of_bounds_names_the_parameter_and_the_offset(body, words):
    a, b = np.zeros((4, 8), np.float16), np.zeros(31, np.int32)
    with pytest.raises(OutOfBoundsFault) as caught:
        run("mov.u32 %r0, %tid.x;" + body, a, b, a, extra=".global .align 8 .u16 table[5];")
    assert str(caught.value).startswith(words)


def test_out_of_bounds_without_types():
    """A driver gives no types: the report names the parameter that points to the allocation, or its address."""
    machine = Machine()
    loaded = machine.load(
        module("ld.param.u64 %d0, [p]; st.global.u32 [%d0+OFF], 1;".replace("OFF", "64"), ".param .u64 p")
    )
    x = machine.alloc(64)
    with pytest.raises(OutOfBoundsFault, match="0 bytes past the end of the allocation of 64 bytes that p points to"):
        machine.launch(loaded, "k", 1, 1, x.to_bytes(8, "little"))
    with pytest.raises(OutOfBoundsFault, match=rf"past the end of the allocation of 64 bytes at {x:#x}"):
        machine.launch(loaded, "k", 1, 1, (x + 64).to_bytes(8, "little"))


def test_source_lines():
    """PTX of nvcc -lineinfo: a called function, and an inlined one."""
    text = (Path(__file__).parent / "emulator_ptx" / "inlined.ptx").read_text()
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    launch(text, "_Z1kPfPKfi", 1, 32, [y, x, np.int32(31)])
    assert (y == 2 * x).all()
    for read, written, n, source in ((31, 32, 31, "saxpy.cu:3"), (32, 31, 31, "saxpy.cu:8")):
        with pytest.raises(OutOfBoundsFault) as caught:
            launch(text, "_Z1kPfPKfi", 1, 32, [y[:written].copy(), x[:read].copy(), np.int32(n)])
        assert caught.value.source == source
        assert f"\n  source       {source}" in str(caught.value)
    called = text.replace("add.f32", "trap; add.f32")
    with pytest.raises(Fault, match="trap") as caught:
        launch(called, "_Z1kPfPKfi", 1, 32, [y, x, np.int32(31)])
    assert caught.value.source == "saxpy.cu:1"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("bar.snyc 0;", "bar.sync"),
        ("mvo.u32 %r0, 1;", "mov.u32"),
        ("add.rnn.f32 %f0, %f1, %f1;", "add.rn.f32"),
        ("ld.glboal.u32 %r0, [%d0];", "ld.global.u32"),
        (
            "mma.sync.algined.m16n8k8.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r0}, {%f0};",
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        ),
        ("frob.u32 %r0, 1;", None),
        ("add.weird.u32 %r0, %r0, 1;", None),
    ],
)
def test_misspelt_instructions(wrong, right):
    with pytest.raises(UnsupportedError) as caught:
        launch(module(wrong), "k", 1, 1, [])
    text = str(caught.value)
    assert (f", did you mean {right}: {wrong}" in text) if right else "did you mean" not in text


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
    with pytest.raises(UninitialisedFault, match="uninitialised shared memory") as caught:
        run(body.replace("LIMIT", "63"), x, block=64, extra=SHARED)
    assert caught.value.thread == (31, 0, 0)
    assert "st.global" in caught.value.instruction


def test_unused_uninitialised_shared_memory_is_no_fault():
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


#: an mbarrier that nobody uses: the checks are then those of programs with asynchronous work
ASYNCHRONOUS = "setp.eq.u32 %p3, %r0, 99; @%p3 mbarrier.init.shared.b64 [other], 1;"
HEADS = pytest.mark.parametrize("head", ["", ASYNCHRONOUS], ids=["plain", "asynchronous"])
BOTH = SHARED + ".shared .align 8 .b8 other[8];"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "engine",
    ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not available(), reason="llvmlite is not installed"))],
)
@HEADS
def test_missing_barrier_is_a_race_if_the_reader_is_first(head, engine, seed):
    """No warp has written the memory when the first warp reads it."""
    body = f"""{ADDRESSES} {head} add.u32 %r6, %r0, 7; st.shared.u32 [%r1], %r6; MEET ld.shared.u32 %r4, [%r2];
    add.u32 %r4, %r4, 1; mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r4;"""
    x = np.zeros(64, np.int32)
    run(body.replace("MEET", "bar.sync 0;"), x, block=64, extra=BOTH, seed=seed, engine=engine)
    assert (x == (np.arange(64) ^ 32) + 8).all()
    with pytest.raises(RaceFault, match=r"write by warp \d and read by warp \d .* no barrier between"):
        run(body.replace("MEET", ""), x, block=64, extra=BOTH, seed=seed, engine=engine)


SAME = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; and.b32 %r1, %r0, 31; mad.lo.u32 %r2, %r1, SIZE, %r9; shr.u32 %r3, %r0, 5;
VALUE
FIRST STORE bar.sync 0;
ld.shared.u32 %r5, [%r2]; mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r5;"""
SAME_STORES = {
    "words": (4, "st.shared.u32 [%r2], %r4;"),
    "vectors": (16, "st.shared.v4.u32 [%r2], {%r4, %r4, %r4, %r4};"),
    "twice": (4, "st.shared.u32 [%r2], %r3; st.shared.u32 [%r2], %r4;"),
    "matrices": (16, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%r4, %r4, %r4, %r4};"),
}


@pytest.mark.parametrize("seed", range(3))
@HEADS
@pytest.mark.parametrize("name", [name for name in SAME_STORES if name != "twice"])
def test_warps_store_one_value_at_one_address(name, head, seed):
    """A replicated layout: each warp stores the same value. That is a note, not a fault; a different value is a fault."""
    size, store = SAME_STORES[name]
    text = SAME.replace("SIZE", str(size)).replace("STORE", store)
    text = text.replace("FIRST", head)
    options = {"block": 96, "extra": BOTH, "seed": seed}
    x = np.zeros(96, "u4")
    stats = run(text.replace("VALUE", "add.u32 %r4, %r1, 5;"), x, **options)
    assert name == "matrices" or (x == np.tile(np.arange(32) + 5, 3)).all()
    assert len(stats.notes) == 1
    assert "several warps store the same value at one address" in stats.notes[0]
    # one lane of one warp has another value
    other = "add.u32 %r4, %r1, 5; setp.eq.u32 %p0, %r0, 37; @%p0 mov.u32 %r4, 99;"
    with pytest.raises(RaceFault, match=r"write by warp \d and write by warp \d .* no barrier between"):
        run(text.replace("VALUE", other), x, **options)
    assert not run(text.replace("VALUE", other), x, races=False, **options).notes


@pytest.mark.parametrize("seed", range(6))
def test_intermediate_value_is_a_race(seed):
    """All end with the same value, but one warp stores another value first, at any moment."""
    size, store = SAME_STORES["twice"]
    text = SAME.replace("SIZE", str(size)).replace("STORE", store).replace("FIRST", "")
    with pytest.raises(RaceFault, match="no barrier between"):
        run(text.replace("VALUE", "add.u32 %r4, %r1, 5;"), np.zeros(96, "u4"), block=96, extra=SHARED, seed=seed)


def test_no_note_for_separate_addresses():
    """Warps that store at separate addresses, in the same pages."""
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; mad.lo.u32 %r3, %r1, 2, %r2;
    add.u32 %r3, %r3, %r9; st.shared.u8 [%r3], 7; bar.sync 0; xor.b32 %r3, %r3, 1; st.shared.u8 [%r3], 7;"""
    assert run(body, block=64, extra=SHARED).notes == []


def test_no_race_within_a_word():
    """Warps that write different bytes of the same words do not race."""
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; mad.lo.u32 %r3, %r1, 4, %r2;
    add.u32 %r3, %r3, %r9; st.shared.u8 [%r3], %r0; bar.sync 0; ld.shared.u16 %h0, [%r9];""",
        block=64,
        extra=SHARED,
    )


def test_race_between_partial_barriers():
    """Two warps wait at a barrier of their own; the third does not."""
    body = (
        ADDRESSES
        + """shr.u32 %r6, %r0, 5; setp.eq.u32 %p0, %r6, 2; st.shared.u32 [%r1], %r0; @%p0 bra.uni LAST;
    bar.sync 1, 64; ld.shared.u32 %r4, [%r2]; bra.uni END;
    LAST: NEED ld.shared.u32 %r4, [%r9]; END: THERE"""
    )
    run(
        body.replace("NEED", "bar.sync 2, 96;").replace("THERE", "setp.ne.u32 %p1, %r6, 2; @%p1 bar.arrive 2, 96;"),
        block=96,
        extra=SHARED,
    )
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


def test_copy_that_some_lanes_have_awaited():
    x, y = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    body = (
        COPY + "and.b32 %r5, %r0, 31; setp.lt.u32 %p0, %r5, 9; @%p0 cp.async.wait_all; LOAD st.global.u32 [%d1], %r4;"
    )
    run(body.replace("LOAD", "@%p0 ld.shared.u32 %r4, [%r1]; @!%p0 mov.u32 %r4, 0;"), x, y, block=64, extra=SHARED)
    with pytest.raises(AsyncFault, match="in flight") as caught:
        run(body.replace("LOAD", "ld.shared.u32 %r4, [%r1];"), x, y, block=64, extra=SHARED)
    assert caught.value.thread[0] % 32 == 9


@pytest.mark.parametrize("seed", range(4))
def test_race_in_one_block(seed):
    """The blocks run together, and a barrier orders the warps of all but one."""
    y = np.zeros(256, np.int32)
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; xor.b32 %r2, %r0, 32;
    mad.lo.u32 %r2, %r2, 4, %r9; st.shared.u32 [%r1], %r0; mov.u32 %r3, %ctaid.x; setp.ne.u32 %p0, %r3, SKIPS;
    @%p0 bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 ld.shared.u32 %r4, [%r2];"""
    run(body.replace("SKIPS", "4"), y, grid=4, block=64, extra=SHARED, seed=seed)
    with pytest.raises(RaceFault, match="no barrier between") as caught:
        run(body.replace("SKIPS", "2"), y, grid=4, block=64, extra=SHARED, seed=seed, uninitialised=False)
    assert caught.value.block == (2, 0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_wait_for_a_copy_without_a_barrier(seed):
    """A wait orders a thread's own copies; other threads need a barrier."""
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
    with pytest.raises(DivergenceFault, match="never reach"):
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
    with pytest.raises(DivergenceFault, match="a lane that does not execute it"):
        run(body.replace("LANE", "16"))


def test_barrier_counts_that_disagree():
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 bra.uni A; bar.sync 1, 64; bra.uni END;
    A: bar.sync 1, COUNT; END: ret;"""
    run(body.replace("COUNT", "64"), block=64)
    with pytest.raises(BarrierFault, match="while others wait for"):
        run(body.replace("COUNT", "96"), block=64)


@pytest.mark.parametrize(("number", "count", "words"), [(16, 64, "16"), (1, 48, "multiple"), (1, 64, "")])
def test_barrier_numbers(number, count, words):
    body = f"mov.u32 %r0, {number}; mov.u32 %r1, {count}; bar.sync %r0, %r1;"
    if words:
        with pytest.raises(BarrierFault, match=words):
            run(body, block=64)
    else:
        run(body, block=64)


def test_barrier_that_no_warp_completes():
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; bar.sync 1, COUNT;"""
    run(body.replace("COUNT", "64"), block=64)
    with pytest.raises(DeadlockFault, match="barrier 1: 64 of 96 threads") as caught:
        run(body.replace("COUNT", "96"), block=64)
    assert "bar.sync 1, 96" in caught.value.instruction


def test_poll_without_a_writer():
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
        ("mov.u32 %d0, 1;", ParseError, "a .b64 register"),
        ("add.f32 %f0, %f1, 1;", ParseError, "integer constant"),
        ("L: ret; L: ret;", ParseError, "twice"),
        ("mov.u32 %r0, `;", ParseError, "`"),
        ("ret", ParseError, "'}'"),
        (".frobnicate 3;", UnsupportedError, ".frobnicate"),
    ],
)
def test_invalid_text(body, error, words):
    with pytest.raises(error) as caught:
        launch(module(body), "k", 1, 1, [])
    assert words in str(caught.value)
    assert "line " in str(caught.value)


def test_invalid_arguments():
    text = module("ret;", ".param .u64 a, .param .u32 n")
    x = np.zeros(4, np.float32)
    launch(text, "k", 1, 1, [x, np.uint32(1)])
    for args, words in [
        ([x], r"args has 1 elements; it must have 2, the parameters of k: \.u64 a, \.u32 n"),
        ([x, 1], "NumPy scalar"),
        ([x, 1.0], "NumPy scalar"),
        ([x, np.uint64(1)], r"argument 1 \(n, \.u32\) has 8 bytes; it must have 4"),
        ([x, x], "is an array; it must be a NumPy scalar, as the parameter is no pointer"),
        ([np.uint32(1), np.uint32(1)], "4 bytes"),
        ([np.zeros((4, 4))[:, 1], np.uint32(1)], "contiguous"),
        (["x", np.uint32(1)], "str"),
    ]:
        with pytest.raises(InputError, match=words):
            launch(text, "k", 1, 1, args)
    for grid, block, shared, words in [
        (0, 1, 0, "grid.x"),
        (1, (1, 2000), 0, "block.y"),
        (1, (32, 33), 0, "1056"),
        (1, 1, 300000, "shared_bytes"),
        ("a", 1, 0, "grid"),
    ]:
        with pytest.raises(InputError, match=words):
            launch(text, "k", grid, block, [x, np.uint32(1)], shared)
    with pytest.raises(InputError, match="nope"):
        launch(text, "nope", 1, 1, [])
    with pytest.raises(InputError, match="completion"):
        launch(text, "k", 1, 1, [x, np.uint32(1)], completion="never")
    limited = module("ret;", directives=".maxntid 64")
    with pytest.raises(InputError, match="maxntid"):
        launch(limited, "k", 1, 65, [])
