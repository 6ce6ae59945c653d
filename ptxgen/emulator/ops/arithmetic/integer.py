"""Integer arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic import floating_point
from ptxgen.emulator.ops.arithmetic.elementwise import elementwise, high, lower_elementwise
from ptxgen.emulator.ops.operands.builder import LONG, Array, Builder, into, only_type
from ptxgen.emulator.ops.operands.emitter import Emitter, lowering
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import FLOATS, PACKED, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Instruction
from ptxgen.emulator.reductions import any_true
from ptxgen.emulator.warp_batch import Step, WarpBatch, spread

Mask = NDArray[np.bool_] | None


def unsigned(dtype: str) -> str:
    return "u" + dtype[1:]


@instruction("add", "sub")
def add(b: Builder, ins: Instruction) -> Step:
    dtype = ins.mods[-1] if ins.mods else ""
    if dtype in FLOATS or (dtype in PACKED and dtype[0] in "fb"):
        return floating_point.add(b, ins)
    if "cc" in ins.mods:
        return carry(b, ins)
    dtype = only_type(b, ins, {"sat"})
    if "sat" not in ins.mods:
        return elementwise(b, ins, dtype)
    if dtype != "s32":
        raise b.unsupported()
    ufunc = np.add if ins.op == "add" else np.subtract
    x, y = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype)

    def compute(v: list[Array], out: Array) -> None:
        out[...] = np.clip(ufunc(v[x].astype(np.int64), v[y].astype(np.int64)), -(2**31), 2**31 - 1)

    return into(b, b.dst(ins.operands[0], dtype), compute)


@lowering("add", "sub", "mul", "mad", "min", "max", "abs", "neg")
def lower(e: Emitter, ins: Instruction, guard: str) -> None:
    real = ins.mods[-1] in FLOATS or ins.mods[-1] in ("f16x2", "bf16x2")
    (floating_point.lower if real else lower_elementwise)(e, ins, guard)


@instruction("addc", "subc")
def carry(b: Builder, ins: Instruction) -> Step:
    """Addition and subtraction with the carry flag.

    A difference is the sum a + ~b + 1, and its flag is the carry of that sum: clear if the subtraction borrows. Chains
    may mix sums and differences.
    """
    dtype = only_type(b, ins, {"cc"}, LONG)
    x, y = (b.src(o, unsigned(dtype)) for o in ins.operands[1:])
    dst = b.dst(ins.operands[0], unsigned(dtype))
    reads_carry, writes_carry, adds = ins.op.endswith("c"), "cc" in ins.mods, ins.op.startswith("add")

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        flag = carry_flag(c)
        a, s = spread(v[x], c.n), spread(v[y], c.n)
        if not adds:
            s = ~s
        k = flag.astype(a.dtype) if reads_carry else np.array(not adds, a.dtype)
        one = a + s
        out = one + k
        over = (one < a) | (out < one)
        where: Any = True if m is None else m
        np.copyto(v[dst], out, where=where)
        if writes_carry:
            np.copyto(flag, over, where=where)

    return step


def carry_flag(c: WarpBatch) -> Array:
    flag = c.state.get("carry")
    if flag is None:
        flag = c.state["carry"] = np.zeros(c.n, bool)
    return flag


@instruction("mul")
def mul(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] in FLOATS or ins.mods[-1] in PACKED:
        return floating_point.mul(b, ins)
    return elementwise(b, ins, only_type(b, ins, {"lo", "hi", "wide"}))


@instruction("mad")
def mad(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] in FLOATS:
        return floating_point.fma(b, ins)
    if "cc" in ins.mods:
        return mad_carry(b, ins)
    dtype = only_type(b, ins, {"lo", "hi", "wide", "sat"})
    if "sat" not in ins.mods:
        return elementwise(b, ins, dtype)
    if dtype != "s32" or "hi" not in ins.mods:
        raise b.unsupported()
    x, y, z = (b.src(o, dtype) for o in ins.operands[1:])

    def saturated(v: list[Array], out: Array) -> None:
        total = high(dtype, v[x], v[y]).astype(np.int64) + v[z]
        out[...] = np.clip(total, -(2**31), 2**31 - 1)

    return into(b, b.dst(ins.operands[0], dtype), saturated)


@instruction("madc")
def mad_carry(b: Builder, ins: Instruction) -> Step:
    dtype = only_type(b, ins, {"lo", "hi", "cc"}, LONG)
    x, y, z = (b.src(o, dtype) for o in ins.operands[1:])
    dst = b.dst(ins.operands[0], unsigned(dtype))
    reads_carry, writes_carry, hi = ins.op == "madc", "cc" in ins.mods, "hi" in ins.mods

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        flag = carry_flag(c)
        a, s, t = (spread(v[i], c.n) for i in (x, y, z))
        whole = (high(dtype, a, s) if hi else a * s).astype(v[dst].dtype)
        k = flag.astype(v[dst].dtype) if reads_carry else np.zeros((), v[dst].dtype)
        one = whole + t.astype(v[dst].dtype)
        out = one + k
        where: Any = True if m is None else m
        np.copyto(v[dst], out, where=where)
        if writes_carry:
            np.copyto(flag, (one < whole) | (out < one), where=where)

    return step


@instruction("mul24", "mad24")
def mul24(b: Builder, ins: Instruction) -> Step:
    dtype = only_type(b, ins, {"lo", "hi", "sat"}, {"u32", "s32"})
    if len(ins.operands) != (3 if ins.op == "mul24" else 4):
        raise b.malformed(f"{2 if ins.op == 'mul24' else 3} sources are needed")
    sat = "sat" in ins.mods
    if sat and (dtype != "s32" or ins.op != "mad24" or "hi" not in ins.mods):
        raise b.unsupported()
    src = [b.src(o, dtype) for o in ins.operands[1:]]
    dst = b.dst(ins.operands[0], dtype)
    shift = 16 if "hi" in ins.mods else 0

    def compute(v: list[Array], out: Array) -> None:
        a, s = ((v[i].astype(np.int64) << 40) for i in src[:2])
        product: Any
        if dtype == "u32":
            product = ((a.view(np.uint64) >> np.uint64(40)) * (s.view(np.uint64) >> np.uint64(40))) >> np.uint64(shift)
        else:
            product = ((a >> 40) * (s >> 40)) >> shift
        total = product + v[src[2]] if len(src) == 3 else product
        if sat:
            total = np.clip(total, -(2**31), 2**31 - 1)
        out[...] = np.asarray(total).astype(out.dtype)

    return into(b, dst, compute)


@instruction("div", "rem")
def div(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] in FLOATS:
        return floating_point.div(b, ins)
    dtype = only_type(b, ins)
    x, y = (b.src(o, dtype) for o in ins.operands[1:])
    dst = b.dst(ins.operands[0], dtype)
    remainder = ins.op == "rem"

    def compute(v: list[Array], out: Array) -> None:
        a, d = v[x], v[y]
        zero = d == 0
        if dtype in SIGNED:
            rest = np.fmod(a, d)
            answer = rest if remainder else np.floor_divide(a - rest, d)
        else:
            answer = np.remainder(a, d) if remainder else np.floor_divide(a, d)
        if any_true(zero):
            # undefined in PTX; the hardware gives all ones for div and for rem
            ones = np.array(-1 if dtype in SIGNED else (1 << 8 * SIZES[dtype]) - 1).astype(out.dtype)
            answer = np.where(zero, ones, answer)
        out[...] = answer

    return into(b, dst, compute)


@instruction("min", "max")
def minmax(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] in FLOATS or ins.mods[-1] in ("f16x2", "bf16x2"):
        return floating_point.minmax(b, ins)
    dtype = only_type(b, ins, {"relu"})
    ufunc = np.minimum if ins.op == "min" else np.maximum
    if "relu" not in ins.mods:
        return elementwise(b, ins, dtype)
    x, y = (b.src(o, dtype) for o in ins.operands[1:])
    return into(b, b.dst(ins.operands[0], dtype), lambda v, out: np.maximum(ufunc(v[x], v[y]), 0, out=out))


@instruction("abs", "neg")
def unary(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] in FLOATS or ins.mods[-1] in PACKED:
        return floating_point.sign(b, ins)
    dtype = only_type(b, ins)
    if dtype not in SIGNED:
        raise b.unsupported()
    return elementwise(b, ins, dtype)


@instruction("sad")
def sad(b: Builder, ins: Instruction) -> Step:
    dtype = only_type(b, ins)
    x, y, z = (b.src(o, dtype) for o in ins.operands[1:])

    def compute(v: list[Array], out: Array) -> None:
        a, s = v[x], v[y]
        out[...] = v[z] + np.where(a < s, s - a, a - s)

    return into(b, b.dst(ins.operands[0], dtype), compute)


@instruction("dp4a", "dp2a")
def dot(b: Builder, ins: Instruction) -> Step:
    four = ins.op == "dp4a"
    ta, tb = ins.types
    half = next((m for m in ins.mods if m in ("lo", "hi")), "")
    x, y = b.src(ins.operands[1], "u32"), b.src(ins.operands[2], "u32")
    result = "s32" if "s32" in (ta, tb) else "u32"
    z = b.src(ins.operands[3], result)
    dst = b.dst(ins.operands[0], result)

    def pieces(word: Array, dtype: str, width: int, first: int, count: int) -> list[Array]:
        out = []
        for i in range(first, first + count):
            piece = (word.astype(np.int64) >> (width * i)) & ((1 << width) - 1)
            if dtype == "s32":
                piece = (piece ^ (1 << (width - 1))) - (1 << (width - 1))
            out.append(piece)
        return out

    def compute(v: list[Array], out: Array) -> None:
        if four:
            a, s = pieces(v[x], ta, 8, 0, 4), pieces(v[y], tb, 8, 0, 4)
        else:
            a, s = pieces(v[x], ta, 16, 0, 2), pieces(v[y], tb, 8, 2 if half == "hi" else 0, 2)
        out[...] = (v[z].astype(np.int64) + sum(p * q for p, q in zip(a, s, strict=True))).astype(out.dtype)

    return into(b, dst, compute)
