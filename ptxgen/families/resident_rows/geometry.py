"""The geometry of kernels with resident rows: a block has ``thread_rows`` rows per thread, and a part of the
columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues

FIXED_REGISTERS = 40  #: registers per thread besides rows, columns, sums and states
FULL = 128  #: a warp appends its queue of selected pairs to the lists when the queue has this many entries
INDEX_BYTES = 4  #: bytes of a row index, and of a column index, in a queue
FIXED_OF_LANES = 20  #: the same for rows that all lanes of a warp have
LIST_REGISTERS = 2  #: registers of a thread for a row's best values: a record
COPY_REGISTERS = 3  #: registers for each element of a tile that a thread copies: its address, and the element


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ResidentRowsGeometry(Geometry):
    rows: IntOrColumn  #: rows of a block
    row_blocks: IntOrColumn  #: blocks for each part of the columns
    copies: IntOrColumn  #: elements of a tile of columns that each thread copies
    part_columns: IntOrColumn  #: columns of a part, a multiple of the columns of a tile
    state_bytes: int  #: bytes of a state of a row


def state_bytes(p: KernelProblem) -> int:
    """The number of bytes of a row's state in the workspace; 0 for a sink without states."""
    if not isinstance(p.sink, RowReduce):
        return 0
    size = sum(type_of(t).bits // 8 for t in p.sink.reduction.types)
    return 1 << (size - 1).bit_length()


def column_lanes(p: KernelProblem) -> int:
    """The number of lanes that have the same rows, and different columns. All lanes of a warp have the rows whose best
    values the warp keeps, one value per lane."""
    return WARP if isinstance(p.sink, RowTop) else 1


def queue_entries(c: Any) -> Any:
    """The number of entries of a warp's queue. It has room for all pairs of the columns that are computed together."""
    return FULL + WARP * c.thread_rows * c.columns_at_once


def queue_bytes(p: KernelProblem, c: Any) -> Any:
    """The number of bytes of a warp's queue; 0 for a sink without a queue."""
    selected = isinstance(p.sink, SelectValues)
    return queue_entries(c) * (p.accumulator.bytes + 2 * INDEX_BYTES) if selected else 0


def geometry(p: KernelProblem, c: Any) -> ResidentRowsGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    words, threads = p.element.bytes // 4, WARP * c.row_warps
    lanes = column_lanes(p)
    rows = threads // lanes * c.thread_rows
    row_blocks = ceil_div(p.m, rows)
    tiles = ceil_div(p.n, c.tile_columns)
    tiles = tiles + (tiles == 0)
    states, copies = state_bytes(p), ceil_div(c.resident_k * c.tile_columns, threads)
    pairs = c.thread_rows * c.columns_at_once
    columns, copied = c.columns_at_once * (4 * words), COPY_REGISTERS * copies
    sums = pairs * (p.accumulator.bytes // 4)
    # best values of rows: a copy, and the sums of a row that may change its records, use registers of bounds again
    again = c.lower_bounds * c.resident_k * c.columns_at_once * words
    used = columns + copied + 2 * sums if lanes == 1 else np.maximum(np.maximum(columns + sums, copied), again)
    return ResidentRowsGeometry(
        threads=threads,
        shared=(c.resident_k + c.lower_bounds) * c.tile_columns * p.element.bytes + c.row_warps * queue_bytes(p, c),
        registers=(FIXED_REGISTERS if lanes == 1 else FIXED_OF_LANES)
        + c.thread_rows * (c.resident_k * words + states // 4 + (1 if lanes == 1 else LIST_REGISTERS))
        + used
        + c.lower_bounds * (c.columns_at_once + 2 * c.thread_rows)
        + (0 if lanes == 1 else (1 - c.lower_bounds) * (2 * c.thread_rows + 8)),  # best values and bounds
        blocks=row_blocks * c.column_parts,
        workspace=c.column_parts * p.m * states,
        rows=rows,
        row_blocks=row_blocks,
        copies=copies,
        part_columns=ceil_div(tiles, c.column_parts) * c.tile_columns,
        state_bytes=states,
    )
