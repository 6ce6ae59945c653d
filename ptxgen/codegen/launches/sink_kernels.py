"""The kernels that a sink launches before and after the main kernel, and the sink's workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.launches.result_ranges import ResultRange
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    given,
    other_addresses,
    sink_offset,
    sink_parameters,
)
from ptxgen.codegen.parts.part import Allocator, Part, Reduction
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.codegen.parts.scheduler import GridScheduler
from ptxgen.codegen.parts.tile_walk import TileWalk
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Mask, ceil_div, integer
from ptxgen.lowering.kernel_problem import KernelProblem

ALIGNMENT = 16  #: alignment of the sink's workspace in bytes


@dataclass(frozen=True)
class SinkKernels(Part):
    """The base class of a sink's kernels, for sinks without any. ``entry``: the name of the main kernel."""

    problem: KernelProblem
    entry: str

    template = "epilogue/no_sink_kernels.mako"
    THREADS = 256

    def workspace(self, p: KernelProblem) -> tuple[int, str]:
        """The size in bytes and the meaning of the sink's workspace."""
        return 0, ""

    def allocate(self, p: KernelProblem, workspace: Allocator) -> int:
        """Claims the sink's workspace, and returns its offset in bytes."""
        size, meaning = self.workspace(p)
        return workspace.claim(size, meaning, ALIGNMENT).offset if size else 0

    def before(self, launched: Launched) -> tuple[Step, ...]:
        """The launches that precede the main kernel."""
        return ()

    def after(self, launched: Launched) -> tuple[Step, ...]:
        """The launches that follow the main kernel."""
        return ()

    def mirror_parts(self, p: KernelProblem) -> int:
        """The number of the first state of a result (j, i) in the sink's workspace."""
        return 0

    def kept_bytes(self, part: ResultRange | None) -> int:
        """The bytes of workspace that all ranges of results share."""
        return 0

    def _step(self, name: str, blocks: int, rows: Sequence[Parameters], launched: Launched | JoinedStates) -> Step:
        arguments = ParameterList(rows).arguments(launched)
        return Step(f"{self.entry}_{name}", (blocks, 1, 1), (self.THREADS, 1, 1), 0, arguments)


class JoinedStates(NamedTuple):
    """The states that one launch joins: ``parts`` states of each of ``results`` results, at ``sink_offset`` in the
    workspace. ``kept``: the offset of the kept states that they are joined with; ``first``: a number to add to their
    positions."""

    p: KernelProblem
    sink_offset: int
    results: int
    parts: int
    kept: int = 0
    first: int = 0


@dataclass(frozen=True)
class RowReduceKernels(SinkKernels):
    """The kernel that joins the states of each row, or of each column. A warp computes ``RESULTS`` results; the lanes
    of one result read different states.

    If results (j, i) are computed from the sums of (i, j), each range of rows has states of other results, too. Then
    another kernel joins the states of a range with kept ones, of which there is one for each result."""

    states: RowStates

    template = "epilogue/row_reduce_kernels.mako"
    RESULTS = 8
    FILL_BLOCKS = 1024  #: the most blocks of the kernel that fills states

    @property
    def fills(self) -> bool:
        """True if a kernel first sets all states to the identity, because the main kernel does not store every
        state."""
        return False

    @property
    def keeps(self) -> bool:
        """True if the results of a range of rows are not all of their values."""
        return self.states.mirrored

    def counts(self, p: KernelProblem) -> list[int]:
        """The number of states of a result (i, j) in the workspace, and that of a result (j, i) if it has states of its
        own."""
        raise NotImplementedError

    def results(self, p: KernelProblem) -> list[int]:
        """The number of results that have each of these counts of states."""
        results = list(self.states.results(p.m, p.n))
        return results if self.keeps else results[:1]

    def mirror_parts(self, p: KernelProblem) -> int:
        if not self.keeps or not p.results:
            return 0
        (direct, mirrored), count = self.results(p), self.counts(p)[0]
        return integer(ceil_div(count * direct, mirrored))  # type: ignore[no-any-return]

    def stored(self, p: KernelProblem) -> tuple[int, int]:
        """The results and the parts of all states in the workspace."""
        count = self.counts(p)[-1] if p.results else 0
        return self.results(p)[-1], self.mirror_parts(p) + count

    def workspace(self, p: KernelProblem) -> tuple[int, str]:
        results, parts = self.stored(p)
        return parts * results * self.states.entry_bytes, "states [part][result]"

    @property
    def rows(self) -> list[Parameters]:
        """The parameters of the kernel that joins states."""
        sizes = (
            Parameters("u32", ("results",), lambda x: (x.results,)),
            Parameters("u32", ("parts",), lambda x: (x.parts,)),
        )
        arrays = Parameters("u64", ("C", "W"), lambda _: (self.states.output, "W"))
        return [arrays, sink_offset(), *sizes]

    @property
    def keep_rows(self) -> list[Parameters]:
        """The parameters of the kernel that joins states with kept ones."""
        kept = Parameters("u64", ("kept",), lambda x: (x.kept,)), Parameters("u32", ("first",), lambda x: (x.first,))
        return [*self.rows, *kept]

    @property
    def declarations(self) -> list[str]:
        return ParameterList(self.rows).declarations

    @property
    def keep_declarations(self) -> list[str]:
        return ParameterList(self.keep_rows).declarations

    def before(self, launched: Launched) -> tuple[Step, ...]:
        p, part = launched.p, launched.part
        results, parts = self.stored(p)
        count, steps = parts * results, list[Step]()
        if self.keeps and part is not None and part.first == 0:
            steps.append(self._keep(JoinedStates(p, launched.sink_offset, part.results, 0, self._kept(part))))
        if self.fills and count:
            fill = JoinedStates(p, launched.sink_offset, results, parts)
            steps.append(self._step("fill", min(ceil_div(count, self.THREADS), self.FILL_BLOCKS), self.rows, fill))
        return tuple(steps)

    def after(self, launched: Launched) -> tuple[Step, ...]:
        p, at, part = launched.p, launched.sink_offset, launched.part
        if part is None or not self.keeps:
            results, parts = self.states.results(p.m, p.n)[0], self.stored(p)[1]
            return (self._join(JoinedStates(p, at, results, parts)),) if results else ()
        kept, (direct, mirrored), counts = self._kept(part), self.results(p), self.counts(p)
        after = at + self.mirror_parts(p) * mirrored * self.states.entry_bytes
        steps = [
            self._keep(JoinedStates(p, at, direct, counts[0], kept, part.first)),
            self._keep(JoinedStates(p, after, mirrored, counts[1], kept, part.first)),
        ]
        if part.end == part.results:
            steps.append(self._join(JoinedStates(p, part.kept, part.results, 1)))
        return tuple(steps)

    def kept_bytes(self, part: ResultRange | None) -> int:
        """The bytes of the kept states."""
        return 0 if part is None or not self.keeps else part.results * self.states.entry_bytes

    def _kept(self, part: ResultRange) -> int:
        """The offset of the kept state of the first result of a range."""
        return part.kept + part.first * self.states.entry_bytes

    def _join(self, joined: JoinedStates) -> Step:
        return self._step("join", ceil_div(joined.results, self.RESULTS), self.rows, joined)

    def _keep(self, joined: JoinedStates) -> Step:
        return self._step("keep", ceil_div(joined.results, self.RESULTS), self.keep_rows, joined)

    @property
    def fill_bytes(self) -> int:
        """The number of bytes of the states that a block fills at once."""
        return self.THREADS * self.states.entry_bytes

    @property
    def part_bytes(self) -> int:
        """The number of bytes of a result's states that its lanes and warps join at once."""
        return WARP * self.states.entry_bytes

    @property
    def warp_bytes(self) -> int:
        """The number of bytes of the states of a warp in shared memory."""
        return self.RESULTS * self.states.entry_bytes

    @property
    def joined_bytes(self) -> int:
        return self.THREADS // WARP * self.warp_bytes

    result_mask = Mask("RESULTS")

    @property
    def other_states(self) -> list[list[tuple[str, str, int]]]:
        """For each warp except the first: type, register and byte offset of each component of its state in shared
        memory."""
        return [
            [
                (ptx_type, self.states.other[n][0], at + offset)
                for n, (ptx_type, offset) in enumerate(self.states.components)
            ]
            for at in range(self.warp_bytes, self.joined_bytes, self.warp_bytes)
        ]


@dataclass(frozen=True)
class TileReduceKernels(RowReduceKernels):
    """The kernel that joins states, each of a tile in shared memory or of a vector of sums of slices."""

    scheduler: GridScheduler
    reduction: Reduction
    walk: TileWalk

    @property
    def fills(self) -> bool:
        return self.scheduler.some_tiles

    @property
    def stores_tiles(self) -> bool:
        """True if the blocks of the main kernel store states of their tiles."""
        return not self.reduction.stores_partials

    def counts(self, p: KernelProblem) -> list[int]:
        return [self._parts(p, states.of_rows) for states in self.states.both]

    def _parts(self, p: KernelProblem, of_rows: bool) -> int:
        """The number of states of a row of C, or of a column."""
        if self.reduction.stores_partials:
            return int(p.n // self.walk.vec if of_rows else p.m)
        tiles_m, tiles_n, _ = self.scheduler.tiles(p)
        return tiles_n if of_rows else tiles_m * self.walk.bands


@dataclass(frozen=True)
class ColumnSumKernels(RowReduceKernels):
    """The kernel that adds the sums of columns, of which there is one for each ``part_rows`` rows of a tile."""

    scheduler: GridScheduler
    part_rows: int

    def counts(self, p: KernelProblem) -> list[int]:
        tiles, _, _ = self.scheduler.tiles(p)
        return [tiles * self.scheduler.config.ml // self.part_rows]


@dataclass(frozen=True)
class AggregateKernels(SinkKernels):
    """The kernels of an aggregation. One fills C with the identity before the main kernel. If the order of additions is
    fixed, a second kernel adds the values of each column of results by row groups, and a third adds these sums by
    column groups."""

    groups: GroupReduction

    template = "epilogue/aggregate_kernels.mako"
    FILL_BLOCKS = 1024  #: the most blocks of the kernel that fills C

    def _inner_groups(self, p: KernelProblem) -> int:
        """The number of groups that the key of axis i selects from."""
        rows, columns = p.sink.groups
        return integer(columns if p.sink.transposed else rows)  # type: ignore[no-any-return]

    def workspace(self, p: KernelProblem) -> tuple[int, str]:
        if not p.sink.ordered or p.results == 0:
            return 0, ""
        return (p.m + self._inner_groups(p)) * p.n * self.groups.bytes, "values [M][N], sums [group][N]"

    @property
    def rows(self) -> list[Parameters]:
        """The parameters of each kernel."""
        sizes = Parameters("u32", ("M", "N"), lambda x: (x.p.m, x.p.n))
        return [given("u64", "C", "W"), *other_addresses(self.problem), sizes, *sink_parameters(self.problem)]

    @property
    def declarations(self) -> list[str]:
        return ParameterList(self.rows).declarations

    @property
    def names(self) -> tuple[str, ...]:
        return ("fill", "add_rows", "add_columns") if self.groups.sink.ordered else ("fill",)

    def before(self, launched: Launched) -> tuple[Step, ...]:
        rows, columns = launched.p.sink.groups
        blocks = min(max(ceil_div(rows * columns, self.THREADS), 1), self.FILL_BLOCKS)
        return (self._step("fill", blocks, self.rows, launched),)

    def after(self, launched: Launched) -> tuple[Step, ...]:
        p = launched.p
        if not p.sink.ordered or p.results == 0:
            return ()
        counts = {"add_rows": p.n, "add_columns": self._inner_groups(p)}
        return tuple(
            self._step(name, ceil_div(n, self.THREADS), self.rows, launched) for name, n in counts.items() if n
        )

    @property
    def block_bytes(self) -> int:
        """The number of bytes of the values that a block reduces at once."""
        return self.THREADS * self.groups.bytes
