"""mma.sync: fragments, exactness and rounding, compared with an H200."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import mma_inputs
import numpy as np
import pytest
from emulator_kernels import launch, run
from mma_inputs import DISTRIBUTIONS, INTEGERS, VARIANTS, extents, kernel, operands, registers

from ptxgen.emulator.ops.matrix.fragments import Fragment, accumulator, operand_a, operand_b
from ptxgen.errors import DivergenceFault, ParseError, UninitialisedFault, UnsupportedError

HARDWARE = np.load(Path(__file__).parent / "mma_h200.npz")
NUMBERS = {
    "f16": "f2",
    "bf16": ml_dtypes.bfloat16,
    "tf32": "f4",
    "f32": "f4",
    "f64": "f8",
    "s8": "i1",
    "u8": "u1",
    "s32": "i4",
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}

Place = Callable[[int, int], tuple[int, int]]
#: the formulas of the ISA, written out shape by shape: (lane, element) -> row and column. g: group, t: thread in group
A_PLACES: dict[tuple[str, int], Place] = {
    # (shape, bits of an element)
    ("m8n8k4", 64): lambda n, i: (n // 4, n % 4),
    ("m8n8k16", 8): lambda n, i: (n // 4, n % 4 * 4 + i),
    ("m16n8k4", 32): lambda n, i: (n // 4 + (8 if i == 1 else 0), n % 4),
    ("m16n8k4", 64): lambda n, i: (n // 4 + (8 if i == 1 else 0), n % 4),
    ("m16n8k8", 16): lambda n, i: (n // 4 + (0 if i < 2 else 8), n % 4 * 2 + (i & 1)),
    ("m16n8k8", 32): lambda n, i: (n // 4 + (0 if i in (0, 2) else 8), n % 4 + (0 if i < 2 else 4)),
    ("m16n8k8", 64): lambda n, i: (n // 4 + (0 if i in (0, 2) else 8), n % 4 + (0 if i < 2 else 4)),
    ("m16n8k16", 8): lambda n, i: (n // 4 + (0 if i < 4 else 8), n % 4 * 4 + (i & 3)),
    ("m16n8k16", 16): lambda n, i: (
        n // 4 + (0 if i < 2 or 4 <= i < 6 else 8),
        n % 4 * 2 + (i & 1) + (0 if i < 4 else 8),
    ),
    ("m16n8k16", 64): lambda n, i: (n // 4 + 8 * (i % 2), (i * 2 if i % 2 == 0 else i * 2 - 2) + n % 4),
    ("m16n8k32", 8): lambda n, i: (
        n // 4 + (0 if i < 4 or 8 <= i < 12 else 8),
        n % 4 * 4 + (i & 3) + (0 if i < 8 else 16),
    ),
}
B_PLACES: dict[tuple[str, int], Place] = {
    ("m8n8k4", 64): lambda n, i: (n % 4, n // 4),
    ("m8n8k16", 8): lambda n, i: (n % 4 * 4 + i, n // 4),
    ("m16n8k4", 32): lambda n, i: (n % 4, n // 4),
    ("m16n8k4", 64): lambda n, i: (n % 4, n // 4),
    ("m16n8k8", 16): lambda n, i: (n % 4 * 2 + i, n // 4),
    ("m16n8k8", 32): lambda n, i: (n % 4 + (0 if i == 0 else 4), n // 4),
    ("m16n8k8", 64): lambda n, i: (n % 4 + (0 if i == 0 else 4), n // 4),
    ("m16n8k16", 8): lambda n, i: (n % 4 * 4 + i, n // 4),
    ("m16n8k16", 16): lambda n, i: (n % 4 * 2 + (i & 1) + (0 if i < 2 else 8), n // 4),
    ("m16n8k16", 64): lambda n, i: (n % 4 + i * 4, n // 4),
    ("m16n8k32", 8): lambda n, i: (n % 4 * 4 + (i & 3) + (0 if i < 4 else 16), n // 4),
}
C_PLACES: dict[str, Place] = {
    "m8": lambda n, i: (n // 4, n % 4 * 2 + i),
    "m16": lambda n, i: (n // 4 + (0 if i < 2 else 8), n % 4 * 2 + (i & 1)),
}


def bits_of(dtype: str) -> int:
    return 64 if dtype == "f64" else 32 // mma_inputs.PACKED[dtype]


def places(variant) -> tuple[tuple[Place, int, int], ...]:
    """For A, B and C: formula, rows, columns."""
    shape, a, b, _, _ = variant
    m, k = extents(shape)
    return (A_PLACES[shape, bits_of(a)], m, k), (B_PLACES[shape, bits_of(b)], k, 8), (C_PLACES[f"m{m}"], m, 8)


@pytest.mark.parametrize(("shape", "bits"), A_PLACES, ids=str)
def test_fragments(shape, bits):
    """Each table is the ISA's, and has every element of the matrix exactly once."""
    m, k = extents(shape)
    packed = max(32 // bits, 1)
    made: list[tuple[Fragment, Place, tuple[int, int]]] = [
        (operand_a(m, k, packed), A_PLACES[shape, bits], (m, k)),
        (operand_b(k, 8, packed), B_PLACES[shape, bits], (k, 8)),
        (accumulator(m, 8, 1), C_PLACES[f"m{m}"], (m, 8)),
        (accumulator(m, 8, 2), C_PLACES[f"m{m}"], (m, 8)),
    ]
    for fragment, formula, extent in made:
        seen = np.zeros(extent, int)
        for register, lane, e in np.ndindex(fragment.row.shape):
            at = fragment.row[register, lane, e], fragment.column[register, lane, e]
            assert at == formula(lane, register * fragment.packed + e)
            seen[at] += 1
        assert (seen == 1).all()
        assert sorted(fragment.index.reshape(-1)) == list(range(math.prod(extent)))
        assert fragment.index[fragment.row, fragment.column].reshape(-1).tolist() == list(range(math.prod(extent)))


def test_wide_accumulators():
    """Those of wgmma: element i at row g + 8 * (i / 2 % 2), column 8 * (i / 4) + 2 * t + i % 2."""
    f = accumulator(16, 256, 1)
    for i, lane in np.ndindex(128, 32):
        want = lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2
        assert (f.row[i, lane, 0], f.column[i, lane, 0]) == want


def to_registers(matrix, formula: Place, count: int):
    """A matrix of raw bits as [lane, register], by the ISA's formula."""
    size = matrix.itemsize
    out = np.zeros((32, count * max(4 // size, 1)), matrix.dtype)
    for lane, i in np.ndindex(out.shape):
        out[lane, i] = matrix[formula(lane, i)]
    return out.view("u8" if size == 8 else "u4")


def from_registers(words, formula: Place, shape, dtype):
    out = np.zeros(shape, dtype)
    flat = np.ascontiguousarray(words).view(dtype)
    for lane, i in np.ndindex(flat.shape):
        out[formula(lane, i)] = flat[lane, i]
    return out


def small(dtype: str, shape, rng):
    """Small integers, whose products and sums are exact in each of the types, as raw bits."""
    low = 0 if dtype == "u8" else -3
    return rng.integers(low, 4, shape).astype(NUMBERS[dtype])


@pytest.mark.each_value
@pytest.mark.parametrize("mma", ["hopper", "f32"])
@pytest.mark.parametrize("variant", VARIANTS, ids=".".join)
def test_products_of_small_integers(variant, mma):
    """Exact with any rounding: A, B and C are random, so that a swap of elements shows."""
    rng = np.random.default_rng(7)
    warps = 5
    _, kind_a, kind_b, kind_c, _ = variant
    na, nb, nc = registers(variant)
    word = "u8" if kind_c == "f64" else "u4"
    (fa, m, k), (fb, _, _), (fc, _, _) = places(variant)
    a, b, c = (np.zeros((warps, 32, n), word) for n in (na, nb, nc))
    d, want = np.zeros_like(c), []
    for w in range(warps):
        x, y, z = small(kind_a, (m, k), rng), small(kind_b, (k, 8), rng), small(kind_c, (m, 8), rng)
        a[w], b[w], c[w] = to_registers(x, fa, na), to_registers(y, fb, nb), to_registers(z, fc, nc)
        want.append(x.astype("f8") @ y.astype("f8") + z.astype("f8"))
    stats = launch(kernel(variant), "k", warps, 32, [a, b, c, d], mma=mma)
    assert stats.mma == warps
    assert stats.warp_instructions["mma"] == warps
    for w in range(warps):
        assert (from_registers(d[w], fc, (m, 8), NUMBERS[kind_c]).astype("f8") == want[w]).all()


# ---- rounding


@pytest.mark.parametrize("variant", VARIANTS, ids=".".join)
def test_results_match_an_h200(variant, draws):
    """Bit for bit, NaN and infinities, subnormal numbers and cancellation included: every second kind of input for a
    variant, in turn, and all with --exhaustive."""
    chosen = DISTRIBUTIONS[VARIANTS.index(variant) % 2 :: 2] if draws == 1 else DISTRIBUTIONS
    for distribution in chosen if variant[1] not in INTEGERS else ("raw",):
        want = HARDWARE["|".join((*variant, distribution))]
        some = len(want)
        a, b, c = (np.ascontiguousarray(x[:some]) for x in operands(variant, distribution))
        d = np.zeros_like(want)
        launch(kernel(variant), "k", some, 32, [a, b, c, d])
        if variant[3] == "f16":
            d, want = d.view("u2"), want.view("u2")
        assert (d == want).all(), distribution


def aligned(terms: list[tuple[int, Fraction]], bits: int = 25) -> Fraction:
    """Hopper's sum of terms, each with the exponent that aligns it, in exact arithmetic."""
    present = [(e, x) for e, x in terms if x]
    if not present:
        return Fraction(0)
    unit = Fraction(2) ** (max(e for e, _ in present) - bits)
    return sum((math.trunc(x / unit) * unit for _, x in present), Fraction(0))


def exponent(x: float, least: int) -> int:
    return max(math.frexp(x)[1] - 1, least)


def test_hoppers_rule_of_addition():
    """Against a scalar computation with fractions: f16 in f32, over a wide range of exponents."""
    variant = ("m16n8k16", "f16", "f16", "f32", "")
    (fa, m, k), (fb, _, _), (fc, _, _) = places(variant)
    a, b, c = (np.ascontiguousarray(x[:2]) for x in operands(variant, "wide"))
    c = (
        (np.random.default_rng(0).standard_normal(c.shape) * 2.0 ** np.arange(-30, 34, 2)[:, None])
        .astype("f4")
        .view("u4")
    )
    d, near = np.zeros_like(c), np.zeros_like(c)
    launch(kernel(variant), "k", 2, 32, [a, b, c, d])
    launch(kernel(variant), "k", 2, 32, [a, b, c, near], mma="f32")
    differ = 0
    for w in range(2):
        x, y = (
            from_registers(a[w], fa, (m, k), "f2").astype(float),
            from_registers(b[w], fb, (k, 8), "f2").astype(float),
        )
        z, out = from_registers(c[w], fc, (m, 8), "f4").astype(float), from_registers(d[w], fc, (m, 8), "f4")
        plain = from_registers(near[w], fc, (m, 8), "f4")
        for i, j in np.ndindex(m, 8):
            terms = [
                (exponent(x[i, n], -14) + exponent(y[n, j], -14), Fraction(x[i, n]) * Fraction(y[n, j]))
                for n in range(k)
            ]
            total = aligned([*terms, (exponent(z[i, j], -126), Fraction(z[i, j]))])
            # toward zero: no float32 lies between the result and the sum
            got = Fraction(float(out[i, j]))
            away = np.nextafter(out[i, j], np.float32(math.copysign(np.inf, total)))
            assert abs(got) <= abs(total) < abs(Fraction(float(away)))
            exact = sum(x for _, x in terms) + Fraction(z[i, j])
            assert abs(Fraction(float(plain[i, j])) - exact) <= abs(exact) * Fraction(2) ** -24
            differ += out[i, j] != plain[i, j]
    assert differ > 60


def test_f64_is_a_chain_of_fma():
    variant = ("m16n8k8", "f64", "f64", "f64", "")
    (fa, m, k), (fb, _, _), (fc, _, _) = places(variant)
    a, b, c = (np.ascontiguousarray(x[:1]) for x in operands(variant, "normal"))
    d = np.zeros_like(c)
    launch(kernel(variant), "k", 1, 32, [a, b, c, d])
    x, y, z, out = (
        from_registers(v[0], f, s, "f8")
        for v, f, s in ((a, fa, (m, k)), (b, fb, (k, 8)), (c, fc, (m, 8)), (d, fc, (m, 8)))
    )
    for i, j in np.ndindex(m, 8):
        total = float(z[i, j])
        for n in range(k):
            total = float(Fraction(x[i, n]) * Fraction(y[n, j]) + Fraction(total))
        assert out[i, j] == total


def test_fp8_is_added_in_two_steps():
    """Hopper's mma adds e4m3 in two steps, and C last: a single sum would differ."""
    variant = ("m16n8k32", "e4m3", "e4m3", "f32", "")
    a, b, c = (np.zeros((1, 32, n), "u4") for n in registers(variant))
    one = 0x38  # 1.0
    a[:, :, 0] = one | one << 24  # row g, k = 4 t and 4 t + 3
    b[:, :, 0] = 0x7E | 0xFE << 24  # 448 and -448: they cancel, though not before the second step
    c[:] = np.array(2.0**-20, "f4").view("u4")
    d = np.zeros_like(c)
    launch(kernel(variant), "k", 1, 32, [a, b, c, d])
    # the sum of products is 0, and then C is added: it is not cut off
    assert (d.view("f4")[:, :, :2] == 2.0**-20).all()


@pytest.mark.parametrize("saturate", [False, True])
def test_integers_wrap_or_saturate(saturate):
    variant = ("m16n8k32", "s8", "s8", "s32", ".satfinite" if saturate else "")
    a, b, c = (np.zeros((2, 32, n), "u4") for n in registers(variant))
    a[:], b[:] = 0x80808080, np.array([0x80808080, 0x7F7F7F7F])[:, None, None]
    c.view("i4")[:] = np.array([2**31 - 5, -(2**31) + 5])[:, None, None]
    d = np.zeros_like(c)
    launch(kernel(variant), "k", 2, 32, [a, b, c, d])
    over = [2**31 - 5 + 32 * 128 * 128, -(2**31) + 5 - 32 * 128 * 127]
    for w, exact in enumerate(over):
        want = min(max(exact, -(2**31)), 2**31 - 1) if saturate else (exact + 2**31) % 2**32 - 2**31
        assert (d[w].view("i4") == want).all()


def test_low_bits_of_tf32_do_not_count():
    variant = ("m16n8k8", "tf32", "tf32", "f32", "")
    a, b, c = (x[:4].copy() for x in operands(variant, "wide"))
    for mma in ("hopper", "f32"):
        out = []
        for low in (0, 0x1FFF):
            d = np.zeros_like(c)
            launch(
                kernel(variant), "k", 4, 32, [a & ~np.uint32(0x1FFF) | low, b & ~np.uint32(0x1FFF) | low, c, d], mma=mma
            )
            out.append(d)
        assert (out[0] == out[1]).all()
        d = np.zeros_like(c)
        launch(kernel(variant), "k", 4, 32, [a ^ 0x2000, b, c, d], mma=mma)
        assert (d != out[0]).any()


# ---- warps and faults

ONES = """mov.u32 %r0, %tid.x; mov.u32 %r20, %ctaid.x; mov.f32 %f0, 0f00000000; mov.b32 %r1, 0x3c003c00;
    mov.b32 %r2, %r1;
cvt.rn.f32.u32 %f1, %r0; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1; shr.u32 %r3, %r0, 5;
"""
ONES_MMA = (
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r1}, {%f1, %f2, %f3, %f4};"
)
ONES_STORE = "mad.lo.u32 %r4, %r20, BLOCK, %r0; mad.wide.u32 %d0, %r4, 4, %q0; st.global.f32 [%d0], %f3;"


@pytest.mark.parametrize("mma", ["hopper", "f32"])
def test_only_some_warps_multiply(mma):
    """Warps of one position in their blocks that disagree; the accumulators are also the result."""
    y = np.zeros((6, 96), "f4")
    run(
        ONES
        + f"""add.u32 %r5, %r3, %r20; and.b32 %r5, %r5, 1; setp.eq.u32 %p0, %r5, 0; @%p0 bra.uni SKIP;
    {ONES_MMA} {ONES_MMA} SKIP:"""
        + ONES_STORE.replace("BLOCK", "96"),
        y,
        grid=6,
        block=96,
        mma=mma,
    )
    block, thread = np.mgrid[:6, :96]
    assert (y == thread + 16 * ((thread // 32 + block) % 2)).all()


def test_constants_as_operands():
    y = np.zeros((1, 32), "f4")
    body = ONES + ONES_MMA.replace("{%f1, %f2, %f3, %f4};", "{0f3F800000, 0f40000000, 0f40400000, 0f40800000};")
    run(body + ONES_STORE.replace("BLOCK", "32"), y)
    assert (y == 8 + 3).all()


@pytest.mark.parametrize("limit", [64, 40])
def test_mma_needs_whole_warps(limit):
    y = np.zeros((1, 64), "f4")
    guarded = ONES + f"setp.lt.u32 %p0, %r0, {limit}; @%p0 {ONES_MMA} bar.sync 0;" + ONES_STORE.replace("BLOCK", "64")
    gone = ONES + f"setp.ge.u32 %p0, %r0, {limit}; @%p0 exit; {ONES_MMA}" + ONES_STORE.replace("BLOCK", "64")
    for body, words in ((guarded, "never reach"), (gone, "24 lanes of the warp are missing")):
        if limit == 64:
            run(body, y, block=64)
        else:
            with pytest.raises(DivergenceFault, match=words):
                run(body, y, block=64)


@pytest.mark.parametrize("threads", [32, 48])
def test_mma_needs_full_warps_of_the_block(threads):
    y = np.zeros((1, 64), "f4")
    body = ONES + ONES_MMA + ONES_STORE.replace("BLOCK", "64")
    if threads == 32:
        run(body, y, block=threads)
    else:
        with pytest.raises(DivergenceFault, match="16 lanes of the warp are missing"):
            run(body, y, block=threads)


def test_undefined_operand():
    y = np.zeros((1, 32), "f4")
    body = ONES + "setp.lt.u32 %p0, %r0, 31; GUARD mov.b32 %r9, %r1;" + ONES_MMA.replace("%r2", "%r9")
    run(body.replace("GUARD", "") + ONES_STORE.replace("BLOCK", "32"), y)
    with pytest.raises(UninitialisedFault, match="%r9") as caught:
        run(body.replace("GUARD", "@%p0") + ONES_STORE.replace("BLOCK", "32"), y)
    assert caught.value.thread == (28, 0, 0)  # lane 31 holds row 7 + 8 of A; lanes 28 to 31 hold this row of the result
    assert "st.global.f32 [%d0], %f3" in caught.value.instruction
    # row 7 is defined
    run(body.replace("GUARD", "@%p0") + ONES_STORE.replace("BLOCK", "32").replace("%f3", "%f1"), y)


@pytest.mark.parametrize(
    ("operand", "stored", "lanes"),
    [
        ("{%f1, %f2, %f3, %f4}, {%bad, %r1}, {%r1}", "%f2", range(8, 12)),  # A: row 2
        ("{%f1, %f2, %f3, %f4}, {%r1, %bad}, {%r1}", "%f2", ()),
        ("{%f1, %f2, %f3, %f4}, {%r1, %r1}, {%bad}", "%f1", range(1, 32, 4)),  # B: column 2
        ("{%f1, %f2, %f3, %f4}, {%r1, %r1}, {%bad}", "%f2", ()),
    ],
)
def test_results_that_depend_on_an_undefined_fragment(operand, stored, lanes):
    """Lane 9 has no operand; the results that depend on it are in `lanes`, and each lane stores in turn."""
    undefined = []
    for lane in range(32):
        body = (
            ONES
            + f"""setp.ne.u32 %p0, %r0, 9; @%p0 mov.b32 %bad, %r1; setp.eq.u32 %p1, %r0, {lane};
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {operand}, {{%f1, %f2, %f3, %f4}};
        @%p1 st.global.f32 [%q0], {stored};"""
        )
        try:
            run(body, np.zeros(1, "f4"), registers=".reg .b32 %bad;")
        except UninitialisedFault:
            undefined.append(lane)
    assert undefined == list(lanes)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("m16n8k8", "m16n8k32", UnsupportedError),
        ("row.col", "col.row", UnsupportedError),
        ("f32.f16.f16.f32", "f32.f16.bf16.f32", UnsupportedError),
        ("f32.f16.f16.f32", "f16.f16.f16.f32", ParseError),
        ("row.col.f32", "row.col.satfinite.f32", UnsupportedError),
        ("f16.f32 ", "f16.f32.rz ", UnsupportedError),
        (".sync.aligned", ".sync", UnsupportedError),
        ("{%r1, %r2}", "{%r1}", ParseError),
        ("{%f1, %f2, %f3, %f4},", "{%f1, %f2, %f3, %d4},", ParseError),
    ],
)
def test_invalid_shapes_and_types(old, new, error):
    y = np.zeros((1, 32), "f4")
    assert old in ONES_MMA
    with pytest.raises(error, match="line"):
        run(ONES + ONES_MMA.replace(old, new) + ONES_STORE.replace("BLOCK", "32"), y)
