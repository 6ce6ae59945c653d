"""How the lanes of a warp share the rows of a block's tile in shared memory."""

from __future__ import annotations

import math

from ptxgen.codegen.vectorized import WARP, Log2, Mask


class RowLanes:
    """Adjacent lanes of a warp have the vectors of one row. ``threads``: of the block."""

    threads: int

    @property
    def row_vectors(self) -> int:
        """Vectors of a row of the block's tile."""
        raise NotImplementedError

    @property
    def row_lanes(self) -> int:
        """Lanes that share a row."""
        return math.gcd(self.row_vectors, WARP)

    log2_row_lanes = Log2("row_lanes")
    row_lane_mask = Mask("row_lanes")

    @property
    def row_rounds(self) -> int:
        """Vectors of a lane in a row."""
        return self.row_vectors // self.row_lanes

    @property
    def rows_per_step(self) -> int:
        """Rows that the block reads at once."""
        return self.threads // self.row_lanes
