"""The epilogue, which computes C from finished sums and stores it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import BOUNDS_NONE, Config
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.c_access import CAccess
from ptxgen.codegen.parts.part import Part, Reduction
from ptxgen.codegen.parts.row_lanes import RowLanes
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.vectorized import log2, power_of_two_in

_STORES = {
    Reduction.MEMSET_RED: "add to C by red.global",
    Reduction.FLAG_RED: "add to C by red.global",
    Reduction.WORKSPACE: "store partial sums in the workspace",
}


@dataclass(frozen=True)
class Epilogue(Part):
    """The part that stores the sums of a block to C; families derive their own. ``template``: the slot that stores a
    tile."""

    config: Config
    arithmetic: Arithmetic
    reduction: Reduction
    c: CAccess

    template = ""
    via_smem = False  #: True if sums are stored through shared memory
    pack_8bit = False  #: True if packed pairs of 8-bit results are collected in registers and stored by one access
    computes_oob = False  #: True if threads compute sums outside C, too; only their stores are guarded

    @property
    def store_op(self) -> str:
        """The slot that stores one vector of sums: partial sums of a slice, or complete sums by the sink."""
        return self.reduction.store_op or self.c.problem.sink.template

    @property
    def scales_sums(self) -> bool:
        """True if sums are multiplied by alpha before the sink reads them."""
        return any(s.name == "alpha" for s in self.c.problem.sink.scalars)

    def scaled(self, to: str, sums: str) -> str:
        """The instruction that sets register ``to`` to a sum for the sink, multiplied by alpha if the sink has
        alpha."""
        if self.scales_sums:
            return f"{self.arithmetic.mul} {to}, {sums}, %alpha;"
        return f"mov.{self.arithmetic.type} {to}, {sums};"

    @property
    def column_sums(self) -> str:
        """The slot that stores the sums of the columns of C, if they are computed."""
        return "epilogue/column_sums.mako" if "sum_columns" in self.c.problem.needs else "epilogue/no_column_sums.mako"

    @cached_property
    def stored(self) -> list[str]:
        """The registers of the vector that is stored."""
        return self.vector.all[: self.c.width]

    @property
    def slices_plus_beta_c(self) -> list[str]:
        """The instructions that add beta·C to the sums of slices in ``stored`` if beta is not zero."""
        return self.arithmetic.multiply_add(self.stored, self.c.values.all, "beta", "@%has_beta ")

    @property
    def beta_c(self) -> list[str]:
        """The instructions that set ``stored`` to beta·C if %p is true."""
        return self.arithmetic.multiply(self.stored, self.c.values.all, "beta", "@%p ")

    @property
    def vector(self) -> Tile:
        """The registers of finished sums."""
        raise NotImplementedError

    @property
    def out_addr(self) -> str:
        """The slot that computes the addresses, of C or of partial sums, to which a block stores."""
        return "epilogue/c_strided.mako" if self.reduction.stores_partials else self.c.addressing.template

    @cached_property
    def out_bytes(self) -> int:
        """The number of bytes of an element that a block stores."""
        return self.arithmetic.bytes if self.reduction.stores_partials else self.c.bytes

    @property
    def summary(self) -> str:
        """The text of the epilogue's banner."""
        return _STORES.get(self.reduction, "store C") + (
            " through shared memory" if self.via_smem else " from registers"
        )


@dataclass(frozen=True, kw_only=True)
class TileEpilogue(RowLanes, Epilogue):
    """The epilogue of kernels whose threads hold the sums of the block's tile in registers.

    ``threads``: threads of the block; ``ns``: columns of C that a thread holds; ``columns``: the first column of each
    of its vectors, relative to its first column; ``contiguous``: the number of adjacent columns of a thread;
    ``via_smem``: True if sums are stored through shared memory, in rows of ``row_pitch`` elements; ``aliases_stages``:
    True if this memory is that of the stages of A and B; ``sts_guard``: the guard of stores of sums to shared memory;
    ``by_rows``: True if lanes keep their columns and loop over rows."""

    threads: int
    ns: int
    columns: list[int]
    contiguous: int
    via_smem: bool
    row_pitch: int
    aliases_stages: bool
    computes_oob: bool
    sts_guard: str = ""
    by_rows: bool = False

    UNROLLED = 8  #: the most rounds for which the epilogue through shared memory is unrolled
    ROW_BATCH = 8  #: the most vectors that one iteration over rows stores

    @property
    def template(self) -> str:  # type: ignore[override]
        if not self.via_smem:
            return "epilogue/from_registers.mako"
        return "epilogue/via_smem_rows.mako" if self.by_rows else "epilogue/via_smem.mako"

    @cached_property
    def vector(self) -> Tile:
        """The registers of a row of the thread's sums, or of a vector of the block's tile."""
        return Tile("result", self.arithmetic.type, (max(self.ns * self.arithmetic.parts, self.c.width),))

    @cached_property
    def checks_bounds(self) -> bool:
        return self.config.bounds != BOUNDS_NONE

    def scaled_row(self, sums: Sequence[str] = ()) -> list[str]:
        """The instructions that set ``vector`` to the values for the sink. ``sums``: the registers of a row of the
        thread's sums; empty: the sums are in ``vector``."""
        row = self.vector.all[: self.ns * self.arithmetic.parts]
        if self.scales_sums:
            return self.arithmetic.multiply(row, sums or row, "alpha")
        return [self.scaled(to, r) for to, r in zip(row, sums or row, strict=True)]

    @property
    def thread_columns(self) -> list[int]:
        """The distances of a thread's columns from its first."""
        return [column + q for column in self.columns for q in range(self.c.vec)]

    @property
    def vector_pairs(self) -> list[tuple[str, str]]:
        """The pairs of adjacent registers of ``vector``."""
        row = self.vector.all[: self.ns]
        return list(zip(row[::2], row[1::2], strict=True))

    @property
    def in_bounds(self) -> str:
        """The guard of accesses to a vector of C; empty: all vectors are inside C."""
        return "@%in_bounds " if self.checks_bounds else ""

    @cached_property
    def column_vectors(self) -> list[list[str]]:
        """The registers of each vector of a row of a thread."""
        n = self.c.width
        return [self.vector.all[i * n : (i + 1) * n] for i in range(len(self.columns))]

    @property
    def group_sum_loads(self) -> list[tuple[list[str], str, int]]:
        """The loads of a vector of sums from shared memory, one for each thread group: registers, their operand, byte
        offset."""
        size = self.config.ml * self.row_pitch * self.arithmetic.bytes
        into = [self.vector, *[self.c.addend] * (self.config.kl - 1)]
        return [(tile.all[: self.c.width], tile.vector(0, n=self.c.width), g * size) for g, tile in enumerate(into)]

    @property
    def sum_vectors(self) -> list[tuple[int, str]]:
        """The stores of a row of sums to shared memory: the first column and the operand of each."""
        n, parts = self.sts_vec, self.arithmetic.parts
        return [(j, self.vector.vector(j * parts, n=n * parts)) for j in range(0, self.ns, n)]

    @property
    def shared_map(self) -> list[str]:
        if not self.via_smem:
            return []
        tiles = f"{self.config.kl} tiles of C, rows of {self.row_pitch}"
        return [f"then {tiles}, in the same place" if self.aliases_stages else tiles]

    # ---- through shared memory

    @property
    def sts_vec(self) -> int:
        """The number of sums of one store to shared memory."""
        return min(self.contiguous, 16 // self.arithmetic.bytes)

    @property
    def row_vectors(self) -> int:
        """The number of vectors of a row of the block's tile."""
        return self.config.nl // self.c.vec

    @property
    def vector_place(self) -> list[str]:
        """The instructions that set %c_row to the row of vector %vec_index in the block's tile, and %c_col to the index
        of the vector in the row."""
        n = self.row_vectors
        if power_of_two_in(n) == n:
            return [f"shr.u32 %c_row, %vec_index, {log2(n)};", f"and.b32 %c_col, %vec_index, {n - 1};"]
        return [f"div.u32 %c_row, %vec_index, {n};", f"rem.u32 %c_col, %vec_index, {n};"]

    @property
    def gather_loads(self) -> int:
        """The number of vectors of the block's tile."""
        return self.config.ml * self.config.nl // self.c.vec

    @property
    def gather_rounds(self) -> int:
        """The number of rounds: in each, a thread stores one vector of the tile."""
        return -(-self.gather_loads // self.threads)

    @property
    def gather_end(self) -> int:
        """The end of the loop over indices of vectors. All threads have the same number of rounds."""
        return self.gather_loads if self.gather_rounds == 1 else self.gather_rounds * self.threads

    @property
    def partial_gather(self) -> bool:
        """True if some threads have no vector in the last round."""
        return self.gather_loads % self.threads > 0

    @cached_property
    def gather_guard(self) -> str:
        """The guard of accesses to a thread's vector; empty: there is always a vector inside C."""
        return "@%in_bounds " if self.checks_bounds or self.partial_gather else ""

    # ---- by rows

    @property
    def round_columns(self) -> int:
        """The number of columns from one vector of a lane to the lane's next vector."""
        return self.row_lanes * self.c.vec

    @property
    def vector_columns(self) -> list[int]:
        """The column of each vector of a lane in a row, relative to its first vector."""
        return [j * self.round_columns for j in range(self.row_rounds)]

    @property
    def batch_bytes(self) -> int:
        """The bytes by which the address of the sums advances from one iteration over rows to the next."""
        return self.row_batch * self.rows_per_step * self.row_pitch * self.arithmetic.bytes

    @property
    def batch_loads(self) -> list[list[list[tuple[list[str], str, int]]]]:
        """The ``group_sum_loads`` of one iteration over rows: by row, then by vector."""
        size = self.arithmetic.bytes
        return [
            [
                [
                    (registers, operand, offset + (r * self.rows_per_step * self.row_pitch + column) * size)
                    for registers, operand, offset in self.group_sum_loads
                ]
                for column in self.vector_columns
            ]
            for r in range(self.row_batch)
        ]

    @property
    def sums_access(self) -> str:
        """The type suffix of a store of sums to shared memory."""
        return width(self.sts_vec * self.arithmetic.parts, self.arithmetic.type)

    @property
    def row_batch(self) -> int:
        """The number of rows of a thread that one iteration over rows stores."""
        return max(1, min(self.ROW_BATCH // self.row_rounds, self.config.ml // self.rows_per_step))

    @property
    def checked_columns(self) -> list[int]:
        """The first columns of the vectors that may be outside C."""
        return list(self.columns) if self.checks_bounds else []
