"""The candidate space of tca kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import searched
from ptxgen.families.common.sparse_space import SparseSpace
from ptxgen.families.tca import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class TcaSpace(SparseSpace):
    name = "tca"
    axes = searched(axes.AXES)
    tile = ("vec_b",)
    fixed = ("tca_types",)
    tile_rules = ("axis", "range", "threads")
    extent_rules = ("range", "tca_vec", "tca_pitch", "tca_grid")

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [[{"row_barriers": n} for n in self.axes["row_barriers"]]]
