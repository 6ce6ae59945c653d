"""mma.sp: matrix products with a sparse A: half of each row is zero, and metadata tell the columns of the other
elements.

A chunk of a row of A (four elements; two of tf32, eight of 4-bit integers) has four bits of metadata, which are two
indices: of the nonzero elements, of the nonzero pairs (4-bit integers), or of the halves of the nonzero element (tf32).
One register has the metadata of eight chunks. With g = lane / 4, t = lane % 4 and the selector s:

16 bits, tf32 lane t = s, or t = 2 s + chunk / 4 if a row has eight chunks: bits 0 to 15 of row g, the others of g + 8 8
and 4 bits lane t = 2 s of row g, t = 2 s + 1 of row g + 8; t = 2 and 3: their chunks from 8 on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.numerics import F16, F32
from ptxgen.emulator.ops.data_movement.load_store import elements
from ptxgen.emulator.ops.matrix.fragments import Fragment, operand_b
from ptxgen.emulator.ops.matrix.ldmatrix import gather, whole_warps
from ptxgen.emulator.ops.matrix.mma import PACKED, REGISTER, Floats, Product, fetch, numbers, propagate, write_fragment
from ptxgen.emulator.ops.matrix.rounding import canonical_nan, values
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.undefined import Operands
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.emulator.ptx.syntax import Imm, Instruction
from ptxgen.emulator.reductions import any_true
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import Fault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: (type of A, type of B, type of C and D) -> the k of both shapes m16n8k, that of the dense A
DEPTHS: dict[tuple[str, str, str], tuple[int, int]] = {
    ("f16", "f16", "f32"): (16, 32),
    ("f16", "f16", "f16"): (16, 32),
    ("bf16", "bf16", "f32"): (16, 32),
    ("tf32", "tf32", "f32"): (8, 16),
    **{(a, b, "s32"): (32, 64) for a in ("s8", "u8") for b in ("s8", "u8")},
    **{(a, b, "s32"): (64, 128) for a in ("s4", "u4") for b in ("s4", "u4")},
    **{(a, b, "f32"): (64, 64) for a in FP8 for b in FP8},
}


@dataclass(frozen=True, eq=False)
class SparseProduct:
    """D = A B + C with a sparse A. As a product of the stored elements of A, it has half the depth. ``k``: the rows of
    B; ``ordered``: indices must ascend."""

    stored: Product
    k: int
    selector: int
    ordered: bool

    @property
    def chunk(self) -> int:
        """The number of columns of a chunk."""
        return {1: 2, 8: 8}.get(PACKED[self.stored.a], 4)

    @property
    def wide(self) -> bool:
        """True if the metadata of the two rows of a group are in different registers."""
        return PACKED[self.stored.a] >= 4

    @property
    def lanes(self) -> int:
        """The number of lanes of a group of four that have metadata."""
        return 16 * self.k // self.chunk // 8 // 8

    @cached_property
    def fragment_b(self) -> Fragment:
        return operand_b(self.k, 8, PACKED[self.stored.b])

    @cached_property
    def sources(self) -> tuple[Array, Array]:
        """The pair (lane that has the metadata, first of their bits) for each row of A and each chunk."""
        row, chunk = np.ogrid[:16, : self.k // self.chunk]
        group, high = row % 8, row // 8
        if self.wide:
            return 4 * group + self.lanes * self.selector + high + 2 * (chunk // 8), 4 * (chunk % 8) + 0 * row
        return 4 * group + self.lanes * self.selector + chunk // 4, 16 * high + 4 * (chunk % 4)

    @cached_property
    def contributing(self) -> Array:
        """The lanes whose metadata the instruction reads."""
        return np.isin(np.arange(32), self.sources[0])

    def indices(self, metadata: Array) -> Array:
        """The four bits of each chunk, [warp, row, chunk], from the metadata of the lanes, [warp, lane]."""
        lane, shift = self.sources
        out: Array = metadata[:, lane] >> shift.astype(np.uint32) & np.uint32(15)
        return out

    def invalid(self, indices: Array) -> Array:
        """The chunks whose metadata PTX leaves undefined."""
        if self.chunk == 2:
            return ~np.isin(indices, (0b0100, 0b1110))
        first, second = indices & 3, indices >> 2
        bad: Array = first >= second if self.ordered else first == second
        return bad

    def check_selector(self, b: Builder, shape: str) -> None:
        most = 4 // self.lanes - 1
        if not 0 <= self.selector <= most:
            to = f" to {most}" if most else ""
            raise b.malformed(f"the selector of {shape} is {self.selector}; it must be 0{to}")

    def check(self, indices: Array, c: WarpBatch, ins: Instruction, warps: Array, where: Array) -> None:
        """Faults if metadata are undefined in PTX; ``warps``: the blocks of the first axis; ``where``: the blocks to
        check."""
        bad = self.invalid(indices) & where[:, None, None]
        if not any_true(bad):
            return
        warp, row, chunk = (int(i[0]) for i in np.nonzero(bad))
        text = (
            f"the metadata of row {row} and columns {self.chunk * chunk} to {self.chunk * (chunk + 1) - 1} of A are "
            f"0b{indices[warp, row, chunk]:04b}; they must be "
            + ("0b0100 or 0b1110" if self.chunk == 2 else f"two {'ascending' if self.ordered else 'different'} indices")
        )
        raise fault(Fault, text, c, ins, 32 * int(warps[warp]) + int(self.sources[0][row, chunk]))

    def columns(self, indices: Array) -> Array:
        """The column in A of each stored element, [warp, row, stored column]."""
        base = self.chunk * np.arange(indices.shape[2])
        first, second = indices & 3, indices >> 2
        if self.chunk == 2:
            columns = [base + (indices == 0b1110)]
        elif self.chunk == 4:
            columns = [base + first, base + second]
        else:
            columns = [base + 2 * index + i for index in (first, second) for i in (0, 1)]
        return np.stack(columns, axis=3).reshape(*indices.shape[:2], -1)

    def selected(self, b: Array, columns: Array) -> Array:
        """The factors from B, [warp, (stored column, row of A, column of B)]; ``b``: the elements of its fragment."""
        where: Array = self.fragment_b.index[columns.transpose(0, 2, 1)]
        out: Array = np.take_along_axis(b, where.reshape(len(b), -1), axis=1)
        return out


def parse(b: Builder, ins: Instruction) -> tuple[SparseProduct, bool]:
    """The pair (product, whether integers saturate)."""
    mods = [m for m in ins.mods[1:] if m not in ("sync", "aligned")]
    saturate = "satfinite" in mods
    types = [m for m in mods if m in PACKED]
    rest = [m for m in mods if m not in ("satfinite", "row", "col", *types)]
    if not {"sync", "aligned"} <= set(ins.mods) or len(types) != 4 or len(rest) != 1 or types[0] != types[3]:
        raise b.unsupported()
    depths = DEPTHS.get((types[1], types[2], types[3]), ())
    shape = rest[0].partition("m16n8k")[2]
    if (
        not shape.isdigit()
        or int(shape) not in depths
        or (saturate and types[3] != "s32")
        or [m for m in mods if m in ("row", "col")] != ["row", "col"]
    ):
        raise b.unsupported()
    k = int(shape)
    selector = ins.operands[5]
    stored = Product(16, k // 2, types[1], types[2], types[3])
    ordered = ins.mods[0] != "sp" or types[1] in FP8
    p = SparseProduct(stored, k, selector.value & 0xFFFFFFFF if isinstance(selector, Imm) else -1, ordered)
    p.check_selector(b, rest[0])
    return p, saturate


def computation(b: Builder, p: SparseProduct, saturate: bool) -> Callable[[Array, Array, Array, Array], Array]:
    """The function that computes D from A, the columns of its elements, B and C, in the form that ``fetch`` returns."""
    if p.stored.c == "s32" or b.options.mma != "hopper":
        return partial(products, p, saturate)
    floats = Floats(p.stored)
    floats.terms = floats.terms[0], np.arange(p.stored.k * 128).reshape(p.stored.k, 128)
    return lambda x, columns, y, z: floats(x, p.selected(y, columns), z)


def products(p: SparseProduct, saturate: bool, x: Array, columns: Array, y: Array, z: Array) -> Array:
    """The product of integers, or of floating-point numbers, which are summed in float64 and rounded once."""
    stored = p.stored
    where_a, _, where_c = stored.indices
    a = numbers(x, stored.a).take(where_a, axis=1).reshape(-1, 16, stored.k)
    b = p.selected(numbers(y, stored.b), columns).reshape(-1, stored.k, 16, 8)
    out: Array = np.einsum("wmk,wkmn->wmn", a, b).reshape(len(x), -1)
    if stored.c != "s32":
        out = out + values(z, stored.c).take(where_c, axis=1)
        return canonical_nan(out.astype(F16 if stored.c == "f16" else F32))
    out = out + z.view(np.int32).take(where_c, axis=1)
    if saturate:
        np.clip(out, -(2.0**31), 2.0**31 - 1, out=out)
    return out.astype(np.int64).astype(np.int32)


@instruction("mma.sp", "mma.sp::ordered_metadata", execution="warp")
def mma_sparse(b: Builder, ins: Instruction) -> Step:
    p, saturate = parse(b, ins)
    stored = p.stored
    fragments = (stored.fragment_a, p.fragment_b, stored.fragment_c)
    types = (stored.a, stored.b, stored.c)
    src = [
        [b.src(o, REGISTER.get(element_type, "b32")) for o in elements(b, operand, fragment.registers)]
        for operand, fragment, element_type in zip(ins.operands[1:4], fragments, types, strict=True)
    ]
    metadata = b.src(ins.operands[4], "b32")
    dst = [b.dst(o, REGISTER.get(stored.c, "b32")) for o in elements(b, ins.operands[0], fragments[2].registers)]

    def undefined(c: WarpBatch, operands: Operands) -> list[Array] | None:
        """The propagation of undefined operands: undefined metadata that the instruction reads are a fault; other
        operands propagate as in mma."""
        factors: Operands = []
        for reg, bad in operands:
            if reg == ins.operands[4] and any_true(bad.reshape(-1, 32) & p.contributing):
                return None
            if any(reg in op.items for op in ins.operands[1:4]):  # type: ignore[union-attr]
                factors.append((reg, bad))
        return propagate(stored, ins, c, factors) if factors else [np.zeros_like(operands[0][1])] * len(dst)

    b.propagation = undefined
    order, compute = stored.order_of_d, computation(b, p, saturate)

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        c.wave.checks.exchange(c, None)
        indices = p.indices(gather(c, metadata, warps))
        p.check(indices, c, ins, np.arange(c.n // 32) if warps is None else warps, np.ones(len(indices), bool))
        x, y, z = (fetch(c, views, element_type, warps) for views, element_type in zip(src, types, strict=True))
        c.wave.engine.stats.mma += len(x)
        out = compute(x, p.columns(indices), y, z)
        write_fragment(c, dst, warps, out.take(order, axis=1))

    return step
