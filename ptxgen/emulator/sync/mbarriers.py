"""The mbarrier objects of a wave: phases, pending arrivals and transactions."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.async_copies import retire
from ptxgen.emulator.sync.cluster_barrier import ClusterBarrier
from ptxgen.emulator.sync.events import Events
from ptxgen.emulator.sync.happens_before import FENCED, HappensBefore, Released
from ptxgen.emulator.sync.touch import PAGE
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault, suspect
from ptxgen.errors import AsyncFault, BarrierFault, RaceFault

Array = NDArray[Any]


#: largest count of arrivals; largest number of pending bytes, positive or negative
LIMIT = (1 << 20) - 1


#: the state that an arrival returns: this bit, the phase, and in 20 bits the number of arrivals that were pending
#: before
TOKEN = 1 << 63


#: a parity of 1 as a negated bit
TRUE = (1 << 32) - 1


class SuspendedLanes:
    """Lanes of one warp batch that a try_wait has suspended. Each waits for a phase of the mbarrier object in one
    row."""

    __slots__ = ("after", "batch", "ins", "lanes", "phases", "ready", "rows")

    def __init__(
        self, batch: WarpBatch, ins: Instruction, lanes: Array, rows: Array, phases: Array, ready: int, after: int
    ) -> None:
        self.batch, self.ins, self.lanes, self.rows = batch, ins, lanes, rows
        self.phases, self.ready, self.after = phases, ready, after

    def resume(self, which: Array, result: bool) -> None:
        """Resumes some lanes with the result of the try_wait."""
        lanes = self.lanes[which]
        mask = np.zeros(self.batch.n, bool)
        mask[lanes] = True
        self.batch.v[self.ready][lanes] = result
        self.batch.add(self.after, mask)
        self.lanes, self.rows, self.phases = self.lanes[~which], self.rows[~which], self.phases[~which]


class Mbarriers:
    """The mbarrier objects of a wave. Each has a row with its phase, pending and expected arrivals, pending bytes, and
    the clocks that a wait acquires."""

    def __init__(self, wave: Wave, order: HappensBefore, events: Events) -> None:
        self.wave, self.order, self.events = wave, order, events
        self.rows = np.zeros(len(wave.shared) >> 3, np.int32)  # for each 8-byte word; 0: no object
        self.count = 1
        self.generations = 0
        self.suspended: list[SuspendedLanes] = []
        self.cluster: ClusterBarrier | None = None
        self.noted_unfenced = False  # whether a copy has signalled an object without a fence
        self.answered_false: set[tuple[int, int]] = set()
        self.stall_progress = -1  # the progress count of the engine at the last stall
        self.tracked: dict[int, list[tuple[WarpBatch, Array, int]]] = {}
        self.grow(64)
        barriers = weakref.proxy(self)  # a reference of the events would be a cycle
        events.barriers = lambda words: barriers.rows[words] != 0
        events.forgetting.append(lambda bit: barriers.forget(bit))

    def grow(self, size: int) -> None:
        actors = self.order.actors

        def enlarge(name: str, dtype: Any, *shape: int) -> None:
            new = np.zeros((size, *shape), dtype)
            old = getattr(self, name, None)
            if old is not None:
                new[: len(old)] = old
            setattr(self, name, new)

        self.word: Array
        self.phase: Array
        self.pending: Array
        self.expected: Array
        self.bytes: Array
        self.generation: Array
        self.init_actor: Array
        self.init_lane: Array
        self.current_lanes: Array
        self.completed_lanes: Array
        self.init_clock: Array
        self.init_phase: Array
        self.init_line: Array
        self.init_fenced: Array
        self.current_clocks: Array
        self.current_fenced: Array
        self.current_events: Array
        self.completed_clocks: Array
        self.completed_fenced: Array
        self.completed_events: Array
        # what arrivals from other blocks release, which a wait of CTA scope does not acquire
        self.remote_clocks: Array
        self.remote_fenced: Array
        self.remote_events: Array
        self.completed_remote_clocks: Array
        self.completed_remote_fenced: Array
        self.completed_remote_events: Array
        # the initialisation: actor, lane and clock, and the next phase of the cluster barrier (-1: not fenced); its
        # line, and whether a fence makes it visible to the async proxy
        for name in (
            "word",
            "phase",
            "pending",
            "expected",
            "bytes",
            "generation",
            "init_actor",
            "init_lane",
            "init_clock",
            "init_phase",
            "init_line",
            "init_fenced",
        ):
            enlarge(name, np.int64)
        for state in ("current", "completed", "remote", "completed_remote"):
            enlarge(f"{state}_clocks", np.int32, actors)
            enlarge(f"{state}_fenced", np.int32, len(FENCED) * actors)
            enlarge(f"{state}_events", np.uint64)
        for name in ("current_lanes", "completed_lanes"):  # for each warp, the mask of lanes that have arrived
            enlarge(name, np.uint32, actors)

    def forget(self, bit: np.uint64) -> None:
        for events in (self.current_events, self.completed_events, self.remote_events, self.completed_remote_events):
            events &= ~bit

    # ---- initialisation and look-up

    def fail(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, bad: Array, message: str) -> BarrierFault:
        i = int(np.argmax(bad))
        out = fault(BarrierFault, message, c, ins, int(lanes[i]), int(at[i]) % self.wave.stride)
        assert isinstance(out, BarrierFault)
        return out

    def init(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, counts: Array) -> None:
        words = at >> 3
        bad = (counts < 1) | (counts > LIMIT)
        if any_true(bad):
            raise self.fail(
                c, ins, lanes, at, bad, f"the count is {int(counts[np.argmax(bad)])}; it must be 1 to {LIMIT}"
            )
        bad = self.rows[words] != 0
        if any_true(bad):
            raise self.fail(
                c, ins, lanes, at, bad, "an mbarrier object is initialised again, with no mbarrier.inval between"
            )
        if len(np.unique(words)) != len(words):
            raise self.fail(c, ins, lanes, at, np.ones(1, bool), "two lanes initialise one mbarrier object")
        n = len(lanes)
        while self.count + n > len(self.word):
            self.grow(2 * len(self.word))
        rows = np.arange(self.count, self.count + n)
        self.count += n
        self.generations += 1
        self.rows[words] = rows
        self.word[rows] = words
        self.phase[rows] = self.bytes[rows] = 0
        self.pending[rows] = self.expected[rows] = counts
        self.generation[rows] = self.generations
        blocks = lanes >> 5
        self.init_actor[rows] = self.order.base[blocks] + c.warp
        self.init_lane[rows] = lanes & 31
        self.init_clock[rows] = self.order.clock_of(c.warp)[blocks]
        self.init_phase[rows] = -1
        self.init_line[rows], self.init_fenced[rows] = ins.line, 0
        for page in np.unique(at % self.wave.stride >> PAGE).tolist():
            self.events.barrier_pages |= 1 << page

    def invalidate(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> None:
        self.find(c, ins, lanes, at)
        self.rows[at >> 3] = 0

    def find(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> Array:
        """The rows of the mbarrier objects at some positions; faults where there is none."""
        rows: Array = self.rows[at >> 3]
        if not all_true(rows):
            raise self.fail(
                c, ins, lanes, at, rows == 0, "the address holds no mbarrier object: execute mbarrier.init first"
            )
        return rows

    def publish(self, c: WarpBatch, blocks: Array) -> None:
        """A fence of warp ``c``: the next arrival of the warp at the cluster barrier publishes the objects that it has
        initialised."""
        rows = np.arange(1, self.count)
        block = self.word[rows] * 8 // self.wave.stride
        mine = (
            (self.init_phase[rows] < 0)
            & (self.init_actor[rows] == self.order.base[block] + c.warp)
            & np.isin(block, blocks)
        )
        cluster = self.cluster
        assert cluster is not None
        self.init_phase[rows[mine]] = cluster.arrivals[c.warp, block[mine]]

    def publish_to_proxy(self, c: WarpBatch, blocks: Array) -> None:
        """A fence of warp ``c`` makes the mbarrier objects that are initialised before it visible to the async
        proxy."""
        rows = np.arange(1, self.count)[self.init_fenced[1 : self.count] == 0]
        if not len(rows):
            return
        block = self.word[rows] * 8 // self.wave.stride
        actor = self.init_actor[rows]
        known = actor == self.order.base[block] + c.warp
        known |= self.order.clocks[c.warp][actor, block] >= self.init_clock[rows]
        self.init_fenced[rows[known & np.isin(block, blocks)]] = 1

    def check_fenced(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array) -> None:
        """Reports copies whose mbarrier objects no fence has made visible to the async proxy."""
        bad = self.init_fenced[rows] == 0
        if any_true(bad) and not self.noted_unfenced:
            self.noted_unfenced = True
            i = int(np.argmax(bad))
            text = f"the copy signals an mbarrier object that line {int(self.init_line[rows[i]])} initialised, with no "
            text += "fence.mbarrier_init or fence.proxy.async between"
            suspect(AsyncFault, text, c, ins, int(lanes[i]), int(at[i]) % self.wave.stride)

    def check_initialised(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array) -> None:
        """Faults if the use of an object is not ordered after another thread's initialisation of the object."""
        order, blocks = self.order, lanes >> 5
        if not order.races:
            return
        cluster = self.cluster
        assert cluster is not None
        init_actor, init_clock = self.init_actor[rows], self.init_clock[rows]
        known = order.clocks[c.warp][init_actor, blocks] >= init_clock
        known |= (self.init_phase[rows] >= 0) & (cluster.waits[:, blocks].max(axis=0) > self.init_phase[rows])
        mine = flatnonzero((init_actor == (order.base + c.warp)[blocks]) & (self.init_lane[rows] != lanes & 31))
        known[mine] = order.lanes[c.warp].knows(lanes[mine], self.init_lane[rows[mine]], init_clock[mine])
        if not all_true(known):
            i = int(np.argmin(known))
            owner = "another block" if at[i] // self.wave.stride != blocks[i] else "another warp"
            text = f"an mbarrier object of {owner} is used, and nothing orders that after its initialisation"
            if i in mine:
                initialiser = int(self.init_lane[rows[i]])
                text = f"an mbarrier object that lane {initialiser} of the same warp initialised is used, "
                text += "with no bar.warp.sync between"
            raise fault(RaceFault, text, c, ins, int(lanes[i]), int(at[i]) % self.wave.stride)

    def check_arrival_order(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, together: bool = False
    ) -> None:
        """Faults at arrivals that are not ordered after the preceding phase, because they could have counted for that
        phase.

        Arrivals from other blocks are not checked: the bytes of copies between blocks order them, too, without clocks.
        ``together``: the lanes belong to the instruction that completed the preceding phase, which is legal.
        """
        order, w = self.order, c.warp
        late = flatnonzero((self.phase[rows] > 0) & (at // self.wave.stride == lanes >> 5))
        if not len(late) or not order.races:
            return
        rows, some = rows[late], lanes[late]
        blocks, number = some >> 5, np.arange(len(late))
        actors = order.base[blocks] + w
        known = np.maximum(order.clocks[w][:, blocks], order.pending.clocks[w][:, blocks]).T
        missing = self.completed_clocks[rows] > known
        missing &= (np.arange(order.actors) - order.base[blocks][:, None]) // order.warp_count == 0
        only_arrival = self.completed_lanes[rows, actors] & ~(np.uint32(1) << (some & 31).astype(np.uint32)) == 0
        known_lanes = (
            np.maximum(order.lanes[w].every[some], order.pending.clocks[w][actors, blocks])
            >= self.completed_clocks[rows, actors]
        )
        missing[number, actors] = ~(only_arrival | known_lanes) & (order.lanes[w].each is None) & (not together)
        bad = missing.any(axis=1)
        if any_true(bad):
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
        released: Released | None = None,
    ) -> Array:
        """Executes the arrivals of lanes in order, and returns the state of each. ``released``: what the lanes release,
        by lane."""
        rows = self.find(c, ins, lanes, at)
        self.check_initialised(c, ins, lanes, at, rows)
        self.check_arrival_order(c, ins, lanes, at, rows)
        bad = (counts < 1) | (counts > LIMIT)
        if any_true(bad):
            raise self.fail(
                c, ins, lanes, at, bad, f"the count is {int(counts[np.argmax(bad)])}; it must be 1 to {LIMIT}"
            )
        if released is not None:
            self.add_released(c, ins, lanes, at, rows, released)
            actors = self.order.base[lanes >> 5] + c.warp
            np.bitwise_or.at(self.current_lanes, (rows, actors), np.uint32(1) << (lanes & 31).astype(np.uint32))
        if expect is not None:
            np.add.at(self.bytes, rows, expect)
            self.check_limit(c, ins, lanes, at, rows)
        unique, which = np.unique(rows, return_inverse=True)
        total = np.bincount(which, counts).astype(np.int64)
        pending = self.pending[unique]
        if all_true(total <= pending):
            order = np.argsort(which, kind="stable")
            sums = np.cumsum(counts[order])
            start = flatnonzero(np.diff(which[order], prepend=-1))
            before = sums - counts[order] - np.repeat((sums - counts[order])[start], np.diff([*start, len(order)]))
            left = np.empty(len(rows), np.int64)
            left[order] = pending[which[order]] - before
            tokens = self.phase[rows] << 20 | left
            self.pending[unique] = pending - total
            if drop:
                self.expected[unique] -= total
            self.complete_due_phases(c, ins, lanes, at, unique, complete)
            return tokens.astype(np.uint64) | np.uint64(TOKEN)
        tokens = np.empty(len(rows), np.int64)  # some lanes complete a phase before others arrive
        first = self.phase[unique].copy()
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
        phases = self.phase[unique] - first
        if phases.max() > 1:
            text = f"lanes of one instruction complete {int(phases.max())} phases of an mbarrier object: "
            text += "more lanes arrive than it expects"
            suspect(BarrierFault, text, c, ins, int(lanes[0]), int(at[0]) % self.wave.stride)
        return tokens.astype(np.uint64) | np.uint64(TOKEN)

    def add_released(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, released: Released
    ) -> None:
        """Adds what lanes release to the current phases. An arrival of CTA scope releases nothing to other blocks."""
        remote = at // self.wave.stride != lanes >> 5
        if not any_true(remote):
            remote = None
        for own in (True, False) if remote is not None else (True,):
            some = slice(None) if remote is None else flatnonzero(remote != own)
            if own:
                clocks, fenced, events = self.current_clocks, self.current_fenced, self.current_events
            else:
                clocks, fenced, events = self.remote_clocks, self.remote_fenced, self.remote_events
                if "cta" in ins.mods:
                    continue
            np.maximum.at(clocks, rows[some], released.clocks[:, some].T)
            np.maximum.at(fenced, rows[some], released.fenced[:, some].T)
            np.bitwise_or.at(events, rows[some], released.events[some])

    def add_bytes(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, amounts: Array) -> None:
        """Adds pending bytes (``amounts`` positive), or subtracts bytes that have arrived (negative)."""
        rows = self.find(c, ins, lanes, at)
        np.add.at(self.bytes, rows, amounts)
        self.check_limit(c, ins, lanes, at, rows)
        self.complete_due_phases(c, ins, lanes, at, np.unique(rows), True)

    def add_pending(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> None:
        """Adds one pending arrival for each lane."""
        rows = self.find(c, ins, lanes, at)
        np.add.at(self.pending, rows, 1)
        bad = self.pending[rows] > LIMIT
        if any_true(bad):
            raise self.fail(c, ins, lanes, at, bad, f"more than {LIMIT} arrivals are pending")

    def check_limit(self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array) -> None:
        bad = np.abs(self.bytes[rows]) > LIMIT
        if any_true(bad):
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
        """Completes the phases that have neither pending arrivals nor pending bytes."""
        due = (self.pending[rows] == 0) & (self.bytes[rows] == 0)
        if not any_true(due):
            return
        if not complete:
            raise self.fail(c, ins, lanes, at, np.ones(1, bool), "an arrival with .noComplete completes the phase")
        rows = rows[due]
        self.wave.engine.progress += 1
        self.phase[rows] += 1
        self.pending[rows] = self.expected[rows]
        self.completed_clocks[rows] = np.maximum(self.completed_clocks[rows], self.current_clocks[rows])
        self.completed_fenced[rows] = np.maximum(self.completed_fenced[rows], self.current_fenced[rows])
        self.completed_events[rows] |= self.current_events[rows]
        self.completed_lanes[rows] |= self.current_lanes[rows]
        if self.order.size > 1:
            of_others = self.completed_remote_clocks, self.completed_remote_fenced
            for done, current in zip(of_others, (self.remote_clocks, self.remote_fenced), strict=True):
                done[rows] = np.maximum(done[rows], current[rows])
                current[rows] = 0
            self.completed_remote_events[rows] |= self.remote_events[rows]
            self.remote_events[rows] = 0
        self.current_clocks[rows] = self.current_fenced[rows] = self.current_lanes[rows] = 0
        self.current_events[rows] = 0
        if self.tracked:
            for row in rows.tolist():
                for batch, waiting, number in self.tracked.pop(row, ()):
                    retire(batch, waiting, number)
        if self.suspended:
            self.resume_completed()

    # ---- waiting

    def complete(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, given: Array, parity: bool
    ) -> Array:
        """True for each lane whose phase, which ``given`` denotes as a state or a parity, has completed."""
        phase = self.phase[rows]
        if parity:
            bad = given > 1
            if any_true(bad) and all_true(given[bad] == TRUE):  # Triton negates the phase bit
                text = "the parity is 0xffffffff; it must be 0 or 1, and counts as 1"
                suspect(BarrierFault, text, c, ins, int(lanes[np.argmax(bad)]))
                given = given & 1
            elif any_true(bad):
                raise self.fail(
                    c, ins, lanes, at, bad, f"the parity is {int(given[np.argmax(bad)])}; it must be 0 or 1"
                )
            other: Array = phase & 1 != given.astype(np.int64)
            return other
        bad = given >> np.uint64(63) == 0
        if any_true(bad):
            raise self.fail(c, ins, lanes, at, bad, "the operand is not a state returned by mbarrier.arrive")
        tested = ((given & np.uint64(TOKEN - 1)) >> np.uint64(20)).astype(np.int64)
        bad = (tested > phase) | (tested < phase - 1)
        if any_true(bad):
            i = int(np.argmax(bad))
            text = f"a wait for phase {int(tested[i])} of an mbarrier object that is in phase {int(phase[i])}"
            raise self.fail(
                c, ins, lanes, at, bad, text + ": only the current phase and the one before it can be tested"
            )
        completed: Array = tested < phase
        return completed

    def acquire_phase(self, c: WarpBatch, lanes: Array, rows: Array, ins: Instruction) -> None:
        """Lanes acquire what the arrivals of their completed phase have released to the scope of the wait."""
        before = self.order.events[c.warp].copy()
        if "relaxed" not in ins.mods:
            self.order.wait_of_lanes(c, lanes)
        blocks, first = np.unique(lanes >> 5, return_index=True)
        if len(first) == len(lanes) or all_true(rows == rows[first][np.searchsorted(blocks, lanes >> 5)]):
            self.acquire_rows(c, blocks, rows[first], ins)
        else:
            for row in np.unique(rows).tolist():
                mine = np.unique(lanes[rows == row] >> 5)
                self.acquire_rows(c, mine, np.full(len(mine), row), ins)
        self.order.learn(c, lanes, self.completed_events[rows] | self.completed_remote_events[rows], before)

    def acquire_rows(self, c: WarpBatch, blocks: Array, rows: Array, ins: Instruction) -> None:
        """Warp ``c`` of some blocks acquires what the completed phase of a row of each block has released."""
        relaxed = "relaxed" in ins.mods
        known = Released(self.completed_clocks[rows].T, self.completed_fenced[rows].T, self.completed_events[rows])
        self.order.acquire(c, blocks, known, relaxed, of_lanes=True)
        if self.order.size > 1 and "cta" not in ins.mods:
            clocks, fenced = self.completed_remote_clocks[rows].T, self.completed_remote_fenced[rows].T
            known = Released(clocks, fenced, self.completed_remote_events[rows])
            self.order.acquire(c, blocks, known, relaxed, True, of_lanes=True)

    def should_suspend(self, c: WarpBatch, ins: Instruction) -> bool:
        """True if a try_wait suspends its lanes: never at its first execution, later at random. Otherwise it returns
        false at once."""
        key = c.warp, ins.line
        engine = self.wave.engine
        if key in self.answered_false and (self.stall_progress == engine.progress or engine.random.randrange(8)):
            return True
        self.answered_false.add(key)
        return False

    def suspend(self, lanes: SuspendedLanes) -> None:
        self.suspended.append(lanes)

    def resume_completed(self) -> None:
        """Resumes the lanes whose phases have completed."""
        remaining = []
        for s in self.suspended:
            which = self.phase[s.rows] > s.phases
            if any_true(which):
                self.acquire_phase(s.batch, s.lanes[which], s.rows[which], s.ins)
                s.resume(which, True)
            if len(s.lanes):
                remaining.append(s)
        self.suspended = remaining

    def time_out(self) -> bool:
        self.stall_progress = self.wave.engine.progress
        suspended, self.suspended = self.suspended, []
        for s in suspended:
            s.resume(np.ones(len(s.lanes), bool), False)
        return bool(suspended)

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        out = []
        for s in self.suspended:
            mask = np.zeros(s.batch.n, bool)
            mask[s.lanes] = True
            row = int(s.rows[0])
            out.append((s.batch, s.ins, mask, f"waits for {self.describe(row)}"))
        return out

    def describe(self, row: int) -> str:
        where = f"the mbarrier at {int(self.word[row]) * 8 % self.wave.stride:#x}, in phase {self.phase[row]}"
        return f"{where}: {self.pending[row]} of {self.expected[row]} arrivals and {self.bytes[row]} bytes pending"
