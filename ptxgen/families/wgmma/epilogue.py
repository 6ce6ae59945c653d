"""How C leaves a wgmma kernel: from registers, or through shared memory. Numbers only; templates write it down."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.vectorized import WARP, log2
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, WARPGROUP, groups_leave, widest
from ptxgen.families.wgmma.layout import ATOM
from ptxgen.families.wgmma.operand_packing import boxed
from ptxgen.problem.base import EPILOGUE

WORD = 2  #: elements of four bytes of C


@dataclass(frozen=True)
class Put:
    """One stmatrix: accumulators ``registers`` (pairs to be packed), to address register ``variant`` plus ``offset``.
    ``column``: along Y, of the first.

    Accumulator i of lane l is row l / 4 + 8 (i / 2 mod 2), column 8 (i / 4) + 2 (l mod 4) + i mod 2 of a warp's rows.
    """

    registers: list[tuple[str, str]]
    variant: int
    offset: int
    column: int


@dataclass(frozen=True)
class Store:
    """One box of C that TMA stores: from ``offset`` of the warpgroup's staging, ``x`` and ``y`` into its tile."""

    offset: int
    x: int
    y: int


@dataclass(frozen=True)
class Chunk:
    """A part of the columns that leaves at once. ``waits``: its buffer was used before;
    ``along_x``, ``along_y``: a thread's sums that share a place along X (Y), counted from its first."""

    index: int
    waits: bool
    puts: list[Put]
    stores: list[Store]
    along_x: list[tuple[int, list[str]]]
    along_y: list[tuple[int, list[str]]]


class Staging:
    """How a warpgroup's sums leave through shared memory: packed to two bytes, put by stmatrix into the boxes that TMA
    stores. ``transposed``: C is contiguous along X."""

    def __init__(self, sums: Tile, transposed: bool, finish: int, chunks: int, buffers: int, persistent: bool) -> None:
        mi = sums.shape[0]
        self.sums, self.transposed, self.mi = sums, transposed, mi
        columns = finish // chunks
        self.columns = columns
        #: elements of a box along C's contiguous direction
        self.width = ROWS if transposed else next(w for w in (64, 32, 16, 8) if columns % w == 0)
        self.span = self.width * 2
        self.box = (ROWS, columns) if transposed else (self.width, ROWS)
        #: bytes of a chunk of one warpgroup
        self.size = mi * ROWS * columns * 2
        self.buffers = buffers
        self.bytes = self.size * buffers
        #: address registers: stores whose chunk of 16 bytes differs within a row of the box
        self.variants = 1 if transposed else max(1, self.width // 16)
        #: rows of the box that share a row of 128 bytes (log2), and the bits of it that the swizzle mixes in
        self.shift, self.mask = 7 - log2(self.span), self.span // 16 - 1
        self.trans = ".trans" if transposed else ""
        #: where a box goes, and the rank of that
        self.coordinates, self.rank = ["%x_at", "%y_at"] if transposed else ["%y_at", "%x_at"], 2
        self.lines, self.pairs = Lines(self), Pairs(self)
        self.chunks = [
            Chunk(n, persistent or n >= buffers, self._puts(n), self._stores(n), self._along_x(n), self._along_y(n))
            for n in range(chunks)
        ]

    def brought(self, chunk: Chunk) -> int:
        """Bytes from a warpgroup's first barrier to the one that the residual of a chunk reports to."""
        return 8 * (1 + chunk.index % self.buffers)

    @staticmethod
    def words(put: Put) -> str:
        """The operand of a put's packed pairs."""
        return braces([f"%word{n}" for n in range(len(put.registers))])

    def _puts(self, chunk: int) -> list[Put]:
        out = []
        groups = self.columns // COLUMNS
        buffer = chunk % self.buffers * self.size
        for m in range(self.mi):
            j = 0
            while j < groups:
                # two groups of 8 columns at once, or one
                pair = j + 1 < groups and (self.transposed or self.width >= 2 * COLUMNS)
                first = (chunk * groups + j) * 4
                names = [self.sums[m, first + q] for q in range(8 if pair else 4)]
                registers = list(zip(names[::2], names[1::2], strict=True))
                box, inner = divmod(j * COLUMNS, self.width)
                column = chunk * self.columns + j * COLUMNS
                if self.transposed:
                    put = Put(registers, 0, buffer + m * ROWS * self.columns * 2 + j * ATOM * self.span, column)
                else:
                    offset = buffer + m * ROWS * self.columns * 2 + box * ROWS * self.span
                    put = Put(registers, inner // 16, offset, column)
                out.append(put)
                j += 2 if pair else 1
        return out

    def _along_x(self, chunk: int) -> list[tuple[int, list[str]]]:
        groups = range(chunk * self.columns // COLUMNS, (chunk + 1) * self.columns // COLUMNS)
        return [
            (m * ROWS + h * 8, [self.sums[m, 4 * j + 2 * h + e] for j in groups for e in range(2)])
            for m in range(self.mi)
            for h in range(2)
        ]

    def _along_y(self, chunk: int) -> list[tuple[int, list[str]]]:
        groups = range(chunk * self.columns // COLUMNS, (chunk + 1) * self.columns // COLUMNS)
        return [
            (j * COLUMNS + e, [self.sums[m, 4 * j + 2 * h + e] for m in range(self.mi) for h in range(2)])
            for j in groups
            for e in range(2)
        ]

    def _stores(self, chunk: int) -> list[Store]:
        out = []
        buffer = chunk % self.buffers * self.size
        for m in range(self.mi):
            at = buffer + m * ROWS * self.columns * 2
            for n in range(1 if self.transposed else self.columns // self.width):
                out.append(Store(at + n * ROWS * self.span, m * ROWS, chunk * self.columns + n * self.width))
        return out


@dataclass(frozen=True)
class Strip:
    """Boxes of a part side by side, whose lines go on from one to the next: from ``offset`` of the warpgroup's staging;
    ``row``, ``column``: of its first element in C, from the warpgroup's."""

    offset: int
    row: int
    column: int


class Pairs:
    """How threads bring boxes to C two elements at a time: those of a line (as a shift, too), lines from a thread's one
    to its next, and by what the swizzle turns every other of these."""

    AT_ONCE, MANY = 8, 192  #: lines at once; beside so many sums, a quarter
    BOXES = 6  #: of a part; kernels walk over more

    def __init__(self, s: Staging) -> None:
        self.at_once = self.AT_ONCE if s.sums.size < self.MANY else self.AT_ONCE // 4
        self.threads = s.width // 2
        self.shift = log2(self.threads)
        self.across = WARPGROUP // self.threads
        self.turn = 16 * (self.across >> s.shift & s.mask)
        lines = range((s.columns if s.transposed else ROWS) // self.across)
        self.walks = not s.transposed and s.mi * s.columns // s.width > self.BOXES
        self.batches = [lines[i : i + self.at_once] for i in range(0, len(lines), self.at_once)]

    def walked(self, chunk: Chunk) -> list[Store]:
        """Boxes that a kernel has instructions for: all, or the first of those that it walks over."""
        return chunk.stores[:1] if self.walks else chunk.stores


class Lines:
    """How warps bring a warpgroup's boxes to C: each a line, a thread a word of each 64 elements of it. A warp's lines
    are four apart, so that all begin at the same place in a word."""

    AT_ONCE = 8  #: words that a thread has under way

    def __init__(self, s: Staging) -> None:
        self.staging = s
        #: registers of C's first row and column
        self.row, self.column = ("%y", "%x") if s.transposed else ("%x", "%y")
        #: lines of a box; boxes of a strip, bytes from one to the next, and words of a line of it as a shift
        self.count = s.columns if s.transposed else ROWS
        self.boxes = s.mi if s.transposed else s.columns // s.width
        self.box, self.shift = self.count * s.span, log2(s.width // WORD)
        #: elements of a line, how often a warp has words of it, and words it has the last time
        self.width = self.boxes * s.width
        self.parts = -(-self.width // (WARP * WORD))
        self.last = self.width // WORD - (self.parts - 1) * WARP
        #: registers that have where a thread's words are: of a part, of the last one, and the words behind these
        self.ending = "own" if self.last == WARP else "ending"
        self.places = ["own", "next", "final"] + ["ending"] * (self.last < WARP)
        #: bytes from words of a line to those of the next part, and what the swizzle inverts of a line four further on
        self.hop = (WARP >> self.shift) * self.box
        self.inverted = 16 * (4 >> s.shift & s.mask)
        #: lines that a warp has under way at once, how often, and what it then has: (line, part of it)
        self.rows = 2 * int(widest(self.count // 8, max(self.AT_ONCE // 2 // self.parts, 1), 1))
        self.rounds = self.count // 4 // self.rows
        self.batch = [(row, part) for row in range(self.rows) for part in range(self.parts)]

    def near(self, strip: Strip, row: int, part: int, behind: bool = False) -> str:
        """Where a thread's word of line ``row``, part ``part`` is, or the one ``behind``."""
        last, at = part == self.parts - 1, strip.offset + 4 * row * self.staging.span + part * self.hop
        place = ("final" if last else "next") if behind else self.ending if last else "own"
        return f"%{place}{row % 2}+{at}"

    def strips(self, chunk: int) -> list[Strip]:
        s = self.staging
        buffer, first = chunk % s.buffers * s.size, chunk * s.columns
        if s.transposed:
            return [Strip(buffer, first, 0)]
        return [Strip(buffer + m * self.boxes * self.box, m * ROWS, first) for m in range(s.mi)]


@dataclass(frozen=True)
class Write:
    """One store from registers. ``line``: which row pointer; ``second``: 1 where it begins at the second of two columns
    of Y; ``row``, ``column``: of C, a register and what to add to it."""

    registers: list[str]
    line: int
    offset: int
    second: int
    row: tuple[str, int]
    column: tuple[str, int]


class LeavingPlan(Plan):
    """The part of a plan that brings finished sums to C."""

    swapped: bool
    fed: bool
    mi: int
    finish: int
    row_next: int
    #: what finished sums are in
    final: Tile

    def _set_c_access(self) -> None:
        super()._set_c_access()
        #: pairs of 8-bit results leave as whole groups of columns, by four lanes together
        whole = self.config.vec_c >= COLUMNS and self.finish % (4 * COLUMNS) == 0
        self.pack_8bit = whole and groups_leave(self.problem, self.config) and self.store_op == "epilogue/store.mako"
        self.scales = any(stage.startswith("scale") for stage in self.problem.stages)
        #: what follows the product is not done in place: where tiles follow each other sums live on, and ptxas would
        #: hold both. Results that other lanes are sent stay
        self.beside = bool(self.problem.stages) and not self.pack_8bit
        self.curved = any(stage in EPILOGUE[-1] for stage in self.problem.stages)
        if self.config.epilogue_smem:
            self.fused_ops = "epilogue/fused_ops_subtile.mako" if self.problem.epilogue else "epilogue/identity.mako"

    def _set_epilogue(self) -> None:
        super()._set_epilogue()
        if self.config.epilogue_smem:
            self.store_op = self.store_c = "epilogue/stmatrix_subtiles.mako"
            #: how boxes get to C: whole by TMA, or a line at a time
            self.boxed = boxed(self.problem)
            self.boxes = "epilogue/tma_store.mako" if self.boxed else "epilogue/unaligned_row_store.mako"
        else:
            self.store_c = "epilogue/wgmma_from_registers.mako"

    @property
    def contiguous(self) -> int:
        return 1 if self.swapped and not self.fed else 2

    def _set_c_staging(self) -> None:
        c, g = self.config, self.geometry
        self.row = Tile("e", self.epilogue_type, (max(self.vec_c, 1),))
        if c.epilogue_smem:
            self.staging = Staging(
                self.final, self.swapped, self.finish, c.epilogue_subtiles, c.epilogue_buffers, bool(c.persistent)
            )
            if self.batched:
                self.staging.coordinates.append("%batch_index")
                self.staging.rank += 1
            self.staging_at = 0 if c.epilogue_aliases_ab else int(g.ring + g.added)
        self.rows = 2 * self.mi
        self.lines = [0, 1] if self.swapped else [self.row_offset(n) for n in range(self.rows)]

    @property
    def preinitialised(self) -> list[tuple[str, str, str]]:
        return [
            (t.kind, r, self.zero if t.kind == self.epilogue_type else "0") for t in self.c_registers for r in t.all
        ]

    def results(self, put: Put) -> list[tuple[str, str]]:
        """The pairs that a put packs. Activations have registers of their own, as ``beside`` has it."""
        if not self.curved:
            return put.registers
        return [(f"%wide{2 * n}", f"%wide{2 * n + 1}") for n in range(len(put.registers))]

    def leaves(self, write: Write) -> list[str]:
        """The registers in which a write's sums become results."""
        return [self.row[n] for n in range(len(write.registers))] if self.beside else write.registers

    def row_offset(self, n: int) -> int:
        """Rows from a thread's first to its ``n``-th."""
        return n // 2 * ROWS + n % 2 * self.row_next

    def writes(self, j: int, n: int) -> list[Write]:
        """The stores of row ``n``, columns of group ``j``."""
        m, h = divmod(n, 2)
        pair = [self.final[m, 4 * j + 2 * h + e] for e in range(2)]
        step = self.vec_c
        out = []
        if self.swapped and step == 2:  # neighbours along X
            rows = [] if h else [[self.final[m, 4 * j + e], self.final[m, 4 * j + 2 + e]] for e in range(2)]
            x = ("%x", self.row_offset(n))
            return [Write(r, e, x[1] * self.out_bytes, e, ("%y", COLUMNS * j + e), x) for e, r in enumerate(rows)]
        for e in range(0, 2, step):
            x, y = ("%x", self.row_offset(n)), ("%y", COLUMNS * j + e)
            if self.swapped:
                out.append(Write([pair[e]], e, x[1] * self.out_bytes, e, y, x))
            else:
                out.append(Write(pair[e : e + step], n, y[1] * self.out_bytes, e, x, y))
        return out
