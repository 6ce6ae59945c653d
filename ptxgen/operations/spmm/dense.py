"""The baseline cuBLASLt on a dense A, which is made before the timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptxgen.errors import LaunchError, ShapeError
from ptxgen.operations.gemm.cublaslt import CublasLt
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.checked_baseline import BaselineCheck
from ptxgen.operations.spmm.graph_batches import global_columns
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.operation import VendorTimes
from ptxgen.problem.reference import Array
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Timing

ELEMENTS = 1 << 26  #: the most elements of A


class DenseProduct:
    """A problem computed by cuBLASLt on a dense A.

    ShapeError: there is nothing to multiply. LaunchError: the dense A is too large.
    """

    def __init__(self, driver: CudaDriver, problem: Spmm, addresses: Mapping[str, int] | None = None) -> None:
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: an extent or the number of nonzeros is 0, which is not timed")
        if problem.m * problem.k > ELEMENTS:
            raise LaunchError(f"A has {problem.m}×{problem.k} elements; dense it must have at most {ELEMENTS}")
        self.problem, self._driver = problem, driver

    @property
    def gemm(self) -> Gemm:
        """The product with a dense A."""
        p = self.problem
        made = Gemm(p.m, p.n, p.k, "NN", p.dtype, p.compute)
        return replace(made, ldb=p.ldb, ldc=p.ldc, aligned_b=p.aligned_b, aligned_c=p.aligned_c)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The times of cuBLASLt, after the result of its first candidate was compared with the reference. There are as
        many copies of A as exceed the L2 cache, at most one per operand set.

        ``sets``: addresses by name of the array, used in rotation.
        """
        check = BaselineCheck(self._driver, self.problem, sets[0])
        dense = densified(self.problem, check.arrays)
        wanted = int(timing.l2_multiple * self._driver.device.l2) // dense.nbytes + 1
        copies = [Allocation(self._driver, dense.nbytes) for _ in range(min(len(sets), wanted))]
        for copy in copies:
            self._driver.upload(copy.address, dense)
        all_sets = [{**addresses, "A": copies[i % len(copies)].address} for i, addresses in enumerate(sets)]
        with CublasLt(self._driver, self.gemm) as library:
            check.require(partial(library.run, 0, all_sets[0]))
            return library.best(all_sets, timing)


def densified(p: Spmm, arrays: Mapping[str, Array]) -> Array:
    """A as a dense matrix. Nonzeros at the same place are added."""
    out = np.zeros((p.m, p.k), np.float64 if p.dtype == "f64" else np.float32)
    rows = np.repeat(np.arange(p.m), np.diff(arrays["indptr"]))
    np.add.at(out, (rows, global_columns(p, arrays)), arrays["values"].astype(out.dtype))
    return out.astype(p.element.numpy)
