"""The formula of sliding kernels: instructions, or the memory that must move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.clock import costs
from ptxgen.clock.blocks import Floats, Work, bound, cell, leaving
from ptxgen.config import Columns
from ptxgen.device import Device
from ptxgen.geometry import WARP
from ptxgen.problem import Gemm

LOAD = 7.0  #: instructions of a load: its place, whether it is inside, itself
FIXED = 110.0  #: of a thread, beside its taps
RESULT = 6.0  #: of a result that leaves
LATENCY = 900.0  #: cycles of a load that others wait for too


def work(p: Gemm, c: Columns, g: SimpleNamespace, d: Device) -> Work:
    """The cost of one block of each configuration."""
    warps = np.maximum(g.threads // WARP, 1)
    taps = p.strip.taps if p.strip is not None else 1
    told = (
        (LOAD * (g.loads + taps * c.vec_a) / 1.3 + g.products * c.vec_a + 8) * g.steps + FIXED + RESULT * c.ns * c.vec_a
    )
    half = 2 if p.element.bytes == 2 else 1
    issue = warps * told * (1 + 0.15 * (half - 1)) / costs.ISSUE
    wavefronts = warps * g.loads * g.steps * np.maximum(c.vec_a * p.element.bytes / 4, 1)
    left = leaving(p, c, g, d, 1)
    return Work.of(
        len(c), resident=left["resident"], busy=bound(issue, wavefronts), alone=LATENCY * (1 + g.steps), math=issue,
        moved_a=g.threads * g.loads * c.vec_a * p.element.bytes, stages=2,
    )  # fmt: skip


def microseconds(p: Gemm, d: Device, w: Work, rows: Any, x: SimpleNamespace, cell: Any) -> Floats:
    """Waves of blocks, or memory, whichever takes longer."""
    blocks, resident = x.blocks[cell], w.resident[rows]
    waves = np.ceil(blocks / (resident * d.sms))
    each = blocks / d.sms * w.busy[rows]
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * costs.DRAM))
    cycles = np.maximum(each, waves * w.alone[rows])
    out: Floats = np.maximum(cycles / np.float32(d.clock), memory) * np.float32(1.1) + np.float32(costs.LAUNCH_US)
    return out


__all__ = ["cell", "microseconds", "work"]
