"""wgmma: layouts, types and rounding, groups, fences and ownership of registers; setmaxnreg."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import launch

from ptxgen.emulator.ops.matrix.rounding import fused
from ptxgen.errors import (
    AsyncFault,
    DeadlockFault,
    DivergenceFault,
    Fault,
    OutOfBoundsFault,
    ParseError,
    RaceFault,
    UninitialisedFault,
    UnsupportedError,
)

MODES = [(seed, completion) for seed in range(2) for completion in ("early", "late")]
TYPES: dict[str, Any] = {
    "f16": np.dtype("f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype("f4"),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype("i1"),
    "u8": np.dtype("u1"),
}
RESULTS: dict[str, Any] = {"f32": np.dtype("f4"), "f16": np.dtype("f2"), "s32": np.dtype("i4")}
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 out, .param .u64 left) DIRECTIVES
{
.reg .b32 %r<32>; .reg .b64 %d<16>; .reg .pred %p<8>; .reg .b32 %acc<128>; .reg .b32 %a<4>; .reg .b32 %other<128>;
.shared .align 1024 .b8 sm[SIZE]; .shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; mov.u32 %r1, sm; ld.param.u64 %d0, [image]; ld.param.u64 %d1, [out]; ld.param.u64 %d2, [left];
shr.u32 %r10, %r0, 5; and.b32 %r11, %r0, 31; setp.eq.u32 %p0, %r0, 0; setp.ne.u32 %p7, %r0, 999;
    setp.eq.u32 %p6, %r0, 999;
mov.u32 %r2, %r0; mov.u32 %r12, %ntid.x;
FILL: setp.ge.u32 %p1, %r2, WORDS; @%p1 bra FILLED; mul.wide.u32 %d3, %r2, 4; add.u64 %d3, %d3, %d0;
    ld.global.u32 %r3, [%d3];
mad.lo.u32 %r4, %r2, 4, %r1; st.shared.u32 [%r4], %r3; add.u32 %r2, %r2, %r12; bra FILL; FILLED:
"""
#: the fence after the generic writes of the operands
READY = "fence.proxy.async.shared::cta; bar.sync 0;"
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"


def kernel(body: str, size: int = 65536, directives: str = ".maxntid 256, 1, 1 .minnctapersm 1") -> str:
    head = HEAD.replace("SIZE", str(size)).replace("WORDS", str(size // 4)).replace("DIRECTIVES", directives)
    return head + body + "\nret; }\n"


def descriptor(start: int, leading: int, stride: int, span: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | {0: 0, 128: 1, 64: 2, 32: 3}[span] << 62


def place(x: np.ndarray, start: int, leading: int, stride: int, span: int, across: bool, image: np.ndarray) -> None:
    """Writes a matrix [row, k] through a descriptor, an element at a time, by the canonical layouts of the ISA."""
    size = x.itemsize
    unit = 16 // size  # elements of 128 bits
    raw = np.ascontiguousarray(x).view("u1").reshape(*x.shape, size)
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[span]
    for row in range(x.shape[0]):
        for k in range(x.shape[1]):
            along, other = (row, k) if across else (k, row)  # along: the contiguous direction
            chunk, inside = divmod(along, unit)
            if span:
                chunks = span // 16
                at = other % 8 * span + chunk % chunks * 16
                if across:
                    at += chunk // chunks * leading + other // 8 * stride
                else:
                    at += other // 8 * stride
                    assert chunk < chunks
            elif across:
                at = other % 8 * 16 + chunk * stride + other // 8 * leading
            else:
                at = other % 8 * 16 + chunk * leading + other // 8 * stride
            at += start
            at ^= (at >> 7 & mask) << 4
            image[at + inside * size : at + inside * size + size] = raw[row, k]


def draw(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    if dtype in ("s8", "u8"):
        low, high = (-128, 128) if dtype == "s8" else (0, 256)
        return rng.integers(low, high, shape).astype(TYPES[dtype])
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)).astype(TYPES[dtype])


def exact(x: np.ndarray, dtype: str) -> np.ndarray:
    """Values as float64, as the instruction reads them."""
    if dtype == "tf32":
        x = (x.view("u4") & 0xFFFFE000).view("f4")
    return x.astype("f8")


def layout(rows: int, size: int, span: int, across: bool) -> tuple[int, int, int]:
    """The triple (leading, stride, bytes) of a dense operand of `rows` rows and 32 bytes of k."""
    if not across:
        return (16 * 8 * -(-rows // 8), 128, 32 * rows) if not span else (16, 8 * span, span * rows)
    if not span:
        return 16 * rows, 128, 32 * rows
    return 16 * span, 8 * span, 16 * span * -(-rows * size // span)


def scattered(d: np.ndarray) -> np.ndarray:
    """The matrix [64, n] from the registers of 128 threads, [thread, register] (f16: two elements a register)."""
    d = d.reshape(128, -1, 2)
    n = d.shape[1] * 4
    out = np.zeros((64, n), d.dtype)
    for thread in range(128):
        for pair in range(d.shape[1]):
            for e in range(2):
                row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (pair % 2)
                out[row, 8 * (pair // 2) + 2 * (thread % 4) + e] = d[thread, pair, e]
    return out


def gathered(x: np.ndarray) -> np.ndarray:
    """Registers of A, [thread, 4] words, from the matrix [64, k]."""
    each = 4 // x.itemsize
    out = np.zeros((128, 4, each), x.dtype)
    for thread in range(128):
        for register in range(4):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register % 2)
            first = each * (thread % 4) + 4 * each * (register // 2)
            out[thread, register] = x[row, first : first + each]
    return out.reshape(128, -1).view("u4")


def store(count: int, name: str = "%acc") -> str:
    lines = [f"mul.lo.u32 %r5, %r0, {4 * count}; cvt.u64.u32 %d4, %r5; add.u64 %d4, %d4, %d1;"]
    lines += [f"st.global.u32 [%d4+{4 * i}], {name}{i};" for i in range(count)]
    return "\n".join(lines)


def vector(count: int, name: str = "%acc") -> str:
    return "{" + ",".join(f"{name}{i}" for i in range(count)) + "}"


PRODUCTS = [
    # D, A, B, n, swizzles of A and B, whether they are MN-major, scales, A in registers
    ("f32", "f16", "f16", 64, (128, 128), (0, 0), (1, 1), 0),
    ("f32", "f16", "f16", 8, (64, 32), (0, 0), (1, -1), 0),
    ("f32", "f16", "f16", 24, (0, 0), (0, 0), (-1, -1), 0),
    ("f32", "f16", "f16", 64, (128, 128), (1, 1), (1, 1), 0),
    ("f32", "f16", "f16", 32, (64, 64), (1, 0), (1, 1), 0),
    ("f32", "f16", "f16", 16, (32, 32), (0, 1), (1, 1), 0),
    ("f32", "f16", "f16", 40, (0, 0), (1, 1), (1, 1), 0),
    ("f32", "bf16", "bf16", 256, (128, 128), (0, 1), (1, 1), 0),
    ("f32", "bf16", "bf16", 200, (128, 64), (1, 0), (1, 1), 1),
    ("f16", "f16", "f16", 72, (128, 128), (0, 0), (1, 1), 0),
    ("f16", "f16", "f16", 8, (128, 0), (0, 1), (-1, 1), 1),
    ("f32", "tf32", "tf32", 96, (128, 128), (0, 0), (1, 1), 0),
    ("f32", "tf32", "tf32", 16, (0, 32), (0, 0), (1, -1), 1),
    ("f32", "e4m3", "e5m2", 48, (128, 64), (0, 0), (1, 1), 0),
    ("f32", "e5m2", "e4m3", 8, (32, 0), (0, 0), (-1, 1), 1),
    ("f16", "e4m3", "e4m3", 64, (128, 128), (0, 0), (1, 1), 0),
    ("s32", "s8", "u8", 32, (128, 64), (0, 0), (1, 1), 0),
    ("s32", "u8", "u8", 240, (32, 32), (0, 0), (1, 1), 0),
    ("s32", "s8", "s8", 16, (0, 0), (0, 0), (1, 1), 1),
]


@pytest.mark.each_value
@pytest.mark.parametrize("mma", ["hopper", "f32"])
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: "-".join(map(str, p)).replace(" ", ""))
def test_products(product, mma):
    """D = A * B, then D = D + A' * B' with another step of k, against float64 and against the rule of rounding."""
    dtype, left, right, n, spans, across, signs, from_registers = product
    rng = np.random.default_rng(0)
    k = 32 // TYPES[left].itemsize
    image = np.zeros(65536, "u1")
    steps, text = [], ""
    a_place, b_place = 0, 16384
    for step in range(2):
        a, b = draw(rng, left, 64, k), draw(rng, right, n, k)
        steps.append((a, b))
        base = 32768 * step
        words = []
        for x, start, rows, span, transposed in (
            (a, a_place, 64, spans[0], across[0]),
            (b, b_place, n, spans[1], across[1]),
        ):
            leading, stride, size = layout(rows, x.itemsize, span, bool(transposed))
            assert size <= 16384
            place(x, base + start, leading, stride, span, bool(transposed), image)
            words.append(descriptor(base + start + 1024, leading, stride, span))  # shared memory begins at 1024
        text += f"mov.b64 %d5, {words[0]}; mov.b64 %d6, {words[1]};"
        if from_registers:
            text += f"ld.global.v4.u32 {vector(4, '%a')}, [%d7+{2048 * step}];"
        first = vector(4, "%a") if from_registers else "%d5"
        count = n // 4 if dtype == "f16" else n // 2
        tail = "" if dtype == "s32" else f", {signs[0]}, {signs[1]}"
        if left in ("f16", "bf16"):
            tail += f", {across[1]}" if from_registers else f", {across[0]}, {across[1]}"
        text += (
            f"{FENCE} wgmma.mma_async.sync.aligned.m64n{n}k{k}.{dtype}.{left}.{right} {vector(count)}, {first}, %d6, "
        )
        text += ("0", "%p7")[step] + tail + ";" + COMMIT + WAIT
    body = READY + "mul.wide.u32 %d7, %r0, 16; add.u64 %d7, %d7, %d2;" + text + store(count)
    out = np.zeros((128, count), "u4")
    lefts = np.concatenate([gathered(a) for a, _ in steps])
    for completion in ("early", "late"):
        launch(kernel(body), "k", 1, 128, [image, out, lefts], completion=completion, mma=mma)
        got = scattered(out.view(RESULTS[dtype]))
        want = np.zeros((64, n), RESULTS[dtype])
        total = np.zeros((64, n))
        scale = np.zeros((64, n))
        small = left in ("e4m3", "e5m2")
        for a, b in steps:
            x, y = exact(a, left) * signs[0] * signs[1], exact(b, right)
            total += x @ y.T
            scale += np.abs(x) @ np.abs(y).T
            if dtype != "s32":
                want = fused(x, y, want, (left, right), 13 if small else 25, 13 if small else 23)
        if dtype == "s32":
            assert (got == total.astype("i4")).all()
            continue
        if mma == "hopper":
            assert (got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")).all()
        near = 2.0**-9 if dtype == "f16" else 2.0**-10 if small else 2.0**-20
        assert (np.abs(got - total) <= near * (scale + 1)).all()


def test_saturation():
    """s32 wraps around, or stops at the end with .satfinite."""
    image = np.zeros(65536, "u1")
    leading, stride, _ = layout(64, 1, 128, False)
    place(np.full((64, 32), 255, "u1"), 0, leading, stride, 128, False, image)
    place(np.full((8, 32), 255, "u1"), 16384, leading, stride, 128, False, image)
    for name in ("", ".satfinite"):
        out = np.zeros((128, 4), "i4")
        body = READY + "".join(f"mov.b32 %acc{i}, 2147483647;" for i in range(4)) + FENCE
        body += f"mov.b64 %d5, {descriptor(1024, 16, 1024, 128)}; mov.b64 %d6, {descriptor(17408, 16, 1024, 128)};"
        body += f"wgmma.mma_async.sync.aligned.m64n8k32{name}.s32.u8.u8 {vector(4)}, %d5, %d6, 1;"
        body += COMMIT + WAIT + store(4)
        launch(kernel(body), "k", 1, 128, [image, out, image])
        assert (out == (2147483647 if name else 2147483647 + 255 * 255 * 32 - (1 << 32))).all()


@pytest.mark.parametrize("from_registers", [False, True])
def test_products_of_bits(from_registers):
    """D counts the ones of A & B, and adds the old D."""
    rng = np.random.default_rng(0)
    image = np.zeros(65536, "u1")
    a, b = rng.integers(0, 256, (64, 32)).astype("u1"), rng.integers(0, 256, (24, 32)).astype("u1")
    place(a, 0, 16, 1024, 128, False, image)
    place(b, 16384, 16, 1024, 128, False, image)
    out = np.zeros((128, 12), "u4")
    first = vector(4, "%a") if from_registers else "%d5"
    body = f"""{READY} {DESCRIBE} mul.wide.u32 %d7, %r0, 16; add.u64 %d7, %d7, %d2;
    ld.global.v4.u32 {vector(4, "%a")}, [%d7]; {"".join(f"mov.b32 %acc{i}, 7;" for i in range(12))} {FENCE}
    wgmma.mma_async.sync.aligned.m64n24k256.s32.b1.b1.and.popc {vector(12)}, {first}, %d6, 1; {COMMIT} {WAIT} {store(12)}"""
    launch(kernel(body), "k", 1, 128, [image, out, gathered(a)])
    x, y = (np.unpackbits(m, axis=1).astype(int) for m in (a, b))
    assert (scattered(out) == 7 + x @ y.T).all()


# ---- sparse A

SPARSE = [
    # D, A, B, n, swizzles of A and B, whether B is MN-major, scales, A in registers, selector
    ("f32", "f16", "f16", 64, (128, 128), 0, (1, 1), 0, 0),
    ("f32", "f16", "f16", 24, (32, 128), 1, (1, -1), 1, 1),
    ("f16", "f16", "f16", 8, (64, 0), 0, (1, 1), 0, 1),
    ("f32", "bf16", "bf16", 40, (0, 64), 1, (1, 1), 0, 0),
    ("f32", "tf32", "tf32", 16, (128, 64), 0, (1, 1), 0, 1),
    ("f32", "e4m3", "e5m2", 16, (128, 64), 0, (-1, 1), 1, 0),
    ("s32", "s8", "u8", 16, (64, 0), 0, (1, 1), 0, 0),
]


def metadata(dtype: str, k: int, selector: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The metadata of 128 threads, and the column of each stored element of the 64 rows."""
    chunk = 2 if dtype == "tf32" else 4
    pairs = [(0, 1), (2, 3)] if dtype == "tf32" else [(i, j) for i in range(4) for j in range(4) if i != j]
    words, columns = np.zeros(128, "u4"), np.zeros((64, k // 2), int)
    for row, c in np.ndindex(64, k // chunk):
        first, second = pairs[rng.integers(len(pairs))]
        high = row % 16 // 8
        # the figures: 16 bits and tf32 have the chunks of two rows in a pair of threads, 8 bits one row in a thread
        t, bit = (high + 2 * (c // 8), 4 * (c % 8)) if k == 64 else (2 * selector + c // 4, 16 * high + 4 * (c % 4))
        words[row // 16 * 32 + row % 8 * 4 + t] |= np.uint32((first | second << 2) << bit)
        if dtype == "tf32":
            columns[row, c] = 2 * c + first // 2
        else:
            columns[row, 2 * c : 2 * c + 2] = 4 * c + first, 4 * c + second
    return words, columns


@pytest.mark.parametrize("product", SPARSE, ids=lambda p: "-".join(map(str, p)).replace(" ", ""))
def test_sparse_products(product):
    """D = A * B with the columns of A that the metadata name, in B's rows, against the rule of rounding."""
    dtype, left, right, n, spans, across, signs, from_registers, selector = product
    rng = np.random.default_rng(0)
    stored = 32 // TYPES[left].itemsize
    a, b = draw(rng, left, 64, stored), draw(rng, right, n, 2 * stored)
    words, columns = metadata(left, 2 * stored, selector, rng)
    image = np.zeros(65536, "u1")
    describe = []
    for x, start, span, transposed in ((a, 0, spans[0], 0), (b, 16384, spans[1], across)):
        rows, wide = len(x), x.shape[1] * x.itemsize // 32
        leading, stride, size = layout(rows, x.itemsize, span, bool(transposed))
        leading *= wide if span and transposed else 1
        assert size * wide <= 16384
        place(x, start, leading, stride, span, bool(transposed), image)
        describe.append(descriptor(start + 1024, leading, stride, span))
    count = n // 4 if dtype == "f16" else n // 2
    tail = "" if dtype == "s32" else f", {signs[0]}, {signs[1]}"
    if left in ("f16", "bf16"):
        tail += f", {across}" if from_registers else f", 0, {across}"
    first = vector(4, "%a") if from_registers else "%d5"
    lefts = np.concatenate([gathered(a).reshape(-1), words])
    body = f"""{READY} mov.b64 %d5, {describe[0]}; mov.b64 %d6, {describe[1]}; mul.wide.u32 %d7, %r0, 16;
    add.u64 %d7, %d7, %d2; ld.global.v4.u32 {vector(4, "%a")}, [%d7]; mul.wide.u32 %d7, %r0, 4; add.u64 %d7, %d7, %d2;
    ld.global.u32 %r20, [%d7+2048]; {FENCE}
    wgmma.mma_async.sp.sync.aligned.m64n{n}k{2 * stored}.{dtype}.{left}.{right} {vector(count)}, {first}, %d6, %r20,
    {selector}, 0{tail}; {COMMIT} {WAIT} {store(count)}"""
    x, y = exact(a, left) * signs[0] * signs[1], exact(b, right)
    dense = np.zeros((64, 2 * stored))
    np.put_along_axis(dense, columns, x, axis=1)
    small = left in ("e4m3", "e5m2")
    for completion, mma in (("early", "hopper"), ("late", "f32")):
        out = np.zeros((128, count), "u4")
        launch(kernel(body), "k", 1, 128, [image, out, lefts], completion=completion, mma=mma)
        got = scattered(out.view(RESULTS[dtype]))
        if dtype == "s32":
            assert (got == (dense @ y.T).astype("i4")).all()
            continue
        if mma == "hopper":
            selected = y[:, columns].transpose(1, 0, 2)  # [row, column of B, stored column]
            zero = np.zeros((64, 1, n), RESULTS[dtype])
            want = fused(x[:, None], selected, zero, (left, right), 13 if small else 25, 13 if small else 23)[:, 0]
            assert (got == want).all()
        near = 2.0**-9 if dtype == "f16" else 2.0**-10 if small else 2.0**-20
        assert (np.abs(got - dense @ y.T) <= near * (np.abs(dense) @ np.abs(y).T + 1)).all()


def test_metadata_of_wgmma():
    """Invalid metadata are a fault; undefined ones are, in the threads that have metadata."""
    sparse = MMA.replace("mma_async.", "mma_async.sp.").replace("k16", "k32").replace("%d6, 0", "%d6, %r20, 1, 0")
    image, out = np.zeros(65536, "u1"), np.zeros((128, 4), "u4")
    for value, lanes, error, text in (
        ("0x44444445", 0, Fault, "row 0 and columns 0 to 3 of A are 0b0101; they must be two different indices"),
        ("0x44444444", 2, UninitialisedFault, "register %r20 is read before it is written"),
        ("0x44444444", 1, None, ""),
    ):
        keep = f"and.b32 %r21, %r0, 2; setp.ne.u32 %p3, %r21, {0 if lanes == 1 else 2}; "
        keep += f"@%p3 mov.b32 %r20, {value};" if lanes else f"mov.b32 %r20, {value};"
        body = READY + DESCRIBE + keep + FENCE + sparse + COMMIT + WAIT + store(4)
        if error is None:
            launch(kernel(body), "k", 1, 128, [image, out, image])
            continue
        with pytest.raises(error, match=text):
            launch(kernel(body), "k", 1, 128, [image, out, image])


# ---- groups, fences, registers

A, B = descriptor(1024, 16, 1024, 128), descriptor(17408, 16, 1024, 128)
DESCRIBE = f"mov.b64 %d5, {A}; mov.b64 %d6, {B};"
MMA = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {vector(4)}, %d5, %d6, 0, 1, 1, 0, 0;"
ADD = MMA.replace("%d6, 0,", "%d6, 1,")
OTHER = MMA.replace("%acc", "%other")
WIDE = f"wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {vector(8)}, %d5, %d6, 0, 1, 1, 0, 0;"
REGISTERS = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {vector(4)}, {vector(4, '%a')}, %d6, 0, 1, 1, 0;"
SET_A = "".join(f"mov.b32 %a{i}, 0;" for i in range(4))
ZERO = "".join(f"mov.b32 %acc{i}, 0;" for i in range(4))
OVERWRITE = "mad.lo.u32 %r6, %r0, 4, %r1; st.shared.u32 [%r6], %r0;"
GROUP = FENCE + MMA + COMMIT
USE = "add.u32 %r5, %acc3, 1;"
FAULTS = {
    # name: (fault, words, what is wrong, what would be right)
    "no fence": (
        AsyncFault,
        "no wgmma.fence precedes the first",
        READY + DESCRIBE + MMA + COMMIT + WAIT,
        READY + DESCRIBE + GROUP + WAIT,
    ),
    "no fence after a write": (
        AsyncFault,
        "accessed with no wgmma.fence",
        READY + DESCRIBE + FENCE + ZERO + ADD + COMMIT + WAIT,
        READY + DESCRIBE + ZERO + FENCE + ADD + COMMIT + WAIT,
    ),
    "no fence after a read": (
        AsyncFault,
        "accessed with no wgmma.fence",
        READY + DESCRIBE + GROUP + WAIT + USE + ADD + COMMIT + WAIT,
        READY + DESCRIBE + GROUP + WAIT + USE + FENCE + ADD + COMMIT + WAIT,
    ),
    "no fence between shapes": (
        AsyncFault,
        "accessed with no wgmma.fence",
        READY + DESCRIBE + FENCE + MMA + WIDE + COMMIT + WAIT,
        READY + DESCRIBE + FENCE + MMA + FENCE + WIDE + COMMIT + WAIT,
    ),
    "no fence for A": (
        AsyncFault,
        "accessed with no wgmma.fence",
        READY + DESCRIBE + FENCE + SET_A + REGISTERS + COMMIT + WAIT,
        READY + DESCRIBE + SET_A + FENCE + REGISTERS + COMMIT + WAIT,
    ),
    "read before the wait": (
        AsyncFault,
        "%acc3 belongs to a wgmma",
        READY + DESCRIBE + GROUP + USE + WAIT,
        READY + DESCRIBE + GROUP + WAIT + USE,
    ),
    "written before the wait": (
        AsyncFault,
        "%acc0 belongs to a wgmma",
        READY + DESCRIBE + GROUP + ZERO + WAIT,
        READY + DESCRIBE + GROUP + WAIT + ZERO,
    ),
    "A written before the wait": (
        AsyncFault,
        "%a0 belongs to a wgmma",
        READY + DESCRIBE + SET_A + FENCE + REGISTERS + COMMIT + SET_A + WAIT,
        READY + DESCRIBE + SET_A + FENCE + REGISTERS + COMMIT + WAIT + SET_A,
    ),
    "not committed": (
        AsyncFault,
        "%acc3 belongs to a wgmma",
        READY + DESCRIBE + FENCE + MMA + WAIT + USE,
        READY + DESCRIBE + FENCE + MMA + COMMIT + WAIT + USE,
    ),
    "one group too few": (
        AsyncFault,
        "%acc3 belongs to a wgmma",
        READY + DESCRIBE + GROUP + OTHER + COMMIT + WAIT.replace("0;", "2;") + USE + WAIT,
        READY + DESCRIBE + GROUP + OTHER + COMMIT + WAIT.replace("0;", "1;") + USE + WAIT,
    ),
    "exit": (AsyncFault, "exits before a wait for wgmma", READY + DESCRIBE + GROUP, READY + DESCRIBE + GROUP + WAIT),
    "shared memory overwritten": (
        (AsyncFault, RaceFault),
        "written before a wait for wgmma|wgmma reads .* no barrier",
        READY + DESCRIBE + GROUP + OVERWRITE + WAIT,
        READY + DESCRIBE + GROUP + WAIT + "bar.sync 0;" + OVERWRITE,
    ),
    "shared memory overwritten by a warp that has not waited": (
        (AsyncFault, RaceFault),
        "written before a wait for wgmma|wgmma reads .* no barrier",
        READY + DESCRIBE + GROUP + "setp.eq.u32 %p2, %r10, 1; @%p2 bra ONE;" + WAIT + "bra END; "
        "ONE: " + OVERWRITE + WAIT + "END:",
        READY + DESCRIBE + GROUP + "setp.eq.u32 %p2, %r10, 1; @%p2 bra ONE;" + WAIT + "bra END; "
        "ONE: " + WAIT + OVERWRITE + "END:",
    ),
    "no proxy fence": (
        AsyncFault,
        r"wgmma reads .* no fence\.proxy\.async",
        "bar.sync 0;" + DESCRIBE + GROUP + WAIT,
        READY + DESCRIBE + GROUP + WAIT,
    ),
    "no barrier": (
        RaceFault,
        "wgmma reads .* no barrier",
        "fence.proxy.async;" + DESCRIBE + GROUP + WAIT,
        READY + DESCRIBE + GROUP + WAIT,
    ),
    "never written": (
        UninitialisedFault,
        "%acc0 is added to before",
        READY + DESCRIBE + FENCE + ADD + COMMIT + WAIT,
        READY + DESCRIBE + FENCE + ADD.replace("%d6, 1,", "%d6, %p6,") + COMMIT + WAIT,
    ),
    "operand outside": (
        OutOfBoundsFault,
        "outside the shared memory of the block",
        READY + DESCRIBE.replace(str(B), str(B + 4096)) + GROUP + WAIT,
        READY + DESCRIBE.replace(str(B), str(B + 512)) + GROUP + WAIT,
    ),
    "different descriptors": (
        DivergenceFault,
        "different values of the descriptor of B",
        READY + DESCRIBE + "cvt.u64.u32 %d7, %r10; mad.lo.u64 %d6, %d7, 64, %d6;" + GROUP + WAIT,
        READY + DESCRIBE + GROUP + WAIT,
    ),
    "descriptors of lanes": (
        DivergenceFault,
        "lanes of one warp give different descriptors",
        READY + DESCRIBE + "cvt.u64.u32 %d7, %r0; mad.lo.u64 %d6, %d7, 2, %d6;" + GROUP + WAIT,
        READY + DESCRIBE + GROUP + WAIT,
    ),
    "different instructions": (
        DivergenceFault,
        "executes the wgmma of line",
        READY + DESCRIBE + FENCE + "setp.eq.u32 %p2, %r10, 3; @%p2 bra ONE;" + MMA + "bra END; "
        "ONE: " + MMA + "END:" + COMMIT + WAIT,
        READY + DESCRIBE + FENCE + "setp.gt.u32 %p2, %r10, 3; @%p2 bra ONE;" + MMA + "bra END; "
        "ONE: " + MMA + "END:" + COMMIT + WAIT,
    ),
    "three warps": (
        DeadlockFault,
        "waits for the other warps of its warpgroup",
        READY + DESCRIBE + FENCE + "setp.eq.u32 %p2, %r10, 3; @%p2 bra END;" + MMA + COMMIT + WAIT + "END:",
        READY + DESCRIBE + FENCE + "setp.gt.u32 %p2, %r10, 3; @%p2 bra END;" + MMA + COMMIT + WAIT + "END:",
    ),
    "part of a warp": (
        DivergenceFault,
        "other lanes of the warp never reach",
        READY + DESCRIBE + FENCE + "setp.eq.u32 %p2, %r11, 3; @%p2 bra END;" + MMA + COMMIT + WAIT + "bra LAST; "
        "END: bar.sync 1; LAST:",
        READY + DESCRIBE + GROUP + WAIT,
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize(("seed", "completion"), MODES)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_and_fixed_kernel(name, seed, completion):
    fault, words, wrong, right = FAULTS[name]
    image = np.zeros(65536, "u1")
    options = {"seed": seed, "completion": completion}
    launch(kernel(right, 32768), "k", 1, 128, [image, np.zeros(512, "u4"), image], **options)
    with pytest.raises(fault, match=words) as caught:
        launch(kernel(wrong, 32768), "k", 1, 128, [image, np.zeros(512, "u4"), image], **options)
    assert caught.value.line > 10


def test_block_without_a_warpgroup():
    image = np.zeros(32768, "u1")
    for threads in (96, 100, 127):
        with pytest.raises(DivergenceFault, match="a warpgroup"):
            launch(kernel(READY + DESCRIBE + GROUP + WAIT, 32768), "k", 1, threads, [image, image, image])


def test_two_warpgroups_and_a_chain():
    """Warpgroups run independently; accumulators are used in consecutive groups, and are read in between."""
    rng = np.random.default_rng(0)
    image, out = np.zeros(65536, "u1"), np.zeros((256, 4), "f4")
    a, b = draw(rng, "f16", 128, 16), draw(rng, "f16", 8, 16)
    leading, stride, _ = layout(64, 2, 128, False)
    place(a[:64], 0, leading, stride, 128, False, image)
    place(a[64:], 8192, leading, stride, 128, False, image)
    place(b, 16384, leading, stride, 128, False, image)
    body = READY + DESCRIBE + "shr.u32 %r12, %r0, 7; cvt.u64.u32 %d7, %r12; mad.lo.u64 %d5, %d7, 512, %d5;"
    body += FENCE + MMA + ADD + COMMIT + ADD + COMMIT + WAIT.replace("0;", "1;") + ADD + COMMIT + WAIT
    body += "".join(f"add.f32 %acc{i}, %acc{i}, %acc{i};" for i in range(4)) + FENCE + ADD + COMMIT + WAIT
    want = a.astype("f8") @ b.astype("f8").T * 9
    for seed, completion in MODES:
        launch(kernel(body + store(4)), "k", 1, 256, [image, out, image], seed=seed, completion=completion)
        got = np.concatenate([scattered(out[:128]), scattered(out[128:])])
        assert np.allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3,%acc4,%acc5}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%acc0,%acc1}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%acc0,%acc1}, %d5, %d6, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%acc0,%acc1,%acc2}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1, 2, 1, 0, 0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, %r0, 0, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, %r0, 2, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, %r0, 1, 1;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k256.satfinite.s32.b1.b1.and.popc {%acc0,%acc1,%acc2,%acc3}, %d5, %d6, 1;",
        "setmaxnreg.inc.sync.aligned.u32 20;",
        "setmaxnreg.inc.sync.aligned.u32 28;",
    ],
)
def test_invalid_text(text):
    with pytest.raises((ParseError, UnsupportedError)):
        launch(kernel(text), "k", 1, 128, [np.zeros(65536, "u1")] * 3)


# ---- setmaxnreg

SPLIT = """setp.ge.u32 %p2, %r0, 128; @%p2 bra.uni UP; setmaxnreg.dec.sync.aligned.u32 DOWN; bra.uni END;
UP: setmaxnreg.inc.sync.aligned.u32 MORE; END:"""


@pytest.mark.parametrize("seed", range(3))
def test_setmaxnreg_moves_registers(seed):
    """256 threads begin with 240 each (256 do not fit): one warpgroup takes the registers that the other releases."""
    image = np.zeros(1024, "u1")
    text = kernel(SPLIT.replace("DOWN", "224").replace("MORE", "256"), 1024)
    launch(text, "k", 1, 256, [image, image, image], seed=seed)
    with pytest.raises(DeadlockFault, match="registers that another warpgroup releases"):
        launch(
            kernel(SPLIT.replace("DOWN", "232").replace("MORE", "256"), 1024),
            "k",
            1,
            256,
            [image, image, image],
            seed=seed,
        )
    with pytest.raises(Fault, match=r"setmaxnreg\.dec to 248 registers of a warp that has 240"):
        launch(
            kernel(SPLIT.replace("DOWN", "248").replace("MORE", "256"), 1024),
            "k",
            1,
            256,
            [image, image, image],
            seed=seed,
        )
    with pytest.raises(Fault, match=r"setmaxnreg\.inc to 104 registers of a warp that has 240"):
        launch(
            kernel(SPLIT.replace("DOWN", "40").replace("MORE", "104"), 1024),
            "k",
            1,
            256,
            [image, image, image],
            seed=seed,
        )
    # without a number of registers to begin with, it has no effect
    launch(
        kernel(SPLIT.replace("DOWN", "232").replace("MORE", "256"), 1024, ".maxntid 256, 1, 1"),
        "k",
        1,
        256,
        [image, image, image],
        seed=seed,
    )
    with pytest.raises(DeadlockFault, match="registers"):
        launch(
            kernel(SPLIT.replace("DOWN", "168").replace("MORE", "176"), 1024, ".maxnreg 168"),
            "k",
            1,
            256,
            [image, image, image],
            seed=seed,
        )
