"""Operands that come to shared memory as they lie, and are shifted there.

TMA takes only boxes that begin at a multiple of 16 bytes. Where rows do not, every eighth does so at the same place:
each of eight maps has every eighth row, from the multiple of 16 bytes at or before its start. A box brings lines with
16 bytes more than they have; warpgroups then write each to its place in the tile, which takes the room of the stage
before, and the elements before its first to none.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from ptxgen.codegen.config import Config
from ptxgen.codegen.source import TensorMap
from ptxgen.codegen.vectorized import log2
from ptxgen.families.wgmma.geometry import COLUMNS
from ptxgen.families.wgmma.layout import Box, Operand
from ptxgen.families.wgmma.operand_packing import RESIDUES, TMA_ALIGNED, lying
from ptxgen.lowering.kernel_gemm import KernelGemm

WORD = 4  #: bytes that a thread shifts at once
AT_ONCE = 8  #: words that it reads before it writes the first


@dataclass(frozen=True)
class Move:
    """Four bytes that a thread shifts: how far they lie from its first, before and after; ``way``: which first, of
    threads that have lines of several residues; ``partly``: not every thread has them."""

    got: int
    put: int
    way: int
    partly: bool


class Lying(Operand):
    """``movers``: threads that shift a stage.

    As many threads as ``span`` has words shift a line of a box together, word by word: where that is a warp, none meets
    another's bank as it reads from any place in 16 bytes, nor as it writes a swizzled line.
    """

    def __init__(self, role: str, name: str, g: SimpleNamespace, config: Config, base: int, movers: int) -> None:
        super().__init__(role, name, g, config, base, None)
        self.lies = True
        self.stage = "%beneath"
        lines, width = self.box[1], self.depth if self.kmajor else self.tile
        self.line = width * self.element + TMA_ALIGNED
        self.residue = int(lying(lines, width, self.element))
        #: threads of a line of a box of the tile (and as a shift), how many lines of different residues go at once,
        #: further lines of the same at the same time
        self.threads = self.span // WORD
        self.shift = log2(self.threads)
        self.together = min(movers // self.threads, RESIDUES)
        self.across = movers // self.threads // self.together
        #: residues of a thread's lines, lines of each, and how often one of them goes
        self.ways = RESIDUES // self.together
        self.lines = lines // RESIDUES
        self.rounds = -(-self.lines // self.across)
        #: lines that share 128 bytes (log2), and the bits of a line that the swizzle mixes in
        self.turn, self.mask = 7 - log2(self.span), self.span // 16 - 1
        self.moves = [
            Move(
                b.inner * self.element + n * self.across * self.line,
                b.offset + n * self.across * RESIDUES * self.span,
                way,
                (n + 1) * self.across > self.lines,
            )
            for b in self.boxes
            for n in range(self.rounds)
            for way in range(self.ways)
        ]
        self.boxes = [Box(r * self.residue, 0, residue=r) for r in range(RESIDUES)]
        self.box = (width + COLUMNS, lines // RESIDUES)
        self.loaded = lines * self.line

    def map(self, b: Box) -> str:
        return f"%map_{self.role}_{b.residue}"

    def place(self, first: str) -> str:
        return f"%inner, %line_{self.role}"

    def along(self, first: str) -> str:
        """The register of the tile's first row."""
        return first if self.kmajor else "%k"

    def maps(self, p: KernelGemm, kind: str, place: tuple[int, int, int, int]) -> list[TensorMap]:
        """Of every eighth row, from each of the first eight on; a row that is not there is another, which meets no
        element of C."""
        columns, rows, ld, _ = place
        size, out = p.element.bytes, []
        for r in range(RESIDUES):
            first = r if r < rows else 0
            extents = (columns, -(-(rows - first) // RESIDUES))
            out.append(
                TensorMap(
                    self.name.upper(),
                    kind,
                    extents,
                    (RESIDUES * ld * size,),
                    self.box,
                    16,
                    offset=first * ld * size,
                    lies=size,
                )
            )
        return out
