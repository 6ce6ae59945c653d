"""The performance model of skinny kernels, from the bytes of global memory and the loads in flight."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.geometry import SECTOR, WARP
from ptxgen.families.common.matrix_instructions import COLUMNS
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, bound, cell, cycles, epilogue_costs
from ptxgen.families.skinny.geometry import SkinnyGeometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LATENCY = 1000.0  #: cycles of a load from global memory under load
L2_SM = 40.0  #: bytes per cycle that one multiprocessor can load
SERIAL = 3.3  #: cycles from one instruction of a warp to its next
#: additional share of memory time if adjacent lanes load half a line, or a quarter
HALF, QUARTER = 0.2, 0.45
#: additional share of memory time if unaligned rows are loaded in 16-byte chunks, or in pairs of chunks
UNALIGNED, SPLIT_VECTORS = 0.08, 0.2
DRAM = 0.94  #: share of the data sheet's bandwidth that kernels reach
COLD_US = 0.4  #: microseconds of a launch whose first loads miss the caches
#: bytes of an element -> instructions that convert it; dp4a of s8 needs none
CONVERT = {1: 2.0, 2: 1.5, 4: 0.0, 8: 0.0}
QUADS = 4  #: multiply-adds of one dp4a
CUT = 15  #: instructions that cut 16 bytes from two chunks
WIDENED = 13  #: extra instructions of an emulated mma.sync of fp8
SHARPNESS = 8  #: exponent of the smooth maximum of memory and multiprocessor time


def rate(p: KernelProblem, d: Device) -> float:
    """The number of multiply-adds per clock and multiprocessor."""
    return d.fma64 if p.element.bytes == 8 else QUADS * d.fma // 2 if p.element.int8 else d.fma


def work(p: KernelProblem, c: Columns, g: SkinnyGeometry, d: Device) -> Work:
    """The cost of one block of each configuration. It does not depend on extents of ``p``."""
    size, warps = p.element.bytes, np.maximum(g.threads // WARP, 1)
    quads = p.element.int8 & (np.minimum(g.vec_x, g.vec_y) >= QUADS) & g.y_kmajor
    products = g.count * g.short_count * g.depth / np.where(quads, QUADS, 1)
    issued = g.count // 2 * np.maximum(g.depth * size // 8, 1)  # matrix instructions
    emulated = np.where(p.element.fp8 & (d.sm == perf_costs.MEASURED), WIDENED, 0)
    convert = np.where(quads, np.where(g.x_kmajor, 0.0, 0.5), CONVERT[size]) * (g.count + g.short_count) * g.depth
    loads_x, loads_y = g.loads_in_flight / np.maximum(g.steps, 1), np.where(c.long_n == 1, g.a.loads, g.b.loads)
    loads_y = loads_y / np.maximum(g.steps * g.threads, 1)
    packs = np.where(g.vec_y * size < 4, loads_y, 0) + (g.count + 1) * g.depth * (p.compute == "tf32")
    tensor = c.mma_m16 > 0
    transposes = np.where(g.x_kmajor, 0, 2 * loads_x) + np.where(g.y_kmajor, 0, 2 * loads_y)
    paired = np.where(g.a.split_vectors | g.b.split_vectors, 1, 0)
    cut = paired * (CUT * g.depth * size // 16 + 1) * g.count
    multiply = np.where(tensor, issued * (1 + emulated) + packs + cut, products + convert)
    per_thread = g.steps * (multiply + loads_x + loads_y + transposes) + 8 + 2 * g.count  # instructions of a thread
    issue = warps * per_thread / perf_costs.ISSUE
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
    # adjacent bytes of the loads of a warp; memory moves whole sectors
    run = np.where(g.x_kmajor, g.lanes * g.vec_x, c.lanes_long * g.vec_x) * size * np.where(tensor, g.steps, 1)
    sectors = np.maximum(SECTOR / run, 1.0)
    scattered = np.select([run >= perf_costs.LINE, run == SECTOR], [0.0, QUARTER], HALF)
    scattered = scattered + np.where(g.unaligned, np.where(tensor, SPLIT_VECTORS, UNALIGNED), 0)
    span = g.lanes * g.depth * size * np.where(g.y_kmajor, 1, g.short_count) * np.where(tensor, COLUMNS, 1)
    wavefronts = moved_x * sectors * (1 + paired) / perf_costs.WAVEFRONT + warps * g.steps * loads_y * np.maximum(
        span / perf_costs.WAVEFRONT, 1
    )
    busy = bound(issue, math, wavefronts, moved_x * sectors / L2_SM)
    latency = np.where(
        c.fragment_prefetch == 1, np.maximum(LATENCY, SERIAL * per_thread), LATENCY + SERIAL * per_thread
    )
    reduce_steps = np.where(tensor, 0, np.log2(g.lanes))
    shuffles = reduce_steps * g.count * g.short_count * 2 * warps / perf_costs.ISSUE
    epilogue = epilogue_costs(p, c, g, d, np.minimum(c.vec_c, 16 // g.sum_bytes))
    epilogue["start"] = epilogue["start"] + shuffles + 4 * perf_costs.ALU_LATENCY * reduce_steps
    row_ends = LATENCY + (g.count + g.short_count) * g.depth * 2.5 * warps / perf_costs.ISSUE
    epilogue["start"] = epilogue["start"] + np.where(g.unaligned, row_ends, 0)
    moved_y = g.short_tile * c.u * size
    moved_a, moved_b = (
        np.where(c.long_n == 1, moved_y, moved_x),
        np.where(c.long_n == 1, moved_x, moved_y),
    )
    return Work.of(
        len(c),
        busy=busy,
        latency=latency,
        math=math,
        shared=wavefronts,
        moved_a=moved_a,
        moved_b=moved_b,
        stages=2,
        straddle_a=moved_x * (sectors * (1 + scattered) - 1),
        **epilogue,
    )


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch: a smooth maximum of the times of memory and of multiprocessors."""
    more = w.straddle_a[rows] * x.iterations[cell] * x.blocks[cell]
    memory = (float32(p.bytes) + more) / np.float32(d.bandwidth * 1e3 * DRAM)
    multiplied = cycles(d, w, rows, x, cell) / np.float32(d.clock)
    most = np.maximum(multiplied, memory)
    ratio = np.minimum(multiplied, memory) / most
    us = most * (1 + ratio**SHARPNESS) ** np.float32(1 / SHARPNESS) + x.extra[cell]
    out: Floats = us + np.float32(perf_costs.LAUNCH_US + COLD_US)
    return out


__all__ = ["cell", "microseconds", "rate", "work"]
