"""The plan of a row_split kernel."""

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
from ptxgen.codegen.vectorized import WARP, Log2, Mask, ceil_div
from ptxgen.families.common import sparse_plan
from ptxgen.families.common.sparse_plan import Listed
from ptxgen.families.common.work_list import UNLIMITED, WHOLE, WorkList
from ptxgen.families.row_split.geometry import RowSplitGeometry
from ptxgen.lowering.csr import ColumnMajor
from ptxgen.lowering.kernel_problem import KernelProblem

#: the template files that address a row-major and a column-major matrix
ADDRESSED = ("addr/dense_rows.mako", "addr/dense_columns.mako")


def graphs(p: KernelProblem) -> bool:
    """True if the matrix is a batch of graphs, so that columns count from the first row of their graph."""
    return bool(p.operands[0].access.graphs)


@dataclass(frozen=True)
class RowSlabs:
    """The tile scheduler: a block computes consecutive rows of C for a slab of columns."""

    grid_text: str = "(blocks of rows, slabs of columns, 1)"


@dataclass(frozen=True)
class RowSplitParameters(KernelParameters):
    """The parameters of row_split kernels. ``addresses``: the arrays that the kernel reads and writes; ``work_list``:
    True if it reads items of a work list; ``graphs``: True if it searches for the graph of a row."""

    addresses: tuple[str, ...]
    arithmetic: Arithmetic
    work_list: bool
    graphs: bool

    @property
    def declared(self) -> list[Parameters]:
        groups = Parameters("u32", ("groups",), lambda x: (x.problem.extents.groups,))
        return [
            given("u64", *self.addresses),
            Parameters("u32", ("M", "N"), lambda x: (x.count, x.problem.extents.n)),
            sparse_plan.leading_dimensions(lambda x: x.problem),
            *sparse_plan.partials(self.work_list),
            *([groups] if self.graphs else []),
            given(self.arithmetic.type, "alpha", "beta"),
        ]


@dataclass(frozen=True)
class RowLoop(Part):
    """The loop over the nonzeros of a row. An iteration computes ``depths[0]`` nonzeros at once, and the rest of the
    row takes steps of ``depths[1:]``, in this order.

    ``template``: the template file that loads indices and values; ``nonzero_groups``: groups of ``lanes`` lanes that
    share the nonzeros of a row; ``vec``: elements of a vector; ``vectors``: vectors of a lane; ``size``: bytes of an
    element; ``access``, ``packed``: PTX type and registers of a vector in memory; ``scalar``: PTX type of an element in
    memory; ``index_bytes``: bytes of a row pointer and of a column index; ``row_pointers``, ``b_access``, ``c_access``:
    the template files that read row pointers and address B and C.
    """

    template: str
    row_pointers: str
    b_access: str
    c_access: str
    index_bytes: int
    ptx_type: str
    lanes: int
    nonzero_groups: int
    groups: int
    vec: int
    vectors: int
    size: int
    depths: tuple[int, ...]
    slab: int
    sums: Tile
    loaded: Tile
    wide: Tile
    half: Tile
    index: Tile
    value: Tile
    half_value: Tile
    part_sum: Tile
    from_b: Tile
    access: str
    packed: int
    scalar: str

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: RowSplitGeometry, arithmetic: str) -> RowLoop:
        half = p.element.bytes == 2
        pairs = half and c.vec_b > 1
        packed = c.vec_b // 2 if pairs else c.vec_b
        register = "b32" if pairs else "b16" if half else arithmetic
        depth = c.nonzeros_in_flight
        return cls(
            ("math/row_broadcast.mako", "math/row_shuffle.mako")[c.index_loads],
            "addr/graph_rows.mako" if graphs(p) else f"addr/row_pointers_{8 * p.operands[0].access.index_bytes}.mako",
            ADDRESSED[p.operand("B").access.kmajor],
            ADDRESSED[isinstance(p.operand("C").access, ColumnMajor)],
            p.operands[0].access.index_bytes,
            p.dtype,
            c.row_lanes,
            c.nonzero_groups,
            c.block_groups,
            c.vec_b,
            c.lane_vectors,
            p.element.bytes,
            tuple(depth >> i for i in range(depth.bit_length())),
            int(g.slab),
            Tile("sum", arithmetic, (c.lane_vectors, c.vec_b)),
            Tile("loaded", register, (depth, c.lane_vectors, packed)),
            Tile("wide", arithmetic, (c.vec_b,)),
            Tile("half", "b16", (2,)),
            Tile("index", "b32", (depth,)),
            Tile("value", arithmetic, (depth,)),
            Tile("half_value", "b16", (depth,)),
            Tile("part_sum", arithmetic, (4,)),
            Tile("ptr_b", "b64", (c.lane_vectors,)),
            width(packed, register),
            packed,
            "b16" if half else arithmetic,
        )

    whole: ClassVar[int] = WHOLE
    part_rows: ClassVar[int] = 1  #: rows of C that a part has

    @property
    def row_threads(self) -> int:
        """The number of lanes of a row."""
        return self.lanes * self.nonzero_groups

    @property
    def group_distances(self) -> list[int]:
        """The lane distances of the shuffles that add the sums of a row's groups."""
        return [self.lanes << i for i in range(self.nonzero_groups.bit_length() - 1)]

    @property
    def clamp(self) -> int:
        """The clamp operand of shuffles within one group of lanes."""
        return (WARP - self.lanes) << 8 | WARP - 1

    @property
    def member_clamp(self) -> int:
        """The clamp operand of shuffles within all lanes of a row."""
        return (WARP - self.row_threads) << 8 | WARP - 1

    @property
    def member_mask(self) -> int:
        """The mask of the lanes of a warp's first row."""
        return (1 << self.row_threads) - 1

    @property
    def register_bits(self) -> int:
        """The number of bits of a register that holds part of a loaded vector."""
        return 8 * self.size if self.packed == self.vec else 32

    @property
    def loaded_value(self) -> Tile:
        """The registers of values of A as loaded."""
        return self.half_value if self.converts else self.value

    @property
    def _vectors(self) -> list[tuple[int, int]]:
        return [(q, v) for q in range(self.depths[0]) for v in range(self.vectors)]

    @property
    def elements(self) -> dict[tuple[int, int], list[str]]:
        """The registers of the elements of each (nonzero, vector), in the type of sums."""
        if self.converts:
            return dict.fromkeys(self._vectors, self.wide.all)
        return {(q, v): [self.loaded[q, v, i] for i in range(self.vec)] for q, v in self._vectors}

    @property
    def loaded_pairs(self) -> dict[tuple[int, int], list[tuple[str, str, str]]]:
        """For the 16-bit elements of each (nonzero, vector): each word with the registers of its two converted
        elements."""
        words = range(self.packed) if self.converts and self.vec > 1 else ()
        return {
            (q, v): [(self.loaded[q, v, i], self.wide[2 * i], self.wide[2 * i + 1]) for i in words]
            for q, v in self._vectors
        }

    @property
    def c_vectors(self) -> list[tuple[list[str], list[tuple[str, str, str]], str]]:
        """For each vector of C: its sums; for 16-bit elements, each word with its two sums; the operand that is
        stored."""
        pairs = self.loaded_pairs[0, 0]
        return [
            (
                sums,
                [(word, sums[2 * i], sums[2 * i + 1]) for i, (word, _, _) in enumerate(pairs)],
                self.loaded[0, 0, :] if self.converts else braces(sums),
            )
            for sums in self.vector_sums
        ]

    @property
    def lane_vectors(self) -> list[tuple[int, int]]:
        """The (row, vector) of each vector of sums of a lane."""
        return [(0, v) for v in range(self.vectors)]

    def sum_accesses(self, v: int, row: int = 0) -> list[tuple[int, list[str], str]]:
        """The accesses to the sums of vector ``v`` in the workspace, as (offset in bytes, registers, type)."""
        ptx_type, size = self.sums.ptx_type, 8 if self.sums.ptx_type == "f64" else 4
        step = min(self.vec, 16 // size)
        return [
            (i * size, [self.sums[v, i + j] for j in range(step)], width(step, ptx_type))
            for i in range(0, self.vec, step)
        ]

    @property
    def converts(self) -> bool:
        """True if elements are converted to the type of sums."""
        return self.size == 2

    lane_mask = Mask("lanes")
    log2_lanes = Log2("lanes")
    group_mask = Mask("nonzero_groups")
    log2_nonzero_groups = Log2("nonzero_groups")
    log2_row_threads = Log2("row_threads")

    @property
    def leader_mask(self) -> int:
        """The mask that turns a lane number into that of the first lane of its row."""
        return WARP - self.row_threads

    @property
    def part_bytes(self) -> int:
        """The number of bytes that a part has in each column."""
        return self.part_rows * (8 if self.sums.ptx_type == "f64" else 4)

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def vector_columns(self) -> list[int]:
        """The column distances from a lane's first vector to each of its vectors."""
        return [v * self.lanes * self.vec for v in range(self.vectors)]

    @property
    def index_offsets(self) -> range:
        """The offset of each index of a lane."""
        return range(
            0, self.index_bytes * self.nonzero_groups * (self.depths[0] + 1), self.index_bytes * self.nonzero_groups
        )

    @property
    def value_offsets(self) -> range:
        """The offset of each value of a lane."""
        return range(0, self.size * self.nonzero_groups * (self.depths[0] + 1), self.size * self.nonzero_groups)

    @property
    def chunk_index_bytes(self) -> int:
        return self.index_bytes * self.lanes

    @property
    def chunk_value_bytes(self) -> int:
        return self.size * self.lanes

    @property
    def shuffles(self) -> list[tuple[int, int]]:
        """The ranges (first lane, end) of lanes whose nonzeros are multiplied at once."""
        return [(first, first + self.depths[0]) for first in range(0, self.lanes, self.depths[0])]

    @property
    def vector_sums(self) -> list[list[str]]:
        """The sums of each vector."""
        return [self.sums.all[v * self.vec : (v + 1) * self.vec] for v in range(self.vectors)]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        rows = [
            (self.sums, f"sums, {self.vectors} vectors of {self.vec}"),
            (self.loaded, f"loads in flight: {self.depths[0]} nonzeros, {self.vectors} vectors of {self.vec} elements"),
            (self.index, "column indices"),
            (self.value, "values of A"),
            (self.from_b, "first row of B at the columns of each vector"),
            (self.part_sum, "sums of a part of a long row"),
        ]
        converted = [
            (self.wide, "converted elements"),
            (self.half, "elements to convert"),
            (self.half_value, "values to convert"),
        ]
        return [*rows, *(converted if self.converts else [])]


def preparations_of(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    """The preparations of A for the kernels of ``c``."""
    if c.row_order != BY_LENGTH:
        return ()
    return (WorkList("indptr", 1, c.longest_part or UNLIMITED),)


class RowSplitPlan(Plan):
    kernel = "kernel/row_split.mako"
    mainloop: RowLoop
    parameter_meanings: Mapping[str, str] = {
        **sparse_plan.CSR_MEANINGS,
        "items": "address of the work list: {row, first nonzero, end, part}",
        "parts": "address of {first part of the row, number of its parts}",
        "offsets": "address of the row after the last one of each graph",
        "groups": "number of graphs",
        "partials": "bytes of the workspace before the partial sums",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, RowSplitGeometry)
        self.scheduler = RowSlabs()
        self.work_list = self.config.row_order == BY_LENGTH
        read = ("items", "parts", "W") if self.work_list else ("indptr",)
        read = (*read, "offsets") if graphs(self.problem) else read
        names = ("values", "B", "C", "indices", *read)
        #: parameter of an address -> its register
        self.addresses = {name: "workspace" if name == "W" else name for name in names}
        self.address_registers = ", ".join(f"%{register}" for register in self.addresses.values())
        self.parameters = RowSplitParameters(names, self.arithmetic, self.work_list, graphs(self.problem))
        self.mainloop = RowLoop.of(self.problem, self.config, self.geometry, self.arithmetic.type)

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
            f"row pointers and column indices of {8 * self.mainloop.index_bytes} bits: pointers that do not decrease,"
            " columns from 0 to K - 1",
        ]

    @property
    def block_tile(self) -> str:
        return f"{self.mainloop.groups} x {self.mainloop.slab}"

    def _launch(self, problem: KernelProblem) -> Launch:
        return self._launch_rows(Listed(problem, problem.extents.m))

    def _launch_prepared(self, problem: KernelProblem, sizes: Mapping[str, int]) -> Launch:
        return self._launch_rows(Listed.of(problem, sizes, self._slabs(problem), 1, self.arithmetic.bytes))

    def _slabs(self, problem: KernelProblem) -> int:
        return int(ceil_div(problem.extents.n, self.mainloop.slab))

    def _launch_rows(self, x: Listed) -> Launch:
        if x.problem.results == 0:
            return Launch(())
        grid = (ceil_div(x.count, self.mainloop.groups), self._slabs(x.problem), 1)
        step = Step(self.entry, grid, (self.threads, 1, 1), 0, self.parameters.rows.arguments(x))
        return Launch((step,), x.workspace, x.workspace > 0)
