"""The rules of legal configurations of the family wgmma."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import (
    DIRECT,
    PACK,
    REALIGN,
    SPLIT_DISTRIBUTED,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    packs,
)
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.split_k import is_countable, is_one_product
from ptxgen.codegen.vectorized import ceil_div, register_cap
from ptxgen.families.wgmma import bf16x3, grouped_rows, operand_packing, promotion
from ptxgen.families.wgmma.axes import B_ONCE
from ptxgen.families.wgmma.geometry import (
    COLUMNS,
    ROWS,
    STEP,
    STREAM_BLOCKS,
    WARPGROUP,
    WgmmaGeometry,
    adjacent_rows,
    image_run,
    loads_tiled,
    located_pixels,
    prefetch_barriers,
    resident_blocks,
)
from ptxgen.families.wgmma.operand_packing import TMA_ALIGNED, mapped, realigns
from ptxgen.lowering.block_scales import block_scaled
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import MOST_STRIDE, im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW
from ptxgen.lowering.quantized_rows import quantized_rows
from ptxgen.lowering.sink import StoreValue, ValueSink
from ptxgen.problem.device import Device

#: most columns of one wgmma whose accumulators ptxas fits in 128 registers, which 16 warps have per thread
MOST_OF_THREE = 200
#: most pixel coordinates, and most units of K, that a producer thread with PRODUCER registers can hold
COORDINATES, UNITS = 9, 4
BOX_LIMIT = 256  #: most elements of a side of a box
WORKSPACE_LIMIT = 1 << 36  #: most bytes of planes and partial sums


#: rank of an im2col map -> its least corner, its greatest corner, and the greatest offset of a filter tap in pixels
CORNERS = {4: (-128, 127, 255), 5: (-16, 15, 31)}

PHASES = 256  #: most phases of a strided input gradient
COUNTED = (1 << 31) - 1024  #: exclusive limit of extents for which a kernel can divide all coordinates of the last tile


def maps_im2col(p: KernelProblem) -> bool:
    """True if an im2col map can describe the images, and a tiled map the other operand."""
    x, size = im2col(p), p.element.bytes
    if x is None:
        return True
    least, most, far = CORNERS[x.rank]
    starts = [p.operand(name.upper()).access.aligned for name in "ab" if x.copy(name) is None]
    inside = all(least <= v <= most for v in (*x.lower, *x.upper)) and max(x.reach) <= far
    inside &= max(x.steps) <= MOST_STRIDE
    aligned = all(n * size % TMA_ALIGNED == 0 for n in (*x.pitches, x.row)) and all(n >= TMA_ALIGNED for n in starts)
    counted = 0 < p.k < COUNTED and max(p.m, p.n) < COUNTED and len(x.phases) <= PHASES
    return counted and bf16x3.planes(p) == 1 and inside and aligned


def _maps_halo(p: KernelProblem) -> bool:
    """True if an im2col map can describe images with the halo of a filter row, and offsets in C fit 32 bits."""
    x = im2col(p)
    return (
        x is not None
        and x.upper[0] + (x.taps_of_row - 1) * x.steps[0] <= CORNERS[x.rank][1]
        and p.m * max(p.operand("C").access.ld, 1) < COUNTED
    )


def _packs_conv(p: KernelProblem, c: Any) -> Any:
    """True if a convolution packs exactly the operands that TMA cannot load, or A if packing transposes it, or loads
    images by tiled maps. Always True for other problems."""
    if im2col(p) is None:
        return True
    transposed = im2col(p).wgrad and im2col(p).side == "b" and operand_packing.transposes(p, "a")
    a, b = operand_packing.packs_conv(p)
    return (
        ((c.operand_path_a == PACK * a) & (c.operand_path_b == PACK * b))
        | ((c.operand_path_a == PACK) & (c.operand_path_b == DIRECT) & (not (a or b)) & transposed)
        | loads_tiled(p, c)
    )


def _has_rows(p: KernelProblem) -> bool:
    """True if C has rows of adjacent columns with one pitch."""
    x = im2col(p)
    return x is None or x.result is None or (x.contiguous_columns and len(x.result[0]) == 1 and not x.phases)


def _pixel_columns(p: KernelProblem) -> bool:
    """True if columns of C are the pixels of a row of the images, which threads store one by one or in pairs."""
    x = im2col(p)
    return x is not None and x.side == "b" and "store_gated" not in p.needs


def _vector_rows(p: KernelProblem, c: Any) -> Any:
    """True if threads store 16 bytes at a time, of elements of two bytes, to rows of C that are pixels of a phase or of
    a tile with a halo."""
    images = im2col(p) is not None and im2col(p).side == "a"
    vectors = images and p.output.bytes == 2 and p.vectors[2] * p.output.bytes >= TMA_ALIGNED
    return located_pixels(p, c) & vectors


def _can_wait(p: KernelProblem, c: Any, g: WgmmaGeometry, d: Device) -> Any:
    """True if slices may wait for each other: all blocks are resident, and a stored sum differs from a missing one."""
    return (g.blocks <= resident_blocks(d, c)) & (c.kg <= 64) & is_countable(p)


def _loads_b_once(p: KernelProblem) -> bool:
    """True if B is one matrix, so that its part of a stage depends only on the K iteration."""
    images = im2col(p) is not None and (im2col(p).wgrad or bool(im2col(p).phases) or im2col(p).side == "b")
    return p.batch == 1 and not grouped(p) and not images and bf16x3.planes(p) == 1


def _between(value: Any, least: int, most: int) -> Any:
    return (value >= least) & (value <= most)


def _binary(*values: Any) -> Any:
    return reduce(np.logical_and, ((v == 0) | (v == 1) for v in values))


def _realigns(c: Any) -> Any:
    return realigns(c, "a") | realigns(c, "b")


def _splitk(p: KernelProblem, c: Any, g: WgmmaGeometry, d: Device) -> Any:
    return (
        (c.kg == 1)
        | (c.splitk == SPLIT_WORKSPACE)
        | ((c.splitk == SPLIT_LAST_CTA) & _can_wait(p, c, g, d))
        | ((c.splitk == SPLIT_DISTRIBUTED) & (c.cluster_k == 1) & (g.reduction.owners > 1) & _can_wait(p, c, g, d))
        | ((c.splitk == SPLIT_MEMSET) & (p.output.bytes == 4) & (p.output.integer or not p.deterministic))
    )


def shares_iterations(p: KernelProblem) -> bool:
    """True if the problem is a single matrix product, whose blocks can share K iterations."""
    return is_one_product(p) and bf16x3.planes(p) == 1 and im2col(p) is None


def _streams(p: KernelProblem, c: Any, d: Device) -> Any:
    """True if blocks can share K iterations. Packed operands are excluded, because they overwrite workspace words that
    must be zero; a tile that another block completes must not load an operand of its epilogue."""
    return (
        (shares_iterations(p) and d.sms <= STREAM_BLOCKS)
        & (c.persistent == 1)
        & (c.pingpong == 0)
        & (c.kg * c.cluster_k == 1)
        & (c.resident_b == 0)
        & np.logical_not(packs(c, "a") | packs(c, "b"))
        & (prefetch_barriers(p, c) == 0)
    )


def _stages_elements(p: KernelProblem) -> bool:
    """True if elements of C may go through shared memory: they have two bytes. Those made of pairs of sums must also be
    stored by TMA."""
    if "store_gated" in p.needs:
        return p.output.bytes == 1 and operand_packing.boxed(p)
    return p.output.bytes == 2


def _stages_sums(p: KernelProblem) -> bool:
    """True if there is no array of sums, or sums may go through shared memory before C does: one of them for each
    element of C, and no other array loaded to the boxes."""
    plain = "store_gated" not in p.needs and not p.sink.elementwise and (not grouped(p) or grouped_rows.ranges(p, "c"))
    return "store_sums" not in p.needs or plain


def _epilogue_smem(p: KernelProblem, c: Any, g: WgmmaGeometry) -> Any:
    chunk = TMA_ALIGNED // p.output.bytes  # columns in 16 bytes of a row
    return np.where(
        c.epilogue_smem == 1,
        _stages_elements(p)
        & _stages_sums(p)
        & (_has_rows(p) & ((c.row_taps == 1) | _pixel_columns(p)) | _vector_rows(p, c) | (c.interleave_phases == 1))
        & ((operand_packing.boxed(p) & (c.row_taps == 1)) | _vector_rows(p, c) | (not p.sink.elementwise))
        & (c.epilogue_subtiles >= 1)
        & (c.epilogue_buffers >= 1)
        & (c.epilogue_subtiles % np.maximum(c.epilogue_buffers, 1) == 0)
        & (g.reduction.owner_columns % np.maximum(chunk * c.epilogue_subtiles, 1) == 0)
        & ((c.kg == 1) | (c.splitk > SPLIT_WORKSPACE)),
        (c.epilogue_subtiles == 1) & (c.epilogue_buffers == 1) & (c.epilogue_aliases_ab == 0),
    )


def _adds_a(p: KernelProblem, c: Any, g: WgmmaGeometry) -> Any:
    """True if kernels can add the elements of each row of A."""
    m = g.math
    whole = (c.kg * c.cluster_k == 1) & (c.stream_waves == 0)
    plain = p.element.bytes in (2, 4) and p.accumulator.name == "f32" and m.planes == 1 and not m.promotes
    return plain & (c.transposed_mma == 0) & (whole | (not p.deterministic))


def _stages_values(p: KernelProblem) -> bool:
    """True if the values that the sink stores may go through shared memory, as words of two rounded floats."""
    if not isinstance(p.sink, ValueSink):
        return True
    return isinstance(p.sink, StoreValue) and p.sink.guard is None and not p.output.integer


def _takes_weights(p: KernelProblem, c: Any) -> Any:
    """True if ``c`` multiplies quantized weights."""
    weights = quantized_rows(p)
    group = max(weights.group, 1) if weights is not None else 1
    paths = (c.operand_path_b == DIRECT) & (c.operand_path_a != REALIGN)
    return (c.transposed_mma == 1) & paths & (c.u % group == 0)


def _producer_registers(p: KernelProblem, c: Any, g: WgmmaGeometry) -> Any:
    if im2col(p) is None:
        return True
    if im2col(p).wgrad:
        fits = g.pipeline.image_boxes * len(im2col(p).extents) <= COORDINATES
    else:
        phased = bool(im2col(p).phases) & g.math.a_from_registers
        evicts = g.math.a_from_registers & (c.l2_evict_first > 0)
        many = (c.persistent == 1) & ((c.cluster_x * c.cluster_y > 1) | evicts) | phased
        units = np.where(many, UNITS // 2, UNITS) // np.where(phased & im2col(p).groups, 2, 1)
        fits = c.u <= units * g.pipeline.unit
        coordinates = g.pipeline.image_boxes * (len(im2col(p).extents) + 1)
        fits = fits & (np.logical_not(loads_tiled(p, c)) | (coordinates <= COORDINATES))
    return np.logical_not(g.budget.setmaxnreg) | fits


RULES = (
    Rule("wgmma_target", lambda p, c, g, d: d.sm == 90, "wgmma runs on sm_90 only; {d.name} is sm_{d.sm}"),
    Rule(
        "wgmma_dtype",
        lambda p, c, g, d: p.compute in p.element.wgmma,
        "wgmma takes f32 as tf32 or as bf16 planes, s8 summed in s32, f16, bf16 and fp8 summed in f32, f16 in f16 too;"
        " the problem is {p.dtype}, summed in {p.compute}",
    ),
    Rule(
        "wgmma_kmajor_y",
        lambda p, c, g, d: (g.math.element_bytes == 2) | g.y.kmajor,
        "layout {p.layout}, transposed_mma={c.transposed_mma}: elements of {g.math.element_bytes} bytes must be K-major"
        " in the operand that is not on the side of the 64 rows",
    ),
    Rule(
        "wgmma_operand_path",
        lambda p, c, g, d: (
            _packs_conv(p, c)
            & (
                np.logical_not(packs(c, "a") | packs(c, "b"))
                | (
                    (bf16x3.planes(p) == 1)
                    & ((c.kg == 1) | (c.splitk <= SPLIT_WORKSPACE))
                    & (g.packed_bytes < operand_packing.LIMIT)
                )
            )
        ),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: wgmma does not pack the bf16 planes of"
        " f32; of a convolution it packs the operands that TMA cannot load; packing excludes splitk=last_cta and"
        " distributed; {g.packed_bytes} bytes of packed operands, less than 2^34",
    ),
    Rule(
        "wgmma_realign",
        lambda p, c, g, d: (
            _between(c.operand_path_a, DIRECT, REALIGN)
            & _between(c.operand_path_b, DIRECT, REALIGN)
            & (
                np.logical_not(_realigns(c))
                | (
                    (p.element.bytes == 2)
                    & (im2col(p) is None)
                    & (c.stages >= operand_packing.STAGES)
                    & (c.cluster_x * c.cluster_y == 1)
                    & (c.math_warpgroups < 3)
                    & (c.tma_rows == 0)
                    & (c.u < BOX_LIMIT)
                    & (np.maximum(c.ml, c.nl) < BOX_LIMIT)
                )
            )
        ),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: realign takes elements of two bytes, no"
        " convolution, cluster_x=1, cluster_y=1, tma_rows=0, stages={c.stages} of at least 3, u={c.u} and sides of the"
        " tile below 256",
    ),
    Rule(
        "wgmma_realign_k",
        lambda p, c, g, d: np.logical_not(_realigns(c)) | ((p.k >= operand_packing.RESIDUES) & (p.batch == 1)),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}, K={p.k}, batch={p.batch}: realign takes"
        " K of at least 8, and no batch",
    ),
    Rule(
        "wgmma_x_from_registers",
        lambda p, c, g, d: (
            np.logical_not(g.math.a_from_registers)
            | (
                (c.tma_rows == 0)
                & ((c.epilogue_smem == 0) | np.logical_not(adjacent_rows(p, c)))
                & (c.u * g.math.element_bytes >= 2 * STEP)
            )
        ),
        "wgmma reads X from registers (layout {p.layout}, transposed_mma={c.transposed_mma}): that takes tma_rows=0,"
        " u={c.u} elements of {g.math.element_bytes} bytes to be 64 bytes or more, and epilogue_smem=0 except for"
        " quantized weights",
    ),
    Rule(
        "wgmma_quantized",
        lambda p, c, g, d: (quantized_rows(p) is None) | _takes_weights(p, c),
        "transposed_mma={c.transposed_mma}, u={c.u}, operand_path_a={c.operand_path_a},"
        " operand_path_b={c.operand_path_b}: quantized weights are the side of the 64 rows (transposed_mma=1), are read"
        " from where they are (operand_path_b=direct), beside activations that are not realigned, and u has whole"
        " groups",
    ),
    Rule(
        "wgmma_axis_range",
        lambda p, c, g, d: (
            _binary(c.transposed_mma, c.pingpong, c.dsmem_completion, c.interleave_phases)
            & _between(c.math_warpgroups, 1, 3)
            & (
                _binary(c.persistent, c.epilogue_aliases_ab, c.epilogue_smem, c.resident_b)
                & _between(c.l2_evict_first, 0, B_ONCE)
                & _between(c.stages, 1, 16)
            )
        ),
        "an axis is out of its range ({c}): math_warpgroups 1 to 3, stages 1 to 16, l2_evict_first 0 to 4, switches 0"
        " or 1",
    ),
    Rule(
        "wgmma_im2col",
        lambda p, c, g, d: maps_im2col(p),
        "images {p.operands[0].access.descriptor}, summed in {p.compute}: TMA im2col needs rows of whole 16 bytes,"
        f" strides up to {MOST_STRIDE}, and corners and filter offsets of few pixels",
    ),
    # boxes of Y are never wider than a divisor of the channels
    Rule(
        "wgmma_im2col_channels",
        lambda p, c, g, d: (
            (im2col(p) is None)
            or np.logical_not(g.images_x)
            | (loads_tiled(p, c) == im2col(p).wgrad)
            | (image_run(p) % np.maximum(g.x.box, 1) == 0)
        ),
        "transposed_mma={c.transposed_mma}: the contiguous elements of {p.operands[0].access.descriptor} are no"
        " multiple of the {g.x.box} of a box",
    ),
    Rule(
        "wgmma_tensor_map_a",
        lambda p, c, g, d: packs(c, "a") | realigns(c, "a") | mapped(p, "a"),
        "A starts at {p.operands[0].access.aligned} bytes, lda={p.operands[0].access.ld}, batch strides {p.offsets}"
        " bytes; TMA needs multiples of 16 bytes, or"
        " operand_path_a=pack or realign",
    ),
    Rule(
        "wgmma_tensor_map_b",
        lambda p, c, g, d: packs(c, "b") | realigns(c, "b") | mapped(p, "b"),
        "B starts at {p.operands[1].access.aligned} bytes, ldb={p.operands[1].access.ld}, batch strides {p.offsets}"
        " bytes; TMA needs multiples of 16 bytes, or"
        " operand_path_b=pack or realign",
    ),
    Rule(
        "wgmma_depth",
        lambda p, c, g, d: (
            (c.u * g.math.element_bytes % STEP == 0)
            & (c.u & (c.u - 1) == 0)
            & (c.u <= (BOX_LIMIT if bf16x3.planes(p) == 1 else bf16x3.PROMOTED))
        ),
        "u={c.u} elements of {g.math.element_bytes} bytes must be 32 bytes times a power of two, at most 256 elements,"
        " 64 of bf16 planes",
    ),
    Rule(
        "wgmma_tile_x",
        lambda p, c, g, d: (
            (g.math.mi >= 1)
            & (g.x.tile == g.math.mi * ROWS * np.where(c.pingpong == 1, 1, c.math_warpgroups))
            & (g.x.tile <= BOX_LIMIT)
        ),
        "the tile has {g.x.tile} along the side of the 64 rows; each of math_warpgroups={c.math_warpgroups} needs a"
        " multiple of 64, at most 256 in total",
    ),
    Rule(
        "wgmma_tile_y",
        lambda p, c, g, d: (
            (g.y.tile % COLUMNS == 0)
            & _between(g.y.tile, COLUMNS, BOX_LIMIT)
            & (g.y.slice * c.cluster_x == np.where(g.y.sliced_along_k, c.u, g.y.rows))
            & (g.y.slice % COLUMNS == 0)
            & (g.y.kmajor | (g.y.box >= 2 * COLUMNS))
            & ((not p.element.int8) | (g.y.tile <= 32) | (g.y.tile % 16 == 0))
        ),
        "the tile has {g.y.tile} along the other side; it must be 8 to 256, a multiple of 8 per block of the cluster,"
        " and of 16 if K is not contiguous (of the tile, if blocks divide the depth), or for s8 above 32",
    ),
    Rule(
        "wgmma_y_boxes",
        lambda p, c, g, d: (
            (c.y_boxes == 0)
            | (
                (not grouped(p) and im2col(p) is None and g.math.planes == 1)
                & np.logical_not(g.y.kmajor | g.y.realigned)
                & (g.y.tile < g.y.rows)
                & ((c.cluster_x == 1) | g.y.sliced_along_k)
            )
        ),
        "y_boxes=padded of a tile of {g.y.tile}, cluster_x={c.cluster_x}, u={c.u}: it is for products of matrices in"
        " which K of this operand is not contiguous and no math warpgroup realigns it; the tile must be no multiple of"
        " 128 bytes, and u a multiple of 8 for each block of cluster_x",
    ),
    Rule(
        "wgmma_accumulators",
        lambda p, c, g, d: g.math.mi * g.y.tile <= np.where(c.math_warpgroups == 3, MOST_OF_THREE, 384),
        "{g.math.mi} x 64 x {g.y.tile} accumulators per warpgroup; its registers hold at most 384 columns of 64 rows,"
        " of three warpgroups 200 (math_warpgroups={c.math_warpgroups})",
    ),
    # ptxas counts whole warpgroups
    Rule(
        "wgmma_register_file",
        lambda p, c, g, d: (
            g.budget.mainloop + g.budget.epilogue
            <= np.where(
                g.budget.setmaxnreg,
                g.budget.math,
                register_cap(d, ceil_div(g.threads * c.min_ctas_per_sm, WARPGROUP) * WARPGROUP, 1),
            )
        ),
        "about {g.budget.mainloop} registers per thread, {g.budget.epilogue} more for the epilogue; {g.threads} threads"
        " with min_ctas_per_sm={c.min_ctas_per_sm} can have fewer",
    ),
    Rule(
        "wgmma_producer_registers",
        lambda p, c, g, d: _producer_registers(p, c, g),
        "{g.pipeline.image_boxes} adjacent boxes of images, u={c.u} in units of {g.pipeline.unit}: with setmaxnreg a"
        " producer thread has registers for 4 boxes (3 in three dimensions) or for 4 units (2 with persistent=1 in a"
        " cluster or with X from registers and l2_evict_first, and in strided input gradients that read X from"
        " registers, 1 if these have groups)",
    ),
    Rule(
        "wgmma_cluster",
        lambda p, c, g, d: (
            _between(c.cluster_x, 1, 8)
            & _between(c.cluster_y, 1, 8)
            & _between(c.cluster_k, 1, 8)
            & (c.cluster_x * c.cluster_y <= 8)
            & ((c.cluster_x * c.cluster_y == 1) | (c.cluster_k == 1))
            & ((c.cluster_k > 1) | (c.dsmem_completion == 0))
            & (c.cluster_x * c.cluster_y * c.cluster_k <= d.sms)
        ),
        "cluster_x={c.cluster_x}, cluster_y={c.cluster_y}, cluster_k={c.cluster_k},"
        " dsmem_completion={c.dsmem_completion}: a cluster has 1 to 8 blocks, no more than the {d.sms} multiprocessors,"
        " and either multicasts or splits K; dsmem_completion=barrier needs cluster_k above 1",
    ),
    Rule(
        "wgmma_multicast_x",
        lambda p, c, g, d: (
            (c.cluster_y == 1)
            | (
                (g.x.slice % COLUMNS == 0)
                & np.where(
                    g.x.kmajor,
                    g.x.slice * c.cluster_y == g.x.rows,
                    (g.x.slice * c.cluster_y == c.u) & (im2col(p) is None),
                )
            )
        ),
        "cluster_y={c.cluster_y} blocks multicast slices of the operand on the side of the 64 rows: each a multiple of"
        " 8 of its {g.x.rows} rows, or, if K is not contiguous, of the depth u={c.u}, and then not of images",
    ),
    Rule(
        "wgmma_grouped",
        lambda p, c, g, d: (
            (not grouped(p))
            | (
                (c.persistent == 1)
                & (c.cluster_k == 1)
                & (g.math.planes == 1)
                & ((not grouped_rows.differ_in_k(p)) | ((c.pingpong == 0) & (c.stages > 1)))
            )
        ),
        "persistent={c.persistent}, cluster_k={c.cluster_k}, pingpong={c.pingpong}, stages={c.stages}: the tile loop of"
        " a group takes persistent=1 and cluster_k=1, and no bf16 planes; if items differ in K, pingpong=0 and"
        " stages=2 or more",
    ),
    Rule(
        "wgmma_packed_items",
        lambda p, c, g, d: (
            (
                (not grouped_rows.packs_items(p))
                & ((grouped_rows.jagged(p) == "m") | (not p.needs & {"item_columns", "descriptor_table"}))
            )
            | (
                grouped_rows.packs_items(p)
                & (block_scaled(p) | ((grouped_rows.jagged(p) == "k") & (p.layout == "NT")))
                & ((grouped_rows.jagged(p) == "k") | (c.epilogue_smem == 0))
                & (c.u * p.element.bytes <= ROW)
                & (g.packed_bytes < operand_packing.LIMIT)
            )
        ),
        "layout {p.layout} of {p.dtype}, u={c.u}, epilogue_smem={c.epilogue_smem}, {g.packed_bytes} bytes of packed"
        " operands: lists, and items that are ranges of columns along K, take 8-bit elements with scales of blocks, or"
        " jagged along K in layout NT; u of at most 128, less than 2^34 bytes, and lists epilogue_smem=0",
    ),
    Rule(
        "wgmma_group_paths",
        lambda p, c, g, d: (
            (not grouped(p))
            | (
                np.logical_not(_realigns(c))
                & (np.logical_not(packs(c, "a") | packs(c, "b")) | (grouped_rows.jagged(p) == "m" and block_scaled(p)))
                & (packs(c, "a") | (grouped_rows.jagged(p) != "m" or p.operands[0].access.kmajor))
            )
        ),
        "layout {p.layout}, operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: no operand of a group"
        " is realigned; pack takes items that are rows of A, with scales of blocks; if A is stored transposed, they"
        " take operand_path_a=pack",
    ),
    Rule(
        "wgmma_k",
        lambda p, c, g, d: (not grouped(p) and quantized_rows(p) is None) | (p.k > 0),
        "K={p.k}: the tile loop of a group, and scales of quantized weights, take K above 0",
    ),
    Rule(
        "wgmma_persistent",
        lambda p, c, g, d: (c.persistent == 0) | (g.slices == 1),
        "persistent=1 with {g.slices} slices of K; it takes one",
    ),
    Rule(
        "wgmma_listed_tiles",
        lambda p, c, g, d: (
            (c.listed_tiles == 0)
            | (
                (c.persistent == 1)
                & (c.cluster_k == 1)
                & (c.stream_waves == 0)
                & (c.resident_b == 0)
                & (g.math.planes == 1)
            )
        ),
        "listed_tiles=1 with persistent={c.persistent}, cluster_k={c.cluster_k}, stream_waves={c.stream_waves},"
        " resident_b={c.resident_b}: the loop over listed tiles takes persistent=1, cluster_k=1, stream_waves=0,"
        " resident_b=0 and no bf16 planes",
    ),
    Rule(
        "wgmma_stream",
        lambda p, c, g, d: (c.stream_waves == 0) | _streams(p, c, d),
        "stream_waves={c.stream_waves} with persistent={c.persistent}, pingpong={c.pingpong}, {g.slices} slices of K,"
        " resident_b={c.resident_b}, operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: shares of K"
        " iterations take persistent=1, one slice, no packed operand, no operand that the epilogue prefetches, and one"
        " product of matrices, not of bf16 planes nor with values of its sums",
    ),
    Rule(
        "wgmma_stream_k",
        lambda p, c, g, d: (c.stream_waves == 0) | is_countable(p),
        "stream_waves={c.stream_waves}: of s8 it takes K={p.k} up to 131072",
    ),
    Rule(
        "wgmma_promotion_buffers",
        lambda p, c, g, d: (
            (c.promotion_buffers == 1)
            | g.math.promotes
            & np.logical_not(g.math.a_from_registers)
            & (promotion.per_stage(p, c) >= c.promotion_buffers)
            & (promotion.per_stage(p, c) % c.promotion_buffers == 0)
        ),
        "promotion_buffers={c.promotion_buffers} of {p.dtype} in {p.compute} with u={c.u}: it takes two-level sums, an"
        " even number of them in a stage, two at least, and both operands in shared memory",
    ),
    Rule(
        "wgmma_phases",
        lambda p, c, g, d: (
            (im2col(p) is None or not (im2col(p).phases or im2col(p).merged_phases > 1)) | (g.slices == 1)
        ),
        "{g.slices} slices of K: the phases of a strided input gradient have different taps; they take one slice",
    ),
    Rule(
        "wgmma_blocks",
        lambda p, c, g, d: (
            (im2col(p) is None or im2col(p).blocks is None)
            | (c.kg == 1)
            | (c.splitk == SPLIT_LAST_CTA)
            | (c.splitk == SPLIT_DISTRIBUTED)
        ),
        "kg={c.kg}, splitk={c.splitk}: of a weight gradient whose groups share tiles only the blocks of groups are"
        " stored; slices take splitk=last_cta or distributed",
    ),
    Rule(
        "wgmma_interleave_phases",
        lambda p, c, g, d: (c.interleave_phases == 0) | (im2col(p) is not None and im2col(p).images is not None),
        "interleave_phases={c.interleave_phases}: images of phases are interleaved for strided input gradients in NCHW"
        " in two dimensions, with a stride of 2 to 4 along a row, C of two or four bytes per element, no fused"
        " operations, and offsets below 2^31",
    ),
    Rule(
        "wgmma_row_taps",
        lambda p, c, g, d: (
            (c.row_taps == 1)
            | (
                bool(im2col(p) is not None and im2col(p).shares_row_taps)
                & (c.row_taps == (im2col(p).taps_of_row if im2col(p) is not None else 1))
                & (c.u == g.pipeline.unit)
                & (g.slices == 1)
                & (c.stages > 1)
                & (c.tma_rows == 0)
                & (np.where(g.images_x, c.cluster_y, c.cluster_x) == 1)
            )
        ),
        "row_taps={c.row_taps}, u={c.u}, stages={c.stages}, {g.slices} slices of K, cluster_x={c.cluster_x},"
        " cluster_y={c.cluster_y}, tma_rows={c.tma_rows}: row_taps is 1, or the number of taps of a filter row that"
        " are a stride apart, without dilation along it; then u is {g.pipeline.unit}, the channels of a box, there are"
        " one slice and two stages or more, no multicast of images, and tma_rows=0",
    ),
    Rule(
        "wgmma_row_taps_offsets",
        lambda p, c, g, d: (c.row_taps == 1) | _maps_halo(p),
        "row_taps={c.row_taps}, M={p.m}, ldc={p.outputs[0].access.ld}: offsets in C must be below 2^31 elements, and"
        " the corners of an"
        " im2col map include the halo",
    ),
    Rule(
        "wgmma_resident_b",
        lambda p, c, g, d: (
            (c.resident_b == 0) | ((c.persistent == 1) & _loads_b_once(p) & np.logical_not(_realigns(c)))
        ),
        "resident_b=1 with persistent={c.persistent}, operand_path_a={c.operand_path_a},"
        " operand_path_b={c.operand_path_b}: it takes persistent=1, no realigned operand, and one B for all tiles: no"
        " batch, group, weight gradient, phases, bf16 planes, nor images as B",
    ),
    Rule(
        "wgmma_resident_b_stages",
        lambda p, c, g, d: (c.resident_b == 0) | ((g.tiles_n == 1) & (c.stages % g.pipeline.k_iters == 0)),
        "resident_b=1 with {g.tiles_n} tiles along N, stages={c.stages}, {g.pipeline.k_iters} K iterations: it takes"
        " one tile along N, and stages a multiple of the K iterations",
    ),
    Rule(
        "wgmma_pingpong",
        lambda p, c, g, d: (c.pingpong == 0) | ((c.persistent == 1) & (c.math_warpgroups == 2) & (not g.math.promotes)),
        "pingpong=1 needs persistent=1 and math_warpgroups=2, and is not for two-level sums ({p.dtype} in"
        " {p.compute}): while a warpgroup adds, the other one multiplies",
    ),
    Rule(
        "wgmma_bf16x3",
        lambda p, c, g, d: (
            (g.math.planes == 1) | ((g.workspace < WORKSPACE_LIMIT) & ((c.kg == 1) | (c.splitk <= SPLIT_WORKSPACE)))
        ),
        "{p.compute} with splitk={c.splitk} and {g.workspace} bytes of workspace: bf16 planes take less than 2^36"
        " bytes, and exclude splitk=last_cta and distributed, whose workspace must stay cleared",
    ),
    Rule(
        "wgmma_b_once",
        lambda p, c, g, d: (c.l2_evict_first != B_ONCE) | (grouped_rows.jagged(p) == "m"),
        "l2_evict_first={c.l2_evict_first}: b_once takes experts, whose items are rows of A and C",
    ),
    Rule(
        "wgmma_raster_group",
        lambda p, c, g, d: (c.raster_group == 1) | (c.cluster_k == 1),
        "raster_group={c.raster_group} with cluster_k={c.cluster_k}; a cluster along K takes raster_group=1",
    ),
    Rule(
        "wgmma_tma_rows",
        lambda p, c, g, d: (
            (c.tma_rows == 0)
            | (
                (g.x.tile == ROWS)
                & (g.x.extent <= c.tma_rows)
                # the rows of an item are not known before the launch, and of a list neither are its columns
                & ((not grouped(p)) | ((c.transposed_mma == 1) & ("item_rows_output" in p.needs)))
                & (c.tma_rows < ROWS)
                & np.where(g.x.kmajor, c.tma_rows % 8 == 0, (c.tma_rows == 32) | (c.tma_rows == 16))
            )
        ),
        "tma_rows={c.tma_rows} of a tile of {g.x.tile} for an extent of {g.x.extent}; it must cover the extent, be less"
        " than 64, and 16 or 32 if K is not contiguous",
    ),
    Rule(
        "wgmma_epilogue_smem",
        lambda p, c, g, d: _epilogue_smem(p, c, g),
        "epilogue_smem={c.epilogue_smem}, epilogue_subtiles={c.epilogue_subtiles},"
        " epilogue_buffers={c.epilogue_buffers}: C has two bytes per element and is stored in subtiles of a multiple of"
        " 8 (16 with a gated activation) of {g.reduction.owner_columns} columns, not with splitk=workspace, with"
        " store_sums only for one sum each and no other array of C's shape, and with a residual, relu_grad or a gated"
        " activation only if the rows of C are whole 16 bytes that TMA can store, or pixels of a phase",
    ),
    Rule(
        "wgmma_sum_a",
        lambda p, c, g, d: ("sum_a" not in p.needs) | _adds_a(p, c, g),
        "sum_a takes A of f16, bf16 or tf32, summed in f32, as X (transposed_mma=0); with"
        " deterministic=1 also blocks that sum all of K (kg=1, cluster_k=1, stream_waves=0)",
    ),
    Rule(
        "wgmma_sum_columns",
        lambda p, c, g, d: ("sum_columns" not in p.needs) | ((c.kg * c.cluster_k == 1) & (c.stream_waves == 0)),
        "kg={c.kg}, cluster_k={c.cluster_k}, stream_waves={c.stream_waves}: with sum_columns blocks sum all of K; it"
        " takes kg=1, cluster_k=1, stream_waves=0",
    ),
    Rule(
        "wgmma_gated",
        lambda p, c, g, d: ("store_gated" not in p.needs) | (c.transposed_mma == 0),
        "transposed_mma={c.transposed_mma}: a gated activation takes 0: a thread then has adjacent sums",
    ),
    Rule(
        "wgmma_values",
        lambda p, c, g, d: (c.epilogue_smem == 0) | _stages_values(p),
        "epilogue_smem={c.epilogue_smem}: values of sums that are stored through shared memory are all stored, to C of"
        " f16 or bf16",
    ),
    Rule(
        "wgmma_reduced_values",
        lambda p, c, g, d: (
            (not p.sink.shared_tile) | (c.kg == 1) | ((c.splitk > SPLIT_WORKSPACE) & (not p.sink.has_workspace))
        ),
        "kg={c.kg}, splitk={c.splitk}: values that are reduced are those of fragments with all of K; slices take"
        " splitk=last_cta or distributed, and then no reduction of rows nor deterministic groups, which write to a"
        " workspace that must stay cleared",
    ),
    Rule(
        "wgmma_reduced_k",
        lambda p, c, g, d: (not p.sink.shared_tile) | (c.kg > 1) | (p.k > 0),
        "K={p.k}: values that are reduced are those of fragments, which need K above 0",
    ),
    Rule(
        "wgmma_stages",
        lambda p, c, g, d: (
            (c.stages > 1) | ((g.pipeline.k_iters <= g.slices) & (im2col(p) is None or not im2col(p).phases))
        ),
        "stages=1 takes one iteration of u={c.u} per slice of K={p.k}: a stage is freed while the next one is"
        " multiplied",
    ),
    Rule(
        "wgmma_epilogue_aliases_ab",
        lambda p, c, g, d: (
            (c.epilogue_aliases_ab == 0) | ((c.persistent == 0) & (g.epilogue_bytes <= g.pipeline.bytes))
        ),
        "epilogue_aliases_ab=1: {g.epilogue_bytes} bytes of C must fit the {g.pipeline.bytes} of the stages, and"
        " persistent=0",
    ),
    Rule(
        "wgmma_k_iters",
        lambda p, c, g, d: g.slices <= g.pipeline.k_iters,
        "{g.slices} slices; K={p.k} has fewer blocks of u={c.u}",
    ),
    Rule(
        "wgmma_splitk",
        lambda p, c, g, d: _splitk(p, c, g, d),
        "splitk={c.splitk} with {g.blocks} blocks: those of last_cta and distributed wait for each other, so all must"
        " be resident at once on {d.sms} multiprocessors, each cluster in one GPC; of s8 they take K={p.k} up to"
        " 131072; distributed needs cluster_k=1 and several owners of the {g.reduction.groups} groups of 8 columns;"
        " flag_red is not for wgmma; memset_red takes f32 and s32 results",
    ),
)
