"""The places of the elements of a tile of A in its bitmap, and with that the order of its nonzeros.

A tile has 32 rows and 32 columns, and a bitmap of 32 words. Its nonzeros are in the order of their bits. For products
by FMA, word c is column c and bit r row r, so that each lane has the elements of one row. For MMA instructions, two
words are one register of a fragment: lane 4 g + t has two adjacent bits, of word 0 if it is one of the first 16 lanes,
else of word 1. The fragments are in the order of k, then of rows.
"""

from __future__ import annotations

ROWS = COLUMNS = 32  #: of a tile
WORDS = ROWS * COLUMNS // 32  #: of the bitmap of a tile
BITMAP_BYTES = 4 * WORDS
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


def number(fields: Fields, row: int, column: int) -> int:
    """The number that the fields of an element make."""
    given = {"row": row, "column": column}
    return sum((given[name] >> first & (1 << bits) - 1) << at for name, first, bits, at in fields)


def most_pieces(size: int) -> int:
    """Pieces of a tile without zeros."""
    return (BITMAP_BYTES + ROWS * COLUMNS * size) // PIECE
