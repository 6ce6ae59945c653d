"""How the threads of a block read the sums of a tile in shared memory, to reduce its rows or its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.parts.row_lanes import RowLanes
from ptxgen.codegen.vectorized import Last, Log2, Mask


@dataclass(frozen=True)
class TileWalk(RowLanes, Part):
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
    def distances(self) -> list[int]:
        """Distances of the lanes that exchange states, to join those of a row."""
        return [1 << n for n in reversed(range(self.log2_row_lanes))]

    # ---- along columns

    @property
    def column_lanes(self) -> int:
        """Threads that have the vectors of one row."""
        return math.gcd(self.row_vectors, self.threads)

    log2_column_lanes = Log2("column_lanes")

    @property
    def bands(self) -> int:
        """Groups of threads that have different rows of the same columns."""
        return self.threads // self.column_lanes

    @property
    def band_rows(self) -> int:
        """Adjacent rows of a thread."""
        return -(-self.ml // self.bands)

    column_lane_mask = Mask("column_lanes")

    @property
    def round_columns(self) -> range:
        """The first column of each vector of a thread, along columns."""
        return range(0, self.nl, self.column_lanes * self.vec)

    @property
    def row_round_columns(self) -> range:
        """The first column of each vector of a lane, along rows."""
        return range(0, self.nl, self.row_lanes * self.vec)

    last_row = Last("ml")
    last_column = Last("nl")
