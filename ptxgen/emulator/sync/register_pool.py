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
    """The registers that each thread of a warp has, and the registers of a block that are free."""

    def __init__(self, warps: int, blocks: int) -> None:
        self.own = np.zeros((warps, blocks), np.int64)
        self.free = np.zeros(blocks, np.int64)
        self.waiting: list[tuple[WarpBatch, Instruction, Array, int, int]] = []

    def change(
        self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, wanted: int, grows: bool, entry: int
    ) -> None:
        if not entry:  # as ptxas, which ignores setmaxnreg if the number is unknown
            c.add(after, lanes)
            return
        own = self.own[c.warp]
        own[own == 0] = entry
        blocks = c.warps(lanes)
        bad = blocks & ((own > wanted) if grows else (own < wanted))
        if bad.any():
            have = int(own[np.argmax(bad)])
            text = f"setmaxnreg.{ins.mods[0]} to {wanted} registers of a warp that has {have}"
            raise fault(Fault, text, c, ins, 32 * int(np.argmax(bad)))
        if not grows:
            self.free[blocks] += own[blocks] - wanted
            own[blocks] = wanted
            c.chunk.engine.progress += 1
            c.add(after, lanes)
            waiting, self.waiting = self.waiting, []
            for batch, other, mask, then, more in waiting:
                self.take(batch, other, mask, then, more)
            return
        self.take(c, ins, lanes, after, wanted)

    def take(self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, wanted: int) -> None:
        own = self.own[c.warp]
        blocks = c.warps(lanes)
        good = blocks & (self.free >= wanted - own)
        self.free[good] -= wanted - own[good]
        own[good] = wanted
        if good.any():
            c.add(after, lanes & np.repeat(good, 32))
        if (blocks & ~good).any():
            self.waiting.append((c, ins, lanes & ~np.repeat(good, 32), after, wanted))

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        return [
            (c, ins, lanes, "waits for registers that another warpgroup releases")
            for c, ins, lanes, _, _ in self.waiting
        ]
