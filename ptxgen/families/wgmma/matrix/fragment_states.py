"""Reductions of rows or columns of the values in fragments: the states of a thread, and the number of states of a
tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.launches.sink_kernels import RowReduceKernels
from ptxgen.codegen.parts.column_sums import ColumnSums
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.codegen.registers import Tile
from ptxgen.expr.instructions import literal, register_class
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, WgmmaGeometry
from ptxgen.families.wgmma.matrix.epilogue import Stmatrix
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT, FragmentValues
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.states import LOGSUMEXP

WARPS = 4  #: warps of a warpgroup
GROUPS = 2  #: groups of columns whose exponentials are added to a state together
FRAGMENT_ROWS = 8  #: rows from one row of a thread to its next in a fragment that stmatrix stores


class KeptValue(NamedTuple):
    """A value that is kept until others are there. ``to``: the register that keeps it; ``value``: its register;
    ``counts``, ``inside``: the predicates that must both be true, else it is no value."""

    to: str
    value: str
    counts: str
    inside: str


class JointGroups(NamedTuple):
    """Groups of columns whose values are added to states together. ``members``: for each group, its number in the
    batch, the group, and for each fragment along X its values; ``additions``: the instructions that add the kept
    values; ``first``: the first group."""

    members: list[tuple[int, int, list[list[KeptValue]]]]
    additions: list[str]
    first: int


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

    # ---- values that are added together

    @property
    def together(self) -> int:
        """An exponential takes long, and changes a state before the next one: those of several columns are added
        together."""
        return 2 * GROUPS if self.along_y and self.reduction.op == LOGSUMEXP else 1

    @property
    def adds_together(self) -> bool:
        return self.together > 1

    @cached_property
    def kept(self) -> Tile:
        """The registers of the values that are added together: [state][value]."""
        return Tile("kept", register_class(self.reduction.type), (self.count, self.together))

    def batches(self, v: FragmentValues, groups: int) -> list[tuple[Sequence[int], list[JointGroups]]]:
        """The groups of columns of a tile in batches (see ``FragmentValues``), each with its groups in parts whose
        values are added together. ``v``: the values; ``groups``: the number of groups."""
        return [(batch, self._joint(v, batch)) for batch in v.batches(range(groups))]

    def _joint(self, v: FragmentValues, batch: Sequence[int]) -> list[JointGroups]:
        parts = [range(n, min(n + GROUPS, len(batch))) for n in range(0, len(batch), GROUPS)]
        return [
            JointGroups(
                [(n, batch[n], [self._keep(v, n - part[0], m) for m in range(v.mi)]) for n in part],
                self._add_kept(len(part)),
                batch[part[0]],
            )
            for part in parts
            if self.adds_together
        ]

    @property
    def no_value(self) -> str:
        """The literal of a state without a value."""
        return literal(self.reduction.identity[0])

    def _keep(self, v: FragmentValues, group: int, m: int) -> list[KeptValue]:
        """The values of a fragment. ``group``: the number of its columns among those that are added together; ``m``:
        its number along X."""
        return [
            KeptValue(self.kept[state, 2 * group + q % 2], v.of(0)[q], v.counts[q] if v.counts else inside, inside)
            for q, (state, inside) in enumerate(self.fragment_places[m])
        ]

    def _add_kept(self, groups: int) -> list[str]:
        """The instructions that add the kept values of so many groups of columns to all states."""
        values = [[self.kept[q, n] for n in range(2 * groups)] for q in range(self.count)]
        return [line for q, each in enumerate(values) for line in self.add_together(q, each)]


@dataclass(frozen=True, kw_only=True)
class FragmentColumnSums(ColumnSums):
    """The sums of the columns of fragments. ``transposed``: True if columns are along X; then all of a thread's columns
    have a sum until the end of the tile. ``groups``: the columns whose sums are stored at once, in order; empty if
    columns are along X. ``firsts``: the registers with a thread's first row along X, and its first column along Y;
    ``warps_apart``: the warps before those of the next warpgroup of the tile."""

    transposed: bool
    groups: tuple[tuple[int, ...], ...]
    firsts: tuple[str, str]
    warps_apart: int

    @property
    def along_y(self) -> bool:
        """True if values along Y are added."""
        return self.transposed

    @property
    def first(self) -> str:
        """The register with a thread's first column."""
        return self.firsts[not self.transposed]

    @property
    def remaining(self) -> str:
        """The register with the number of columns of C from a thread's first on."""
        return "%x_rem" if self.transposed else "%y_rem"

    @property
    def count(self) -> int:
        return len(self.columns) if self.transposed else len(self.groups[0])

    @property
    def kept(self) -> tuple[int, ...]:
        """The columns whose sums are stored at the end of a tile."""
        return self.columns if self.transposed else ()

    @property
    def clearing(self) -> list[str]:
        """The instructions before each group of columns that clear their sums."""
        return [] if self.transposed else [line for n in range(self.count) for line in self.clear(n)]

    def additions(self, x: Stmatrix, results: list[tuple[str, str]]) -> list[tuple[str, int, list[str]]]:
        """The instructions that add the results that an stmatrix stores, by the row of C: the register with the number
        of rows from a thread's first on, the distance of the row, the instructions. ``results``: their registers."""
        rows: dict[int, list[str]] = {}
        for n, pair in enumerate(results):
            for e, register in enumerate(pair):
                place = x.row + n % 2 * FRAGMENT_ROWS, x.column + n // 2 * COLUMNS + e
                row, column = place[::-1] if self.transposed else place
                rows.setdefault(row, []).extend(self.add(self.numbers[column], register, "", "@%in_bounds "))
        return [("%y_rem" if self.transposed else "%x_rem", row, lines) for row, lines in rows.items()]


@dataclass(frozen=True)
class FragmentReduceKernels(RowReduceKernels):
    """The auxiliary kernel that joins states: those that blocks store for rows, or those that warps store for
    columns."""

    scheduler: TileScheduler
    geometry: WgmmaGeometry
    skips: bool  #: True if tiles in which no pair is reduced are skipped

    @property
    def fills(self) -> bool:
        """True if the workspace is filled first, because tiles in which no pair is reduced are skipped, or not
        listed."""
        return self.skips or self.scheduler.some_tiles

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
            assert isinstance(states, FragmentStates | FragmentColumnSums)
            extent, count = self.blocks(states.along_y)
            counts.append(-(-(y if states.along_y else x) // extent) * count)
        return counts
