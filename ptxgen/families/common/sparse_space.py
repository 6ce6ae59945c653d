"""The candidate spaces of families of sparse products. Their rows do not depend on extents."""

from __future__ import annotations

from ptxgen.codegen.config.axes import BY_LENGTH, NATURAL
from ptxgen.families.common.table_space import TableSpace
from ptxgen.lowering.kernel_problem import KernelProblem


class SparseSpace(TableSpace):
    """The candidates of a family of sparse products."""

    def neutral(self, p: KernelProblem) -> KernelProblem:
        plain = super().neutral(p)
        for name in "BC":
            plain = plain.with_access(name, rows=1, columns=1, ld=1, aligned=1)
        return plain

    def row_orders(self) -> list[dict[str, int]]:
        """The candidates' orders of rows: as stored, and by length with each value of ``longest_part``."""
        parts = [{"row_order": BY_LENGTH, "longest_part": n} for n in self.axes["longest_part"]]
        return [{"row_order": NATURAL, "longest_part": 0}, *parts]
