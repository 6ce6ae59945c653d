"""The asynchronous work of a wave, and the warps that wait for it.

Work completes when it starts ("early"), or when no warp can make progress without it ("late"). In the late mode, one
piece of work completes at a time; the seed selects it.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.sync.cluster_barrier import ClusterBarrier
from ptxgen.emulator.sync.events import Event, Events
from ptxgen.emulator.sync.happens_before import HappensBefore
from ptxgen.emulator.sync.mbarriers import Mbarriers
from ptxgen.emulator.sync.register_pool import RegisterPool
from ptxgen.emulator.sync.warpgroup import WARPS, Warpgroup
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault
from ptxgen.errors import AsyncFault, DivergenceFault, RaceFault

Array = NDArray[Any]


class Work(Protocol):
    """A piece of asynchronous work. ``batch``, ``lanes``: the lanes that started it; ``ins``: their instruction."""

    batch: WarpBatch
    ins: Instruction
    lanes: Array

    def complete(self) -> None:
        """Performs the effects of the work."""


class PendingSignals:
    """The mbarriers that asynchronous work will signal: for each lane, the row of its mbarrier, and the phase of the
    mbarrier when the work started.

    ``groups``: the events of these phases, each with the indices of its lanes.
    """

    def __init__(self, batch: WarpBatch, ins: Instruction, lanes: Array, at: Array, rows: Array, phases: Array) -> None:
        self.batch, self.ins, self.lanes, self.at, self.rows, self.phases = batch, ins, lanes, at, rows, phases
        self.groups: list[tuple[Event, Array]] = []


class AsyncState:
    """The asynchronous state of one wave."""

    def __init__(self, wave: Wave, order: HappensBefore) -> None:
        self.wave, self.order = wave, order
        self.events = Events(wave, order)
        self.barriers = Mbarriers(wave, order, self.events)
        self.cluster = ClusterBarrier(wave, order)
        self.barriers.cluster = self.cluster
        self.events.cluster = self.cluster
        self.in_flight: list[Work] = []
        self.exited = np.zeros(wave.blocks, bool)
        self.warpgroups: dict[int, Warpgroup] = {}
        self.registers = RegisterPool(wave, order)
        self.stores: dict[int, Any] = {}  # of each warp batch: its bulk copies from shared memory
        events = weakref.proxy(self.events)  # which has a reference to ``order``
        order.hook = lambda c, touch, operation: events.generic(c, touch, operation)

    def begin(self, work: Work) -> None:
        """Starts a piece of work. With "early" completion, it also completes now."""
        self.wave.engine.progress += 1
        if self.wave.engine.late:
            self.in_flight.append(work)
        else:
            work.complete()

    def signals(
        self, c: WarpBatch, ins: Instruction, lanes: Array, at: Array, operation: str, partial: bool = False
    ) -> PendingSignals:
        """The mbarriers at positions ``at``, which the writing work of some lanes will signal."""
        barriers = self.barriers
        rows = barriers.find(c, ins, lanes, at)
        barriers.check_initialised(c, ins, lanes, at, rows)
        out = PendingSignals(c, ins, lanes, at, rows, barriers.phase[rows])
        keys = np.stack([at % self.wave.stride, barriers.generation[rows], out.phases], axis=1)
        for key in np.unique(keys, axis=0):
            event = self.events.event(tuple(key.tolist()), ins, operation, True, partial)
            out.groups.append((event, flatnonzero((keys == key).all(axis=1))))
        return out

    def signal(self, signals: PendingSignals, amounts: Array) -> None:
        """Signals to mbarriers that work is complete; ``amounts``: the bytes, by lane."""
        c, ins, lanes, at = signals.batch, signals.ins, signals.lanes, signals.at
        barriers = self.barriers
        rows = barriers.find(c, ins, lanes, at)
        late = (rows != signals.rows) | (barriers.phase[rows] != signals.phases)
        if any_true(late):
            i = int(np.argmax(late))
            text = (
                f"the phase {int(signals.phases[i])} of an mbarrier object completed before the work that signals it: "
            )
            text += "expect_tx announced too few bytes, or announced them too late"
            raise fault(AsyncFault, text, c, ins, int(lanes[i]), int(at[i]) % self.wave.stride)
        for event, which in signals.groups:
            if self.events.keys.get(event.key) is event:
                np.bitwise_or.at(barriers.current_events, rows[which], event.bit)
        barriers.add_bytes(c, ins, lanes, at, -amounts)

    def advance(self) -> bool:
        """Completes one piece of work; False if none is in flight."""
        if not self.in_flight:
            return False
        engine = self.wave.engine
        work = self.in_flight.pop(engine.random.randrange(len(self.in_flight)))
        work.complete()
        engine.progress += 1
        return True

    def finish(self) -> None:
        """Completes all work, after all blocks have exited."""
        while self.advance():
            pass

    def time_out(self) -> bool:
        """Ends all suspended try_waits with a false result; False if there are none."""
        return self.barriers.time_out()

    def check_stalled(self) -> None:
        """Raises the fault that explains why no warp can make progress, if an explanation is known."""
        self.registers.check_stalled()

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        """The positions of waiting warps and the reasons, for the deadlock report."""
        out = self.barriers.waiting_places() + self.cluster.waiting_places() + self.registers.waiting_places()
        for group in self.warpgroups.values():
            out += group.waiting_places()
        return out

    # ---- the end of a block

    def exit_blocks(self, c: WarpBatch, mask: Array, warps: Array, ins: Instruction) -> None:
        """Checks the exit of the warps of a batch in some blocks (``warps``); ``mask``: the lanes that execute the
        exit."""
        wave = self.wave
        self.order.close(c)
        self.registers.check_exit(c, warps)
        alive = np.stack([t.warps(None) for t in wave.batches])
        exited = flatnonzero(warps & ~alive.any(axis=0))
        self.cluster.warps_exited()
        for block in exited.tolist():
            self.exited[block] = True
            lane = 32 * block + int(np.argmax(mask[32 * block : 32 * block + 32]))
            self.check_no_pending_access(c, block, lane, ins)

    def check_no_pending_access(self, c: WarpBatch, block: int, lane: int, ins: Instruction) -> None:
        """Raises if work in flight or another block may still access the memory of a block that exits."""
        wave, order, events = self.wave, self.order, self.events
        chunks = slice(block * wave.stride >> 4, (block + 1) * wave.stride >> 4)
        known = np.bitwise_or.reduce(order.events[:, block])
        for shadow, verb in ((events.writing, "into"), (events.reading, "out of")):
            if not (events.writing_pages if verb == "into" else events.reading_pages):
                continue
            bits = int(np.bitwise_or.reduce(shadow[chunks])) & ~int(known)
            if bits:
                event = events.event_of(bits)
                at = int(np.argmax(shadow[chunks] & event.bit != 0)) << 4
                text = f"the block exits before a wait for {event} {verb} its shared memory"
                raise fault(AsyncFault, text, c, ins, lane, at)
        if order.size == 1 or not order.races:
            return
        clocks = order.clocks[:, :, block].max(axis=0)
        for actor in flatnonzero(events.remote_clocks[:, block] > clocks):
            access = events.remote_sources[int(actor), block]
            rank, warp = divmod(int(actor), order.warp_count)
            accessor = f"warp {warp} of rank {rank} (line {access.line})"
            text = f"the block exits, and its exit is not ordered after the access to its shared memory by {accessor}"
            raise fault(RaceFault, text, c, ins, lane)


def async_state(wave: Wave) -> AsyncState:
    """The asynchronous state of a wave whose program starts asynchronous work."""
    state = wave.async_state
    assert isinstance(state, AsyncState)
    return state


def warpgroup(c: WarpBatch, ins: Instruction, m: Any) -> Warpgroup:
    """The warpgroup of a warp batch; faults if it is incomplete."""
    wave = c.wave
    state = async_state(wave)
    number = c.warp // WARPS
    group: Warpgroup | None = state.warpgroups.get(number)
    if group is None:
        group = state.warpgroups[number] = Warpgroup(wave, state.order, state.events, number)
    if len(group.batches) < WARPS or (wave.engine.threads % 32 and c.warp == len(wave.batches) - 1):
        lane = int(np.argmax(c.live() if m is None else m))
        raise fault(DivergenceFault, "the instruction needs a warpgroup: four whole warps of the block", c, ins, lane)
    return group
