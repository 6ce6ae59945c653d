"""The baseline PyTorch: its product with weights that are dequantized before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ptxgen.errors import LaunchError
from ptxgen.operations.gemm.pytorch import TorchProduct
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.vendor_libraries import load_torch


class TorchDequantized(TorchProduct):
    """The product ``A @ W.T`` of 16-bit activations and weights of the same type, as a program without quantized
    weights computes it. The weights are dequantized before the timing; PyTorch allocates the result.

    UnavailableError: PyTorch is missing. ShapeError: an extent is zero. LaunchError: the problem has an epilogue, or
    the type of C is not that of A.
    """

    problem: QuantizedGemm

    def __init__(self, driver: CudaDriver, problem: QuantizedGemm, addresses: Mapping[str, int]) -> None:
        if problem.epilogue or problem.out != problem.dtype:
            raise LaunchError(f"{problem.key()}: PyTorch's product takes no epilogue, and results are {problem.dtype}")
        super().__init__(driver, problem, load_torch())

    def call(self, addresses: Mapping[str, int]) -> Callable[[], Any]:
        p, torch = self.problem, self.torch
        a = self.matrix(addresses["A"], p.m, p.lda, p.element.bytes, p.element.numpy.name)[:, : p.k]
        weights = dequantized(torch, self.matrix, p, addresses).t()
        return lambda: torch.mm(a, weights)


def dequantized(
    torch: Any, matrix: Callable[..., Any], p: QuantizedGemm, addresses: Mapping[str, int], items: int = 1
) -> Any:
    """The weights as a tensor of ``items`` · N rows with the type of A. ``matrix``: as ``TorchProduct.matrix``;
    ``addresses``: those of B, scales and zeros, which have the rows of ``items`` matrices one after the other."""
    rows, scale = items * p.n, p.scale_type
    stored = matrix(addresses["B"], rows, p.ldb, 1, p.types[1].numpy.name)[:, : p.columns_b]
    if p.format.bits == 4:
        stored = torch.stack((stored & 15, stored >> 4), dim=-1).reshape(rows, p.k)
    values = stored.to(torch.float32)
    if p.format.bits == 4 and p.format.signed:
        values = torch.where(values > p.format.largest, values - 16, values)
    values = values.reshape(rows, p.groups, -1)
    if p.zeros:
        values = values - matrix(addresses["zeros"], rows, p.groups, 1, "uint8").unsqueeze(-1)
    scales = matrix(addresses["scales"], rows, p.groups, scale.bytes, scale.numpy.name)
    values = values * scales.to(torch.float32).unsqueeze(-1)
    return values.reshape(rows, p.k).to(getattr(torch, p.element.numpy.name))
