"""The plan of a compressed_tiles kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import WARP, Log2, Mask, ceil_div
from ptxgen.families.common import sparse_plan
from ptxgen.families.common.matrix_instructions import Instruction, instruction
from ptxgen.families.compressed_tiles.axes import OFFSETS
from ptxgen.families.compressed_tiles.geometry import GROUP, CompressedTilesGeometry, copies_b
from ptxgen.families.compressed_tiles.layout import (
    BITMAP_BYTES,
    COLUMNS,
    COUNT_BYTES,
    FRAGMENT_REGISTERS,
    OFFSET_BYTES,
    PIECE,
    ROWS,
    WORDS,
    most_pieces,
)
from ptxgen.families.compressed_tiles.tiles import CompressedTiles
from ptxgen.lowering.kernel_problem import KernelProblem

#: (elements have 16 bits, tiles have offsets) -> the template file that multiplies a tile
MATH = {
    (True, False): "math/bitmap_mma.mako",
    (True, True): "math/expanded_mma.mako",
    (False, False): "math/bitmap_fma.mako",
    (False, True): "math/expanded_fma.mako",
}
HALVES = 2  #: fragments along the rows, and along the columns, of a tile


@dataclass(frozen=True)
class TileSlabs:
    """The tile scheduler: a block computes 32 rows of C for a slab of columns."""

    grid_text: str = "(blocks of 32 rows, slabs of columns, 1)"


@dataclass(frozen=True)
class CompressedTilesParameters(KernelParameters):
    arithmetic: Arithmetic

    @property
    def declared(self) -> list[Parameters]:
        return [
            given("u64", "tile_starts", "tile_data", "B", "C"),
            Parameters("u32", ("M", "N", "K"), lambda p: (p.extents.m, p.extents.n, p.extents.k)),
            sparse_plan.leading_dimensions(),
            given(self.arithmetic.type, "alpha", "beta"),
        ]


@dataclass(frozen=True)
class RowCopies:
    """The copies of a tile's rows of B to shared memory. ``bytes``: bytes of a copy; ``row_lanes``: lanes that copy a
    row; ``row_step``: rows that all lanes copy at once; ``step_bytes``: their bytes in the slot; ``rounds``: rounds of
    copies along the rows; ``columns``: first columns of the copies of a round; ``round_bytes``, ``column_bytes``: bytes
    in the slot from one round, or one copy of a round, to the next."""

    bytes: int
    row_lanes: int
    row_step: int
    step_bytes: int
    rounds: range
    columns: range
    round_bytes: int
    column_bytes: int

    @classmethod
    def of(cls, size: int, columns: int, vec: int) -> RowCopies:
        """The copies for elements of ``size`` bytes. For MMA instructions (2 bytes), a slot holds groups of 8 columns,
        with rows of 16 bytes; else it holds rows of all columns."""
        if size == 2:
            return cls(
                vec * size, 1, COLUMNS, COLUMNS * size, range(1), range(0, columns, GROUP), 0, COLUMNS * GROUP * size
            )
        lanes = columns // vec
        step = WARP // lanes
        return cls(vec * size, lanes, step, step * size, range(COLUMNS // step), range(1), step * columns * size, 0)

    log2_row_lanes = Log2("row_lanes")
    row_lane_mask = Mask("row_lanes")

    @property
    def counters(self) -> str:
        """The registers that count the remaining rows of each copied column group."""
        return ", ".join(f"%rows_left{n}" for n in range(len(self.columns)))

    @property
    def cache(self) -> str:
        """The cache operator of ``cp.async``: accesses of 16 bytes bypass the L1."""
        return "cg" if self.bytes == 16 else "ca"


@dataclass(frozen=True)
class TileLoop(Part):
    """The loop of a warp over its tiles of A; ``stages`` tiles have slots in shared memory.

    ``expand``: the template file that makes a tile ready; ``math``: the one that multiplies it; ``b_access``: the one
    that brings the rows of B; ``pieces``: most pieces of a tile; ``decoded_bytes``: bytes of what ``expand`` makes;
    ``columns``: columns of B of a block; ``vec``: elements of a copy of B; ``size``: bytes of an element;
    ``slot_bytes``: bytes of a slot; ``sums``: the sums of a lane, for MMA instructions by half of the rows and group of
    8 columns, else by column.
    """

    expand: str
    math: str
    b_access: str
    pieces: int
    decoded_bytes: int
    ptx_type: str
    instruction: Instruction
    warps: int
    stages: int
    columns: int
    vec: int
    size: int
    slot_bytes: int
    sums: Tile
    right: Tile
    next_right: Tile
    left: Tile
    element: Tile

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: CompressedTilesGeometry) -> TileLoop:
        half = p.element.bytes == 2
        groups = int(ceil_div(c.b_columns, GROUP))
        copied, offsets = bool(copies_b(p, c)), bool(c.tile_index == OFFSETS)
        return cls(
            "copy/scatter_nonzeros.mako" if offsets else "copy/bitmap_words.mako",
            MATH[half, offsets],
            "copy/tile_vector.mako" if c.vector_b else "copy/tile_rows.mako" if copied else "addr/tile_fragments.mako",
            int(most_pieces(p.element.bytes, c.tile_index)),
            int(g.decoded_bytes),
            p.dtype,
            instruction(p),
            c.tile_warps,
            c.stages,
            c.b_columns,
            c.vec_b,
            p.element.bytes,
            int(g.slot_bytes),
            Tile("sum", "f32", (HALVES, groups, 4) if half else (c.b_columns,)),
            Tile("right", "b32", (groups, 4)) if half else Tile("right", "f32", (c.b_columns,)),
            Tile("next_right", "b16", (groups, 4, 2)),
            Tile("left", "b32", (FRAGMENT_REGISTERS,)),
            Tile("element", "b16" if half else "f32", (2 if half else 4,)),
        )

    rows: ClassVar[int] = ROWS
    depth: ClassVar[int] = COLUMNS  #: columns of A in a tile
    words: ClassVar[int] = WORDS
    group: ClassVar[int] = GROUP
    piece: ClassVar[int] = PIECE
    values_at: ClassVar[int] = BITMAP_BYTES  #: the offset of the nonzeros in a slot, after a bitmap
    count_bytes: ClassVar[int] = COUNT_BYTES
    offset_bytes: ClassVar[int] = OFFSET_BYTES

    @property
    def row_copies(self) -> RowCopies:
        return RowCopies.of(self.size, self.columns, self.vec)

    @property
    def b_at(self) -> int:
        """The offset of the rows of B in a slot."""
        return self.pieces * PIECE

    @property
    def warp_bytes(self) -> int:
        """The number of bytes of the slots of a warp."""
        return self.stages * self.slot_bytes

    @property
    def decoded_at(self) -> int:
        """The offset of the decoded bitmaps in shared memory, after the slots of all warps."""
        return self.warps * self.warp_bytes

    @property
    def rounds(self) -> int:
        """The most copies of a lane for a tile of A."""
        return -(-self.pieces // WARP)

    @property
    def sum_bytes(self) -> int:
        """The number of bytes of the sums of a warp in shared memory."""
        return 4 * self.rows * self.columns

    @property
    def lane_rows(self) -> tuple[int, int]:
        """log2 of the lanes that share a row of sums, and the mask of a lane number that selects its pair of
        columns."""
        return (2, 3) if self.size == 2 else (0, 0)

    @property
    def groups(self) -> range:
        """The numbers of the groups of 8 columns, each of which takes an MMA instruction."""
        return range(self.columns // GROUP)

    @property
    def fragments(self) -> list[tuple[int, int]]:
        """The fragments of a tile in the order of the bitmap, as (half of the columns, half of the rows)."""
        return [(k, m) for k in range(HALVES) for m in range(HALVES)]

    @property
    def fragment_products(self) -> list[tuple[str, str, range, list[str]]]:
        """For each fragment: its rows and its columns in words, the offsets of its bitmap words, and its MMA
        instructions."""
        return [
            (
                f"{16 * m} to {16 * m + 15}",
                f"{16 * k} to {16 * k + 15}",
                range(64 * n, 64 * n + 64, 16),
                [self._product(k, m, g) for g in self.groups],
            )
            for n, (k, m) in enumerate(self.fragments)
        ]

    def _product(self, k: int, m: int, group: int) -> str:
        """The MMA instruction for the fragment (k, m) and a group of columns."""
        sums = braces([self.sums[m, group, i] for i in range(4)])
        return (
            f"{self.instruction.name} {sums}, {braces(self.left.all)}, {self.right.vector(group, 2 * k, n=2)}, {sums};"
        )

    def _row_loads(self, row: int) -> list[tuple[int, str, str]]:
        """The loads of a row of B from a slot, as (offset in bytes, registers, type)."""
        step = min(self.columns, 4)
        at = self.b_at + 4 * row * self.columns
        return [(at + 4 * i, self.right.vector(i, n=step), width(step, "f32")) for i in range(0, self.columns, step)]

    @property
    def column_loads(self) -> list[tuple[int, list[tuple[int, str, str]]]]:
        """For each column of a tile: the offset of its bitmap word, and the loads of the row of B."""
        return [(8 * c, self._row_loads(c)) for c in range(self.words)]

    @property
    def element_loads(self) -> list[tuple[int, list[tuple[str, list[tuple[int, str, str]]]]]]:
        """For each 4 elements of a lane's row: their offset, and for each element its register and the loads of the row
        of B."""
        return [
            (8 * PIECE * c, [(self.element[i], self._row_loads(c + i)) for i in range(4)])
            for c in range(0, self.depth, 4)
        ]

    @property
    def row_copies_of_rounds(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """For each round of ``row_copies``: the first row, and the (offset in the slot, offset in B) of each copy."""
        b = self.row_copies
        return [
            (
                b.row_step * i,
                [
                    (self.b_at + b.round_bytes * i + b.column_bytes * n, self.size * column)
                    for n, column in enumerate(b.columns)
                ],
            )
            for i in b.rounds
        ]

    @property
    def lane_rows_of_b(self) -> list[tuple[int, list[tuple[str, int, int]]]]:
        """For each row of a tile's right operand that a lane loads: its number, and the (register, column, offset) of
        each element."""
        return [
            (8 * i + h, [(self.next_right[g, i, h], GROUP * g, GROUP * self.size * g) for g in self.groups])
            for i in range(4)
            for h in range(2)
        ]

    @property
    def sum_vectors(self) -> list[tuple[int, list[str], str]]:
        """The accesses to a lane's sums within those of its warp, as (offset in bytes, registers, type)."""
        if self.size == 4:
            step = min(self.columns, 4)
            return [
                (4 * i, [self.sums[i + j] for j in range(step)], width(step, "f32"))
                for i in range(0, self.columns, step)
            ]
        return [
            (
                4 * ((16 * m + 8 * h) * self.columns + GROUP * n),
                [self.sums[m, n, 2 * h], self.sums[m, n, 2 * h + 1]],
                "v2.f32",
            )
            for m in range(HALVES)
            for n in self.groups
            for h in range(2)
        ]

    @property
    def threads(self) -> int:
        return WARP * self.warps

    depth_mask = Mask("depth")
    log2_depth = Log2("depth")
    warp_mask = Mask("warps")
    log2_warps = Log2("warps")
    column_mask = Mask("columns")
    log2_columns = Log2("columns")

    @property
    def tiles_ahead(self) -> int:
        return self.stages - 1

    @property
    def row_sum_bytes(self) -> int:
        return 4 * self.columns

    @property
    def elements(self) -> int:
        """The number of elements of C of a block."""
        return self.rows * self.columns

    @property
    def other_sums(self) -> range:
        """The shared-memory offsets of the sums of all warps but the first."""
        return range(self.sum_bytes, self.warps * self.sum_bytes, self.sum_bytes)

    @property
    def piece_copies(self) -> list[tuple[int, int, bool]]:
        """For each round of copies of pieces: the first piece, its offset, and True if the loop may end before the
        round."""
        return [(WARP * i, WARP * PIECE * i, i > 0 and i % 4 == 0) for i in range(self.rounds)]

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def vector_bytes(self) -> int:
        """The number of bytes of the elements of the vector B that a tile needs."""
        return self.depth * self.size

    @property
    def vector_pieces(self) -> int:
        return self.vector_bytes // PIECE

    @property
    def piece_elements(self) -> int:
        return PIECE // self.size

    @property
    def vector_offsets(self) -> range:
        """The offsets of a lane's pairs of elements of the right operand."""
        return range(0, 32 * self.size, 8 * self.size)

    @property
    def cleared_offsets(self) -> range:
        """The offsets of the stores by which a lane clears a tile."""
        return range(0, self.decoded_bytes, WARP * PIECE)

    @property
    def piece_mask(self) -> int:
        return PIECE - 1

    @property
    def offsets_end(self) -> int:
        """The addend that rounds the bytes of the count and the offsets up to whole pieces."""
        return COUNT_BYTES + PIECE - 1

    @property
    def warp_offset_bytes(self) -> int:
        return WARP * OFFSET_BYTES

    @property
    def warp_value_bytes(self) -> int:
        return WARP * self.size

    @property
    def group_offsets(self) -> list[int]:
        """The offsets in a slot of the groups of columns of B."""
        return [self.b_at + 2 * GROUP * self.depth * g for g in self.groups]

    @property
    def fragment_offsets(self) -> range:
        return range(0, 4 * WARP * PIECE, WARP * PIECE)

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        if self.size == 4:
            return [
                (self.sums, "sums of a row of C"),
                (self.right, "a row of B"),
                (self.element, "elements of A"),
            ]
        rows = [
            (self.sums, "sums, 16 rows and 8 columns for each MMA instruction"),
            (self.right, "right operand: elements of B, 32 rows"),
            (self.left, "left operand: a fragment of A"),
            (self.element, "elements of A"),
        ]
        return (
            rows
            if self.b_access != "addr/tile_fragments.mako"
            else [*rows, (self.next_right, "elements of B of the next tile")]
        )

    @property
    def expanded(self) -> str:
        """A text for the header: what the memory that ``expand`` fills contains."""
        if self.expand == "copy/scatter_nonzeros.mako":
            return "a tile with all zeros"
        return "words of bitmaps, addresses of nonzeros"

    @property
    def shared_map(self) -> list[str]:
        return [
            f"0: {self.warps} x {self.stages} slots of {self.slot_bytes} bytes; after the loop the sums of the warps",
            f"{self.decoded_at}: {self.warps} x {self.decoded_bytes} bytes: {self.expanded}",
        ]


def preparations_of(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    """The preparations of A for the kernels of ``c``."""
    return (CompressedTiles(p.dtype, int(c.tile_index == OFFSETS)),)


class CompressedTilesPlan(Plan):
    kernel = "kernel/compressed_tiles.mako"
    mainloop: TileLoop
    parameter_meanings: Mapping[str, str] = {
        "tile_starts": "address of the places of the tiles, in units of 16 bytes",
        "tile_data": "address of the tiles: bitmap or offsets, nonzeros",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, CompressedTilesGeometry)
        self.scheduler = TileSlabs()
        self.parameters = CompressedTilesParameters(self.arithmetic)
        self.mainloop = TileLoop.of(self.problem, self.config, self.geometry)

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        return preparations_of(self.problem, self.config)

    @property
    def accesses(self) -> str:
        return f"copies of {GROUP if self.config.vector_b else self.config.vec_b} elements of B"

    @property
    def preconditions(self) -> list[str]:
        size = self.config.vec_b * self.problem.element.bytes
        rows = f"address, leading dimension and lengths of rows of B in multiples of {size} bytes"
        return [
            f"B with N = ldb = 1 at a multiple of {PIECE} bytes" if self.config.vector_b else rows,
            "the tiles of A; the columns of a row of A differ, and are from 0 to K - 1",
        ]

    @property
    def block_tile(self) -> str:
        return f"{self.mainloop.rows} x {self.mainloop.columns}"

    def _launch_prepared(self, problem: KernelProblem, sizes: Mapping[str, int]) -> Launch:
        if problem.results == 0:
            return Launch(())
        x = self.mainloop
        grid = (ceil_div(problem.extents.m, x.rows), ceil_div(problem.extents.n, x.columns), 1)
        step = Step(self.entry, grid, (self.threads, 1, 1), self.shared, self.parameters.rows.arguments(problem))
        return Launch((step,))
