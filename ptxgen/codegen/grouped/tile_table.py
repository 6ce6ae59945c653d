"""The descriptor table and the schedulers of a kernel whose items have tiles of different sizes."""

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
    """The layout of a descriptor table whose items have tiles of different sizes.

    ``sides``: rows and columns of each tile size; ``scalar_type``: the type of alpha and beta; ``sms``:
    multiprocessors; ``resident``: blocks that run at once on a multiprocessor. The tile size of an item is an index in
    ``sides``. Its place in a descriptor is the field ``start`` of ``DescriptorTable``, which lists do not use.
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
        """Name of a field -> its offset in a descriptor, in bytes."""
        fields = self._of_tiles(1, 1).offsets
        return {**fields, "tile": fields["start"]}

    def at(self, field: str) -> int:
        """The offset of a field in a descriptor, in bytes. The field ``tile`` is the index of the item's tile size."""
        return self._of_tiles(1, 1).at("start" if field == "tile" else field)

    def blocks(self, extents: Ints, tiles: Ints) -> Ints:
        """The numbers of tiles along M and N, one row for each item. ``tiles``: the index of each item's tile size."""
        return np.asarray(-(-extents[:, :2] // np.array(self.sides, np.int64)[tiles].reshape(-1, 2)), np.int64)

    def words(self, extents: Ints, lds: Ints, addresses: Ints, tiles: Ints, alpha: Any = 1, beta: Any = 1) -> Words:
        """The words of the table. ``tiles``: the index of each item's tile size; the other arguments are those of
        ``DescriptorTable.words``."""
        sides = np.array(self.sides, np.int64)[tiles].reshape(-1, 2)
        table = self._of_tiles(sides[:, 0], sides[:, 1])
        words, count = table.words(extents, lds, addresses, alpha, beta), len(extents)
        rows = words[table.descriptors_at(count) // 4 : table.bytes(count) // 4].reshape(count, -1)
        rows[:, self.at("tile") // 4] = tiles[rows[:, table.at("item") // 4]]
        return words

    def place(self, words: Words, addresses: Ints) -> None:
        """Replaces the addresses of A, B and C in ``words``, a table. ``addresses``: one row for each item."""
        self._of_tiles(1, 1).place(words, addresses)

    def _of_tiles(self, ml: Any, nl: Any) -> DescriptorTable:
        return DescriptorTable(ml, nl, self.scalar_type, sms=self.sms, resident=self.resident)


@dataclass(frozen=True)
class TileTableScheduler(GridScheduler):
    """The scheduler with one block for each tile of each item. A block finds its item in the table."""

    table: MixedTable

    HEADER = HEADER
    template = "sched/tile_table.mako"
    schedule = "tlp"  #: the option ``--schedule`` in the command that emits the kernel

    def grid_of(self, extents: Ints, tiles: Ints) -> tuple[int, int, int]:
        """The grid for a list of items. ``tiles``: the index of each item's tile size."""
        return int(self.table.blocks(extents, tiles).prod(axis=1).sum()), 1, 1

    def batch_limit(self, p: KernelProblem) -> int:
        return 1

    grid_text = "(tiles of all items, 1, 1)"


@dataclass(frozen=True)
class ItemGridScheduler(TileTableScheduler):
    """The scheduler whose third grid axis is the item. The other axes have the most tiles that any item has along M and
    N; blocks without a tile exit."""

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
