"""mbarrier instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.operands.access import Site, check_aligned, from_generic, locate
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction, Operand, Sink
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.mbarriers import TOKEN, Mbarriers, SuspendedLanes
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import BarrierFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


_SPACES = ("shared", "shared::cta", "shared::cluster")


_SEMANTICS = {"release", "acquire", "relaxed", "cta", "cluster"}


class MbarrierOperand:
    """The address operand of an mbarrier object.

    ``any_block``: True if the address may belong to another block of the cluster.
    """

    def __init__(
        self, b: Builder, ins: Instruction, op: Operand, space: str | None = None, any_block: bool = False
    ) -> None:
        spaces = [m for m in ins.mods if m in _SPACES]
        self.space = space or (spaces[-1] if spaces else "generic")
        self.any_block = self.space == "shared::cluster" or (self.space == "generic" and any_block)
        self.site = Site(b, ins, op, "generic" if self.space == "generic" else "shared", 8, "write")
        self.ins = ins

    def positions(self, c: WarpBatch, lanes: Array) -> Array:
        """The checked positions of the mbarrier objects of some lanes in the wave's arena."""
        at = self.site.addresses(c, lanes)
        if self.space == "generic":
            at = from_generic(c, at, lanes, self.ins)
        check_aligned(c, self.site, at, lanes)
        return locate(c, at, lanes, 8, self.ins, self.any_block)[0]


def objects(c: WarpBatch) -> Mbarriers:
    return async_state(c.wave).barriers


def value(b: Builder, op: Operand, ptx_type: str = "u32") -> Callable[[WarpBatch, Array], Array]:
    """A function that reads an operand of some lanes as 64-bit integers, unsigned if ``ptx_type`` is u64."""
    view = b.src(op, ptx_type)
    dtype = np.uint64 if ptx_type == "u64" else np.int64

    def read(c: WarpBatch, lanes: Array) -> Array:
        out: Array = spread(c.v[view], c.n)[lanes].astype(dtype)
        return out

    return read


def check_modifiers(b: Builder, ins: Instruction, allowed: set[str]) -> None:
    for m in ins.mods[1:]:
        if m not in allowed and m not in _SPACES and m not in _SEMANTICS and m != "b64":
            raise b.unsupported(f".{m}")
    if ins.mods[-1] != "b64":
        raise b.malformed(f"the type is .{ins.mods[-1]}; it must be .b64")


@instruction("mbarrier.init", "mbarrier.inval")
def init(b: Builder, ins: Instruction) -> Step:
    check_modifiers(b, ins, set())
    place = MbarrierOperand(b, ins, ins.operands[0])
    count = value(b, ins.operands[1]) if ins.mods[0] == "init" else None

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        at = place.positions(c, lanes)
        if count is None:
            objects(c).invalidate(c, ins, lanes, at)
        else:
            objects(c).init(c, ins, lanes, at, count(c, lanes))

    return step


def note_remote_access(c: WarpBatch, lanes: Array, at: Array, ins: Instruction) -> None:
    """Records that lanes access an object of another block."""
    if c.wave.windows is not None:
        async_state(c.wave).events.note_remote_access(c, at // c.wave.stride, lanes >> 5, ins)


@instruction("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(b: Builder, ins: Instruction) -> Step:
    check_modifiers(b, ins, {"expect_tx", "noComplete"})
    operands = list(ins.operands)
    state = operands.pop(0)
    place = MbarrierOperand(b, ins, operands.pop(0), any_block=isinstance(state, Sink))
    expects, drop, complete = "expect_tx" in ins.mods, ins.mods[0] == "arrive_drop", "noComplete" not in ins.mods
    if place.space == "shared::cluster" and not isinstance(state, Sink):
        raise b.malformed("the destination of an arrival in .shared::cluster is a register; it must be _")
    if (expects or not complete) and not operands:
        raise b.malformed("a count is needed")
    amount = value(b, operands.pop(0)) if operands else None
    dst = None if isinstance(state, Sink) else b.dst(state, "u64")
    relaxed = "relaxed" in ins.mods

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        at = place.positions(c, lanes)
        given = amount(c, lanes) if amount is not None else None
        counts = np.ones(len(lanes), np.int64) if given is None or expects else given
        note_remote_access(c, lanes, at, ins)
        state = async_state(c.wave)
        if relaxed:
            blocks, which = np.unique(lanes >> 5, return_inverse=True)
            known = state.order.release(c, blocks, relaxed, any_true(at // c.wave.stride != lanes >> 5))
        else:
            which, known = state.events.release(c, ins, lanes)
        released = type(known)(known.clocks[:, which], known.fenced[:, which], known.events[which])
        tokens = objects(c).arrive(
            c,
            ins,
            lanes,
            at,
            counts,
            expect=given if expects else None,
            drop=drop,
            complete=complete,
            released=released,
        )
        c.wave.engine.progress += 1
        if dst is not None:
            c.v[dst][lanes] = tokens

    return step


@instruction("mbarrier.expect_tx", "mbarrier.complete_tx")
def count_bytes(b: Builder, ins: Instruction) -> Step:
    check_modifiers(b, ins, set())
    place = MbarrierOperand(b, ins, ins.operands[0], any_block=True)
    amount = value(b, ins.operands[1])
    sign = 1 if ins.mods[0] == "expect_tx" else -1

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        at = place.positions(c, lanes)
        note_remote_access(c, lanes, at, ins)
        c.wave.engine.progress += 1
        objects(c).add_bytes(c, ins, lanes, at, sign * amount(c, lanes))

    return step


#: a function that tests the phases of some lanes and gives (lanes, rows of their objects, whether the phase is
#: complete)
PhaseTest = Callable[[WarpBatch, Mask], tuple[Array, Array, Array]]


def wait_test(b: Builder, ins: Instruction) -> tuple[PhaseTest, int]:
    """The test of the phase that the operands name, and the destination predicate."""
    check_modifiers(b, ins, {"parity"})
    if any(m == "shared::cluster" for m in ins.mods):
        raise b.malformed("only objects in .shared::cta can be tested")
    parity = "parity" in ins.mods
    place = MbarrierOperand(b, ins, ins.operands[1])
    given = value(b, ins.operands[2], "u32" if parity else "u64")
    if len(ins.operands) > 3:
        b.src(ins.operands[3], "u32")

    def test(c: WarpBatch, m: Mask) -> tuple[Array, Array, Array]:
        lanes = flatnonzero(active(c, m))
        at = place.positions(c, lanes)
        barriers = objects(c)
        rows = barriers.find(c, ins, lanes, at)
        barriers.check_initialised(c, ins, lanes, at, rows)
        return lanes, rows, barriers.complete(c, ins, lanes, at, rows, given(c, lanes), parity)

    return test, b.dst(ins.operands[0], "pred")


@instruction("mbarrier.test_wait", polls=True)
def test_wait(b: Builder, ins: Instruction) -> Step:
    test, dst = wait_test(b, ins)

    def step(c: WarpBatch, m: Mask) -> None:
        lanes, rows, done = test(c, m)
        barriers = objects(c)
        if any_true(done):
            barriers.acquire_phase(c, lanes[done], rows[done], ins)
        c.v[dst][lanes] = done

    return step


@instruction("mbarrier.try_wait", execution="blocking")
def try_wait(b: Builder, ins: Instruction) -> Step:
    """try_wait: tests as test_wait does. If the test is false, the lanes are suspended until the phase completes or no
    warp makes progress."""
    test, dst = wait_test(b, ins)
    b.members = b.const(0, "u32")  # lanes need not converge

    def step(c: WarpBatch, m: Mask, after: int) -> None:
        lanes, rows, done = test(c, m)
        barriers = objects(c)
        if all_true(done):
            barriers.acquire_phase(c, lanes, rows, ins)
            c.v[dst][lanes] = True
            c.add(after, m)
            return
        yes, no = lanes[done], lanes[~done]
        if len(yes):
            barriers.acquire_phase(c, yes, rows[done], ins)
            c.v[dst][yes] = True
            c.add(after, mask_of(c, yes))
        rows = rows[~done]
        if barriers.should_suspend(c, ins):
            barriers.suspend(SuspendedLanes(c, ins, no, rows, barriers.phase[rows], dst, after))
        else:
            c.v[dst][no] = False
            c.polled = True
            c.add(after, mask_of(c, no))

    return step


def mask_of(c: WarpBatch, lanes: Array) -> Array:
    """The mask of some lanes."""
    mask = np.zeros(c.n, bool)
    mask[lanes] = True
    return mask


@instruction("mbarrier.pending_count")
def pending_count(b: Builder, ins: Instruction) -> Step:
    given = value(b, ins.operands[1], "u64")
    dst = b.dst(ins.operands[0], "u32")

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        state = given(c, lanes)
        bad = state & np.uint64(TOKEN) == 0
        if any_true(bad):
            lane = int(lanes[np.argmax(bad)])
            raise fault(BarrierFault, "the operand is not a state returned by mbarrier.arrive", c, ins, lane)
        c.v[dst][lanes] = (state & np.uint64((1 << 20) - 1)).astype(np.uint32)

    return step


class CopiesArrive:
    """The arrival of cp.async.mbarrier.arrive, which takes effect once the earlier copies of its lanes are complete."""

    def __init__(self, batch: WarpBatch, ins: Instruction, lanes: Array, at: Array) -> None:
        self.batch, self.ins, self.lanes, self.at = batch, ins, lanes, at
        self.number: int = batch.state.get("copies", 0)
        order = async_state(batch.wave).order
        for copy in batch.copies:
            if copy.done and copy.signalled:
                batch.wave.checks.end_copy(copy.touch)
        batch.copies = [copy for copy in batch.copies if not (copy.done and copy.signalled)]
        self.copies = [copy for copy in batch.copies if any_true(np.isin(copy.lanes, lanes))]
        for copy in self.copies:  # the race checks place their writes at the first such arrival after the copies
            if copy.signalled:
                continue
            copy.signalled = True
            async_state(batch.wave).events.generic(batch, copy.touch, "arrived")
            if order.races:
                order.record(batch, copy.touch, "write")
        blocks, which = np.unique(lanes >> 5, return_inverse=True)
        known = order.release(batch, blocks)
        order.mark_release(batch, mask_of(batch, lanes))
        self.released = type(known)(known.clocks[:, which], known.fenced[:, which], known.events[which])

    def complete(self) -> None:
        c = self.batch
        for copy in self.copies:
            copy.complete(c)
        barriers = objects(c)
        rows = barriers.find(c, self.ins, self.lanes, self.at)
        for row in np.unique(rows).tolist():
            barriers.tracked.setdefault(row, []).append((c, self.lanes[rows == row], self.number))
        barriers.arrive(c, self.ins, self.lanes, self.at, np.ones(len(rows), np.int64), released=self.released)


@instruction("cp.async.mbarrier.arrive")
def copies_arrive(b: Builder, ins: Instruction) -> Step:
    adds_pending = "noinc" not in ins.mods
    if set(ins.mods) - {"async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"}:
        raise b.unsupported()
    place = MbarrierOperand(b, ins, ins.operands[0])

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        at = place.positions(c, lanes)
        if adds_pending:
            objects(c).add_pending(c, ins, lanes, at)
        async_state(c.wave).begin(CopiesArrive(c, ins, lanes, at))

    return step
