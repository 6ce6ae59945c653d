"""The geometry of tca kernels: blocks of 8 warps, which rows share or which share a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.families.tca import layout
from ptxgen.lowering.kernel_problem import KernelProblem

REGISTERS = 64  #: per thread
NONZERO_LIMIT = 1 << 31  #: no matrix with 32-bit row pointers has more nonzeros
RESIDENT = 4  #: blocks per multiprocessor for which ptxas limits registers


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TcaGeometry(Geometry):
    tiles: IntOrColumn  #: tiles of 64 columns


def most_blocks(p: KernelProblem, nnz: Any) -> Any:
    """No launch of a matrix with ``nnz`` nonzeros has more blocks. A row of up to 64 has at most one, a longer one also
    one for each 64."""
    return p.extents.m + nnz // layout.NONZEROS


def geometry(p: KernelProblem, c: Any) -> TcaGeometry:
    """The geometry of ``c`` on ``p``. ``c``: a configuration, or columns of many."""
    none = c.vec_b * 0
    return TcaGeometry(
        threads=none + layout.WARPS * WARP,
        shared=none + layout.SHARED_BYTES,
        registers=none + REGISTERS,
        blocks=none + most_blocks(p, p.extents.nnz),
        tiles=none + ceil_div(p.extents.n, 64),
    )
