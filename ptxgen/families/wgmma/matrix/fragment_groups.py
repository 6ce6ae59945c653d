"""Reductions into groups of the values in fragments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.group_reduction import COLUMN, ROW, GroupReduction
from ptxgen.codegen.registers import Tile
from ptxgen.expr.value_types import type_of
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT


@dataclass(frozen=True)
class FragmentGroups(GroupReduction):
    """A thread reduces the values of all its rows in a group of 8 columns. ``mi``: fragments along X; ``transposed``: X
    is along N."""

    mi: int = 1
    transposed: bool = False

    @cached_property
    def run(self) -> Tile:
        """The values: [fragment along X][row][column]."""
        return Tile("run", self.kind, (self.mi, FRAGMENT))

    @cached_property
    def x_keys(self) -> Tile:
        """The keys of a thread's rows along X."""
        return Tile("x_key", "b32", (2 * self.mi,))

    @cached_property
    def y_keys(self) -> Tile:
        """The keys of a thread's columns along Y."""
        return Tile("y_key", "b32", (2,))

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of the keys along X and along Y, among the sink's expressions."""
        return (COLUMN, ROW) if self.sink.transposed != self.transposed else (ROW, COLUMN)

    def key_pair(self, x: str, y: str) -> tuple[str, str]:
        """The keys of rows and columns of C, of those along X and Y."""
        return (x, y) if self.sides == (ROW, COLUMN) else (y, x)

    @property
    def differs(self) -> str:
        """The comparison that is true if values are not equal, or are NaN."""
        return f"setp.{'neu' if type_of(self.type).floating else 'ne'}.{self.type}"
