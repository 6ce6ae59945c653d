"""Data-flow analysis: the registers that some path reads before it writes them, which need a check at run time."""

from __future__ import annotations

from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import Row
from ptxgen.emulator.ptx.syntax import Instruction


def unproven(
    code: list[Instruction],
    operands: list[tuple[int, int]],
    table: list[Row],
    starts: list[int],
    block_of: dict[int, int],
    registers: int,
) -> set[int]:
    """Slots of the registers that a path may read before an unconditional write.

    `operands`, `table`: for each instruction of `code`, the slots that it reads and writes as bit sets, and its row;
    `starts`: where basic blocks begin; `block_of`: the number of each block by its start; `registers`: their number.
    """
    blocks: list[tuple[list[tuple[int, int, bool]], list[int]]] = []
    ends = [*starts[1:], len(code)]
    count = len(starts)
    for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
        facts = []
        after = [n + 1] if n + 1 < count else []
        for i in range(start, end):
            ins, row = code[i], table[i]
            facts.append((*operands[i], ins.pred is not None))
            if row.kind == "branch":
                target = [block_of[ins.scope]]
                after = target + after if ins.pred is not None else target
            elif row.kind == "exit" and ins.pred is None:
                after = []
        blocks.append((facts, [a for a in after if a < count]))
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
    """Bit sets of the slots that an instruction, just compiled by a builder, reads and writes."""
    reads = writes = 0
    for r in (*b.reads, *b.quiet_reads):
        reads |= 1 << r.slot
    for r in (*b.writes, *b.quiet_writes):
        writes |= 1 << r.slot
    if ins.pred is not None:
        reads |= 1 << ins.pred.slot
    return reads, writes
