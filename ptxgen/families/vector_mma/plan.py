"""The plan of a vector_mma kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.config.axes import BY_LENGTH
from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.families.common import sparse_plan
from ptxgen.families.common.matrix_instructions import Instruction, instruction
from ptxgen.families.common.sparse_plan import Listed
from ptxgen.families.common.work_list import UNLIMITED, WHOLE, WorkList
from ptxgen.families.vector_mma.geometry import GROUPS, WINDOW, VectorMmaGeometry
from ptxgen.families.vector_mma.row_windows import ABSENT, WORD, RowWindows
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class WindowSlabs:
    """The tile scheduler: a block computes adjacent row windows of C, one for each warp, for a slab of columns."""

    grid_text: str = "(blocks of row windows, slabs of columns, 1)"


@dataclass(frozen=True)
class VectorMmaParameters(KernelParameters):
    """The parameters of vector_mma kernels. ``addresses``: the arrays that the kernel reads and writes; ``work_list``:
    True if it reads items of a work list."""

    addresses: tuple[str, ...]
    arithmetic: Arithmetic
    work_list: bool

    @property
    def declared(self) -> list[Parameters]:
        count = "item_count" if self.work_list else "windows"
        return [
            given("u64", *self.addresses),
            Parameters("u32", ("M", "N"), lambda x: (x.problem.extents.m, x.problem.extents.n)),
            sparse_plan.leading_dimensions(lambda x: x.problem),
            Parameters("u32", (count,), lambda x: (x.count,)),
            *sparse_plan.partials(self.work_list),
            given(self.arithmetic.type, "alpha", "beta"),
        ]


@dataclass(frozen=True)
class WindowLoop(Part):
    """The loop over the blocks of a row window; ``in_flight`` blocks are computed at once. ``ahead``: True if columns
    and values of the next blocks are loaded before the products of the present ones.

    The right operand of an MMA instruction is the block. The left operand has, of the rows of B that the vectors of the
    block select, a pair of columns for each group of lanes. Lane 4 g + t loads the columns of group g from the rows of
    its ``rows`` vectors; its sums are in the rows 2 t and 2 t + 1 of the window.

    ``vec``: elements of a vector of a row of B; ``vectors``: such vectors of a lane; ``size``: bytes of an element;
    ``access``, ``packed``: PTX type and registers of such a vector in memory.
    """

    ptx_type: str
    instruction: Instruction
    windows: int
    rows: int
    vec: int
    vectors: int
    size: int
    in_flight: int
    ahead: bool
    slab: int
    block_bytes: int
    sums: Tile
    loaded: Tile
    column: Tile
    value: Tile
    next_value: Tile
    left: Tile
    wide: Tile
    half: Tile
    part_sum: Tile
    from_b: Tile
    access: str
    packed: int

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: VectorMmaGeometry, windows: RowWindows) -> WindowLoop:
        half = p.element.bytes == 2
        pairs = half and c.vec_b > 1
        packed = c.vec_b // 2 if pairs else c.vec_b
        register = "b16" if half and not pairs else "b32"
        depth, rows = c.blocks_in_flight, windows.lane_places
        return cls(
            p.dtype,
            instruction(p),
            c.block_windows,
            rows,
            c.vec_b,
            c.lane_vectors,
            p.element.bytes,
            depth,
            bool(c.columns_ahead),
            int(g.slab),
            windows.block_bytes,
            Tile("sum", "f32", (int(g.elements) // 2, 4)),
            Tile("loaded", register, (depth, rows, c.lane_vectors, packed)),
            Tile("vector", "b32", (depth, rows)),
            Tile("value", "b32", (depth, 2)),
            Tile("next_value", "b32", (depth, 2)),
            Tile("left", "b32", (4,)),
            Tile("wide", "f32", (c.vec_b,)),
            Tile("half", "b16", (2,)),
            Tile("part_sum", "f32", (4,)),
            Tile("ptr_b", "b64", (c.lane_vectors,)),
            width(packed, register),
            packed,
        )

    absent: ClassVar[int] = ABSENT
    whole: ClassVar[int] = WHOLE
    groups: ClassVar[int] = GROUPS
    #: rows of C that a part (a window) has
    part_rows: ClassVar[int] = WINDOW
    lane_rows: ClassVar[int] = 2
    #: lanes that compute a window: all of a warp
    row_threads: ClassVar[int] = WARP
    member_mask: ClassVar[int] = (1 << WARP) - 1
    member_clamp: ClassVar[int] = WARP - 1

    @property
    def depth(self) -> int:
        """The number of 8×1 vectors of a block."""
        return self.instruction.k

    @property
    def column_bytes(self) -> int:
        """The number of bytes of the column indices of a block."""
        return self.depth * WORD

    @property
    def converts(self) -> bool:
        """True if elements are converted to the type of sums."""
        return self.size == 2

    @property
    def pairs(self) -> range:
        """The numbers of a lane's pairs of elements; each pair takes an MMA instruction per block."""
        return range(self.vec * self.vectors // 2)

    def element(self, block: int, row: int, e: int) -> str:
        """The register with element ``e`` of row ``row`` of B."""
        at = e % self.vec // (2 if self.packed < self.vec else 1)
        return self.loaded[block, row, e // self.vec, at]

    def sum(self, row: int, e: int) -> str:
        """The register with the sum of element ``e`` in row 2 t + ``row`` of the window."""
        return self.sums[e // 2, e % 2 * 2 + row]

    @property
    def c_vectors(self) -> dict[tuple[int, int], tuple[list[str], list[tuple[str, str, str]], str]]:
        """For each (row, vector) of C: its sums; for 16-bit elements, each word with its two sums; the operand that is
        stored."""
        vectors = {}
        for r, v in self.lane_vectors:
            sums = [self.sum(r, v * self.vec + i) for i in range(self.vec)]
            pairs = [(word, sums[2 * i], sums[2 * i + 1]) for i, (word, _, _) in enumerate(self.c_pairs)]
            vectors[r, v] = sums, pairs, self.loaded[0, 0, 0, :] if self.converts else braces(sums)
        return vectors

    @property
    def lane_vectors(self) -> list[tuple[int, int]]:
        """The (row, vector) of each vector of sums of a lane."""
        return [(r, v) for r in range(self.lane_rows) for v in range(self.vectors)]

    def sum_accesses(self, v: int, row: int = 0) -> list[tuple[int, list[str], str]]:
        """The accesses to the sums of vector ``v`` in the workspace, as (offset in bytes, registers, type)."""
        step = min(self.vec, 4)
        return [
            (4 * i, [self.sum(row, v * self.vec + i + j) for j in range(step)], width(step, "f32"))
            for i in range(0, self.vec, step)
        ]

    def fragment(self, block: int, pair: int) -> list[str]:
        """The instructions that assemble the left operand from the loaded elements of a pair."""
        if not self.converts:
            return [
                f"cvt.rna.tf32.f32 {self.left[2 * row + i]}, {self.element(block, row, 2 * pair + i)};"
                for row in range(2)
                for i in range(2)
            ]
        lines = []
        for n in range(4):
            low, high = (self.element(block, n // 2 * 2 + i, 2 * pair + n % 2) for i in range(2))
            if self.vec > 1:
                lines.append(f"prmt.b32 {self.left[n]}, {low}, {high}, {('0x5410', '0x7632')[n % 2]};")
            else:
                lines.append(f"mov.b32 {self.left[n]}, {{{low}, {high}}};")
        return lines

    def product(self, block: int, pair: int) -> str:
        """The MMA instruction for a pair of elements."""
        sums = braces([self.sums[pair, i] for i in range(4)])
        left, right = braces(self.left.all), self.value.vector(block, 0, n=2)
        return f"{self.instruction.name} {sums}, {left}, {right}, {sums};"

    @property
    def leader_mask(self) -> int:
        return WARP - self.row_threads

    @property
    def part_bytes(self) -> int:
        """The number of bytes that a part has in each column."""
        return 4 * self.part_rows

    @property
    def vector_columns(self) -> list[int]:
        """The column distances from a lane's first vector to each of its vectors."""
        return [v * self.groups * self.vec for v in range(self.vectors)]

    @property
    def member_bytes(self) -> int:
        """The number of bytes of the column indices of a block that a lane reads."""
        return WORD * self.rows

    @property
    def column_offsets(self) -> list[int]:
        """The offsets of the column indices of each block in flight, and of the next block."""
        return [q * self.column_bytes for q in range(self.in_flight + 1)]

    @property
    def value_offsets(self) -> list[int]:
        """The offsets of the values of each block in flight, and of the next block."""
        return [q * self.block_bytes for q in range(self.in_flight + 1)]

    @property
    def products(self) -> list[list[str]]:
        """For each block in flight, the instructions that multiply it."""
        return [
            [line for pair in self.pairs for line in (*self.fragment(q, pair), self.product(q, pair))]
            for q in range(self.in_flight)
        ]

    @property
    def c_pairs(self) -> list[tuple[str, str, str]]:
        """For a vector of C with 16-bit elements: each word with its two converted elements."""
        return [
            (self.loaded[0, 0, 0, i], self.wide[2 * i], self.wide[2 * i + 1])
            for i in (range(self.packed) if self.converts and self.vec > 1 else ())
        ]

    @property
    def c_elements(self) -> list[str]:
        """The registers of the elements of a vector of C, in the type of sums."""
        return self.wide.all if self.converts else [self.loaded[0, 0, 0, i] for i in range(self.vec)]

    @property
    def order(self) -> str:
        """The template file that orders loads and products."""
        return "math/blocks_ahead.mako" if self.ahead else "math/blocks_in_turn.mako"

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        rows = [
            (self.sums, "sums, 2 columns of 2 rows for each MMA instruction"),
            (
                self.loaded,
                f"loads in flight: {self.in_flight} blocks, {self.rows} rows of B, {self.vectors} vectors of"
                f" {self.vec} elements",
            ),
            (self.column, "columns of the 8x1 vectors"),
            (self.value, "right operand: values of A"),
            (self.next_value, "values of the next blocks"),
            (self.left, "left operand: elements of B"),
            (self.from_b, "first row of B at the columns of each vector"),
            (self.part_sum, "sums of a part of a long window"),
        ]
        converted = [(self.wide, "converted elements of C"), (self.half, "elements to convert")]
        return [*rows, *(converted if self.converts else [])]


def preparations_of(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    """The preparations of A for the kernels of ``c``."""
    windows = RowWindows(p.dtype, instruction(p).k)
    if c.row_order != BY_LENGTH:
        return (windows,)
    return windows, WorkList("window_starts", WINDOW, c.longest_part or UNLIMITED)


class VectorMmaPlan(Plan):
    kernel = "kernel/vector_mma.mako"
    mainloop: WindowLoop
    parameter_meanings: Mapping[str, str] = {
        "window_starts": "address of the first block of each row window",
        "window_columns": "address of the columns of the 8x1 vectors",
        "window_values": "address of the values of the blocks of vectors",
        "windows": "number of row windows",
        "items": "address of the work list: {row window, first block, end, part}",
        "parts": "address of {first part of the window, number of its parts}",
        "item_count": "number of items of the work list",
        "partials": "bytes of the workspace before the partial sums",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, VectorMmaGeometry)
        self.windows = RowWindows(self.problem.dtype, instruction(self.problem).k)
        self.scheduler = WindowSlabs()
        self.work_list = self.config.row_order == BY_LENGTH
        read = ("items", "parts", "W") if self.work_list else ("window_starts",)
        names = (*read, "window_columns", "window_values", "B", "C")
        #: parameter of an address -> its register
        self.addresses = {name: "workspace" if name == "W" else name for name in names}
        self.address_registers = ", ".join(f"%{register}" for register in self.addresses.values())
        self.count_parameter = "item_count" if self.work_list else "windows"
        self.parameters = VectorMmaParameters(names, self.arithmetic, self.work_list)
        self.mainloop = WindowLoop.of(self.problem, self.config, self.geometry, self.windows)

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        return preparations_of(self.problem, self.config)

    @property
    def accesses(self) -> str:
        return sparse_plan.accesses(self.config)

    @property
    def preconditions(self) -> list[str]:
        return [
            sparse_plan.alignment(self.problem, self.config),
            "the row windows of A; the columns of a row of A differ, and are from 0 to K - 1",
        ]

    @property
    def block_tile(self) -> str:
        return f"{self.mainloop.windows * WINDOW} x {self.mainloop.slab}"

    def _launch_prepared(self, problem: KernelProblem, sizes: Mapping[str, int]) -> Launch:
        if problem.results == 0:
            return Launch(())
        slabs = int(ceil_div(problem.extents.n, self.mainloop.slab))
        x = Listed(problem, ceil_div(problem.extents.m, WINDOW))
        if self.work_list:
            x = Listed.of(problem, sizes, slabs, WINDOW, self.arithmetic.bytes)
        grid = (ceil_div(x.count, self.mainloop.windows), slabs, 1)
        step = Step(self.entry, grid, (self.threads, 1, 1), 0, self.parameters.rows.arguments(x))
        return Launch((step,), x.workspace, x.workspace > 0)
