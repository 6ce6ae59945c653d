"""The baseline PyTorch of GEMMs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxgen.errors import LaunchError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.pytorch import TorchMatmul, torch_product
from ptxgen.operations.gemm.strided_arrays import padded
from ptxgen.problem.reference import operands, reference


@pytest.mark.parametrize(
    "p",
    [
        Gemm(5, 7, 3, "NN"),
        Gemm(5, 7, 3, "TT", "f64", lda=9, ldb=6),
        Gemm(5, 7, 3, "TN", batch=3, stride_a=40, lda=8),
        Gemm(4, 2, 6, "NT", batch=2, stride_b=0),
    ],
    ids=lambda p: p.key(),
)
def test_matmul_reads_operands_with_their_strides(p: Gemm) -> None:
    torch = pytest.importorskip("torch")
    arrays = operands(p, 1, "integers")
    stored = padded(p, arrays)

    class OnHost(TorchMatmul):
        def __init__(self) -> None:
            self.problem, self.torch = p, torch

        def matrix(self, address: Any, rows: int, ld: int, size: int, dtype: str) -> Any:
            memory = stored[address]
            assert (memory.dtype.name, memory.itemsize, memory.size) == (dtype, size, rows * ld)
            return torch.from_numpy(memory.reshape(rows, ld))

    result = OnHost().call({"A": "A", "B": "B"})()
    assert np.array_equal(result.numpy(), reference(p, arrays).exact.reshape(result.shape))


@pytest.mark.parametrize(
    "p", [Gemm(2, 2, 2, epilogue="relu"), Gemm(2, 2, 2, dtype="s8"), Gemm(2, 2, 2, "CN", "c64")], ids=lambda p: p.key()
)
def test_matmul_names_what_it_does_not_compute(p: Gemm) -> None:
    with pytest.raises(LaunchError, match="PyTorch's product takes A and B of one type"):
        torch_product(None, p, {})  # type: ignore[arg-type]
