"""Comparisons and selections."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.numerics import FLOAT, flush
from ptxgen.emulator.ops.operands.builder import Array, Builder, into
from ptxgen.emulator.ops.operands.emitter import REAL, WORD, Emitter, UnableError, Value, lowering, only, raw
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import FLOATS, PACKED, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Not, Operand, Pair, Sink
from ptxgen.emulator.warp_batch import Step, WarpBatch

Mask = NDArray[np.bool_] | None


_ORDERED: dict[str, Any] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


#: an unordered comparison is the negation of the opposite ordered comparison
_OPPOSITE: dict[str, Any] = {
    "ltu": np.greater_equal,
    "leu": np.greater,
    "gtu": np.less_equal,
    "geu": np.less,
}


COMPARISONS = {*_ORDERED, *_OPPOSITE, "ne", "neu", "equ", "num", "nan"}


_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def compare(name: str, dtype: str, a: Array, c: Array, out: Array) -> None:
    if name in _ORDERED:
        _ORDERED[name](a, c, out)
    elif name in _OPPOSITE:
        _OPPOSITE[name](a, c, out)
        np.logical_not(out, out)
    elif name == "neu" or (name == "ne" and dtype not in FLOATS):
        np.not_equal(a, c, out)
    elif name == "ne":
        out[...] = (a < c) | (a > c)
    elif name == "equ":
        out[...] = ~((a < c) | (a > c))
    else:
        nan = np.isnan(a) | np.isnan(c)
        out[...] = nan if name == "nan" else ~nan


def compared_type(b: Builder, ins: Instruction) -> tuple[str, str, bool]:
    """The tuple (comparison, type in which it compares, whether it flushes subnormal numbers)."""
    name = next((m for m in ins.mods if m in COMPARISONS), "")
    dtype = ins.mods[-1]
    known = COMPARISONS | set(_COMBINE) | set(SIZES) | {"ftz"}
    if not name or dtype not in SIZES or not set(ins.mods) <= known:
        raise b.unsupported()
    if name in ("lo", "ls", "hi", "hs") and dtype in FLOATS:
        raise b.malformed(f".{name} compares unsigned integers")
    if dtype[0] == "b" and dtype != "bf16" and dtype != "bf16x2":
        dtype = "u" + dtype[1:]
    return name, dtype, "ftz" in ins.mods


def predicate(b: Builder, op: Operand) -> tuple[int, bool]:
    """The pair (view of a predicate operand, whether the operand is negated)."""
    if isinstance(op, Not):
        return b.src(op.reg, "pred"), True
    return b.src(op, "pred"), False


@instruction("setp")
def setp(b: Builder, ins: Instruction) -> Step:
    name, dtype, ftz = compared_type(b, ins)
    if dtype.endswith("x2"):
        return setp_pair(b, ins, name, dtype, ftz)
    x, y = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype)
    combine = next((_COMBINE[m] for m in ins.mods if m in _COMBINE), None)
    other = predicate(b, ins.operands[3]) if combine is not None else None
    d = ins.operands[0]
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    dp = b.dst(first, "pred")
    if combine is None and isinstance(second, Sink) and not ftz:
        direct = _ORDERED.get(name) or (np.not_equal if name in ("ne", "neu") and dtype not in FLOATS else None)
        if direct is not None:
            return into(b, dp, lambda v, out: direct(v[x], v[y], out))
        return into(b, dp, lambda v, out: compare(name, dtype, v[x], v[y], out))
    dq = b.dst(second, "pred")
    scratch = b.temp("pred")

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        t = v[scratch]
        a, s = v[x], v[y]
        if ftz:
            a, s = flush(a, dtype), flush(s, dtype)
        compare(name, dtype, a, s, t)
        where: Any = True if m is None else m
        if other is None:
            yes, no = t, ~t
        else:
            assert combine is not None
            k = v[other[0]]
            if other[1]:
                k = ~k
            yes, no = combine(t, k), combine(~t, k)
        np.copyto(v[dp], yes, where=where)
        np.copyto(v[dq], no, where=where)

    return step


_LLVM_INTEGER = {
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "lo": "lt",
    "ls": "le",
    "hi": "gt",
    "hs": "ge",
}


_LLVM_REAL = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}


@lowering("setp")
def lower_setp(e: Emitter, ins: Instruction, guard: str) -> None:
    dtype = ins.mods[-1]
    name = ins.mods[0]
    combine = ins.mods[1:-1]
    if dtype not in SIZES or len(combine) > 1 or not set(combine) <= {"and", "or", "xor"}:
        raise UnableError
    if dtype in ("f32", "f64"):
        if name not in _LLVM_REAL:
            raise UnableError
        x, y = (e.real(e.src(o, dtype)) for o in ins.operands[1:3])
        yes = e.new(f"fcmp {_LLVM_REAL[name]} {REAL[SIZES[dtype]]} {x}, {y}")
    else:
        if name not in _LLVM_INTEGER or dtype in FLOATS or dtype == "pred" or dtype.endswith("x2"):
            raise UnableError
        x, y = (e.word(e.src(o, raw(dtype))) for o in ins.operands[1:3])
        test = _LLVM_INTEGER[name]
        if test not in ("eq", "ne"):
            test = ("s" if dtype in SIGNED and name not in ("lo", "ls", "hi", "hs") else "u") + test
        yes = e.new(f"icmp {test} {WORD[SIZES[dtype]]} {x}, {y}")
    d = ins.operands[0]
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    no = "" if isinstance(second, Sink) else e.new(f"xor i1 {yes}, 1")
    if combine:
        other = e.truth(ins.operands[3])
        yes = e.new(f"{combine[0]} i1 {yes}, {other}")
        no = no and e.new(f"{combine[0]} i1 {no}, {other}")
    e.put(first, Value(0, yes), guard)
    if no:
        e.put(second, Value(0, no), guard)


def setp_pair(b: Builder, ins: Instruction, name: str, dtype: str, ftz: bool) -> Step:
    """setp of a packed type: one predicate for each half."""
    base = dtype.removesuffix("x2")
    x, y = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype)
    combine = next((_COMBINE[m] for m in ins.mods if m in _COMBINE), None)
    other = predicate(b, ins.operands[3]) if combine is not None else None
    d = ins.operands[0]
    if not isinstance(d, Pair):
        raise b.malformed("two predicates are needed")
    dsts = [b.dst(d.first, "pred"), b.dst(d.second, "pred")]

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        a, s = np.broadcast_to(v[x], (2 * c.n,)), np.broadcast_to(v[y], (2 * c.n,))
        if ftz:
            a, s = flush(a, base), flush(s, base)
        t = np.zeros(2 * c.n, bool)
        compare(name, base, a, s, t)
        halves = [t[::2], t[1::2]]
        if other is not None and combine is not None:
            k = ~v[other[0]] if other[1] else v[other[0]]
            halves = [combine(half, k) for half in halves]
        for dst, half in zip(dsts, halves, strict=True):
            np.copyto(v[dst], half, where=True if m is None else m)

    return step


@instruction("set")
def set_(b: Builder, ins: Instruction) -> Step:
    result, dtype = ins.types[-2:]
    name = next((m for m in ins.mods if m in COMPARISONS), "")
    ftz = "ftz" in ins.mods
    combine = next((_COMBINE[m] for m in ins.mods if m in _COMBINE), None)
    if not name:
        raise b.unsupported()
    base = dtype.removesuffix("x2")
    if base[0] == "b" and base != "bf16":
        base = dtype = "u" + dtype[1:]
    x, y = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype)
    other = predicate(b, ins.operands[3]) if combine is not None else None
    packed = dtype.endswith("x2")
    if packed and result in ("u32", "s32"):
        result = "u16x2"  # one half for each comparison
    dst = b.dst(ins.operands[0], result)
    out_base = result.removesuffix("x2")
    one: Any = 1 if out_base in FLOAT else -1

    def compute(v: list[Array], out: Array) -> None:
        a, c = v[x], v[y]
        if ftz:
            a, c = flush(a, base), flush(c, base)
        t = np.zeros(out.shape, bool)
        compare(name, base, a, c, t)
        if other is not None and combine is not None:
            k = ~v[other[0]] if other[1] else v[other[0]]
            t = combine(t, np.repeat(k, 2) if packed else k)
        out[...] = t if one == 1 else np.where(t, -1, 0).astype(out.dtype)

    return into(b, dst, compute)


@instruction("selp")
def selp(b: Builder, ins: Instruction) -> Step:
    dtype = ins.mods[-1]
    if dtype not in SIZES or len(ins.mods) != 1:
        raise b.unsupported()
    x, y = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype)
    p, negated = predicate(b, ins.operands[3])
    dst = b.dst(ins.operands[0], dtype)

    def compute(v: list[Array], out: Array) -> None:
        out[...] = np.where(v[p], v[y], v[x]) if negated else np.where(v[p], v[x], v[y])

    return into(b, dst, compute)


@lowering("selp")
def lower_selp(e: Emitter, ins: Instruction, guard: str) -> None:
    dtype = only(ins)
    if SIZES[dtype] not in (2, 4, 8) or dtype in ("f16", "bf16"):
        raise UnableError
    p = e.truth(ins.operands[3])
    if dtype not in ("f32", "f64"):
        dtype = raw(dtype)
    word = WORD[SIZES[dtype]]
    x, y = (e.word(e.src(o, dtype)) for o in ins.operands[1:3])
    e.put(ins.operands[0], Value(SIZES[dtype], e.new(f"select i1 {p}, {word} {x}, {word} {y}")), guard)


@instruction("slct")
def slct(b: Builder, ins: Instruction) -> Step:
    dtype, test = ins.types
    if dtype in PACKED or test not in ("s32", "f32"):
        raise b.unsupported()
    x, y, z = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype), b.src(ins.operands[3], test)
    ftz = "ftz" in ins.mods

    def compute(v: list[Array], out: Array) -> None:
        t = flush(v[z], test) if ftz else v[z]
        out[...] = np.where(t >= 0, v[x], v[y])

    return into(b, b.dst(ins.operands[0], dtype), compute)


@instruction("testp")
def testp(b: Builder, ins: Instruction) -> Step:
    test, dtype = ins.mods
    if test not in ("finite", "infinite", "number", "notanumber", "normal", "subnormal") or dtype not in FLOAT:
        raise b.unsupported()
    x = b.src(ins.operands[1], dtype)
    finfo: Any = ml_dtypes.finfo
    tiny: Any = finfo(FLOAT[dtype]).tiny

    def compute(v: list[Array], out: Array) -> None:
        a = v[x]
        if test in ("finite", "infinite"):
            answer = np.isfinite(a) if test == "finite" else np.isinf(a)
        elif test in ("number", "notanumber"):
            answer = np.isnan(a) if test == "notanumber" else ~np.isnan(a)
        elif test == "normal":
            answer = np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0))
        else:
            answer = (a != 0) & (np.abs(a) < tiny)
        out[...] = answer

    return into(b, b.dst(ins.operands[0], "pred"), compute)
