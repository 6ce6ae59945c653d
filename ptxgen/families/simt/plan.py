"""The plan of a SIMT kernel."""

from __future__ import annotations

from ptxgen.codegen.packing import Packing
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_epilogue, compose_launch, compose_scheduler, table_packing, vector_bytes
from ptxgen.families.simt.geometry import SimtGeometry
from ptxgen.families.simt.global_fragments import GlobalFragmentMainloop, GlobalFragments
from ptxgen.families.simt.layout import OperandLayout
from ptxgen.families.simt.mainloop import SimtMainloop

#: the schedule's template
KERNEL = "kernel/multistage.mako"


def mainloop(plan: Plan, geometry: SimtGeometry) -> SimtMainloop:
    """The main loop of scalar multiply-adds of a plan, with its operands."""
    p, c, g = plan.problem, plan.config, geometry
    steps, ahead, packed, size = int(g.uk), bool(c.fragment_prefetch), p.accumulator.bytes == 2, p.element.bytes
    common = (plan.threads, c.u, steps, ahead, packed, size)
    a = OperandLayout(g.a, *common, 0, p.addr_a, p.lda)
    b = OperandLayout(g.b, *common, a.size, p.addr_b, p.ldb)
    return SimtMainloop(c, g, steps, a, b, plan.arithmetic)


class SimtPlan(Plan):
    """Multistage schedule with scalar multiply-adds; each thread holds a tile of C in registers."""

    kernel = KERNEL
    geometry: SimtGeometry

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return vector_bytes(self)

    def _compose(self) -> None:
        scheduler = compose_scheduler(self)
        self.mainloop: SimtMainloop = mainloop(self, self.geometry)
        self.a, self.b = self.mainloop.a, self.mainloop.b
        self.packing = table_packing(self) or Packing(self.problem, self.entry, self.batch, self.fused_ops)
        compose_epilogue(self, self.config.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)


class GlobalFragmentPlan(Plan):
    """Schedule without shared memory: each thread loads what it multiplies."""

    kernel = "kernel/global_fragments.mako"
    geometry: SimtGeometry

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return vector_bytes(self)

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        scheduler = compose_scheduler(self)
        self.a, self.b = GlobalFragments(p, c, g.a), GlobalFragments(p, c, g.b)
        self.mainloop = GlobalFragmentMainloop(c, self.a, self.b, self.arithmetic, self.threads)
        self.packing = Packing(p, self.entry, self.batch, self.fused_ops)
        compose_epilogue(self, c.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)
