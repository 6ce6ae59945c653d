"""How the threads of a block read the sums of a tile in shared memory, to reduce its rows or its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.vectorized import WARP, log2


@dataclass(frozen=True)
class TileWalk(Part):
    """``threads`` of a block read vectors of ``vec`` sums of a tile of ``ml`` rows and ``nl`` columns.

    Along rows, adjacent lanes of a warp have the vectors of one row. Along columns, each thread has the same vectors of
    several rows.
    """

    threads: int
    vec: int
    ml: int
    nl: int

    @property
    def row_vectors(self) -> int:
        return self.nl // self.vec

    # ---- along rows

    @property
    def row_lanes(self) -> int:
        """Lanes that share a row."""
        return min(self.row_vectors, WARP)

    @property
    def log2_row_lanes(self) -> int:
        return log2(self.row_lanes)

    @property
    def row_rounds(self) -> int:
        """Vectors of a lane in a row."""
        return self.row_vectors // self.row_lanes

    @property
    def rows_per_step(self) -> int:
        """Rows that the block reads at once."""
        return self.threads // self.row_lanes

    @property
    def distances(self) -> list[int]:
        """Distances of the lanes that exchange states, to join those of a row."""
        return [1 << n for n in reversed(range(self.log2_row_lanes))]

    # ---- along columns

    @property
    def column_lanes(self) -> int:
        """Threads that have the vectors of one row."""
        return math.gcd(self.row_vectors, self.threads)

    @property
    def log2_column_lanes(self) -> int:
        return log2(self.column_lanes)

    @property
    def column_rounds(self) -> int:
        """Vectors of a thread in a row."""
        return self.row_vectors // self.column_lanes

    @property
    def bands(self) -> int:
        """Groups of threads that have different rows of the same columns."""
        return self.threads // self.column_lanes

    @property
    def band_rows(self) -> int:
        """Adjacent rows of a thread."""
        return -(-self.ml // self.bands)
