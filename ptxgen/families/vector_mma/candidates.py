"""The candidate space of vector_mma kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import searched
from ptxgen.families.common.sparse_space import SparseSpace
from ptxgen.families.vector_mma import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class VectorMmaSpace(SparseSpace):
    name = "vector_mma"
    exchanged = (("lane_vectors", "blocks_in_flight"),)
    axes = searched(axes.AXES)
    tile = ("block_windows", "lane_vectors", "blocks_in_flight", "vec_b")
    fixed = ("vector_mma_types",)
    tile_rules = ("axis", "range", "threads", "vector_mma_pairs")
    extent_rules = ("range", "vector_mma_pitch", "vector_mma_grid")

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        ahead = [{"columns_ahead": n} for n in self.axes["columns_ahead"]]
        return [self.row_orders(), ahead]
