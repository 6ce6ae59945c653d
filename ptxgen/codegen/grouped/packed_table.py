"""The descriptor table of a group whose items a kernel packs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.grouped.descriptor_table import DescriptorTable

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

    def further(self, extents: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The first packed rows. Packed items are in the order of the descriptors."""
        counts = extents[:, :2] * -(-extents[:, 2:] // self.block)
        return dict(zip(PACKED, (np.cumsum(counts, axis=0) - counts).T, strict=True))
