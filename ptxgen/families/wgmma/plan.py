"""The plan of a wgmma kernel, composed of loads, operand paths, packing, main loop, pipeline, reductions, epilogue and
tile scheduler."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import chain

from ptxgen.codegen.config.config import PDL_WITHIN, Config, packs
from ptxgen.codegen.grouped.descriptor_table import DescriptorTable
from ptxgen.codegen.grouped.jagged_table import JaggedTable
from ptxgen.codegen.grouped.listed_tiles import TileList
from ptxgen.codegen.grouped.packed_table import PACKED, PackedTable
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.launches.sink_kernels import AggregateKernels
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.pdl import Pdl
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.source import Launch
from ptxgen.families.wgmma import bf16x3, grouped_rows
from ptxgen.families.wgmma.c_runs import RunAddressing
from ptxgen.families.wgmma.conv.im2col_loads import Im2colLoads
from ptxgen.families.wgmma.conv.phase_images import PhaseInterleaving, stores_by_phase
from ptxgen.families.wgmma.conv.phases import MergedPhaseScheduler, PhaseBatch, PhasedLoads, PhaseScheduler
from ptxgen.families.wgmma.conv.row_taps import RowTapLoads, with_row_taps
from ptxgen.families.wgmma.conv.tiled_images import TiledLoads, TiledPhasedLoads
from ptxgen.families.wgmma.conv.tiled_wgrad import TiledWgradLoads, unpacked
from ptxgen.families.wgmma.conv.wgrad_loads import ImageWgradLoads, WgradLoads
from ptxgen.families.wgmma.geometry import COLUMNS, WgmmaGeometry, adjacent_rows, ones_bytes
from ptxgen.families.wgmma.grouped.loads import GroupedLoads, PackedItemLoads
from ptxgen.families.wgmma.grouped.scheduler import GroupedTileScheduler
from ptxgen.families.wgmma.grouped_rows import matrices_of_experts, packed_block, packs_items
from ptxgen.families.wgmma.layout import Multicast, OperandPath
from ptxgen.families.wgmma.matrix.block_scales import BlockScales, NoScales
from ptxgen.families.wgmma.matrix.epilogue import Epilogue, c_barriers, takes_fragments
from ptxgen.families.wgmma.matrix.fragment_groups import FragmentGroups
from ptxgen.families.wgmma.matrix.fragment_lists import FragmentLists
from ptxgen.families.wgmma.matrix.fragment_states import (
    WARPS,
    FragmentColumnSums,
    FragmentReduceKernels,
    FragmentStates,
)
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT, FragmentValues
from ptxgen.families.wgmma.matrix.listed_scheduler import ListedTileScheduler
from ptxgen.families.wgmma.matrix.loads import MatrixLoads
from ptxgen.families.wgmma.matrix.mainloop import Mainloop, Pipeline, WeightStep
from ptxgen.families.wgmma.matrix.operand_sums import FragmentRowSums
from ptxgen.families.wgmma.matrix.parameters import MEANINGS, TmaParameters
from ptxgen.families.wgmma.matrix.quantized_weights import FragmentScales, GroupScales, QuantizedLoads
from ptxgen.families.wgmma.matrix.reduction import ClusterReduction, SplitKFixup
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler, cluster_tile
from ptxgen.families.wgmma.matrix.stream_scheduler import StreamFixup, StreamTileScheduler
from ptxgen.families.wgmma.matrix.tensor_batch import TensorBatch
from ptxgen.families.wgmma.operand_packing import TMA_ALIGNED, realigns
from ptxgen.families.wgmma.packing.experts import ExpertPacking
from ptxgen.families.wgmma.packing.images import ImagePacking
from ptxgen.families.wgmma.packing.items import ItemPacking, ListPacking
from ptxgen.families.wgmma.packing.rows import RowPacking
from ptxgen.families.wgmma.packing.split_bf16x3 import SplitPacking
from ptxgen.lowering.aggregate import Aggregate
from ptxgen.lowering.block_scales import block_scaled, scales_of
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import quantized_rows
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.sink import SelectValues, StoreTile, ValueSink


def as_computed(p: KernelProblem, c: Config) -> KernelProblem:
    """The problem that the main kernel computes, whose C or pixels may differ from those of ``p``."""
    return unpacked(with_row_taps(stores_by_phase(p, c), c), c)


class WgmmaPlan(Plan):
    """The plan: one warp loads stages by TMA, and math warpgroups multiply; a warpgroup has 64-row tiles of C in
    registers."""

    kernel = "kernel/warp_specialized.mako"
    geometry: WgmmaGeometry
    shared_alignment = 1024

    def _compose(self) -> None:
        c, g = self.config, self.geometry
        self.problem = p = as_computed(self.problem, c)
        self.target = f"{self.device.target}a"
        if grouped(p):  # the kernel starts while another one makes its descriptor table
            self.pdl = Pdl(c.replace(pdl=PDL_WITHIN))
        names = "ba" if c.transposed_mma else "ab"
        self.batch: TensorBatch = self._batch(names)
        ops = "epilogue/fused_ops_subtile.mako" if c.epilogue_smem else "epilogue/fused_ops.mako"
        self.fused_ops = FusedOps.of(p, p.batch != 1, self.device.sm, ops)
        self.scheduler: TileScheduler = self._scheduler()
        self.packing: Packing = self._packing()
        loads = self._loads()
        multicast_x, multicast_y = Multicast.of(c.cluster_x, c.cluster_y)
        self.x = loads.operand("x", names[0], 0, multicast_x)
        self.y = loads.operand("y", names[1], int(g.x.bytes), multicast_y)
        self.mainloop: Mainloop = Mainloop(p, c, g, self.x, self.y, self.arithmetic)
        m, s = self.mainloop, self.scheduler
        self.scales: BlockScales | GroupScales | NoScales = NoScales()
        if block_scaled(p):
            item = "%batch_index" if self.batch.active else ""
            table = s.table if isinstance(s, GroupedTileScheduler) else None
            self.scales = BlockScales(p, m, s.x_extent, s.y_extent, item, table)
        weights = quantized_rows(p)
        if weights is not None:
            scales, item = FragmentScales if weights.rounded else GroupScales, "%item" if grouped(p) else ""
            self.scales = scales(weights, m.mi, s.x_extent, item, c.u, m.acc, m.wgmma_acc)
        self.cluster_reduction = ClusterReduction(c, g, m)
        fixup = StreamFixup if c.stream_waves else SplitKFixup
        self.fixup = fixup(c, g, m, self.cluster_reduction, self.scheduler)
        vec = c.vec_c if c.epilogue_smem else min(c.vec_c, self._contiguous)
        self.c = self._c_access(RunAddressing.of(p), vec, preinitialises=True)
        if isinstance(p.sink, ValueSink):
            self._compose_values(p.sink)
        self.epilogue: Epilogue = Epilogue(c, self.arithmetic, self.reduction, self.c, p, g, m, self.fixup.sums)
        if isinstance(p.sink, StoreTile) and p.sink.sums_columns:
            self._compose_column_sums()
        self.pipeline = Pipeline(c, g, m.a_from_registers, m.promotes, c_barriers(p, c), ones_bytes(p))
        if "sum_a" in p.needs:
            rows = [(e, m.row_sums[n // 2, 2 * (n % 2)]) for n, e in enumerate(self.epilogue.row_offsets)]
            self.operand_sums = FragmentRowSums(m, self.pipeline.ones, self.epilogue.math_threads, rows, p.dtype)
        self.c_kernels = self._c_kernels(self.scheduler)
        if c.interleave_phases:
            common = (self.reduction, self.arithmetic, self.batch, self.c, self.scheduler)
            self.c_kernels = PhaseInterleaving(self.entry, *common)
        self.loads = loads  # after the reductions: where K is zero, it claims workspace if nothing else does
        self.parameters: TmaParameters = TmaParameters(
            p,
            self.batch,
            self.loads,
            self.x,
            self.y,
            self.epilogue,
            self.scheduler,
            self.packing,
            self.scales,
        )
        self.launcher = self._gemm_launcher(self.scheduler, self.parameters)

    def _compose_values(self, sink: ValueSink) -> None:
        """Sets the parts that compute values of sums, and the parts of the sink."""
        p, c, g, sm = self.problem, self.config, self.geometry, self.device.sm
        mi, transposed = self.mainloop.mi, bool(c.transposed_mma)
        complete, columns = not self.reduction.stores_partials, int(g.reduction.owner_columns) // COLUMNS
        if c.epilogue_smem or (takes_fragments(sink) and complete):
            parts = (p, sm, FRAGMENT, c.ml, c.nl)
            self.values = FragmentValues(*parts, mi=mi, transposed=transposed, skips=not c.listed_tiles)
        else:
            parts = (p, sm, self.c.vec, c.ml, c.nl)
            self.values = ResultValues(*parts, preinitialises=True, skips=not c.listed_tiles)
        if isinstance(sink, RowReduce):
            self.states = FragmentStates(p, sm, 2 * mi, transposed=transposed)
            assert isinstance(self.values, FragmentValues)
            skips = self.values.reachable is not None
            self.sink_kernels = FragmentReduceKernels(p, self.entry, self.states, self.scheduler, g, skips)
        elif isinstance(sink, Aggregate):
            assert isinstance(self.values, FragmentValues)
            self.groups = FragmentGroups(p, sm, self.values, mi, transposed, columns)
            self.sink_kernels = AggregateKernels(p, self.entry, self.groups)
        elif isinstance(sink, SelectValues):
            lists = FragmentLists(p, self.arithmetic.type, mi, columns)
            self.selected = lists if complete else SelectedLists(p)

    def _compose_column_sums(self) -> None:
        """Sets the part that adds the elements of each column of C, and its kernel."""
        p, c, e, transposed = self.problem, self.config, self.epilogue, bool(self.config.transposed_mma)
        columns: list[tuple[int, ...]] = list(e.column_groups)
        if e.via_smem:
            columns = [tuple(column for column, _ in subtile.along_y) for subtile in e.staging.subtiles]
        self.states = FragmentColumnSums(
            p,
            self.device.sm,
            self.c.vec,
            columns=tuple(e.row_offsets if transposed else chain(*columns)),
            distances=(1, 2) if transposed else (4, 8, 16),
            part_rows=0,
            transposed=transposed,
            groups=((),) * len(columns) if transposed else tuple(columns),
            firsts=("%x_first", "%y_first") if e.via_smem else ("%c_x", "%c_y"),
            warps_apart=0 if c.pingpong else WARPS,
        )
        self.sink_kernels = FragmentReduceKernels(p, self.entry, self.states, self.scheduler, self.geometry, False)

    @cached_property
    def column_additions(self) -> list[list[list[tuple[str, int, list[str]]]]]:
        """For each subtile and each of its stmatrix instructions, the additions to sums of columns."""
        assert isinstance(self.states, FragmentColumnSums)
        e, subtiles = self.epilogue, self.epilogue.staging.subtiles
        return [
            [self.states.additions(x, e.results(x, e.has_activation)) for x in subtile.stmatrices]
            for subtile in subtiles
        ]

    @property
    def weight_steps(self) -> list[WeightStep]:
        """The K steps of a stage of quantized weights."""
        assert isinstance(self.scales, GroupScales)
        return self.mainloop.weight_steps(self.scales.offsets)

    @property
    def slice_bases(self) -> tuple[str, str]:
        """The registers with the places in a stage for the slices of X and of Y."""
        y_base = "%y_base" if self.loads.units > 1 and self.y.multicast else "%stage_base"
        return "%x_base" if self.x.multicast else "%stage_base", y_base

    @property
    def fill_registers(self) -> str:
        """The registers that the producer uses to fill a stage."""
        names = ["%stage_base", "%box_smem", "%inner_coord", "%y_slice"]
        names += [base for base in self.slice_bases[1:] if base != "%stage_base"]
        return ", ".join([*names, *(("%x_slice", "%x_base") if self.x.multicast else ())])

    @property
    def skips_tiles(self) -> bool:
        """True if tiles from which no result is taken are neither loaded nor multiplied."""
        sink = self.problem.sink
        if not isinstance(sink, ValueSink) or (sink.has_workspace and not isinstance(sink, RowReduce)):
            return False  # every tile writes to the workspace
        return self.values.reachable is not None

    @property
    def cluster_tile(self) -> list[tuple[str, str, str, int, int, str]]:
        """For i and j: index, register of the extent, side, extent of a tile, tiles of a cluster, register of the
        block's rank in the cluster."""
        s = self.scheduler
        ranks = [m.rank if m is not None else "" for m in (self.y.multicast, self.x.multicast)]
        sides = [("x", s.x_tile, s.cluster_rows, ranks[0]), ("y", s.y_tile, s.cluster_columns, ranks[1])]
        pairs = zip((("i", "M"), ("j", "N")), sides[::-1] if s.transposed else sides, strict=True)
        return [(*index, *side) for index, side in pairs]

    def _launch(self, problem: KernelProblem) -> Launch:
        return super()._launch(as_computed(problem, self.config))

    def _batch(self, names: str) -> TensorBatch:
        p = self.problem
        x = im2col(p)
        if x is not None and x.phases:
            unit = int(self.geometry.pipeline.unit)
            return PhaseBatch(True, names, False, unit, self.config.u, len(x.extents), x.by_phase, x.groups)
        return TensorBatch(p.batch != 1, names, bf16x3.planes(p) > 1)

    def _scheduler(self) -> TileScheduler:
        p, c, g = self.problem, self.config, self.geometry
        if isinstance(self.batch, PhaseBatch):
            return PhaseScheduler(c, g, self.device, True)
        if im2col(p) is not None and im2col(p).merged_phases > 1:
            return MergedPhaseScheduler(c, g, self.device, False)
        if c.stream_waves:
            return StreamTileScheduler(c, g, self.device, False)
        if c.listed_tiles:
            return ListedTileScheduler(c, g, self.device, False)
        if not grouped(p):
            return TileScheduler(c, g, self.device, self.batch.active)
        scales = tuple(scales_of(p, name).array for name in "AB") if block_scaled(p) else ()
        common = (*cluster_tile(c), p.sink.arithmetic)
        if packs_items(p):
            entries = (*p.sink.arrays, *scales, *PACKED)
            table: DescriptorTable = PackedTable(*common, entries, block=packed_block(p))
        else:
            table = DescriptorTable(*common, (*p.sink.arrays, *scales))
        return GroupedTileScheduler(c, g, self.device, False, table, grouped_rows.jagged(p), packs_items(p))

    def _loads(self) -> MatrixLoads:
        p = self.problem
        weights = quantized_rows(p)
        if weights is not None:
            matrices = GroupedLoads if grouped(p) else MatrixLoads
            common = (p, self.config, self.geometry, grouped(p))
            return QuantizedLoads(*common, matrices(*common), weights)
        if packs_items(p):
            return PackedItemLoads(p, self.config, self.geometry, False)
        if grouped(p):
            return GroupedLoads(p, self.config, self.geometry, True)
        if im2col(p) is None:
            return MatrixLoads(p, self.config, self.geometry, self.batch.active)
        if im2col(p).row_taps > 1:
            return RowTapLoads(p, self.config, self.geometry, True)
        if im2col(p).tiled and im2col(p).wgrad:
            return TiledWgradLoads(p, self.config, self.geometry, False)
        if im2col(p).by_image:
            return ImageWgradLoads(p, self.config, self.geometry, False)
        classes = (TiledLoads, TiledPhasedLoads) if im2col(p).tiled else (Im2colLoads, PhasedLoads)
        loads_class = WgradLoads if im2col(p).wgrad else classes[bool(im2col(p).phases)]
        return loads_class(p, self.config, self.geometry, p.batch != 1)

    def _packing(self) -> Packing:
        p, c = self.problem, self.config
        common = (p, self.entry, self.batch)
        if isinstance(self.scheduler, GroupedTileScheduler):
            lists = ItemPacking if self.scheduler.jagged else ListPacking
            table = (lists if packs_items(p) else JaggedTable)(*common, self.scheduler.table)
            if not (packs(c, "a") or packs(c, "b")):
                return table
            matrices = matrices_of_experts(p)
            return ExpertPacking(matrices, self.entry, replace(self.batch, active=True), c, table)
        if c.listed_tiles:
            return TileList(*common, *cluster_tile(c))
        if im2col(p) is not None and any(im2col(p).copies):
            return ImagePacking(*common)
        if im2col(p) is None and bf16x3.planes(p) > 1:
            return SplitPacking(*common)
        if (im2col(p) is None or im2col(p).wgrad) and (packs(c, "a") or packs(c, "b")):
            return RowPacking(*common, c)
        return Packing(*common)

    @property
    def _contiguous(self) -> int:
        """The number of adjacent columns of C that a thread holds in registers."""
        descriptor = im2col(self.problem)
        if descriptor is not None and not descriptor.contiguous_columns:
            return 1
        return 1 if self.config.transposed_mma and not adjacent_rows(self.problem, self.config) else 2

    @property
    def images(self) -> OperandPath:
        """The path of the operand that is the images of a convolution."""
        descriptor = im2col(self.problem)
        assert descriptor is not None
        return self.x if self.x.name == descriptor.side else self.y

    @property
    def directives(self) -> list[str]:
        cluster = []
        if self.pipeline.clustered:
            across, down = self.scheduler.cluster_shape
            cluster = [".explicitcluster", f".reqnctapercluster {across}, {down}, 1"]
        return [*cluster, *super().directives]

    whole_rows = ("C",)  # TMA pads rows of A and B

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        p, c = self.problem, self.config
        whole = bf16x3.planes(p) > 1 or packs_items(p)
        copied = {name: packs(c, name) or realigns(c, name) or whole for name in "ab"}
        a, b = (p.element.bytes if copied[name] else TMA_ALIGNED for name in "ab")
        return a, b, self._stored_bytes

    @property
    def _stored_bytes(self) -> int:
        """The number of bytes of one store to C."""
        e, size = self.epilogue, self.problem.output.bytes
        if e.via_smem and (e.tma or e.vector_rows):
            return TMA_ALIGNED
        if e.runs:
            return 2 * size if e.paired else size
        return size if e.via_smem else self.c.vec * size  # rows of any alignment, in words

    parameter_meanings = MEANINGS

    @property
    def accesses(self) -> str:
        c = f"{self.c.vec} elements"
        if self.epilogue.via_smem:
            c = "boxes of {} x {}".format(*self.epilogue.staging.box) if self.epilogue.tma else "words, a row a warp"
            c = "pairs of elements of many rows" if self.epilogue.runs else c
            c = "16 bytes of many rows" if self.epilogue.vector_rows else c
        a, b = (self.x, self.y) if self.x.name == "a" else (self.y, self.x)
        boxes = f"TMA loads boxes of {self.loads.box_text(a)} elements of A, {self.loads.box_text(b)} of B"
        return f"{boxes}; C is stored in {c}{self.packing.summary}"

    @property
    def reachable_tiles(self) -> str:
        """The template file that skips tiles from which no result is taken."""
        return "sched/reachable_tiles.mako" if self.skips_tiles else "sched/all_tiles.mako"

    @property
    def turns(self) -> str:
        """The template file by which math warpgroups take turns."""
        return "sched/pingpong.mako" if self.config.pingpong else "sched/together.mako"
