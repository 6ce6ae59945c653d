"""The candidate space of families whose lanes load operands from global memory: one table has the tiles of blocks and
lanes, the thread groups and the depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import SPLIT_MEMSET, Columns, Config
from ptxgen.codegen.geometry import Geometry, accumulator_bytes
from ptxgen.codegen.split_k import slices_of_k
from ptxgen.families.common.candidates import Ints, splitk_pairs
from ptxgen.families.common.geometry import WARP, ceil_div
from ptxgen.families.common.multistage_candidates import MultistageSpace
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


def resident_blocks(g: Geometry, d: Device) -> Any:
    """The number of blocks whose registers fit on a multiprocessor. Each of its four partitions has a quarter of the
    registers."""
    warps = 4 * (d.registers_sm // 4 // (ceil_div(g.registers, 8) * 8 * WARP))
    fitting = np.minimum(warps * WARP // g.threads, d.blocks_per_sm(g.threads, 32, g.shared))
    return np.maximum(fitting, 1)


class LaneSpace(MultistageSpace):
    """Candidates whose tiles are the rows of a table. ``shape``: the axes that a row of the table sets."""

    shape: tuple[str, ...]
    class_axes: Mapping[str, tuple[int, ...]] = {"fragment_prefetch": (1,)}

    def table(self, p: KernelProblem) -> Ints:
        """The tiles of blocks and lanes: one per row, with the columns ``shape``."""
        raise NotImplementedError

    def access_widths(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """Further groups of axes for the sampler: access widths that are set together."""
        return {}

    def tiles(self, p: KernelProblem) -> Columns:
        columns = dict(zip(self.shape, self.table(p).T, strict=True))
        return Columns.product({n: np.unique(columns[n]) for n in self.tile}).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        rows = self.table(p)
        columns = {n: np.ascontiguousarray(column) for n, column in zip(self.shape, rows.T, strict=True)}
        return Columns(columns, len(rows)).replace(family=self.code, raster_group=8)

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [self.copy_modes(p), [{"fragment_prefetch": n} for n in (0, 1)]]

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """The groups of axes for the sampler: rows of the table; access widths; ``kg`` with ``splitk``."""
        shapes, widths = [tuple(row) for row in self.table(p).tolist()], self.access_widths(p)
        known = {*self.shape, "kg", "splitk", *(n for names in widths for n in names)}
        plain = {n: v for n, v in super().variables(p).items() if n[0] not in known}
        return {self.shape: shapes, **widths, ("kg", "splitk"): splitk_pairs(self.axes), **plain}

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        kg, widest_c = np.minimum(slices_of_k(p, c)[1], c.kg), 16 // accumulator_bytes(p)
        return c.replace(kg=kg, splitk=np.where(kg > 1, c.splitk, SPLIT_MEMSET), vec_c=np.minimum(c.vec_c, widest_c))

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """Returns configurations with the given ``min_ctas_per_sm`` and with lower values, which allow more registers
        per thread."""
        [plain] = super().with_dependent_axes(p, config, changes)
        if "min_ctas_per_sm" in changes:
            return [plain]
        return [plain, *(plain.replace(min_ctas_per_sm=n) for n in (1, 2, 4, 8) if n < plain.min_ctas_per_sm)]
