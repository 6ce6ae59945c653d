"""The candidate space of kernels with resident rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.resident_rows import axes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_top import RowTop
from ptxgen.problem.device import Device

#: values that the search visits for best values of rows, where a block has fewer rows for the columns that it copies
WIDE = {"row_warps": (4, 8, 16), "tile_columns": (128, 256, 512, 1024, 2048)}


class ResidentRowsSpace(CandidateSpace):
    name = "resident_rows"
    axes = searched(axes.AXES)
    class_axes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    tile = ("thread_rows", "row_warps", "columns_at_once", "tile_columns", "lower_bounds")
    cell = ("column_parts",)
    fixed = ("resident_rows_sink", "resident_rows_types", "resident_rows_arrays")
    tile_rules = (
        "axis",
        "range",
        "threads",
        "shared_memory",
        "resident_rows_k",
        "resident_rows_copies",
        "resident_rows_columns",
        "resident_rows_lanes",
    )
    extent_rules = (
        "range",
        "resident_rows_bounds",
        "resident_rows_extents",
        "resident_rows_parts",
        "resident_rows_one_part",
        "resident_rows_workspace",
    )

    def neutral(self, p: KernelProblem) -> KernelProblem:
        """The representative of the problem's class, which keeps K, because kernels unroll it."""
        return super().neutral(p).with_extents(k=min(p.k, axes.LONGEST + 1))

    def tiles(self, p: KernelProblem) -> Columns:
        wide = WIDE if isinstance(p.sink, RowTop) else {}
        every = Columns.product({n: wide.get(n, self.axes[n]) for n in self.tile})
        return every.replace(family=self.code, resident_k=min(max(p.k, 1), axes.LONGEST))

    def shapes(self, p: KernelProblem) -> Columns:
        return self.tiles(p)

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return []

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """The cells: each tile with every number of parts."""
        parts = np.array(self.axes["column_parts"])
        c = Columns({n: np.repeat(v, len(parts)) for n, v in tiles.replace(family=self.code).columns.items()})
        c = c.replace(column_parts=np.tile(parts, len(tiles)))
        return c, violations(self, p, c, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        for change in single_axis_changes(self):
            if "resident_k" not in change:
                yield change
        for first, second in (("thread_rows", "row_warps"), ("row_warps", "column_parts")):
            for a, b in ((1, 4), (4, 1)):
                yield {first: int(getattr(config, first)) * a // 2, second: int(getattr(config, second)) * b // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]
