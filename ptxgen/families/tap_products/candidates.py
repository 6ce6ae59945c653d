"""The candidate space of kernels that add products of taps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from ptxgen.codegen.config.axes import searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.tap_products import axes
from ptxgen.families.tap_products.geometry import MMA_CHANNELS
from ptxgen.families.tap_products.rules import MMA_VECTOR
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LEAST_USED = 0.7  #: least share of the pixels for which a block of a candidate has threads
#: most products of a pixel by mma.sync; with more, wgmma took half the time on an H200 or less
MOST_MMA_PRODUCTS = 16
MOST_LOADED = 128  #: most bytes of a pixel that a candidate loads before it multiplies


class TapSpace(CandidateSpace):
    name = "tap_products"
    axes = searched(axes.AXES)
    class_axes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
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
    cell = ()
    fixed = ()
    tile_rules = ("axis", "range", "threads", "tap_products_pixels")
    extent_rules = ("range", "tap_products_filters")

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product({n: self.axes[n] for n in self.tile}).replace(family=self.code)

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

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        c = tiles.replace(family=self.code)
        return c, violations(self, p, c, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)
        for a, b in ((1, 4), (4, 1)):
            yield {"block_threads": config.block_threads * a // 2, "thread_pixels": config.thread_pixels * b // 2}
        for height, width in ((1, 4), (4, 1)):
            yield {"tile_height": config.tile_height * height // 2, "tile_width": config.tile_width * width // 2}

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        if changes.get("tap_mma"):
            changes = {**changes, "vec_channel": MMA_VECTOR, "u": -(-config.u // MMA_CHANNELS) * MMA_CHANNELS}
        return [config.replace(**changes)]
