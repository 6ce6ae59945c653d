"""Fences, and which programs need them watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .builder import Builder
from .ops_sync import nothing
from .registry import Step, instruction
from .syntax import Instruction, Unit

if TYPE_CHECKING:
    from .team import Team

Mask = NDArray[np.bool_] | None
_STARTS = (
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
#: between the generic and the async proxy
_BOTH = {"async", "async.shared::cta", "async.shared::cluster", "async.global", "async::generic"}


def asynchronous(unit: Unit) -> tuple[bool, bool]:
    """Whether a text starts asynchronous work or touches other blocks; whether such work accesses shared memory."""
    names = {ins.name for f in unit.functions.values() for ins in f.code}
    some = {n for n in names if n.startswith(_STARTS) or "shared::cluster" in n}
    return bool(some), any(n.startswith(("wgmma", "cp.async.bulk", "cp.reduce")) for n in some)


@instruction("fence", "membar")
def fence(b: Builder, ins: Instruction) -> Step:
    """What a fence means to the checks; memory itself is sequentially consistent."""
    proxies = ins.mods[:1] == ("proxy",)
    if proxies and not (ins.mods[1] in ("async", "async::generic") and (len(ins.mods) < 3 or ins.mods[2] != "global")):
        return nothing
    init = ins.mods[:1] == ("mbarrier_init",)

    def step(c: Team, m: Mask) -> None:
        asynchrony = c.chunk.asynchrony
        if asynchrony is None:
            return
        blocks = np.flatnonzero(c.warps(m))
        if not proxies:
            asynchrony.barriers.publish(c, blocks)
        if not init:
            asynchrony.order.fence(c, blocks, proxies)

    return step


@instruction("griddepcontrol")
def griddepcontrol(b: Builder, ins: Instruction) -> Step:
    """One grid runs after the other, so that all it depends on is complete."""
    if ins.mods not in (("wait",), ("launch_dependents",)):
        raise b.unsupported()
    return nothing
