"""X from registers: how a warpgroup reads fragments of wgmma's A operand from tiles whose rows are contiguous along X.

Fragments (PTX ISA 8.7, "Register fragments for wgmma.mma_async"): of lane 4 g + t of a warp, registers 0 and 1 have
rows g and g + 8 of the warp's 16, registers 2 and 3 the same rows, half of K further on. Which rows of the tile those
are is free, so long as C is written to match: a lane's two rows are neighbours, which one load brings, and the warps
read without bank conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.registers import Tile, braces
from ptxgen.families.wgmma.geometry import FRAGMENT, FRAGMENTS, STEP


@dataclass(frozen=True)
class Term:
    """Adds ``weight`` times the bits ``mask`` of a thread's number in its warpgroup, shifted by ``shift``."""

    shift: int
    mask: int
    weight: int


#: a thread's first row of 64, and how far its second is, as wgmma numbers them
PLAIN, PLAIN_NEXT = (Term(5, 3, 16), Term(2, 7, 1)), 8
#: the same of fragments that are read here: words (a pair of rows is 8 bytes), bytes
WORDS = (Term(2, 1, 2), Term(3, 1, 16), Term(4, 1, 4), Term(5, 1, 8), Term(6, 1, 32))
BYTES = (Term(2, 31, 2),)


@dataclass(frozen=True)
class Load:
    """One load of step ``k``: into ``into``, at address register ``reader`` plus ``offset``."""

    into: str
    reader: int
    offset: int


class Fragments:
    """``size``: bytes of an element; ``mi``: fragments of 64 rows; ``span``: bytes of a row of a box; ``depth``: rows
    of a box, which are K; ``y_low``: offsets of Y's descriptor by step."""

    def __init__(self, size: int, mi: int, span: int, depth: int) -> None:
        self.words = size == 4
        self.span, self.box, self.mi, self.depth = span, span * depth, mi, depth
        self.steps = depth * size // STEP
        #: elements along X of a box
        self.inner = span // size
        self.tile = Tile("frag", "b32", (FRAGMENTS, mi, FRAGMENT))
        #: pairs of rows of bytes, on their way
        self.raw = None if self.words else Tile("pairs", "b32", (mi, FRAGMENT))
        self.readers = 2 if self.words else 1

    def loads(self, k: int) -> list[Load]:
        """Of one step, in the fragments' order."""
        out = []
        step = STEP // (4 if self.words else 1) * self.span * k
        for m in range(self.mi):
            if self.words:
                at = 2 * m * self.box + step
                out += [Load(self._registers(k, m, 2 * half), half, at) for half in range(2)]
            else:
                assert self.raw is not None
                out.append(Load(self.raw.vector(m, 0, n=FRAGMENT), 0, m * self.box + step))
        return out

    def _registers(self, k: int, m: int, first: int) -> str:
        return braces([self.tile[k % FRAGMENTS, m, first + n] for n in range(2)])

    def sorted(self, k: int) -> list[tuple[str, str, str, int]]:
        """Fragments of bytes from pairs: a register, the two it is made of, and which of a pair's rows it has."""
        raw = self.raw
        if raw is None:
            return []
        return [
            (self.tile[k % FRAGMENTS, m, n], raw[m, n // 2 * 2], raw[m, n // 2 * 2 + 1], n % 2)
            for m in range(self.mi)
            for n in range(FRAGMENT)
        ]

    def operand(self, k: int, m: int) -> str:
        return self.tile.vector(k % FRAGMENTS, m, 0, n=FRAGMENT)
