"""The formula of wgmma kernels: a launch, then memory or one multiprocessor's copies and products, whichever takes
longer, then C and the meeting of slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.config import SPLIT_MEMSET, SPLIT_POLL, SPLIT_SHARE, SPLIT_WORKSPACE, Columns
from ptxgen.families import perf_costs
from ptxgen.families.perf_blocks import Floats, Work
from ptxgen.families.wgmma import operand_packing
from ptxgen.families.wgmma.bf16x3 import PAIRS, planes, workspace
from ptxgen.families.wgmma.geometry import ROWS, STEP, WgmmaGeometry, resident_blocks
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WgmmaCells:
    """What extents and slices of K decide, one entry per combination of a tile and slices."""

    iterations: Floats  #: K iterations of a slice
    blocks: Floats  #: blocks of the launch
    resident: Floats  #: blocks that run at once, one per multiprocessor
    tiles_per_cta: Floats  #: tiles that a persistent block computes
    extra: Floats  #: microseconds of a launch besides its blocks
    way: Floats  #: cost of C: 0 Work.store, 1 Work.red, 2 Work.partial
    straddle_a: np.float32  #: 1 if rows of A start within a cache line
    straddle_b: np.float32  #: likewise of B


def work(p: KernelGemm, c: Columns, g: WgmmaGeometry, d: Device) -> Work:
    """The cost of one block of each configuration; only what does not depend on extents is read of ``p``."""
    size, pairs = g.element_bytes, len(PAIRS) if g.planes > 1 else 1
    instructions = g.x_tile // ROWS * (c.u * size // STEP) * pairs
    products = ROWS * g.y_tile * (STEP / size) / (perf_costs.wgmma_rate(p) * pairs) / perf_costs.WGMMA
    if g.planes > 1:
        products = products * (1 + perf_costs.PLANES_THIN * np.maximum(1 - g.y_tile / 128, 0))
    # wgmma reads both operands from shared memory, 64 rows of X each time
    read = (ROWS * STEP + STEP * g.y_tile) / perf_costs.WAVEFRONT
    moved_x = g.x_rows / c.cluster_y * (1 + (c.cluster_y - 1) * perf_costs.TMA_SHARED) * c.u * size * g.planes
    moved_y = (g.y_slice + (g.y_tile - g.y_slice) * perf_costs.TMA_SHARED) * c.u * size * g.planes
    if p.im2col is not None:
        moved_x, moved_y = _walked(p, c, g, moved_x, moved_y)
    moved_a, moved_b = (
        np.where(c.transposed_mma == 1, moved_y, moved_x),
        np.where(c.transposed_mma == 1, moved_x, moved_y),
    )
    busy = instructions * np.maximum(products, read)
    lying = (g.x_realigned * g.x_tile + g.y_realigned * g.y_tile) * c.u * size
    busy = busy + lying * perf_costs.LIES_BYTE
    adds = (perf_costs.PROMOTE + perf_costs.PROMOTE_SUM * g.accumulators) * (
        g.planes > 1
    )  # hidden where others multiply meanwhile
    resident = np.maximum(d.blocks_per_sm(g.threads, g.registers, g.shared), 1)
    tile = g.x_tile * g.owner_columns * p.output.bytes
    narrow = (c.vec_c == 1) & (c.epilogue_smem == 0) & (p.output.bytes == 2)
    direct = perf_costs.TILE_DIRECT * np.where(narrow, np.where(c.transposed_mma == 1, *perf_costs.TILE_NARROW), 1.0)
    lines, along = (
        not operand_packing.boxed(p),
        np.where(c.transposed_mma == 1, ROWS * g.mi, g.owner_columns // np.maximum(c.epilogue_subtiles, 1)),
    )
    staged = perf_costs.TILE_LINES * (1 + perf_costs.LINE_ENDS / np.maximum(along, 1)) if lines else 1.0
    store = perf_costs.TILE_CYCLES + perf_costs.TILE_BYTE * tile * np.where(c.epilogue_smem == 1, staged, direct)
    shown = np.where(resident == 1, perf_costs.TILE_ALONE, perf_costs.TILE_AMONG)
    turns = np.where(c.pingpong == 1, perf_costs.TILE_TURNS, perf_costs.TILE_WALKED)
    shown = np.where(c.persistent == 0, shown, turns)
    alone = np.where(c.math_warpgroups > 1, np.maximum(busy, busy / 2 + adds), busy + adds) + perf_costs.WGMMA_PASS
    alone = alone + perf_costs.LIES_PASS * (lying > 0)
    return Work.of(
        len(c),
        resident=resident,
        busy=busy,
        alone=alone,
        start=perf_costs.WGMMA_START,
        store=store,
        red=store,
        part=store * 4 / p.output.bytes,
        math=instructions * products,
        shared=instructions * read,
        moved_a=moved_a,
        moved_b=moved_b,
        torn_a=moved_a * perf_costs.TMA_TORN,
        torn_b=moved_b * perf_costs.TMA_TORN,
        stages=c.stages,
        walks=c.persistent,
        shown=np.where(narrow | ((c.epilogue_smem == 1) & lines), 1.0, shown),  # so many stores that nothing hides them
    )


def _walked(p: KernelGemm, c: Columns, g: WgmmaGeometry, moved_x: Any, moved_y: Any) -> tuple[Any, Any]:
    """What TMA brings, in bytes of matrices: of images pixel by pixel, which takes longer."""
    assert p.im2col is not None
    size = p.element.bytes
    images_x = (c.transposed_mma == 1) == (p.im2col.side == "b")
    width = (g.unit if not p.im2col.summed else np.where(images_x, g.x_box, g.y_box)) * size
    slower = 1 + perf_costs.TMA_PIXEL * perf_costs.TMA_BYTES / np.maximum(width, 1)
    return np.where(images_x, moved_x * slower, moved_x), np.where(images_x, moved_y, moved_y * slower)


def cell(p: KernelGemm, c: Columns, g: WgmmaGeometry, d: Device) -> WgmmaCells:
    """The cells of ``c``."""
    size = p.element.bytes
    straddle = [
        np.float32(kmajor and ld * size % perf_costs.LINE > 0 and planes(p) == 1 and operand_packing.mapped(p, name))
        for name, kmajor, ld in (("a", p.layout[0] == "N", p.lda), ("b", p.layout[1] == "T", p.ldb))
    ]
    iterations = np.maximum(-(-g.k_iters // g.slices), 1)
    first = np.where(c.cluster_k > 1, perf_costs.CLUSTER_US + perf_costs.CLUSTER_STEP_US * np.log2(c.cluster_k), 0.0)
    second = c.kg * (p.results * g.sum_bytes) * 2 / (d.bandwidth * 1e3 * perf_costs.DRAM)
    ways: dict[int, Any] = {
        SPLIT_MEMSET: perf_costs.SPLIT_US[SPLIT_MEMSET] + perf_costs.RED_US,
        SPLIT_WORKSPACE: perf_costs.SPLIT_US[SPLIT_WORKSPACE] + second,
        # the last slice's block reads the sums of all the others
        SPLIT_POLL: perf_costs.POLL_US
        + np.maximum(
            perf_costs.POLL_STEP_US * np.log2(np.maximum(c.kg, 1)), (c.kg - 1) * g.partial_bytes / perf_costs.POLL_BYTES
        ),
        SPLIT_SHARE: perf_costs.SHARE_US,
    }
    then: Any = np.zeros(len(c))
    for split, us in ways.items():
        then = np.where((c.kg > 1) & (c.splitk == split), us, then)
    extra = np.maximum(first, then) + perf_costs.BOTH * np.minimum(first, then)
    if planes(p) > 1 and p.k:
        moves = p.element.bytes * (p.m + p.n) * p.k + workspace(p)
        extra = extra + perf_costs.PARTING_US + moves / (d.bandwidth * 1e3 * perf_costs.PARTING_DRAM)
    extra = extra + _copies(p, c, g, d)
    resident = np.maximum(resident_blocks(d, c), 1)  # a device may be smaller than a cluster
    numbers = {
        "iterations": iterations,
        "blocks": g.blocks,
        "resident": resident,
        "tiles_per_cta": np.ceil(g.blocks / resident),
        "extra": extra,
    }
    columns = {n: np.asarray(v, np.float32) for n, v in numbers.items()}
    way = np.where(c.kg > 1, np.where(c.splitk == SPLIT_WORKSPACE, 2, 1), 0)
    return WgmmaCells(way=way, straddle_a=straddle[0], straddle_b=straddle[1], **columns)


def _copies(p: KernelGemm, c: Columns, g: WgmmaGeometry, d: Device) -> Any:
    """Of the passes that copy operands first: one for all that are copied as they are, or for images and what is beside
    them, one for each that turns."""
    if any(operand_packing.packs_conv(p)):
        return perf_costs.ARRANGE_US + 2 * g.packed_bytes / (d.bandwidth * 1e3 * perf_costs.ARRANGE_DRAM)
    transposes = {x: operand_packing.transposes(p, x) for x in "ab"}
    turned = sum(operand_packing.packs(c, x) * 1 for x in "ab" if transposes[x])
    plain = [operand_packing.packs(c, x) for x in "ab" if not (transposes[x] and operand_packing.mapped(p, x))]
    straight = np.logical_or.reduce([np.zeros(len(c), bool), *plain])
    reached = d.bandwidth * 1e3 * np.where(straight, perf_costs.PITCH_DRAM, perf_costs.TURN_DRAM)
    return turned * perf_costs.TURN_US + straight * perf_costs.PITCH_US + 2 * g.packed_bytes / reached


def microseconds(p: KernelGemm, d: Device, w: Work, rows: Any, x: WgmmaCells, cell: Any) -> Floats:
    """Of a launch. Where memory is what takes longest, the last tile of C comes after it."""
    iterations, blocks, room, way = x.iterations[cell], x.blocks[cell], x.resident[cell], x.way[cell]
    walks, stages = w.walks[rows] > 0, w.stages[rows]
    resident = np.where(walks, np.float32(1), w.resident[rows])
    moved = w.moved_a[rows] + w.moved_b[rows] + w.torn_a[rows] * x.straddle_a + w.torn_b[rows] * x.straddle_b
    tma = moved / np.float32(perf_costs.TMA_BYTES)
    busy = np.sqrt(np.hypot(w.busy[rows] ** 2, tma**2))
    # a stage is copied, multiplied, and free when the next one is; of planes as soon as it is multiplied
    held = np.float32(1 if planes(p) > 1 else 2)
    latency = perf_costs.TMA_LATENCY if p.im2col is None else perf_costs.PIXEL_LATENCY
    waiting = np.maximum(iterations - stages, 0) / iterations * (latency + tma + held * w.busy[rows]) / stages
    alone = np.maximum(w.alone[rows], waiting)
    full = np.where(walks, x.tiles_per_cta[cell], np.floor(blocks / (resident * room)))
    rest = np.where(walks, np.float32(0), np.ceil((blocks - full * resident * room) / room))
    waves = full + (rest > 0)
    last = np.where(rest > 0, np.maximum(rest * busy, alone), 0)
    multiply = (full * np.maximum(resident * busy, alone) + last) * iterations
    store = np.where(way == 2, w.part[rows], w.store[rows])
    again = np.where(walks, np.float32(0), (waves - 1) * w.start[rows])
    cycles = multiply + again + store * (1 + (full * resident + rest - 1) * w.shown[rows])
    clock = np.float32(d.clock)
    memory = np.float32(p.bytes / (d.bandwidth * 1e3 * perf_costs.DRAM))
    # few blocks with few stages ask for less than memory can bring
    read = p.bytes - p.output.bytes * p.results
    asked = np.minimum(blocks, resident * room) * np.minimum(stages, iterations) * (w.moved_a[rows] + w.moved_b[rows])
    memory = np.maximum(memory, np.float32(read * perf_costs.COLD_TURN_US) / np.maximum(asked, 1))
    late = np.minimum(perf_costs.TILE_LAST * store / clock, np.float32(1.5))
    out: Floats = np.maximum(memory + late, cycles / clock) + x.extra[cell] + np.float32(perf_costs.COLD_US)
    return out
