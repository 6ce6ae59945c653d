"""What makes a wgmma configuration legal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config import DIRECT, PACK, REALIGN, SPLIT_MEMSET, SPLIT_POLL, SPLIT_SHARE, SPLIT_WORKSPACE
from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import ceil_div, register_cap
from ptxgen.families.wgmma import bf16x3, operand_packing
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, STEP, WARPGROUP, together
from ptxgen.families.wgmma.operand_packing import TMA_ALIGNED, copied, lies, mapped
from ptxgen.lowering.kernel_gemm import KernelGemm

#: numbers of pixels' axes, or units of K, that a thread that copies holds where it keeps few registers
PLACES, UNITS = 9, 4
BOX_LIMIT = 256  #: elements of a side of a box
WORKSPACE_LIMIT = 1 << 36  #: bytes of planes, and what slices leave before them

#: element types -> how their products are summed
TYPES = {
    "f16": ("f32", "f16"),
    "bf16": ("f32",),
    "f32": ("tf32", bf16x3.COMPUTE),
    "e4m3": ("f32",),
    "e5m2": ("f32",),
    "s8": ("s32",),
}


#: by rank: what corners of an im2col map can be, and pixels from a filter's first tap that a copy can name
CORNERS = {4: (-128, 127, 255), 5: (-16, 15, 31)}

COUNTED = (1 << 31) - 1024  #: places and columns, with what a tile has past the last, that kernels divide


def walked(p: KernelGemm) -> bool:
    """Whether an im2col map can walk over the images, and the other operand's rows be whole 16 bytes."""
    x, size = p.im2col, p.element.bytes
    if x is None:
        return True
    least, most, far = CORNERS[x.rank]
    starts = [getattr(p, f"aligned_{name}") for name in "ab" if x.copy(name) is None]
    inside = all(least <= v <= most for v in (*x.lower, *x.upper)) and max(x.reach) <= far and max(x.steps) <= 8
    aligned = all(n * size % TMA_ALIGNED == 0 for n in (*x.pitches, x.row)) and all(n >= TMA_ALIGNED for n in starts)
    counted = 0 < p.k < COUNTED and max(p.m, p.n) < COUNTED
    return counted and bf16x3.planes(p) == 1 and inside and aligned


def _copies(p: KernelGemm, c: Any) -> Any:
    """Whether the operands that are copied are those that have to be, or may be: beside images a matrix that a pass
    transposes."""
    if p.im2col is None:
        return True
    turned = p.im2col.summed and p.im2col.side == "b" and operand_packing.turns(p, "a")
    a, b = operand_packing.walked(p)
    return ((c.operand_path_a == PACK * a) & (c.operand_path_b == PACK * b)) | (
        (c.operand_path_a == PACK) & (c.operand_path_b == DIRECT) & (not (a or b)) & turned
    )


def _lined(p: KernelGemm) -> bool:
    """Whether C has lines of columns side by side, as far from each other."""
    return p.im2col is None or p.im2col.result is None or (p.im2col.beside and len(p.im2col.result[0]) == 1)


def _countable(p: KernelGemm) -> bool:
    """Whether no sum can be the least integer, which stands for one that is not there yet."""
    return not p.accumulator.integer or p.k <= 1 << 17


def _waits(p: KernelGemm, c: Any, g: Any, d: Any) -> Any:
    """Whether slices may wait for each other: all are resident at once, and few, and a sum is told from none."""
    return (g.blocks <= together(d, c)) & (c.kg <= 64) & _countable(p)


def _between(value: Any, least: int, most: int) -> Any:
    return (value >= least) & (value <= most)


RULES = (
    Rule("wgmma_target", lambda p, c, g, d: d.sm == 90, "wgmma runs on sm_90 only; {d.name} is sm_{d.sm}"),
    Rule(
        "wgmma_types",
        lambda p, c, g, d: p.compute in TYPES.get(p.dtype, ()),
        "wgmma takes f32 as tf32 or in planes of bf16, s8 summed in s32, f16, bf16, e4m3 and e5m2 summed in f32,"
        " f16 in f16 too; the problem is {p.dtype}, summed in {p.compute}",
    ),
    Rule(
        "wgmma_major",
        lambda p, c, g, d: (g.size == 2) | g.y_kmajor,
        "layout {p.layout}, transposed_mma={c.transposed_mma}: elements of {g.size} bytes must be contiguous along K in the operand that"
        " is not on the side of the 64 rows",
    ),
    Rule(
        "wgmma_repack",
        lambda p, c, g, d: (
            _copies(p, c)
            & (
                np.logical_not(copied(c, "a") | copied(c, "b"))
                | (
                    (bf16x3.planes(p) == 1)
                    & ((c.kg == 1) | (c.splitk <= SPLIT_WORKSPACE))
                    & (g.copies < operand_packing.LIMIT)
                )
            )
        ),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: wgmma does not pack the bf16 planes of f32; of a"
        " convolution it packs what TMA cannot load; packing excludes splitk=last_cta and distributed; {g.copies} bytes of"
        " copies, at most 2^34",
    ),
    Rule(
        "wgmma_lies",
        lambda p, c, g, d: (
            _between(c.operand_path_a, DIRECT, REALIGN)
            & _between(c.operand_path_b, DIRECT, REALIGN)
            & np.logical_not(lies(c, "a") | lies(c, "b"))
            | (
                _between(c.operand_path_a, DIRECT, REALIGN)
                & _between(c.operand_path_b, DIRECT, REALIGN)
                & (p.element.bytes == 2)
                & (p.im2col is None)
                & (c.stages >= operand_packing.STAGES)
                & (c.cluster_x * c.cluster_y == 1)
                & (c.tma_rows == 0)
                & (c.u < BOX_LIMIT)
                & (np.maximum(c.ml, c.nl) < BOX_LIMIT)
            )
        ),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b}: realign takes elements of two bytes and no"
        " convolution, with cluster_x=1, cluster_y=1, tma_rows=0, stages={c.stages} from 3 on, u={c.u} and sides of a tile below 256",
    ),
    Rule(
        "wgmma_residues",
        lambda p, c, g, d: (
            np.logical_not(lies(c, "a") | lies(c, "b")) | ((p.k >= operand_packing.RESIDUES) & (p.batch == 1))
        ),
        "operand_path_a={c.operand_path_a}, operand_path_b={c.operand_path_b} with K={p.k} and {p.batch} items: realign takes one"
        " product, with K of at least 8",
    ),
    Rule(
        "wgmma_fed",
        lambda p, c, g, d: (
            np.logical_not(g.a_from_registers)
            | ((c.tma_rows == 0) & (c.epilogue_smem == 0) & (c.u * g.size >= 2 * STEP))
        ),
        "X is multiplied from registers (layout {p.layout}, transposed_mma={c.transposed_mma}): that takes tma_rows=0, epilogue_smem=0, and u={c.u}"
        " elements of {g.size} bytes to be 64 bytes or more",
    ),
    Rule(
        "wgmma_images",
        lambda p, c, g, d: walked(p),
        "images {p.im2col}, summed in {p.compute}: TMA takes rows of whole 16 bytes as they are, steps up to 8, and"
        " corners and windows of few pixels",
    ),
    # boxes of Y are no wider than what divides a tap's channels
    Rule(
        "wgmma_columns",
        lambda p, c, g, d: (
            (p.im2col is None)
            or (not p.im2col.summed)
            | ((c.transposed_mma == 1) != (p.im2col.side == "b"))
            | (p.im2col.channels % np.maximum(g.x_box, 1) == 0)
        ),
        "transposed_mma={c.transposed_mma}: the channels of {p.im2col} are no multiple of the {g.x_box} columns of a box",
    ),
    Rule(
        "wgmma_map_a",
        lambda p, c, g, d: copied(c, "a") | lies(c, "a") | mapped(p, "a"),
        "A starts at {p.aligned_a} bytes, lda={p.lda}, strides {p.strides}; TMA needs multiples of 16 bytes, or repack",
    ),
    Rule(
        "wgmma_map_b",
        lambda p, c, g, d: copied(c, "b") | lies(c, "b") | mapped(p, "b"),
        "B starts at {p.aligned_b} bytes, ldb={p.ldb}, strides {p.strides}; TMA needs multiples of 16 bytes, or repack",
    ),
    Rule(
        "wgmma_depth",
        lambda p, c, g, d: (
            (c.u * g.size % STEP == 0)
            & (c.u & (c.u - 1) == 0)
            & (c.u <= (BOX_LIMIT if bf16x3.planes(p) == 1 else bf16x3.PROMOTED))
        ),
        "u={c.u} elements of {g.size} bytes; wgmma takes 32 bytes or a power of two of that, at most 256 elements, of"
        " planes 64",
    ),
    Rule(
        "wgmma_tile_x",
        lambda p, c, g, d: (
            (g.mi >= 1)
            & (g.x_tile == g.mi * ROWS * np.where(c.pingpong == 1, 1, c.math_warpgroups))
            & (g.x_tile <= BOX_LIMIT)
        ),
        "the tile has {g.x_tile} along the side of 64-row instructions; math_warpgroups={c.math_warpgroups} warpgroups need a multiple of 64"
        " each, at most 256",
    ),
    Rule(
        "wgmma_tile_y",
        lambda p, c, g, d: (
            (g.y_tile % COLUMNS == 0)
            & _between(g.y_tile, COLUMNS, BOX_LIMIT)
            & (g.share * c.cluster_x == g.y_tile)
            & (g.share % COLUMNS == 0)
            & (g.y_kmajor | (g.y_box >= 2 * COLUMNS))
            & ((p.dtype != "s8") | (g.y_tile <= 32) | (g.y_tile % 16 == 0))
        ),
        "the tile has {g.y_tile} along the other side; it must be 8 to 256, a multiple of 8 a block of the cluster,"
        " and of 16 where K is not contiguous or s8 has more than 32",
    ),
    Rule(
        "wgmma_accumulators",
        lambda p, c, g, d: g.mi * g.y_tile <= 384,
        "{g.mi} x 64 x {g.y_tile} sums a warpgroup; 384 columns of 64 rows are what its registers hold",
    ),
    # ptxas counts whole warpgroups
    Rule(
        "wgmma_register_file",
        lambda p, c, g, d: (
            g.mainloop_regs + g.epilogue_regs
            <= np.where(
                g.gives, g.takes, register_cap(d, ceil_div(g.threads * c.min_ctas_per_sm, WARPGROUP) * WARPGROUP, 1)
            )
        ),
        "about {g.mainloop_regs} registers a thread, {g.epilogue_regs} more for the epilogue; {g.threads} threads,"
        " min_ctas_per_sm={c.min_ctas_per_sm}, leave fewer",
    ),
    Rule(
        "wgmma_producer",
        lambda p, c, g, d: (
            (p.im2col is None)
            or np.logical_not(g.gives)
            | (
                g.image_boxes * len(p.im2col.extents) <= PLACES
                if p.im2col.summed
                else c.u <= np.where((c.persistent == 1) & (c.cluster_x * c.cluster_y > 1), UNITS // 2, UNITS) * g.unit
            )
        ),
        "{g.image_boxes} boxes of images side by side, units of {g.unit} in u={c.u}: beside so many sums a thread that"
        " copies can hold the places of 4 boxes, or 3 in three dimensions, or 4 units, 2 for a cluster's many tiles",
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
        "cluster_x={c.cluster_x}, cluster_y={c.cluster_y}, cluster_k={c.cluster_k}, dsmem_completion={c.dsmem_completion}: clusters have 1 to 8 blocks, no more than the"
        " {d.sms} multiprocessors, and share operands or split K; dsmem_completion=barrier is for cluster_k above 1",
    ),
    Rule(
        "wgmma_parts_x",
        lambda p, c, g, d: (
            (c.cluster_y == 1)
            | (
                (g.x_share % COLUMNS == 0)
                & np.where(
                    g.x_kmajor,
                    g.x_share * c.cluster_y == g.x_rows,
                    (g.x_share * c.cluster_y == c.u) & (p.im2col is None),
                )
            )
        ),
        "cluster_y={c.cluster_y} blocks load the operand on the 64-row side, each a multiple of 8 of its {g.x_rows} rows, or where K"
        " is not contiguous of the depth u={c.u}, which of images is not parted",
    ),
    Rule(
        "wgmma_persistent",
        lambda p, c, g, d: (c.persistent == 0) | (g.slices == 1),
        "persistent=1 with {g.slices} slices of K; it takes one",
    ),
    Rule(
        "wgmma_pingpong",
        lambda p, c, g, d: (c.pingpong == 0) | ((c.persistent == 1) & (c.math_warpgroups == 2) & (g.planes == 1)),
        "pingpong=1 needs persistent=1 and math_warpgroups=2, and is not for planes, whose warpgroups fill each other's gaps",
    ),
    Rule(
        "wgmma_planes",
        lambda p, c, g, d: (
            (g.planes == 1) | ((g.workspace < WORKSPACE_LIMIT) & ((c.kg == 1) | (c.splitk <= SPLIT_WORKSPACE)))
        ),
        "{p.compute} with splitk={c.splitk} and {g.workspace} bytes of workspace: planes go up to 2^36 bytes, and not"
        " into a workspace that is kept clear (3, 4)",
    ),
    Rule(
        "wgmma_walk",
        lambda p, c, g, d: (c.raster_group == 1) | (c.cluster_k == 1),
        "raster_group={c.raster_group} with cluster_k={c.cluster_k}; a cluster along K takes raster_group=1",
    ),
    Rule(
        "wgmma_rows",
        lambda p, c, g, d: (
            (c.tma_rows == 0)
            | (
                (g.x_tile == ROWS)
                & (g.x_extent <= c.tma_rows)
                & (c.tma_rows < ROWS)
                & np.where(g.x_kmajor, c.tma_rows % 8 == 0, (c.tma_rows == 32) | (c.tma_rows == 16))
            )
        ),
        "tma_rows={c.tma_rows} of a tile of {g.x_tile} are loaded for an extent of {g.x_extent}; it must cover the extent, be"
        " less than 64, and 16 or 32 where K is not contiguous",
    ),
    Rule(
        "wgmma_stage_c",
        lambda p, c, g, d: np.where(
            c.epilogue_smem == 1,
            (p.output.bytes == 2)
            & _lined(p)
            & (operand_packing.boxed(p) | ("residual" not in p.epilogue_ops))
            & (c.epilogue_subtiles >= 1)
            & (c.epilogue_buffers >= 1)
            & (c.epilogue_subtiles % np.maximum(c.epilogue_buffers, 1) == 0)
            & (g.finish % np.maximum(COLUMNS * c.epilogue_subtiles, 1) == 0)
            & ((c.kg == 1) | (c.splitk > SPLIT_WORKSPACE)),
            (c.epilogue_subtiles == 1) & (c.epilogue_buffers == 1) & (c.epilogue_aliases_ab == 0),
        ),
        "epilogue_smem={c.epilogue_smem}, epilogue_subtiles={c.epilogue_subtiles}, epilogue_buffers={c.epilogue_buffers}: a tile leaves through shared memory in chunks of"
        " 8 columns of {g.finish}, two bytes an element, not into a workspace that a pass sums, and with a residual"
        " only where rows of C are whole 16 bytes, which is what TMA stores",
    ),
    Rule(
        "wgmma_stages",
        lambda p, c, g, d: (c.stages > 1) | (g.passes <= g.slices),
        "stages=1 takes one pass of u={c.u} over each slice of K={p.k}: a stage is free once the next is multiplied",
    ),
    Rule(
        "wgmma_reuse",
        lambda p, c, g, d: (c.epilogue_aliases_ab == 0) | ((c.persistent == 0) & (g.staged <= g.ring)),
        "epilogue_aliases_ab=1: {g.staged} bytes of C must fit the {g.ring} of the operands, and persistent=0",
    ),
    Rule(
        "wgmma_passes",
        lambda p, c, g, d: g.slices <= g.passes,
        "{g.slices} slices; K={p.k} has fewer blocks of u={c.u}",
    ),
    Rule(
        "wgmma_meeting",
        lambda p, c, g, d: (
            (c.kg == 1)
            | (c.splitk == SPLIT_WORKSPACE)
            | ((c.splitk == SPLIT_POLL) & _waits(p, c, g, d))
            | ((c.splitk == SPLIT_SHARE) & (c.cluster_k == 1) & (g.own > 1) & _waits(p, c, g, d))
            | ((c.splitk == SPLIT_MEMSET) & (p.out in ("f32", "s32")) & (p.out == "s32" or not p.deterministic))
        ),
        "splitk={c.splitk} with {g.blocks} blocks: those that wait for each other (3, 4) must all be resident at once on"
        " {d.sms} multiprocessors, clusters whole within a GPC; 4 needs cluster_k=1 and several to share {g.groups} groups of"
        " 8 columns, 1 is not for wgmma, 0 is for f32 and s32 results; of s8, K={p.k} is at most 131072 in 3 and 4",
    ),
)
