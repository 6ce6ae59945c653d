"""The sink that reduces the rows, or the columns, of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.expr.node import Node, variable
from ptxgen.lowering.sink import ValueSink
from ptxgen.lowering.states import StateReduction


@dataclass(frozen=True, kw_only=True)
class RowReduce(ValueSink):
    """C[i] op= value, over j, or C[j] op= value, over i. ``axis``: i or j, that of C.

    Each block reduces its tile and stores states in the workspace; an auxiliary kernel joins the states of a row in
    their order along the other axis, so results do not depend on timing.
    """

    value: Node
    axis: str
    op: str

    needs: ClassVar[frozenset[str]] = frozenset(("row_reduce",))
    template: ClassVar[str] = "epilogue/row_reduce.mako"
    shared_tile: ClassVar[bool] = True
    has_workspace: ClassVar[bool] = True

    @property
    def reduction(self) -> StateReduction:
        return StateReduction(self.op, self.value.type)

    @property
    def roots(self) -> tuple[Node, ...]:
        return (self.value,)

    @property
    def expressions(self) -> tuple[Node, ...]:
        x = tuple(variable(f"state{n}", t) for n, t in enumerate(self.reduction.types))
        return (*self.roots, *self.reduction.joined(x, x), self.reduction.finished(x))
