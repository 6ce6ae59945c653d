"""The mbarrier objects of a chunk: phases, pending arrivals and transactions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.sync.async_copies import retire
from ptxgen.emulator.sync.cluster_barrier import ClusterBarrier
from ptxgen.emulator.sync.events import Events
from ptxgen.emulator.sync.happens_before import HappensBefore, Known
from ptxgen.emulator.sync.touch import PAGE
from ptxgen.emulator.warp_batch import Chunk, WarpBatch, fault
from ptxgen.errors import BarrierFault, RaceFault

Array = NDArray[Any]


#: largest count of arrivals, and largest number of bytes either way
LIMIT = (1 << 20) - 1


#: a state that an arrival returns: this bit, the phase, and 20 bits of the arrivals that were pending before
TOKEN = 1 << 63


class Sleeper:
    """Lanes of one warp batch that a try_wait has put to sleep, each at a row and a phase."""

    __slots__ = ("after", "batch", "ins", "lanes", "phases", "ready", "rows")

    def __init__(
        self, batch: WarpBatch, ins: Instruction, lanes: Array, rows: Array, phases: Array, ready: int, after: int
    ) -> None:
        self.batch, self.ins, self.lanes, self.rows = batch, ins, lanes, rows
        self.phases, self.ready, self.after = phases, ready, after

    def wake(self, which: Array, answer: bool) -> None:
        """Some lanes continue with an answer."""
        lanes = self.lanes[which]
        mask = np.zeros(self.batch.n, bool)
        mask[lanes] = True
        self.batch.v[self.ready][lanes] = answer
        self.batch.add(self.after, mask)
        self.lanes, self.rows, self.phases = self.lanes[~which], self.rows[~which], self.phases[~which]


class Mbarriers:
    """One row for each object: phase, pending and expected arrivals, pending bytes, the clocks that a wait acquires."""

    def __init__(self, chunk: Chunk, order: HappensBefore, events: Events) -> None:
        self.chunk, self.order, self.events = chunk, order, events
        self.rows = np.zeros(len(chunk.shared) >> 3, np.int32)  # of each 8-byte word; 0: no object
        self.count = 1
        self.births = 0
        self.sleepers: list[Sleeper] = []
        self.cluster: ClusterBarrier | None = None
        self.refused: set[tuple[int, int]] = set()
        self.stuck_at = -1  # the engine's progress at the last stall
        self.tracked: dict[int, list[tuple[WarpBatch, Array, int]]] = {}
        self.grow(64)
        events.barriers = lambda words: self.rows[words] != 0
        events.forgetting.append(self.forget)

    def grow(self, size: int) -> None:
        actors = self.order.actors

        def bigger(name: str, kind: Any, *shape: int) -> None:
            new = np.zeros((size, *shape), kind)
            old = getattr(self, name, None)
            if old is not None:
                new[: len(old)] = old
            setattr(self, name, new)

        self.word: Array
        self.phase: Array
        self.pending: Array
        self.expected: Array
        self.bytes: Array
        self.birth: Array
        self.maker: Array
        self.lane: Array
        self.now_lanes: Array
        self.done_lanes: Array
        self.made: Array
        self.stage: Array
        self.now: Array
        self.now_fenced: Array
        self.now_events: Array
        self.done: Array
        self.done_fenced: Array
        self.done_events: Array
        # who initialised it: actor, its clock, and the phase of the cluster's barrier that comes after (-1: unfenced)
        for name in ("word", "phase", "pending", "expected", "bytes", "birth", "maker", "lane", "made", "stage"):
            bigger(name, np.int64)
        for name in ("now", "done"):
            bigger(name, np.int32, actors)
        for name in ("now_fenced", "done_fenced"):
            bigger(name, np.int32, 2 * actors)
        for name in ("now_lanes", "done_lanes"):  # of each warp, those that have arrived
            bigger(name, np.uint32, actors)
        for name in ("now_events", "done_events"):
            bigger(name, np.uint64)

    def forget(self, bit: np.uint64) -> None:
        self.now_events &= ~bit
        self.done_events &= ~bit

    # ---- making and finding them

    def fail(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, bad: Array, message: str) -> BarrierFault:
        i = int(np.argmax(bad))
        out = fault(BarrierFault, message, c, ins, int(lanes[i]), int(at[i]) % self.chunk.stride)
        assert isinstance(out, BarrierFault)
        return out

    def init(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, counts: Array) -> None:
        words = at >> 3
        bad = (counts < 1) | (counts > LIMIT)
        if bad.any():
            raise self.fail(
                c, ins, lanes, at, bad, f"a count of {int(counts[np.argmax(bad)])}; 1 to {LIMIT} are possible"
            )
        bad = self.rows[words] != 0
        if bad.any():
            raise self.fail(
                c, ins, lanes, at, bad, "an mbarrier object is initialised again, without mbarrier.inval before"
            )
        if len(np.unique(words)) != len(words):
            raise self.fail(c, ins, lanes, at, np.ones(1, bool), "two lanes initialise one mbarrier object")
        n = len(lanes)
        while self.count + n > len(self.word):
            self.grow(2 * len(self.word))
        rows = np.arange(self.count, self.count + n)
        self.count += n
        self.births += 1
        self.rows[words] = rows
        self.word[rows] = words
        self.phase[rows] = self.bytes[rows] = 0
        self.pending[rows] = self.expected[rows] = counts
        self.birth[rows] = self.births
        blocks = lanes >> 5
        self.maker[rows] = self.order.base[blocks] + c.warp
        self.lane[rows] = lanes & 31
        self.made[rows] = self.order.own(c.warp)[blocks]
        self.stage[rows] = -1
        for page in np.unique(at % self.chunk.stride >> PAGE).tolist():
            self.events.barrier_pages |= 1 << page

    def invalidate(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> None:
        self.find(c, ins, lanes, at)
        self.rows[at >> 3] = 0

    def find(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> Array:
        """Rows of the objects at some positions."""
        rows: Array = self.rows[at >> 3]
        if not rows.all():
            raise self.fail(
                c, ins, lanes, at, rows == 0, "the address holds no mbarrier object: execute mbarrier.init first"
            )
        return rows

    def publish(self, c: WarpBatch, blocks: Array) -> None:
        """A fence of warp `c` after its initialisations: its next arrival at the cluster barrier publishes them."""
        rows = np.arange(1, self.count)
        block = self.word[rows] * 8 // self.chunk.stride
        mine = (self.stage[rows] < 0) & (self.maker[rows] == self.order.base[block] + c.warp) & np.isin(block, blocks)
        cluster = self.cluster
        assert cluster is not None
        self.stage[rows[mine]] = cluster.arrivals[c.warp, block[mine]]

    def check_initialised(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array) -> None:
        """Faults where an object is used, and nothing orders that after its initialisation by another thread."""
        order, blocks = self.order, lanes >> 5
        if not order.races:
            return
        cluster = self.cluster
        assert cluster is not None
        maker, made = self.maker[rows], self.made[rows]
        known = order.clocks[c.warp][maker, blocks] >= made
        known |= (self.stage[rows] >= 0) & (cluster.waits[:, blocks].max(axis=0) > self.stage[rows])
        mine = np.flatnonzero((maker == (order.base + c.warp)[blocks]) & (self.lane[rows] != lanes & 31))
        known[mine] = order.lanes[c.warp].knows(lanes[mine], self.lane[rows[mine]], made[mine])
        if not known.all():
            i = int(np.argmin(known))
            whose = "another block" if at[i] // self.chunk.stride != blocks[i] else "another warp"
            text = f"an mbarrier object of {whose} is used, and nothing orders that after its initialisation"
            if i in mine:
                text = f"an mbarrier object that lane {int(self.lane[rows[i]])} of the same warp initialised is used, "
                text += "with no bar.warp.sync between"
            raise fault(RaceFault, text, c, ins, int(lanes[i]), int(at[i]) % self.chunk.stride)

    def check_arrival_order(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, together: bool = False
    ) -> None:
        """Faults at arrivals that nothing orders after the phase before: they could have counted for that one.

        Only arrivals of the block's own warps are looked at: the bytes of copies between blocks order arrivals too, and
        carry no clocks. `together`: the lanes belong to an instruction that completed the phase, which is allowed.
        """
        order, w = self.order, c.warp
        late = np.flatnonzero((self.phase[rows] > 0) & (at // self.chunk.stride == lanes >> 5))
        if not len(late) or not order.races:
            return
        rows, some = rows[late], lanes[late]
        blocks, number = some >> 5, np.arange(len(late))
        own = order.base[blocks] + w
        known = np.maximum(order.clocks[w][:, blocks], order.pending.clocks[w][:, blocks]).T
        missing = self.done[rows] > known
        missing &= (np.arange(order.actors) - order.base[blocks][:, None]) // order.warp_count == 0
        alone = self.done_lanes[rows, own] & ~(np.uint32(1) << (some & 31).astype(np.uint32)) == 0
        among = np.maximum(order.lanes[w].every[some], order.pending.clocks[w][own, blocks]) >= self.done[rows, own]
        missing[number, own] = ~(alone | among) & (order.lanes[w].each is None) & (not together)
        bad = missing.any(axis=1)
        if bad.any():
            i = int(np.argmax(bad))
            text = (
                f"an arrival too many, or too early, at an mbarrier object: phase {int(self.phase[rows[i]]) - 1} has "
            )
            text += "completed, and nothing orders this arrival after that"
            raise self.fail(c, ins, lanes, at, np.arange(len(lanes)) == late[i], text)

    # ---- counting

    def arrive(
        self,
        c: WarpBatch,
        ins: Instruction,
        lanes: Array,
        at: Array,
        counts: Array,
        *,
        expect: Array | None = None,
        drop: bool = False,
        complete: bool = True,
        released: Known | None = None,
    ) -> Array:
        """Arrivals, lane after lane; the states before them. ``released``: what they tell, by lane."""
        rows = self.find(c, ins, lanes, at)
        self.check_initialised(c, ins, lanes, at, rows)
        self.check_arrival_order(c, ins, lanes, at, rows)
        bad = (counts < 1) | (counts > LIMIT)
        if bad.any():
            raise self.fail(
                c, ins, lanes, at, bad, f"a count of {int(counts[np.argmax(bad)])}; 1 to {LIMIT} are possible"
            )
        if released is not None:
            np.maximum.at(self.now, rows, released.clocks.T)
            np.maximum.at(self.now_fenced, rows, released.fenced.T)
            np.bitwise_or.at(self.now_events, rows, released.events)
            actors = self.order.base[lanes >> 5] + c.warp
            np.bitwise_or.at(self.now_lanes, (rows, actors), np.uint32(1) << (lanes & 31).astype(np.uint32))
        if expect is not None:
            np.add.at(self.bytes, rows, expect)
            self.check_limit(c, ins, lanes, at, rows)
        unique, which = np.unique(rows, return_inverse=True)
        total = np.bincount(which, counts).astype(np.int64)
        pending = self.pending[unique]
        if (total <= pending).all():
            order = np.argsort(which, kind="stable")
            sums = np.cumsum(counts[order])
            start = np.flatnonzero(np.diff(which[order], prepend=-1))
            before = sums - counts[order] - np.repeat((sums - counts[order])[start], np.diff([*start, len(order)]))
            left = np.empty(len(rows), np.int64)
            left[order] = pending[which[order]] - before
            tokens = self.phase[rows] << 20 | left
            self.pending[unique] = pending - total
            if drop:
                self.expected[unique] -= total
            self.complete_due_phases(c, ins, lanes, at, unique, complete)
            return tokens.astype(np.uint64) | np.uint64(TOKEN)
        tokens = np.empty(len(rows), np.int64)  # some complete a phase on the way
        for i, row in enumerate(rows.tolist()):
            if i:
                self.check_arrival_order(c, ins, lanes[i : i + 1], at[i : i + 1], np.array([row]), True)
            n = int(counts[i])
            left = self.pending[row]
            if n > left:
                text = f"{n} arrivals at an mbarrier object that expects {left} more in phase {self.phase[row]}"
                text += f" ({self.bytes[row]} bytes are pending)" if self.bytes[row] else ""
                raise self.fail(c, ins, lanes, at, np.arange(len(rows)) == i, text)
            tokens[i] = int(self.phase[row]) << 20 | int(left)
            self.pending[row] -= n
            if drop:
                self.expected[row] -= n
            self.complete_due_phases(c, ins, lanes[i : i + 1], at[i : i + 1], np.array([row]), complete)
        return tokens.astype(np.uint64) | np.uint64(TOKEN)

    def add_bytes(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, amounts: Array) -> None:
        """Adds pending bytes, or (negative) subtracts bytes that have arrived."""
        rows = self.find(c, ins, lanes, at)
        np.add.at(self.bytes, rows, amounts)
        self.check_limit(c, ins, lanes, at, rows)
        self.complete_due_phases(c, ins, lanes, at, np.unique(rows), True)

    def add_pending(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> None:
        """One more arrival is pending for each lane."""
        rows = self.find(c, ins, lanes, at)
        np.add.at(self.pending, rows, 1)
        bad = self.pending[rows] > LIMIT
        if bad.any():
            raise self.fail(c, ins, lanes, at, bad, f"more than {LIMIT} arrivals are pending")

    def check_limit(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array) -> None:
        bad = np.abs(self.bytes[rows]) > LIMIT
        if bad.any():
            raise self.fail(
                c,
                ins,
                lanes,
                at,
                bad,
                f"{int(self.bytes[rows[np.argmax(bad)]])} bytes pending; an mbarrier object counts up to {LIMIT}",
            )

    def complete_due_phases(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, complete: bool
    ) -> None:
        """Completes the phases of those rows that are due."""
        due = (self.pending[rows] == 0) & (self.bytes[rows] == 0)
        if not due.any():
            return
        if not complete:
            raise self.fail(c, ins, lanes, at, np.ones(1, bool), "an arrival with .noComplete completes the phase")
        rows = rows[due]
        self.chunk.engine.progress += 1
        self.phase[rows] += 1
        self.pending[rows] = self.expected[rows]
        self.done[rows] = np.maximum(self.done[rows], self.now[rows])
        self.done_fenced[rows] = np.maximum(self.done_fenced[rows], self.now_fenced[rows])
        self.done_events[rows] |= self.now_events[rows]
        self.done_lanes[rows] |= self.now_lanes[rows]
        self.now[rows] = self.now_fenced[rows] = self.now_lanes[rows] = 0
        self.now_events[rows] = 0
        if self.tracked:
            for row in rows.tolist():
                for batch, made, number in self.tracked.pop(row, ()):
                    retire(batch, made, number)
        if self.sleepers:
            self.wake_sleepers()

    # ---- waiting

    def complete(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, given: Array, parity: bool
    ) -> Array:
        """For each lane, whether the phase of a state or of a parity has completed."""
        phase = self.phase[rows]
        if parity:
            bad = given > 1
            if bad.any():
                raise self.fail(
                    c, ins, lanes, at, bad, f"a parity of {int(given[np.argmax(bad)])}; 0 and 1 are possible"
                )
            other: Array = phase & 1 != given.astype(np.int64)
            return other
        bad = given >> np.uint64(63) == 0
        if bad.any():
            raise self.fail(c, ins, lanes, at, bad, "the operand is not a state that mbarrier.arrive returned")
        of = ((given & np.uint64(TOKEN - 1)) >> np.uint64(20)).astype(np.int64)
        bad = (of > phase) | (of < phase - 1)
        if bad.any():
            i = int(np.argmax(bad))
            text = f"a wait for phase {int(of[i])} of an mbarrier object that is in phase {int(phase[i])}"
            raise self.fail(
                c, ins, lanes, at, bad, text + ": only the current phase and the one before it can be tested"
            )
        before: Array = of < phase
        return before

    def acquire_phase(self, c: WarpBatch, lanes: Array, rows: Array, relaxed: bool) -> None:
        """Lanes acquire the clocks of their completed phase."""
        blocks, first = np.unique(lanes >> 5, return_index=True)
        if len(first) == len(lanes) or (rows == rows[first][np.searchsorted(blocks, lanes >> 5)]).all():
            rows = rows[first]
            known = Known(self.done[rows].T, self.done_fenced[rows].T, self.done_events[rows])
            self.order.acquire(c, blocks, known, relaxed)
            return
        for row in np.unique(rows).tolist():
            mine = np.unique(lanes[rows == row] >> 5)
            many = np.full(len(mine), row)
            known = Known(self.done[many].T, self.done_fenced[many].T, self.done_events[many])
            self.order.acquire(c, mine, known, relaxed)

    def should_sleep(self, c: WarpBatch, ins: Instruction) -> bool:
        """Whether lanes sleep: the first time, and now and then, a try_wait runs out of time at once."""
        key = c.warp, ins.line
        engine = self.chunk.engine
        if key in self.refused and (self.stuck_at == engine.progress or engine.random.randrange(8)):
            return True
        self.refused.add(key)
        return False

    def sleep(self, sleeper: Sleeper) -> None:
        self.sleepers.append(sleeper)

    def wake_sleepers(self) -> None:
        """Wakes the lanes whose phases have completed."""
        left = []
        for s in self.sleepers:
            which = self.phase[s.rows] > s.phases
            if which.any():
                self.acquire_phase(s.batch, s.lanes[which], s.rows[which], "relaxed" in s.ins.mods)
                s.wake(which, True)
            if len(s.lanes):
                left.append(s)
        self.sleepers = left

    def time_out(self) -> bool:
        self.stuck_at = self.chunk.engine.progress
        sleepers, self.sleepers = self.sleepers, []
        for s in sleepers:
            s.wake(np.ones(len(s.lanes), bool), False)
        return bool(sleepers)

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        out = []
        for s in self.sleepers:
            mask = np.zeros(s.batch.n, bool)
            mask[s.lanes] = True
            row = int(s.rows[0])
            out.append((s.batch, s.ins, mask, f"waits for {self.describe(row)}"))
        return out

    def describe(self, row: int) -> str:
        where = f"the mbarrier at {int(self.word[row]) * 8 % self.chunk.stride:#x}, in phase {self.phase[row]}"
        return f"{where}: {self.pending[row]} of {self.expected[row]} arrivals and {self.bytes[row]} bytes pending"
