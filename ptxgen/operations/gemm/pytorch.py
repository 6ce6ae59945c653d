"""The baseline PyTorch: ``torch.matmul``, and ``torch.nn.functional.scaled_mm`` for 8-bit floats with block scales."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import A, B, span, stored_strides
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime import vendor_libraries
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.device_array import DeviceArray
from ptxgen.runtime.driver import Timing

K_BLOCKS = 4  #: PyTorch requires a multiple of so many blocks along K for scales of 128x128


class TorchProduct:
    """A product that PyTorch computes on the operands of the problem; subclasses define ``call``.

    ShapeError: an extent is zero.
    """

    def __init__(self, driver: CudaDriver, problem: Gemm, torch: Any) -> None:
        if not problem.results * problem.k:
            raise ShapeError(f"{problem.key()}: an extent is 0, which PyTorch does not support")
        self.problem, self._driver, self.torch = problem, driver, torch

    def call(self, addresses: Mapping[str, int]) -> Callable[[], Any]:
        """A function that computes the product of one operand set, and returns the tensor that PyTorch allocates."""
        raise NotImplementedError

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the product (median of the samples). PyTorch has one implementation.

        ``sets``: addresses by name of the array, used in rotation. LaunchError: PyTorch does not compute the problem.
        """
        results: list[Any] = [None] * len(sets)
        with self.on_stream():
            calls = [self.call(addresses) for addresses in sets]

            def launch(i: int) -> None:
                results[i] = None  # its memory is used again
                results[i] = calls[i]()

            launches = [functools.partial(launch, i) for i in range(len(sets))]
            try:
                for each in launches:  # allocates
                    each()
                us = statistics.median(self._driver.time(launches, timing))
            except (RuntimeError, NotImplementedError, ValueError) as error:
                self._driver.synchronize()  # raises if the context is lost
                why = str(error).partition("\n")[0]
                raise LaunchError(f"PyTorch does not compute {self.problem.key()}: {why}") from error
            finally:
                results.clear()
                calls.clear()
                self.torch.cuda.empty_cache()
        return VendorTimes(us, same_layout=us)

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Within the block, PyTorch uses the driver's stream and GPU."""
        torch = self.torch
        stream = torch.cuda.ExternalStream(self._driver.stream, self._driver.index)
        with self._driver.context("PyTorch"), torch.cuda.stream(stream), torch.no_grad():
            yield

    def matrix(self, address: int, rows: int, ld: int, size: int, dtype: str) -> Any:
        """The memory at ``address`` as a tensor of ``rows`` rows of ``ld`` elements. ``size``: bytes of an element;
        ``dtype``: PyTorch's name of its type."""
        return matrix(self.torch, address, rows, ld, size, dtype)


def matrix(torch: Any, address: int, rows: int, ld: int, size: int, dtype: str) -> Any:
    """The method ``TorchProduct.matrix`` for any owner of the memory."""
    memory = torch.as_tensor(DeviceArray(address, (rows, ld * size), "|u1"), device="cuda")
    return memory.view(getattr(torch, dtype))


class TorchMatmul(TorchProduct):
    """A product, or a batch of products, of matrices of one type by ``torch.matmul``. PyTorch reads A and B with their
    strides, and allocates the result without gaps.

    UnavailableError: PyTorch is missing. ShapeError: an extent is zero. LaunchError: the problem has an epilogue,
    conjugated operands, or another type of C than of A.
    """

    def __init__(self, driver: CudaDriver, problem: Gemm, addresses: Mapping[str, int]) -> None:
        if problem.epilogue or len(set(problem.types)) > 1 or set(problem.layout) - set("NT"):
            raise LaunchError(
                f"{problem.key()}: PyTorch's product takes A and B of one type, which is that of C, layouts of N and T,"
                " and no epilogue"
            )
        super().__init__(driver, problem, vendor_libraries.load_torch())

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Within the block, PyTorch also has the arithmetic of the problem."""
        settings = self.torch.backends.cuda.matmul
        before, settings.allow_tf32 = settings.allow_tf32, self.problem.compute == "tf32"
        try:
            with super().on_stream():
                yield
        finally:
            settings.allow_tf32 = before

    def call(self, addresses: Mapping[str, int]) -> Callable[[], Any]:
        a, b = self._operand(A, addresses["A"]), self._operand(B, addresses["B"])
        return lambda: self.torch.matmul(a, b)

    def _operand(self, operand: int, address: int) -> Any:
        p = self.problem
        size, dtype = p.types[operand].bytes, p.types[operand].numpy.name
        memory = self.matrix(address, 1, span(p, operand), size, dtype)
        stored = memory.as_strided(p.stored[operand], (*stored_strides(p, operand), 1))
        return stored.mT if p.layout[operand] == "T" else stored


class TorchScaled(TorchProduct):
    """A product of 8-bit floats with block scales. Scales are copied to the order that PyTorch requires, which is not
    timed; PyTorch allocates the result. ``addresses``: the addresses of the scales, by name.

    UnavailableError: PyTorch is missing, or has no such product. ShapeError: an extent is zero. LaunchError: the
    problem has no block scales, or PyTorch does not support it.
    """

    def __init__(self, driver: CudaDriver, problem: Gemm, addresses: Mapping[str, int]) -> None:
        if not problem.scalings or problem.batch != 1 or problem.layout != "NT" or problem.epilogue:
            raise LaunchError(
                f"{problem.key()}: PyTorch's scaled product takes one product of layout NT with scales of blocks and"
                " without an epilogue"
            )
        super().__init__(driver, problem, load_torch())
        with self.on_stream():
            self._scales = [self._scale(name, addresses) for name in "AB"]

    def call(self, addresses: Mapping[str, int]) -> Callable[[], Any]:
        p, functional = self.problem, self.torch.nn.functional
        types = functional.ScalingType
        recipes = [types.BlockWise1x128 if s.rows == 1 else types.BlockWise128x128 for s in p.scalings.values()]
        type_a, type_b = (x.numpy.name for x in p.types[:2])
        a = self.matrix(addresses["A"], p.m, p.lda, 1, type_a)[:, : p.k]
        b = self.matrix(addresses["B"], p.n, p.ldb, 1, type_b)[:, : p.k].t()
        out, (scale_a, scale_b) = getattr(self.torch, p.output.numpy.name), self._scales
        return lambda: functional.scaled_mm(a, b, scale_a, recipes[0], scale_b, recipes[1], output_dtype=out)

    def _scale(self, name: str, addresses: Mapping[str, int]) -> Any:
        """The scales of an operand in PyTorch's order: those of 1x128 blocks have contiguous rows; those of 128x128
        blocks are contiguous and padded along K."""
        torch, s, array = self.torch, self.problem.scalings[name], f"scale_{name.lower()}"
        memory = DeviceArray(addresses[array], self.problem.scale_shapes[array], "<f4")
        stored = torch.as_tensor(memory, device="cuda")
        rows = stored.t() if s.by_k else stored
        if s.rows == 1:
            return rows.t().contiguous().t()
        return torch.nn.functional.pad(rows, (0, -rows.shape[1] % K_BLOCKS)).contiguous().t()


def torch_product(driver: CudaDriver, problem: Gemm, addresses: Mapping[str, int]) -> TorchProduct:
    """PyTorch's product for a problem: with scales, or of plain matrices. Errors as those of the classes."""
    return (TorchScaled if problem.scalings else TorchMatmul)(driver, problem, addresses)


def load_torch() -> Any:
    """The module PyTorch, with a GPU. UnavailableError: it is missing, or has no product with block scales."""
    torch = vendor_libraries.load_torch()
    if not hasattr(torch.nn.functional, "scaled_mm"):
        raise UnavailableError(f"PyTorch {torch.__version__} has no scaled_mm; install 2.10 or newer with CUDA")
    return torch
