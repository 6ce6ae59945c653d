"""The candidate space of families whose tiles are all combinations of the values of their axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class TableSpace(CandidateSpace):
    """The candidates of such a family. ``exchanged``: pairs of axes; a neighbour doubles one axis of a pair and halves
    the other."""

    class_axes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    exchanged: tuple[tuple[str, str], ...] = ()

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        return self.tiles(p)

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        c = tiles.replace(family=self.code)
        return c, violations(self, p, c, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)
        for first, second in self.exchanged:
            for a, b in ((1, 4), (4, 1)):
                yield {first: int(getattr(config, first)) * a // 2, second: int(getattr(config, second)) * b // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]
