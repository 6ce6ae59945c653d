"""Emits the LLVM text of one compiled function, which executes a sequence of instructions for one lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ptx.dtypes import SPECIAL_PREDICATES, SPECIALS_64
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Not, Operand, Reg, Sink
from ptxgen.emulator.warp_batch import View
from ptxgen.errors import ParseError

#: the row of a register: (bytes per lane, its number among rows of that width)
Row = tuple[int, int]


#: bytes of a register -> its LLVM type; 0 bytes: a predicate
WORD = {0: "i1", 1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}


REAL = {4: "float", 8: "double"}


INTEGERS = {"u16", "s16", "u32", "s32", "u64", "s64"}


class UnableError(Exception):
    """The compiler cannot compile an instruction, which is left to its NumPy step."""


class Value:
    """One register of one lane: as an integer, as a floating-point number, or both, converted on demand.

    ``clean``: True if a NaN is already canonical; NaNs of float32 results become canonical only when their bits are
    used.
    """

    __slots__ = ("clean", "real", "row", "size", "word")

    def __init__(self, size: int, word: str = "", real: str = "", clean: bool = True, row: Row | None = None) -> None:
        self.size, self.word, self.real, self.clean, self.row = size, word, real, clean, row


class Emitter:
    """The writer of the LLVM text of one function."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.lines: list[str] = []
        self.count = 0
        self.values: dict[Row, Value] = {}
        self.changed: dict[Row, None] = {}
        #: the pointer table of the function: zeros, rows, special registers, memories, and position arrays, one for
        #: each address register and element size
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
        """The LLVM register that holds a pointer from the table."""
        return f"%p{self.table.setdefault(key, len(self.table))}"

    def call(self, result: str, name: str, *arguments: str) -> str:
        """Emits a call of an intrinsic function; arguments have the form ``type value``."""
        types = ", ".join(a.split()[0] for a in arguments)
        self.declared.add(f"declare {result} @{name}({types})")
        return self.new(f"call {result} @{name}({', '.join(arguments)})")

    # ---- registers

    def read(self, row: Row) -> Value:
        value = self.values.get(row)
        if value is None:
            value = self.values[row] = Value(row[0], row=row)
        return value

    def fetch(self, row: Row, dtype: str) -> str:
        at = self.new(f"getelementptr {dtype}, ptr {self.pointer(('row', *row))}, i64 %i")
        return self.new(f"load {dtype}, ptr {at}")

    def word(self, v: Value) -> str:
        """The LLVM register that has a value as an integer, or a predicate as a boolean."""
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
            elif v.size == 0:
                assert v.row is not None
                v.word = self.new(f"icmp ne i8 {self.fetch(v.row, 'i8')}, 0")
            else:
                assert v.row is not None
                v.word = self.fetch(v.row, WORD[v.size])
        return v.word

    def real(self, v: Value) -> str:
        """The LLVM register that has a value as a floating-point number."""
        if not v.real:
            if v.word or v.row is None:
                v.real = self.new(f"bitcast {WORD[v.size]} {self.word(v)} to {REAL[v.size]}")
            else:
                v.real = self.fetch(v.row, REAL[v.size])
        return v.real

    def src(self, op: Operand, dtype: str) -> Value:
        """The value of a source operand as a type; a wider register gives its low part."""
        view = self.b.views[self.b.src(op, dtype)]
        if isinstance(view, np.ndarray):
            if view.ndim:
                raise UnableError
            return Value(SIZES[dtype], str(int(view.view(f"u{view.itemsize}")) if dtype != "pred" else int(view)))
        if isinstance(view, View):
            return self.view(view)
        name = view.split()[0]
        key = ("special", name)
        if name in SPECIAL_PREDICATES:
            at = self.new(f"getelementptr i8, ptr {self.pointer(key)}, i64 %i")
            truth = self.new(f"load i8, ptr {at}")
            return Value(0, self.new(f"icmp ne i8 {truth}, 0"))
        native = 8 if name[1:] in SPECIALS_64 else 4
        at = self.new(f"getelementptr {WORD[native]}, ptr {self.pointer(key)}, i64 %i")
        word = self.new(f"load {WORD[native]}, ptr {at}")
        return Value(SIZES[dtype], self.resize(word, native, SIZES[dtype], False))

    def view(self, view: View) -> Value:
        whole = self.read((view.width, view.row))
        size = SIZES[view.type]
        if size == view.width:
            return whole
        word = self.word(whole)
        if view.part:
            word = self.new(f"lshr {WORD[view.width]} {word}, {8 * size * view.part}")
        return Value(size, self.resize(word, view.width, size, False))

    def resize(self, word: str, from_size: int, to_size: int, signed: bool) -> str:
        if from_size == to_size:
            return word
        how = "trunc" if to_size < from_size else "sext" if signed else "zext"
        return self.new(f"{how} {WORD[from_size]} {word} to {WORD[to_size]}")

    def truth(self, op: Operand) -> str:
        """The LLVM register of a predicate operand, negated if the operand is."""
        if isinstance(op, Not):
            p = self.word(self.src(op.reg, "pred"))
            return self.new(f"xor i1 {p}, 1")
        return self.word(self.src(op, "pred"))

    def put(self, op: Operand, value: Value, guard: str) -> None:
        """Emits the write of a register; with a guard, only lanes in which the guard is true write."""
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
                dtype = REAL[value.size]
                new = self.new(f"select i1 {guard}, {dtype} {value.real}, {dtype} {self.real(old)}")
                value = Value(value.size, real=new)
            else:
                dtype = WORD[value.size]
                new = self.new(f"select i1 {guard}, {dtype} {self.word(value)}, {dtype} {self.word(old)}")
                value = Value(value.size, new)
        self.values[row] = value
        self.changed[row] = None

    # ---- the function

    def function(self, name: str, live: set[Row]) -> str:
        """The LLVM text of the function, after all instructions have been emitted; ``live``: the rows to store."""
        for row in self.changed:
            if row not in live:
                continue
            v = self.values[row]
            if row[0] == 0:
                dtype, text = "i8", self.new(f"zext i1 {self.word(v)} to i8")
            elif v.real and v.clean and not v.word:
                dtype, text = REAL[row[0]], v.real
            else:
                dtype, text = WORD[row[0]], self.word(v)
            at = self.new(f"getelementptr {dtype}, ptr {self.pointer(('row', *row))}, i64 %i")
            self.lines.append(f"store {dtype} {text}, ptr {at}")
        pointers = []
        for n in self.table.values():
            pointers += [f"%t{n} = getelementptr ptr, ptr %table, i64 {n}", f"%p{n} = load ptr, ptr %t{n}"]
        return "\n".join(
            [
                f"define void @{name}(i64 %begin, i64 %end, ptr %mask, ptr %table) {{",
                "entry:",
                *pointers,
                "%all = icmp eq ptr %mask, null",
                "br label %loop",
                "loop:",
                "%i = phi i64 [ %begin, %entry ], [ %after, %next ]",
                "br i1 %all, label %body, label %look",
                "look:",
                "%m = getelementptr i8, ptr %mask, i64 %i",
                "%on = load i8, ptr %m",
                "%off = icmp eq i8 %on, 0",
                "br i1 %off, label %next, label %body",
                "body:",
                *self.lines,
                "br label %next",
                "next:",
                "%after = add i64 %i, 1",
                "%more = icmp ult i64 %after, %end",
                "br i1 %more, label %loop, label %done",
                "done:",
                "ret void",
                "}",
                "",
            ]
        )


# ---- instructions

Lower = Callable[[Emitter, Instruction, str], None]


LOWER: dict[str, Lower] = {}


def lowering(*names: str) -> Callable[[Lower], Lower]:
    """Registers a function that compiles the named instructions; it stands beside the function that builds their NumPy
    steps."""

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


def raw(dtype: str) -> str:
    """The unsigned type with the size of a type, or pred."""
    return "pred" if dtype == "pred" else f"u{8 * SIZES[dtype]}"


def copy_of(e: Emitter, v: Value) -> Value:
    """A copy of a value, independent of later changes of the original."""
    if not v.word and not v.real:
        e.real(v) if v.size in REAL else e.word(v)
    return Value(v.size, v.word, v.real, v.clean)


def can_compile(builder: Builder, ins: Instruction) -> bool:
    """True if an LLVM function can execute an instruction."""
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
