"""Fences, and the test that finds asynchronous work in a program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.tensormap import SIZE as MAP_SIZE
from ptxgen.emulator.ops.control.branch import nothing
from ptxgen.emulator.ops.operands.access import Site
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction, Unit
from ptxgen.emulator.reductions import flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.memory_order import Scope
from ptxgen.emulator.warp_batch import Step, WarpBatch, active

Mask = NDArray[np.bool_] | None


_ASYNC_PREFIXES = (
    "mbarrier",
    "setmaxnreg",
    "wgmma",
    "cp.async.bulk",
    "cp.reduce",
    "cp.async.mbarrier",
    "st.async",
    "red.async",
    "barrier.cluster",
)


def asynchronous(unit: Unit) -> tuple[bool, bool]:
    """The pair (has asynchronous work or accesses to other blocks, accesses shared memory through the async proxy)."""
    names = {ins.name for f in unit.functions.values() for ins in f.code}
    tracked = {n for n in names if n.startswith(_ASYNC_PREFIXES) or "shared::cluster" in n}
    return bool(tracked), any(n.startswith(("wgmma", "cp.async.bulk", "cp.reduce")) for n in tracked)


@instruction("fence", "membar")
def fence(b: Builder, ins: Instruction) -> Step:
    """A fence; memory is sequentially consistent, so only the race checks use it."""
    spaces = ""  # the state spaces of a proxy fence
    if "tensormap::generic" in ins.mods:
        return map_fence(b, ins)
    if ins.mods[:1] == ("proxy",):
        if ins.mods[1] not in ("async", "async::generic"):
            return nothing
        named = ins.mods[2].partition("::")[0] if len(ins.mods) > 2 else ""
        spaces = named if named in ("shared", "global") else "shared global"
    init = ins.mods[:1] == ("mbarrier_init",)
    scope = Scope.of(ins.mods, Scope.CLUSTER)

    def step(c: WarpBatch, m: Mask) -> None:
        blocks = flatnonzero(c.warps(m))
        messages = c.wave.messages
        if c.wave.async_state is not None:
            state = async_state(c.wave)
            if not spaces:
                state.barriers.publish(c, blocks)
            if init or "shared" in spaces:
                state.barriers.publish_to_proxy(c, blocks)
            if spaces:
                state.events.proxy_fence(c, active(c, m), blocks, spaces)
            elif not init:
                state.order.fence(c, blocks, scope)
                state.order.mark_release(c, active(c, m))
        if messages is not None and not spaces and not init:
            messages.fence(c, blocks, scope)

    return step


def release_maps(c: WarpBatch, m: Mask, ins: Instruction) -> None:
    """Releases tensor maps: the writes so far precede uses of the maps by threads that acquire them later."""
    blocks = flatnonzero(c.warps(m))
    if c.wave.async_state is not None:
        async_state(c.wave).order.proxy_fence(c, blocks, "tensormap")
    if c.wave.messages is not None:
        c.wave.messages.fence(c, blocks, Scope.of(ins.mods, Scope.CLUSTER))


def map_fence(b: Builder, ins: Instruction) -> Step:
    """fence.proxy.tensormap::generic: releases tensor maps, or acquires one tensor map."""
    if "release" in ins.mods:
        return lambda c, m: release_maps(c, m, ins)
    site = Site(b, ins, ins.operands[0], "generic", MAP_SIZE, "read")

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        at = site.addresses(c, lanes)
        if c.wave.messages is not None:
            c.wave.messages.apply_received(c, np.unique(lanes >> 5))
        if c.wave.async_state is None or c.wave.engine.shadow is None:
            return
        for address in np.unique(at).tolist():
            async_state(c.wave).order.acquire_map(c, address, np.unique(lanes[at == address] >> 5))

    return step


@instruction("griddepcontrol")
def griddepcontrol(b: Builder, ins: Instruction) -> Step:
    """griddepcontrol. Grids execute one after another, so only the race checks use the wait."""
    if ins.mods not in (("wait",), ("launch_dependents",)):
        raise b.unsupported()
    if ins.mods == ("launch_dependents",):
        return nothing

    def step(c: WarpBatch, m: Mask) -> None:
        shadow = c.wave.engine.shadow
        if shadow is not None:
            shadow.wait(c, c.warps(m))

    return step
