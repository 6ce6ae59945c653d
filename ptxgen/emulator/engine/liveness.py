"""Data-flow analysis: registers that some path reads before it writes them, and registers that no path reads again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import Row
from ptxgen.emulator.ptx.syntax import Instruction, Operand, Reg


def unproven(
    code: list[Instruction],
    operands: list[tuple[int, int]],
    table: list[Row],
    starts: list[int],
    block_of: dict[int, int],
    registers: int,
) -> set[int]:
    """The slots of the registers that some path may read before an unconditional write, as bits.

    ``operands``: for each instruction of ``code``, the slots that it reads and the slots that it writes, as bit sets;
    ``table``: the row of each instruction; ``starts``: the first instructions of basic blocks; ``block_of``: the number
    of the block that begins at an instruction; ``registers``: the number of slots.
    """
    ends = [*starts[1:], len(code)]
    count = len(starts)
    successors = blocks_after(code, table, starts, block_of)
    blocks = [
        ([(*operands[i], code[i].pred is not None) for i in range(start, end)], after)
        for start, end, after in zip(starts, ends, successors, strict=True)
    ]
    everything = (1 << registers) - 1
    inward = [everything] * count
    inward[0] = 0
    outward = [everything] * count
    work = list(range(count))
    before: list[list[int]] = [[] for _ in range(count)]
    for n, (_, after) in enumerate(blocks):
        for a in after:
            before[a].append(n)
    while work:
        n = work.pop(0)
        known = 0 if n == 0 else everything
        for p in before[n]:
            known &= outward[p]
        if n == 0:
            known = 0
        inward[n] = known
        for _, writes, conditional in blocks[n][0]:
            if not conditional:
                known |= writes
        if known != outward[n]:
            outward[n] = known
            for a in blocks[n][1]:
                if a not in work:
                    work.append(a)
    maybe_undefined = 0
    for n, (facts, _) in enumerate(blocks):
        known = inward[n]
        for reads, writes, conditional in facts:
            maybe_undefined |= reads & ~known
            if not conditional:
                known |= writes
    return {slot for slot in range(registers) if maybe_undefined >> slot & 1}


def operands_of(b: Builder, ins: Instruction) -> tuple[int, int]:
    """The pair of bit sets (slots that an instruction reads, slots that it writes), which the builder has just
    compiled."""
    reads = writes = 0
    for r in (*b.reads, *b.quiet_reads):
        reads |= 1 << r.slot
    for r in (*b.writes, *b.quiet_writes):
        writes |= 1 << r.slot
    if ins.pred is not None:
        reads |= 1 << ins.pred.slot
    return reads, writes


def blocks_after(
    code: list[Instruction], table: list[Row], starts: list[int], block_of: dict[int, int]
) -> list[list[int]]:
    """For each basic block, the numbers of the blocks that may follow it."""
    count = len(starts)
    out = []
    for n, end in enumerate([*starts[1:], len(code)]):
        after = [n + 1]
        ins, row = code[end - 1], table[end - 1]
        if row.execution == "branch":
            target = [block_of[ins.scope]]
            after = target + after if ins.pred is not None else target
        elif row.execution == "exit" and ins.pred is None:
            after = []
        out.append([a for a in after if a < count])
    return out


def registers_in(operands: Iterable[Operand]) -> Iterator[int]:
    """The slots of the registers that operands name, as often as they are named."""
    for op in operands:
        if isinstance(op, Reg):
            yield op.slot
        else:
            parts = (getattr(op, name, None) for name in ("reg", "base", "coords", "first", "second"))
            yield from registers_in(part for part in parts if part is not None)
            yield from registers_in(getattr(op, "items", ()))


class Liveness:
    """The registers whose values a later instruction of the same thread may use.

    ``bodies``: for each instruction a dictionary with ``ins``, and ``reads`` and ``writes`` by slot. A register that an
    instruction names more often than it writes counts as used, even if the instruction does not report a read.
    """

    def __init__(
        self, bodies: list[dict[str, Any]], table: list[Row], starts: list[int], block_of: dict[int, int]
    ) -> None:
        self.facts = [self.facts_of(body) for body in bodies]
        self.starts, self.ends = starts, [*starts[1:], len(bodies)]
        after = blocks_after([body["ins"] for body in bodies], table, starts, block_of)
        before: list[list[int]] = [[] for _ in starts]
        for n, following in enumerate(after):
            for other in following:
                before[other].append(n)
        #: basic block -> the slots in use at its end, as bits
        self.at_end = [0] * len(starts)
        inward = [0] * len(starts)
        work = list(range(len(starts)))
        while work:
            n = work.pop()
            live = 0
            for other in after[n]:
                live |= inward[other]
            self.at_end[n] = live
            live = self.backward(live, self.starts[n], self.ends[n])
            if live != inward[n]:
                inward[n] = live
                work += [b for b in before[n] if b not in work]

    @staticmethod
    def facts_of(body: dict[str, Any]) -> tuple[int, int]:
        """The pair of bit sets (slots that an instruction uses, slots that it certainly overwrites)."""
        ins = body["ins"]
        once = dict.fromkeys(body["writes"], 1)
        uses = writes = 0
        for slot in body["reads"]:
            uses |= 1 << slot
        for slot in registers_in(ins.operands):
            if once.pop(slot, 0) == 0:
                uses |= 1 << slot
        if ins.pred is not None:
            return uses | 1 << ins.pred.slot, 0
        for slot in body["writes"]:
            writes |= 1 << slot
        return uses, writes

    def backward(self, live: int, start: int, end: int) -> int:
        """The slots in use before instruction ``start``, computed from ``live``, those in use after instruction ``end``
        - 1."""
        for i in range(end - 1, start - 1, -1):
            uses, writes = self.facts[i]
            live = live & ~writes | uses
        return live

    def after(self, block: int, instruction: int) -> int:
        """The slots in use after an instruction of a basic block, as bits."""
        return self.backward(self.at_end[block], instruction + 1, self.ends[block])
