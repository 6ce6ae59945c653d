"""The plan of a skinny kernel: one extent of C is small, so memory bandwidth limits the speed."""

from __future__ import annotations

from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.addressing import CAddressing, OperandAddressing
from ptxgen.codegen.parts.epilogue import TileEpilogue
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_launch, compose_scheduler, vector_bytes
from ptxgen.families.common.matrix_instructions import by_words, of_floats_8
from ptxgen.families.skinny.geometry import SkinnyGeometry
from ptxgen.families.skinny.layout import QUAD, SkinnyOperand
from ptxgen.families.skinny.mainloop import SkinnyMainloop
from ptxgen.lowering.kernel_problem import STRIDED
from ptxgen.problem.dtypes import dtype


class SkinnyPlan(Plan):
    """The plan: each thread loads its operands to registers; threads that split K add their sums by shuffles and in
    shared memory."""

    kernel = "kernel/skinny.mako"
    geometry: SkinnyGeometry

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        scheduler = compose_scheduler(self)
        dp4a = bool(p.element.int8 and min(g.vec_x, g.vec_y) >= QUAD and g.y_kmajor)
        self.a, self.b = self._operands(dp4a)
        self.mainloop: SkinnyMainloop = self._mainloop(dp4a)
        self.c = self._c_access(CAddressing(p.operand("C").access.mode != STRIDED), c.vec_c)
        self.epilogue = TileEpilogue(
            c,
            self.arithmetic,
            self.reduction,
            self.c,
            threads=self.threads,
            ns=c.ns,
            columns=[],
            contiguous=c.ns if c.mma_m16 and not c.long_n else self.b.contiguous_run,
            via_smem=True,
            row_pitch=int(g.c_row_pitch),
            aliases_stages=False,
            computes_oob=False,
            # of lanes that split K, the first one stores the sum of all
            sts_guard="@%is_k_lane0 " if self.mainloop.lanes > 1 and not c.mma_m16 else "",
        )
        self.packing = Packing(p, self.entry, self.batch)
        compose_launch(
            self,
            OperandAddressing.of("a", p.operand("A").access.mode),
            OperandAddressing.of("b", p.operand("B").access.mode),
            scheduler,
        )

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        a, b, c = vector_bytes(self)
        one = self.problem.element.bytes
        return one if self.a.unaligned else a, one if self.b.unaligned else b, c

    def _operands(self, dp4a: bool) -> tuple[SkinnyOperand, SkinnyOperand]:
        p, g = self.problem, self.geometry
        depth, steps, stride = int(g.depth), int(g.steps), int(g.step_stride)
        # four lanes load half a line, in their next step the other half: memory transfers whole lines
        whole_lines = self.config.mma_m16 > 0 and by_words(p) is not None
        a, b = (
            SkinnyOperand(
                x,
                p.operand(x.name.upper()).dtype,
                p.element.bytes,
                int(g.along),
                depth,
                steps,
                stride,
                self.config.u,
                dp4a,
                whole_lines,
            )
            for x in (g.a, g.b)
        )
        return a, b

    def _mainloop(self, dp4a: bool) -> SkinnyMainloop:
        p, c = self.problem, self.config
        x, y = (self.b, self.a) if c.long_n else (self.a, self.b)
        instruction = by_words(p, self.device) if c.mma_m16 else None
        if instruction is not None and p.element.bytes == 1 and instruction.sum == "f32":
            self.ptx_version = max(self.ptx_version, "8.4")
            instruction = of_floats_8(instruction, dtype(x.dtype), dtype(y.dtype))
        # rounds f32 to tf32, from sm_90 on in one instruction
        rounding = "cvt.rn.tf32.f32" if self.device.sm >= 90 else "cvt.rna.tf32.f32"
        return SkinnyMainloop(p, c, self.geometry, self.arithmetic, x, y, dp4a, instruction, rounding)
