"""How the threads of a block read the sums of a tile in shared memory to reduce the rows or columns of the tile."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.parts.row_lanes import RowLanes
from ptxgen.codegen.vectorized import Last, Log2, Mask


@dataclass(frozen=True)
class TileWalk(RowLanes, Part):
    """The order in which ``threads`` threads read vectors of ``vec`` sums from a tile of ``ml`` rows and ``nl``
    columns.

    To reduce rows, adjacent lanes of a warp read the vectors of one row. To reduce columns, each thread reads the
    vectors of the same columns in several rows.
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
        """The XOR distances between lanes that exchange states to join the states of a row."""
        return [1 << n for n in reversed(range(self.log2_row_lanes))]

    # ---- along columns

    @property
    def column_lanes(self) -> int:
        """The number of threads that read the vectors of one row when columns are reduced."""
        return math.gcd(self.row_vectors, self.threads)

    log2_column_lanes = Log2("column_lanes")

    @property
    def bands(self) -> int:
        """The number of bands when columns are reduced: groups of threads with different rows of the same columns."""
        return self.threads // self.column_lanes

    @property
    def band_rows(self) -> int:
        """The number of rows of a band."""
        return -(-self.ml // self.bands)

    column_lane_mask = Mask("column_lanes")

    @property
    def round_columns(self) -> range:
        """The first columns of a thread's vectors when columns are reduced, relative to its first vector."""
        return range(0, self.nl, self.column_lanes * self.vec)

    @property
    def row_round_columns(self) -> range:
        """The first columns of a lane's vectors when rows are reduced, relative to its first vector."""
        return range(0, self.nl, self.row_lanes * self.vec)

    last_row = Last("ml")
    last_column = Last("nl")
