"""The geometry of wgmma kernels: a producer warp loads by TMA, math warpgroups issue wgmma.

X is the operand on the side of wgmma's 64 rows, Y is the other operand. X is A and Y is B, or the reverse with
``transposed_mma``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import SPLIT_DISTRIBUTED, SPLIT_WORKSPACE, packs
from ptxgen.codegen.geometry import TileGeometry
from ptxgen.codegen.vectorized import WARP, BoolOrColumn, IntOrColumn, ceil_div, where
from ptxgen.expr.node import variables
from ptxgen.families.wgmma import operand_packing, promotion
from ptxgen.families.wgmma.axes import PADDED
from ptxgen.families.wgmma.bf16x3 import factor_bytes, planes, workspace
from ptxgen.families.wgmma.grouped_rows import packs_items
from ptxgen.lowering.block_scales import block_scaled, scales_of
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import Im2colPhase, im2col, tma_n
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import QuantizedRows, quantized_rows
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.sink import SelectValues, ValueSink
from ptxgen.problem.device import Device

ROWS = 64  #: rows of one wgmma instruction
STEP = 32  #: bytes of K of one wgmma instruction
COLUMNS = 8  #: columns of the smallest wgmma instruction, and of a group of accumulators
SPAN = 128  #: bytes of the widest swizzle, and of the inner side of a box
ALIGNED = 1024  #: alignment in bytes of each tile in shared memory: the period of the widest swizzle
WARPGROUP = 4 * WARP
MOST_OWNERS = 16  #: most blocks that each finish a part of a tile
LOOP_REGISTERS = 38  #: registers per thread of the main loop besides the accumulators
PHASE_REGISTERS = 6  #: further registers if tiles are of phases: the address of C, and the pixels along each axis
#: registers per thread that realigns operands: the most words in flight, and addresses
REALIGN_WORDS, REALIGN_REGISTERS = 32, 24
#: registers per thread for scales that lanes exchange, if promotion has one buffer and if it has two, in kernels of
#: groups and in others: ptxas spills some kernels with fewer
EXCHANGE_OF_GROUPS, EXCHANGE = (22, 41), (16, 32)
SPARE_REGISTERS = 4  #: registers of LOOP_REGISTERS that loops with scales do not use, unless lanes exchange the scales
#: quantized weights: registers of a scale or zero point and its address; registers of LOOP_REGISTERS that loops with
#: weights do not use
SCALE_REGISTERS, WEIGHTS_SPARE = 6, 18
#: X in registers: 32-bit registers for 64 rows and one step, and the number of steps that are buffered
FRAGMENT, FRAGMENTS = 4, 2
#: registers per thread without setmaxnreg: with three warpgroups, and with four
EQUAL_REGISTERS, EQUAL_OF_FOUR = 168, 128
#: registers by setmaxnreg with two math warpgroups: per producer thread, and per math thread
PRODUCER, MATH = 40, 232
#: the same numbers for producers that need more registers
PRODUCER_MORE, MATH_LESS = 48, 224
#: the same numbers with three math warpgroups
PRODUCER_OF_FOUR, MATH_OF_FOUR = 56, 152
#: size of a cluster -> blocks that an H200 (132 multiprocessors) runs at once, one per multiprocessor. A cluster stays
#: within a GPC, and GPCs have 16 or 18 multiprocessors. Measured
RESIDENT_BLOCKS = {1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 8: 120}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SideGeometry:
    """The geometry of X or Y: the block tile, and how TMA loads it."""

    tile: IntOrColumn  #: elements of the block tile along this side
    extent: IntOrColumn  #: extent of C along this side
    kmajor: BoolOrColumn  #: True if K is contiguous
    box: IntOrColumn  #: contiguous elements of a TMA box
    rows: IntOrColumn  #: elements along this side that TMA loads
    slice: IntOrColumn  #: what a block of a multicast loads: elements along this side, or of K
    sliced_along_k: BoolOrColumn  #: True if the blocks of a multicast divide the depth of a stage
    bytes: IntOrColumn  #: bytes in a stage
    realigned: BoolOrColumn  #: True if math warpgroups realign it in shared memory


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MathGeometry:
    """The products of a math warpgroup."""

    element_bytes: int  #: bytes of an element in the type that wgmma multiplies
    planes: int  #: bf16 planes of each operand; 1 if operands are not split
    promotes: bool  #: True if sums of parts of K have accumulators besides the totals (promotion)
    mi: IntOrColumn  #: wgmma instructions of 64 rows that a warpgroup stacks along X
    a_from_registers: BoolOrColumn  #: True if wgmma reads X from registers


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PipelineGeometry:
    """The stages of the K loop."""

    unit: IntOrColumn  #: most elements of K that one box loads
    k_iters: IntOrColumn  #: iterations of the K loop over all slices
    image_boxes: IntOrColumn  #: adjacent boxes of images, if K counts pixels
    stage_bytes: IntOrColumn  #: bytes of a stage
    bytes: IntOrColumn  #: bytes of all stages
    barrier_bytes: IntOrColumn  #: bytes of mbarriers, and of the ones that sums of A are products with


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ReductionGeometry:
    """Which blocks add the partial sums of a tile, and where the sums are."""

    groups: IntOrColumn  #: groups of 8 columns of the block tile
    owners: IntOrColumn  #: blocks that each finish a part of the tile
    owner_columns: IntOrColumn  #: columns of the tile that one block finishes
    single_reducer: BoolOrColumn  #: True if one block of a cluster along K finishes the whole tile
    dsmem_used: IntOrColumn  #: bytes of partial sums from the other blocks of the cluster
    dsmem_bytes: IntOrColumn  #: ``dsmem_used``, aligned
    partial_bytes: IntOrColumn  #: bytes of partial sums that one block stores in the workspace


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RegisterBudget:
    """Registers per thread: those that the code uses, and those that setmaxnreg assigns."""

    accumulators: IntOrColumn  #: accumulators
    mainloop: IntOrColumn  #: registers of the main loop, accumulators included
    epilogue: IntOrColumn  #: further registers of the epilogue
    equal: IntOrColumn  #: most registers of a thread without setmaxnreg, if the copy warp is a warpgroup
    setmaxnreg: BoolOrColumn  #: True if the producer warpgroup releases registers to the math warpgroups
    producer: IntOrColumn  #: registers of a producer thread with setmaxnreg
    math: IntOrColumn  #: registers of a math thread with setmaxnreg


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WgmmaGeometry(TileGeometry):
    """The geometry of a wgmma kernel."""

    x: SideGeometry  #: the operand on the side of wgmma's 64 rows
    y: SideGeometry  #: the other operand
    images_x: BoolOrColumn  #: True if X is the images of a convolution
    math: MathGeometry  #: instructions of a warpgroup
    pipeline: PipelineGeometry  #: stages
    reduction: ReductionGeometry  #: partial sums
    budget: RegisterBudget  #: registers
    epilogue_bytes: IntOrColumn  #: bytes of the epilogue's buffers for C
    packed_bytes: IntOrColumn  #: bytes of workspace for packed operands


STREAM_LEAST = 4  #: least K iterations of a block's share
STREAM_BLOCKS = 144  #: most blocks that share K iterations: the multiprocessors of the largest GPU


def resident_blocks(d: Device, c: Any) -> Any:
    """The number of blocks that run at once, one per multiprocessor, in clusters of the size of ``c``."""
    cluster = c.cluster_x * c.cluster_y * c.cluster_k
    whole = d.sms // cluster * cluster
    if d.sms != RESIDENT_BLOCKS[1]:
        return whole
    largest = max(RESIDENT_BLOCKS)
    known = np.zeros(largest + 1, np.int64)
    known[list(RESIDENT_BLOCKS)] = list(RESIDENT_BLOCKS.values())
    return np.where(np.isin(cluster, list(RESIDENT_BLOCKS)), known[np.minimum(cluster, largest)], whole)


def row_bytes(weights: QuantizedRows, c: Any) -> Any:
    """The number of bytes of a row of quantized weights in a stage."""
    return c.u // weights.format.per_byte


def aligned(size: Any) -> Any:
    return (size + ALIGNED - 1) & -ALIGNED


def widest(extent: Any, most: int, least: int) -> Any:
    """The widest power of two from ``most`` down to ``least`` that divides ``extent``; 0 if none does."""
    result = np.zeros_like(extent) if isinstance(extent, np.ndarray) else 0
    width = least
    while width <= most:
        result = where(extent % width == 0, width, result)
        width *= 2
    return result


def widest_unit(p: KernelProblem) -> int:
    """The most elements of K that one box loads: at most the width of a swizzle; in a convolution, channels of a filter
    tap. A wider box may have up to a quarter more zeros after the last channel."""
    size = factor_bytes(p)
    if im2col(p) is None or im2col(p).wgrad:
        return SPAN // size
    widths = [w // size for w in (SPAN, SPAN // 2, STEP)]
    padded = [ceil_div(im2col(p).channels, w) * w for w in widths]
    return next(w for w, n in zip(widths, padded, strict=True) if 4 * n <= 5 * min(padded))


def unit(p: KernelProblem, c: Any) -> Any:
    """The number of elements of K that one box of ``c`` loads."""
    return np.minimum(c.u, widest_unit(p))


def loads_tiled(p: KernelProblem, c: Any) -> Any:
    """True if tiled tensor maps load the images of a convolution in place."""
    if im2col(p) is None or im2col(p).unpacked is None:
        return im2col(p) is not None and im2col(p).tiled
    a, b = operand_packing.paths(im2col(p).unpacked)
    return (c.operand_path_a == a) & (c.operand_path_b == b)


def tiled_channels(p: KernelProblem, slice_: Any) -> Any:
    """The number of channels of a tiled box of images, which has one filter tap. ``slice_``: the columns that a block
    loads."""
    x = im2col(p) and (im2col(p).tiled_form or im2col(p))
    return slice_ if x is None or x.tap_count == 1 else np.gcd(slice_, x.channels)


def length(p: KernelProblem, c: Any, phases: tuple[Im2colPhase, ...] = ()) -> Any:
    """The length of K with the zeros that stages are padded with. In a convolution, the channels of each filter tap are
    padded to whole units; the pixels of an image, or of a row that tiled maps load, are padded to whole stages.
    ``phases``: the phases of a strided input gradient over which K is averaged; empty: all phases that ``c``
    computes."""
    if im2col(p) is None:
        return p.k
    if im2col(p).wgrad:
        depth, tiled = np.maximum(c.u, 1), im2col(p).tiled_form
        whole = _in_stages(p.k, math.prod(im2col(p).positions), depth) if im2col(p).by_image else p.k
        if tiled is None:
            return whole
        return where(loads_tiled(p, c), _in_stages(p.k, tiled.positions[0], depth), whole)
    padded = ceil_div(im2col(p).channels, np.maximum(unit(p, c), 1)) * unit(p, c)  # a stage has it of each row tap
    if im2col(p).phases:  # of the average phase
        taps = sum(phase.tap_count for phase in phases or im2col(p).phases)
        return ceil_div(taps * padded, len(phases) if phases else phase_count(p, c))
    rows = im2col(p).tap_count // im2col(p).taps[0]
    return where(c.row_taps > 1, rows * im2col(p).row_parts, im2col(p).tap_count) * padded


def _in_stages(k: int, run: int, depth: Any) -> Any:
    """K if each run of ``run`` elements is padded to whole stages."""
    return k // run * ceil_div(run, depth) * depth


def stage_depth(c: Any) -> Any:
    """The number of elements of K of a stage."""
    return c.u * c.row_taps


def extents(p: KernelProblem, c: Any) -> tuple[Any, Any]:
    """The extents of C that tiles cover, along M and N. If the taps of a filter row share pixels, they include the
    halo."""
    x = im2col(p)
    if x is None or not x.shares_row_taps:
        return p.m, tma_n(p)
    if x.side == "a":
        return where(c.row_taps > 1, x.halo_pixels, p.m), tma_n(p)
    return p.m, where(c.row_taps > 1, x.halo_pixels, tma_n(p))


def phase_count(p: KernelProblem, c: Any) -> Any:
    """The number of phases of a strided input gradient that ``c`` computes. Only phases with taps have images."""
    assert im2col(p) is not None
    return where(c.interleave_phases == 1, len(im2col(p).computed_phases), len(im2col(p).phases))


def located_pixels(p: KernelProblem, c: Any) -> Any:
    """True if threads compute where the pixels of a tile are in C: for pixels of a phase, or without the halo of a
    filter row."""
    return (c.row_taps > 1) | bool(im2col(p) is not None and im2col(p).phases)


def image_run(p: KernelProblem) -> int:
    """The number of contiguous elements of images if K is not contiguous: channels of a pixel, or pixels that tiled
    maps load."""
    x = im2col(p)
    return int(x.channels if x.wgrad or x.tiled_form is None else x.tiled_form.positions[0])


def along(p: KernelProblem, c: Any, extent: Any, images: Any) -> Any:
    """The extent that the width of a box must divide if K is not contiguous: the tile; in a convolution also the
    contiguous run of images. ``images``: True if the operand is the images."""
    if im2col(p) is None:
        return extent
    if im2col(p).wgrad:
        return np.gcd(extent, im2col(p).channels)
    return where(images & loads_tiled(p, c), np.gcd(extent, image_run(p)), extent)


def packs_8bit(p: KernelProblem, c: Any) -> Any:
    """True if adjacent threads may exchange 8-bit results, so that each stores 8 columns."""
    matrix = im2col(p) is None or im2col(p).result is None
    return (
        matrix & (p.output.bytes == 1) & (c.transposed_mma == 0) & (c.epilogue_smem == 0) & (c.nl % (4 * COLUMNS) == 0)
    )


def owners(groups: Any, blocks: Any) -> Any:
    """The number of blocks, of the ``blocks`` that split K, that each finish an equal part of a tile with ``groups``
    groups of columns."""
    if isinstance(groups, np.ndarray) and isinstance(blocks, np.ndarray):
        return _owners_table(int(groups.max(initial=0)))[groups, np.minimum(blocks, MOST_OWNERS)]
    result = 1
    for n in range(2, min(MOST_OWNERS, int(blocks)) + 1):
        result = n if groups % n == 0 else result
    return result


@lru_cache(maxsize=8)
def _owners_table(most: int) -> NDArray[np.int64]:
    """The values of ``owners`` for up to ``most`` groups and up to MOST_OWNERS blocks."""
    each = [[owners(groups, blocks) for blocks in range(MOST_OWNERS + 1)] for groups in range(most + 1)]
    return np.array(each, np.int64)


def batch(accumulators: Any) -> Any:
    """The number of groups of partial sums that a thread with ``accumulators`` accumulators loads at once."""
    return where(accumulators <= 64, 16, 8)


def kmajor(p: KernelProblem, c: Any) -> tuple[Any, Any]:
    """For A and for B, in the form that wgmma reads: True if K is contiguous."""
    layout = im2col(p).layout if im2col(p) is not None else p.layout
    copied = planes(p) > 1 or packs_items(p)
    a, b = layout[0] == "N" or copied, layout[1] == "T" or copied
    if im2col(p) is not None and im2col(p).unpacked is not None:
        tiled, direct = loads_tiled(p, c), im2col(p).unpacked.layout
        a, b = where(tiled, direct[0] == "N", a), where(tiled, direct[1] == "T", b)
    return a | (packs(c, "a") & operand_packing.transposes(p, "a")), b | (
        packs(c, "b") & operand_packing.transposes(p, "b")
    )


def from_registers(p: KernelProblem, c: Any) -> Any:
    """True if wgmma must read X from registers, because it reads 8-bit and 32-bit elements from shared memory only
    K-major."""
    if quantized_rows(p) is not None:
        return c.transposed_mma == 1
    a, b = kmajor(p, c)
    return (factor_bytes(p) != 2) & np.logical_not(where(c.transposed_mma == 1, b, a))


def adjacent_rows(p: KernelProblem, c: Any) -> Any:
    """True if a thread's two rows of X are adjacent, as for operands that it reads from MN-major tiles."""
    return from_registers(p, c) & (quantized_rows(p) is None)


def _epilogue_regs(p: KernelProblem, c: Any, accumulators: Any, moves: Any) -> Any:
    """The number of further registers of the epilogue: ptxas hoists loads of bias and scales, and spills with 192
    accumulators."""
    transposed, via_smem, wide = c.transposed_mma == 1, c.epilogue_smem == 1, accumulators >= 192
    x, phased = im2col(p), located_pixels(p, c)
    scatters = x is not None and (x.result is not None or x.side == "b")
    # addresses of rows of C in a phase
    many = accumulators >= where(c.row_taps > 1, 144, 160)
    located = where(many, where(transposed, 20, 52), where(accumulators >= 96, 29, 0))
    terms = [
        where((moves > 0) & (c.math_warpgroups == 1), 16, 0),
        where(
            (c.kg > 1) & (c.splitk == SPLIT_DISTRIBUTED) & (accumulators >= 160), 20 if p.accumulator.integer else 10, 0
        ),
    ]
    # conditions that hold in no row are not computed for each
    if scatters:
        runs = via_smem & where(c.row_taps > 1, x.side == "b", x.result is not None)
        terms.append(where(runs & transposed & (accumulators >= 176), 8, 0))
        # words and single elements of rows that begin at any element, as those between halos may
        subtiles = runs & (c.epilogue_subtiles > 1) & ((c.row_taps > 1) | (p.vectors[2] == 1))
        terms.append(where(subtiles & (accumulators >= 128), 8, 0))
        terms.append(where(subtiles & transposed & (c.persistent == 1) & wide, 26, 0))
    if np.any(phased):
        terms.append(where(via_smem & phased & (c.interleave_phases == 0), located, 0))
    if p.output.bytes == 1:
        terms.append(where(packs_8bit(p, c) & (c.vec_c >= COLUMNS) & (accumulators >= 128), 4, 0))
    if isinstance(p.sink, ValueSink):
        terms.append(_value_regs(p.sink, c, accumulators))
    if not p.sink.ops:
        return reduce(np.maximum, terms)
    operations, direct, few = set(p.sink.ops), np.logical_not(via_smem), accumulators <= 128
    scaled, elementwise = "scale_rows" in operations, bool(p.sink.elementwise)
    vectors = bool(operations & {"scale_rows", "bias_row", "bias_column"})
    along_x = where(transposed, "bias_column" in operations, "bias_row" in operations)
    out_bytes, loads = p.output.bytes, vectors or elementwise
    long = any(op.long for op in p.sink.operations)
    narrow = via_smem & vectors & (p.element.bytes == 1)
    pairs = via_smem & (out_bytes == 1) & (not loads)  # few at a time are computed
    multicast = (c.cluster_y > 1) & (accumulators >= 128) & (scaled & (out_bytes == 4) & direct | elementwise)
    terms += [
        where(direct & (out_bytes == 1) & few, 12, 0),
        where(direct & loads, where(scaled & np.logical_not(few), 20, where(few, 12, 3)), 2),
        where(direct & wide, 26, 0) if len(p.sink.elementwise) > 1 else 0,
        where(via_smem & (loads or long), where(few, where(pairs, 12, 28), 20 if loads else 0), 0),
        where(wide, where(scaled | (direct & (out_bytes == 4)) | along_x | narrow, 26, where(pairs, 2, 3)), 0),
        where(multicast, 28, 0),
        where(
            phased & elementwise,
            where(accumulators < 96, where(via_smem, 64, 0), located + 32 + where(multicast, 28, 0)),
            0,
        ),
        where(moves > 0, 8, 0),
        where(along_x, 35, 0) if scaled else 0,
    ]
    if "store_sums" in p.needs:  # the addresses of two arrays, unless TMA stores them
        loops = (c.persistent == 1) & (accumulators >= where(transposed, 112, 88))
        addresses = where(phased, where(loops, 104, 92), 56 if scatters else 0)
        least = where(phased & (c.persistent == 1), 0, 80)
        terms.append(where(via_smem, where(wide, 36, where(accumulators >= least, addresses, 0)), 0))
    return reduce(np.maximum, terms)


def _value_regs(sink: ValueSink, c: Any, accumulators: Any) -> Any:
    """The registers for values of sums besides the accumulators."""
    reads = bool(sink.elements or sink.vectors) or isinstance(sink, SelectValues)
    wide = accumulators >= 192
    many = isinstance(sink, RowReduce) and (len(sink.reduction.types) > 1 or sink.guard is not None)
    direct = where(wide, 26, 12) if reads or many else 2
    # through shared memory, elements along X are in registers from one subtile to the next
    few_more = 3 if {"i", "j"} & set(variables(*sink.roots)) else 2
    along_x = where(c.transposed_mma == 1, *(any(v.axis == axis for v in sink.vectors) for axis in "ji"))
    staged = (
        where(wide, where(along_x | bool(sink.elements), 26, 20), 28 if sink.elements else 12) if reads else few_more
    )
    return where(c.epilogue_smem == 1, staged, direct)


def _unaligned_bytes(kmajor: Any, tile: Any, u: Any, size: int) -> Any:
    """The number of bytes that an operand with unaligned rows takes in a stage."""
    lines, width = where(kmajor, tile, u), where(kmajor, u, tile)
    return aligned(operand_packing.RESIDUES * operand_packing.residue_bytes(lines, width, size))


def _realign_moves(kmajor: Any, tile: Any, u: Any, box: Any, threads: Any) -> Any:
    """The number of 16-byte moves of each of ``threads`` threads to realign a stage of an operand."""
    lines, width = where(kmajor, tile, u), where(kmajor, u, tile)
    across = threads // np.maximum(box // COLUMNS, 1)
    return width // np.maximum(box, 1) * ceil_div(lines, np.maximum(across, 1))


def _grouped_blocks(p: KernelProblem, c: Any) -> Any:
    """The number of blocks for the tiles of all items of a group, in whole clusters."""
    along_m = where(c.transposed_mma == 1, c.cluster_y, c.cluster_x)
    along_n = where(c.transposed_mma == 1, c.cluster_x, c.cluster_y)
    clusters = p.extents.tiles(np.maximum(c.ml * along_m, 1), np.maximum(c.nl * along_n, 1))
    return clusters * c.cluster_x * c.cluster_y


def prefetch_barriers(p: KernelProblem, c: Any) -> Any:
    """The number of a warpgroup's mbarriers for an elementwise operand that TMA prefetches: one for each staging
    buffer."""
    return c.epilogue_buffers * (c.epilogue_smem == 1) * bool(p.sink.elementwise and operand_packing.boxed(p))


def _slices_y_along_k(p: KernelProblem, c: Any, kmajor: Any, tile: Any) -> Any:
    """True if the blocks of a multicast divide the depth of a stage of Y, not its columns: slices of columns would be
    boxes narrower than those of the whole tile, or parts of padded boxes."""
    if im2col(p) is not None or planes(p) > 1:
        return where(kmajor, False, False)
    blocks, most = np.maximum(c.cluster_x, 1), SPAN // factor_bytes(p)
    narrow = widest(tile // blocks, most, COLUMNS) < widest(tile, most, COLUMNS)
    narrow = narrow | (c.y_boxes == PADDED) & (blocks > 1)
    return np.logical_not(kmajor) & narrow & (c.u % (COLUMNS * blocks) == 0)


def _sides(p: KernelProblem, c: Any, images_x: Any, depth: Any) -> tuple[SideGeometry, SideGeometry, Any, Any]:
    """The geometry of X and of Y; the number of adjacent boxes of images; the 16-byte moves of a thread that realigns a
    stage. ``depth``: elements of K that a box loads."""
    size, count, transposed = factor_bytes(p), planes(p), c.transposed_mma == 1
    x_tile, y_tile = where(transposed, c.nl, c.ml), where(transposed, c.ml, c.nl)
    a_kmajor, b_kmajor = kmajor(p, c)
    x_kmajor, y_kmajor = where(transposed, b_kmajor, a_kmajor), where(transposed, a_kmajor, b_kmajor)
    m, n = extents(p, c)
    clustered = np.maximum(c.cluster_x, 1)
    y_along_k = _slices_y_along_k(p, c, y_kmajor, y_tile)
    most = SPAN // size
    y_rows = where(c.y_boxes == PADDED, ceil_div(y_tile, most) * most, y_tile)
    y_slice = where(y_along_k, c.u, y_rows) // clustered
    y_across = where(y_along_k, y_rows, y_slice)
    x_box = where(x_kmajor, depth, where(c.tma_rows > 0, c.tma_rows, min(ROWS, SPAN // size)))
    y_box = where(y_kmajor, depth, widest(along(p, c, y_across, np.logical_not(images_x)), SPAN // size, COLUMNS))
    x_rows = where(c.tma_rows > 0, c.tma_rows, x_tile)
    x_slice = where(x_kmajor, x_rows, c.u) // np.maximum(c.cluster_y, 1)
    halo, filter_depth = c.row_taps - 1, stage_depth(c)  # images have the depth of one tap
    x_depth, y_depth = where(images_x, c.u, filter_depth), where(images_x, filter_depth, c.u)
    x_bytes = aligned((where(x_kmajor, x_tile, x_rows) + where(images_x, halo, 0)) * x_depth * size * count)
    weights = quantized_rows(p)
    if weights is not None:
        x_box = np.minimum(row_bytes(weights, c), SPAN)
        x_bytes = aligned(x_tile * row_bytes(weights, c))
    y_bytes = aligned((y_rows + where(images_x, 0, halo)) * y_depth * size * count)
    image_boxes = where(images_x, x_tile // np.maximum(x_box, 1), y_slice // np.maximum(y_box, 1))
    if im2col(p) is not None and im2col(p).wgrad and im2col(p).tiled_form is not None:
        columns = where(images_x, where(x_kmajor, x_slice, x_tile), y_slice)
        tiled_boxes = columns // np.maximum(tiled_channels(p, columns), 1)
        image_boxes = where(loads_tiled(p, c), tiled_boxes, image_boxes)
    a_realigned, b_realigned = operand_packing.realigns(c, "a"), operand_packing.realigns(c, "b")
    x_realigned = where(transposed, b_realigned, a_realigned)
    y_realigned = where(transposed, a_realigned, b_realigned)
    moves: Any = 0
    if np.any(a_realigned | b_realigned):  # few problems have such configurations
        x_bytes = where(x_realigned, _unaligned_bytes(x_kmajor, x_tile, c.u, size), x_bytes)
        y_bytes = where(y_realigned, _unaligned_bytes(y_kmajor, y_tile, c.u, size), y_bytes)
        threads = WARPGROUP * where(c.pingpong == 1, 1, np.maximum(c.math_warpgroups, 1))
        x_moves = where(x_realigned, _realign_moves(x_kmajor, x_tile, c.u, x_box, threads), 0)
        y_moves = where(y_realigned, _realign_moves(y_kmajor, y_tile, c.u, y_box, threads), 0)
        moves = x_moves + y_moves
    x = SideGeometry(
        tile=x_tile,
        extent=where(transposed, n, m),
        kmajor=x_kmajor,
        box=x_box,
        rows=x_rows,
        slice=x_slice,
        sliced_along_k=np.logical_not(x_kmajor),
        bytes=x_bytes,
        realigned=x_realigned,
    )
    y = SideGeometry(
        tile=y_tile,
        extent=where(transposed, m, n),
        kmajor=y_kmajor,
        box=y_box,
        rows=y_rows,
        slice=y_slice,
        sliced_along_k=y_along_k,
        bytes=y_bytes,
        realigned=y_realigned,
    )
    return x, y, image_boxes, moves


def _reduction(c: Any, x_tile: Any, y_tile: Any) -> ReductionGeometry:
    groups = y_tile // COLUMNS
    by_cluster = owners(groups, c.cluster_k)
    tile_owners = where((c.kg > 1) & (c.splitk == SPLIT_DISTRIBUTED), owners(groups, c.kg), by_cluster)
    owner_columns = y_tile // tile_owners
    single_reducer = (c.cluster_k > 1) & (by_cluster == 1)
    dsmem_used = where(c.cluster_k > 1, (c.cluster_k - single_reducer) * x_tile * owner_columns * 4, 0)
    return ReductionGeometry(
        groups=groups,
        owners=tile_owners,
        owner_columns=owner_columns,
        single_reducer=single_reducer,
        dsmem_used=dsmem_used,
        dsmem_bytes=aligned(dsmem_used),
        partial_bytes=x_tile * owner_columns * 4,
    )


def _scale_regs(p: KernelProblem, c: Any, mi: Any, y_tile: Any) -> Any:
    """The registers for block scales; lanes that exchange scales need more."""
    if not block_scaled(p):
        return 0
    a, b = (scales_of(p, name).rows for name in "AB")
    x_rows, y_rows = where(c.transposed_mma == 1, b, a), where(c.transposed_mma == 1, a, b)
    x_scales = where(x_rows == 1, 2 * mi, mi * ROWS // np.gcd(mi * ROWS, x_rows))
    y_scales = where(y_rows == 1, ceil_div(y_tile, WARP), y_tile // np.gcd(y_tile, y_rows))
    one, two = EXCHANGE_OF_GROUPS if grouped(p) else EXCHANGE
    exchanged = where(c.promotion_buffers > 1, two, one)
    return 2 * (x_scales + y_scales) + where(y_rows == 1, exchanged, -SPARE_REGISTERS)


def _weight_regs(p: KernelProblem, m: MathGeometry) -> Any:
    """The number of registers of quantized weights as they are loaded, of their scales and zero points, and of the
    addresses of these."""
    weights = quantized_rows(p)
    if weights is None:
        return 0
    words = 2 * (4 if weights.format.bits == 4 else 2)
    return m.mi * (words + 2 * len(weights.arrays) * SCALE_REGISTERS) - WEIGHTS_SPARE


def _budget(p: KernelProblem, c: Any, m: MathGeometry, accumulators: Any, moves: Any, y_tile: Any) -> RegisterBudget:
    """The registers per thread. ``moves``: the last result of ``_sides``."""
    fixup = (c.kg > 1) & (c.splitk > SPLIT_WORKSPACE) | (c.stream_waves > 0)
    loaded = where(fixup, 4 * batch(accumulators), 0)
    mainloop = accumulators + loaded
    if m.promotes:  # sums of other blocks are loaded when those of parts of K are in the totals
        mainloop = accumulators + np.maximum(accumulators * c.promotion_buffers, loaded)
    elif p.accumulator.bytes == 2:  # f16 accumulators are widened at the end
        mainloop = mainloop + accumulators // 2
    mainloop = (
        mainloop
        + LOOP_REGISTERS
        + where(located_pixels(p, c), PHASE_REGISTERS, 0)
        + where(m.a_from_registers, FRAGMENTS * FRAGMENT * m.mi + 8, 0)
    )
    mainloop = mainloop + (FRAGMENT * m.mi if "sum_a" in p.needs else 0)
    mainloop = mainloop + _scale_regs(p, c, m.mi, y_tile) + _weight_regs(p, m)
    mainloop = mainloop + where(moves > 0, np.minimum(4 * moves, REALIGN_WORDS) + REALIGN_REGISTERS, 0)
    epilogue = _epilogue_regs(p, c, accumulators, moves)
    # producers of packed phases with L2 policies need more
    packed = packs(c, "a") & packs(c, "b")
    phased = bool(im2col(p) is not None and im2col(p).phases) & packed & (c.persistent == 1) & (c.l2_evict_first > 0)
    less = (m.a_from_registers | bool(p.sink.ops) | phased) & (mainloop + epilogue <= MATH_LESS)
    four = c.math_warpgroups == 3
    equal = where(four, EQUAL_OF_FOUR, EQUAL_REGISTERS)
    return RegisterBudget(
        accumulators=accumulators,
        mainloop=mainloop,
        epilogue=epilogue,
        equal=equal,
        setmaxnreg=(c.math_warpgroups > 1) & (c.min_ctas_per_sm == 1) & (mainloop + epilogue > equal),
        producer=where(four, PRODUCER_OF_FOUR, where(less, PRODUCER_MORE, PRODUCER)),
        math=where(four, MATH_OF_FOUR, where(less, MATH_LESS, MATH)),
    )


def ones_bytes(p: KernelProblem) -> int:
    """The bytes of shared memory for 8 columns of ones, by one step of K."""
    return COLUMNS * STEP if "sum_a" in p.needs else 0


def counts(p: KernelProblem, c: Any) -> dict[str, Any]:
    """The geometry that depends on tiles, stages, extents and slices: sides, stages of the K loop, blocks."""
    return _counts_and_moves(p, c)[0]


def _counts_and_moves(p: KernelProblem, c: Any) -> tuple[dict[str, Any], Any]:
    """The result of ``counts``, and the last result of ``_sides``."""
    depth, transposed = unit(p, c), c.transposed_mma == 1
    images_x = transposed == (im2col(p) is not None and im2col(p).side == "b")
    x, y, image_boxes, moves = _sides(p, c, images_x, depth)
    stage_bytes = x.bytes + y.bytes
    barrier_bytes = 16 * c.stages + 8 + 8 * c.math_warpgroups * (1 + prefetch_barriers(p, c))
    m, n = extents(p, c)
    tiles_m, tiles_n = ceil_div(m, np.maximum(c.ml, 1)), ceil_div(n, np.maximum(c.nl, 1))
    tiles_x, tiles_y = where(transposed, tiles_n, tiles_m), where(transposed, tiles_m, tiles_n)
    k_iters = np.maximum(ceil_div(length(p, c), np.maximum(c.u, 1)), 1)
    slices = np.maximum(c.kg * c.cluster_k, 1)
    clustered_x = ceil_div(tiles_x, np.maximum(c.cluster_x, 1)) * c.cluster_x
    blocks = clustered_x * ceil_div(tiles_y, np.maximum(c.cluster_y, 1)) * c.cluster_y * slices * p.batch
    if im2col(p) is not None and im2col(p).phases:
        blocks = blocks * phase_count(p, c)
    if grouped(p):
        blocks = _grouped_blocks(p, c)
    known = {
        "x": x,
        "y": y,
        "images_x": images_x,
        "math": MathGeometry(
            element_bytes=factor_bytes(p),
            planes=planes(p),
            promotes=promotion.promotes(p),
            mi=x.tile // ROWS // where(c.pingpong == 1, 1, np.maximum(c.math_warpgroups, 1)),
            a_from_registers=from_registers(p, c),
        ),
        "pipeline": PipelineGeometry(
            unit=depth,
            k_iters=k_iters,
            image_boxes=image_boxes,
            stage_bytes=stage_bytes,
            bytes=c.stages * stage_bytes,
            barrier_bytes=barrier_bytes + ones_bytes(p),
        ),
        "tiles_m": tiles_m,
        "tiles_n": tiles_n,
        "tiles": where(c.row_taps > 1, tiles_m * tiles_n, p.extents.tiles(np.maximum(c.ml, 1), np.maximum(c.nl, 1))),
        "slice_k": ceil_div(k_iters, slices) * stage_depth(c),
        "slices": slices,
        "blocks": blocks,
        "sum_bytes": 4,
    }
    return known, moves


def geometry(p: KernelProblem, c: Any) -> WgmmaGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    counted, moves = _counts_and_moves(p, c)
    x, y, warpgroup, pipeline = (counted[name] for name in ("x", "y", "math", "pipeline"))
    reduction, mi = _reduction(c, x.tile, y.tile), warpgroup.mi
    budget = _budget(p, c, warpgroup, mi * y.tile // 2, moves, y.tile)
    c_columns = reduction.owner_columns // np.maximum(c.epilogue_subtiles, 1)
    c_buffer = c.math_warpgroups * mi * ROWS * c_columns * p.output.bytes
    epilogue_bytes = aligned(where(c.epilogue_smem == 1, c_buffer * c.epilogue_buffers, 0))
    own_epilogue_bytes = where(c.epilogue_aliases_ab == 1, 0, epilogue_bytes)
    fixup_bytes = (
        counted["blocks"] * reduction.partial_bytes * where(c.splitk == SPLIT_DISTRIBUTED, reduction.owners, 1)
    )
    split_bytes = where(c.kg > 1, where(c.splitk == SPLIT_WORKSPACE, c.kg * p.results * 4, fixup_bytes), 0)
    packed_bytes = operand_packing.workspace(p, c)
    split_bytes = split_bytes + where(c.stream_waves > 0, STREAM_BLOCKS * reduction.partial_bytes, 0)
    return WgmmaGeometry(
        **counted,
        reduction=reduction,
        budget=budget,
        epilogue_bytes=epilogue_bytes,
        packed_bytes=packed_bytes,
        threads=WARPGROUP * c.math_warpgroups + where(budget.setmaxnreg, WARPGROUP, WARP),
        registers=where(budget.setmaxnreg, budget.equal, budget.mainloop),
        shares_registers=budget.setmaxnreg,
        shared=(pipeline.bytes + pipeline.barrier_bytes)
        + (reduction.dsmem_bytes + own_epilogue_bytes),  # few operations on grids
        workspace=workspace(p) + packed_bytes + split_bytes,
        c_via_smem=c.epilogue_smem == 1,
        stores_boxes=c.epilogue_smem == 1,
        c_row_pitch=c.nl,
    )
