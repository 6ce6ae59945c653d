"""The geometry of compressed_tiles kernels.

A block computes 32 rows of C for a slab of columns. Its warps multiply different runs of adjacent tiles of A. A warp
copies each tile, with the rows of B that the tile needs, to a slot of shared memory of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.families.compressed_tiles.axes import OFFSETS
from ptxgen.families.compressed_tiles.layout import COLUMNS, PIECE, ROWS, WORDS, most_pieces
from ptxgen.lowering.kernel_problem import KernelProblem

FIXED_REGISTERS = 68  #: registers per thread besides sums and elements of B
ENOUGH_REGISTERS = 64  #: with this many registers per thread nothing spills, even if more would be useful
MANY_THREADS = 512  #: the most threads of a block for which a thread can have these registers
GROUP = 8  #: columns of the right operand of an MMA instruction


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CompressedTilesGeometry(Geometry):
    slab: IntOrColumn  #: columns of B and C of a block
    slabs: IntOrColumn  #: blocks along N
    slot_bytes: IntOrColumn  #: bytes of a tile and its rows of B in shared memory
    decoded_bytes: IntOrColumn  #: bytes of a warp: a bitmap and addresses of nonzeros, or a tile with all zeros
    tiles: IntOrColumn  #: tiles of A


def copies_b(p: KernelProblem, c: Any) -> Any:
    """True if rows of B are copied to shared memory. Otherwise its 2-byte elements are loaded as fragments."""
    return (p.element.bytes == 4) | (c.vec_b > 1) | (c.vector_b == 1)


def geometry(p: KernelProblem, c: Any) -> CompressedTilesGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    size = p.element.bytes
    slot = (
        most_pieces(size, c.tile_index) * PIECE
        + copies_b(p, c) * COLUMNS * np.where(c.vector_b == 1, 1, c.b_columns) * size
    )
    decoded = np.where(c.tile_index == OFFSETS, ROWS * COLUMNS * size, 8 * WORDS)
    rows, tiles = ceil_div(p.extents.m, ROWS), ceil_div(p.extents.k, COLUMNS)
    slabs = ceil_div(p.extents.n, c.b_columns)
    groups = ceil_div(c.b_columns, GROUP)
    mine = 22 if size == 4 else 12 * groups + (1 - copies_b(p, c)) * 16 * groups
    threads = c.tile_warps * WARP
    least = ENOUGH_REGISTERS + (1 - copies_b(p, c)) * 16 * (groups - 1)
    registers = np.where(threads > MANY_THREADS, least, FIXED_REGISTERS + mine)
    return CompressedTilesGeometry(
        threads=threads,
        shared=c.tile_warps * (c.stages * slot + decoded),
        registers=registers,
        blocks=rows * slabs,
        slab=c.b_columns,
        slabs=slabs,
        slot_bytes=slot,
        decoded_bytes=decoded,
        tiles=rows * tiles,
    )
