"""Checks the modifiers and the operands of instructions against their signatures, once for each instruction of a text.

An instruction whose operands do not fit is a ParseError. Unknown modifiers may be valid in some version of PTX, so a
kernel with such an instruction is refused only at its launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.ptx.dtypes import FLOATS, SPECIAL_PREDICATES, SPECIALS_64
from ptxgen.emulator.ptx.signatures import MODIFIERS, TABLE, TYPES
from ptxgen.emulator.ptx.syntax import (
    SIZES,
    Element,
    Flt,
    Imm,
    Instruction,
    Mem,
    Name,
    Neg,
    Not,
    Operand,
    Pair,
    Reg,
    Selected,
    Sink,
    Special,
    Sum,
    Sym,
    Vec,
)
from ptxgen.errors import ParseError

SPACES = ("global", "shared", "local", "const", "param")


#: geometry -> number of coordinates of a texture or surface, including the layer and an unused element
COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4}


#: modifiers of the instructions whose addresses may have 32 bits in every state space
NARROW_ADDRESSES = {"mbarrier", "b1024", "tensormap", "tensormap::generic", "range"}


class MismatchError(Exception):
    """An instruction does not fit its signature; the message has the rule."""


# ---- the table


@dataclass(frozen=True, slots=True)
class Spec:
    """One operand of a signature: the text of its form, such as ``d`` or ``[a]``, and its type."""

    form: str
    type: str
    optional: bool

    def __str__(self) -> str:
        text = {"v": "{...}", "L": "label", "n": "constant", "[a,t]": "[a, {...}]"}.get(self.form, self.form)
        return text.rstrip("_!&").replace("d_", "d").replace("||", "|")


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of the table: groups of alternative modifiers (each with whether it is optional), types, operands."""

    groups: tuple[tuple[frozenset[str], bool], ...]
    any_modifiers: bool
    types: tuple[tuple[str, ...], ...]
    operands: tuple[str, ...]

    def fits(self, mods: list[str], types: tuple[str, ...]) -> bool:
        """True if the row describes an instruction with these modifiers and types."""
        if types not in self.types:
            return False
        if self.any_modifiers:
            return True
        left = list(mods)
        for words, optional in self.groups:
            match = next((m for m in left if m in words), None)
            if match is not None:
                left.remove(match)
            elif not optional:
                return False
        return not left

    def specs(self, mods: list[str], types: tuple[str, ...]) -> list[Spec]:
        """The operands that the row gives to an instruction with these modifiers and types."""
        out = []
        for text in self.operands:
            text, _, condition = text.partition("@")
            if condition and MODIFIERS.get(condition, condition) not in mods:
                continue
            optional = text.endswith("?")
            form, _, named = text.rstrip("?").partition(":")
            first = types[0] if types else ""
            if named == "W":
                named = f"{first[0]}{16 * SIZES[first]}"
            elif named == "2":
                named = types[1]
            out.append(Spec(form, named or ("pred" if form[0] in "p!" else first), optional))
        return out


def words(group: str) -> frozenset[str]:
    return frozenset(w for word in group.split("/") for w in MODIFIERS.get(word, word).split("/"))


def types_of(text: str) -> tuple[tuple[str, ...], ...]:
    if text == "-":
        return ((),)
    return tuple(
        one for several in text.split() for one in product(*(TYPES.get(t, t).split() for t in several.split(".")))
    )


def columns(line: str) -> list[str]:
    """The columns of a row as texts: names, modifiers, types and operands."""
    return [part.strip() for part in re.split(r"(?<!\S)\|(?!\S)", line)]


@lru_cache(1)
def table() -> dict[str, list[Signature]]:
    """The signatures of each operation."""
    out: dict[str, list[Signature]] = {}
    for line in TABLE.splitlines():
        if not line.strip():
            continue
        names, mods, types, operands = columns(line)
        signature = Signature(
            tuple((words(g.rstrip("?")), g.endswith("?")) for g in mods.split()),
            mods == "*",
            types_of(types),
            tuple(part.strip() for part in re.split(r", (?!t\])", operands) if part.strip()),
        )
        for name in names.split():
            out.setdefault(name, []).append(signature)
    return out


# ---- single operands


def article(ptx_type: str) -> str:
    return f"a .{ptx_type} register"


def described(op: Operand) -> str:
    """The text of an operand in messages."""
    if isinstance(op, Reg):
        return f"{op.name}, {article(op.type)}"
    if isinstance(op, Imm):
        return "an integer constant"
    if isinstance(op, Flt):
        return "a floating-point constant"
    if isinstance(op, Special):
        return f"the special register {op.name}"
    if isinstance(op, Sym):
        return f"{op.var.name}, a .{op.var.space} variable"
    if isinstance(op, Sum):
        return f"the sum {op.reg.name}+{op.offset} of {article(op.reg.type)}"
    if isinstance(op, Element):
        return f"an element of {op.var.name}, which only ld, st, mov and cvta take"
    if isinstance(op, Name):
        return f"{op.name}, which is not declared as a register or variable"
    if isinstance(op, (Vec, Mem)):
        return "a vector" if isinstance(op, Vec) else "an address in brackets"
    return {Pair: "a pair a|b", Not: "negated by !", Neg: "negated by -", Selected: "part of a register"}.get(
        type(op), "the sink _"
    )


def compatible(register: str, ptx_type: str) -> bool:
    """True if a register of type ``register`` may hold values of ``ptx_type``, which has the same size."""
    if register == ptx_type:
        return True
    if register == "pred" or ptx_type == "pred":
        return False
    if ptx_type[0] == "b" and ptx_type[1:].isdigit():
        return True
    if register[0] == "b" and register[1:].isdigit():
        return True
    integer = ptx_type[0] in "us" and ptx_type[1:].isdigit()
    return integer and (register[0] in "us" or register == "f16x2")


def fits_register(reg: Reg, ptx_type: str, wider: bool = False) -> bool:
    """True if a register may be an operand of type ``ptx_type``; ``wider``: it may have more bits."""
    size, needed = SIZES[reg.type], SIZES.get(ptx_type, 4)
    if size == needed:
        return compatible(reg.type, ptx_type)
    if not wider or size < needed or reg.type == "pred" or ptx_type == "pred":
        return False
    if reg.type[0] == "b":
        return True
    return (
        (ptx_type[0] == "b" and ptx_type != "bf16")
        or (ptx_type[0] == reg.type[0] and ptx_type not in FLOATS)
        or (ptx_type[0] in "us" and reg.type[0] in "us")
    )


def fits_constant(op: Operand, ptx_type: str) -> bool:
    """True if a constant may be an operand of a type."""
    if isinstance(op, Imm):
        return ptx_type == "pred" or (ptx_type[0] in "usb" and ptx_type[1:].isdigit())
    if isinstance(op, Flt):
        return ptx_type in ("f32", "f64") or (ptx_type == f"b{8 * op.size}")
    return isinstance(op, Sym) and op.offset != 0 and ptx_type[0] in "usb" and ptx_type[1:].isdigit()


def check_source(op: Operand, ptx_type: str, wider: bool = False, constant: bool = True) -> None:
    if isinstance(op, Sum):
        if op.reg.type in FLOATS or op.reg.type in ("pred", "b128"):
            raise MismatchError("only a register of an integer or bit type is added to a constant")
        op = op.reg
    if isinstance(op, Reg):
        if not fits_register(op, ptx_type, wider):
            raise MismatchError(f"it must be {article(ptx_type)}")
    elif not (constant and fits_constant(op, ptx_type)):
        raise MismatchError(f"it must be {article(ptx_type)}" + (" or a constant of this type" if constant else ""))


def check_destination(op: Operand, ptx_type: str, wider: bool = False, sink: bool = False) -> None:
    if isinstance(op, Reg):
        if not fits_register(op, ptx_type, wider):
            raise MismatchError(f"it must be {article(ptx_type)}")
    elif not (sink and isinstance(op, Sink)):
        raise MismatchError(f"it must be {article(ptx_type)}")


def check_predicate(op: Operand) -> None:
    reg = op.reg if isinstance(op, Not) else op
    if not (isinstance(reg, Reg) and reg.type == "pred") and not isinstance(reg, Imm):
        raise MismatchError("it must be a .pred register, which ! may negate")


def check_address(op: Operand, mods: tuple[str, ...], tensor: bool = False) -> None:
    if not isinstance(op, Mem):
        raise MismatchError("it must be an address in brackets")
    if tensor != (op.coords is not None):
        raise MismatchError("it must be [address, {coordinates}]" if tensor else "it must be [address]")
    if op.coords is not None:
        check_sizes(op.coords)
        if "bulk" in mods:
            for item in retyped(op.coords.items):
                if isinstance(item, Reg) and not fits_register(item, "s32"):
                    raise MismatchError(f"its coordinate is {described(item)}; it must be {article('s32')}")
    named = [m.partition("::")[0] for m in mods if m.partition("::")[0] in SPACES]
    base = op.base
    if isinstance(base, Reg):
        if base.type in FLOATS or base.type in ("pred", "f16x2", "b128"):
            raise MismatchError(
                f"its address {base.name} is {article(base.type)}; it must be of an integer or bit type"
            )
        narrow = tensor or not NARROW_ADDRESSES.isdisjoint(mods) or ("async" in mods and "bulk" in mods)
        if SIZES[base.type] == 4 and not narrow and named in ([], ["global"]):
            raise MismatchError(f"its address {base.name} has 32 bits; it must have 64 in this state space")
    elif isinstance(base, Sym):
        if len(named) == 1 and base.var.space != named[0]:
            raise MismatchError(f"{base.var.name} is a .{base.var.space} variable; it must be .{named[0]}")
        if not named and base.var.space in ("param", "const"):
            raise MismatchError(f"{base.var.name} is a .{base.var.space} variable, which has no generic address")
    elif not isinstance(base, Imm):
        raise MismatchError(f"its address is {described(base)}")
    elif named != ["local"]:
        raise MismatchError("its address is a constant; it must be a register or a variable")


def check_sizes(vec: Vec) -> None:
    if len({SIZES[item.type] for item in vec.items if isinstance(item, Reg)}) > 1:
        raise MismatchError("its elements have several sizes; they must have one")


def check_elements(form: str, type: str, op: Operand, mods: tuple[str, ...]) -> None:
    """Checks the vector operand of an instruction on textures or surfaces."""
    if form == "v4|p" and isinstance(op, Pair):
        check_destination(op.second, "pred")
        op = op.first
    count = next((int(m[1]) for m in mods if m in ("v2", "v4")), 1)
    items = elements(op)
    if len(items) != count:
        raise MismatchError(f"it has {len(items)} elements; it must have {count}")
    for item in items:
        if form == "va":
            check_source(item, type, wider=True)
        else:
            check_destination(item, f"b{8 * SIZES[type]}", wider=form == "vd", sink=True)
    check_sizes(Vec(items))


def check_operand(spec: Spec, op: Operand, mods: tuple[str, ...]) -> None:
    """Raises MismatchError if an operand does not fit."""
    form = spec.form
    if form.startswith("["):
        check_address(op, mods, form == "[a,t]" or form.endswith(",t]"))
    elif form in ("d", "d_"):
        check_destination(op, spec.type, sink=form == "d_")
    elif form in ("d|p", "d||p", "d_||p"):
        if isinstance(op, Pair):
            check_destination(op.first, spec.type, sink="_" in form)
            check_destination(op.second, "pred")
        elif "||" in form:
            raise MismatchError("it must be d|p, a register and a predicate")
        else:
            check_destination(op, spec.type)
    elif form in ("p", "p|q"):
        ops = (op.first, op.second) if isinstance(op, Pair) and form == "p|q" else (op,)
        for one in ops:
            check_destination(one, "pred", sink=form == "p|q" and len(ops) == 2)
    elif form.startswith("!"):
        check_predicate(op)
    elif form == "n":
        if not isinstance(op, Imm):
            raise MismatchError("it must be an integer constant")
    elif form == "L":
        if not isinstance(op, Name):
            raise MismatchError("it must be a label")
    elif form == "_":
        if not isinstance(op, Sink):
            raise MismatchError("it must be the sink _")
    elif form in ("v4|p", "vd", "va"):
        check_elements(form, spec.type, op, mods)
    elif form == "v":
        if not isinstance(op, Vec):
            raise MismatchError("it must be a vector in braces")
        check_sizes(op)
    elif form.endswith("&") and isinstance(op, Sym):
        pass
    else:
        check_source(op, spec.type, constant=not form.endswith("!"))


# ---- instructions


def check_specs(ins: Instruction, specs: list[Spec]) -> None:
    given = len(ins.operands)
    required = sum(not s.optional for s in specs)
    if not required <= given <= len(specs):
        shapes = f"{required}" if required == len(specs) else f"{required} to {len(specs)}"
        listed = ", ".join(map(str, specs))
        raise MismatchError(
            f"`{ins.name}` has {given} operand{'s' * (given != 1)}; it must have {shapes}"
            + (f": {listed}" if listed else "")
        )
    missing = len(specs) - given
    used = []
    for spec in reversed(specs):
        if spec.optional and missing:
            missing -= 1
        else:
            used.append(spec)
    for number, (spec, op) in enumerate(zip(reversed(used), ins.operands, strict=True)):
        checked(ins, number, op, lambda spec=spec, op=op: check_operand(spec, op, ins.mods))  # type: ignore[misc]


def checked(ins: Instruction, number: int, op: Operand, check: Callable[[], None]) -> None:
    """Calls ``check`` for an operand. A MismatchError becomes an error that names the instruction and the operand."""
    try:
        check()
    except MismatchError as e:
        raise MismatchError(f"operand {number + 1} of `{ins.name}` is {described(op)}; {e}") from None


def check_count(ins: Instruction, counts: tuple[int, ...], listed: str) -> None:
    if len(ins.operands) not in counts:
        given = len(ins.operands)
        raise MismatchError(
            f"`{ins.name}` has {given} operand{'s' * (given != 1)}; it must have "
            + " or ".join(map(str, counts))
            + f": {listed}"
        )


def elements(op: Operand) -> tuple[Operand, ...]:
    return op.items if isinstance(op, Vec) else (op,)


class UnknownModifiersError(Exception):
    """An instruction has modifiers or types that none of its signatures has."""


def unknown(why: str) -> UnknownModifiersError:
    return UnknownModifiersError(why)


#: the types that mov takes
MOVED = ("pred", "b16", "b32", "b64", "b128", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64")


def check_mov(ins: Instruction) -> None:
    types = ins.types
    vectors = [m for m in ins.mods if m in ("v2", "v4")]
    if len(types) != 1 or len(vectors) + 1 != len(ins.mods) or len(vectors) > 1:
        raise unknown("mov has one type and at most .v2 or .v4")
    ptx_type = types[0]
    if ptx_type not in MOVED:
        raise MismatchError(f".{ptx_type} is no type of mov")
    check_count(ins, (2,), "d, a")
    d, a = ins.operands
    if vectors:
        for op in (d, a):
            if isinstance(op, Vec) and len(op.items) != int(vectors[0][1]):
                raise MismatchError(
                    f"`{ins.name}` has a vector of {len(op.items)} elements; it must have {vectors[0][1]}"
                )
        return
    if isinstance(d, Vec) or isinstance(a, Vec):
        check_pack(ins, ptx_type, d, a)
        return
    checked(ins, 0, d, lambda: check_destination(d, ptx_type))
    if isinstance(a, Special):
        size = 0 if a.name in SPECIAL_PREDICATES else 8 if a.name[1:] in SPECIALS_64 else 4
        fits = (
            SIZES[ptx_type] == size
            or (ptx_type[1:] == "16" and size == 4)
            or (ptx_type[1:] == "64" and a.name == "%gridid")
        )
        if ptx_type in FLOATS or not fits:
            checked(ins, 1, a, lambda: check_source(a, ptx_type))
    elif isinstance(a, (Sym, Name)) and not (isinstance(a, Name) and a.name[0] == "%"):
        if ptx_type == "pred" or ptx_type in FLOATS:
            checked(ins, 1, a, lambda: check_source(a, ptx_type))
    elif isinstance(a, Not) and ptx_type == "pred":
        checked(ins, 1, a, lambda: check_predicate(a))
    else:
        checked(ins, 1, a, lambda: check_source(a, ptx_type))


def is_word(op: Operand) -> bool:
    """True for a special register of 32 bits, which ptxas takes as an element of a vector."""
    return isinstance(op, Special) and op.name not in SPECIAL_PREDICATES and op.name[1:] not in SPECIALS_64


def check_pack(ins: Instruction, ptx_type: str, d: Operand, a: Operand) -> None:
    """Checks a mov between a vector and a register: the elements must have equal sizes, which add up to the size of the
    type."""
    if isinstance(d, Vec) and isinstance(a, Vec) and ptx_type != "b128":
        raise MismatchError(f"`{ins.name}` has two vectors; it must have one")
    vec, whole = (d, a) if isinstance(d, Vec) else (a, d)
    assert isinstance(vec, Vec)
    if ptx_type[0] != "b":
        raise MismatchError(f".{ptx_type} is no type of mov with a vector; it must be .b16, .b32, .b64 or .b128")
    if not isinstance(whole, Vec):
        number = 1 if vec is d else 0
        if vec is d:
            checked(ins, number, whole, lambda: check_source(whole, ptx_type))
        else:
            checked(ins, number, whole, lambda: check_destination(whole, ptx_type))
    registers = [op for op in vec.items if isinstance(op, Reg)]
    for op in vec.items:
        if vec is a and is_word(op) and 4 * len(vec.items) == SIZES[ptx_type]:
            continue
        if not isinstance(op, (Reg, Sink) if vec is d else (Reg, Imm, Flt)) or (
            isinstance(op, Reg) and op.type == "pred"
        ):
            raise MismatchError(f"an element of the vector of `{ins.name}` is {described(op)}; it must be a register")
        if isinstance(op, Reg) and SIZES[op.type] * len(vec.items) != SIZES[ptx_type]:
            raise MismatchError(
                f"`{ins.name}` has a vector of {len(vec.items)} elements, of which {op.name} has "
                f"{8 * SIZES[op.type]} bits; together they must have {8 * SIZES[ptx_type]}"
            )
    if any(isinstance(op, Imm) for op in vec.items) and any(r.type in FLOATS for r in registers):
        raise MismatchError(
            f"the vector of `{ins.name}` has integers and floating-point numbers; it must have one type"
        )


#: rounding modifiers of cvt to a floating-point type, and to an integer; the types that cvt converts
_ROUNDS = {"rn", "rz", "rm", "rp"}
_INTEGER_ROUNDS = {"rni", "rzi", "rmi", "rpi"}
CONVERTED = {"f16", "bf16", "f32", "f64", *(f"{s}{n}" for s in "us" for n in (8, 16, 32, 64))}


def check_cvt(ins: Instruction) -> None:
    if "pack" in ins.mods:
        return
    types = ins.types
    if len(types) != 2:
        raise unknown("cvt has two types")
    to, source = types
    modes = [m for m in ins.mods if m in _ROUNDS | _INTEGER_ROUNDS | {"rna"}]
    others = [m for m in ins.mods if m not in types and m not in modes]
    if len(modes) > 1 or len(set(others)) != len(others) or not set(others) <= {"ftz", "sat", "satfinite", "relu"}:
        raise unknown("cvt has at most one rounding, and .ftz, .sat, .satfinite or .relu at most once")
    mode = modes[0] if modes else ""
    if to.endswith("x2") or source.endswith("x2") or to == "tf32":
        if not mode:
            raise MismatchError(f"`{ins.name}` needs a rounding")
        pair = source == "f32" and to != "tf32"
        check_count(ins, (3 if pair else 2,), "d, a, b" if pair else "d, a")
        ptx_types = [f"b{8 * SIZES[to]}" if to[:2] in ("e4", "e5", "tf") else to, *[source] * (1 + pair)]
        ptx_types = ["b16" if k[:2] in ("e4", "e5") else "u32" if k == "b32" else k for k in ptx_types]
        checked(ins, 0, ins.operands[0], lambda: check_destination(ins.operands[0], ptx_types[0]))
        for i, op in enumerate(ins.operands[1:], 1):
            checked(ins, i, op, lambda i=i, op=op: check_source(op, ptx_types[i], pair and to == "f16x2"))  # type: ignore[misc]
        return
    if to not in CONVERTED or source not in CONVERTED:
        raise unknown(f"cvt does not convert .{source} to .{to}")
    floats = (to in FLOATS, source in FLOATS)
    if floats == (False, True):
        if mode not in _INTEGER_ROUNDS:
            raise MismatchError(f"`{ins.name}` needs a rounding to an integer: .rni, .rzi, .rmi or .rpi")
    elif floats == (True, False):
        if mode not in _ROUNDS:
            raise MismatchError(f"`{ins.name}` needs a rounding: .rn, .rz, .rm or .rp")
    elif floats == (False, False):
        if mode or "ftz" in others or "relu" in others or "satfinite" in others:
            raise MismatchError(f"`{ins.name}` converts integers; it has no modifier but .sat")
    elif SIZES[to] < SIZES[source] or (SIZES[to] == 2 and to != source):
        if mode not in _ROUNDS | ({"rna"} if to == "bf16" else set()):
            raise MismatchError(f"`{ins.name}` needs a rounding: .rn, .rz, .rm or .rp")
    elif mode and to == source:
        if mode not in _INTEGER_ROUNDS:
            raise MismatchError(f"`{ins.name}` may round only to an integer: .rni, .rzi, .rmi or .rpi")
    elif mode and not (mode == "rn" and source == "bf16"):
        raise MismatchError(f"`{ins.name}` is exact; it has no rounding")
    check_count(ins, (2,), "d, a")
    d, a = ins.operands
    checked(ins, 0, d, lambda: check_destination(d, to, wider=True))
    if isinstance(a, Special) and not any(floats) and SIZES[source] <= (8 if a.name[1:] in SPECIALS_64 else 4):
        return
    checked(ins, 1, a, lambda: check_source(a, source, wider=True))


CACHE_OPERATIONS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt"}
ORDERS = {"weak", "volatile", "relaxed", "acquire", "release"}
SCOPES = {"cta", "cluster", "gpu", "sys"}
STORED = {"b8", "b16", "b32", "b64", "b128", "f32", "f64", *(f"{s}{n}" for s in "us" for n in (8, 16, 32, 64))}


def check_access_modifiers(ins: Instruction, known: set[str]) -> tuple[str, int]:
    """The pair (type, number of elements) of a load or a store. Raises an error if a modifier is not in ``known``."""
    types = ins.types
    if len(types) != 1:
        raise MismatchError(f"`{ins.name}` has {len(types)} types; it must have one")
    if types[0] not in STORED:
        raise MismatchError(f".{types[0]} is no type of {ins.op}")
    others = [m for m in ins.mods if m not in SIZES]
    spaces = [m for m in others if m.partition("::")[0] in SPACES]
    vectors = [m for m in others if m in ("v2", "v4", "v8")]
    if len(set(others)) != len(others) or len(spaces) > 1 or len(vectors) > 1:
        raise MismatchError(f"`{ins.name}` has two modifiers of one group; it must have one")
    for m in others:
        if m not in known and m not in spaces and m not in vectors and not m.startswith(("L1::", "L2::")):
            raise unknown(f".{m} is no modifier of {ins.op}")
    if sum(m in CACHE_OPERATIONS for m in others) + sum(m in ORDERS and m != "weak" for m in others) > 1:
        raise MismatchError(f"`{ins.name}` has several of a cache operation and a memory order; it must have one")
    strong = any(m in ("relaxed", "acquire", "release") for m in others)
    if strong != any(m in SCOPES for m in others):
        one = "a memory order" if strong else "a scope"
        raise MismatchError(f"`{ins.name}` has only {one}; it must have both a memory order and a scope, or neither")
    return types[0], int(vectors[0][1]) if vectors else 1


def retyped(items: Sequence[Operand]) -> list[Operand]:
    """The elements of a vector. If one has a bit type, floating-point registers beside it count as registers of that
    type."""
    bits = [item for item in items if isinstance(item, Reg) and item.type[0] == "b" and item.type != "bf16"]
    return [bits[0] if bits and isinstance(item, Reg) and item.type in FLOATS else item for item in items]


def check_items(ins: Instruction, number: int, op: Operand, count: int, check: Callable[[Operand], None]) -> None:
    """Checks the elements of a vector operand, or an operand without braces; there must be ``count``.

    Beside a register of a bit type, the other registers of a vector may be of any type of its size.
    """
    items = elements(op)
    if len(items) != count or (count > 1 and not isinstance(op, Vec)):
        raise MismatchError(f"operand {number + 1} of `{ins.name}` has {len(items)} elements; it must have {count}")
    for item in retyped(items):
        checked(ins, number, item, lambda item=item: check(item))  # type: ignore[misc]
    if len({SIZES[item.type] for item in items if isinstance(item, Reg)}) > 1:
        raise MismatchError(
            f"the elements of operand {number + 1} of `{ins.name}` have several sizes; they must have one"
        )


def check_ld(ins: Instruction) -> None:
    ptx_type, count = check_access_modifiers(
        ins, SCOPES | ORDERS - {"release"} | {"nc", "mmio", "unified", "ca", "cg", "cs", "lu", "cv"}
    )
    if "nc" in ins.mods and "global" not in ins.mods:
        raise MismatchError(f"`{ins.name}` has .nc; its state space must be .global")
    hint = "L2::cache_hint" in ins.mods
    check_count(ins, (3,) if hint else (2,), "d, [a], policy" if hint else "d, [a]")
    checked(ins, 1, ins.operands[1], lambda: check_address(ins.operands[1], ins.mods))
    check_items(ins, 0, ins.operands[0], count, lambda op: check_destination(op, ptx_type, wider=True, sink=count > 1))
    if hint:
        checked(ins, 2, ins.operands[2], lambda: check_source(ins.operands[2], "b64"))


def check_remote(ins: Instruction) -> None:
    """Checks st.async and red.async: an address, values, and the address of an mbarrier object."""
    check_count(ins, (3,), "[a], b, [c]")
    for i in (0, 2):
        checked(ins, i, ins.operands[i], lambda i=i: check_address(ins.operands[i], ins.mods))  # type: ignore[misc]
    types = ins.types
    if len(types) == 1:
        count = next((int(m[1]) for m in ins.mods if m in ("v2", "v4")), 1)
        check_items(ins, 1, ins.operands[1], count, lambda op: check_source(op, types[0]))


def check_st(ins: Instruction) -> None:
    if "async" in ins.mods:
        check_remote(ins)
        return
    if "bulk" in ins.mods:
        return
    ptx_type, count = check_access_modifiers(ins, SCOPES | ORDERS - {"acquire"} | {"mmio", "wb", "cg", "cs", "wt"})
    if "const" in ins.mods:
        raise MismatchError("a .const variable is not written")
    hint = "L2::cache_hint" in ins.mods
    check_count(ins, (3,) if hint else (2,), "[a], b, policy" if hint else "[a], b")
    checked(ins, 0, ins.operands[0], lambda: check_address(ins.operands[0], ins.mods))

    def check_value(op: Operand) -> None:
        if not (count > 1 and SIZES[ptx_type] <= 4 and is_word(op)):
            check_source(op, ptx_type, wider=True)

    check_items(ins, 1, ins.operands[1], count, check_value)
    if hint:
        checked(ins, 2, ins.operands[2], lambda: check_source(ins.operands[2], "b64"))


ATOMIC_TYPES = {
    "add": {"u32", "s32", "u64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64"},
    "inc": {"u32"},
    "dec": {"u32"},
    "exch": {"b32", "b64", "b128"},
    "cas": {"b16", "b32", "b64", "b128"},
    **{m: {"u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2"} for m in ("min", "max")},
    **{m: {"b32", "b64"} for m in ("and", "or", "xor")},
}


def check_atom(ins: Instruction) -> None:
    if "async" in ins.mods:
        check_remote(ins)
        return
    returns = ins.op == "atom"
    types = ins.types
    operations = [m for m in ins.mods if m in ATOMIC_TYPES]
    if len(operations) != 1 or len(types) != 1:
        raise MismatchError(
            f"`{ins.name}` has {len(operations)} operations and {len(types)} types; it must have one of each"
        )
    operation, ptx_type = operations[0], types[0]
    if ptx_type not in ATOMIC_TYPES[operation]:
        raise MismatchError(
            f"`{ins.name}` has type .{ptx_type}; it must be one of {', '.join(sorted(ATOMIC_TYPES[operation]))}"
        )
    if operation in ("exch", "cas") and not returns:
        raise MismatchError(f".{operation} is no operation of red")
    others = [m for m in ins.mods if m not in SIZES and m != operation]
    spaces = [m for m in others if m.partition("::")[0] in SPACES]
    vectors = [m for m in others if m in ("v2", "v4", "v8")]
    known = {"relaxed", "release", "noftz", *SCOPES, *(("acquire", "acq_rel") if returns else ())}
    for m in others:
        if m not in known and m not in spaces and m not in vectors and not m.startswith(("L1::", "L2::")):
            raise unknown(f".{m} is no modifier of {ins.op}")
    if (
        len(set(others)) != len(others)
        or len(spaces) > 1
        or len(vectors) > 1
        or sum(m in SCOPES for m in others) > 1
        or sum(m in ("relaxed", "acquire", "release", "acq_rel") for m in others) > 1
    ):
        raise MismatchError(f"`{ins.name}` has two modifiers of one group; it must have one")
    if spaces and spaces[0].partition("::")[0] not in ("global", "shared"):
        raise MismatchError(f"`{ins.name}` is on .{spaces[0]}; atomic operations are on .global or .shared")
    if ptx_type in ("f16", "f16x2", "bf16", "bf16x2"):
        if "noftz" not in others:
            raise MismatchError(f"`{ins.name}` has no .noftz; it must have it")
        if operation in ("min", "max") and not vectors:
            raise MismatchError(f"`{ins.name}` has no vector; it must have .v2, .v4 or .v8")
    count = int(vectors[0][1]) if vectors else 1
    hint = "L2::cache_hint" in others
    listed = (
        ("d, " if returns else "") + "[a], b" + (", c" if operation == "cas" else "") + (", policy" if hint else "")
    )
    check_count(ins, (listed.count(",") + 1,), listed)
    operands = list(ins.operands)
    if returns:
        check_items(ins, 0, operands.pop(0), count, lambda op: check_destination(op, ptx_type, sink=True))
    if hint:
        checked(ins, len(ins.operands) - 1, operands[-1], lambda: check_source(operands[-1], "b64"))
    checked(ins, int(returns), operands[0], lambda: check_address(operands[0], ins.mods))
    for i, op in enumerate(operands[1 : 3 if operation == "cas" else 2], returns + 1):
        check_items(ins, i, op, count, lambda op: check_source(op, ptx_type))


def check_matrix(ins: Instruction) -> None:
    """Checks mma, wmma and wgmma: the elements of a fragment must have equal sizes, and the first one the type of the
    fragment."""
    types = ins.types
    if ins.mods.count("aligned") > 1:
        raise MismatchError(f"`{ins.name}` has .aligned twice; it must have it once")
    for number, op in enumerate(ins.operands):
        if "mma_async" in ins.mods and number in (1, 2) and isinstance(op, Reg):
            checked(ins, number, op, lambda op=op: check_source(op, "u64"))  # type: ignore[misc]
        if isinstance(op, Vec):
            checked(ins, number, op, lambda op=op: check_sizes(op))  # type: ignore[misc]
            exact = number in (0, 3) or "sp" not in (m.partition("::")[0] for m in ins.mods)
            if ins.op == "mma" and len(types) == 4 and number < 4 and isinstance(op.items[0], Reg) and exact:
                ptx_type = types[number]
                ptx_type = ptx_type if ptx_type in ("f32", "f64", "s32") else "u32"
                if op.items[0].type in FLOATS and op.items[0].type != ptx_type:
                    place = f"operand {number + 1} of `{ins.name}`"
                    raise MismatchError(f"{place} has {described(op.items[0])}; it must be {article(ptx_type)}")
    if ins.op == "mma" and "block_scale" not in ins.mods:
        sparse = ins.mods[0].partition("::")[0] == "sp"
        check_count(ins, (6,) if sparse else (4,), "d, a, b, c, metadata, selector" if sparse else "d, a, b, c")
        if sparse:
            checked(ins, 4, ins.operands[4], lambda: check_source(ins.operands[4], "u32", constant=False))
            if not isinstance(ins.operands[5], Imm):
                checked(ins, 5, ins.operands[5], lambda: check_operand(Spec("n", "", False), ins.operands[5], ()))


# ---- values of constants


def constants(ins: Instruction) -> list[int | None]:
    """For each operand, its value if it is an integer constant, else None."""
    return [op.value if isinstance(op, Imm) else None for op in ins.operands]


def in_range(ins: Instruction, number: int, least: int, most: int, multiple: int = 1) -> None:
    value = constants(ins)[number]
    if value is not None and ins.op not in ("bfe", "bfi", "wgmma", "mbarrier", "tensormap"):
        value &= 0xFFFFFFFF  # of these operands, ptxas reads 32 bits
    if value is not None and not (least <= value <= most and value % multiple == 0):
        allowed = f"{least} to {most}" if least < most else f"{least}"
        of = f" and a multiple of {multiple}" if multiple > 1 else ""
        raise MismatchError(f"operand {number + 1} of `{ins.name}` is {value}; it must be {allowed}{of}")


def check_field(ins: Instruction) -> None:
    for number in (-2, -1):
        in_range(ins, len(ins.operands) + number, 0, 255)


def check_barrier(ins: Instruction) -> None:
    if "warp" in ins.mods or "cluster" in ins.mods:
        return
    first = 1 if "red" in ins.mods else 0
    in_range(ins, first, 0, 15)
    if len(ins.operands) > first + (2 if first else 1):
        in_range(ins, first + 1, 0, 1 << 31, 32)


def check_copy(ins: Instruction) -> None:
    if ins.mods[:2] in (("async", "ca"), ("async", "cg")):
        size = constants(ins)[2]
        sizes = (16,) if ins.mods[1] == "cg" else (4, 8, 16)
        if size is None or size not in sizes:
            listed = ", ".join(map(str, sizes))
            raise MismatchError(f"operand 3 of `{ins.name}` is {size}; it must be {listed}")
        if len(ins.operands) > 3:
            in_range(ins, 3, 0, size)
    elif "bulk" in ins.mods and not {"tensor", "commit_group", "wait_group"} & set(ins.mods):
        in_range(ins, 1 if "prefetch" in ins.mods else 2, 0, 0xFFFFFFF0, 16)


def check_policy(ins: Instruction) -> None:
    fraction = ins.operands[1] if "fractional" in ins.mods and len(ins.operands) > 1 else None
    if isinstance(fraction, Flt):
        value = float(np.array(fraction.bits, f"u{fraction.size}").view(f"f{fraction.size}"))
        if not 0 < value <= 1:
            raise MismatchError(f"operand 2 of `{ins.name}` is {value:g}; it must be above 0 and at most 1")


def check_scale(ins: Instruction) -> None:
    scale = 5 if "sp" in ins.mods else 3
    if "mma_async" in ins.mods and len(ins.operands) > scale:
        in_range(ins, scale, 0, 1)


def check_parity(ins: Instruction) -> None:
    if "parity" in ins.mods:
        in_range(ins, 2, 0, 1)


def check_register_count(ins: Instruction) -> None:
    in_range(ins, 0, 24, 256, 8)


def check_coordinates(ins: Instruction) -> None:
    """Checks the number and the types of the coordinates of a texture or a surface; a layer comes first."""
    number, op = next(((i, op) for i, op in enumerate(ins.operands) if isinstance(op, Mem)), (0, None))
    geometry = next((m for m in ins.mods if m in COORDINATES), "")
    if not isinstance(op, Mem) or op.coords is None or not geometry:
        return
    if isinstance(op.base, Reg) and SIZES[op.base.type] != 8:
        raise MismatchError(
            f"the handle {op.base.name} of `{ins.name}` is {article(op.base.type)}; it must have 64 bits"
        )
    given, needed = list(op.coords.items), COORDINATES[geometry]
    if len(given) != needed:
        raise MismatchError(f"`{ins.name}` has {len(given)} coordinates; it must have {needed}")
    ptx_type = ins.types[-1] if ins.op in ("tex", "tld4") else "s32"
    for i, item in enumerate(retyped(given)):
        of = "u32" if geometry[0] == "a" and i == 0 else ptx_type
        if i and (ins.op in ("suld", "sust") or (i == 3 and geometry != "acube")):
            of = "b32"  # of these, ptxas reads 32 bits of any type
        checked(ins, number, item, lambda item=item, of=of: check_source(item, of))  # type: ignore[misc]


#: fields of tensormap.replace -> the largest dimension, or the largest value of a field with numbered values
_MAP_LIMITS = {
    **dict.fromkeys(("box_dim", "global_dim", "global_stride", "element_stride"), 4),
    "elemtype": 15,
    "interleave_layout": 2,
    "swizzle_mode": 3,
    "fill_mode": 1,
}


def check_map(ins: Instruction) -> None:
    if "cp_fenceproxy" in ins.mods:
        in_range(ins, 2, 128, 128)
    for field, limit in _MAP_LIMITS.items():
        if field in ins.mods:
            in_range(ins, 1, 0, limit)


def check_line(ins: Instruction) -> None:
    """Checks applypriority and discard: the size must be that of a line of the L2 cache."""
    in_range(ins, 1, 128, 128)


def check_fence(ins: Instruction) -> None:
    if "tensormap::generic" in ins.mods and len(ins.operands) > 1:
        in_range(ins, 1, 128, 128)


def check_alignment(ins: Instruction) -> None:
    value = constants(ins)[-1] if len(ins.operands) > 2 else 1
    if value is not None and (not 0 < value <= 1 << 23 or value & (value - 1)):
        raise MismatchError(f"operand 3 of `{ins.name}` is {value}; it must be a power of two up to {1 << 23}")


#: checks of the values of operands, which run after the checks of the operands themselves
VALUE_CHECKS: dict[str, Callable[[Instruction], None]] = {
    "bfe": check_field,
    "bfi": check_field,
    "bar": check_barrier,
    "barrier": check_barrier,
    "cp": check_copy,
    "createpolicy": check_policy,
    "setmaxnreg": check_register_count,
    "alloca": check_alignment,
    "wgmma": check_scale,
    "mbarrier": check_parity,
    "tensormap": check_map,
    "fence": check_fence,
    **dict.fromkeys(("applypriority", "discard"), check_line),
}


SPECIAL_CHECKS: dict[str, Callable[[Instruction], None]] = {
    **dict.fromkeys(("tex", "tld4", "suld", "sust"), check_coordinates),
    "mov": check_mov,
    "cvt": check_cvt,
    "ld": check_ld,
    "ldu": check_ld,
    "st": check_st,
    "atom": check_atom,
    "red": check_atom,
    "mma": check_matrix,
    "wmma": check_matrix,
    "wgmma": check_matrix,
}


#: the instructions whose operands are checked
CHECKED = SPECIAL_CHECKS.keys() | table().keys()


@lru_cache(4096)
def candidates(op: str, mods: tuple[str, ...]) -> list[list[Spec]]:
    """The lists of operands that an instruction with this name and these modifiers may have."""
    types = tuple(m for m in mods if m in SIZES)
    others = [m for m in mods if m not in SIZES]
    return [s.specs(others, types) for s in table()[op] if s.fits(others, types)]


def check(ins: Instruction) -> None:
    """Raises MismatchError or UnknownModifiersError if an instruction does not fit the table."""
    special = SPECIAL_CHECKS.get(ins.op)
    if special is not None:
        special(ins)
    if ins.op not in table() or "mma_async" in ins.mods:
        return
    rows = candidates(ins.op, ins.mods)
    if not rows:
        raise unknown(f"no form of {ins.op} has these modifiers and types")
    first = ""
    for specs in rows:
        try:
            check_specs(ins, specs)
            return
        except MismatchError as e:
            first = first or str(e)  # the error itself would refer to this frame, and the frame to it
    raise MismatchError(first)


def shape(op: Operand) -> Any:
    """The properties of an operand that the checks depend on: its class and its type."""
    if isinstance(op, Reg):
        return op.type
    if isinstance(op, Imm):
        return 0
    if isinstance(op, Vec):
        return tuple(map(shape, op.items))
    if isinstance(op, Mem):
        return (Mem, shape(op.base), None if op.coords is None else shape(op.coords))
    if isinstance(op, Sym):
        return (Sym, op.var.space, op.offset != 0)
    if isinstance(op, Flt):
        return (Flt, op.size)
    if isinstance(op, Special):
        return op.name
    if isinstance(op, Pair):
        return (Pair, shape(op.first), shape(op.second))
    if isinstance(op, (Not, Neg, Sum)):
        return (type(op), shape(op.reg))
    return (type(op), op.name[0] == "%") if isinstance(op, Name) else type(op)


#: instruction names and operand shapes that were checked and fit
_FITTING: set[Any] = set()


def refusal(ins: Instruction, kernel: str) -> str:
    """Checks an instruction; returns the reason why its modifiers are unknown, or an empty text.

    Raises ParseError if its operands do not fit its signature.
    """
    key = (ins.op, ins.mods, *map(shape, ins.operands))
    values = VALUE_CHECKS.get(ins.op)
    if key in _FITTING and values is None:
        return ""
    try:
        check(ins)
        if values is not None:
            values(ins)
    except MismatchError as e:
        raise ParseError(f"line {ins.line}: {e}: {ins.text} (in {demangled(kernel)})") from None
    except UnknownModifiersError as e:
        return str(e)
    if len(_FITTING) > 100_000:
        _FITTING.clear()
    _FITTING.add(key)
    return ""
