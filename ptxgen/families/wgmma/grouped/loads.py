"""The producer loads of groups: an operand has a matrix for each item, or its items are ranges of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma import grouped_rows
from ptxgen.families.wgmma.layout import OperandPath
from ptxgen.families.wgmma.matrix.loads import MatrixLoads
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class GroupedLoads(MatrixLoads):
    """The loads of A and B of a group. The coordinates of an item are its number, or those of a range of rows."""

    def item_coordinates(self, name: str) -> Sequence[str]:
        return grouped_rows.coordinates(self.problem, name)

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        if not grouped_rows.ranges(p, x.name):
            return super().tensor_map(p, x, element_type)
        return grouped_rows.item_rows_map(
            x.name.upper(),
            element_type,
            p.operand(x.name.upper()).access.tensor(p.element.bytes),
            p.element.bytes,
            x.box,
            x.span,
        )


@dataclass(frozen=True)
class PackedItemLoads(MatrixLoads):
    """The loads of packed items. %k is the place in a block of K; the rows of a block follow those of the preceding
    block."""

    template = "addr/packed_items.mako"

    @property
    def block(self) -> int:
        """The number of elements of a block of K."""
        return grouped_rows.packed_block(self.problem)

    @property
    def by_parts(self) -> bool:
        """True if a stage has a part of a block."""
        return self.config.u < self.block
