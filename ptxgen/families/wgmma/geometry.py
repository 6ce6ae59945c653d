"""The geometry of wgmma kernels: one warp copies by TMA, warpgroups multiply.

X is the operand on the side of wgmma's 64 rows, Y the other: X is A and Y is B, or the other way round where ``swap``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.config import SPLIT_SHARE, SPLIT_WORKSPACE
from ptxgen.codegen.vectorized import WARP, ceil_div, pick
from ptxgen.families.wgmma import operand_packing
from ptxgen.families.wgmma.bf16x3 import factor_bytes, planes, workspace
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

ROWS = 64  #: rows of one wgmma
STEP = 32  #: bytes of K of one wgmma
COLUMNS = 8  #: columns of the smallest wgmma: accumulators come in groups of so many
SPAN = 128  #: bytes of the widest swizzle, and of the inner side of a box
ALIGNED = 1024  #: bytes that every tile in shared memory starts at a multiple of: the widest swizzle's pattern
WARPGROUP = 4 * WARP
MOST_OWNERS = 16  #: blocks that may share out the finishing of a tile
#: registers a thread beside the accumulators, as ptxas needs them; where operands are shifted, what is moved at once at
#: the most, and more
OTHERS, MOVED, MOVING = 38, 32, 24
#: of X in registers: 32-bit registers of 64 rows and one step, and buffers of them
FRAGMENT, FRAGMENTS = 4, 2
#: registers a thread where two warpgroups multiply, of a multiprocessor with 65536: as all have the same, and as the
#: warps that copy keep few, and the others take what those leave; the same where both have much else to hold
SAME, KEEPS, TAKES = 168, 40, 232
KEEPS_MORE, TAKES_LESS = 48, 224
#: blocks of clusters of so many that a Hopper of 132 multiprocessors runs at once, one a multiprocessor: its clusters
#: are of one GPC, and GPCs have 16 or 18. Counted on an H200
TOGETHER = {1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 8: 120}


def together(d: Device, c: Any) -> Any:
    """Blocks that run at once, one a multiprocessor, in clusters as ``c`` has them."""
    cluster = c.cluster_x * c.cluster_y * c.cluster_k
    whole = d.sms // cluster * cluster
    if d.sms != TOGETHER[1]:
        return whole
    known = np.zeros(max(TOGETHER) + 1, np.int64)
    known[list(TOGETHER)] = list(TOGETHER.values())
    return np.where(np.isin(cluster, list(TOGETHER)), known[np.minimum(cluster, max(TOGETHER))], whole)


def aligned(size: Any) -> Any:
    return ceil_div(size, ALIGNED) * ALIGNED


def widest(extent: Any, most: int, least: int) -> Any:
    """The widest power of two from ``most`` down to ``least`` that divides ``extent``; 0 if none does."""
    found = np.zeros_like(extent) if isinstance(extent, np.ndarray) else 0
    width = least
    while width <= most:
        found = pick(extent % width == 0, width, found)
        width *= 2
    return found


def widest_unit(p: KernelGemm) -> int:
    """Elements of K, as wide as a swizzle at the most, that one box brings: of windows over images, channels of a tap.
    Wide boxes are worth a quarter more zeros behind the last channel."""
    size = factor_bytes(p)
    if p.im2col is None or p.im2col.summed:
        return SPAN // size
    widths = [w // size for w in (SPAN, SPAN // 2, STEP)]
    padded = [ceil_div(p.im2col.channels, w) * w for w in widths]
    return next(w for w, n in zip(widths, padded, strict=True) if 4 * n <= 5 * min(padded))


def unit(p: KernelGemm, c: Any) -> Any:
    """What one box of ``c`` brings."""
    return np.minimum(c.u, widest_unit(p))


def length(p: KernelGemm, c: Any) -> Any:
    """K as stages count it: of windows over images, each tap's channels fill whole units."""
    if p.im2col is None or p.im2col.summed:
        return p.k
    return p.im2col.tapped * ceil_div(p.im2col.channels, np.maximum(unit(p, c), 1)) * unit(p, c)


def along(p: KernelGemm, extent: Any) -> Any:
    """What boxes must divide where K is not contiguous: a tile, and of images a tap's channels."""
    if p.im2col is None or not p.im2col.summed:
        return extent
    return np.gcd(extent, p.im2col.channels)


def groups_leave(p: KernelGemm, c: Any) -> Any:
    """Whether a thread's results of 8 bits may leave with those of its neighbours, 8 columns each."""
    matrix = p.im2col is None or p.im2col.result is None
    return (
        matrix & (p.output.bytes == 1) & (c.transposed_mma == 0) & (c.epilogue_smem == 0) & (c.nl % (4 * COLUMNS) == 0)
    )


def owners(groups: Any, blocks: Any) -> Any:
    """How many of ``blocks`` that split K finish a tile of so many groups of columns: each an equal share."""
    found = np.ones_like(groups) if isinstance(groups, np.ndarray) else 1
    for n in range(2, MOST_OWNERS + 1):
        found = pick((n <= blocks) & (groups % n == 0), n, found)
    return found


def batch(sums: Any) -> Any:
    """Groups of another slice's sums that a thread with so many accumulators reads at once."""
    return pick(sums <= 64, 16, 8)


def kmajor(p: KernelGemm, c: Any) -> tuple[Any, Any]:
    """Whether K is contiguous in what is multiplied of A and of B."""
    layout = p.im2col.layout if p.im2col is not None else p.layout
    a, b = layout[0] == "N" or planes(p) > 1, layout[1] == "T" or planes(p) > 1
    return a | (operand_packing.copied(c, "a") & operand_packing.turns(p, "a")), b | (
        operand_packing.copied(c, "b") & operand_packing.turns(p, "b")
    )


def from_registers(p: KernelGemm, c: Any) -> Any:
    """Whether X must come from registers: wgmma reads elements of one or four bytes from shared memory only where K is
    contiguous."""
    a, b = kmajor(p, c)
    return (factor_bytes(p) != 2) & np.logical_not(pick(c.transposed_mma == 1, b, a))


def _epilogue_regs(p: KernelGemm, c: Any, sums: Any, moves: Any) -> Any:
    """Registers that an epilogue takes beyond, where ptxas was seen to: it reads what lies along the sides of a tile
    early, and has little room beside 192 sums."""
    staged, apart = c.epilogue_smem == 1, p.im2col is not None and p.im2col.result is not None
    epilogue_regs = pick(
        (moves > 0) & (c.math_warpgroups == 1), 16, pick(staged & apart & (c.transposed_mma == 1) & (sums >= 176), 8, 0)
    )
    epilogue_regs = np.maximum(epilogue_regs, pick((c.kg > 1) & (c.splitk == SPLIT_SHARE) & (sums >= 160), 10, 0))
    epilogue_regs = np.maximum(epilogue_regs, pick(groups_leave(p, c) & (c.vec_c >= COLUMNS) & (sums >= 128), 4, 0))
    if not p.epilogue_ops:
        return epilogue_regs
    scaled, wide, direct = "scale_rows" in p.epilogue_ops, p.output.bytes == 4, np.logical_not(staged)
    vectors = scaled or "bias_row" in p.epilogue_ops or "bias_column" in p.epilogue_ops
    along_x = pick(c.transposed_mma == 1, "bias_column" in p.epilogue_ops, "bias_row" in p.epilogue_ops)
    reads, long = vectors or "residual" in p.epilogue_ops, "gelu" in p.epilogue_ops or "silu" in p.epilogue_ops
    epilogue_regs = np.maximum(epilogue_regs, pick(direct & (p.output.bytes == 1) & (sums <= 128), 12, 0))
    epilogue_regs = np.maximum(
        epilogue_regs, pick(direct & reads, pick(scaled & (sums > 128), 20, pick(sums <= 128, 12, 3)), 2)
    )
    epilogue_regs = np.maximum(
        epilogue_regs, pick(staged & (reads | long), pick(sums <= 128, 28, pick(reads, 20, 0)), 0)
    )
    tiny = staged & vectors & (p.element.bytes == 1)
    epilogue_regs = np.maximum(
        epilogue_regs, pick(sums >= 192, pick(scaled | (direct & wide) | along_x | tiny, 26, 3), 0)
    )
    shared = (c.cluster_y > 1) & (sums >= 128) & (scaled & wide & direct | ("residual" in p.epilogue_ops))
    epilogue_regs = np.maximum(epilogue_regs, pick(shared, 28, 0))
    epilogue_regs = np.maximum(epilogue_regs, pick(moves > 0, 8, 0))
    return np.maximum(epilogue_regs, pick(along_x, 35, 0)) if scaled else epilogue_regs


def _lying(kmajor: Any, tile: Any, u: Any, size: int) -> Any:
    """Bytes of a stage's part of an operand that comes as it lies."""
    lines, width = pick(kmajor, tile, u), pick(kmajor, u, tile)
    return aligned(operand_packing.RESIDUES * operand_packing.lying(lines, width, size))


def _moves(kmajor: Any, tile: Any, u: Any, box: Any, movers: Any) -> Any:
    """How often each of ``movers`` threads then shifts 16 bytes."""
    lines, width = pick(kmajor, tile, u), pick(kmajor, u, tile)
    across = movers // np.maximum(box // COLUMNS, 1)
    return width // np.maximum(box, 1) * ceil_div(lines, np.maximum(across, 1))


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles, shared memory and registers of ``c`` on ``p``. Sizes in bytes, registers in 32-bit words.

    ``unit``: elements of K that one box brings at the most, ``k``: K in whole units, ``passes``: stages that fill,
    ``image_boxes``: boxes of images side by side, where K runs over their pixels. ``x_tile``, ``y_tile``: extents of
    the block's tile; ``a_from_registers``: wgmma reads X from registers; ``gives``: warps that copy give registers
    to those that multiply, ``keeps``, ``takes``: what each then has; ``mi``: instructions a warpgroup stacks along X;
    ``x_box``, ``y_box``: inner extents of the boxes that TMA brings; ``x_rows``: rows of X that are loaded,
    ``x_share``: by one block, or its part of a stage's depth where K is not contiguous; ``share``: columns of Y that
    one block loads,
    ``finish``: that one block finishes; ``barriers``: bytes of them; ``planes``: of each operand, all of them K-major;
    ``mainloop_regs``: registers of the main loop, ``epilogue_regs``: registers that the epilogue takes beyond.
    """
    size, out, count = factor_bytes(p), p.output.bytes, planes(p)
    x_tile, y_tile = pick(c.transposed_mma == 1, c.nl, c.ml), pick(c.transposed_mma == 1, c.ml, c.nl)
    a_kmajor, b_kmajor = kmajor(p, c)
    x_kmajor, y_kmajor = (
        pick(c.transposed_mma == 1, b_kmajor, a_kmajor),
        pick(c.transposed_mma == 1, a_kmajor, b_kmajor),
    )
    x_extent, y_extent = pick(c.transposed_mma == 1, p.n, p.m), pick(c.transposed_mma == 1, p.m, p.n)
    a_from_registers, depth, k = from_registers(p, c), unit(p, c), length(p, c)
    share = y_tile // np.maximum(c.cluster_x, 1)
    x_box = pick(x_kmajor, depth, pick(c.tma_rows > 0, c.tma_rows, min(ROWS, SPAN // size)))
    y_box = pick(y_kmajor, depth, widest(along(p, share), SPAN // size, COLUMNS))
    x_loaded = pick(c.tma_rows > 0, c.tma_rows, x_tile)
    x_share = pick(x_kmajor, x_loaded, c.u) // np.maximum(c.cluster_y, 1)
    x_bytes = aligned(pick(x_kmajor, x_tile, x_loaded) * c.u * size * count)
    y_bytes = aligned(y_tile * c.u * size * count)
    lies_a, lies_b = operand_packing.lies(c, "a"), operand_packing.lies(c, "b")
    x_lies, y_lies = pick(c.transposed_mma == 1, lies_b, lies_a), pick(c.transposed_mma == 1, lies_a, lies_b)
    x_bytes = pick(x_lies, _lying(x_kmajor, x_tile, c.u, size), x_bytes)
    y_bytes = pick(y_lies, _lying(y_kmajor, y_tile, c.u, size), y_bytes)
    movers = WARPGROUP * pick(c.pingpong == 1, 1, np.maximum(c.math_warpgroups, 1))
    x_moves = pick(x_lies, _moves(x_kmajor, x_tile, c.u, x_box, movers), 0)
    y_moves = pick(y_lies, _moves(y_kmajor, y_tile, c.u, y_box, movers), 0)
    groups = y_tile // COLUMNS
    by_cluster = owners(groups, c.cluster_k)
    own = pick((c.kg > 1) & (c.splitk == SPLIT_SHARE), owners(groups, c.kg), by_cluster)
    finish = y_tile // own
    alone = (c.cluster_k > 1) & (by_cluster == 1)
    added = pick(c.cluster_k > 1, (c.cluster_k - alone) * x_tile * finish * 4, 0)
    mi = x_tile // ROWS // pick(c.pingpong == 1, 1, np.maximum(c.math_warpgroups, 1))
    staged = pick(
        c.epilogue_smem == 1,
        c.math_warpgroups * mi * ROWS * (finish // np.maximum(c.epilogue_subtiles, 1)) * out * c.epilogue_buffers,
        0,
    )
    ring = c.stages * (x_bytes + y_bytes)
    barriers = (
        16 * c.stages
        + 8
        + 8 * c.math_warpgroups
        + 8 * c.math_warpgroups * c.epilogue_buffers * (c.epilogue_smem == 1) * ("residual" in p.epilogue_ops)
    )
    tiles_m, tiles_n = ceil_div(p.m, np.maximum(c.ml, 1)), ceil_div(p.n, np.maximum(c.nl, 1))
    tiles_x, tiles_y = pick(c.transposed_mma == 1, tiles_n, tiles_m), pick(c.transposed_mma == 1, tiles_m, tiles_n)
    passes = np.maximum(ceil_div(k, np.maximum(c.u, 1)), 1)
    slices = np.maximum(c.kg * c.cluster_k, 1)
    lined = ceil_div(tiles_x, np.maximum(c.cluster_x, 1)) * c.cluster_x
    blocks = lined * ceil_div(tiles_y, np.maximum(c.cluster_y, 1)) * c.cluster_y * slices * p.batch
    part = x_tile * finish * 4
    sums, meets = mi * y_tile // 2, (c.kg > 1) & (c.splitk > SPLIT_WORKSPACE)
    # sums of a pass are added to those of all passes; f16 sums are widened in the end
    mainloop_regs = sums * 2 if count > 1 else sums + sums // 2 if p.accumulator.bytes == 2 else sums
    mainloop_regs = (
        mainloop_regs
        + OTHERS
        + pick(meets, 4 * batch(sums), 0)
        + pick(a_from_registers, FRAGMENTS * FRAGMENT * mi + 8, 0)
    )
    mainloop_regs = mainloop_regs + pick(x_moves + y_moves > 0, np.minimum(4 * (x_moves + y_moves), MOVED) + MOVING, 0)
    images_x = (c.transposed_mma == 1) == (p.im2col is not None and p.im2col.side == "b")
    epilogue_regs = _epilogue_regs(p, c, sums, x_moves + y_moves)
    gives = (c.math_warpgroups == 2) & (c.min_ctas_per_sm == 1) & (mainloop_regs + epilogue_regs > SAME)
    less = (a_from_registers | bool(p.epilogue_ops)) & (mainloop_regs + epilogue_regs <= TAKES_LESS)
    return SimpleNamespace(
        size=size,
        planes=count,
        x_tile=x_tile,
        y_tile=y_tile,
        x_kmajor=x_kmajor,
        y_kmajor=y_kmajor,
        x_extent=x_extent,
        y_extent=y_extent,
        x_box=x_box,
        y_box=y_box,
        x_rows=x_loaded,
        x_share=x_share,
        x_bytes=x_bytes,
        y_bytes=y_bytes,
        stage=x_bytes + y_bytes,
        ring=ring,
        share=share,
        groups=groups,
        own=own,
        finish=finish,
        alone=alone,
        added_used=added,
        added=aligned(added),
        staged=aligned(staged),
        mi=mi,
        x_lies=x_lies,
        y_lies=y_lies,
        moves=x_moves + y_moves,
        a_from_registers=a_from_registers,
        gives=gives,
        keeps=pick(less, KEEPS_MORE, KEEPS),
        takes=pick(less, TAKES_LESS, TAKES),
        image_boxes=pick(images_x, x_tile // np.maximum(x_box, 1), share // np.maximum(y_box, 1)),
        threads=WARPGROUP * c.math_warpgroups + pick(gives, WARPGROUP, WARP),
        mainloop_regs=mainloop_regs,
        epilogue_regs=epilogue_regs,
        registers=pick(gives, SAME, mainloop_regs),
        shared=ring + aligned(added) + pick(c.epilogue_aliases_ab == 1, 0, aligned(staged)) + barriers,
        sums=sums,
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        tiles=tiles_m * tiles_n * p.batch,
        tiles_x=tiles_x,
        tiles_y=tiles_y,
        unit=depth,
        k=k,
        passes=passes,
        chunk=ceil_div(passes, slices) * c.u,
        slices=slices,
        blocks=blocks,
        part=part,
        copies=operand_packing.workspace(p, c),
        workspace=workspace(p)
        + operand_packing.workspace(p, c)
        + pick(
            c.kg > 1,
            pick(
                c.splitk == SPLIT_WORKSPACE, c.kg * p.results * 4, blocks * part * pick(c.splitk == SPLIT_SHARE, own, 1)
            ),
            0,
        ),
        gathers=c.epilogue_smem == 1,
        sum_bytes=4,
        row_c=c.nl,
        barriers=barriers,
    )
