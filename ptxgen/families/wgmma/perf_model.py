"""The performance model of wgmma kernels. The predicted time is that of a launch, then the longer of two times (memory;
loads and products of a multiprocessor), then that of the epilogue and the split-K reduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import (
    SPLIT_DISTRIBUTED,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Columns,
    packs,
)
from ptxgen.codegen.vectorized import float32
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Floats, Work
from ptxgen.families.wgmma import cost, grouped_rows, operand_packing, promotion
from ptxgen.families.wgmma.bf16x3 import PAIRS, planes, workspace
from ptxgen.families.wgmma.geometry import (
    ROWS,
    SPAN,
    STEP,
    STREAM_LEAST,
    WgmmaGeometry,
    length,
    loads_tiled,
    located_pixels,
    phase_count,
    resident_blocks,
    row_bytes,
    stage_depth,
)
from ptxgen.lowering.block_scales import block_scaled, scales_of
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import quantized_rows
from ptxgen.problem.device import Device


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WgmmaCells:
    """The numbers that depend on extents and K slices: one entry for each combination of a tile and a slice count."""

    iterations: Floats  #: K iterations of a slice
    blocks: Floats  #: blocks of the launch
    resident: Floats  #: blocks that run at once, one per multiprocessor
    tiles_per_cta: Floats  #: tiles that a persistent block computes
    extra: Floats  #: microseconds of a launch in addition to its blocks
    reread_us: Floats  #: microseconds of memory traffic in addition to a single read of each operand
    c_cost: Floats  #: which cost of C applies: 0 Work.store, 1 Work.red, 2 Work.partial
    straddle_a: np.float32  #: 1 if rows of A do not start at cache lines
    straddle_b: np.float32  #: 1 if rows of B do not start at cache lines
    #: for phases: the K iterations of the busiest multiprocessor, with persistent blocks and without
    persistent_sum: Floats
    one_tile_sum: Floats


def work(p: KernelProblem, c: Columns, g: WgmmaGeometry, d: Device) -> Work:
    """The cost of one block of each configuration. It does not depend on extents of ``p``."""
    size, pairs = g.math.element_bytes, len(PAIRS) if g.math.planes > 1 else 1
    instructions = g.x.tile // ROWS * (stage_depth(c) * size // STEP) * pairs
    products = ROWS * g.y.tile * (STEP / size) / (cost.rate(p) * pairs) / cost.WGMMA
    if g.math.planes > 1:
        products = products * (1 + cost.PLANES_NARROW * np.maximum(1 - g.y.tile / 128, 0))
    # wgmma reads both operands from shared memory, 64 rows of X each time
    read = (ROWS * STEP + STEP * g.y.tile) / perf_costs.WAVEFRONT
    weights = quantized_rows(p)
    row = row_bytes(weights, c) if weights is not None else c.u * size * g.math.planes
    moved_x = g.x.rows / c.cluster_y * (1 + (c.cluster_y - 1) * cost.TMA_MULTICAST) * row
    y_columns = g.y.rows / np.maximum(c.cluster_x, 1)
    moved_y = (y_columns + (g.y.rows - y_columns) * cost.TMA_MULTICAST) * c.u * size * g.math.planes
    if im2col(p) is None:
        moved_y = moved_y * (1 + np.where(g.y.kmajor, 0, cost.TMA_NARROW * (SPAN / np.maximum(g.y.box * size, 1) - 1)))
    if im2col(p) is not None:
        moved_x, moved_y = _im2col_bytes(p, c, g, moved_x, moved_y)
    moved_a, moved_b = (
        np.where(c.transposed_mma == 1, moved_y, moved_x),
        np.where(c.transposed_mma == 1, moved_x, moved_y),
    )
    moved_b = np.where(c.resident_b == 1, 0, moved_b)  # the first tile of a block alone loads it
    if weights is not None:  # threads read X, and dequantize it
        read = cost.DEQUANTIZE_READ + STEP * g.y.tile / perf_costs.WAVEFRONT
        each = cost.DEQUANTIZE[weights.format.bits, p.dtype == "bf16"] + cost.SCALE_WEIGHTS * weights.rounded
        products = np.maximum(products, each)
    busy = instructions * np.maximum(products, read)
    realigned = (g.x.realigned * g.x.tile + g.y.realigned * g.y.tile) * c.u * size
    busy = busy + realigned * cost.REALIGN_BYTE
    # hidden behind the wgmma of other warpgroups
    promotions = np.maximum(stage_depth(c) / promotion.depth(p), 1) if g.math.promotes else 0
    adds = (cost.PROMOTE + cost.PROMOTE_SUM * g.budget.accumulators) * promotions
    if block_scaled(p):
        adds = adds + _scaling(p, c, g) * promotions
    resident = np.maximum(d.blocks_per_sm(g.threads, g.registers, g.shared), 1)
    arrays = 1 + ("store_sums" in p.needs)
    tile = g.x.tile * g.reduction.owner_columns * p.output.bytes * arrays
    narrow = (c.vec_c == 1) & (c.epilogue_smem == 0) & (p.output.bytes == 2)
    direct: Any = cost.TILE_DIRECT * np.where(narrow, np.where(c.transposed_mma == 1, *cost.TILE_NARROW), 1.0)
    unaligned, along = (
        not operand_packing.boxed(p),
        np.where(
            c.transposed_mma == 1, ROWS * g.math.mi, g.reduction.owner_columns // np.maximum(c.epilogue_subtiles, 1)
        ),
    )
    via_smem = cost.TILE_UNALIGNED * (1 + cost.ROW_ENDS / np.maximum(along, 1)) if unaligned else 1.0
    phased = im2col(p) is not None and bool(im2col(p).phases)
    if im2col(p) is not None:
        strided = np.where(c.transposed_mma == 1, *cost.TILE_STRIDED) if not im2col(p).contiguous_columns else 1.0
        located = located_pixels(p, c) & (c.interleave_phases == 0)
        via_smem = np.where(located, cost.TILE_VECTORS, via_smem)
        direct = np.where(located, cost.TILE_SCATTERED * np.where(phased, strided, 1.0), direct)
        unaligned = np.logical_not(located) & unaligned
    store = cost.TILE_CYCLES + cost.TILE_BYTE * tile * np.where(c.epilogue_smem == 1, via_smem, direct)
    exposed = np.where(resident == 1, cost.TILE_ONE_CTA, cost.TILE_SEVERAL_CTAS)
    pingpong = cost.TILE_PINGPONG_PHASES if phased else cost.TILE_PINGPONG
    persistent = np.where(c.pingpong == 1, pingpong, cost.TILE_PERSISTENT)
    exposed = np.where(c.persistent == 0, exposed, persistent)
    latency = np.where(c.math_warpgroups > 1, np.maximum(busy, busy / 2 + adds), busy + adds) + cost.WGMMA_ITERATION
    if block_scaled(p):  # warpgroups add at the same time; wgmma runs then if it has other accumulators
        latency = busy + cost.SCALED_SHARE * adds / c.promotion_buffers + cost.WGMMA_ITERATION
    latency = latency + cost.REALIGN_ITERATION * (realigned > 0)
    if weights is not None:
        latency = latency + cost.DEQUANTIZE_ITERATION
    return Work.of(
        len(c),
        resident=resident,
        busy=busy,
        latency=latency,
        start=cost.WGMMA_START,
        store=store,
        red=store,
        partial=store * 4 / p.output.bytes,
        math=instructions * products,
        shared=instructions * read,
        moved_a=moved_a,
        moved_b=moved_b,
        straddle_a=moved_a * cost.TMA_STRADDLE,
        straddle_b=moved_b * cost.TMA_STRADDLE,
        stages=c.stages,
        persistent=c.persistent,
        exposed=np.where(narrow | ((c.epilogue_smem == 1) & unaligned), 1.0, exposed),  # too many stores to hide
    )


def _scaling(p: KernelProblem, c: Columns, g: WgmmaGeometry) -> Any:
    """The number of cycles that the scales of one sum take: for each scale of Y that a thread loads, or that lanes
    exchange."""
    rows = np.where(c.transposed_mma == 1, *(scales_of(p, name).rows for name in "AB"))
    loaded = g.y.tile // np.gcd(g.y.tile, np.maximum(rows, 1))
    return np.where(rows == 1, cost.SCALE_EXCHANGED * g.y.tile, cost.SCALE_LOADED * loaded)


def _im2col_bytes(p: KernelProblem, c: Columns, g: WgmmaGeometry, moved_x: Any, moved_y: Any) -> tuple[Any, Any]:
    """The bytes that TMA loads. An im2col load goes pixel by pixel, and narrow rows of tiled boxes are slow; both are
    expressed as more bytes."""
    assert im2col(p) is not None
    size = p.element.bytes
    images_x = g.images_x
    tile = np.where(images_x, g.x.tile, g.y.tile)
    halo = 1 + (c.row_taps - 1) / np.maximum(tile, 1)
    moved_x = moved_x * np.where(images_x, halo, c.row_taps)
    moved_y = moved_y * np.where(images_x, c.row_taps, halo)
    tiled, box = loads_tiled(p, c), np.where(images_x, g.x.box, g.y.box) * size
    width = box if im2col(p).wgrad else g.pipeline.unit * size
    narrow = 0 if im2col(p).wgrad else cost.TMA_NARROW * (SPAN / np.maximum(box, 1) - 1)
    slower = np.where(tiled, 1 + narrow, 1 + cost.TMA_PIXEL * cost.TMA_BYTES / np.maximum(width, 1))
    return np.where(images_x, moved_x * slower, moved_x), np.where(images_x, moved_y, moved_y * slower)


def cell(p: KernelProblem, c: Columns, g: WgmmaGeometry, d: Device) -> WgmmaCells:
    """The cells of the configurations ``c``."""
    size = p.element.bytes
    matrix = im2col(p) is None
    straddle = [
        float32(
            (kmajor or matrix)
            and ld * size % perf_costs.LINE > 0
            and planes(p) == 1
            and operand_packing.mapped(p, name)
        )
        for name, kmajor, ld in (
            ("a", p.layout[0] == "N", p.operand("A").access.ld),
            ("b", p.layout[1] == "T", p.operand("B").access.ld),
        )
    ]
    iterations = np.maximum(-(-g.pipeline.k_iters // g.slices), 1)
    if grouped_rows.differ_in_k(p):  # the average tile, but at least the longest one of a block
        mean, longest = p.extents.tile_iterations(c.ml, c.nl, c.u)
        waves = np.maximum(np.ceil(g.blocks / np.maximum(resident_blocks(d, c), 1)), 1)
        iterations = np.maximum(np.maximum(mean, longest / waves), 1)
    cluster_us = np.where(c.cluster_k > 1, cost.CLUSTER_US + cost.CLUSTER_STEP_US * np.log2(c.cluster_k), 0.0)
    sum_us = c.kg * (p.results * g.sum_bytes) * 2 / (d.bandwidth * 1e3 * perf_costs.DRAM)
    ways: dict[int, Any] = {
        SPLIT_MEMSET: perf_costs.SPLIT_US[SPLIT_MEMSET] + cost.RED_US,
        SPLIT_WORKSPACE: perf_costs.SPLIT_US[SPLIT_WORKSPACE] + sum_us,
        # the block of the last slice loads the partial sums of the others
        SPLIT_LAST_CTA: cost.LAST_CTA_US
        + np.maximum(
            cost.LAST_CTA_STEP_US * np.log2(np.maximum(c.kg, 1)),
            (c.kg - 1) * g.reduction.partial_bytes / cost.LAST_CTA_BYTES,
        ),
        SPLIT_DISTRIBUTED: cost.DISTRIBUTED_US,
    }
    global_us: Any = 0.0
    for split, us in ways.items():
        global_us = np.where((c.kg > 1) & (c.splitk == split), us, global_us)
    extra = np.maximum(cluster_us, global_us) + cost.BOTH_REDUCTIONS * np.minimum(cluster_us, global_us)
    if planes(p) > 1 and p.k:
        moves = p.element.bytes * (p.m + p.n) * p.k + workspace(p)
        extra = extra + cost.SPLIT_BF16X3_US + moves / (d.bandwidth * 1e3 * cost.SPLIT_BF16X3_DRAM)
    extra = (
        extra + _phase_us(p, c, d) + _packing_us(p, c, g, d) + (perf_costs.TABLE_US if "offsets" in p.arrays else 0.0)
    )
    resident = np.maximum(resident_blocks(d, c), 1)  # a device may be smaller than a cluster
    tiles_per_cta, stream_us = _stream(c, g, resident, iterations)
    extra = extra + stream_us
    persistent_sum, one_tile_sum = _phase_sums(p, c, g, resident)
    numbers = {
        "persistent_sum": persistent_sum,
        "one_tile_sum": one_tile_sum,
        "iterations": iterations,
        "blocks": g.blocks,
        "resident": resident,
        "tiles_per_cta": tiles_per_cta,
        "extra": extra,
        "reread_us": _reread_us(p, c, d),
    }
    columns = {n: float32(v) for n, v in numbers.items()}
    c_cost = np.where(c.kg > 1, np.where(c.splitk == SPLIT_WORKSPACE, 2, 1), 0)
    return WgmmaCells(c_cost=c_cost, straddle_a=straddle[0], straddle_b=straddle[1], **columns)


def _reread_us(p: KernelProblem, c: Columns, d: Device) -> Any:
    """The microseconds of loads of B that miss in L2 although another tile along M of the same expert has read the
    data."""
    if grouped_rows.jagged(p) != "m" or p.extents.group is None:
        return 0.0 * c.kg
    along_n, cluster = c.transposed_mma == 1, np.where(c.transposed_mma == 1, c.cluster_y, c.cluster_x)
    near = np.where(along_n, (c.raster_group > 1) & (c.raster_group <= cost.NEAR_TILES), c.raster_group > 1)
    share = np.where(near, cost.REREAD_NEAR, cost.REREAD_FAR)
    share = np.where((c.l2_evict_first == 2) | (c.l2_evict_first == 3), cost.REREAD_EVICTED, share)
    again = share * p.extents.repeated_b(c.ml * cluster) * p.element.bytes
    return again / (d.bandwidth * 1e3 * perf_costs.DRAM)


def _stream(c: Columns, g: WgmmaGeometry, resident: Any, iterations: Any) -> tuple[Any, Any]:
    """The tiles of a persistent block, and the microseconds for sums that blocks store and add. Shares of K iterations
    are equal; the block that completes a tile adds the sums of the blocks before it, one after the other."""
    full, rest = g.blocks // resident, g.blocks % resident
    tail = rest + np.where(c.stream_waves > 1, np.minimum(full, 1) * resident, 0)
    share = np.maximum(np.ceil(tail * iterations / resident), STREAM_LEAST)
    shared = (c.stream_waves > 0) & (rest > 0)
    parts = np.ceil(iterations / share)
    us = cost.STREAM_US + (1 + parts) * g.reduction.partial_bytes / cost.LAST_CTA_BYTES
    tiles = (g.blocks - tail) / resident + share / iterations
    return np.where(shared, tiles, full + (rest > 0)), np.where(shared, us, 0.0)


def _phase_sums(p: KernelProblem, c: Columns, g: WgmmaGeometry, resident: Any) -> tuple[Any, Any]:
    """The K iterations of the busiest multiprocessor, with persistent blocks and without. Tiles are in the order of
    phases, those with most taps first. The first persistent block has the longest tile of each round; without
    persistent blocks, a free multiprocessor takes the next tile."""
    if im2col(p) is None or not im2col(p).phases:
        return np.zeros(1), np.zeros(1)
    phases = im2col(p).phases
    each = [-(-length(p, c, (phase,)) // np.maximum(c.u, 1)) for phase in phases]
    tiles = g.blocks / phase_count(p, c)
    rounds = [np.ceil(n * tiles / resident) for n in range(len(phases) + 1)]
    first = sum((rounds[n + 1] - rounds[n]) * iterations for n, iterations in enumerate(each))
    mean = sum(each) * tiles / resident
    return first, np.maximum(each[0], mean + each[-1] / 2)


def _phase_us(p: KernelProblem, c: Columns, d: Device) -> Any:
    """The microseconds for the stores of phases in addition to one store of C: for the images and their kernels, or for
    parts of sectors, which are read and written again."""
    x = im2col(p)
    if x is None or x.images is None:
        return 0.0
    us = x.image_elements * p.output.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM)  # of one image
    parts = cost.PARTIAL_SECTORS * len(x.phases) * us
    images = cost.INTERLEAVE_US + 2 * len(x.computed_phases) * us
    return np.where(c.interleave_phases == 1, images, parts)


def _packing_us(p: KernelProblem, c: Columns, g: WgmmaGeometry, d: Device) -> Any:
    """The microseconds of the packing kernels: one for all operands that keep their layout, or for a convolution; one
    for each operand that is transposed."""
    if any(operand_packing.packs_conv(p)):
        moves_us = 2 * g.packed_bytes / (d.bandwidth * 1e3 * cost.PACK_CHANNELS_DRAM)
        return np.where(g.packed_bytes > 0, cost.PACK_CHANNELS_US + moves_us, 0.0)
    transposes = {x: operand_packing.transposes(p, x) for x in "ab"}
    transposing = sum(packs(c, x) * 1 for x in "ab" if transposes[x])
    plain = [packs(c, x) for x in "ab" if not (transposes[x] and operand_packing.mapped(p, x))]
    packs_rows: Any = reduce(np.logical_or, plain, np.False_)
    reached = d.bandwidth * 1e3 * np.where(packs_rows, cost.PACK_ROWS_DRAM, cost.TRANSPOSE_DRAM)
    return transposing * cost.TRANSPOSE_US + packs_rows * cost.PACK_ROWS_US + 2 * g.packed_bytes / reached


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: WgmmaCells, cell: Any) -> Floats:
    """The predicted microseconds of a launch. If memory is the bottleneck, the last tile of C is stored after
    everything else."""
    iterations, blocks, room, c_cost = x.iterations[cell], x.blocks[cell], x.resident[cell], x.c_cost[cell]
    persistent, stages = w.persistent[rows] > 0, w.stages[rows]
    resident = np.where(persistent, np.float32(1), w.resident[rows])
    moved = w.moved_a[rows] + w.moved_b[rows] + w.straddle_a[rows] * x.straddle_a + w.straddle_b[rows] * x.straddle_b
    tma = moved / np.float32(cost.TMA_BYTES)
    busy = np.sqrt(np.hypot(w.busy[rows] ** 2, tma**2))
    # a stage is loaded, multiplied, and freed when the next one is multiplied; with two-level sums at once
    iterations_held = np.float32(1 if promotion.promotes(p) else 2)
    tma_latency = cost.TMA_LATENCY if im2col(p) is None else cost.PIXEL_LATENCY
    waiting = (
        np.maximum(iterations - stages, 0) / iterations * (tma_latency + tma + iterations_held * w.busy[rows]) / stages
    )
    latency = np.maximum(w.latency[rows], waiting)
    full = np.where(persistent, x.tiles_per_cta[cell], np.floor(blocks / (resident * room)))
    rest = np.where(persistent, np.float32(0), np.ceil((blocks - full * resident * room) / room))
    waves = full + (rest > 0)
    last = np.where(rest > 0, np.maximum(rest * busy, latency), 0)
    multiply = (full * np.maximum(resident * busy, latency) + last) * iterations
    if im2col(p) is not None and im2col(p).phases:
        most = np.where(persistent, x.persistent_sum[cell], x.one_tile_sum[cell])
        multiply = most * np.maximum(busy, latency / np.minimum(resident, waves))
    store = np.where(c_cost == 2, w.partial[rows], w.store[rows])
    again = np.where(persistent, np.float32(0), (waves - 1) * w.start[rows])
    cycles = multiply + again + store * (1 + (full * resident + rest - 1) * w.exposed[rows])
    clock = np.float32(d.clock)
    memory = float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM)) + x.reread_us[cell]
    # few blocks with few stages have too few bytes in flight to saturate memory
    read = p.bytes - p.output.bytes * p.results
    in_flight = (
        np.minimum(blocks, resident * room) * np.minimum(stages, iterations) * (w.moved_a[rows] + w.moved_b[rows])
    )
    memory = np.maximum(memory, float32(read * cost.COLD_LATENCY_US) / np.maximum(in_flight, 1))
    late = np.minimum(cost.TILE_LAST * store / clock, np.float32(1.5))
    out: Floats = np.maximum(memory + late, cycles / clock) + x.extra[cell] + np.float32(cost.COLD_US)
    return out
