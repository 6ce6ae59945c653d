"""The plan of a SIMT kernel."""

from __future__ import annotations

from ptxgen.codegen.packing import Packing
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_epilogue, compose_launch, compose_scheduler, table_packing
from ptxgen.families.simt.geometry import SimtGeometry
from ptxgen.families.simt.layout import OperandLayout
from ptxgen.families.simt.mainloop import SimtMainloop


class SimtPlan(Plan):
    """Multistage schedule with scalar multiply-adds; each thread holds a tile of C in registers."""

    kernel = "kernel/multistage.mako"
    geometry: SimtGeometry

    def _compose(self) -> None:
        c, g = self.config, self.geometry
        scheduler = compose_scheduler(self)
        self.a, self.b = self._operands()
        self.mainloop: SimtMainloop = SimtMainloop(c, g, int(g.uk), self.a, self.b, self.arithmetic)
        self.packing = self._packing()
        compose_epilogue(self, c.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)

    def _packing(self) -> Packing:
        return table_packing(self) or Packing(self.problem, self.entry, self.batch, self.fused_ops)

    def _operands(self) -> tuple[OperandLayout, OperandLayout]:
        p, c, g = self.problem, self.config, self.geometry
        steps, ahead, packed, size = int(g.uk), bool(c.fragment_prefetch), p.accumulator.bytes == 2, p.element.bytes
        common = (self.threads, c.u, steps, ahead, packed, size)
        a = OperandLayout(g.a, *common, 0, p.addr_a, p.lda)
        return a, OperandLayout(g.b, *common, a.size, p.addr_b, p.ldb)
