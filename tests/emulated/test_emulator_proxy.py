"""The generic and async proxies, fences between them, and whole TMA and wgmma pipelines, with and without faults."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulator_kernels import launch, module, run
from wgmma_kernels import KERNELS, close, cooperative, multiply, text

from ptxgen.errors import (
    AsyncFault,
    BarrierFault,
    DeadlockFault,
    Fault,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)

MODES = [(0, "early"), (1, "late")]


@pytest.mark.each_value
@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name, seed, completion):
    """Multiples of the tile, and sizes that are no multiple."""
    for shape in ((64, 48, 320), (136, 40, 200)):
        got, want, _ = multiply(name, *shape, seed=seed, completion=completion)
        assert close(got, want), shape


@pytest.mark.parametrize("name", ["plain", "multicast", "cluster_async"])
def test_kernels_without_checks_and_with_plain_sums(name):
    for options in ({"races": False, "uninitialised": False}, {"mma": "f32"}, {"stats": "full"}, {"lanes": 320}):
        got, want, stats = multiply(name, 128, 32, 192, **options)
        assert close(got, want)
        assert stats.mma == 2 * 2 * 12


@pytest.mark.parametrize("completion", ["early", "late"])
def test_cooperative_kernel(completion):
    """A producer warpgroup that releases registers, two consumers, a persistent grid."""
    got, want, stats = cooperative(200, 296, 136, completion=completion)
    assert close(got, want)
    assert stats.mma == 4 * 2 * 3 * 4


def edited(name: str, *changes: tuple[str, str]) -> str:
    """A kernel's text with parts replaced, each of which must occur."""
    out = text(name)
    for pattern, new in changes:
        out, count = re.subn(pattern, new, out, flags=re.S)
        assert count, pattern
    return out


#: what any pipeline fault may come out as, by the order of warps
LOST = (AsyncFault, RaceFault, UninitialisedFault)
BROKEN = {
    # name: (kernel, faults, words, edits)
    "the consumer does not wait for a stage": (
        "plain",
        LOST,
        "wgmma touches shared memory before a wait for the tensor copy|by warp",
        [(r"CW: mbarrier[^;]*; @!%p_w bra CW;", "mov.pred %p_w, 1;")],
    ),
    "the producer does not wait for an empty stage": (
        "plain",
        (*LOST, BarrierFault, DeadlockFault),
        "tensor copy|too few|bytes",
        [
            (
                r"PW: mbarrier[^;]*; "
                r"@!%p_w bra PW;",
                "",
            )
        ],
    ),
    "a stage is released before its products are complete": (
        "plain",
        (AsyncFault, DeadlockFault),
        "the tensor copy touches shared memory before a wait for wgmma|in phase 2",
        [(r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;")],
    ),
    "the accumulators are used before the last wait": (
        "plain",
        AsyncFault,
        "belongs to a wgmma",
        [(r"wgmma\.wait_group\.sync\.aligned 0;", "")],
    ),
    "no fence of registers": ("plain", AsyncFault, "no wgmma.fence", [(r"wgmma\.fence\.sync\.aligned;", "")]),
    "no fence between the staging and the store": (
        "plain",
        AsyncFault,
        r"the tensor copy reads shared memory .* no fence\.proxy\.async",
        [(r"fence\.proxy\.async\.shared::cta;", "")],
    ),
    "no barrier between the staging and the store": (
        "plain",
        LOST,
        "no barrier between|before it is written|by warp",
        [(r"(fence\.proxy\.async\.shared::cta;\s)bar\.sync 2, 128;", r"\1")],
    ),
    "exit while the store reads": (
        "plain",
        AsyncFault,
        "exits before a wait for the tensor copy",
        [(r"@%p_ld cp\.async\.bulk\.wait_group\.read 0;", "")],
    ),
    "too few bytes expected": (
        "plain",
        (*LOST, DeadlockFault),
        "too few|bytes pending|before a wait",
        [(r"(expect_tx\.shared::cta\.b64 _, \[%r_fb\]), 10240;", r"\1, 10224;")],
    ),
    "too many bytes expected": (
        "plain",
        DeadlockFault,
        "16 bytes pending",
        [(r"(expect_tx\.shared::cta\.b64 _, \[%r_fb\]), 10240;", r"\1, 10256;")],
    ),
    "one consumer too few counted": (
        "plain",
        (*LOST, BarrierFault, DeadlockFault),
        "",
        [(r"(\[%r_bar\+16\]), 1;", r"\1, 2;")],
    ),
    "barriers used before they are initialised": (
        "plain",
        BarrierFault,
        "execute mbarrier.init first",
        [(r"bar\.arrive 0, 160;", ""), (r"bar\.sync 0, 160;", "")],
    ),
    "the parity of the other lap": (
        "plain",
        (*LOST, BarrierFault, DeadlockFault),
        "",
        [(r"xor\.b32 %r_b, %r_ph, 1;", "mov.u32 %r_b, %r_ph;")],
    ),
    "a staging buffer is filled again before it was read": (
        "persistent",
        (AsyncFault, RaceFault),
        "written before a wait for the tensor copy|no barrier",
        [(r"@%p_ld cp\.async\.bulk\.wait_group\.read 1;", "")],
    ),
    "a block exits while its peers still load for it": (
        "multicast",
        (AsyncFault, RaceFault),
        "exit",
        [
            (r"setp\.lt\.u32 %p_l, %r_it, 2; @%p_l bra PD;", "setp.lt.u32 %p_l, %r_it, 2;"),
            (r"PX: mbarrier[^;]*; @!%p_w bra PX;", ""),
        ],
    ),
    "peers' barriers used before they are initialised": (
        "multicast",
        (BarrierFault, RaceFault, AsyncFault),
        "nothing orders that after its initialisation",
        [(r"barrier\.cluster\.wait\.acquire\.aligned;", ""), (r"barrier\.cluster\.arrive\.relaxed\.aligned;", "")],
    ),
    "partial sums read before they are there": (
        "cluster_async",
        LOST,
        "before a wait for st.async|uninitialised shared memory|by warp",
        [
            (
                r"RW: mbarrier[^;]*; "
                r"@!%p_w bra RW;",
                "",
            )
        ],
    ),
    "partial sums sent to a block that has not begun": (
        "cluster_async",
        (BarrierFault, *LOST),
        "",
        [(r"barrier\.cluster\.arrive\.relaxed\.aligned;", ""), (r"barrier\.cluster\.wait\.acquire\.aligned;", "")],
    ),
    "partial sums read without the cluster's barrier": (
        "cluster_sync",
        (*LOST, BarrierFault),
        "",
        [(r"barrier\.cluster\.arrive\.release\.aligned;\s*barrier\.cluster\.wait\.acquire\.aligned;", "")],
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("name", BROKEN)
def test_necessary_parts_of_a_pipeline(name, seed, completion):
    kernel, kinds, words, edits = BROKEN[name]
    with pytest.raises(kinds, match=words or None) as caught:
        multiply(kernel, 256, 64, 320, edited(kernel, *edits), seed=seed, blocks=2, completion=completion)
    assert caught.value.entry == "gemm"


# ---- fences

SHARED = ".shared .align 128 .b8 sm[1024];"
WRITE = (
    "mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 16, %r9; st.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0};"
)
SEND = """setp.eq.u32 %p0, %r0, SENDER; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%q0], [sm], 1024;
@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"""
FENCE = "fence.proxy.async;"


@pytest.mark.parametrize(
    ("before", "after", "good"),
    [
        ("", "", False),
        (FENCE, "", True),  # by the writers
        ("", FENCE, True),  # by the thread that copies, after a barrier with the writers
        ("", f"@%p1 {FENCE}", False),  # by another thread, without a barrier after the fence
        ("", f"@%p1 {FENCE} bar.sync 0;", True),
        ("fence.proxy.async.shared::cta;", "", True),
        ("fence.proxy.async.shared::cluster;", "", True),
        ("membar.cta; fence.acq_rel.gpu; fence.proxy.alias;", "", False),
        (f"@%p1 {FENCE}", "", False),  # by some of the writers
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_fences_that_order(before, after, good, seed):
    x = np.zeros(256, "u4")
    body = (
        "mov.u32 %r5, %tid.x; "
        "setp.ge.u32 %p1, %r5, 32;" + WRITE + before + "bar.sync 0;" + after + SEND.replace("SENDER", "0")
    )
    if good:
        run(body, x, block=64, extra=SHARED, seed=seed)
        assert (x == np.repeat(np.arange(64), 4)).all()
    else:
        with pytest.raises(AsyncFault, match=r"no fence\.proxy\.async"):
            run(body, x, block=64, extra=SHARED, seed=seed)


def test_write_after_the_fence_needs_another_fence():
    x = np.zeros(256, "u4")
    body = (
        WRITE + FENCE + "bar.sync 0; mov.u32 %r2, 7; setp.eq.u32 %p1, %r0, 5; @%p1 st.shared.u32 [%r1], %r2; "
        "MORE bar.sync 0;"
    )
    run(body.replace("MORE", FENCE) + SEND.replace("SENDER", "0"), x, block=64, extra=SHARED)
    assert x[20] == 7
    with pytest.raises(AsyncFault, match="that warp 0 wrote"):
        run(body.replace("MORE", "") + SEND.replace("SENDER", "0"), x, block=64, extra=SHARED)


def test_cp_async_is_generic():
    """Data of cp.async need the fence too, after the wait."""
    x, y = np.arange(256, dtype="u4"), np.zeros(256, "u4")
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 16, %r9; mad.wide.u32 %d1, %r0, 16, %q1;
    cp.async.cg.shared.global [%r1], [%d1], 16; EARLY cp.async.wait_all;
    LATE bar.sync 0;""" + SEND.replace("SENDER", "0")
    run(body.replace("EARLY", "").replace("LATE", FENCE), y, x, block=64, extra=SHARED)
    assert (x == y).all()
    for early in ("", FENCE):
        with pytest.raises(AsyncFault, match=r"no fence\.proxy\.async"):
            run(body.replace("EARLY", early).replace("LATE", ""), y, x, block=64, extra=SHARED)


def test_asynchronous_write_needs_no_fence():
    """The data of a complete copy may be the source of another."""
    x, y = np.arange(256, dtype="u4"), np.zeros(256, "u4")
    run(
        """mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
    @!%p0 bra END;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%q1], 1024, [bar];
    W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra W;"""
        + SEND.replace("SENDER", "0")
        + "END: ret;",
        y,
        x,
        block=64,
        extra=SHARED + ".shared .align 8 .b64 bar;",
    )
    assert (x == y).all()


# ---- the rest


def test_elect_and_grid_dependencies():
    x = np.zeros(64, "u4")
    run(
        """griddepcontrol.wait; elect.sync %r1|%p1, 0xffffffff; mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0;
    @%p1 st.global.u32 [%d0], 1; griddepcontrol.launch_dependents; elect.sync _|%p2, 0xffffffff;
    @%p2 red.global.add.u32 [%d0], 1;""",
        x,
        block=64,
    )
    assert x.sum() == 4
    assert x.max() == 2


def test_policies_and_prefetches():
    x = np.arange(64, dtype="u4")
    run(
        """createpolicy.fractional.L2::evict_first.b64 %d1, 0f3F800000;
    createpolicy.range.L2::evict_last.L2::evict_first.b64 %d2, [%q0], 128, 256;
    ld.global.L2::cache_hint.u32 %r0, [%q0], %d1; prefetch.global.L2 [%q0]; prefetch.global.L1 [%q0];
    st.global.u32 [%q0+4], %r0;""",
        x,
        block=1,
    )
    assert x[1] == 0


def test_unknown_instructions_have_names():
    for wrong in (
        "griddepcontrol.sleep;",
        "cp.async.bulk.commit_batch;",
        "mbarrier.wait.shared.b64 [sm];",
        "wgmma.sleep;",
    ):
        with pytest.raises(UnsupportedError, match=wrong.split()[0].split(".")[0]):
            launch(module(wrong, extra=SHARED), "k", 1, 32, [])


def test_report_names_kernel_line_lane_and_address():
    with pytest.raises(Fault) as caught:
        multiply("plain", 64, 16, 128, edited("plain", (r"fence\.proxy\.async\.shared::cta;", "")))
    fault = caught.value
    lines = text("plain").splitlines()
    assert "cp.async.bulk.tensor.2d.global" in lines[fault.line - 1]
    assert fault.entry == "gemm"
    assert fault.thread == (0, 0, 0)
    assert fault.block == (0, 0, 0)
    assert fault.address is not None
    assert "warp" in str(fault)
