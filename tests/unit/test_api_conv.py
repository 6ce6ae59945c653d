"""Convolutions from Python: results, refused arguments, the call cache."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, launch_function, launches, runners
from ptxgen.errors import DtypeError, InputError, OverlapError, ShapeError
from ptxgen.lowering import implicit_gemm
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.reference import reference
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

Array = np.ndarray[Any, Any]


class Exact:
    """Replaces kernels: computes a problem in float64, on host arrays or in the device's memory."""

    def __init__(self, problem: Conv) -> None:
        self.problem = problem

    def compute(
        self, arrays: dict[str, Array], alpha: float = 1.0, beta: float = 0.0, bind: Any = None
    ) -> dict[str, Array]:
        assert (*(arrays[name].shape for name in "ABC"), alpha, beta) == (*self.problem.stored, 1.0, 0.0)
        return {"C": reference(self.problem, arrays).exact.astype(arrays["C"].dtype)}


def launcher(bound: Exact, use: str | None = None) -> Any:
    p = bound.problem

    def go(addresses: tuple[int, ...], stream: int, own: int | None = None) -> None:
        at = dict(zip(p.arrays, addresses, strict=True))
        driver: Any = drivers.driver()
        for name, address in zip(("aligned_input", "aligned_filter"), addresses[:2], strict=True):
            assert p.direction != "forward" or address % getattr(p, name) == 0
        shapes = dict(zip("ABC", p.stored, strict=True)) | {n: s for n, (s, _) in p.broadcast_shapes.items()}
        arrays = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
        for name in p.arrays:
            if name != "C":
                driver.download(at[name], arrays[name])
        driver.upload(at["C"], bound.compute(arrays)["C"])

    return go


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Conv]:
    """The problems of the calls."""
    problems: list[Conv] = []

    def runner(problem: Conv, stream: int = 0, on: Any = None) -> Exact:
        problems.append(problem)
        return Exact(problem)

    driver = EmulatedDriver()
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(runners, "runner_for", runner)
    monkeypatch.setattr(launch_function, "make_launch", launcher)
    return problems


def integers(*shape: int, seed: int = 0, dtype: str = "f4") -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def slow(
    x: Array,
    f: Array,
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int = 1,
) -> Array:
    """By definition: NCHW and KCRS, with any number of axes."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    outputs = [
        (n - d * (t - 1) - 1) // s + 1 for n, t, s, d in zip(x.shape[2:], f.shape[2:], stride, dilation, strict=True)
    ]
    k, c = f.shape[:2]
    y = np.zeros((x.shape[0], k, *outputs))
    for at in np.ndindex(*outputs):
        window = tuple(
            slice(i * s, i * s + d * (t - 1) + 1, d)
            for i, s, d, t in zip(at, stride, dilation, f.shape[2:], strict=True)
        )
        for g in range(groups):
            mine = slice(g * k // groups, (g + 1) * k // groups)
            part = x[(slice(None), slice(g * c, (g + 1) * c), *window)].reshape(x.shape[0], -1)
            y[(slice(None), mine, *at)] = part @ f[mine].reshape(k // groups, -1).T
    return y


IMAGES = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "CHWN": (1, 2, 3, 0)}
FILTERS = {"KCRS": (0, 1, 2, 3), "KRSC": (0, 2, 3, 1), "CRSK": (1, 2, 3, 0)}


@pytest.mark.each_value
@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("filters", [None, "KCRS", "CRSK"])
def test_layouts_name_the_axes(layout: str, filters: str | None) -> None:
    x, f = integers(2, 3, 6, 5), integers(4, 3, 3, 2, seed=1)
    natural = filters or dict(zip(IMAGES, FILTERS, strict=True))[layout]
    y = ptxgen.conv2d(
        x.transpose(IMAGES[layout]), f.transpose(FILTERS[natural]), layout=layout, filter_layout=filters, padding=1
    )
    want = slow(x, f, (1, 1), ((1, 1), (1, 1)), (1, 1))
    assert np.array_equal(y, want.transpose(IMAGES[layout]))


@pytest.mark.parametrize(
    ("given", "stride", "pads", "dilation", "groups"),
    [
        ({"stride": 2}, (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
        ({"stride": (2, 1), "padding": ((1, 0), (2, 1))}, (2, 1), ((1, 0), (2, 1)), (1, 1), 1),
        ({"padding": "same", "dilation": (1, 2)}, (1, 1), ((1, 1), (1, 1)), (1, 2), 1),
        ({"padding": "same", "stride": 2}, (2, 2), ((1, 1), (0, 1)), (1, 1), 1),
        ({"groups": 2, "padding": "valid"}, (1, 1), ((0, 0), (0, 0)), (1, 1), 2),
    ],
)
def test_stride_padding_and_dilation(given: dict[str, Any], stride: Any, pads: Any, dilation: Any, groups: int) -> None:
    x, f = integers(2, 4, 7, 6), integers(4, 4 // groups, 3, 2, seed=1)
    assert np.array_equal(ptxgen.conv2d(x, f, **given), slow(x, f, stride, pads, dilation, groups))


def test_1d_and_3d_convolutions() -> None:
    x, f = integers(2, 3, 17), integers(4, 3, 5, seed=1)
    want = slow(x, f, (2,), ((2, 2),), (1,))
    assert np.array_equal(ptxgen.conv1d(x, f, stride=2, padding=2), want)
    last = ptxgen.conv1d(x.transpose(0, 2, 1), f.transpose(0, 2, 1), stride=2, padding=2, layout="NWC")
    assert np.array_equal(last, want.transpose(0, 2, 1))
    x, f = integers(1, 2, 4, 5, 6), integers(3, 2, 2, 3, 3, seed=1)
    assert np.array_equal(ptxgen.conv3d(x, f, padding=1), slow(x, f, (1,) * 3, ((1, 1),) * 3, (1,) * 3))


def test_gradients_are_adjoint() -> None:
    x, f = integers(2, 4, 6, 5), integers(6, 2, 3, 3, seed=1)
    how: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 0), (1, 1)), "groups": 2}
    y = ptxgen.conv2d(x, f, **how)
    dy = integers(*y.shape, seed=2)
    dx = ptxgen.conv2d_input_grad(dy, f, x.shape, **how)
    df = ptxgen.conv2d_weight_grad(x, dy, f.shape, **how)
    assert (dx.shape, df.shape) == (x.shape, f.shape)
    assert np.sum(y * dy) == np.sum(dx * x) == np.sum(df * f)
    last = (0, 2, 3, 1)
    again = ptxgen.conv2d_input_grad(
        dy.transpose(last), f.transpose(last), [x.shape[i] for i in last], layout="NHWC", **how
    )
    assert np.array_equal(again, dx.transpose(last))


def scattered(
    x: Array,
    f: Array,
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    more: tuple[int, ...],
    groups: int = 1,
) -> Array:
    """A transposed convolution by definition: each pixel adds its multiple of a filter to the result. ``more``: the
    output padding."""
    c, taps = f.shape[1], f.shape[2:]
    whole = [
        (n - 1) * s + d * (t - 1) + 1 + m
        for n, s, d, t, m in zip(x.shape[2:], stride, dilation, taps, more, strict=True)
    ]
    y = np.zeros((x.shape[0], c * groups, *whole))
    for at in np.ndindex(*x.shape[2:]):
        window = [
            slice(i * s, i * s + d * (t - 1) + 1, d) for i, s, d, t in zip(at, stride, dilation, taps, strict=True)
        ]
        for g in range(groups):
            mine = slice(g * len(f) // groups, (g + 1) * len(f) // groups)
            y[(slice(None), slice(g * c, (g + 1) * c), *window)] += np.tensordot(
                x[(slice(None), mine, *at)], f[mine], 1
            )
    return y[(..., *(slice(b, n - e) for n, (b, e) in zip(whole, pads, strict=True)))]


@pytest.mark.parametrize(
    ("given", "stride", "pads", "dilation", "more", "groups"),
    [
        ({"stride": 2}, (2, 2), ((0, 0), (0, 0)), (1, 1), (0, 0), 1),
        ({"stride": (2, 3), "padding": 1, "output_padding": (1, 2)}, (2, 3), ((1, 1), (1, 1)), (1, 1), (1, 2), 2),
        ({"stride": 4, "dilation": (2, 1), "output_padding": 3}, (4, 4), ((0, 0), (0, 0)), (2, 1), (3, 3), 1),
        ({"dilation": 3, "padding": 2, "output_padding": 2}, (1, 1), ((2, 2), (2, 2)), (3, 3), (2, 2), 1),
        ({"stride": 2, "padding": ((1, 0), (0, 2))}, (2, 2), ((1, 0), (0, 2)), (1, 1), (0, 0), 2),
    ],
)
def test_transposed_convolutions(
    given: dict[str, Any], stride: Any, pads: Any, dilation: Any, more: Any, groups: int
) -> None:
    """Strides above the extent of the filter, output padding of more than the stride, groups; bias, layouts."""
    x, f, bias = integers(2, 6, 4, 3), integers(6, 2, 3, 2, seed=1), integers(2 * groups, seed=2)
    want = scattered(x, f, stride, pads, dilation, more, groups)
    assert np.array_equal(ptxgen.conv_transpose2d(x, f, groups=groups, **given), want)
    last = (0, 2, 3, 1)
    made = ptxgen.conv_transpose2d(
        x.transpose(last),
        f.transpose(last),
        layout="NHWC",
        groups=groups,
        bias=bias,
        residual=want.astype("f4").transpose(last),
        activation="relu",
        **given,
    )
    assert np.array_equal(made, np.maximum(2 * want + bias.reshape(-1, 1, 1), 0).transpose(last))


def test_transposed_1d_and_3d_convolutions() -> None:
    x, f = integers(2, 3, 7), integers(3, 4, 5, seed=1)
    want = scattered(x, f, (3,), ((2, 2),), (1,), (1,))
    assert np.array_equal(ptxgen.conv_transpose1d(x, f, stride=3, padding=2, output_padding=1), want)
    x, f = integers(1, 3, 2, 3, 4), integers(3, 2, 2, 3, 3, seed=1)
    want = scattered(x, f, (2, 1, 2), ((1, 1),) * 3, (1,) * 3, (0, 0, 1))
    made = ptxgen.conv_transpose3d(x, f, stride=(2, 1, 2), padding=1, output_padding=(0, 0, 1))
    assert np.array_equal(made, want)


def test_epilogue_is_computed_by_the_kernel() -> None:
    x, f, bias, residual = integers(1, 3, 5, 5), integers(4, 3, 3, 3, seed=1), integers(4, seed=2), integers(1, 4, 3, 3)
    plain = slow(x, f, (1, 1), ((0, 0), (0, 0)), (1, 1))
    made = ptxgen.conv2d(x, f, bias=bias, residual=residual, activation="relu")
    assert np.array_equal(made, np.maximum(plain + bias.reshape(-1, 1, 1) + residual, 0))
    last = (0, 2, 3, 1)
    made = ptxgen.conv2d(x.transpose(last), f.transpose(last), layout="NHWC", bias=bias)
    assert np.array_equal(made, (plain + bias.reshape(-1, 1, 1)).transpose(last))


def test_out_of_any_layout() -> None:
    x, f = integers(2, 3, 5, 5), integers(4, 3, 3, 3, seed=1)
    want = slow(x, f, (1, 1), ((0, 0), (0, 0)), (1, 1))
    room = np.full((2, 4, 6, 6), 7, np.float32)
    assert ptxgen.conv2d(x, f, out=room[:, :, ::2, ::2]) is not None
    assert np.array_equal(room[:, :, ::2, ::2], want)
    assert (room[:, :, 1::2] == 7).all()
    half = ptxgen.conv2d(x.astype("f2"), f.astype("f2"))
    assert half.dtype == np.float16
    assert np.array_equal(half, want)
    wide = np.empty(want.shape, np.float32)
    ptxgen.conv2d(x.astype("f2"), f.astype("f2"), out=wide)
    assert np.array_equal(wide, want)


def test_exact_nonfinite_is_asked_of_all_convolutions(asked: list[Conv]) -> None:
    x, w, y = (np.ones(shape, np.float32) for shape in ((1, 2, 5, 6), (3, 2, 3, 3), (1, 3, 3, 4)))
    for exact in (False, True):
        named = {"exact_nonfinite": exact}
        ptxgen.conv2d(x, w, **named)
        ptxgen.conv1d(x[:, :, 0], w[:, :, 0], **named)
        ptxgen.conv3d(x[:, :, None], w[:, :, None], **named)
        ptxgen.conv_transpose2d(y, w, **named)
        ptxgen.conv2d_input_grad(y, w, x.shape, **named)
        ptxgen.conv2d_weight_grad(x, y, w.shape, **named)
        assert [p.exact_nonfinite for p in asked] == [exact] * 6
        asked.clear()
    with pytest.raises(InputError, match="exact_nonfinite is 2; it must be True or False"):
        ptxgen.conv2d(x, w, exact_nonfinite=2)


def test_empty_convolutions() -> None:
    f = integers(4, 3, 3, 3)
    assert ptxgen.conv2d(integers(0, 3, 5, 5), f).shape == (0, 4, 3, 3)


X, F = integers(2, 3, 5, 5), integers(4, 3, 3, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ptxgen.conv2d(X[0], F), ShapeError, r"images has shape \(3, 5, 5\); it must have 4 axes, NCHW"),
        (
            lambda: ptxgen.conv2d(X, F[:, :2]),
            ShapeError,
            "filters have 2 channels and groups is 1; their product must be 3",
        ),
        (lambda: ptxgen.conv2d(X, F.astype("f2")), DtypeError, "images is f32 and filters is f16"),
        (lambda: ptxgen.conv2d(X, F, groups=3), ShapeError, "filters have 3 channels and groups is 3"),
        (lambda: ptxgen.conv2d(X, F, stride=0), ShapeError, "stride"),
        (lambda: ptxgen.conv2d(X[:, :, :2], F), ShapeError, "h is 2"),
        (lambda: ptxgen.conv2d(X, F, out=np.empty((2, 4, 3, 2), "f4")), ShapeError, r"out has shape .*\(2, 4, 3, 3\)"),
        (lambda: ptxgen.conv2d(X, F, out=np.empty((2, 4, 3, 3), "f2")), DtypeError, "out is f16; with images of f32"),
        (lambda: ptxgen.conv2d(X, F, bias=integers(3)), ShapeError, r"bias has shape \(3,\); it must have \(4,\)"),
        (lambda: ptxgen.conv2d(X, F, bias=integers(4, dtype="f8")), DtypeError, "bias is f64; it must be f32"),
        (lambda: ptxgen.conv2d(X, F, residual=X), ShapeError, "residual has shape"),
        (lambda: ptxgen.conv2d(X, F, activation="relu_grad"), InputError, "activation is 'relu_grad' and aux is None"),
        (lambda: ptxgen.conv2d(X, F, aux=X), InputError, "activation is None and aux is an array"),
        (lambda: ptxgen.conv2d(X, F, activation="relu_grad", aux=X), ShapeError, "aux has shape"),
        (lambda: ptxgen.conv2d(X, F, activation="sine"), InputError, "activation is 'sine'; it must be one of relu"),
        (lambda: ptxgen.conv2d(X, F, padding="full"), InputError, "padding is 'full'"),
        (lambda: ptxgen.conv2d(X, F, padding=-1), ShapeError, "padding is -1; it must be an integer from 0"),
        (lambda: ptxgen.conv2d(X, F, stride=0), ShapeError, "stride is 0; it must be an integer from 1"),
        (lambda: ptxgen.conv2d(X, F, dilation=(1, 0)), ShapeError, "an integer from 1, or 2 such integers"),
        (lambda: ptxgen.conv2d(X, F, groups=0), ShapeError, "groups is 0; it must be an integer from 1"),
        (lambda: ptxgen.conv2d(X, F, groups=1.0), ShapeError, "groups is 1.0; it must be an integer from 1"),
        (lambda: ptxgen.conv2d_input_grad(X, F, 5), ShapeError, "input_shape is 5; it must be a shape"),
        (lambda: ptxgen.conv2d_weight_grad(X, X, (4, 3, 3, -3)), ShapeError, "extents must be integers from 0"),
        (lambda: ptxgen.conv2d(X, F, layout="HWCN"), InputError, "layout is 'HWCN'; it must be one of NCHW"),
        (lambda: ptxgen.conv2d([1], F), InputError, "images is list"),
        (lambda: ptxgen.conv2d_input_grad(X, F, (2, 3, 7, 7)), ShapeError, r"grads has shape \(2, 3, 5, 5\)"),
        (lambda: ptxgen.conv2d_input_grad(X, F, (3, 7, 7)), ShapeError, r"input_shape has shape \(3, 7, 7\)"),
        (lambda: ptxgen.conv2d_weight_grad(X, X, (3, 3, 3, 3)), ShapeError, r"grads .* have \(2, 3, 3, 3\), NKPQ"),
        (lambda: ptxgen.conv_transpose2d(X, F), ShapeError, "images have 3 channels and filters 4 along K"),
        (lambda: ptxgen.conv_transpose2d(X[0], F), ShapeError, r"images has shape \(3, 5, 5\); it must have 4 axes"),
        (lambda: ptxgen.conv_transpose2d(X[:, :, :0], F[:3]), ShapeError, "images have no pixel along h"),
        (
            lambda: ptxgen.conv_transpose2d(X, F[:3], stride=2, padding=1, output_padding=3),
            ShapeError,
            "output_padding is 3 along h; it must be smaller than 3, the stride plus the padding at the end",
        ),
        (lambda: ptxgen.conv_transpose2d(X, F[:3], output_padding=-1), ShapeError, "output_padding is -1"),
        (lambda: ptxgen.conv_transpose2d(X, F[:3], padding=4), ShapeError, "the result has 7 pixels along h"),
        (lambda: ptxgen.conv_transpose2d(X, F[:3], padding="same"), InputError, "padding is 'same'; .* numbers"),
        (lambda: ptxgen.conv_transpose2d(X, F[:3], groups=2), ShapeError, "groups is 2"),
        (lambda: ptxgen.conv_transpose2d(X, F[:3], bias=integers(4)), ShapeError, r"bias .* have \(3,\), one per chan"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_relu_grad_of_an_input_gradient(layout: str) -> None:
    """The gradient with respect to the input of the ReLU before the convolution; another gradient is added first."""
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 2, 3, 1)
    dy, x, other = (integers(2, n, 5, 5, seed=i).transpose(order) for i, n in enumerate((4, 3, 3)))
    f = integers(4, 3, 3, 3, seed=3).transpose(order)
    options = {"padding": 1, "layout": layout}
    plain = ptxgen.conv2d_input_grad(dy, f, x.shape, **options)
    fused = ptxgen.conv2d_input_grad(dy, f, x.shape, residual=other, activation="relu_grad", aux=x, **options)
    assert np.array_equal(fused, np.where(x <= 0, 0, plain + other))


def test_out_must_not_overlap_inputs() -> None:
    x, f = integers(1, 1, 3, 3), integers(1, 1, 1, 1)
    with pytest.raises(OverlapError, match="out shares memory with images"):
        ptxgen.conv2d(x, f, out=x)


# ---- arrays of a GPU, which the emulated device stands in for


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    driver = EmulatedDriver()
    driver.name = "cuda"
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setitem(__import__("sys").modules, "torch", LIBRARY)
    return driver


LAST = (0, 2, 3, 1)


@pytest.mark.parametrize("order_x", [(0, 1, 2, 3), LAST])
@pytest.mark.parametrize("order_f", [(0, 1, 2, 3), LAST])
def test_device_arrays_are_not_copied(gpu: EmulatedDriver, order_x: Any, order_f: Any) -> None:
    x, f = integers(2, 4, 5, 6), integers(3, 4, 3, 3, seed=1)
    y = ptxgen.conv2d(Tensor(gpu, x, order_x), Tensor(gpu, f, order_f), padding=1)
    assert np.array_equal(y.numpy(), slow(x, f, (1, 1), ((1, 1), (1, 1)), (1, 1)))
    assert (y.stride()[1] == 1) == (order_x == LAST)  # results have the layout of the images


@pytest.mark.parametrize("order", [(0, 1, 2, 3), LAST])
def test_arrays_of_one_channel_fit_the_layout_of_the_others(
    gpu: EmulatedDriver, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    monkeypatch.setattr(Tensor, "contiguous", None)  # copies of operands
    x, f = integers(2, 4, 5, 6), integers(1, 4, 3, 3, seed=1)
    for out_order in ((0, 1, 2, 3), LAST):
        out = Tensor(gpu, np.zeros((2, 1, 3, 4), np.float32), out_order)
        ptxgen.conv2d(Tensor(gpu, x, order), Tensor(gpu, f, order), out=out)
        assert np.array_equal(out.numpy(), slow(x, f, (1, 1), ((0, 0), (0, 0)), (1, 1)))
    grey = Tensor(gpu, integers(2, 1, 5, 6), order)
    y = ptxgen.conv2d(grey, Tensor(gpu, integers(3, 1, 3, 3), order))
    assert (y.stride()[1] == 1) == (order == LAST)  # the strides of the only channel tell the layout


def test_second_call_uses_the_cache(gpu: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    f, bias = integers(3, 4, 3, 3, seed=1), integers(3, seed=2)
    held = Tensor(gpu, f), Tensor(gpu, bias)
    for seed in (0, 5):
        x = integers(2, 4, 5, 6, seed=seed)
        y = ptxgen.conv2d(Tensor(gpu, x, LAST), held[0], bias=held[1], activation="relu")
        want = slow(x, f, (1, 1), ((0, 0), (0, 0)), (1, 1)) + bias.reshape(-1, 1, 1)
        assert np.array_equal(y.numpy(), np.maximum(want, 0))
        monkeypatch.setattr("ptxgen.api.conv.launch_uncached", None)  # the second call goes straight to the launch
    assert len(launches.launches) == 1


def test_transposed_convolutions_use_the_cache(gpu: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    f = Tensor(gpu, integers(4, 3, 3, 3, seed=1))
    for seed in (0, 5):
        x = integers(2, 4, 5, 6, seed=seed)
        y = ptxgen.conv_transpose2d(Tensor(gpu, x, LAST), f, stride=2, output_padding=1)
        want = scattered(x, f.numpy(), (2, 2), ((0, 0), (0, 0)), (1, 1), (1, 1))
        assert np.array_equal(y.numpy(), want)
        assert y.stride()[1] == 1  # the result has the layout of the images
        monkeypatch.setattr("ptxgen.api.conv.launch_uncached", None)
    assert len(launches.launches) == 1


def test_unsupported_strides_are_copied(gpu: EmulatedDriver) -> None:
    x, f = integers(2, 4, 5, 6), integers(3, 4, 3, 3, seed=1)
    transposed = Tensor(gpu, x, (0, 1, 3, 2))
    y = ptxgen.conv2d(transposed, Tensor(gpu, f))
    assert np.array_equal(y.numpy(), slow(x, f, (1, 1), ((0, 0), (0, 0)), (1, 1)))
    out = Tensor(gpu, np.zeros((2, 3, 3, 4), np.float32), LAST)
    ptxgen.conv2d(Tensor(gpu, x), Tensor(gpu, f), out=out)  # out decides
    assert np.array_equal(out.numpy(), y.numpy())
    with pytest.raises(ShapeError, match="out has strides"):
        ptxgen.conv2d(Tensor(gpu, x), Tensor(gpu, f), out=Tensor(gpu, np.zeros((2, 3, 3, 4), np.float32), (0, 1, 3, 2)))
    for shape in ((4,), (3, 4), (2, 3, 3, 4, 1)):
        wrong = SimpleNamespace(__cuda_array_interface__=CupyArray(gpu, np.zeros(shape, "f4")).__cuda_array_interface__)
        with pytest.raises(ShapeError, match=r"out has shape .* must have 4 axes, NKPQ"):
            ptxgen.conv2d(Tensor(gpu, x), Tensor(gpu, f), out=wrong)


class CupyArray:
    """The part of CuPy's arrays that calls use."""

    def __init__(self, on: EmulatedDriver, x: Array) -> None:
        self.tensor = Tensor(on, x)
        self._interface(x.shape, self.tensor.strides)

    def _interface(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "version": 3,
            "data": (self.tensor.address, False),
            "strides": tuple(4 * s for s in strides),
        }

    def transpose(self, order: tuple[int, ...]) -> CupyArray:
        view = object.__new__(CupyArray)
        view.tensor, known = self.tensor, self.__cuda_array_interface__
        view._interface(*(tuple(values[i] for i in order) for values in (known["shape"], self.steps())))
        return view

    def steps(self) -> tuple[int, ...]:
        return tuple(s // 4 for s in self.__cuda_array_interface__["strides"])

    def copy(self) -> CupyArray:
        whole = np.lib.stride_tricks.as_strided(
            self.tensor.numpy().ravel(),
            self.__cuda_array_interface__["shape"],
            self.__cuda_array_interface__["strides"],
        )
        return CupyArray(self.tensor.driver, whole)


def test_arrays_of_other_libraries_are_copied_to_the_layout(gpu: EmulatedDriver) -> None:
    x, f = integers(2, 4, 5, 6), integers(3, 4, 3, 3, seed=1)
    out = Tensor(gpu, np.zeros((2, 3, 3, 4), np.float32), LAST)
    ptxgen.conv2d(CupyArray(gpu, x), CupyArray(gpu, f), out=out)
    assert np.array_equal(out.numpy(), slow(x, f, (1, 1), ((0, 0), (0, 0)), (1, 1)))
    plain = SimpleNamespace(__cuda_array_interface__=CupyArray(gpu, x).__cuda_array_interface__)
    with pytest.raises(
        ShapeError, match=r"images has strides \(120, 30, 6, 1\); its elements must be contiguous in .*NHWC"
    ):
        ptxgen.conv2d(plain, CupyArray(gpu, f), out=out)


# ---- memory that arrays share, gradients, values of other types


def test_out_must_not_overlap_inputs_of_a_call() -> None:
    f = integers(4, 4, 3, 3, seed=1)
    for name in ("images", "filters", "bias", "residual"):
        memory = np.zeros(4096, np.float32)
        out = memory[100:172].reshape(2, 4, 3, 3)
        given: dict[str, Any] = {"images": integers(2, 4, 5, 5), "filters": f, "bias": integers(4), "residual": out + 0}
        shape = given[name].shape
        given[name] = memory[171 : 171 + given[name].size].reshape(shape)
        with pytest.raises(OverlapError, match=f"out shares memory with {name}; they must not overlap"):
            ptxgen.conv2d(**given, out=out)
        given[name] = memory[172 : 172 + given[name].size].reshape(shape)
        ptxgen.conv2d(**given, out=out)
    x, steps = integers(2, 4, 5, 5), (144, 36, 8, 4)
    with pytest.raises(
        ShapeError, match=r"out has shape .* strides \(36, 9, 2, 1\); its elements must not share memory"
    ):
        ptxgen.conv2d(x, f, out=np.lib.stride_tricks.as_strided(np.zeros(99, "f4"), (2, 4, 3, 3), steps))


def test_gradients_must_not_overlap_inputs() -> None:
    x, f, dy = integers(1, 3, 5, 5), integers(3, 3, 3, 3), integers(1, 3, 3, 3)
    memory = np.zeros(75, np.float32)
    with pytest.raises(OverlapError, match="out shares memory with filters"):
        ptxgen.conv2d_input_grad(dy[:, :2], memory[:54].reshape(2, 3, 3, 3), x.shape, out=memory.reshape(x.shape))
    with pytest.raises(OverlapError, match="out shares memory with grads"):
        ptxgen.conv2d_weight_grad(x[:, :1], f[:1], (3, 1, 3, 3), out=f[0][:, None])


def test_out_must_not_overlap_inputs_on_a_gpu(gpu: EmulatedDriver) -> None:
    x, f = Tensor(gpu, integers(1, 4, 5, 5)), Tensor(gpu, integers(4, 4, 3, 3, seed=1))
    out, bias, residual = (Tensor(gpu, np.zeros(s, "f4")) for s in ((1, 4, 3, 3), (4,), (1, 4, 3, 3)))
    for name, v in (("bias", bias), ("residual", residual)):
        kept = v.address
        for place in (out.address, out.address + 35 * 4, out.address - 4):
            v.address = place
            with pytest.raises(OverlapError, match=f"out shares memory with {name}"):
                ptxgen.conv2d(x, f, bias=bias, residual=residual, out=out)
        v.address = kept
    ptxgen.conv2d(x, f, bias=bias, residual=residual, out=out)
    out.strides = (36, 9, 2, 1)
    with pytest.raises(ShapeError):
        ptxgen.conv2d(x, f, out=out)


@pytest.mark.parametrize("named", ["images", "filters", "bias", "residual"])
def test_cached_calls_refuse_gradients_and_negative_views(
    gpu: EmulatedDriver, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    given = {
        "images": Tensor(gpu, integers(1, 4, 5, 5)),
        "filters": Tensor(gpu, integers(4, 4, 3, 3)),
        "bias": Tensor(gpu, integers(4)),
        "residual": Tensor(gpu, integers(1, 4, 3, 3)),
    }
    recording = [True]
    monkeypatch.setattr(LIBRARY, "is_grad_enabled", lambda: recording[0])
    ptxgen.conv2d(**given)
    given[named].requires_grad = True
    with pytest.raises(
        InputError, match=rf"{named} requires a gradient, .* torch.no_grad\(\), or pass {named}.detach\(\)"
    ):
        ptxgen.conv2d(**given)
    recording[0] = False
    ptxgen.conv2d(**given)
    assert len(launches.launches) == 1
    given[named].negative = True
    with pytest.raises(InputError, match=f"{named} is a view with the negative bit"):
        ptxgen.conv2d(**given)


BIG = 10**5000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"padding": 2**31 - 1},
            "padding is .*2147483647.*; h is 5, and with its padding 4294967299; it must be at most 2",
        ),
        (
            {"padding": 2**31},
            "padding is 2147483648; it must be an integer from 0, or 2 such integers, at most 2147483647",
        ),
        (
            {"padding": 2**29},
            "results have 2x4x1x1073741827x1073741827 elements of f32, .* bytes; it must be at most 14",
        ),
        ({"padding": 2**15}, "extents or padding are too large: coordinates .* need 34 bits; at most 32 .*pad=32768"),
        ({"padding": BIG}, "padding is an integer of 16610 bits; it must be"),
        ({"padding": ((1, 1), (1, BIG))}, "padding is a tuple with an integer of too many digits"),
        ({"stride": BIG}, "stride is an integer of 16610 bits; it must be"),
        (
            {"stride": 2**31},
            "stride is 2147483648; it must be an integer from 1, or 2 such integers, at most 2147483647",
        ),
        ({"stride": (True, 1)}, r"stride is \(True, 1\)"),
        ({"stride": np.array([1.0, 2.0])}, r"stride is \(1.0, 2.0\)"),
        ({"dilation": [1, None]}, r"dilation is \(1, None\)"),
        ({"groups": BIG}, "groups is an integer of 16610 bits; it must be an integer from 1 to 2147483647"),
        ({"groups": np.array([1, 1])}, "groups is"),
        ({"layout": np.array(["NCHW"])}, "layout is"),
        ({"layout": 0}, "layout is 0; it must be one of NCHW, NHWC, CHWN"),
        ({"filter_layout": []}, r"filter_layout is \(\); it must be one of KCRS"),
        ({"deterministic": None}, "deterministic is None; it must be True or False"),
        ({"compute": []}, r"compute is \[\]; it must be a string"),
        ({"activation": np.array(["relu", "relu"])}, "activation is array"),
        ({"bias": np.ma.masked_array(np.ones(4, "f4"))}, "bias is a masked array"),
    ],
)
def test_errors_name_the_value(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ptxgen.conv2d(X, F, **given)


def test_numbers_without_a_value_are_refused() -> None:
    """Such as tensors on PyTorch's device meta."""

    class Meta:
        def tolist(self) -> int:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")

        __index__ = tolist

    with pytest.raises(ShapeError, match=r"stride is <.*Meta.*>; it must be an integer"):
        ptxgen.conv2d(X, F, stride=Meta())


@pytest.mark.parametrize("shape", [(2, 3, 5, BIG), (2, 3, 5, 2**31), (2, 3, 5, 5.0), "abcd", np.ones((2, 2)), None])
def test_errors_name_invalid_shapes(shape: Any) -> None:
    with pytest.raises(ShapeError, match="input_shape "):
        ptxgen.conv2d_input_grad(integers(2, 4, 3, 3), F, shape)


@pytest.mark.parametrize(
    "stride", [np.int64(2), np.array([2, 2]), np.array(2), (np.int32(2), np.uint8(2)), [2, np.int64(2)]]
)
def test_numpy_integers_are_accepted(gpu: EmulatedDriver, stride: Any) -> None:
    want = ptxgen.conv2d(X, F, stride=2, padding=((1, 0), (1, 1)))
    pads = np.array([[1, 0], [1, 1]])
    assert np.array_equal(ptxgen.conv2d(X, F, stride=stride, padding=pads, groups=np.int64(1)), want)
    images, filters = Tensor(gpu, X), Tensor(gpu, F)
    for _ in range(2):
        made = ptxgen.conv2d(images, filters, stride=stride, padding=pads, groups=np.int64(1))
        assert np.array_equal(made.numpy(), want)
    assert len(launches.launches) == 1
    shape = np.array(X.shape)
    dy = integers(2, 4, 3, 3)
    assert np.array_equal(ptxgen.conv2d_input_grad(dy, F, shape), ptxgen.conv2d_input_grad(dy, F, X.shape))


def test_changed_arrays_are_read_again(gpu: EmulatedDriver) -> None:
    """The cache holds the numbers that an array contained, not the array."""

    class Count:
        """A tensor of one element: hashed by identity, with a value that may change."""

        def __init__(self) -> None:
            self.n = 1

        def __index__(self) -> int:
            return self.n

        def tolist(self) -> int:
            return self.n

    x, f, stride = Tensor(gpu, X), Tensor(gpu, F), Count()
    for n in (1, 2):
        stride.n = n
        assert ptxgen.conv2d(x, f, stride=stride).shape == (2, 4, 4 - n, 4 - n)


# ---- batches whose offsets are too long for one launch


@pytest.fixture
def short_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of convolutions have few bits, so that small arrays are too large."""
    monkeypatch.setattr(implicit_gemm, "EXTENT_LIMIT", 500)
    lower.cache_clear()


LARGE = ((5, 4, 6, 5), (3, 4, 3, 3))  #: 5 images of 120 elements, results of 90


@pytest.mark.usefixtures("short_offsets")
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_batch_of_a_large_convolution_is_split(layout: str, asked: list[Conv]) -> None:
    x, w = (integers(*shape, seed=n) for n, shape in enumerate(LARGE))
    bias, (residual, aux, grads) = integers(3), (integers(5, 3, 6, 5, seed=n) for n in (4, 5, 6))
    want = slow(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1))
    turned = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    want_grads = slow(grads, turned, (1, 1), ((1, 1), (1, 1)), (1, 1))

    def ordered(array: Array) -> Array:
        return array if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(array, 1, -1))

    filters = w if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(w, 1, -1))
    options: Any = {"padding": 1, "layout": layout}
    epilogue: Any = {"bias": bias, "residual": ordered(residual), "activation": "relu_grad", "aux": ordered(aux)}
    got = ptxgen.conv2d(ordered(x), filters, **options, **epilogue)
    sums = want + bias[:, None, None] + residual
    assert np.array_equal(got, ordered(np.where(aux > 0, sums, 0)))
    assert [p.n for p in asked] == [3, 2]
    out = np.empty_like(got)
    assert ptxgen.conv2d(ordered(x), filters, **options, out=out) is out
    assert np.array_equal(out, ordered(want))
    asked.clear()
    got = ptxgen.conv2d_input_grad(ordered(grads), filters, ordered(x).shape, **options)
    assert np.array_equal(got, ordered(want_grads))
    assert sum(p.n for p in asked) == 5
    assert len(asked) > 1
    got = ptxgen.conv_transpose2d(ordered(grads), filters, **options)
    assert np.array_equal(got, ordered(want_grads))


@pytest.mark.usefixtures("short_offsets")
def test_convolutions_that_cannot_be_split_name_the_limit(asked: list[Conv]) -> None:
    x, w = (integers(*shape, seed=n) for n, shape in enumerate(LARGE))
    words = "an operand spans .* elements; offsets must be at most 499"
    with pytest.raises(ShapeError, match=words):
        ptxgen.conv2d(np.ascontiguousarray(np.moveaxis(x, 0, -1)), np.moveaxis(w, 0, -1), padding=1, layout="CHWN")
    with pytest.raises(ShapeError, match=words):
        ptxgen.conv2d_weight_grad(x, integers(5, 3, 6, 5), w.shape, padding=1)
    with pytest.raises(ShapeError, match=words):
        ptxgen.conv2d(integers(2, 4, 12, 12), w, padding=1)
    assert not asked
