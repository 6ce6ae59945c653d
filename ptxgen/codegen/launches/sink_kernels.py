"""The kernels that a sink launches before and after the main kernel, and the sink's workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given, other_addresses, sink_parameters
from ptxgen.codegen.parts.part import Allocator, Part, Reduction
from ptxgen.codegen.parts.row_states import RowStates, results_of
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

    def _step(self, name: str, blocks: int, rows: Sequence[Parameters], launched: Launched) -> Step:
        arguments = ParameterList(rows).arguments(launched)
        return Step(f"{self.entry}_{name}", (blocks, 1, 1), (self.THREADS, 1, 1), 0, arguments)


@dataclass(frozen=True)
class RowReduceKernels(SinkKernels):
    """The kernel that joins the states of each row, or of each column. A warp computes ``RESULTS`` results; the lanes
    of one result read different states."""

    states: RowStates

    template = "epilogue/row_reduce_kernels.mako"
    RESULTS = 8
    FILL_BLOCKS = 1024  #: the most blocks of the kernel that fills states

    @property
    def fills(self) -> bool:
        """True if a kernel first sets all states to the identity, because the main kernel does not store every
        state."""
        return False

    def parts(self, p: KernelProblem) -> int:
        """The number of states of one result in the workspace."""
        raise NotImplementedError

    def workspace(self, p: KernelProblem) -> tuple[int, str]:
        results, _ = results_of(self.states.sink, p.m, p.n)
        return self.parts(p) * results * self.states.entry_bytes, "states [part][result]"

    @property
    def rows(self) -> list[Parameters]:
        """The parameters of the kernel that joins states."""
        results = Parameters("u32", ("results",), lambda x: (results_of(self.states.sink, x.p.m, x.p.n)[0],))
        parts = Parameters("u32", ("parts",), lambda x: (self.parts(x.p),))
        return [given("u64", "C", "W"), *sink_parameters(self.problem)[-1:], results, parts]

    @property
    def declarations(self) -> list[str]:
        return ParameterList(self.rows).declarations

    def before(self, launched: Launched) -> tuple[Step, ...]:
        results, _ = results_of(self.states.sink, launched.p.m, launched.p.n)
        count = self.parts(launched.p) * results
        if not self.fills or not count:
            return ()
        return (self._step("fill", min(ceil_div(count, self.THREADS), self.FILL_BLOCKS), self.rows, launched),)

    def after(self, launched: Launched) -> tuple[Step, ...]:
        results, _ = results_of(self.states.sink, launched.p.m, launched.p.n)
        if not results:
            return ()
        return (self._step("join", ceil_div(results, self.RESULTS), self.rows, launched),)

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
    def stores_tiles(self) -> bool:
        """True if the blocks of the main kernel store states of their tiles."""
        return not self.reduction.stores_partials

    def parts(self, p: KernelProblem) -> int:
        """The number of states of one result in the workspace. States of results (j, i) that are computed from the sums
        of (i, j) come last."""
        every = (self.states, self.states.mirror)
        return sum(self._parts(p, states.of_rows) for states in every if states is not None) if p.results else 0

    def _parts(self, p: KernelProblem, of_rows: bool) -> int:
        """The number of states of a row of C, or of a column."""
        if self.reduction.stores_partials:
            return int(p.n // self.walk.vec if of_rows else p.m)
        tiles_m, tiles_n, _ = self.scheduler.tiles(p)
        return tiles_n if of_rows else tiles_m * self.walk.bands


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
