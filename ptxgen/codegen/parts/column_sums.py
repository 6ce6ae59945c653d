"""The sums of the columns of results that a kernel also stores: their registers, and the lanes that share columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.lowering.states import StateReduction
from ptxgen.problem.dtypes import dtype


@dataclass(frozen=True, kw_only=True)
class ColumnSums(RowStates):
    """The part that adds the results of each column. A thread has a sum of each of its columns. ``columns``: their
    distances from its first column; ``distances``: the distances, by XOR, of the lanes with the same columns;
    ``part_rows``: the rows of C that these lanes have, one after the other."""

    columns: tuple[int, ...]
    distances: tuple[int, ...]
    part_rows: int

    @property
    def output(self) -> str:
        return "column_sums"

    @property
    def mirrored(self) -> bool:
        return False

    @property
    def of_rows(self) -> bool:
        return False

    @cached_property
    def reduction(self) -> StateReduction:
        return StateReduction("+", self.problem.sink.arithmetic)

    @property
    def result_bytes(self) -> int:
        return dtype(self.reduction.type).bytes

    def results(self, m: int, n: int) -> tuple[int, int]:
        return n, m

    @property
    def count(self) -> int:
        return len(self.columns)

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Column, as its distance from the thread's first -> the number of its sum."""
        return {column: n % self.count for n, column in enumerate(self.columns)}

    @cached_property
    def of_column(self) -> dict[int, str]:
        """Column -> the register of its sum."""
        return {column: self.state[0][n] for column, n in self.numbers.items()}

    @cached_property
    def from_column(self) -> dict[int, list[str]]:
        """Column -> the registers of its sum and of those of the adjacent columns after it."""
        after: dict[int, list[str]] = {}
        for column in sorted(self.columns, reverse=True):
            after[column] = [self.of_column[column], *after.get(column + 1, [])]
        return after

    @property
    def halves(self) -> list[str]:
        """The declaration of the registers through which lanes exchange sums of 64 bits."""
        return [".reg .b32 %half<2>;"] if self.result_bytes == 8 else []

    @cached_property
    def across_lanes(self) -> dict[int, list[str]]:
        """Column -> the instructions that add the sums that other lanes have of it."""
        return {
            column: [line for distance in self.distances for line in (*self.exchange(distance, n), *self.join(n))]
            for column, n in self.numbers.items()
        }

    @property
    def offsets(self) -> dict[int, int]:
        """Column -> the byte offset of its sum from that of the thread's first column."""
        return {column: column * self.result_bytes for column in self.columns}

    @property
    def lane_mask(self) -> int:
        """The bits of the lane number that are 0 in the first of the lanes with the same columns."""
        return sum(self.distances)
