"""The named barriers (bar, barrier) of the blocks of a wave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, count_nonzero, flatnonzero
from ptxgen.emulator.warp_batch import WarpBatch, Wave, any_lane, fault
from ptxgen.errors import BarrierFault

Array = NDArray[Any]


#: barriers of a block
NUMBER = 16


@dataclass(slots=True, eq=False)
class Arrival:
    """Lanes of one warp batch that have arrived at one barrier.

    ``count``: the number of threads of the barrier, 0 for the whole block. ``waits``: True if the lanes continue, at
    ``after``, only when the barrier completes; False: they continue at once. ``finish(batch, mask, true, total)`` is
    called at completion with the number of true ``votes`` and the number of lanes.
    """

    batch: WarpBatch
    mask: Array
    number: int
    count: int
    ins: Instruction
    after: int
    waits: bool = True
    votes: Array | None = None
    finish: Callable[[WarpBatch, Array, Array, Array], None] | None = None

    def split(self, lanes: Array) -> Arrival | None:
        """Moves some lanes to a new arrival; None if it would have no lane."""
        mask = self.mask & lanes
        if not any_true(mask):
            return None
        self.mask = self.mask & ~lanes
        return Arrival(
            self.batch, mask, self.number, self.count, self.ins, self.after, self.waits, self.votes, self.finish
        )


class Barriers:
    """Arrivals at each of the 16 barriers of a block; arrays have one column per block.

    Counts are numbers of threads. A barrier without an explicit count expects the whole block, rounded up to warps;
    warps that have exited count as arrived.
    """

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        shape = (NUMBER, wave.blocks)
        self.expected = np.zeros(shape, np.int32)  # 0: no arrivals yet; -1: the whole block
        self.arrived = np.zeros(shape, np.int32)
        self.releasing = np.zeros((NUMBER, len(wave.batches), wave.blocks), bool)
        self.waiting: list[list[Arrival]] = [[] for _ in range(NUMBER)]
        #: for each barrier: the clocks of arrivals without a wait, their blocks, and the blocks that have yet to
        #: acquire the clocks
        self.released: list[list[tuple[Any, Array, Array]]] = [[] for _ in range(NUMBER)]
        #: lanes that wait for the other lanes of their warp, by barrier and warp
        self.pending: dict[tuple[int, int], list[Arrival]] = {}
        self.votes = np.zeros((NUMBER, 2, wave.blocks), np.int32)  # lanes with a true predicate; all lanes
        #: for each barrier with a count, as [warp, block]: the clocks of the last arrivals, the warps that have
        #: arrived, and the warps of the last use
        self.uses: dict[int, tuple[Array, Array, Array]] = {}
        self.arrived_at: dict[int, Array] = {}  # by instruction: the warps that have arrived at it
        self.exited = np.zeros(wave.blocks, np.int32)  # threads of warps that have exited
        self.whole = 32 * len(wave.batches)

    def arrive_lanes(self, arrival: Arrival) -> None:
        """Lanes arrive at a barrier. Their warp arrives once all its lanes have arrived, at any instruction."""
        c, mask, lane = arrival.batch, arrival.mask, int(np.argmax(arrival.mask))
        if not 0 <= arrival.number < NUMBER:
            raise fault(BarrierFault, f"barrier {arrival.number} does not exist, there are 16", c, arrival.ins, lane)
        if arrival.count < 0 or arrival.count % 32:
            message = f"the count is {arrival.count} threads, not a multiple of the warp size"
            raise fault(BarrierFault, message, c, arrival.ins, lane)
        key = arrival.number, c.warp
        warps = any_lane(mask)
        if key not in self.pending and not any_true(warps & any_lane(c.live() & ~mask)):
            self.arrive(warps, [arrival])
            return
        self.pending.setdefault(key, []).append(arrival)
        self.arrive_complete_warps(c)

    def arrive_complete_warps(self, c: WarpBatch) -> None:
        """Completes the arrivals of warps whose live lanes are all at one barrier."""
        live = c.live().reshape(-1, 32)
        for key in [k for k in self.pending if k[1] == c.warp]:
            arrivals = self.pending[key]
            here = np.logical_or.reduce([p.mask for p in arrivals]).reshape(-1, 32)
            complete = here.any(axis=1) & ~(live & ~here).any(axis=1)
            if not any_true(complete):
                continue
            ready = [p for p in (arrival.split(np.repeat(complete, 32)) for arrival in arrivals) if p is not None]
            self.pending[key] = [p for p in arrivals if any_true(p.mask)]
            if not self.pending[key]:
                del self.pending[key]
            self.arrive(complete, ready)

    def arrive(self, warps: Array, arrivals: list[Arrival]) -> None:
        """The warps of some blocks arrive; ``arrivals``: their lanes, at one or several instructions."""
        c, number = arrivals[0].batch, arrivals[0].number
        expected, arrived = self.expected[number], self.arrived[number]
        for p in arrivals:
            mine = warps if len(arrivals) == 1 else c.warps(p.mask)
            want = p.count or -1
            arrived_at = self.arrived_at.get(id(p.ins))
            if arrived_at is None:
                arrived_at = np.zeros((len(self.wave.batches), self.wave.blocks), bool)
                self.arrived_at[id(p.ins)] = arrived_at
            arrived_at[c.warp] |= mine
            wrong = mine & (expected != 0) & (expected != want)
            if any_true(wrong):
                block = int(np.argmax(wrong))
                lane = 32 * block + int(np.argmax(p.mask[32 * block : 32 * block + 32]))
                old = int(expected[block])
                raise fault(
                    BarrierFault,
                    f"barrier {number} is used for {p.count or self.whole} threads while others wait for "
                    f"{old if old > 0 else self.whole}",
                    c,
                    p.ins,
                    lane,
                )
            expected[mine] = want
            if p.votes is not None:
                self.votes[number][0] += (p.votes & p.mask).reshape(c.blocks, 32).sum(axis=1)
                self.votes[number][1] += p.mask.reshape(c.blocks, 32).sum(axis=1)
        arrived[warps] += 32
        c.wave.engine.stats.barriers += count_nonzero(warps)
        c.wave.checks.close(c)
        if c.wave.checks.races and arrivals[0].count:
            if number not in self.uses:
                clocks = np.zeros((len(self.wave.batches), self.wave.blocks), np.int32)
                self.uses[number] = clocks, clocks != 0, clocks != 0
            clocks, present, _ = self.uses[number]
            clocks[c.warp, warps] = c.wave.checks.clock_of(c.warp)[warps] - 1
            present[c.warp] |= warps
        continues = np.zeros_like(warps)
        for p in arrivals:
            if p.waits:
                self.waiting[number].append(p)
            else:
                continues |= c.warps(p.mask)
                c.add(p.after, p.mask)
        self.releasing[number][c.warp] |= warps & ~continues
        if not all_true(continues):
            c.wave.checks.synchronise_warps(c, warps & ~continues)
        if any_true(continues):
            blocks = flatnonzero(continues)
            self.released[number].append((c.wave.checks.release_clocks(c, blocks), blocks, continues))
        self.complete(number)

    def complete(self, number: int) -> None:
        """Completes a barrier in the blocks in which all expected threads have arrived."""
        expected, arrived = self.expected[number], self.arrived[number]
        done = (expected > 0) & (arrived >= expected)
        done |= (expected == -1) & (arrived + self.exited >= self.whole)
        if not any_true(done):
            return
        if self.wave.checks.races:
            self.check_same_iteration(number, done)
            if number in self.uses:
                self.check_same_warps(number, done)
            if any_true(self.exited[done]):
                self.check_exited_warps(number, done & (expected == -1))
        self.wave.engine.progress += 1
        acquiring = np.zeros((len(self.wave.batches), self.wave.blocks), bool)
        lanes = np.repeat(done, 32)
        true, total = self.votes[number]
        for w in self.waiting[number]:
            released_lanes = w.split(lanes)
            if released_lanes is None:
                continue
            acquiring[w.batch.warp] |= w.batch.warps(released_lanes.mask)
            if w.finish is not None:
                w.finish(w.batch, released_lanes.mask, true[w.batch.row], total[w.batch.row])
            w.batch.add(w.after, released_lanes.mask)
        self.waiting[number] = [w for w in self.waiting[number] if any_true(w.mask)]
        checks = self.wave.checks
        checks.synchronise_clocks(self.releasing[number] & done, acquiring)
        for released, blocks, pending in self.released[number]:
            checks.acquire_clocks(acquiring & pending, released, blocks)
            pending &= ~done
        self.released[number] = [t for t in self.released[number] if any_true(t[2])]
        self.releasing[number] &= ~done
        expected[done] = 0
        arrived[done] = 0
        self.votes[number][:, done] = 0

    def check_same_iteration(self, number: int, done: Array) -> None:
        """Faults if warps of a block arrive at one instruction in different iterations of the loop around it."""
        loops = self.wave.program.loops
        arrivals = [p for p in self.waiting[number] if id(p.ins) in loops]
        for ins in {id(p.ins): p.ins for p in arrivals}.values():
            low, high = np.full(self.wave.blocks, 1 << 30), np.zeros(self.wave.blocks, np.int64)
            for p in arrivals:
                if p.ins is ins:
                    iterations = p.batch.iterations[loops[id(ins)]]
                    low = np.minimum(low, np.where(p.mask, iterations, 1 << 30).reshape(-1, 32).min(axis=1))
                    high = np.maximum(high, np.where(p.mask, iterations, 0).reshape(-1, 32).max(axis=1))
            bad = done & (high > low)
            if any_true(bad):
                block = int(np.argmax(bad))
                for p in arrivals:
                    late = p.mask & (p.batch.iterations[loops[id(ins)]] == high[block]) & (p.batch.row == block)
                    if p.ins is ins and any_true(late):
                        text = f"threads of one block arrive at barrier {number} in iterations {low[block]} and "
                        text += f"{high[block]} of the loop around it: some threads skip it in an iteration"
                        raise fault(BarrierFault, text, p.batch, ins, int(np.argmax(late)))

    def check_same_warps(self, number: int, done: Array) -> None:
        """Faults if a barrier with a count completes with other warps than at its last use, and nothing orders the two
        uses."""
        checks, (clocks, present, last) = self.wave.checks, self.uses[number]
        for block in flatnonzero(done & last.any(axis=0) & ~(present & last).any(axis=0)).tolist():
            before = flatnonzero(last[:, block])
            for p in self.waiting[number]:
                lanes = p.mask[32 * block : 32 * block + 32]
                known = checks.clocks[p.batch.warp, checks.base[block] + before, block]
                if any_true(lanes) and any_true(known < clocks[before, block]):
                    text = (
                        f"barrier {number} was used by other warps ({', '.join(map(str, before))}) before, and nothing "
                    )
                    text += "orders this arrival after that: the arrivals of both uses could count together"
                    raise fault(BarrierFault, text, p.batch, p.ins, 32 * block + int(np.argmax(lanes)))
        last[:, done] = present[:, done]
        present[:, done] = False

    def check_exited_warps(self, number: int, done: Array) -> None:
        """Faults if a warp arrives at a barrier again, and another warp that had arrived there has exited."""
        exited = ~np.stack([t.warps(None) for t in self.wave.batches])
        for p in self.waiting[number]:
            bad = (self.arrived_at[id(p.ins)] & exited).any(axis=0) & done & p.batch.warps(p.mask)
            if any_true(bad):
                block = int(np.argmax(bad))
                warp = int(np.argmax((self.arrived_at[id(p.ins)] & exited)[:, block]))
                text = f"warp {p.batch.warp} arrives at barrier {number} again, and warp {warp}, which had arrived "
                text += "there, has exited: the warps arrive different numbers of times"
                raise fault(BarrierFault, text, p.batch, p.ins, 32 * block + int(np.argmax(p.mask[32 * block :])))

    def warps_exited(self, blocks: Array) -> None:
        """One warp of each of these blocks has exited."""
        self.exited[blocks] += 32
        for number in flatnonzero((self.expected == -1).any(axis=1)).tolist():
            self.complete(number)
