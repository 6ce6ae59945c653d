"""The performance model of quantized_mma kernels, from the bytes of weights, loads in flight, and instructions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_blocks, perf_costs
from ptxgen.families.common.geometry import SECTOR, WARP
from ptxgen.families.common.matrix_instructions import COLUMNS
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, bound, cycles, epilogue_costs
from ptxgen.families.quantized_mma.geometry import CHUNK, LANES, QUAD, QuantizedMmaGeometry, access_of
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LATENCY = 1000.0  #: cycles of a load from global memory under load
CACHED = 250.0  #: cycles of a load of activations from L2 or L1
BARRIER = 60.0  #: cycles that a block waits for all its warps
SHARED = 60.0  #: cycles of a load of activations from shared memory
PER_COPY = 4  #: instructions of a copy to a stage
COPIED = 1.6  #: bytes per nanosecond that all blocks together copy to stages; they read the same lines of L2
LOOKUPS = 1.7  #: cycles to look up a line of activations in L1
L2_SM = 40.0  #: bytes per cycle that one multiprocessor can load
SERIAL = 3.3  #: cycles from one instruction of a warp to its next
DRAM = 0.94  #: share of the data sheet's bandwidth that kernels reach
COLD_US = 0.4  #: microseconds of a launch whose first loads miss the caches
SHARPNESS = 8  #: exponent of the smooth maximum of memory and multiprocessor time
#: (bits of a weight, True if it becomes bf16) -> instructions to convert a pair of weights
PAIR = {(4, False): 3.25, (4, True): 3.25, (8, False): 2.25, (8, True): 4.5}
#: True if weights become bf16 -> instructions to convert a pair of weights four apart, with one instruction for the
#: corresponding pair of activations
STRIDED = {False: 2.25, True: 2.75}
ELEMENT = 2  #: bytes of an element of A
SCATTERED = 0.2  #: additional share of memory time if four lanes load less than a sector


def rate(p: KernelProblem, d: Device) -> float:
    """The number of multiply-adds per clock and multiprocessor."""
    return perf_costs.mma_rate(p, d)


def work(p: KernelProblem, c: Columns, g: QuantizedMmaGeometry, d: Device) -> Work:
    """The cost of one block of each configuration. It does not depend on extents of ``p``."""
    access = access_of(p)
    warps, tiles_m = np.maximum(g.threads // WARP, 1), c.ms // 2
    pair: Any = PAIR[access.format.bits, p.dtype == "bf16"]
    issued = c.ns // 2 * tiles_m * g.depth // QUAD  # matrix instructions of a step
    loads_a = tiles_m * g.depth / np.maximum(c.vec_a, 1) * np.where(c.vec_a == 1, 1.5, 1)
    loads_b = c.ns * np.maximum(4 / np.maximum(c.vec_b, 1), 1) * np.where(c.vec_b < 4, 2, 1)
    groups = g.steps * g.step_depth / access.group if access.group else 0.0
    scaling = groups * (c.ns * (2 + 2 * access.zeros) + c.ns * c.ms)
    pair = np.where(g.strided, STRIDED[p.dtype == "bf16"] + tiles_m / c.ns, pair)
    step = issued + c.ns * g.depth / 2 * pair + loads_a + loads_b
    pointers = (1 + (access.group > 0)) * c.ns + tiles_m
    per_thread = g.steps * step + scaling + 8 + 2 * pointers  # instructions of a lane per K iteration
    per_thread = per_thread + np.where(c.stages > 0, PER_COPY * g.copies, 0)
    issue = warps * per_thread / perf_costs.ISSUE
    math = warps * g.steps * issued * (WARP // 2 * COLUMNS * 16) / perf_costs.mma_rate(p, d)
    moved_b = c.nl * c.u // access.format.per_byte
    # lanes of a quad load adjacent vectors of a row of A: a warp reads 8 rows of each tile
    read_a = warps * g.steps * tiles_m * LANES * g.step_depth * ELEMENT
    lines = LOOKUPS * read_a / (QUAD * np.minimum(c.vec_a, CHUNK) * ELEMENT)  # a line of each row
    staged = c.stages > 0
    wavefronts = np.where(staged, read_a / perf_costs.WAVEFRONT, lines) + moved_b / perf_costs.WAVEFRONT
    moved_a = c.ml * c.u * ELEMENT
    busy = bound(issue, math, wavefronts, (moved_a + moved_b) / L2_SM)
    # loads of activations precede their products; those of stages wait for all warps, and then are short
    waits = np.where(staged, BARRIER + SHARED * g.steps, CACHED * g.steps)
    serial = waits + SERIAL * per_thread
    # the registers of a step are loaded again after its products: the other steps overlap these loads
    overlapped = np.maximum(serial, LATENCY + serial / np.maximum(g.steps, 1))
    latency = np.where(c.fragment_prefetch == 1, overlapped, LATENCY + serial)
    epilogue = epilogue_costs(p, c, g, d, np.minimum(c.vec_c, 16 // g.sum_bytes))
    scattered = np.where(QUAD * c.vec_b < SECTOR, SCATTERED, 0.0)
    return Work.of(
        len(c),
        busy=busy,
        latency=latency,
        math=math,
        shared=wavefronts,
        moved_a=moved_a,
        moved_b=moved_b,
        stages=2,
        straddle_a=np.where(staged, c.ml * c.u * ELEMENT, 0),
        straddle_b=moved_b * scattered,
        **epilogue,
    )


def cell(p: KernelProblem, c: Columns, g: QuantizedMmaGeometry, d: Device) -> Cells:
    """The cells of the configurations ``c``."""
    cells = perf_blocks.cell(p, c, g, d)
    return replace(cells, extra=cells.extra + float32(perf_costs.TABLE_US)) if grouped(p) else cells


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch: a smooth maximum of the times of memory and of multiprocessors."""
    more = w.straddle_b[rows] * x.iterations[cell] * x.blocks[cell]
    memory = (float32(p.bytes) + more) / np.float32(d.bandwidth * 1e3 * DRAM)
    multiplied = cycles(d, w, rows, x, cell) / np.float32(d.clock)
    most = np.maximum(multiplied, memory)
    ratio = np.minimum(multiplied, memory) / most
    us = most * (1 + ratio**SHARPNESS) ** np.float32(1 / SHARPNESS) + x.extra[cell]
    us = us + w.straddle_a[rows] * x.iterations[cell] * x.blocks[cell] / np.float32(COPIED * 1e6)
    out: Floats = us + np.float32(perf_costs.LAUNCH_US + COLD_US)
    return out


__all__ = ["cell", "microseconds", "rate", "work"]
