"""The plan of a Winograd convolution."""

from __future__ import annotations

from collections.abc import Sequence

from ptxgen.codegen.addressing import CAddressing
from ptxgen.codegen.c_access import CAccess
from ptxgen.codegen.c_kernels import CKernels, Slicing
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.packing import Packing
from ptxgen.codegen.plan import Kernel
from ptxgen.families.simt.plan import SimtPlan
from ptxgen.families.winograd.transforms import ResultTransform, WinogradCKernels, WinogradPacking, transformed


class WinogradPlan(SimtPlan):
    """The SIMT kernel of the transformed products, with kernels that transform before and after it."""

    def _compose(self) -> None:
        conv, arithmetic = self.problem, self.arithmetic
        c = CAccess(conv, arithmetic, CAddressing(False), 1, False, bool(self.config.store_policy))
        self.results = ResultTransform(conv, arithmetic, c, FusedOps.of(conv, False), self.pdl, self.entry)
        self.problem = transformed(conv)[0]
        super()._compose()

    def _packing(self) -> Packing:
        return WinogradPacking(self.problem, self.entry, self.batch, self.fused_ops)

    def _c_kernels(self, scheduler: Slicing) -> CKernels:
        plain = super()._c_kernels(scheduler)
        return WinogradCKernels(**vars(plain), results=self.results)

    @property
    def other_kernels(self) -> Sequence[Kernel]:
        return (self.results,)
