"""X from registers, of K-major tiles whose rows begin at any element of a 16-byte chunk: each filter column has another
first pixel.

In K step k, a lane's registers have words 8 k + lane mod 4, and 4 further on, of two rows, counted from the first
element. Such a word is in chunk 2 k (2 k + 1) of a line or in the next one, which depends on the lane, and the place of
a chunk depends on the swizzle. So there is an address register for each chunk of a line, and one for each row where
the chunk may be that after the last line. The lanes of a warp access 32 banks.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import log2
from ptxgen.families.wgmma.geometry import CHUNK, FRAGMENT, FRAGMENTS, ROWS, SPAN, STEP
from ptxgen.families.wgmma.layout import ATOM, OperandPath


@dataclass(frozen=True)
class WordLoad:
    """A load of a word: ``register``, at address register ``base`` plus ``offset``."""

    register: str
    base: int
    offset: int


class ShiftedFragments:
    """``x``: the operand, in lines of 128 or 64 bytes, with a column of chunks after the last one; ``mi``: fragments of
    64 rows."""

    def __init__(self, x: OperandPath, mi: int) -> None:
        self.mi, self.element = mi, x.element
        #: words that a register is made of: elements of two bytes may begin in the middle of a word
        self.words = 2 if x.element == 2 else 1
        #: chunks of a line; chunk n of row i is at n xor (i >> ``swizzle_shift``), modulo them
        self.span, self.line_chunks = x.span, x.span // CHUNK
        self.swizzle_shift = log2(SPAN // x.span)
        #: bytes of a block of lines, and from the tile's start to the chunks past the end
        self.block_bytes, self.end = x.tile * x.span, x.tile * x.depth * x.element
        self.chunks = x.depth * x.element // CHUNK
        self.k_steps = x.depth * x.element // STEP
        self.tile = Tile("frag_x", "b32", (FRAGMENTS, mi, FRAGMENT))
        self.next_words = Tile("next_x", "b32", (mi, FRAGMENT))
        #: address registers of a word: of the chunks of a line, then of the last chunk of each row of a thread
        self.bases = self.line_chunks + 2 * mi

    @property
    def rows(self) -> range:
        """A thread's rows: those of a fragment, and of each fragment of 64 rows."""
        return range(2 * self.mi)

    def row(self, n: int) -> int:
        """Rows from the thread's first one to number ``n``."""
        return n // 2 * ROWS + n % 2 * ATOM

    def loads(self, k: int, word: int) -> list[WordLoad]:
        """The loads of K step ``k``. ``word``: 0, or 1 for the words after these."""
        out = []
        for m in range(self.mi):
            for n in range(FRAGMENT):
                chunk, row = 2 * k + n // 2, 2 * m + n % 2
                to = self.next_words[m, n] if word else self.tile[k % FRAGMENTS, m, n]
                if chunk == self.chunks - 1:
                    base, offset = self.line_chunks + row, 0
                else:
                    base = chunk % self.line_chunks
                    offset = chunk // self.line_chunks * self.block_bytes + self.row(row) * self.span
                out.append(WordLoad(to, word * self.bases + base, offset))
        return out

    def joins(self, k: int) -> list[tuple[str, str]]:
        """Registers of the fragments of K step ``k``, and those with the words after theirs."""
        return [
            (self.tile[k % FRAGMENTS, m, n], self.next_words[m, n]) for m in range(self.mi) for n in range(FRAGMENT)
        ]

    def operand(self, k: int, m: int) -> str:
        """The A operand of a wgmma."""
        return self.tile.vector(k % FRAGMENTS, m, 0, n=FRAGMENT)
