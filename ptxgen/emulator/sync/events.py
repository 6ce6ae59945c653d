"""Asynchronous accesses to shared memory, and the generic writes that must be visible to them.

An event is asynchronous work with a common wait: the copies that signal one phase of an mbarrier, or the copies of a
group. Each event has a bit in 64-bit words. ``HappensBefore.events`` holds the events that each warp knows to be
complete. Shadow words, one for each chunk of 16 bytes, hold the events that read or write the chunk. Asynchronous work
accesses whole chunks, except st.async and red.async.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true
from ptxgen.emulator.sync.checks import Segment, accessors
from ptxgen.emulator.sync.cluster_barrier import ClusterBarrier
from ptxgen.emulator.sync.happens_before import HappensBefore, Released
from ptxgen.emulator.sync.touch import Touch
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault
from ptxgen.errors import AsyncFault, BarrierFault, RaceFault

Array = NDArray[Any]


#: log2 of the bytes of a chunk
CHUNK = 4


COUNT = 64


FENCE = "fence.proxy.async"


class Event:
    """One event. ``operation``: its name in messages; ``partial``: True if it accesses less than whole chunks."""

    __slots__ = ("chunks", "ins", "key", "number", "operation", "pages", "partial", "writes")

    def __init__(
        self, number: int, key: Hashable, ins: Instruction, operation: str, writes: bool, partial: bool
    ) -> None:
        self.number, self.key, self.ins, self.operation, self.writes, self.partial = (
            number,
            key,
            ins,
            operation,
            writes,
            partial,
        )
        self.chunks: list[Array] = []
        self.pages = 0

    def __str__(self) -> str:
        return f"{self.operation} of line {self.ins.line}"

    @property
    def bit(self) -> np.uint64:
        return np.uint64(1 << self.number)


class Access:
    """The accesses of a piece of asynchronous work to shared memory.

    ``lanes``: the lanes of the warp batch that started the work; ``chunks``: for each lane, the chunks that it
    accesses; ``pages``: the pages of these chunks; ``at``, ``size``: byte positions and length of accesses smaller than
    chunks.
    """

    __slots__ = ("at", "chunks", "ins", "lanes", "pages", "size")

    def __init__(
        self, ins: Instruction, lanes: Array, chunks: Array, pages: int, at: Array | None = None, size: int = 16
    ) -> None:
        self.ins, self.lanes, self.chunks, self.pages, self.size = ins, lanes, chunks, pages, size
        self.at = chunks << CHUNK if at is None else at

    def subset(self, which: Array) -> Access:
        """The part of the access that some lanes make."""
        return Access(self.ins, self.lanes[which], self.chunks[which], self.pages, self.at[which], self.size)


class Events:
    """The events of one wave, and the shadow memory with the last generic write to each chunk."""

    def __init__(self, wave: Wave, order: HappensBefore) -> None:
        self.wave, self.order = wave, order
        self.slots: list[Event | None] = [None] * COUNT
        self.ages: list[Event] = []  # oldest first
        self.keys: dict[Hashable, Event] = {}
        self.partial = np.uint64(0)
        chunks = len(wave.shared) >> CHUNK
        self.writing = np.zeros(chunks, np.uint64)
        self.reading = np.zeros(chunks, np.uint64)
        self.writing_pages = self.reading_pages = 0
        self.forgetting: list[Callable[[np.uint64], None]] = []
        # the last generic write to each chunk: its actor and clock (0: no write since the last asynchronous one)
        self.watches_writes: bool = wave.program.proxies
        self.writer = np.zeros(chunks, np.int16)
        self.written = np.zeros(chunks, np.int32)
        self.write_line = np.zeros(chunks, np.int32)
        # the clock that orders that write: later than ``written`` if other lanes of the warp released before they made
        # it
        self.ordered = np.zeros(chunks, np.int32)
        self.generic_pages = 0
        # pages with initialised mbarrier objects, which only mbarrier instructions may access
        self.barrier_pages = 0
        self.barriers: Callable[[Array], Array] = lambda words: np.zeros(len(words), bool)
        #: as [actor, block]: the clock of the actor at its last access to the memory of that block from another block
        self.remote_clocks = np.zeros((order.actors, wave.blocks), np.int32)
        self.remote_sources: dict[tuple[int, int], Instruction] = {}
        self.cluster: ClusterBarrier | None = None

    # ---- the table of events

    def event(self, key: Hashable, ins: Instruction, operation: str, writes: bool, partial: bool = False) -> Event:
        """The event with this key, which is made if it does not exist. Work with the same wait has the same key."""
        event = self.keys.get(key)
        if event is not None:
            return event
        if None not in self.slots:
            self.reclaim()
        number = self.slots.index(None)
        event = self.slots[number] = self.keys[key] = Event(number, key, ins, operation, writes, partial)
        self.ages.append(event)
        if partial:
            self.partial |= event.bit
        return event

    def reclaim(self) -> None:
        """Removes events that all warps have acquired or whose chunks were overwritten, and in any case the oldest
        event."""
        running = [t.warp for t in self.wave.batches if t.count]
        known = int(np.bitwise_and.reduce(self.order.events[running], axis=None)) if running else 0
        for event in list(self.ages):
            shadow = self.writing if event.writes else self.reading
            if known >> event.number & 1 or not any(any_true(shadow[g] & event.bit) for g in event.chunks):
                self.forget(event)
        if None not in self.slots:
            self.forget(self.ages[0])
        self.writing_pages = self.reading_pages = 0
        for event in self.ages:
            if event.writes:
                self.writing_pages |= event.pages
            else:
                self.reading_pages |= event.pages

    def forget(self, event: Event) -> None:
        """Removes an event from the table and from all shadow words."""
        shadow = self.writing if event.writes else self.reading
        for g in event.chunks:
            shadow[g] &= ~event.bit
        self.order.events &= ~event.bit
        order = self.order
        for state in (order.published, order.published_to_others, order.pending, order.pending_of_others):
            state.events[...] &= ~event.bit
        for unknown in order.unknown:
            if unknown is not None:
                unknown &= ~event.bit
        self.partial &= ~event.bit
        for listener in self.forgetting:
            listener(event.bit)
        self.ages.remove(event)
        del self.keys[event.key]
        self.slots[event.number] = None

    def event_of(self, bits: int) -> Event:
        """The event of the lowest bit that is set in ``bits``."""
        number = (bits & -bits).bit_length() - 1
        event = self.slots[number]
        assert event is not None
        return event

    # ---- generic accesses

    def generic(self, c: WarpBatch, touch: Touch, operation: str) -> None:
        """Records a load, store or atomic operation (``operation``: read, write, atomic), or the arrival of a cp.async
        (arrived)."""
        pages = touch.pages
        remote = self.order.size > 1 and touch.lanes is not None
        if not (
            pages & (self.writing_pages | self.reading_pages | self.barrier_pages)
            or (operation != "read" and self.watches_writes)
            or remote
        ):
            return
        at, lanes, blocks = accessors(touch)
        warp, stride = c.warp, self.wave.stride
        if remote:
            self.note_remote_access(c, at // stride, blocks, touch.ins)

        def lane_of(bad: Array) -> tuple[int, int]:
            i = int(np.argmax(bad))
            return (i if lanes is None else int(lanes[i])), int(at[i]) % stride

        if pages & self.barrier_pages and operation != "arrived":
            bad = self.barriers(at >> 3)
            for i in range(8, touch.size, 8):
                bad |= self.barriers((at + i) >> 3)
            if any_true(bad):
                raise fault(
                    BarrierFault,
                    "a load or store accesses an mbarrier object that is in use",
                    c,
                    touch.ins,
                    *lane_of(bad),
                )
        unknown = ~self.order.events[warp][blocks]
        of_lanes = self.order.unknown[warp]
        if of_lanes is not None:
            unknown |= of_lanes if lanes is None else of_lanes[lanes]
        for i in range(0, touch.size, 16):
            g = (at + i) >> CHUNK
            if pages & self.writing_pages:
                bits = self.writing[g] & unknown
                if any_true(bits):
                    event = self.event_of(int(bits[np.argmax(bits != 0)]))
                    done = "read" if operation == "read" else "written"
                    text = f"shared memory is {done} before a wait for {event}, which writes it"
                    text += self.waited_by_a_lane(warp, blocks, bits)
                    raise fault(AsyncFault, text, c, touch.ins, *lane_of(bits != 0))
            if operation == "read":
                continue
            if pages & self.reading_pages:
                bits = self.reading[g] & unknown
                if any_true(bits):
                    event = self.event_of(int(bits[np.argmax(bits != 0)]))
                    text = f"shared memory is written before a wait for {event}, which reads it"
                    text += self.waited_by_a_lane(warp, blocks, bits)
                    raise fault(AsyncFault, text, c, touch.ins, *lane_of(bits != 0))
            if self.watches_writes:
                self.writer[g] = (self.order.base + warp)[blocks]
                self.written[g] = self.ordered[g] = self.order.clock_of(warp)[blocks]
                self.write_line[g] = touch.ins.line
                self.generic_pages |= pages

    def release(self, c: WarpBatch, ins: Instruction, lanes: Array) -> tuple[Array, Released]:
        """The pair (column for each lane, released state) of a release by some lanes of warp ``c``: the state has a
        column for each block of these lanes."""
        blocks, which = np.unique(lanes >> 5, return_inverse=True)
        mask = np.zeros(c.n, bool)
        mask[lanes] = True
        known, late = self.order.release_of_lanes(c, ins, mask, blocks)
        self.postpone(c, late, self.ordered)
        return which, known

    def proxy_fence(self, c: WarpBatch, mask: Array, blocks: Array, spaces: str) -> None:
        """A proxy fence by the lanes of a mask."""
        self.order.proxy_fence(c, blocks, spaces)
        if "shared" in spaces and self.watches_writes:
            self.postpone(c, self.order.unfenced(c, mask), self.written)

    def postpone(self, c: WarpBatch, writes: list[Touch], clocks: Array) -> None:
        """Gives the last writes of chunks the present clock of their warp, in the table ``clocks``."""
        for touch in writes if self.watches_writes else ():
            at, _, blocks = accessors(touch)
            actors, now = (self.order.base + c.warp)[blocks], self.order.clock_of(c.warp)[blocks]
            for i in range(0, touch.size, 16):
                g = (at + i) >> CHUNK
                mine = (self.writer[g] == actors) & (self.written[g] != 0)
                clocks[g[mine]] = now[mine]

    def waited_by_a_lane(self, warp: int, blocks: Array, bits: Array) -> str:
        """The end of a message which tells that another lane of the warp has waited for an event; empty if none has.
        The event is the lowest bit of the first nonzero element of ``bits``."""
        i = int(np.argmax(bits != 0))
        lowest = int(bits[i]) & -int(bits[i])
        waited = int(self.order.events[warp, blocks[i]]) & lowest
        return ", by this lane: bar.warp.sync must follow the wait by another lane of the warp" if waited else ""

    # ---- memory of other blocks

    def note_remote_access(self, c: WarpBatch, targets: Array, blocks: Array, ins: Instruction) -> None:
        """Records that lanes of ``blocks`` access the memory of the blocks ``targets``."""
        remote = targets != blocks
        if any_true(remote):
            self.check_started(c, targets[remote], blocks[remote], ins)
            self.order.remote_warps.add(c.warp)
            actors = (self.order.base + c.warp)[blocks[remote]]
            self.remote_clocks[actors, targets[remote]] = self.order.clock_of(c.warp)[blocks[remote]]
            for actor, target in set(zip(actors.tolist(), targets[remote].tolist(), strict=True)):
                self.remote_sources[actor, target] = ins

    def check_started(self, c: WarpBatch, targets: Array, blocks: Array, ins: Instruction) -> None:
        """Faults if lanes of ``blocks`` access the memory of other blocks that may not have started."""
        order, cluster = self.order, self.cluster
        assert cluster is not None
        if not order.races:
            return
        actors = order.base[targets] + np.arange(order.warp_count)[:, None]
        known = (order.clocks[c.warp][actors, blocks] > 0).any(axis=0) | (cluster.waits[:, blocks] > 0).any(axis=0)
        if not all_true(known):
            block = int(blocks[np.argmin(known)])
            rank = int(order.ranks[targets[np.argmin(known)]])
            text = (
                f"shared memory of rank {rank} is accessed before a cluster barrier shows that this block has started"
            )
            raise fault(RaceFault, text, c, ins, 32 * block)

    # ---- asynchronous accesses

    def knowledge(self, c: WarpBatch, lanes: Array) -> tuple[Array, Array, Array]:
        """The tuple (clocks, fences, events) that the warps of some lanes have acquired, with one column for each
        lane."""
        blocks = lanes >> 5
        events = self.order.events[c.warp, blocks]
        of_lanes = self.order.unknown[c.warp]
        if of_lanes is not None:
            events &= ~of_lanes[lanes]
        return self.order.clocks[c.warp][:, blocks], self.order.fenced[c.warp][:, blocks], events

    def check(
        self,
        c: WarpBatch,
        a: Access,
        operation: str,
        writes: bool,
        known: tuple[Array, Array, Array] | None = None,
        proxy: bool = True,
        mixes: bool = False,
    ) -> None:
        """Raises a fault unless earlier accesses to the same memory are complete and visible to the async proxy.

        ``known``: the state of the warps that start the work; ``proxy``: True if the work uses the async proxy;
        ``mixes``: True if the work may overlap with reductions and with work that writes less than a chunk.
        """
        clocks, fenced, events = known or self.knowledge(c, a.lanes)
        g, pages = a.chunks, a.pages
        unknown = ~events[:, None]
        if pages & self.writing_pages:
            bits = self.writing[g] & unknown
            if mixes or a.size < 16:
                bits &= ~self.partial
            if any_true(bits):
                self.fail(c, a, bits, operation, "writes")
        if writes and pages & self.reading_pages:
            bits = self.reading[g] & unknown
            if any_true(bits):
                self.fail(c, a, bits, operation, "reads")
        if pages & self.generic_pages and proxy:
            written = self.written[g]
            if any_true(written):
                actor, row = self.writer[g], np.arange(len(g))[:, None]
                for table, needed, fault_class in ((clocks, self.ordered[g], RaceFault), (fenced, written, AsyncFault)):
                    bad = (table[actor, row] < needed) & (written != 0)
                    if not any_true(bad) or (fault_class is RaceFault and not self.order.races):
                        continue
                    i, j = np.unravel_index(int(np.argmax(bad)), bad.shape)
                    writer = int(actor[i, j]) % self.order.warp_count
                    missing = "no barrier between" if fault_class is RaceFault else f"no {FENCE} between"
                    verb = "overwrites" if writes else "reads"
                    line = int(self.write_line[g[i, j]])
                    text = f"{operation} {verb} shared memory that warp {writer} wrote (line {line}), with {missing}"
                    at = (int(g[i, j]) << CHUNK) % self.wave.stride
                    raise fault(fault_class, text, c, a.ins, int(a.lanes[i]), at)
        if writes and self.order.races:
            self.order.close_all(pages)
            if pages & (self.order.live_read | self.order.live_atomic | self.order.live_write):
                segment = Segment(c)
                positions = a.at.reshape(-1)
                touch = Touch(pages, positions, 0, a.size, None, a.ins)
                touch.lanes = np.repeat(a.lanes, len(positions) // len(a.lanes))
                segment.writes.append(touch)
                segment.wpages = pages
                segment.remote = any_true(positions // self.wave.stride != touch.lanes >> 5)
                knowledge = self.order.clocks[c.warp]
                self.order.check_segment(segment, knowledge, operation)

    def fail(self, c: WarpBatch, a: Access, bits: Array, operation: str, verb: str) -> None:
        i, j = np.unravel_index(int(np.argmax(bits != 0)), bits.shape)
        event = self.event_of(int(bits[i, j]))
        at = (int(a.chunks[i, j]) << CHUNK) % self.wave.stride
        text = f"{operation} touches shared memory before a wait for {event}, which {verb} it"
        raise fault(AsyncFault, text, c, a.ins, int(a.lanes[i]), at)

    def start(self, event: Event, a: Access) -> None:
        """Records that the work of an event, with the access ``a``, is in flight."""
        g = a.chunks
        event.chunks.append(g)
        event.pages |= a.pages
        if not event.writes:
            self.reading[g] |= event.bit
            self.reading_pages |= a.pages
            return
        self.writing_pages |= a.pages
        if event.partial:
            self.writing[g] |= event.bit
        else:
            self.writing[g] = event.bit
            self.reading[g] = 0
            if self.watches_writes:
                self.written[g] = 0
