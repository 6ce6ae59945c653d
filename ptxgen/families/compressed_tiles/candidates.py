"""The candidate space of compressed_tiles kernels."""

from __future__ import annotations

from ptxgen.codegen.config.axes import searched
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.common.sparse_space import SparseSpace
from ptxgen.families.compressed_tiles import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class CompressedTilesSpace(SparseSpace):
    name = "compressed_tiles"
    exchanged = (("tile_warps", "stages"),)
    axes = searched(axes.AXES)
    tile = ("tile_index", "b_columns", "tile_warps", "vec_b", "vector_b")
    fixed = ("compressed_tiles_types",)
    tile_rules = ("axis", "range", "threads")
    extent_rules = (
        "range",
        "compressed_tiles_count",
        "compressed_tiles_vector",
        "compressed_tiles_pitch",
        "compressed_tiles_grid",
    )

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class, with a B that may be copied as a vector."""
        return super().neutral(p).with_access("B", aligned=VECTOR)

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [[{"stages": n} for n in self.axes["stages"]]]
