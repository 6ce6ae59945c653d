"""Named barriers (bar, barrier)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.compare import predicate
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import any_true
from ptxgen.emulator.sync.barriers import Arrival
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import BarrierFault

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None


@instruction("bar", "barrier", execution="blocking")
def barrier(b: Builder, ins: Instruction) -> Step:
    mods = [m for m in ins.mods if m not in ("cta", "aligned")]
    operation = mods[0] if mods else ""
    if operation == "sync" and len(mods) == 1:
        return arrival(b, ins, list(ins.operands), True)
    if operation == "arrive" and len(mods) == 1 and len(ins.operands) == 2:
        return arrival(b, ins, list(ins.operands), False)
    if operation == "red" and mods[1] in ("popc", "and", "or"):
        return reduction(b, ins, mods[1])
    raise b.unsupported()


def warp_values(c: WarpBatch, row: Array, lanes: Array, ins: Instruction, operands: str) -> list[tuple[int, Array]]:
    """For each value of an operand that must be uniform in a warp, the pair (value, lanes); ``operands``: its plural
    name, for messages."""
    if row.ndim == 0:
        return [(int(row), lanes)]
    values = np.unique(row[lanes])
    if len(values) == 1:
        return [(int(values[0]), lanes)]
    out = []
    for value in values:
        same = lanes & (row == value)
        split = same.reshape(-1, 32).any(axis=1) & (lanes & ~same).reshape(-1, 32).any(axis=1)
        if any_true(split):
            lane = 32 * int(np.argmax(split))
            raise fault(BarrierFault, f"lanes of one warp give different {operands}", c, ins, lane)
        out.append((int(value), same))
    return out


def arrival(
    b: Builder, ins: Instruction, operands: list[Any], waits: bool, vote: Any = None, finish: Any = None
) -> Step:
    """The step of an arrival at a barrier. ``vote(batch)``: the predicates of bar.red; ``finish``: as in
    ``Arrival``."""
    b.single = ins.op == "barrier" and "aligned" not in ins.mods
    number = b.src(operands[0], "u32")
    count = b.src(operands[1], "u32") if len(operands) > 1 else b.const(0, "u32")

    def step(c: WarpBatch, m: Mask, after: int) -> None:
        lanes = c.live() if m is None else m
        votes = None if vote is None else vote(c)
        for n, lanes_of_n in warp_values(c, c.v[number], lanes, ins, "barriers"):
            for k, these in warp_values(c, c.v[count], lanes_of_n, ins, "counts"):
                c.wave.barriers.arrive_lanes(Arrival(c, these, n, k, ins, after, waits, votes, finish))

    return step


def reduction(b: Builder, ins: Instruction, operation: str) -> Step:
    """bar.red: every lane receives the reduction of the predicates of all lanes."""
    operands = list(ins.operands)
    p, negated = predicate(b, operands.pop())
    dst = b.dst(operands.pop(0), "u32" if operation == "popc" else "pred")

    def vote(c: WarpBatch) -> Array:
        return ~c.v[p] if negated else c.v[p]

    def finish(c: WarpBatch, mask: Array, true: Array, total: Array) -> None:
        result = true if operation == "popc" else true == total if operation == "and" else true > 0
        np.copyto(c.v[dst], result, where=mask, casting="unsafe")

    return arrival(b, ins, operands, True, vote, finish)
