"""The registers that setmaxnreg moves between warpgroups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.warp_batch import WarpBatch, fault
from ptxgen.errors import Fault

Array = NDArray[Any]


class RegisterPool:
    """The registers of each thread of a warp, and the released registers of each block."""

    def __init__(self, warps: int, blocks: int) -> None:
        self.counts = np.zeros((warps, blocks), np.int64)
        self.free = np.zeros(blocks, np.int64)
        self.waiting: list[tuple[WarpBatch, Instruction, Array, int, int]] = []

    def change(
        self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, count_after: int, grows: bool, entry: int
    ) -> None:
        if not entry:  # ptxas too ignores setmaxnreg if the number at kernel entry is unknown
            c.add(after, lanes)
            return
        count = self.counts[c.warp]
        count[count == 0] = entry
        blocks = c.warps(lanes)
        bad = blocks & ((count > count_after) if grows else (count < count_after))
        if bad.any():
            current = int(count[np.argmax(bad)])
            text = f"setmaxnreg.{ins.mods[0]} to {count_after} registers of a warp that has {current}"
            raise fault(Fault, text, c, ins, 32 * int(np.argmax(bad)))
        if not grows:
            self.free[blocks] += count[blocks] - count_after
            count[blocks] = count_after
            c.wave.engine.progress += 1
            c.add(after, lanes)
            waiting, self.waiting = self.waiting, []
            for batch, other, mask, then, count_after in waiting:
                self.take(batch, other, mask, then, count_after)
            return
        self.take(c, ins, lanes, after, count_after)

    def take(self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, count_after: int) -> None:
        count = self.counts[c.warp]
        blocks = c.warps(lanes)
        satisfied = blocks & (self.free >= count_after - count)
        self.free[satisfied] -= count_after - count[satisfied]
        count[satisfied] = count_after
        if satisfied.any():
            c.add(after, lanes & np.repeat(satisfied, 32))
        if (blocks & ~satisfied).any():
            self.waiting.append((c, ins, lanes & ~np.repeat(satisfied, 32), after, count_after))

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        return [
            (c, ins, lanes, "waits for registers that another warpgroup releases")
            for c, ins, lanes, _, _ in self.waiting
        ]
