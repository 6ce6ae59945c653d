"""The values that a sink takes from the sums of a warpgroup, in the fragments of wgmma. In each group of 8 columns
along Y, a thread has two adjacent columns of two rows along X."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.parts.result_values import ReadArray, ResultValues
from ptxgen.codegen.registers import Tile
from ptxgen.expr.node import variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.lowering.algebra import ACCUMULATOR

FRAGMENT = 4  #: results of a thread in 8 columns of 64 rows: [row][column]


class FragmentResult(NamedTuple):
    """A result of a thread in a fragment. ``q``: its number in the fragment; ``row``: the number of its row among all
    rows of the thread; ``h``: the number of this row in the fragment; ``e``: its column; ``bit``: its bit among those
    of a group of columns."""

    q: int
    row: int
    h: int
    e: int
    bit: str


@dataclass(frozen=True)
class FragmentValues(ResultValues):
    """The values of results in fragments; a vector is a fragment, two rows by two columns. ``mi``: fragments along X;
    ``transposed``: True if X is along N. Elements of vectors along X are loaded once per tile, elements of vectors
    along Y once for ``batch`` groups of columns."""

    mi: int = 1
    transposed: bool = False

    COLUMNS = 8  #: groups of columns whose elements of vectors along Y are in registers, over all vectors
    HOISTED = 2  #: most vectors along Y whose loads ptxas may hoist
    LONG = 16  #: instructions of a value from which on fragments are computed one after the other

    @cached_property
    def mirror(self) -> FragmentValues | None:
        """The values of the pairs (j, i), which are those of a tile whose X is along the other side. None: pairs are
        not mirrored."""
        return replace(self, exchanged=True, transposed=not self.transposed) if self.sink.mirrored else None

    @cached_property
    def condition(self) -> FragmentValues:
        return replace(self, values=False)

    @cached_property
    def taken(self) -> FragmentValues:
        return replace(self, guards=False)

    # ---- arrays

    @property
    def along_x(self) -> list[ReadArray]:
        """The arrays that have an element for each row along X."""
        return [x for x in self.arrays if x.axes == ("j" if self.transposed else "i")]

    @property
    def along_y(self) -> list[ReadArray]:
        """The arrays that have an element for each column along Y."""
        return [x for x in self.arrays if x.axes == ("i" if self.transposed else "j")]

    @property
    def pitched(self) -> list[ReadArray]:
        """The arrays that have an element for each result."""
        return [x for x in self.arrays if x.pitched]

    @property
    def element_rows(self) -> list[tuple[ReadArray, list[tuple[str, list[tuple[str, int, int, str]]]]]]:
        """For each array with an element per result, and for each of two rows: the register of the row's index, and for
        each of two elements (register of the index in the row, row along X, column along Y, register)."""
        rows = []
        for x in self.pitched:
            tile, along_x = self.element_tile(x), (x.axes[0] == "i") != self.transposed
            row, index = ("%index_x", "%index_y") if along_x else ("%index_y", "%index_x")
            places = [[(a, b) if along_x else (b, a) for b in range(2)] for a in range(2)]
            reads = [
                (f"{row}{a}", [(f"{index}{b}", h, e, tile[h, e]) for b, (h, e) in enumerate(places[a])])
                for a in range(2)
            ]
            rows.append((x, reads))
        return rows

    @property
    def rows_of_thread(self) -> int:
        return 2 * self.mi

    @property
    def row_arrays(self) -> list[tuple[ReadArray, Tile]]:
        """The arrays that have an element for each row along X, with their registers."""
        return [(x, self.x_tile(x)) for x in self.along_x]

    @property
    def column_arrays(self) -> list[tuple[ReadArray, Tile]]:
        """The arrays that have an element for each column along Y, with the registers for a batch."""
        return [(x, self.y_tile(x)) for x in self.along_y]

    @property
    def element_tiles(self) -> list[Tile]:
        """The registers of the arrays that have an element for each result."""
        return [self.element_tile(x) for x in self.pitched]

    @property
    def results(self) -> list[list[FragmentResult]]:
        """The results of each fragment along X."""
        return [
            [FragmentResult(q, 2 * m + q // 2, q // 2, q % 2, hex(1 << FRAGMENT * m + q)) for q in range(FRAGMENT)]
            for m in range(self.mi)
        ]

    def x_tile(self, x: ReadArray) -> Tile:
        """The registers of the elements of a thread's rows: [fragment along X][row]."""
        return Tile(f"{x.name}_x", x.ptx_type, (self.mi, 2))

    def y_tile(self, x: ReadArray) -> Tile:
        """The registers of the elements of the columns of a batch: [group][column]."""
        return Tile(f"{x.name}_y", x.ptx_type, (self.batch, 2))

    def element_tile(self, x: ReadArray) -> Tile:
        """The registers of the elements of a fragment."""
        return Tile(f"{x.name}_at", x.ptx_type, (2, 2))

    def batches(self, groups: Sequence[int]) -> list[Sequence[int]]:
        """The groups of columns in batches, for whose elements along Y there are registers."""
        return [groups[n : n + self.batch] for n in range(0, len(groups), self.batch)]

    @cached_property
    def batch(self) -> int:
        """The number of groups of columns of a batch, which is even."""
        return max(2, self.COLUMNS // max(len(self.along_y), 1) & ~1)

    @property
    def counts(self) -> list[str] | None:
        """The predicates of the values that count; None: all do."""
        return None if self.guard is None else self.of(1)

    @property
    def computes_indices(self) -> bool:
        return bool(self.indices or self.pitched)

    @cached_property
    def long(self) -> bool:
        """True if ptxas must not interleave the loads and instructions of different fragments."""
        loads = bool(self.pitched) or len(self.along_y) > self.HOISTED
        return loads or len(self.lines(["%sum"] * FRAGMENT)) > self.LONG * FRAGMENT

    # ---- lines

    def fragment_lines(self, m: int, group: int, sums: Sequence[str]) -> list[str]:
        """The instructions that compute the values of a fragment. ``m``: its number along X; ``group``: its number in
        the batch."""
        return self._fragment(m, group, sums, Temporaries("v"))

    def _lines(self, sums: Sequence[str], used: Temporaries) -> list[str]:
        return self._fragment(0, 0, sums, used)

    def _fragment(self, m: int, group: int, sums: Sequence[str], used: Temporaries) -> list[str]:
        out: list[str] = []
        accumulator = variable(ACCUMULATOR, self.sink.arithmetic)
        side_i, side_j = ("y", "x") if self.transposed else ("x", "y")
        for q, r in enumerate(sums):
            h, e = divmod(q, 2)
            number = {"x": h, "y": e}
            known = {accumulator: r, **self.known}
            known |= {variable("i", "s32"): f"%index_{side_i}{number[side_i]}"}
            known |= {variable("j", "s32"): f"%index_{side_j}{number[side_j]}"}
            known |= {x.element: self.x_tile(x)[m, h] for x in self.along_x}
            known |= {x.element: self.y_tile(x)[group, e] for x in self.along_y}
            known |= {x.element: self.element_tile(x)[h, e] for x in self.pitched}
            results = [tile[q] for tile in self.tiles]
            out += statements(self.roots, known, results, sm=self.sm, temporaries=used).lines
        return out
