"""The formula of streaming kernels: the memory that must be read, and how many loads are under way meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.config import Columns
from ptxgen.families import perf_costs
from ptxgen.families.geometry import SECTOR, WARP
from ptxgen.families.mma.instructions import COLUMNS
from ptxgen.families.perf_blocks import Floats, Work, bound, cell, cycles, leaving
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

LATENCY = 1000.0  #: cycles of a load from memory while others wait too
L2_SM = 40.0  #: bytes a cycle that one multiprocessor draws
SERIAL = 3.3  #: cycles from one instruction of a warp to its next
#: times as much more that memory takes where the lanes of a warp take half a line side by side, or a quarter
HALF, QUARTER = 0.2, 0.45
#: likewise of rows that nothing aligns, read in chunks as they lie, and in pairs of them
SHIFTED, PAIRED = 0.08, 0.2
DRAM = 0.94  #: what is reached of the data sheet's bandwidth
COLD_US = 0.4  #: a launch whose first loads find nothing in the caches
#: instructions that convert an element, by its bytes; s8 in fours needs none, and else one
CONVERT = {1: 2.0, 2: 1.5, 4: 0.0, 8: 0.0}
QUADS = 4  #: products of one dp4a
CUT = 15  #: instructions that cut 16 bytes from two chunks
WIDENED = 13  #: instructions beside that make a matrix instruction of 8-bit floats of what the device has
CLOSE = 8  #: sharpness of the corner between memory and multiprocessors


def rate(p: KernelGemm, d: Device) -> float:
    """Multiply-adds a clock and multiprocessor."""
    return {"f64": d.fma64, "s32": QUADS * d.fma // 2}.get(p.compute, d.fma)


def work(p: KernelGemm, c: Columns, g: SimpleNamespace, d: Device) -> Work:
    """The cost of one block of each configuration; only what does not depend on extents is read of ``p``."""
    size, warps = p.element.bytes, np.maximum(g.threads // WARP, 1)
    quads = (p.dtype == "s8") & (np.minimum(g.vec_x, g.vec_y) >= QUADS) & g.y_kmajor
    products = g.count * g.thin * g.depth / np.where(quads, QUADS, 1)
    issued = g.count // 2 * np.maximum(g.depth * size // 8, 1)  # matrix instructions
    emulated = np.where((size == 1) & (p.dtype != "s8") & (d.sm == perf_costs.MEASURED), WIDENED, 0)
    convert = np.where(quads, np.where(g.x_kmajor, 0.0, 0.5), CONVERT[size]) * (g.count + g.thin) * g.depth
    loads_x, loads_y = g.loads_in_flight / np.maximum(g.steps, 1), np.where(c.long_n == 1, g.a.loads, g.b.loads)
    loads_y = loads_y / np.maximum(g.steps * g.threads, 1)
    packs = np.where(g.vec_y * size < 4, loads_y, 0) + (g.count + 1) * g.depth * (p.compute == "tf32")
    tensor = c.mma_m16 > 0
    hops = np.where(g.x_kmajor, 0, 2 * loads_x) + np.where(g.y_kmajor, 0, 2 * loads_y)
    paired = np.where(g.a.paired | g.b.paired, 1, 0)
    cut = paired * (CUT * g.depth * size // 16 + 1) * g.count
    multiply = np.where(tensor, issued * (1 + emulated) + packs + cut, products + convert)
    told = g.steps * (multiply + loads_x + loads_y + hops) + 8 + 2 * g.count  # instructions of a thread
    issue = warps * told / perf_costs.ISSUE
    math = (
        g.threads
        * g.steps
        * np.where(
            tensor,
            g.count * COLUMNS * g.depth / perf_costs.mma_rate(p, d),
            products / np.where(quads, rate(p, d) / QUADS, rate(p, d)),
        )
    )
    moved_x = g.long_tile * c.u * size
    # a warp's loads of one operand: bytes side by side, of which whole sectors move
    run = np.where(g.x_kmajor, g.lanes * g.vec_x, c.lanes_long * g.vec_x) * size * np.where(tensor, g.steps, 1)
    torn = np.maximum(SECTOR / run, 1.0)
    scattered = np.select([run >= perf_costs.LINE, run == SECTOR], [0.0, QUARTER], HALF)
    scattered = scattered + np.where(g.shifted, np.where(tensor, PAIRED, SHIFTED), 0)
    span = np.where(g.y_kmajor, g.lanes * g.depth, g.lanes * g.depth * g.thin) * size * np.where(tensor, COLUMNS, 1)
    wavefronts = moved_x * torn * (1 + paired) / perf_costs.WAVEFRONT + warps * g.steps * loads_y * np.maximum(
        span / perf_costs.WAVEFRONT, 1
    )
    busy = bound(issue, math, wavefronts, moved_x * torn / L2_SM)
    alone = np.where(c.fragment_prefetch == 1, np.maximum(LATENCY, SERIAL * told), LATENCY + SERIAL * told)
    meet = np.where(tensor, 0, np.log2(g.lanes))
    shuffles = meet * g.count * g.thin * 2 * warps / perf_costs.ISSUE
    left = leaving(p, c, g, d, np.minimum(c.vec_c, 16 // g.sum_bytes))
    left["start"] = left["start"] + shuffles + 4 * perf_costs.ALU_LATENCY * meet
    ragged = LATENCY + (g.count + g.thin) * g.depth * 2.5 * warps / perf_costs.ISSUE
    left["start"] = left["start"] + np.where(g.shifted, ragged, 0)
    moved_y = g.thin_tile * c.u * size
    moved_a, moved_b = (
        np.where(c.long_n == 1, moved_y, moved_x),
        np.where(c.long_n == 1, moved_x, moved_y),
    )
    return Work.of(
        len(c),
        busy=busy,
        alone=alone,
        math=math,
        shared=wavefronts,
        moved_a=moved_a,
        moved_b=moved_b,
        stages=2,
        torn_a=moved_x * (torn * (1 + scattered) - 1),
        **left,
    )


def microseconds(p: KernelGemm, d: Device, w: Work, rows: Any, x: SimpleNamespace, cell: Any) -> Floats:
    """Of a launch: memory or multiprocessors, whichever takes longer, and a little of the other."""
    more = w.torn_a[rows] * x.iterations[cell] * x.blocks[cell]
    memory = (np.float32(p.bytes) + more) / np.float32(d.bandwidth * 1e3 * DRAM)
    multiplied = cycles(d, w, rows, x, cell) / np.float32(d.clock)
    most = np.maximum(multiplied, memory)
    ratio = np.minimum(multiplied, memory) / most
    out: Floats = most * (1 + ratio**CLOSE) ** np.float32(1 / CLOSE) + x.extra[cell]
    out += np.float32(perf_costs.LAUNCH_US + COLD_US)
    return out


__all__ = ["cell", "microseconds", "rate", "work"]
