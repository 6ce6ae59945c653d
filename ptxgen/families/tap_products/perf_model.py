"""The performance model of kernels that add products of taps: instructions, bytes in flight and waves of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import WARP, float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, bound, resident_blocks
from ptxgen.families.tap_products.geometry import MMA_CHANNELS, TapGeometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.tap_products import tap_products
from ptxgen.problem.device import Device

#: issue slots: of a load besides its bytes, of a converted channel, of a product that is stored or added, of a block
LOAD, CONVERT, SUM, FIXED = 4.0, 1.0, 2.5, 300.0
ISSUED = 0.75  #: share of the issue slots that kernels reach
LINE_CYCLES = 0.5  #: cycles of L1 for each sector of an access
LATENCY = 900.0  #: cycles of a load from device memory under load
FILTERS = 1500.0  #: cycles of a block before its first product: taps, and the barrier after them


def work(p: KernelProblem, c: Columns, g: TapGeometry, d: Device) -> Work:
    """The cost of a channel of a block (``busy``), and of a block besides its channels (``start``), in cycles."""
    t = tap_products(p)
    assert t is not None
    warps, mma = g.threads / WARP, c.tap_mma > 0
    vectors = 16 / max(4, p.accumulator.bytes)
    wide = c.thread_pixels * (LOAD / c.vec_channel + CONVERT * (p.element.bytes == 2) + t.products)
    by_fma = wide + g.columns / vectors
    # an instruction has 16 pixels, 8 products and 16 channels
    instructions = c.thread_pixels * 2 * (g.columns / 8) / 16
    loads = (c.thread_pixels * 4 * LOAD + g.columns / 8 * 1.5) / MMA_CHANNELS
    issue = warps * np.where(mma, instructions + loads, by_fma) / perf_costs.ISSUE / ISSUED
    products = warps * WARP * c.thread_pixels * g.columns
    math = products / np.where(mma, perf_costs.mma_rate(p, d) if p.element.bytes == 2 else 1, perf_costs.fma_rate(p, d))
    lines = warps * WARP * c.thread_pixels * p.element.bytes / 32 * LINE_CYCLES * np.where(c.vec_channel == 1, 1, 4)
    resident = resident_blocks(c, g, d)
    stored = g.pixels * g.columns / WARP * SUM + c.tile_height * c.tile_width * t.products / WARP * SUM
    return Work.of(
        len(c),
        resident=resident,
        busy=bound(issue, math, lines),
        latency=LATENCY / c.u,
        start=(stored + warps * FIXED) / perf_costs.ISSUE,
        moved_a=g.pixels * p.element.bytes,
    )


def cell(p: KernelProblem, c: Columns, g: TapGeometry, d: Device) -> Cells:
    """The channels, and the blocks."""
    t, none = tap_products(p), float32(0)
    assert t is not None
    channels = g.blocks * 0 + -(-t.channels // c.u) * c.u
    return Cells(iterations=float32(channels), blocks=float32(g.blocks), extra=none, queue=none, c_cost=none)


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch. Loads of a block follow each other; those of resident blocks overlap."""
    channels, blocks, resident = x.iterations[cell], x.blocks[cell], w.resident[rows]
    sms = np.float32(d.sms)
    full = np.floor(blocks / (sms * resident))
    left = np.ceil((blocks - full * sms * resident) / sms)
    bytes_of_channel = np.maximum(w.moved_a[rows] / np.float32(perf_costs.L2_BYTES), 1e-3)

    def wave(count: Any) -> Any:
        each = np.maximum(w.busy[rows], bytes_of_channel)
        return np.maximum(count * each, each + w.latency[rows]) * channels + count * w.start[rows] + np.float32(FILTERS)

    total = full * wave(resident) + np.where(left > 0, wave(left), 0)
    memory = float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    out: Floats = float32(bound(total / np.float32(d.clock), memory) + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
