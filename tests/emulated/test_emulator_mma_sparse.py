"""mma.sp: compared with products of A written out with its zeros, by the formulas and figures of the PTX ISA."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import launch

from ptxgen.emulator.ops.matrix.rounding import fused
from ptxgen.errors import DivergenceFault, Fault, ParseError, UninitialisedFault, UnsupportedError

NUMBERS = {
    "f16": np.dtype("f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype("f4"),
    "f32": np.dtype("f4"),
    "s32": np.dtype("i4"),
    "s8": np.dtype("i1"),
    "u8": np.dtype("u1"),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
PACKED = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4, "s4": 8, "u4": 8}
#: (k, type of A, type of B, type of C and D, selector)
VARIANTS = [
    (16, "f16", "f16", "f32", 0),
    (16, "f16", "f16", "f16", 3),
    (32, "f16", "f16", "f16", 0),
    (32, "f16", "f16", "f32", 1),
    (16, "bf16", "bf16", "f32", 2),
    (32, "bf16", "bf16", "f32", 0),
    (8, "tf32", "tf32", "f32", 1),
    (16, "tf32", "tf32", "f32", 1),
    (32, "s8", "u8", "s32", 1),
    (64, "u8", "s8", "s32", 0),
    (64, "s4", "u4", "s32", 1),
    (128, "u4", "s4", "s32", 0),
    (64, "e4m3", "e5m2", "f32", 0),
]
#: by k and bits of an element, from the figures of the metadata: row and chunk -> lane within its group, first bit
METADATA = {
    (16, 16): lambda high, c, s: (s, 16 * high + 4 * c),
    (32, 16): lambda high, c, s: (2 * s + c // 4, 16 * high + 4 * (c % 4)),
    (8, 32): lambda high, c, s: (s, 16 * high + 4 * c),
    (16, 32): lambda high, c, s: (2 * s + c // 4, 16 * high + 4 * (c % 4)),
    (32, 8): lambda high, c, s: (2 * s + high, 4 * c),
    (64, 8): lambda high, c, s: (high + 2 * (c // 8), 4 * (c % 8)),
    (64, 4): lambda high, c, s: (2 * s + high, 4 * c),
    (128, 4): lambda high, c, s: (high + 2 * (c // 8), 4 * (c % 8)),
}


def name(variant, ordered: bool, satfinite: str = "") -> str:
    k, a, b, c, _ = variant
    sp = "sp::ordered_metadata" if ordered else "sp"
    return f"mma.{sp}.sync.aligned.m16n8k{k}.row.col{satfinite}.{c}.{a}.{b}.{c}"


def kernel(variant, ordered: bool, satfinite: str = "") -> str:
    k, a, b, c, selector = variant
    counts = {"a": 8 * k // 32 // PACKED[a], "b": 8 * k // 32 // PACKED[b], "c": 2 if c == "f16" else 4, "e": 1}
    dtype = "f32" if c == "f32" else "b32"
    text = """.version 8.5\n.target sm_90a\n.address_size 64
    .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 e, .param .u64 d)
    { .reg .b32 %lane; mov.u32 %lane, %tid.x; .reg .b64 %x; .reg .b64 %o;"""
    for matrix, n in counts.items():
        text += f".reg .{dtype if matrix == 'c' else 'b32'} %{matrix}<{n}>; ld.param.u64 %x, [{matrix}];"
        text += f"mul.wide.u32 %o, %lane, {4 * n}; add.u64 %x, %x, %o;"
        text += "".join(f"ld.global.b32 %{matrix}{i}, [%x+{4 * i}];" for i in range(n))
    lists = [", ".join(f"%{matrix}{i}" for i in range(counts[matrix])) for matrix in "cabc"]
    text += f"{name(variant, ordered, satfinite)} {', '.join(f'{{{x}}}' for x in lists)}, %e0, {selector};"
    text += f"ld.param.u64 %x, [d]; mul.wide.u32 %o, %lane, {4 * counts['c']}; add.u64 %x, %x, %o;"
    return text + "".join(f"st.global.b32 [%x+{4 * i}], %c{i};" for i in range(counts["c"])) + "ret; }"


def bits(matrix, dtype: str):
    """The elements as unsigned integers."""
    if dtype in ("s4", "u4"):
        return matrix.astype("i8") & 15
    return matrix.astype(NUMBERS[dtype]).view(f"u{NUMBERS[dtype].itemsize}").astype("i8")


def registers(matrix, dtype: str, place, count: int):
    """[lane, register], by the formula of a fragment: (lane, register, element of it) -> row and column."""
    each = PACKED.get(dtype, 2 if dtype == "f16" else 1)
    out = np.zeros((32, count), "u4")
    number = bits(matrix, dtype)
    for lane, r, i in np.ndindex(32, count, each):
        out[lane, r] |= np.uint32(number[place(lane, r, i)] << 32 // each * i)
    return out


def place_c(packed: int):
    return lambda n, r, i: (n // 4 + 8 * (packed * r + i > 1), n % 4 * 2 + (packed * r + i) % 2)


class Operands:
    """One product: `stored` and `columns`: the elements of each row of A, and where they are; b, c; the registers."""

    def __init__(self, variant, make, ordered: bool = True, seed: int = 1) -> None:
        self.variant = variant
        k, kind_a, kind_b, kind_c, selector = variant
        rng = np.random.default_rng(seed)
        each = PACKED[kind_a]
        self.chunk = {1: 2, 8: 8}.get(each, 4)
        chunks = k // self.chunk
        self.stored, self.b, self.c = (
            make(kind_a, (16, k // 2), rng),
            make(kind_b, (k, 8), rng),
            make(kind_c, (16, 8), rng),
        )
        pairs = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
        pairs = [(0, 1), (2, 3)] if self.chunk == 2 else pairs if ordered else pairs + [p[::-1] for p in pairs]
        self.columns = np.zeros((16, k // 2), int)
        self.words = np.zeros((32, 1), "u4")
        for row, c in np.ndindex(16, chunks):
            first, second = pairs[rng.integers(len(pairs))]
            t, bit = METADATA[k, 32 // each](row // 8, c, selector)
            self.words[4 * (row % 8) + t, 0] |= np.uint32((first | second << 2) << bit)
            where = {2: [first // 2], 4: [first, second], 8: [2 * first, 2 * first + 1, 2 * second, 2 * second + 1]}
            at = len(where[self.chunk]) * c
            self.columns[row, at : at + len(where[self.chunk])] = np.array(where[self.chunk]) + self.chunk * c
        na, nb = 8 * k // 32 // each, 8 * k // 32 // each
        # in A, a register has elements from 2 * each columns
        self.ra = registers(
            self.stored, kind_a, lambda n, r, i: (n // 4 + 8 * (r % 2), n % 4 * each + r // 2 * 4 * each + i), na
        )
        self.rb = registers(self.b, kind_b, lambda n, r, i: (n % 4 * each + i + 4 * each * r, n // 4), nb)
        self.place_c = place_c(2 if kind_c == "f16" else 1)
        self.rc = registers(self.c, kind_c, self.place_c, 2 if kind_c == "f16" else 4)

    def run(self, ordered: bool = True, satfinite: str = "", **options):
        d = np.zeros_like(self.rc)
        stats = launch(
            kernel(self.variant, ordered, satfinite), "k", 1, 32, [self.ra, self.rb, self.rc, self.words, d], **options
        )
        assert stats.mma == 1
        dtype = self.variant[3]
        out = np.zeros((16, 8), NUMBERS[dtype])
        flat = d.view(NUMBERS[dtype])
        for lane, i in np.ndindex(flat.shape):
            packed = 2 if dtype == "f16" else 1
            out[self.place_c(lane, i // packed, i % packed)] = flat[lane, i]
        return out

    @property
    def dense(self):
        """A with its zeros."""
        out = np.zeros((16, self.variant[0]))
        np.put_along_axis(out, self.columns, self.stored.astype(float), axis=1)
        return out


def small(dtype: str, shape, rng):
    """Small integers, whose products and sums are exact in each of the types."""
    return rng.integers(0 if dtype[0] == "u" else -3, 4, shape)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "sp"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: ".".join(map(str, v)))
def test_products_of_small_integers(variant, ordered):
    """Metadata of mma.sp need not ascend, but for e4m3 and e5m2."""
    x = Operands(variant, small, ordered or variant[1][0] == "e")
    want = x.dense @ x.b + x.c
    for mma in ("hopper", "f32"):
        assert (x.run(ordered, mma=mma).astype(float) == want).all()


@pytest.mark.parametrize("variant", VARIANTS[:8], ids=lambda v: ".".join(map(str, v)))
def test_rounding(variant):
    """The products of the stored elements and of C are aligned and summed as in a dense product."""
    x = Operands(variant, lambda dtype, shape, rng: rng.standard_normal(shape).astype(NUMBERS[dtype]))
    if variant[1] == "tf32":
        x.stored, x.b = ((m.view("u4") & 0xFFFFE000).view("f4") for m in (x.stored, x.b))
    selected = x.b[x.columns].transpose(0, 2, 1)  # [row, column of B, stored column]
    want = fused(x.stored[:, None].astype(float), selected.astype(float), x.c[:, None], variant[1:3])[:, 0]
    assert (x.run() == want).all()
    assert np.allclose(
        x.run(mma="f32").astype(float), x.dense @ x.b.astype(float) + x.c.astype(float), rtol=0.01, atol=0.02
    )


def test_integers_saturate_or_wrap():
    x = Operands((64, "s8", "s8", "s32", 0), small)
    x.rc[:] = 0x7FFFFFFF
    exact = x.dense @ x.b + 0x7FFFFFFF
    assert (x.run(satfinite=".satfinite") == np.minimum(exact, 0x7FFFFFFF)).all()
    assert (x.run().view("u4") == exact.astype("i8").astype("u4")).all()


def test_infinities_beside_zeros():
    """Rows of B that meet only the zeros of A do not count."""
    x = Operands(VARIANTS[3], small)
    x.words[:] = 0x44444444
    x.rb[1::2] = 0x7C007C00  # t odd: rows 2 and 3 of each chunk of four
    assert np.isfinite(x.run()).all()


@pytest.mark.parametrize(
    ("variant", "ordered", "word", "message"),
    [
        (
            VARIANTS[0],
            False,
            0x44454444,
            "row 8 and columns 0 to 3 of A are 0b0101; they must be two different indices",
        ),
        (VARIANTS[0], True, 0x44444414, "row 0 and columns 4 to 7 of A are 0b0001; they must be two ascending indices"),
        (VARIANTS[7], True, 0x4444E484, "row 0 and columns 2 to 3 of A are 0b1000; they must be 0b0100 or 0b1110"),
    ],
)
def test_invalid_metadata(variant, ordered, word, message):
    x = Operands(variant, small)
    x.words[:] = word
    with pytest.raises(Fault, match=message):
        x.run(ordered)


def test_undefined_metadata():
    """Only lanes that the selector names have metadata."""
    x = Operands(VARIANTS[0], small)
    load = "ld.global.b32 %e0, [%x+0];"
    text = kernel(x.variant, True)
    d = np.zeros_like(x.rc)
    for lanes, fails in (("0", False), ("1", True)):
        guarded = f".reg .pred %p; and.b32 %t, %lane, 3; setp.eq.u32 %p, %t, {lanes}; @%p {load}"
        some = text.replace(load, ".reg .b32 %t; " + guarded)
        arguments = [x.ra, x.rb, x.rc, x.words, d]
        if fails:
            with pytest.raises(UninitialisedFault, match="register %e0 is read before it is written"):
                launch(some, "k", 1, 32, arguments)
        else:
            launch(some, "k", 1, 32, arguments)
    with pytest.raises(DivergenceFault):
        launch(text, "k", 1, 16, [x.ra, x.rb, x.rc, x.words, d])


@pytest.mark.parametrize(
    ("changed", "to", "error", "message"),
    [
        ("%e0, 0;", "%e0, 4;", ParseError, "the selector of m16n8k16 is 4; it must be 0 to 3"),
        ("%e0, 0;", "%e0;", ParseError, "has 5 operands; it must have 6: d, a, b, c, metadata, selector"),
        ("%e0, 0;", "7, 0;", ParseError, "operand 5 of .* is an integer constant; it must be a .u32 register"),
        ("%e0, 0;", "%e0, %e0;", ParseError, "operand 6 of .* it must be an integer constant"),
        ("m16n8k16", "m16n8k64", UnsupportedError, "is not emulated"),
        ("row.col", "col.row", UnsupportedError, "is not emulated"),
    ],
)
def test_texts_that_are_refused(changed, to, error, message):
    text = kernel(VARIANTS[0], True)
    assert changed in text
    with pytest.raises(error, match=message):
        launch(text.replace(changed, to), "k", 1, 32, [np.zeros((32, 4), "u4")] * 5)
