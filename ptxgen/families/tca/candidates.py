"""The candidate space of tca kernels."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.tca import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class TcaSpace(CandidateSpace):
    name = "tca"
    axes, class_axes = searched(axes.AXES), {}
    tile = ("vec_b",)
    fixed = ("tca_types",)
    tile_rules = ("axis", "range", "threads")
    extent_rules = ("range", "tca_vec", "tca_pitch", "tca_grid")

    def neutral(self, p: KernelProblem) -> KernelProblem:
        plain = super().neutral(p)
        for name in "BC":
            plain = plain.with_access(name, rows=1, columns=1, ld=1, aligned=1)
        return plain

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    shapes = tiles

    def variants(self, p: KernelProblem) -> list[list[dict[str, int]]]:
        return [[{"row_barriers": n} for n in self.axes["row_barriers"]]]

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        return tiles, violations(self, p, tiles, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]
