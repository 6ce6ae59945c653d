"""The plan of a SIMT kernel."""

from __future__ import annotations

from ptxgen.codegen.config.config import packs
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_epilogue, compose_launch, compose_scheduler, table_packing, vector_bytes
from ptxgen.families.common.fma.geometry import FmaGeometry
from ptxgen.families.common.fma.mainloop import KERNEL, FmaMainloop, mainloop
from ptxgen.families.common.fma.pack_rows import LongRowPacking
from ptxgen.families.simt.global_fragments import GlobalFragmentMainloop, GlobalFragments


class SimtPlan(Plan):
    """The multistage schedule with scalar multiply-adds: each thread holds a tile of C in registers."""

    kernel = KERNEL
    geometry: FmaGeometry

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        a, b, c = vector_bytes(self)
        one = self.problem.element.bytes
        return one if packs(self.config, "a") else a, one if packs(self.config, "b") else b, c

    def _packing(self) -> Packing:
        parts = (self.problem, self.entry, self.batch)
        if packs(self.config, "a") or packs(self.config, "b"):
            return LongRowPacking(*parts, self.config)
        return Packing(*parts)

    def _compose(self) -> None:
        scheduler = compose_scheduler(self)
        self.packing = table_packing(self) or self._packing()
        self.mainloop: FmaMainloop = mainloop(self, self.geometry)
        self.a, self.b = self.mainloop.a, self.mainloop.b
        if "sum_a" in self.problem.needs:
            self.operand_sums = self.mainloop.operand_sums()
        compose_epilogue(self, self.config.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)


class GlobalFragmentPlan(Plan):
    """The schedule without shared memory: each thread loads the elements that it multiplies."""

    kernel = "kernel/global_fragments.mako"
    geometry: FmaGeometry

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return vector_bytes(self)

    def _compose(self) -> None:
        p, c, g = self.problem, self.config, self.geometry
        scheduler = compose_scheduler(self)
        self.a, self.b = GlobalFragments(p, c, g.a), GlobalFragments(p, c, g.b)
        self.mainloop = GlobalFragmentMainloop(c, self.a, self.b, self.arithmetic, self.threads)
        self.packing = Packing(p, self.entry, self.batch)
        compose_epilogue(self, c.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)
