"""The baseline cuDNN, called through PyTorch: the fastest algorithm for a convolution by cuDNN's own benchmarking.

Images and filters are tried in NCHW and in NHWC, whatever the layout of the problem is (cuDNN does not support CHWN).
Times exclude transpositions. Epilogue operations are fused if PyTorch has a fused call, else they run after the
convolution.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.install_advice import install
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing

#: the tensors of a candidate by name: images (x), filters (f), results (y), bias
Tensors = dict[str, Any]
Candidate = Callable[[Tensors], Any]


def available() -> str | None:
    """``cuDNN`` and its version; None: PyTorch has no cuDNN."""
    try:
        number = int(load_torch().backends.cudnn.version())
    except UnavailableError:
        return None
    return f"cuDNN {number // 10000}.{number // 100 % 100}.{number % 100}"


#: the epilogue operations that this baseline computes, fused or after the convolution
_OPS = {"bias", "residual", "relu", "relu_grad", "gelu", "gelu_erf", "silu", "sigmoid"}


class Cudnn:
    """A convolution computed by cuDNN on tensors that this object allocates. ``addresses`` are not used.

    UnavailableError: PyTorch is missing, or has no cuDNN. ShapeError: an extent is zero.
    """

    def __init__(self, driver: CudaDriver, problem: Conv, addresses: Mapping[str, int] | None = None) -> None:
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: an extent is 0, which cuDNN does not support")
        self.problem, self._driver, self._torch = problem, driver, load_torch()
        first = 0 if len(problem.stored[0]) == 5 else 1  # index of the first axis of (depth, height, width)
        self._stride, self._dilation = list(problem.strides[first:]), list(problem.dilations[first:])
        self._filter = [problem.t, problem.r, problem.s][first:]
        self._results = list(problem.results[first:])
        self._images = [problem.d, problem.h, problem.w][first:]
        self._pads = [begin for begin, _ in problem.pads[first:]]
        if any(begin != end for begin, end in problem.pads):
            # cuDNN supports only equal padding at both ends: the images are padded in advance, outside the time
            self._images = [n + sum(pads) for n, pads in zip(self._images, problem.pads[first:], strict=True)]
            self._pads = [0] * len(self._pads)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """Times of the fastest candidate (median of the samples). PyTorch does not expose the first choice of cuDNN's
        heuristic. ``sets``: their number determines how many tensor sets are used in rotation.

        LaunchError: no candidate runs.
        """
        torch, why = self._torch, ""
        times: dict[str, list[float]] = {layout: [] for layout in self._memories()}
        stream = torch.cuda.ExternalStream(self._driver.stream, self._driver.index)  # its GPU becomes the current one
        with self._driver.context("cuDNN"), torch.cuda.stream(stream), torch.no_grad(), self._tuned():
            for layout, memory in self._memories().items():
                sets_of_tensors = [self._tensors(memory) for _ in sets]
                for candidate in self._candidates():
                    try:
                        times[layout].append(self._time(candidate, sets_of_tensors, timing))
                    except (RuntimeError, NotImplementedError) as error:
                        why = str(error).partition("\n")[0]
                        self._driver.synchronize()  # raises if the context is lost
                del sets_of_tensors
            torch.cuda.empty_cache()
        fastest = {layout: min(us) for layout, us in times.items() if us}
        if not fastest:
            raise LaunchError(f"cuDNN does not compute {self.problem.key()}: {why}")
        return VendorTimes(min(fastest.values()), same_layout=fastest.get(self.problem.layout, math.nan))

    @contextmanager
    def _tuned(self) -> Iterator[None]:
        """Within the block, cuDNN benchmarks all algorithms, and uses tf32 only if the problem does."""
        flags = self._torch.backends.cudnn
        settings = {"benchmark": True, "benchmark_limit": 0, "deterministic": False, "allow_tf32": self._allows_tf32}
        previous = {name: getattr(flags, name) for name in settings}
        for name, value in settings.items():
            setattr(flags, name, value)
        try:
            yield
        finally:
            for name, value in previous.items():
                setattr(flags, name, value)

    @property
    def _allows_tf32(self) -> bool:
        return self.problem.compute == "tf32"

    def _memories(self) -> dict[str, Any]:
        """PyTorch's memory format of each layout."""
        torch = self._torch
        last = torch.channels_last if len(self._images) == 2 else torch.channels_last_3d
        return {"NCHW": torch.contiguous_format, "NHWC": last}

    def _tensors(self, memory: Any) -> Tensors:
        """A set of random images, filters and results in one memory format."""
        p, torch = self.problem, self._torch
        torch_dtype = getattr(torch, p.element.numpy.name)
        if p.out != p.dtype:
            raise LaunchError(f"out is {p.out}; PyTorch's convolutions of {p.dtype} write {p.dtype}")
        if "scale" in p.epilogue_ops:
            raise LaunchError(f"epilogue is {p.epilogue!r}; PyTorch's convolutions have no scale")
        if unknown := set(p.epilogue_ops) - _OPS:
            raise LaunchError(
                f"epilogue is {p.epilogue!r}; PyTorch's convolutions have no {', '.join(sorted(unknown))}"
            )
        shapes = {
            "x": (p.n, p.c, *self._images),
            "f": (p.k, p.c // p.groups, *self._filter),
            "y": (p.n, p.k, *self._results),
        }
        made = {
            name: torch.randn(shape, device="cuda", dtype=torch.float32)
            .to(torch_dtype)
            .contiguous(memory_format=memory)
            for name, shape in shapes.items()
        }
        made["bias"] = torch.randn(p.sum_channels, device="cuda").to(torch_dtype) if "bias" in p.epilogue_ops else None
        return made

    def _candidates(self) -> list[Candidate]:
        p, torch = self.problem, self._torch
        stride, dilation, zeros = self._stride, self._dilation, [0] * len(self._stride)
        if p.direction != "forward":
            wanted = [p.direction == "input_grad", p.direction == "weight_grad", False]
            at = wanted.index(True)

            def gradient(t: Tensors) -> Any:
                return torch.ops.aten.convolution_backward(
                    t["y"], t["x"], t["f"], None, stride, self._pads, dilation, False, zeros, p.groups, wanted
                )[at]

            return [lambda t: self._after(t, gradient(t), ("bias",))]

        def cudnn(t: Tensors) -> Any:
            y = torch.cudnn_convolution(
                t["x"], t["f"], self._pads, stride, dilation, p.groups, True, False, self._allows_tf32
            )
            return self._after(t, y, ("bias",))

        def chosen(t: Tensors) -> Any:
            """PyTorch's choice, which includes its own depthwise kernels."""
            y = torch.ops.aten.convolution(
                t["x"], t["f"], t["bias"], stride, self._pads, dilation, False, zeros, p.groups
            )
            return self._after(t, y)

        def fused(t: Tensors) -> Any:
            if "residual" in p.epilogue_ops:
                return torch.cudnn_convolution_add_relu(
                    t["x"], t["f"], t["y"], 1.0, t["bias"], stride, self._pads, dilation, p.groups
                )
            return torch.cudnn_convolution_relu(t["x"], t["f"], t["bias"], stride, self._pads, dilation, p.groups)

        return [cudnn, chosen, *([fused] if "relu" in p.epilogue_ops else [])]

    def _after(self, t: Tensors, y: Any, more: tuple[str, ...] = ()) -> Any:
        """Applies the epilogue operations to a result. The bias is added only if ``more`` names it."""
        torch, stages = self._torch, self.problem.epilogue_ops
        if "bias" in stages and "bias" in more:
            y.add_(t["bias"].view(-1, *[1] * len(self._images)))
        if "residual" in stages:
            y.add_(t["y" if self.problem.direction == "forward" else "x"])
        if "relu" in stages:
            y.relu_()
        if "relu_grad" in stages:
            y = torch.ops.aten.threshold_backward(y, t["y" if self.problem.direction == "forward" else "x"], 0)
        if "gelu" in stages:
            y = torch.nn.functional.gelu(y, approximate="tanh")
        if "gelu_erf" in stages:
            y = torch.nn.functional.gelu(y)
        if "sigmoid" in stages:
            y.sigmoid_()
        return torch.nn.functional.silu(y, inplace=True) if "silu" in stages else y

    def _time(self, candidate: Candidate, sets_of_tensors: Sequence[Tensors], timing: Timing) -> float:
        """The median time of a candidate. Each operand set has its own result, so that launches write different
        memory."""
        results: list[Any] = [None] * len(sets_of_tensors)

        def launch(i: int) -> None:
            results[i] = candidate(sets_of_tensors[i])

        launches = [functools.partial(launch, i) for i in range(len(sets_of_tensors))]
        for launch_set in launches:  # the first launch benchmarks the algorithms; all launches allocate memory
            launch_set()
        return statistics.median(self._driver.time(launches, timing))


@functools.cache
def load_torch() -> Any:
    """The module PyTorch. UnavailableError: PyTorch, its cuDNN or a GPU is missing."""
    try:
        import torch
    except ImportError as error:
        raise UnavailableError(
            f"cuDNN is used through PyTorch, which cannot be imported ({error}); {install('torch')}"
        ) from error
    backend: Any = torch.backends.cudnn  # has no annotations
    if not torch.cuda.is_available() or not backend.is_available():
        raise UnavailableError(f"PyTorch {torch.__version__} has no GPU, or no cuDNN; install a build with CUDA")
    return torch
