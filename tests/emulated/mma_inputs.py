"""Operands of mma for the tests, from the raw words of PCG64, so that they are the same everywhere.
`tests/emulated/mma_h200.npz` holds the results of an H200: the first warps of `operands(...)` for every variant and
distribution, under the name "shape|A|B|C|modifier|distribution"."""

from __future__ import annotations

import numpy as np

#: (exponent bits, mantissa bits)
FORMAT = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 23),
    "f32": (8, 23),
    "f64": (11, 52),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}
PACKED = {"f16": 2, "bf16": 2, "tf32": 1, "f64": 1, "f32": 1, "e4m3": 4, "e5m2": 4, "s8": 4, "u8": 4, "s32": 1}
#: distributions of numbers: about 1, all exponents, any bits, half zeros, near the least and the largest sums, few bits, cancelling
DISTRIBUTIONS = ("normal", "wide", "raw", "sparse", "tiny", "small", "big", "half", "simple", "cancel")
#: warps that were made; the sequence depends on it
WARPS = 48
INTEGERS = ("s8", "u8")

F8 = ("e4m3", "e5m2")
#: (shape, A, B, C and D, last modifier)
VARIANTS: list[tuple[str, str, str, str, str]] = []
for shape in ("m16n8k8", "m16n8k16"):
    VARIANTS += [(shape, "f16", "f16", "f32", ""), (shape, "f16", "f16", "f16", ""), (shape, "bf16", "bf16", "f32", "")]
VARIANTS += [(shape, "tf32", "tf32", "f32", "") for shape in ("m16n8k4", "m16n8k8")]
VARIANTS += [(s, a, b, c, "") for s in ("m16n8k16", "m16n8k32") for a in F8 for b in F8 for c in ("f32", "f16")]
VARIANTS += [
    (s, "f64", "f64", "f64", e) for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16") for e in ("", ".rz", ".rm", ".rp")
]
VARIANTS += [
    (s, a, b, "s32", e)
    for s in ("m8n8k16", "m16n8k16", "m16n8k32")
    for a in INTEGERS
    for b in INTEGERS
    for e in ("", ".satfinite")
]


def extents(shape: str) -> tuple[int, int]:
    m, _, k = shape[1:].partition("n8k")
    return int(m), int(k)


def registers(variant: tuple[str, str, str, str, str]) -> tuple[int, int, int]:
    """Registers of A, B and C."""
    m, k = extents(variant[0])
    _, a, b, c, _ = variant
    return m * k // 32 // PACKED[a], 8 * k // 32 // PACKED[b], m * 8 // 32 // (2 if c == "f16" else 1)


class Words:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.PCG64(seed)

    def raw(self, n: int) -> np.ndarray:
        return self.generator.random_raw(n).astype(np.uint64)

    def below(self, limit: int, n: int) -> np.ndarray:
        return ((self.raw(n) >> np.uint64(33)) % np.uint64(limit)).astype(np.int64)


def floats(words: Words, element: str, distribution: str, n: int, addend: bool) -> np.ndarray:
    """Bits of floating-point numbers."""
    exponents, mantissas = FORMAT[element]
    bias, top = (1 << (exponents - 1)) - 1, (1 << exponents) - 1
    sign, mantissa = words.below(2, n).astype(np.uint64), words.raw(n) >> np.uint64(64 - mantissas)
    if distribution == "normal":
        e = bias - 6 + words.below(8, n)
    elif distribution == "wide":
        e = words.below(top, n)
    elif distribution == "raw":
        e = words.below(top + 1, n)
    elif distribution == "sparse":
        e = words.below(top, n)
        zero = words.below(2, n) == 0
        e, mantissa = np.where(zero, 0, e), np.where(zero, 0, mantissa)
    elif distribution == "tiny":
        e = words.below(24, n) % top if addend else words.below(max(top // 6, 3), n)
    elif distribution == "small":
        e = np.maximum(bias // 2 + 2 - 8 + words.below(16, n), 0) % top
        if addend:
            e = words.below(min(32, top), n)
    elif distribution == "big":
        e = top - 1 - words.below(min(40, top - 1) if addend else 3, n)
    elif distribution == "half":
        e = np.minimum(bias + bias // 2 - 3 + words.below(6, n), top - 1)
        if addend:
            e = top - 1 - words.below(8, n)
    else:
        e = bias - 2 + words.below(4, n)
        few = np.uint64(mantissas - 1)
        mantissa = (mantissa >> few) << few
        zero = words.below(3, n) == 0
        e, mantissa = np.where(zero, 0, e), np.where(zero, 0, mantissa)
    if element == "e4m3" and distribution != "raw":
        mantissa = np.where((e == 15) & (mantissa == 7), 6, mantissa).astype(np.uint64)
    return (sign << np.uint64(exponents + mantissas)) | (e.astype(np.uint64) << np.uint64(mantissas)) | mantissa


def pack(words: Words, dtype: str, count: int, distribution: str, addend: bool = False) -> np.ndarray:
    n = WARPS * 32 * count
    if dtype in INTEGERS:
        return (words.raw(n) >> np.uint64(32)).astype(np.uint32).reshape(WARPS, 32, count)
    if dtype == "s32":
        x = (words.raw(n) >> np.uint64(32)).astype(np.uint32)
        near, low = words.below(3, n), x & np.uint32(0x7FFFF)
        x = np.where(near == 0, low | np.uint32(0x7FF80000), np.where(near == 1, low | np.uint32(0x80000000), x))
        return x.astype(np.uint32).reshape(WARPS, 32, count)
    each = PACKED[dtype]
    bits = floats(words, dtype, "normal" if distribution == "cancel" else distribution, n * each, addend)
    if distribution == "sparse" and addend:
        bits = np.where(words.below(4, len(bits)) > 0, np.uint64(0), bits)
    if dtype == "f64":
        return bits.reshape(WARPS, 32, count)
    bits = bits.reshape(WARPS, 32, count, each)
    out = np.zeros((WARPS, 32, count), np.uint64)
    for i in range(each):
        out |= bits[..., i] << np.uint64(32 // each * i)
    return out.astype(np.uint32)


def operands(variant: tuple[str, str, str, str, str], distribution: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Registers of A, B and C by [warp, lane, register]."""
    index = 0 if variant[1] in INTEGERS else DISTRIBUTIONS.index(distribution)
    words = Words(1000 * VARIANTS.index(variant) + index)
    _, kind_a, kind_b, kind_c, _ = variant
    na, nb, nc = registers(variant)
    a = pack(words, kind_a, na, distribution)
    b = pack(words, kind_b, nb, distribution)
    c = pack(words, kind_c, nc, distribution, True)
    if distribution == "cancel":
        if nb > 1:
            signs = {2: 0x80008000, 4: 0x80808080}.get(PACKED[kind_a], 1 << (63 if kind_a == "f64" else 31))
            half = na // 2
            a[..., half:] = a[..., :half] ^ a.dtype.type(signs)
            b[..., nb // 2 :] = b[..., : nb // 2]
            a[:, ::3, half:] ^= a.dtype.type(1)
        c[:, ::2] = 0
    return a, b, c


def kernel(variant: tuple[str, str, str, str, str]) -> str:
    """Each block, of one warp, multiplies: A, B, C and D are arrays of registers, [warp, lane, register]."""
    shape, kind_a, kind_b, kind_c, last = variant
    bits = 64 if kind_c == "f64" else 32
    held = {"f64": "f64", "f32": "f32"}.get(kind_c, "b32")
    na, nb, nc = registers(variant)

    def names(letter: str, n: int) -> str:
        return "{" + ", ".join(f"%{letter}{i}" for i in range(n)) + "}"

    def moved(op: str, letter: str, n: int) -> str:
        out = f"mul.wide.u32 %at, %i, {n * bits // 8}; add.u64 %at, %at, %p{letter};\n"
        for i in range(n):
            address, register = f"[%at+{bits // 8 * i}]", f"%{letter}{i}"
            out += f"{op}.global.b{bits} " + (
                f"{register}, {address};\n" if op == "ld" else f"{address}, {register};\n"
            )
        return out

    types = f"{kind_c}.{kind_a}.{kind_b}.{kind_c}"
    mods = f".satfinite.{types}" if last == ".satfinite" else f".{types}{last}"
    return f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C, .param .u64 D)
{{
.reg .b64 %pa, %pb, %pc, %pd, %at; .reg .b32 %i, %t;
.reg .{"f64" if bits == 64 else "b32"} %a<{na}>, %b<{nb}>; .reg .{held} %c<{nc}>, %d<{nc}>;
ld.param.u64 %pa, [A]; ld.param.u64 %pb, [B]; ld.param.u64 %pc, [C]; ld.param.u64 %pd, [D];
mov.u32 %i, %ctaid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, 32, %t;
{moved("ld", "a", na)}{moved("ld", "b", nb)}{moved("ld", "c", nc)}
mma.sync.aligned.{shape}.row.col{mods} {names("d", nc)}, {names("a", na)}, {names("b", nb)}, {names("c", nc)};
{moved("st", "d", nc)}
ret;
}}
"""
