"""The stream-K tile scheduler: persistent blocks compute whole tiles, then equal shares of the K iterations of the last
tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.split_k import stream_shares
from ptxgen.families.wgmma.geometry import STREAM_BLOCKS, STREAM_LEAST, resident_blocks
from ptxgen.families.wgmma.layout import SumSlot, in_batches
from ptxgen.families.wgmma.matrix.reduction import SplitKFixup
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class StreamTileScheduler(TileScheduler):
    """The tile scheduler. All clusters have equally many whole tiles, and then a share of the K iterations of the last
    tiles. These iterations are counted tile by tile, and a share may begin and end within a tile. A cluster computes
    its share from the last tile to the first. If another cluster completes a tile, this cluster stores its sums of the
    tile before it waits for sums of other clusters."""

    template = "sched/stream_tiles.mako"
    tile_register = "%number"

    #: role -> suffix of branches that all threads of a warp take; of the producer's warp, only one thread loops
    uniform: ClassVar[Mapping[str, str]] = {"PRODUCER": "", "CONSUMER": ".uni"}

    @property
    def multicast(self) -> int:
        """The number of blocks of a cluster, each of which has a tile of its own."""
        return self.config.cluster_x * self.config.cluster_y

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        return int(resident_blocks(self.device, self.config)), 1, 1

    grid_text = "(multiprocessors, 1, 1)"

    @property
    def parameters(self) -> list[Parameters]:
        names = ("full_tiles", "tail_iters", "share_iters")
        return [Parameters("u32", names, lambda x: self.shares(x.p))]

    def shares(self, p: KernelProblem) -> tuple[int, int, int]:
        """Three numbers: the tiles that blocks compute whole, the K iterations of the other tiles of clusters, and the
        K iterations of a share."""
        clusters, tiles = self.grid(p, 1)[0] // self.multicast, self.tiles(p)[2] // self.multicast
        waves, iterations = self.config.stream_waves, self.k_iters(p)[0]
        full, tail, share = stream_shares(tiles, clusters, waves, iterations, STREAM_LEAST)
        return full * self.multicast, tail, share


@dataclass(frozen=True)
class StreamFixup(SplitKFixup):
    """The reduction of shares. A block whose share ends within a tile stores its sums of that tile in the workspace;
    the block that has the end of the tile adds the sums of the blocks before it."""

    template = "epilogue/stream_fixup.mako"

    active = True
    distributed = False

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        workspace.claim(STREAM_BLOCKS * self.slice_bytes, "partial sums [block]", zeroed=True)

    @cached_property
    def loaded(self) -> list[list[SumSlot]]:
        """The sums of one block that another block adds, in batches."""
        return in_batches(self.stored, self.batch)
