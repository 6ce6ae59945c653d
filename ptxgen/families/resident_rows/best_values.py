"""The best values of rows. All lanes of a warp have the same rows; a lane has one of the best values of each row, as a
record of 64 bits: the value in the upper half, the column in the lower, both encoded so that better ones are smaller.
The records of a row ascend with the lanes. A record that precedes the last of the best ones moves those after it to the
next lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.expr.instructions import literal
from ptxgen.expr.node import constant
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import Number

TYPE = "f32"


@dataclass(frozen=True)
class BestValues(Part):
    """The part that keeps the best values of rows. ``rows``: rows of a warp; ``values``: the registers of the values
    of a row that a lane computes together; ``bounded``: True if bounds of sums exclude pairs."""

    problem: KernelProblem
    sm: int
    rows: int
    values: tuple[str, ...]
    bounded: bool

    temporaries: ClassVar[Sequence[str]] = ()

    @property
    def slot(self) -> str:
        return "epilogue/resident_bounded_best.mako" if self.bounded else "epilogue/resident_best.mako"

    @property
    def sink(self) -> RowTop:
        sink = self.problem.sink
        assert isinstance(sink, RowTop)
        return sink

    @property
    def vec(self) -> int:
        """The number of columns that a lane computes together."""
        return len(self.values)

    # ---- registers

    @cached_property
    def record(self) -> Tile:
        """The registers with this lane's record of each row."""
        return Tile("record", "b64", (self.rows,))

    @cached_property
    def bound(self) -> Tile:
        """The registers with the last of the best values of each row; NaN if there are fewer values."""
        return Tile("bound", TYPE, (self.rows,))

    @cached_property
    def best(self) -> Tile:
        """The registers with the best of the values that a lane computes together, for each row."""
        return Tile("best", TYPE, (0 if self.bounded else self.rows,))

    @cached_property
    def candidate(self) -> Tile:
        """The registers with the records of the pairs that a lane computes together."""
        return Tile("candidate", "b64", (self.vec,))

    # ---- numbers

    no_record: ClassVar[str] = "0xffffffffffffffff"  #: follows every record

    @property
    def no_bound(self) -> str:
        return literal(constant(math.nan, TYPE))

    @property
    def missing(self) -> str:
        """The PTX literal of the value of a place without a pair."""
        t = type_of(TYPE)
        return literal(constant(t.least if self.sink.greatest else t.greatest, TYPE))

    @property
    def count(self) -> str:
        """The name of the kernel parameter with the number of values of a row."""
        number: Number = self.sink.numbers[-1]
        return number.name

    @property
    def columns(self) -> str:
        """The kernel parameter with the address of the columns."""
        return self.sink.COLUMNS

    @property
    def greatest(self) -> bool:
        return self.sink.greatest

    # ---- instructions

    @property
    def best_operation(self) -> str:
        """The instruction that gives the best of two values. NaN is greater than numbers."""
        return "max.NaN.f32" if self.greatest else "min.f32"

    @property
    def precedes(self) -> str:
        """The comparison of a value with the last of the best ones that holds if the value may precede it."""
        return "gtu" if self.greatest else "ltu"

    @property
    def first_value(self) -> str:
        return self.values[0]

    @property
    def later_values(self) -> tuple[str, ...]:
        return self.values[1:]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [(self.record, "this lane's records of the rows: ~value, column; they ascend with the lanes")]
