"""The epilogue of a wgmma kernel, which stores C from registers or through shared memory. Python makes numbers;
templates write instructions.

Accumulator i of lane l is at row l / 4 + 8 (i / 2 mod 2) and column 8 (i / 4) + 2 (l mod 4) + i mod 2 of a warp's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts import epilogue
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.vectorized import WARP, Last, Mask, log2
from ptxgen.families.wgmma import grouped_rows
from ptxgen.families.wgmma.c_runs import RunLayout, run_layouts
from ptxgen.families.wgmma.geometry import (
    COLUMNS,
    ROWS,
    SPAN,
    WARPGROUP,
    WgmmaGeometry,
    packs_8bit,
    prefetch_barriers,
    widest,
)
from ptxgen.families.wgmma.layout import ATOM, in_batches
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT
from ptxgen.families.wgmma.matrix.mainloop import Mainloop
from ptxgen.families.wgmma.operand_packing import boxed
from ptxgen.lowering.aggregate import Aggregate
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.sink import SelectValues, ValueSink
from ptxgen.problem.epilogue_ops import ACTIVATION, SCALE

#: sink -> the template file that takes its values from fragments
_FRAGMENT_SINKS: dict[type[ValueSink], str] = {
    RowReduce: "epilogue/fragment_row_reduce.mako",
    Aggregate: "epilogue/fragment_aggregate.mako",
    SelectValues: "epilogue/fragment_select.mako",
}
WORD = 2  #: elements per word (four bytes) of C
MATRIX_BYTES = 2  #: bytes of an element that stmatrix stores


class FragmentRow(NamedTuple):
    """A row of a thread: its number, and its distance in rows from the thread's first row."""

    number: int
    offset: int


@dataclass(frozen=True)
class Stmatrix:
    """One stmatrix instruction. ``registers``: pairs of accumulators, each of which is packed to a word; ``variant``,
    ``offset``: the address as a register plus a constant; ``row``, ``column``: first row along X in the warpgroup, and
    first column along Y."""

    registers: list[tuple[str, str]]
    variant: int
    offset: int
    row: int
    column: int

    @property
    def words(self) -> str:
        """The operand with the packed pairs."""
        return braces([f"%word{n}" for n in range(len(self.registers))])

    @property
    def accumulators(self) -> int:
        return 2 * len(self.registers)

    @property
    def staged_pairs(self) -> list[tuple[str, str]]:
        """For each pair, the registers with its two values."""
        return [(f"%staged{2 * n}", f"%staged{2 * n + 1}") for n in range(len(self.registers))]

    @property
    def fragments(self) -> list[tuple[int, int, list[str], list[str]]]:
        """For each group of 8 columns: the fragment along X, the group, its accumulators, and the registers with their
        values."""
        names = [r for pair in self.registers for r in pair]
        values = [r for pair in self.staged_pairs for r in pair]
        return [
            (
                self.row // ROWS,
                (self.column + 2 * n) // COLUMNS,
                names[n : n + FRAGMENT],
                values[n : n + FRAGMENT],
            )
            for n in range(0, len(names), FRAGMENT)
        ]


@dataclass(frozen=True)
class BoxStore:
    """A box of C that TMA stores. ``offset``: its place in the warpgroup's staging buffer; ``x``, ``y``: its place in
    the warpgroup's tile."""

    offset: int
    x: int
    y: int


@dataclass(frozen=True)
class Subtile:
    """Columns that are stored at once. ``label``: the end of the names of its labels; ``buffer``: the offset of its
    buffer among a warpgroup's staging buffers; ``reuses_buffer``: True if an earlier subtile or tile used this buffer;
    ``stmatrices``, ``batches``: how threads write results of two bytes, or pairs of sums of one byte; ``along_x``,
    ``along_y``: a thread's sums by row along X, or by column along Y, counted from the thread's first;
    ``stored_sums``: the same columns of the array of sums, which are stored first; None: there is no such array."""

    index: int
    label: str
    buffer: int
    reuses_buffer: bool
    stmatrices: list[Stmatrix]
    batches: list[PairBatch]
    stores: list[BoxStore]
    along_x: list[tuple[int, list[str]]]
    along_y: list[tuple[int, list[str]]]
    columns: int
    stored_sums: Subtile | None = None

    @property
    def first(self) -> Subtile:
        """The subtile whose buffer is written first."""
        return self.stored_sums or self

    @property
    def sides(self) -> dict[str, tuple[str, list[tuple[int, list[str]]]]]:
        """Side -> its name, and a thread's sums by row or column along it."""
        return {"x": ("x", self.along_x), "y": ("y", self.along_y)}

    @property
    def sums(self) -> list[str]:
        """The registers of a thread's sums."""
        stored = [r for stmatrix in self.stmatrices for pair in stmatrix.registers for r in pair]
        return stored or [r for _, registers in self.along_x for r in registers]

    @property
    def first_column(self) -> int:
        return self.index * self.columns

    @property
    def last_column(self) -> int:
        return self.first_column + self.columns - 1


class PairBatch(NamedTuple):
    """Words of adjacent columns. ``column``: the first column along Y; ``chunks``: for each chunk of 16 bytes of a row,
    its place as bits of the address, and its words: the registers of two sums, and the offset."""

    column: int
    chunks: list[tuple[int, list[tuple[str, str, int]]]]


class Staging:
    """The subtiles of a warpgroup in shared memory, in swizzled boxes. Results of two bytes are packed in pairs and
    stored by stmatrix; each pair of sums of one byte is a word. ``size``: bytes of a sum in C; ``transposed``: True if
    C is contiguous along X; ``y_columns``: columns along Y that the block stores; ``outer``: registers with the
    coordinates of an item; ``paired``: True if two adjacent columns of C are stored by one access; ``arrays``: the
    arrays of the shape of C to which the kernel stores, 2 with an array of sums."""

    CHUNK = 16  #: bytes that the swizzle moves together
    BATCH = 2  #: chunks of words that are computed at once

    def __init__(
        self,
        sums: Tile,
        size: int,
        transposed: bool,
        y_columns: int,
        subtiles: int,
        buffers: int,
        persistent: bool,
        outer: Sequence[str],
        paired: bool,
        arrays: int,
    ) -> None:
        mi = sums.shape[0]
        self.sums, self.size, self.transposed, self.mi = sums, size, transposed, mi
        columns = y_columns // subtiles
        self.columns = columns
        #: elements of a box along C's contiguous direction, and their bytes
        self.width = ROWS if transposed else widest(columns, SPAN // size, self.CHUNK // size)
        self.span = self.width * size
        self.box = (ROWS, columns) if transposed else (self.width, ROWS)
        #: bytes of a subtile of one warpgroup
        self.subtile_bytes = mi * ROWS * columns * size
        self.buffers, self.arrays, self.persistent = buffers, arrays, persistent
        self.bytes = self.subtile_bytes * buffers
        #: address registers: stmatrix instructions whose chunk of 16 bytes differs within a row of the box
        self.variants = 1 if transposed else max(1, self.width // 16)
        #: declaration of the registers with the addresses to which a thread writes
        self.written = f"%stmatrix_row<{self.variants}>" if size == MATRIX_BYTES else "%word_row, %word_addr"
        #: rows of the box in 128 bytes (log2), and the bits of a row that the swizzle uses
        self.swizzle_shift, self.swizzle_mask = 7 - log2(self.span), self.span // 16 - 1
        self.trans = ".trans" if transposed else ""
        #: coordinates of a box, and how many there are
        self.coordinates = [*(("%box_x", "%box_y") if transposed else ("%box_y", "%box_x")), *outer]
        self.rank = len(self.coordinates)
        self.rows, self.pairs, self.vectors = RowStores(self), PairStores(self, paired), VectorStores(self)
        self.subtiles = [self._subtile(n, arrays - 1) for n in range(subtiles)]

    def _subtile(self, index: int, array: int) -> Subtile:
        """Subtile ``index`` of an array: C is the last one, the array of sums is before it."""
        turn, whole = index * self.arrays + array, self.size == MATRIX_BYTES
        buffer = turn % self.buffers * self.subtile_bytes
        return Subtile(
            index,
            str(index) if array == self.arrays - 1 else f"_SUMS{index}",
            buffer,
            self.persistent or turn >= self.buffers,
            self._stmatrices(index, buffer) if whole else [],
            [] if whole else self._batches(index, buffer),
            self._stores(index, buffer),
            self._along_x(index),
            self._along_y(index),
            self.columns,
            self._subtile(index, array - 1) if array else None,
        )

    def prefetch_barrier(self, subtile: Subtile) -> int:
        """The number of bytes from a warpgroup's first mbarrier to the mbarrier for the prefetched operand of a
        subtile."""
        return 8 * (1 + subtile.index % self.buffers)

    @property
    def prefetch_barriers(self) -> list[str]:
        """For each subtile, the address of the mbarrier for its prefetched operand."""
        return [f"%c_bar+{self.prefetch_barrier(c)}" for c in self.subtiles]

    @property
    def other_buffers(self) -> int:
        return self.buffers - 1

    @property
    def variant_chunks(self) -> range:
        """The numbers of the 16-byte chunks that the variants of a thread's address access."""
        return range(0, 2 * self.variants, 2)

    @cached_property
    def boxes(self) -> list[BoxStore]:
        """The boxes of all subtiles, of each array."""
        return [b for c in self.subtiles for x in (c.first, c) for b in x.stores]

    def groups(self, subtile: Subtile) -> range:
        """The numbers in the tile of a subtile's groups of 8 columns."""
        each = self.columns // COLUMNS
        return range(subtile.index * each, (subtile.index + 1) * each)

    @staticmethod
    def of_groups(subtile: Subtile, groups: Sequence[int]) -> list[Stmatrix]:
        """The stmatrix instructions that store some groups of columns of a subtile."""
        return [x for x in subtile.stmatrices if x.column // COLUMNS in groups]

    def _stmatrices(self, subtile: int, buffer: int) -> list[Stmatrix]:
        out = []
        groups = self.columns // COLUMNS
        for m in range(self.mi):
            j = 0
            while j < groups:
                # two groups of 8 columns at once, or one
                pair = j + 1 < groups and (self.transposed or self.width >= 2 * COLUMNS)
                first = (subtile * groups + j) * 4
                names = [self.sums[m, first + q] for q in range(8 if pair else 4)]
                registers = list(zip(names[::2], names[1::2], strict=True))
                box, inner = divmod(j * COLUMNS, self.width)
                column = subtile * self.columns + j * COLUMNS
                if self.transposed:
                    offset = buffer + m * ROWS * self.columns * 2 + j * ATOM * self.span
                    stmatrix = Stmatrix(registers, 0, offset, m * ROWS, column)
                else:
                    offset = buffer + m * ROWS * self.columns * 2 + box * ROWS * self.span
                    stmatrix = Stmatrix(registers, inner // 16, offset, m * ROWS, column)
                out.append(stmatrix)
                j += 2 if pair else 1
        return out

    def _batches(self, subtile: int, buffer: int) -> list[PairBatch]:
        chunks = range(0, self.columns, self.CHUNK)
        return [
            PairBatch(
                subtile * self.columns + batch[0],
                [(first % self.width, self._pairs(subtile, m, first, buffer)) for first in batch],
            )
            for m in range(self.mi)
            for batch in in_batches(chunks, self.BATCH)
        ]

    def _pairs(self, subtile: int, m: int, first: int, buffer: int) -> list[tuple[str, str, int]]:
        """The registers and offsets of the words of a chunk: two groups of columns in two rows. ``first``: its first
        column in the subtile."""
        box = (m * self.columns + first // self.width * self.width) * ROWS
        at = buffer + box
        places = [(h, g) for g in range(2) for h in range(2)]
        groups = (subtile * self.columns + first) // COLUMNS
        sums = [[self.sums[m, FRAGMENT * (groups + g) + 2 * h + e] for e in range(2)] for h, g in places]
        return [
            (low, high, at + h * ATOM * self.span + g * COLUMNS)
            for (low, high), (h, g) in zip(sums, places, strict=True)
        ]

    def _along_x(self, subtile: int) -> list[tuple[int, list[str]]]:
        groups = range(subtile * self.columns // COLUMNS, (subtile + 1) * self.columns // COLUMNS)
        return [
            (m * ROWS + h * 8, [self.sums[m, 4 * j + 2 * h + e] for j in groups for e in range(2)])
            for m in range(self.mi)
            for h in range(2)
        ]

    def _along_y(self, subtile: int) -> list[tuple[int, list[str]]]:
        groups = range(subtile * self.columns // COLUMNS, (subtile + 1) * self.columns // COLUMNS)
        return [
            (j * COLUMNS + e, [self.sums[m, 4 * j + 2 * h + e] for m in range(self.mi) for h in range(2)])
            for j in groups
            for e in range(2)
        ]

    def _stores(self, subtile: int, buffer: int) -> list[BoxStore]:
        out = []
        for m in range(self.mi):
            at = buffer + m * ROWS * self.columns * self.size
            for n in range(1 if self.transposed else self.columns // self.width):
                out.append(BoxStore(at + n * ROWS * self.span, m * ROWS, subtile * self.columns + n * self.width))
        return out


@dataclass(frozen=True)
class RowSegment:
    """Boxes of a subtile side by side, whose rows continue from box to box. ``offset``: place in the warpgroup's
    staging buffer; ``row``, ``column``: the first element's place in C, counted from the warpgroup's first element."""

    offset: int
    row: int
    column: int


class PairStores:
    """The stores of boxes to C by two elements at a time. ``threads``: threads of a row; ``shift``: log2 of
    ``threads``; ``row_step``: rows from one of a thread's rows to its next; ``swizzle``: address bits that differ in
    every other of these rows."""

    IN_FLIGHT, LARGE = 8, 192  #: rows in flight; a quarter of them if a thread has LARGE accumulators or more
    UNROLLED_BOXES = 6  #: most boxes of a subtile that are unrolled; if there are more, a loop stores them

    def __init__(self, s: Staging, paired: bool) -> None:
        self.staging, self.paired = s, paired
        self.in_flight = self.IN_FLIGHT if s.sums.size < self.LARGE else self.IN_FLIGHT // 4
        if not paired:  # predicates of words and single elements take registers, too
            self.in_flight //= 2
        self.threads = s.width // 2
        self.shift = log2(self.threads)
        self.row_step = WARPGROUP // self.threads
        self.swizzle = 16 * (self.row_step >> s.swizzle_shift & s.swizzle_mask)
        rows = range((s.columns if s.transposed else ROWS) // self.row_step)
        self.loops = not s.transposed and s.mi * s.columns // s.width > self.UNROLLED_BOXES
        self.batches = [rows[i : i + self.in_flight] for i in range(0, len(rows), self.in_flight)]

    @cached_property
    def places(self) -> dict[BoxStore, tuple[int, int, int]]:
        """Box -> its first row of C, its first column of C, and the column after that."""
        first = {b: (b.y, b.x) if self.staging.transposed else (b.x, b.y) for b in self.staging.boxes}
        return {b: (row, column, column + 1) for b, (row, column) in first.items()}

    @property
    def first(self) -> tuple[str, str, str]:
        """The registers with the first row and column of C, and with the address of the box."""
        s = self.staging
        return ("%loop_x", "%loop_y", "%box") if self.loops else (s.rows.row, s.rows.column, "%staging")

    thread_mask, last_thread = Mask("threads"), Last("threads")

    @property
    def unaligned_stores(self) -> list[tuple[tuple[str, str, str, str], ...]]:
        """For each pair in flight, the stores of a row that begins at any element: (guard, width, address, value).
        Empty if adjacent columns are stored by one access."""
        if self.paired:
            return []
        return [
            (
                ("%own_word", "b32", "%c_addr", f"%pair{n}"),
                ("%next_word", "b32", "%next_c_addr", "%following"),
                ("%low", "b16", "%c_addr", "%half0"),
                ("%high", "b16", "%next_c_addr", "%half1"),
            )
            for n in range(self.in_flight)
        ]

    @cached_property
    def neighbours(self) -> dict[BoxStore, tuple[int, int]]:
        """Box -> the columns before and after a thread's two."""
        return {b: (column - 1, column + WORD) for b, (_, column, _) in self.places.items()}

    @property
    def step_bytes(self) -> int:
        """The bytes of C between two rows of a thread, per element of the stride from row to row."""
        return WORD * self.row_step

    @property
    def span_words(self) -> int:
        """The number of words of a row of a box."""
        return self.staging.span // 4

    @property
    def box_bytes(self) -> int:
        first, second = self.staging.subtiles[0].stores[:2]
        return second.offset - first.offset

    @property
    def boxes(self) -> int:
        """The number of boxes in 64 rows of a subtile."""
        return self.staging.columns // self.staging.width

    @cached_property
    def first_rows(self) -> list[int]:
        """The distances from a thread's first row to each of its rows."""
        return [row * self.row_step for rows in self.batches for row in rows]

    @cached_property
    def addresses(self) -> list[str]:
        """The shared-memory address of each of a thread's rows in a box."""
        registers = ("%smem_addr", "%smem_addr_odd")
        return [f"{registers[n % 2]}+{row * self.staging.span}" for n, row in enumerate(self.first_rows)]

    def emitted(self, subtile: Subtile) -> list[BoxStore]:
        """The boxes for which the kernel has instructions: all boxes, or the first box of the loop."""
        return subtile.stores[:1] if self.loops else subtile.stores


class BoxColumns(NamedTuple):
    """The first column of C of a box, and its offset in bytes."""

    first: int
    offset: int


class VectorStores:
    """The stores of boxes from shared memory to C by 16 bytes at a time. ``threads``: threads that store a row of a
    box; ``shift``: log2 of ``threads``; ``row_step``: rows from one of a thread's rows to its next; ``whole``: True if
    every thread stores the same number of rows of a box; ``batches``: the numbers of a thread's rows, in batches for
    which there are registers."""

    BYTES = 16
    #: (least accumulators of a thread, rows in flight)
    IN_FLIGHT = (160, 1), (128, 2), (0, 4)

    def __init__(self, s: Staging) -> None:
        self.staging = s
        self.threads = s.span // self.BYTES
        self.shift = log2(self.threads)
        self.row_step = WARPGROUP // self.threads
        self.box_rows = s.columns if s.transposed else ROWS
        self.whole = self.box_rows % self.row_step == 0
        in_flight = next(n for least, n in self.IN_FLIGHT if s.sums.size >= least)
        rows = range(-(-self.box_rows // self.row_step))
        self.batches = [rows[i : i + in_flight] for i in range(0, len(rows), in_flight)]
        self.words = Tile("chunk_word", "b32", (len(self.batches[0]), 4))

    def strips(self, subtile: Subtile) -> list[list[BoxStore]]:
        """The boxes of a subtile, grouped by their rows of C."""
        if self.staging.transposed:
            return [subtile.stores]
        return [[b for b in subtile.stores if b.x == m * ROWS] for m in range(self.staging.mi)]

    thread_mask = Mask("threads")

    @cached_property
    def offsets(self) -> dict[BoxStore, list[int]]:
        """Box -> bytes from a thread's place in the first box to each of its rows. Rows that are ``row_step`` apart
        have the same swizzle."""
        rows = [n for batch in self.batches for n in batch]
        return {b: [b.offset + n * self.row_step * self.staging.span for n in rows] for b in self.staging.boxes}

    @cached_property
    def columns(self) -> dict[BoxStore, BoxColumns]:
        """Box -> its first column of C, and the offset of this column."""
        first = {b: b.x if self.staging.transposed else b.y for b in self.staging.boxes}
        return {b: BoxColumns(column, column * 2) for b, column in first.items()}

    @cached_property
    def rows(self) -> dict[BoxStore, list[int]]:
        """Box -> the rows of C of a thread, counted from its first row."""
        first = {b: b.y if self.staging.transposed else b.x for b in self.staging.boxes}
        rows = [n * self.row_step for batch in self.batches for n in batch]
        return {b: [row + n for n in rows] for b, row in first.items()}

    @cached_property
    def rows_left(self) -> list[int]:
        """For each of the first thread's rows, the number of rows of a box from this row on."""
        return [self.box_rows - n * self.row_step for batch in self.batches for n in batch]


class RowWord(NamedTuple):
    """A word that a thread stores. ``row``: counted from the warp's first row; ``part``: number of its part of the row;
    ``last``: True for the last part; ``address``, ``next_address``: the shared-memory addresses of the word and of the
    word after it."""

    row: int
    part: int
    last: bool
    address: str
    next_address: str

    @property
    def offset(self) -> int:
        """The number of bytes in C from the thread's first word of the row to this word."""
        return 4 * WARP * self.part

    @property
    def elements(self) -> list[tuple[int, int]]:
        """The (column, offset) of both elements, counted from the thread's first element of the row."""
        first = WARP * WORD * self.part
        return [(column, 2 * column) for column in (first, first + 1)]


class RowStores:
    """The stores of boxes to C row by row: a warp stores a row, and a thread stores a word of each 64 elements of the
    row. The rows of a warp are four rows apart, so all of them begin at the same offset within a word."""

    IN_FLIGHT = 8  #: words of a thread in flight

    def __init__(self, s: Staging) -> None:
        self.staging = s
        #: registers of C's first row and column
        self.row, self.column = ("%c_y", "%c_x") if s.transposed else ("%c_x", "%c_y")
        #: rows of a box; boxes of a segment, bytes from one to the next, and words of a row of a box (log2)
        self.count = s.columns if s.transposed else ROWS
        self.boxes = s.mi if s.transposed else s.columns // s.width
        self.box_bytes, self.log2_words = self.count * s.span, log2(s.width // WORD)
        #: elements of a row, times that a warp has words of it, and words of the last time
        self.width = self.boxes * s.width
        self.parts = -(-self.width // (WARP * WORD))
        self.last_words = self.width // WORD - (self.parts - 1) * WARP
        #: registers with the addresses of a thread's words: ``word_addr``, and ``last_word_addr`` of the last part if
        #: that is shorter than a warp; ``next_word_addr`` and ``last_next_word_addr``: of the words after these
        self.last_address = "word_addr" if self.last_words == WARP else "last_word_addr"
        self.addresses = ["word_addr", "next_word_addr", "last_next_word_addr"]
        self.addresses += ["last_word_addr"] * (self.last_words < WARP)
        #: bytes from words of a row to those of the next part, and address bits that the swizzle inverts four rows on
        self.part_bytes = (WARP >> self.log2_words) * self.box_bytes
        self.swizzle = 16 * (4 >> s.swizzle_shift & s.swizzle_mask)
        #: rows that a warp has in flight, iterations, and (row, part) of one iteration
        self.rows = 2 * int(widest(self.count // 8, max(self.IN_FLIGHT // 2 // self.parts, 1), 1))
        self.iterations = self.count // 4 // self.rows
        self.batch = [(row, part) for row in range(self.rows) for part in range(self.parts)]

    def address(self, segment: RowSegment, row: int, part: int, following: bool = False) -> str:
        """The shared-memory address of a thread's word of row ``row``, part ``part``; ``following``: True for the word
        after it."""
        last, at = part == self.parts - 1, segment.offset + 4 * row * self.staging.span + part * self.part_bytes
        first, final = ("next_word_addr", "last_next_word_addr") if following else ("word_addr", self.last_address)
        register = final if last else first
        return f"%{register}{row % 2}+{at}"

    @property
    def address_registers(self) -> str:
        """The declaration of the registers in ``addresses``, two of each."""
        return ", ".join(f"%{r}<2>" for r in self.addresses)

    @property
    def word_mask(self) -> int:
        return (1 << self.log2_words) - 1

    @property
    def log2_elements(self) -> int:
        """log2 of the elements of a row of a box."""
        return self.log2_words + 1

    @property
    def step_rows(self) -> int:
        """The number of rows from one iteration of a warp to the next."""
        return 4 * self.rows

    @property
    def step_bytes(self) -> int:
        return self.step_rows * self.staging.span

    @property
    def last_elements(self) -> list[int]:
        """For each part of a row, the second element of a thread's word."""
        return [WARP * WORD * part + 1 for part in range(self.parts)]

    @cached_property
    def words(self) -> dict[RowSegment, list[RowWord]]:
        """Segment -> the words that a thread stores in one iteration."""
        subtiles = [x for c in self.staging.subtiles for x in (c, c.first)]
        segments = [x for c in subtiles for x in self.segments(c)]
        return {
            segment: [
                RowWord(
                    4 * row,
                    part,
                    part == self.parts - 1,
                    self.address(segment, row, part),
                    self.address(segment, row, part, True),
                )
                for row, part in self.batch
            ]
            for segment in segments
        }

    def segments(self, subtile: Subtile) -> list[RowSegment]:
        s, buffer, first = self.staging, subtile.buffer, subtile.first_column
        if s.transposed:
            return [RowSegment(buffer, first, 0)]
        return [RowSegment(buffer + m * self.boxes * self.box_bytes, m * ROWS, first) for m in range(s.mi)]


@dataclass(frozen=True)
class RegisterStore:
    """One store from registers. ``pointer``: the number of its row pointer; ``second``: 1 if it begins at the second of
    two columns of Y, else 0; ``row``, ``column``: its place in C, each a register plus a constant."""

    registers: list[str]
    pointer: int
    offset: int
    second: int
    row: tuple[str, int]
    column: tuple[str, int]


@dataclass(frozen=True)
class Epilogue(epilogue.Epilogue):
    """The epilogue of the sums of a tile. ``sums``: the registers of the sums."""

    problem: KernelProblem
    geometry: WgmmaGeometry
    mainloop: Mainloop
    sums: Tile

    @cached_property
    def vector(self) -> Tile:
        """The registers of the results of a vector, if results have registers of their own."""
        return Tile("result", self.arithmetic.type, (self.c.vec,))

    @property
    def store_op(self) -> str:
        if self.via_smem:
            return self.template
        return _FRAGMENT_SINKS.get(type(self.problem.sink), "") if self.takes_fragments else super().store_op

    @property
    def column_sums(self) -> str:
        return "epilogue/fragment_column_sums.mako" if "sum_columns" in self.problem.needs else super().column_sums

    @property
    def takes_fragments(self) -> bool:
        """True if the sink takes its values from fragments of complete sums."""
        return takes_fragments(self.problem.sink) and not self.reduction.stores_partials

    @property
    def pack_8bit(self) -> bool:  # type: ignore[override]
        """True if four lanes exchange pairs of 8-bit results, so that each lane stores a whole group of columns."""
        whole = self.config.vec_c >= COLUMNS and self.y_columns % (4 * COLUMNS) == 0
        return whole and bool(packs_8bit(self.problem, self.config)) and self.store_op == "epilogue/store.mako"

    @property
    def transposed(self) -> bool:
        return bool(self.config.transposed_mma)

    @property
    def via_smem(self) -> bool:  # type: ignore[override]
        return bool(self.config.epilogue_smem)

    @property
    def y_columns(self) -> int:
        """The number of columns along Y that this block stores."""
        return int(self.geometry.reduction.owner_columns)

    @property
    def formula(self) -> str:
        """A text for a banner: what is stored."""
        return "C = alpha sums + beta C" if self.scales_sums else "values of the sums"

    # ---- fused operations

    @property
    def scales(self) -> bool:
        return any(op.place == SCALE for op in self.problem.sink.operations)

    @property
    def out_of_place(self) -> bool:
        """True if fused operations write to registers of their own. If they wrote in place, sums would stay live until
        the next tile, and ptxas would hold both. Results that other lanes receive must stay in their registers."""
        return bool(self.problem.sink.ops) and not self.pack_8bit

    @property
    def has_activation(self) -> bool:
        return any(op.place == ACTIVATION for op in self.problem.sink.operations)

    # ---- through shared memory

    @cached_property
    def staging(self) -> Staging:
        p, c = self.problem, self.config
        outer = ["%batch_index"] if p.batch != 1 else grouped_rows.coordinates(p, "c") if grouped(p) else []
        arrays = 1 + len(self.problem.sink.stored)
        sizes = self.y_columns, c.epilogue_subtiles, c.epilogue_buffers
        return Staging(self.sums, self.c.bytes, self.transposed, *sizes, bool(c.persistent), outer, self.paired, arrays)

    @property
    def staging_base(self) -> int:
        """The offset of the staging buffers in shared memory: at the stages, or after the stages and the cluster's
        sums."""
        g = self.geometry
        return 0 if self.config.epilogue_aliases_ab else int(g.pipeline.bytes + g.reduction.dsmem_bytes)

    @property
    def shared_map(self) -> list[str]:
        if not self.via_smem:
            return []
        s = self.staging
        arrays = " and ".join([*self.problem.sink.stored, "C"])
        return [f"{self.staging_base}: {arrays}, {s.buffers} of {s.arrays * len(s.subtiles)} subtiles a warpgroup"]

    @cached_property
    def tma(self) -> bool:
        """True if TMA stores C."""
        return bool(boxed(self.problem))

    @property
    def via_tma(self) -> bool:
        """True if only TMA accesses C."""
        return self.via_smem and self.tma

    @property
    def shifted_rows(self) -> str:
        """The register with the row of a box if C is an array of ranges of rows; else empty."""
        if not grouped_rows.ranges(self.problem, "c"):
            return ""
        return "%box_y" if self.transposed else "%box_x"

    @property
    def words(self) -> str:
        """The template file that writes results to boxes in shared memory."""
        return "epilogue/stmatrix_words.mako" if self.c.bytes == MATRIX_BYTES else "epilogue/pair_words.mako"

    @property
    def reads_c(self) -> bool:
        """True if beta may not be zero."""
        return not self.c.pair_type

    @property
    def box_template(self) -> str:
        """The template file that moves boxes from shared memory to C."""
        if self.vector_rows:
            return "epilogue/vector_row_store.mako"
        if self.runs:
            return "epilogue/scatter_smem.mako"
        return "epilogue/tma_store.mako" if self.tma else "epilogue/unaligned_row_store.mako"

    @property
    def template(self) -> str:  # type: ignore[override]
        if self.via_smem:
            values = isinstance(self.problem.sink, ValueSink)
            return "epilogue/staged_values.mako" if values else "epilogue/stmatrix_subtiles.mako"
        if self.runs and not self.reduction.stores_partials:
            return "epilogue/store_scatter.mako"
        return "epilogue/wgmma_from_registers.mako"

    @property
    def tma_operands(self) -> tuple[str, ...]:
        """The elementwise operands that TMA loads into the staging buffers. The first is prefetched; the second is
        loaded to the same buffers after the sums have used the first."""
        return self.problem.sink.elementwise if self.via_tma else ()

    @property
    def prefetched(self) -> str:
        """The elementwise operand that TMA loads to a staging buffer as soon as the buffer is free; empty if there is
        none."""
        return next(iter(self.tma_operands), "")

    @property
    def prefetches_early(self) -> bool:
        """True if the loads to the first buffers are issued before the K loop, because they do not use the memory of
        the stages."""
        c = self.config
        return bool(self.prefetched) and not c.epilogue_aliases_ab and c.cluster_k * c.kg == 1

    @property
    def c_barriers(self) -> int:
        """The result of the function ``c_barriers`` for the problem and configuration."""
        return c_barriers(self.problem, self.config)

    @property
    def maps(self) -> list[str]:
        """The names of the tensor maps that the epilogue uses."""
        stored = ["map_c", *(f"map_{name}" for name in self.problem.sink.stored)]
        return stored * (self.via_smem and self.tma) + [f"map_{name}" for name in self.tma_operands]

    @property
    def stored_maps(self) -> dict[str, str]:
        """Array to which TMA stores -> the register with the address of its tensor map."""
        return {"C": "%map_c", **{name: f"%map_{name}" for name in self.problem.sink.stored}}

    # ---- from registers

    @property
    def rows(self) -> int:
        """The number of rows of a thread."""
        return 2 * self.mainloop.mi

    @property
    def row_pointers(self) -> list[int]:
        """The rows (columns, if C is transposed) to which a thread has pointers, counted from its first."""
        return [0, 1] if self.transposed else [self.row_offset(n) for n in range(self.rows)]

    def row_offset(self, n: int) -> int:
        """The distance, in rows, from a thread's first row to its row number ``n``."""
        return n // 2 * ROWS + n % 2 * self.mainloop.next_row

    @cached_property
    def row_offsets(self) -> list[int]:
        """The distances, in rows, from a thread's first row to each of its rows."""
        return [self.row_offset(n) for n in range(self.rows)]

    @cached_property
    def fragment_rows(self) -> list[list[FragmentRow]]:
        """The two rows of a thread in each fragment along X."""
        rows = [FragmentRow(n, offset) for n, offset in enumerate(self.row_offsets)]
        return [rows[n : n + 2] for n in range(0, len(rows), 2)]

    @cached_property
    def column_groups(self) -> list[tuple[int, int]]:
        """For each group of 8 columns, the thread's two columns, counted from its first."""
        return [(first, first + 1) for first in range(0, self.y_columns, COLUMNS)]

    @cached_property
    def fragments(self) -> dict[tuple[int, int], list[str]]:
        """A thread's sums row by row, for each (fragment along X, group of columns). A fragment has two rows by two
        columns."""
        groups = range(self.sums.shape[1] // FRAGMENT)
        return {
            (m, j): [self.sums[m, FRAGMENT * j + q] for q in range(FRAGMENT)]
            for m in range(self.sums.shape[0])
            for j in groups
        }

    @cached_property
    def thread_stores(self) -> dict[tuple[int, int], list[tuple[RegisterStore, list[str], list[str]]]]:
        """The stores for each (group of columns, row): the store, the registers of its results, and the lines that
        compute them."""
        places = [(j, n) for j in range(self.y_columns // COLUMNS) for n in range(self.rows)]
        return {
            (j, n): [(w, self.result_registers(w), self.scaled_results(w)) for w in self.stores(j, n)]
            for j, n in places
        }

    @cached_property
    def packed_groups(self) -> dict[tuple[int, int], tuple[list[str], int, RegisterStore]]:
        """For four groups of columns whose 8-bit results lanes exchange, by (last group, row): the word of each group,
        the first column, and the store of the first group."""
        if not self.pack_8bit:
            return {}
        groups = range(3, self.y_columns // COLUMNS, 4)
        packed = {}
        for j, n in ((j, n) for j in groups for n in range(self.rows)):
            stores = [self.stores(i, n)[0] for i in range(j - 3, j + 1)]
            packed[j, n] = [w.registers[0] for w in stores], COLUMNS * (j - 3), stores[0]
        return packed

    @property
    def group_pitch_bytes(self) -> int:
        """The bytes of a transposed C from one group of 8 columns to the next, per element of the leading dimension."""
        return COLUMNS * self.out_bytes

    @property
    def barrier_bytes(self) -> int:
        """The number of bytes of the mbarriers of a warpgroup."""
        return 8 * self.c_barriers

    @property
    def c_val_count(self) -> int:
        """The number of registers for elements of C, or for results of activations."""
        return 8 if self.has_activation else 2

    @property
    def unscaled_label(self) -> str:
        """The label at which a kernel continues if sums are not scaled."""
        return "SCALED" if self.scales or self.problem.sink.elementwise else "PACK"

    @property
    def waits_for_stages(self) -> bool:
        """True if other warps may still read the stages that the staging buffers are in."""
        several = self.config.math_warpgroups > 1 or self.mainloop.a_from_registers
        return bool(self.config.epilogue_aliases_ab) and several

    @property
    def math_threads(self) -> int:
        return WARPGROUP * self.config.math_warpgroups

    @property
    def contiguous(self) -> tuple[str, str]:
        """The registers with the position of a thread's first element: across the contiguous direction of C, and along
        it."""
        return ("%c_y", "%c_x") if self.transposed else ("%c_x", "%c_y")

    def results(self, stmatrix: Stmatrix, activated: bool) -> list[tuple[str, str]]:
        """The pairs that an stmatrix packs. Results of activations are in registers of their own."""
        return self.activated[len(stmatrix.registers)] if activated else stmatrix.registers

    @cached_property
    def activated(self) -> dict[int, list[tuple[str, str]]]:
        """Pairs of an stmatrix -> the registers with the results of the activation."""
        pairs = [(f"%c_val{2 * n}", f"%c_val{2 * n + 1}") for n in range(FRAGMENT)]
        return {count: pairs[:count] for count in range(1, FRAGMENT + 1)}

    @property
    def side_of(self) -> dict[str, str]:
        """Axis of C -> the side of the tile along it."""
        return {"row": "y", "column": "x"} if self.transposed else {"row": "x", "column": "y"}

    def result_registers(self, store: RegisterStore) -> list[str]:
        """The registers in which the sums of a store become results."""
        return [self.vector[n] for n in range(len(store.registers))] if self.out_of_place else store.registers

    def scaled_results(self, store: RegisterStore) -> list[str]:
        """The instructions that pass the sums of a store to the sink; empty if the sink takes the sums themselves."""
        pairs = zip(self.result_registers(store), store.registers, strict=True)
        return [self.scaled(to, r) for to, r in pairs if self.scales_sums or to != r]

    def stores(self, j: int, n: int) -> list[RegisterStore]:
        """The stores for row ``n`` and the columns of group ``j``."""
        m, h = divmod(n, 2)
        pair = [self.sums[m, 4 * j + 2 * h + e] for e in range(2)]
        step = self.c.vec
        out = []
        if self.transposed and step == 2:  # neighbours along X
            rows = [] if h else [[self.sums[m, 4 * j + e], self.sums[m, 4 * j + 2 + e]] for e in range(2)]
            x = ("%c_x", self.row_offset(n))
            return [
                RegisterStore(r, e, x[1] * self.out_bytes, e, ("%c_y", COLUMNS * j + e), x) for e, r in enumerate(rows)
            ]
        for e in range(0, 2, step):
            x, y = ("%c_x", self.row_offset(n)), ("%c_y", COLUMNS * j + e)
            if self.transposed:
                out.append(RegisterStore([pair[e]], e, x[1] * self.out_bytes, e, y, x))
            else:
                out.append(RegisterStore(pair[e : e + step], n, y[1] * self.out_bytes, e, x, y))
        return out

    # ---- C in runs

    @cached_property
    def runs(self) -> list[RunLayout]:
        """The run layouts of the rows and of the columns of C; empty if C is a matrix."""
        return run_layouts(self.problem)

    @property
    def runs_along(self) -> tuple[RunLayout, RunLayout]:
        """The run layout along X, and the one along Y."""
        rows, columns = self.runs
        return (columns, rows) if self.transposed else (rows, columns)

    @property
    def run_registers(self) -> str:
        """The registers for runs, separated by commas."""
        return ", ".join(f"%{name}" for run in self.runs for name in run.registers)

    @property
    def phased(self) -> bool:
        """True if rows or columns of C are the pixels of a phase of a strided input gradient, or positions with a
        halo."""
        x = im2col(self.problem)
        return x is not None and bool(x.phases) and not x.by_phase

    @property
    def vector_rows(self) -> bool:
        """True if rows of C are such pixels, so that threads store 16 bytes of a row."""
        return self.phased and im2col(self.problem).side == "a"

    @property
    def locations(self) -> str:
        """The template file that computes the offsets of rows and columns."""
        if im2col(self.problem).blocks:
            return "epilogue/block_offsets.mako"
        return "epilogue/phase_offsets.mako" if self.phased else "epilogue/run_offsets.mako"

    @property
    def paired(self) -> bool:
        """True if two adjacent columns are stored by one access."""
        return bool(self.problem.vectors[2] > 1)

    @property
    def pointers(self) -> list[str]:
        """The registers with the address of each of two adjacent columns, or of both."""
        return ["%c_addr"] if self.paired else ["%c_addr", "%next_c_addr"]

    @property
    def path(self) -> str:
        return "through shared memory" if self.via_smem else "from registers"


def takes_fragments(sink: Any) -> bool:
    """True if a template takes the values of this sink from fragments."""
    return type(sink) in _FRAGMENT_SINKS


def c_barriers(p: KernelProblem, c: Config) -> int:
    """The number of a warpgroup's mbarriers for the epilogue: for loads of C, and for the prefetched operand in each
    staging buffer."""
    return int(1 + prefetch_barriers(p, c)) if c.epilogue_smem else 0
