"""The plan of a kernel with private groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.codegen.parts.parameters import KernelParameters, ParameterList, Parameters, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, braces, load_type, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import WARP, Log2, Mask, ceil_div
from ptxgen.expr.instructions import literal, register_class
from ptxgen.expr.node import constant
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.families.private_groups.geometry import (
    COUNT_BYTES,
    WORKSPACE_ALIGNMENT,
    PrivateGroupsGeometry,
    packs,
    sink_of,
)
from ptxgen.lowering.element_groups import ElementGroups
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import dtype

#: True if keys are those of rows -> the template of the schedule
KERNELS = {True: "kernel/keyed_rows.mako", False: "kernel/keyed_columns.mako"}


@dataclass(frozen=True)
class Slices:
    """The tile scheduler: a block reduces a strip of columns, or some rows, of a slice."""

    grid_text: str = "(strips of columns, or blocks of rows; slices; 1)"


@dataclass(frozen=True)
class Launched:
    """The sizes of one launch. ``slice``: rows, or columns, of a slice; ``slices``: the number of slices; ``elements``:
    elements of a result; ``held``: bytes of one."""

    problem: KernelProblem
    slice: int
    slices: int
    elements: int
    held: int

    @property
    def counts(self) -> int:
        """The offset in the workspace of the numbers of rejected keys, in bytes."""
        return int(ceil_div(self.slices * self.elements * self.held, WORKSPACE_ALIGNMENT)) * WORKSPACE_ALIGNMENT

    @property
    def workspace(self) -> int:
        return self.counts + COUNT_BYTES * self.slices if self.slices > 1 else 0


def _slicing(sliced: bool) -> list[Parameters]:
    """The further parameters of a kernel with slices."""
    if not sliced:
        return []
    return [Parameters("u64", ("elements", "counts"), lambda x: (x.elements, x.counts))]


@dataclass(frozen=True)
class PrivateGroupsParameters(KernelParameters):
    """The parameters of private_groups kernels. ``sliced``: True if blocks store partial results in the workspace."""

    sink: ElementGroups
    sliced: bool

    @property
    def declared(self) -> list[Parameters]:
        arrays = (self.sink.array.name, self.sink.keys_read.name, *(("W",) if self.sliced else ("C", "rejected")))
        return [
            given("u64", *arrays),
            Parameters("u32", ("M", "N", "slice"), lambda x: (x.problem.m, x.problem.n, x.slice)),
            *_slicing(self.sliced),
        ]


@dataclass(frozen=True)
class SliceSums(Part):
    """The second kernel, which joins the results of the slices in their order. ``sliced``: False: there is no second
    kernel."""

    sliced: bool
    THREADS = 256
    MOST_BLOCKS = 4096
    AT_ONCE = 4  #: slices that a thread loads at once

    @property
    def rows(self) -> ParameterList:
        slices = Parameters("u32", ("slices", "pairs"), lambda x: (x.slices, _pairs(x.problem)))
        return ParameterList([given("u64", "W", "C", "rejected"), slices, *_slicing(True)])


def _pairs(p: KernelProblem) -> int:
    """The number of array elements that have one key in common."""
    return int(p.n if p.sink.by_rows else p.m)


@dataclass(frozen=True)
class PrivateGroups(Part):
    """The copies of the groups, and the loads of elements and keys.

    ``vec``: adjacent elements of a lane; ``loads``: loads of a lane at once, from each row of its warp if keys are
    those of columns; ``rows``: rows of a warp; ``warps``: warps of a block; ``copy_bytes``: bytes from one group to the
    next; ``warp_bytes``: bytes of shared memory of a warp.
    """

    sink: ElementGroups
    sm: int
    vec: int
    loads: int
    rows: int
    warps: int
    copy_bytes: int
    warp_bytes: int

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: PrivateGroupsGeometry, sm: int) -> PrivateGroups:
        sink = sink_of(p)
        assert sink is not None
        own = (c.array_vec, c.loads, c.warp_rows, c.copy_warps)
        return cls(sink, sm, *own, int(g.copy_bytes), int(g.warp_bytes))

    # ---- numbers

    @property
    def count(self) -> int:
        """The number of groups. A further group with this number collects the elements that are not reduced."""
        return self.sink.count

    @property
    def held(self) -> int:
        """The number of bytes of a value."""
        return self.sink.value_bytes

    @property
    def size(self) -> int:
        """The number of bytes of an element of the array."""
        return dtype(self.sink.array.element.type).bytes

    @property
    def row_bytes(self) -> int:
        """The number of bytes of the copies for one row of a warp."""
        return self.copy_bytes * (self.count + 1)

    @property
    def lane_bytes(self) -> int:
        """The number of bytes of a lane's copy of one group."""
        return self.copy_bytes // WARP

    @property
    def counts_at(self) -> int:
        """The offset in shared memory of the numbers of rejected keys."""
        return self.warps * self.warp_bytes

    @property
    def span(self) -> int:
        """The number of columns that one vector load of a warp covers."""
        return WARP * self.vec

    @property
    def threads(self) -> int:
        return WARP * self.warps

    @property
    def stage_rows(self) -> int:
        """The number of rows that all warps load at once."""
        return self.loads * self.warps

    @property
    def stage_columns(self) -> int:
        """The number of columns that a warp loads at once."""
        return self.loads * self.span

    log2_span = Log2("span")

    @property
    def copied(self) -> int:
        """The number of groups that a warp clears, over all its rows."""
        return (self.count + 1) * self.rows

    @property
    def clear_loop(self) -> tuple[int, int]:
        """The number of iterations that clear ``CLEARED`` groups each, and the number of groups left after them."""
        return divmod(self.copied, self.CLEARED)

    CLEARED = 8  #: groups that an iteration clears
    JOINED = 4  #: partial results by which the copies of a group are joined
    COUNTED = 8  #: keys that a thread counts at once

    # ---- elements

    @property
    def element(self) -> str:
        return self.sink.array.element.type

    @property
    def element_class(self) -> str:
        """The PTX type of a register with an element."""
        return register_class(self.element)

    @property
    def element_load(self) -> str:
        """The type of a load of an element."""
        return load_type(self.element)

    @property
    def packed(self) -> bool:
        """True if a register holds two elements."""
        return packs(self.element) and self.vec > 1

    @property
    def word_class(self) -> str:
        """The PTX type of a register with elements in flight."""
        return "b32" if self.packed else self.element_class

    @property
    def no_word(self) -> str:
        return literal(constant(0, self.element)) if not self.packed else "0"

    @property
    def words(self) -> int:
        """The number of registers for the elements of a load."""
        return self.vec // 2 if self.packed else self.vec

    @property
    def vector_load(self) -> str:
        """The type of the load of a vector."""
        return width(self.words, "b32" if self.packed else self.element_load)

    @property
    def vector_bytes(self) -> int:
        return self.vec * self.size

    @cached_property
    def array(self) -> Tile:
        return Tile("loaded", self.word_class, (self.rows, self.loads, self.words))

    @cached_property
    def one(self) -> Tile:
        """The registers of unpacked elements of a vector."""
        return Tile("unpacked", self.element_class, (2, self.vec))

    # ---- keys

    @property
    def key_type(self) -> str:
        return self.sink.keys_read.element.type

    @property
    def key_bytes(self) -> int:
        return dtype(self.key_type).bytes

    @property
    def key_load(self) -> str:
        return load_type(self.key_type)

    @property
    def key_pieces(self) -> list[tuple[int, int]]:
        """The loads of the keys of a vector, if they are aligned, as (first key, number of keys)."""
        step = min(self.vec, 4)
        return [(q, step) for q in range(0, self.vec, step)]

    @property
    def key_alignment(self) -> int:
        """The number of bytes of the widest load of keys."""
        return min(self.vec, 4) * self.key_bytes

    @cached_property
    def keys(self) -> Tile:
        """The registers of keys as loaded: keys of the rows, one per lane, or keys of the columns of each vector."""
        return Tile("key", "b32", (1, 1) if self.sink.by_rows else (self.loads, self.vec))

    @cached_property
    def group_addr(self) -> Tile:
        """The registers with the addresses of the copies of two groups."""
        return Tile("group_addr", "b32", (2,))

    def key_lines(self, register: str) -> list[str]:
        """The instructions that compute the key from a loaded element, in place."""
        return self._key(register, Temporaries("k"))

    def _key(self, register: str, used: Temporaries) -> list[str]:
        row, column = self.sink.keys
        root = row if self.sink.by_rows else column
        known = {self.sink.keys_read.element: register}
        return statements([root], known, ["%key_now"], sm=self.sm, temporaries=used).lines

    # ---- values

    @property
    def ptx_type(self) -> str:
        """The PTX type of a value."""
        return register_class(self.sink.value.type)

    @cached_property
    def values(self) -> Tile:
        """The registers of the values of two vectors, or of two elements of each row."""
        return Tile("value", self.ptx_type, (2, self.vec if self.sink.by_rows else self.rows))

    @cached_property
    def group(self) -> Tile:
        """The registers of the current contents of the groups to which ``values`` belong."""
        return Tile("group", self.ptx_type, (2, self.vec if self.sink.by_rows else self.rows))

    @property
    def held_access(self) -> str:
        """The PTX type of accesses to a lane's values of a group."""
        return width(self.lane_values, self.ptx_type)

    @property
    def lane_values(self) -> int:
        """The number of values that a lane has of a group."""
        return self.lane_bytes // self.held

    def value_lines(self, element: str, into: str) -> list[str]:
        """The instructions that compute the value of an element."""
        return self._value(element, into, Temporaries("v"))

    def _value(self, element: str, into: str, used: Temporaries) -> list[str]:
        known = {self.sink.array.element: element}
        return statements([self.sink.value], known, [into], sm=self.sm, temporaries=used).lines

    @property
    def declarations(self) -> list[str]:
        """The declarations of temporary registers for keys and values."""
        keys, values = Temporaries("k"), Temporaries("v")
        self._key("%key_now", keys)
        self._value("%unpacked0", "%value0", values)
        return [*keys.declarations, *values.declarations]

    @property
    def step_guards(self) -> tuple[str, str]:
        """The predicates of the stores of the groups of a step."""
        return ("", "@!%same ")

    @property
    def keys_aligned(self) -> list[str]:
        """The instructions that test whether vectors of keys are aligned."""
        if self.vec == 1:
            return []
        mask = self.key_alignment - 1
        return [f"and.b64 %wide, %keys, {mask};", "setp.eq.and.u64 %aligned, %wide, 0, %aligned;"]

    @property
    def key_access(self) -> str:
        """The type of a load of keys."""
        return width(min(self.vec, 4), self.key_load)

    @property
    def key_offsets(self) -> range:
        """The offset of the key of each column."""
        return range(0, self.stage_columns * self.key_bytes, self.key_bytes)

    @property
    def key_loads(self) -> list[list[tuple[str, int]]]:
        """For each vector, the loads of its keys as (registers, offset)."""
        return [
            [(self.keys.vector(t, q, n=n), self.key_offsets[columns[q]]) for q, n in self.key_pieces]
            for t, columns in enumerate(self.vector_columns)
        ]

    @property
    def vector_columns(self) -> list[range]:
        """For each vector of a lane, its columns counted from the lane's first."""
        return [range(first, first + self.vec) for first in range(0, self.stage_columns, self.span)]

    @property
    def element_offsets(self) -> list[range]:
        """For each vector, the offsets of its elements."""
        return [
            range(columns[0] * self.size, (columns[0] + self.vec) * self.size, self.size)
            for columns in self.vector_columns
        ]

    @property
    def row_offsets(self) -> range:
        """The offsets of the copies for each row of a warp."""
        return range(0, self.rows * self.row_bytes, self.row_bytes)

    @property
    def copy_joins(self) -> list[tuple[str, str]]:
        """For each copy of a group: its register, and the partial result that it joins."""
        return [
            (f"%joined{n}", "") if n < self.JOINED else ("%other_copy", f"%joined{n % self.JOINED}")
            for n in range(WARP)
        ]

    @property
    def counted_keys(self) -> range:
        """The first key of each set of keys that the threads count together."""
        return range(0, self.counted_step, self.threads)

    @property
    def counted_step(self) -> int:
        return self.COUNTED * self.threads

    @property
    def other_warps(self) -> int:
        return max(self.warps - 1, 1)

    @property
    def other_copies(self) -> range:
        """The offsets of the copies of all warps but the first."""
        return range(self.warp_bytes, self.warps * self.warp_bytes, self.warp_bytes)

    @property
    def strip_elements(self) -> int:
        """The number of result elements of a strip of columns."""
        return self.count * self.span

    span_mask = Mask("span")

    @property
    def sliced_extent(self) -> str:
        return "%M" if self.sink.by_rows else "%N"

    vector_mask = Mask("vector_bytes")

    @property
    def clear_operand(self) -> str:
        return braces(["%clear"] * self.lane_values)

    @property
    def clear_offsets(self) -> range:
        return range(0, self.clear_step_bytes, self.copy_bytes)

    @property
    def clear_step_bytes(self) -> int:
        return self.CLEARED * self.copy_bytes

    @property
    def clear_loop_bytes(self) -> int:
        return self.clear_loop[0] * self.clear_step_bytes

    @property
    def count_offsets(self) -> range:
        """The offsets of each warp's number of rejected keys."""
        return range(self.counts_at, self.counts_at + COUNT_BYTES * self.warps, COUNT_BYTES)

    @property
    def second_elements(self) -> dict[int, tuple[int, str]]:
        """Index of the second element of a pair -> (word, register of the first element)."""
        return {q: (q // 2, self.one[0, q - 1]) for q in range(1, self.vec, 2)}

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        where = f"{self.loads} loads" + (f" from {self.rows} rows" if self.rows > 1 else "")
        return [
            (self.array, f"elements in flight: {where}, vectors of {self.vec}"),
            (self.keys, "keys of the rows, one per lane" if self.sink.by_rows else "keys of columns"),
            (self.values, "values of two vectors or elements that are reduced together"),
            (self.group, "what their groups hold"),
            *([(self.one, "unpacked elements")] if self.packed else []),
            (self.group_addr, "addresses of the copies of two groups"),
        ]

    @property
    def shared_map(self) -> list[str]:
        copies = f"{self.copied} groups of {self.copy_bytes} bytes"
        return [
            f"[0, {self.counts_at}) copies of the groups: {self.warps} warps with {copies}",
            f"[{self.counts_at}, {self.counts_at + COUNT_BYTES * self.warps}) rejected keys of each warp",
        ]

    @property
    def steps(self) -> list[list[tuple[int, int]]]:
        """The elements that are reduced together, one or two at a time, as (load, element of the vector). If keys are
        those of rows, the element is 0."""
        every = [(t, q) for t in range(self.loads) for q in range(1 if self.sink.by_rows else self.vec)]
        return [every[n : n + 2] for n in range(0, len(every), 2)]

    def element_lines(self, k: int, t: int, q: int, pair: int) -> list[str]:
        """The instructions that compute the value of an element of row ``k``."""
        element, unpack = self.source(k, t, q, pair)
        return [*unpack, *self.value_lines(element, self.values[pair, k])]

    def row_lines(self, t: int, q: int, pair: int) -> list[str]:
        """The instructions that compute the value of an element of a vector. Those of the first element of a word
        unpack both elements."""
        element, unpack = self.source(0, t, q, pair)
        return [*(unpack if q % 2 == 0 else ()), *self.value_lines(element, self.values[pair, q])]

    def source(self, k: int, t: int, q: int, pair: int) -> tuple[str, list[str]]:
        """The register with element ``q`` of a load, and the instructions that unpack it."""
        if not self.packed:
            return self.array[k, t, q], []
        low, high = self.one[pair, q & ~1], self.one[pair, q | 1]
        return self.one[pair, q], [f"mov.b32 {{{low}, {high}}}, {self.array[k, t, q // 2]};"]


class PrivateGroupsPlan(Plan):
    mainloop: PrivateGroups
    joins: SliceSums
    parameter_meanings: Mapping[str, str] = {
        "slice": "rows, or columns, of a slice",
        "elements": "of the result, in the workspace for each slice",
        "counts": "bytes of the workspace before the numbers of rejected keys",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, PrivateGroupsGeometry)
        p, c, sm = self.problem, self.config, self.device.sm
        sink = sink_of(p)
        assert sink is not None
        self.kernel = KERNELS[sink.by_rows]
        self.scheduler = Slices()
        self.sliced = c.kg > 1
        self.groups = GroupReduction(p, sm, ResultValues(p, sm, 1, 1, 1))
        self.mainloop = PrivateGroups.of(p, c, self.geometry, sm)
        self.joins = SliceSums(self.sliced)
        self.parameters = PrivateGroupsParameters(sink, self.sliced)

    numbers = "M and N"

    @property
    def accesses(self) -> str:
        rows = self.mainloop
        return f"accesses of {rows.vec} elements of {rows.sink.array.name}, of one where it is not aligned"

    @property
    def preconditions(self) -> list[str]:
        return [f"rows of {self.mainloop.sink.array.name} one after the other; {self.mainloop.count} groups"]

    @property
    def block_tile(self) -> str:
        rows = self.mainloop
        return f"{rows.span} columns" if rows.sink.by_rows else f"{rows.warps * rows.rows} rows"

    def _launch(self, problem: KernelProblem) -> Launch:
        p, c, loop = problem, self.config, self.mainloop
        blocks = max(ceil_div(p.n, loop.span) if loop.sink.by_rows else ceil_div(p.m, loop.warps * loop.rows), 1)
        units, step = (p.m, 1) if loop.sink.by_rows else (ceil_div(p.n, loop.span), loop.span)
        elements = int(p.sink.groups[0]) * int(p.sink.groups[1])
        x = Launched(p, int(ceil_div(units, c.kg)) * step, c.kg, elements, loop.held)
        block = (self.threads, 1, 1)
        main = Step(self.entry, (int(blocks), c.kg, 1), block, self.shared, self.parameters.rows.arguments(x))
        if not self.sliced:
            return Launch((main,))
        joins = self.joins
        count = min(max(ceil_div(elements, joins.THREADS), 1), joins.MOST_BLOCKS)
        join = Step(f"{self.entry}_join", (count, 1, 1), (joins.THREADS, 1, 1), 0, joins.rows.arguments(x))
        return Launch((main, join), x.workspace)

    @property
    def slices(self) -> str:
        """The template file that stores the results of a block."""
        return "math/group_slices.mako" if self.sliced else "math/group_results.mako"
