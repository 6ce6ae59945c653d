"""The syntax tree of a PTX text: operands, instructions, variables and functions, with names resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.errors import Frame

#: bytes of each scalar type; a predicate has 0 bytes, because its registers are truth values
SIZES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    **dict.fromkeys(FP8, 1),
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    **{f"{name}x2": 2 for name in FP8},
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "tf32": 4,
    "u16x2": 4,
    "s16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f32x2": 8,
    "b128": 16,
    "pred": 0,
}


@dataclass(frozen=True, slots=True)
class Reg:
    """One virtual register of a function. ``slot``: its number in the function, from 0."""

    name: str
    type: str
    slot: int


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer constant."""

    value: int


@dataclass(frozen=True, slots=True)
class Flt:
    """A floating-point constant as its bits; ``size`` is 4 or 8 bytes."""

    bits: int
    size: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, such as ``%tid.x``."""

    name: str


@dataclass(slots=True, eq=False)
class Variable:
    """A .global, .const, .shared, .local or .param variable.

    ``address`` is its offset in its space (absolute for .global and .const), set when the module is laid out.
    ``element``: bytes of an element of an array; 0 for other variables.
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    init: list[object] | None = None
    extern: bool = False
    address: int = 0
    line: int = 0
    element: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """An address as an initial value. ``mask``: selects one byte of the address; ``generic``: it is a generic
    address."""

    name: str
    offset: int
    generic: bool
    shift: int
    mask: int


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable, plus an offset."""

    var: Variable
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a label or a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Vec:
    """``{a, b}``: a vector of operands, or a list of parameters."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Mem:
    """A memory operand ``[base + offset]``. ``coords``: the coordinates of a tensor copy or a texture."""

    base: Operand
    offset: int = 0
    coords: Vec | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """The operand ``p|q``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """The operand ``!p``: a negated predicate."""

    reg: Operand


@dataclass(frozen=True, slots=True)
class Neg:
    """The operand ``-r``: a negated register."""

    reg: Operand


@dataclass(frozen=True, slots=True)
class Sum:
    """The operand ``r + 4``: a register plus a constant. The parser replaces it by a register."""

    reg: Reg
    offset: int


@dataclass(frozen=True, slots=True)
class Element:
    """``a[i]``, ``a[r]`` or ``a[r + i]``: an element of an array. The parser replaces it by an address."""

    var: Variable
    index: Reg | None
    number: int


@dataclass(frozen=True, slots=True)
class Selected:
    """``r.b0`` or ``r.h10``: bytes or half words of a register, in a video instruction."""

    reg: Operand
    select: str


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand ``_``: a destination that is not written."""


Operand = Reg | Imm | Flt | Special | Sym | Name | Vec | Mem | Pair | Not | Neg | Sum | Element | Selected | Sink


@dataclass(frozen=True, slots=True)
class Location:
    """The location that a .loc gives: number of a source file, and line.

    For code of an inlined function, ``function`` is the label of the function's name plus an offset, and ``caller`` is
    the location at which it is inlined.
    """

    file: int
    line: int
    function: tuple[str, int] | None = None
    caller: Location | None = None


#: the location of code before any .loc
NOWHERE = Location(0, 0)


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction.

    ``scope``: where the instruction may continue: the target of a branch, the targets of brx, or the functions of an
    indirect call. ``row``: the row of the instruction table, if not the one of the instruction's name. ``hidden``: an
    instruction into which another one was expanded; statistics do not count it. ``location``: its source line.
    ``refusal``: why its modifiers are unknown; a launch of its kernel is refused. In a flattened kernel, ``function``
    is the function that a call has copied, and ``caller`` the call.
    """

    op: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    pred: Reg | None
    negated: bool
    line: int
    text: str
    scope: Any = None
    row: str = ""
    hidden: bool = False
    location: Location = NOWHERE
    refusal: str = ""
    function: str = ""
    caller: Instruction | None = None

    @property
    def types(self) -> list[str]:
        """The modifiers that name a type, in order."""
        return [m for m in self.mods if m in SIZES]

    @property
    def name(self) -> str:
        return ".".join((self.op, *self.mods))


@dataclass(slots=True)
class Parameter:
    """One .param of a kernel or a function. ``offset``: in the parameter buffer; offsets and sizes are in bytes.

    ``register``: True if a function declares the parameter as .reg; ``reg``: that register.
    """

    name: str
    type: str
    align: int
    size: int
    offset: int = 0
    array: bool = False
    register: bool = False
    reg: Reg | None = None


@dataclass(slots=True, eq=False)
class Function:
    """A kernel or a device function: a list of instructions, and labels as indices into the list."""

    name: str
    entry: bool
    params: list[Parameter] = field(default_factory=list)
    returns: list[Parameter] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)
    registers: list[Reg] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    param_vars: list[Variable] = field(default_factory=list)
    return_vars: list[Variable] = field(default_factory=list)
    targets: dict[tuple[int, str], int] = field(default_factory=dict)
    tables: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    line: int = 0
    defined: bool = False


@dataclass(slots=True)
class Unit:
    """The contents of one PTX text."""

    version: tuple[int, int]
    target: str
    variables: list[Variable]
    functions: dict[str, Function]
    files: dict[int, str] = field(default_factory=dict)
    strings: dict[str, memoryview] = field(default_factory=dict)

    def frames(self, ins: Instruction, kernel: str) -> tuple[Frame, ...]:
        """The source lines of an instruction, the innermost one first; none without .loc."""
        out: list[Frame] = []
        at: Instruction | None = ins
        while at is not None:
            place: Location | None = at.location
            while place is not None:
                inlined, function = place.caller is not None, at.function or kernel
                if place.function is not None:
                    label, offset = place.function
                    name = bytes(self.strings.get(label, b"")[offset:]).partition(b"\0")[0]
                    function = name.decode(errors="replace") or "an inlined function"
                if place.file in self.files and place.line:  # code on line 0 belongs to no line
                    entered = "inlined" if inlined else "called" if at.caller is not None else ""
                    out.append(Frame(f"{self.files[place.file]}:{place.line}", demangled(function), entered))
                place = place.caller
            at = at.caller
        return tuple(out)


#: modifiers that come first, in this order, in instructions that have them
_LEADING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("vote", "shfl", "redux"), ("sync",)),
    **dict.fromkeys(("ldmatrix", "stmatrix", "movmatrix"), ("sync", "aligned", "m8n8", "x1", "x2", "x4")),
    "match": ("all", "any", "sync"),
    "ld": ("volatile", "relaxed", "acquire"),
    "cp": ("reduce", "async", "bulk", "mbarrier", "ca", "cg"),
}


def canonical(op: str, mods: list[str]) -> tuple[str, ...]:
    """The modifiers in the order of the PTX ISA; ptxas accepts most of them in any order.

    Types come last and keep their order. Modifiers of wmma and mma are not sorted, because the emulator finds them by
    name; .sp comes first. A second .sync is dropped, because ptxas accepts it.
    """
    if mods.count("sync") > 1:
        mods = [m for i, m in enumerate(mods) if m != "sync" or m not in mods[:i]]
    if op in ("mma", "wmma"):
        return tuple(sorted(mods, key=lambda m: m.partition("::")[0] != "sp"))
    leading = _LEADING.get(op, ())

    def rank(m: str) -> int:
        return len(leading) + 1 if m in SIZES else leading.index(m) if m in leading else len(leading)

    return tuple(sorted(mods, key=rank))
