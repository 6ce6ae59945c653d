"""The baseline PyTorch for jagged problems: ``torch._grouped_mm``, and ``torch._scaled_grouped_mm`` for 8-bit floats,
which are CUTLASS on Hopper and newer."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.install_advice import install
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.device_array import DeviceArray
from ptxgen.runtime.driver import Timing

#: type -> the type of numbers in memory of its size, and PyTorch's name of it
TYPES = {"bf16": ("<i2", "bfloat16"), "e4m3": ("|i1", "float8_e4m3fn")}
#: addresses of the arrays that hold A, B and C of all items
Addresses = tuple[int, int, int]


def available() -> str | None:
    """``PyTorch`` and its version; None: PyTorch is missing, or has no GPU or no grouped product."""
    try:
        return f"PyTorch {load_torch().__version__}"
    except UnavailableError:
        return None


class TorchGrouped:
    """A jagged product that PyTorch computes on the operands of the problem, without copies. PyTorch allocates the
    result. ``addresses``: has the address of ``offsets``, the ends of the items.

    UnavailableError: PyTorch is missing, or has no grouped product. ShapeError: all items are empty. LaunchError: the
    problem is not jagged, or has types or an epilogue that PyTorch does not support.
    """

    def __init__(self, driver: CudaDriver, problem: GroupedGemm, addresses: Mapping[str, int]) -> None:
        if not problem.jagged:
            raise LaunchError("jagged is ''; PyTorch's grouped product takes items that are parts of one array")
        self._check_types(problem)
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: all items are empty, which PyTorch does not support")
        self.problem, self._driver, self._torch = problem, driver, load_torch()
        with driver.context("PyTorch"), self._torch.cuda.stream(self._stream):  # its GPU is the current one
            self._ends = self._torch.as_tensor(
                DeviceArray(addresses["offsets"], (len(problem.items),), "<i4"), device="cuda"
            )
        self._tensors: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._results: dict[Addresses, Any] = {}

    def _check_types(self, p: GroupedGemm) -> None:
        """Raises LaunchError if PyTorch has no grouped product with these types, or this epilogue."""
        if (p.dtype, p.compute, p.out) != ("bf16", "f32", "bf16"):
            raise LaunchError(
                f"PyTorch's grouped product takes bf16, not {p.dtype} summed in {p.compute} with C of {p.out}"
            )
        if p.epilogue_ops:
            raise LaunchError(f"epilogue is {p.epilogue!r}; PyTorch's grouped product has none")

    def _product(self, addresses: Mapping[str, int]) -> Any:
        return self._torch._grouped_mm(*self._operands(addresses), offs=self._ends)

    def run(self, addresses: Mapping[str, int]) -> Any:
        """Queues the product on the driver's stream, and returns the result, a tensor. Every operand set keeps its own
        result, so that launches write different memory.

        LaunchError: PyTorch does not compute the problem.
        """
        torch = self._torch
        a, b, c = (addresses[name] for name in "ABC")
        with self._driver.context("PyTorch"), torch.cuda.stream(self._stream), torch.no_grad():
            self._results.pop((a, b, c), None)  # its memory is used again
            try:
                self._results[a, b, c] = self._product(addresses)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                self._driver.synchronize()  # raises if the context is lost
                why = str(error).partition("\n")[0]
                raise LaunchError(f"PyTorch does not compute {self.problem.key()}: {why}") from error
            return self._results[a, b, c]

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the product: the median of the samples in microseconds. PyTorch has one implementation.

        ``sets``: addresses by name of the array, used in rotation. LaunchError: PyTorch does not compute the problem.
        """
        launches = [functools.partial(self.run, addresses) for addresses in sets]
        try:
            for launch in launches:  # compiles and allocates
                launch()
            us = statistics.median(self._driver.time(launches, timing))
            return VendorTimes(us, same_layout=us)
        finally:
            self._results.clear()
            self._tensors.clear()
            self._torch.cuda.empty_cache()

    @property
    def _stream(self) -> Any:
        return self._torch.cuda.ExternalStream(self._driver.stream, self._driver.index)

    def _operands(self, addresses: Mapping[str, int]) -> tuple[Any, Any]:
        """A and B as PyTorch takes them: an operand with the jagged axis has two dimensions, another one has an axis of
        items. Layout T is a transposed view."""
        a, b = addresses["A"], addresses["B"]
        if (a, b) not in self._tensors:
            p = self.problem
            m, n, k = (int(v) for v in p.extents.max(axis=0))
            total = int(p.offsets[-1])
            if p.jagged == "m":
                shapes: tuple[tuple[int, ...], ...] = (total, k), (len(p.items), k, n)
            else:
                shapes = (m, total), (total, n)
            self._tensors[a, b] = self._view(a, shapes[0], 0), self._second(addresses, shapes[1])
        return self._tensors[a, b]

    def _second(self, addresses: Mapping[str, int], shape: tuple[int, ...]) -> Any:
        """The tensor op(B)."""
        return self._view(addresses["B"], shape, 1)

    def _view(self, address: int, shape: tuple[int, ...], operand: int) -> Any:
        """The tensor op(A) or op(B) with ``shape``, in memory at ``address``."""
        *items, rows, columns = shape
        transposed = self.problem.layout[operand] == "T"
        if transposed:
            rows, columns = columns, rows
        number, name = TYPES[self.problem.dtype]
        memory = DeviceArray(address, (*items, rows, int(self.problem.lds[0, operand])), number)
        tensor = self._torch.as_tensor(memory, device="cuda").view(getattr(self._torch, name))[..., :columns]
        return tensor.transpose(-2, -1) if transposed else tensor


class TorchScaledGrouped(TorchGrouped):
    """A jagged product of e4m3 that ``torch._scaled_grouped_mm`` computes: items are rows of A, each row of A and each
    column of B has a scale, and C is bf16."""

    def _check_types(self, p: GroupedGemm) -> None:
        types, form = (p.dtype, p.dtype_b, p.out), (p.jagged, p.layout, p.epilogue, p.block_a)
        if types != ("e4m3", "", "bf16") or form != ("m", "NT", "scale_rows", ""):
            raise LaunchError(
                f"{p.key()}: PyTorch's scaled grouped product takes e4m3 with C of bf16, jagged=m, layout NT and"
                " epilogue scale_rows"
            )

    def _product(self, addresses: Mapping[str, int]) -> Any:
        a, b = self._operands(addresses)
        shapes = {"scale_a": (a.shape[0],), "scale_b": (b.shape[0], b.shape[-1])}
        scale_a, scale_b = (
            self._torch.as_tensor(DeviceArray(addresses[name], shape, "<f4"), device="cuda")
            for name, shape in shapes.items()
        )
        fast = self.problem.compute == "f32_fast_accum"
        return self._torch._scaled_grouped_mm(
            a, b, scale_a, scale_b, offs=self._ends, out_dtype=self._torch.bfloat16, use_fast_accum=fast
        )


def torch_grouped(driver: CudaDriver, problem: GroupedGemm, addresses: Mapping[str, int]) -> TorchGrouped:
    """PyTorch's grouped product of the types of ``problem``."""
    product = TorchScaledGrouped if problem.element.fp8 else TorchGrouped
    return product(driver, problem, addresses)


@functools.cache
def load_torch() -> Any:
    """The module PyTorch, with a GPU. UnavailableError: it is missing, or has no grouped product."""
    try:
        import torch
    except ImportError as error:
        raise UnavailableError(f"PyTorch cannot be imported ({error}); {install('torch')}") from error
    if not torch.cuda.is_available() or not hasattr(torch, "_grouped_mm"):
        raise UnavailableError(
            f"PyTorch {torch.__version__} has no GPU, or no torch._grouped_mm; install 2.8 or newer with CUDA"
        )
    return torch
