"""The geometry of row_split kernels. A block has ``block_groups`` rows of C for a slab of columns; a row has
``nonzero_groups`` groups of ``row_lanes`` lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import IntOrColumn, ceil_div
from ptxgen.lowering.kernel_problem import KernelProblem

FIXED_REGISTERS = 40  #: registers per thread besides sums, loads and addresses


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RowSplitGeometry(Geometry):
    slab: IntOrColumn  #: columns of B and C of a block
    slabs: IntOrColumn  #: blocks along N


def words(n: Any, size: int) -> Any:
    """The number of registers that hold ``n`` elements of ``size`` bytes as in memory."""
    return ceil_div(n * size, 4)


def geometry(p: KernelProblem, c: Any) -> RowSplitGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    elements = c.lane_vectors * c.vec_b
    slab = elements * c.row_lanes
    slabs = ceil_div(p.extents.n, slab)
    size, sums = p.element.bytes, p.accumulator.bytes // 4
    nonzero = 1 + sums + c.lane_vectors * words(c.vec_b, size)  # index, value, loads
    registers = FIXED_REGISTERS + elements * sums + 4 * c.lane_vectors + c.nonzeros_in_flight * nonzero
    return RowSplitGeometry(
        threads=c.block_groups * c.row_lanes * c.nonzero_groups,
        shared=c.row_lanes * 0,
        registers=registers,
        blocks=ceil_div(p.extents.m, c.block_groups) * slabs,
        slab=slab,
        slabs=slabs,
    )
