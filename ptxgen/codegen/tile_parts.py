"""Functions that compose the common parts of plans in which threads load A and B, and blocks compute tiles of C.

A family calls these functions in their order, and composes its operands, main loop and packing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxgen.codegen.geometry import TileGeometry
from ptxgen.codegen.grouped.jagged_table import BlockTable, JaggedTable
from ptxgen.codegen.grouped.listed_tiles import ListedTiles, TileList
from ptxgen.codegen.grouped.scheduler import GroupedParameters, GroupedScheduler
from ptxgen.codegen.launches.matrix_parameters import MatrixParameters
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.launches.sink_kernels import AggregateKernels, ColumnSumKernels, TileReduceKernels
from ptxgen.codegen.parts.addressing import CAddressing, OperandAddressing
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.column_sums import ColumnSums
from ptxgen.codegen.parts.epilogue import TileEpilogue
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.codegen.parts.scheduler import GridScheduler
from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.parts.stream_tiles import StreamTiles
from ptxgen.codegen.parts.tile_walk import TileWalk
from ptxgen.codegen.plan import Plan
from ptxgen.lowering.aggregate import Aggregate
from ptxgen.lowering.block_scales import item_scales
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import STRIDED
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.sink import SelectValues, StoreTile, ValueSink


def compose_scheduler(plan: Plan, scheduler: GridScheduler | None = None) -> GridScheduler:
    """Sets the parts that precede the operands, and returns the scheduler: ``scheduler``, or the one that the problem
    needs."""
    plan.batch = Batch(plan.problem.batch != 1)
    plan.fused_ops = FusedOps.of(plan.problem, plan.batch.active, plan.device.sm)
    if scheduler is None:
        scheduler = GridScheduler(plan.config, plan.batch.active)
        if grouped(plan.problem):
            scheduler = GroupedScheduler.of(plan.problem, plan.config, plan.geometry, plan.device, plan.registers)
        elif plan.config.listed_tiles:
            scheduler = ListedTiles.of(plan.config, plan.geometry, plan.device, plan.registers)
        elif plan.config.stream_k:
            scheduler = StreamTiles.of(plan.problem, plan.config, plan.geometry, plan.device, plan.registers)
    plan.scheduler = scheduler
    return scheduler


def table_packing(plan: Plan) -> Packing | None:
    """The kernel that writes the descriptor table of a group, if the extents of items are on the device, or the list of
    the tiles of a join; else None."""
    if isinstance(plan.scheduler, ListedTiles):
        return TileList(plan.problem, plan.entry, plan.batch, plan.config.ml, plan.config.nl)
    if not isinstance(plan.scheduler, GroupedScheduler) or "offsets" not in plan.problem.arrays:
        return None
    counts_blocks = bool(item_scales(plan.problem)) and plan.problem.operands[0].access.jagged == "k"
    table = BlockTable if counts_blocks else JaggedTable
    return table(plan.problem, plan.entry, plan.batch, plan.scheduler.table)


def compose_epilogue(plan: Plan, ns: int, contiguous: int, column: Callable[[int], int]) -> None:
    """Sets the epilogue of the multistage schedule. ``ns``: the number of columns of C that a thread holds;
    ``contiguous``: how many of them are adjacent; ``column(j)``: the distance of a thread's column ``j`` from its
    first."""
    geometry = plan.geometry
    assert isinstance(geometry, TileGeometry)
    c, via_smem = plan.config, bool(geometry.c_via_smem)
    vec = c.vec_c if via_smem else min(c.vec_c, contiguous)
    listed = bool(c.listed_tiles)
    addressing = CAddressing(plan.problem.operand("C").access.mode != STRIDED)
    plan.c = plan._c_access(addressing, vec, grouped(plan.problem) or listed or bool(c.stream_k))
    if isinstance(plan.problem.sink, ValueSink):
        parts = (plan.problem, plan.device.sm, plan.c.vec, c.ml, c.nl)
        plan.values = ResultValues(*parts, preinitialises=listed, skips=not listed)
    if isinstance(plan.problem.sink, SelectValues):
        plan.selected = SelectedLists(plan.problem)
    plan.epilogue = TileEpilogue(
        c,
        plan.arithmetic,
        plan.reduction,
        plan.c,
        threads=plan.threads,
        ns=ns,
        columns=[column(j) for j in range(0, ns, plan.c.vec)],
        contiguous=contiguous,
        via_smem=via_smem,
        row_pitch=int(geometry.c_row_pitch),
        aliases_stages=True,
        computes_oob=not via_smem,
        by_rows=grouped(plan.problem),
    )


def compose_sink(plan: Plan, scheduler: GridScheduler) -> None:
    """Sets the parts of a sink that reduces the results of a tile in shared memory, and the sink's kernels."""
    p, sink = plan.problem, plan.problem.sink
    if isinstance(sink, StoreTile) and sink.sums_columns:
        assert isinstance(plan.epilogue, TileEpilogue)
        tile: Any = plan.mainloop
        sums = ColumnSums(
            p,
            plan.device.sm,
            plan.c.vec,
            columns=tuple(plan.epilogue.thread_columns),
            distances=tile.row_distances,
            part_rows=tile.warp_rows,
        )
        plan.states, plan.sink_kernels = sums, ColumnSumKernels(p, plan.entry, sums, scheduler, tile.warp_rows)
    if not sink.shared_tile:
        return
    c = plan.config
    plan.walk = TileWalk(plan.threads, plan.c.vec, c.ml, c.nl)
    if isinstance(sink, RowReduce):
        plan.states = RowStates(p, plan.device.sm, plan.c.vec)
        plan.sink_kernels = TileReduceKernels(p, plan.entry, plan.states, scheduler, plan.reduction, plan.walk)
    elif isinstance(sink, Aggregate):
        plan.groups = GroupReduction(p, plan.device.sm, plan.values)
        plan.sink_kernels = AggregateKernels(p, plan.entry, plan.groups)


def compose_launch(plan: Plan, a: OperandAddressing, b: OperandAddressing, scheduler: GridScheduler) -> None:
    """Sets the auxiliary kernels over C, the parameters and the launcher. All other parts must be set before."""
    plan.c_kernels = plan._c_kernels(scheduler)
    compose_sink(plan, scheduler)
    parameters_class = GroupedParameters if grouped(plan.problem) else MatrixParameters
    plan.parameters = parameters = parameters_class(
        plan.arithmetic, plan.batch, (a, b), plan.c, scheduler, plan.packing
    )
    plan.launcher = plan._gemm_launcher(scheduler, parameters)


def vector_bytes(plan: Plan) -> tuple[int, int, int]:
    """The ``Plan.access_bytes`` of kernels that load vectors of A and B directly, without packing."""
    a, b = (x.element.bytes for x in plan.problem.operands)
    return plan.config.vec_a * a, plan.config.vec_b * b, plan.c.vec * plan.problem.output.bytes
