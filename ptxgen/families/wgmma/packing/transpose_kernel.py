"""The numbers of the packing kernel that transposes an operand to make it K-major.

A block transposes 128 rows of K, 128 bytes of each. A thread takes 16 bytes from each of n rows, where n is the number
of elements in 16 bytes.
"""

from __future__ import annotations

from ptxgen.codegen.registers import Tile, braces
from ptxgen.lowering.packed_copy import ROW

DEPTH = 128  #: rows of K of a block
CHUNK = 16  #: bytes that a thread moves at once
TILE = ROW * DEPTH  #: bytes that a block loads; it stores the same number of bytes from the memory after them


class TransposeKernel:
    """The kernel that packs the transpose of an operand. ``size``: bytes of an element."""

    DEPTH, TILE, ROW = DEPTH, TILE, ROW
    barrier = 2 * TILE
    shared = 2 * TILE + 8

    def __init__(self, size: int) -> None:
        self.size = size
        #: elements of a chunk, which are the rows of K of a thread; of a side of a square tile; tiles of a block
        self.chunk_elements, self.side = CHUNK // size, ROW // size
        self.tiles = DEPTH // self.side
        self.threads = 64 * self.tiles
        n = range(self.chunk_elements)
        self.loaded = Tile("loaded", "b32", (self.chunk_elements, CHUNK // 4))
        self.stored = Tile("stored", "b32", (self.chunk_elements, CHUNK // 4)) if size == 1 else self.loaded
        self.temporaries = Tile("byte_pair", "b32", (4,))
        rows = [self.stored.vector(i, 0, n=4) for i in n]
        columns = [braces([self.loaded[j, i] for j in range(4)]) for i in range(4)]
        #: accesses to shared memory: registers, address bits that differ from the thread's first access, and bytes from
        #: there
        self.loads = [(self.loaded.vector(j, 0, n=4), j % 8 * CHUNK, j * ROW) for j in n]
        self.stores = [(words, i % 8 * CHUNK, TILE + i * ROW) for i, words in enumerate(rows if size == 1 else columns)]

    @property
    def squares(self) -> list[tuple[list[str], list[str]]]:
        """The squares of 4 x 4 bytes: four registers to transpose, and four registers for the result."""
        return [
            ([self.loaded[4 * k + j, w] for j in range(4)], [self.stored[4 * w + i, k] for i in range(4)])
            for k in range(4)
            for w in range(4)
            if self.size == 1
        ]

    @property
    def tile_bytes(self) -> int:
        """The number of bytes of a transposed tile."""
        return self.side * ROW

    @property
    def stored_tiles(self) -> list[tuple[int, int]]:
        """For each transposed tile: its offset in shared memory, and its first element of K."""
        return [(TILE + n * self.tile_bytes, n * self.side) for n in range(self.tiles)]
