"""The plan of a wgmma kernel whose operands a pass transposes first, so that K is contiguous.

A block of the pass takes 128 rows of K, 128 bytes of each; a thread, 16 bytes of as many rows as they have elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxgen.families.wgmma.layout import Operand
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.families.wgmma.repack import ROW, copy_of, turned
from ptxgen.plan import Run
from ptxgen.problem import Gemm
from ptxgen.registers import Tile
from ptxgen.source import Argument, Launch, Step, TensorMap

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
            for k in range(4) for w in range(4)
        ]  # fmt: skip


class TurnedPlan(WgmmaPlan):
    """``turned``: names of the operands that ``transposition`` transposes, all items of them."""

    before = "copy/transposed.mako"

    def _operands(self) -> None:
        super()._operands()
        self.turned = [name for name in "ab" if turned(self.config, name)]
        self.transposition = Transposition(int(self.geometry.size))

    def _source(self, p: Gemm, x: Operand, kind: str) -> TensorMap:
        if x.name not in self.turned or p.k == 0:
            return super()._source(p, x, kind)
        return self._tensor(p, "W", kind, copy_of(p, x.name).place, p.element.bytes, x.box, x.span)

    def _run(self, problem: Gemm, run: Run) -> Launch:
        made = super()._run(problem, run)
        if problem.k == 0:
            return made
        # copies lie behind what slices leave in the workspace
        at, end = {}, -(-made.workspace // ROW) * ROW
        for name in self.turned:
            at[name] = end
            end += copy_of(problem, name).bytes
        passes = [self._turning(problem, run, name, at[name]) for name in self.turned]
        places = iter([at[x.name] for x in (self.x, self.y) if x.name in at])
        settled = []
        for step in made.steps:
            arguments = [
                (kind, replace(v, offset=next(places)) if isinstance(v, TensorMap) and v.operand == "W" else v)
                for kind, v in step.arguments
            ]
            settled.append(replace(step, arguments=tuple(arguments)))
        return Launch((*passes, *settled), end)

    def _turning(self, p: Gemm, run: Run, name: str, at: int) -> Step:
        """The launch of the pass: of the run's items, or of the one that all share."""
        t, copy, size = self.transposition, copy_of(p, name), p.element.bytes
        kind = "s32" if size == 4 else "u8"
        maps = (
            self._tensor(p, name.upper(), kind, self._stored(p, name), size, (t.side, t.DEPTH), t.ROW),
            self._tensor(p, "W", kind, copy.place, size, (t.side, t.side), t.ROW, at),
        )
        across = -(-p.k // t.DEPTH)
        first, items = (0, 1) if copy.items == 1 else (run.first, run.items)
        arguments: tuple[Argument, ...] = (
            ("u64", "C"), ("u64", "W"), *self._arrays(p), ("u32", across), ("u32", first), *(("map", m) for m in maps),
        )  # fmt: skip
        grid = (across * -(-copy.extent // t.side), 1, items)
        return Step(f"{self.entry}_repack", grid, (t.threads, 1, 1), t.shared, arguments)
