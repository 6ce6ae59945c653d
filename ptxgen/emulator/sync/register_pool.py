"""The registers that setmaxnreg moves between warpgroups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.sync.happens_before import HappensBefore
from ptxgen.emulator.sync.warpgroup import WARPS
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault, suspect
from ptxgen.errors import DivergenceFault, Fault

Array = NDArray[Any]


class RegisterPool:
    """The number of registers of each thread of a warp, and the number of released registers of each block.

    All warps of a warpgroup must execute the same setmaxnreg, in the same order.
    """

    def __init__(self, wave: Wave, order: HappensBefore) -> None:
        shape = (len(wave.batches), wave.blocks)
        self.wave, self.order = wave, order
        self.counts = np.zeros(shape, np.int64)
        self.free = np.zeros(wave.blocks, np.int64)
        self.waiting: list[tuple[WarpBatch, Instruction, Array, int, int]] = []
        #: as [warp, block]: the number of setmaxnreg instructions that the warp has executed
        self.executed = np.zeros(shape, np.int64)
        #: (warp, block, n) -> the clock of the warp at its n-th setmaxnreg
        self.clock: dict[tuple[int, int, int], int] = {}
        #: (warpgroup, block, n) -> the warp that was first to execute the n-th setmaxnreg, and that instruction
        self.first: dict[tuple[int, int, int], tuple[WarpBatch, Instruction]] = {}

    def check_warpgroup(self, c: WarpBatch, ins: Instruction, lanes: Array) -> None:
        """Faults if the setmaxnreg of a warp differs from that of the other warps of its warpgroup; counts the
        instruction."""
        w, group = c.warp, c.warp // WARPS
        others = [v for v in range(WARPS * group, WARPS * group + WARPS) if v != w]
        for block in flatnonzero(c.warps(lanes)).tolist():
            number, lane = int(self.executed[w, block]), 32 * block
            first, other = self.first.setdefault((group, block, number), (c, ins))
            if (other.mods[0], other.operands) != (ins.mods[0], ins.operands):
                text = f"warp {first.warp} of the warpgroup executed another setmaxnreg (line {other.line}); "
                text += "all four warps must execute the same one"
                raise fault(DivergenceFault, text, c, ins, lane)
            if number and self.order.races and not self.ordered(w, block, number - 1, others):
                text = "nothing orders this setmaxnreg after the preceding one of the other warps of the warpgroup: "
                text += "a barrier must be between"
                suspect(DivergenceFault, text, c, ins, lane)
            self.executed[w, block] += 1
            self.clock[w, block, number] = int(self.order.clock_of(w)[block])
        exited = [~self.wave.batches[v].warps(None) for v in others]
        self.check_missing(group, c.warps(lanes), dict(zip(others, exited, strict=True)))

    def ordered(self, warp: int, block: int, number: int, others: list[int]) -> bool:
        """True if a warp is ordered after a setmaxnreg of other warps of its warpgroup."""
        known = self.order.clocks[warp, self.order.base[block] :, block]
        clocks = [self.clock.get((other, block, number)) for other in others]
        return all(clock is not None and known[o] >= clock for o, clock in zip(others, clocks, strict=True))

    def check_exit(self, c: WarpBatch, warps: Array) -> None:
        """Faults if a warp exits, in some blocks, before a setmaxnreg that another warp of its warpgroup has
        executed."""
        if self.first:
            self.check_missing(c.warp // WARPS, warps, {c.warp: warps})

    def check_missing(self, group: int, blocks: Array, ended: dict[int, Array]) -> None:
        """Faults if a warp has ended after fewer setmaxnreg instructions than another warp of its warpgroup has
        executed. ``ended``: the warps, each with the blocks in which it has ended."""
        executed = self.executed[WARPS * group : WARPS * group + WARPS]
        for warp, by_block in ended.items():
            for block in flatnonzero(blocks & by_block & (self.executed[warp] < executed.max(axis=0))).tolist():
                self.fail_missing(group, block, warp, "exits")

    def fail_missing(self, group: int, block: int, warp: int, verb: str) -> None:
        c, ins = self.first[group, block, int(self.executed[warp, block])]
        text = f"only part of a warpgroup executes this setmaxnreg: warp {warp} {verb} without it; "
        text += f"all four warps, {WARPS * group} to {WARPS * group + WARPS - 1}, must execute it"
        raise fault(DivergenceFault, text, c, ins, 32 * block)

    def check_stalled(self) -> None:
        """Faults if warps wait for registers while only a part of a warpgroup has executed a setmaxnreg."""
        for c, _, lanes, _, _ in self.waiting:
            for block in flatnonzero(c.warps(lanes)).tolist():
                for group in range(len(self.wave.batches) // WARPS):
                    executed = self.executed[WARPS * group : WARPS * group + WARPS, block]
                    if executed.min() < executed.max():
                        self.fail_missing(group, block, WARPS * group + int(executed.argmin()), "waits")

    def change(
        self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, count_after: int, grows: bool, entry: int
    ) -> None:
        self.check_warpgroup(c, ins, lanes)
        if not entry:  # ptxas too ignores setmaxnreg if the number at kernel entry is unknown
            c.add(after, lanes)
            return
        count = self.counts[c.warp]
        count[count == 0] = entry
        blocks = c.warps(lanes)
        bad = blocks & ((count > count_after) if grows else (count < count_after))
        if any_true(bad):
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
        if any_true(satisfied):
            c.add(after, lanes & np.repeat(satisfied, 32))
        if any_true(blocks & ~satisfied):
            self.waiting.append((c, ins, lanes & ~np.repeat(satisfied, 32), after, count_after))

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        return [
            (c, ins, lanes, "waits for registers that another warpgroup releases")
            for c, ins, lanes, _, _ in self.waiting
        ]
