"""Integers, comparisons, moves, conversions and loads in compiled functions."""

from __future__ import annotations

from ptxgen.emulator.engine.jit_emitter import (
    INTEGERS,
    REAL,
    WORD,
    Emitter,
    UnableError,
    Value,
    copy_of,
    lower,
    only,
    raw,
)
from ptxgen.emulator.engine.jit_float import HALVES, fma, narrow_half, real_two, widened
from ptxgen.emulator.ptx.dtypes import FLOATS, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Imm, Instruction, Mem, Operand, Pair, Reg, Sink, Vec


@lower("add", "sub")
def add(e: Emitter, ins: Instruction, guard: str) -> None:
    if ins.mods[-1] in FLOATS or ins.mods[-1] in HALVES:
        return real_two(e, ins, guard)
    kind = only(ins)
    if kind not in INTEGERS:
        raise UnableError
    size = SIZES[kind]
    x, y = (e.word(e.src(o, "u" + kind[1:])) for o in ins.operands[1:])
    e.put(ins.operands[0], Value(size, e.new(f"{ins.op} {WORD[size]} {x}, {y}")), guard)
    return None


def product(e: Emitter, ins: Instruction, kind: str) -> Value:
    mode = next((m for m in ins.mods if m in ("lo", "hi", "wide")), "")
    size = SIZES[kind]
    signed = kind in SIGNED
    x, y = (e.word(e.src(o, kind)) for o in ins.operands[1:3])
    if mode == "lo":
        return Value(size, e.new(f"mul {WORD[size]} {x}, {y}"))
    if size > 4 or not mode:
        raise UnableError
    wide = WORD[2 * size]
    x, y = (e.resize(v, size, 2 * size, signed) for v in (x, y))
    both = e.new(f"mul {wide} {x}, {y}")
    if mode == "wide":
        return Value(2 * size, both)
    return Value(size, e.resize(e.new(f"lshr {wide} {both}, {8 * size}"), 2 * size, size, False))


@lower("mul", "mad")
def mul(e: Emitter, ins: Instruction, guard: str) -> None:
    if ins.mods[-1] in FLOATS or ins.mods[-1] in HALVES:
        return real_two(e, ins, guard) if ins.op == "mul" else fma(e, ins, guard)
    kind = only(ins, "lo", "hi", "wide")
    if kind not in INTEGERS:
        raise UnableError
    result = product(e, ins, kind)
    if ins.op == "mad":
        z = e.word(e.src(ins.operands[3], f"u{8 * result.size}"))
        result = Value(result.size, e.new(f"add {WORD[result.size]} {result.word}, {z}"))
    e.put(ins.operands[0], result, guard)
    return None


@lower("and", "or", "xor", "not")
def logic(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = raw(only(ins))
    size = SIZES[kind]
    words = [e.word(e.src(o, kind)) for o in ins.operands[1:]]
    text = f"xor {WORD[size]} {words[0]}, -1" if ins.op == "not" else f"{ins.op} {WORD[size]} {words[0]}, {words[1]}"
    e.put(ins.operands[0], Value(size, e.new(text)), guard)


@lower("shl", "shr")
def shift(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = only(ins)
    if ins.op == "shl" or kind not in SIGNED:
        kind = raw(kind)
    size = SIZES[kind]
    bits, word = 8 * size, WORD[size]
    how = "shl" if ins.op == "shl" else "ashr" if kind in SIGNED else "lshr"
    x = e.word(e.src(ins.operands[1], kind))
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


@lower("min", "max")
def least(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = only(ins)
    if kind not in INTEGERS:
        raise UnableError
    size = SIZES[kind]
    x, y = (e.word(e.src(o, kind)) for o in ins.operands[1:])
    test = ("s" if kind in SIGNED else "u") + ("lt" if ins.op == "min" else "gt")
    better = e.new(f"icmp {test} {WORD[size]} {x}, {y}")
    e.put(ins.operands[0], Value(size, e.new(f"select i1 {better}, {WORD[size]} {x}, {WORD[size]} {y}")), guard)


@lower("neg")
def negate(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = only(ins)
    if kind == "f32":
        x = e.real(e.src(ins.operands[1], kind))
        e.put(ins.operands[0], Value(4, real=e.new(f"fneg float {x}"), clean=False), guard)
        return
    if kind not in INTEGERS or kind not in SIGNED:
        raise UnableError
    size = SIZES[kind]
    e.put(ins.operands[0], Value(size, e.new(f"sub {WORD[size]} 0, {e.word(e.src(ins.operands[1], kind))}")), guard)


_COMPARE = {
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


_REAL_COMPARE = {
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


@lower("setp")
def setp(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = ins.mods[-1]
    name = ins.mods[0]
    combine = ins.mods[1:-1]
    if kind not in SIZES or len(combine) > 1 or not set(combine) <= {"and", "or", "xor"}:
        raise UnableError
    if kind in ("f32", "f64"):
        if name not in _REAL_COMPARE:
            raise UnableError
        x, y = (e.real(e.src(o, kind)) for o in ins.operands[1:3])
        yes = e.new(f"fcmp {_REAL_COMPARE[name]} {REAL[SIZES[kind]]} {x}, {y}")
    else:
        if name not in _COMPARE or kind in FLOATS or kind == "pred" or kind.endswith("x2"):
            raise UnableError
        x, y = (e.word(e.src(o, raw(kind))) for o in ins.operands[1:3])
        test = _COMPARE[name]
        if test not in ("eq", "ne"):
            test = ("s" if kind in SIGNED and name not in ("lo", "ls", "hi", "hs") else "u") + test
        yes = e.new(f"icmp {test} {WORD[SIZES[kind]]} {x}, {y}")
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


@lower("selp")
def selp(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = only(ins)
    if SIZES[kind] not in (2, 4, 8) or kind in ("f16", "bf16"):
        raise UnableError
    p = e.truth(ins.operands[3])
    if kind not in ("f32", "f64"):
        kind = raw(kind)
    word = WORD[SIZES[kind]]
    x, y = (e.word(e.src(o, kind)) for o in ins.operands[1:3])
    e.put(ins.operands[0], Value(SIZES[kind], e.new(f"select i1 {p}, {word} {x}, {word} {y}")), guard)


@lower("mov")
def mov(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = only(ins)
    d, a = ins.operands
    if kind in ("b128", "f16", "bf16"):
        raise UnableError
    if isinstance(d, Vec) or isinstance(a, Vec):
        return pack(e, kind, d, a, guard)
    if getattr(a, "name", "")[:6] in ("%clock", "%globa"):
        raise UnableError
    v = e.src(a, kind if kind in ("f32", "f64", "pred") else raw(kind))
    e.put(d, copy_of(e, v), guard)
    return None


def pack(e: Emitter, kind: str, d: Operand, a: Operand, guard: str) -> None:
    vec, whole = (d, a) if isinstance(d, Vec) else (a, d)
    if not isinstance(vec, Vec) or isinstance(whole, Vec):
        raise UnableError
    size = SIZES[kind] // len(vec.items)
    if size not in (1, 2, 4) or size * len(vec.items) != SIZES[kind]:
        raise UnableError
    big = WORD[SIZES[kind]]
    if vec is a:
        total = ""
        for n, item in enumerate(vec.items):
            piece = e.resize(e.word(e.src(item, f"u{8 * size}")), size, SIZES[kind], False)
            if n:
                piece = e.new(f"shl {big} {piece}, {8 * size * n}")
            total = e.new(f"or {big} {total}, {piece}") if total else piece
        e.put(whole, Value(SIZES[kind], total), guard)
        return
    word = e.word(e.src(whole, f"u{8 * SIZES[kind]}"))
    for n, item in enumerate(vec.items):
        piece = e.new(f"lshr {big} {word}, {8 * size * n}") if n else word
        e.put(item, Value(size, e.resize(piece, SIZES[kind], size, False)), guard)


@lower("cvt")
def cvt(e: Emitter, ins: Instruction, guard: str) -> None:
    types = ins.types
    if len(types) != 2 or not isinstance(ins.operands[0], Reg):
        raise UnableError
    to, source = types
    mods = [m for m in ins.mods if m not in SIZES]
    width = SIZES[ins.operands[0].type]
    if {to, source} <= INTEGERS | {"u8", "s8"} and not mods:
        word = e.word(e.src(ins.operands[1], source))
        word = e.resize(word, SIZES[source], SIZES[to], source in SIGNED)
        if width < SIZES[to]:
            raise UnableError
        e.put(ins.operands[0], Value(width, e.resize(word, SIZES[to], width, to in SIGNED)), guard)
        return
    if to in ("f32", "f64") and source in ("u32", "s32") and mods == ["rn"] and width == SIZES[to]:
        word = e.word(e.src(ins.operands[1], source))
        how = "sitofp" if source == "s32" else "uitofp"
        e.put(ins.operands[0], Value(width, real=e.new(f"{how} i32 {word} to {REAL[width]}")), guard)
        return
    if to in ("f16", "bf16") and source == "f32" and mods == ["rn"] and width == 2:
        number = e.new(f"fpext float {e.real(e.src(ins.operands[1], 'f32'))} to double")
        e.put(ins.operands[0], Value(2, narrow_half(e, number, HALVES[to])), guard)
        return
    if (to, source) == ("f32", "f16") and not mods and width == 4:
        e.put(ins.operands[0], widened(e, e.word(e.src(ins.operands[1], "u16"))), guard)
        return
    raise UnableError


@lower("cvta")
def cvta(e: Emitter, ins: Instruction, guard: str) -> None:
    space = ins.mods[1 if ins.mods[0] == "to" else 0].split("::")[0]
    if space not in ("global", "const") or ins.mods[-1] != "u64":
        raise UnableError
    e.put(ins.operands[0], copy_of(e, e.src(ins.operands[1], "u64")), guard)


@lower("lop3")
def lop3(e: Emitter, ins: Instruction, guard: str) -> None:
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


@lower("prmt")
def prmt(e: Emitter, ins: Instruction, guard: str) -> None:
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


_LOADS = {"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}


@lower("ld")
def ld(e: Emitter, ins: Instruction, guard: str) -> None:
    """A load from shared or global memory; the caller has checked the positions, lanes with a false guard have none."""
    kind = ins.mods[-1]
    plain = {"global", "shared", "shared::cta", "nc", "ca", "cg", "cs", "lu", "weak", "v2", "v4"}
    for m in ins.mods[:-1]:
        if m not in plain and not m.startswith(("L1::", "L2::")):
            raise UnableError
    if kind not in _LOADS or not {"global", "shared", "shared::cta"} & set(ins.mods):
        raise UnableError
    if not isinstance(ins.operands[1], Mem):
        raise UnableError
    to = ins.operands[0]
    items = to.items if isinstance(to, Vec) else (to,)
    if not all(isinstance(item, (Reg, Sink)) for item in items):
        raise UnableError
    size = SIZES[kind]
    space = "global" if "global" in ins.mods else "shared"
    key, _, constant = e.b.address_key(ins.operands[1].base, space)
    which = ("index", space, key, size)
    at = e.numbers.get(which, "")
    if not at:
        where = e.new(f"getelementptr i64, ptr {e.pointer(which)}, i64 %i")
        number = e.new(f"load i64, ptr {where}")
        offset = e.new(f"mul i64 {number}, {size}")
        at = e.numbers[which] = e.new(f"getelementptr i8, ptr {e.pointer(('arena', space))}, i64 {offset}")
    start = ins.operands[1].offset + constant
    if start:
        at = e.new(f"getelementptr i8, ptr {at}, i64 {start}")
    if guard:
        at = e.new(f"select i1 {guard}, ptr {at}, ptr {e.pointer('nothing')}")
    for n, item in enumerate(items):
        place = e.new(f"getelementptr i8, ptr {at}, i64 {n * size}") if n else at
        if isinstance(item, Sink):
            continue
        width = SIZES[item.type]  # type: ignore[union-attr]
        if width == size and kind in ("f32", "f64"):
            value = Value(size, real=e.new(f"load {REAL[size]}, ptr {place}"))
        else:
            word = e.new(f"load {WORD[size]}, ptr {place}")
            if width < size:
                raise UnableError
            if width > size:
                how = "sext" if kind in SIGNED else "zext"
                word = e.new(f"{how} {WORD[size]} {word} to {WORD[width]}")
            value = Value(width, word)
        e.put(item, value, guard)
