"""Reductions of the values in fragments by group keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.parts.group_reduction import COLUMN, ROW, VALUE, GroupReduction
from ptxgen.codegen.registers import Tile
from ptxgen.expr.value_types import type_of
from ptxgen.families.wgmma.geometry import COLUMNS
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT, FragmentValues

_LANES = (16, 8, 4, 2, 1)  #: lane distances by which a whole warp is reduced
_REDUX = {"+": "add", "min": "min", "max": "max", "&": "and", "|": "or", "^": "xor"}


class GroupedResult(NamedTuple):
    """A ``FragmentResult`` with the registers of its value, of its row's run, and of its keys."""

    q: int
    row: int
    h: int
    e: int
    bit: str
    run: str
    row_run: str
    x_key: str
    y_key: str


def halved(first: int, end: int) -> dict[tuple[int, int], int]:
    """The middle of a range, and recursively of both its halves, down to ranges of one number: (first, end) ->
    middle."""
    if end - first < 2:
        return {}
    middle = (first + end) // 2
    return {(first, end): middle, **halved(first, middle), **halved(middle, end)}


@dataclass(frozen=True)
class FragmentGroups(GroupReduction):
    """The reduction by group keys, in which a thread first reduces the values of each of its rows in adjacent columns
    with equal keys. ``mi``: fragments along X; ``transposed``: True if X is along N; ``columns``: groups of 8
    columns."""

    values: FragmentValues
    mi: int = 1
    transposed: bool = False
    columns: int = 1

    @cached_property
    def mirror(self) -> FragmentGroups | None:
        values = self.values.mirror
        return None if values is None else replace(self, values=values, transposed=not self.transposed)

    @cached_property
    def reduced(self) -> FragmentValues:
        """The values without the keys, with the condition of the pairs that are reduced."""
        return replace(self.values, chosen=(VALUE,))

    @cached_property
    def run(self) -> Tile:
        """The registers of the values of 8 columns: [fragment along X][row][column]."""
        return Tile("run", self.ptx_type, (self.mi, FRAGMENT))

    @cached_property
    def row_run(self) -> Tile:
        """The registers of the reduced value of each row's run of equal keys: [fragment along X][row]."""
        return Tile("row_run", self.ptx_type, (self.mi, 2))

    @cached_property
    def x_keys(self) -> Tile:
        """The registers of the keys of a thread's rows along X: [fragment along X][row]."""
        return Tile("x_key", "b32", (self.mi, 2))

    @cached_property
    def y_keys(self) -> Tile:
        """The registers of the keys of a thread's columns along Y."""
        return Tile("y_key", "b32", (2,))

    @property
    def axes(self) -> tuple[str, str]:
        """The axis along X, and the axis along Y."""
        return ("j", "i") if self.transposed else ("i", "j")

    @property
    def sides(self) -> tuple[int, int]:
        """The indices, among the sink's expressions, of the key along X and of the key along Y."""
        return (COLUMN, ROW) if self.sink.transposed != self.transposed else (ROW, COLUMN)

    @property
    def swaps_keys(self) -> bool:
        """True if keys along X select columns of C."""
        return self.sides == (COLUMN, ROW)

    @property
    def extents(self) -> tuple[str, str]:
        """The parameters with the number of groups of the key along X, and of the key along Y."""
        x, y = self.axes
        return self.extent(x), self.extent(y)

    @property
    def pair(self) -> tuple[str, str]:
        """The registers with the indices of a pair along X and along Y."""
        return ("%c_col", "%c_row") if self.transposed else ("%c_row", "%c_col")

    @property
    def columns_along_y(self) -> int:
        return COLUMNS * self.columns

    @property
    def group_bits(self) -> list[str]:
        """For each group of columns, a literal of the bit that stands for it."""
        return [hex(1 << j) for j in range(self.columns)]

    @property
    def group_labels(self) -> list[str]:
        """The labels at the code of each group of columns, and after the last one."""
        return [*(f"GROUP_{j}" for j in range(self.columns)), "LAST_GROUP"]

    @property
    def halves(self) -> dict[tuple[int, int], int]:
        """The middle of each range of groups of columns that a search halves: (first group, end) -> middle."""
        return halved(0, self.columns)

    @property
    def results(self) -> list[list[GroupedResult]]:
        """The results of each fragment along X."""
        return [
            [
                GroupedResult(*r, self.run[m, r.q], self.row_run[m, r.h], self.x_keys[m, r.h], self.y_keys[r.e])
                for r in results
            ]
            for m, results in enumerate(self.values.results)
        ]

    @property
    def differs(self) -> str:
        """The opcode of the comparison that is true if values differ or are NaN."""
        return f"setp.{'neu' if type_of(self.type).floating else 'ne'}.{self.type}"

    def join_warp(self, value: str) -> list[str]:
        """The instructions that reduce the values of all lanes."""
        if self.type in ("s32", "u32") and self.sink.op in _REDUX:
            ptx_type = "b32" if self.sink.op in "&|^" else self.type
            return [f"redux.sync.{_REDUX[self.sink.op]}.{ptx_type} {value}, {value}, 0xffffffff;"]
        return self.join_lanes(value, _LANES)

    def join_lanes(self, value: str, distances: tuple[int, ...]) -> list[str]:
        """The instructions that reduce the values of lanes at these distances."""
        lines = []
        for distance in distances:
            lines += [*self.exchange("%received", value, distance), *self.join(value, "%received")]
        return lines
