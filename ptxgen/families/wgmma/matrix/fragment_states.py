"""Reductions of rows or columns of the values in fragments: the states of a thread, and how many a tile has."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.sink_kernels import RowReduceKernels
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.families.wgmma.geometry import ROWS, WgmmaGeometry
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT, FragmentValues
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem

WARPS = 4  #: of a warpgroup


@dataclass(frozen=True)
class FragmentStates(RowStates):
    """A thread has a state of each of its rows along X, or of two columns along Y. ``vec``: the rows. ``transposed``: X
    is along N."""

    transposed: bool = False

    @property
    def along_y(self) -> bool:
        """True if values along Y are reduced, so that rows along X have states."""
        return self.of_rows != self.transposed

    @property
    def count(self) -> int:
        return self.vec if self.along_y else 2

    @property
    def fragment_places(self) -> list[list[tuple[int, str]]]:
        """Pairs (number of the state, register of the bounds of the other side) of the results of each fragment along
        X."""
        numbers = [(m, q // 2, q % 2) for m in range(self.vec // 2) for q in range(FRAGMENT)]
        places = [(2 * m + h, f"%in_y{e}") if self.along_y else (e, f"%in_x{2 * m + h}") for m, h, e in numbers]
        return [places[n : n + FRAGMENT] for n in range(0, len(places), FRAGMENT)]

    @property
    def distances(self) -> tuple[int, ...]:
        """Distances of the lanes with values of the same state."""
        return (1, 2) if self.along_y else (4, 8, 16)


@dataclass(frozen=True)
class FragmentReduceKernels(RowReduceKernels):
    """The kernel that joins the states of rows of blocks, or of columns of warps."""

    scheduler: TileScheduler
    geometry: WgmmaGeometry
    values: FragmentValues

    @property
    def fills(self) -> bool:
        """Tiles in which no pair is reduced are skipped."""
        return self.values.reachable is not None

    @property
    def warps(self) -> int:
        """Warps that share a tile: each has other rows along X."""
        return WARPS * int(self.geometry.x.tile) // (ROWS * int(self.geometry.math.mi))

    @property
    def part_columns(self) -> int:
        """Columns along Y of which a block reduces the values."""
        return int(self.geometry.reduction.owner_columns)

    @property
    def parts_before(self) -> tuple[str, int, int, int]:
        """The parts of results (i, j), which come before those of (j, i): register of the extent, what rounds it up,
        extent of the tiles of a cluster, states of a result."""
        assert isinstance(self.states, FragmentStates)
        extent, count = self.blocks(self.states.along_y)
        s = self.scheduler
        return s.y_extent if self.states.along_y else s.x_extent, extent - 1, extent, count

    def blocks(self, along_y: bool) -> tuple[int, int]:
        """The tuple (columns along Y, or rows along X, of the tiles of a cluster; how many states of a result it
        has)."""
        s, c = self.scheduler, self.scheduler.config
        if along_y:
            return s.y_tile * c.cluster_y, c.cluster_y * int(self.geometry.reduction.owners)
        return s.x_tile * c.cluster_x, c.cluster_x * self.warps

    def parts(self, p: KernelProblem) -> int:
        """States of a result in the workspace: those of results (j, i) that are taken from the sums of (i, j) come
        last."""
        if p.results == 0:
            return 0
        parts = 0
        for states in (self.states, self.states.mirror):
            if states is not None:
                assert isinstance(states, FragmentStates)
                extent, count = self.blocks(states.along_y)
                x, y = (p.n, p.m) if self.scheduler.transposed else (p.m, p.n)
                parts += -(-(y if states.along_y else x) // extent) * count
        return parts
