"""The candidate space of row_split kernels."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns
from ptxgen.families.common.sparse_space import SparseSpace
from ptxgen.families.row_split import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

THREADS = (64, 512)  #: least and most threads per block


class RowSplitSpace(SparseSpace):
    name = "row_split"
    exchanged = (("row_lanes", "block_groups"),)
    axes = searched(axes.AXES)
    tile = ("row_lanes", "lane_vectors", "nonzero_groups", "index_loads", "nonzeros_in_flight", "block_groups", "vec_b")
    fixed = ("row_split_types",)
    tile_rules = ("axis", "range", "threads", "row_split_warps", "row_split_lanes")
    extent_rules = ("range", "row_split_pitch", "row_split_grid")

    def shapes(self, p: KernelProblem) -> Columns:
        every = self.tiles(p)
        threads = every.row_lanes * every.nonzero_groups * every.block_groups
        return every.take(np.flatnonzero((threads >= THREADS[0]) & (threads <= THREADS[1])))

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [self.row_orders()]
