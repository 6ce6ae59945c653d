"""The assignment of warps to rows, and the layout of a row's columns of B in shared memory.

A row of up to 8, 16, 32 or 64 nonzeros has w = 1, 2, 4 or 8 warps. Its nonzeros are w parts of 8. The left operand has
a row for each part of each column of B, so a fragment of 16 rows has 16 / w columns. The diagonals of the parts of a
column add up to one result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.vectorized import Log2, Mask

WARPS = 8  #: warps of a block
COLUMNS = 64  #: columns of B and C that the warps of a row compute at once
NONZEROS = 64  #: nonzeros that a block multiplies at once
PART = 8  #: nonzeros of a part: elements of a row of the left operand, and of a column of the right operand
FRAGMENTS = 4  #: accumulator fragments of a warp, for 64 columns
FRAGMENT_ROWS = 16
SHARES = (8, 4, 2, 1)  #: warps of a row of up to 64, 32, 16, 8 nonzeros

SCRATCH_BYTES = 2 * PART  #: bytes of a warp's scratch memory: 8 nonzeros
#: bytes of a warp's buffer: 64 columns of 8 elements, and 16 bytes after each 8 columns to avoid bank conflicts of
#: stores
BUFFER_BYTES = 2 * PART * COLUMNS + 16 * (COLUMNS // 8)
SUM_BYTES = 4 * COLUMNS  #: bytes of a warp's 64 sums
BUFFER_AT = WARPS * SCRATCH_BYTES
SUMS_AT = BUFFER_AT + WARPS * BUFFER_BYTES
SHARED_BYTES = SUMS_AT + WARPS * SUM_BYTES

CLASSES = 6  #: the number of classes of rows by length: more than 64 nonzeros, up to 64, 32, 16, 8, none


@dataclass(frozen=True)
class Share:
    """The layout of a row that has ``warps`` warps. Offsets and strides are in bytes.

    ``column_bytes``: bytes of a column of B; ``lane_bytes``: distance from the stores of one lane to those of the lane
    with the next 8 columns.
    """

    warps: int

    #: log2 of ``warps``
    shift = Log2("warps")

    @property
    def column_bytes(self) -> int:
        return 2 * PART * self.warps

    @property
    def lane_bytes(self) -> int:
        return PART * self.column_bytes + 16

    @property
    def title(self) -> str:
        return (
            f"rows of up to {PART * self.warps} nonzeros, {self.warps} warps each: columns of B in tiles of {COLUMNS}"
        )

    @property
    def words(self) -> int:
        """The number of 32-bit words of a row's nonzeros."""
        return PART * self.warps // 2

    @property
    def group_shift(self) -> int:
        """log2 of the warps that share 8 columns of a tile."""
        return self.shift - 1

    @property
    def column_shift(self) -> int:
        """log2 of the lanes that hold sums of one column of a fragment."""
        return self.shift + 2

    @property
    def fragments(self) -> list[tuple[int, int]]:
        """The offsets of both halves of each fragment, relative to the warp's first part in its buffer."""
        first = [BUFFER_AT + self._column(FRAGMENT_ROWS * q) for q in range(FRAGMENTS)]
        return [(at, at + PART * 16 + (16 if self.warps == 1 else 0)) for at in first]

    def _column(self, column: int) -> int:
        return column * self.column_bytes + 16 * (column // 8)

    @property
    def columns(self) -> int:
        """The number of columns of a fragment."""
        return FRAGMENT_ROWS // self.warps

    @property
    def sums(self) -> list[int]:
        """The offsets of the first sums of both halves of each fragment, relative to the warp's part of the buffer."""
        half = self.columns // 2
        return [SUMS_AT + 4 * (FRAGMENT_ROWS * q + h * half) for q in range(FRAGMENTS) for h in (0, 1)]

    stride_mask = Mask("stride")

    @property
    def distances(self) -> tuple[int, ...]:
        """The lane distances of the shuffles that add diagonal elements, for all parts of a fragment at once."""
        return (18, 9, 4)[3 - self.shift :]

    @property
    def stride(self) -> int:
        """The distance between lanes that hold sums of adjacent columns."""
        return 4 * self.warps


def tiles(n: Any) -> Any:
    """The number of tiles of columns."""
    return -(-n // COLUMNS)
