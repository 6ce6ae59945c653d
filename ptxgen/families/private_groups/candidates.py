"""The candidate space of kernels with private groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.private_groups import axes
from ptxgen.families.private_groups.geometry import sink_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class PrivateGroupsSpace(CandidateSpace):
    name = "private_groups"
    axes, class_axes = searched(axes.AXES), {}
    tile = ("copy_warps", "array_vec", "warp_rows", "loads")
    cell = ("kg",)
    fixed = ("private_groups_types", "private_groups_count")
    tile_rules = ("axis", "range", "threads")
    extent_rules = ("range", "private_groups_pitch", "private_groups_slices", "private_groups_workspace")

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class, which keeps the number of groups, because shared memory depends on
        it."""
        plain = super().neutral(p)
        sink = sink_of(plain)
        assert sink is not None
        groups = (sink.count, 1) if sink.by_rows else (1, sink.count)
        return replace(plain, sink=replace(sink, groups=groups, elements=(replace(sink.array, ld=1),)))

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        return self.tiles(p)

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return []

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """The cells: each tile with every number of slices."""
        slices = np.array(self.axes["kg"])
        c = Columns({n: np.repeat(v, len(slices)) for n, v in tiles.replace(family=self.code).columns.items()})
        c = c.replace(kg=np.tile(slices, len(tiles)))
        return c, violations(self, p, c, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)
        for first, second in (("array_vec", "copy_warps"), ("array_vec", "loads"), ("warp_rows", "copy_warps")):
            for a, b in ((1, 4), (4, 1)):
                yield {first: int(getattr(config, first)) * a // 2, second: int(getattr(config, second)) * b // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]
