"""Reductions of rows or columns of the values in fragments: the states of a thread, and how many a tile has."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.sink_kernels import RowReduceKernels
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.families.wgmma.geometry import ROWS, WgmmaGeometry
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
    def distances(self) -> tuple[int, ...]:
        """Distances of the lanes with values of the same state."""
        return (1, 2) if self.along_y else (4, 8, 16)


@dataclass(frozen=True)
class FragmentReduceKernels(RowReduceKernels):
    """The kernel that joins the states of rows of blocks, or of columns of warps."""

    scheduler: TileScheduler
    geometry: WgmmaGeometry

    @property
    def warps(self) -> int:
        """Warps that share a tile: each has other rows along X."""
        return WARPS * int(self.geometry.x.tile) // (ROWS * int(self.geometry.math.mi))

    @property
    def part_columns(self) -> int:
        """Columns along Y of which a block reduces the values."""
        return int(self.geometry.reduction.owner_columns)

    def parts(self, p: KernelProblem) -> int:
        if p.results == 0:
            return 0
        across, down, _ = self.scheduler.tiles(p)
        assert isinstance(self.states, FragmentStates)
        return down * int(self.geometry.reduction.owners) if self.states.along_y else across * self.warps
