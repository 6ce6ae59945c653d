"""Geometry: the numbers of a kernel that follow from a problem and a configuration, common to all families.

Every number is an integer of one configuration, or a NumPy column with a row for each of many configurations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.vectorized import BoolOrColumn, IntOrColumn
from ptxgen.lowering.kernel_problem import KernelProblem

GROUPED_SHARED = 16  #: bytes of shared memory for the number of the next tile and a tile's counter in kernels of groups
GROUPED_REGISTERS = 8  #: registers that their loop over tiles adds


def accumulator_bytes(p: KernelProblem) -> int:
    """The number of bytes of an accumulator in shared memory and in the workspace."""
    return max(4, p.accumulator.bytes)


def stores_via_smem(p: KernelProblem, c: Any) -> Any:
    """True if the epilogue of a kernel whose warps all copy and multiply stores C through shared memory."""
    return (c.epilogue_smem == 1) | (c.kl > 1) | p.sink.shared_tile


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Geometry:
    """Threads, shared memory, registers and blocks of a kernel. A family's geometry adds its own numbers."""

    threads: IntOrColumn  #: threads per block
    shared: IntOrColumn  #: bytes of shared memory per block
    registers: IntOrColumn  #: 32-bit registers per thread, an upper estimate
    shares_registers: BoolOrColumn = False  #: True if warps give registers to others: loops add none
    reg_margin: IntOrColumn = 0  #: 32-bit registers per thread that stay free below the limit
    blocks: IntOrColumn  #: blocks of the launch
    workspace: IntOrColumn = 0  #: bytes of global workspace


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TileGeometry(Geometry):
    """The geometry of kernels whose blocks compute tiles of C, with slices of K."""

    tiles_m: IntOrColumn  #: tiles of C along M
    tiles_n: IntOrColumn  #: tiles of C along N
    tiles: IntOrColumn  #: tiles of C of all batch items
    slice_k: IntOrColumn  #: elements of K per slice
    slices: IntOrColumn  #: slices of K that are not empty
    c_via_smem: BoolOrColumn  #: True if the epilogue stores C through shared memory
    c_row_pitch: IntOrColumn  #: elements from one row of C to the next in shared memory
    sum_bytes: int  #: bytes of an accumulator in shared memory and in the workspace
    stores_boxes: BoolOrColumn = False  #: True if C is stored in boxes, which have pairs of columns for any vec_c


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class OperandGeometry:
    """Numbers of the global loads of A or B by one block."""

    loads: IntOrColumn  #: global loads per K iteration, of all threads of the block


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ThreadLoadGeometry(TileGeometry):
    """The geometry of kernels whose threads load A and B themselves."""

    a: OperandGeometry
    b: OperandGeometry
    uk: IntOrColumn  #: elements of K that a thread multiplies per K iteration


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MultistageGeometry(ThreadLoadGeometry):
    """The geometry of kernels with a pipeline of stages in shared memory that all warps load and multiply."""

    bytes: int  #: bytes of an element of A and B in shared memory
    group: IntOrColumn  #: threads per thread group; a block has ``kl`` groups, which split K
    stage_bytes: IntOrColumn  #: bytes of a stage of A and B
    part_m: IntOrColumn  #: rows of the smallest part of a tile that a loop of a grouped kernel multiplies
    part_n: IntOrColumn  #: columns of the smallest such part
