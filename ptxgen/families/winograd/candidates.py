"""The candidate space of Winograd convolutions."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.axes import searched
from ptxgen.codegen.config import SPLIT_MEMSET, SPLIT_WORKSPACE, Columns
from ptxgen.families.common.candidates import Grid, Ints
from ptxgen.families.common.fma.candidates import FmaSpace
from ptxgen.families.winograd import axes
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.winograd import WinogradGemm
from ptxgen.problem.device import Device


class WinogradSpace(FmaSpace):
    """The candidates of FMA kernels for the transformed products of the family ``name``."""

    axes = searched(axes.AXES)
    fixed = ("winograd_filter",)
    extent_rules = (*FmaSpace.extent_rules, "winograd_slices")

    def unstaged_depth(self, p: KernelGemm) -> int:
        return 0

    def shapes(self, p: KernelGemm) -> Grid:
        return super().shapes(p).replace(family=self.code)

    def default_splitk(self, p: KernelGemm, c: Columns) -> Ints:
        """The transform of the products adds the slices."""
        return np.where(c.kg > 1, SPLIT_WORKSPACE, SPLIT_MEMSET)

    def cells(self, p: KernelGemm, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """With slices of K of weight gradients only. The next kernel reads the products from the L2 cache, so their
        stores do not stream."""
        c, broken = super().cells(p, d, tiles)
        assert isinstance(p, WinogradGemm)
        return c.replace(store_policy=0), broken if p.weight_grad else np.where(c.kg > 1, -2, broken)
