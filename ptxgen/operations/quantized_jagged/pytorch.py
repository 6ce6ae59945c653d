"""The baseline PyTorch: its grouped product with weights that are dequantized before."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ptxgen.operations.gemm.pytorch import matrix
from ptxgen.operations.grouped.pytorch import TorchGrouped
from ptxgen.operations.quantized.pytorch import dequantized
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged


class TorchDequantizedJagged(TorchGrouped):
    """The grouped product of bf16 activations and weights of the same type, as a program without quantized weights
    computes it. The weights are dequantized before the timing; PyTorch allocates the result."""

    problem: QuantizedJagged

    def _second(self, addresses: Mapping[str, int], shape: tuple[int, ...]) -> Any:
        items, k, n = shape
        weights = dequantized(self._torch, partial(matrix, self._torch), self.problem.item(0), addresses, items)
        return weights.view(items, n, k).transpose(1, 2)
