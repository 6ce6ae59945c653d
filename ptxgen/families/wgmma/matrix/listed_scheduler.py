"""The tile scheduler of joins: persistent blocks loop over the list of the tiles that have pairs of equal keys."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.grouped.listed_tiles import ENTRY, HEADER
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.vectorized import Last
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler, cluster_tile


@dataclass(frozen=True)
class ListedTileScheduler(TileScheduler):
    """The tile scheduler: blocks loop over a list of tiles of clusters, in steps of the grid."""

    HEADER, ENTRY = HEADER, ENTRY

    template = "sched/listed_persistent.mako"
    tile_register = "%item_tile"
    some_tiles = True

    @property
    def parameters(self) -> list[Parameters]:
        return [Parameters("u64", ("tile_list",), lambda x: (x.buffers.packed["tiles"],))]

    @property
    def panel_rows(self) -> int:
        """The number of rows of C in the tiles of a cluster."""
        return cluster_tile(self.config)[0]

    last_panel_row = Last("panel_rows")

    @property
    def row_side(self) -> str:
        """The side of a tile, x or y, along the rows of C."""
        return "y" if self.transposed else "x"

    @property
    def column_side(self) -> str:
        return "x" if self.transposed else "y"
