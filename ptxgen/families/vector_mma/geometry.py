"""The geometry of vector_mma kernels: each warp of a block computes a row window of C for a slab of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.families.common.matrix_instructions import COLUMNS, instruction
from ptxgen.lowering.kernel_problem import KernelProblem

WINDOW = COLUMNS  #: rows of a row window: columns of the right operand of an MMA instruction
GROUPS = WARP // 4  #: groups of 4 lanes of a warp; the lanes of a group load the same columns of different rows of B
FIXED_REGISTERS = 24  #: registers per thread besides sums, loads and addresses


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class VectorMmaGeometry(Geometry):
    slab: IntOrColumn  #: columns of B and C of a block
    slabs: IntOrColumn  #: blocks along N
    elements: IntOrColumn  #: elements that a lane loads of a row of B


def lane_rows(p: KernelProblem) -> int:
    """The number of rows of B that a lane loads for a block of vectors."""
    return instruction(p).k // 4


def geometry(p: KernelProblem, c: Any) -> VectorMmaGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    elements = c.lane_vectors * c.vec_b
    slab = elements * GROUPS
    slabs = ceil_div(p.extents.n, slab)
    rows = lane_rows(p)
    loads = rows * c.lane_vectors * ceil_div(c.vec_b * p.element.bytes, 4)
    in_flight = c.blocks_in_flight * (rows + 2 + 2 * c.columns_ahead + loads)  # indices, values, loads
    return VectorMmaGeometry(
        threads=c.block_windows * WARP,
        shared=c.block_windows * 0,
        registers=FIXED_REGISTERS + 2 * elements + 6 * c.lane_vectors + in_flight,
        blocks=ceil_div(ceil_div(p.extents.m, WINDOW), c.block_windows) * slabs,
        slab=slab,
        slabs=slabs,
        elements=elements,
    )
