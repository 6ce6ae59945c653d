"""The operand builder: turns each operand of an instruction into an index into the arrays of a warp batch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import WINDOWS
from ptxgen.emulator.ops.spelling import suggestion
from ptxgen.emulator.options import Options
from ptxgen.emulator.ptx.catalogue import reason
from ptxgen.emulator.ptx.dtypes import DTYPES, FLOATS, SIGNED, SPECIAL_PREDICATES, SPECIALS_64
from ptxgen.emulator.ptx.syntax import SIZES, Flt, Function, Imm, Instruction, Operand, Reg, Sink, Special, Sym
from ptxgen.emulator.reductions import all_true
from ptxgen.emulator.sync.wgmma_registers import RegisterSets
from ptxgen.emulator.warp_batch import Step, View, WarpBatch
from ptxgen.errors import ParseError, UnsupportedError

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None

#: instructions whose operands may have 8 bits, because a call passes 8-bit values
OF_BYTES = {"ld", "ldu", "st", "cvt", "mov", "call", "suld", "sust"}


class Builder:
    """Collects the views that the steps of one function use.

    ``self.views[i]`` describes view ``i``; ``batch.v[i]`` is its array in a warp batch.
    """

    register_sets: RegisterSets

    def __init__(self, function: Function, options: Options, clustered: bool = False) -> None:
        self.function = function
        self.options = options
        self.clustered = clustered  # shared addresses contain the rank of their block
        self.views: list[View | Array | str] = []
        self.interned: dict[Any, int] = {}
        self.rows = {0: 0, 1: 0, 2: 0, 4: 0, 8: 0, 16: 0}
        self.places: dict[int, tuple[int, int]] = {}
        self.free: dict[int, list[int]] = {0: [], 1: [], 2: [], 4: [], 8: [], 16: []}
        self.temporaries: list[tuple[int, int]] = []
        self.reads: list[Reg] = []
        self.writes: list[Reg] = []
        # registers whose accesses the instruction checks and records itself
        self.quiet_reads: list[Reg] = []
        self.quiet_writes: list[Reg] = []
        self.keys: dict[Any, int] = {}
        self.address_slots: dict[int, list[int]] = {}
        self.ins: Instruction | None = None
        self.sites: list[Any] = []
        self.members: int | None = None
        self.single = False
        #: how undefined operands propagate to the results (``undefined.Propagation``); None: lane by lane
        self.propagation: Any = None

    # ---- errors

    def unsupported(self, why: str = "") -> UnsupportedError:
        assert self.ins is not None
        why = reason(self.ins) or why
        tail = (f" ({why})" if why else "") + suggestion(self.ins)
        return UnsupportedError(f"line {self.ins.line}: {self.ins.name} is not emulated{tail}: {self.ins.text}")

    def malformed(self, why: str) -> ParseError:
        assert self.ins is not None
        return ParseError(f"line {self.ins.line}: {why}: {self.ins.text}")

    # ---- one instruction at a time

    def begin(self, ins: Instruction) -> None:
        """Begins an instruction: resets what is collected for one instruction, and releases scratch rows."""
        self.ins = ins
        self.reads, self.writes = [], []
        self.quiet_reads, self.quiet_writes = [], []
        self.propagation = None
        for width, row in self.temporaries:
            self.free[width].append(row)
        self.temporaries = []

    def place(self, reg: Reg) -> tuple[int, int]:
        """The pair (width in bytes, row) of a register in the register file."""
        place = self.places.get(reg.slot)
        if place is None:
            width = SIZES[reg.type]
            place = self.places[reg.slot] = (width, self.rows[width])
            self.rows[width] += 1
        return place

    def intern(self, key: Any, view: View | Array | str) -> int:
        index = self.interned.get(key)
        if index is None:
            index = self.interned[key] = len(self.views)
            self.views.append(view)
        return index

    def view(self, width: int, row: int, dtype: str, part: int = 0) -> int:
        key = (width, row, dtype, part)
        index = self.interned.get(key)
        return self.intern(key, View(width, row, dtype, part)) if index is None else index

    def temp(self, dtype: str) -> int:
        """The view of a scratch row for this instruction."""
        width = SIZES[dtype]
        if self.free[width]:
            row = self.free[width].pop()
        else:
            row = self.rows[width]
            self.rows[width] += 1
        self.temporaries.append((width, row))
        return self.view(width, row, dtype)

    def retype(self, index: int, dtype: str) -> int:
        """A view of the same row as another type of the same size."""
        view = self.views[index]
        assert isinstance(view, View)
        return self.view(view.width, view.row, dtype)

    def raw(self, index: int) -> int:
        """A view of the same row as one unsigned integer for each lane."""
        view = self.views[index]
        assert isinstance(view, View)
        return self.view(view.width, view.row, {0: "pred", 1: "u8", 2: "u16", 4: "u32", 8: "u64"}[view.width])

    def part(self, op: Operand, dtype: str, number: int, write: bool) -> int:
        """A view of part ``number`` of a register, for packing and unpacking."""
        if not isinstance(op, Reg):
            raise self.malformed("a register is needed")
        (self.writes if write else self.reads).append(op)
        width, row = self.place(op)
        return self.view(width, row, dtype, number)

    def const(self, value: int, dtype: str) -> int:
        """A view of an integer constant, wrapped to the type; as a predicate, it is true if the constant is not 0."""
        if dtype == "pred":
            return self.intern(("const", value != 0, dtype), np.array(value != 0))
        size = SIZES[dtype]
        bits = int(value) & ((1 << 8 * size) - 1)
        data = np.frombuffer(bits.to_bytes(size, "little"), DTYPES[dtype])
        if len(data) == 1 or all_true(data.view("u1").reshape(2, -1)[0] == data.view("u1").reshape(2, -1)[1]):
            data = data[:1].reshape(())
        return self.intern(("const", bits, dtype), data)

    def register_type(self, op: Operand) -> str:
        return op.type if isinstance(op, Reg) else ""

    def check_bits(self, dtype: str) -> None:
        """Raises an error for an 8-bit type in an instruction that has none in PTX."""
        assert self.ins is not None
        if SIZES[dtype] == 1 and self.ins.op not in OF_BYTES:
            raise self.malformed(f".{dtype} is no type of {self.ins.op}; operands of 8 bits belong to ld, st and cvt")

    def src(self, op: Operand, dtype: str, loose: bool = False) -> int:
        """A view of a source operand as ``dtype``; a wider register gives its low part."""
        self.check_bits(dtype)
        if isinstance(op, Reg):
            self.reads.append(op)
            width, row = self.place(op)
            if (op.type == "pred") != (dtype == "pred"):
                raise self.malformed(f"{op.name} is .{op.type}, .{dtype} is needed")
            if width < SIZES[dtype] and not loose:
                raise self.malformed(f"{op.name} has {8 * width} bits, .{dtype} needs {8 * SIZES[dtype]}")
            return self.view(width, row, dtype if width >= SIZES[dtype] else op.type)
        if isinstance(op, Imm):
            if dtype in FLOATS:
                raise self.malformed(f"an integer constant as an operand of type .{dtype}")
            return self.const(op.value, dtype)
        if isinstance(op, Flt):
            return self.float_const(op, dtype)
        if isinstance(op, Sym):
            if self.clustered and op.var.space == "shared":
                name = f"%window:{op.var.address + op.offset}"
                return self.intern((name, dtype), f"{name} {dtype}")
            return self.const(op.var.address + op.offset, dtype)
        if isinstance(op, Special):
            if (op.name in SPECIAL_PREDICATES) != (dtype == "pred"):
                native = "pred" if op.name in SPECIAL_PREDICATES else "u32"
                raise self.malformed(f"{op.name} is .{native}, .{dtype} is needed")
            native = "u64" if op.name[1:] in SPECIALS_64 else "u32"
            if 0 < SIZES[dtype] < SIZES[native] and dtype not in ("u16", "b16", "s16"):
                raise self.malformed(f"{op.name} has {8 * SIZES[native]} bits")
            return self.intern(("special", op.name, dtype), f"{op.name} {dtype}")
        raise self.malformed(f"an operand of dtype {type(op).__name__.lower()}, .{dtype} is needed")

    def float_const(self, op: Flt, dtype: str) -> int:
        if dtype == "f64":
            bits = op.bits if op.size == 8 else int(np.array(op.bits, "<u4").view("<f4").astype("<f8").view("<u8"))
        elif dtype == "f32":
            if op.size == 8:
                with np.errstate(all="ignore"):
                    bits = int(np.array(op.bits, "<u8").view("<f8").astype("<f4").view("<u4"))
            else:
                bits = op.bits
        elif SIZES[dtype] == op.size and dtype not in FLOATS:
            bits = op.bits
        else:
            raise self.malformed(f"a floating-point constant as an operand of type .{dtype}")
        return self.const(bits, dtype)

    def dst(self, op: Operand, dtype: str) -> int:
        """A view of a destination register that has exactly the size of ``dtype``."""
        self.check_bits(dtype)
        if isinstance(op, Sink):
            return self.temp(dtype)
        if not isinstance(op, Reg):
            raise self.malformed("the destination is no register; it must be one")
        width, row = self.place(op)
        if (op.type == "pred") != (dtype == "pred"):
            raise self.malformed(f"{op.name} is .{op.type}, the result is .{dtype}")
        if width != SIZES[dtype]:
            raise self.malformed(f"{op.name} has {8 * width} bits, the result {8 * SIZES[dtype]}")
        self.writes.append(op)
        return self.view(width, row, dtype)

    def dst_wide(self, op: Operand, dtype: str) -> int:
        """A view of a destination register that is at least as wide as ``dtype``, with the signedness of ``dtype``."""
        if isinstance(op, Sink):
            return self.temp(dtype)
        if not isinstance(op, Reg):
            raise self.malformed("the destination is no register; it must be one")
        width, row = self.place(op)
        if width == SIZES[dtype]:
            return self.dst(op, dtype)
        if width < SIZES[dtype] or op.type == "pred":
            raise self.malformed(f"{op.name} has {8 * width} bits, the result {8 * SIZES[dtype]}")
        self.writes.append(op)
        sign = "s" if dtype in SIGNED else "u"
        return self.view(width, row, f"{sign}{8 * width}")

    def address_key(self, op: Operand, space: str) -> tuple[int, int, int]:
        """The triple (key, view, constant) of the base of an address; ``key`` is the number of an address cache of a
        warp batch.

        Shared memory is a separate arena, so an operand has one key there and another key for other spaces. In a
        generic access, the name of a variable denotes its generic address.
        """
        arena = "shared" if space == "shared" else ""
        if isinstance(op, Reg):
            self.reads.append(op)
            width, row = self.place(op)
            if width not in (1, 2, 4, 8):
                raise self.malformed(f"{op.name} cannot hold an address")
            key = self.keys.setdefault((op.slot, arena), len(self.keys))
            known = self.address_slots.setdefault(op.slot, [])
            if key not in known:
                known.append(key)
            return key, self.view(width, row, f"u{8 * width}"), 0
        if isinstance(op, Imm):
            value = op.value
        elif isinstance(op, Sym):
            value = op.var.address + op.offset + (WINDOWS.get(op.var.space, 0) if space == "generic" else 0)
        else:
            raise self.malformed("an address is a register, a variable or a constant, plus a constant")
        zero = self.const(0, "u64")
        return self.keys.setdefault(("zero", arena), len(self.keys)), zero, value


Compute = Callable[[list[Array], Array], object]


def into(b: Builder, dst: int, compute: Compute) -> Step:
    """A step that computes ``dst``. Under a mask, it computes a scratch row and copies the results of the executing
    lanes."""
    view = b.views[dst]
    assert isinstance(view, View)
    scratch = b.temp(view.type)
    dst_raw, scratch_raw = b.raw(dst), b.raw(scratch)
    copyto = np.copyto

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        if m is None:
            compute(v, v[dst])
        else:
            compute(v, v[scratch])
            copyto(v[dst_raw], v[scratch_raw], where=m)

    return step


#: the types of instructions with a carry flag, and of searches for bits
LONG = {"u32", "s32", "u64", "s64"}


def only_type(b: Builder, ins: Instruction, allowed: set[str] | None = None, types: Collection[str] = SIZES) -> str:
    """The type of an instruction that has exactly one, which must be in ``types``; its other modifiers must be in
    ``allowed``."""
    if not ins.mods or ins.mods[-1] not in types:
        raise b.unsupported()
    if ins.mods[-1] == "pred" and ins.op not in ("and", "or", "xor", "not"):
        raise b.unsupported(".pred")
    for m in ins.mods[:-1]:
        if m not in (allowed or set()):
            raise b.unsupported(f".{m}")
    return ins.mods[-1]
