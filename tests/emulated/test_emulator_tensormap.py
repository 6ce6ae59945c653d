"""Tensor maps that kernels make and change: tensormap.replace, its fences, and maps that are copied."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.emulator import launch, tensormap
from ptxgen.errors import AsyncFault, Fault, MisalignedFault, ParseError, RaceFault, UninitialisedFault

SIGNAL = "mbarrier::complete_tx::bytes"
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 maps, .param .u64 x, .param .u64 out)
{
.reg .b32 %r<16>; .reg .b64 %d<16>; .reg .pred %p<8>;
.shared .align 128 .b8 sm[128]; .shared .align 1024 .b8 box[512]; .shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; mov.u64 %d0, map; cvta.param.u64 %d0, %d0;
ld.param.u64 %d1, [maps]; ld.param.u64 %d2, [x]; ld.param.u64 %d3, [out];
@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
#: a box of 4 x 8 elements of f16 from (8, 2) to shared memory, and from there to `out`
USE = f"""
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %d9, [bar], 64;
@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SIGNAL} [box], [%d1, {{8, 2}}], [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;
setp.lt.u32 %p2, %r0, 16; mad.wide.u32 %d8, %r0, 4, %d3; mov.u32 %r1, box; mad.lo.u32 %r1, %r0, 4, %r1;
@%p2 ld.shared.u32 %r2, [%r1]; @%p2 st.global.u32 [%d8], %r2;
ret; }}
"""
ZERO = (
    "mov.u32 %r4, sm; mad.lo.u32 %r3, %r0, 4, %r4; setp.lt.u32 %p3, %r0, 32; @%p3 st.shared.u32 [%r3], 0; bar.sync 0;"
)
PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [sm], 128;"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;"
X = np.arange(40 * 32, dtype=np.float16).reshape(40, 32)
BOX = X[2:6, 8:16]


def replaces(where: str, at: str, *fields: tuple[str, str]) -> str:
    """Replaces fields by thread 0; `where`: with a dot, or empty."""
    out = ""
    for field, values in fields:
        dtype = "b64" if field in ("global_address", "global_stride") else "b32"
        out += f"@%p0 tensormap.replace.tile.{field}{where}.b1024.{dtype} [{at}], {values};\n"
    return out


#: all fields of a map of X, as Triton writes them
FIELDS = (
    ("global_address", "%d2"),
    ("rank", "1"),
    ("box_dim", "0, 8"),
    ("box_dim", "1, 4"),
    ("global_dim", "0, 32"),
    ("global_dim", "1, 40"),
    ("global_stride", "0, 64"),
    ("element_stride", "0, 1"),
    ("element_stride", "1, 1"),
    ("elemtype", "6"),
    ("interleave_layout", "0"),
    ("swizzle_mode", "0"),
    ("fill_mode", "0"),
)


def launched(
    body: str, block: int = 32, grid: int = 1, use: str = USE, **options: object
) -> tuple[np.ndarray, np.ndarray]:
    """The box that a kernel stores, and the maps in global memory."""
    out, maps = np.zeros((4, 8), np.float16), np.zeros((2, 128), np.uint8)
    template = tensormap(np.zeros((40, 32), np.float16), box=(8, 4))
    launch(HEAD + body + use, "k", grid, block, [template, maps, X, out], **options)
    return out, maps


@pytest.mark.parametrize("completion", ["early", "late"])
def test_map_from_zeros(completion):
    """A map whose fields are all written is the map that the host makes."""
    out, maps = launched(ZERO + replaces(".shared::cta", "sm", *FIELDS) + PUBLISH + ACQUIRE, completion=completion)
    assert (out == BOX).all()
    same = np.ones(128, bool)
    same[112:120] = False  # the address
    want = np.frombuffer(tensormap(0, (32, 40), (64,), (8, 4), type="f16").encode(), "u1")
    assert (maps[0][same] == want[same]).all()


COPY = "mad.wide.u32 %d7, %r0, 4, %d0; mad.wide.u32 %d6, %r0, 4, %d1; ld.u32 %r5, [%d7]; st.global.u32 [%d6], %r5; bar.sync 0;"


def test_any_lane_may_use_a_map_of_its_warp():
    use = USE.replace("@%p0 cp.async.bulk.tensor", "@%p4 cp.async.bulk.tensor")
    body = ZERO + replaces(".shared::cta", "sm", *FIELDS) + PUBLISH + ACQUIRE + "setp.eq.u32 %p4, %r0, 7;"
    assert (launched(body, use=use)[0] == BOX).all()


@pytest.mark.parametrize("where", ["", ".global"])
def test_map_in_global_memory(where):
    out, _ = launched(COPY + replaces(where, "%d1", FIELDS[0]) + RELEASE + ACQUIRE)
    assert (out == BOX).all()


@pytest.mark.parametrize(
    ("fences", "missing"), [("", "release after it"), (RELEASE, "acquire of the map"), (ACQUIRE, "release after it")]
)
def test_missing_fences(fences, missing):
    with pytest.raises(AsyncFault, match=f"the tensor map was modified .line.*generic.{missing}"):
        launched(COPY + RELEASE + ACQUIRE + replaces(".global", "%d1", FIELDS[0]) + fences)


def test_map_that_another_warp_publishes():
    """Warp 1 makes the map; warp 0 acquires and uses it after the barrier. An earlier acquire does not count."""
    made = ZERO + replaces(".shared::cta", "sm", *FIELDS).replace("%p0", "%p4") + "bar.sync 0; @%p5 bra U;" + PUBLISH
    one = "setp.eq.u32 %p4, %r0, 32; setp.lt.u32 %p5, %r0, 32;"
    out, _ = launched(f"{one} {made} U: bar.sync 0; {ACQUIRE}", 64)
    assert (out == BOX).all()
    with pytest.raises(AsyncFault, match="acquire of the map"):
        launched(f"{one} {made} U: {ACQUIRE} bar.sync 0;".replace("U: f", "U: @%p5 f"), 64)
    with pytest.raises(RaceFault, match="reads global memory that lane 31 of warp 1 wrote"):
        launched(f"{one} {made} U: {ACQUIRE}", 64, seed=1)


@pytest.mark.parametrize("release", [RELEASE, ""])
def test_map_that_another_block_makes(release):
    """Block 0 changes the map and sets a flag; block 1 waits for the flag, acquires the map and uses it."""
    body = f"""mov.u32 %r6, %ctaid.x; setp.eq.u32 %p6, %r6, 1; @%p6 bra B;
    {COPY} {replaces(".global", "%d1", FIELDS[0])} {release}
    @%p0 st.release.gpu.global.u32 [%d1+128], 1; ret;
    B: ld.acquire.gpu.global.u32 %r7, [%d1+128]; setp.eq.u32 %p6, %r7, 0; @%p6 bra B; {ACQUIRE}"""
    if release:
        assert (launched(body, grid=2)[0] == BOX).all()
        return
    with pytest.raises(AsyncFault, match="release after it"):
        launched(body, grid=2)


def test_map_that_a_bulk_copy_writes():
    """A map that is changed in shared memory, and copied by cp.async.bulk."""
    copy = """fence.proxy.async; bar.sync 0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%d1], [sm], 128;
    @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0; """
    made = ZERO + replaces(".shared::cta", "sm", *FIELDS) + copy
    assert (launched(made + RELEASE + ACQUIRE)[0] == BOX).all()
    with pytest.raises(AsyncFault, match="release after it"):
        launched(made)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((("box_dim", "0, 0"),), r"box\[0\] is 0; it must be 1 to 256"),
        ((("global_dim", "1, 0"),), r"extents\[1\] is 0"),
        ((("global_stride", "0, 4"),), r"strides\[0\] is 4; it must be a multiple of 16"),
        ((("element_stride", "1, 9"),), r"element_strides\[1\] is 9"),
        ((("rank", "2"),), "strides|box"),
        ((("box_dim", "0, 64"), ("swizzle_mode", "1")), "a swizzle of 32 allows 32"),
    ],
)
def test_invalid_values(fields, message):
    with pytest.raises(Fault, match=f"the tensor map is invalid: .*{message}"):
        launched(COPY + replaces(".global", "%d1", FIELDS[0], *fields) + RELEASE + ACQUIRE)


def test_wrong_memory():
    with pytest.raises(UninitialisedFault, match="before it is written"):
        launched(replaces(".shared::cta", "sm", FIELDS[0]))
    with pytest.raises(MisalignedFault, match="multiple of 64"):
        launched(replaces(".global", "%d1+32", FIELDS[0]))
    with pytest.raises(Fault, match="holds no tensor map"):
        launched(replaces(".global", "%d2", FIELDS[0]))


def test_texts_that_are_not_valid():
    for field, values, rule in [
        ("box_dim", "5, 8", "is 5; it must be 0 to 4"),
        ("swizzle_mode", "%r0", "it must be an integer constant"),
        ("fill_mode", "2", "0 to 1"),
    ]:
        with pytest.raises(ParseError, match=rule):
            launched(replaces(".global", "%d1", (field, values)))
    with pytest.raises(ParseError, match="it must be 128"):
        launched(ACQUIRE.replace("128", "64"))
