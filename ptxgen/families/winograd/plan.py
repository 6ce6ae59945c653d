"""The plan of a Winograd convolution."""

from __future__ import annotations

from collections.abc import Sequence

from ptxgen.codegen.launches.c_kernels import CKernels, Slicing
from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.c_access import CAccess
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.plan import Kernel, Plan
from ptxgen.codegen.tile_parts import compose_epilogue, compose_launch, compose_scheduler
from ptxgen.families.common.fma.geometry import FmaGeometry
from ptxgen.families.common.fma.mainloop import KERNEL, FmaMainloop, mainloop
from ptxgen.families.winograd.interpolation import Interpolation
from ptxgen.families.winograd.transforms import ResultTransform, WinogradCKernels, WinogradPacking, with_results


class WinogradPlan(Plan):
    """The plan: an FMA kernel of the transformed products, and the transform kernels before and after it."""

    kernel = KERNEL
    interpolation = Interpolation()
    geometry: FmaGeometry

    def _compose(self) -> None:
        conv, arithmetic = with_results(self.problem), self.arithmetic
        c = CAccess(conv, arithmetic, CAddressing(False), 1, False, bool(self.config.store_policy))
        fused = FusedOps.of(conv, False, self.device.sm)
        self.results = ResultTransform(conv, arithmetic, c, fused, self.pdl, self.entry, self.reduction.active)
        scheduler = compose_scheduler(self)
        self.packing = WinogradPacking(self.problem, self.entry, self.batch)
        self.mainloop: FmaMainloop = mainloop(self, self.geometry)
        self.a, self.b = self.mainloop.a, self.mainloop.b
        compose_epilogue(self, self.config.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        """The access widths. They are those of single elements, which the transform kernels access."""
        size = self.problem.element.bytes
        return size, size, self.problem.output.bytes

    def _c_kernels(self, scheduler: Slicing) -> CKernels:
        plain = super()._c_kernels(scheduler)
        return WinogradCKernels(**vars(plain), results=self.results)

    @property
    def other_kernels(self) -> Sequence[Kernel]:
        return (self.results,)
