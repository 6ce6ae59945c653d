"""Instructions that exchange values between the lanes of a warp: shuffles, votes, matches, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.arithmetic.compare import predicate
from ptxgen.emulator.ops.arithmetic.numerics import REDUCTIONS
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.undefined import Operands, across_warp, terms_of, union
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Operand, Pair, Reg, Sink
from ptxgen.emulator.reductions import all_true, any_true
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import DivergenceFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


LANES = np.arange(32, dtype=np.uint32)
#: the member mask of whole warps
ALL = np.uint32(0xFFFFFFFF)


def members(b: Builder, op: Operand) -> int:
    """The view of the member mask of a .sync instruction, for whose lanes the scheduler waits."""
    view = b.src(op, "u32")
    b.members = view
    return view


def each_lane(c: WarpBatch, view: int) -> Array:
    """The values of an operand as rows of 32 lanes."""
    value = c.v[view]
    return (value if value.ndim else np.full(c.n, value)).reshape(-1, 32)


def executing_lanes(c: WarpBatch, m: Mask, member: int | None, ins: Instruction) -> tuple[Array, Array]:
    """The pair (executing lanes, member mask of each lane) as rows of 32; faults on a lane outside its member mask.

    ``member``: the view of the member mask; None without .sync, where the executing lanes are the members.
    """
    executing = (c.live() if m is None else m).reshape(-1, 32)
    if member is None:
        return executing, np.broadcast_to(bits_of(executing)[:, None], executing.shape)
    masks = each_lane(c, member)
    constant = c.v[member]
    every = not constant.ndim and constant == ALL
    if not every:
        absent = executing & ((masks >> LANES) & np.uint32(1) == 0)
        if any_true(absent):
            lane = int(np.argmax(absent.reshape(-1)))
            raise fault(DivergenceFault, "the member mask of a lane does not include the lane itself", c, ins, lane)
        every = all_true(masks == ALL)
    whole = m is None and c.alive is None and every
    event = "elect" if ins.op == "elect" else "exchange"
    c.wave.checks.exchange(c, None if whole else np.where(executing, masks, np.uint32(0)).reshape(-1), event)
    return executing, masks


def bits_of(rows: Array) -> Array:
    """Converts rows of 32 booleans to 32-bit words."""
    return np.packbits(rows, axis=1, bitorder="little").view("<u4").reshape(-1)


def write(c: WarpBatch, dst: int, value: Array, m: Mask) -> None:
    np.copyto(c.v[dst], value.reshape(-1), where=True if m is None else m, casting="unsafe")


@instruction("shfl.sync", execution="warp")
def shfl_sync(b: Builder, ins: Instruction) -> Step:
    return shfl(b, ins)


@instruction("shfl")
def shfl(b: Builder, ins: Instruction) -> Step:
    """shfl. Without .sync (targets before sm_70) the executing lanes are the members."""
    sync = ins.mods[0] == "sync"
    mode = ins.mods[-2] if len(ins.mods) == 2 + sync else ""
    if ins.mods[-1] != "b32" or mode not in ("up", "down", "bfly", "idx"):
        raise b.unsupported()
    d = ins.operands[0]
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    x, y, z = (b.src(o, "u32") for o in ins.operands[1:4])
    member = members(b, ins.operands[4]) if sync else None
    dst, ok = b.dst(first, "u32"), b.dst(second, "pred")

    fixed: tuple[Array, Array] | None = None  # the sources, if the offset and the limits are constants

    def sources(c: WarpBatch) -> tuple[Array, Array]:
        """The pair (lane that each lane reads, whether it is in range), for each warp or the same for all warps."""
        nonlocal fixed
        if fixed is not None:
            return fixed
        offset, limits = (x.astype(np.int64) for x in (c.v[y], c.v[z]))
        constant = not offset.ndim and not limits.ndim
        offset, limits = (x.reshape(-1, 32) if x.ndim else x for x in (offset & 31, limits))
        clamp, segment = limits & 31, (limits >> 8) & 31
        lane = LANES.astype(np.int64)
        last = (lane & segment) | (clamp & ~segment)
        low = lane & segment
        if mode == "up":
            j = lane - offset
            valid = j >= last
        elif mode == "down":
            j = lane + offset
            valid = j <= last
        elif mode == "bfly":
            j = lane ^ offset
            valid = j <= last
        else:
            j = low | (offset & ~segment)
            valid = j <= last
        reached = np.where(valid, j, lane) & 31, valid
        if constant:
            fixed = reached
        return reached

    def read(rows: Array, source: Array) -> Array:
        """The values of the lanes that ``source`` names for each lane."""
        out: Array = rows[:, source] if source.ndim == 1 else rows[np.arange(len(rows))[:, None], source]
        return out

    def propagate(c: WarpBatch, operands: Operands) -> list[Array] | None:
        """The undefined results: that of a lane is undefined if the lane that it reads is undefined."""
        if any(reg in ins.operands[2:] for reg, _ in operands):
            return None
        source = sources(c)[0]
        undefined = read(union(operands).reshape(-1, 32), source).reshape(-1)
        if isinstance(first, Reg):
            terms = terms_of(c, c.wave.program.undefined.flags[operands[0][0].slot])
            c.undefined_sums[first.slot] = read(terms.reshape(-1, 32), source).reshape(-1)
        return [undefined, np.zeros_like(undefined)][:results]

    b.propagation, results = propagate, len(b.writes)

    def step(c: WarpBatch, m: Mask) -> None:
        executing, _ = executing_lanes(c, m, member, ins)
        source, valid = sources(c)
        if m is not None or c.alive is not None:
            missing = executing & ~read(executing, source)
            if any_true(missing):
                at = int(np.argmax(missing.reshape(-1)))
                raise fault(
                    DivergenceFault, "the instruction reads the value of a lane that does not execute it", c, ins, at
                )
        write(c, dst, read(each_lane(c, x), source), m)
        write(c, ok, np.broadcast_to(valid, executing.shape), m)

    return step


@instruction("vote.sync", execution="warp")
def vote_sync(b: Builder, ins: Instruction) -> Step:
    return vote(b, ins)


@instruction("vote")
def vote(b: Builder, ins: Instruction) -> Step:
    """vote. Without .sync (targets before sm_70) the executing lanes are the members."""
    sync = ins.mods[:1] == ("sync",)
    mode = ins.mods[-2] if len(ins.mods) == 2 + sync else ""
    if mode not in ("all", "any", "uni", "ballot") or ins.mods[-1] != ("b32" if mode == "ballot" else "pred"):
        raise b.unsupported()
    p, negated = predicate(b, ins.operands[1])
    member = members(b, ins.operands[2]) if sync else None
    dst = b.dst(ins.operands[0], "u32" if mode == "ballot" else "pred")

    def step(c: WarpBatch, m: Mask) -> None:
        executing, masks = executing_lanes(c, m, member, ins)
        value = each_lane(c, p)
        if negated:
            value = ~value
        # lanes with the same member mask vote together, usually the whole warp
        same = masks[:, :, None] == masks[:, None, :] if not all_true(masks == masks[:, :1]) else None
        if same is None:
            if mode == "ballot":
                write(c, dst, np.repeat(bits_of(value & executing), 32), m)
                return
            every, some = (value | ~executing).all(axis=1), (value & executing).any(axis=1)
            result = every if mode == "all" else some if mode == "any" else every | ~some
            write(c, dst, np.repeat(result, 32), m)
            return
        yes = same & (value & executing)[:, None, :]
        no = same & (~value & executing)[:, None, :]
        if mode == "ballot":
            write(c, dst, bits_of(yes.reshape(-1, 32)), m)
            return
        some, none = yes.any(axis=2), no.any(axis=2)
        write(c, dst, ~none if mode == "all" else some if mode == "any" else ~(some & none), m)

    return step


@instruction("activemask")
def activemask(b: Builder, ins: Instruction) -> Step:
    dst = b.dst(ins.operands[0], "u32")

    def step(c: WarpBatch, m: Mask) -> None:
        write(c, dst, np.repeat(bits_of((c.live() if m is None else m).reshape(-1, 32)), 32), m)

    return step


@instruction("match", execution="warp")
def match(b: Builder, ins: Instruction) -> Step:
    mode, ptx_type = ins.mods[0], ins.mods[-1]
    if ins.mods[1] != "sync" or ptx_type not in ("b32", "b64"):
        raise b.unsupported()
    d = ins.operands[0]
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    x = b.src(ins.operands[1], f"u{8 * SIZES[ptx_type]}")
    member = members(b, ins.operands[2])
    dst, ok = b.dst(first, "u32"), b.dst(second, "pred")

    def step(c: WarpBatch, m: Mask) -> None:
        executing, masks = executing_lanes(c, m, member, ins)
        value = each_lane(c, x)
        partners = (masks[:, :, None] == masks[:, None, :]) & executing[:, None, :]
        equal = (value[:, :, None] == value[:, None, :]) & partners
        if mode == "any":
            write(c, dst, bits_of(equal.reshape(-1, 32)), m)
            write(c, ok, np.ones(executing.shape, bool), m)
            return
        every = (equal | ~partners).all(axis=2)
        write(c, dst, np.where(every, bits_of(partners.reshape(-1, 32)).reshape(executing.shape), 0), m)
        write(c, ok, every, m)

    return step


@instruction("redux", execution="warp")
def redux(b: Builder, ins: Instruction) -> Step:
    operation, ptx_type = ins.mods[1], ins.mods[-1]
    ufunc = REDUCTIONS.get(operation)
    if ins.mods[0] != "sync" or ufunc is None or ptx_type not in ("u32", "s32", "b32") or len(ins.mods) != 3:
        raise b.unsupported()
    typed = "u32" if ptx_type == "b32" else ptx_type
    x = b.src(ins.operands[1], typed)
    member = members(b, ins.operands[2])
    dst = b.dst(ins.operands[0], typed)
    b.propagation = across_warp
    info = np.iinfo(np.int32 if typed == "s32" else np.uint32)
    neutral = {"add": 0, "min": info.max, "max": info.min, "and": -1 if typed == "s32" else info.max, "or": 0, "xor": 0}

    def step(c: WarpBatch, m: Mask) -> None:
        executing, masks = executing_lanes(c, m, member, ins)
        value = each_lane(c, x)
        result = np.zeros(executing.shape, value.dtype)
        for mask in np.unique(masks[executing]):
            group = executing & (masks == mask)
            row = ufunc.reduce(np.where(group, value, np.array(neutral[operation]).astype(value.dtype)), axis=1)
            result = np.where(group, np.asarray(row).astype(value.dtype)[:, None], result)
        write(c, dst, result, m)

    return step


@instruction("elect", execution="warp")
def elect(b: Builder, ins: Instruction) -> Step:
    d = ins.operands[0]
    if not isinstance(d, Pair):
        raise b.malformed("d|p is needed")
    member = members(b, ins.operands[1])
    dst, ok = b.dst(d.first, "u32"), b.dst(d.second, "pred")

    def step(c: WarpBatch, m: Mask) -> None:
        executing, masks = executing_lanes(c, m, member, ins)
        in_mask = ((masks[:, :, None] >> LANES) & np.uint32(1) != 0) & executing[:, None, :]
        leader = in_mask.argmax(axis=2)
        write(c, dst, leader, m)
        write(c, ok, leader == LANES, m)

    return step


@instruction("bar.warp", execution="warp")
def bar_warp(b: Builder, ins: Instruction) -> Step:
    member = members(b, ins.operands[0])

    def step(c: WarpBatch, m: Mask) -> None:
        executing, masks = executing_lanes(c, m, member, ins)
        c.wave.checks.synchronise_lanes(c, np.where(executing, masks, np.uint32(0)).reshape(-1))

    return step
