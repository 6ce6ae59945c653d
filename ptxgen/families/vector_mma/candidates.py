"""The candidate space of vector_mma kernels."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL, searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.vector_mma import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class VectorMmaSpace(CandidateSpace):
    name = "vector_mma"
    axes, class_axes = searched(axes.AXES), {}
    tile = ("block_windows", "lane_vectors", "blocks_in_flight", "vec_b")
    fixed = ("vector_mma_types",)
    tile_rules = ("axis", "range", "threads", "vector_mma_pairs")
    extent_rules = ("range", "vector_mma_pitch", "vector_mma_grid")

    def neutral(self, p: KernelProblem) -> KernelProblem:
        plain = super().neutral(p)
        for name in "BC":
            plain = plain.with_access(name, rows=1, columns=1, ld=1, aligned=1)
        return plain

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    shapes = tiles

    def variants(self, p: KernelProblem) -> list[list[dict[str, int]]]:
        parts = [{"row_order": BY_LENGTH, "longest_part": n} for n in self.axes["longest_part"]]
        ahead = [{"columns_ahead": n} for n in self.axes["columns_ahead"]]
        return [[{"row_order": NATURAL, "longest_part": 0}, *parts], ahead]

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        c = tiles.replace(family=self.code)
        return c, violations(self, p, c, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)
        for a, b in ((1, 4), (4, 1)):
            yield {"lane_vectors": config.lane_vectors * a // 2, "blocks_in_flight": config.blocks_in_flight * b // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]
