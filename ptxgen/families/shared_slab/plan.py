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
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.families.common import sparse_plan
from ptxgen.families.common.sparse_rules import VECTOR
from ptxgen.families.shared_slab.axes import SEVERAL
from ptxgen.families.shared_slab.geometry import SharedSlabGeometry, staged_bytes
from ptxgen.families.shared_slab.tile_starts import TileStarts, tiles_of
from ptxgen.lowering.kernel_problem import KernelProblem

COPIES = 8  #: accesses of a thread to B in an iteration of the loop that copies a tile


@dataclass(frozen=True)
class RowBlocks:
    """A block has consecutive rows of C, and a slab of columns."""

    grid_text: str = "(blocks of rows, slabs of columns, 1)"


@dataclass(frozen=True)
class SharedSlabParameters(KernelParameters):
    """``bounds``: the array that has the first nonzero of each row, in each tile if there are several."""

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
    """The copy of a tile of B to shared memory: a thread copies ``bytes`` of every ``rows``-th row, ``unrolled`` rows
    in an iteration of the loop. ``threads_row``: threads that copy a row."""

    bytes: int
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
        return cls(size, each, rows, ceil_div(copies, unrolled), unrolled, Tile("copied", "b16", (unrolled,)))

    @property
    def asynchronous(self) -> bool:
        return self.bytes >= 4

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [] if self.asynchronous else [(self.loaded, "elements of B to copy")]


@dataclass(frozen=True)
class SharedSlabLoop(Part):
    """The loops over tiles of B, over the rows of a warp and over their nonzeros.

    ``lanes``: lanes that read a row of a tile, ``groups``: of them in a warp; ``size``: bytes of an element;
    ``elements``: of an access to the tile; ``words``: its registers; ``depths``: nonzeros of a group in each step;
    ``read``: nonzeros of an access to the staged ones; ``staged``: bytes of one; ``chunk``: those that a warp
    stages at once; ``kept``: sums of a lane after those of
    the groups are added; ``exchanges``: (lanes apart, sums kept) of each exchange of sums; ``vec_c``: elements of an
    access to C; ``packed``: its registers; ``kept_vector``: kept sums of an
    access to shared memory. ``tile_bytes`` … ``sums_at``: the regions of shared memory.
    """

    kind: str
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

    @property
    def chunks(self) -> int:
        """Nonzeros that a lane stages."""
        return self.chunk // WARP

    @property
    def converts(self) -> bool:
        """True if elements are converted to the type of sums."""
        return self.size == 2

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
    """What is made from A for the kernels of ``c``."""
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
