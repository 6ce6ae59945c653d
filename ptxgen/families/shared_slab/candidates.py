"""The candidate space of shared_slab kernels."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns
from ptxgen.families.common.candidates import Ints, violations
from ptxgen.families.common.sparse_rules import VECTOR, widest
from ptxgen.families.common.sparse_space import SparseSpace
from ptxgen.families.shared_slab import axes
from ptxgen.families.shared_slab.axes import ONE, SEVERAL
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

WARP_ROWS = 8  #: most rows of C per warp
LEAST_BYTES = 48 << 10  #: least bytes of a tile, if there are several tiles
LEAST_WARPS = 16  #: least warps of a block that copies several tiles


class SharedSlabSpace(SparseSpace):
    name = "shared_slab"
    exchanged = (("slab_columns", "tile_k"),)
    axes = searched(axes.AXES)
    tile = ("slab_columns", "tile_k", "k_tiles", "c_rows", "block_warps", "vec_b")
    fixed = ("shared_slab_types",)
    tile_rules = ("axis", "range", "threads")
    extent_rules = ("range", "shared_slab_k", "shared_slab_grid")

    def tiles(self, p: KernelProblem) -> Columns:
        values = {n: self.axes[n] for n in self.tile} | {"vec_b": (widest(p),)}
        return Columns.product(values).replace(family=self.code)

    def shapes(self, p: KernelProblem) -> Columns:
        c = self.tiles(p)
        filled = (c.c_rows >= c.block_warps) & (c.c_rows <= WARP_ROWS * c.block_warps)
        bytes_tile = c.tile_k * c.slab_columns * p.element.bytes
        large = (c.k_tiles == ONE) | (bytes_tile >= LEAST_BYTES) & (c.block_warps >= LEAST_WARPS)
        return c.take(np.flatnonzero(filled & large))

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        lists = [[{n: i} for i in self.axes[n]] for n in ("tile_buffers", "nonzeros_in_flight", "nonzeros_staged")]
        return [*lists, [{"nonzeros_read": VECTOR // (2 * p.accumulator.bytes)}]]

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        """The cells. Of the tiles with all rows of B, the smallest is a candidate; of smaller tiles, there are at least
        two."""
        c = tiles.replace(family=self.code)
        broken = violations(self, p, c, d, self.extent_rules)
        fits = [k for k in self.axes["tile_k"] if k >= p.extents.k]
        useless = (c.k_tiles == ONE) & (c.tile_k != min(fits, default=0)) | (c.k_tiles == SEVERAL) & (
            c.tile_k >= p.extents.k
        )
        broken[(broken < 0) & useless] = -2
        return c, broken
