"""The sink that reduces rows or columns of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.expr.node import Node, variable
from ptxgen.lowering.sink import ValueSink
from ptxgen.lowering.states import StateReduction


@dataclass(frozen=True, kw_only=True)
class RowReduce(ValueSink):
    """The sink C[i] op= value over all j, or C[j] op= value over all i. ``axis``: the axis of C, i or j.

    Each block reduces its tile and stores the states in the workspace. An auxiliary kernel joins the states of each
    element of C in the order of the other axis, so results do not depend on timing. If all states take much memory,
    ranges of results have launches of their own (``codegen.launches.result_ranges``).
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
