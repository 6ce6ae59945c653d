"""The plan of an mma.sync kernel."""

from __future__ import annotations

from ptxgen.codegen.addressing import CAddressing
from ptxgen.codegen.batch import Batch
from ptxgen.codegen.epilogue import TileEpilogue
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.parameters import KernelParameters
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.scheduler import GridScheduler
from ptxgen.families.mma.geometry import MmaGeometry
from ptxgen.families.mma.instructions import Instruction, instruction
from ptxgen.families.mma.layout import MmaOperand
from ptxgen.families.mma.mainloop import MmaMainloop
from ptxgen.families.mma.operand_packing import packs
from ptxgen.families.mma.pack_padded_rows import PaddedRowPacking
from ptxgen.lowering.kernel_gemm import STRIDED


class MmaPlan(Plan):
    """Multistage schedule with mma.sync; each warp holds a tile of C in the registers of its lanes."""

    kernel = "kernel/multistage.mako"
    geometry: MmaGeometry
    shared_alignment = 128

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        found = instruction(p, self.device)
        if p.element.fp8:
            self.ptx_version = max(self.ptx_version, "8.4")
        self.batch = Batch(p.batch != 1)
        self.fused_ops = FusedOps.of(p, self.batch.active)
        self.scheduler: GridScheduler = self._grid_scheduler()
        padded = PaddedRowPacking(p, self.entry, self.batch, self.fused_ops, c)
        self.packing = self._table_packing() or padded
        self.a, self.b = self._operands(found)
        rounding = ""
        if p.compute == "tf32":  # from sm_90 on in one instruction
            rounding = "cvt.rn.tf32.f32" if self.device.sm >= 90 else "cvt.rna.tf32.f32"
        self.mainloop: MmaMainloop = MmaMainloop(c, g, int(g.steps), self.a, self.b, found, rounding)
        via_smem, contiguous, ns = bool(g.c_via_smem), self.mainloop.contiguous, self.mainloop.ns
        self.c = self._c_access(CAddressing(p.addr_c != STRIDED), c.vec_c if via_smem else min(c.vec_c, contiguous))
        self.epilogue: TileEpilogue = TileEpilogue(
            c,
            self.arithmetic,
            self.reduction,
            self.c,
            threads=self.threads,
            ns=ns,
            columns=[self.b.offset(j) for j in range(0, ns, self.c.vec)],
            contiguous=contiguous,
            via_smem=via_smem,
            row_pitch=int(g.c_row_pitch),
            aliases_stages=True,
            computes_oob=not via_smem,
        )
        self.c_kernels = self._c_kernels(self.scheduler)
        addressing = self.a.addressing, self.b.addressing
        self.parameters: KernelParameters = self._kernel_parameters(addressing, self.scheduler)
        self.launcher = self._gemm_launcher(self.scheduler, self.parameters)

    def _operands(self, i: Instruction) -> tuple[MmaOperand, MmaOperand]:
        p, c, g = self.problem, self.config, self.geometry
        common = (i, self.threads, c.u, int(g.steps), bool(c.fragment_prefetch))
        product = self.packing.product_problem(p)
        a = MmaOperand(g.a, *common, 0, bool(packs(c, "a")), p.addr_a, product.lda)
        return a, MmaOperand(g.b, *common, a.size, bool(packs(c, "b")), p.addr_b, product.ldb)
