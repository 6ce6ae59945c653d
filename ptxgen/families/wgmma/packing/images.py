"""The packing of images and filters that im2col maps cannot describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.launches.copy_kernel import CopyPacking
from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.launches.packing import MappedOperand
from ptxgen.codegen.source import TensorMap
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import PackedCopy


@dataclass(frozen=True)
class ImagePacking(CopyPacking):
    """The packing of images, filters or both, as the im2col descriptor says."""

    packs_empty = True
    batched = False

    @cached_property
    def names(self) -> list[str]:
        return [name for name in "ab" if im2col(self.problem).copy(name) is not None]

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        copy: PackedCopy | None = im2col(p).copy(name)
        assert copy is not None
        return copy

    @property
    def summary(self) -> str:
        return f"; a kernel packs {' and '.join(name.upper() for name in self.names)} first"

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        packed = launched.buffers.packed
        return replace(direct, operand="W", offset=packed[x.name]) if x.name in packed else direct
