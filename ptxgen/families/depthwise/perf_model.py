"""The performance model of depthwise kernels, from instructions and the bytes of global memory.

The number of feature maps that fit the shared memory of a block depends on extents. ``Work`` therefore has the cost of
a round, in which each thread computes one strip, and ``microseconds`` counts the rounds. The fields of ``Work`` are
named for tiles. For kernels with feature maps they have another meaning: ``store``: threads of a block; ``partial``:
results of a strip; ``red``: bytes of shared memory (0: the kernel has none); ``start``: cycles of a block besides its
rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.families.common import perf_costs
from ptxgen.families.common.geometry import WARP
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, bound, cell, resident_blocks
from ptxgen.families.depthwise.geometry import DepthwiseGeometry
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LOAD = 7.0  #: instructions of a load: address, bounds check, load
FIXED = 110.0  #: instructions of a thread besides its taps
RESULT = 6.0  #: instructions to store a result
LATENCY = 900.0  #: cycles of a load from global memory under load
#: for forward convolutions and input gradients, fitted to 4,000 measured kernels of 151 problems: share of the issue
#: cycles that many warps use, its growth with few resident warps, share of the bandwidth that kernels reach, share of a
#: wave's latency that does not overlap with other blocks, microseconds of a launch; the exponent of the sum of the
#: three
BUSY, FEW_WARPS, DRAM, WAVE, START_US, EXPONENT = 0.65, 27.0, 0.76, 0.17, 1.9, 2.2
#: with feature maps in shared memory: instructions for a pixel, for a strip, for a thread besides its strips, for a
#: copy of 16 bytes; the number of loads from global memory for which a block waits
SMEM_PIXEL, SMEM_STRIP, SMEM_FIXED, SMEM_COPY, SMEM_WAITS = 4.0, 90.0, 150.0, 12.0, 3.0
#: for weight gradients: instructions for a unit of work, cycles of a block (SMEM_BLOCK: with feature maps in shared
#: memory), microseconds of the reduction kernel
UNIT, BLOCK, SMEM_BLOCK, REDUCTION_US = 60.0, 2500.0, 1000.0, 1.0


def work(p: KernelProblem, c: Columns, g: DepthwiseGeometry, d: Device) -> Work:
    """The cost of one block of each configuration."""
    warps = np.maximum(g.threads // WARP, 1)
    per_thread = (
        (LOAD * (g.loads + g.weights) / 1.3 + g.products * c.vec_lane + 8) * g.steps
        + FIXED
        + RESULT * c.strip_results * c.strip_columns * c.vec_lane
    )
    half = 2 if p.element.bytes == 2 else 1
    if strips(p) is not None and strips(p).wgrad:  # a unit of work is a strip
        steps = strips(p).outer_taps
        loads = c.strip_results + g.loads * steps
        per_thread = LOAD * loads / 1.3 + (g.products * steps + loads * 0.5) * c.vec_lane + UNIT
    in_smem = c.feature_map_bytes > 0
    of_strip = SMEM_PIXEL * g.loads + g.products + 2 * g.weights + SMEM_STRIP + RESULT * c.strip_results
    per_thread = np.where(in_smem, of_strip, per_thread)
    issue = warps * per_thread * (1 + 0.15 * (half - 1)) / perf_costs.ISSUE
    wavefronts = warps * g.loads * g.steps * np.maximum(c.vec_lane * p.element.bytes / 4, 1)
    summed = strips(p) is not None and strips(p).wgrad
    resident, busy = resident_blocks(c, g, d), bound(issue, wavefronts)
    start = (warps * SMEM_FIXED + c.feature_map_bytes / (16 * WARP) * SMEM_COPY) / perf_costs.ISSUE
    if not summed:
        crowded = BUSY * (1 + FEW_WARPS / np.maximum(resident * warps, 1))
        busy, start = busy * crowded, start * crowded
    return Work.of(
        len(c),
        resident=resident,
        busy=busy,
        math=issue,
        latency=LATENCY * np.where(in_smem, SMEM_WAITS, 2 if summed else 1 + g.steps),
        store=np.where(
            in_smem, g.threads, c.block_lanes * c.block_rows * c.strip_results * c.strip_columns * c.vec_lane
        ),
        partial=np.where(in_smem, c.strip_results, c.block_lanes * c.vec_lane),
        red=c.feature_map_bytes,
        start=start,
        moved_a=g.threads * g.loads * c.vec_lane * p.element.bytes,
        stages=2,
    )


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch: instructions, waves of blocks and memory overlap in part."""
    s = strips(p)
    each = [n.outer_taps * n.rows * n.lanes for n in (s, *s.other_phases)] if s is not None else [1]  # of each launch
    if s is not None and s.wgrad:
        return _summed(p, d, w, rows, x, cell)
    in_smem = w.red[rows] > 0
    phases = np.where(in_smem, 1, sum(each) / max(each[0], 1))  # feature maps take one launch
    blocks, resident = x.blocks[cell] * np.float32(1) * phases, w.resident[rows]
    waves = np.ceil(blocks / (resident * d.sms))
    busy = blocks / d.sms * (w.busy[rows] * _rounds(p, w, rows) + np.where(in_smem, w.start[rows], 0))
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * DRAM))
    clock, exponent = np.float32(d.clock), np.float32(EXPONENT)
    waited = waves * w.latency[rows] * np.float32(WAVE)
    overlapped = (busy / clock) ** exponent + (waited / clock) ** exponent + memory**exponent
    launches = np.float32(START_US) + np.where(in_smem, 0, np.float32(perf_costs.LAUNCH_US * (len(each) - 1)))
    out: Floats = overlapped ** (1 / exponent) + launches
    return out


def _rounds(p: KernelProblem, w: Work, rows: Any) -> Any:
    """The number of strips that each thread computes; 1 without feature maps in shared memory."""
    maps = strips(p).feature_maps if strips(p) is not None else None
    if maps is None:
        return 1
    size, threads = w.red[rows].astype(np.int64), np.maximum(w.store[rows], 1)
    count = maps.maps_in(size) * maps.columns.results * np.ceil(maps.rows.results / w.partial[rows])
    return np.where(size > 0, np.ceil(count / threads), 1)


def _summed(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a weight gradient: blocks share the units of work evenly, and a reduction kernel
    follows."""
    s = strips(p)
    blocks, resident, each = x.blocks[cell], w.resident[rows], w.busy[rows]
    lanes = np.ceil(s.lanes / w.partial[rows]) * w.partial[rows]
    count = lanes * s.rows * s.results * (1 if s.grouped else s.groups)
    units = count / (w.store[rows] * blocks)  # of a block
    fixed: Any = np.float32(BLOCK)
    if (maps := s.feature_maps) is not None:  # a unit is an image
        in_smem, threads, results = w.red[rows] > 0, w.store[rows], w.partial[rows].astype(np.int64)
        channels = np.maximum(maps.channels_in(w.red[rows].astype(np.int64), threads.astype(np.int64), results), 1)
        rounds = np.ceil(maps.strips(results) / np.maximum(threads // channels, 1))
        units = np.where(in_smem, maps.count / (channels * blocks), units)
        each = np.where(in_smem, rounds * each + w.start[rows], each)
        fixed = np.where(in_smem, np.float32(SMEM_BLOCK), fixed)
    busy = blocks / d.sms * units * each
    waves = np.ceil(blocks / (resident * d.sms))
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    cycles = np.maximum(busy, waves * (np.ceil(units) * w.latency[rows] + fixed))
    launches = np.float32(2 * perf_costs.LAUNCH_US + REDUCTION_US)
    out: Floats = np.maximum(cycles / np.float32(d.clock), memory) * np.float32(1.1) + launches
    return out


__all__ = ["cell", "microseconds", "work"]
