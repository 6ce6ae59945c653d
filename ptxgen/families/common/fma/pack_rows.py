"""The packing kernel of FMA products: it makes copies of A and B with rows along M (N) of whole 128 bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.launches.copy_kernel import CopyCode, PathPacking, code_of
from ptxgen.families.common.fma.operand_packing import packed_operand, product_problem
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, PackedCopy


@dataclass(frozen=True)
class LongRowPacking(PathPacking):
    """The packing of A, B or both to rows along M (N)."""

    @cached_property
    def codes(self) -> dict[str, CopyCode]:
        """Operand -> the code that copies it. It is that of long rows, because one kernel serves all extents."""
        size = self.problem.element.bytes
        copies = {x: self.copy(self.problem, x) for x in self.copied}
        return {x: code_of(replace(c, along=replace(c.along, extent=ROW)), size) for x, c in copies.items()}

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        return packed_operand(p, name)

    def product_problem(self, p: KernelProblem) -> KernelProblem:
        return product_problem(p, self.config)
