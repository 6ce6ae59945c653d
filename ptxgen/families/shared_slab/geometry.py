"""The geometry of shared_slab kernels.

A lane reads 16 bytes of a row of a tile of B, so ``lanes`` lanes read a row. The 32 / ``lanes`` groups of a warp
multiply different nonzeros of one row of A. Their sums are added when the row's nonzeros in the tile end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.shared_slab.axes import SEVERAL
from ptxgen.lowering.kernel_problem import KernelProblem

FIXED_REGISTERS = 30  #: registers per thread besides loads of tiles
TILE_REGISTERS = 10  #: further registers if there are several tiles
#: registers with which elements of 2 and 8 bytes are multiplied without spills, however many loads are in flight
ENOUGH_REGISTERS = 64


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SharedSlabGeometry(Geometry):
    lanes: IntOrColumn  #: lanes that read a row of a tile
    row_bytes: IntOrColumn  #: bytes of a row of a tile
    tile_bytes: IntOrColumn  #: bytes of a tile
    slabs: IntOrColumn  #: blocks along N


def staged_bytes(p: KernelProblem) -> int:
    """The number of bytes of a staged nonzero: the address of a row of the tile, and the value."""
    return 2 * p.accumulator.bytes


def geometry(p: KernelProblem, c: Any) -> SharedSlabGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    size, wide = p.element.bytes, p.accumulator.bytes
    row_bytes = c.slab_columns * size
    tile_bytes = c.tile_k * row_bytes
    several = c.k_tiles == SEVERAL
    sums = several * c.c_rows * c.slab_columns * wide
    staged = c.block_warps * c.nonzeros_staged * staged_bytes(p)
    registers = FIXED_REGISTERS + c.nonzeros_in_flight * (VECTOR // 4 + 2) + TILE_REGISTERS * several
    if size != 4:
        registers = np.minimum(registers, ENOUGH_REGISTERS)
    registers = registers + 2 * (c.nonzeros_staged // WARP - 1)
    return SharedSlabGeometry(
        threads=c.block_warps * WARP,
        shared=c.tile_buffers * tile_bytes + row_bytes + staged + sums,
        registers=registers,
        blocks=ceil_div(p.extents.m, c.c_rows) * ceil_div(p.extents.n, c.slab_columns),
        lanes=row_bytes // VECTOR,
        row_bytes=row_bytes,
        tile_bytes=tile_bytes,
        slabs=ceil_div(p.extents.n, c.slab_columns),
    )
