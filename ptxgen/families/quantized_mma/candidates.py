"""The candidate space of quantized_mma kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import SPLIT_MEMSET, Columns, Config
from ptxgen.codegen.geometry import accumulator_bytes
from ptxgen.codegen.split_k import slices_of_k
from ptxgen.families.common.candidates import Grid, splitk_pairs
from ptxgen.families.common.geometry import WARP, ceil_div
from ptxgen.families.common.multistage_candidates import MultistageSpace
from ptxgen.families.quantized_mma import axes
from ptxgen.families.quantized_mma.geometry import CHUNK, LANES, QUAD, WORD, QuantizedMmaGeometry, access_of, geometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

ROWS = (2, 4, 8, 16)  #: possible numbers of rows of C of a lane
COLUMNS = (2, 4, 8)  #: possible numbers of columns of C of a lane
WARPS_LONG = (1, 2, 4, 8)  #: possible numbers of warps along N
GROUPS = (1, 2, 4, 8, 16)  #: possible numbers of warps along K
STEPS = (1, 2, 4, 8)
THREADS = (64, 512)  #: least and most threads per block

SHAPE = ("ms", "ns", "ml", "nl", "kl", "u", "vec_b")  #: the axes that are set together


def resident_blocks(g: QuantizedMmaGeometry, d: Device) -> Any:
    """The number of blocks whose registers fit on a multiprocessor. Each of its four partitions has a quarter of the
    registers."""
    warps = 4 * (d.registers_sm // 4 // (ceil_div(g.registers, 8) * 8 * WARP))
    fitting = np.minimum(warps * WARP // g.threads, d.blocks_per_sm(g.threads, 32, g.shared))
    return np.maximum(fitting, 1)


class QuantizedMmaSpace(MultistageSpace):
    name = "quantized_mma"
    axes, class_axes = searched(axes.AXES), {"fragment_prefetch": (1,)}
    derived = ("vec_c",)
    tile = ("ml", "nl", "u")
    fixed = ("quantized_mma_weights", "quantized_mma_types")
    tile_rules = ("axis", "range", "threads", "quantized_mma_tile", "quantized_mma_depth", "quantized_mma_groups")

    def _widths(self, p: KernelProblem) -> list[int]:
        """Bytes of a load of weights: the widest for which groups have whole steps, and the next narrower."""
        access = access_of(p)
        group, per_byte = access.group, access.format.per_byte
        most = group // QUAD // per_byte if group else 16
        widest = int(min(p.vectors[1], most, 16))
        return [widest, widest // 2] if widest > WORD else [widest]

    def _shapes(self, p: KernelProblem) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Tiles of blocks and lanes: one per row, with the columns SHAPE."""
        per_byte, rows = access_of(p).format.per_byte, []
        for vec_b, ms, ns, along, kl, steps in product(self._widths(p), ROWS, COLUMNS, WARPS_LONG, GROUPS, STEPS):
            if THREADS[0] <= along * kl * WARP <= THREADS[1]:
                step_depth = QUAD * max(vec_b, WORD) * per_byte
                rows.append((ms, ns, ms // 2 * LANES, ns * LANES * along, kl, steps * kl * step_depth, vec_b))
        return np.array(rows, np.int64).reshape(-1, len(SHAPE))

    def tiles(self, p: KernelProblem) -> Columns:
        columns = dict(zip(SHAPE, self._shapes(p).T, strict=True))
        values = {n: np.unique(columns[n]) for n in self.tile}
        return Columns.product(values).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        rows = self._shapes(p)
        columns = {n: np.ascontiguousarray(column) for n, column in zip(SHAPE, rows.T, strict=True)}
        return Columns(columns, len(rows)).replace(family=self.code, raster_group=8)

    def copy_modes(self, p: KernelProblem, every: bool = False) -> list[dict[str, int]]:
        """The copy modes with the widest loads of activations, by lanes or to stages."""
        vec_a = min(p.vectors[0], CHUNK)
        return [{"vec_a": vec_a, "stages": n} for n in ((0, 3) if vec_a > 1 else (0,))]

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return [self.copy_modes(p), [{"fragment_prefetch": n} for n in (0, 1)]]

    def finalize(self, p: KernelProblem, d: Device, c: Grid) -> Grid:
        """Sets ``min_ctas_per_sm`` to the blocks per multiprocessor that registers allow, for the most loads in
        flight."""
        g = geometry(p, c)
        c = c.replace(vec_a=np.minimum(c.vec_a, g.depth))
        c = c.replace(vec_c=np.minimum(np.minimum(p.vectors[2], c.nl), 16 // g.sum_bytes), raster_group=8)
        return c.replace(min_ctas_per_sm=resident_blocks(g, d))

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """The groups of axes for the sampler: tiles with their depth and loads of weights; ``kg`` with ``splitk``."""
        shapes = [tuple(row) for row in self._shapes(p).tolist()]
        known = {*SHAPE, "kg", "splitk"}
        plain = {n: v for n, v in super().variables(p).items() if n[0] not in known}
        return {SHAPE: shapes, ("kg", "splitk"): splitk_pairs(self.axes), **plain}

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        kg, widest_c = np.minimum(slices_of_k(p, c)[1], c.kg), 16 // accumulator_bytes(p)
        return c.replace(kg=kg, splitk=np.where(kg > 1, c.splitk, SPLIT_MEMSET), vec_c=np.minimum(c.vec_c, widest_c))

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from super().changes(p, d, config)
        for n in (1, 4):  # warps along K for warps along N, or for steps
            yield {"kl": config.kl * n // 2, "u": config.u * n // 2}
            yield {"kl": config.kl * n // 2, "nl": config.nl * 2 // n}
            yield {"kl": config.kl * n // 2, "u": config.u * n // 2, "nl": config.nl * 2 // n}
            yield {"u": config.u * n // 2, "vec_b": config.vec_b * n // 2}
            yield {"ns": config.ns * n // 2, "u": config.u * 2 // n, "nl": config.nl * n // 2}
            yield {"ms": config.ms * n // 2, "ml": config.ml * n // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        """Returns configurations with the given ``min_ctas_per_sm`` and with lower values, which allow more registers
        per thread."""
        [plain] = super().with_dependent_axes(p, config, changes)
        if "min_ctas_per_sm" in changes:
            return [plain]
        return [plain, *(plain.replace(min_ctas_per_sm=n) for n in (1, 2, 4, 8) if n < plain.min_ctas_per_sm)]
