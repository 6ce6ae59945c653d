"""Instructions on clusters: mapa, getctarank, isspacep and barrier.cluster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import OFFSET, RANK, SHARED_WINDOW, WINDOW
from ptxgen.emulator.ops.operands.access import from_generic
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, spread

Mask = NDArray[np.bool_] | None


@instruction("mapa")
def mapa(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] not in ("u32", "u64") or not set(ins.mods[:-1]) <= {"shared::cluster"}:
        raise b.unsupported()
    ptx_type = ins.mods[-1]
    generic = len(ins.mods) == 1
    dst, src, rank = b.dst(ins.operands[0], ptx_type), b.src(ins.operands[1], ptx_type), b.src(ins.operands[2], "u32")

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        lanes = flatnonzero(active(c, m))
        at = spread(v[src], c.n)[lanes].astype(np.int64)
        if generic:
            at = from_generic(c, at, lanes, ins)
        to = spread(v[rank], c.n)[lanes].astype(np.int64) & 255
        mapped = (at & OFFSET) + (to << RANK) + (SHARED_WINDOW if generic else 0)
        v[dst][lanes] = mapped.astype(v[dst].dtype)

    return step


@instruction("getctarank")
def getctarank(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] not in ("u32", "u64") or not set(ins.mods[:-1]) <= {"shared::cluster"}:
        raise b.unsupported()
    generic = len(ins.mods) == 1
    dst, src = b.dst(ins.operands[0], "u32"), b.src(ins.operands[1], ins.mods[-1])

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        lanes = flatnonzero(active(c, m))
        at = spread(v[src], c.n)[lanes].astype(np.int64)
        if generic:
            at = from_generic(c, at, lanes, ins)
        v[dst][lanes] = (at >> RANK).astype(np.uint32)

    return step


@instruction("isspacep.shared", "isspacep.shared::cta", "isspacep.shared::cluster")
def isspacep(b: Builder, ins: Instruction) -> Step:
    dst, src = b.dst(ins.operands[0], "pred"), b.src(ins.operands[1], "u64")
    own_block = ins.mods[0] != "shared::cluster"

    def step(c: WarpBatch, m: Mask) -> None:
        at = spread(c.v[src], c.n).astype(np.int64)
        inside = (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + WINDOW)
        if own_block and c.wave.windows is not None:
            inside &= (at - SHARED_WINDOW) >> RANK == c.wave.ranks[c.row]
        np.copyto(c.v[dst], inside, where=True if m is None else m)

    return step


@instruction("barrier.cluster.arrive", execution="warp")
def arrive(b: Builder, ins: Instruction) -> Step:
    if not set(ins.mods[2:]) <= {"release", "relaxed", "aligned"} or ins.operands:
        raise b.unsupported()
    relaxed = "relaxed" in ins.mods

    def step(c: WarpBatch, m: Mask) -> None:
        async_state(c.wave).cluster.arrive(c, m, ins, relaxed)

    return step


@instruction("barrier.cluster.wait", execution="blocking")
def wait(b: Builder, ins: Instruction) -> Step:
    if not set(ins.mods[2:]) <= {"acquire", "aligned"} or ins.operands:
        raise b.unsupported()

    def step(c: WarpBatch, m: Mask, after: int) -> None:
        async_state(c.wave).cluster.wait(c, m, ins, after)

    return step
