"""The layout of compressed tiles of A in memory.

A tile has 32 rows and 32 columns. With a bitmap of 32 words, its nonzeros are stored in the order of their bits. For
FMA, word c is column c and bit r is row r, so that each lane has the elements of one row. For MMA instructions, two
words are one fragment register: lane 4 g + t has two adjacent bits, in word 0 if it is one of the first 16 lanes, else
in word 1. Fragments are ordered by k, then by rows.

With offsets, a tile holds the number of its nonzeros in 32 bits, a 16-bit offset for each nonzero, and, from the end of
the tile backwards, their values. Kernels store the values at these offsets into a tile of zeros in shared memory. There
the elements of a lane are adjacent: those of its fragment registers, or those of its row in 4 columns.
"""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.vectorized import ceil_div

ROWS = COLUMNS = 32  #: rows, and columns, of a tile
WORDS = ROWS * COLUMNS // 32  #: words of the bitmap of a tile
BITMAP_BYTES = 4 * WORDS
COUNT_BYTES, OFFSET_BYTES = 4, 2  #: bytes of the number of nonzeros of a tile; bytes of the offset of a nonzero
PIECE = 16  #: bytes of a copy; tiles begin at multiples of this
FRAGMENT_REGISTERS = 4  #: registers of a fragment of 16 rows and 16 columns

#: how the bits of a row and a column make a number: (row or column, first bit in it, number of bits, first bit in the
#: number)
Fields = tuple[tuple[str, int, int, int], ...]


def word_fields(size: int) -> Fields:
    """The fields that make the number of an element's word in the bitmap. ``size``: bytes of an element."""
    if size == 4:
        return (("column", 0, 5, 0),)
    return ("row", 2, 2, 0), ("column", 3, 1, 2), ("row", 4, 1, 3), ("column", 4, 1, 4)


def bit_fields(size: int) -> Fields:
    """The fields that make the number of an element's bit in its word. ``size``: bytes of an element."""
    return (("row", 0, 5, 0),) if size == 4 else (("column", 0, 3, 0), ("row", 0, 2, 3))


def offset_fields(size: int) -> Fields:
    """The fields that make the offset of an element in a tile of zeros, in elements. A lane has 16 adjacent bytes.
    ``size``: bytes of an element."""
    if size == 4:
        return ("column", 0, 2, 0), ("row", 0, 5, 2), ("column", 2, 3, 7)
    lane = ("column", 1, 2, 3), ("row", 0, 3, 5)
    return ("column", 0, 1, 0), ("row", 3, 1, 1), ("column", 3, 1, 2), *lane, ("row", 4, 1, 8), ("column", 4, 1, 9)


def number(fields: Fields, row: int, column: int) -> int:
    """The number that ``fields`` make of a row and a column."""
    given = {"row": row, "column": column}
    return sum((given[name] >> first & (1 << bits) - 1) << at for name, first, bits, at in fields)


def pieces(size: int, nonzeros: Any, offsets: Any) -> Any:
    """The number of pieces of a tile with ``nonzeros`` nonzeros of ``size`` bytes. ``offsets``: 1 if the tile has
    offsets, 0 if it has a bitmap; a number or a column."""
    indices = ceil_div(COUNT_BYTES + OFFSET_BYTES * nonzeros, PIECE)
    values = ceil_div(size * nonzeros, PIECE)
    return values + offsets * indices + (1 - offsets) * (BITMAP_BYTES // PIECE)


def most_pieces(size: int, offsets: Any) -> Any:
    """The number of pieces of a tile without zeros."""
    return pieces(size, ROWS * COLUMNS, offsets)
