"""The cp.async copies that the lanes of a warp batch have in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.touch import Touch
from ptxgen.emulator.warp_batch import WarpBatch

Mask = NDArray[np.bool_] | None
Array = NDArray[Any]


class Copy:
    """One cp.async of one warp batch, with the positions of the elements that its lanes copy."""

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
        """The part of the copy that some of its lanes make; ``keep``: the indices of these lanes."""
        touch = Touch(self.touch.pages, self.touch.index[keep], 0, self.touch.size, None, self.touch.ins)
        touch.lanes = self.lanes[keep]
        subset = Copy(
            touch,
            self.lanes[keep],
            self.to[keep],
            self.source[keep],
            None if self.sizes is None else self.sizes[keep],
            self.unit,
            self.count,
            self.group[keep] if isinstance(self.group, np.ndarray) else self.group,
        )
        subset.done, subset.number, subset.signalled = self.done, self.number, self.signalled
        return subset

    def complete(self, c: WarpBatch) -> None:
        """Writes the destination."""
        if self.done:
            return
        self.done = True
        c.wave.engine.progress += 1
        if self.sizes is None:
            source = c.wave.engine.memory.views[self.unit]
            to = c.wave.views[self.unit]
            for i in range(self.count):
                to[self.to + i] = source[self.source + i]
            return
        source, to = c.wave.engine.memory.buffer, c.wave.shared
        for i in range(self.count * self.unit):
            have = self.sizes > i
            at = np.where(have, self.source * self.unit + i, 0)
            to[self.to * self.unit + i] = np.where(have, source[at], 0)


def commit(c: WarpBatch, m: Mask) -> None:
    """Ends the current cp.async group of some lanes."""
    if m is None and not isinstance(c.copy_group, np.ndarray):
        c.copy_group += 1
        return
    if not isinstance(c.copy_group, np.ndarray):
        c.copy_group = np.full(c.n, c.copy_group)
    groups = c.copy_group.copy()
    groups[slice(None) if m is None else m] += 1
    c.copy_group = groups


def finish(c: WarpBatch, m: Mask, keep: int) -> None:
    """Completes all but the newest ``keep`` groups of some lanes; -1: all copies, also those that are in no group
    yet."""
    remaining: list[Copy] = []
    done: list[Copy] = []
    for copy in c.copies:
        limit = c.copy_group - keep if not isinstance(c.copy_group, np.ndarray) else c.copy_group[copy.lanes] - keep
        due = copy.group < limit
        if m is None and not isinstance(due, np.ndarray):
            (done if due else remaining).append(copy)
            continue
        selected = np.ones(len(copy.lanes), bool) if m is None else m[copy.lanes]
        selected = selected & due
        divide(c, copy, selected, done, remaining)
    retire_copies(c, remaining, done)


def retire(c: WarpBatch, lanes: Array, number: int) -> None:
    """Completes the copies of some lanes up to a number, because the mbarrier phase that tracks them has completed."""
    remaining: list[Copy] = []
    done: list[Copy] = []
    for copy in c.copies:
        selected = np.isin(copy.lanes, lanes) if copy.number <= number else np.zeros(1, bool)
        divide(c, copy, selected, done, remaining)
    retire_copies(c, remaining, done, False)


def divide(c: WarpBatch, copy: Copy, selected: Array, done: list[Copy], remaining: list[Copy]) -> None:
    """Adds the lanes ``selected`` of a copy to ``done``, and the other lanes to ``remaining``."""
    if all_true(selected):
        done.append(copy)
    elif not any_true(selected):
        remaining.append(copy)
    else:
        parts = copy.subset(flatnonzero(selected)), copy.subset(flatnonzero(~selected))
        c.wave.checks.end_copy(copy.touch)
        for part, copies in zip(parts, (done, remaining), strict=True):
            c.wave.checks.begin_copy(part.touch)
            copies.append(part)


def retire_copies(c: WarpBatch, remaining: list[Copy], done: list[Copy], writes: bool = True) -> None:
    """Completes copies; ``writes``: the race checks record their writes now."""
    if not done:
        return
    c.copies = remaining
    c.copy_pages = 0
    for copy in remaining:
        c.copy_pages |= copy.touch.pages
    checks = c.wave.checks
    checks.copy_pages = 0
    for batch in c.wave.batches:
        checks.copy_pages |= batch.copy_pages
    for copy in done:
        checks.end_copy(copy.touch)
        copy.complete(c)
        if copy.touch.pages & ~checks.valid_pages:
            checks.mark_written(copy.touch.pages, copy.touch.index, copy.touch.size)
        if writes and checks.hook is not None:
            checks.hook(c, copy.touch, "arrived")
        if writes and checks.races:
            checks.record(c, copy.touch, "write")
