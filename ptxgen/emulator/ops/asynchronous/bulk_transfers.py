"""Bulk copies in flight: to shared memory, signalled to an mbarrier, and from shared memory, in bulk groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE, MAX_CLUSTER_BLOCKS
from ptxgen.emulator.memory.swizzle import box
from ptxgen.emulator.ops.synchronisation.atomic import apply
from ptxgen.emulator.ops.synchronisation.mbarrier import MbarrierOperand
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.events import CHUNK, Access
from ptxgen.emulator.sync.touch import page_bits
from ptxgen.emulator.warp_batch import WarpBatch, fault, suspect
from ptxgen.errors import AsyncFault, MisalignedFault, OutOfBoundsFault, UninitialisedFault

Array = NDArray[Any]


def chunks(c: WarpBatch, at: Array, count: int, span: int = 0, width: int = 0) -> tuple[Array, int]:
    """The pair (chunks, pages) of copies at positions ``at``: the chunks as [copy, chunk] in the order of the data, and
    the pages of all chunks.

    ``count``: chunks of a copy; ``span``, ``width``: as in ``memory.swizzle.box``.
    """
    stride = c.wave.stride
    offset = at % stride
    starts = offset >> CHUNK
    if len(at) and all_true(starts == starts[0]):
        out = box(int(starts[0]), count, span, width) + ((at - offset) >> CHUNK)[:, None]
    else:
        rows = [box(int(s), count, span, width) + (int(b) >> CHUNK) for s, b in zip(starts, at - offset, strict=True)]
        out = np.array(rows, np.int64).reshape(len(at), count)
    pages = 0
    footprint = count // width * span if width else count << CHUNK
    for first in set(offset.tolist()):
        pages |= page_bits(first, first + footprint)
    return out, pages


def check_multiple(c: WarpBatch, ins: Instruction, lanes: Array, at: Array, unit: int, operand_name: str) -> None:
    """Faults if an address is not a multiple of ``unit``."""
    bad = at & (unit - 1) != 0
    if any_true(bad):
        i = int(np.argmax(bad))
        raise fault(MisalignedFault, f"{operand_name} is not a multiple of {unit}", c, ins, int(lanes[i]), int(at[i]))


def check_global(c: WarpBatch, ins: Instruction, lane: int, low: int, high: int, writes: bool) -> None:
    """Faults if the bytes [low, high) are not inside one allocation, or if the copy writes and they are read-only."""
    memory = c.wave.engine.memory
    extent = memory.extent(low)
    if extent is None or high > extent[1]:
        beyond = low if extent is None else extent[1]
        raise fault(OutOfBoundsFault, memory.outside(low, high - low), c, ins, lane, beyond)
    if writes and extent[0] in memory.readonly:
        raise fault(OutOfBoundsFault, f"a read-only buffer is written: {memory.name(extent[0])}", c, ins, lane, low)


def deliveries(c: WarpBatch, ins: Instruction, lanes: Array, masks: Array | None) -> tuple[Array, Array]:
    """The pair (indices into ``lanes``, receiving blocks), with an element for each delivery of a copy; block -1: the
    block of the address.

    ``masks``: the multicast mask of each lane; None without multicast.
    """
    if masks is None:
        return np.arange(len(lanes)), np.full(len(lanes), -1)
    size = c.wave.engine.cluster_blocks
    bad = (masks & 0xFFFF) >> size != 0
    if any_true(bad):
        i = int(np.argmax(bad))
        text = f"the mask {int(masks[i]) & 0xFFFF:#x} has bits above the {size} blocks of the cluster"
        raise fault(OutOfBoundsFault, text, c, ins, int(lanes[i]))
    which, rank = np.nonzero((masks[:, None] >> np.arange(MAX_CLUSTER_BLOCKS)) & 1)
    row = lanes[which] >> 5
    return which, row - c.wave.ranks[row] + rank


class CopyToShared:
    """Copies to shared memory; the arrays have an element for each delivery.

    ``lanes``: the lanes that started the copies; ``at``: positions of the destinations; ``barrier_at``: positions of
    the mbarriers; ``fetch(i)``: the bytes of delivery i, in the order of the chunks; ``op``, ``ptx_type``: operation
    and type of a reduction; ``operation``: the name of the copy in messages.
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
        operation: str,
        op: str = "",
        ptx_type: str = "",
        width: int = 0,
    ) -> None:
        self.batch, self.ins, self.lanes, self.fetch, self.op, self.ptx_type = batch, ins, lanes, fetch, op, ptx_type
        self.size = count << CHUNK
        self.chunks, self.pages = chunks(batch, at, count, span, width)
        state = async_state(batch.wave)
        access = Access(ins, lanes, self.chunks, self.pages)
        state.events.check(batch, access, operation, True, mixes=bool(op))
        self.signals = state.signals(batch, ins, lanes, barrier_at, operation, partial=bool(op))
        state.barriers.check_fenced(batch, ins, lanes, barrier_at, self.signals.rows)
        for event, which in self.signals.groups:
            state.events.start(event, access.subset(which))

    def complete(self) -> None:
        wave = self.batch.wave
        arena = wave.shared.view(np.uint64).reshape(-1, 2)
        for i, where in enumerate(self.chunks):
            data = self.fetch(i)
            if self.op:
                typed = arena[where].view(data.dtype).reshape(-1)
                data = apply(self.op, self.ptx_type, typed, data, None, False)
            arena[where] = data.view(np.uint64).reshape(-1, 2)
        wave.checks.mark_written(self.pages, self.chunks.reshape(-1) << CHUNK, 1 << CHUNK)
        async_state(wave).signal(self.signals, np.full(len(self.lanes), self.size))


class CopyFromShared:
    """Copies from shared to global memory; the arrays have an element for each lane.

    ``group``: the bulk group; ``store(i, data)``: writes the data of lane i to global memory; ``clipped(i)``: a mask of
    its bytes that are written (None: all). The source is read at the first wait_group.read, the destination is
    written at wait_group.
    """

    def __init__(
        self,
        batch: WarpBatch,
        ins: Instruction,
        lanes: Array,
        at: Array,
        count: int,
        span: int,
        store: Callable[[int, Array], None],
        clipped: Callable[[int], Array | None],
        operation: str,
        width: int = 0,
    ) -> None:
        self.batch, self.ins, self.lanes, self.store = batch, ins, lanes, store
        self.chunks, self.pages = chunks(batch, at, count, span, width)
        number = batch.state.get("bulk group", 0)
        self.group: Array = number[lanes] if isinstance(number, np.ndarray) else np.full(len(lanes), number)
        self.data: list[Array | None] = [None] * len(lanes)
        self.written = np.zeros(len(lanes), bool)
        self.waited = np.zeros(len(lanes), bool)
        self.async_state = async_state(batch.wave)
        access = Access(ins, lanes, self.chunks, self.pages)
        events = self.async_state.events
        events.check(batch, access, operation, False)
        self.check_source(clipped)
        self.events = []
        for group in np.unique(self.group).tolist():
            event = events.event(("group", batch.warp, group), ins, operation, False)
            which = flatnonzero(self.group == group)
            events.start(event, access.subset(which))
            self.events.append((event, which))
        self.async_state.stores.setdefault(batch.warp, []).append(self)

    def check_source(self, clipped: Callable[[int], Array | None]) -> None:
        """Faults if the source of a copy has uninitialised bytes; ``clipped(i)``: the bytes of lane i that the copy
        uses."""
        checks = self.batch.wave.checks
        if not self.pages & ~checks.valid_pages:
            return
        checks.refresh(self.pages)
        if not self.pages & ~checks.valid_pages:
            return
        valid = checks.valid_views[8].reshape(-1, 2)
        for i, where in enumerate(self.chunks):
            bad = valid[where].view(np.uint8).reshape(-1) == 0
            written = clipped(i)
            if written is not None:
                bad = bad & written
            if any_true(bad):
                k = int(np.argmax(bad))
                address = (int(where[k >> CHUNK]) << CHUNK) % self.batch.wave.stride + k % 16
                text = "shared memory is copied before it is written"
                raise fault(UninitialisedFault, text, self.batch, self.ins, int(self.lanes[i]), address)

    def read(self, which: Array) -> None:
        """Reads the sources of the copies of some lanes, unless they were read before."""
        arena = self.batch.wave.shared.view(np.uint64).reshape(-1, 2)
        for i in which.tolist():
            if self.data[i] is None:
                self.data[i] = arena[self.chunks[i]].view(np.uint8).reshape(-1)

    def write(self, which: Array) -> None:
        """Writes the destinations of the copies of some lanes, unless they were written before."""
        self.read(which)
        for i in which.tolist():
            data = self.data[i]
            if not self.written[i] and data is not None:
                self.store(i, data)
                self.written[i] = True
        self.batch.wave.engine.progress += 1

    def complete(self) -> None:
        self.write(np.arange(len(self.lanes)))

    def wait(self, which: Array, read: bool, executing: Array) -> None:
        """Completes the reads or the writes that a wait of some lanes waits for. ``read``: the wait is for the reads of
        the sources (wait_group.read).

        ``executing``: the mask of the lanes that execute the wait: they all wait for the copies of their warp.
        """
        self.read(which)
        order = self.async_state.order
        for event, lanes in self.events:
            some = np.intersect1d(lanes, which)
            if len(some) and self.async_state.events.keys.get(event.key) is event:
                before = order.events[self.batch.warp].copy()
                blocks = np.unique(self.lanes[some] >> 5)
                order.events[self.batch.warp, blocks] |= event.bit
                lanes = flatnonzero(executing & np.isin(self.batch.row, blocks))
                order.learn(self.batch, lanes, np.full(len(lanes), event.bit), before)
        if read:
            return
        self.write(which)
        self.waited[which] = True
        if all_true(self.waited):
            self.async_state.stores[self.batch.warp].remove(self)
            if self in self.async_state.in_flight:
                self.async_state.in_flight.remove(self)


def reduce_into(memory: Array, low: int, data: Array, op: str, ptx_type: str) -> None:
    """Applies a reduction to consecutive elements in global memory."""
    start = low - GLOBAL_BASE
    target = memory[start : start + data.nbytes].view(data.dtype)
    target[...] = apply(op, ptx_type, target, data, None, False)


class CopyBarrier(MbarrierOperand):
    """The mbarrier operand of a copy; with multicast, the object at the same offset in each receiving block."""

    def of_deliveries(self, c: WarpBatch, lanes: Array, which: Array, targets: Array) -> Array:
        """The positions of the mbarriers, by delivery; ``which``, ``targets``: as ``deliveries`` returns them."""
        at = self.positions(c, lanes)[which]
        stride = c.wave.stride
        return np.where(targets < 0, at, targets * stride + at % stride)


class Issued:
    """The copies to global memory that the lanes of a warp batch issue in one step of an instruction."""

    def __init__(self, c: WarpBatch, ins: Instruction) -> None:
        self.c, self.ins = c, ins
        self.copies: set[object] = set()

    def first(self, lane: int, *copy: object) -> bool:
        """True if no other lane of the warp has issued the same copy in this step; otherwise a note reports the
        repetition."""
        key = (lane >> 5, *copy)
        if key in self.copies:
            text = "several lanes of a warp issue the same copy; one lane suffices"
            suspect(AsyncFault, text, self.c, self.ins, lane)
            return False
        self.copies.add(key)
        return True
