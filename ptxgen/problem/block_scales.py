"""Blocks of matrices that have scales: f32 numbers that multiply the sums of ``DEPTH`` elements of K."""

from __future__ import annotations

from typing import NamedTuple

DEPTH = 128  #: elements of K of a block


class Scaling(NamedTuple):
    """The blocks of a matrix, and their scales in memory. ``rows``: rows (of B: columns) of a block; ``by_k``: True if
    the scales of one block of K are contiguous, else those of one block of rows."""

    rows: int
    by_k: bool

    def shape(self, extent: int, k: int) -> tuple[int, int]:
        """Blocks along the rows and along K."""
        return -(-extent // self.rows), -(-k // DEPTH)

    def stored(self, extent: int, k: int) -> tuple[int, int]:
        """The shape of the scales as stored."""
        rows, depth = self.shape(extent, k)
        return (depth, rows) if self.by_k else (rows, depth)


#: word of a problem -> what it means
SCALINGS = {
    "1x128": Scaling(1, False),
    "128x128": Scaling(DEPTH, False),
    "1x128t": Scaling(1, True),
    "128x128t": Scaling(DEPTH, True),
}
