"""The plan of a SIMT kernel."""

from __future__ import annotations

from ptxgen.codegen.packing import Packing
from ptxgen.codegen.tile_plan import TilePlan
from ptxgen.families.simt.geometry import SimtGeometry
from ptxgen.families.simt.layout import OperandLayout
from ptxgen.families.simt.mainloop import SimtMainloop


class SimtPlan(TilePlan):
    """Multistage schedule with scalar multiply-adds; each thread holds a tile of C in registers."""

    kernel = "kernel/multistage.mako"
    geometry: SimtGeometry

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        self._compose_scheduler()
        self.a, self.b = self._operands()
        self.mainloop: SimtMainloop = SimtMainloop(c, g, int(g.uk), self.a, self.b, self.arithmetic)
        self.packing = Packing(p, self.entry, self.batch, self.fused_ops)
        self._compose_epilogue(c.ns, self.b.contiguous, self.b.offset)
        self._compose_launch(self.a.addressing, self.b.addressing)

    def _operands(self) -> tuple[OperandLayout, OperandLayout]:
        p, c, g = self.problem, self.config, self.geometry
        steps, ahead, packed, size = int(g.uk), bool(c.fragment_prefetch), p.accumulator.bytes == 2, p.element.bytes
        common = (self.threads, c.u, steps, ahead, packed, size)
        a = OperandLayout(g.a, *common, 0, p.addr_a, p.lda)
        return a, OperandLayout(g.b, *common, a.size, p.addr_b, p.ldb)
