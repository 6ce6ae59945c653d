"""Bulk copies in flight: into shared memory, where an mbarrier receives their completion, and out of it, in groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE, MOST
from ptxgen.emulator.memory.swizzle import box
from ptxgen.emulator.ops.atomic import apply
from ptxgen.emulator.ops.mbarrier import Place
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.events import GRANULE, Access
from ptxgen.emulator.sync.touch import page_bits
from ptxgen.emulator.warp_batch import WarpBatch, fault
from ptxgen.errors import MisalignedFault, OutOfBoundsFault, UninitialisedFault

Array = NDArray[Any]


def granules(c: WarpBatch, at: Array, count: int, span: int = 0, width: int = 0) -> tuple[Array, int]:
    """Of copies to or from positions `at`: granules of each in the order of the data, and the pages of all."""
    stride = c.chunk.stride
    offset = at % stride
    starts = offset >> GRANULE
    if len(at) and (starts == starts[0]).all():
        out = box(int(starts[0]), count, span, width) + ((at - offset) >> GRANULE)[:, None]
    else:
        rows = [box(int(s), count, span, width) + (int(b) >> GRANULE) for s, b in zip(starts, at - offset, strict=True)]
        out = np.array(rows, np.int64).reshape(len(at), count)
    pages = 0
    room = count // width * span if width else count << GRANULE
    for first in set(offset.tolist()):
        pages |= page_bits(first, first + room)
    return out, pages


def aligned(c: WarpBatch, ins: Instruction, lanes: Array, at: Array, unit: int, what: str) -> None:
    bad = at & (unit - 1) != 0
    if bad.any():
        i = int(np.argmax(bad))
        raise fault(MisalignedFault, f"{what} is no multiple of {unit}", c, ins, int(lanes[i]), int(at[i]))


def in_global(c: WarpBatch, ins: Instruction, lane: int, low: int, high: int, writes: bool) -> None:
    """Faults unless the bytes from `low` to `high` are inside one allocation."""
    memory = c.chunk.engine.memory
    extent = memory.extent(low)
    if extent is None or high > extent[1]:
        beyond = low if extent is None else extent[1]
        raise fault(OutOfBoundsFault, memory.outside(low, high - low), c, ins, lane, beyond)
    if writes and extent[0] in memory.readonly:
        raise fault(OutOfBoundsFault, f"a read-only buffer is written: {memory.name(extent[0])}", c, ins, lane, low)


def deliveries(c: WarpBatch, ins: Instruction, lanes: Array, masks: Array | None) -> tuple[Array, Array]:
    """Deliveries of a copy: of each, its lane's number within `lanes`, and the block that gets it (-1: the own)."""
    if masks is None:
        return np.arange(len(lanes)), np.full(len(lanes), -1)
    size = c.chunk.engine.cluster_blocks
    bad = (masks & 0xFFFF) >> size != 0
    if bad.any():
        i = int(np.argmax(bad))
        text = f"the mask {int(masks[i]) & 0xFFFF:#x} names blocks that a cluster of {size} lacks"
        raise fault(OutOfBoundsFault, text, c, ins, int(lanes[i]))
    which, rank = np.nonzero((masks[:, None] >> np.arange(MOST)) & 1)
    row = lanes[which] >> 5
    return which, row - c.chunk.ranks[row] + rank


class Incoming:
    """Copies into shared memory; one row a delivery.

    ``lanes``: the lanes that started them; ``at``: their positions; ``barrier_at``: the positions of the mbarriers;
    ``fetch(i)``: the bytes of delivery i, in the order of the granules; ``op``, ``kind``: of a reduction.
    """

    def __init__(
        self,
        batch: WarpBatch,
        ins: Instruction,
        lanes: Array,
        at: Array,
        barrier_at: Array,
        count: int,
        span: int,
        fetch: Callable[[int], Array],
        doing: str,
        op: str = "",
        kind: str = "",
        width: int = 0,
    ) -> None:
        self.batch, self.ins, self.lanes, self.fetch, self.op, self.kind = batch, ins, lanes, fetch, op, kind
        self.size = count << GRANULE
        self.granules, self.pages = granules(batch, at, count, span, width)
        state = async_state(batch.chunk)
        access = Access(ins, lanes, self.granules, self.pages)
        state.events.check(batch, access, doing, True, mixes=bool(op))
        self.signals = state.signals(batch, ins, lanes, barrier_at, doing, partial=bool(op))
        for event, which in self.signals.groups:
            state.events.start(event, access.subset(which))

    def complete(self) -> None:
        chunk = self.batch.chunk
        arena = chunk.shared.view(np.uint64).reshape(-1, 2)
        for i, where in enumerate(self.granules):
            data = self.fetch(i)
            if self.op:
                typed = arena[where].view(data.dtype).reshape(-1)
                data = apply(self.op, self.kind, typed, data, None, False)
            arena[where] = data.view(np.uint64).reshape(-1, 2)
        chunk.checks.mark_written(self.pages, self.granules.reshape(-1) << GRANULE, 1 << GRANULE)
        async_state(chunk).signal(self.signals, np.full(len(self.lanes), self.size))


class Outgoing:
    """Copies from shared to global memory, a row a lane.

    ``group``: of each lane; ``put(i, data)``: writes what lane i copies; ``wanted(i)``: of its bytes, those that are
    written (None: all). The source is read at the first wait that allows to change it, the data arrive at the last.
    """

    def __init__(
        self,
        batch: WarpBatch,
        ins: Instruction,
        lanes: Array,
        at: Array,
        count: int,
        span: int,
        put: Callable[[int, Array], None],
        wanted: Callable[[int], Array | None],
        doing: str,
        width: int = 0,
    ) -> None:
        self.batch, self.ins, self.lanes, self.put = batch, ins, lanes, put
        self.granules, self.pages = granules(batch, at, count, span, width)
        number = batch.state.get("bulk group", 0)
        self.group: Array = number[lanes] if isinstance(number, np.ndarray) else np.full(len(lanes), number)
        self.data: list[Array | None] = [None] * len(lanes)
        self.written = np.zeros(len(lanes), bool)
        self.waited = np.zeros(len(lanes), bool)
        self.async_state = async_state(batch.chunk)
        access = Access(ins, lanes, self.granules, self.pages)
        events = self.async_state.events
        events.check(batch, access, doing, False)
        self.defined(wanted, at)
        self.events = []
        for group in np.unique(self.group).tolist():
            event = events.event(("group", batch.warp, group), ins, doing, False)
            which = np.flatnonzero(self.group == group)
            events.start(event, access.subset(which))
            self.events.append((event, which))
        self.async_state.stores.setdefault(batch.warp, []).append(self)

    def defined(self, wanted: Callable[[int], Array | None], at: Array) -> None:
        """Faults where a copy reads uninitialised bytes."""
        checks = self.batch.chunk.checks
        if not self.pages & ~checks.valid_pages:
            return
        checks.refresh(self.pages)
        if not self.pages & ~checks.valid_pages:
            return
        valid = checks.valid_views[8].reshape(-1, 2)
        for i, where in enumerate(self.granules):
            bad = valid[where].view(np.uint8).reshape(-1) == 0
            need = wanted(i)
            if need is not None:
                bad = bad & need
            if bad.any():
                k = int(np.argmax(bad))
                address = (int(where[k >> GRANULE]) << GRANULE) % self.batch.chunk.stride + k % 16
                text = "shared memory is copied before it is written"
                raise fault(UninitialisedFault, text, self.batch, self.ins, int(self.lanes[i]), address)

    def take(self, which: Array) -> None:
        arena = self.batch.chunk.shared.view(np.uint64).reshape(-1, 2)
        for i in which.tolist():
            if self.data[i] is None:
                self.data[i] = arena[self.granules[i]].view(np.uint8).reshape(-1)

    def write(self, which: Array) -> None:
        self.take(which)
        for i in which.tolist():
            data = self.data[i]
            if not self.written[i] and data is not None:
                self.put(i, data)
                self.written[i] = True
        self.batch.chunk.engine.progress += 1

    def complete(self) -> None:
        self.write(np.arange(len(self.lanes)))

    def wait(self, which: Array, read: bool) -> None:
        """Some lanes wait, only until the source has been read, or until all is done."""
        self.take(which)
        order = self.async_state.order
        for event, of in self.events:
            some = np.intersect1d(of, which)
            if len(some) and self.async_state.events.keys.get(event.key) is event:
                order.events[self.batch.warp, np.unique(self.lanes[some] >> 5)] |= event.bit
        if read:
            return
        self.write(which)
        self.waited[which] = True
        if self.waited.all():
            self.async_state.stores[self.batch.warp].remove(self)
            if self in self.async_state.under_way:
                self.async_state.under_way.remove(self)


def reduce_into(memory: Array, low: int, data: Array, op: str, kind: str) -> None:
    """A reduction of consecutive elements in global memory."""
    start = low - GLOBAL_BASE
    there = memory[start : start + data.nbytes].view(data.dtype)
    there[...] = apply(op, kind, there, data, None, False)


class CopyBarrier(Place):
    """The mbarrier of a copy: in the block that gets the data."""

    def of(self, c: WarpBatch, lanes: Array, which: Array, targets: Array) -> Array:
        """Positions; `which` lane and block of each delivery."""
        at = self.positions(c, lanes)[which]
        stride = c.chunk.stride
        return np.where(targets < 0, at, targets * stride + at % stride)
