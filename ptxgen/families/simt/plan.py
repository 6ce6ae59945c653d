"""The plan of a SIMT kernel."""

from __future__ import annotations

from ptxgen.codegen.addressing import CAddressing
from ptxgen.codegen.batch import Batch
from ptxgen.codegen.epilogue import TileEpilogue
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.packing import Packing
from ptxgen.codegen.parameters import KernelParameters
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.scheduler import GridScheduler
from ptxgen.families.simt.geometry import SimtGeometry
from ptxgen.families.simt.layout import OperandLayout
from ptxgen.families.simt.mainloop import SimtMainloop
from ptxgen.lowering.kernel_gemm import STRIDED


class SimtPlan(Plan):
    """Multistage schedule with scalar multiply-adds; each thread holds a tile of C in registers."""

    kernel = "kernel/multistage.mako"
    geometry: SimtGeometry

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        self.batch = Batch(p.batch != 1)
        self.fused_ops = FusedOps.of(p, self.batch.active)
        self.scheduler: GridScheduler = self._grid_scheduler()
        self.a, self.b = self._operands()
        self.mainloop: SimtMainloop = SimtMainloop(c, g, int(g.uk), self.a, self.b, self.arithmetic)
        via_smem, contiguous = bool(g.c_via_smem), self.b.contiguous
        self.c = self._c_access(CAddressing(p.addr_c != STRIDED), c.vec_c if via_smem else min(c.vec_c, contiguous))
        self.epilogue: TileEpilogue = TileEpilogue(
            c,
            self.arithmetic,
            self.reduction,
            self.c,
            threads=self.threads,
            ns=c.ns,
            columns=[self.b.offset(j) for j in range(0, c.ns, self.c.vec)],
            contiguous=contiguous,
            via_smem=via_smem,
            row_pitch=int(g.c_row_pitch),
            aliases_stages=True,
            computes_oob=not via_smem,
        )
        self.c_kernels = self._c_kernels(self.scheduler)
        self.packing = self._table_packing() or Packing(p, self.entry, self.batch, self.fused_ops)
        addressing = self.a.addressing, self.b.addressing
        self.parameters: KernelParameters = self._kernel_parameters(addressing, self.scheduler)
        self.launcher = self._gemm_launcher(self.scheduler, self.parameters)

    def _operands(self) -> tuple[OperandLayout, OperandLayout]:
        p, c, g = self.problem, self.config, self.geometry
        steps, ahead, packed, size = int(g.uk), bool(c.fragment_prefetch), p.accumulator.bytes == 2, p.element.bytes
        common = (self.threads, c.u, steps, ahead, packed, size)
        a = OperandLayout(g.a, *common, 0, p.addr_a, p.lda)
        return a, OperandLayout(g.b, *common, a.size, p.addr_b, p.ldb)
