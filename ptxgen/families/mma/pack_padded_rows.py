"""The packing kernel for operands whose rows are too unaligned for wide accesses: it makes rows of whole 128 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.copy_kernel import PathPacking
from ptxgen.families.mma.operand_packing import inside, packed_operand
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import PackedCopy


@dataclass(frozen=True)
class PaddedRowPacking(PathPacking):
    """The packing of A, B or both to padded rows."""

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        return packed_operand(p, name)

    def product_problem(self, p: KernelProblem) -> KernelProblem:
        return inside(p, self.config)
