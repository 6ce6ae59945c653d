"""cuDNN as a baseline: the PyTorch calls, and systems without PyTorch."""

from __future__ import annotations

import importlib.util
import math
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.conv import cudnn
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.operation import VendorTimes, operation_named
from ptxgen.runtime.driver import Timing

P = Conv(2, 8, 6, 5, 16, 3, 3, padding=1)
NO_DRIVER: Any = None


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is here")
def test_error_without_pytorch_says_what_to_install() -> None:
    assert cudnn.available() is None
    with pytest.raises(UnavailableError, match="pip install torch"):
        operation_named("conv").baselines["cudnn"].best(NO_DRIVER, P, [{}], Timing())


def test_extent_of_zero_is_refused() -> None:
    with pytest.raises(ShapeError, match="an extent is 0"):
        cudnn.Cudnn(NO_DRIVER, Conv(0, 8, 5, 5, 16, 1, 1))


class Tensor:
    def __init__(self, shape: tuple[int, ...], memory: str = "first") -> None:
        self.shape, self.memory = tuple(shape), memory

    def to(self, dtype: str) -> Tensor:
        return self

    def contiguous(self, memory_format: str) -> Tensor:
        return Tensor(self.shape, memory_format)

    def __getattr__(self, name: str) -> Any:  # add_, relu_, view
        return lambda *_: self


class Torch(SimpleNamespace):
    """Records calls with their tensors and numbers; ``microseconds``: by function and layout."""

    def __init__(self, microseconds: dict[tuple[str, str], float]) -> None:
        self.noted: list[tuple[str, str, Any]] = []
        self.held = {"benchmark": False, "benchmark_limit": 10, "deterministic": True, "allow_tf32": True}
        self.microseconds, self.last = microseconds, 0.0
        flags = SimpleNamespace(**self.held)
        aten = {n: self.function(n) for n in ("convolution", "convolution_backward")}
        super().__init__(
            backends=SimpleNamespace(cudnn=flags),
            ops=SimpleNamespace(aten=SimpleNamespace(**aten)),
            cuda=SimpleNamespace(
                ExternalStream=lambda stream, device: stream, stream=nullcontext, empty_cache=lambda: None
            ),
            no_grad=nullcontext,
            contiguous_format="first",
            channels_last="last",
            channels_last_3d="last",
            float32="f",
            float16="h",
            float64="d",
            randn=lambda *shape, **_: Tensor(shape[0] if isinstance(shape[0], tuple) else shape),
            **{
                n: self.function(n)
                for n in ("cudnn_convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu")
            },
        )

    def function(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            memory = arguments[0].memory
            if (name, memory) not in self.microseconds:
                raise RuntimeError(f"{name} finds no engine\nand more")
            assert self.backends.cudnn.benchmark
            assert self.backends.cudnn.benchmark_limit == 0
            self.noted.append((name, memory, arguments))
            self.last = self.microseconds[name, memory]
            return [Tensor((1,))] * 3 if name == "convolution_backward" else Tensor((1,))

        return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``asked(problem, microseconds)``: (best, the calls of PyTorch)."""

    def run(problem: Conv, microseconds: dict[tuple[str, str], float]) -> tuple[VendorTimes, Torch]:
        torch = Torch(microseconds)
        monkeypatch.setattr(cudnn, "load_torch", lambda: torch)

        @contextmanager
        def context(doing: str) -> Any:
            yield

        def time(launches: Any, timing: Timing) -> list[float]:
            launches[0]()
            return [torch.last]

        driver: Any = SimpleNamespace(stream=1, index=0, context=context, time=time, synchronize=lambda: None)
        try:
            return cudnn.Cudnn(driver, problem).best([{}] * 3, Timing()), torch
        finally:
            assert vars(torch.backends.cudnn) == torch.held

    return run


def test_fastest_of_both_layouts_counts(asked: Any) -> None:
    every = {(n, m): 9.0 for n in ("cudnn_convolution", "convolution") for m in ("first", "last")}
    for way in every:
        times = asked(P, {**every, way: 4.0})[0]
        assert (times.best, times.same_layout) == (4.0, 4.0 if way[1] == "first" else 9.0)
    times = asked(P, {("convolution", "last"): 7.0})[0]  # the others find no engine
    assert times.best == 7.0
    assert math.isnan(times.same_layout)
    assert asked(replace(P, layout="NHWC", filters=""), {**every, ("convolution", "last"): 4.0})[0].same_layout == 4.0
    assert math.isnan(asked(replace(P, layout="CHWN", filters=""), every)[0].same_layout)
    with pytest.raises(LaunchError, match=r"cuDNN does not compute conv N=2.*: convolution finds no engine$"):
        asked(P, {})


def test_arguments_of_a_convolution(asked: Any) -> None:
    _, torch = asked(P, {("cudnn_convolution", "last"): 1.0})
    _, _, (x, f, pads, stride, dilation, groups, benchmark, deterministic, tf32) = torch.noted[0]
    assert (x.shape, f.shape, pads, stride, dilation) == ((2, 8, 6, 5), (16, 8, 3, 3), [1, 1], [1, 1], [1, 1])
    assert (groups, benchmark, deterministic, tf32) == (1, True, False, False)
    rounded = Conv(2, 8, 6, 5, 16, 3, 3, compute="tf32", groups=2, layout="CHWN")
    arguments = asked(rounded, {("cudnn_convolution", "first"): 1.0})[1].noted[0][2]
    assert (arguments[1].shape, arguments[5], arguments[8]) == ((16, 4, 3, 3), 2, True)


def test_asymmetric_padding_is_added_before(asked: Any) -> None:
    p = Conv(2, 8, 6, 5, 16, 3, 3, padding=(1, 0, 2, 1))
    arguments = asked(p, {("cudnn_convolution", "first"): 1.0})[1].noted[0][2]
    assert (arguments[0].shape, arguments[2]) == ((2, 8, 7, 8), [0, 0])


@pytest.mark.parametrize(
    ("direction", "mask"), [("input_grad", [True, False, False]), ("weight_grad", [False, True, False])]
)
def test_gradients(asked: Any, direction: str, mask: list[bool]) -> None:
    p = Conv(2, 8, 6, 5, 16, 3, 3, 4, 2, padding=1, direction=direction)
    arguments = asked(p, {("convolution_backward", "first"): 1.0})[1].noted[0][2]
    assert [t.shape for t in arguments[:3]] == [(2, 16, 5, 6, 5), (2, 8, 4, 6, 5), (16, 8, 2, 3, 3)]
    assert (arguments[4], arguments[-1]) == ([1, 1, 1], mask)


def test_the_bias_of_an_input_gradient_is_one_per_channel_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "load_torch", lambda: Torch({}))
    for direction, channels in (("forward", 16), ("input_grad", 8)):
        p = Conv(2, 8, 6, 5, 16, 3, 3, padding=1, direction=direction, epilogue="bias")
        assert cudnn.Cudnn(NO_DRIVER, p)._tensors("first")["bias"].shape == (channels,)


@pytest.mark.parametrize(
    ("epilogue", "name"),
    [("bias,relu", "cudnn_convolution_relu"), ("bias,residual,relu", "cudnn_convolution_add_relu")],
)
def test_epilogue_is_fused_if_cudnn_can(asked: Any, epilogue: str, name: str) -> None:
    p = Conv(2, 8, 6, 5, 16, 3, 3, epilogue=epilogue)
    assert asked(p, {(name, "last"): 1.0, ("convolution", "last"): 2.0})[0].best == 1.0


def test_other_output_types_have_no_baseline(asked: Any) -> None:
    with pytest.raises(LaunchError, match="out is f32; PyTorch's convolutions of f16 write f16"):
        asked(Conv(2, 8, 6, 5, 16, 3, 3, dtype="f16", out="f32"), {})
    with pytest.raises(LaunchError, match="epilogue is 'scale'; PyTorch's convolutions have no scale"):
        asked(Conv(2, 8, 6, 5, 16, 3, 3, epilogue="scale"), {})
