"""The table of integer operations, which compute lane by lane: one row has an operation for both engines, NumPy and
LLVM.

A row has the types of the sources and of the result, a NumPy function and an LLVM function. Types are letters: T the
type of the instruction, R unsigned integers (or truth values) of its size, U u32, W integers of twice its size. A NumPy
function is a ufunc, or it is called with (type, out, *arrays). An LLVM function is called with (emitter, type,
*registers) and returns the register of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.operands.builder import Array, Builder, into
from ptxgen.emulator.ops.operands.emitter import WORD, Emitter, UnableError, Value, only, raw
from ptxgen.emulator.ptx.dtypes import FLOATS, PACKED, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Instruction
from ptxgen.emulator.warp_batch import Step, WarpBatch

Mask = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Operation:
    """One row of the table: types of the sources and of the result, and the functions of both engines."""

    sources: str
    result: str
    numpy: Any
    llvm: Callable[..., str]


def typed(letter: str, dtype: str) -> str:
    """The type that a letter of a row stands for."""
    unsigned = "u" + dtype[1:] if dtype in PACKED else raw(dtype)
    return {"T": dtype, "R": unsigned, "U": "u32", "W": f"{dtype[0]}{16 * SIZES[dtype]}"}[letter]


def text(form: str) -> Callable[..., str]:
    """A function that prints an LLVM instruction: in ``form``, {0} and {1} are the operands, {t} is their type."""

    def emit(e: Emitter, dtype: str, *words: str) -> str:
        return e.new(form.format(*words, t=WORD[SIZES[dtype]]))

    return emit


def intrinsic(name: str, *more: str) -> Callable[..., str]:
    """A function that prints a call of an LLVM intrinsic; ``more``: further arguments."""

    def emit(e: Emitter, dtype: str, *words: str) -> str:
        t = WORD[SIZES[dtype]]
        whole = name.format(s="s" if dtype in SIGNED else "u")
        return e.call(t, f"llvm.{whole}.{t}", *(f"{t} {word}" for word in words), *more)

    return emit


def counted(name: str, *more: str) -> Callable[..., str]:
    """A function that prints a call of an LLVM intrinsic whose result is converted to 32 bits; ``more``: further
    arguments."""
    emit = intrinsic(name, *more)
    return lambda e, dtype, word: e.resize(emit(e, dtype, word), SIZES[dtype], 4, False)


def high(dtype: str, x: Array, y: Array) -> Any:
    """The high half of a product."""
    bits = 8 * SIZES[dtype]
    if bits < 64:
        double = np.int64 if dtype in SIGNED else np.uint64
        return ((x.astype(double) * y.astype(double)) >> double(bits)).astype(x.dtype)
    a, b = x.view(np.uint64) if x.ndim else x.astype(np.uint64), y.view(np.uint64) if y.ndim else y.astype(np.uint64)
    low = np.uint64(0xFFFFFFFF)
    s = np.uint64(32)
    al, ah, bl, bh = a & low, a >> s, b & low, b >> s
    mid = ah * bl + ((al * bl) >> s)
    mid2 = al * bh + (mid & low)
    out = ah * bh + (mid >> s) + (mid2 >> s)
    if dtype in SIGNED:
        zero = np.uint64(0)
        out = out - np.where(a >> np.uint64(63) != 0, b, zero) - np.where(b >> np.uint64(63) != 0, a, zero)
    return out.view(x.dtype)


def product(e: Emitter, dtype: str, x: str, y: str) -> str:
    """The whole product, which has twice the size of its factors."""
    size = SIZES[dtype]
    x, y = (e.resize(word, size, 2 * size, dtype in SIGNED) for word in (x, y))
    return e.new(f"mul {WORD[2 * size]} {x}, {y}")


def upper(e: Emitter, dtype: str, x: str, y: str) -> str:
    size = SIZES[dtype]
    down = e.new(f"lshr {WORD[2 * size]} {product(e, dtype, x, y)}, {8 * size}")
    return e.resize(down, 2 * size, size, False)


def plus(multiply: Callable[..., str], scale: int = 1) -> Callable[..., str]:
    """A function that adds a third operand to a product, which has ``scale`` times the size of its factors."""

    def emit(e: Emitter, dtype: str, x: str, y: str, z: str) -> str:
        return e.new(f"add {WORD[scale * SIZES[dtype]]} {multiply(e, dtype, x, y)}, {z}")

    return emit


def population(x: Array) -> Array:
    """The number of bits that are set."""
    a = x.astype(np.uint64)
    a = a - ((a >> np.uint64(1)) & np.uint64(0x5555555555555555))
    a = (a & np.uint64(0x3333333333333333)) + ((a >> np.uint64(2)) & np.uint64(0x3333333333333333))
    a = (a + (a >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (a * np.uint64(0x0101010101010101)) >> np.uint64(56)


def leading_zeros(a: Array, bits: int) -> Array:
    """The number of zero bits above the highest bit that is set."""
    a = np.array(a, np.uint64)
    for s in (1, 2, 4, 8, 16, 32):
        a |= a >> np.uint64(s)
    return bits - population(a).astype(np.int64)


def reversed_bits(dtype: str, out: Array, x: Array) -> None:
    a = np.array(x, ndmin=1)
    bits = np.unpackbits(a.view(np.uint8), bitorder="little").reshape(-1, 8 * SIZES[dtype])[:, ::-1]
    out[...] = np.packbits(bits, axis=1, bitorder="little").view(a.dtype).reshape(-1)


def assign(function: Callable[..., Any]) -> Callable[..., None]:
    """The NumPy function of a row, from a function that returns an array."""

    def write(dtype: str, out: Array, *arrays: Array) -> None:
        out[...] = function(dtype, *arrays)

    return write


def wide(dtype: str, out: Array, x: Array, y: Array) -> None:
    np.multiply(x, y, out, dtype=out.dtype)


def wide_sum(dtype: str, out: Array, x: Array, y: Array, z: Array) -> None:
    np.add(np.multiply(x, y, dtype=out.dtype), z, out)


def no_bits(e: Emitter, dtype: str, x: str) -> str:
    t = WORD[SIZES[dtype]]
    return e.new(f"zext i1 {e.new(f'icmp eq {t} {x}, 0')} to {t}")


#: the rows by name of the instruction, with .lo, .hi or .wide
OPERATIONS: dict[str, Operation] = {
    "add": Operation("RR", "R", np.add, text("add {t} {0}, {1}")),
    "sub": Operation("RR", "R", np.subtract, text("sub {t} {0}, {1}")),
    "mul.lo": Operation("RR", "R", np.multiply, text("mul {t} {0}, {1}")),
    "mul.hi": Operation("TT", "T", assign(high), upper),
    "mul.wide": Operation("TT", "W", wide, product),
    "mad.lo": Operation("RRR", "R", wide_sum, plus(text("mul {t} {0}, {1}"))),
    "mad.hi": Operation("TTT", "T", assign(lambda dtype, x, y, z: high(dtype, x, y) + z), plus(upper)),
    "mad.wide": Operation("TTW", "W", wide_sum, plus(product, 2)),
    "min": Operation("TT", "T", np.minimum, intrinsic("{s}min")),
    "max": Operation("TT", "T", np.maximum, intrinsic("{s}max")),
    "abs": Operation("T", "T", np.abs, intrinsic("abs", "i1 0")),
    "neg": Operation("T", "T", np.negative, text("sub {t} 0, {0}")),
    "and": Operation("RR", "R", np.bitwise_and, text("and {t} {0}, {1}")),
    "or": Operation("RR", "R", np.bitwise_or, text("or {t} {0}, {1}")),
    "xor": Operation("RR", "R", np.bitwise_xor, text("xor {t} {0}, {1}")),
    "not": Operation("R", "R", np.invert, text("xor {t} {0}, -1")),
    "cnot": Operation("R", "R", assign(lambda dtype, x: x == 0), no_bits),
    "popc": Operation("R", "U", assign(lambda dtype, x: population(x)), counted("ctpop")),
    "clz": Operation("R", "U", assign(lambda dtype, x: leading_zeros(x, 8 * SIZES[dtype])), counted("ctlz", "i1 0")),
    "brev": Operation("R", "R", reversed_bits, intrinsic("bitreverse")),
}


def row_of(ins: Instruction) -> str:
    """The name of the row of an instruction."""
    return next((f"{ins.op}.{m}" for m in ins.mods if m in ("lo", "hi", "wide")), ins.op)


def elementwise(b: Builder, ins: Instruction, dtype: str) -> Step:
    """The NumPy step of an operation of the table."""
    operation = OPERATIONS.get(row_of(ins))
    if operation is None:
        raise b.unsupported("needs .lo, .hi or .wide")
    if "W" in operation.result and SIZES[dtype] == 8:
        raise b.unsupported()
    sources = operation.sources
    if len(ins.operands) != len(sources) + 1:
        raise b.malformed(f"{len(sources)} sources are needed")
    src = [b.src(o, typed(letter, dtype)) for o, letter in zip(ins.operands[1:], sources, strict=True)]
    dst = b.dst(ins.operands[0], typed(operation.result, dtype))
    function = operation.numpy
    if not isinstance(function, np.ufunc):
        return into(b, dst, lambda v, out: function(dtype, out, *(v[i] for i in src)))
    if len(src) == 1:
        return into(b, dst, lambda v, out: function(v[src[0]], out=out))
    one, two = src
    if dtype in PACKED:
        return into(b, dst, lambda v, out: function(v[one], v[two], out=out))

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        if m is None:
            function(v[one], v[two], out=v[dst])
        else:
            function(v[one], v[two], out=v[dst], where=m)

    return step


def lower_elementwise(e: Emitter, ins: Instruction, guard: str) -> None:
    """Compiles an operation of the table."""
    dtype = only(ins, "lo", "hi", "wide")
    operation = OPERATIONS.get(row_of(ins))
    if operation is None or dtype in FLOATS or dtype in PACKED:
        raise UnableError
    result = typed(operation.result, dtype)
    if len(ins.operands) != len(operation.sources) + 1 or result not in SIZES:
        raise UnableError
    words = [
        e.word(e.src(o, typed(letter, dtype))) for o, letter in zip(ins.operands[1:], operation.sources, strict=True)
    ]
    e.put(ins.operands[0], Value(SIZES[result], operation.llvm(e, dtype, *words)), guard)
