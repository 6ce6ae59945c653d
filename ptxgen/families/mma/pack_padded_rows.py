"""The packing kernel for operands whose rows are too unaligned for wide accesses: it makes rows of whole 128 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.copy_kernel import CopyPacking
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.families.mma.operand_packing import inside, packed_operand, packs
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, PackedCopy


@dataclass(frozen=True)
class PaddedRowPacking(CopyPacking):
    """The packing of A, B or both to padded rows."""

    config: Config

    packs_empty = True

    @cached_property
    def names(self) -> list[str]:
        return [name for name in "ab" if packs(self.config, name)]

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        return packed_operand(p, name)

    def product_problem(self, p: KernelProblem) -> KernelProblem:
        return inside(p, self.config)

    @property
    def product_parameters(self) -> list[Parameters]:
        names = tuple(f"copy_offset128_{name}" for name in self.names)
        return [Parameters("u32", names, lambda x: (offset // ROW for offset in x.buffers.packed.values()))]
