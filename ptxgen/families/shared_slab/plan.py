"""The plan of a shared_slab kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.shared_slab.axes import SEVERAL
from ptxgen.families.shared_slab.geometry import SharedSlabGeometry, staged_bytes
from ptxgen.families.shared_slab.tile_starts import TileStarts, tiles_of
from ptxgen.lowering.kernel_problem import KernelProblem

COPIES = 8  #: most accesses of a thread to B in an iteration of the loop that copies a tile


@dataclass(frozen=True)
class RowBlocks:
    """The tile scheduler: a block computes consecutive rows of C for a slab of columns."""

    grid_text: str = "(blocks of rows, slabs of columns, 1)"


@dataclass(frozen=True)
class SharedSlabParameters(KernelParameters):
    """The parameters of shared_slab kernels. ``bounds``: the array with the first nonzero of each row, or, if there are
    several tiles, of each row in each tile."""

    problem: KernelProblem
    arithmetic: Arithmetic
    tile_k: int
    several: bool

    @property
    def declared(self) -> list[Parameters]:
        tiles = Parameters("u32", ("K", "tiles"), lambda p: (p.extents.k, tiles_of(p, self.tile_k)))
        return [
            given("u64", *self.problem.arrays, *(("tile_starts",) if self.several else ())),
            Parameters("u32", ("M", "N"), lambda p: (p.extents.m, p.extents.n)),
            tiles if self.several else Parameters("u32", ("K",), lambda p: (p.extents.k,)),
            sparse_plan.leading_dimensions(),
            given(self.arithmetic.type, "alpha", "beta"),
        ]


@dataclass(frozen=True)
class TileCopy(Part):
    """The copy of a tile of B to shared memory. A thread copies ``bytes`` bytes of every ``rows``-th row, ``unrolled``
    rows per iteration of the loop. ``threads_row``: threads that copy a row; ``elements``: elements of an access."""

    bytes: int
    elements: int
    threads_row: int
    rows: int
    iterations: int
    unrolled: int
    loaded: Tile

    @classmethod
    def of(cls, p: KernelProblem, c: Config, threads: int) -> TileCopy:
        each = c.slab_columns // c.vec_b
        rows = threads // each
        copies = ceil_div(c.tile_k, rows)
        unrolled = min(copies, COPIES)
        size = c.vec_b * p.element.bytes
        return cls(size, c.vec_b, each, rows, ceil_div(copies, unrolled), unrolled, Tile("copied", "b16", (unrolled,)))

    @property
    def asynchronous(self) -> bool:
        return self.bytes >= 4

    @property
    def cache(self) -> str:
        """The cache operator of ``cp.async``: accesses of 16 bytes bypass the L1."""
        return "cg" if self.bytes == 16 else "ca"

    #: mask of the thread number's bits that are the place in a row
    row_mask = Mask("threads_row")
    log2_threads_row = Log2("threads_row")

    @property
    def row_bytes(self) -> int:
        return self.threads_row * self.bytes

    @property
    def pitch_bytes(self) -> int:
        """The factor by which the pitch of B, in elements, gives the bytes between a thread's rows."""
        return self.rows * self.bytes // self.elements

    @property
    def accesses(self) -> list[tuple[int, int]]:
        """The accesses of an iteration, as (row, offset in the tile)."""
        return [(u * self.rows, u * self.rows * self.row_bytes) for u in range(self.unrolled)]

    @property
    def step_rows(self) -> int:
        return self.unrolled * self.rows

    @property
    def step_bytes(self) -> int:
        return self.step_rows * self.row_bytes

    @property
    def wait(self) -> list[str]:
        """The instruction that waits for the tile."""
        return ["cp.async.wait_group 0;"] if self.asynchronous else []

    @property
    def commit(self) -> list[str]:
        """The instruction that follows the accesses of a tile."""
        return ["cp.async.commit_group;"] if self.asynchronous else []

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [] if self.asynchronous else [(self.loaded, "elements of B to copy")]


@dataclass(frozen=True)
class ProductStep:
    """A step that multiplies ``depth`` nonzeros of each group. ``bytes``: bytes of the staged nonzeros of all groups;
    ``reads``: the loads of their places and values, as (type, registers, offset)."""

    depth: int
    bytes: int
    reads: list[tuple[str, str, int]]


@dataclass(frozen=True)
class CAccess:
    """An access to C. ``column``: its first column; ``offset``: the offset of this column in bytes; ``sums``: the sums
    that it stores; ``stored``: the operand of the store; ``pairs``: for 16-bit elements, (word, sum, sum)."""

    column: int
    offset: int
    sums: list[str]
    stored: str
    pairs: list[tuple[str, str, str]]


@dataclass(frozen=True)
class SharedSlabLoop(Part):
    """The loops over tiles of B, over the rows of a warp, and over the nonzeros of a row.

    ``lanes``: lanes that read a row of a tile; ``groups``: groups of lanes in a warp; ``size``: bytes of an element;
    ``elements``: elements of an access to the tile; ``words``: registers of this access; ``depths``: nonzeros of a
    group in each sort of step; ``read``: nonzeros of an access to staged nonzeros; ``staged``: bytes of a staged
    nonzero; ``chunk``: nonzeros that a warp stages at once; ``kept``: sums of a lane after the sums of the groups are
    added; ``exchanges``: (lane distance, sums kept) of each exchange of sums; ``vec_c``: elements of an access to C;
    ``packed``: registers of this access; ``kept_vector``: kept sums of an access to shared memory; ``tile_bytes`` …
    ``sums_at``: the regions of shared memory.
    """

    ptx_type: str
    size: int
    lanes: int
    groups: int
    elements: int
    words: int
    depths: tuple[int, ...]
    read: int
    staged: int
    chunk: int
    kept: int
    exchanges: tuple[tuple[int, int], ...]
    vec_c: int
    packed: int
    access_c: str
    access: str
    shuffled: str
    kept_vector: int
    kept_access: str
    scalar: str
    slab: int
    tile_k: int
    c_rows: int
    warps: int
    several: bool
    buffers: int
    row_bytes: int
    tile_bytes: int
    zeros_at: int
    staged_at: int
    sums_at: int
    sum_bytes: int
    sums: Tile
    loaded: Tile
    wide: Tile
    half: Tile
    place: Tile
    value: Tile
    moved: Tile
    before: Tile
    c_vector: Tile

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: SharedSlabGeometry, arithmetic: str) -> SharedSlabLoop:
        size, wide = p.element.bytes, p.accumulator.bytes
        half, elements, lanes = size == 2, VECTOR // size, int(g.lanes)
        groups, depth = WARP // lanes, c.nonzeros_in_flight
        kept = c.slab_columns // WARP
        vec_c = min(c.vec_b, kept)
        packed = max(vec_c * size // 4, 1) if half else vec_c
        register = ("b32" if vec_c > 1 else "b16") if half else arithmetic
        words = VECTOR // 4 if half else elements
        zeros_at = c.tile_buffers * int(g.tile_bytes)
        staged_at = zeros_at + int(g.row_bytes)
        staged = staged_bytes(p)
        kept_vector = min(kept, VECTOR // wide)
        steps = groups.bit_length() - 1
        return cls(
            p.dtype,
            size,
            lanes,
            groups,
            elements,
            words,
            tuple(depth >> i for i in range(depth.bit_length()) if depth >> i >= c.nonzeros_read),
            c.nonzeros_read,
            staged,
            c.nonzeros_staged,
            kept,
            tuple((WARP >> i + 1, elements >> i + 1) for i in range(steps)),
            vec_c,
            packed,
            width(packed, register),
            width(words, "b32" if half else arithmetic),
            f"b{8 * wide}",
            kept_vector,
            width(kept_vector, arithmetic),
            "b16" if half else arithmetic,
            c.slab_columns,
            c.tile_k,
            c.c_rows,
            c.block_warps,
            c.k_tiles == SEVERAL,
            c.tile_buffers,
            int(g.row_bytes),
            int(g.tile_bytes),
            zeros_at,
            staged_at,
            staged_at + c.block_warps * c.nonzeros_staged * staged,
            wide,
            Tile("sum", arithmetic, (elements,)),
            Tile("loaded", "b32" if half else arithmetic, (depth, words)),
            Tile("wide", arithmetic, (elements,)),
            Tile("half", "b16", (2,)),
            Tile("place", "b32", (depth,)),
            Tile("value", arithmetic, (depth,)),
            Tile("moved", arithmetic, (max(elements // 2, 1),)),
            Tile("before", arithmetic, (kept,)),
            Tile("c_vector", register, (packed,)),
        )

    #: mask of the lane number's bits that are the place in a row of the tile
    lane_mask = Mask("lanes")
    log2_lanes = Log2("lanes")
    log2_read = Log2("read")

    @property
    def round_nonzeros_mask(self) -> int:
        return self.groups * self.read - 1

    @property
    def log2_round_nonzeros(self) -> int:
        """log2 of the nonzeros that the groups of a warp read at once."""
        return (self.groups * self.read).bit_length() - 1

    @property
    def read_bytes(self) -> int:
        return self.read * self.staged

    @property
    def warp_staged_bytes(self) -> int:
        return self.chunk * self.staged

    @property
    def kept_bytes(self) -> int:
        return self.kept * self.sum_bytes

    @property
    def row_sum_bytes(self) -> int:
        """The number of bytes of the sums of a row of C in shared memory."""
        return self.slab * self.sum_bytes

    @property
    def warps_bytes(self) -> int:
        """The number of bytes from the row bounds (32 bits each) of one of a warp's rows to those of its next row."""
        return 4 * self.warps

    @property
    def splits_moved(self) -> bool:
        """True if sums have 64 bits, so that a shuffle moves half of one."""
        return self.sum_bytes == 8

    @property
    def exchanged_sums(self) -> list[tuple[int, list[tuple[str, str, str]]]]:
        """For each exchange of sums: the lane distance, and (sum, sum of the other half, register that is moved)."""
        sums, moved = self.sums.all, self.moved.all
        return [
            (distance, list(zip(sums[:kept], sums[kept : 2 * kept], moved, strict=False)))
            for distance, kept in self.exchanges
        ]

    @property
    def kept_accesses(self) -> list[tuple[str, str, int]]:
        """The accesses to the sums in shared memory, as (sums, sums of earlier tiles, offset)."""
        n = self.kept_vector
        return [
            (self.sums.vector(i, n=n), self.before.vector(i, n=n), i * self.sum_bytes) for i in range(0, self.kept, n)
        ]

    def _staged_accesses(self, place: list[str], value: list[str], offset: int) -> list[tuple[str, str, int]]:
        """The accesses to staged nonzeros, a place and a value each, as (type, registers, offset)."""
        if self.sum_bytes == 8:
            return [("f64", value[0], offset), ("b32", place[0], offset + 8)]
        both = [register for pair in zip(place, value, strict=True) for register in pair]
        return [(width(len(both), "b32"), braces(both), offset)]

    @property
    def staged_stores(self) -> list[tuple[str, str, int]]:
        """The stores of a lane's nonzeros, as (type, registers, offset)."""
        return [
            access
            for i, n in enumerate(self.chunk_nonzeros)
            for access in self._staged_accesses([f"%place_staged{i}"], [f"%value_staged{i}"], n * self.staged)
        ]

    @property
    def steps(self) -> list[ProductStep]:
        """The steps by depth, the deepest first."""
        place, value, group = self.place.all, self.value.all, self.groups * self.staged
        return [
            ProductStep(
                depth,
                depth * group,
                [
                    access
                    for q in range(0, depth, self.read)
                    for access in self._staged_accesses(place[q : q + self.read], value[q : q + self.read], q * group)
                ],
            )
            for depth in self.depths
        ]

    @property
    def loaded_pairs(self) -> list[list[tuple[str, str, str]]]:
        """For each nonzero: each word with the registers of its two converted elements, if elements are converted."""
        words = range(self.words) if self.converts else ()
        return [
            [(self.loaded[q, i], self.wide[2 * i], self.wide[2 * i + 1]) for i in words] for q in range(self.depths[0])
        ]

    @property
    def tile_elements(self) -> list[list[str]]:
        """For each nonzero: the registers of the elements of a row of the tile, in the type of sums."""
        depths = range(self.depths[0])
        return [self.wide.all if self.converts else [self.loaded[q, i] for i in range(self.words)] for q in depths]

    @property
    def c_pairs(self) -> list[tuple[str, str, str]]:
        """For an access to C with several 16-bit elements: each word with its two converted elements; empty for other
        accesses."""
        words = range(self.packed) if self.converts and self.vec_c > 1 else ()
        return [(self.c_vector[i], self.wide[2 * i], self.wide[2 * i + 1]) for i in words]

    @property
    def c_elements(self) -> list[str]:
        """The registers of the elements of an access to C, in the type of sums."""
        return (self.wide if self.converts else self.c_vector).all[: self.vec_c]

    @property
    def c_accesses(self) -> list[CAccess]:
        accesses = []
        for column in range(0, self.kept, self.vec_c):
            sums = self.sums.all[column : column + self.vec_c]
            stored = self.c_vector[:] if self.converts else braces(sums)
            pairs = [(word, sums[2 * i], sums[2 * i + 1]) for i, (word, _, _) in enumerate(self.c_pairs)]
            accesses.append(CAccess(column, column * self.size, sums, stored, pairs))
        return accesses

    @property
    def chunk_nonzeros(self) -> range:
        """The distances from a lane's first nonzero of a chunk to each of its nonzeros."""
        return range(0, self.chunk, WARP)

    @property
    def chunk_offsets(self) -> list[tuple[int, int]]:
        """For each nonzero of a lane in a chunk: the offsets of its column index and of its value."""
        return [(4 * n, n * self.size) for n in self.chunk_nonzeros]

    @property
    def chunks(self) -> int:
        """The number of nonzeros of a chunk that each lane stages."""
        return self.chunk // WARP

    @property
    def converts(self) -> bool:
        """True if elements are converted to the type of sums."""
        return self.size == 2

    @property
    def tiles(self) -> str:
        """The template file for the tiles of a slab."""
        return "kernel/slab_tiles.mako" if self.several else "kernel/slab_tile.mako"

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        rows = [
            (self.sums, f"sums of {self.elements} columns"),
            (self.loaded, f"loads in flight: {self.depths[0]} nonzeros, {self.elements} elements of a row of the tile"),
            (self.place, "addresses of rows of the tile"),
            (self.value, "values of A"),
            (self.moved, "sums of other lanes"),
            (self.c_vector, "elements of C"),
        ]
        converted = [(self.wide, "converted elements"), (self.half, "elements to convert")]
        if self.several:
            rows.append((self.before, "sums of the tiles before"))
        return [*rows, *(converted if self.converts else [])]

    @property
    def shared_map(self) -> list[str]:
        lines = [
            f"{self.buffers} x {self.tile_bytes} bytes: tiles of B, {self.tile_k} rows of {self.slab} columns",
            f"{self.row_bytes} bytes: a row of zeros",
            f"{self.sums_at - self.staged_at} bytes: {self.chunk} nonzeros per warp: addresses in a tile, and values",
        ]
        sums = f"{self.c_rows * self.slab * self.sum_bytes} bytes: sums of the tiles before"
        return [*lines, *([sums] if self.several else [])]


def preparations_of(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    """The preparations of A for the kernels of ``c``."""
    return (TileStarts(c.tile_k),) if c.k_tiles == SEVERAL else ()


class SharedSlabPlan(Plan):
    kernel = "kernel/shared_slab.mako"
    shared_alignment = 128
    mainloop: SharedSlabLoop
    copy: TileCopy
    parameter_meanings: Mapping[str, str] = {
        **sparse_plan.CSR_MEANINGS,
        "tile_starts": "address of the first nonzero of each row in each tile, made by find_tile_starts",
        "tiles": "tiles of B along K",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, SharedSlabGeometry)
        p, c = self.problem, self.config
        self.scheduler = RowBlocks()
        self.parameters = SharedSlabParameters(p, self.arithmetic, c.tile_k, c.k_tiles == SEVERAL)
        self.copy = TileCopy.of(p, c, self.threads)
        self.mainloop = SharedSlabLoop.of(p, c, self.geometry, self.arithmetic.type)

    @property
    def accesses(self) -> str:
        return f"accesses of {self.config.vec_b} elements of B, {self.mainloop.vec_c} of C"

    @property
    def preconditions(self) -> list[str]:
        several = self.mainloop.several
        lines = [
            sparse_plan.alignment(self.problem, self.config),
            "row pointers and column indices of 32 bits: pointers that do not decrease, columns from 0 to K - 1",
        ]
        return [*lines, "columns of each row do not decrease" if several else f"K is at most {self.mainloop.tile_k}"]

    @property
    def block_tile(self) -> str:
        return f"{self.mainloop.c_rows} x {self.mainloop.slab}"

    @property
    def directives(self) -> list[str]:
        blocks = self.device.blocks_per_sm(self.threads, int(self.geometry.registers), self.shared)
        return [f".maxntid {self.threads}, 1, 1", f".minnctapersm {max(int(blocks), 1)}"]

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        return preparations_of(self.problem, self.config)

    def _launch(self, problem: KernelProblem) -> Launch:
        if problem.results == 0:
            return Launch(())
        grid = (ceil_div(problem.extents.m, self.mainloop.c_rows), ceil_div(problem.extents.n, self.mainloop.slab), 1)
        arguments = self.parameters.rows.arguments(problem)
        return Launch((Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments),))
