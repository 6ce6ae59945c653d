"""The tile loop of wgmma kernels over the items of a jagged group: one tensor map has the rows of all items."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.grouped.descriptor_table import HEADER, DescriptorTable
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.families.wgmma.axes import B_ONCE
from ptxgen.families.wgmma.geometry import resident_blocks
from ptxgen.families.wgmma.grouped_rows import FAR
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class GroupedTileScheduler(TileScheduler):
    """Blocks loop over the tiles of all items, in steps of the grid. ``table``: the layout of the descriptors, whose
    tiles are those of a cluster; ``jagged``: the axis along which items differ, m or k."""

    table: DescriptorTable
    jagged: str

    HEADER, FAR = HEADER, FAR

    @property
    def row_side(self) -> str:
        """The side of a tile along the rows of C."""
        return "y" if self.transposed else "x"

    template = "sched/grouped_persistent.mako"
    tile_register = "%item_tile"

    @property
    def parameters(self) -> list[Parameters]:
        return [
            Parameters("u64", ("table",), lambda x: (x.buffers.packed["table"],)),
            Parameters("u32", ("items",), lambda x: (x.p.extents.tensor_items,), same_line=True),
        ]

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        return int(resident_blocks(self.device, self.config)), 1, 1

    def batch_limit(self, p: KernelProblem) -> int:
        return 1

    @property
    def rows_read_once(self) -> int:
        """The most rows of an item whose loads of B L2 evicts first; 0: the policy is the same for all items."""
        return int(self.table.ml) if self.config.l2_evict_first == B_ONCE else 0

    @property
    def counted_tile(self) -> str:
        """The instruction that gives the tile that the table counts: of a cluster."""
        ctas = self.config.cluster_x * self.config.cluster_y
        return f"div.u32 %item_tile, %tile, {ctas};" if ctas > 1 else "mov.u32 %item_tile, %tile;"


def cluster_tile(c: Config) -> tuple[int, int]:
    """Rows and columns of C of the tiles of a cluster."""
    along_m, along_n = (c.cluster_y, c.cluster_x) if c.transposed_mma else (c.cluster_x, c.cluster_y)
    return c.ml * along_m, c.nl * along_n
