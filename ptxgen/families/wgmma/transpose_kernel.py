"""The numbers of the pass that transposes an operand, so that K is contiguous.

A block of the pass takes 128 rows of K, 128 bytes of each; a thread, 16 bytes of as many rows as they have elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.registers import Tile
from ptxgen.families.wgmma.operand_packing import ROW

DEPTH = 128  #: rows of K of a block
CHUNK = 16  #: bytes that a thread moves at once
TILE = ROW * DEPTH  #: bytes that a block takes in, and puts out from behind them


@dataclass(frozen=True)
class Part:
    """One 16-byte access of a thread: ``words``: its registers; ``turn``: bits that the swizzle changes from the
    first; ``offset``: bytes from there."""

    words: str
    turn: int
    offset: int


class Transposition:
    """``size``: bytes of an element."""

    DEPTH, TILE, ROW = DEPTH, TILE, ROW
    barrier = 2 * TILE
    shared = 2 * TILE + 8

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = CHUNK // size  #: elements of a chunk, and rows of K a thread
        self.side = ROW // size  #: of a square tile
        self.tiles = DEPTH // self.side  #: of a block
        self.threads = 64 * self.tiles
        words = CHUNK // 4
        self.taken = Tile("r", "b32", (self.count, words))
        self.put = Tile("o", "b32", (self.count, words)) if size == 1 else self.taken
        self.between = Tile("m", "b32", (4,))

    @property
    def loads(self) -> list[Part]:
        return [self._part(self.taken.vector(j, 0, n=4), j) for j in range(self.count)]

    @property
    def stores(self) -> list[Part]:
        if self.size == 1:
            return [self._part(self.put.vector(i, 0, n=4), i) for i in range(self.count)]
        columns = [[self.taken[j, i] for j in range(4)] for i in range(4)]
        return [self._part("{" + ", ".join(column) + "}", i) for i, column in enumerate(columns)]

    @staticmethod
    def _part(words: str, n: int) -> Part:
        return Part(words, n % 8 * CHUNK, n * ROW)

    @property
    def squares(self) -> list[tuple[list[str], list[str]]]:
        """Squares of 4 x 4 bytes: four registers to be transposed, and those that get the result."""
        if self.size == 4:
            return []
        return [
            ([self.taken[4 * k + j, w] for j in range(4)], [self.put[4 * w + i, k] for i in range(4)])
            for k in range(4)
            for w in range(4)
        ]
