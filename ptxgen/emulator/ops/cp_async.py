"""cp.async: copies from global to shared memory, in groups, a thread at a time.

A copy's bytes arrive at its wait ("late") or at once ("early"); either way the destination may not
be touched before the wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.access import Site, globally, globally_at, shared
from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ops.load_store import is_hint
from ptxgen.emulator.ops.registry import Step, instruction
from ptxgen.emulator.ptx.syntax import Imm, Instruction, Not, Reg
from ptxgen.emulator.sync.checks import Touch

if TYPE_CHECKING:
    from ptxgen.emulator.warp_batch import Team

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None


class Copy:
    """One cp.async of one team: element positions of the lanes that take part."""

    __slots__ = ("count", "done", "group", "lanes", "number", "sizes", "source", "to", "told", "touch", "unit")

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
        self.number = 0  # among the copies of its team
        self.told = False  # whether an arrival tells of it

    def pick(self, keep: Array) -> Copy:
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
        part.done, part.number, part.told = self.done, self.number, self.told
        return part

    def move(self, c: Team) -> None:
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


@instruction("cp.async.ca", "cp.async.cg")
def cp_async(b: Builder, ins: Instruction) -> Step:
    known = {"async", "ca", "cg", "shared", "shared::cta", "global"}
    for m in ins.mods:
        if m not in known and not is_hint(m):
            raise b.unsupported(f".{m}")
    operands = list(ins.operands)
    if "L2::cache_hint" in ins.mods:
        b.src(operands.pop(), "u64")
    if len(operands) not in (3, 4) or not isinstance(operands[2], Imm):
        raise b.malformed("[destination], [source], size, and perhaps a source size or predicate are needed")
    size = operands[2].value
    if size not in ((16,) if "cg" in ins.mods else (4, 8, 16)):
        raise b.malformed(f"a copy of {size} bytes")
    to = Site(b, ins, operands[0], "shared", size, "write")
    source = Site(b, ins, operands[1], "global", size, "read")
    b.sites += [to, source]
    amount = ignore = None
    negated = False
    if len(operands) == 4:
        last = operands[3]
        if isinstance(last, Not):
            last, negated = last.reg, True
        if isinstance(last, Reg) and last.type == "pred":
            ignore = b.src(last, "pred")
        else:
            amount = b.src(last, "u32")
    unit = min(size, 8)
    count = size // unit

    def step(c: Team, m: Mask) -> None:
        if m is None:
            m = c.alive
        lanes = np.arange(c.n) if m is None else np.flatnonzero(m)
        sizes = None
        if amount is not None:
            sizes = np.broadcast_to(c.v[amount], (c.n,))[lanes].astype(np.int64)
            sizes = np.minimum(sizes, size)
            if (sizes == size).all():
                sizes = None
        elif ignore is not None:
            skip = c.v[ignore][lanes]
            skip = ~skip if negated else skip
            if skip.any():
                sizes = np.where(skip, 0, size)
        place = shared(c, to, m, unit)
        index = place.index[lanes] + place.shift if place.lanes is None else place.index + place.shift
        if sizes is None:
            got = globally(c, source, m, unit)
            origin = (got.index[lanes] if got.lanes is None else got.index) + got.shift
        else:
            origin = np.zeros(len(lanes), np.int64)
            whole = sizes == size
            at = source.addresses(c, lanes)
            if whole.any():
                got = globally_at(c, source, None, unit, at[whole], lanes[whole])
                origin[whole] = got.index
            for n in np.unique(sizes[~whole]):
                if n:
                    some = sizes == n
                    part(c, source, at[some], lanes[some], int(n))
                    origin[some] = (at[some] - (1 << 32)) // unit
        touch = Touch(place_pages(c, index * unit, size), index * unit, 0, size, None, ins)
        touch.lanes = lanes
        copy = Copy(
            touch,
            lanes,
            index,
            origin,
            sizes,
            unit,
            count,
            c.copy_group[lanes] if isinstance(c.copy_group, np.ndarray) else c.copy_group,
        )
        copy.number = c.state["copies"] = c.state.get("copies", 0) + 1
        c.copies.append(copy)
        c.copy_pages |= touch.pages
        c.chunk.checks.copy_pages |= touch.pages
        if not c.chunk.engine.late:
            copy.move(c)

    return step


def part(c: Team, site: Site, at: Array, lanes: Array, size: int) -> None:
    """Checks a source of fewer bytes than the copy writes."""
    from ptxgen.emulator.ops.access import misaligned, nearest
    from ptxgen.emulator.ops.builder import fault
    from ptxgen.errors import OutOfBoundsFault

    misaligned(c, site, at, lanes)
    good = c.chunk.engine.memory.inside(at, size)
    if not good.all():
        i = int(np.argmin(good))
        text = c.chunk.engine.memory.outside(int(at[i]), size, nearest(at, good, i))
        raise fault(OutOfBoundsFault, text, c, site.ins, int(lanes[i]), int(at[i]))


def place_pages(c: Team, positions: Array, size: int) -> int:
    from ptxgen.emulator.sync.checks import page_bits

    if not len(positions):
        return 0
    inside = positions % c.chunk.stride
    return page_bits(int(inside.min()), int(inside.max()) + size)


def commit(c: Team, m: Mask) -> None:
    if m is None and not isinstance(c.copy_group, np.ndarray):
        c.copy_group += 1
        return
    if not isinstance(c.copy_group, np.ndarray):
        c.copy_group = np.full(c.n, c.copy_group)
    groups = c.copy_group.copy()
    groups[slice(None) if m is None else m] += 1
    c.copy_group = groups


def finish(c: Team, m: Mask, keep: int) -> None:
    """Waits of some lanes for all but their newest `keep` groups; -1 also takes what is not committed."""
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
        if mine.all():
            done.append(copy)
        elif not mine.any():
            left.append(copy)
        else:
            done.append(copy.pick(np.flatnonzero(mine)))
            left.append(copy.pick(np.flatnonzero(~mine)))
    settle(c, left, done)


def retire(c: Team, lanes: Array, number: int) -> None:
    """An mbarrier's phase has completed that tracked the copies of some lanes up to a number."""
    left: list[Copy] = []
    done: list[Copy] = []
    for copy in c.copies:
        mine = np.isin(copy.lanes, lanes) if copy.number <= number else np.zeros(1, bool)
        if mine.all():
            done.append(copy)
        elif not mine.any():
            left.append(copy)
        else:
            done.append(copy.pick(np.flatnonzero(mine)))
            left.append(copy.pick(np.flatnonzero(~mine)))
    settle(c, left, done, False)


def settle(c: Team, left: list[Copy], done: list[Copy], writes: bool = True) -> None:
    """Some copies are complete, others remain; `writes`: they count as written now."""
    if not done:
        return
    c.copies = left
    c.copy_pages = 0
    for copy in left:
        c.copy_pages |= copy.touch.pages
    checks = c.chunk.checks
    checks.copy_pages = 0
    for team in c.chunk.teams:
        checks.copy_pages |= team.copy_pages
    for copy in done:
        copy.move(c)
        if copy.touch.pages & ~checks.valid_pages:
            checks.mark_written(copy.touch.pages, copy.touch.index, copy.touch.size)
        if writes and checks.hook is not None:
            checks.hook(c, copy.touch, "arrived")
        if writes and checks.races:
            checks.record(c, copy.touch, "write")


@instruction("cp.async.commit_group")
def commit_group(b: Builder, ins: Instruction) -> Step:
    return commit


@instruction("cp.async.wait_group")
def wait_group(b: Builder, ins: Instruction) -> Step:
    if len(ins.operands) != 1 or not isinstance(ins.operands[0], Imm):
        raise b.malformed("a constant is needed")
    keep = ins.operands[0].value
    return lambda c, m: finish(c, m, keep)


@instruction("cp.async.wait_all")
def wait_all(b: Builder, ins: Instruction) -> Step:
    def step(c: Team, m: Mask) -> None:
        commit(c, m)
        finish(c, m, 0)

    return step
