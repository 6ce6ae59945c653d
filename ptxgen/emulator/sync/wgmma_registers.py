"""The register sets of wgmma instructions: accumulators, and fragments of A."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction, Reg, Vec
from ptxgen.emulator.reductions import any_true
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import AsyncFault

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None


class RegisterSets:
    """The register sets of one program, by number.

    ``rows``: for each accumulator, its rows in the register file; ``overlaps``: for each set, the sets that share
    registers with it; ``of``: slot of a register -> the sets that contain it.
    """

    def __init__(self, code: list[Instruction]) -> None:
        self.numbers: dict[frozenset[int], int] = {}
        self.rows: dict[int, Array] = {}
        self.overlaps: list[list[int]] = []
        self.of: dict[int, list[int]] = {}
        for ins in code:
            if ins.op == "wgmma" and ins.mods[:1] == ("mma_async",):
                for op in ins.operands[:2]:
                    if isinstance(op, Vec):
                        self.number([r for r in op.items if isinstance(r, Reg)])

    def number(self, registers: list[Reg]) -> int:
        slots = frozenset(r.slot for r in registers)
        number = self.numbers.get(slots)
        if number is None:
            number = self.numbers[slots] = len(self.numbers)
            self.overlaps.append([i for s, i in self.numbers.items() if s & slots and i != number])
            for other in self.overlaps[number]:
                self.overlaps[other].append(number)
            for slot in slots:
                self.of.setdefault(slot, []).append(number)
        return number

    def watch(self, registers: list[Reg], ins: Instruction) -> list[Step]:
        """The steps that check and record the accesses of an instruction to registers of the sets."""
        if not self.numbers or ins.op == "wgmma":
            return []
        return [self.check_access(self.of[r.slot], r.name, ins) for r in dict.fromkeys(registers) if r.slot in self.of]

    @staticmethod
    def check_access(sets: list[int], name: str, ins: Instruction) -> Step:
        """A step that faults if a product in flight uses a register of these sets, and records the access."""

        def step(c: WarpBatch, m: Mask) -> None:
            if c.busy_registers:
                for number in sets:
                    check_not_busy(c, number, m, ins, name)
            touched = c.touched_registers
            blocks = True if m is None else c.warps(m)
            for number in sets:
                touched[number] = touched[number] | blocks if number in touched else blocks

        return step


def check_not_busy(c: WarpBatch, number: int, m: Any, ins: Instruction, name: str) -> None:
    """Faults if a product in flight uses the registers of a set that an instruction accesses."""
    busy = c.busy_registers.get(number)
    if busy is not None:
        bad = busy & c.warps(m)
        if any_true(bad):
            lane = 32 * int(np.argmax(bad))
            raise fault(
                AsyncFault, f"{name} belongs to a wgmma in flight: wgmma.wait_group must come first", c, ins, lane
            )
