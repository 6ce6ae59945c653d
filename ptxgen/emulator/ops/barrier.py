"""Branches, exits and named barriers (bar, barrier)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ops.compare import predicate
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.sync.barriers import Part
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import BarrierFault, Fault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


def nothing(c: WarpBatch, m: Mask) -> None:
    """A step without effect."""


@instruction("bra", kind="branch")
def bra(b: Builder, ins: Instruction) -> Step:
    if not set(ins.mods) <= {"uni"}:
        raise b.unsupported()
    return nothing


@instruction("ret", "exit", kind="exit")
def leave(b: Builder, ins: Instruction) -> Step:
    return nothing


@instruction("trap", "brkpt")
def trap(b: Builder, ins: Instruction) -> Step:
    def step(c: WarpBatch, m: Mask) -> None:
        lanes = c.live() if m is None else m
        raise fault(Fault, f"the kernel executes {ins.op}", c, ins, int(np.argmax(lanes)))

    return step


@instruction("nanosleep", polls=True)
def nanosleep(b: Builder, ins: Instruction) -> Step:
    b.src(ins.operands[0], "u32")
    return nothing


@instruction("pmevent")
def pmevent(b: Builder, ins: Instruction) -> Step:
    return nothing


@instruction("bar", "barrier", kind="blocking")
def barrier(b: Builder, ins: Instruction) -> Step:
    mods = [m for m in ins.mods if m not in ("cta", "aligned")]
    what = mods[0] if mods else ""
    if what == "sync" and len(mods) == 1:
        return arrival(b, ins, list(ins.operands), True)
    if what == "arrive" and len(mods) == 1 and len(ins.operands) == 2:
        return arrival(b, ins, list(ins.operands), False)
    if what == "red" and mods[1] in ("popc", "and", "or"):
        return reduction(b, ins, mods[1])
    raise b.unsupported()


def one_value(c: WarpBatch, row: Array, lanes: Array, ins: Instruction, what: str) -> list[tuple[int, Array]]:
    """(value, lanes) groups of an operand that must be the same within a warp."""
    if row.ndim == 0:
        return [(int(row), lanes)]
    found = np.unique(row[lanes])
    if len(found) == 1:
        return [(int(found[0]), lanes)]
    out = []
    for value in found:
        mine = lanes & (row == value)
        split = mine.reshape(-1, 32).any(axis=1) & (lanes & ~mine).reshape(-1, 32).any(axis=1)
        if split.any():
            lane = 32 * int(np.argmax(split))
            raise fault(BarrierFault, f"lanes of one warp give different {what}", c, ins, lane)
        out.append((int(value), mine))
    return out


def arrival(
    b: Builder, ins: Instruction, operands: list[Any], waits: bool, vote: Any = None, finish: Any = None
) -> Step:
    b.single = ins.op == "barrier" and "aligned" not in ins.mods
    number = b.src(operands[0], "u32")
    count = b.src(operands[1], "u32") if len(operands) > 1 else b.const(0, "u32")

    def step(c: WarpBatch, m: Mask, after: int) -> None:
        lanes = c.live() if m is None else m
        votes = None if vote is None else vote(c)
        for n, some in one_value(c, c.v[number], lanes, ins, "barriers"):
            for k, these in one_value(c, c.v[count], some, ins, "counts"):
                c.chunk.barriers.arrive_lanes(Part(c, these, n, k, ins, after, waits, votes, finish))

    return step


def reduction(b: Builder, ins: Instruction, how: str) -> Step:
    """bar.red: every lane of the barrier learns how many predicates were true."""
    operands = list(ins.operands)
    p, negated = predicate(b, operands.pop())
    dst = b.dst(operands.pop(0), "u32" if how == "popc" else "pred")

    def vote(c: WarpBatch) -> Array:
        return ~c.v[p] if negated else c.v[p]

    def finish(c: WarpBatch, mask: Array, true: Array, total: Array) -> None:
        result = true if how == "popc" else true == total if how == "and" else true > 0
        np.copyto(c.v[dst], result, where=mask, casting="unsafe")

    return arrival(b, ins, operands, True, vote, finish)
