"""Video instructions: sums, differences, extremes, comparisons, shifts and products of bytes and half words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.operands.builder import Builder, into
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction, Neg, Operand, Selected, Sink
from ptxgen.emulator.warp_batch import Step

Array = NDArray[Any]


_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


_SECOND = {"add", "min", "max"}


_WORD = ("u32", "s32")


def wrapped(x: Array, bits: int, signed: bool) -> Array:
    """The low ``bits`` bits of 64-bit integers, as signed or unsigned numbers."""
    out: Array = x & ((1 << bits) - 1)
    return out - ((out >> (bits - 1)) << bits) if signed else out


def saturated(x: Array, bits: int, signed: bool) -> Array:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    out: Array = np.clip(x, low, high)
    return out


def calculate(name: str, a: Array, b: Array, compare: str = "") -> Array:
    """The result of one operation on 64-bit integers, before saturation."""
    if name == "set":
        out: Array = _COMPARE[compare](a, b).astype(np.int64)
        return out
    if name == "avrg":
        total = a + b
        return (total + (total >= 0)) >> 1
    if name == "absdiff":
        difference: Array = np.abs(a - b)
        return difference
    ufunc: Any = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}[name]
    result: Array = ufunc(a, b)
    return result


def split(op: Operand) -> tuple[Operand, str]:
    """The pair (operand, selector of its bytes or half words)."""
    return (op.reg, op.select) if isinstance(op, Selected) else (op, "")


class Form:
    """The modifiers of a video instruction."""

    def __init__(self, b: Builder, ins: Instruction, allowed: set[str], types: int) -> None:
        self.types = ins.types
        others = [m for m in ins.mods if m not in self.types]
        if len(self.types) != types or not set(self.types) <= set(_WORD) or not set(others) <= allowed:
            raise b.unsupported()
        self.sat = "sat" in others
        self.second = next((m for m in others if m in _SECOND), "")
        self.compare = next((m for m in others if m in _COMPARE), "")
        self.signed = self.types[0] == "s32"
        self.others = others


def scalar_source(b: Builder, op: Operand, dtype: str) -> tuple[int, int, int, bool]:
    """A source operand with its selector, as (view, lowest bit, number of bits, whether it is signed)."""
    inner, select = split(op)
    if select and (len(select) != 2 or int(select[1]) > (3 if select[0] == "b" else 1)):
        raise b.malformed(f".{select} selects no byte or half word of one register")
    bits = {"b": 8, "h": 16}.get(select[:1], 32)
    return b.src(inner, "u32"), bits * int(select[1:] or 0), bits, dtype == "s32"


def value(v: list[Array], source: tuple[int, int, int, bool]) -> Array:
    view, low, bits, signed = source
    return wrapped(v[view].astype(np.int64) >> low, bits, signed)


def finish(b: Builder, ins: Instruction, form: Form, compute: Any) -> Step:
    """The step that computes, saturates, applies the second operation and merges, as ptxas assembles it:

    * .sat clamps to 32 bits. To a byte or half word it clamps the result, read as unsigned, to the largest number of
      that size; a shift is clamped to 32 bits in that case too.
    * The second .min and .max compare 64 bits, unsigned ones for a u32 result. Sums, differences and saturated shifts
      are first cut to 32 bits and sign-extended.
    * .h1 receives the high half of the result.
    """
    to, select = split(ins.operands[0])
    dst = b.temp("u32") if isinstance(to, Sink) else b.dst(to, "u32")
    count = 4 if form.second or select else 3
    if len(ins.operands) != count or (form.second and select):
        raise b.malformed(f"{count} operands are needed")
    bits = {"b": 8, "h": 16}.get(select[:1], 32)
    low = bits * int(select[1:] or 0)
    if low + bits > 32 or len(select) > 2:
        raise b.malformed(f".{select} selects no byte or half word of the destination")
    rest = b.src(ins.operands[3], "u32") if count == 4 else None
    shifts = ins.op in ("vshl", "vshr")
    extended = ins.op in ("vadd", "vsub") or (shifts and form.sat)

    def limited(x: Array) -> Array:
        if shifts:
            return saturated(wrapped(x, 34, True), 32, form.signed)
        if bits == 32:
            return saturated(x, 32, form.signed)
        most = (1 << (bits - form.signed)) - 1
        return np.where((x < 0) | (x > most), most, x)

    def whole(v: list[Array], out: Array) -> None:
        x = compute(v)
        x = limited(x) if form.sat else x
        if form.second:
            x = wrapped(x, 32, True) if extended else x
            c = wrapped(v[rest].astype(np.int64), 32, form.signed)  # type: ignore[index]
            pair = (x, c) if form.signed or form.second == "add" else (x.astype(np.uint64), c.astype(np.uint64))
            x = calculate(form.second, *pair)
        elif rest is not None:
            mask = ((1 << bits) - 1) << low
            placed = x if select == "h1" else x << low
            x = (v[rest].astype(np.int64) & ~mask) | (placed & mask)
        out[...] = (x & 0xFFFFFFFF).astype(np.uint32)

    return into(b, dst, whole)


@instruction("vadd", "vsub", "vabsdiff", "vmin", "vmax")
def scalar(b: Builder, ins: Instruction) -> Step:
    form = Form(b, ins, {"sat", *_SECOND}, 3)
    x, y = (scalar_source(b, op, dtype) for op, dtype in zip(ins.operands[1:3], form.types[1:], strict=True))
    return finish(b, ins, form, lambda v: calculate(ins.op[1:], value(v, x), value(v, y)))


@instruction("vset")
def compare(b: Builder, ins: Instruction) -> Step:
    form = Form(b, ins, {*_COMPARE, *_SECOND}, 2)
    if not form.compare:
        raise b.unsupported()
    x, y = (scalar_source(b, op, dtype) for op, dtype in zip(ins.operands[1:3], form.types, strict=True))
    return finish(b, ins, form, lambda v: calculate("set", value(v, x), value(v, y), form.compare))


@instruction("vshl", "vshr")
def shift(b: Builder, ins: Instruction) -> Step:
    form = Form(b, ins, {"sat", "clamp", "wrap", *_SECOND}, 3)
    if form.types[2] != "u32" or len({"clamp", "wrap"} & set(form.others)) != 1:
        raise b.unsupported()
    x, y = (scalar_source(b, op, dtype) for op, dtype in zip(ins.operands[1:3], form.types[1:], strict=True))

    def compute(v: list[Array]) -> Array:
        a, amount = value(v, x), value(v, y)
        amount = np.minimum(amount, 32) if "clamp" in form.others else amount & 31
        shifted: Array = a >> amount if ins.op == "vshr" else a << amount
        return shifted

    return finish(b, ins, form, compute)


@instruction("vmad")
def product(b: Builder, ins: Instruction) -> Step:
    form = Form(b, ins, {"po", "sat", "shr7", "shr15"}, 3)
    if len(ins.operands) != 4:
        raise b.malformed("3 sources are needed")
    minus = [isinstance(op, Neg) for op in ins.operands[1:]]
    ops = [op.reg if isinstance(op, Neg) else op for op in ins.operands[1:]]
    if sum(minus) > 1 or (any(minus) and "po" in form.others):
        raise b.malformed("at most one operand is negated, and none with .po")
    x, y = (scalar_source(b, op, dtype) for op, dtype in zip(ops[:2], form.types[1:], strict=True))
    addend = b.src(ops[2], "u32")
    signed = "s32" in form.types[1:] or any(minus)
    scale = 7 if "shr7" in form.others else 15 if "shr15" in form.others else 0

    def compute(v: list[Array], out: Array) -> None:
        # the intermediate results have more than 64 bits: Python integers
        total = value(v, x).astype(object) * value(v, y).astype(object)
        c = wrapped(v[addend].astype(np.int64), 32, signed).astype(object)
        total = (-total if minus[0] or minus[1] else total) + (-c if minus[2] else c) + ("po" in form.others)
        total = np.asarray(total >> scale, object)
        if form.sat:
            total = saturated(total, 32, signed)
        out[...] = np.asarray(total & 0xFFFFFFFF, object).astype(np.uint32)

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@instruction(*(f"v{name}{n}" for name in ("add", "sub", "avrg", "absdiff", "min", "max", "set") for n in (2, 4)))
def parallel(b: Builder, ins: Instruction) -> Step:
    """SIMD instructions on two half words or four bytes. The lanes that the mask selects replace lanes of the operand
    c, or are added to c."""
    name, lanes = ins.op[1:-1], int(ins.op[-1])
    form = Form(b, ins, {"add", *(_COMPARE if name == "set" else {"sat"})}, 2 if name == "set" else 3)
    if len(ins.operands) != 4 or (name == "set") != bool(form.compare):
        raise b.malformed("3 sources are needed")
    bits, letter = 32 // lanes, "h" if lanes == 2 else "b"
    source_types = form.types if name == "set" else form.types[1:]

    def selected_lanes(select: str, default: str, most: int, count: int | None) -> list[int]:
        """The lanes that a selector names, the least significant first."""
        text = select or letter + default
        selected = [int(digit) for digit in reversed(text[1:])]
        if text[0] != letter or max(selected) > most or (count is not None and len(selected) != count):
            raise b.malformed(f".{select} is no selector of {ins.op}")
        return selected

    to, mask = split(ins.operands[0])
    sources = [split(op) for op in ins.operands[1:3]]
    natural = "".join(str(i) for i in reversed(range(lanes)))
    upper = "".join(str(i + lanes) for i in reversed(range(lanes)))
    lanes_of_sources = [
        selected_lanes(select, default, 2 * lanes - 1, lanes)
        for (_, select), default in zip(sources, (natural, upper), strict=True)
    ]
    written = selected_lanes(mask, natural, lanes - 1, None)
    x, y = (b.src(op, "u32") for op, _ in sources)
    rest = b.src(ins.operands[3], "u32")
    dst = b.temp("u32") if isinstance(to, Sink) else b.dst(to, "u32")

    def compute(v: list[Array], out: Array) -> None:
        both = [v[view].astype(np.int64) >> (bits * i) for view in (x, y) for i in range(lanes)]
        total = v[rest].astype(np.int64)
        for lane in written:
            p, q = (
                wrapped(both[source_lanes[lane]], bits, dtype == "s32")
                for source_lanes, dtype in zip(lanes_of_sources, source_types, strict=True)
            )
            t = calculate(name, p, q, form.compare)
            t = saturated(t, bits, form.signed) if form.sat else t
            if form.second:
                total = total + t
            else:
                ones = ((1 << bits) - 1) << (bits * lane)
                total = (total & ~ones) | (t << (bits * lane) & ones)
        out[...] = (total & 0xFFFFFFFF).astype(np.uint32)

    return into(b, dst, compute)
