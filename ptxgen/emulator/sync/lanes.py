"""The order between the lanes of one warp, and races between those lanes in shared memory.

Lanes of a warp run independently. Only a synchronisation that names them orders their memory accesses: bar.warp.sync, a
barrier of the block or of the cluster, or an mbarrier at which the warp has arrived and then waits. Shuffles, votes and
matrix products exchange registers. An exchange does not order writes, but a lane may overwrite data that another lane
read before the exchange, because the exchanged values may depend on that read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.touch import Reads, Touch
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault, place_of
from ptxgen.errors import RaceFault

Array = NDArray[Any]


LANES = np.arange(32, dtype=np.uint32)


ALL = np.uint32(0xFFFFFFFF)


#: number of the last entries of a log that are searched for unreleased accesses
MOST_UNRELEASED = 512


class Lanes:
    """The clocks up to which each lane of a warp batch is ordered after the other lanes of its warp.

    Clocks count the synchronisations of a warp. ``every``: for each lane, the clock up to which it is ordered after all
    lanes of its warp; ``each``: for each lane and each of the 32 lanes of its warp, the clock up to which it is ordered
    after that lane, if groups smaller than a warp have synchronised.
    """

    def __init__(self, count: int) -> None:
        self.by_lane = np.zeros(count, np.int64)
        self.by_warp = np.zeros(count // 32, np.int64)  # synchronisations of whole warps that ``by_lane`` lacks
        self.pending = False
        self.each: Array | None = None

    @property
    def every(self) -> Array:
        if self.pending:
            rows = self.by_lane.reshape(-1, 32)
            np.maximum(rows, self.by_warp[:, None], out=rows)
            self.pending = False
        return self.by_lane

    def synchronise(self, members: Array, live: Array, clocks: Array) -> None:
        """Lanes synchronise. ``members``: for each lane, the mask of the lanes that it synchronises with, 0 if it does
        not take part."""
        participating = members != 0
        wanted = live.reshape(-1, 32)
        words = (np.where(wanted, np.uint32(1) << LANES, np.uint32(0))).sum(axis=1, dtype=np.uint32)
        whole = participating & (members & np.repeat(words, 32) == np.repeat(words, 32))
        self.every[whole] = np.maximum(self.every[whole], clocks[whole])
        partial = flatnonzero(participating & ~whole)
        if not len(partial):
            return
        if self.each is None:
            self.each = np.zeros((len(self.every), 32), np.int64)
        rows = partial & ~31
        named = (members[partial][:, None] >> LANES) & np.uint32(1) != 0
        groups = rows[:, None] + np.arange(32)
        known = np.maximum(self.each[groups], self.every[groups][:, :, None])  # the clocks of each member
        released = np.where(named[:, :, None], known, 0).max(axis=1)
        self.each[partial] = np.maximum(released, np.where(named, clocks[partial][:, None], 0))

    def synchronise_all(self, warps: Array | None, clocks: Array) -> None:
        """All lanes of some warps (None: of all warps) synchronise; ``clocks``: the clock of each warp."""
        np.maximum(self.by_warp, clocks if warps is None else np.where(warps, clocks, 0), out=self.by_warp)
        self.pending = True

    def knows(self, lanes: Array, others: Array, clocks: Array) -> Array:
        """True if ``lanes`` are ordered after the accesses of lanes ``others`` of their warps at some clocks."""
        out: Array = clocks <= self.every[lanes]
        if self.each is not None:
            out |= clocks <= self.each[lanes, others]
        return out


def joined(lanes: Array, members: Array, live: Array) -> Array:
    """``lanes``, and the lanes that synchronise with one of these; ``members``: as in ``Lanes.synchronise``."""
    partners = np.bitwise_or.reduce(np.where(lanes & live, members, np.uint32(0)).reshape(-1, 32), axis=1)
    named = (partners[:, None] >> LANES) & np.uint32(1) != 0
    out: Array = lanes | (named.reshape(-1) & (members != 0))
    return out


class AccessLog:
    """The accesses of one warp batch to shared memory since all its lanes last synchronised.

    Accesses are compared only in pages that are both written and read. Two lanes that write one address are no fault:
    the last value remains, as on the hardware.
    """

    def __init__(self, c: WarpBatch, shadow: Callable[[], LaneShadow]) -> None:
        self.batch, self.shadow = c, shadow
        self.clear()

    def clear(self) -> None:
        #: accesses; the members of synchronisations and exchanges; the lanes of releases and of proxy fences, and their
        #: clocks by block
        self.entries: list[tuple[Touch | Reads | Array | tuple[Array, Array], str]] = []
        self.read = self.written = 0

    def add(self, touch: Touch | Reads, operation: str) -> None:
        if operation == "write":
            self.written |= touch.pages
        else:
            self.read |= touch.pages
        self.entries.append((touch, operation))
        if len(self.entries) > 4096:
            self.flush()

    def synchronise(self, members: Array, live: Array) -> None:
        """Lanes synchronise; ``members``: as in ``Lanes``."""
        if not self.entries:
            return
        if all_true(members[live] == ALL):
            self.flush()
        else:
            self.entries.append((members, "synchronise"))

    def exchange(self, members: Array | None, event: str = "exchange") -> None:
        """Lanes exchange registers; ``members``: as in ``Lanes.synchronise``, None: all lanes.

        ``event``: "product" for a matrix product, "elect" if the exchanged values do not depend on what lanes have
        read.
        """
        if not self.entries or (members is None and self.entries[-1][1] == event):
            return
        every = np.full(self.batch.n, ALL, np.uint32) if members is None else members
        self.entries.append((every, event))
        if len(self.entries) > 4096:
            self.flush()

    def release(self, lanes: Array, clocks: Array, event: str = "release") -> None:
        """Lanes (a mask) release their accesses; ``clocks``: by block, the clock that they release.

        ``event`` "fence": a proxy fence by the lanes follows their accesses.
        """
        if self.entries:
            self.entries.append(((lanes, clocks), event))

    def unreleased(self, lanes: Array, release: str = "release") -> list[tuple[Touch, str]]:
        """The accesses that other lanes have made and that nothing orders before a release by ``lanes`` (a mask).

        ``release``: the event, "release" or "fence". A lane that has executed this event itself counts as ordered, and
        so does a lane that wrote an address in one step with an ordered lane. Reads before an exchange also count as
        ordered, because the releasing lane may depend on the value that was read.
        """
        live = self.batch.live()
        todo = live & np.repeat(self.batch.warps(lanes), 32) & ~lanes
        if not self.entries or not any_true(todo):
            return []
        stores, loads = ~todo, ~todo  # the lanes whose earlier writes and reads are ordered
        out: list[tuple[Touch, str]] = []
        for entry, event in reversed(self.expanded(MOST_UNRELEASED)):
            if isinstance(entry, tuple):
                if event == release:
                    stores = stores | entry[0]
                    loads = loads | entry[0]
            elif isinstance(entry, Touch):
                at, accessing = entry.positions()
                missing = ~(loads if event == "read" else stores)
                if accessing is not None:
                    missing = missing[accessing]
                if any_true(missing) and event == "write":  # lanes that write one address in one step count as one
                    missing[missing] = ~np.isin(at[missing], at[~missing])
                if any_true(missing):
                    out.append((entry.subset(missing), event))
            elif event != "elect":
                loads = joined(loads, entry, live)
                if event == "synchronise":
                    stores = joined(stores, entry, live)
            if all_true(stores):
                break
        return out[::-1]

    def acquire(self, blocks: Array, clocks: Array) -> None:
        """Warps of some blocks acquire the state that they released themselves, up to some clocks."""
        last = len(self.entries)
        for i in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[i][0]
            if (
                self.entries[i][1] == "release"
                and isinstance(entry, tuple)
                and all_true(entry[1][blocks] <= clocks[blocks])
            ):
                last = i + 1
                break
        later = self.entries[last:]
        self.entries = self.entries[:last]
        self.flush()
        for later_entry, event in later:
            if isinstance(later_entry, (Touch, Reads)):
                self.add(later_entry, event)
            else:
                self.entries.append((later_entry, event))

    def flush(self) -> None:
        """Compares the logged accesses, and clears the log."""
        if self.read & self.written:
            self.compare(self.read & self.written)
        if self.entries:
            self.clear()

    def expanded(self, last: int = 0) -> list[tuple[Touch | Array | tuple[Array, Array], str]]:
        """The last ``last`` entries of the log (0: all), with the accesses of ``Reads`` one by one."""
        out: list[tuple[Touch | Array | tuple[Array, Array], str]] = []
        for entry, event in self.entries[-last:]:
            if isinstance(entry, Reads):
                out += [(touch, event) for touch in entry.each()]
            else:
                out.append((entry, event))
        return out

    def compare(self, pages: int) -> None:
        c = self.batch
        shadow = self.shadow()
        known, exchanged = Lanes(c.n), Lanes(c.n)
        clock = shadow.first
        for touch, event in self.expanded():
            if isinstance(touch, tuple):
                continue
            if not isinstance(touch, Touch):
                for lanes in (known, exchanged) if event == "synchronise" else (exchanged,):
                    lanes.synchronise(touch, np.ones(c.n, bool), np.full(c.n, clock))
                clock += 1
            elif touch.pages & pages:
                shadow.access(c, touch, event, known, exchanged, clock)
        shadow.first = clock + 1


class LaneShadow:
    """For each unit of a wave's shared memory, marks of the lanes that wrote and read it last.

    A mark holds a clock, the number of an instruction and a lane. Marks before ``first`` belong to earlier comparisons.
    """

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.shift = wave.program.grains[0]
        size = len(wave.shared) >> self.shift
        self.writer = np.zeros(size, np.int64)
        self.reader, self.earlier = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.first = 1
        #: the instructions that marks refer to, and ``id`` of an instruction -> its number
        self.instructions: list[Instruction] = []
        self.numbers: dict[int, int] = {}

    def number(self, ins: Instruction) -> int:
        number = self.numbers.get(id(ins))
        if number is None:
            number = self.numbers[id(ins)] = len(self.instructions)
            self.instructions.append(ins)
        return number

    def access(self, c: WarpBatch, touch: Touch, operation: str, known: Lanes, exchanged: Lanes, clock: int) -> None:
        at, lanes = touch.positions()
        if lanes is None:
            lanes = np.arange(len(at))
        mark = (clock << 40) + (self.number(touch.ins) << 20) + lanes
        for i in range(max(touch.size >> self.shift, 1)):
            g = (at >> self.shift) + i
            if operation != "write":
                self.conflict(c, touch, self.writer[g], lanes, known, operation, "write")
                fresh = self.earlier[g] < self.first << 40
                self.earlier[g[fresh][::-1]] = mark[fresh][::-1]
                self.reader[g] = mark
            else:
                self.conflict(c, touch, self.earlier[g], lanes, exchanged, "write", "read")
                self.conflict(c, touch, self.reader[g], lanes, exchanged, "write", "read")
                self.writer[g] = mark
                many = self.writer[g] != mark  # several lanes write one unit: which value remains is not defined
                self.writer[g[many]] = 0
                self.reader[g] = self.earlier[g] = 0

    def conflict(
        self, c: WarpBatch, touch: Touch, old: Array, lanes: Array, known: Lanes, operation: str, earlier: str
    ) -> None:
        """Faults if lanes are not ordered after the marks ``old`` of other lanes of their warps."""
        other = old & 0xFFFFF
        bad = (old >= self.first << 40) & (other != lanes) & (other >> 5 == lanes >> 5)
        if not any_true(bad):
            return
        bad[bad] = ~known.knows(lanes[bad], other[bad] & 31, old[bad] >> 40)
        if any_true(bad):
            i = int(np.argmax(bad))
            at, _ = touch.positions()
            ins = self.instructions[int(old[i]) >> 20 & 0xFFFFF]
            error = fault(
                RaceFault,
                f"{operation} by lane {int(lanes[i]) & 31} and {earlier} by lane {int(other[i]) & 31} "
                f"(line {ins.line}) of the same warp and the same shared memory, with no bar.warp.sync between",
                c,
                touch.ins,
                int(lanes[i]),
                int(at[i]) % self.wave.stride,
                place_of(c.wave.program, earlier, ins, *c.coordinates(int(other[i]))),
                lanes[bad],
            )
            self.wave.engine.report(error)
