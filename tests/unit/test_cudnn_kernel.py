"""cuDNN in place of a kernel: PyTorch's calls on the arrays of the problem, computed by PyTorch on the CPU."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import LaunchError, ShapeError
from ptxgen.operations.conv import cudnn
from ptxgen.operations.conv.cudnn_kernel import CudnnKernel
from ptxgen.operations.conv.operation import CONV
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.operation import HEURISTIC

DRIVER: Any = SimpleNamespace(stream=3, index=0, context=nullcontext)


class CpuTorch:
    """PyTorch whose cuDNN functions compute on the CPU, and whose tensors are host memory. ``streams``: that were
    used."""

    def __init__(self) -> None:
        self.torch, self.streams = pytest.importorskip("torch"), []
        functional = self.torch.nn.functional

        def forward(x: Any, w: Any, pads: Any, stride: Any, dilation: Any, groups: int, *flags: bool, out: Any) -> None:
            assert not any(flags[:2])
            out.copy_(functional.conv2d(x, w, None, stride, pads, dilation, groups))

        def transpose(
            y: Any, w: Any, pads: Any, rest: Any, stride: Any, dilation: Any, groups: int, *flags: bool, out: Any
        ) -> None:
            out.copy_(functional.conv_transpose2d(y, w, None, stride, pads, rest, groups, dilation))

        self.ops = SimpleNamespace(
            aten=SimpleNamespace(
                cudnn_convolution=SimpleNamespace(out=forward),
                cudnn_convolution_transpose=SimpleNamespace(out=transpose),
                convolution_backward=self.torch.ops.aten.convolution_backward,
            )
        )
        self.cuda = SimpleNamespace(
            ExternalStream=lambda stream, index: self.streams.append(stream), stream=lambda on: nullcontext()
        )

    def as_tensor(self, array: Any, device: str) -> Any:
        facts = array.__cuda_array_interface__
        held = (ctypes.c_uint8 * facts["shape"][0]).from_address(facts["data"][0])
        return self.torch.frombuffer(held, dtype=self.torch.uint8)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> CpuTorch:
    stand_in = CpuTorch()
    monkeypatch.setattr(cudnn, "load_torch", lambda: stand_in)
    return stand_in


@pytest.mark.parametrize(
    "p",
    [
        Conv(2, 4, 7, 6, 6, 3, 2, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        Conv(2, 4, 8, 6, 6, 3, 3, stride=2, padding=1, layout="NHWC", epilogue="bias,relu"),
        Conv(2, 3, 5, 6, 4, 3, 3, layout="NHWC", filters="KCRS", epilogue="bias,residual"),
        Conv(2, 4, 8, 7, 6, 3, 3, stride=(3, 2), padding=1, direction="input_grad", groups=2),
        Conv(2, 4, 8, 7, 6, 3, 3, stride=2, layout="NHWC", direction="input_grad", dtype="f64"),
        Conv(2, 4, 8, 7, 6, 3, 3, padding=1, direction="weight_grad", groups=2),
        Conv(2, 4, 8, 7, 6, 3, 3, stride=2, layout="NHWC", direction="weight_grad", compute="tf32"),
    ],
    ids=lambda p: p.key(),
)
def test_results_are_those_of_the_reference(torch: CpuTorch, p: Conv) -> None:
    rng, dtype = np.random.default_rng(0), p.element.numpy
    shapes = dict(zip("ABC", p.stored, strict=True)) | {"bias": (p.sum_channels,), "residual": p.stored[2]}
    arrays = {name: rng.integers(-3, 4, shapes[name]).astype(dtype) for name in p.arrays}
    flag = torch.backends.cudnn.allow_tf32
    kernel = CudnnKernel(DRIVER, p, HEURISTIC)
    for stream in (0, 5):
        arrays["C"].fill(np.nan)
        kernel.launch({name: x.ctypes.data for name, x in arrays.items()}, 0, stream)
    assert torch.streams == [3, 5]
    assert torch.backends.cudnn.allow_tf32 == flag
    expected = CONV.product(p, arrays, None)[0].reshape(p.stored[2])
    for name, (_, shape) in p.broadcast_shapes.items():
        expected = expected + arrays[name].reshape(shape)
    np.testing.assert_array_equal(arrays["C"], np.maximum(expected, 0) if "relu" in p.epilogue_ops else expected)


@pytest.mark.parametrize(
    ("p", "why"),
    [
        (Conv(1, 1, 3, 3, 1, 1, 1, layout="CHWN"), "layout is CHWN; PyTorch's are NCHW and NHWC"),
        (Conv(1, 1, 3, 3, 1, 1, 1, dtype="f16", out="f32"), "f16 summed in f32 into f32 is no arithmetic"),
        (Conv(1, 1, 3, 3, 1, 2, 2, padding=(1, 0, 1, 0)), "the same padding at both ends"),
        (Conv(1, 1, 3, 3, 1, 1, 1, exact_nonfinite=True), "a NaN reaches other results"),
        (Conv(1, 1, 3, 3, 1, 1, 1, epilogue="gelu"), "epilogue has gelu"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_other_problems_are_refused(p: Conv, why: str) -> None:
    with pytest.raises(LaunchError, match=why):
        CudnnKernel(DRIVER, p, HEURISTIC)
    with pytest.raises(ShapeError, match="an extent is 0"):
        CudnnKernel(DRIVER, Conv(0, 1, 3, 3, 1, 1, 1), HEURISTIC)


def test_errors_of_pytorch_name_the_problem(torch: CpuTorch) -> None:
    def fails(*given: Any, **options: Any) -> None:
        raise RuntimeError("no engine\nand more")

    torch.ops.aten.cudnn_convolution.out = fails
    x, p = np.zeros(9, np.float32), Conv(1, 1, 3, 3, 1, 1, 1)
    with pytest.raises(LaunchError, match=r"cuDNN does not compute conv N=1.*: no engine$"):
        CudnnKernel(DRIVER, p, HEURISTIC).launch(dict.fromkeys("ABC", x.ctypes.data), 0, 0)
