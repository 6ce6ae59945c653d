"""The sink that stores each result at the element of C that its group keys select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.expr.node import Node
from ptxgen.lowering.aggregate import KeyedSink
from ptxgen.lowering.sink import as_stored


@dataclass(frozen=True, kw_only=True)
class Scatter(KeyedSink):
    """The sink C[row,column] = value. A pair with a key out of range is not stored. If several pairs have the same
    keys, the element gets the value of one of them; elements that no pair selects keep their values."""

    needs: ClassVar[frozenset[str]] = frozenset(("scatter",))
    template: ClassVar[str] = "epilogue/scatter.mako"

    @property
    def roots(self) -> tuple[Node, ...]:
        return as_stored(self.value, self.stored_type), *self.keys
