"""The baseline PyTorch for sparse products: ``torch.sparse.mm``, which calls cuSPARSE."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ptxgen.errors import LaunchError, ShapeError
from ptxgen.operations.spmm.block_diagonal import BlockDiagonal
from ptxgen.operations.spmm.checked_baseline import BaselineCheck
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.operation import VendorTimes
from ptxgen.problem.reference import Array
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.device_array import DeviceArray
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.vendor_libraries import load_torch


class TorchSparse:
    """A sparse product that PyTorch computes on the operands of the problem, without copies. PyTorch allocates the
    result.

    UnavailableError: PyTorch is missing. ShapeError: there is nothing to multiply.
    """

    def __init__(self, driver: CudaDriver, problem: Spmm, addresses: Mapping[str, int] | None = None) -> None:
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: an extent or the number of nonzeros is 0, which is not timed")
        self.problem, self._driver, self._torch = problem, driver, load_torch()

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the product, the median of the samples in microseconds. The result is compared with the reference
        before.

        ``sets``: addresses by name of the array, used in rotation. LaunchError: PyTorch does not compute the problem.
        """
        torch, driver = self._torch, self._driver
        stream = torch.cuda.ExternalStream(driver.stream, driver.index)  # its GPU becomes the current one
        tf32 = torch.backends.cuda.matmul.allow_tf32
        results: list[Any] = [None] * len(sets)
        with driver.context("PyTorch"), torch.cuda.stream(stream), torch.no_grad():
            torch.backends.cuda.matmul.allow_tf32 = self.problem.compute == "tf32"
            try:
                check = BaselineCheck(driver, self.problem, sets[0])
                blocks = BlockDiagonal(driver, self.problem, check.arrays, sets)
                operands = [self._operands(addresses) for addresses in blocks.sets]

                def launch(i: int) -> None:
                    results[i] = None  # its memory is used again
                    results[i] = torch.sparse.mm(*operands[i])

                launches = [functools.partial(launch, i) for i in range(len(sets))]
                for each in launches:  # allocates
                    each()
                driver.synchronize()
                check.require_rows(functools.partial(_rows, results[0], self.problem))
                us = statistics.median(driver.time(launches, timing))
            except (RuntimeError, NotImplementedError, ValueError) as error:
                driver.synchronize()  # raises if the context is lost
                why = str(error).partition("\n")[0]
                raise LaunchError(f"PyTorch does not compute {self.problem.key()}: {why}") from error
            finally:
                torch.backends.cuda.matmul.allow_tf32 = tf32
                results.clear()
                torch.cuda.empty_cache()
        return VendorTimes(us, same_layout=us)

    def _operands(self, addresses: Mapping[str, int]) -> tuple[Any, Any]:
        """A and B as tensors in the memory of the operand set."""
        p = self.problem
        indptr, indices = (
            self._tensor(addresses[n], (x,), "<i4") for n, x in (("indptr", p.m + 1), ("indices", p.nnz))
        )
        values = self._tensor(addresses["values"], (p.nnz,))
        a = self._torch.sparse_csr_tensor(indptr, indices, values, (p.m, p.k), check_invariants=False)
        return a, self._tensor(addresses["B"], (p.k, p.ldb))[:, : p.n]

    def _tensor(self, address: int, shape: tuple[int, ...], typestr: str = "") -> Any:
        """The memory at ``address`` as a tensor. ``typestr``: the type of its elements; empty: the type of the
        problem."""
        as_integers = typestr or f"<i{self.problem.element.bytes}"
        memory = self._torch.as_tensor(DeviceArray(address, shape, as_integers), device="cuda")
        return memory if typestr else memory.view(getattr(self._torch, self.problem.element.numpy.name))


def _rows(result: Any, p: Spmm, rows: slice) -> Array:
    """Rows of a tensor as a NumPy array. f16 and bf16 become f32, which has all their numbers."""
    some = result[rows]
    host: Array = (some if p.element.bytes >= 4 else some.float()).cpu().numpy()
    return host
