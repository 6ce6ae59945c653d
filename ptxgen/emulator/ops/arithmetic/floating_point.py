"""Floating-point arithmetic: f16, bf16, their pairs, f32 and f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxgen.emulator.ops.arithmetic.llvm_numerics import HALVES, narrow_half, real_result, sum_to_odd, wide_half
from ptxgen.emulator.ops.arithmetic.numerics import (
    BITS,
    FLOAT,
    QUIET64,
    TINY32,
    UNDERFLOW,
    add_odd,
    canonical,
    directed_f64,
    flush,
    flush_rounded,
    fma64,
    propagate_nans,
    round_to,
    saturate,
    sqrt64,
    to_odd,
    two_sum,
    wide,
)
from ptxgen.emulator.ops.operands.builder import Array, Builder, into, only_type
from ptxgen.emulator.ops.operands.emitter import REAL, Emitter, UnableError, Value, lowering, only
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import SIZES, Instruction
from ptxgen.emulator.reductions import any_true, count_nonzero, flatnonzero
from ptxgen.emulator.warp_batch import Step

ROUNDINGS = {"rn", "rz", "rm", "rp"}


class Style:
    """The parsed modifiers of a floating-point instruction."""

    def __init__(self, b: Builder, ins: Instruction, allowed: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.dtype = ins.mods[-1]
        if self.dtype not in SIZES:
            raise b.unsupported()
        self.base = self.dtype.removesuffix("x2")
        if self.base not in FLOAT:
            raise b.unsupported()
        mods = ins.mods[:-1]
        self.mode = next((m for m in mods if m in ROUNDINGS), "rn")
        self.ftz = "ftz" in mods
        self.sat = "sat" in mods
        self.relu = "relu" in mods
        for m in mods:
            if m not in ROUNDINGS | {"ftz", "sat", "relu", "noftz"} | allowed:
                raise b.unsupported(f".{m}")

    @property
    def plain(self) -> bool:
        return self.mode == "rn" and not (self.ftz or self.sat or self.relu)

    def load(self, x: Array) -> Array:
        return flush(x, self.base) if self.ftz else x

    def store(self, value: Array, out: Array, *operands: Array, exact: Callable[[], Array] | None = None) -> None:
        """Writes a result with .ftz, .sat, .relu and the NaN of the hardware applied.

        ``operands``: the f64 operands; the first NaN among them becomes the result. ``exact``: gives the result before
        rounding, which .ftz tests.
        """
        if self.base == "f64":
            out[...] = propagate_nans(np.asarray(value), *operands)
            return
        if self.ftz:
            if exact is None:
                value = flush(value, self.base)
            else:
                value = flush_rounded(np.asarray(value), self.base, self.mode, exact)
        if self.sat:
            value = saturate(value)
        if self.relu:
            value = np.where(value > 0, value, np.where(np.isnan(value), value, np.zeros((), value.dtype)))
        out[...] = value
        canonical(out, self.base)


def add(b: Builder, ins: Instruction) -> Step:
    s = Style(b, ins)
    x, y = (b.src(o, s.dtype) for o in ins.operands[1:])
    dst = b.dst(ins.operands[0], s.dtype)
    ufunc: Any = np.add if ins.op == "add" else np.subtract
    base = s.base
    if s.plain and base != "f64":

        def plain(v: list[Array], out: Array) -> None:
            ufunc(v[x], v[y], out)
            canonical(out, base)

        return into(b, dst, plain)

    def compute(v: list[Array], out: Array) -> None:
        a, c = s.load(v[x]), s.load(v[y])
        if s.mode == "rn":
            s.store(ufunc(a, c), out, c, a)
            return
        if base == "f64":
            s.store(directed_f64("add", s.mode, a, c if ins.op == "add" else -c), out, c, a)
            return
        c = c if ins.op == "add" else -c
        exact = add_odd(wide(a), wide(c))
        if s.mode == "rm":
            exact = np.where(
                (exact == 0) & ~((wide(a) == 0) & (wide(c) == 0) & ~np.signbit(a) & ~np.signbit(c)), -0.0, exact
            )
        s.store(round_to(exact, base, s.mode), out)

    return into(b, dst, compute)


def mul(b: Builder, ins: Instruction) -> Step:
    s = Style(b, ins)
    x, y = (b.src(o, s.dtype) for o in ins.operands[1:])
    dst = b.dst(ins.operands[0], s.dtype)
    base = s.base
    if s.plain and base != "f64":

        def plain(v: list[Array], out: Array) -> None:
            np.multiply(v[x], v[y], out)
            canonical(out, base)

        return into(b, dst, plain)

    def compute(v: list[Array], out: Array) -> None:
        a, c = s.load(v[x]), s.load(v[y])
        if s.mode == "rn":
            s.store(a * c, out, c, a, exact=lambda: wide(a) * wide(c))
        elif base == "f64":
            s.store(directed_f64("mul", s.mode, a, c), out, c, a)
        else:
            exact = wide(a) * wide(c)
            s.store(round_to(exact, base, s.mode), out, exact=lambda: exact)

    return into(b, dst, compute)


#: in the bits of a float64: those below the last bit of a normal float32, and their value half way between two float32
LOW = np.array(0x1FFFFFFF, np.uint64)


HALF = np.array(0x10000000, np.uint64)


#: the NaN, of either sign, that represents an element outside a tensor, in f16 and in bf16
OOB = 0x7FF7


@instruction("fma")
def fma(b: Builder, ins: Instruction) -> Step:
    s = Style(b, ins, {"oob"})
    oob = "oob" in ins.mods
    if oob and s.base not in ("f16", "bf16"):
        raise b.unsupported()
    x, y, z = (b.src(o, s.dtype) for o in ins.operands[1:])
    dst = b.dst(ins.operands[0], s.dtype)
    base = s.base
    if base == "f32" and s.plain and s.dtype == "f32":
        return fma32(b, dst, x, y, z)

    def compute(v: list[Array], out: Array) -> None:
        if not oob:
            fused(v, out)
            return
        # factors that a tensor copy wrote for elements outside the tensor
        outside = np.zeros(out.shape, bool)
        for i in (x, y):
            outside |= (np.ascontiguousarray(v[i]).view(np.uint16) & np.uint16(0x7FFF)).reshape(v[i].shape) == OOB
        fused(v, out)
        out.view(np.uint16)[outside] = 0

    def fused(v: list[Array], out: Array) -> None:
        a, c, d = s.load(v[x]), s.load(v[y]), s.load(v[z])
        if base == "f64":
            s.store(fma64(np.broadcast_to(a, out.shape), c, d, s.mode), out, d, c, a)
            return
        product, d = wide(a) * wide(c), wide(d)
        exact = add_odd(product, d)
        if s.mode == "rm":
            both = (product == 0) & (d == 0) & ~np.signbit(product) & ~np.signbit(d)
            exact = np.where((exact == 0) & ~both, -0.0, exact)
        s.store(round_to(exact, base, s.mode), out, exact=lambda: exact)

    return into(b, dst, compute)


def fma32(b: Builder, dst: int, x: int, y: int, z: int) -> Step:
    """fma.rn.f32 in float64: the product is exact, and rounding the sum twice is nearly always correct.

    Rounding to float64 and then to float32 can differ from one rounding only if the float64 sum is half way
    between two float32 numbers, or if the result is subnormal. Those lanes are computed again.
    """
    ta, tb, ts, tm, ti = b.temp("f64"), b.temp("f64"), b.temp("f64"), b.temp("pred"), b.temp("u64")
    sum_bits = b.retype(ts, "u64")
    multiply, plus, copyto = np.multiply, np.add, np.copyto
    masked, equal, count = np.bitwise_and, np.equal, count_nonzero
    top = np.maximum.reduce

    def compute(v: list[Array], out: Array) -> None:
        p, c, s, near = v[ta], v[tb], v[ts], v[tm]
        copyto(p, v[x])
        copyto(c, v[y])
        multiply(p, c, p)
        copyto(c, v[z])
        plus(p, c, s)
        under = UNDERFLOW.count
        copyto(out, s, casting="unsafe")
        masked(v[sum_bits], LOW, v[ti])
        equal(v[ti], HALF, near)
        if count(near) or UNDERFLOW.count != under:
            near |= np.abs(s) < TINY32
            again = flatnonzero(near)
            out[again] = to_odd(*two_sum(p[again], c[again]))
        t = top(out)
        if t != t:
            canonical(out, "f32")

    return into(b, dst, compute)


def div(b: Builder, ins: Instruction) -> Step:
    s = Style(b, ins, {"approx", "full"})
    x, y = (b.src(o, s.dtype) for o in ins.operands[1:])
    base = s.base

    def compute(v: list[Array], out: Array) -> None:
        a, c = s.load(v[x]), s.load(v[y])
        if s.mode == "rn" and not s.ftz:
            s.store(a / c, out, a, c)
        elif base == "f64":
            s.store(directed_f64("div", s.mode, a, c), out, a, c)
        else:
            # the sign of the rounding error of the float64 quotient, from the remainder
            q = wide(a) / wide(c)
            lost = -fma64(np.broadcast_to(q, out.shape), wide(c), -wide(a)) * np.sign(wide(c))
            exact = to_odd(np.array(np.broadcast_to(q, out.shape)), lost)
            s.store(round_to(exact, base, s.mode), out, exact=lambda: exact)

    return into(b, b.dst(ins.operands[0], s.dtype), compute)


def minmax(b: Builder, ins: Instruction) -> Step:
    s = Style(b, ins, {"NaN", "xorsign", "abs"})
    if len(ins.operands) not in (3, 4):
        raise b.malformed("2 or 3 sources are needed")
    src = [b.src(o, s.dtype) for o in ins.operands[1:]]
    smallest, propagate = ins.op == "min", "NaN" in ins.mods
    xorsign, magnitude = "xorsign" in ins.mods, "abs" in ins.mods
    bits = BITS[s.base]

    def two(a: Array, c: Array) -> Array:
        sign = None
        if xorsign:
            sign = (a.view(bits) ^ c.view(bits)) & bits(1 << (8 * bits().itemsize - 1))
        if magnitude:
            a, c = np.abs(a), np.abs(c)
        less = a < c if smallest else a > c
        out = np.where(less, a, c)
        # of two zeros, the negative one is the smaller
        zeros = (a == 0) & (c == 0)
        if any_true(zeros):
            ab, cb = np.asarray(a).view(bits), np.asarray(c).view(bits)
            merged = ab | cb if smallest else ab & cb
            out = np.where(zeros, merged, out.view(bits)).astype(bits).view(out.dtype)
        na, nc = np.isnan(a), np.isnan(c)
        nan = np.array(np.nan, out.dtype)
        if propagate:
            out = np.where(na | nc, nan, out)
        else:
            out = np.where(na & nc, nan, np.where(na, c, np.where(nc, a, out)))
        if sign is not None:
            body = out.view(bits) & bits((1 << (8 * bits().itemsize - 1)) - 1)
            out = np.where(np.isnan(out), out, (body | sign).astype(bits).view(out.dtype))
        return out.astype(FLOAT[s.base], copy=False)

    def compute(v: list[Array], out: Array) -> None:
        values = [s.load(np.broadcast_to(v[i], out.shape)) for i in src]
        result = two(np.ascontiguousarray(values[0]), np.ascontiguousarray(values[1]))
        for more in values[2:]:
            result = two(result, np.ascontiguousarray(more))
        s.store(result, out, *values[::-1])

    return into(b, b.dst(ins.operands[0], s.dtype), compute)


def sign(b: Builder, ins: Instruction) -> Step:
    s = Style(b, ins)
    x = b.src(ins.operands[1], s.dtype)
    dst = b.dst(ins.operands[0], s.dtype)
    bits = BITS[s.base]
    top = bits(1 << (8 * bits().itemsize - 1))
    negate = ins.op == "neg"

    def compute(v: list[Array], out: Array) -> None:
        a = np.array(s.load(np.broadcast_to(v[x], out.shape)))
        word = a.view(bits)
        out.view(bits)[...] = word ^ top if negate else word & ~top
        if s.base == "f64":
            nan = a != a
            out.view(bits)[nan] = word[nan] | QUIET64
        else:
            canonical(out, s.base)

    return into(b, dst, compute)


@instruction("copysign")
def copysign(b: Builder, ins: Instruction) -> Step:
    dtype = only_type(b, ins, types={"f32", "f64"})
    x, y = (b.src(o, dtype) for o in ins.operands[1:])
    return into(b, b.dst(ins.operands[0], dtype), lambda v, out: np.copysign(v[y], v[x], out))


# ---- functions of one argument

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


@instruction(*FUNCTIONS)
def function(b: Builder, ins: Instruction) -> Step:
    """The step of a function of one argument. .approx functions are correctly rounded, which is within the documented
    error."""
    s = Style(b, ins, {"approx"})
    x = b.src(ins.operands[1], s.dtype)
    f = FUNCTIONS[ins.op]
    exact = "approx" not in ins.mods
    upper_only = s.base == "f64" and s.ftz
    if s.mode != "rn" and (s.base not in ("f32", "f64") or ins.op not in ("rcp", "sqrt")):
        raise b.unsupported("a directed rounding")

    def compute(v: list[Array], out: Array) -> None:
        if upper_only:
            upper_half(np.broadcast_to(v[x], out.shape), f, out)
            return
        a = np.broadcast_to(s.load(v[x]), out.shape)
        if s.base == "f64":
            if s.mode == "rn":
                value = f(a)
            else:
                value = sqrt64(a, s.mode) if ins.op == "sqrt" else directed_f64("div", s.mode, np.ones(a.shape), a)
            s.store(value, out, a)
            return
        value = f(wide(a))
        if s.mode != "rn" or (s.ftz and exact):
            if ins.op == "sqrt":
                lost = -fma64(value, value, -wide(a))
            else:
                lost = -fma64(value, wide(a), np.full(a.shape, -1.0)) * np.sign(wide(a))
            value = to_odd(np.array(value), np.nan_to_num(lost))
        s.store(round_to(value, s.base, s.mode), out, exact=lambda: value)

    return into(b, b.dst(ins.operands[0], s.dtype), compute)


def upper_half(a: Array, f: Callable[[Array], Array], out: Array) -> None:
    """rcp and rsqrt of f64 with .ftz, which use only the upper words of the operand and of the result."""
    upper = np.uint64(0xFFFFFFFF00000000)
    x = flush((a.view(np.uint64) & upper).view(np.float64), "f64")
    value = flush((f(x).view(np.uint64) & upper).view(np.float64), "f64")
    out.view(np.uint64)[...] = np.where(np.isnan(value), np.uint64(0x7FFFFFFF00000000), value.view(np.uint64))


# ---- compiled functions


def real_dtype(ins: Instruction) -> str:
    dtype = only(ins, "rn")
    if dtype not in ("f32", "f64") and dtype not in HALVES:
        raise UnableError
    return dtype


def lower(e: Emitter, ins: Instruction, guard: str) -> None:
    """Compiles a sum, a difference, a product, or a negation of f32."""
    if ins.op == "neg":
        if only(ins) != "f32":
            raise UnableError
        x = e.real(e.src(ins.operands[1], "f32"))
        e.put(ins.operands[0], Value(4, real=e.new(f"fneg float {x}"), clean=False), guard)
    elif ins.op in ("fma", "mad"):
        lower_fma(e, ins, guard)
    elif ins.op in ("add", "sub", "mul"):
        lower_two(e, ins, guard)
    else:
        raise UnableError


def lower_two(e: Emitter, ins: Instruction, guard: str) -> None:
    dtype = real_dtype(ins)
    if dtype in HALVES:
        lower_halves(e, ins, dtype, guard)
        return
    x, y = (e.real(e.src(o, dtype)) for o in ins.operands[1:])
    text = e.new(f"f{ins.op} {REAL[SIZES[dtype]]} {x}, {y}")
    e.put(ins.operands[0], real_result(e, dtype, text, y, x), guard)


def lower_halves(e: Emitter, ins: Instruction, dtype: str, guard: str) -> None:
    """Compiles arithmetic on 16-bit floats in float64, where sums and products of two numbers are exact; fma is rounded
    to odd."""
    form = HALVES[dtype]
    size = 4 if dtype.endswith("x2") else 2
    whole = [e.word(e.src(o, f"u{8 * size}")) for o in ins.operands[1:]]
    total = ""
    for part in range(size // 2):
        numbers = []
        for word in whole:
            piece = word if not part else e.new(f"lshr i32 {word}, 16")
            numbers.append(wide_half(e, e.resize(piece, size, 2, False), form))
        if ins.op == "fma":
            both = e.new(f"fmul double {numbers[0]}, {numbers[1]}")
            result = sum_to_odd(e, both, numbers[2])
        else:
            result = e.new(f"f{ins.op} double {numbers[0]}, {numbers[1]}")
        half = e.resize(narrow_half(e, result, form), 2, size, False)
        if part:
            half = e.new(f"shl i32 {half}, 16")
        total = e.new(f"or i32 {total}, {half}") if total else half
    e.put(ins.operands[0], Value(size, total), guard)


@lowering("fma")
def lower_fma(e: Emitter, ins: Instruction, guard: str) -> None:
    dtype = real_dtype(ins)
    if dtype in HALVES:
        lower_halves(e, ins, dtype, guard)
        return
    x, y, z = (e.real(e.src(o, dtype)) for o in ins.operands[1:])
    name = REAL[SIZES[dtype]]
    text = e.call(name, f"llvm.fma.{dtype}", f"{name} {x}", f"{name} {y}", f"{name} {z}")
    e.put(ins.operands[0], real_result(e, dtype, text, z, y, x), guard)
