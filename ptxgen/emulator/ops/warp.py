"""Instructions that exchange values between the lanes of a warp: shuffles, votes, matches, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ops.compare import predicate
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ops.undefined import Operands, across_warp, union
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Operand, Pair, Sink
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import DivergenceFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


LANES = np.arange(32, dtype=np.uint32)


def members(b: Builder, op: Operand) -> int:
    """The member mask of a .sync instruction: the scheduler waits for those lanes."""
    view = b.src(op, "u32")
    b.members = view
    return view


def present(c: WarpBatch, m: Mask, member: int | None, ins: Instruction) -> tuple[Array, Array]:
    """(lanes that execute, lanes named by each lane's mask) as rows of 32; faults on a lane outside its mask.

    `member` is None without .sync: then the lanes that execute are the members.
    """
    here = (c.live() if m is None else m).reshape(-1, 32)
    if member is None:
        return here, np.broadcast_to(bits_of(here)[:, None], here.shape)
    masks = np.broadcast_to(c.v[member], (c.n,)).reshape(-1, 32)
    absent = here & ((masks >> LANES) & np.uint32(1) == 0)
    if absent.any():
        lane = int(np.argmax(absent.reshape(-1)))
        raise fault(DivergenceFault, "a lane executes this outside its own member mask", c, ins, lane)
    whole = m is None and c.alive is None and bool((masks == np.uint32(0xFFFFFFFF)).all())
    c.chunk.checks.exchange(c, None if whole else np.where(here, masks, np.uint32(0)).reshape(-1))
    return here, masks


def bits_of(rows: Array) -> Array:
    """Rows of 32 booleans to words."""
    return np.packbits(rows, axis=1, bitorder="little").view("<u4").reshape(-1)


def put(c: WarpBatch, dst: int, value: Array, m: Mask) -> None:
    np.copyto(c.v[dst], value.reshape(-1), where=True if m is None else m, casting="unsafe")


@instruction("shfl.sync", kind="warp")
def shfl_sync(b: Builder, ins: Instruction) -> Step:
    return shfl(b, ins)


@instruction("shfl")
def shfl(b: Builder, ins: Instruction) -> Step:
    """Without .sync, on targets before sm_70: among the lanes that execute it together."""
    sync = ins.mods[0] == "sync"
    mode = ins.mods[-2] if len(ins.mods) == 2 + sync else ""
    if ins.mods[-1] != "b32" or mode not in ("up", "down", "bfly", "idx"):
        raise b.unsupported()
    d = ins.operands[0]
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    x, y, z = (b.src(o, "u32") for o in ins.operands[1:4])
    member = members(b, ins.operands[4]) if sync else None
    dst, ok = b.dst(first, "u32"), b.dst(second, "pred")

    def sources(c: WarpBatch, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The lane that each lane reads, and whether that one is in range."""
        by = np.broadcast_to(c.v[y], (c.n,)).reshape(shape).astype(np.int64) & 31
        limits = np.broadcast_to(c.v[z], (c.n,)).reshape(shape).astype(np.int64)
        clamp, segment = limits & 31, (limits >> 8) & 31
        lane = LANES.astype(np.int64)
        last = (lane & segment) | (clamp & ~segment)
        low = lane & segment
        if mode == "up":
            j = lane - by
            valid = j >= last
        elif mode == "down":
            j = lane + by
            valid = j <= last
        elif mode == "bfly":
            j = lane ^ by
            valid = j <= last
        else:
            j = low | (by & ~segment)
            valid = j <= last
        return np.where(valid, j, lane) & 31, valid

    def carry(c: WarpBatch, operands: Operands) -> list[Array] | None:
        """A lane's result is undefined where the lane that it reads is."""
        if any(reg in ins.operands[2:] for reg, _ in operands):
            return None
        rows = union(operands).reshape(-1, 32)
        got = rows[np.arange(len(rows))[:, None], sources(c, rows.shape)[0]].reshape(-1)
        return [got, np.zeros_like(got)][:results]

    b.propagation, results = carry, len(b.writes)

    def step(c: WarpBatch, m: Mask) -> None:
        here, _ = present(c, m, member, ins)
        shape = here.shape
        value = np.broadcast_to(c.v[x], (c.n,)).reshape(shape)
        source, valid = sources(c, shape)
        rows = np.arange(len(here))[:, None]
        missing = here & ~here[rows, source]
        if missing.any():
            at = int(np.argmax(missing.reshape(-1)))
            raise fault(DivergenceFault, "the value of a lane that does not take part is read", c, ins, at)
        put(c, dst, value[rows, source], m)
        put(c, ok, np.broadcast_to(valid, shape), m)

    return step


@instruction("vote.sync", kind="warp")
def vote_sync(b: Builder, ins: Instruction) -> Step:
    return vote(b, ins)


@instruction("vote")
def vote(b: Builder, ins: Instruction) -> Step:
    """Without .sync, on targets before sm_70: among the lanes that execute it together."""
    sync = ins.mods[:1] == ("sync",)
    mode = ins.mods[-2] if len(ins.mods) == 2 + sync else ""
    if mode not in ("all", "any", "uni", "ballot") or ins.mods[-1] != ("b32" if mode == "ballot" else "pred"):
        raise b.unsupported()
    p, negated = predicate(b, ins.operands[1])
    member = members(b, ins.operands[2]) if sync else None
    dst = b.dst(ins.operands[0], "u32" if mode == "ballot" else "pred")

    def step(c: WarpBatch, m: Mask) -> None:
        here, masks = present(c, m, member, ins)
        value = np.broadcast_to(c.v[p], (c.n,)).reshape(here.shape)
        if negated:
            value = ~value
        # lanes of one mask vote together; usually that is the whole warp
        same = masks[:, :, None] == masks[:, None, :] if not (masks == masks[:, :1]).all() else None
        taking = here
        if same is None:
            if mode == "ballot":
                put(c, dst, np.repeat(bits_of(value & taking), 32), m)
                return
            every, some = (value | ~taking).all(axis=1), (value & taking).any(axis=1)
            result = every if mode == "all" else some if mode == "any" else every | ~some
            put(c, dst, np.repeat(result, 32), m)
            return
        yes = same & (value & taking)[:, None, :]
        no = same & (~value & taking)[:, None, :]
        if mode == "ballot":
            put(c, dst, bits_of(yes.reshape(-1, 32)), m)
            return
        some, none = yes.any(axis=2), no.any(axis=2)
        put(c, dst, ~none if mode == "all" else some if mode == "any" else ~(some & none), m)

    return step


@instruction("activemask")
def activemask(b: Builder, ins: Instruction) -> Step:
    dst = b.dst(ins.operands[0], "u32")

    def step(c: WarpBatch, m: Mask) -> None:
        put(c, dst, np.repeat(bits_of((c.live() if m is None else m).reshape(-1, 32)), 32), m)

    return step


@instruction("match", kind="warp")
def match(b: Builder, ins: Instruction) -> Step:
    mode, kind = ins.mods[0], ins.mods[-1]
    if ins.mods[1] != "sync" or kind not in ("b32", "b64"):
        raise b.unsupported()
    d = ins.operands[0]
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    x = b.src(ins.operands[1], f"u{8 * SIZES[kind]}")
    member = members(b, ins.operands[2])
    dst, ok = b.dst(first, "u32"), b.dst(second, "pred")

    def step(c: WarpBatch, m: Mask) -> None:
        here, masks = present(c, m, member, ins)
        value = np.broadcast_to(c.v[x], (c.n,)).reshape(here.shape)
        together = (masks[:, :, None] == masks[:, None, :]) & here[:, None, :]
        equal = (value[:, :, None] == value[:, None, :]) & together
        if mode == "any":
            put(c, dst, bits_of(equal.reshape(-1, 32)), m)
            put(c, ok, np.ones(here.shape, bool), m)
            return
        every = (equal | ~together).all(axis=2)
        put(c, dst, np.where(every, bits_of(together.reshape(-1, 32)).reshape(here.shape), 0), m)
        put(c, ok, every, m)

    return step


@instruction("redux", kind="warp")
def redux(b: Builder, ins: Instruction) -> Step:
    how, kind = ins.mods[1], ins.mods[-1]
    ufunc: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }.get(how)
    if ins.mods[0] != "sync" or ufunc is None or kind not in ("u32", "s32", "b32") or len(ins.mods) != 3:
        raise b.unsupported()
    typed = "u32" if kind == "b32" else kind
    x = b.src(ins.operands[1], typed)
    member = members(b, ins.operands[2])
    dst = b.dst(ins.operands[0], typed)
    b.propagation = across_warp
    info = np.iinfo(np.int32 if typed == "s32" else np.uint32)
    neutral = {"add": 0, "min": info.max, "max": info.min, "and": -1 if typed == "s32" else info.max, "or": 0, "xor": 0}

    def step(c: WarpBatch, m: Mask) -> None:
        here, masks = present(c, m, member, ins)
        value = np.broadcast_to(c.v[x], (c.n,)).reshape(here.shape)
        result = np.zeros(here.shape, value.dtype)
        for mask in np.unique(masks[here]):
            mine = here & (masks == mask)
            row = ufunc.reduce(np.where(mine, value, np.array(neutral[how]).astype(value.dtype)), axis=1)
            result = np.where(mine, np.asarray(row).astype(value.dtype)[:, None], result)
        put(c, dst, result, m)

    return step


@instruction("elect", kind="warp")
def elect(b: Builder, ins: Instruction) -> Step:
    d = ins.operands[0]
    if not isinstance(d, Pair):
        raise b.malformed("d|p is needed")
    member = members(b, ins.operands[1])
    dst, ok = b.dst(d.first, "u32"), b.dst(d.second, "pred")

    def step(c: WarpBatch, m: Mask) -> None:
        here, masks = present(c, m, member, ins)
        named = ((masks[:, :, None] >> LANES) & np.uint32(1) != 0) & here[:, None, :]
        leader = named.argmax(axis=2)
        put(c, dst, leader, m)
        put(c, ok, leader == LANES, m)

    return step


@instruction("bar.warp", kind="warp")
def bar_warp(b: Builder, ins: Instruction) -> Step:
    member = members(b, ins.operands[0])

    def step(c: WarpBatch, m: Mask) -> None:
        here, masks = present(c, m, member, ins)
        c.chunk.checks.synchronise_lanes(c, np.where(here, masks, np.uint32(0)).reshape(-1))

    return step
