"""The happens-before relation of programs with asynchronous work or clusters.

An actor is one warp of one block of a cluster. A clock counts the segments of each actor. The vector clock of a warp
determines which segments of other actors happened before its current segment. Every synchronisation also passes on two
more facts: for each actor, the clock up to which a proxy fence follows its writes; and the asynchronous work that is
complete.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.checks import Checks, Segment, accessors
from ptxgen.emulator.sync.lanes import ALL, LANES, joined
from ptxgen.emulator.sync.memory_order import WEAK, Scope
from ptxgen.emulator.sync.touch import Touch
from ptxgen.emulator.warp_batch import WarpBatch, Wave

Array = NDArray[Any]


#: what a proxy fence orders writes before: accesses of the async proxy to each state space, and uses of tensor maps
FENCED = ("shared", "global", "tensormap")


class Released(NamedTuple):
    """The state that a warp releases, in some blocks.

    ``clocks`` [actor, block]; ``fenced`` [space and actor, block]: the clocks up to which a proxy fence follows the
    writes; ``events`` [block]: the asynchronous work that is known to be complete, as bits.
    """

    clocks: Array
    fenced: Array
    events: Array


class MapAcquire(NamedTuple):
    """An acquire of a tensor map by an actor. The acquire covers the writes of other actors up to certain clocks: those
    after which the writer released its tensor maps.

    ``actor``, ``clock``: the actor and its clock at the acquire; ``fenced``: the covered clock of each actor of the
    cluster; ``others``: number of another cluster -> its clocks, of which row 2 has the covered ones.
    """

    actor: int
    clock: int
    fenced: Array
    others: dict[int, Array]


#: number of acquires that are kept for one map and one block
MOST_ACQUIRES = 8


class HappensBefore(Checks):
    """The checks of one wave. ``clocks[w, actor, block]``: the clock of an actor up to which warp w of a block has
    acquired."""

    def __init__(self, wave: Wave) -> None:
        x, y, z = wave.engine.cluster
        self.size = x * y * z
        self.warp_count = len(wave.batches)
        self.actors = self.size * self.warp_count
        self.ranks = wave.ranks
        self.remote_warps: set[int] = set()  # warps that have accessed the memory of other blocks
        self.base = wave.ranks * self.warp_count  # first actor of each block
        super().__init__(wave)
        if not self.races:
            self.reset_clocks()
        shape = self.warp_count, self.actors, wave.blocks
        wide = self.warp_count, len(FENCED) * self.actors, wave.blocks
        #: as [warp, space and actor, block]: for each space in FENCED and each actor, the clock up to which a fence
        #: follows its writes
        self.fenced = np.zeros(wide, np.int32)
        self.events = np.zeros((self.warp_count, wave.blocks), np.uint64)
        #: (block, address of a tensor map) -> its acquires
        self.map_acquires: dict[tuple[int, int], list[MapAcquire]] = {}
        #: for each warp and lane: the events that the warp knows to be complete, but this lane does not (None: no
        #: events)
        self.unknown: list[Array | None] = [None] * self.warp_count

        #: for each warp: the lanes that have not waited for a phase while others have, and the clocks before that wait
        #: (None: no lanes)
        self.stale: list[tuple[Array, Array] | None] = [None] * self.warp_count

        def nothing() -> Released:
            return Released(np.zeros(shape, np.int32), np.zeros(wide, np.int32), np.zeros_like(self.events))

        #: the state of each warp at its last fence, which its relaxed arrivals release to its own block, and to other
        #: blocks; a fence of CTA scope does not reach other blocks
        self.published, self.published_to_others = nothing(), nothing()
        #: the state that the relaxed waits of each warp have received since its last fence, from its own block and from
        #: other blocks; the next fence acquires it
        self.pending, self.pending_of_others = nothing(), nothing()

    def reset_clocks(self, past: int = 0) -> None:
        self.clocks = np.zeros((self.warp_count, self.actors, self.wave.blocks), np.int32)
        for w in range(self.warp_count):
            self.clocks[w, self.base + w, self.blocks] = 1
        self.live: list[Segment] = []
        self.live_read = self.live_write = self.live_atomic = self.live_strong = 0
        self.written_pages = [0] * self.warp_count

    # ---- segments

    def close(self, c: WarpBatch) -> None:
        self.resolve_store()
        segment, c.segment = c.segment, None
        if segment is not None:
            segment.clock = self.clock_of(c.warp)
            segment.remote = c.warp in self.remote_warps
            self.check_segment(segment, self.clocks[c.warp])
            stale = self.stale[c.warp]
            if stale is not None:
                self.check_segment(segment.of_lanes(stale[0]), stale[1])
            if segment.remote:  # two blocks may access the same memory by the same warp number
                self.check_pair(segment, segment, self.clocks[c.warp], "")
                self.remote_warps.discard(c.warp)
            self.add_live(segment)
        self.tick(c.warp)

    def close_all(self, pages: int) -> None:
        """Ends the segments that accessed pages in ``pages``."""
        for batch in self.wave.batches:
            s = batch.segment
            if s is not None and (s.rpages | s.wpages | s.apages | s.spages) & pages:
                self.close(batch)

    def lanes_of_rank(self, touch: Touch, rank: int) -> Array | None:
        return None if rank < 0 else self.ranks[accessors(touch)[2]] == rank

    def unordered_ranks(self, new: Segment, old: Segment, knowledge: Array) -> list[tuple[int, Array]]:
        warp = old.batch.warp
        same = warp == new.batch.warp
        if not (new.remote or old.remote):
            ordered = knowledge[self.base + warp, self.blocks] >= old.clock
            return [] if same or all_true(ordered) else [(-1, ordered)]
        out = []
        for rank in range(self.size):
            ordered = knowledge[rank * self.warp_count + warp] >= old.clock[self.blocks - self.ranks + rank]
            if same:
                ordered |= self.ranks == rank
            if not all_true(ordered):
                out.append((rank, ordered))
        return out

    def is_known(self, s: Segment, running: list[int]) -> bool:
        for rank in range(self.size):
            need = s.clock[self.blocks - self.ranks + rank]
            for w in running:
                if w == s.batch.warp and self.size == 1:
                    continue
                if not all_true(self.clocks[w, rank * self.warp_count + s.batch.warp] >= need):
                    return False
        return True

    # ---- lanes

    def learn(self, c: WarpBatch, lanes: Array, known: Array, before: Array) -> None:
        """Records that lanes have waited for events. ``known``: the events, by lane; ``before``: the events that their
        warps knew before, by block."""
        if not self.races:
            return
        by_lane = np.zeros(c.n, np.uint64)
        by_lane[lanes] = known
        new = (self.events[c.warp] & ~before)[c.row] & ~by_lane
        new[~c.live()] = 0
        unknown = self.unknown[c.warp]
        if unknown is None and any_true(new):
            unknown = np.zeros(c.n, np.uint64)
        if unknown is not None:
            self.unknown[c.warp] = (unknown | new) & ~by_lane

    def wait_of_lanes(self, c: WarpBatch, lanes: Array) -> None:
        """Records that some lanes will acquire a phase. The accesses of the other lanes of their warps may precede or
        follow this acquire."""
        stale = self.stale[c.warp]
        if not self.races:
            return
        if stale is None:
            waiting = np.zeros(self.wave.blocks, bool)
            waiting[lanes >> 5] = True
            mask = c.live() & np.repeat(waiting, 32)
        else:
            mask = stale[0].copy()
        mask[lanes] = False
        if stale is None and not any_true(mask):
            return
        self.close(c)
        clocks = self.clocks[c.warp].copy() if stale is None else stale[1]
        self.stale[c.warp] = (mask, clocks) if any_true(mask) else None

    def forget_stale(self, c: WarpBatch) -> None:
        if self.stale[c.warp] is not None:
            self.close(c)
            self.stale[c.warp] = None

    def exchange(self, c: WarpBatch, members: Array | None, event: str = "exchange") -> None:
        super().exchange(c, members, event)
        if event == "exchange" and not (self.stale[c.warp] is None and self.unknown[c.warp] is None):
            # what a lane does next may depend on a lane that has waited
            self.join_lanes(c, np.full(c.n, ALL) if members is None else members)

    def synchronise_lanes(self, c: WarpBatch, members: Array) -> None:
        super().synchronise_lanes(c, members)
        self.join_lanes(c, members)

    def synchronise_warps(self, c: WarpBatch, warps: Array) -> None:
        super().synchronise_warps(c, warps)
        if self.unknown[c.warp] is not None or self.stale[c.warp] is not None:
            self.join_lanes(c, np.where(np.repeat(warps, 32) & c.live(), ALL, np.uint32(0)))

    def join_lanes(self, c: WarpBatch, members: Array) -> None:
        """Lanes that synchronise learn what each of them has waited for; ``members``: as in ``synchronise_lanes``."""
        stale = self.stale[c.warp]
        if stale is not None:
            self.close(c)
            mask = stale[0] & ~joined(~stale[0] & (members != 0), members, c.live())
            self.stale[c.warp] = (mask, stale[1]) if any_true(mask) else None
        unknown = self.unknown[c.warp]
        if unknown is None:
            return
        unknown[~c.live()] = ~np.uint64(0)  # lanes that have exited tell nothing
        rows, named = unknown.reshape(-1, 1, 32), members.reshape(-1, 32, 1) >> LANES & np.uint32(1) != 0
        shared = np.bitwise_and.reduce(np.where(named, rows, ~np.uint64(0)), axis=2).reshape(-1)
        unknown = np.where(members != 0, unknown & shared, unknown)
        unknown[~c.live()] = 0
        self.unknown[c.warp] = unknown if any_true(unknown) else None

    # ---- release and acquire

    def release(self, c: WarpBatch, blocks: Array, relaxed: bool = False, to_others: bool = False) -> Released:
        """The clocks, fences and events that warp ``c`` of some blocks releases.

        ``relaxed``: the release has no .release, so it has the state that the last fence published; ``to_others``: the
        release is to threads of other blocks.
        """
        self.close(c)
        w = c.warp
        if relaxed:
            published = self.published_to_others if to_others else self.published
            return Released(published.clocks[w][:, blocks], published.fenced[w][:, blocks], published.events[w, blocks])
        clocks = self.clocks[w][:, blocks]
        clocks[self.base[blocks] + w, np.arange(len(blocks))] -= 1
        return Released(clocks, self.fenced[w][:, blocks], self.events[w, blocks])

    def mark_release(self, c: WarpBatch, lanes: Array) -> None:
        if self.races:
            self.access_logs[c.warp].release(lanes, self.clock_of(c.warp) - 1)

    def release_of_lanes(
        self, c: WarpBatch, ins: Instruction, lanes: Array, blocks: Array
    ) -> tuple[Released, list[Touch]]:
        """Releases the state of some ``lanes`` (a mask) of warp ``c``. Returns the released state, and the accesses of
        the other lanes, which the release does not cover.

        Other lanes run independently, so that their unordered accesses may follow the release: they become part of the
        next segment.
        """
        known = self.release(c, blocks)
        if not self.races:
            return known, []
        late = []
        for touch, operation in self.access_logs[c.warp].unreleased(lanes):
            touch.arrival = ins.line
            self.repeat(c, touch, operation)
            at, _, mine = accessors(touch)
            if self.size > 1 and any_true(at // self.wave.stride != mine):
                self.remote_warps.add(c.warp)
            if operation != "read":
                late.append(touch)
        self.mark_release(c, lanes)
        return known, late

    def repeat(self, c: WarpBatch, touch: Touch, operation: str) -> None:
        """Adds an access of an earlier segment to the current one."""
        segment = c.segment
        if segment is None:
            segment = c.segment = Segment(c)
        weak = self.memory_order(touch.ins).strength == WEAK
        if operation == "read" and weak:
            segment.rpages |= touch.pages
            segment.reads.append(touch)
        elif operation == "read":
            segment.spages |= touch.pages
            segment.strong_reads.append(touch)
        elif operation == "write" and weak:
            segment.wpages |= touch.pages
            segment.writes.append(touch)
            self.written_pages[c.warp] |= touch.pages
        else:
            segment.apages |= touch.pages
            segment.atomics.append(touch)

    def acquire(
        self,
        c: WarpBatch,
        blocks: Array,
        known: Released,
        relaxed: bool = False,
        of_others: bool = False,
        of_lanes: bool = False,
    ) -> None:
        """Warp ``c`` of some blocks acquires the state ``known``. Without .acquire (``relaxed``), the next fence of the
        warp acquires the state.

        ``of_others``: threads of other blocks released the state; ``of_lanes``: some lanes acquire, which
        ``wait_of_lanes`` has recorded.
        """
        w = c.warp
        if not relaxed and not of_lanes:
            self.forget_stale(c)
        if relaxed:
            pending = self.pending_of_others if of_others else self.pending
            pending.clocks[w][:, blocks] = np.maximum(pending.clocks[w][:, blocks], known.clocks)
            pending.fenced[w][:, blocks] = np.maximum(pending.fenced[w][:, blocks], known.fenced)
            pending.events[w, blocks] |= known.events
            return
        self.close(c)
        if self.races:
            self.acquire_own_clock(c, blocks, known.clocks[self.base[blocks] + w, np.arange(len(blocks))])
        self.clocks[w][:, blocks] = np.maximum(self.clocks[w][:, blocks], known.clocks)
        self.fenced[w][:, blocks] = np.maximum(self.fenced[w][:, blocks], known.fenced)
        self.events[w, blocks] |= known.events

    def release_clocks(self, c: WarpBatch, blocks: Array) -> Any:
        known = self.release(c, blocks)
        self.mark_release(c, np.isin(c.row, blocks))
        return known

    def acquire_clocks(self, acquiring: Array, released: Any, blocks: Array) -> None:
        for w in flatnonzero(acquiring[:, blocks].any(axis=1)):
            some = acquiring[w, blocks]
            at = blocks[some]
            self.clocks[w][:, at] = np.maximum(self.clocks[w][:, at], released.clocks[:, some])
            self.fenced[w][:, at] = np.maximum(self.fenced[w][:, at], released.fenced[:, some])
            self.events[w, at] |= released.events[some]

    def synchronise_clocks(self, releasing: Array, acquiring: Array) -> None:
        if self.size == 1 and all_true(releasing) and all_true(acquiring):
            # all earlier accesses are ordered before all later ones, so they need not be kept
            self.live = []
            self.live_read = self.live_write = self.live_atomic = 0
            self.written_pages = [0] * self.warp_count
        self.exchange_clocks(releasing, acquiring, self.blocks)

    def exchange_clocks(self, releasing: Array, acquiring: Array, groups: Array) -> None:
        """Warps [warp, block] synchronise within groups of blocks; ``groups``: the group of each block."""
        released = self.clocks.copy()
        for w in range(self.warp_count):
            released[w, self.base + w, self.blocks] -= 1
        released = np.where(releasing[:, None, :], released, 0).max(axis=0)
        fenced = np.where(releasing[:, None, :], self.fenced, 0).max(axis=0)
        events = np.bitwise_or.reduce(np.where(releasing, self.events, np.uint64(0)), axis=0)
        if groups is not self.blocks:
            first = flatnonzero(np.diff(groups, prepend=-1))
            released = np.maximum.reduceat(released, first, axis=1)[:, groups]
            fenced = np.maximum.reduceat(fenced, first, axis=1)[:, groups]
            events = np.bitwise_or.reduceat(events, first)[groups]
        self.clocks = np.where(acquiring[:, None, :], np.maximum(self.clocks, released), self.clocks)
        self.fenced = np.where(acquiring[:, None, :], np.maximum(self.fenced, fenced), self.fenced)
        self.events = np.where(acquiring, self.events | events, self.events)

    def proxy_fence(self, c: WarpBatch, blocks: Array, spaces: str) -> None:
        """A proxy fence for some ``spaces`` of FENCED."""
        known = self.release(c, blocks)
        for i, space in enumerate(FENCED):
            if space in spaces:
                part = slice(i * self.actors, (i + 1) * self.actors)
                self.fenced[c.warp, part][:, blocks] = np.maximum(known.fenced[part], known.clocks)

    def unfenced(self, c: WarpBatch, lanes: Array) -> list[Touch]:
        """The writes of other lanes that nothing orders before a proxy fence by ``lanes`` (a mask)."""
        if not self.races:
            return []
        log = self.access_logs[c.warp]
        late = [touch for touch, operation in log.unreleased(lanes, "fence") if operation != "read"]
        log.release(lanes, self.clock_of(c.warp), "fence")
        return late

    def fence(self, c: WarpBatch, blocks: Array, scope: Scope) -> None:
        """A memory fence: publishes the state of the warp, and acquires what its relaxed waits have received."""
        w = c.warp
        for pending in (self.pending, self.pending_of_others) if scope > Scope.BLOCK else (self.pending,):
            part = Released(pending.clocks[w][:, blocks], pending.fenced[w][:, blocks], pending.events[w, blocks])
            self.acquire(c, blocks, part)
        known = self.release(c, blocks)
        every = self.published, self.published_to_others
        for published in every if scope > Scope.BLOCK else every[:1]:
            published.clocks[w][:, blocks] = known.clocks
            published.fenced[w][:, blocks] = known.fenced
            published.events[w, blocks] = known.events

    # ---- tensor maps

    def acquire_map(self, c: WarpBatch, address: int, blocks: Array) -> None:
        """Acquires the tensor map at an address, for warp ``c`` of some blocks
        (fence.proxy.tensormap::generic.acquire)."""
        self.close(c)
        for block in blocks.tolist():
            actor = int(self.base[block]) + c.warp
            fenced = self.fenced[c.warp, 2 * self.actors :, block].copy()
            others = c.wave.messages.other_clusters(c.warp, block) if c.wave.messages is not None else {}
            known = MapAcquire(actor, int(self.clocks[c.warp, actor, block]) - 1, fenced, others)
            acquires = self.map_acquires.setdefault((block, address), [])
            acquires.append(known)
            if len(acquires) > MOST_ACQUIRES:
                del acquires[0]

    def map_acquired(self, c: WarpBatch, block: int, address: int, cluster: int, actor: int, clock: int) -> bool:
        """True if warp ``c`` of a block is ordered after an acquire of a map that covers a write made at ``clock``.

        ``cluster``: that of the writer, -1 if it is the cluster of the block; ``actor``: the writer.
        """
        for known in self.map_acquires.get((block, address), ()):
            if self.clocks[c.warp, known.actor, block] < known.clock:
                continue
            fences = known.fenced if cluster < 0 else known.others[cluster][2] if cluster in known.others else None
            if fences is not None and fences[actor] >= clock:
                return True
        return False
