"""Hazards between threads: for each a kernel that has it, and a fixed kernel, on both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kernels import module, run

from ptxgen.emulator import Machine
from ptxgen.errors import AsyncFault, BarrierFault, Fault, OutOfBoundsFault, RaceFault

ENGINES = ("numpy", "llvm")
SHARED = ".shared .align 128 .b8 sm[4096]; .shared .align 8 .b64 bar;"
#: %r0 thread, %r1 its word of `sm`, %r2 the word of its neighbour lane, %d0 its word of the buffer, %d1 its neighbour's
LANES = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; xor.b32 %r3, %r0, 1;
mad.lo.u32 %r2, %r3, 4, %r9; mad.wide.u32 %d0, %r0, 4, %q0; mad.wide.u32 %d1, %r3, 4, %q0; add.u32 %r4, %r0, 7;
"""
#: %d0: the buffer's word of this thread of the grid, %d1: that of the same thread of the other block
BLOCKS = """mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; xor.b32 %r3, %r2, 1; mad.lo.u32 %r4, %r2, 64, %r0;
mad.lo.u32 %r5, %r3, 64, %r0; mad.wide.u32 %d0, %r4, 4, %q0; mad.wide.u32 %d1, %r5, 4, %q0; add.u32 %r6, %r4, 7;
"""
ALL = "bar.warp.sync 0xffffffff;"
#: lanes 0 to 15 and 16 to 31 synchronise on their own
HALVES = "mov.u32 %r8, 0xffff; setp.lt.u32 %p1, %r0, 16; @!%p1 mov.u32 %r8, 0xffff0000; bar.warp.sync %r8;"


def fails(fault: type[Fault], words: str, body: str, *args: Any, **options: Any) -> None:
    """Both engines report the same fault, under several orders of the warps."""
    for seed in range(3):
        texts = []
        for engine in ENGINES:
            with pytest.raises(fault, match=words) as caught:
                run(body, *[a.copy() for a in args], engine=engine, seed=seed, **{"extra": SHARED, **options})
            assert type(caught.value) is fault
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


def passes(body: str, *args: Any, **options: Any) -> list[Any]:
    """No engine reports a fault; the buffers after the launch."""
    for seed in range(3):
        for engine in ENGINES:
            buffers = [a.copy() for a in args]
            run(body, *buffers, engine=engine, seed=seed, **{"extra": SHARED, **options})
    return buffers


def words(count: int) -> Any:
    return np.zeros(count, np.uint32)


# ---- lanes of one warp

EXCHANGES = {
    "write then read": "st.shared.u32 [%r1], %r4; SYNC ld.shared.u32 %r5, [%r2];",
    "read then write": f"st.shared.u32 [%r1], %r4; {ALL} ld.shared.u32 %r5, [%r2]; SYNC st.shared.u32 [%r1], %r5;",
    "bytes": "st.shared.u8 [%r1+1], %r4; SYNC ld.shared.u8 %r5, [%r2+1];",
    "vectors": "shl.b32 %r6, %r0, 3; add.u32 %r6, %r6, %r9; st.shared.v2.u32 [%r6], {%r4, %r4}; SYNC xor.b32 %r6, %r6, 8;"
    " ld.shared.u32 %r5, [%r6+4];",
    "generic": "cvt.u64.u32 %d2, %r1; cvta.shared.u64 %d2, %d2; st.u32 [%d2], %r4; SYNC ld.shared.u32 %r5, [%r2];",
    "matrices": "shl.b32 %r6, %r0, 4; add.u32 %r6, %r6, %r9; st.shared.u32 [%r6], %r4; st.shared.u32 [%r6+4], %r4;"
    "st.shared.u32 [%r6+8], %r4; st.shared.u32 [%r6+12], %r4; SYNC xor.b32 %r6, %r6, 16;"
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r10, %r11, %r12}, [%r6];",
    "an atomic": "st.shared.u32 [%r1], %r4; SYNC atom.shared.add.u32 %r5, [%r2], 1;",
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_lanes_exchange_through_shared_memory(name: str) -> None:
    body = LANES + EXCHANGES[name] + "st.global.u32 [%d0], %r5;"
    fails(RaceFault, "same warp.*bar.warp.sync", body.replace("SYNC", ""), words(64), block=64)
    for sync in (ALL, HALVES, "bar.sync 0;", "barrier.sync 0;"):
        passes(body.replace("SYNC", sync), words(32))


def test_lanes_outside_the_mask_are_not_ordered() -> None:
    body = LANES.replace("xor.b32 %r3, %r0, 1", "xor.b32 %r3, %r0, 16") + EXCHANGES["write then read"]
    fails(RaceFault, "same warp", body.replace("SYNC", HALVES), words(32))
    passes(body.replace("SYNC", ALL), words(32))


def test_order_is_transitive_over_groups_of_lanes() -> None:
    """Lanes of the halves synchronise, then one lane of each: so lane 0 is ordered after all of them."""
    pair = "setp.eq.u32 %p2, %r8, 0; and.b32 %r7, %r0, 15; setp.ne.u32 %p2, %r7, 0; @%p2 bra NEXT; PAIR NEXT: "
    body = LANES + "st.shared.u32 [%r1], %r4;" + HALVES + pair
    body += "setp.ne.u32 %p3, %r0, 0; @%p3 bra END; ld.shared.u32 %r5, [%r9+124]; st.global.u32 [%q0], %r5; END: ret;"
    out = passes(body.replace("PAIR", "bar.warp.sync 0x10001;"), words(1))
    assert out[0][0] == 38
    fails(RaceFault, "same warp", body.replace("PAIR", ""), words(1))


def test_shuffles_order_nothing_in_memory() -> None:
    body = LANES + EXCHANGES["write then read"] + "st.global.u32 [%d0], %r5;"
    fails(RaceFault, "bar.warp.sync", body.replace("SYNC", "shfl.sync.idx.b32 %r6, %r0, 0, 31, 0xffffffff;"), words(32))


@pytest.mark.parametrize("space", ["shared", "global"])
def test_lanes_may_overwrite_data_that_others_have_read(space: str) -> None:
    """Lane i reads word i; after a shuffle its neighbour overwrites it."""
    own, other = ("%r1", "%r2") if space == "shared" else ("%d0", "%d1")
    body = (
        LANES + f"st.{space}.u32 [{own}], %r4; {ALL} ld.{space}.u32 %r5, [{own}]; GIVE st.{space}.u32 [{other}], %r6;"
    )
    assert passes(
        body.replace("GIVE", "shfl.sync.bfly.b32 %r6, %r5, 3, 31, 0xffffffff; add.u32 %r6, %r6, 1;"), words(32)
    )
    half = "mov.u32 %r8, 0xffff; setp.lt.u32 %p1, %r0, 16; @!%p1 mov.u32 %r8, 0xffff0000;"
    assert passes(
        body.replace("GIVE", half + "shfl.sync.bfly.b32 %r6, %r5, 3, 31, %r8; add.u32 %r6, %r6, 1;"), words(32)
    )
    fails(RaceFault, "same warp", body.replace("GIVE", "add.u32 %r6, %r5, 1;"), words(32))


def test_reduction_that_relies_on_lockstep() -> None:
    step = "add.u32 %r6, %r1, {0}; ld.volatile.shared.u32 %r7, [%r6]; SYNC add.u32 %r4, %r4, %r7; st.volatile.shared.u32 [%r1], %r4; SYNC"
    body = LANES + "st.volatile.shared.u32 [%r1], %r4; st.volatile.shared.u32 [%r1+128], 0; SYNC"
    body += "".join(step.format(4 * n) for n in (16, 8, 4, 2, 1)) + "st.global.u32 [%d0], %r4;"
    fails(RaceFault, "same warp", body.replace("SYNC", ""), words(32))
    assert passes(body.replace("SYNC", ALL), words(32))[0][0] == sum(range(7, 39))


def test_histogram_without_atomics() -> None:
    zero = f"st.shared.u32 [%r1], 0; {ALL} and.b32 %r3, %r0, BINS; mad.lo.u32 %r2, %r3, 4, %r9;"
    plain = "ld.shared.u32 %r5, [%r2]; add.u32 %r5, %r5, 1; st.shared.u32 [%r2], %r5;"
    end = f"{ALL} ld.shared.u32 %r5, [%r1]; st.global.u32 [%d0], %r5;"
    fails(RaceFault, "same warp", LANES + zero.replace("BINS", "7") + plain + end, words(32))
    out = passes(LANES + zero.replace("BINS", "7") + "red.shared.add.u32 [%r2], 1;" + end, words(32))
    assert out[0].tolist() == [4] * 8 + [0] * 24
    assert (passes(LANES + zero.replace("BINS", "31") + plain + end, words(32))[0] == 1).all()


def test_lanes_write_one_value_and_read_it() -> None:
    """Each lane may read the value that it wrote itself; lanes may write one address, as the last value stays."""
    passes(LANES + "st.shared.u32 [%r9], 5; ld.shared.u32 %r5, [%r9]; st.global.u32 [%d0], %r5;", words(32))


def test_mbarrier_initialised_by_another_lane() -> None:
    body = (
        LANES
        + """setp.ne.u32 %p0, %r0, 0; @%p0 bra READY; mbarrier.init.shared.b64 [bar], 32; READY: SYNC
    mbarrier.arrive.shared.b64 %d2, [bar]; W: mbarrier.try_wait.shared.b64 %p1, [bar], %d2; @!%p1 bra W;"""
    )
    fails(RaceFault, "initialised is used, with no bar.warp.sync", body.replace("SYNC", ""), words(32))
    passes(body.replace("SYNC", ALL), words(32))
    arrive = "bar.arrive 1, 64;"  # it does not wait
    fails(RaceFault, "initialised is used", body.replace("SYNC", arrive), words(32))
    other = body.replace("[bar], 32", "[bar], 64").replace("@%p0 bra READY;", "@%p0 bra READY; bar.warp.sync 1;")
    with pytest.raises((RaceFault, BarrierFault)):  # it is not initialised, or no barrier orders the initialisation
        run(other.replace("SYNC", ""), words(64), block=64, extra=SHARED)
    passes(other.replace("SYNC", "bar.sync 0;"), words(64), block=64)


# ---- global memory

GLOBAL = {
    "write then read": "st.global.u32 [%d0], %r4; SYNC ld.global.u32 %r5, [%d1]; st.global.u32 [%d0+512], %r5;",
    "read then write": "ld.global.u32 %r5, [%d1]; SYNC st.global.u32 [%d0], %r4; st.global.u32 [%d0+512], %r5;",
    "write then write": "st.global.u32 [%d0], %r4; SYNC st.global.u32 [%d1], %r4;",
    "write then atomic": "st.global.u32 [%d0], %r4; SYNC red.global.add.u32 [%d1], 1;",
    "copies": "st.global.u32 [%d0], %r4; SYNC cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all;",
    "halves": "cvt.u16.u32 %h0, %r4; st.global.u16 [%d0+2], %h0; SYNC ld.global.u16 %h1, [%d1+2];",
}


@pytest.mark.parametrize("name", GLOBAL)
def test_races_within_a_block(name: str) -> None:
    start = LANES.replace("xor.b32 %r3, %r0, 1", "xor.b32 %r3, %r0, 32")
    body = start + GLOBAL[name]
    fails(RaceFault, "global memory.*no barrier", body.replace("SYNC", ""), words(256), block=64)
    passes(body.replace("SYNC", "bar.sync 0;"), words(256), block=64)
    passes(body.replace("SYNC", ""), words(256), block=64, global_races=False)


@pytest.mark.parametrize("name", GLOBAL)
def test_races_within_a_warp(name: str) -> None:
    body = LANES + GLOBAL[name]
    fails(RaceFault, "global memory.*bar.warp.sync", body.replace("SYNC", ""), words(256))
    passes(body.replace("SYNC", ALL), words(256))
    passes(body.replace("SYNC", HALVES), words(256))


@pytest.mark.parametrize("lanes", [64, 32768])
@pytest.mark.parametrize("name", [n for n in GLOBAL if n != "copies"])
def test_races_between_blocks(name: str, lanes: int) -> None:
    """Also of blocks that are not resident together."""
    body = BLOCKS + "mov.u32 %r4, %r6; bar.sync 0;" + GLOBAL[name].replace("SYNC", "bar.sync 0;")
    fails(RaceFault, "global memory.*block", body, words(256), block=64, grid=2, lanes=lanes)
    own = body.replace("[%d1", "[%d0")
    passes(own, words(256), block=64, grid=2, lanes=lanes)


def test_no_race_between_blocks() -> None:
    """All write one value; atomic operations; a compare-and-swap loop that begins with a weak read."""
    passes("st.global.u32 [%q0], 1;", words(1), grid=4)
    passes("atom.global.add.u32 %r0, [%q0], 1; red.global.add.u32 [%q0], 1;", words(1), grid=4)
    out = passes(
        """ld.global.u32 %r0, [%q0]; L: add.u32 %r1, %r0, 1; atom.global.cas.b32 %r2, [%q0], %r0, %r1;
    setp.ne.u32 %p0, %r2, %r0; mov.u32 %r0, %r2; @%p0 bra L;""",
        words(1),
        grid=4,
    )
    assert out[0][0] == 128


def test_writes_of_several_blocks_in_one_step() -> None:
    fails(
        RaceFault,
        "block",
        "mov.u32 %r0, %ctaid.x; add.u32 %r0, %r0, 1; st.global.u32 [%q0], %r0;",
        words(1),
        grid=2,
        block=1,
    )


MESSAGE = """mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 1; @%p0 bra READ;
st.global.u32 [%q0], 42; TELL bra END;
READ: L: POLL setp.eq.u32 %p1, %r1, 0; @%p1 bra L; AFTER ld.global.u32 %r2, [%q0]; st.global.u32 [%q0+8], %r2; END: ret;"""
STORE, LOAD = "st.volatile.global.u32 [%q0+4], 1;", "ld.volatile.global.u32 %r1, [%q0+4];"
ADD, LOOK = "red.global.add.u32 [%q0+4], 1;", "atom.global.add.u32 %r1, [%q0+4], 0;"
MESSAGES = {
    "fences": ("membar.gl; " + STORE, LOAD, "membar.gl;"),
    "a weak flag": ("fence.acq_rel.gpu; st.global.u32 [%q0+4], 1;", LOAD, "fence.acq_rel.gpu;"),
    "release and acquire": ("st.release.gpu.global.u32 [%q0+4], 1;", "ld.acquire.gpu.global.u32 %r1, [%q0+4];", ""),
    "a fence and acquire": ("membar.sys; " + STORE, "ld.acquire.gpu.global.u32 %r1, [%q0+4];", ""),
    "atomic": ("fence.sc.gpu; " + ADD, LOOK, "bar.sync 0;"),
    "atomic release": ("red.release.gpu.global.add.u32 [%q0+4], 1;", LOOK.replace("atom", "atom.acquire.gpu"), ""),
    "a barrier after the fence": ("membar.gl; bar.sync 0; " + STORE, LOAD, "membar.gl;"),
}


def message(tell: str, poll: str, after: str) -> str:
    return MESSAGE.replace("TELL", tell).replace("POLL", poll).replace("AFTER", after)


@pytest.mark.parametrize("name", MESSAGES)
def test_message_with_fences(name: str) -> None:
    assert passes(message(*MESSAGES[name]), words(4), grid=2, block=1)[0][2] == 42


@pytest.mark.parametrize(
    ("tell", "poll", "after"),
    [
        (STORE, LOAD, ""),
        (STORE, LOAD, "membar.gl;"),
        ("membar.gl; " + STORE, LOAD, ""),
        ("membar.cta; " + STORE, LOAD, "membar.gl;"),
        ("st.global.u32 [%q0+4], 1;", LOAD, "membar.gl;"),
        (ADD, LOOK, "membar.gl;"),
        (STORE, "ld.acquire.gpu.global.u32 %r1, [%q0+4];", ""),
        ("st.release.cta.global.u32 [%q0+4], 1;", "ld.acquire.gpu.global.u32 %r1, [%q0+4];", ""),
        (STORE + " membar.gl;", LOAD, "membar.gl;"),
    ],
)
def test_message_without_a_fence(tell: str, poll: str, after: str) -> None:
    fails(RaceFault, "global memory.*block", message(tell, poll, after), words(4), grid=2, block=1)


LAST = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.wide.u32 %d0, %r1, 4, %q0; setp.ne.u32 %p0, %r0, 0;
@%p0 bra TICKET; add.u32 %r2, %r1, 1; st.global.u32 [%d0], %r2; FENCE atom.global.inc.u32 %r3, [%q0+64], 7;
st.shared.u32 [sm], %r3; TICKET: bar.sync 0; ld.shared.u32 %r3, [sm]; setp.ne.u32 %p1, %r3, 7; @%p1 bra END;
@%p0 bra END; mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u64 %d1, %q0;
L: ld.global.u32 %r6, [%d1]; add.u32 %r4, %r4, %r6; add.u64 %d1, %d1, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 8;
@%p2 bra L; st.global.u32 [%q0+68], %r4; st.global.u32 [%q0+64], 0; END: ret;"""


def test_last_block_adds_partial_sums() -> None:
    """Each block fences before its ticket; the block with the last ticket is ordered after all, and may reset the
    counter."""
    out = passes(LAST.replace("FENCE", "membar.gl;"), words(32), grid=8, block=64)
    assert out[0][17] == 36
    fails(RaceFault, "block", LAST.replace("FENCE", ""), words(32), grid=8, block=64)


def test_messages_between_warps_of_a_block() -> None:
    body = """mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 32; @%p0 bra READ; setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
    st.global.u32 [%q0], 42; FENCE st.volatile.global.u32 [%q0+4], 1; bra END;
    READ: L: ld.volatile.global.u32 %r1, [%q0+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; FENCE
    ld.global.u32 %r2, [%q0]; END: ret;"""
    for fence in ("membar.cta;", "fence.acq_rel.gpu;"):
        passes(body.replace("FENCE", fence), words(2), block=64)
    fails(RaceFault, "warp 0", body.replace("FENCE", ""), words(2), block=64)


# ---- dependent launches

FIRST = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; griddepcontrol.launch_dependents; WAIT {} ret;"


def launches(bodies: list[str], dependent: list[bool], **options: Any) -> bytes:
    """Kernels with one pointer, consecutive, of one block of 64 threads."""
    machine = Machine(**options)
    out = machine.alloc(1024)
    machine.write(out, np.zeros(256, np.uint32))
    for body, may_overlap in zip(bodies, dependent, strict=True):
        text = module("ld.param.u64 %q0, [q0];" + body, ".param .u64 q0", registers=".reg .b64 %q0;", extra=SHARED)
        machine.launch(machine.load(text), "k", 1, 64, out.to_bytes(8, "little"), dependent=may_overlap)
    return machine.read(out, 1024)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "touch",
    [
        "ld.global.u32 %r1, [%d0]; st.global.u32 [%d0+512], %r1;",
        "st.global.u32 [%d0+256], 3;",
        "red.global.add.u32 [%d0], 1;",
    ],
)
def test_dependent_launch(touch: str, engine: str) -> None:
    """The first kernel writes 64 words and reads the next 64."""
    first = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; ld.global.u32 %r1, [%d0+256]; st.global.u32 [%d0], 5;"
    start = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0;"
    wait = "griddepcontrol.wait;"
    launches([first, start + wait + touch], [False, True], engine=engine)
    launches([first, start + touch], [False, False], engine=engine)
    # one warp waits for the block
    some = "setp.ge.u32 %p0, %r0, 32; @%p0 bra ON; griddepcontrol.wait; ON: bar.sync 0;"
    launches([first, start + some + touch], [False, True], engine=engine)
    for early in (touch, touch + wait, some.replace("bar.sync 0;", "") + touch):
        with pytest.raises(RaceFault, match=r"preceding kernel k.*griddepcontrol\.wait"):
            launches([first, start + early], [False, True], engine=engine)
    # a kernel between them that does not wait orders nothing; one that waits does
    between = "mov.u32 %r0, 0;"
    launches([first, wait + between, start + wait + touch], [False, True, True], engine=engine)
    with pytest.raises(RaceFault, match=r"griddepcontrol\.wait"):
        launches([first, between, start + touch], [False, True, True], engine=engine)


# ---- bulk copies that read what threads wrote

BULK = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.wide.u32 %d0, %r0, 4, %q0; setp.ne.u32 %p0, %r0, 0;
@%p0 bra A; mbarrier.init.shared.b64 [bar], 1; A: st.global.u32 [%d0], %r0; FENCE bar.sync 0; @%p0 bra B; LATER
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%q0], 256, [bar];
B: W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;
mad.lo.u32 %r1, %r0, 4, %r9; ld.shared.u32 %r2, [%r1]; st.global.u32 [%d0+256], %r2;"""


@pytest.mark.parametrize("completion", ["late", "early"])
def test_bulk_copies_of_generic_writes(completion: str) -> None:
    def body(fence: str, later: str = "") -> str:
        return BULK.replace("FENCE", fence).replace("LATER", later)

    for fence in ("fence.proxy.async;", "fence.proxy.async.global;"):
        for text in (body(fence), body("", fence)):
            assert passes(text, words(128), block=64, completion=completion)[0][64:].tolist() == list(range(64))
    for fence in ("", "fence.proxy.async.shared::cta;", "membar.gl;"):
        fails(
            AsyncFault, "bulk copy reads global memory.*proxy", body(fence), words(128), block=64, completion=completion
        )
    race = body("fence.proxy.async;").replace("bar.sync 0;", "")
    with pytest.raises(Fault):
        run(race, words(128), block=64, extra=SHARED)


# ---- mbarrier arrivals

ARRIVE = """mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra A; mbarrier.init.shared.b64 [bar], COUNT; A: bar.sync 0;
mov.u32 %r5, 0; mov.u32 %r6, 0;
L: mbarrier.arrive.shared.b64 %d2, [bar]; MORE
W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], %r6; @!%p1 bra W;
xor.b32 %r6, %r6, 1; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra L;"""


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_too_many_arrivals(warps: int) -> None:
    threads = 32 * warps
    extra = "@!%p0 mbarrier.arrive.shared.b64 %d3, [bar];"
    passes(ARRIVE.replace("COUNT", str(threads)).replace("MORE", ""), block=threads)
    passes(ARRIVE.replace("COUNT", str(threads + 1)).replace("MORE", extra), block=threads)
    fails(BarrierFault, "arrival too many", ARRIVE.replace("COUNT", str(threads)).replace("MORE", extra), block=threads)


def test_arrival_count_too_small() -> None:
    fails(BarrierFault, "arrival too many", ARRIVE.replace("COUNT", "32").replace("MORE", ""), block=64)


# ---- local memory

LOCAL = """.local .align 8 .b8 own[64]; mov.u32 %r0, %tid.x; mov.u64 %d4, own; cvta.local.u64 %d5, %d4; add.u32 %r4, %r0, 7;
st.local.u32 [%d4], %r4; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 8, %r9; xor.b32 %r3, %r0, WHOSE; mad.lo.u32 %r2, %r3, 8, %r9;
st.shared.u64 [%r1], %d5; bar.sync 0; ld.shared.u64 %d6, [%r2]; mad.wide.u32 %d0, %r0, 4, %q0; USE"""


@pytest.mark.parametrize("use", ["ld.u32 %r5, [%d6];", "st.u32 [%d6], %r0; ld.local.u32 %r5, [%d4];"])
@pytest.mark.parametrize("whose", [1, 32])
def test_local_address_of_another_thread(use: str, whose: int) -> None:
    body = LOCAL.replace("USE", use + "st.global.u32 [%d0], %r5;")
    fails(OutOfBoundsFault, "local memory of another thread", body.replace("WHOSE", str(whose)), words(64), block=64)
    out = passes(body.replace("WHOSE", "0"), words(64), block=64)[0]
    assert out.tolist() == [i + 7 if use.startswith("ld") else i for i in range(64)]


def test_local_address_round_trip() -> None:
    body = """.local .align 8 .b8 own[64]; mov.u32 %r0, %tid.x; mov.u64 %d4, own; cvta.local.u64 %d5, %d4;
    add.u64 %d5, %d5, 8; st.u32 [%d5], %r0; cvta.to.local.u64 %d6, %d5; ld.local.u32 %r1, [%d6];
    isspacep.local %p0, %d5; @!%p0 trap; isspacep.global %p0, %d5; @%p0 trap; mad.wide.u32 %d0, %r0, 4, %q0;
    st.global.u32 [%d0], %r1;"""
    assert passes(body, words(64), block=64)[0].tolist() == list(range(64))


# ---- barriers in loops

LOOP = """mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, 0; START
L: setp.ge.u32 %p0, %r2, LIMIT; @%p0 bra OUT; SKIP bar.sync 0; NEXT: add.u32 %r2, %r2, 1; bra L; OUT: END"""


def loop(limit: str = "4", skip: str = "", end: str = "", start: str = "") -> str:
    return LOOP.replace("LIMIT", limit).replace("SKIP", skip).replace("END", end).replace("START", start)


@pytest.mark.parametrize("end", ["", "bar.sync 0;"])
def test_barrier_skipped_in_some_iterations(end: str) -> None:
    passes(loop(end=end), block=64)
    # warp 0 executes one iteration less than warp 1
    uneven = loop("%r3", start="add.u32 %r3, %r1, 3;", end=end)
    fails(BarrierFault, "again.*exited", uneven, block=64)
    # each warp skips the barrier in another iteration: the number of arrivals is the same
    fails(BarrierFault, "in iterations", loop(skip="setp.eq.u32 %p1, %r2, %r1; @%p1 bra NEXT;", end=end), block=64)
    # all warps skip it in the same iteration
    passes(loop(skip="setp.eq.u32 %p1, %r2, 1; @%p1 bra NEXT;", end=end), block=64)


def test_barriers_of_specialised_warps_in_loops() -> None:
    """Each role has a loop and a barrier of its own; a warp that exits before any barrier blocks no other."""
    passes(
        """mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, 0; setp.eq.u32 %p0, %r1, 0; @%p0 bra.uni A;
    B: bar.sync 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra.uni B; bra.uni END;
    A: bar.sync 0; add.u32 %r2, %r2, 2; setp.lt.u32 %p1, %r2, 8; @%p1 bra.uni A; END: ret;""",
        block=64,
    )
    passes(loop(start="setp.eq.u32 %p2, %r1, 1; @%p2 bra OUT;"), block=64)
