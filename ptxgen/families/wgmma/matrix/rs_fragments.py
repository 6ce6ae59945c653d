"""X from registers: how a warpgroup loads fragments of wgmma's A operand from tiles whose rows are contiguous along X.

Fragments (PTX ISA 8.7, "Register fragments for wgmma.mma_async"): lane 4 g + t of a warp has rows g and g + 8 of the
warp's 16 in registers 0 and 1, and the same rows, half of K further on, in registers 2 and 3. The assignment of the
tile's rows to these is free as long as C is written to match: a lane's two rows are neighbours, which one load reads,
and the order of the warps' rows avoids bank conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.registers import Tile, braces
from ptxgen.families.wgmma.geometry import FRAGMENT, FRAGMENTS, STEP


@dataclass(frozen=True)
class Term:
    """Adds ``weight`` times the bits ``mask`` of a thread's number in its warpgroup, shifted right by ``shift``."""

    shift: int
    mask: int
    weight: int


#: a thread's first row of 64, and the distance of its second, as wgmma numbers them
WGMMA_ROWS, WGMMA_NEXT_ROW = (Term(5, 3, 16), Term(2, 7, 1)), 8
#: a thread's first row of fragments that are loaded here: of words (a pair of rows is 8 bytes), of bytes
WORD_ROWS = (Term(2, 1, 2), Term(3, 1, 16), Term(4, 1, 4), Term(5, 1, 8), Term(6, 1, 32))
BYTE_ROWS = (Term(2, 31, 2),)


@dataclass(frozen=True)
class FragmentLoad:
    """One load of a K step: ``registers``, at address register ``base`` plus ``offset``."""

    registers: str
    base: int
    offset: int


class Fragments:
    """The fragments of an operand that wgmma takes from registers. ``size``: bytes of an element; ``mi``: fragments of
    64 rows; ``span``: bytes of a row of a box; ``depth``: rows of a box, which are along K."""

    def __init__(self, size: int, mi: int, span: int, depth: int) -> None:
        #: whether elements are words of four bytes, else bytes
        self.words = size == 4
        self.span, self.box_bytes, self.mi = span, span * depth, mi
        self.k_steps = depth * size // STEP
        #: elements of a box along X
        self.inner = span // size
        self.tile = Tile("frag_x", "b32", (FRAGMENTS, mi, FRAGMENT))
        #: pairs of rows of bytes, as loaded
        self.pairs = None if self.words else Tile("raw_x", "b32", (mi, FRAGMENT))
        #: address registers
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
        """Fragments of bytes from loaded pairs: a register, the two it is made of, and which row of a pair it has."""
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
        """The A operands of each K step."""
        return [[self.tile[k % FRAGMENTS, m, :] for m in range(self.mi)] for k in range(self.k_steps)]

    @property
    def second_offset(self) -> int:
        """Bytes from the rows of K of the first address to those of the second."""
        return 4 * self.span
