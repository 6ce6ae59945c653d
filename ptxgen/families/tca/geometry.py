"""The geometry of tca kernels. Blocks have 8 warps; several rows share a block, or the warps share one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.families.tca import layout
from ptxgen.lowering.kernel_problem import KernelProblem

REGISTERS = 64  #: registers per thread
NONZERO_LIMIT = 1 << 31  #: exclusive limit of the nonzeros of a matrix with 32-bit row pointers
RESIDENT = 4  #: blocks per multiprocessor for which ptxas limits registers


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TcaGeometry(Geometry):
    tiles: IntOrColumn  #: tiles of 64 columns


def most_blocks(p: KernelProblem, nnz: Any) -> Any:
    """Upper limit of the blocks of a launch for a matrix with ``nnz`` nonzeros. A row of up to 64 nonzeros has at most
    one block, a longer row has one more for each 64."""
    return p.extents.m + nnz // layout.NONZEROS


def geometry(p: KernelProblem, c: Any) -> TcaGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    none = c.vec_b * 0
    return TcaGeometry(
        threads=none + layout.WARPS * WARP,
        shared=none + layout.SHARED_BYTES,
        registers=none + REGISTERS,
        blocks=none + most_blocks(p, p.extents.nnz),
        tiles=none + ceil_div(p.extents.n, 64),
    )
