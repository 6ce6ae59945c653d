"""The candidate space of Winograd convolutions."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import SPLIT_MEMSET, SPLIT_WORKSPACE, Columns
from ptxgen.families.common.candidates import Grid, Ints
from ptxgen.families.common.fma.candidates import FmaSpace
from ptxgen.families.winograd import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.winograd import winograd
from ptxgen.problem.device import Device


class WinogradSpace(FmaSpace):
    """The candidates of FMA kernels for the transformed products of the family ``name``."""

    axes = searched(axes.AXES)
    fixed = ("output_dtype",)
    extent_rules = (*FmaSpace.extent_rules, "winograd_slices")

    def unstaged_depth(self, p: KernelProblem) -> int:
        return 0

    def shapes(self, p: KernelProblem) -> Grid:
        return super().shapes(p).replace(family=self.code)

    def default_splitk(self, p: KernelProblem, c: Columns) -> Ints:
        """The ``splitk`` value of candidates. The kernel that transforms the products adds the slices."""
        return np.where(c.kg > 1, SPLIT_WORKSPACE, SPLIT_MEMSET)

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """The cells. Only weight gradients have several K slices. The next kernel reads the products from the L2 cache,
        so their stores do not stream."""
        c, broken = super().cells(p, d, tiles)
        algorithm = winograd(p)
        assert algorithm is not None
        return c.replace(store_policy=0), broken if algorithm.weight_grad else np.where(c.kg > 1, -2, broken)
