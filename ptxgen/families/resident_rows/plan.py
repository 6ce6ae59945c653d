"""The plan of a kernel with resident rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.sink_kernels import RowReduceKernels
from ptxgen.codegen.parts.algebra import ExpressionReducer, Reducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.parameters import (
    KernelParameters,
    Parameters,
    given,
    other_addresses,
    scalar_parameters,
    sink_parameters,
)
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.parts.result_values import ReadArray, ResultValues
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, load_type, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import Log2, Mask, integer
from ptxgen.expr.instructions import literal, register_class
from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.ptx import Temporaries, combined
from ptxgen.expr.value_types import type_of
from ptxgen.families.resident_rows.axes import LOAD_BYTES, MOST_COLUMNS
from ptxgen.families.resident_rows.best_values import BestValues
from ptxgen.families.resident_rows.geometry import (
    FULL,
    INDEX_BYTES,
    ResidentRowsGeometry,
    column_lanes,
    geometry,
    queue_entries,
)
from ptxgen.families.resident_rows.sum_bounds import RowBounds, SumBounds
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.states import INDEX, POSITIONS


@dataclass(frozen=True)
class RowBlocks:
    """The tile scheduler: a block computes its rows with a part of the columns."""

    grid_text: str = "(blocks of rows, parts of columns, 1)"


@dataclass(frozen=True)
class RowValues(ResultValues):
    """The values of the pairs of the thread's row number ``row``. Elements of arrays along i and j are in registers."""

    row: int = 0

    @property
    def arrays(self) -> list[ReadArray]:
        """The arrays that are loaded for each pair of a row: those along both i and j."""
        return [x for x in self.read if x.axes not in ("i", "j")]

    @property
    def held(self) -> list[ReadArray]:
        """The arrays along j: all rows of a thread read the same registers."""
        return [x for x in self.read if x.axes == "j"]

    @cached_property
    def known(self) -> dict[Node, str]:
        """The registers of scalars and extents, of expressions of these, and of the row's elements."""
        vectors = {
            v.element: row_elements(v.name, v.element.type, 1 + self.row)[self.row]
            for v in self.sink.vectors
            if v.axis == "i"
        }
        return {**super().known, **vectors}


def row_elements(name: str, ptx_type: str, rows: int) -> Tile:
    """The registers of the elements of an array along i for the rows of a thread."""
    return Tile(f"{name}_row", register_class(ptx_type), (rows,))


@dataclass(frozen=True)
class ResidentStates(RowStates):
    """The states of rows: a thread has one for each of its rows. ``rows``: the number of rows; ``bounded``: True if
    bounds exclude pairs that cannot change a state."""

    rows: int = 1
    bounded: bool = False

    @property
    def count(self) -> int:
        return self.rows

    @property
    def compares_first(self) -> bool:
        """True if the best of the columns computed together is compared with the best value by one instruction, and the
        columns join the state only if they may replace it."""
        floating = type_of(self.reduction.type).floating
        return self.reduction.op in POSITIONS and floating and self.sink.guard is None and not self.bounded

    @cached_property
    def bound(self) -> Tile:
        """The registers with the best value of each row. It is NaN before the first value, because every comparison
        with NaN is false."""
        return Tile("bound", register_class(self.reduction.type), (self.rows if self.compares_first else 0,))

    @property
    def no_bound(self) -> str:
        """The PTX literal of NaN."""
        return literal(constant(math.nan, self.reduction.type))

    @property
    def keeps(self) -> str:
        """The comparison of the best value with that of the columns under which the best value stays."""
        return "le" if self.reduction.op == "argmin" else "ge"

    @property
    def replaces(self) -> str:
        """The comparison under which the columns may replace the best value: also if a value is NaN."""
        return "gtu" if self.reduction.op == "argmin" else "ltu"

    @property
    def slot(self) -> str:
        return "epilogue/resident_bounded_states.mako" if self.bounded else "epilogue/resident_states.mako"

    def best_lines(self, into: str, values: Sequence[str]) -> list[str]:
        """The instructions that compute the best of several values; NaN if one of them is NaN."""
        return self._best(into, values, Temporaries("b"))

    def _best(self, into: str, values: Sequence[str], used: Temporaries) -> list[str]:
        operator = "min" if self.reduction.op == "argmin" else "max"
        return combined(operator, self.reduction.type, values, into, sm=self.sm, temporaries=used)

    def add_all(self, r: int, values: Sequence[str], first: str) -> list[str]:
        """The instructions that join values to state ``r``. ``first``: the register with the position of the first
        value; the positions of the others follow it."""
        return self._add_all(r, values, first, Temporaries("s"))

    def _add_all(self, r: int, values: Sequence[str], first: str, used: Temporaries) -> list[str]:
        at = variable("first", INDEX)
        positions = [node("+", INDEX, at, constant(n, INDEX)) if n else at for n in range(len(values))]
        return self._add_at(r, values, positions, {at: first}, used)

    @property
    def temporaries(self) -> list[str]:
        """The declarations of temporary registers for these instructions."""
        best, added = Temporaries("b"), Temporaries("s")
        values = [f"%value{n}" for n in range(MOST_COLUMNS)]
        if self.compares_first:
            self._best("%best", values, best)
        self._add_all(0, values, "%first", added)
        return [*best.declarations, *added.declarations]


@dataclass(frozen=True)
class ResidentLists(SelectedLists):
    """The lists of selected pairs. Each warp has a queue of pairs in shared memory, with their sums, rows and columns.
    It appends the whole queue to the lists at once, so few atomic additions are needed. ``entries``: entries of a
    queue; ``warps``: warps of a block; ``start``: offset of the queues in shared memory."""

    entries: int
    warps: int
    start: int
    bounded: bool

    @property
    def slot(self) -> str:
        return "epilogue/resident_bounded_lists.mako" if self.bounded else "epilogue/resident_lists.mako"

    temporaries: ClassVar[Sequence[str]] = ()
    full: ClassVar[int] = FULL

    @property
    def sum_type(self) -> str:
        """The PTX type of a sum."""
        return register_class(self.sink.arithmetic)

    @property
    def sum_bytes(self) -> int:
        return type_of(self.sink.arithmetic).bits // 8

    @property
    def row_offset(self) -> int:
        """The offset of the row indices in a queue."""
        return self.entries * self.sum_bytes

    @property
    def column_offset(self) -> int:
        return self.row_offset + self.entries * INDEX_BYTES

    @property
    def queue_bytes(self) -> int:
        return self.column_offset + self.entries * INDEX_BYTES

    @property
    def zero(self) -> str:
        """The PTX literal of 0, the sum that lanes without an entry have."""
        return literal(constant(0, self.sink.arithmetic))

    @property
    def shared_map(self) -> list[str]:
        end = self.start + self.warps * self.queue_bytes
        return [f"[{self.start}, {end}) a queue of each warp: {self.entries} sums, their rows, their columns"]


@dataclass(frozen=True)
class ResidentReduceKernels(RowReduceKernels):
    """The auxiliary kernel that joins the states of the parts of columns."""

    column_parts: int = 1
    stores_tiles: bool = True

    def counts(self, p: KernelProblem) -> list[int]:
        return [self.column_parts]


@dataclass(frozen=True)
class ResidentRowsParameters(KernelParameters):
    problem: KernelProblem
    config: Config

    def part_columns(self, p: KernelProblem) -> int:
        """The number of columns of a part."""
        return integer(geometry(p, self.config).part_columns)  # type: ignore[no-any-return]

    @property
    def declared(self) -> list[Parameters]:
        p = self.problem
        return [
            given("u64", *(x.name for x in p.operands), "W" if p.sink.has_workspace else "C"),
            *other_addresses(p),
            Parameters("u32", ("M", "N", "K"), lambda x: (x.p.m, x.p.n, x.p.k)),
            Parameters("u32", ("lda", "ldb"), lambda x: tuple(y.access.ld for y in x.p.operands)),
            Parameters("u32", ("part_columns",), lambda x: (self.part_columns(x.p),)),
            *scalar_parameters(p.scalars),
            *sink_parameters(p),
        ]


class VectorCopy(NamedTuple):
    """A copy of adjacent k of one column. ``first``: the first of the vectors that the threads of the block copy
    together; ``elements``: the operand of its load; ``stores``: pairs (register, offset in bytes)."""

    first: int
    elements: str
    stores: list[tuple[str, int]]


@dataclass(frozen=True)
class ResidentRows(Part):
    """The rows of a thread, the columns that it reads, and the reductions of their pairs.

    ``rows``: rows of a thread; ``k``: elements of a row; ``vec``: columns that are computed together; ``columns``:
    columns of the tile in shared memory; ``threads``: threads of the block; ``lanes``: lanes that have the same
    rows, and different columns; ``bounds``: the bounds that exclude pairs, None: all pairs are computed.
    """

    problem: KernelProblem
    arithmetic: Arithmetic
    reducer: Reducer
    rows: int
    k: int
    vec: int
    columns: int
    threads: int
    lanes: int
    bounds: SumBounds | None

    @property
    def slot(self) -> str:
        """The template file that computes pairs."""
        return "math/sum_bounds.mako" if self.bounds else "math/row_sums.mako"

    @classmethod
    def of(
        cls, p: KernelProblem, c: Config, arithmetic: Arithmetic, reducer: Reducer, threads: int, sm: int
    ) -> ResidentRows:
        sizes = c.thread_rows, c.resident_k, c.columns_at_once, c.tile_columns, threads
        bounds = SumBounds(p, sm, *sizes) if c.lower_bounds else None
        return cls(p, arithmetic, reducer, *sizes, column_lanes(p), bounds)

    @property
    def ptx_type(self) -> str:
        """The PTX type of an element."""
        return register_class(self.problem.dtype)

    @property
    def bytes(self) -> int:
        """The number of bytes of an element."""
        return self.problem.element.bytes

    @property
    def load(self) -> str:
        """The PTX type of a load of one element."""
        return load_type(self.problem.dtype)

    def loads(self, vec: int) -> list[str]:
        """The instructions that load ``vec`` adjacent columns from shared memory."""
        each = min(vec, LOAD_BYTES // self.bytes)
        ptx_type, pitch = width(each, self.ptx_type), self.columns * self.bytes
        held: list[Callable[..., str]] = [partial(self.b.vector, k) for k in range(self.k)]
        if self.bounds is not None:
            held.append(self.bounds.columns_half.vector)
        return [
            f"ld.shared.{ptx_type} {vector(q, n=each)}, [%columns_addr+{k * pitch + q * self.bytes}];"
            for k, vector in enumerate(held)
            for q in range(0, vec, each)
        ]

    @property
    def row_elements(self) -> int:
        """The number of rows of a block."""
        return self.rows * self.row_threads

    @property
    def row_threads(self) -> int:
        """The number of threads, or warps, that have different rows."""
        return self.threads // self.lanes

    log2_lanes = Log2("lanes")

    @property
    def to_lane(self) -> list[str]:
        """The instructions that advance %columns_addr to the first column of this lane."""
        if self.lanes == 1:
            return []
        address = f"mad.lo.u32 %columns_addr, %tmp0, {self.vec * self.bytes}, %columns_addr;"
        return [f"and.b32 %tmp0, %thread, {self.lanes - 1};", address]

    @property
    def by_columns(self) -> bool:
        """True if columns after the last whole vector are computed one by one; else lanes ignore those that they do not
        have."""
        return self.lanes == 1 and self.vec > 1

    @property
    def copies(self) -> int:
        """The number of elements of a tile of columns that a thread copies, rounded up."""
        return -(-self.k * self.columns // self.threads)

    @property
    def copied_together(self) -> int:
        """The number of adjacent k that one access copies of a column."""
        b = self.problem.operands[1].access
        if self.lanes == 1 or not b.kmajor:
            return 1
        return math.gcd(self.k, b.vec, LOAD_BYTES // self.bytes)

    @property
    def vector_load(self) -> str:
        """The PTX type of a load of the elements that one access copies."""
        return width(self.copied_together, self.ptx_type)

    @property
    def vector_copies(self) -> list[VectorCopy]:
        """The copies of a thread, if one access copies several elements."""
        vec, pitch = self.copied_together, self.columns * self.bytes
        elements = self.copied_elements
        return [
            VectorCopy(
                n * self.threads,
                elements.vector(n * vec, n=vec),
                [(elements[n * vec + q], q * pitch) for q in range(vec)],
            )
            for n in range(-(-self.copies // vec))
        ]

    @property
    def has_vector(self) -> list[str]:
        """The instruction that sets %copies if the tile has the vector from %of_k on; none if it has all of them."""
        return [] if self.copies_all else [f"setp.lt.u32 %copies, %of_k, {self.k};"]

    @cached_property
    def copied_elements(self) -> Tile:
        """The registers of the elements that a thread copies as vectors."""
        vec = self.copied_together
        return Tile("element", self.ptx_type, (-(-self.copies // vec) * vec,))

    @property
    def copies_all(self) -> bool:
        """True if every thread copies the same number of elements."""
        return self.k * self.columns % (self.threads * self.copied_together) == 0

    @cached_property
    def a(self) -> Tile:
        return Tile("frag_a", self.ptx_type, (self.rows, self.k))

    @cached_property
    def b(self) -> Tile:
        return Tile("frag_b", self.ptx_type, (self.k, self.vec))

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.arithmetic.type, (self.rows, self.vec))

    @cached_property
    def _pattern(self) -> str:
        assert isinstance(self.reducer, ExpressionReducer)
        algebra = self.reducer.algebra
        return self.reducer.step_pattern([algebra.a, algebra.b])

    @property
    def step_temporaries(self) -> list[str]:
        return self.reducer.step_temporaries if isinstance(self.reducer, ExpressionReducer) else []

    def step_lines(self, r: int, k: int, q: int) -> list[str]:
        """The instructions of step ``k`` for row ``r`` and column ``q``."""
        acc, a, b = self.acc[r, q], self.a[r, k], self.b[k, q]
        if isinstance(self.reducer, ExpressionReducer):
            return self._pattern.format(acc, a, b).split("\n")
        return [f"{self.arithmetic.fma} {acc}, {a}, {b}, {acc};"]

    def row_bounds(self, r: int, columns: int, values: RowValues) -> RowBounds | None:
        """The bounds of row ``r`` for ``columns`` columns. None: the kernel has no bounds."""
        if self.bounds is None:
            return None
        row, several = range(self.k), range(columns)
        elements, sums = [self.a[r, k] for k in row], [self.acc[r, q] for q in several]
        return RowBounds(self.bounds, r, elements, [[self.b[k, q] for q in several] for k in row], sums, values.known)

    @property
    def row_starts(self) -> range:
        """The distances from a thread's first row to each of its rows."""
        return range(0, self.row_elements, self.row_threads)

    @property
    def copied(self) -> list[tuple[int, int]]:
        """For each copy of a thread: the first of the elements that the threads of the block copy together, and its
        offset in bytes."""
        return [(n * self.threads, n * self.threads * self.bytes) for n in range(self.copies)]

    @property
    def copy_guard(self) -> str:
        return "" if self.copies_all else "@%copies "

    @property
    def tile_elements(self) -> int:
        return self.k * self.columns

    @property
    def tile_bytes(self) -> int:
        """The number of bytes of a tile of columns in shared memory, including a number per column that bounds read."""
        return (self.k + (self.bounds is not None)) * self.columns * self.bytes

    column_mask = Mask("columns")
    log2_columns = Log2("columns")

    @property
    def vec_mask(self) -> int:
        """The mask that rounds a number of columns down to a multiple of ``vec``."""
        return -self.vec & 0xFFFFFFFF

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [
            (self.a, f"{self.rows} rows of A, whole"),
            (self.b, f"{self.vec} columns of B"),
            (self.acc, "reductions over k of their pairs"),
            *(self.bounds.register_table if self.bounds else []),
        ]

    @property
    def shared_map(self) -> list[str]:
        last = ", then what bounds read of each" if self.bounds else ""
        return [f"[0, {self.tile_bytes}) a tile of B: [k][column], {self.columns} columns{last}"]


@dataclass(frozen=True)
class GroupRow:
    """A row of a thread, for columns that are computed together. ``row``: its number; ``index``: the register with its
    index; ``sums``: the registers of the reductions over k; ``values``: the registers of the values for the sink."""

    row: int
    index: str
    sums: list[str]
    values: RowValues
    bounds: RowBounds | None


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that are computed together. ``step``: the columns of all lanes; ``prefix``: prefix of labels; ``loads``:
    the instructions that load the columns; ``bytes``: bytes of a row of their tile, for all lanes; ``last``: True for
    the columns after the last whole vector."""

    columns: int
    step: int
    prefix: str
    loads: list[str]
    bytes: int
    rows: list[GroupRow]
    last: bool

    @property
    def reloads(self) -> list[str]:
        """The instructions ``loads``, in a form that ptxas does not join with them."""
        return [line.replace("ld.shared.", "ld.volatile.shared.") for line in self.loads]

    @property
    def values(self) -> RowValues:
        return self.rows[0].values


class ResidentRowsPlan(Plan):
    """The plan of kernels that keep rows of A in registers and tiles of columns of B in shared memory."""

    kernel = "kernel/resident_rows.mako"
    mainloop: ResidentRows
    taken: ResidentStates | ResidentLists | BestValues  #: the part that takes the results
    parameter_meanings: Mapping[str, str] = {
        "part_columns": "columns of a part, a multiple of the tile's",
        "best_count": "best values of a row",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, ResidentRowsGeometry)
        p, c, sm = self.problem, self.config, self.device.sm
        self.scheduler = RowBlocks()
        self.mainloop = ResidentRows.of(p, c, self.arithmetic, self.reducer, self.threads, sm)
        self.values = ResultValues(p, sm, 1, 1, 1)
        self.parameters = ResidentRowsParameters(p, c)
        if isinstance(p.sink, RowReduce):
            self.taken = self.states = ResidentStates(p, sm, 1, rows=c.thread_rows, bounded=bool(c.lower_bounds))
            self.sink_kernels = ResidentReduceKernels(p, self.entry, self.states, c.column_parts)
        elif isinstance(p.sink, RowTop):
            values = RowValues(p, sm, c.columns_at_once, 1, 1).taken.of(0)
            self.taken = BestValues(p, sm, c.thread_rows, tuple(values), bool(c.lower_bounds))
        else:
            entries, start = queue_entries(c), self.mainloop.tile_bytes
            self.taken = self.selected = ResidentLists(p, entries, c.row_warps, start, bool(c.lower_bounds))

    def _group(self, columns: int, prefix: str) -> ColumnGroup:
        own = self.mainloop
        values = [RowValues(self.problem, self.device.sm, columns, 1, 1, row=r) for r in range(own.rows)]
        rows = [
            GroupRow(r, f"%row{r}", [own.acc[r, q] for q in range(columns)], x, own.row_bounds(r, columns, x))
            for r, x in enumerate(values)
        ]
        last = columns < own.vec
        step = columns * own.lanes
        return ColumnGroup(columns, step, prefix, own.loads(columns), step * own.bytes, rows, last)

    @cached_property
    def group(self) -> ColumnGroup:
        """The group of a whole vector of columns."""
        return self._group(self.mainloop.vec, "")

    @cached_property
    def single(self) -> ColumnGroup:
        """The group of one column."""
        return self._group(1, "LAST_")

    @property
    def row_vectors(self) -> list[tuple[ReadArray, Tile]]:
        """The arrays along i that values read, each with the registers of its elements."""
        rows = self.mainloop.rows
        return [(x, row_elements(x.name, x.element.type, rows)) for x in self.values.arrays if x.axes == "i"]

    accesses = "accesses of single elements of A and B"

    @property
    def preconditions(self) -> list[str]:
        return [f"K = {self.config.resident_k}"]

    @property
    def block_tile(self) -> str:
        return f"{self.mainloop.row_elements} rows x a part of the columns, {self.config.tile_columns} at once"

    def _launch(self, problem: KernelProblem) -> Launch:
        p, c = problem, self.config
        x = Launched(p, BatchRange(0, 1))
        size, _ = self.sink_kernels.workspace(p)
        steps = [Step("", (each.bytes, 1, 1), arguments=(("u64", each.array),)) for each in p.sink.resets]
        if p.results:
            grid = -(-p.m // self.mainloop.row_elements), c.column_parts, 1
            arguments = self.parameters.rows.arguments(x)
            steps.append(Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments))
        return Launch((*steps, *self.sink_kernels.after(x)), size)
