"""The sums of rows of A in wgmma kernels: products of X with columns of ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.codegen.parts.operand_sums import ONES, OperandSums
from ptxgen.codegen.registers import Tile
from ptxgen.families.wgmma.geometry import COLUMNS, STEP
from ptxgen.families.wgmma.matrix.mainloop import Mainloop

MATRIX = 16 * COLUMNS  #: bytes of a core matrix, 8 rows of 16 bytes


@dataclass(frozen=True)
class FragmentRowSums(OperandSums):
    """The sums of A. ``ones``: the offset in shared memory of 8 columns of ones, in core matrices; ``math_threads``:
    the threads that multiply; ``rows``: the distance of each row of a thread from its first, and the register of its
    sum; ``element``: the type of A."""

    mainloop: Mainloop
    ones: int
    math_threads: int
    rows: Sequence[tuple[int, str]]
    element: str

    template = "math/wgmma_operand_sums.mako"

    @property
    def words(self) -> int:
        """The number of words of ones."""
        return COLUMNS * STEP // 4

    @property
    def word(self) -> str:
        return ONES[self.element]

    @property
    def descriptor(self) -> tuple[str, str]:
        """The fields of the descriptor of the ones besides the address, in its low and its high word."""
        return f"0x{MATRIX // 16 << 16:x}", f"0x{MATRIX // 16:x}"

    @property
    def offsets(self) -> dict[int, int]:
        """Row -> the byte offset of its sum from that of the thread's first row."""
        return {row: 4 * row for row, _ in self.rows}

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.mainloop.row_sums, "sums of rows of A: [instruction along X]")]
