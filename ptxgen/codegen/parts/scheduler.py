"""The tile scheduler of kernels in which each block computes one tile, and the grid counts tiles and slices of K."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.vectorized import Last, ceil_div, register_cap
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


def blocks_at_once(c: Config, g: Geometry, d: Device, registers: int = -1) -> int:
    """The number of blocks that fit on a multiprocessor at once. ``registers``: registers per thread; -1: the most that
    ptxas may allocate."""
    if registers <= 0:
        registers = min(int(g.registers), int(register_cap(d, g.threads, c.min_ctas_per_sm)))
    return max(int(d.blocks_per_sm(g.threads, registers, g.shared)), c.min_ctas_per_sm)


@dataclass(frozen=True)
class GridScheduler(Part):
    """The tile scheduler whose grid counts tiles along M and N, and the slices of all batch items."""

    config: Config
    batched: bool

    template = "sched/raster.mako"
    some_tiles = False  #: True if blocks compute only the tiles of a list

    @property
    def raster_group(self) -> int:
        """The number of tiles along M in a raster group; 1: grid.x and grid.y count the tiles along M and N."""
        return self.config.raster_group

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters that only this scheduler reads."""
        return []

    def tiles(self, p: KernelProblem) -> tuple[int, int, int]:
        """The numbers of tiles of one batch item along M and along N, and their product."""
        tiles_m, tiles_n = -(-p.m // self.config.ml), -(-p.n // self.config.nl)
        return tiles_m, tiles_n, tiles_m * tiles_n

    def k_slices(self, p: KernelProblem) -> tuple[int, int]:
        """The number of slices of K that are not empty, and the length of a slice."""
        c = self.config
        slice_k = ceil_div(ceil_div(p.k, c.kg), c.u) * c.u
        return max(-(-p.k // slice_k), 1) if slice_k else 1, slice_k

    def slices(self, p: KernelProblem) -> int:
        """The number of slices of K that store partial sums."""
        return self.k_slices(p)[0]

    def gemms(self, p: KernelProblem) -> tuple[KernelProblem, ...]:
        """The GEMMs of a problem; each has its own launch."""
        return p.gemms

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        """The grid of a launch of ``items`` batch items."""
        tiles_m, tiles_n, tiles = self.tiles(p)
        z = self.slices(p) * items
        return (tiles_m, tiles_n, z) if self.raster_group == 1 else (tiles, 1, z)

    def batch_limit(self, p: KernelProblem) -> int:
        """The most batch items of one launch; grid.z counts the slices of all items."""
        return GRID_LIMIT // self.slices(p)

    @property
    def grid_text(self) -> str:
        """The text that explains the axes of the grid, for the header."""
        last = "items of all slices" if self.batched else "slices"
        return f"(tiles of M, tiles of N, {last})" if self.raster_group == 1 else f"(tiles, 1, {last})"

    last_row = Last("config.ml")
    last_column = Last("config.nl")
    last_k = Last("config.u")
