"""Logic, shifts and bit fields."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.compare import predicate
from ptxgen.emulator.ops.arithmetic.elementwise import elementwise, leading_zeros, lower_elementwise
from ptxgen.emulator.ops.operands.builder import LONG, Array, Builder, into, only_type
from ptxgen.emulator.ops.operands.emitter import WORD, Emitter, UnableError, Value, lowering, only, raw
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Imm, Instruction, Pair
from ptxgen.emulator.warp_batch import Step, WarpBatch

Mask = NDArray[np.bool_] | None


@instruction("and", "or", "xor", "not", "cnot", "popc", "clz", "brev")
def bitwise(b: Builder, ins: Instruction) -> Step:
    return elementwise(b, ins, only_type(b, ins))


lowering("and", "or", "xor", "not", "cnot", "popc", "clz", "brev")(lower_elementwise)


@instruction("shl", "shr")
def shift(b: Builder, ins: Instruction) -> Step:
    dtype = only_type(b, ins)
    if dtype not in SIGNED or ins.op == "shl":
        dtype = raw(dtype)
    bits = 8 * SIZES[dtype]
    amount = ins.operands[2]
    x = b.src(ins.operands[1], dtype)
    if isinstance(amount, Imm):
        n = amount.value & 0xFFFFFFFF
        dst = b.dst(ins.operands[0], dtype)
        ufunc: Any = np.left_shift if ins.op == "shl" else np.right_shift
        if n >= bits:
            if dtype not in SIGNED:
                return into(b, dst, lambda v, out: out.fill(0))
            n = bits - 1
        by = b.const(n, dtype)
        return into(b, dst, lambda v, out: ufunc(v[x], v[by], out))
    by = b.src(amount, "u32")
    dst = b.dst(ins.operands[0], dtype)

    def compute(v: list[Array], out: Array) -> None:
        n = v[by]
        a = v[x]
        if ins.op == "shr" and dtype in SIGNED:
            out[...] = a >> np.minimum(n, bits - 1).astype(a.dtype)
            return
        small = np.minimum(n, bits - 1).astype(a.dtype)
        shifted = a << small if ins.op == "shl" else a >> small
        out[...] = np.where(n >= bits, np.zeros((), a.dtype), shifted)

    return into(b, dst, compute)


@lowering("shl", "shr")
def lower_shift(e: Emitter, ins: Instruction, guard: str) -> None:
    dtype = only(ins)
    if ins.op == "shl" or dtype not in SIGNED:
        dtype = raw(dtype)
    size = SIZES[dtype]
    bits, word = 8 * size, WORD[size]
    how = "shl" if ins.op == "shl" else "ashr" if dtype in SIGNED else "lshr"
    x = e.word(e.src(ins.operands[1], dtype))
    amount = ins.operands[2]
    if isinstance(amount, Imm):
        n = amount.value & 0xFFFFFFFF
        if n >= bits:
            text = e.new(f"ashr {word} {x}, {bits - 1}") if how == "ashr" else "0"
        else:
            text = e.new(f"{how} {word} {x}, {n}")
    else:
        n_ = e.word(e.src(amount, "u32"))
        fits = e.new(f"icmp ult i32 {n_}, {bits}")
        safe = e.resize(e.new(f"select i1 {fits}, i32 {n_}, i32 {bits - 1}"), 4, size, False)
        text = e.new(f"{how} {word} {x}, {safe}")
        if how != "ashr":
            text = e.new(f"select i1 {fits}, {word} {text}, {word} 0")
    e.put(ins.operands[0], Value(size, text), guard)


@instruction("shf")
def funnel(b: Builder, ins: Instruction) -> Step:
    left, wrap = "l" in ins.mods, "wrap" in ins.mods
    if ins.mods[-1] != "b32":
        raise b.unsupported()
    lo, hi, by = (b.src(o, "u32") for o in ins.operands[1:])

    def compute(v: list[Array], out: Array) -> None:
        n = v[by].astype(np.uint64)
        n = n & np.uint64(31) if wrap else np.minimum(n, np.uint64(32))
        both = (v[hi].astype(np.uint64) << np.uint64(32)) | v[lo].astype(np.uint64)
        out[...] = ((both << n) >> np.uint64(32) if left else both >> n).astype(np.uint32)

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@instruction("bfe")
def extract(b: Builder, ins: Instruction) -> Step:
    dtype = only_type(b, ins)
    bits = 8 * SIZES[dtype]
    x = b.src(ins.operands[1], raw(dtype))
    at, length = b.src(ins.operands[2], "u32"), b.src(ins.operands[3], "u32")
    dst = b.dst(ins.operands[0], raw(dtype))
    signed = dtype in SIGNED
    limit = field_limit(bits)

    def compute(v: list[Array], out: Array) -> None:
        a = v[x].astype(np.uint64)
        pos = (v[at] & limit).astype(np.int64)
        count = (v[length] & limit).astype(np.int64)
        shifted = np.where(pos >= 64, np.uint64(0), a >> np.minimum(pos, 63).astype(np.uint64))
        mask = np.where(
            count >= 64,
            np.uint64(0xFFFFFFFFFFFFFFFF),
            (np.uint64(1) << np.minimum(count, 63).astype(np.uint64)) - np.uint64(1),
        )
        value = shifted & mask
        if signed:
            top = np.minimum(pos + count - 1, bits - 1)
            sign = (a >> np.maximum(top, 0).astype(np.uint64)) & np.uint64(1)
            sign = np.where(count == 0, np.uint64(0), sign)
            taken = np.clip(np.minimum(count, bits - pos), 0, 63).astype(np.uint64)
            fill = np.uint64(0xFFFFFFFFFFFFFFFF) << taken
            fill = np.where(np.minimum(count, bits - pos) >= 64, np.uint64(0), fill)
            value = np.where(sign != 0, value | fill, value)
        out[...] = value.astype(out.dtype)

    return into(b, dst, compute)


def field_limit(bits: int) -> Any:
    """Mask of the bits of a position or a length that count: 8 bits, as PTX defines; all 32 bits for 64-bit operands,
    as on the hardware."""
    return np.uint32(0xFF if bits == 32 else 0xFFFFFFFF)


@instruction("bfi")
def insert(b: Builder, ins: Instruction) -> Step:
    dtype = raw(only_type(b, ins))
    bits = 8 * SIZES[dtype]
    x, y = b.src(ins.operands[1], dtype), b.src(ins.operands[2], dtype)
    at, length = b.src(ins.operands[3], "u32"), b.src(ins.operands[4], "u32")
    limit = field_limit(bits)

    def compute(v: list[Array], out: Array) -> None:
        pos = (v[at] & limit).astype(np.int64)
        count = (v[length] & limit).astype(np.int64)
        ones = np.where(
            count >= 64,
            np.uint64(0xFFFFFFFFFFFFFFFF),
            (np.uint64(1) << np.minimum(count, 63).astype(np.uint64)) - np.uint64(1),
        )
        by = np.minimum(pos, 63).astype(np.uint64)
        mask = np.where(pos >= bits, np.uint64(0), ones << by)
        field = np.where(pos >= bits, np.uint64(0), v[x].astype(np.uint64) << by)
        out[...] = ((v[y].astype(np.uint64) & ~mask) | (field & mask)).astype(out.dtype)

    return into(b, b.dst(ins.operands[0], dtype), compute)


@instruction("bmsk")
def bmsk(b: Builder, ins: Instruction) -> Step:
    at, width = b.src(ins.operands[1], "u32"), b.src(ins.operands[2], "u32")
    clamp = "clamp" in ins.mods

    def compute(v: list[Array], out: Array) -> None:
        a, w = v[at].astype(np.uint64), v[width].astype(np.uint64)
        if not clamp:
            a, w = a & np.uint64(31), w & np.uint64(31)
        ones = (np.uint64(1) << np.minimum(w, np.uint64(32))) - np.uint64(1)
        out[...] = np.where(a >= 32, np.uint64(0), ones << np.minimum(a, np.uint64(31))).astype(np.uint32)

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@instruction("szext")
def szext(b: Builder, ins: Instruction) -> Step:
    """szext: extends the low bits of a word with zeros or with their sign."""
    if len(ins.mods) != 2 or ins.mods[0] not in ("clamp", "wrap") or ins.mods[1] not in ("u32", "s32"):
        raise b.unsupported()
    x, n = b.src(ins.operands[1], "u32"), b.src(ins.operands[2], "u32")
    clamp, signed = ins.mods[0] == "clamp", ins.mods[1] == "s32"

    def compute(v: list[Array], out: Array) -> None:
        a, width = v[x], v[n]
        count = width & np.uint32(31)
        keep = (np.uint32(1) << count) - np.uint32(1)
        low = a & keep
        if signed:
            top = (a >> ((count - np.uint32(1)) & np.uint32(31))) & np.uint32(1)
            low = np.where((top != 0) & (count != 0), low | ~keep, low)
        out[...] = np.where(width >= 32, a, low) if clamp else low

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@instruction("bfind")
def bfind(b: Builder, ins: Instruction) -> Step:
    amount = "shiftamt" in ins.mods
    dtype = only_type(b, ins, {"shiftamt"}, LONG)
    bits = 8 * SIZES[dtype]
    x = b.src(ins.operands[1], dtype)

    def compute(v: list[Array], out: Array) -> None:
        a = v[x]
        if dtype in SIGNED:
            a = np.where(a < 0, ~a, a)
        zeros = leading_zeros(np.asarray(a).astype(np.uint64), bits)
        at = zeros if amount else bits - 1 - zeros
        out[...] = np.where(zeros == bits, 0xFFFFFFFF, at).astype(np.uint32)

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@instruction("fns")
def fns(b: Builder, ins: Instruction) -> Step:
    mask, base, offset = (b.src(ins.operands[1], "u32"), b.src(ins.operands[2], "u32"), b.src(ins.operands[3], "s32"))

    def compute(v: list[Array], out: Array) -> None:
        n = out.shape
        for i, (word, start, k) in enumerate(
            zip(*(np.broadcast_to(v[s], n).tolist() for s in (mask, base, offset)), strict=True)
        ):
            position = 0xFFFFFFFF
            if k == 0:
                if start < 32 and word >> start & 1:
                    position = start
            else:
                candidates = range(start, 32) if k > 0 else range(min(start, 31), -1, -1)
                hits = [p for p in candidates if word >> p & 1]
                if len(hits) >= abs(k):
                    position = hits[abs(k) - 1]
            out[i] = position

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@instruction("lop3")
def lop3(b: Builder, ins: Instruction) -> Step:
    if ins.mods in (("or", "b32"), ("and", "b32")):
        return lop3_predicate(b, ins)
    if ins.mods != ("b32",) or len(ins.operands) != 5:
        raise b.unsupported()
    return into(b, b.dst(ins.operands[0], "u32"), truth_table(b, ins))


@lowering("lop3")
def lower_lop3(e: Emitter, ins: Instruction, guard: str) -> None:
    if ins.mods != ("b32",) or not isinstance(ins.operands[4], Imm):
        raise UnableError
    words = [e.word(e.src(o, "u32")) for o in ins.operands[1:4]]
    table = ins.operands[4].value & 0xFF
    inverted = [e.new(f"xor i32 {w}, -1") for w in words]
    total = "0"
    for i in range(8):
        if table >> i & 1:
            x, y, z = ((words if i >> (2 - k) & 1 else inverted)[k] for k in range(3))
            two = e.new(f"and i32 {x}, {y}")
            three = e.new(f"and i32 {two}, {z}")
            total = e.new(f"or i32 {total}, {three}")
    e.put(ins.operands[0], Value(4, total), guard)


def truth_table(b: Builder, ins: Instruction) -> Any:
    """A function that applies an 8-bit truth table to the bits of three words."""
    if not isinstance(ins.operands[4], Imm):
        raise b.malformed("the table is no constant; it must be one")
    x, y, z = (b.src(o, "u32") for o in ins.operands[1:4])
    table = ins.operands[4].value & 0xFF

    def compute(v: list[Array], out: Array) -> None:
        total = np.zeros_like(out)
        inputs = [v[x], v[y], v[z]]
        for i in range(8):
            if table >> i & 1:
                term = np.full_like(out, 0xFFFFFFFF)
                for k, value in enumerate(inputs):
                    term &= value if i >> (2 - k) & 1 else ~value
                total |= term
        out[...] = total

    return compute


def lop3_predicate(b: Builder, ins: Instruction) -> Step:
    """lop3.BoolOp: also combines the predicate "the result is not zero" with another predicate."""
    d = ins.operands[0]
    if len(ins.operands) != 6 or not isinstance(d, Pair):
        raise b.malformed("d|p and six operands are needed")
    compute = truth_table(b, ins)
    p, negated = predicate(b, ins.operands[5])
    dst, flag, scratch = b.dst(d.first, "u32"), b.dst(d.second, "pred"), b.temp("u32")
    both = ins.mods[0] == "and"

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        word = v[scratch]
        compute(v, word)
        q = ~v[p] if negated else v[p]
        answer = (word != 0) & q if both else (word != 0) | q
        where: Any = True if m is None else m
        np.copyto(v[dst], word, where=where)
        np.copyto(v[flag], answer, where=where)

    return step


@instruction("prmt")
def prmt(b: Builder, ins: Instruction) -> Step:
    mode = ins.mods[0] if len(ins.mods) == 2 else ""
    if ins.mods[-1] != "b32" or mode not in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        raise b.unsupported()
    x, y, z = (b.src(o, "u32") for o in ins.operands[1:4])
    tables = {
        "f4e": ([3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]),
        "b4e": ([5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]),
        "rc8": ([0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]),
        "ecl": ([3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]),
        "ecr": ([0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]),
        "rc16": ([1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]),
    }

    def compute(v: list[Array], out: Array) -> None:
        both = (v[y].astype(np.uint64) << np.uint64(32)) | v[x].astype(np.uint64)
        select = v[z]
        total = np.zeros(out.shape, np.uint64)
        for i in range(4):
            if mode:
                table = np.array([row[3 - i] for row in tables[mode]], np.uint64)
                nibble = table[select & np.uint32(3)]
                sign = np.zeros((), bool)
            else:
                field = (select >> np.uint32(4 * i)) & np.uint32(15)
                nibble, sign = (field & np.uint32(7)).astype(np.uint64), field >= 8
            byte = (both >> (nibble * np.uint64(8))) & np.uint64(0xFF)
            byte = np.where(sign, np.where(byte & np.uint64(0x80) != 0, np.uint64(0xFF), np.uint64(0)), byte)
            total |= byte << np.uint64(8 * i)
        out[...] = total.astype(np.uint32)

    return into(b, b.dst(ins.operands[0], "u32"), compute)


@lowering("prmt")
def lower_prmt(e: Emitter, ins: Instruction, guard: str) -> None:
    select = ins.operands[3]
    if ins.mods != ("b32",) or not isinstance(select, Imm) or select.value & 0x8888:
        raise UnableError
    x, y = (e.resize(e.word(e.src(o, "u32")), 4, 8, False) for o in ins.operands[1:3])
    high = e.new(f"shl i64 {y}, 32")
    both = e.new(f"or i64 {high}, {x}")
    total = "0"
    for i in range(4):
        down = e.new(f"lshr i64 {both}, {8 * (select.value >> (4 * i) & 7)}")
        byte = e.new(f"and i64 {down}, 255")
        up = e.new(f"shl i64 {byte}, {8 * i}")
        total = e.new(f"or i64 {total}, {up}")
    e.put(ins.operands[0], Value(4, e.resize(total, 8, 4, False)), guard)
