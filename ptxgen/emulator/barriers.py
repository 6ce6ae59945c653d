"""The named barriers of the blocks of a chunk: counted arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import BarrierFault

from .builder import fault

if TYPE_CHECKING:
    from .syntax import Instruction
    from .team import Chunk, Team

Array = NDArray[Any]
NUMBER = 16


class Waiting:
    """Warps of one team that stand at one barrier."""

    __slots__ = ("after", "blocks", "finish", "ins", "mask", "team")

    def __init__(self, team: Team, blocks: Array, mask: Array, after: int, finish: Any, ins: Instruction) -> None:
        self.team, self.blocks, self.mask, self.after, self.finish, self.ins = team, blocks, mask, after, finish, ins


class Barriers:
    """Arrivals at each of 16 barriers, one column a block.

    Counts are threads. A barrier without an explicit count expects the whole block, rounded up to
    warps; warps that have exited count as arrived.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        shape = (NUMBER, chunk.blocks)
        self.expected = np.zeros(shape, np.int32)  # 0: nobody has arrived; -1: the whole block
        self.arrived = np.zeros(shape, np.int32)
        self.given = np.zeros((NUMBER, len(chunk.teams), chunk.blocks), bool)
        self.waiting: list[list[Waiting]] = [[] for _ in range(NUMBER)]
        self.votes = np.zeros((NUMBER, 2, chunk.blocks), np.int32)  # lanes with a true predicate; lanes in all
        self.exited = np.zeros(chunk.blocks, np.int32)  # threads of warps that are gone
        self.whole = 32 * len(chunk.teams)

    def arrive(
        self, c: Team, mask: Any, number: int, count: int, ins: Instruction, after: int, *,
        waits: bool = True, votes: Array | None = None, finish: Any = None,
    ) -> None:  # fmt: skip
        """Whole warps arrive; lanes that wait come back at `after` when the barrier is complete.

        `count` 0 means the whole block. `finish(team, mask, true, total)` is called on release.
        """
        warps = c.warps(mask)
        lanes = c.live() if mask is None else mask
        if not 0 <= number < NUMBER:
            raise fault(BarrierFault, f"barrier {number} does not exist, there are 16", c, ins, int(np.argmax(lanes)))
        if count < 0 or count % 32:
            raise fault(BarrierFault, f"{count} threads is no multiple of the warp size", c, ins, int(np.argmax(lanes)))
        want = count or -1
        expected, arrived = self.expected[number], self.arrived[number]
        wrong = warps & (expected != 0) & (expected != want)
        if wrong.any():
            block = int(np.argmax(wrong))
            lane = 32 * block + int(np.argmax(lanes[32 * block : 32 * block + 32]))
            old = int(expected[block])
            raise fault(
                BarrierFault,
                f"barrier {number} is used for {count or self.whole} threads while others wait for "
                f"{old if old > 0 else self.whole}",
                c, ins, lane,
            )  # fmt: skip
        expected[warps] = want
        arrived[warps] += 32
        self.given[number][c.warp] |= warps
        c.chunk.engine.stats.barriers += int(np.count_nonzero(warps))
        if votes is not None:
            per_block = (votes & lanes).reshape(c.blocks, 32).sum(axis=1)
            self.votes[number][0] += per_block
            self.votes[number][1] += lanes.reshape(c.blocks, 32).sum(axis=1)
        c.chunk.checks.close(c)
        if waits:
            self.waiting[number].append(Waiting(c, warps.copy(), lanes, after, finish, ins))
        else:
            c.add(after, mask)
        self.complete(number)

    def complete(self, number: int) -> None:
        expected, arrived = self.expected[number], self.arrived[number]
        done = (expected > 0) & (arrived >= expected)
        done |= (expected == -1) & (arrived + self.exited >= self.whole)
        if not done.any():
            return
        engine = self.chunk.engine
        engine.progress += 1
        taken = np.zeros((len(self.chunk.teams), self.chunk.blocks), bool)
        left = []
        for w in self.waiting[number]:
            free = w.blocks & done
            if not free.any():
                left.append(w)
                continue
            taken[w.team.warp] |= free
            if free.all():
                mask = w.mask
            else:
                mask = w.mask & np.repeat(free, 32)
                w.blocks = w.blocks & ~done
                if w.blocks.any():
                    left.append(w)
                    w.mask = w.mask & ~mask
            if w.finish is not None:
                w.finish(w.team, mask, self.votes[number][0][w.team.row], self.votes[number][1][w.team.row])
            w.team.add(w.after, mask)
        self.waiting[number] = left
        given = self.given[number] & done
        self.chunk.checks.join(given, taken)
        self.given[number] &= ~done
        expected[done] = 0
        arrived[done] = 0
        self.votes[number][:, done] = 0

    def leave(self, blocks: Array) -> None:
        """One warp of each of these blocks has exited."""
        self.exited[blocks] += 32
        for number in range(NUMBER):
            if (self.expected[number] == -1).any():
                self.complete(number)
