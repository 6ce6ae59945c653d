"""The performance model of kernels with resident rows, from the instructions of a pair and waves of blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.vectorized import WARP, float32
from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.families.common import perf_costs
from ptxgen.families.common.perf_blocks import Cells, Floats, Work, resident_blocks
from ptxgen.families.resident_rows.axes import LOAD_BYTES
from ptxgen.families.resident_rows.geometry import ResidentRowsGeometry, column_lanes
from ptxgen.families.resident_rows.sum_bounds import BEST as BEST_SUM
from ptxgen.families.resident_rows.sum_bounds import bound_of
from ptxgen.lowering import step_rate
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues
from ptxgen.lowering.states import POSITIONS
from ptxgen.problem.device import Device

JOINED = 2.0  #: issue slots of a pair besides its steps: its value joins the state of the row
#: issue slots of a pair for the best value of its group of columns, which is compared with the best value of the row
BEST = 1.0
COMPARED = 6.0  #: issue slots of a group of columns for all rows together: branches, and loads of columns to registers
REPLACED = 40.0  #: issue slots of a group of columns that may replace the best value of a lane
EFFICIENCY = 0.8  #: share of the issue slots that steps on registers reach
COPIED = (8.0, 2.0)  #: issue slots of a thread: for a copy of a vector of k, and for each of its elements
CHANGED = 60.0  #: issue slots of a group of columns that may change the records of a row
KEYED, MOVED = 8.0, 30.0  #: issue slots of each column of it for its record, and of a record that enters the row's
SELECTED = 1 / 1000  #: share of the pairs that lists are expected to take
ENTERED = (4.0, 10.0)  #: issue slots for queueing: of each pair in a group with a selected pair, and of a selected pair
TILE = 400.0  #: cycles of a tile of columns besides its pairs: loads and barriers
START = 1500.0  #: cycles of a block for rows of A and states
JOIN_US = 2.0  #: microseconds of the second kernel besides its loads
FEW = 0.25  #: share of issue slots that a scheduler with one warp loses


def step_slots(p: KernelProblem, d: Device) -> float:
    """The number of issue slots of one lane for a step of a pair."""
    instructions = step_rate.instructions(p, d)
    return instructions.issued + instructions.mixed


def keeps_best(p: KernelProblem) -> bool:
    """True if a group of columns is compared with the best value of a row."""
    return isinstance(p.sink, RowReduce) and p.sink.op in POSITIONS


def pair_slots(p: KernelProblem, c: Columns, d: Device) -> Any:
    """The number of issue slots of one lane for a pair, without the rare replacement of a row's best value."""
    pairs, steps = c.thread_rows * c.columns_at_once, c.resident_k * step_slots(p, d)
    steps = steps + sum(v.axis == "j" for v in p.sink.vectors) / c.thread_rows  # their loads
    compared = BEST + COMPARED / pairs
    if isinstance(p.sink, SelectValues):
        count = sum(instructions_by_pipe((p.sink.taken,), d.sm).values())
        queued = WARP * SELECTED * ENTERED[1]
        whole = steps + count + COMPARED / pairs + _reached(pairs) * (count + ENTERED[0]) + queued
        entered = steps + count + ENTERED[0]
    elif isinstance(p.sink, RowTop):
        whole, queued, entered = steps + compared, 0.0, 0.0
    else:
        whole = steps + (compared if keeps_best(p) else JOINED)
        queued, entered = 0.0, steps + JOINED
    often = 0 if follows_best(p) else _reached(c.columns_at_once) * entered + queued
    return np.where(c.lower_bounds, c.resident_k + compared + often, whole)


def _reached(pairs: Any) -> Any:
    """The probability that at least one of ``pairs`` pairs of each lane is selected."""
    return 1 - (1 - SELECTED) ** (WARP * pairs)


def follows_best(p: KernelProblem) -> bool:
    """True if lower bounds of sums are compared with the least sum of the row so far."""
    return bound_of(p) is BEST_SUM


def replaced_slots(p: KernelProblem, c: Columns, d: Device) -> Any:
    """The number of issue slots of one lane for columns that may replace the best value of a row."""
    sums = c.columns_at_once * c.resident_k * step_slots(p, d) if follows_best(p) else 0
    if isinstance(p.sink, RowTop):
        return CHANGED + MOVED + KEYED * c.columns_at_once + np.where(c.lower_bounds, sums, 0)
    return np.where(c.lower_bounds, (REPLACED + sums) * follows_best(p), REPLACED * keeps_best(p))


def work(p: KernelProblem, c: Columns, g: ResidentRowsGeometry, d: Device) -> Work:
    """The cost of a column of a block; ``busy``: cycles of a multiprocessor."""
    reads = (c.resident_k + c.lower_bounds) / c.columns_at_once
    lanes, warps = column_lanes(p), g.threads / WARP
    slots = (c.thread_rows * pair_slots(p, c, d) + reads) / EFFICIENCY
    # lanes that read different columns read all of their bytes
    b = p.operands[1].access
    vec = math.gcd(p.k, b.vec, LOAD_BYTES // p.element.bytes) if b.kmajor else 1
    # with lanes, a block has fewer rows, for which it copies as many columns
    copied = (COPIED[0] / vec + COPIED[1]) * c.resident_k / warps
    slots = slots if lanes == 1 else (np.maximum(slots, c.resident_k + c.lower_bounds) + copied) / lanes
    resident = resident_blocks(c, g, d)
    schedulers = np.minimum(warps * resident / 4, 4)
    idle = 1 + FEW / np.maximum(schedulers, 0.25)
    return Work.of(
        len(c),
        resident=resident,
        busy=slots * warps / perf_costs.ISSUE * idle,
        latency=slots * np.maximum(warps / 4, 1) * 1.3,
        stages=c.tile_columns,
        math=c.columns_at_once * lanes,
        red=c.thread_rows * warps * replaced_slots(p, c, d) / perf_costs.ISSUE,
    )


def replaced_groups(p: KernelProblem, groups: Any) -> Any:
    """The number of groups of columns that replace the best value of a lane of a warp, if columns have no order: the
    n-th group replaces that of a lane with probability 1/n. With ``count`` best values of a row, it changes them with
    probability count/n."""
    values = p.sink.count if isinstance(p.sink, RowTop) else WARP
    return np.minimum(groups, values) + np.float32(values * math.log(2)) * np.log2(np.maximum(groups / values, 1))


def cell(p: KernelProblem, c: Columns, g: ResidentRowsGeometry, d: Device) -> Cells:
    """The columns of a part, the blocks, and the time of the kernel that joins states or of clearing a count."""
    joined = JOIN_US + g.workspace * 2.0 / (d.bandwidth * 1e3 * perf_costs.DRAM)
    none = float32(0)
    return Cells(
        iterations=float32(g.part_columns), blocks=float32(g.blocks), extra=float32(joined), queue=none, c_cost=none
    )


def microseconds(p: KernelProblem, d: Device, w: Work, rows: Any, x: Cells, cell: Any) -> Floats:
    """The predicted microseconds of a launch: waves of blocks, which share the issue slots of a multiprocessor."""
    columns, blocks = x.iterations[cell], x.blocks[cell]
    tiles = columns / np.maximum(w.stages[rows], 1) * np.float32(TILE)
    replaced = replaced_groups(p, columns / np.maximum(w.math[rows], 1)) * w.red[rows]
    sms, resident = np.float32(d.sms), w.resident[rows]
    full = np.floor(blocks / (sms * resident))
    left = np.ceil((blocks - full * sms * resident) / sms)

    def wave(count: Any) -> Any:
        busy = np.maximum(count * w.busy[rows] * columns, w.latency[rows] * columns)
        return busy + count * replaced + tiles + np.float32(START)

    total = full * wave(resident) + np.where(left > 0, wave(left), 0)
    out: Floats = float32(total / np.float32(d.clock) + x.extra[cell] + np.float32(perf_costs.LAUNCH_US))
    return out


__all__ = ["cell", "microseconds", "work"]
