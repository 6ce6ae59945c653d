"""Branches and exits; trap, brkpt, nanosleep and pmevent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault
from ptxgen.errors import Fault

Mask = NDArray[np.bool_] | None


def nothing(c: WarpBatch, m: Mask) -> None:
    """A step without effect."""


@instruction("bra", execution="branch")
def bra(b: Builder, ins: Instruction) -> Step:
    if not set(ins.mods) <= {"uni"}:
        raise b.unsupported()
    return nothing


@instruction("ret", "exit", execution="exit")
def exit_(b: Builder, ins: Instruction) -> Step:
    return nothing


@instruction("trap", "brkpt")
def trap(b: Builder, ins: Instruction) -> Step:
    def step(c: WarpBatch, m: Mask) -> None:
        lanes = c.live() if m is None else m
        raise fault(Fault, f"the kernel executes {ins.op}", c, ins, int(np.argmax(lanes)))

    return step


@instruction("nanosleep", polls=True)
def nanosleep(b: Builder, ins: Instruction) -> Step:
    b.src(ins.operands[0], "u32")
    return nothing


@instruction("pmevent")
def pmevent(b: Builder, ins: Instruction) -> Step:
    return nothing
