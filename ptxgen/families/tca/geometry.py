"""The geometry of tca kernels: blocks of 8 warps, which rows share or which share a row."""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.tca import layout
from ptxgen.lowering.kernel_problem import KernelProblem

REGISTERS = 64  #: per thread
RESIDENT = 4  #: blocks per multiprocessor for which ptxas limits registers


def most_blocks(p: KernelProblem) -> Any:
    """No launch has more blocks. A row of up to 64 nonzeros has at most one, a longer one also one for each 64."""
    return p.extents.m + p.extents.nnz // layout.NONZEROS


def geometry(p: KernelProblem, c: Any) -> Geometry:
    """The geometry of ``c`` on ``p``. ``c``: a configuration, or columns of many."""
    none = c.vec_b * 0
    return Geometry(
        threads=none + layout.WARPS * WARP,
        shared=none + layout.SHARED_BYTES,
        registers=none + REGISTERS,
        blocks=none + most_blocks(p),
    )
