"""Realignment: TMA loads each unaligned row from the preceding 16-byte boundary, and math warpgroups shift it in shared
memory.

TMA takes only addresses that are multiples of 16 bytes. If rows are not aligned, every eighth row begins at the same
place within 16 bytes. Each of eight tensor maps has every eighth row, from the 16-byte boundary at or before its start.
A box loads lines that are 16 bytes longer than the rows. Warpgroups then write each line to its place in the swizzled
tile, which takes the memory of the previous stage, and drop the elements before the line's first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import TensorMap
from ptxgen.codegen.vectorized import Mask, log2
from ptxgen.families.wgmma.geometry import COLUMNS, WARPGROUP, WgmmaGeometry
from ptxgen.families.wgmma.layout import Box, OperandPath, in_batches
from ptxgen.families.wgmma.operand_packing import RESIDUES, TMA_ALIGNED, residue_bytes
from ptxgen.families.wgmma.tensor_maps import Matrix
from ptxgen.lowering.kernel_problem import KernelProblem

WORD = 4  #: bytes that a thread moves at once
IN_FLIGHT = 8  #: words that a thread reads before it writes the first


@dataclass(frozen=True)
class Move:
    """One word that a thread moves. ``source``, ``target``: offsets from the thread's first word in the loaded lines,
    and in the tile; ``residue_group``: the index of the thread's first word, if it has lines of several residues;
    ``guarded``: True if not every thread has this word."""

    source: int
    target: int
    residue_group: int
    guarded: bool


class WordMove(NamedTuple):
    """A word that a thread moves: its guard; the guard of the next word; the registers of both; their addresses in the
    loaded lines; the address of the word in the tile."""

    guard: str
    second_guard: str
    word: str
    next_word: str
    source: str
    next_source: str
    target: str


class RealignedOperand(OperandPath):
    """The path of an operand whose rows are not aligned to 16 bytes. ``threads``: threads that realign a stage.

    A line of a box is moved by as many threads as ``span`` has words, one word each. If these are a warp, there are no
    bank conflicts, neither when threads read at any offset within 16 bytes nor when they write a swizzled line.
    """

    realigned = True
    map_count = RESIDUES
    stage_register = "%prev_offset"

    def __init__(
        self, role: str, name: str, g: WgmmaGeometry, config: Config, base: int, threads: int, outer: Sequence[str] = ()
    ) -> None:
        super().__init__(role, name, g, config, base, None, outer)
        lines, width = self.box[1], self.depth if self.kmajor else self.tile
        #: bytes of a line as loaded, and of all lines of one residue
        self.line_bytes = width * self.element + TMA_ALIGNED
        self.residue_bytes = int(residue_bytes(lines, width, self.element))
        #: threads that move a line of a box of the tile (and log2 of them); residues that are moved at once; lines of
        #: one residue that are moved at once
        self.line_threads = self.span // WORD
        self.log2_line_threads = log2(self.line_threads)
        self.residues_at_once = min(threads // self.line_threads, RESIDUES)
        self.lines_at_once = threads // self.line_threads // self.residues_at_once
        #: residues of a thread's lines, lines of each residue, and moves of a thread for one residue
        self.residue_groups = RESIDUES // self.residues_at_once
        self.residue_lines = lines // RESIDUES
        self.rounds = -(-self.residue_lines // self.lines_at_once)
        #: lines in 128 bytes (log2), and the bits of a line that the swizzle uses
        self.swizzle_shift, self.swizzle_mask = 7 - log2(self.span), self.span // 16 - 1
        self.moves = [
            Move(
                b.inner * self.element + n * self.lines_at_once * self.line_bytes,
                b.offset + n * self.lines_at_once * RESIDUES * self.span,
                group,
                (n + 1) * self.lines_at_once > self.residue_lines,
            )
            for b in self.boxes
            for n in range(self.rounds)
            for group in range(self.residue_groups)
        ]
        self.boxes = [Box(r * self.residue_bytes, 0, residue=r) for r in range(RESIDUES)]
        self.box = (width + COLUMNS, lines // RESIDUES)
        self.tx_bytes = lines * self.line_bytes

    def map_register(self, b: Box) -> str:
        return f"%map_{self.role}_{b.residue}"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord, %line_{self.role}"

    @property
    def row_coordinate(self) -> dict[str, str]:
        """Register with the start of this block's slice -> register with the first row of the tile."""
        return {self.first: self.first if self.kmajor else "%k"}

    line_mask = Mask("line_threads")

    @property
    def last_lines(self) -> int:
        """The number of lines of a residue in the last round."""
        return self.residue_lines - (self.rounds - 1) * self.lines_at_once

    def residue_maps(self, p: KernelProblem, element_type: str, matrix: Matrix) -> list[TensorMap]:
        """The tensor map of each residue, which has every eighth row. If there is no such row, the map has row 0, which
        no product uses."""
        columns, rows, ld, _ = matrix
        size, out = p.element.bytes, []
        for r in range(RESIDUES):
            first = r if r < rows else 0
            extents = (columns, -(-(rows - first) // RESIDUES))
            pitches, offset = (RESIDUES * ld * size,), first * ld * size
            out.append(
                TensorMap(
                    self.name.upper(),
                    element_type,
                    extents,
                    pitches,
                    self.box,
                    16,
                    offset=offset,
                    element_alignment=size,
                )
            )
        return out


@dataclass(frozen=True)
class Realignment:
    """The part of the K loop in which math warpgroups realign a stage. ``operands``: the operands that need it; may be
    empty."""

    operands: list[RealignedOperand]
    pingpong: bool
    math_warpgroups: int

    words = Tile("word", "b32", (2, 2, IN_FLIGHT))  #: registers: [batch mod 2][word, next word][move]

    @classmethod
    def of(cls, operands: Sequence[OperandPath], config: Config) -> Realignment:
        mine = [x for x in operands if isinstance(x, RealignedOperand)]
        return cls(mine, bool(config.pingpong), config.math_warpgroups)

    @property
    def template(self) -> str:
        return "copy/smem_realign.mako" if self.operands else "copy/no_realign.mako"

    @property
    def threads(self) -> int:
        """The number of threads that realign a stage."""
        return WARPGROUP * self.warpgroups

    @property
    def address_registers(self) -> str:
        """The registers with the addresses of lines, as loaded and in the tile."""
        names = (f"%{side}_{x.role}_addr<{x.residue_groups}>" for x in self.operands for side in ("src", "dst"))
        return ", ".join(names)

    @cached_property
    def turns(self) -> list[tuple[list[WordMove], list[WordMove]]]:
        """The moves in turns: (moves whose words are read, moves of the preceding batch, whose words are written
        then)."""
        batches = [
            [self._word_move(n % 2, i, x, m) for i, (x, m) in enumerate(batch)] for n, batch in enumerate(self.batches)
        ]
        return list(zip([*batches, []], [[], *batches], strict=True))

    def _word_move(self, batch: int, i: int, x: RealignedOperand, m: Move) -> WordMove:
        second = f"@%active_odd_{x.role}" if m.guarded else f"@%odd_{x.role}{m.residue_group}"
        source, target = f"%src_{x.role}_addr{m.residue_group}", f"%dst_{x.role}_addr{m.residue_group}"
        return WordMove(
            f"@%active_{x.role} " if m.guarded else "",
            second,
            self.words[batch, 0, i],
            self.words[batch, 1, i],
            f"{source}+{x.base + m.source}",
            f"{source}+{x.base + m.source + WORD}",
            f"{target}+{x.base + m.target}",
        )

    @property
    def thread(self) -> str:
        """The register with the number of a thread among those that realign a stage."""
        return "%wg_thread" if self.pingpong else "%thread"

    @property
    def warpgroups(self) -> int:
        """The number of warpgroups that realign a stage."""
        return 1 if self.pingpong else self.math_warpgroups

    @property
    def consumed_slot(self) -> str:
        """The register with the barrier slot of the stage that a product has read."""
        return "%prev_bar_offset" if self.operands else "%bar_offset"

    @cached_property
    def batches(self) -> list[list[tuple[RealignedOperand, Move]]]:
        """The moves in batches, each of which a thread has in flight at once."""
        return in_batches([(x, m) for x in self.operands for m in x.moves], IN_FLIGHT)
