"""The tiles of A in memory, and the order of their elements.

A tile has 32 rows and 32 columns. With a bitmap of 32 words, its nonzeros are in the order of their bits. For products
by FMA, word c is column c and bit r row r, so that each lane has the elements of one row. For MMA instructions, two
words are one register of a fragment: lane 4 g + t has two adjacent bits, of word 0 if it is one of the first 16 lanes,
else of word 1. The fragments are in the order of k, then of rows.

With offsets, a tile has the number of its nonzeros in 32 bits, an offset of 16 bits of each, and their values from its
end backwards. Kernels store the values to a tile with all zeros in shared memory, at these offsets, where a lane has
adjacent elements: those of its registers of a fragment, or of its row in 4 columns.
"""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.vectorized import ceil_div

ROWS = COLUMNS = 32  #: of a tile
WORDS = ROWS * COLUMNS // 32  #: of the bitmap of a tile
BITMAP_BYTES = 4 * WORDS
COUNT_BYTES, OFFSET_BYTES = 4, 2  #: of the number of nonzeros, of the offset of one
PIECE = 16  #: bytes of a copy; tiles begin at multiples of it
FRAGMENT_REGISTERS = 4  #: of 16 rows and 16 columns

#: bits of a number: (row or column of an element, first bit, bits, first bit of the number)
Fields = tuple[tuple[str, int, int, int], ...]


def word_fields(size: int) -> Fields:
    """The word of an element of ``size`` bytes in the bitmap."""
    if size == 4:
        return (("column", 0, 5, 0),)
    return ("row", 2, 2, 0), ("column", 3, 1, 2), ("row", 4, 1, 3), ("column", 4, 1, 4)


def bit_fields(size: int) -> Fields:
    """The bit of an element in its word."""
    return (("row", 0, 5, 0),) if size == 4 else (("column", 0, 3, 0), ("row", 0, 2, 3))


def offset_fields(size: int) -> Fields:
    """The offset of an element in a tile with all zeros, in elements: lanes have 16 adjacent bytes."""
    if size == 4:
        return ("column", 0, 2, 0), ("row", 0, 5, 2), ("column", 2, 3, 7)
    lane = ("column", 1, 2, 3), ("row", 0, 3, 5)
    return ("column", 0, 1, 0), ("row", 3, 1, 1), ("column", 3, 1, 2), *lane, ("row", 4, 1, 8), ("column", 4, 1, 9)


def number(fields: Fields, row: int, column: int) -> int:
    """The number that the fields of an element make."""
    given = {"row": row, "column": column}
    return sum((given[name] >> first & (1 << bits) - 1) << at for name, first, bits, at in fields)


def pieces(size: int, nonzeros: Any, offsets: Any) -> Any:
    """Pieces of a tile of so many nonzeros. ``offsets``: 1, or a column of 0 and 1: it has offsets, not a bitmap."""
    indices = ceil_div(COUNT_BYTES + OFFSET_BYTES * nonzeros, PIECE)
    values = ceil_div(size * nonzeros, PIECE)
    return values + offsets * indices + (1 - offsets) * (BITMAP_BYTES // PIECE)


def most_pieces(size: int, offsets: Any) -> Any:
    """Pieces of a tile without zeros."""
    return pieces(size, ROWS * COLUMNS, offsets)
