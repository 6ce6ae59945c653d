"""Straight-line code to machine code: one function a run of instructions, which goes through the lanes one by one.

Registers are the same rows that NumPy works on: a function loads what it needs of a lane, keeps it in machine
registers, and stores what it has changed. Code generation is LLVM's without any optimisation, which takes about 0.1 ms
an instruction. Results are NumPy's bit for bit; an instruction that cannot be done so is left to NumPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ptxgen.errors import ParseError

from .builder import FLOATS, SIGNED, Builder, View
from .syntax import SIZES, Imm, Instruction, Mem, Not, Operand, Pair, Reg, Sink, Vec

#: a register's row: bytes a lane, and its number
Row = tuple[int, int]
WORD = {1: "i1", 2: "i16", 4: "i32", 8: "i64"}
REAL = {4: "float", 8: "double"}
INTEGERS = {"u16", "s16", "u32", "s32", "u64", "s64"}


class UnableError(Exception):
    """An instruction that NumPy keeps."""


class Value:
    """One register of one lane: as an integer, as a floating-point number, or both, once they are asked for.

    ``clean``: whether a NaN is already the one that PTX wants; a float32 result need not be until somebody sees its
    bits.
    """

    __slots__ = ("clean", "real", "row", "size", "word")

    def __init__(self, size: int, word: str = "", real: str = "", clean: bool = True, row: Row | None = None) -> None:
        self.size, self.word, self.real, self.clean, self.row = size, word, real, clean, row


class Emitter:
    """Collects the text of one function."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.lines: list[str] = []
        self.count = 0
        self.values: dict[Row, Value] = {}
        self.changed: dict[Row, None] = {}
        #: what the function finds in its table of pointers: zeros, rows, special registers, memories, and positions in
        #: them, one array for each address register and size of element
        self.table: dict[Any, int] = {"nothing": 0}
        self.declared: set[str] = set()
        self.numbers: dict[Any, str] = {}

    # ---- text

    def new(self, text: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"{name} = {text}")
        return name

    def pointer(self, key: Any) -> str:
        """The register that holds a pointer of the table."""
        return f"%p{self.table.setdefault(key, len(self.table))}"

    def call(self, result: str, name: str, *arguments: str) -> str:
        """An intrinsic function; arguments as ``type value``."""
        types = ", ".join(a.split()[0] for a in arguments)
        self.declared.add(f"declare {result} @{name}({types})")
        return self.new(f"call {result} @{name}({', '.join(arguments)})")

    # ---- registers

    def read(self, row: Row) -> Value:
        found = self.values.get(row)
        if found is None:
            found = self.values[row] = Value(row[0], row=row)
        return found

    def fetch(self, row: Row, kind: str) -> str:
        at = self.new(f"getelementptr {kind}, ptr {self.pointer(('row', *row))}, i64 %i")
        return self.new(f"load {kind}, ptr {at}")

    def word(self, v: Value) -> str:
        """As an integer, or a truth value."""
        if not v.word:
            if v.real:
                real = v.real
                if not v.clean:
                    bad = self.new(f"fcmp uno float {real}, {real}")
                    bits = self.new(f"bitcast float {real} to i32")
                    v.word = self.new(f"select i1 {bad}, i32 2147483647, i32 {bits}")
                    v.real, v.clean = "", True
                else:
                    v.word = self.new(f"bitcast {REAL[v.size]} {real} to {WORD[v.size]}")
            elif v.size == 1:
                assert v.row is not None
                v.word = self.new(f"icmp ne i8 {self.fetch(v.row, 'i8')}, 0")
            else:
                assert v.row is not None
                v.word = self.fetch(v.row, WORD[v.size])
        return v.word

    def real(self, v: Value) -> str:
        """As a floating-point number."""
        if not v.real:
            if v.word or v.row is None:
                v.real = self.new(f"bitcast {WORD[v.size]} {self.word(v)} to {REAL[v.size]}")
            else:
                v.real = self.fetch(v.row, REAL[v.size])
        return v.real

    def src(self, op: Operand, kind: str) -> Value:
        """A source operand as a type; a wider register gives its low part."""
        view = self.b.views[self.b.src(op, kind)]
        if isinstance(view, np.ndarray):
            if view.ndim:
                raise UnableError
            return Value(SIZES[kind], str(int(view.view(f"u{view.itemsize}")) if kind != "pred" else int(view)))
        if isinstance(view, View):
            return self.part(view)
        name = view.split()[0]
        native = 8 if name[1:] in ("clock64", "globaltimer", "current_graph_exec") else 4
        key = ("special", name)
        at = self.new(f"getelementptr {WORD[native]}, ptr {self.pointer(key)}, i64 %i")
        found = self.new(f"load {WORD[native]}, ptr {at}")
        return Value(SIZES[kind], self.resize(found, native, SIZES[kind], False))

    def part(self, view: View) -> Value:
        whole = self.read((view.width, view.row))
        size = SIZES[view.type]
        if size == view.width:
            return whole
        word = self.word(whole)
        if view.part:
            word = self.new(f"lshr {WORD[view.width]} {word}, {8 * size * view.part}")
        return Value(size, self.resize(word, view.width, size, False))

    def resize(self, word: str, have: int, want: int, signed: bool) -> str:
        if have == want:
            return word
        names = {**WORD, 1: "i8"}
        how = "trunc" if want < have else "sext" if signed else "zext"
        return self.new(f"{how} {names[have]} {word} to {names[want]}")

    def truth(self, op: Operand) -> str:
        """A predicate, perhaps negated."""
        if isinstance(op, Not):
            p = self.word(self.src(op.reg, "pred"))
            return self.new(f"xor i1 {p}, 1")
        return self.word(self.src(op, "pred"))

    def put(self, op: Operand, value: Value, guard: str) -> None:
        """Writes a register, where the guard (if any) is true."""
        if isinstance(op, Sink):
            return
        if not isinstance(op, Reg):
            raise UnableError
        row = self.b.place(op)
        if row[0] != value.size:
            raise UnableError
        if guard:
            old = self.read(row)
            if value.real and not value.word and value.clean and not old.word:
                kind = REAL[value.size]
                new = self.new(f"select i1 {guard}, {kind} {value.real}, {kind} {self.real(old)}")
                value = Value(value.size, real=new)
            else:
                kind = WORD[value.size]
                new = self.new(f"select i1 {guard}, {kind} {self.word(value)}, {kind} {self.word(old)}")
                value = Value(value.size, new)
        self.values[row] = value
        self.changed[row] = None

    # ---- the function

    def function(self, name: str) -> str:
        """Its text, once all instructions are in."""
        for row in self.changed:
            v = self.values[row]
            if row[0] == 1:
                kind, text = "i8", self.new(f"zext i1 {self.word(v)} to i8")
            elif v.real and v.clean and not v.word:
                kind, text = REAL[row[0]], v.real
            else:
                kind, text = WORD[row[0]], self.word(v)
            at = self.new(f"getelementptr {kind}, ptr {self.pointer(('row', *row))}, i64 %i")
            self.lines.append(f"store {kind} {text}, ptr {at}")
        pointers = []
        for n in self.table.values():
            pointers += [f"%t{n} = getelementptr ptr, ptr %table, i64 {n}", f"%p{n} = load ptr, ptr %t{n}"]
        return "\n".join([
            f"define void @{name}(i64 %begin, i64 %end, ptr %mask, ptr %table) {{", "entry:", *pointers,
            "%all = icmp eq ptr %mask, null", "br label %loop",
            "loop:", "%i = phi i64 [ %begin, %entry ], [ %after, %next ]",
            "br i1 %all, label %body, label %look",
            "look:", "%m = getelementptr i8, ptr %mask, i64 %i", "%on = load i8, ptr %m", "%off = icmp eq i8 %on, 0",
            "br i1 %off, label %next, label %body",
            "body:", *self.lines, "br label %next",
            "next:", "%after = add i64 %i, 1", "%more = icmp ult i64 %after, %end",
            "br i1 %more, label %loop, label %done",
            "done:", "ret void", "}", "",
        ])  # fmt: skip


# ---- instructions

Lower = Callable[[Emitter, Instruction, str], None]
LOWER: dict[str, Lower] = {}


def lower(*names: str) -> Callable[[Lower], Lower]:
    def register(make: Lower) -> Lower:
        for name in names:
            LOWER[name] = make
        return make

    return register


def only(ins: Instruction, *allowed: str) -> str:
    """The type of an instruction whose other modifiers are all among those given."""
    if not ins.mods or ins.mods[-1] not in SIZES or not set(ins.mods[:-1]) <= set(allowed):
        raise UnableError
    return ins.mods[-1]


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


def settled(e: Emitter, text: str, *operands: str) -> Value:
    """A float64 result whose NaN is the hardware's: the first operand that is one, made quiet."""
    bad = e.new(f"fcmp uno double {text}, {text}")
    word = str(0xFFF8 << 48)
    for x in reversed(operands):
        nan = e.new(f"fcmp uno double {x}, {x}")
        bits = e.new(f"bitcast double {x} to i64")
        quiet = e.new(f"or i64 {bits}, {1 << 51}")
        word = e.new(f"select i1 {nan}, i64 {quiet}, i64 {word}")
    bits = e.new(f"bitcast double {text} to i64")
    return Value(8, e.new(f"select i1 {bad}, i64 {word}, i64 {bits}"))


def real_result(e: Emitter, kind: str, text: str, *operands: str) -> Value:
    return Value(4, real=text, clean=False) if kind == "f32" else settled(e, text, *operands)


def real_kind(ins: Instruction) -> str:
    kind = only(ins, "rn")
    if kind not in ("f32", "f64") and kind not in HALVES:
        raise UnableError
    return kind


def real_two(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = real_kind(ins)
    if kind in HALVES:
        halves(e, ins, kind, guard)
        return
    x, y = (e.real(e.src(o, kind)) for o in ins.operands[1:])
    text = e.new(f"f{ins.op} {REAL[SIZES[kind]]} {x}, {y}")
    e.put(ins.operands[0], real_result(e, kind, text, y, x), guard)


#: formats of 16 bits, one or two a register: bits of the mantissa, bias of the exponent
HALVES = {"f16": (10, 15), "f16x2": (10, 15), "bf16": (7, 127), "bf16x2": (7, 127)}


def halves(e: Emitter, ins: Instruction, kind: str, guard: str) -> None:
    """Through float64, in which sums and products of two numbers are exact, and a fused one is rounded to odd."""
    form = HALVES[kind]
    size = 4 if kind.endswith("x2") else 2
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


def wide_half(e: Emitter, half: str, form: tuple[int, int]) -> str:
    """16 bits to float64."""
    if form[0] == 10:
        single = e.real(widened(e, half))
    else:
        bits = e.new(f"zext i16 {half} to i32")
        up = e.new(f"shl i32 {bits}, 16")
        single = e.new(f"bitcast i32 {up} to float")
    return e.new(f"fpext float {single} to double")


def sum_to_odd(e: Emitter, x: str, y: str) -> str:
    """x + y in float64; where that is not exact, of the two numbers around it the one with an odd last bit."""
    total = e.new(f"fadd double {x}, {y}")
    back = e.new(f"fsub double {total}, {x}")
    a = e.new(f"fsub double {total}, {back}")
    b = e.new(f"fsub double {x}, {a}")
    c = e.new(f"fsub double {y}, {back}")
    lost = e.new(f"fadd double {b}, {c}")
    inexact = e.new(f"fcmp one double {lost}, 0.0")
    bits = e.new(f"bitcast double {total} to i64")
    even = e.new(f"xor i64 {bits}, 1")
    parity = e.new(f"trunc i64 {even} to i1")
    move = e.new(f"and i1 {inexact}, {parity}")
    up = e.new(f"fcmp ogt double {lost}, 0.0")
    positive = e.new(f"fcmp ogt double {total}, 0.0")
    away = e.new(f"xor i1 {up}, {positive}")
    step = e.new(f"select i1 {away}, i64 -1, i64 1")
    amount = e.new(f"select i1 {move}, i64 {step}, i64 0")
    moved = e.new(f"add i64 {bits}, {amount}")
    return e.new(f"bitcast i64 {moved} to double")


def narrow_half(e: Emitter, x: str, form: tuple[int, int]) -> str:
    """float64 to 16 bits, to nearest even; NaN becomes 0x7fff."""
    digits, bias = form
    cut = 52 - digits
    bits = e.new(f"bitcast double {x} to i64")
    size = e.new(f"and i64 {bits}, {(1 << 63) - 1}")
    # a normal result: half of the last bit is added, and what is below it cut off
    last = e.new(f"lshr i64 {size}, {cut}")
    odd = e.new(f"and i64 {last}, 1")
    half = e.new(f"add i64 {size}, {(1 << (cut - 1)) - 1}")
    near = e.new(f"add i64 {half}, {odd}")
    moved = e.new(f"lshr i64 {near}, {cut}")
    normal = e.new(f"sub i64 {moved}, {(1023 - bias) << digits}")
    top = (2 * bias + 1) << digits
    over = e.new(f"icmp ugt i64 {near}, {(1023 + bias + 1) << 52}")
    capped = e.new(f"select i1 {over}, i64 {top}, i64 {normal}")
    # a subnormal one: a number whose last bit is worth as much as theirs is added
    magic = (1023 + 1 - bias - digits + 52) << 52
    number = e.new(f"bitcast i64 {size} to double")
    other = e.new(f"bitcast i64 {magic} to double")
    total = e.new(f"fadd double {number}, {other}")
    whole = e.new(f"bitcast double {total} to i64")
    small = e.new(f"sub i64 {whole}, {magic}")
    tiny = e.new(f"icmp ult i64 {size}, {(1023 + 1 - bias) << 52}")
    found = e.new(f"select i1 {tiny}, i64 {small}, i64 {capped}")
    above = e.new(f"lshr i64 {bits}, 48")
    sign = e.new(f"and i64 {above}, 32768")
    signed = e.new(f"or i64 {found}, {sign}")
    nan = e.new(f"icmp ugt i64 {size}, {0x7FF << 52}")
    word = e.new(f"select i1 {nan}, i64 32767, i64 {signed}")
    return e.new(f"trunc i64 {word} to i16")


@lower("fma")
def fma(e: Emitter, ins: Instruction, guard: str) -> None:
    kind = real_kind(ins)
    if kind in HALVES:
        halves(e, ins, kind, guard)
        return
    x, y, z = (e.real(e.src(o, kind)) for o in ins.operands[1:])
    name = REAL[SIZES[kind]]
    text = e.call(name, f"llvm.fma.{kind}", f"{name} {x}", f"{name} {y}", f"{name} {z}")
    e.put(ins.operands[0], real_result(e, kind, text, z, y, x), guard)


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
    found = product(e, ins, kind)
    if ins.op == "mad":
        z = e.word(e.src(ins.operands[3], f"u{8 * found.size}"))
        found = Value(found.size, e.new(f"add {WORD[found.size]} {found.word}, {z}"))
    e.put(ins.operands[0], found, guard)
    return None


def raw(kind: str) -> str:
    return "pred" if kind == "pred" else f"u{8 * SIZES[kind]}"


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
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt",
    "hs": "ge",
}  # fmt: skip
_REAL_COMPARE = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une",
    "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip


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
    e.put(first, Value(1, yes), guard)
    if no:
        e.put(second, Value(1, no), guard)


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
    e.put(d, copied(e, v), guard)
    return None


def copied(e: Emitter, v: Value) -> Value:
    """The same value as one of its own, so that what becomes of the other one does not matter."""
    if not v.word and not v.real:
        e.real(v) if v.size in REAL else e.word(v)
    return Value(v.size, v.word, v.real, v.clean)


def pack(e: Emitter, kind: str, d: Operand, a: Operand, guard: str) -> None:
    vec, whole = (d, a) if isinstance(d, Vec) else (a, d)
    if not isinstance(vec, Vec) or isinstance(whole, Vec):
        raise UnableError
    size = SIZES[kind] // len(vec.items)
    if size not in (2, 4) or size * len(vec.items) != SIZES[kind]:
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
    if to in INTEGERS and source in INTEGERS and not mods:
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


def widened(e: Emitter, half: str) -> Value:
    """float16 to float32: the bits in their place, and the exponent moved by a multiplication, which is exact."""
    wide = e.new(f"zext i16 {half} to i32")
    size = e.new(f"and i32 {wide}, 32767")
    low = e.new(f"shl i32 {size}, 13")
    number = e.new(f"bitcast i32 {low} to float")
    moved = e.new(f"fmul float {number}, 0x46F0000000000000")  # 2^112
    scaled = e.new(f"bitcast float {moved} to i32")
    infinite = e.new(f"or i32 {low}, {255 << 23}")
    special = e.new(f"icmp uge i32 {low}, {31 << 23}")
    bits = e.new(f"select i1 {special}, i32 {infinite}, i32 {scaled}")
    top = e.new(f"and i32 {wide}, 32768")
    sign = e.new(f"shl i32 {top}, 16")
    word = e.new(f"or i32 {bits}, {sign}")
    nan = e.new(f"icmp ugt i32 {low}, {31 << 23}")
    return Value(4, e.new(f"select i1 {nan}, i32 2147483647, i32 {word}"))


@lower("cvta")
def cvta(e: Emitter, ins: Instruction, guard: str) -> None:
    space = ins.mods[1 if ins.mods[0] == "to" else 0].split("::")[0]
    if space not in ("global", "const") or ins.mods[-1] != "u64":
        raise UnableError
    e.put(ins.operands[0], copied(e, e.src(ins.operands[1], "u64")), guard)


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
    """From shared or global memory: positions come from NumPy, checked; where the guard is false, they are none."""
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
    key, _, constant = e.b.address_key(ins.operands[1].base)
    space = "global" if "global" in ins.mods else "shared"
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
    memory = {1: "i8", **{k: v for k, v in WORD.items() if k > 1}}[size]
    for n, item in enumerate(items):
        place = e.new(f"getelementptr i8, ptr {at}, i64 {n * size}") if n else at
        if isinstance(item, Sink):
            continue
        width = SIZES[item.type]  # type: ignore[union-attr]
        if width == size and kind in ("f32", "f64"):
            value = Value(size, real=e.new(f"load {REAL[size]}, ptr {place}"))
        else:
            word = e.new(f"load {memory}, ptr {place}")
            if width < size:
                raise UnableError
            if width > size:
                how = "sext" if kind in SIGNED else "zext"
                word = e.new(f"{how} {memory} {word} to {WORD[width]}")
            value = Value(width, word)
        e.put(item, value, guard)


def able(builder: Builder, ins: Instruction) -> bool:
    """Whether an instruction can be part of a run."""
    try:
        emit(Emitter(builder), ins)
    except (UnableError, ParseError):
        return False
    return True


def emit(e: Emitter, ins: Instruction) -> None:
    make = LOWER.get(ins.op)
    if make is None:
        raise UnableError
    e.b.begin(ins)
    guard = ""
    if ins.pred is not None:
        guard = e.word(e.src(ins.pred, "pred"))
        if ins.negated:
            guard = e.new(f"xor i1 {guard}, 1")
    make(e, ins, guard)


# ---- machine code


class Compiler:
    """LLVM for this machine, without optimisation. The code goes with it."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        self.machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=0, jit=True
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
        self.modules = 0

    def compile(self, emitters: list[Emitter]) -> list[Any]:
        """A function of (first lane, the one past the last, mask, table) for each."""
        self.modules += 1
        names = [f"run_{self.modules}_{i}" for i in range(len(emitters))]
        declared = sorted(set().union(*(e.declared for e in emitters)))
        texts = [e.function(name) for e, name in zip(emitters, names, strict=True)]
        module = llvm.parse_assembly("\n".join([*declared, *texts]))
        self.engine.add_module(module)
        self.engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        return [kind(self.engine.get_function_address(name)) for name in names]
