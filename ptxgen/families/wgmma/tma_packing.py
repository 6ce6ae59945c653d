"""Packing kernels of wgmma: the product reads packed operands through tensor maps."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.packing import Buffers, Packing
from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma.layout import OperandPath
from ptxgen.lowering.kernel_gemm import KernelGemm


@dataclass(frozen=True)
class TmaPacking(Packing):
    """No packing: the product's tensor maps describe A and B where they are."""

    def tensor_map(
        self, p: KernelGemm, run: BatchRange, x: OperandPath, kind: str, direct: TensorMap, buffers: Buffers
    ) -> TensorMap:
        """The map that the product has of an operand; ``kind``: type of its elements, ``direct``: the map of the
        operand where it is."""
        return direct
