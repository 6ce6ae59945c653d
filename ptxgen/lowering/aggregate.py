"""The sink that reduces results into the elements of C that their group keys select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.expr.node import Node, node, variables
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.sink import Number, Reset, ValueSink

REJECTED = "rejected"  #: the array that counts the pairs whose keys are out of range


@dataclass(frozen=True, kw_only=True)
class KeyedSink(ValueSink):
    """A sink whose group keys select an element of C for each pair (i, j). ``row``, ``column``: the keys, the row and
    the column of that element in C: integer expressions of which one depends on i and the other on j; ``groups``: rows
    and columns of C."""

    value: Node
    row: Node
    column: Node
    groups: tuple[int, int]

    @property
    def keys(self) -> tuple[Node, Node]:
        """The two keys in 32 bits. Kernels compare them as unsigned integers, so negative keys are out of range."""
        row, column = (x if x.type in ("s32", "u32") else node("cast", "s32", x) for x in (self.row, self.column))
        return row, column

    @property
    def transposed(self) -> bool:
        """True if the row key depends on j and the column key on i."""
        return any(name == "j" or name.endswith("[j]") for name in variables(self.row))

    @property
    def numbers(self) -> tuple[Number, ...]:
        names = "group_rows", "group_columns"
        groups = (Number("u32", name, n) for name, n in zip(names, self.groups, strict=True))
        return (*super().numbers, *groups)


@dataclass(frozen=True, kw_only=True)
class Aggregate(KeyedSink):
    """The sink C[row,column] op= value.

    A pair with a key out of range is not reduced but counted in the array ``rejected``, one 64-bit integer.
    ``ordered``: True if sums must not depend on timing; then values go to the workspace, from which auxiliary kernels
    add them in the order of i, then of j. Operators for which the order does not matter never need this.
    """

    op: str
    ordered: bool = False

    needs: ClassVar[frozenset[str]] = frozenset(("aggregate",))
    template: ClassVar[str] = "epilogue/aggregate.mako"
    shared_tile: ClassVar[bool] = True
    resets: ClassVar[tuple[Reset, ...]] = (Reset(REJECTED, 8),)

    @property
    def roots(self) -> tuple[Node, ...]:
        return (self.value, *self.keys)

    @property
    def has_workspace(self) -> bool:  # type: ignore[override]
        return self.ordered

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, REJECTED)


def depends_on_order(op: str, type: str) -> bool:
    """True if the result of a reduction depends on its order because of rounding."""
    return type_of(type).floating and not OPERATORS[op].idempotent
