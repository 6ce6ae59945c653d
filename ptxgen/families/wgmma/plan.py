"""The plan of a wgmma kernel, composed of its parts: loads, operand paths, packing, main loop, pipeline, reductions,
epilogue and tile scheduler."""

from __future__ import annotations

from functools import cached_property

from ptxgen.codegen.plan import BatchRange, Plan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.epilogue import Epilogue, Staging, c_barriers
from ptxgen.families.wgmma.geometry import COLUMNS, WgmmaGeometry, packs_8bit
from ptxgen.families.wgmma.im2col_plan import Im2colLoads, WgradLoads, c_tables, run_layouts
from ptxgen.families.wgmma.layout import Multicast, OperandPath
from ptxgen.families.wgmma.loads import MatrixLoads
from ptxgen.families.wgmma.mainloop import Mainloop, Pipeline
from ptxgen.families.wgmma.operand_packing import packs
from ptxgen.families.wgmma.pack_channels import ChannelPacking
from ptxgen.families.wgmma.pack_rows import RowPacking
from ptxgen.families.wgmma.packing import Packing
from ptxgen.families.wgmma.reduction import ClusterReduction, SplitKFixup
from ptxgen.families.wgmma.scheduler import TileScheduler
from ptxgen.families.wgmma.smem_realign import RealignedOperand, Realignment
from ptxgen.families.wgmma.split_bf16x3 import SplitPacking
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.lowering.kernel_gemm import KernelGemm


class WgmmaPlan(Plan):
    """One warp loads stages by TMA, one or two warpgroups multiply; a warpgroup has 64-row tiles of C in registers."""

    kernel = "kernel/warp_specialized.mako"
    geometry: WgmmaGeometry
    shared_alignment = 1024

    def _set_epilogue(self) -> None:
        super()._set_epilogue()
        if self.problem.im2col is not None and self.problem.im2col.result is not None:
            self.c_addr = "epilogue/c_table.mako"
            self.out_addr = "epilogue/c_strided.mako" if self.reduction.stores_partials else self.c_addr

    def _set_operands(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        self.target = f"{self.device.target}a"
        self.scheduler = TileScheduler(c, g, self.device, self.batched)
        self.loads = self._loads()
        self.packing = self._packing()
        names = "ba" if c.transposed_mma else "ab"
        multicast_x, multicast_y = Multicast.of(c.cluster_x, c.cluster_y)
        self.x = self.loads.operand("x", names[0], 0, multicast_x)
        self.y = self.loads.operand("y", names[1], int(g.x_bytes), multicast_y)
        self._batch_coordinates()
        self.mainloop = Mainloop(p, c, g, self.x, self.y, self.epilogue_type, self.s32_to_f32, self.add)
        m = self.mainloop
        self.pipeline = Pipeline(c, g, m.a_from_registers, m.split, c_barriers(p, c))
        self.cluster_reduction = ClusterReduction(c, g, m)
        self.fixup = SplitKFixup(c, g, m, self.cluster_reduction)

    def _loads(self) -> MatrixLoads:
        p = self.problem
        if p.im2col is None:
            return MatrixLoads(p, self.config, self.geometry, self.batched)
        kind = WgradLoads if p.im2col.summed else Im2colLoads
        return kind(p, self.config, self.geometry, self.batched)

    def _packing(self) -> Packing:
        p, c = self.problem, self.config
        if p.im2col is not None and any(p.im2col.copies):
            return ChannelPacking(p, self.entry, self.batched)
        if p.im2col is None and bf16x3.planes(p) > 1:
            return SplitPacking(p, self.entry, self.batched)
        if (p.im2col is None or p.im2col.summed) and (packs(c, "a") or packs(c, "b")):
            return RowPacking(p, self.entry, self.batched, c)
        return Packing(p, self.entry, self.batched)

    def _batch_coordinates(self) -> None:
        """Batch items are a third direction of the tensors; a tensor that all items share has one of them."""
        operands = [self.x, self.y] if self.batched else []
        #: registers with the coordinate of an item in each tensor, and its last one
        self.item_at = [f"%item_{x.name}" for x in operands]
        self.last_item = [f"%last_{x.name}" for x in operands]
        #: the register that counts items as these tensors do: planes are those of the launch
        self.item_number = "%item" if bf16x3.planes(self.problem) > 1 else "%batch_index"
        for x, register in zip(operands, self.item_at, strict=True):
            x.batch_coordinate, x.tma_rank = register, x.tma_rank + 1

    @property
    def images(self) -> OperandPath:
        """The operand of a convolution that is images."""
        window = self.problem.im2col
        assert window is not None
        return self.x if self.x.name == window.side else self.y

    # ---- epilogue

    @property
    def contiguous(self) -> int:
        window = self.problem.im2col
        if window is not None and not window.beside:
            return 1
        return 1 if self.config.transposed_mma and not self.mainloop.a_from_registers else 2

    def _set_c_access(self) -> None:
        if self.config.epilogue_smem:
            self.store_op = "epilogue/stmatrix_subtiles.mako"
        super()._set_c_access()
        if self.config.epilogue_smem:
            self.fused_ops = "epilogue/fused_ops_subtile.mako" if self.problem.epilogue else "epilogue/identity.mako"

    def _set_c_staging(self) -> None:
        c, p, g = self.config, self.problem, self.geometry
        #: four lanes exchange pairs of 8-bit results, so that each stores a whole group of columns
        whole = c.vec_c >= COLUMNS and int(g.owner_columns) % (4 * COLUMNS) == 0
        self.pack_8bit = bool(whole and packs_8bit(p, c) and self.store_op == "epilogue/store.mako")
        self.row = Tile("e", self.epilogue_type, (max(self.vec_c, 1),))
        m = self.mainloop
        self.epilogue = Epilogue(p, c, g, m, self.fixup.sums, self.vec_c, self.out_bytes, self.pack_8bit, self.row)
        self.store_c = self.epilogue.template
        if self.epilogue.runs and not c.epilogue_smem and not self.reduction.stores_partials:
            self.store_c = "epilogue/store_scatter.mako"

    @property
    def preinitialised(self) -> list[tuple[str, str, str]]:
        return [
            (t.kind, r, self.zero if t.kind == self.epilogue_type else "0") for t in self.c_registers for r in t.all
        ]

    # ---- parameters

    @property
    def maps(self) -> list[str]:
        """Names of the tensor maps, in the order of the parameters."""
        return ["map_x", "map_y", *self.epilogue.maps]

    @property
    def realign(self) -> Realignment:
        return self.mainloop.realign

    @property
    def batch_parameters(self) -> list[str]:
        """As other families', but with the last items of tensors A and B in place of their strides."""
        if not self.batched:
            return []
        return [".param .u64 by_c, .param .u32 first_item, .param .u32 items, .param .u32 last_a, .param .u32 last_b,"]

    def _batch_arguments(self, problem: KernelGemm, run: BatchRange) -> tuple[Argument, ...]:
        if not self.batched:
            return ()
        last = [problem.batch - 1 if offset else 0 for offset in problem.offsets[:2]]
        numbers = (run.first, run.items, *last)
        return (("u64", problem.offsets[2]), *(("u32", n) for n in numbers))

    @property
    def c_table_parameters(self) -> list[str]:
        return [".param .u64 rows_c, .param .u64 columns_c,"] if run_layouts(self.problem) else []

    @staticmethod
    def _table_arguments(problem: KernelGemm, operands: str) -> tuple[Argument, ...]:
        if problem.im2col is None or not problem.im2col.result:
            return ()
        return tuple(("table", t) for t in c_tables(*problem.im2col.result))

    @property
    def parameters(self) -> list[str]:
        unaligned = bool(self.realign.operands)
        return [
            *([".param .u64 A, .param .u64 B,"] if unaligned else []),
            ".param .u64 C, .param .u64 W,",
            *self.epilogue_parameters,
            *self.batch_parameters,
            *([".param .u32 lda, .param .u32 ldb,"] if unaligned else []),
            ".param .u32 M, .param .u32 N, .param .u32 K, .param .u32 ldc,",
            ".param .u32 k_iters, .param .u32 extra_iters,",
            f".param .{self.epilogue_type} alpha, .param .{self.epilogue_type} beta,",
            *self.loads.parameters,
            ", ".join(f".param .align 64 .b8 {n}[{128 * self._map_count(n)}]" for n in self.maps),
        ]

    @property
    def directives(self) -> list[str]:
        cluster = []
        if self.pipeline.clustered:
            across, down = self.scheduler.cluster_shape
            cluster = [".explicitcluster", f".reqnctapercluster {across}, {down}, 1"]
        return [*cluster, *super().directives]

    # ---- launches

    def batch_limit(self, problem: KernelGemm) -> int:
        return self.scheduler.batch_limit(problem)

    def _launch_range(self, problem: KernelGemm, run: BatchRange) -> Launch:
        return self.packing.launch(problem, run, self._product(problem, run), (self.x, self.y))

    def _product(self, problem: KernelGemm, run: BatchRange) -> Launch:
        """The launches of the product itself."""
        c = self.config
        k_iters, extra_iters = self.scheduler.k_iters(problem)
        unaligned = bool(self.realign.operands)
        arguments: tuple[Argument, ...] = (
            *((("u64", "A"), ("u64", "B")) if unaligned else ()),
            ("u64", "C"),
            ("u64", "W"),
            *self._epilogue_arguments(problem),
            *self._batch_arguments(problem, run),
            *((("u32", problem.lda), ("u32", problem.ldb)) if unaligned else ()),
            ("u32", problem.m),
            ("u32", problem.n),
            ("u32", problem.k),
            ("u32", problem.ldc),
            ("u32", k_iters),
            ("u32", extra_iters),
            (self.epilogue_type, "alpha"),
            (self.epilogue_type, "beta"),
            *self.loads.arguments(problem),
            *(("map", each) for name in self.maps for each in self._maps(problem, name)),
        )
        grid = self.scheduler.grid(problem, run.items)
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        if self.reduction.prescales_c:
            return Launch((self._aux_kernel("scale", problem, run, ()), main))
        if self.reduction.stores_partials:
            size = c.kg * run.items * problem.m * problem.n * self.epilogue_bytes
            return Launch((main, self._aux_kernel("reduce", problem, run, (("u32", c.kg),))), size)
        if self.fixup.active:
            tiles = self.scheduler.tiles(problem)[2] * run.items * c.cluster_k
            return Launch((main,), tiles * self.fixup.tile_bytes, zeroed=True)
        # where K is zero, the operands are zeros in the workspace
        return Launch((main,), 0 if problem.k else 1, zeroed=not problem.k)

    def _map_count(self, name: str) -> int:
        return {"map_x": self.x.map_count, "map_y": self.y.map_count}.get(name, 1)

    def _maps(self, p: KernelGemm, name: str) -> list[TensorMap]:
        if name in ("map_c", "map_residual"):
            operand, matrix, s = "C" if name == "map_c" else "residual", (p.n, p.m, p.ldc, p.offsets[2]), self.staging
            return [matrix_map(p, operand, p.out, matrix, p.output.bytes, s.box, s.span, self.batched)]
        x = self.x if name == "map_x" else self.y
        if isinstance(x, RealignedOperand):
            return x.residue_maps(p, p.dtype, stored(p, x.name))
        kind = "tf32" if p.compute == "tf32" else p.element.tma
        return [self.packing.packed_map(p, x, kind, self.loads.tensor_map(p, x, kind))]

    @property
    def staging(self) -> Staging:
        """The staging buffers of the epilogue."""
        return self.epilogue.staging

    # ---- what the header says

    @property
    def accesses(self) -> str:
        c = f"{self.vec_c} elements"
        if self.config.epilogue_smem:
            c = "boxes of {} x {}".format(*self.staging.box) if self.epilogue.tma else "words, a row a warp"
            c = "pairs of elements of many rows" if self.epilogue.runs else c
        a, b = (self.x, self.y) if self.x.name == "a" else (self.y, self.x)
        boxes = f"TMA loads boxes of {self.loads.box_text(a)} elements of A, {self.loads.box_text(b)} of B"
        return f"{boxes}; C is stored in {c}{self.packing.summary}"

    @property
    def grid(self) -> str:
        return self.scheduler.grid_text

    @cached_property
    def shared_map(self) -> list[str]:
        x, y = self.x, self.y
        lines = [
            f"{self.stages} stages of {self.mainloop.stage_bytes} bytes: {x.name.upper()} at 0 ({x.span}-byte swizzle),"
            f" {y.name.upper()} at {y.base} ({y.span}-byte swizzle)"
        ]
        if self.config.cluster_k > 1:
            r = self.cluster_reduction
            lines.append(f"{r.base}: sums of the cluster's other blocks, {r.bytes} bytes")
        if self.config.epilogue_smem:
            s = self.staging
            lines.append(f"{self.epilogue.staging_base}: C, {s.buffers} of {len(s.subtiles)} subtiles a warpgroup")
        lines.append(f"{self.pipeline.base}: mbarriers: full, empty, cluster sums, C")
        return lines

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        m = self.mainloop
        out = [(m.acc, "sums: [instruction along X][pair of columns]")]
        if m.f16_pairs:
            out.append((m.wgmma_acc, "f16 accumulators, two in a register"))
        if self.fixup.sums is not m.acc:
            out.append((self.fixup.sums, "sums that this block finishes"))
        if m.split:
            out.append((m.wgmma_acc, "sums of one iteration of K"))
        return out
