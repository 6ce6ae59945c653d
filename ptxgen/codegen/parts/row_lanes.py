"""How the lanes of a warp divide the rows of a block's tile in shared memory."""

from __future__ import annotations

import math

from ptxgen.codegen.vectorized import WARP, Log2, Mask


class RowLanes:
    """A part in which adjacent lanes of a warp read the vectors of one row. ``threads``: threads of the block."""

    threads: int

    @property
    def row_vectors(self) -> int:
        """The number of vectors of a row of the block's tile."""
        raise NotImplementedError

    @property
    def row_lanes(self) -> int:
        """The number of lanes that share a row."""
        return math.gcd(self.row_vectors, WARP)

    log2_row_lanes = Log2("row_lanes")
    row_lane_mask = Mask("row_lanes")

    @property
    def row_rounds(self) -> int:
        """The number of vectors of a lane in a row."""
        return self.row_vectors // self.row_lanes

    @property
    def rows_per_step(self) -> int:
        """The number of rows that the block reads at once."""
        return self.threads // self.row_lanes
