"""Block scales: f32 numbers by which a sum of ``DEPTH`` products along K is multiplied."""

from __future__ import annotations

from typing import NamedTuple

DEPTH = 128  #: elements along K of a block


class Scaling(NamedTuple):
    """The blocks of a matrix, and how their scales are stored. ``rows``: rows of a block (columns, for B); ``by_k``:
    True if the scales of one K block are contiguous, else the scales of one block of rows are."""

    rows: int
    by_k: bool

    def shape(self, extent: int, k: int) -> tuple[int, int]:
        """The number of blocks along the rows and along K."""
        return -(-extent // self.rows), -(-k // DEPTH)

    def stored(self, extent: int, k: int) -> tuple[int, int]:
        """The stored shape of the scales."""
        return self.ordered(*self.shape(extent, k))

    def ordered(self, rows: int, depth: int) -> tuple[int, int]:
        """The stored shape of ``rows`` by ``depth`` scales."""
        return (depth, rows) if self.by_k else (rows, depth)


#: value of the problem fields ``block_a`` and ``block_b`` -> blocks and their storage
SCALINGS = {
    "1x128": Scaling(1, False),
    "128x128": Scaling(DEPTH, False),
    "1x128t": Scaling(1, True),
    "128x128t": Scaling(DEPTH, True),
}
