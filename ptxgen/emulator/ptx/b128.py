"""Rewrites registers of 128 bits as pairs of 64-bit registers, before a kernel is compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxgen.emulator.ptx.syntax import Function, Imm, Instruction, Operand, Reg, Sink, Vec
from ptxgen.errors import ParseError, UnsupportedError


def has_b128(f: Function) -> bool:
    return any(r.type == "b128" for r in f.registers)


def split_b128(f: Function) -> None:
    """Replaces each 128-bit register of a kernel by a pair of 64-bit registers, in place."""
    halves: dict[int, Vec] = {}
    for r in list(f.registers):
        if r.type == "b128":
            low, high = (
                Reg(f"{r.name} ({half} half)", "b64", len(f.registers) + i) for i, half in enumerate(("low", "high"))
            )
            halves[r.slot] = Vec((low, high))
            f.registers += [low, high]

    def pair(op: Operand, ins: Instruction) -> Vec:
        if isinstance(op, Reg) and op.slot in halves:
            return halves[op.slot]
        if isinstance(op, Sink):
            return Vec((op, op))
        if isinstance(op, Imm):
            return Vec((Imm(op.value & (1 << 64) - 1), Imm(op.value >> 64 & (1 << 64) - 1)))
        raise ParseError(f"line {ins.line}: a .b128 register is needed: {ins.text}")

    for at, ins in enumerate(list(f.code)):
        if "b128" not in ins.mods:
            if any(isinstance(op, Reg) and op.slot in halves for op in operands(ins)):
                raise ParseError(f"line {ins.line}: a .b128 register in an instruction without .b128: {ins.text}")
            continue
        f.code[at] = rewrite(ins, pair)


def operands(ins: Instruction) -> list[Operand]:
    """The operands of an instruction, with the elements of vectors one by one."""
    return [o for op in ins.operands for o in (op.items if isinstance(op, Vec) else (op,))]


def rewrite(ins: Instruction, pair: Any) -> Instruction:
    """A .b128 instruction on pairs of registers; ``pair(operand, ins)`` gives the pair of an operand."""
    if ins.op in ("ld", "st"):
        if any(m in ("v2", "v4", "v8") for m in ins.mods):
            raise UnsupportedError(f"line {ins.line}: {ins.name} is not emulated: {ins.text}")
        mods = tuple(x for m in ins.mods for x in (("v2", "b64") if m == "b128" else (m,)))
        first, second = ins.operands
        pairs = (pair(first, ins), second) if ins.op == "ld" else (first, pair(second, ins))
        return replace(ins, mods=mods, operands=pairs)
    if ins.op == "mov" and len(ins.operands) == 2:
        sides = []
        for op in ins.operands:
            items: tuple[Operand, ...] = op.items if isinstance(op, Vec) else pair(op, ins).items
            sides.append(Vec(items))
        return replace(ins, operands=tuple(sides), row="*mov.b128")
    if ins.op == "atom" and len(ins.operands) in (3, 4):
        d, address, *values = ins.operands
        return replace(ins, operands=(pair(d, ins), address, *(pair(v, ins) for v in values)), row="*atom.b128")
    raise UnsupportedError(f"line {ins.line}: {ins.name} is not emulated: {ins.text}")
