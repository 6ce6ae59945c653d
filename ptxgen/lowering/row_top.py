"""The sink that keeps the best values of each row of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.expr.node import Node
from ptxgen.lowering.sink import Number, ValueSink, list_names

MOST = 32  #: the most values of a row: each lane of a warp has one


@dataclass(frozen=True, kw_only=True)
class RowTop(ValueSink):
    """The sink of the ``count`` best values of each row, the best first, and of their columns, in ``COLUMNS``.

    ``greatest``: True: the best values are the greatest ones, False: the least ones. NaN is greater than all numbers.
    Of equal values, the one in the first column is better. A row with fewer columns than ``count`` ends with the worst
    value and the column −1.
    """

    value: Node
    count: int
    greatest: bool

    needs: ClassVar[frozenset[str]] = frozenset(("row_top",))
    template: ClassVar[str] = ""
    COLUMNS: ClassVar[str] = list_names(2)[1]

    @property
    def roots(self) -> tuple[Node, ...]:
        return (self.value,)

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, self.COLUMNS)

    @property
    def numbers(self) -> tuple[Number, ...]:
        return (*super().numbers, Number("u32", "best_count", self.count))
