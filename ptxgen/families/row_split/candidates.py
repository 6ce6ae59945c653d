"""The candidate space of row_split kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL, searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.row_split import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

THREADS = (64, 512)  #: least and most threads per block


class RowSplitSpace(CandidateSpace):
    name = "row_split"
    axes, class_axes = searched(axes.AXES), {}
    tile = ("row_lanes", "lane_vectors", "nonzero_groups", "index_loads", "nonzeros_in_flight", "block_groups", "vec_b")
    fixed = ("row_split_types",)
    tile_rules = ("axis", "range", "threads", "row_split_warps", "row_split_lanes")
    extent_rules = ("range", "row_split_pitch", "row_split_grid")

    def neutral(self, p: KernelProblem) -> KernelProblem:
        plain = super().neutral(p)
        for name in "BC":
            plain = plain.with_access(name, rows=1, columns=1, ld=1, aligned=1)
        return plain

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        every = self.tiles(p)
        threads = every.row_lanes * every.nonzero_groups * every.block_groups
        return every.take(np.flatnonzero((threads >= THREADS[0]) & (threads <= THREADS[1])))

    def variants(self, p: KernelProblem) -> list[list[dict[str, int]]]:
        parts = [{"row_order": BY_LENGTH, "longest_part": n} for n in self.axes["longest_part"]]
        return [[{"row_order": NATURAL, "longest_part": 0}, *parts]]

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        c = tiles.replace(family=self.code)
        return c, violations(self, p, c, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)
        for a, b in ((1, 4), (4, 1)):
            yield {"row_lanes": config.row_lanes * a // 2, "block_groups": config.block_groups * b // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]
