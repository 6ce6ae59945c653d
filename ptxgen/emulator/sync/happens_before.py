"""Who knows of what, for programs with asynchronous work or clusters.

A clock counts the segments of each warp of each block of a cluster (an actor); a warp's vector of clocks says which
segments of others happened before what it does now. Two more things travel with it at every barrier: up to where the
writes of each actor lie behind a fence between the proxies, and which asynchronous work is known to be complete.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.sync.checks import Checks, Part, Segment
from ptxgen.emulator.sync.touch import FULL, Touch, words
from ptxgen.emulator.warp_batch import Chunk, Team, fault
from ptxgen.errors import RaceFault

Array = NDArray[Any]


#: accesses that race: of the new segment, of the old one
PAIRS = (
    ("writes", "writes"),
    ("writes", "reads"),
    ("reads", "writes"),
    ("atomics", "writes"),
    ("atomics", "reads"),
    ("writes", "atomics"),
    ("reads", "atomics"),
)


class Known(NamedTuple):
    """What a warp tells: clocks by [actor, block], fences for each space by [actor, block], events by block."""

    clocks: Array
    fenced: Array
    events: Array


class Order(Checks):
    """The checks of one chunk; `clocks[w, actor, block]` is what warp w of a block knows of an actor."""

    def __init__(self, chunk: Chunk) -> None:
        x, y, z = chunk.engine.cluster
        self.size = x * y * z
        self.teams = len(chunk.teams)
        self.actors = self.size * self.teams
        self.ranks = chunk.ranks
        self.roving: set[int] = set()  # warps that have touched the memory of other blocks
        self.base = chunk.ranks * self.teams  # first actor of each block
        super().__init__(chunk)
        if not self.races:
            self.fresh_clocks()
        shape, wide = (self.teams, self.actors, chunk.blocks), (self.teams, 2 * self.actors, chunk.blocks)
        #: of shared memory, by actor, and then of global memory
        self.fenced = np.zeros(wide, np.int32)
        self.events = np.zeros((self.teams, chunk.blocks), np.uint64)
        #: the same three, of what lies before each warp's last fence: what its relaxed arrivals tell
        self.public = Known(np.zeros(shape, np.int32), np.zeros(wide, np.int32), np.zeros_like(self.events))
        #: and what each warp's relaxed waits heard since its last fence, which it may rely on after the next
        self.heard = Known(np.zeros(shape, np.int32), np.zeros(wide, np.int32), np.zeros_like(self.events))

    def fresh_clocks(self, past: int = 0) -> None:
        self.clocks = np.zeros((self.teams, self.actors, self.chunk.blocks), np.int32)
        for w in range(self.teams):
            self.clocks[w, self.base + w, self.blocks] = 1
        self.live: list[Segment] = []
        self.live_read = self.live_write = self.live_atomic = 0
        self.written_pages = [0] * self.teams

    # ---- segments

    def close(self, c: Team) -> None:
        self.settle()
        segment, c.segment = c.segment, None
        if segment is not None:
            segment.clock = self.own(c.warp)
            segment.away = c.warp in self.roving
            self.meet(segment, self.clocks[c.warp])
            if segment.away:  # this warp of one block may meet that of another
                self.against(segment, segment, self.clocks[c.warp], "")
                self.roving.discard(c.warp)
            self.live.append(segment)
            self.live_read |= segment.rpages
            self.live_write |= segment.wpages
            self.live_atomic |= segment.apages
            if len(self.live) > 16 * self.teams:
                self.prune()
        self.clocks[c.warp, self.base + c.warp, self.blocks] += 1

    def close_all(self, pages: int) -> None:
        """Ends the segments that touched some pages."""
        for team in self.chunk.teams:
            s = team.segment
            if s is not None and (s.rpages | s.wpages | s.apages) & pages:
                self.close(team)

    def meet(self, new: Segment, knowledge: Array, doing: str = "") -> None:
        """Looks for races of what happens with what happened; `knowledge[actor, block]` is the new segment's."""
        r, w, a = new.rpages, new.wpages, new.apages
        if (
            w & (self.live_read | self.live_write | self.live_atomic)
            | r & (self.live_write | self.live_atomic)
            | a & (self.live_write | self.live_read)
        ):
            for old in self.live:
                if (old.team is not new.team or self.size > 1) and (
                    (w & (old.rpages | old.wpages | old.apages))
                    | (r & (old.wpages | old.apages))
                    | (a & (old.wpages | old.rpages))
                ):
                    self.against(new, old, knowledge, doing)

    def against(self, new: Segment, old: Segment, knowledge: Array, doing: str) -> None:
        """Raises where accesses of two segments meet unordered."""
        warp, stride = old.team.warp, self.chunk.stride
        strangers = self.strangers(new, old, knowledge)
        if not strangers:
            return
        scratch = self.scratch_views()
        for mine_name, their_name in PAIRS:
            mine, theirs = getattr(new, mine_name), getattr(old, their_name)
            pages = 0
            for t in theirs:
                pages |= t.pages
            mine = [t for t in mine if t.pages & pages]
            pages = 0
            for t in mine:
                pages |= t.pages
            theirs = [t for t in theirs if t.pages & pages]
            for rank, known in strangers if mine and theirs else ():
                hit: tuple[Touch, int, int] | None = None
                stores = mine_name == their_name and not doing
                if stores:
                    hit = self.differing(
                        [Part(t, ~known[accessors(t)[2]]) for t in mine],
                        [Part(t, self.in_rank(t, rank)) for t in theirs],
                    )
                marked = []
                for t in () if stores else theirs:
                    at, which = t.positions()[0], self.in_rank(t, rank)
                    if which is not None:
                        at = at[which]
                    for unit, elements in words(at, t.size):
                        scratch[unit][elements] = FULL[unit]
                        marked.append((unit, elements))
                for t in () if stores else mine:
                    at, lanes, blocks = accessors(t)
                    ordered = known[blocks]
                    if ordered.all():
                        continue
                    for unit, elements in words(at, t.size):
                        bad = (scratch[unit][elements] != 0) & ~ordered
                        if bad.any() and hit is None:
                            i = int(np.argmax(bad))
                            hit = (t, i if lanes is None else int(lanes[i]), int(at[i]))
                for unit, elements in marked:
                    scratch[unit][elements] = 0
                if hit is None:
                    continue
                touch, lane, position = hit
                line = self.culprit(theirs, position, touch.size)
                whose = f"warp {warp}" if rank < 0 else f"warp {warp} of rank {rank}"
                raise fault(
                    RaceFault,
                    f"{doing or mine_name[:-1]} by warp {new.team.warp} and {their_name[:-1]} by {whose} (line {line}) "
                    "of the same shared memory with no barrier between",
                    new.team,
                    touch.ins,
                    lane,
                    position % stride,
                )

    def in_rank(self, t: Touch, rank: int) -> Array | None:
        """Which lanes of an access are of blocks of a rank; None: all, where `rank` is negative."""
        return None if rank < 0 else self.ranks[accessors(t)[2]] == rank

    def strangers(self, new: Segment, old: Segment, knowledge: Array) -> list[tuple[int, Array]]:
        """Ranks of the old segment's block that are not ordered before the new one, and in which blocks they are.

        Where both stay in their own block's memory, only accesses of one block can meet: rank -1.
        """
        warp = old.team.warp
        same = warp == new.team.warp
        if not (new.away or old.away):
            known = knowledge[self.base + warp, self.blocks] >= old.clock
            return [] if same or known.all() else [(-1, known)]
        out = []
        for rank in range(self.size):
            known = knowledge[rank * self.teams + warp] >= old.clock[self.blocks - self.ranks + rank]
            if same:
                known |= self.ranks == rank
            if not known.all():
                out.append((rank, known))
        return out

    def prune(self) -> None:
        running = [t.warp for t in self.chunk.teams if t.count]
        kept = [s for s in self.live if not self.everybody_knows(s, running)]
        if len(kept) > 15 * self.teams:  # nothing ever orders them: keep the latest
            kept = kept[len(kept) // 2 :]
        self.live = kept
        self.live_read = self.live_write = self.live_atomic = 0
        for s in kept:
            self.live_read |= s.rpages
            self.live_write |= s.wpages
            self.live_atomic |= s.apages

    def everybody_knows(self, s: Segment, running: list[int]) -> bool:
        for rank in range(self.size):
            need = s.clock[self.blocks - self.ranks + rank]
            for w in running:
                if w == s.team.warp and self.size == 1:
                    continue
                if not (self.clocks[w, rank * self.teams + s.team.warp] >= need).all():
                    return False
        return True

    # ---- what warps tell each other

    def release(self, c: Team, blocks: Array, relaxed: bool = False) -> Known:
        """What warp `c` of some blocks tells whoever waits for it."""
        self.close(c)
        w = c.warp
        if relaxed:
            return Known(
                self.public.clocks[w][:, blocks], self.public.fenced[w][:, blocks], self.public.events[w, blocks]
            )
        clocks = self.clocks[w][:, blocks]
        clocks[self.base[blocks] + w, np.arange(len(blocks))] -= 1
        return Known(clocks, self.fenced[w][:, blocks], self.events[w, blocks])

    def acquire(self, c: Team, blocks: Array, known: Known, relaxed: bool = False) -> None:
        """Warp `c` of some blocks learns; what it is told without .acquire counts from its next fence on."""
        w = c.warp
        if relaxed:
            heard = self.heard
            heard.clocks[w][:, blocks] = np.maximum(heard.clocks[w][:, blocks], known.clocks)
            heard.fenced[w][:, blocks] = np.maximum(heard.fenced[w][:, blocks], known.fenced)
            heard.events[w, blocks] |= known.events
            return
        self.close(c)
        if self.races:
            self.echo(c, blocks, known.clocks[self.base[blocks] + w, np.arange(len(blocks))])
        self.clocks[w][:, blocks] = np.maximum(self.clocks[w][:, blocks], known.clocks)
        self.fenced[w][:, blocks] = np.maximum(self.fenced[w][:, blocks], known.fenced)
        self.events[w, blocks] |= known.events

    def tell(self, c: Team, blocks: Array) -> Any:
        return self.release(c, blocks)

    def hear(self, taken: Array, told: Any, blocks: Array) -> None:
        for w in np.flatnonzero(taken[:, blocks].any(axis=1)):
            some = taken[w, blocks]
            at = blocks[some]
            self.clocks[w][:, at] = np.maximum(self.clocks[w][:, at], told.clocks[:, some])
            self.fenced[w][:, at] = np.maximum(self.fenced[w][:, at], told.fenced[:, some])
            self.events[w, at] |= told.events[some]

    def join(self, given: Array, taken: Array) -> None:
        if self.size == 1 and given.all() and taken.all():
            # all that happened is ordered before all that will: nobody need look at it again
            self.live = []
            self.live_read = self.live_write = self.live_atomic = 0
            self.written_pages = [0] * self.teams
        self.spread(given, taken, self.blocks)

    def spread(self, given: Array, taken: Array, groups: Array) -> None:
        """Warps [warp, block] meet, those of the blocks of one group each; `groups` gives the blocks' numbers."""
        told = self.clocks.copy()
        for w in range(self.teams):
            told[w, self.base + w, self.blocks] -= 1
        told = np.where(given[:, None, :], told, 0).max(axis=0)
        fenced = np.where(given[:, None, :], self.fenced, 0).max(axis=0)
        events = np.bitwise_or.reduce(np.where(given, self.events, np.uint64(0)), axis=0)
        if groups is not self.blocks:
            first = np.flatnonzero(np.diff(groups, prepend=-1))
            told = np.maximum.reduceat(told, first, axis=1)[:, groups]
            fenced = np.maximum.reduceat(fenced, first, axis=1)[:, groups]
            events = np.bitwise_or.reduceat(events, first)[groups]
        self.clocks = np.where(taken[:, None, :], np.maximum(self.clocks, told), self.clocks)
        self.fenced = np.where(taken[:, None, :], np.maximum(self.fenced, fenced), self.fenced)
        self.events = np.where(taken, self.events | events, self.events)

    def fence(self, c: Team, blocks: Array, spaces: str) -> None:
        """A fence: between the proxies for some `spaces`, or (none) one that makes public what the warp knows."""
        w = c.warp
        if spaces:
            known = self.release(c, blocks)
            for i, space in enumerate(("shared", "global")):
                if space in spaces:
                    part = slice(i * self.actors, (i + 1) * self.actors)
                    self.fenced[w, part][:, blocks] = np.maximum(known.fenced[part], known.clocks)
        else:
            heard = Known(
                self.heard.clocks[w][:, blocks], self.heard.fenced[w][:, blocks], self.heard.events[w, blocks]
            )
            self.acquire(c, blocks, heard)
            known = self.release(c, blocks)
            self.public.clocks[w][:, blocks] = known.clocks
            self.public.fenced[w][:, blocks] = known.fenced
            self.public.events[w, blocks] = known.events


def accessors(touch: Touch) -> tuple[Array, Array | None, Array]:
    """Positions, lanes (None: all), and the block of the chunk that each lane runs in."""
    at, lanes = touch.positions()
    return at, lanes, (np.arange(len(at)) if lanes is None else lanes) >> 5
