"""Numbers of the packing kernel that transposes an operand, so that K is contiguous.

A block transposes 128 rows of K, 128 bytes of each. A thread takes 16 bytes of as many rows as 16 bytes have elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.packing import ROW
from ptxgen.codegen.registers import Tile, braces

DEPTH = 128  #: rows of K of a block
CHUNK = 16  #: bytes that a thread moves at once
TILE = ROW * DEPTH  #: bytes that a block loads, and that it stores from the memory after them


@dataclass(frozen=True)
class Access:
    """One 16-byte access of a thread to shared memory: ``words``, its registers; ``swizzle``, address bits that differ
    from the thread's first access; ``offset``: bytes from there."""

    words: str
    swizzle: int
    offset: int


class TransposeKernel:
    """``size``: bytes of an element."""

    DEPTH, TILE, ROW = DEPTH, TILE, ROW
    barrier = 2 * TILE
    shared = 2 * TILE + 8

    def __init__(self, size: int) -> None:
        self.size = size
        #: elements of a chunk, which are the rows of K of a thread
        self.chunk_elements = CHUNK // size
        #: elements along a side of a square tile, and tiles of a block
        self.side = ROW // size
        self.tiles = DEPTH // self.side
        self.threads = 64 * self.tiles
        words = CHUNK // 4
        self.loaded = Tile("loaded", "b32", (self.chunk_elements, words))
        self.stored = Tile("stored", "b32", (self.chunk_elements, words)) if size == 1 else self.loaded
        self.temporaries = Tile("byte_pair", "b32", (4,))

    @property
    def loads(self) -> list[Access]:
        return [self._access(self.loaded.vector(j, 0, n=4), j) for j in range(self.chunk_elements)]

    @property
    def stores(self) -> list[Access]:
        if self.size == 1:
            return [self._access(self.stored.vector(i, 0, n=4), i) for i in range(self.chunk_elements)]
        columns = [[self.loaded[j, i] for j in range(4)] for i in range(4)]
        return [self._access(braces(column), i) for i, column in enumerate(columns)]

    @staticmethod
    def _access(words: str, n: int) -> Access:
        return Access(words, n % 8 * CHUNK, n * ROW)

    @property
    def squares(self) -> list[tuple[list[str], list[str]]]:
        """Squares of 4 x 4 bytes: four registers to be transposed, and those that receive the result."""
        if self.size == 4:
            return []
        return [
            ([self.loaded[4 * k + j, w] for j in range(4)], [self.stored[4 * w + i, k] for i in range(4)])
            for k in range(4)
            for w in range(4)
        ]
