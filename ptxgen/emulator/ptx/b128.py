"""Registers of 128 bits as pairs of 64: what names them is rewritten before a kernel is compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.access import Site
from ptxgen.emulator.ops.atomic import WORDS, places, turns
from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ops.load_store import SPACES, space_of
from ptxgen.emulator.ops.move import copy, together
from ptxgen.emulator.ops.registry import Step, instruction
from ptxgen.emulator.ptx.syntax import Function, Imm, Instruction, Operand, Reg, Sink, Vec
from ptxgen.errors import ParseError, UnsupportedError

if TYPE_CHECKING:
    from ptxgen.emulator.warp_batch import Team

Mask = NDArray[np.bool_] | None


def has_wide(f: Function) -> bool:
    return any(r.type == "b128" for r in f.registers)


def split(f: Function) -> None:
    """Rewrites a kernel in place."""
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
        raise ParseError(f"line {ins.line}: a register of 128 bits is needed: {ins.text}")

    for at, ins in enumerate(list(f.code)):
        if "b128" not in ins.mods:
            if any(isinstance(op, Reg) and op.slot in halves for op in operands(ins)):
                raise ParseError(f"line {ins.line}: a register of 128 bits where no .b128 stands: {ins.text}")
            continue
        f.code[at] = rewritten(ins, pair)


def operands(ins: Instruction) -> list[Operand]:
    return [o for op in ins.operands for o in (op.items if isinstance(op, Vec) else (op,))]


def rewritten(ins: Instruction, pair: Any) -> Instruction:
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
        return replace(ins, operands=tuple(sides), row="*mov.wide")
    if ins.op == "atom" and len(ins.operands) in (3, 4):
        d, address, *values = ins.operands
        return replace(ins, operands=(pair(d, ins), address, *(pair(v, ins) for v in values)), row="*atom.wide")
    raise UnsupportedError(f"line {ins.line}: {ins.name} is not emulated: {ins.text}")


@instruction("*mov.wide")
def mov(b: Builder, ins: Instruction) -> Step:
    """Between two vectors, of two or four registers each."""
    to, source = ins.operands
    assert isinstance(to, Vec)
    assert isinstance(source, Vec)
    sizes = {len(to.items), len(source.items)}
    if sizes == {2}:
        return together([copy(b.dst(d, "u64"), b.src(a, "u64")) for d, a in zip(to.items, source.items, strict=True)])
    if sizes != {2, 4}:
        raise b.unsupported("this packing")
    if len(to.items) == 4:
        return together(
            [copy(b.dst(d, "u32"), b.part(source.items[i // 2], "u32", i % 2, False)) for i, d in enumerate(to.items)]
        )
    return together(
        [copy(b.part(to.items[i // 2], "u32", i % 2, True), b.src(a, "u32")) for i, a in enumerate(source.items)]
    )


@instruction("*atom.wide", polls=True)
def atom(b: Builder, ins: Instruction) -> Step:
    """cas and exch: (destination, address, value) or (destination, address, comparison, value)."""
    what = next((m for m in ins.mods if m in ("cas", "exch")), "")
    for m in ins.mods:
        if m not in WORDS | {"b128", what} and m.split("::")[0] not in SPACES:
            raise b.unsupported(f".{m}")
    if len(ins.operands) != {"cas": 4, "exch": 3}.get(what) or space_of(ins) not in ("global", "shared", "generic"):
        raise b.unsupported()
    d, address, *rest = ins.operands
    site = Site(b, ins, address, space_of(ins), 16, "write")
    b.sites.append(site)
    values = [[b.src(half, "u64") for half in v.items] for v in rest if isinstance(v, Vec)]
    assert isinstance(d, Vec)
    dst = [b.dst(half, "u64") for half in d.items]

    def step(c: Team, m: Mask) -> None:
        engine = c.chunk.engine
        for views, index, lanes in places(c, site, m, 8):
            engine.stats.atomics += len(lanes)
            where = index[:, None] + np.arange(2)
            given = [np.stack([np.broadcast_to(c.v[h], (c.n,))[lanes] for h in v], axis=1) for v in values]
            for who in turns(engine, index):
                at = where[who]
                found = views[8][at]
                new = given[-1][who]
                if what == "cas":
                    new = np.where((found == given[0][who]).all(axis=1)[:, None], new, found)
                views[8][at] = new
                for h in range(2):
                    c.v[dst[h]][lanes[who]] = found[:, h]
                if (new != found).any():
                    engine.progress += 1

    return step
