"""cuDNN, as PyTorch calls it by default, in place of a kernel: the algorithm that its heuristic names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ptxgen.errors import LaunchError, ShapeError
from ptxgen.operations.conv import cudnn
from ptxgen.operations.conv.problem import Conv
from ptxgen.runtime.device_array import DeviceArray

if TYPE_CHECKING:
    from ptxgen.runtime.cuda import CudaDriver

Tensors = dict[str, Any]  #: by name: images (x), filters (w), results (y), and the epilogue operands

#: epilogue operation -> what PyTorch does to a result, in place
EPILOGUE: dict[str, Callable[[Any, Tensors], Any]] = {
    "bias": lambda result, t: result.add_(t["bias"]),
    "residual": lambda result, t: result.add_(t["residual"]),
    "relu": lambda result, t: result.relu_(),
}
#: (dtype, compute) of which PyTorch has the same arithmetic
ARITHMETIC = {("f32", "f32"), ("f32", "tf32"), ("f16", "f32"), ("bf16", "f32"), ("f64", "f64")}
MOST_ADDRESSES = 8  #: tuples of addresses whose tensors are kept


class CudnnKernel:
    """A convolution by cuDNN on the arrays of the problem, as a ``VendorKernel``. PyTorch allocates cuDNN's workspace,
    so that launches cannot be captured by others than PyTorch.

    UnavailableError: PyTorch is missing, or has no cuDNN. ShapeError: an extent is zero. LaunchError: PyTorch does not
    compute the problem on its arrays as they are.
    """

    workspace = 0
    allocates = True

    def __init__(self, driver: CudaDriver, problem: Conv, text: str) -> None:
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: an extent is 0, which cuDNN does not support")
        if why := unsupported(problem):
            raise LaunchError(f"{problem.key()}: {why}")
        self.problem, self._driver, self._torch = problem, driver, cudnn.load_torch()
        first = 0 if problem.deep else 1  # index of the first axis of (depth, height, width)
        self._stride, self._dilation = list(problem.strides[first:]), list(problem.dilations[first:])
        self._pads = [begin for begin, _ in problem.pads[first:]]
        #: pixels of an image behind the last window
        self._rest = [
            extent - ((results - 1) * stride + dilation * (taps - 1) + 1 - 2 * pad)
            for extent, results, taps, stride, dilation, pad in zip(
                (problem.d, problem.h, problem.w)[first:],
                problem.results[first:],
                (problem.t, problem.r, problem.s)[first:],
                self._stride,
                self._dilation,
                self._pads,
                strict=True,
            )
        ]
        self._kept: dict[tuple[int, ...], Tensors] = {}

    def launch(self, addresses: Mapping[str, int], workspace: int, stream: int) -> None:
        """Queues the convolution and its epilogue; ``workspace`` is not used."""
        torch, driver = self._torch, self._driver
        on = torch.cuda.ExternalStream(stream or driver.stream, driver.index)
        try:
            with driver.context("cuDNN"), torch.cuda.stream(on), torch.no_grad():
                self._compute(self._tensors(addresses))
        except (RuntimeError, NotImplementedError) as error:
            why = str(error).partition("\n")[0]
            raise LaunchError(f"cuDNN does not compute {self.problem.key()}: {why}") from error

    def _compute(self, t: Tensors) -> None:
        p, aten = self.problem, self._torch.ops.aten
        result, tf32, pads = t[p.tensors[2]], p.compute == "tf32", self._pads
        steps, flags = (self._stride, self._dilation), (False, False, tf32)
        if p.direction == "forward":
            aten.cudnn_convolution.out(t["x"], t["w"], pads, *steps, p.groups, *flags, out=result)
        elif p.direction == "input_grad":
            aten.cudnn_convolution_transpose.out(t["y"], t["w"], pads, self._rest, *steps, p.groups, *flags, out=result)
        else:
            zeros, wanted = [0] * len(pads), [False, True, False]
            options = self._stride, pads, self._dilation, False, zeros, p.groups, wanted
            with self._allowing(tf32):
                made = aten.convolution_backward(t["y"], t["x"], result, None, *options)
            result.copy_(made[1])
        for op in p.epilogue_ops:
            EPILOGUE[op](result, t)

    @contextmanager
    def _allowing(self, tf32: bool) -> Iterator[None]:
        """Within the block PyTorch uses tf32 for f32 as the problem does; the operator has no argument for it."""
        flags = self._torch.backends.cudnn
        previous = flags.allow_tf32
        if previous == tf32 or self.problem.dtype != "f32":
            yield
            return
        flags.allow_tf32 = tf32
        try:
            yield
        finally:
            flags.allow_tf32 = previous

    def _tensors(self, addresses: Mapping[str, int]) -> Tensors:
        key = tuple(addresses[name] for name in self.problem.arrays)
        if key not in self._kept:
            while len(self._kept) >= MOST_ADDRESSES:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self._made(addresses)
        return self._kept[key]

    def _made(self, addresses: Mapping[str, int]) -> Tensors:
        """The arrays at these addresses as tensors with PyTorch's order of axes."""
        p = self.problem
        out = {tensor: self._tensor(addresses[name], tensor) for name, tensor in zip("ABC", p.tensors, strict=True)}
        if "residual" in p.epilogue_operands:
            out["residual"] = self._tensor(addresses["residual"], p.tensors[2])
        if "bias" in p.epilogue_operands:
            out["bias"] = self._memory(addresses["bias"], p.sum_channels).view(-1, *[1] * len(self._stride))
        return out

    def _tensor(self, address: int, tensor: str) -> Any:
        p = self.problem
        extents, steps = p.extents(tensor), p.steps(tensor)
        order = [
            letter for letter in {"x": "ncdhw", "w": "kctrs", "y": "nkzpq"}[tensor] if p.deep or letter not in "dtz"
        ]
        memory = self._memory(address, math.prod(extents.values()))
        return memory.as_strided([extents[letter] for letter in order], [steps[letter] for letter in order])

    def _memory(self, address: int, count: int) -> Any:
        """``count`` elements at an address."""
        torch, element = self._torch, self.problem.element
        return torch.as_tensor(DeviceArray(address, (count * element.bytes,), "|u1"), device="cuda").view(
            getattr(torch, element.numpy.name)
        )


def unsupported(p: Conv) -> str:
    """Why PyTorch does not compute a problem on its arrays as they are; empty: it does."""
    if p.layout not in ("NCHW", "NHWC"):
        return f"layout is {p.layout}; PyTorch's are NCHW and NHWC"
    if (p.dtype, p.compute) not in ARITHMETIC or p.out != p.dtype:
        return f"{p.dtype} summed in {p.compute} into {p.out} is no arithmetic of PyTorch's convolutions"
    if any(begin != end for begin, end in p.pads):
        return "cuDNN has the same padding at both ends of an axis"
    if p.exact_nonfinite:
        return "cuDNN may use Winograd's algorithm, with which a NaN reaches other results"
    if unknown := [op for op in p.epilogue_ops if op not in EPILOGUE]:
        return f"epilogue has {', '.join(unknown)}; PyTorch's calls here have {', '.join(EPILOGUE)}"
    return ""
