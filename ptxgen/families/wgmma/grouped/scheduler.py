"""The tile scheduler of wgmma kernels for jagged groups: blocks loop over the tiles of all items, and one tensor map
has the rows of all items."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.grouped.descriptor_table import HEADER, DescriptorTable, table_of
from ptxgen.codegen.grouped.packed_table import PACKED
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.families.wgmma.axes import B_ONCE
from ptxgen.families.wgmma.geometry import resident_blocks
from ptxgen.families.wgmma.grouped_rows import FAR
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class GroupedTileScheduler(TileScheduler):
    """The tile scheduler: blocks loop over the tiles of all items, in steps of the grid. ``table``: the layout of the
    descriptor table, which counts tiles of clusters; ``jagged``: the axis along which items differ, m or k, or empty
    for a list; ``packed``: True if a kernel packs the items of A and B."""

    table: DescriptorTable
    jagged: str
    packed: bool

    HEADER, FAR = HEADER, FAR

    @property
    def row_side(self) -> str:
        """The side of a tile, x or y, along the rows of C."""
        return "y" if self.transposed else "x"

    @property
    def first_packed_rows(self) -> list[tuple[str, int]]:
        """For X and Y: the side, and the offset in a descriptor of the first row of the packed item; empty if no kernel
        packs items."""
        names = PACKED[::-1] if self.transposed else PACKED
        return [(side, self.table.at(name)) for side, name in zip("xy", names, strict=True) if self.packed]

    @property
    def item_scalars(self) -> tuple[str, ...]:
        """The scalars of which each item of a list has its own."""
        return () if self.jagged else ("alpha", "beta")

    template = "sched/grouped_persistent.mako"
    tile_register = "%item_tile"

    @property
    def parameters(self) -> list[Parameters]:
        return [
            Parameters("u64", ("table",), lambda x: (table_of(x, self.table),)),
            Parameters("u32", ("items",), lambda x: (x.p.extents.tensor_items,), same_line=True),
        ]

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        return int(resident_blocks(self.device, self.config)), 1, 1

    def batch_limit(self, p: KernelProblem) -> int:
        return 1

    @property
    def rows_read_once(self) -> int:
        """If an item has at most this many rows, its loads of B have the policy evict_first; 0: all items have the same
        policy."""
        return int(self.table.ml) if self.config.l2_evict_first == B_ONCE else 0
