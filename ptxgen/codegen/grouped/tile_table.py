"""Items with different tiles in one kernel: its descriptor table, and the schedulers of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.grouped.descriptor_table import HEADER, DescriptorTable, Words
from ptxgen.codegen.parts.scheduler import GridScheduler
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.errors import LaunchError
from ptxgen.lowering.kernel_problem import KernelProblem

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MixedTable:
    """The layout of a table in device memory that describes each item, and says which tile it has.

    ``sides``: rows and columns of each tile; ``scalar_type``: the type of alpha and beta; ``sms``, ``resident``: as a
    ``DescriptorTable`` has them, which has the descriptors. The number of an item's tile is the field ``start``, which
    lists do not use.
    """

    sides: tuple[tuple[int, int], ...]
    scalar_type: str
    sms: int = 1
    resident: int = 1

    @property
    def descriptor_bytes(self) -> int:
        return self._of_tiles(1, 1).descriptor_bytes

    @property
    def offsets(self) -> dict[str, int]:
        """Field -> its offset in a descriptor."""
        fields = self._of_tiles(1, 1).offsets
        return {**fields, "tile": fields["start"]}

    def at(self, field: str) -> int:
        """The offset of a field in a descriptor. ``tile``: the number of the item's tile."""
        return self._of_tiles(1, 1).at("start" if field == "tile" else field)

    def blocks(self, extents: Ints, tiles: Ints) -> Ints:
        """Tiles along M and along N of each item. ``tiles``: the number of the tile of each."""
        return np.asarray(-(-extents[:, :2] // np.array(self.sides, np.int64)[tiles].reshape(-1, 2)), np.int64)

    def words(self, extents: Ints, lds: Ints, addresses: Ints, tiles: Ints, alpha: Any = 1, beta: Any = 1) -> Words:
        """The table. ``tiles``: the number of the tile of each item; the other arguments are those of
        ``DescriptorTable.words``."""
        sides = np.array(self.sides, np.int64)[tiles].reshape(-1, 2)
        table = self._of_tiles(sides[:, 0], sides[:, 1])
        words, count = table.words(extents, lds, addresses, alpha, beta), len(extents)
        rows = words[table.descriptors_at(count) // 4 : table.bytes(count) // 4].reshape(count, -1)
        rows[:, self.at("tile") // 4] = tiles[rows[:, table.at("item") // 4]]
        return words

    def place(self, words: Words, addresses: Ints) -> None:
        """Writes the addresses of A, B and C of the items to a table."""
        self._of_tiles(1, 1).place(words, addresses)

    def _of_tiles(self, ml: Any, nl: Any) -> DescriptorTable:
        return DescriptorTable(ml, nl, self.scalar_type, sms=self.sms, resident=self.resident)


@dataclass(frozen=True)
class TileTableScheduler(GridScheduler):
    """A block for each tile of each item; it finds its item in the table."""

    table: MixedTable

    HEADER = HEADER
    template = "sched/tile_table.mako"
    schedule = "tlp"  #: of the command that emits such kernels

    def grid_of(self, extents: Ints, tiles: Ints) -> tuple[int, int, int]:
        """The grid of a list. ``tiles``: the number of the tile of each item."""
        return int(self.table.blocks(extents, tiles).prod(axis=1).sum()), 1, 1

    def batch_limit(self, p: KernelProblem) -> int:
        return 1

    grid_text = "(tiles of all items, 1, 1)"


@dataclass(frozen=True)
class ItemGridScheduler(TileTableScheduler):
    """The third axis of the grid is the item; the others are the tiles of the item that has the most along each. Blocks
    without a tile exit."""

    template = "sched/item_grid.mako"
    schedule = "tlp_grid"

    def grid_of(self, extents: Ints, tiles: Ints) -> tuple[int, int, int]:
        along_m, along_n = (int(n) for n in self.table.blocks(extents, tiles).max(axis=0, initial=0))
        if max(along_n, len(extents)) > GRID_LIMIT:
            raise LaunchError(
                f"the grid of the largest item is ({along_m}, {along_n}, {len(extents)}); its second and third axis"
                f" must be {GRID_LIMIT} at most"
            )
        return along_m, along_n, len(extents)

    grid_text = "(most tiles of M, most tiles of N, items)"
