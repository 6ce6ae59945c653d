"""X from registers: how a warpgroup loads fragments of wgmma's A operand from tiles whose rows are contiguous along X.

In a fragment (PTX ISA 8.7, "Register fragments for wgmma.mma_async"), lane 4 g + t of a warp has rows g and g + 8 of
the warp's 16 rows in registers 0 and 1, and the same rows, half of K further on, in registers 2 and 3. The rows of the
tile may be assigned to these rows in any way if C is written accordingly. Here a lane's two rows are adjacent, so one
load reads both, and the order of the warps' rows avoids bank conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.registers import Tile, braces
from ptxgen.families.wgmma.geometry import FRAGMENT, FRAGMENTS, STEP


@dataclass(frozen=True)
class Term:
    """A term of a sum over bits of a thread's number in its warpgroup: ((number >> ``shift``) & ``mask``) *
    ``weight``."""

    shift: int
    mask: int
    weight: int


#: a thread's first row of 64, and the distance to its second row, as wgmma numbers rows
WGMMA_ROWS, WGMMA_NEXT_ROW = (Term(5, 3, 16), Term(2, 7, 1)), 8
#: a thread's first row of fragments that are loaded here: for words (a pair of rows has 8 bytes), and for bytes
WORD_ROWS = (Term(2, 1, 2), Term(3, 1, 16), Term(4, 1, 4), Term(5, 1, 8), Term(6, 1, 32))
BYTE_ROWS = (Term(2, 31, 2),)


@dataclass(frozen=True)
class FragmentLoad:
    """One load of a K step to ``registers``, from address register ``base`` plus ``offset``."""

    registers: str
    base: int
    offset: int


class Fragments:
    """The fragments of an operand that wgmma takes from registers. ``size``: bytes of an element; ``mi``: fragments of
    64 rows; ``span``: bytes of a row of a box; ``depth``: rows of a box, which are along K."""

    def __init__(self, size: int, mi: int, span: int, depth: int) -> None:
        #: True if elements are words of four bytes, False if they are bytes
        self.words = size == 4
        self.span, self.box_bytes, self.mi = span, span * depth, mi
        self.k_steps = depth * size // STEP
        #: elements of a box along X
        self.inner = span // size
        self.tile = Tile("frag_x", "b32", (FRAGMENTS, mi, FRAGMENT))
        #: pairs of rows of bytes, as loaded
        self.pairs = None if self.words else Tile("raw_x", "b32", (mi, FRAGMENT))
        #: the number of address registers
        self.bases = 2 if self.words else 1

    def loads(self, k: int) -> list[FragmentLoad]:
        """The loads of K step ``k``, in the order of the fragments."""
        out = []
        step = STEP // (4 if self.words else 1) * self.span * k
        for m in range(self.mi):
            if self.words:
                offset = 2 * m * self.box_bytes + step
                out += [FragmentLoad(self._registers(k, m, 2 * half), half, offset) for half in range(2)]
            else:
                assert self.pairs is not None
                out.append(FragmentLoad(self.pairs.vector(m, 0, n=FRAGMENT), 0, m * self.box_bytes + step))
        return out

    def _registers(self, k: int, m: int, first: int) -> str:
        return braces([self.tile[k % FRAGMENTS, m, first + n] for n in range(2)])

    def permutes(self, k: int) -> list[tuple[str, str, str, int]]:
        """The byte permutations that make fragments of bytes from loaded pairs, as (destination, two sources, row of
        the pair)."""
        pairs = self.pairs
        if pairs is None:
            return []
        return [
            (self.tile[k % FRAGMENTS, m, n], pairs[m, n // 2 * 2], pairs[m, n // 2 * 2 + 1], n % 2)
            for m in range(self.mi)
            for n in range(FRAGMENT)
        ]

    @property
    def operands(self) -> list[list[str]]:
        """For each K step, its A operands."""
        return [[self.tile[k % FRAGMENTS, m, :] for m in range(self.mi)] for k in range(self.k_steps)]

    @property
    def second_offset(self) -> int:
        """The number of bytes from the K rows of the first address to those of the second address."""
        return 4 * self.span
