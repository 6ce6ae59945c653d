"""wmma: loads and stores of the fragments of a warp, and matrix products.

PTX does not define the element layout of fragments. Here they are the fragments of mma.sync for tiles of 16 rows and 8
columns, one after another. A and B in f16 always have eight registers; if a matrix needs fewer, the other registers
repeat its elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.numerics import F16, F32
from ptxgen.emulator.ops.data_movement.load_store import elements, explicit
from ptxgen.emulator.ops.matrix.fragments import Fragment, accumulator, operand_a, operand_b
from ptxgen.emulator.ops.matrix.ldmatrix import whole_warps
from ptxgen.emulator.ops.matrix.mma import PACKED, REGISTER, Product, computation, fetch, write_fragment
from ptxgen.emulator.ops.matrix.rounding import canonical_nan
from ptxgen.emulator.ops.operands.access import Site
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Operand, Reg
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.sync.checks import UNINITIALISED
from ptxgen.emulator.sync.touch import FULL
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import DivergenceFault, MisalignedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


_SQUARE = ("m16n16k16", "m8n32k16", "m32n8k16")


#: type of A -> (shapes, types of C and D)
SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (_SQUARE, ("f16", "f32")),
    "bf16": (_SQUARE, ("f32",)),
    "tf32": (("m16n16k8",), ("f32",)),
    "f64": (("m8n8k4",), ("f64",)),
    "s8": (_SQUARE, ("s32",)),
    "u8": (_SQUARE, ("s32",)),
    "s4": (("m8n8k32",), ("s32",)),
    "u4": (("m8n8k32",), ("s32",)),
    "b1": (("m8n8k128",), ("s32",)),
}


_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared"}


def extents(shape: str) -> tuple[int, int, int]:
    m, _, rest = shape[1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


@dataclass
class Matrix:
    """The fragment of A, B, C or D. ``registers``: the number of its registers in PTX; ``distinct``: the number of the
    first ones, which hold the whole matrix."""

    fragment: Fragment
    rows: int
    columns: int
    element_type: str
    registers: int

    @property
    def distinct(self) -> int:
        return self.fragment.registers


def matrix(b: Builder, operand: str, shape: str, element_type: str) -> Matrix:
    """The fragment of operand "a", "b", "c" or "d" of a shape."""
    types_of_a = (element_type,) if operand in "ab" else [a for a, (_, sums) in SHAPES.items() if element_type in sums]
    if not any(shape in SHAPES.get(a, ((), ()))[0] for a in types_of_a):
        raise b.unsupported()
    m, n, k = extents(shape)
    if operand == "a":
        fragment, rows, columns = operand_a(m, k, PACKED[element_type]), m, k
    elif operand == "b":
        fragment, rows, columns = operand_b(k, n, PACKED[element_type]), k, n
    else:
        fragment, rows, columns = accumulator(m, n, PACKED[element_type]), m, n
    return Matrix(
        fragment, rows, columns, element_type, 8 if element_type == "f16" and operand in "ab" else fragment.registers
    )


class Transfer:
    """wmma.load and wmma.store: the registers, and the positions of their contiguous pieces in memory."""

    def __init__(
        self,
        b: Builder,
        ins: Instruction,
        registers: Operand,
        address: Operand,
        rest: tuple[Operand, ...],
        operation: str,
    ) -> None:
        mods = [m for m in ins.mods[1:] if m not in ("sync", "aligned")]
        self.ins = ins
        space = "generic"
        parsed: dict[str, str] = {}
        for m in mods:
            if m in _SPACES:
                space = _SPACES[m]
                continue
            name = "operand" if m in "abcd" else "layout" if m in ("row", "col") else "type" if m in PACKED else "shape"
            if name in parsed:
                raise b.unsupported()
            parsed[name] = m
        if len(parsed) != 4 or len(rest) > 1 or (operation == "write") != (parsed["operand"] == "d"):
            raise b.unsupported()
        operand_matrix = self.matrix = matrix(b, parsed["operand"], parsed["shape"], parsed["type"])
        self.by_rows = parsed["layout"] == "row"
        self.items = elements(b, registers, operand_matrix.registers)
        size = SIZES[REGISTER.get(operand_matrix.element_type, "b32")]
        packed = operand_matrix.fragment.packed
        straight = packed == 1 or self.by_rows == (parsed["operand"] != "b")
        #: number of pieces of a register, each of which is contiguous in memory
        self.pieces = 1 if straight else packed
        self.unit = size // self.pieces
        self.bits = 8 * size // packed
        if not self.unit or (self.bits < 8 and not straight):
            raise b.malformed("elements shorter than a byte are apart along K; they must be contiguous")
        self.site = Site(b, ins, address, space, self.unit, operation)
        self.site.slots = []
        b.sites.append(self.site)
        self.stride = b.src(rest[0], "u32") if rest else None
        self.alignment = size * operand_matrix.registers

    def views(self, b: Builder, write: bool) -> list[list[int]]:
        """The views of the pieces of each register."""
        unit_type = f"u{8 * self.unit}"
        out = []
        for item in self.items:
            if isinstance(item, Reg):
                if SIZES[item.type] != self.unit * self.pieces or item.type == "pred":
                    raise b.malformed(f"{item.name} has {8 * SIZES[item.type]} bits")
                out.append([b.part(item, unit_type, e, write) for e in range(self.pieces)])
            elif write or self.pieces > 1:
                raise b.malformed("registers are needed")
            else:
                out.append([b.src(item, unit_type)])
        return out

    def positions(self, c: WarpBatch, m: Mask) -> Any:
        """For each distinct register and each piece of it, the triple (register, piece, accessed memory); accesses are
        checked."""
        whole_warps(c, m, self.ins)
        lanes = flatnonzero(active(c, m))
        base = self.site.addresses(c, lanes)
        natural = self.matrix.columns if self.by_rows else self.matrix.rows
        stride: Array = np.full(len(lanes), natural, np.int64)
        if self.stride is not None:
            stride = np.broadcast_to(c.v[self.stride], (c.n,))[lanes].astype(np.int64)
        rules = (("address", base, self.alignment), ("stride", stride * self.bits // 8, min(self.alignment, 16)))
        for operand_name, value, multiple in rules:
            rows = value.reshape(-1, 32)
            different = (rows != rows[:, :1]).reshape(-1)
            if any_true(different):
                lane = int(lanes[int(np.argmax(different))])
                message = f"lanes of one warp give more than one {operand_name}"
                raise fault(DivergenceFault, message, c, self.ins, lane)
            bad = value % multiple != 0
            if any_true(bad):
                i = int(np.argmax(bad))
                message = f"the {operand_name} is {int(value[i])} bytes; it must be a multiple of {multiple}"
                raise fault(MisalignedFault, message, c, self.ins, int(lanes[i]), int(base[i]))
        f = self.matrix.fragment
        for r in range(self.matrix.distinct):
            for e in range(self.pieces):
                row, column = (x[r, :, e][lanes & 31].astype(np.int64) for x in (f.row, f.column))
                element = row * stride + column if self.by_rows else column * stride + row
                yield r, e, explicit(c, self.site, base + element * self.bits // 8, lanes, self.unit)


@instruction("wmma.load", execution="warp")
def load(b: Builder, ins: Instruction) -> Step:
    move = Transfer(b, ins, ins.operands[0], ins.operands[1], ins.operands[2:], "read")
    views = move.views(b, True)
    distinct, unit = move.matrix.distinct, move.unit
    slots = [item.slot for item in move.items if isinstance(item, Reg)]

    def step(c: WarpBatch, m: Mask) -> None:
        checks = c.wave.checks
        loaded: dict[int, tuple[Array, int, str]] = {}
        for r, e, parts in move.positions(c, m):
            for arenas, place in parts:
                index = place.index + place.shift
                if checks.maybe_uninitialised and arenas is c.wave.views:
                    bad = checks.valid_views[unit][index] != FULL[unit]
                    if any_true(bad):
                        first = int(index[bad][0]) * unit % c.wave.stride
                        for slot in slots[r::distinct]:
                            where = loaded.setdefault(slot, (np.zeros(c.n, bool), first, UNINITIALISED))[0]
                            where[place.lanes[bad]] = True
                checks.maybe_uninitialised = False
                for register in views[r::distinct]:
                    c.v[register[e]][place.lanes] = arenas[unit][index]
        if loaded:
            c.wave.program.mark_undefined(c, loaded, ins)

    return step


@instruction("wmma.store", execution="warp")
def store(b: Builder, ins: Instruction) -> Step:
    move = Transfer(b, ins, ins.operands[1], ins.operands[0], ins.operands[2:], "write")
    views = move.views(b, False)

    def step(c: WarpBatch, m: Mask) -> None:
        c.wave.engine.progress += 1
        for r, e, parts in move.positions(c, m):
            value = spread(c.v[views[r][e]], c.n)
            for arenas, place in parts:
                arenas[move.unit][place.index + place.shift] = value[place.lanes]

    return step


def parse(b: Builder, ins: Instruction) -> tuple[Product, str, str, str, str, bool]:
    """The tuple (product, shape, type of D, type of C, rounding of f64, whether integers saturate)."""
    mods = [m for m in ins.mods[1:] if m not in ("sync", "aligned", "popc")]
    saturate = "satfinite" in mods
    mode = next((m for m in mods if m in ("rn", "rz", "rm", "rp")), "")
    bitwise = next((m for m in mods if m in ("xor", "and")), "")
    layouts = [m for m in mods if m in ("row", "col")]
    types = [m for m in mods if m in PACKED]
    rest = [m for m in mods if m not in ("satfinite", mode, bitwise, "row", "col", *types)]
    if len(rest) != 1 or len(layouts) != 2 or len(types) not in (2, 4):
        raise b.unsupported()
    (shape,) = rest
    if len(types) == 2:
        types[1:1] = ["f16", "f16"]
    d, left, right, c = types
    shapes, sums = SHAPES.get(left, ((), ()))
    short = PACKED[left] > 4
    if left != right or shape not in shapes or d not in sums or c not in sums or (short and layouts != ["row", "col"]):
        raise b.unsupported()
    if (mode and c != "f64") or (saturate and c != "s32") or (left == "b1") != bool(bitwise):
        raise b.unsupported()
    m, n, k = extents(shape)
    return Product(m, k, left, right, "f32" if d != c else c, n, bitwise), shape, d, c, mode or "rn", saturate


@instruction("wmma.mma", execution="warp")
def mma(b: Builder, ins: Instruction) -> Step:
    p, shape, type_d, type_c, mode, saturate = parse(b, ins)
    types = (p.a, p.b, type_c)
    src = []
    for name, operand, element_type in zip("abc", ins.operands[1:4], types, strict=True):
        operand_matrix = matrix(b, name, shape, element_type)
        src.append(
            [b.src(o, REGISTER.get(element_type, "b32")) for o in elements(b, operand, operand_matrix.registers)][
                : operand_matrix.distinct
            ]
        )
    result = matrix(b, "d", shape, type_d)
    dst = [b.dst(o, REGISTER.get(type_d, "b32")) for o in elements(b, ins.operands[0], result.registers)]
    compute = computation(b, p, mode, saturate)
    order_of_d = np.argsort(result.fragment.index.reshape(-1))
    # the order of the registers of C, for the accumulator in which the product is summed
    order = accumulator(p.m, p.n, PACKED[type_c]).index.reshape(-1)[p.order_of_d]

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        x, y, z = (fetch(c, views, element_type, warps) for views, element_type in zip(src, types, strict=True))
        c.wave.engine.stats.mma += len(x)
        if type_c != p.c:
            z = z.take(order, axis=1).view(F16).astype(F32).view(np.uint32)
        out = compute(x, y, z)
        if type_d != p.c:
            out = canonical_nan(out.astype(F16))
        write_fragment(c, dst, warps, out.take(order_of_d, axis=1))

    return step
