"""The preparation of compressed tiles: tiles of a sparse matrix, each with a bitmap or offsets, and its nonzeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import SIZES, Preparation, Scan, Stage, Stages
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.families.compressed_tiles.layout import (
    BITMAP_BYTES,
    COLUMNS,
    COUNT_BYTES,
    OFFSET_BYTES,
    PIECE,
    ROWS,
    WORDS,
    Fields,
    bit_fields,
    most_pieces,
    offset_fields,
    pieces,
    word_fields,
)
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import dtype

WORD = 4
ROW_PART = 4096  #: a row of tiles gets one warp for each of this many columns
PARTS = 64  #: the most warps of a row of tiles


def columns_of(p: KernelProblem) -> int:
    """The number of tiles in 32 rows of A."""
    return int(ceil_div(p.extents.k, COLUMNS))


def tiles_of(p: KernelProblem) -> int:
    return int(ceil_div(p.extents.m, ROWS)) * columns_of(p)


@dataclass(frozen=True)
class CompressedTiles(Scan, Preparation):
    """The preparation of tiles of 32 rows and 32 columns, row by row, with values of type ``element``. ``offsets``: 1
    if tiles have an offset for each nonzero, 0 if they have bitmaps. The module ``layout`` describes both; tiles are
    padded with zeros to multiples of 16 bytes.

    It makes ``tile_starts``, the place of each tile and the end of the last, in units of 16 bytes, and ``tile_data``,
    the tiles. Its size ``pieces`` is the number of units.
    """

    element: str
    offsets: int

    kernel = "prepare/compressed_tiles.mako"
    reads_values = True

    warps: ClassVar[int] = 8  #: warps of a block; each has one row of A
    rows: ClassVar[int] = ROWS
    columns: ClassVar[int] = COLUMNS
    words: ClassVar[int] = WORDS
    bitmap_bytes: ClassVar[int] = BITMAP_BYTES
    count_bytes: ClassVar[int] = COUNT_BYTES
    offset_bytes: ClassVar[int] = OFFSET_BYTES
    piece: ClassVar[int] = PIECE
    _row_numbers: ClassVar[Parameters] = Parameters("u32", ("M", "columns"), lambda p: (p.extents.m, columns_of(p)))
    counted: ClassVar[ParameterList] = ParameterList((given("u64", "indptr", "indices", "tile_starts"), _row_numbers))
    scanned: ClassVar[ParameterList] = ParameterList(
        (given("u64", "tile_starts", SIZES), Parameters("u32", ("tiles",), lambda p: (tiles_of(p),)))
    )
    marked: ClassVar[ParameterList] = ParameterList(
        (given("u64", "indptr", "indices", "tile_starts", "tile_data"), _row_numbers)
    )
    placed: ClassVar[ParameterList] = ParameterList(
        (given("u64", "indptr", "indices", "values", "tile_starts", "tile_data"), _row_numbers)
    )

    @property
    def description(self) -> list[str]:
        index = "offsets of the nonzeros" if self.offsets else "bitmaps"
        return [f"a sparse matrix in CSR as tiles of {ROWS} rows and {COLUMNS} columns of {self.element}, with {index}"]

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return dtype(self.element).bytes

    @property
    def word_fields(self) -> Fields:
        return word_fields(self.size)

    @property
    def bit_fields(self) -> Fields:
        return bit_fields(self.size)

    @property
    def offset_fields(self) -> Fields:
        return offset_fields(self.size)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The parts of a tile, each as (fixed bytes, bytes per nonzero); each part begins at a multiple of a piece."""
        if self.offsets:
            return [(COUNT_BYTES, OFFSET_BYTES), (0, self.size)]
        return [(BITMAP_BYTES, self.size)]

    def read_bytes(self, p: KernelProblem) -> int:
        """The bytes that the preparation reads: columns twice and values once; with bitmaps, columns once more and half
        a bitmap per nonzero."""
        more = 0 if self.offsets else WORD + BITMAP_BYTES // 2
        return int(p.extents.nnz * (2 * WORD + self.size + more))

    def expected(self, p: KernelProblem) -> dict[str, int]:
        tiles = max(tiles_of(p), 1)
        return {"pieces": tiles * int(pieces(self.size, ceil_div(p.extents.nnz, tiles), self.offsets))}

    def stages(self, p: KernelProblem) -> Stages:
        tiles = tiles_of(p)
        grid = ceil_div(p.extents.m, self.warps), min(ceil_div(max(p.extents.k, 1), ROW_PART), PARTS), 1
        block = (WARP * self.warps, 1, 1)
        zeros = Step("", (WORD * (tiles + 1), 1, 1), arguments=(("u64", "tile_starts"),))
        count = Step("count_tile_nonzeros", grid, block, 0, self.counted.arguments(p))
        scan = Step("scan_tiles", (1, 1, 1), (self.scan_threads, 1, 1), 0, self.scanned.arguments(p))
        first = (zeros, count, scan) if tiles else (zeros, scan)
        most = tiles * int(most_pieces(self.size, self.offsets))
        [units] = yield Stage(first, {"tile_starts": WORD * (tiles + 1)}, sizes={"pieces": most})
        clear = Step("", (PIECE * units, 1, 1), arguments=(("u64", "tile_data"),))
        mark = Step("mark_nonzeros", grid, block, 0, self.marked.arguments(p))
        place = Step("place_nonzeros", grid, block, 0, self.placed.arguments(p))
        steps = (clear, place) if self.offsets else (clear, mark, place)
        yield Stage(steps if units else (), {"tile_data": PIECE * units})

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def rounded_parts(self) -> list[tuple[int, int]]:
        """The parts of a tile, each as (fixed bytes plus the addend that rounds up to pieces, bytes per nonzero)."""
        return [(fixed + PIECE - 1, each) for fixed, each in self.parts]

    @property
    def log2_piece(self) -> int:
        return PIECE.bit_length() - 1

    @property
    def log2_rows(self) -> int:
        return ROWS.bit_length() - 1

    @property
    def log2_columns(self) -> int:
        return COLUMNS.bit_length() - 1

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def place_registers(self) -> str:
        """The registers with a nonzero's place in its tile."""
        return ".b16 %offset" if self.offsets else ".b32 %marks, %before"
