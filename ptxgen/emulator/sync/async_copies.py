"""The cp.async copies that the lanes of a warp batch have in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.sync.touch import Touch
from ptxgen.emulator.warp_batch import WarpBatch

Mask = NDArray[np.bool_] | None
Array = NDArray[Any]


class Copy:
    """One cp.async of one warp batch: element positions of the lanes that take part."""

    __slots__ = ("count", "done", "group", "lanes", "number", "signalled", "sizes", "source", "to", "touch", "unit")

    def __init__(
        self,
        touch: Touch,
        lanes: Array,
        to: Array,
        source: Array,
        sizes: Array | None,
        unit: int,
        count: int,
        group: Any,
    ) -> None:
        self.touch, self.lanes, self.to, self.source, self.sizes = touch, lanes, to, source, sizes
        self.unit, self.count, self.group = unit, count, group
        self.done = False
        self.number = 0  # among the copies of its warp batch
        self.signalled = False  # whether an mbarrier arrival covers it

    def subset(self, keep: Array) -> Copy:
        """The part of it that some lanes made; `keep` indexes the lanes."""
        touch = Touch(self.touch.pages, self.touch.index[keep], 0, self.touch.size, None, self.touch.ins)
        touch.lanes = self.lanes[keep]
        part = Copy(
            touch,
            self.lanes[keep],
            self.to[keep],
            self.source[keep],
            None if self.sizes is None else self.sizes[keep],
            self.unit,
            self.count,
            self.group[keep] if isinstance(self.group, np.ndarray) else self.group,
        )
        part.done, part.number, part.signalled = self.done, self.number, self.signalled
        return part

    def move(self, c: WarpBatch) -> None:
        """The bytes arrive."""
        if self.done:
            return
        self.done = True
        c.chunk.engine.progress += 1
        if self.sizes is None:
            source = c.chunk.engine.memory.views[self.unit]
            to = c.chunk.views[self.unit]
            for i in range(self.count):
                to[self.to + i] = source[self.source + i]
            return
        source, to = c.chunk.engine.memory.buffer, c.chunk.shared
        for i in range(self.count * self.unit):
            have = self.sizes > i
            at = np.where(have, self.source * self.unit + i, 0)
            to[self.to * self.unit + i] = np.where(have, source[at], 0)


def commit(c: WarpBatch, m: Mask) -> None:
    if m is None and not isinstance(c.copy_group, np.ndarray):
        c.copy_group += 1
        return
    if not isinstance(c.copy_group, np.ndarray):
        c.copy_group = np.full(c.n, c.copy_group)
    groups = c.copy_group.copy()
    groups[slice(None) if m is None else m] += 1
    c.copy_group = groups


def finish(c: WarpBatch, m: Mask, keep: int) -> None:
    """Completes all but the newest `keep` groups of some lanes; -1: also copies that are not committed."""
    left: list[Copy] = []
    done: list[Copy] = []
    for copy in c.copies:
        limit = c.copy_group - keep if not isinstance(c.copy_group, np.ndarray) else c.copy_group[copy.lanes] - keep
        ripe = copy.group < limit
        if m is None and not isinstance(ripe, np.ndarray):
            (done if ripe else left).append(copy)
            continue
        mine = np.ones(len(copy.lanes), bool) if m is None else m[copy.lanes]
        mine = mine & ripe
        divide(copy, mine, done, left)
    retire_copies(c, left, done)


def retire(c: WarpBatch, lanes: Array, number: int) -> None:
    """An mbarrier's phase has completed that tracked the copies of some lanes up to a number."""
    left: list[Copy] = []
    done: list[Copy] = []
    for copy in c.copies:
        mine = np.isin(copy.lanes, lanes) if copy.number <= number else np.zeros(1, bool)
        divide(copy, mine, done, left)
    retire_copies(c, left, done, False)


def divide(copy: Copy, mine: Array, done: list[Copy], left: list[Copy]) -> None:
    """Adds the lanes `mine` of a copy to `done`, the others to `left`."""
    if mine.all():
        done.append(copy)
    elif not mine.any():
        left.append(copy)
    else:
        done.append(copy.subset(np.flatnonzero(mine)))
        left.append(copy.subset(np.flatnonzero(~mine)))


def retire_copies(c: WarpBatch, left: list[Copy], done: list[Copy], writes: bool = True) -> None:
    """Some copies are complete, others remain; `writes`: they count as written now."""
    if not done:
        return
    c.copies = left
    c.copy_pages = 0
    for copy in left:
        c.copy_pages |= copy.touch.pages
    checks = c.chunk.checks
    checks.copy_pages = 0
    for batch in c.chunk.batches:
        checks.copy_pages |= batch.copy_pages
    for copy in done:
        copy.move(c)
        if copy.touch.pages & ~checks.valid_pages:
            checks.mark_written(copy.touch.pages, copy.touch.index, copy.touch.size)
        if writes and checks.hook is not None:
            checks.hook(c, copy.touch, "arrived")
        if writes and checks.races:
            checks.record(c, copy.touch, "write")
