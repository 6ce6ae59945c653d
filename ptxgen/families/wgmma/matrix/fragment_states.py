"""Reductions of rows or columns of the values in fragments: the states of a thread, and the number of states of a
tile."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.sink_kernels import RowReduceKernels
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.families.wgmma.geometry import ROWS, WgmmaGeometry
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT, FragmentValues
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem

WARPS = 4  #: warps of a warpgroup


@dataclass(frozen=True)
class FragmentStates(RowStates):
    """The states of a thread: one for each of its rows along X, or one for each of two columns along Y. ``vec``: the
    number of rows; ``transposed``: True if X is along N."""

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
        """For each fragment along X, the (number of the state, register of the bounds of the other side) of its
        results."""
        numbers = [(m, q // 2, q % 2) for m in range(self.vec // 2) for q in range(FRAGMENT)]
        places = [(2 * m + h, f"%in_y{e}") if self.along_y else (e, f"%in_x{2 * m + h}") for m, h, e in numbers]
        return [places[n : n + FRAGMENT] for n in range(0, len(places), FRAGMENT)]

    @property
    def distances(self) -> tuple[int, ...]:
        """The distances of lanes that have values of the same state."""
        return (1, 2) if self.along_y else (4, 8, 16)


@dataclass(frozen=True)
class FragmentReduceKernels(RowReduceKernels):
    """The auxiliary kernel that joins states: those that blocks store for rows, or those that warps store for
    columns."""

    scheduler: TileScheduler
    geometry: WgmmaGeometry
    values: FragmentValues

    @property
    def fills(self) -> bool:
        """True if the workspace is filled first, because tiles in which no pair is reduced are skipped, or not
        listed."""
        return self.values.reachable is not None or self.scheduler.some_tiles

    @property
    def warps(self) -> int:
        """The number of warps of a tile; each has other rows along X."""
        return WARPS * int(self.geometry.x.tile) // (ROWS * int(self.geometry.math.mi))

    @property
    def part_columns(self) -> int:
        """The number of columns along Y whose values a block reduces."""
        return int(self.geometry.reduction.owner_columns)

    def blocks(self, along_y: bool) -> tuple[int, int]:
        """Returns the extent of the tiles of a cluster (columns along Y, or rows along X), and the number of its states
        of a result."""
        s, c = self.scheduler, self.scheduler.config
        if along_y:
            return s.y_tile * c.cluster_y, c.cluster_y * int(self.geometry.reduction.owners)
        return s.x_tile * c.cluster_x, c.cluster_x * self.warps

    def counts(self, p: KernelProblem) -> list[int]:
        x, y = (p.n, p.m) if self.scheduler.transposed else (p.m, p.n)
        counts = []
        for states in self.states.both:
            assert isinstance(states, FragmentStates)
            extent, count = self.blocks(states.along_y)
            counts.append(-(-(y if states.along_y else x) // extent) * count)
        return counts
