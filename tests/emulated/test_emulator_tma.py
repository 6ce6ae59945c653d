"""Tensor maps and tensor copies: tiles of one to five dimensions, im2col, swizzles, edges, stores and reductions."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.codegen.source import TensorMap as Described
from ptxgen.emulator import Machine, TensorMap, launch, tensormap
from ptxgen.emulator.memory.tensormap import decode
from ptxgen.errors import (
    AsyncFault,
    Fault,
    InputError,
    MisalignedFault,
    OutOfBoundsFault,
    ParseError,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)
from ptxgen.runtime.emulated import EmulatedDriver

MODES = [(seed, completion) for seed in range(2) for completion in ("early", "late")]
SIGNAL = "mbarrier::complete_tx::bytes"
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 sm[];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .align 64 .b8 second[128]) DIRECTIVES
{
.reg .b32 %r<32>; .reg .b64 %d<16>; .reg .b16 %h<8>; .reg .pred %p<8>; .shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, sm; mov.u32 %r2, bar; mov.u64 %d0, map;
    cvta.param.u64 %d0, %d0;
mov.u64 %d2, second; cvta.param.u64 %d2, %d2; ld.param.u64 %d1, [out];
@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;"
#: copies BYTES bytes of shared memory to `out`, 4 a thread and turn
DUMP = """mad.lo.u32 %r3, %r0, 4, %r1; mad.wide.u32 %d3, %r0, 4, %d1; mov.u32 %r4, 0; mov.u32 %r5, %ntid.x;
    shl.b32 %r5, %r5, 2;
cvt.u64.u32 %d4, %r5; shl.b32 %r6, %r0, 2;
D: setp.ge.u32 %p2, %r6, BYTES; @%p2 bra DONE; ld.shared.u32 %r7, [%r3]; st.global.u32 [%d3], %r7;
    add.u32 %r3, %r3, %r5;
add.u64 %d3, %d3, %d4; add.u32 %r6, %r6, %r5; bra D; DONE: """


def kernel(body: str, directives: str = "") -> str:
    return HEAD.replace("DIRECTIVES", directives) + body + "\nret; }\n"


def coordinates(place: tuple[int, ...]) -> str:
    return "{" + ", ".join(str(p) for p in place) + "}"


def load(m: TensorMap, place: tuple[int, ...], offsets: tuple[int, ...] = (), **options: object) -> np.ndarray:
    """The box in shared memory after a copy, as bytes."""
    out = np.full(m.size, 0xEE, "u1")
    mode = "im2col" if m.im2col else "tile"
    last = ", {" + ", ".join(str(o) for o in offsets) + "}" if m.im2col else ""
    body = f"""@!%p0 bra L; prefetch.tensormap [%d0]; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {m.size};
    cp.async.bulk.prefetch.tensor.{m.rank}d.L2.global.{mode} [%d0, {coordinates(place)}]{last};
    cp.async.bulk.tensor.{m.rank}d.shared::cluster.global.{mode}.{SIGNAL} [%r1], [%d0, {coordinates(place)}], [%r2]{last};
    L: {WAIT} {DUMP.replace("BYTES", str(m.size))}"""
    launch(kernel(body), "k", 1, 64, [m, out, m], m.size, **options)
    return out


def straight(data: np.ndarray, span: int) -> np.ndarray:
    """Swizzled bytes (from an address that is a multiple of 1024) in the order of the box."""
    at = np.arange(data.size)
    bits = {0: 0, 32: 1, 64: 3, 128: 7}[span]
    return data[at ^ (((at >> 7) & bits) << 4)]


def box_of(
    x: np.ndarray, place: tuple[int, ...], box: tuple[int, ...], steps: tuple[int, ...], fill: object = 0
) -> np.ndarray:
    """The box of an array, by definition; dimensions innermost first in the arguments."""
    shape = tuple(-(-b // s) for b, s in zip(box, steps, strict=True))[::-1]
    out = np.full(shape, fill, x.dtype)
    for index in itertools.product(*(range(n) for n in shape)):
        source = tuple(p + i * s for p, i, s in zip(place[::-1], index, steps[::-1], strict=True))
        if all(0 <= s < n for s, n in zip(source, x.shape, strict=True)):
            out[index] = x[source]
    return out


CASES = [
    # extents and box (innermost first), coordinates, type, swizzle
    ((100,), (64,), (0,), "u1", 0),
    ((100,), (64,), (80,), "u1", 0),
    ((64, 40), (32, 16), (0, 0), "f2", 64),
    ((64, 40), (64, 16), (0, 32), "f2", 128),
    ((72, 40), (64, 32), (40, 20), "f2", 128),
    ((72, 40), (16, 32), (-8, -5), "f2", 32),
    ((72, 40), (32, 8), (60, 39), "f4", 128),
    ((72, 40), (8, 8), (72, 40), "f4", 32),
    ((72, 40), (16, 64), (4, -20), "f8", 128),
    ((72, 40), (2, 256), (70, -100), "f8", 0),
    ((20, 9, 5), (8, 4, 3), (4, 7, 3), "i4", 0),
    ((24, 9, 5), (16, 4, 3), (-8, 6, -1), "u2", 32),
    ((16, 6, 5, 4), (16, 4, 3, 2), (0, 4, -1, 3), "u4", 64),
    ((16, 6, 5, 4, 3), (8, 4, 3, 2, 2), (4, -1, 3, -1, 2), "u4", 32),
]


@pytest.mark.parametrize(("extents", "box", "place", "dtype", "span"), CASES)
@pytest.mark.parametrize("completion", ["early", "late"])
def test_tiles(extents, box, place, dtype, span, completion):
    wide = (-(-extents[0] * np.dtype(dtype).itemsize // 16) * 16 // np.dtype(dtype).itemsize, *extents[1:])
    x = np.random.default_rng(0).integers(1, 100, wide[::-1]).astype(dtype)
    strides = x.strides[-2::-1] if x.ndim > 1 else ()
    m = tensormap(x, extents, strides, box, swizzle=span)
    got = straight(load(m, place, completion=completion), span).view(dtype)
    want = box_of(x[..., : extents[0]], place, box, (1,) * len(box))
    assert (got == want.reshape(-1)).all()


@pytest.mark.parametrize(("inner", "span"), [(64, 128), (32, 128), (48, 64), (16, 32)])
def test_rows_narrower_than_the_swizzle(inner, span):
    """Rows are a swizzle span apart, and the barrier counts only their own bytes."""
    x = np.arange(1, 8 * 128 + 1, dtype="u2").view("u1").reshape(8, 256).copy()
    m = tensormap(x, box=(inner, 8), swizzle=span)
    assert (m.size, m.footprint) == (8 * inner, 8 * span)
    out = np.zeros(m.footprint, "u1")
    fill = DUMP.replace("ld.shared.u32 %r7, [%r3]; st.global.u32 [%d3], %r7;", "st.shared.u32 [%r3], 0;")
    fill = (
        fill.replace("D:", "C:")
        .replace("bra D;", "bra C;")
        .replace("DONE", "CLEARED")
        .replace("BYTES", str(m.footprint))
    )
    body = f"""{fill} fence.proxy.async; bar.sync 0;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {m.size};
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SIGNAL} [%r1], [%d0, {{16, 0}}], [%r2];
    {WAIT} {DUMP.replace("BYTES", str(m.footprint))} fence.proxy.async; bar.sync 0;
    @%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d2, {{0, 0}}], [%r1];
    @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"""
    y = np.zeros((8, 256), "u1")
    launch(kernel(body), "k", 1, 64, [m, out, tensormap(y, box=(inner, 8), swizzle=span)], m.footprint)
    rows = straight(out, span).reshape(8, span)
    assert (rows[:, :inner] == x[:, 16 : 16 + inner]).all()
    assert not rows[:, inner:].any()
    assert (y[:, :inner] == x[:, 16 : 16 + inner]).all()
    assert not y[:, inner:].any()


@pytest.mark.parametrize("steps", [(1, 2, 1), (1, 3, 2), (1, 1, 8), (4, 5, 1)])
def test_element_strides(steps):
    """ceil(box / stride) elements; the first dimension's stride is ignored."""
    x = np.random.default_rng(0).integers(1, 100, (12, 30, 16)).astype("u4")
    m = tensormap(x, box=(8, 10, 7), element_strides=steps)
    steps = (1, *steps[1:])
    assert m.shape == (-(-7 // steps[2]), -(-10 // steps[1]), 8)
    for place in ((0, 0, 0), (4, 25, 8), (-4, -3, -5)):
        assert (load(m, place).view("u4") == box_of(x, place, (8, 10, 7), steps).reshape(-1)).all()


@pytest.mark.parametrize(
    ("element", "dtype", "nan"),
    [
        ("f16", "f2", 0x7FFF),
        ("bf16", ml_dtypes.bfloat16, 0x7FFF),
        ("f32", "f4", 0x7FFFFFFF),
        ("tf32", "f4", 0x7FFFFFFF),
    ],
)
def test_nan_fill(element, dtype, nan):
    x = np.ones((8, 32), dtype)
    m = tensormap(x, box=(16, 4), fill="nan", type=element)
    got = load(m, (24, 6)).view(f"u{x.itemsize}").reshape(4, 16)
    one = int(x.view(f"u{x.itemsize}")[0, 0])
    assert (got == np.where((np.arange(16) < 8) & (np.arange(4) < 2)[:, None], one, nan)).all()
    with pytest.raises(InputError, match="NaN fill"):
        tensormap(np.ones((8, 32), "u2"), box=(16, 4), fill="nan")


def test_types_that_convert():
    bits = np.array(
        [[0x3F801FFF, 0x3F801000, 0x3F803000, 0x00000001, 0x807FFFFF, 0x7F800000, 0x7FC00001, 0x3F800FFF]], "u4"
    )
    got = load(tensormap(bits.view("f4"), box=(8, 1), type="tf32"), (0, 0)).view("u4")
    assert got[:3].tolist() == [0x3F802000, 0x3F800000, 0x3F804000]
    assert got[7] == 0x3F800000
    got = load(tensormap(bits.view("f4"), box=(8, 1), type="f32.ftz"), (0, 0)).view("u4")
    assert got.tolist() == [*bits[0, :3].tolist(), 0, 0x80000000, *bits[0, 5:].tolist()]


def columns(x: np.ndarray, place: tuple[int, ...], offsets: tuple[int, ...], m: TensorMap) -> np.ndarray:
    """The data of an im2col copy by definition: pixels in order, W fastest, within the box."""
    spatial = m.rank - 2
    out = np.zeros((m.pixels, m.channels), x.dtype)
    ends = [m.extents[i + 1] - 1 + m.upper[i] for i in range(spatial)]
    axes = [list(range(m.lower[i], ends[i] + 1, m.element_strides[i + 1])) for i in range(spatial)]
    turns = itertools.product(range(place[-1], place[-1] + m.pixels), *axes[::-1])
    begun, row = False, 0
    for turn in turns:
        begun = begun or turn == tuple(place[:0:-1])
        if not begun:
            continue
        n, *pixel = turn
        at = [p + o for p, o in zip(pixel, offsets[::-1], strict=True)]
        if n < x.shape[0] and all(0 <= p < e for p, e in zip(at, x.shape[1:-1], strict=True)):
            for c in range(m.channels):
                if 0 <= place[0] + c < x.shape[-1]:
                    out[row, c] = x[(n, *at, place[0] + c)]
        row += 1
        if row == m.pixels:
            break
    return out


@pytest.mark.parametrize("span", [0, 64])
@pytest.mark.parametrize(
    ("extents", "lower", "upper", "steps", "place", "offsets"),
    [
        ((64, 9, 14, 4), (-1, -1), (-1, -1), (1, 1, 1, 1), (0, 4, 7, 1), (0, 0)),
        ((64, 9, 14, 4), (-1, -1), (-1, -1), (1, 1, 1, 1), (32, 4, 7, 1), (2, 1)),
        ((64, 9, 14, 4), (0, 0), (-2, -2), (1, 1, 1, 1), (0, 4, 7, 3), (2, 2)),
        ((64, 9, 14, 4), (0, 0), (-2, -2), (1, 1, 1, 1), (48, 0, 0, 0), (1, 2)),
        ((64, 8, 14, 4), (-1, -1), (-1, -1), (1, 2, 2, 1), (0, 5, 7, 2), (1, 1)),
        ((64, 20, 3), (-2,), (1,), (1, 1, 1), (0, -2, 0), (3,)),
        ((64, 5, 6, 7, 2), (-1, -1, -1), (0, 0, 0), (1, 1, 1, 1, 1), (0, 2, 3, 4, 1), (0, 1, 1)),
    ],
)
def test_im2col(extents, lower, upper, steps, place, offsets, span):
    x = np.random.default_rng(0).integers(1, 1000, extents[::-1]).astype("u2")
    m = tensormap(x, swizzle=span, lower=lower, upper=upper, channels=32, pixels=50, element_strides=steps)
    assert m.size == 50 * 32 * 2
    # rows of 64 bytes: swizzled by 1024 from a multiple of that
    got = straight(load(m, place, offsets), span) if m.size % 128 == 0 else load(m, place, offsets)
    assert (got.view("u2").reshape(50, 32) == columns(x, place, offsets, m)).all()


STORE = """mad.lo.u32 %r3, %r0, 4, %r1; shl.b32 %r6, %r0, 2; mov.u32 %r5, %ntid.x; shl.b32 %r5, %r5, 2;
    mad.wide.u32 %d3, %r0, 4, %d1;
cvt.u64.u32 %d4, %r5; D: setp.ge.u32 %p2, %r6, BYTES; @%p2 bra DONE; ld.global.u32 %r7, [%d3]; st.shared.u32 [%r3], %r7;
add.u32 %r3, %r3, %r5; add.u64 %d3, %d3, %d4; add.u32 %r6, %r6, %r5; bra D; DONE: fence.proxy.async.shared::cta;
    bar.sync 0;
@%p0 WHAT [%d0, PLACE], [%r1]; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"""


def store(m: TensorMap, place: tuple[int, ...], data: np.ndarray, op: str = "", **options: object) -> None:
    mode = "im2col_no_offs" if m.im2col else "tile"
    what = f"cp.{'reduce.' if op else ''}async.bulk.tensor.{m.rank}d.global.shared::cta.{op}{'.' if op else ''}{mode}.bulk_group"
    body = STORE.replace("BYTES", str(m.size)).replace("WHAT", what).replace("PLACE", coordinates(place))
    launch(kernel(body), "k", 1, 64, [m, np.ascontiguousarray(data).view("u1").reshape(-1), m], m.size, **options)


@pytest.mark.parametrize(("extents", "box", "place", "dtype", "span"), CASES)
@pytest.mark.parametrize("completion", ["early", "late"])
def test_stores_are_clipped(extents, box, place, dtype, span, completion):
    """To whole 16 bytes, as an H200 does."""
    place = tuple(max(p, 0) for p in place)
    wide = (-(-extents[0] * np.dtype(dtype).itemsize // 16) * 16 // np.dtype(dtype).itemsize, *extents[1:])
    rng = np.random.default_rng(0)
    x = rng.integers(1, 100, wide[::-1]).astype(dtype)
    want = x.copy()
    m = tensormap(x, extents, x.strides[-2::-1] if x.ndim > 1 else (), box, swizzle=span)
    data = rng.integers(1, 100, m.shape).astype(dtype)
    for index in itertools.product(*(range(n) for n in m.shape)):
        to = tuple(p + i for p, i in zip(place[::-1], index, strict=True))
        if all(0 <= t < n for t, n in zip(to, wide[::-1], strict=True)):
            want[to] = data[index]
    swizzled = straight(data.reshape(-1).view("u1"), span)  # the exchange is its own inverse
    store(m, place, swizzled, completion=completion)
    assert (x == want).all()


def test_coordinates_that_are_an_illegal_instruction():
    m = tensormap(np.zeros((8, 16), "f4"), box=(8, 8))
    with pytest.raises(MisalignedFault, match="first coordinate of a box is 2, not a multiple of 16 bytes"):
        load(m, (2, 0))
    pixels = tensormap(np.zeros((2, 4, 4, 16), "f2"), channels=8, pixels=4, lower=(0, 0), upper=(0, 0))
    with pytest.raises(MisalignedFault, match="first coordinate of a box is 4, not a multiple of 16 bytes"):
        load(pixels, (4, 0, 0, 0), (0, 0))
    load(m, (-4, -1))
    for place in ((-4, 0), (0, -1)):
        with pytest.raises(Fault, match="a box that is stored begins outside the tensor"):
            store(m, place, np.zeros((8, 8), "f4"))


@pytest.mark.parametrize(
    ("op", "element", "dtype"),
    [
        ("add", "u32", "u4"),
        ("add", "s32", "i4"),
        ("add", "u64", "u8"),
        ("add", "f32", "f4"),
        ("add", "f16", "f2"),
        ("add", "bf16", ml_dtypes.bfloat16),
        ("min", "u32", "u4"),
        ("max", "s32", "i4"),
        ("max", "f16", "f2"),
        ("min", "s64", "i8"),
        ("inc", "u32", "u4"),
        ("dec", "u32", "u4"),
        ("and", "u32", "u4"),
        ("or", "u64", "u8"),
        ("xor", "s32", "i4"),
    ],
)
def test_reductions(op, element, dtype):
    rng = np.random.default_rng(0)
    x, data = (rng.integers(0, 50, (8, 16)).astype(dtype) for _ in range(2))
    part = x[2:, 8:].copy()
    m = tensormap(x, box=(16, 8), type=element)
    other = data[:6, :8]
    want = {
        "add": lambda: part + other,
        "min": lambda: np.minimum(part, other),
        "max": lambda: np.maximum(part, other),
        "and": lambda: part & other,
        "or": lambda: part | other,
        "xor": lambda: part ^ other,
        "inc": lambda: np.where(part >= other, 0, part + 1),
        "dec": lambda: np.where((part == 0) | (part > other), other, part - 1),
    }[op]()
    before = x.copy()
    store(m, (8, 2), data, op)
    before[2:, 8:] = want
    assert (x == before).all()


def test_reductions_that_a_type_lacks():
    with pytest.raises(Fault, match=r"no \.min of f32"):
        store(tensormap(np.zeros((8, 16), "f4"), box=(16, 8)), (0, 0), np.zeros((8, 16), "f4"), "min")


def test_im2col_store():
    x = np.zeros((2, 6, 5, 8), "u2")
    m = tensormap(x, lower=(0, 0), upper=(-1, -1), channels=8, pixels=25)
    data = np.arange(1, 201, dtype="u2").reshape(25, 8)
    store(m, (0, 0, 0, 0), data)
    want = np.zeros_like(x)
    pixels = list(itertools.product(range(2), range(5), range(4)))[:25]
    for row, pixel in zip(data, pixels, strict=True):
        want[pixel] = row
    assert (x == want).all()


@pytest.mark.parametrize(("seed", "completion"), MODES)
def test_multicast(seed, completion):
    """Each block of a cluster loads its half of a box for both."""
    x = np.arange(32 * 64, dtype="u2").reshape(32, 64)
    out = np.zeros((4, 1024), "u2")
    m = tensormap(x, box=(64, 8), swizzle=128)
    sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    body = f"""mov.u32 %r8, %cluster_ctarank; mov.u32 %r9, %ctaid.x; {sync} mad.lo.u32 %r10, %r8, 1024, %r1;
    shl.b32 %r11, %r8, 3;
    shr.u32 %r12, %r9, 1; mad.lo.u32 %r11, %r12, 16, %r11; mov.b16 %h0, 3; mul.wide.u32 %d5, %r9, 2048;
    add.u64 %d1, %d1, %d5;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SIGNAL}.multicast::cluster [%r10], [%d0, {{0, %r11}}], [%r2], %h0;
    {WAIT} {DUMP.replace("BYTES", "2048")} {sync}"""
    launch(
        kernel(body, ".explicitcluster .reqnctapercluster 2"),
        "k",
        4,
        64,
        [m, out, m],
        2048,
        seed=seed,
        completion=completion,
    )
    for b in range(4):
        assert (straight(out[b].view("u1"), 128).view("u2") == x[b // 2 * 16 : b // 2 * 16 + 16].reshape(-1)).all()


@pytest.mark.parametrize("where", ["global", "const"])
def test_map_in_memory(where):
    """Maps may be in .const and .global variables and in buffers."""
    machine = Machine()
    x = np.arange(16 * 64, dtype="u2").reshape(16, 64)
    address = machine.alloc(x.nbytes)
    machine.write(address, x)
    data = tensormap(address, (64, 16), (128,), (64, 16), type="u16").encode()
    values = ", ".join(str(b) for b in data)
    text = kernel(f"""cvta.{where}.u64 %d0, there; @!%p0 bra L;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
    cp.async.bulk.tensor.2d.shared::cta.global.tile.{SIGNAL} [%r1], [%d0, {{0, 0}}], [bar];
    L: {WAIT} {DUMP.replace("BYTES", "2048")}""")
    text = text.replace("cvta.const.u64 %d0, there;", "mov.u64 %d0, there; cvta.const.u64 %d0, %d0;")
    text = text.replace("cvta.global.u64 %d0, there;", "mov.u64 %d0, there; cvta.global.u64 %d0, %d0;")
    text = text.replace(".visible", f".{where} .align 64 .b8 there[128] = {{{values}}};\n.visible", 1)
    module = machine.load(text)
    out = machine.alloc(2048)
    params = bytes(48) + bytes(128) + out.to_bytes(8, "little")
    params += bytes(module["k"].param_bytes - len(params))
    machine.launch(module, "k", 1, 64, params, 2048)
    assert machine.read(out, 2048) == x.tobytes()


def test_parameter_offsets_match_hardware():
    """The first parameter with 64-byte alignment is at offset 48, as on sm_90."""
    kernel_ = Machine().load(kernel(""))["k"]
    assert [p.offset for p in kernel_.parameters] == [48, 176, 240]


def test_maps_of_the_driver():
    """Arguments of the driver's encode function give the same map."""
    driver = EmulatedDriver()
    address = driver.allocate(4096)
    described = Described("A", "bf16", (64, 20), (128,), (32, 16), 64)
    want = tensormap(address, (64, 20), (128,), (32, 16), type="bf16", swizzle=64).encode()
    assert driver.tensor_map(described, address) == want
    plain = Described("C", "s32", (64, 8), (256,), (4, 8), 16)
    assert driver.tensor_map(plain, address) == tensormap(address, (64, 8), (256,), (4, 8), type="s32").encode()


LIMITS = {
    "rank": {"extents": (8,) * 6, "strides": (16,) * 5, "box": (8,) * 6},
    "multiple of 16": {"base": 1 << 20 | 8},
    r"strides\[0\] is 120": {"strides": (120,)},
    "below 2": {"strides": (1 << 40,)},
    r"extents\[1\] is 0": {"extents": (64, 0)},
    r"extents\[0\] is": {"extents": ((1 << 32) + 1, 4)},
    r"box\[1\] is 257": {"box": (32, 257)},
    r"box\[0\] is 0": {"box": (0, 8)},
    "rows have 24 bytes": {"box": (12, 8)},
    "a swizzle of 64 allows 64": {"box": (64, 8), "swizzle": 64},
    "swizzle is 96": {"swizzle": 96},
    "element_strides": {"element_strides": (1, 9)},
    "2 strides": {"strides": (128, 256)},
    "3 dimensions": {"box": (32, 8, 1)},
    "fill is": {"fill": "one"},
    "type is 'f128'": {"type": "f128"},
    "promotion": {"promotion": 4},
}


@pytest.mark.parametrize("words", LIMITS)
def test_limits_of_tiles(words):
    good = {"base": 1 << 20, "extents": (64, 16), "strides": (128,), "box": (32, 8), "type": "f16"}
    assert tensormap(**good).encode()[:8] == b"PTXGENTM"
    with pytest.raises(InputError, match=words):
        tensormap(**{**good, **LIMITS[words]}).encode()


def test_bytes_8_to_15_of_a_map_have_no_meaning():
    """CUTLASS clears bit 21 of it, on drivers up to 13.1, in maps of tensors below 128 KiB."""
    words = np.frombuffer(tensormap(0x100215400, (64, 16), (128,), (32, 8), type="f16").encode(), "u8").copy()
    for word in (words[1] & ~np.uint64(1 << 21), np.uint64(1 << 21)):
        words[1] = word
        assert decode(words.tobytes()).base == 0x100215400


COLUMN_LIMITS = {
    "the rank is 2": {"extents": (64, 8), "strides": (128,), "lower": (), "upper": ()},
    r"lower\[0\] is -129": {"lower": (-129, 0)},
    r"upper\[1\] is 128": {"upper": (0, 128)},
    "lower has 1 numbers": {"lower": (0,)},
    "empty in dimension 1": {"lower": (5, 0), "upper": (-4, 0)},
    "channels is 257": {"channels": 257},
    "pixels is 1025": {"pixels": 1025},
    "channels have 20 bytes": {"channels": 10},
    "a swizzle of 32 allows": {"swizzle": 32},
}


@pytest.mark.parametrize("words", COLUMN_LIMITS)
def test_limits_of_columns(words):
    good = {
        "base": 1 << 20,
        "extents": (64, 8, 8, 2),
        "strides": (128, 1024, 8192),
        "type": "f16",
        "lower": (-1, -1),
        "upper": (-1, -1),
        "channels": 32,
        "pixels": 64,
    }
    tensormap(**good).encode()
    with pytest.raises(InputError, match=words):
        tensormap(**{**good, **COLUMN_LIMITS[words]}).encode()


def test_interleaved_maps_are_refused():
    with pytest.raises(UnsupportedError, match="interleave"):
        tensormap(1 << 20, (64, 16, 2), (128, 2048), (32, 8, 1), type="f16", interleave=16)


LOAD = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SIGNAL} [%r1], [%d0, {{0, 0}}], [%r2];"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;"
READ = "ld.shared.u32 %r7, [%r1+4]; @%p0 st.global.u32 [%d1], %r7;"
PUT = (
    "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d2, {0, 0}], [%r1]; "
    "@%p0 cp.async.bulk.commit_group;"
)
FILL = "mad.lo.u32 %r3, %r0, 16, %r1; mov.u32 %r4, 5; st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};"
READY = FILL + "fence.proxy.async.shared::cta; bar.sync 0;"
DONE = "@%p0 cp.async.bulk.wait_group.read 0;"
FAULTS = {
    # name: (fault, words, what is wrong, what would be right); thread 0 starts what begins with a brace
    "no wait": (
        AsyncFault,
        "read before a wait for the tensor copy",
        "{" + EXPECT + LOAD + "} bar.sync 0;" + READ,
        "{" + EXPECT + LOAD + "}" + WAIT + READ,
    ),
    "box misaligned": (
        MisalignedFault,
        "multiple of 128",
        "{" + EXPECT + LOAD.replace("[%r1]", "[%r1+64]") + "}" + WAIT,
        "{" + EXPECT + LOAD.replace("[%r1]", "[%r1+128]") + "}" + WAIT,
    ),
    "box beyond shared memory": (
        OutOfBoundsFault,
        "1024 bytes of shared memory",
        "{" + EXPECT + LOAD.replace("[%r1]", "[%r1+1152]") + "}" + WAIT,
        "{" + EXPECT + LOAD.replace("[%r1]", "[%r1+1024]") + "}" + WAIT,
    ),
    "no map": (
        Fault,
        "holds no tensor map",
        "{" + EXPECT + LOAD.replace("%d0", "%d1") + "}" + WAIT,
        "{" + EXPECT + LOAD + "}" + WAIT,
    ),
    "map misaligned": (
        MisalignedFault,
        "multiple of 64",
        "{" + EXPECT + LOAD.replace("[%d0,", "[%d0+16,") + "}" + WAIT,
        "{" + EXPECT + LOAD.replace("[%d0,", "[%d2,") + "}" + WAIT,
    ),
    "rank": (
        Fault,
        "the tensor has rank 2",
        "{" + EXPECT + LOAD.replace("2d", "3d").replace("{0, 0}", "{0, 0, 0}") + "}" + WAIT,
        "{" + EXPECT + LOAD + "}" + WAIT,
    ),
    "no fence before a store": (
        AsyncFault,
        "no fence.proxy.async between",
        FILL + "bar.sync 0;" + PUT + DONE,
        READY + PUT + DONE,
    ),
    "staging overwritten": (
        AsyncFault,
        "written before a wait for the tensor copy",
        READY + PUT + "bar.sync 0;" + FILL + DONE,
        READY + PUT + DONE + "bar.sync 0;" + FILL,
    ),
    "exit with a store under way": (
        AsyncFault,
        "exits before a wait for the tensor copy",
        READY + PUT,
        READY + PUT + DONE,
    ),
    "unwritten staging": (UninitialisedFault, "copied before it is written", PUT + DONE, READY + PUT + DONE),
    "overwritten while others read": (
        RaceFault,
        "the tensor copy by warp 0 and read by warp 1",
        READY + "ld.shared.u32 %r7, [%r3]; {" + EXPECT + LOAD + "}" + WAIT,
        READY + "ld.shared.u32 %r7, [%r3]; bar.sync 0; {" + EXPECT + LOAD + "}" + WAIT,
    ),
}


def guarded(body: str) -> str:
    """Thread 0 executes the code in outer braces."""
    out, n = "", 0
    while "{mbarrier" in body:
        before, _, rest = body.partition("{mbarrier")
        inside, _, body = rest.partition(";} ") if ";} " in rest else rest.partition(";}")
        out += before + f"@!%p0 bra G{n}; mbarrier{inside}; G{n}: "
        n += 1
    return out + body


@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_and_fixed_kernel(name, seed, completion):
    fault, words, wrong, right = FAULTS[name]
    x, y = np.zeros((16, 64), "u2"), np.zeros((16, 64), "u2")
    m, second = tensormap(x, box=(64, 8), swizzle=128), tensormap(y, box=(64, 8), swizzle=128)
    options = {"seed": seed, "completion": completion}
    launch(kernel(guarded(right)), "k", 1, 64, [m, np.zeros(2048, "u1"), second], 2048, **options)
    if name == "overwritten while others read":
        words += "|read before a wait|no barrier"
        fault = (fault, AsyncFault)
    with pytest.raises(fault, match=words) as caught:
        launch(kernel(guarded(wrong)), "k", 1, 64, [m, np.zeros(2048, "u1"), second], 2048, **options)
    assert caught.value.line > 6


def test_tensor_larger_than_its_buffer():
    x = np.zeros((16, 64), "u2")
    m = tensormap(x, (64, 32), (128,), (64, 8))
    assert (load(m, (0, 8)) == 0).all()
    with pytest.raises(OutOfBoundsFault, match="past the end"):
        load(m, (0, 9))
    assert (load(m, (0, 40)) == 0).all()


def test_store_to_a_read_only_tensor():
    x = np.zeros((16, 64), "u2")
    x.flags.writeable = False
    m = tensormap(x, box=(64, 8))
    with pytest.raises(OutOfBoundsFault, match="read-only"):
        store(m, (0, 0), np.zeros((8, 64), "u2"))


def test_invalid_text():
    for wrong in (
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%d0, {0, 0}], [%r2], {};",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d0, {0}], [%r2];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.bulk_group [%r1], [%d0, {0, 0}], [%r2];",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.mul.tile.bulk_group [%d0, {0, 0}], [%r1];",
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%d0, {0, 0, 0, 0}], [%r2], {0, 0};",
    ):
        with pytest.raises((UnsupportedError, ParseError)):
            run(wrong, np.zeros(4, "u4"), extra=".shared .align 128 .b8 sm[128];")
