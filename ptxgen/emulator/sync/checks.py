"""Checks of shared memory: uninitialised bytes, copies in flight, and races between warps.

A segment is the accesses of one warp batch between two synchronisations. Two segments of different warps race if they
share bytes, one of them writes, and no chain of synchronisations orders them. Vector clocks, one for each warp of each
block, tell the order. Segments are compared byte by byte only if they share pages of 128 bytes; sets of pages are the
bits of a Python integer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import SHARED_BASE
from ptxgen.emulator.memory.global_memory import typed_views
from ptxgen.emulator.ptx.syntax import SIZES, Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.lanes import ALL, AccessLog, Lanes, LaneShadow
from ptxgen.emulator.sync.memory_order import ATOMIC, WEAK, MemoryOrder
from ptxgen.emulator.sync.touch import FULL, PAGE, Reads, Touch, each, page_bits, units, words
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault, fresh_terms, place_of
from ptxgen.errors import AsyncFault, RaceFault, UninitialisedFault

Array = NDArray[Any]
#: how messages call memory that no store has written
UNINITIALISED = "uninitialised shared memory"
#: reasons, in messages, why an arrival at an mbarrier does not order an access
ARRIVAL_OF_A_LANE = "the arrival of line {} releases the accesses of its own lanes; bar.warp.sync must precede it"
#: instructions that write memory before the next instruction executes
STORES = {"st", "stmatrix"}
#: pairs (accesses of the new segment, accesses of the old one) that race unless they are ordered
CONFLICTS = (
    ("writes", "writes"),
    ("writes", "reads"),
    ("reads", "writes"),
    ("atomics", "writes"),
    ("atomics", "reads"),
    ("writes", "atomics"),
    ("reads", "atomics"),
    ("strong_reads", "writes"),
    ("writes", "strong_reads"),
)


class Stores:
    """A write by some lanes (``which``; None: all): the positions, and where the write changed memory."""

    __slots__ = ("at", "changed", "lanes", "touch")

    def __init__(self, touch: Touch, which: Array | None) -> None:
        at, lanes = touch.positions()
        lanes = np.arange(len(at)) if lanes is None else lanes
        some = slice(None) if which is None else which
        self.touch, self.at, self.lanes = touch, at[some], lanes[some]
        self.changed = None if touch.changed is None else touch.changed[some]


class Segment:
    """The accesses of one warp batch between two synchronisations. ``clock``: the clock of the warp at the end, in each
    block."""

    __slots__ = (
        "apages",
        "atomics",
        "batch",
        "clock",
        "coverage",
        "reads",
        "remote",
        "rpages",
        "spages",
        "strong_reads",
        "wpages",
        "writes",
    )

    def __init__(self, batch: WarpBatch) -> None:
        self.batch = batch
        self.reads: list[Touch | Reads] = []
        self.writes: list[Touch] = []
        self.atomics: list[Touch] = []  # and strong writes
        self.strong_reads: list[Touch] = []
        self.rpages = self.wpages = self.apages = self.spages = 0
        self.remote = False  # whether it accesses memory of other blocks
        self.clock: Any = None
        #: name of a list of accesses, as in ``CONFLICTS`` -> the units that they touch, as bits
        self.coverage: dict[str, int] = {}

    def of_lanes(self, mask: Array) -> Segment:
        """The weak accesses of the segment that the lanes of a mask have made."""
        out = Segment(self.batch)
        out.reads = [part for part in (touch.of_lanes(mask) for touch in each(self.reads)) if len(part.index)]
        out.writes = [part for part in (touch.of_lanes(mask) for touch in self.writes) if len(part.index)]
        out.rpages, out.wpages, out.remote, out.clock = self.rpages, self.wpages, self.remote, self.clock
        return out


class Checks:
    """The shadow memory of one wave's shared memory, and the clocks of its warps."""

    #: the number of blocks of a cluster, and of warps of a cluster
    size = 1
    actors: int
    #: for each block, the number of its first warp among ``actors``
    base: Array
    #: a function called at each access with the warp batch, the touch and the operation
    hook: Callable[[WarpBatch, Touch, str], None] | None = None

    def __init__(self, wave: Wave) -> None:
        options = wave.engine.options
        self.wave = wave
        self.valid_pages = 0
        self.valid: Array | None = None
        self.valid_views: dict[int, Array] = {}
        self.dirty = 0  # pages written since the last refresh
        #: position -> the last store of an undefined value
        self.undefined_stores: dict[int, str] = {}
        #: position -> (size of the last store of an undefined value, sum of the unknown values that it stored)
        self.undefined_terms: dict[int, tuple[int, int]] = {}
        self.maybe_uninitialised = False  # whether the last read included bytes that may be uninitialised
        if options.uninitialised:
            self.valid = np.zeros(len(wave.shared), np.uint8)
            self.valid_views = typed_views(self.valid)
            if not wave.base:
                self.valid.reshape(wave.blocks, wave.stride)[:, :SHARED_BASE] = 1
                self.dirty |= page_bits(0, SHARED_BASE)
        else:
            self.valid_pages = -1
        self.races = options.races
        self.copy_pages = 0
        #: log2 of the bytes of a unit of ``copy_counts``, which has the number of copies in flight to each unit
        self.copy_shift = max(wave.program.grains[0], 2)
        self.copy_counts: Array | None = None
        self.scratch: dict[int, Array] | None = None
        self.live: list[Segment] = []
        self.written_pages = [0] * len(wave.batches)  # by warp, since all warps synchronised
        self.writes = 0
        #: the last store to pages that another warp has written, with (unit, elements, old values) of each part
        self.stored: tuple[Touch, list[tuple[int, Array, Array]]] | None = None
        self.blocks = np.arange(wave.blocks)
        #: ``id`` of an instruction -> its memory order; position -> the publication that the last strong store to it
        #: carries
        self.memory_orders: dict[int, MemoryOrder] = {}
        self.carried: dict[int, int] = {}
        self.shadow: LaneShadow | None = None
        if self.size == 1:
            self.actors, self.base = len(wave.batches), np.zeros(wave.blocks, np.int64)
        if self.races:
            self.reset_clocks()
            #: for each warp batch: the order of its lanes, and their accesses since they last synchronised
            self.lanes = [Lanes(32 * wave.blocks) for _ in wave.batches]
            checks = weakref.proxy(self)  # which owns the logs
            self.access_logs = [AccessLog(batch, lambda: checks.lane_shadow()) for batch in wave.batches]
            #: for each warp batch: the order of its lanes if exchanges of registers order them, too; for writes after
            #: reads
            self.exchanged = [Lanes(32 * wave.blocks) for _ in wave.batches]

    # ---- initialised bytes

    def mark_written(self, pages: int, positions: Array, size: int) -> None:
        """Marks bytes as initialised; ``positions``: in the arena of shared memory."""
        if not pages & ~self.valid_pages:
            return
        for unit, at in words(positions, size):
            self.valid_views[unit][at] = FULL[unit]
        self.dirty |= pages

    def mark_undefined(self, positions: Array, size: int, source: str, terms: Array | None = None) -> None:
        """Marks bytes as undefined, after a store of undefined values.

        ``source``: the store, for messages; ``terms``: the sums of unknown values that are stored, if they are known.
        """
        if self.valid is None or not len(positions):
            return
        for unit, at in words(positions, size):
            self.valid_views[unit][at] = 0
        at = positions % self.wave.stride
        for page in np.unique(np.concatenate([at, at + size - 1]) >> PAGE).tolist():
            self.valid_pages &= ~(1 << page)
            self.dirty |= 1 << page
        self.undefined_stores.update(dict.fromkeys(positions.tolist(), source))
        for position in positions.tolist() if self.undefined_terms else ():
            for overlapped in range(position - 7, position + size):
                self.undefined_terms.pop(overlapped, None)
        if terms is not None:
            for position, number in zip(positions.tolist(), terms.tolist(), strict=True):
                self.undefined_terms[position] = size, number

    def refresh(self, pages: int) -> None:
        """Finds the pages whose bytes are now all initialised in every block."""
        assert self.valid is not None
        todo = pages & self.dirty & ~self.valid_pages
        self.dirty &= ~todo
        if not todo:
            return
        first = (todo & -todo).bit_length() - 1
        last = todo.bit_length()
        per_block = self.valid.reshape(self.wave.blocks, -1)[:, first << PAGE : last << PAGE]
        whole = per_block.reshape(self.wave.blocks, -1, 1 << PAGE).all(axis=(0, 2))
        for i in flatnonzero(whole):
            self.valid_pages |= 1 << (first + int(i))

    def loaded_terms(self, c: WarpBatch, slot: int, at: Array, lanes: Array | None, size: int) -> Array:
        """The sum of unknown values, for each lane, in a register that a load fills with undefined bytes."""
        terms = fresh_terms(c.n)
        if self.undefined_terms and SIZES[c.wave.program.function.registers[slot].type] == size:
            whole = np.ones(len(at), bool)
            for unit, elements in words(at, size):
                whole &= self.valid_views[unit][elements] == 0
            for i in flatnonzero(whole).tolist():
                stored, number = self.undefined_terms.get(int(at[i]), (0, 0))
                if stored == size:
                    terms[i if lanes is None else int(lanes[i])] = number
        return terms

    def check_read(self, c: WarpBatch, touch: Touch, slots: list[int] | None) -> None:
        """Handles lanes that read uninitialised bytes.

        ``slots``: the destination registers of a load, one for each piece of the access; they become undefined in those
        lanes. An empty list: the instruction marks its registers itself. None: the read is a fault.
        """
        if self.dirty & touch.pages:
            self.refresh(touch.pages)
            if not touch.pages & ~self.valid_pages:
                return
        if slots == []:
            self.maybe_uninitialised = True
            return
        at, lanes = touch.positions()
        pieces = len(slots) if slots else 1
        size = touch.size // pieces
        loaded: dict[int, tuple[Array, int, str]] = {}
        for piece in range(pieces):
            bad = np.zeros(len(at), bool)
            for unit, elements in words(at + piece * size, size):
                bad |= self.valid_views[unit][elements] != FULL[unit]
            if touch.mask is not None and lanes is None:
                bad &= touch.mask
            if not any_true(bad):
                continue
            i = int(np.argmax(bad))
            address = int(at[i]) % self.wave.stride + piece * size
            memory = self.undefined_stores.get(int(at[i]) + piece * size, UNINITIALISED)
            if slots is None:
                lane = i if lanes is None else int(lanes[i])
                raise fault(
                    UninitialisedFault, "shared memory is read before it is written", c, touch.ins, lane, address
                )
            where = bad
            if lanes is not None:
                where = np.zeros(c.n, bool)
                where[lanes] = bad
            loaded[slots[piece]] = where, address, memory
            c.undefined_sums[slots[piece]] = self.loaded_terms(c, slots[piece], at + piece * size, lanes, size)
        if loaded:
            self.wave.program.mark_undefined(c, loaded, touch.ins)

    # ---- copies in flight

    def begin_copy(self, touch: Touch) -> None:
        """Records that a copy in flight writes ``touch`` from now on."""
        if self.copy_counts is None:
            self.copy_counts = np.zeros((len(self.wave.shared) >> self.copy_shift) + 1, np.int32)
        for elements in units(touch.positions()[0], touch.size, self.copy_shift):
            self.copy_counts[elements] += 1

    def end_copy(self, touch: Touch) -> None:
        """Records that the wait for the copy that writes ``touch`` has ended."""
        assert self.copy_counts is not None
        for elements in units(touch.positions()[0], touch.size, self.copy_shift):
            self.copy_counts[elements] -= 1

    def check_copies(self, c: WarpBatch, touch: Touch, operation: str) -> None:
        """Faults if an access overlaps the destination of a copy before the wait for it."""
        at, lanes = touch.positions()
        counts = self.copy_counts
        assert counts is not None
        if not any(any_true(counts[elements]) for elements in units(at, touch.size, self.copy_shift)):
            return
        scratch = self.scratch_views()
        for batch in self.wave.batches:
            for copy in batch.copies:
                if not copy.touch.pages & touch.pages:
                    continue
                destination, _ = copy.touch.positions()
                for unit, elements in words(destination, copy.touch.size):
                    scratch[unit][elements] = FULL[unit]
                bad = np.zeros(len(at), bool)
                for unit, elements in words(at, touch.size):
                    bad |= scratch[unit][elements] != 0
                for unit, elements in words(destination, copy.touch.size):
                    scratch[unit][elements] = 0
                if any_true(bad):
                    i = int(np.argmax(bad))
                    lane = i if lanes is None else int(lanes[i])
                    raise fault(
                        AsyncFault,
                        f"shared memory is {operation} while the copy of line {copy.touch.ins.line} to it is in flight",
                        c,
                        touch.ins,
                        lane,
                        int(at[i]) % self.wave.stride,
                    )

    def scratch_views(self) -> dict[int, Array]:
        if self.scratch is None:
            self.scratch = typed_views(np.zeros(len(self.wave.shared), np.uint8))
        return self.scratch

    # ---- races

    def reset_clocks(self, past: int = 0) -> None:
        """Starts new clocks: all warps are ordered after all accesses up to the clock ``past``."""
        warp_count = len(self.wave.batches)
        self.clocks = np.full((warp_count, warp_count, self.wave.blocks), past, np.int32)
        self.clocks[np.arange(warp_count), np.arange(warp_count)] = past + 1
        self.live = []
        self.live_read = self.live_write = self.live_atomic = self.live_strong = 0
        self.written_pages = [0] * warp_count

    def clock_of(self, warp: int) -> Array:
        """The clock of a warp, as an array with an element for each block."""
        out: Array = (
            self.clocks[warp, warp].copy() if self.size == 1 else self.clocks[warp, self.base + warp, self.blocks]
        )
        return out

    def tick(self, warp: int) -> None:
        """Increments the clock of a warp in every block."""
        if self.size == 1:
            self.clocks[warp, warp] += 1
        else:
            self.clocks[warp, self.base + warp, self.blocks] += 1

    def lane_shadow(self) -> LaneShadow:
        if self.shadow is None:
            self.shadow = LaneShadow(self.wave)
        return self.shadow

    def synchronise_lanes(self, c: WarpBatch, members: Array) -> None:
        """Lanes of some warps synchronise. ``members``: for each lane, the mask of the lanes that it synchronises with,
        0 if it does not take part."""
        if not self.races:
            return
        if self.wave.messages is not None:
            self.wave.messages.apply_received(c, flatnonzero(c.warps(members != 0)))
        live = c.live()
        self.access_logs[c.warp].synchronise(members, live)
        now = self.clock_of(c.warp)
        for known in (self.lanes[c.warp], self.exchanged[c.warp]):
            known.synchronise(members, live, now[c.row])
        self.tick(c.warp)

    def synchronise_warps(self, c: WarpBatch, warps: Array) -> None:
        """All lanes of some warps synchronise."""
        if not self.races:
            return
        if self.wave.messages is not None:
            self.wave.messages.apply_received(c, flatnonzero(warps))
        log = self.access_logs[c.warp]
        if all_true(warps | ~c.warps(None)):
            log.flush()
        elif log.entries:
            log.synchronise(np.where(np.repeat(warps, 32), ALL, np.uint32(0)), c.live())
        now = self.clock_of(c.warp)
        for known in (self.lanes[c.warp], self.exchanged[c.warp]):
            known.synchronise_all(warps, now)
        self.tick(c.warp)

    def exchange(self, c: WarpBatch, members: Array | None, event: str = "exchange") -> None:
        """Lanes exchange registers; ``members``: as in ``synchronise_lanes``, None: all lanes; ``event``: as in
        ``AccessLog.exchange``."""
        if not self.races:
            return
        self.access_logs[c.warp].exchange(members, event)
        if self.wave.engine.shadow is None:
            return
        now = self.clock_of(c.warp)
        if members is None:
            self.exchanged[c.warp].synchronise_all(None, now)
        else:
            self.exchanged[c.warp].synchronise(members, c.live(), now[c.row])
        self.tick(c.warp)

    def finish(self, c: WarpBatch) -> None:
        """Ends the accesses of a warp batch, all of whose lanes have exited."""
        if self.races:
            self.access_logs[c.warp].flush()

    def mark_release(self, c: WarpBatch, lanes: Array) -> None:
        """Lanes (a mask) have released their accesses."""

    def forget_stale(self, c: WarpBatch) -> None:
        """Makes all lanes of a warp acquire what the warp has acquired."""

    def acquire_own_clock(self, c: WarpBatch, blocks: Array, clocks: Array) -> None:
        """A warp acquires its own earlier clocks: its lanes are ordered after all accesses of the warp up to them."""
        by_block = np.zeros(self.wave.blocks, np.int64)
        by_block[blocks] = clocks
        known = by_block[c.row]
        if any_true(known > self.lanes[c.warp].every):
            self.access_logs[c.warp].acquire(blocks, by_block)
            for lanes in (self.lanes[c.warp], self.exchanged[c.warp]):
                np.maximum(lanes.every, known, out=lanes.every)

    def record(self, c: WarpBatch, touch: Touch, operation: str) -> None:
        """Adds an access to the current segment. Strong accesses and atomic operations pass messages."""
        self.access_logs[c.warp].add(touch, operation)
        order = self.memory_order(touch.ins)
        if order.strength == WEAK:
            self.add(c, touch, operation)
            return
        messages = self.wave.messages
        if messages is None:
            self.add(c, touch, "strong read" if operation == "read" else "atomic")
            return
        at, lanes = touch.positions()
        lanes = np.arange(len(at)) if lanes is None else lanes
        if order.releases:
            messages.fence(c, np.unique(lanes >> 5), order.scope)
        self.add(c, touch, "strong read" if operation == "read" else "atomic")
        if operation != "read":
            self.attach(at, messages.carried(c, lanes), operation == "atomic")
        if self.carried and order.reads and (operation == "read" or order.strength == ATOMIC):
            numbers = np.array([self.carried.get(position, 0) for position in at.tolist()])
            messages.receive(c, lanes, numbers, order.acquires)

    def memory_order(self, ins: Instruction) -> MemoryOrder:
        """The memory order of an instruction."""
        order = self.memory_orders.get(id(ins))
        if order is None:
            order = self.memory_orders[id(ins)] = MemoryOrder(ins)
        return order

    def record_reads(self, c: WarpBatch, reads: Reads) -> None:
        """Adds weak reads to the current segment."""
        self.access_logs[c.warp].add(reads, "read")
        self.add(c, reads, "read")

    def attach(self, at: Array, numbers: Array, unites: bool) -> None:
        """Lets written values carry the publications of their writers. Atomic operations (``unites``) add theirs to
        those that the values carry already."""
        for position, number in zip(at.tolist(), numbers.tolist(), strict=True):
            if unites:
                assert self.wave.messages is not None
                number = self.wave.messages.publications.unite([self.carried.get(position, 0), number])
            if number or position in self.carried:
                self.carried[position] = number

    def add(self, c: WarpBatch, touch: Touch | Reads, operation: str) -> None:
        segment = c.segment
        if segment is None:
            segment = c.segment = Segment(c)
        if operation == "read" or isinstance(touch, Reads):
            segment.rpages |= touch.pages
            segment.reads.append(touch)
            if len(segment.reads) > 4096:
                self.close(c)
        elif operation == "strong read":
            segment.spages |= touch.pages
            segment.strong_reads.append(touch)
            if len(segment.strong_reads) > 4096:
                self.close(c)
        elif operation == "write":
            self.resolve_store()
            segment.wpages |= touch.pages
            segment.writes.append(touch)
            self.writes += 1
            touch.number = self.writes
            mine, self.written_pages[c.warp] = self.written_pages[c.warp], 0
            if touch.ins.op in STORES and any(map(touch.pages.__and__, self.written_pages)):
                views = self.wave.views
                at = words(touch.positions()[0], touch.size)
                self.stored = touch, [(unit, elements, views[unit][elements]) for unit, elements in at]
            self.written_pages[c.warp] = mine | touch.pages
        else:
            self.resolve_store()
            segment.apages |= touch.pages
            segment.atomics.append(touch)

    def resolve_store(self) -> None:
        """Determines where the last store changed the contents of memory."""
        if self.stored is None:
            return
        (touch, old_values), self.stored = self.stored, None
        changed: Array = np.zeros(len(old_values[0][1]), bool)
        for unit, elements, old in old_values:
            changed |= self.wave.views[unit][elements] != old
        touch.changed = changed

    def close(self, c: WarpBatch) -> None:
        """Ends the segment of a warp batch at a synchronisation, and checks it for races with other segments."""
        if not self.races:
            return
        self.resolve_store()
        clock = self.clocks[c.warp, c.warp]
        segment, c.segment = c.segment, None
        if segment is not None:
            segment.clock = clock.copy()
            self.check_segment(segment, self.clocks[c.warp])
            self.add_live(segment)
        clock += 1

    def add_live(self, segment: Segment) -> None:
        """Keeps a segment, so that later segments are compared with it."""
        self.live.append(segment)
        self.live_read |= segment.rpages
        self.live_write |= segment.wpages
        self.live_atomic |= segment.apages
        self.live_strong |= segment.spages
        if len(self.live) > 16 * len(self.wave.batches):
            self.prune()

    def prune(self) -> None:
        """Removes the kept segments that all running warps are ordered after."""
        running = [batch.warp for batch in self.wave.batches if batch.count]
        live = [s for s in self.live if not self.is_known(s, running)]
        if len(live) > 15 * len(self.wave.batches):  # no barrier orders them: only the latest remain
            live = live[len(live) // 2 :]
        self.live = live
        self.live_read = self.live_write = self.live_atomic = self.live_strong = 0
        for s in live:
            self.live_read |= s.rpages
            self.live_write |= s.wpages
            self.live_atomic |= s.apages
            self.live_strong |= s.spages

    def is_known(self, s: Segment, running: list[int]) -> bool:
        """True if the warps ``running`` are ordered after a segment in every block."""
        others = [w for w in running if w != s.batch.warp]
        return not others or all_true(self.clocks[others, s.batch.warp] >= s.clock)

    def synchronise_clocks(self, releasing: Array, acquiring: Array) -> None:
        """Warps synchronise: ``releasing`` and ``acquiring`` are masks by [warp, block]."""
        if not self.races:
            return
        if all_true(releasing) and all_true(acquiring):
            self.reset_clocks(int(self.clocks.max()))
            return
        blocks = flatnonzero(releasing.any(axis=0))
        if len(blocks) and all_true(releasing[:, blocks] == releasing[:, blocks[:1]]):
            self.merge_clocks(flatnonzero(releasing[:, blocks[0]]), acquiring, blocks)
        else:
            for block in blocks:
                self.merge_clocks(flatnonzero(releasing[:, block]), acquiring, np.array([block]))

    def release_clocks(self, c: WarpBatch, blocks: Array) -> Any:
        """The clocks that warp ``c`` of some blocks releases at an arrival without a wait, including its own clock."""
        if not self.races:
            return None
        known = self.clocks[c.warp][:, blocks]
        known[c.warp] -= 1
        return known

    def acquire_clocks(self, acquiring: Array, released: Any, blocks: Array) -> None:
        """Warps, given as [warp, block], acquire clocks that were released in these blocks."""
        if not self.races:
            return
        for w in flatnonzero(acquiring[:, blocks].any(axis=1)):
            some = acquiring[w, blocks]
            self.clocks[w][:, blocks[some]] = np.maximum(self.clocks[w][:, blocks[some]], released[:, some])

    def merge_clocks(self, releasing: Array, acquiring: Array, blocks: Array) -> None:
        """The warps ``acquiring`` [warp, block] acquire the clocks of the warps ``releasing`` in some blocks."""
        known = self.clocks[np.ix_(releasing, np.arange(len(acquiring)), blocks)].max(axis=0)
        # the accesses of a releasing warp before its arrival end with the clock before the current one
        known[releasing] -= 1
        for w in flatnonzero(acquiring[:, blocks].any(axis=1)):
            at = blocks[acquiring[w, blocks]]
            self.clocks[w][:, at] = np.maximum(self.clocks[w][:, at], known[:, acquiring[w, blocks]])

    # ---- comparison of segments

    def check_segment(self, new: Segment, knowledge: Array, operation: str = "") -> None:
        """Checks a new segment against the live ones.

        ``knowledge[actor, block]``: the clocks that the segment is ordered after; ``operation``: for the message, if
        the segment is an asynchronous operation.
        """
        r, w, a, s = new.rpages, new.wpages, new.apages, new.spages
        if (
            w & (self.live_read | self.live_write | self.live_atomic | self.live_strong)
            | r & (self.live_write | self.live_atomic)
            | a & (self.live_write | self.live_read)
            | s & self.live_write
        ):
            for old in self.live:
                if (old.batch is not new.batch or self.size > 1) and (
                    (w & (old.rpages | old.wpages | old.apages | old.spages))
                    | (r & (old.wpages | old.apages))
                    | (a & (old.wpages | old.rpages))
                    | (s & old.wpages)
                ):
                    self.check_pair(new, old, knowledge, operation)

    def unordered_ranks(self, new: Segment, old: Segment, knowledge: Array) -> list[tuple[int, Array]]:
        """Pairs (rank, whether ordered, for each block) of the blocks in which the old segment is not ordered before
        the new one.

        The rank is that of the old segment's block in its cluster; -1: both segments access only their own block.
        """
        ordered = knowledge[old.batch.warp] >= old.clock
        return [] if all_true(ordered) else [(-1, ordered)]

    def lanes_of_rank(self, touch: Touch, rank: int) -> Array | None:
        """The lanes of an access that run in blocks of this rank; None (for rank -1): all lanes."""
        return None

    def check_pair(self, new: Segment, old: Segment, knowledge: Array, operation: str) -> None:
        """Raises a RaceFault if unordered accesses of two segments overlap."""
        ranks = self.unordered_ranks(new, old, knowledge)
        if not ranks:
            return
        for new_accesses, old_accesses in CONFLICTS:
            if not getattr(new, new_accesses) or not getattr(old, old_accesses):
                continue
            common = self.coverage(new, new_accesses) & self.coverage(old, old_accesses)
            if not common or (ranks[0][0] < 0 and all_true(ranks[0][1][self.blocks_of(common)])):
                continue
            mine, theirs = touches_in_common(
                list(each(getattr(new, new_accesses))), list(each(getattr(old, old_accesses)))
            )
            for rank, ordered in ranks if mine and theirs else ():
                if new_accesses == old_accesses and not operation:
                    hit = self.conflicting_stores(
                        [Stores(t, ~ordered[accessors(t)[2]]) for t in mine],
                        [Stores(t, self.lanes_of_rank(t, rank)) for t in theirs],
                    )
                else:
                    hit = self.overlap(mine, theirs, rank, ordered)
                if hit is None:
                    continue
                touch, lane, position = hit
                first, other_lane = self.first_access(theirs, position, touch.size, rank)
                accessor = f"warp {old.batch.warp}" if rank < 0 else f"warp {old.batch.warp} of rank {rank}"
                arrival = first.arrival or touch.arrival
                error = fault(
                    RaceFault,
                    f"{operation or named(new_accesses)} by warp {new.batch.warp} and {named(old_accesses)} "
                    f"by {accessor} (line {first.ins.line}) of the same shared memory with no barrier between"
                    + (f": {ARRIVAL_OF_A_LANE.format(arrival)}" if arrival else ""),
                    new.batch,
                    touch.ins,
                    lane,
                    position % self.wave.stride,
                    place_of(self.wave.program, named(old_accesses), first.ins, *old.batch.coordinates(other_lane)),
                )
                self.wave.engine.report(error)

    def coverage(self, segment: Segment, accesses: str) -> int:
        """The units of the wave's shared memory that the accesses of one list touch, as bits. No access is smaller than
        a unit."""
        bits = segment.coverage.get(accesses)
        if bits is None:
            shift = self.wave.program.grains[0]
            touched = np.zeros(len(self.wave.shared) >> shift, bool)
            for touch in each(getattr(segment, accesses)):
                for elements in units(touch.positions()[0], touch.size, shift):
                    touched[elements] = True
            bits = segment.coverage[accesses] = int.from_bytes(
                np.packbits(touched, bitorder="little").tobytes(), "little"
            )
        return bits

    def blocks_of(self, coverage: int) -> Array:
        """The blocks whose shared memory contains units of ``coverage``."""
        size = len(self.wave.shared) >> self.wave.program.grains[0] >> 3
        touched = np.frombuffer(coverage.to_bytes(size, "little"), np.uint8)
        out: Array = np.logical_or.reduce(touched.reshape(self.wave.blocks, -1), axis=1)
        return out

    def overlap(
        self, mine: list[Touch], theirs: list[Touch], rank: int, ordered: Array
    ) -> tuple[Touch, int, int] | None:
        """An access of ``mine`` that shares bytes with one of ``theirs`` in an unordered block, with its lane and
        position; None if there is none."""
        scratch = self.scratch_views()
        marked = []
        for touch in theirs:
            at, lanes = touch.positions()[0], self.lanes_of_rank(touch, rank)
            for unit, elements in words(at if lanes is None else at[lanes], touch.size):
                scratch[unit][elements] = FULL[unit]
                marked.append((unit, elements))
        hit: tuple[Touch, int, int] | None = None
        for touch in mine:
            at, lanes, blocks = accessors(touch)
            free = ~ordered[blocks]
            for unit, elements in words(at, touch.size) if hit is None and any_true(free) else ():
                shared = (scratch[unit][elements] != 0) & free
                if any_true(shared):
                    i = int(np.argmax(shared))
                    hit = touch, i if lanes is None else int(lanes[i]), int(at[i])
                    break
        for unit, elements in marked:
            scratch[unit][elements] = 0
        return hit

    def conflicting_stores(self, mine: list[Stores], theirs: list[Stores]) -> tuple[Touch, int, int] | None:
        """A store of ``mine`` that is unordered with one of ``theirs`` and writes other values to the same bytes, with
        its lane and position; None if there is none.

        Stores of the same value by several warps are a race only if the option ``strict`` is on; otherwise they add a
        note to the statistics.
        """
        strict = self.wave.engine.options.strict
        scratch = self.scratch_views()
        marks = {id(stores): 1 + (i >= len(mine)) for i, stores in enumerate([*mine, *theirs])}
        marked = []
        hit: tuple[int, int] | None = None
        same: set[int] = set()
        for stores in sorted([*mine, *theirs], key=lambda stores: stores.touch.number):
            mark = marks[id(stores)]
            for unit, elements in words(stores.at, stores.touch.size):
                common = scratch[unit][elements] & (FULL[unit] * (3 - mark)) != 0
                if any_true(common):
                    bad = common if stores.changed is None or strict else common & stores.changed
                    if any_true(bad) and hit is None:
                        hit = int(stores.at[np.argmax(bad)]), stores.touch.size
                    same.add(stores.touch.ins.line)
                scratch[unit][elements] |= FULL[unit] * mark
                marked.append((unit, elements))
        for unit, elements in marked:
            scratch[unit][elements] = 0
        if hit is None:
            for line in sorted(same):
                self.wave.engine.stats.note(
                    f"line {line}: several warps store the same value at one address of "
                    "shared memory, with no barrier between"
                )
            return None
        position, size = hit
        for stores in mine:
            bad = (stores.at < position + size) & (stores.at + stores.touch.size > position)
            if any_true(bad):
                i = int(np.argmax(bad))
                return stores.touch, int(stores.lanes[i]), int(stores.at[i])
        raise AssertionError

    def first_access(self, touches: list[Touch], position: int, size: int, rank: int) -> tuple[Touch, int]:
        """The first access that overlaps ``size`` bytes at a position, by a block of this rank (-1: any block), with
        its lane."""
        for touch in touches:
            at, lanes, blocks = accessors(touch)
            hit = (at < position + size) & (at + touch.size > position)
            if rank >= 0:
                hit &= self.ranks_of(blocks) == rank
            if any_true(hit):
                i = int(np.argmax(hit))
                return touch, i if lanes is None else int(lanes[i])
        raise AssertionError("no access overlaps")

    def ranks_of(self, blocks: Array) -> Array:
        """The ranks of blocks of the wave in their clusters."""
        return self.wave.ranks[blocks]


def named(accesses: str) -> str:
    """The name in messages of an access from one list."""
    return accesses[:-1].replace("_", " ")


def touches_in_common(mine: list[Touch], theirs: list[Touch]) -> tuple[list[Touch], list[Touch]]:
    """The accesses of each of two lists that touch a page which an access of the other list touches."""
    if not mine or not theirs:
        return [], []
    pages = 0
    for touch in theirs:
        pages |= touch.pages
    mine = [touch for touch in mine if touch.pages & pages]
    pages = 0
    for touch in mine:
        pages |= touch.pages
    return mine, [touch for touch in theirs if touch.pages & pages]


def accessors(touch: Touch) -> tuple[Array, Array | None, Array]:
    """The tuple (positions, lanes or None for all, block of the wave in which each lane runs) of an access."""
    at, lanes = touch.positions()
    return at, lanes, (np.arange(len(at)) if lanes is None else lanes) >> 5
