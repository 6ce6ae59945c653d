"""The descriptor table of a group whose items a kernel packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.grouped.descriptor_table import DescriptorTable, Words

#: the last entries of a descriptor: the first row of an item among the packed rows of A, and of B
PACKED = ("packed_a", "packed_b")


@dataclass(frozen=True)
class PackedTable(DescriptorTable):
    """The layout of a table whose descriptors have the places of packed items, too. A packed item has a row for each of
    its rows and each block of K. ``block``: the elements of a block of K."""

    block: int = 1

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.operands[: -len(PACKED)]

    def words(
        self,
        extents: NDArray[np.int64],
        lds: NDArray[np.int64],
        addresses: NDArray[np.int64],
        alpha: Any = 1,
        beta: Any = 1,
        operands: Sequence[NDArray[np.int64]] = (),
    ) -> Words:
        """The words of the table. Packed items are in the order of the descriptors."""
        tiles = -(-extents[:, 0] // self.ml) * -(-extents[:, 1] // self.nl)
        order, first = self.order(extents, tiles), np.zeros((len(PACKED), len(extents)), np.int64)
        for axis, rows in enumerate(first):
            count = (extents[:, axis] * -(-extents[:, 2] // self.block))[order]
            rows[order] = np.cumsum(count) - count
        return super().words(extents, lds, addresses, alpha, beta, (*operands, *first))
