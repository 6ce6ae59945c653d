"""The candidate space of kernels that add products of taps."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.table_space import TableSpace
from ptxgen.families.tap_products import axes
from ptxgen.families.tap_products.geometry import MMA_CHANNELS
from ptxgen.families.tap_products.rules import MMA_VECTOR
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LEAST_USED = 0.7  #: least share of the pixels for which a block of a candidate has threads
#: most products of a pixel by mma.sync; with more, wgmma took half the time on an H200 or less
MOST_MMA_PRODUCTS = 16
MOST_LOADED = 128  #: most bytes of a pixel that a candidate loads before it multiplies


class TapSpace(TableSpace):
    name = "tap_products"
    axes = searched(axes.AXES)
    tile = (
        "tile_height",
        "tile_width",
        "block_threads",
        "thread_pixels",
        "vec_channel",
        "u",
        "filter_channels",
        "tap_mma",
    )
    exchanged = (("block_threads", "thread_pixels"), ("tile_height", "tile_width"))
    cell = ()
    fixed = ()
    tile_rules = ("axis", "range", "threads", "tap_products_pixels")
    extent_rules = ("range", "tap_products_filters")

    def shapes(self, p: KernelProblem) -> Columns:
        """The tiles whose threads have pixels, and whose loads are as wide as channels allow."""
        c, access = self.tiles(p), p.operands[0].access
        products, widest = access.products, access.constants[-1]
        used = products.rows.covered(c.tile_height) * products.columns.covered(c.tile_width)
        held = c.block_threads * c.thread_pixels
        wide = np.where(c.tap_mma > 0, MMA_VECTOR, widest)
        loads = (c.vec_channel == wide) & (c.u * p.element.bytes <= np.where(c.tap_mma > 0, 2, 1) * MOST_LOADED)
        loads &= (c.tap_mma == 0) | ((c.u % MMA_CHANNELS == 0) & (products.products <= MOST_MMA_PRODUCTS))
        return c.take(np.flatnonzero((used <= held) & (used >= LEAST_USED * held) & loads))

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return []

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        if changes.get("tap_mma"):
            changes = {**changes, "vec_channel": MMA_VECTOR, "u": -(-config.u // MMA_CHANNELS) * MMA_CHANNELS}
        return super().with_dependent_axes(p, config, changes)
