"""The plan of a tca kernel."""

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
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.common import sparse_plan
from ptxgen.families.tca import layout
from ptxgen.families.tca.geometry import RESIDENT
from ptxgen.families.tca.layout import Share
from ptxgen.families.tca.preparation import BLOCKS, PLACE_OF_WARP, ROW_OF_WARP, WARPS_OF_ROW, AssignWarps
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class RowWarps:
    """The tile scheduler: a block computes rows of one class of lengths, or a part of the columns of a long row."""

    grid_text: str = "(blocks of 8 warps, 1, 1)"


@dataclass(frozen=True)
class TcaParameters(KernelParameters):
    problem: KernelProblem
    arithmetic: Arithmetic

    @property
    def declared(self) -> list[Parameters]:
        return [
            given("u64", *self.problem.arrays, ROW_OF_WARP, PLACE_OF_WARP, WARPS_OF_ROW),
            Parameters("u32", ("N",), lambda p: (p.extents.n,)),
            sparse_plan.leading_dimensions(),
            given(self.arithmetic.type, "alpha", "beta"),
        ]


@dataclass(frozen=True)
class DiagonalProducts(Part):
    """The products of a warp's 8 nonzeros and 64 columns, and the sums of their diagonals.

    ``pieces``: accesses of a lane to 8 columns of B or C; ``packed``: registers of an access; ``access``: its PTX type.
    """

    ptx_type: str
    vec: int
    row_barriers: bool
    pieces: int
    packed: int
    access: str
    sums: Tile
    diagonal: Tile
    moved: Tile
    loaded: Tile
    value: Tile
    index: Tile
    from_b: Tile
    result: Tile
    stored: Tile
    half: Tile
    warps: int = layout.WARPS
    columns: int = layout.COLUMNS
    nonzeros: int = layout.NONZEROS
    part: int = layout.PART
    buffer_at: int = layout.BUFFER_AT
    sums_at: int = layout.SUMS_AT
    scratch_bytes: int = layout.SCRATCH_BYTES
    buffer_bytes: int = layout.BUFFER_BYTES
    sum_bytes: int = layout.SUM_BYTES

    @classmethod
    def of(cls, p: KernelProblem, c: Config) -> DiagonalProducts:
        pieces, packed = layout.PART // c.vec_b, max(c.vec_b // 2, 1)
        register = "b32" if c.vec_b > 1 else "b16"
        fragments = layout.FRAGMENTS
        return cls(
            p.dtype,
            c.vec_b,
            c.row_barriers == 1,
            pieces,
            packed,
            width(packed, register),
            Tile("sum", "f32", (fragments, 4)),
            Tile("diagonal", "f32", (fragments, 2)),
            Tile("moved", "f32", (fragments, 2)),
            Tile("loaded", register, (2, pieces, packed)),
            Tile("value", "b16", (2,)),
            Tile("index", "b32", (2,)),
            Tile("ptr_b", "b64", (2,)),
            Tile("result", "f32", (layout.PART,)),
            Tile("stored", register, (pieces, packed)),
            Tile("half", "b16", (2,)),
        )

    @property
    def barriers(self) -> dict[Share, str]:
        """Layout of a row -> the instruction by which the row's warps wait for each other. All rows of a block have the
        same number of warps."""
        return {share: self._barrier(share) for share in self.shares}

    def _barrier(self, share: Share) -> str:
        if share.warps == self.warps or not self.row_barriers:
            return "bar.sync 0"
        if share.warps == 1:
            return "bar.warp.sync 0xffffffff"
        return f"bar.sync %row_barrier, {WARP * share.warps}"

    @property
    def instruction(self) -> str:
        return f"mma.sync.aligned.m16n8k8.row.col.f32.{self.ptx_type}.{self.ptx_type}.f32"

    @property
    def shares(self) -> list[Share]:
        """The layouts of rows of up to 64, 32, 16, 8 nonzeros."""
        return [Share(w) for w in layout.SHARES]

    @property
    def fragment_sums(self) -> list[tuple[str, str, str]]:
        """For each half of each fragment: the diagonal, the sum of its even column, and the sum of its odd column."""
        halves = [(q, h) for q in range(layout.FRAGMENTS) for h in (0, 1)]
        return [(self.diagonal[q, h], self.sums[q, 2 * h], self.sums[q, 2 * h + 1]) for q, h in halves]

    @property
    def warps_bytes(self) -> int:
        """The number of bytes of an array with a 32-bit number for each warp of a block."""
        return 4 * self.warps

    @property
    def columns_bytes(self) -> int:
        return 2 * self.columns

    @property
    def block_columns(self) -> int:
        """The number of columns of a block of a long row, per warp of the row."""
        return self.columns // self.warps

    @property
    def index_bytes(self) -> int:
        return 4 * self.nonzeros

    @property
    def value_bytes(self) -> int:
        return 2 * self.nonzeros

    @property
    def accesses(self) -> list[tuple[str, int, int]]:
        """The accesses of a lane to a row of B or C, as (register of the column, column, offset)."""
        columns = range(0, self.part, self.vec)
        return [("%tmp0" if column else "%gathered", column, 2 * column) for column in columns]

    @property
    def loaded_words(self) -> list[list[str]]:
        """For each of the two rows of B, its registers."""
        size = self.pieces * self.packed
        return [self.loaded.all[:size], self.loaded.all[size:]]

    @property
    def column_offsets(self) -> dict[Share, list[tuple[int, ...]]]:
        """Layout of a row -> for each register of a row of B, the offsets of its columns in the transposed buffer."""
        each = min(self.vec, 2)
        columns = range(0, self.part, each)
        return {
            share: [tuple(self.buffer_at + share.column_bytes * (c + i) for i in range(each)) for c in columns]
            for share in self.shares
        }

    @property
    def result_loads(self) -> list[tuple[str, int]]:
        """The loads of a lane's sums, as (registers, offset)."""
        return [(self.result.vector(i, n=4), self.sums_at + 4 * i) for i in range(0, self.part, 4)]

    @property
    def roundings(self) -> list[list[str]]:
        """For each access to C, the instructions that round its results."""
        if self.vec == 1:
            return [[f"cvt.rn.{self.ptx_type}.f32 {self.stored[j, 0]}, {r};"] for j, r in enumerate(self.result.all)]
        return [[line for word in words for line in self._rounded(*word)] for words in self.stored_words]

    def _rounded(self, word: str, low: str, high: str) -> tuple[str, str, str]:
        """The instructions that round two results into a word."""
        convert, half = f"cvt.rn.{self.ptx_type}.f32", self.half
        return f"{convert} {half[0]}, {low};", f"{convert} {half[1]}, {high};", f"mov.b32 {word}, {half[:]};"

    @property
    def stored_words(self) -> list[list[tuple[str, str, str]]]:
        """For each access to C, its words as (word, element, element)."""
        pairs = [
            (word, self.result[2 * i], self.result[2 * i + 1])
            for i, word in enumerate(self.stored.all[: self.part // 2])
        ]
        return [pairs[j * self.packed : (j + 1) * self.packed] for j in range(self.pieces)]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [
            (self.sums, f"accumulators, {layout.FRAGMENTS} fragments of 16 x 8"),
            (self.diagonal, "sums of diagonals, two per fragment"),
            (self.moved, "those of other lanes"),
            (self.loaded, f"two rows of B: 8 columns, {self.pieces} vectors of {self.vec} elements"),
            (self.value, "two nonzeros"),
            (self.index, "their columns"),
            (self.from_b, "their rows of B at the columns of the lane"),
            (self.result, "8 elements of C, which a lane stores"),
            (self.stored, "the same in memory"),
            (self.half, "elements to convert"),
        ]

    @property
    def shared_map(self) -> list[str]:
        return [
            f"[0, {self.buffer_at}): {self.part} nonzeros per warp",
            f"[{self.buffer_at}, {self.sums_at}): {self.columns} columns of {self.part} gathered elements per warp,"
            " transposed",
            f"[{self.sums_at}, {layout.SHARED_BYTES}): {self.columns} sums per warp",
        ]


def preparations_of(p: KernelProblem, c: Config) -> tuple[Preparation, ...]:
    """The preparation that lists the warps. A row has at most as many blocks as it has parts of 64 nonzeros."""
    e = p.extents
    return (AssignWarps(max(min(layout.tiles(e.n), -(-e.most_longest // layout.NONZEROS)), 1)),)


class TcaPlan(Plan):
    kernel = "kernel/tca.mako"
    mainloop: DiagonalProducts
    parameter_meanings: Mapping[str, str] = {
        **sparse_plan.CSR_MEANINGS,
        ROW_OF_WARP: "address of the row of each warp, -1: none",
        PLACE_OF_WARP: "address of the number of each warp in its row",
        WARPS_OF_ROW: "address of the number of warps of each row",
    }

    def _compose(self) -> None:
        self.scheduler = RowWarps()
        self.parameters = TcaParameters(self.problem, self.arithmetic)
        self.mainloop = DiagonalProducts.of(self.problem, self.config)

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        return preparations_of(self.problem, self.config)

    @property
    def directives(self) -> list[str]:
        return [f".maxntid {self.threads}, 1, 1", f".minnctapersm {RESIDENT}"]

    @property
    def accesses(self) -> str:
        return sparse_plan.accesses(self.config)

    @property
    def preconditions(self) -> list[str]:
        return [
            sparse_plan.alignment(self.problem, self.config),
            "row pointers and column indices of 32 bits: pointers that do not decrease, columns from 0 to K - 1",
            "the arrays of the kernel place_warps",
        ]

    @property
    def block_tile(self) -> str:
        return f"1 to {layout.WARPS} rows x {layout.COLUMNS}"

    def _launch_prepared(self, problem: KernelProblem, sizes: Mapping[str, int]) -> Launch:
        blocks = sizes[BLOCKS]
        if problem.results == 0 or blocks == 0:
            return Launch(())
        arguments = self.parameters.rows.arguments(problem)
        return Launch((Step(self.entry, (blocks, 1, 1), (self.threads, 1, 1), self.shared, arguments),))

    def _launch(self, problem: KernelProblem) -> Launch:
        return Launch(())  # there are no rows
