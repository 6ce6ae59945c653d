"""The stream-K scheduler of one product: blocks compute whole tiles, then equal shares of the K iterations of the last
tiles."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.parts.scheduler import GridScheduler, blocks_at_once
from ptxgen.codegen.split_k import stream_shares
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

LEAST = 4  #: least K iterations of a share
WAVES = 2  #: the last tiles are those that do not fill a wave and those of the wave before


@dataclass(frozen=True)
class StreamTiles(GridScheduler):
    """The scheduler of kernels with as many blocks as fit on the device at once, ``blocks``.

    All blocks have equally many whole tiles, and then a share of the K iterations of the last tiles. These iterations
    are counted tile by tile. A block computes its share from the last tile to the first. If another block completes a
    tile, this block stores its sums of the tile, ``slice_bytes`` bytes, before it waits for sums of other blocks."""

    blocks: int
    slice_bytes: int

    counts_resident = True
    template = "sched/stream_shares.mako"

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: Geometry, d: Device, registers: int = -1) -> StreamTiles:
        """The scheduler of a kernel. ``registers``: registers per thread; -1: the most that ptxas may allocate."""
        blocks = d.sms * blocks_at_once(c, g, d, registers)
        return cls(c, False, blocks, c.ml * c.nl * max(4, p.accumulator.bytes))

    def shares(self, p: KernelProblem) -> tuple[int, int, int]:
        """Three numbers: the tiles that blocks compute whole, the K iterations of the other tiles, and the K iterations
        of a share."""
        return stream_shares(self.tiles(p)[2], self.blocks, WAVES, self.iterations(p), LEAST)

    def iterations(self, p: KernelProblem) -> int:
        """The number of K iterations of a tile."""
        iterations: int = max(-(-p.k // self.config.u), 1)
        return iterations

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        full, tail, share = self.shares(p)
        return max(min(full, self.blocks), -(-tail // share)), 1, 1

    @property
    def parameters(self) -> list[Parameters]:
        names = ("tile_iters", "full_tiles", "tail_iters", "share_iters")
        return [Parameters("u32", names, lambda x: (self.iterations(x.p), *self.shares(x.p)))]

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        region = workspace.claim(self.blocks * self.slice_bytes, "partial sums [block]", zeroed=True)
        assert region.offset == 0, "the kernel finds them at the start of the workspace"

    @property
    def grid_text(self) -> str:
        return f"(blocks, at most {self.blocks}, 1, 1)"
