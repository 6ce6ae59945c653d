"""The race checks of global memory, by shadow memory.

Each unit of global memory has three marks: of the last write, of the last read, and of the first read since that write.
A mark holds the thread, the clock of its warp, and the instruction. An access races with a mark of another thread
unless one of these orders it after the mark: synchronisations of the warp (``lanes``), barriers of the block or of the
cluster (``checks``, ``happens_before``), or a message through memory (``messages``). The marks of a launch are kept for
the next launch, which may begin before this one has ended.

These are not reported as races: two atomic or strong accesses; several lanes of one warp that write one address in one
instruction; a write of the value that memory already holds; a weak read that is unordered with atomic operations, as
before a compare-and-swap loop; a strong read of a weak store which a fence precedes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE
from ptxgen.emulator.memory.global_memory import GUARD
from ptxgen.emulator.memory.tensormap import SIZE, TensorRegion
from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.memory_order import ATOMIC, MANY, STRONG, WEAK, MemoryOrder
from ptxgen.emulator.sync.messages import Publications
from ptxgen.emulator.warp_batch import Launch, WarpBatch, fault, place_of
from ptxgen.errors import AsyncFault, Fault, Place, RaceFault

Array = NDArray[Any]


#: parts of a mark: thread, strength, whether the async proxy made the access, number of the instruction, clock
THREAD = (1 << 28) - 1


STRENGTH, PROXY, NUMBER, CLOCK = 28, 30, 31, 43


LAST_CLOCK = (1 << 20) - 1


PAST = {"reads": "read", "writes": "wrote"}


class Shadow:
    """The accesses of one launch to global memory."""

    def __init__(self, engine: Launch, earlier: list[Shadow]) -> None:
        self.engine, self.entry = engine, engine.program.name
        self.memory = engine.memory
        self.shift = engine.program.grains[1]
        self.warps_per_block = (engine.threads + 31) // 32
        self.size = engine.cluster_blocks
        units = (self.memory.top + 2 * GUARD >> self.shift) + 1  # with the workspace of barriers of the grid
        self.writer = np.zeros(units, np.int64)
        #: the first and the last unit that the launch has written
        self.written = [units, -1]
        self.reader, self.first = np.zeros(units, np.int64), np.zeros(units, np.int64)
        self.has_messages = engine.program.messages
        self.carried = np.zeros(units if self.has_messages else 0, np.int32)
        self.publications = Publications()
        self.numbers: dict[int, int] = {}
        self.sites: list[Instruction] = []
        self.memory_orders: dict[int, MemoryOrder] = {}
        #: number of an atomic instruction -> the warps that have executed it
        self.atomic_warps: dict[int, Array] = {}
        #: earlier launches that may not have ended; True if a thread of this launch waits for them
        self.earlier, self.waits = earlier, False
        self.enabled = engine.blocks * self.warps_per_block * 32 < THREAD

    # ---- marks

    def memory_order(self, ins: Instruction) -> MemoryOrder:
        order = self.memory_orders.get(id(ins))
        if order is None:
            order = self.memory_orders[id(ins)] = MemoryOrder(ins)
        return order

    def number(self, ins: Instruction) -> int:
        number = self.numbers.get(id(ins))
        if number is None:
            number = self.numbers[id(ins)] = min(len(self.sites) + 1, 4095)
            self.sites.append(ins)
        return number

    def line(self, mark: int) -> str:
        ins = self.instruction(mark)
        return "another line" if ins is None else f"line {ins.line}"

    def instruction(self, mark: int) -> Instruction | None:
        number = mark >> NUMBER & 4095
        return self.sites[number - 1] if 0 < number < 4095 else None

    def place(self, mark: int, name: str) -> Place | None:
        """The place of the access that a mark records, as the other side of a fault; None if its instruction is not
        known."""
        ins = self.instruction(mark)
        if ins is None:
            return None
        block, warp = divmod((mark & THREAD) >> 5, self.warps_per_block)
        number, (x, y, _) = warp * 32 + (mark & 31), self.engine.block
        bx, by, bz = (int(v) for v in self.engine.block_coordinates(block, 1)[0][0])
        thread = number % x, number // x % y, number // (x * y)
        return place_of(self.engine.program, name, ins, (bx, by, bz), thread)

    def marks(self, c: WarpBatch, ins: Instruction, lanes: Array, strength: int, proxy: bool = False) -> Array:
        clocks = c.wave.checks.clock_of(c.warp)
        known: tuple[Array, Array] | None = c.state.get("marks")
        if known is None or any_true(clocks != known[0]):
            known = c.state["marks"] = clocks, self.lane_marks(c, clocks)
        out: Array = known[1] if lanes is c.every_lane else known[1][lanes]
        return out + ((strength << STRENGTH) + (int(proxy) << PROXY) + (self.number(ins) << NUMBER))

    def lane_marks(self, c: WarpBatch, clocks: Array) -> Array:
        """The part of a mark that tells the thread and the clock, for each lane."""
        if int(clocks.max()) > LAST_CLOCK:
            self.enabled = False
        first = (c.wave.first + c.wave.checks.blocks) * (32 * self.warps_per_block) + c.warp * 32
        by_block = (clocks.astype(np.int64) << CLOCK) + first
        out: Array = (by_block[:, None] + np.arange(32)).reshape(-1)
        return out

    # ---- accesses

    def access(self, c: WarpBatch, ins: Instruction, operation: str, size: int, at: Array, lanes: Array) -> None:
        """Checks reads and atomic operations of ``size`` bytes at positions of memory."""
        if not self.enabled or not len(lanes):
            return
        order = self.memory_order(ins)
        if operation == "read" and order.strength != ATOMIC:
            self.read(c, ins, order, at, lanes, size)
        else:
            self.write(c, ins, order, at, lanes, size)

    def units(self, at: Array, size: int) -> list[Array]:
        first = at >> self.shift
        return [first + i if i else first for i in range(max(size >> self.shift, 1))]

    def read(self, c: WarpBatch, ins: Instruction, order: MemoryOrder, at: Array, lanes: Array, size: int) -> None:
        self.overlaps(c, ins, at, lanes, size, False)
        if "nc" in ins.mods or ins.op in ("tex", "tld4"):
            self.read_only(c, ins, at, lanes, size)
        mark = self.marks(c, ins, lanes, order.strength)
        for g in self.units(at, size):
            if self.written[1] >= 0 and int(g.max()) >= self.written[0] and int(g.min()) <= self.written[1]:
                self.conflict(c, ins, order.strength, self.writer[g], g, mark, lanes, "reads", "writes")
            fresh = self.first[g] == 0
            if all_true(fresh):
                self.first[g[::-1]] = mark[::-1]
            elif any_true(fresh):
                self.first[g[fresh][::-1]] = mark[fresh][::-1]
            self.reader[g] = mark
        self.receive_messages(c, order, at, lanes)

    def read_only(self, c: WarpBatch, ins: Instruction, at: Array, lanes: Array, size: int) -> None:
        """Faults if a load with .nc, or of a texture, reads memory that this launch has written."""
        for g in self.units(at, size) if self.written[1] >= 0 else ():
            written = self.writer[g] != 0
            if any_true(written):
                i = int(np.argmax(written))
                how = "with .nc" if "nc" in ins.mods else "as a texture"
                text = f"reads {how} global memory that {self.line(int(self.writer[g[i]]))} wrote in this launch; "
                text += "only memory that no thread writes may be read so"
                address = (int(g[i]) << self.shift) + GLOBAL_BASE
                other = self.place(int(self.writer[g[i]]), "write")
                self.report(fault(RaceFault, text, c, ins, int(lanes[i]), address, other, lanes[written]))

    def receive_messages(self, c: WarpBatch, order: MemoryOrder, at: Array, lanes: Array) -> None:
        if self.has_messages and order.strength != WEAK and order.reads:
            messages = c.wave.messages
            assert messages is not None
            messages.receive(c, lanes, self.carried[at >> self.shift], order.acquires)

    def write(self, c: WarpBatch, ins: Instruction, order: MemoryOrder, at: Array, lanes: Array, size: int) -> Array:
        """Checks writes. For each lane, returns the mark of another lane that writes the same unit in this step, or
        0."""
        self.overlaps(c, ins, at, lanes, size, True)
        messages = c.wave.messages
        if order.releases and messages is not None:
            messages.fence(c, np.unique(lanes >> 5), order.scope)
        mark = self.marks(c, ins, lanes, order.strength)
        overwritten = np.zeros(len(lanes), np.int64)
        for g in self.units(at, size):
            first, last, before = self.first[g], self.reader[g], self.writer[g]
            if any_true(before):  # a strong read by the same thread orders its write after the value that it read
                for old in (first, last):
                    before[((old ^ mark) & THREAD == 0) & (old >> STRENGTH & 3 == STRONG)] = 0
            self.conflict(c, ins, order.strength, before, g, mark, lanes, "writes", "writes")
            for old in (first, last):
                self.conflict(c, ins, order.strength, old, g, mark, lanes, "writes", "reads")
            self.mark_written(g, mark)
            self.first[g] = self.reader[g] = 0
            if order.strength == ATOMIC:
                warps = self.atomic_warps.get(self.number(ins))
                if warps is None:
                    warps = self.atomic_warps[self.number(ins)] = np.zeros(
                        self.engine.blocks * self.warps_per_block, bool
                    )
                warps[(mark & THREAD) >> 5] = True
            else:
                remaining = self.writer[g]
                other = remaining != mark
                if any_true(other):
                    overwritten[other] = remaining[other]
                    self.writer[g[other]] |= MANY << STRENGTH
        if messages is not None:
            self.attach_messages(c, order, at, lanes)
            if order.strength == ATOMIC and order.reads:
                self.receive_messages(c, order, at, lanes)
        return overwritten

    def mark_written(self, g: Array, mark: Array) -> None:
        """Marks units as written."""
        self.writer[g] = mark
        if len(g):
            self.written = [min(self.written[0], int(g.min())), max(self.written[1], int(g.max()))]

    def attach_messages(self, c: WarpBatch, order: MemoryOrder, at: Array, lanes: Array) -> None:
        """Lets written values carry the publications of their writers; atomic operations add theirs to those already
        carried."""
        messages = c.wave.messages
        assert messages is not None
        numbers, g = messages.carried(c, lanes), at >> self.shift
        if order.strength != ATOMIC:
            self.carried[g] = numbers
            return
        for i in flatnonzero(numbers | self.carried[g]).tolist():
            unit = int(g[i])
            self.carried[unit] = self.publications.unite([int(self.carried[unit]), int(numbers[i])])

    def store(
        self, c: WarpBatch, ins: Instruction, at: Array, lanes: Array, size: int, old: Array, values: Array
    ) -> None:
        """Checks stores, before they execute; ``old``, ``values``: rows of the old and the new elements."""
        if not self.enabled:
            return
        changed = np.not_equal(values[0], old[0]) if len(old) == 1 else (values != old).any(axis=0)
        if self.has_messages and not all_true(changed):
            # memory is unchanged, but the store still carries its publication
            same = ~changed
            order = self.memory_order(ins)
            assert c.wave.messages is not None
            if order.releases:
                c.wave.messages.fence(c, np.unique(lanes[same] >> 5), order.scope)
            self.attach_messages(c, order, at[same], lanes[same])
        if not any_true(changed):
            self.overlaps(c, ins, at, lanes, size, True)
            return
        if not all_true(changed):
            at, lanes, values = at[changed], lanes[changed], values[:, changed]
        overwritten = self.write(c, ins, self.memory_order(ins), at, lanes, size)
        if not any_true(overwritten):
            return
        other = flatnonzero(
            (overwritten != 0) & ((overwritten & THREAD) >> 5 != self.marks(c, ins, lanes, 0) >> 5 & THREAD >> 5)
        )
        if len(other):
            where = np.zeros(c.n, np.int64)
            where[lanes] = np.arange(len(lanes))
            thread = overwritten[other] & THREAD
            winner = where[((thread >> 5) // self.warps_per_block - c.wave.first << 5) + (thread & 31)]
            bad = (values[:, other] != values[:, winner]).any(axis=0)
            if any_true(bad):
                i = int(other[np.argmax(bad)])
                racing = lanes[other[bad]]
                self.fail(c, ins, racing, int(lanes[i]), int(at[i]), int(overwritten[i]), "writes", "writes")

    # ---- the async proxy

    def bulk(self, c: WarpBatch, ins: Instruction, lane: int, low: int, high: int, writes: bool) -> None:
        """Checks a bulk copy of a lane that reads or writes the bytes from address ``low`` to ``high``."""
        first, last = (low - GLOBAL_BASE) >> self.shift, (high - 1 - GLOBAL_BASE) >> self.shift
        self.transfer(c, ins, lane, np.arange(first, last + 1), writes)

    def box(self, c: WarpBatch, ins: Instruction, lane: int, region: TensorRegion, writes: bool) -> None:
        """Checks a tensor copy of a lane that reads or writes a region of a tensor."""
        if region.empty:
            return
        size = region.tensor.dtype.itemsize
        if region.tensor.im2col:
            starts = np.asarray(region.at)
            width = (region.slices[1].stop - region.slices[1].start) * size
        else:
            starts = np.array([region.low])
            for count, pitch in zip(region.inner[:-1], region.pitches[:-1], strict=True):
                starts = (starts[:, None] + np.arange(count) * pitch).reshape(-1)
            width = region.inner[-1] * size
        unit = 1 << self.shift
        g = (starts[:, None] - GLOBAL_BASE + np.arange(0, max(width, 1), unit)) >> self.shift
        self.transfer(c, ins, lane, g.reshape(-1), writes)

    def transfer(self, c: WarpBatch, ins: Instruction, lane: int, g: Array, writes: bool) -> None:
        """Checks the access of an asynchronous copy to units of memory."""
        if not self.enabled:
            return
        lanes = np.full(len(g), lane)
        self.overlaps(c, ins, g << self.shift, lanes, 1, writes)
        strength = ATOMIC if ins.mods[0] == "reduce" else WEAK
        mark = self.marks(c, ins, lanes, strength, True)
        operation = "writes" if writes else "reads"
        old = self.writer[g]
        if any_true(old):
            self.conflict(c, ins, strength, old, g, mark, lanes, operation, "writes")
        if writes:
            for table in (self.first, self.reader):
                self.conflict(c, ins, strength, table[g], g, mark, lanes, operation, "reads")
            self.mark_written(g, mark)
            self.first[g] = self.reader[g] = 0
        elif any_true(old):
            bad = (old != 0) & (old >> PROXY & 1 == 0)
            bad[bad] = ~self.ordered(c, old[bad], lanes[bad], 1)
            if any_true(bad):
                i = int(np.argmax(bad))
                text = f"the bulk copy reads global memory that {self.line(int(old[i]))} wrote, "
                text += "with no fence.proxy.async between"
                other = self.place(int(old[i]), "write")
                self.report(fault(AsyncFault, text, c, ins, lane, (int(g[i]) << self.shift) + GLOBAL_BASE, other))

    # ---- tensor maps

    def use_map(self, c: WarpBatch, ins: Instruction, lane: int, address: int) -> None:
        """Checks the use, by a tensor copy of a lane, of the tensor map at an address of global memory."""
        if not self.enabled:
            return
        at, lanes = np.array([address - GLOBAL_BASE]), np.array([lane])
        self.overlaps(c, ins, at, lanes, SIZE, False)
        g = np.array(self.units(at, SIZE)).reshape(-1)
        lanes = np.full(len(g), lane)
        mark, old = self.marks(c, ins, lanes, WEAK, True), self.writer[g]
        if any_true(old):
            self.conflict(c, ins, WEAK, old, g, mark, lanes, "reads", "writes")
            self.check_map_fences(c, ins, lane, address, np.unique(old[old != 0]))
        self.first[g] = np.where(self.first[g] == 0, mark, self.first[g])
        self.reader[g] = mark

    def check_map_fences(self, c: WarpBatch, ins: Instruction, lane: int, address: int, old: Array) -> None:
        """Faults unless a release of tensor maps follows each write of a tensor map, and an acquire of the map follows
        that release."""
        acquired = getattr(c.wave.checks, "map_acquired", None)
        if acquired is None:
            return
        lanes = np.full(len(old), lane)
        released = self.ordered(c, old, lanes, 2)
        actors = self.size * self.warps_per_block
        mine = (c.wave.first + (lane >> 5)) // self.size
        for mark, fenced in zip(old.tolist(), released.tolist(), strict=True):
            cluster, actor = divmod((mark & THREAD) >> 5, actors)
            where = -1 if cluster == mine else cluster
            if not fenced:
                missing = "release after it"
            elif not acquired(c, lane >> 5, address, where, actor, mark >> CLOCK):
                missing = "acquire of the map after it"
            else:
                continue
            text = f"the tensor map was modified ({self.line(mark)}), with no fence.proxy.tensormap::generic.{missing}"
            self.report(fault(AsyncFault, text, c, ins, lane, address, self.place(mark, "write")))

    # ---- order

    def conflict(
        self,
        c: WarpBatch,
        ins: Instruction,
        strength: int,
        old: Array,
        g: Array,
        mark: Array,
        lanes: Array,
        operation: str,
        earlier: str,
    ) -> None:
        """Reports a race if an access conflicts with marks of other threads and is not ordered after them."""
        if not any_true(old):
            return
        bad = ((old ^ mark) & THREAD != 0) & (old != 0)
        if not any_true(bad):
            return
        which = flatnonzero(bad)
        old, lanes, mine = old[which], lanes[which], mark[which] & THREAD
        strengths = old >> STRENGTH & 3
        race = (strengths == WEAK) | (strengths == MANY) | (strength in (WEAK, MANY))
        if operation == "reads" and strength == WEAK:
            race &= strengths != ATOMIC
        if operation == "writes" and earlier == "reads" and strength == ATOMIC:
            race &= False
        if self.has_messages and operation == "reads" and strength == STRONG:
            race &= self.carried[g[which]] == 0  # a flag that was stored after a fence
        if (
            self.has_messages
            and operation == "writes"
            and earlier == "reads"
            and c.wave.messages is not None
            and strength == WEAK
        ):
            race &= (strengths != STRONG) | (c.wave.messages.carried(c, lanes) == 0)
        if operation == "writes" and strength == WEAK and self.atomic_warps:
            race &= ~self.same_atomic(old, strengths, mine)
        race &= (strengths != MANY) | ((old & THREAD) >> 5 != mine >> 5)
        race[race] = ~self.ordered(c, old[race], lanes[race], 0, earlier == "reads")
        if any_true(race):
            i = int(np.argmax(race))
            address = int(g[which[i]]) << self.shift
            self.fail(c, ins, lanes[race], int(lanes[i]), address, int(old[i]), operation, earlier)

    def same_atomic(self, old: Array, strengths: Array, mine: Array) -> Array:
        """True for each mark of an atomic instruction that the warp of the accessing thread has executed, too.

        The thread that executed the atomic operation last may store to that address, because it has read the other
        results.
        """
        out = np.zeros(len(old), bool)
        for number in np.unique(old[strengths == ATOMIC] >> NUMBER & 4095).tolist():
            some = (strengths == ATOMIC) & (old >> NUMBER & 4095 == number)
            out[some] = self.atomic_warps[number][mine[some] >> 5]
        return out

    def ordered(self, c: WarpBatch, old: Array, lanes: Array, row: int, reads: bool = False) -> Array:
        """True for each lane whose access is ordered after its mark in ``old``. ``reads``: the marks are those of
        reads.

        ``row``: 0: any order counts; 1: a fence.proxy.async must also follow the marked access; 2: a release of tensor
        maps must also follow the marked access.
        """
        if not len(old):
            return np.zeros(0, bool)
        checks = c.wave.checks
        clocks, actor = old >> CLOCK, (old & THREAD) >> 5
        actors = self.size * self.warps_per_block
        cluster, blocks = actor // actors, lanes >> 5
        actor = actor - cluster * actors
        mine = (c.wave.first + blocks) // self.size
        out = np.zeros(len(old), bool)
        same_cluster = flatnonzero(cluster == mine)
        table = checks.clocks[c.warp] if row == 0 else getattr(checks, "fenced", None)
        if row and table is not None:
            table = table[c.warp, row * actors :]
        if len(same_cluster) and table is not None:
            out[same_cluster] = table[actor[same_cluster], blocks[same_cluster]] >= clocks[same_cluster]
            if row == 0:
                same_warp = same_cluster[actor[same_cluster] == (checks.base + c.warp)[blocks[same_cluster]]]
                known_lanes = (checks.exchanged if reads else checks.lanes)[c.warp]
                out[same_warp] = known_lanes.knows(lanes[same_warp], old[same_warp] & 31, clocks[same_warp])
        if c.wave.messages is not None:
            known: dict[tuple[int, int, int], int] = {}
            for i in flatnonzero(cluster != mine).tolist():
                key = int(blocks[i]), int(cluster[i]), int(actor[i])
                if key not in known:
                    known[key] = c.wave.messages.acquired_clock(c.warp, *key, row)
                out[i] = known[key] >= clocks[i]
        return out

    def report(self, error: Fault) -> None:
        """Raises a fault, or lists it if the launch goes on after faults."""
        self.engine.report(error)

    def fail(
        self, c: WarpBatch, ins: Instruction, lanes: Array, lane: int, at: int, old: int, operation: str, earlier: str
    ) -> None:
        """Reports a race of ``lanes``. The first of them, ``lane``, accesses position ``at``, and ``old`` is the mark
        there."""
        thread = old & THREAD
        block, warp = divmod(thread >> 5, self.warps_per_block)
        mine = c.wave.first + (lane >> 5)
        x, y, z = (int(v) for v in self.engine.block_coordinates(block, 1)[0][0])
        if block != mine:
            accessor, missing = f"lane {thread & 31} of warp {warp} of block ({x}, {y}, {z})", "no fence and flag"
        elif warp != c.warp:
            accessor, missing = f"lane {thread & 31} of warp {warp}", "no barrier"
        else:
            accessor, missing = f"lane {thread & 31} of the same warp", "no bar.warp.sync"
        text = f"{operation} global memory that {accessor} {PAST[earlier]} ({self.line(old)}), with {missing} between"
        other = self.place(old, earlier.removesuffix("s"))
        self.report(fault(RaceFault, text, c, ins, lane, at + GLOBAL_BASE, other, lanes))

    # ---- launches that may not have ended

    def wait(self, c: WarpBatch, warps: Array) -> None:
        """Records that some warps execute griddepcontrol.wait."""
        self.waits = True
        clocks = c.wave.checks.clock_of(c.warp)
        c.wave.waited[c.warp][warps] = clocks[warps]

    def overlaps(self, c: WarpBatch, ins: Instruction, at: Array, lanes: Array, size: int, writes: bool) -> None:
        """Faults if lanes that have not executed griddepcontrol.wait conflict with accesses of an unfinished launch."""
        if not self.earlier:
            return
        checks = c.wave.checks
        rows = checks.base + np.arange(self.warps_per_block)[:, None]
        waited = c.wave.waited
        after = ((waited != 0) & (checks.clocks[c.warp][rows, checks.blocks] >= waited)).any(axis=0)
        early = flatnonzero(~after[lanes >> 5])
        if not len(early):
            return
        for other in self.earlier:
            for i in range(0, size, 1 << other.shift):
                g = (at[early] + i) >> other.shift
                for table, earlier in ((other.writer, "writes"), (other.reader, "reads")):
                    if earlier == "reads" and not writes:
                        continue
                    marks = table.take(g, mode="clip")  # later allocations have the mark of the guard space at the end
                    bad = marks != 0
                    if any_true(bad):
                        k = int(np.argmax(bad))
                        verb = "writes" if writes else "reads"
                        text = f"{verb} global memory that the preceding kernel {other.entry} {PAST[earlier]} "
                        text += f"({other.line(int(marks[k]))}), with no griddepcontrol.wait between"
                        lane, place = int(lanes[early[k]]), other.place(int(marks[k]), earlier.removesuffix("s"))
                        if place is not None:
                            place = place._replace(kernel=demangled(other.entry))
                        address = int(at[early[k]]) + GLOBAL_BASE
                        self.report(fault(RaceFault, text, c, ins, lane, address, place, lanes[early[bad]]))
