"""The performance model of mma.sync kernels.

A K iteration multiplies, moves fragments and stages through shared memory, and issues instructions; the most expensive
of the three counts, by a smooth maximum. A multiprocessor's share of the L2 may take longer, and so may latencies that
do not overlap if there are too few warps. The constants are in ``families.mma.cost``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns, packs
from ptxgen.codegen.parts.stream_tiles import LEAST
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_costs, perf_grouped
from ptxgen.families.common.geometry import WARP, register_cap
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, instruction
from ptxgen.families.common.perf_blocks import Floats, Work, bound
from ptxgen.families.mma import cost
from ptxgen.families.mma.candidates import width_c
from ptxgen.families.mma.geometry import MmaGeometry, adjacent_c, lane_scales
from ptxgen.lowering.bit_products import packs_bits
from ptxgen.lowering.block_scales import block_scaled
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MmaCells:
    """The numbers that depend on extents and K slices: one entry for each combination of a tile and a slice count."""

    iterations: Floats  #: K iterations of a slice
    blocks: Floats  #: blocks of the launch
    extra: Floats  #: microseconds of a launch in addition to its blocks
    straddle_a: Floats  #: 1 if rows of A do not start at cache lines
    straddle_b: Floats  #: 1 if rows of B do not start at cache lines
    shared: Floats  #: 1 if blocks have equal shares of the K iterations


def work(p: KernelProblem, c: Columns, g: MmaGeometry, d: Device) -> Work:
    """The cost of one block of each configuration. It does not depend on extents of ``p``."""
    size, warps = p.element.bytes, np.maximum(g.threads // WARP, 1)
    rows, columns = np.maximum(c.ml // np.maximum(c.ms, 1), 1), np.maximum(c.nl // np.maximum(c.ns, 1), 1)
    products, steps = c.ms // ROWS * (c.ns // COLUMNS) * p.algebra.fmas, c.u / c.kl / g.depth
    math = c.ml * c.nl * c.u / perf_costs.mma_rate(p, d) * instruction(p, d).issued
    shared = (c.ml * columns + c.nl * rows + c.ml + c.nl) * c.u * size / cost.WAVEFRONT
    issued = warps * (cost.ITERATION + steps * (products + (c.ms + c.ns) / ROWS))
    if block_scaled(p):
        issued = issued + warps * steps * (cost.SCALED * products + cost.SCALE_LOAD * lane_scales(p, c))
    for x in (g.a, g.b):
        shared = shared + x.loads / WARP * np.where(x.cp_async == 1, *cost.LOAD_WAVEFRONTS)
        issued = issued + x.loads / WARP * np.where(x.cp_async == 1, *cost.LOAD_ISSUE)
    waiting = (
        steps
        * (
            products * cost.CHAIN[perf_costs.mma_types(p)] * instruction(p, d).chained
            + np.where(c.fragment_prefetch == 1, cost.FRAGMENT_LATENCY[1], cost.FRAGMENT_LATENCY[0])
        )
        + cost.BARRIER
    )
    if block_scaled(p):
        waiting = waiting + steps * cost.SCALE_LATENCY
    overlapped = np.maximum(c.stages - 1, 1)
    if grouped(p):  # loads into registers are stored to shared memory one iteration later
        overlapped = np.where((c.cp_async_a == 1) & (c.cp_async_b == 1), overlapped, 1)
    granted = np.minimum(g.expected_registers, register_cap(d, g.threads, c.min_ctas_per_sm))
    moved_a, moved_b = c.ml * c.u * size, c.nl * c.u * size
    late = np.where(c.kl > 1, cost.GROUPS_US, 0.0) + np.where(c.epilogue_smem == 1, cost.EPILOGUE_SMEM_US, 0.0)
    resident = np.maximum(d.blocks_per_sm(g.threads, granted, g.shared), 1)
    busy, latency = bound(math, shared, issued / cost.ISSUE), np.maximum(waiting, cost.GLOBAL / overlapped)
    store: Any = c.ml * c.nl * cost.STORE
    if isinstance(p.algebra, ComplexProduct):  # products of other blocks hide late loads, and stores of large elements
        rate = d.bandwidth * 1e3 * cost.DRAM / d.clock / d.sms  # bytes of memory a cycle and multiprocessor
        store = np.maximum(store, c.ml * c.nl * p.output.bytes / rate / resident)
        busy = bound(busy, latency / resident, (moved_a + moved_b) / cost.L2)
    groups: dict[str, Any] = {"partial": store}
    if grouped(p):
        store = np.maximum(store, perf_grouped.store_cycles(p, c, g, width_c(p, c), adjacent_c(p, c)))
        groups = {"partial": perf_grouped.slice_cycles(p, c), **perf_grouped.parts(g)}
    return Work.of(
        len(c),
        resident=resident,
        math=math,
        shared=shared,
        busy=busy,
        latency=latency,
        start=late * d.clock,
        store=store,
        red=store,
        **groups,
        moved_a=moved_a,
        moved_b=moved_b,
        stages=c.stages,
        straddle_a=moved_a * cost.STRADDLE * cost.WAVEFRONT / (g.a.row_elements * size),
        straddle_b=moved_b * cost.STRADDLE * cost.WAVEFRONT / (g.b.row_elements * size),
    )


def cell(p: KernelProblem, c: Columns, g: MmaGeometry, d: Device) -> MmaCells:
    """The cells of the configurations ``c``."""
    size = p.element.bytes
    added = g.slices * p.results * p.accumulator.bytes / (cost.REDUCE * d.sms * d.clock * cost.CLOCK_SHARE)
    reduction = np.choose(np.clip(c.splitk, 0, 2), [cost.SPLIT_US[i] for i in range(3)])
    copied = 2 * g.packed_bytes if not packs_bits(p) else (1 + 8) * g.packed_bytes  # of bytes to bits
    packing = perf_costs.PACK_US + copied / (d.bandwidth * 1e3 * perf_costs.PACK_DRAM)
    packed = packs(c, "a") | packs(c, "b") | packs_bits(p)
    extra = np.where(c.kg > 1, added + reduction, 0.0) + np.where(packed, packing, 0.0)
    shared = (c.stream_k == 1) & (not grouped(p))
    extra = extra + np.where(shared, cost.STREAM_US, 0.0)
    numbers: dict[str, Any] = {
        "iterations": -(-np.maximum(np.minimum(g.slice_k, p.k), 1) // c.u),
        "blocks": g.blocks,
        "extra": extra,
        "straddle_a": (p.operand("A").access.ld * size % cost.WAVEFRONT > 0) & ~np.asarray(packs(c, "a")),
        "straddle_b": (p.operand("B").access.ld * size % cost.WAVEFRONT > 0) & ~np.asarray(packs(c, "b")),
        "shared": shared,
    }
    return MmaCells(**{n: float32(v) for n, v in numbers.items()})


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: MmaCells, cell: Any) -> Floats:
    """The predicted microseconds of a launch."""
    iterations, blocks, shared = x.iterations[cell], x.blocks[cell], x.shared[cell] > 0
    resident, latency = w.resident[rows], w.latency[rows]
    moved = (
        w.moved_a[rows]
        + w.moved_b[rows]
        + w.straddle_a[rows] * x.straddle_a[cell]
        + w.straddle_b[rows] * x.straddle_b[cell]
    )
    busy = np.maximum(w.busy[rows], moved / np.float32(cost.L2_SM))
    tiles = blocks / np.float32(d.sms)
    each = np.where(shared, tiles, np.ceil(tiles))  # blocks of the busiest multiprocessor
    waves = np.maximum(np.ceil(each / resident), 1)
    last = each - (waves - 1) * resident
    multiply = ((waves - 1) * np.maximum(busy * resident, latency) + np.maximum(busy * last, latency)) * iterations
    share = np.maximum(tiles * iterations / resident, LEAST)  # K iterations of a block
    multiply = np.where(shared, np.float32(cost.STREAM) * share * np.maximum(busy * resident, latency), multiply)
    spread = blocks * iterations * moved / np.float32(cost.L2 * d.sms)
    clock = np.float32(d.clock * cost.CLOCK_SHARE)
    memory = float32(p.bytes / (d.bandwidth * 1e3 * cost.DRAM))
    us = np.maximum(np.maximum(multiply, spread) / clock, memory) + w.store[rows] * each / clock
    us = us + w.start[rows] / np.float32(d.clock) + waves * np.float32(cost.WAVE_US)
    out: Floats = us + x.extra[cell] + np.float32(cost.LAUNCH_US)
    return out
