"""mma.sync: matrix products of fragments, for all warps of a warp batch in one operation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.numerics import F16, F32, F64, fma64
from ptxgen.emulator.ops.data_movement.load_store import elements
from ptxgen.emulator.ops.matrix.fragments import Fragment, accumulator, operand_a, operand_b
from ptxgen.emulator.ops.matrix.ldmatrix import gather, whole_warps
from ptxgen.emulator.ops.matrix.rounding import LOWEST, TILE, Terms, aligned_sum, canonical_nan, decode, narrow, values
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.undefined import Operands
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Operand, Reg, Vec
from ptxgen.emulator.warp_batch import Step, WarpBatch

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: element type -> (number of elements in a register of an operand, type of the register)
PACKED = {
    "s4": 8,
    "u4": 8,
    "b1": 32,
    "f16": 2,
    "bf16": 2,
    "tf32": 1,
    "f64": 1,
    "s8": 4,
    "u8": 4,
    **dict.fromkeys(FP8, 4),
    "f32": 1,
    "s32": 1,
}


REGISTER = {"f64": "f64", "f32": "f32", "s32": "s32"}


_EIGHT = [(a, b) for a in FP8 for b in FP8]


_BYTES = [(a, b) for a in ("s8", "u8") for b in ("s8", "u8")]


#: (type of A, type of B, type of C and D) -> shapes
SHAPES: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("f16", "f16", "f32"): ("m16n8k8", "m16n8k16"),
    ("f16", "f16", "f16"): ("m16n8k8", "m16n8k16"),
    ("bf16", "bf16", "f32"): ("m16n8k8", "m16n8k16"),
    ("tf32", "tf32", "f32"): ("m16n8k4", "m16n8k8"),
    ("f64", "f64", "f64"): ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    **{(a, b, "s32"): ("m8n8k16", "m16n8k16", "m16n8k32") for a, b in _BYTES},
    **{(a, b, c): ("m16n8k16", "m16n8k32") for a, b in _EIGHT for c in ("f32", "f16")},
    **{(a, b, "s32"): ("m8n8k32", "m16n8k32", "m16n8k64") for a in ("s4", "u4") for b in ("s4", "u4")},
    ("b1", "b1", "s32"): ("m8n8k128", "m16n8k128", "m16n8k256"),
}


@dataclass(frozen=True)
class Product:
    """D = A B + C of one shape and element types. ``bitwise``: the operation of b1 products, "xor" or "and"."""

    m: int
    k: int
    a: str
    b: str
    c: str
    n: int = 8
    bitwise: str = ""

    @cached_property
    def fragment_a(self) -> Fragment:
        return operand_a(self.m, self.k, PACKED[self.a])

    @cached_property
    def fragment_b(self) -> Fragment:
        return operand_b(self.k, self.n, PACKED[self.b])

    @cached_property
    def fragment_c(self) -> Fragment:
        return accumulator(self.m, self.n, PACKED[self.c])

    @cached_property
    def terms(self) -> tuple[Array, Array]:
        """The pair (indices in the fragment of A, in that of B) of the two factors of each product, as [k, m * N +
        n]."""
        return np.repeat(self.fragment_a.index.T, self.n, axis=1), np.tile(self.fragment_b.index, (1, self.m))

    @cached_property
    def indices(self) -> tuple[Array, Array, Array]:
        """The indices in the fragments of the elements of A, B and C, in row-major order."""
        f = (self.fragment_a, self.fragment_b, self.fragment_c)
        return f[0].index.reshape(-1), f[1].index.reshape(-1), f[2].index.reshape(-1)

    @cached_property
    def order_of_d(self) -> Array:
        """For each element of the fragment of D: its row-major position."""
        return np.argsort(self.indices[2])


def parse(b: Builder, ins: Instruction) -> tuple[Product, str, bool]:
    """The tuple (product, rounding of f64, whether integers saturate)."""
    mods = [m for m in ins.mods if m not in ("sync", "aligned", "popc")]
    saturate = "satfinite" in mods
    mode = next((m for m in mods if m in ("rn", "rz", "rm", "rp")), "")
    bitwise = next((m for m in mods if m in ("xor", "and")), "")
    types = [m for m in mods if m in PACKED]
    rest = [m for m in mods if m not in ("satfinite", mode, bitwise, "row", "col", *types)]
    converged = {"sync", "aligned"} <= set(ins.mods)
    if not converged or len(types) != 4 or len(rest) != 1 or [m for m in mods if m in ("row", "col")] != ["row", "col"]:
        raise b.unsupported()
    (shape,), (d, type_a, type_b, c) = rest, types
    if d != c or shape not in SHAPES.get((type_a, type_b, c), ()):
        raise b.unsupported()
    if (mode and c != "f64") or (saturate and c != "s32") or (type_a == "b1") != bool(bitwise):
        raise b.unsupported()
    m, _, k = shape[1:].partition("n8k")
    return Product(int(m), int(k), type_a, type_b, c, bitwise=bitwise), mode or "rn", saturate


# Operands come as [warp, element], unsigned integers of the element's size, in the order of the registers; results are
# [warp, m * N + n].


class Floats:
    """Products with the rounding of tensor cores. The last axis of arrays is the warp, so that one NumPy operation
    serves many warps."""

    def __init__(self, p: Product) -> None:
        self.p = p
        self.terms, self.index_c = p.terms, p.indices[2]
        self.fp8 = PACKED[p.a] == 4
        self.lowest = LOWEST["f16"] if self.fp8 else None
        self.steps: list[Any] = [slice(None)]
        if self.fp8:
            # Hopper multiplies e4m3 and e5m2 as f16: first the products of k % 4 < 2, then the others; then it adds C
            k = np.arange(p.k) % 4
            self.steps = [k < 2, k >= 2]
        elif p.a == "tf32" and p.n == 16:
            # ptxas compiles wmma of tf32 to m16n8k4
            self.steps = [slice(0, 4), slice(4, 8)]
        self.depth = p.k // len(self.steps)
        self.most = max(TILE // (p.n * p.m * self.depth), 1)
        self.thread_data = threading.local()

    def __call__(self, a: Array, b: Array, c: Array) -> Array:
        out = np.empty((len(a), self.p.n * self.p.m), np.float16 if self.p.c == "f16" else np.float32)
        for first in range(0, len(a), self.most):
            some = slice(first, first + self.most)
            out[some] = self.multiply(transposed(a[some]), transposed(b[some]), transposed(c[some])).T
        return out

    def multiply(self, a: Array, b: Array, c: Array) -> Array:
        p, warps = self.p, a.shape[1]
        scratch: list[Terms] = getattr(self.thread_data, "scratch", [])
        if not scratch or scratch[0].value.shape[2] != warps:
            scratch = self.thread_data.scratch = [Terms.empty(self.depth, p.n * p.m, warps) for _ in range(2)]
        left, right = scratch
        x, y = decode(a, p.a, self.lowest), decode(b, p.b, self.lowest)
        z = c.take(self.index_c, axis=0)
        total = np.zeros_like(z) if self.fp8 else z
        for k in self.steps:
            x.take(self.terms[0][k], left)
            y.take(self.terms[1][k], right)
            sums = narrow(aligned_sum(left, right, decode(total, p.c), scratch=left), p.c)
            total = sums.view(total.dtype)
        return canonical_nan(sums + z.view(sums.dtype)) if self.fp8 else sums


def transposed(x: Array) -> Array:
    """A contiguous copy with the axes exchanged."""
    return np.ascontiguousarray(x.T)


def factors(p: Product, a: Array, b: Array) -> tuple[Array, Array]:
    """The pair of factors as matrices in float64: [warp, m, k] and [warp, k, n]."""
    where_a, where_b, _ = p.indices
    x, y = (
        numbers(bits, element_type).take(where, axis=1)
        for bits, element_type, where in ((a, p.a, where_a), (b, p.b, where_b))
    )
    return x.reshape(-1, p.m, p.k), y.reshape(-1, p.k, p.n)


def numbers(bits: Array, element_type: str) -> Array:
    """The values of elements in float64, from their bits; elements shorter than a byte are packed in 32-bit words."""
    if element_type in ("s4", "u4", "b1"):
        size = 32 // PACKED[element_type]
        parts = bits[..., None] >> np.arange(0, 32, size, dtype=np.uint32) & np.uint32((1 << size) - 1)
        out = parts.reshape(len(bits), -1).astype(F64)
        return out - 16.0 * (out >= 8) if element_type == "s4" else out
    if element_type in ("s8", "u8"):
        return bits.view(np.int8 if element_type == "s8" else np.uint8).astype(F64)
    return values(bits, element_type)


def plain(p: Product, a: Array, b: Array, c: Array) -> Array:
    """The product, summed in float64 and rounded once."""
    out: Array = np.matmul(*factors(p, a, b)).reshape(len(c), -1) + values(c, p.c).take(p.indices[2], axis=1)
    return canonical_nan(out.astype(F16 if p.c == "f16" else F32))


def integers(p: Product, saturate: bool, a: Array, b: Array, c: Array) -> Array:
    x, y = factors(p, a, b)
    out: Array = np.matmul(x, y)
    if p.bitwise == "xor":  # popc(x ^ y) = popc(x) + popc(y) - 2 popc(x & y)
        out = x.sum(axis=2)[:, :, None] + y.sum(axis=1)[:, None, :] - 2 * out
    out = out.reshape(len(c), -1) + c.view(np.int32).take(p.indices[2], axis=1)
    if saturate:
        np.clip(out, -(2.0**31), 2.0**31 - 1, out=out)
    return out.astype(np.int64).astype(np.int32)


def doubles(p: Product, mode: str, a: Array, b: Array, c: Array) -> Array:
    """The product in f64: a chain of fma in ascending k."""
    where_a, where_b = p.terms
    total = c.view(F64).take(p.indices[2], axis=1).reshape(-1)
    for k in range(p.k):
        x, y = a.view(F64).take(where_a[k], axis=1), b.view(F64).take(where_b[k], axis=1)
        total = fma64(x.reshape(-1), y.reshape(-1), total, mode)
    return total.reshape(len(c), -1)


def fetch(c: WarpBatch, views: list[int], element_type: str, warps: Array | None) -> Array:
    """The elements of the fragments of the warps of some blocks, [warp, element], as unsigned integers.

    Elements shorter than a byte remain packed in 32-bit words.
    """
    size = SIZES.get(element_type, 4)
    rows = [gather(c, view, warps) for view in views]
    out = np.empty((len(rows[0]), len(views), 32), rows[0].dtype)
    for i, row in enumerate(rows):
        out[:, i] = row
    return out.reshape(len(out), -1).view(f"u{size}")


def computation(b: Builder, p: Product, mode: str, saturate: bool) -> Callable[[Array, Array, Array], Array]:
    """The function that computes D from operands in the form that ``fetch`` returns."""
    if p.c == "s32":
        return partial(integers, p, saturate)
    if p.c == "f64":
        return partial(doubles, p, mode)
    return Floats(p) if b.options.mma == "hopper" else partial(plain, p)


def propagate(p: Product, ins: Instruction, c: WarpBatch, operands: Operands) -> list[Array]:
    """The undefined lanes of D: those of rows with undefined elements of A, of columns with those of B, and of
    undefined elements of C."""
    lanes_of_d = [propagate_register(p, ins, reg, bad.reshape(-1, 8, 4)) for reg, bad in operands]
    return [np.logical_or.reduce(lanes).reshape(-1) for lanes in zip(*lanes_of_d, strict=True)]


def propagate_register(p: Product, ins: Instruction, reg: Reg, lanes: Array) -> list[Array]:
    """The undefined lanes of D by one undefined register; lanes as [warp, 8, 4]."""
    d, a, b, added = (elements_of(operand) for operand in ins.operands[:4])
    rows = lanes.any(axis=2, keepdims=True)  # of A: lanes 4 g to 4 g + 3 hold rows g and, of m16, g + 8 in turn
    columns = rows.reshape(-1, 1, 4, 2)  # of B: lanes 4 n to 4 n + 3 hold column n
    out = []
    for j, result in enumerate(d):
        if not isinstance(result, Reg):
            continue
        undefined = lanes.copy() if j < len(added) and added[j] == reg else np.zeros_like(lanes)
        if any(r == reg and (p.m == 8 or i % 2 == 2 * j // len(d)) for i, r in enumerate(a)):
            undefined |= rows
        if reg in b:
            undefined |= columns.any(axis=3) if PACKED[p.c] == 2 else columns[..., j % 2]
        out.append(undefined)
    return out


def elements_of(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


@instruction("mma", execution="warp")
def mma(b: Builder, ins: Instruction) -> Step:
    p, mode, saturate = parse(b, ins)
    fragments = (p.fragment_a, p.fragment_b, p.fragment_c)
    types = (p.a, p.b, p.c)
    src = [
        [b.src(o, REGISTER.get(element_type, "b32")) for o in elements(b, operand, fragment.registers)]
        for operand, fragment, element_type in zip(ins.operands[1:4], fragments, types, strict=True)
    ]
    dst = [b.dst(o, REGISTER.get(p.c, "b32")) for o in elements(b, ins.operands[0], fragments[2].registers)]
    b.propagation = partial(propagate, p, ins)
    order = p.order_of_d
    compute = computation(b, p, mode, saturate)

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        c.wave.checks.exchange(c, None, "product")
        x, y, z = (fetch(c, views, element_type, warps) for views, element_type in zip(src, types, strict=True))
        c.wave.engine.stats.mma += len(x)
        write_fragment(c, dst, warps, compute(x, y, z).take(order, axis=1))

    return step


def write_fragment(c: WarpBatch, dst: list[int], warps: Array | None, out: Array) -> None:
    """Writes the elements of fragments, [warp, element], to the registers of the warps of some blocks."""
    out = out.reshape(len(out), len(dst), -1)
    for i, d in enumerate(dst):
        row = c.v[d]
        row.reshape(-1, 32)[slice(None) if warps is None else warps] = out[:, i].view(row.dtype)
