"""The formula of sliding kernels: instructions, or the memory that must move."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config import Columns
from ptxgen.families import perf_costs
from ptxgen.families.depthwise.geometry import DepthwiseGeometry
from ptxgen.families.geometry import WARP
from ptxgen.families.perf_blocks import Cells, Floats, Work, bound, cell, leaving
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

LOAD = 7.0  #: instructions of a load: its place, whether it is inside, itself
FIXED = 110.0  #: of a thread, beside its taps
RESULT = 6.0  #: of a result that leaves
LATENCY = 900.0  #: cycles of a load that others wait for too
#: of gradients of filters: instructions of a unit, cycles of a block, microseconds of the pass
UNIT, BLOCK, PASS_US = 60.0, 2500.0, 1.0


def work(p: KernelGemm, c: Columns, g: DepthwiseGeometry, d: Device) -> Work:
    """The cost of one block of each configuration."""
    warps = np.maximum(g.threads // WARP, 1)
    taps = p.strip.taps if p.strip is not None else 1
    told = (
        (LOAD * (g.loads + taps * c.vec_a) / 1.3 + g.products * c.vec_a + 8) * g.steps + FIXED + RESULT * c.ns * c.vec_a
    )
    half = 2 if p.element.bytes == 2 else 1
    if p.strip is not None and p.strip.summed:  # a unit of work: the loads of each other tap are of what it sees
        steps = p.strip.steps
        loads = c.ns + g.loads * steps
        told = LOAD * loads / 1.3 + (g.products * steps + loads * 0.5) * c.vec_a + UNIT
    issue = warps * told * (1 + 0.15 * (half - 1)) / perf_costs.ISSUE
    wavefronts = warps * g.loads * g.steps * np.maximum(c.vec_a * p.element.bytes / 4, 1)
    left = leaving(p, c, g, d, 1)
    summed = p.strip is not None and p.strip.summed
    return Work.of(
        len(c),
        resident=left["resident"],
        busy=bound(issue, wavefronts),
        math=issue,
        alone=LATENCY * (2 if summed else 1 + g.steps),
        store=c.nl * c.ml * c.ns * c.vec_a,
        part=c.nl * c.vec_a,
        moved_a=g.threads * g.loads * c.vec_a * p.element.bytes,
        stages=2,
    )


def microseconds(p: KernelGemm, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """Waves of blocks, or memory, whichever takes longer."""
    s = p.strip
    each = [n.steps * n.rows * n.lanes for n in (s, *s.others)] if s is not None else [1]  # of each launch
    if s is not None and s.summed:
        return _summed(p, d, w, rows, x, cell)
    blocks, resident = x.blocks[cell] * np.float32(sum(each) / max(each[0], 1)), w.resident[rows]
    waves = np.ceil(blocks / (resident * d.sms))
    busy = blocks / d.sms * w.busy[rows]
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    cycles = np.maximum(busy, waves * w.alone[rows])
    launches = np.float32(perf_costs.LAUNCH_US * len(each))
    out: Floats = np.maximum(cycles / np.float32(d.clock), memory) * np.float32(1.1) + launches
    return out


def _summed(p: KernelGemm, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """Of gradients of filters: blocks with as many units each as there are for one, and the pass."""
    s = p.strip
    blocks, resident = x.blocks[cell], w.resident[rows]
    lanes = np.ceil(s.lanes / w.part[rows]) * w.part[rows]
    strips = lanes * s.rows * s.results * (1 if s.grouped else s.groups)
    units = strips / (w.store[rows] * blocks)  # of a block
    busy = blocks / d.sms * units * w.busy[rows]
    waves = np.ceil(blocks / (resident * d.sms))
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    cycles = np.maximum(busy, waves * (np.ceil(units) * w.alone[rows] + BLOCK))
    launches = np.float32(2 * perf_costs.LAUNCH_US + PASS_US)
    out: Floats = np.maximum(cycles / np.float32(d.clock), memory) * np.float32(1.1) + launches
    return out


__all__ = ["cell", "microseconds", "work"]
