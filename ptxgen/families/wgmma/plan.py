"""The plan of a wgmma kernel, composed of its parts: loads, operand paths, packing, main loop, pipeline, reductions,
epilogue and tile scheduler."""

from __future__ import annotations

from functools import cached_property

from ptxgen.codegen.plan import Plan, Run
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.epilogue import Epilogue, Staging, c_barriers
from ptxgen.families.wgmma.geometry import COLUMNS, groups_leave
from ptxgen.families.wgmma.im2col_plan import Im2colLoads, WgradLoads, c_tables, run_layouts
from ptxgen.families.wgmma.layout import Multicast, OperandPath
from ptxgen.families.wgmma.loads import MatrixLoads
from ptxgen.families.wgmma.mainloop import Mainloop, Pipeline
from ptxgen.families.wgmma.operand_packing import copied
from ptxgen.families.wgmma.pack_channels import ChannelPacking
from ptxgen.families.wgmma.pack_rows import RowPacking
from ptxgen.families.wgmma.packing import Packing
from ptxgen.families.wgmma.reduction import ClusterReduction, SplitKFixup
from ptxgen.families.wgmma.scheduler import TileScheduler
from ptxgen.families.wgmma.smem_realign import RealignedOperand, Realignment
from ptxgen.families.wgmma.split_bf16x3 import SplitPacking
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.problem.gemm import Gemm


class WgmmaPlan(Plan):
    """One warp loads stages by TMA, one or two warpgroups multiply; a warpgroup has 64-row tiles of C in registers."""

    kernel = "kernel/warp_specialized.mako"
    shared_aligned = 1024

    def _leaving(self) -> None:
        super()._leaving()
        if self.problem.window is not None and self.problem.window.result is not None:
            self.at_c = "epilogue/c_table.mako"
            self.at_out = "epilogue/c_strided.mako" if self.partial else self.at_c

    def _operands(self) -> None:
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
        self.mainloop = Mainloop(p, c, g, self.x, self.y, self.sum, self.converts, self.add)
        m = self.mainloop
        self.pipeline = Pipeline(c, g, m.a_from_registers, m.split, c_barriers(p, c))
        self.cluster_reduction = ClusterReduction(c, g, m)
        self.fixup = SplitKFixup(c, g, m, self.cluster_reduction)

    def _loads(self) -> MatrixLoads:
        p = self.problem
        if p.window is None:
            return MatrixLoads(p, self.config, self.geometry, self.batched)
        kind = WgradLoads if p.window.summed else Im2colLoads
        return kind(p, self.config, self.geometry, self.batched)

    def _packing(self) -> Packing:
        p, c = self.problem, self.config
        if p.window is not None and any(p.window.copies):
            return ChannelPacking(p, self.entry, self.batched)
        if p.window is None and bf16x3.planes(p) > 1:
            return SplitPacking(p, self.entry, self.batched)
        if (p.window is None or p.window.summed) and (copied(c, "a") or copied(c, "b")):
            return RowPacking(p, self.entry, self.batched, c)
        return Packing(p, self.entry, self.batched)

    def _batch_coordinates(self) -> None:
        """Batch items are a third direction of the tensors; a tensor that all items share has one of them."""
        operands = [self.x, self.y] if self.batched else []
        #: registers with the coordinate of an item in each tensor, and its last one
        self.item_at = [f"%item_{x.name}" for x in operands]
        self.last_item = [f"%last_{x.name}" for x in operands]
        #: the register that counts items as these tensors do: planes are those of the launch
        self.item_number = "%item" if bf16x3.planes(self.problem) > 1 else "%number"
        for x, register in zip(operands, self.item_at, strict=True):
            x.batch_coordinate, x.tma_rank = register, x.tma_rank + 1

    @property
    def images(self) -> OperandPath:
        """The operand of a convolution that is images."""
        window = self.problem.window
        assert window is not None
        return self.x if self.x.name == window.side else self.y

    # ---- epilogue

    @property
    def contiguous(self) -> int:
        window = self.problem.window
        if window is not None and not window.beside:
            return 1
        return 1 if self.config.transposed_mma and not self.mainloop.a_from_registers else 2

    def _epilogue(self) -> None:
        if self.config.epilogue_smem:
            self.put = "epilogue/stmatrix_subtiles.mako"
        super()._epilogue()
        if self.config.epilogue_smem:
            self.after = "epilogue/fused_ops_subtile.mako" if self.problem.epilogue else "epilogue/identity.mako"

    def _gather(self) -> None:
        c, p, g = self.config, self.problem, self.geometry
        #: four lanes exchange pairs of 8-bit results, so that each stores a whole group of columns
        whole = c.vec_c >= COLUMNS and int(g.finish) % (4 * COLUMNS) == 0
        self.packs = bool(whole and groups_leave(p, c) and self.put == "epilogue/store.mako")
        self.row = Tile("e", self.sum, (max(self.vec_c, 1),))
        m = self.mainloop
        self.epilogue = Epilogue(p, c, g, m, self.fixup.sums, self.vec_c, self.out_bytes, self.packs, self.row)
        self.leave = self.epilogue.template
        if self.epilogue.runs and not c.epilogue_smem and not self.partial:
            self.leave = "epilogue/store_scatter.mako"

    @property
    def begun(self) -> list[tuple[str, str, str]]:
        return [(t.kind, r, self.zero if t.kind == self.sum else "0") for t in self.passing for r in t.all]

    # ---- parameters

    @property
    def maps(self) -> list[str]:
        """Names of the tensor maps, in the order of the parameters."""
        return ["map_x", "map_y", *self.epilogue.maps]

    @property
    def realign(self) -> Realignment:
        return self.mainloop.realign

    @property
    def item_parameters(self) -> list[str]:
        """As other families', but with the last items of tensors A and B in place of their strides."""
        if not self.batched:
            return []
        return [".param .u64 by_c, .param .u32 first_item, .param .u32 items, .param .u32 last_a, .param .u32 last_b,"]

    def _items(self, problem: Gemm, run: Run) -> tuple[Argument, ...]:
        if not self.batched:
            return ()
        last = [problem.items - 1 if offset else 0 for offset in problem.offsets[:2]]
        numbers = (run.first, run.items, *last)
        return (("u64", problem.offsets[2]), *(("u32", n) for n in numbers))

    @property
    def found_c(self) -> list[str]:
        return [".param .u64 rows_c, .param .u64 columns_c,"] if run_layouts(self.problem) else []

    @staticmethod
    def _tables(problem: Gemm, operands: str) -> tuple[Argument, ...]:
        if problem.window is None or not problem.window.result:
            return ()
        return tuple(("table", t) for t in c_tables(*problem.window.result))

    @property
    def parameters(self) -> list[str]:
        unaligned = bool(self.realign.operands)
        return [
            *([".param .u64 A, .param .u64 B,"] if unaligned else []),
            ".param .u64 C, .param .u64 W,",
            *self.array_parameters,
            *self.item_parameters,
            *([".param .u32 lda, .param .u32 ldb,"] if unaligned else []),
            ".param .u32 M, .param .u32 N, .param .u32 K, .param .u32 ldc,",
            ".param .u32 k_iters, .param .u32 extra_iters,",
            f".param .{self.sum} alpha, .param .{self.sum} beta,",
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

    def items_limit(self, problem: Gemm) -> int:
        return self.scheduler.items_limit(problem)

    def _run(self, problem: Gemm, run: Run) -> Launch:
        return self.packing.launch(problem, run, self._product(problem, run), (self.x, self.y))

    def _product(self, problem: Gemm, run: Run) -> Launch:
        """The launches of the product itself."""
        c = self.config
        k_iters, extra_iters = self.scheduler.k_iters(problem)
        unaligned = bool(self.realign.operands)
        arguments: tuple[Argument, ...] = (
            *((("u64", "A"), ("u64", "B")) if unaligned else ()),
            ("u64", "C"),
            ("u64", "W"),
            *self._arrays(problem),
            *self._items(problem, run),
            *((("u32", problem.lda), ("u32", problem.ldb)) if unaligned else ()),
            ("u32", problem.m),
            ("u32", problem.n),
            ("u32", problem.k),
            ("u32", problem.ldc),
            ("u32", k_iters),
            ("u32", extra_iters),
            (self.sum, "alpha"),
            (self.sum, "beta"),
            *self.loads.arguments(problem),
            *(("map", each) for name in self.maps for each in self._maps(problem, name)),
        )
        grid = self.scheduler.grid(problem, run.items)
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        if self.cleared:
            return Launch((self._pass("scale", problem, run, ()), main))
        if self.partial:
            size = c.kg * run.items * problem.m * problem.n * self.sum_bytes
            return Launch((main, self._pass("reduce", problem, run, (("u32", c.kg),))), size)
        if self.fixup.active:
            tiles = self.scheduler.tiles(problem)[2] * run.items * c.cluster_k
            return Launch((main,), tiles * self.fixup.tile_bytes, zeroed=True)
        # where K is zero, the operands are zeros in the workspace
        return Launch((main,), 0 if problem.k else 1, zeroed=not problem.k)

    def _map_count(self, name: str) -> int:
        return {"map_x": self.x.map_count, "map_y": self.y.map_count}.get(name, 1)

    def _maps(self, p: Gemm, name: str) -> list[TensorMap]:
        if name in ("map_c", "map_residual"):
            operand, matrix, s = "C" if name == "map_c" else "residual", (p.n, p.m, p.ldc, p.offsets[2]), self.staging
            return [matrix_map(p, operand, p.out, matrix, p.output.bytes, s.box, s.span, self.batched)]
        x = self.x if name == "map_x" else self.y
        if isinstance(x, RealignedOperand):
            return x.residue_maps(p, p.dtype, stored(p, x.name))
        kind = "tf32" if p.compute == "tf32" else p.dtype if p.element.bytes > 1 else "u8"
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
