"""The tile scheduler: which tile of C and which K slice a block computes, and how many blocks a launch has."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.vectorized import Last, integer
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.families.wgmma.geometry import WgmmaGeometry, length, resident_blocks
from ptxgen.lowering.im2col_descriptor import tma_n
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

TILES_LIMIT = (1 << 31) - 1  #: most tiles that a persistent launch counts


@dataclass(frozen=True)
class TileScheduler(Part):
    """The tile scheduler: a block computes one tile, or blocks loop over tiles (``persistent``)."""

    config: Config
    geometry: WgmmaGeometry
    device: Device
    batched: bool

    some_tiles = False  #: True if blocks compute only the tiles of a list

    @property
    def template(self) -> str:
        return "sched/persistent.mako" if self.config.persistent else "sched/one_tile.mako"

    @property
    def raster_group(self) -> int:
        """The number of tiles along X in a raster group."""
        return self.config.raster_group

    @property
    def transposed(self) -> bool:
        """True if X is along N, so that the kernel computes tiles of C's transpose."""
        return bool(self.config.transposed_mma)

    @property
    def x_tile(self) -> int:
        return int(self.geometry.x.tile)

    @property
    def y_tile(self) -> int:
        return int(self.geometry.y.tile)

    @property
    def x_extent(self) -> str:
        """The register with the extent of C along X."""
        return "%N" if self.transposed else "%M"

    @property
    def y_extent(self) -> str:
        return "%M" if self.transposed else "%N"

    @property
    def cluster_k(self) -> int:
        return self.config.cluster_k

    @property
    def splits_k(self) -> bool:
        return self.config.kg * self.config.cluster_k > 1

    @property
    def linear(self) -> bool:
        """True if tiles follow from a linear number of the block, not from its place in a grid of tiles."""
        return bool(self.config.persistent) or self.config.raster_group > 1

    @property
    def tile_register(self) -> str:
        """The register with the number of a tile in its batch item."""
        return "%item_tile" if self.batched and self.config.persistent else "%tile"

    @property
    def parameters(self) -> list[Parameters]:
        """The kernel parameters of the tile scheduler."""
        return []

    # ---- launches

    def slices(self, p: KernelProblem) -> int:
        """The number of K slices that store partial sums."""
        return self.config.kg

    def tiles(self, p: KernelProblem) -> tuple[int, int, int]:
        """The numbers of blocks along X and along Y for one batch item, in whole clusters, and their product."""
        c = self.config
        x, y = (tma_n(p), p.m) if self.transposed else (p.m, tma_n(p))
        across = -(-x // (self.x_tile * c.cluster_x)) * c.cluster_x
        down = -(-y // (self.y_tile * c.cluster_y)) * c.cluster_y
        return across, down, across * down

    def k_iters(self, p: KernelProblem) -> tuple[int, int]:
        """The K iterations of each slice, and the number of slices that have one iteration more."""
        c = self.config
        # at least one iteration each: zeros, where there is no K
        iters: int = -(-integer(length(p, c)) // c.u)
        return divmod(max(iters, 1), c.kg * c.cluster_k)

    def gemms(self, p: KernelProblem) -> tuple[KernelProblem, ...]:
        """The GEMMs of a problem that have launches of their own."""
        return p.gemms

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        """The grid of a launch of ``items`` batch items."""
        c = self.config
        across, down, tiles = self.tiles(p)
        if c.persistent:
            return min(int(resident_blocks(self.device, c)), tiles * items), 1, 1
        z = c.kg * items
        return (tiles, 1, z) if self.linear else (across * c.cluster_k, down, z)

    def batch_limit(self, p: KernelProblem) -> int:
        """The most batch items of one launch."""
        c = self.config
        return TILES_LIMIT // self.tiles(p)[2] if c.persistent else GRID_LIMIT // c.kg

    @property
    def cluster_shape(self) -> tuple[int, int]:
        """The numbers of blocks of a cluster along the grid's x and y."""
        c = self.config
        return (c.cluster_x * c.cluster_y, 1) if self.linear else (c.cluster_x * c.cluster_k, c.cluster_y)

    @property
    def grid_z_text(self) -> str:
        """A text for the header: the meaning of grid.z."""
        return "items of all slices" if self.batched else "slices"

    @property
    def grid_text(self) -> str:
        """A text for the header: the meaning of the axes of the grid."""
        if self.config.persistent:
            return "(multiprocessors, 1, 1)"
        tiles = f"tiles of {self.x_extent[1:]}" + (f" x {self.cluster_k}" if self.cluster_k > 1 else "")
        last = self.grid_z_text
        return f"(tiles, 1, {last})" if self.linear else f"({tiles}, tiles of {self.y_extent[1:]}, {last})"

    @property
    def bra(self) -> dict[str, str]:
        """Role -> the opcode of its branches: a whole warpgroup branches together, or one thread alone."""
        return {"CONSUMER": "bra.uni", "PRODUCER": "bra"}

    last_k = Last("config.u")

    @property
    def cluster_rows(self) -> int:
        """The number of rows along X in the tiles of a cluster."""
        return self.x_tile * self.config.cluster_x

    @property
    def cluster_columns(self) -> int:
        """The number of columns along Y in the tiles of a cluster."""
        return self.y_tile * self.config.cluster_y

    last_cluster_row = Last("cluster_rows")
    last_cluster_column = Last("cluster_columns")

    @property
    def counted_tile(self) -> str:
        """The instruction that computes the cluster's tile, which the table counts, from the block's."""
        ctas = self.config.cluster_x * self.config.cluster_y
        return f"div.u32 %item_tile, %tile, {ctas};" if ctas > 1 else "mov.u32 %item_tile, %tile;"

    @property
    def skipped_register(self) -> str:
        return ", %skipped_iters" if self.config.pingpong else ""


def cluster_tile(c: Config) -> tuple[int, int]:
    """Rows and columns of C that the tiles of a cluster cover."""
    along_m, along_n = (c.cluster_y, c.cluster_x) if c.transposed_mma else (c.cluster_x, c.cluster_y)
    return c.ml * along_m, c.nl * along_n
