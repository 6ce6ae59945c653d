"""The packing kernel of FMA products: it makes copies of A and B with rows along M (N) of whole 128 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.copy_kernel import PathPacking
from ptxgen.families.common.fma.operand_packing import packed_operand, product_problem
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import PackedCopy


@dataclass(frozen=True)
class LongRowPacking(PathPacking):
    """The packing of A, B or both to rows along M (N)."""

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        return packed_operand(p, name)

    def product_problem(self, p: KernelProblem) -> KernelProblem:
        return product_problem(p, self.config)
