"""``QuantizedWeight`` in ``gemm`` and ``ptxgen.torch.linear``: quantization, products, and errors."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptxgen
from ptxgen import QuantizedWeight
from ptxgen.api import choice, drivers, launches, quantized_calls, runners
from ptxgen.errors import DtypeError, InputError, OverlapError, PtxgenError, ShapeError
from ptxgen.problem.weight_formats import WEIGHT_FORMATS
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

BF16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    on = EmulatedDriver()
    for module, name in ((launches, "launches"), (runners, "runners")):
        monkeypatch.setattr(module, name, OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: on)
    monkeypatch.setattr(choice, "database", lambda: None)
    return on


def normal(*shape: int, dtype: Any = np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def product(a: np.ndarray, w: QuantizedWeight) -> np.ndarray:
    return a.astype(np.float64) @ w.dequantize().astype(np.float64).T


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32])
@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_integers_are_the_nearest(name: str, dtype: Any) -> None:
    """Groups of zeros, of positive and of negative numbers among them."""
    w = normal(6, 128, dtype=dtype)
    w[0], w[1], w[2] = 0, np.abs(w[1]), -np.abs(w[2])
    q = QuantizedWeight.quantize(w, name, 32)
    step = q.scales.astype(np.float32)
    assert (q.shape, q.group, q.scales.dtype, q.scales.shape) == ((6, 128), 32, w.dtype, (6, 4))
    error = np.abs(q.dequantize() - w.astype(np.float32)).reshape(6, 4, 32).max(-1)
    # a half step, and one more where the range is rounded down with the scale or moved by the zero point
    clipped = WEIGHT_FORMATS[name].largest * step * (2.0**-7 if dtype is BF16 else 2.0**-10)
    assert (error <= step * (0.501 if q.zeros is None else 1.001) + clipped).all()
    assert (q.dequantize()[0] == 0).all()


def test_packed_weights_are_read_as_documented() -> None:
    packed = np.array([[0x21, 0xF8]], np.uint8)
    signed = QuantizedWeight(packed, np.full((1, 1), 2, np.float16), format="s4")
    assert signed.dequantize().tolist() == [[2, 4, -16, -2]]
    unsigned = QuantizedWeight(packed, np.full((1, 1), 2, np.float16), np.full((1, 1), 3, np.uint8), format="u4")
    assert unsigned.dequantize().tolist() == [[-4, -2, 10, 24]]
    assert repr(unsigned) == "QuantizedWeight(1 rows of 4, u4, a scale for each row, zero points)"


@pytest.mark.parametrize(("name", "group", "dtype"), [("s4", 128, np.float16), ("u4", 32, BF16), ("s8", 0, BF16)])
def test_gemm_multiplies_by_the_transposed_weight(name: str, group: int, dtype: Any) -> None:
    a, w = normal(3, 256, dtype=dtype), QuantizedWeight.quantize(normal(20, 256, dtype=dtype), name, group)
    got = ptxgen.gemm(a, w)
    assert (got.dtype, got.shape) == (a.dtype, (3, 20))
    exact = product(a, w)
    tolerance = 2e-2 if dtype is BF16 else 2e-3
    assert np.allclose(got.astype(np.float64), exact, atol=tolerance * np.abs(exact).max())


@pytest.mark.each_value
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_scales_may_be_any_number(name: str, rows: int) -> None:
    """0, negative, infinite, NaN, denormal: a row of weights with such a scale changes no other row."""
    a, w = normal(rows, 128), QuantizedWeight.quantize(normal(14, 128, seed=1), name, 32)
    scales = w.scales.copy()
    scales[::2, 1] = [0, -0.5, np.inf, -np.inf, np.nan, 6e-8, 6e4]
    w = QuantizedWeight(w.packed, scales, w.zeros, format=name)
    got = ptxgen.gemm(a, w, out=np.empty((rows, 14), np.float32)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact = product(a, w)
        size = np.abs(a.astype(np.float64)) @ np.abs(w.dequantize().astype(np.float64)).T
    finite = np.isfinite(scales.astype(np.float64)).all(1)
    assert not np.isfinite(got[:, ~finite]).any()
    assert (np.abs(got - exact)[:, finite] <= 1e-5 * size[:, finite]).all()


def test_arguments_of_gemm() -> None:
    """Strides of A and of out, beta, bias, a residual, an activation, float32 results; alpha 0 reads no weights."""
    a, w = normal(64, 6).T, QuantizedWeight.quantize(normal(10, 64, seed=1), "u8", 0)
    exact, bias, residual = product(a, w), normal(10, dtype=np.float32), normal(6, 10, dtype=np.float32)
    out = np.ones((10, 6), np.float32).T
    assert ptxgen.gemm(a, w, out=out, beta=2.0) is out
    assert np.allclose(out, exact + 2, atol=1e-2)
    ptxgen.gemm(a, w, out=out, alpha=0.5, bias=bias, residual=residual, activation="relu")
    assert np.allclose(out, np.maximum(exact / 2 + bias + residual, 0), atol=1e-2)
    gated = ptxgen.gemm(a, w, activation="swiglu")
    assert np.allclose(gated, exact[:, ::2] / (1 + np.exp(-exact[:, ::2])) * exact[:, 1::2], rtol=0.02, atol=0.05)
    infinite = QuantizedWeight(w.packed, np.full((10, 1), np.inf, np.float16), w.zeros, format="u8")
    assert (ptxgen.gemm(a, infinite, alpha=0) == 0).all()
    assert ptxgen.gemm(a[:0], w).shape == (0, 10)
    for format in WEIGHT_FORMATS:  # NumPy gives arrays without elements strides of 0
        assert ptxgen.gemm(a, QuantizedWeight.quantize(np.zeros((0, 64), np.float16), format, 32)).shape == (6, 0)


PACKED, SCALES = np.zeros((4, 128), np.uint8), np.ones((4, 2), np.float16)
W = QuantizedWeight(PACKED, SCALES, format="u4")
A = np.zeros((3, 256), np.float16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: QuantizedWeight(PACKED, SCALES, format="s3"), DtypeError, "format is 's3'; it must be one of s8"),
        (lambda: QuantizedWeight(A, SCALES, format="s4"), DtypeError, "packed is f16; with format s4 it must be u8"),
        (
            lambda: QuantizedWeight(PACKED, SCALES[:, :1].repeat(3, 1), format="s4"),
            ShapeError,
            r"scales has shape \(4, 3\); with 4 rows of 256 weights it must be one of \(4, 1\), \(4, 8\), \(4, 4\),",
        ),
        (lambda: QuantizedWeight(PACKED, SCALES[0], format="s4"), ShapeError, r"scales has shape \(2,\)"),
        (lambda: QuantizedWeight(PACKED, PACKED[:, :2], format="s4"), DtypeError, "scales is u8; it must be float16"),
        (
            lambda: QuantizedWeight(PACKED, SCALES, PACKED[:, :2].copy(), format="s4"),
            InputError,
            "zeros is given; weights of format s4 have no zero points",
        ),
        (
            lambda: QuantizedWeight(PACKED, SCALES, PACKED[:, :1].copy(), format="u4"),
            ShapeError,
            r"zeros has shape \(4, 1\); it must be \(4, 2\), that of scales",
        ),
        (
            lambda: QuantizedWeight(PACKED, SCALES, np.full((4, 2), 64, np.uint8), format="u4"),
            InputError,
            "zeros has 64; with format u4 zero points are at most 63",
        ),
        (lambda: QuantizedWeight(PACKED, SCALES, SCALES, format="u4"), DtypeError, "zeros is f16; it must be uint8"),
        (lambda: QuantizedWeight(PACKED[:, ::2], SCALES, format="u4"), ShapeError, "packed has strides"),
        (lambda: QuantizedWeight.quantize(A[:, :251]), ShapeError, "group is 128; it must divide the 251 columns"),
        (
            lambda: QuantizedWeight.quantize(A[:, :251], group=0),
            ShapeError,
            "weight has 251 columns; with format s4, two in a byte, they must be even",
        ),
        (lambda: QuantizedWeight.quantize(A, group=48), ShapeError, "group is 48; it must be 32, 64, 128, or 0"),
        (lambda: QuantizedWeight.quantize(A, group=129), ShapeError, "group is 129; it must be 32, 64, 128, or 0"),
        (lambda: QuantizedWeight.quantize(A, group="32"), ShapeError, "group is '32'; it must be 32, 64, 128, or 0"),
        (lambda: QuantizedWeight.quantize(PACKED), DtypeError, "weight is u8; it must be float16"),
        (lambda: ptxgen.gemm(A[:, 1:], W), ShapeError, "a is 3x255 and b has 4 rows of 256 quantized weights"),
        (lambda: ptxgen.gemm(A.astype(np.float32), W), DtypeError, "a is f32; with quantized weights it must be"),
        (
            lambda: ptxgen.gemm(A.astype(BF16), QuantizedWeight(PACKED, SCALES, format="u4", precision="fast")),
            DtypeError,
            "a is bf16 and b.scales is f16; with precision fast they must have one type",
        ),
        (lambda: ptxgen.gemm(A[None], W), ShapeError, r"a has shape \(1, 3, 256\); it must have 2 dimensions"),
        (lambda: ptxgen.gemm(A, W, beta=1.0), InputError, "beta is 1 and out is None"),
        (lambda: ptxgen.gemm(A, W, out=A), ShapeError, r"out has shape \(3, 256\); it must be \(3, 4\)"),
        (lambda: ptxgen.gemm(A, W, compute="f16"), DtypeError, "compute is f16; with quantized weights"),
        (lambda: ptxgen.gemm(A, W, out=A[:, :4]), OverlapError, "out shares memory with a"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[PtxgenError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("format", ["s8", "u4"])
@pytest.mark.parametrize(("dtype", "scales"), [(BF16, np.float16), (np.float16, BF16)])
def test_scales_of_the_other_type_of_16_bits_are_exact(dtype: Any, scales: Any, format: str) -> None:
    """Results have the bits of those with the same scales in f32: sums are multiplied in f32."""
    for shape, group in (((40, 256), 64), ((40, 256), 0), ((3, 40, 256), 64)):
        w = QuantizedWeight.quantize(normal(*shape, dtype=scales), format, group)
        wide = QuantizedWeight(w.packed, w.scales.astype(np.float32), w.zeros, format=format)
        a, ends = normal(5, 256, dtype=dtype), np.array([2, 2, 5], np.int32)
        one, other = (ptxgen.gemm_jagged(a, x, ends) if len(shape) > 2 else ptxgen.gemm(a, x) for x in (w, wide))
        assert one.dtype == dtype
        assert np.array_equal(one.view(np.uint16), other.view(np.uint16))
        assert one.astype(np.float32).any()


def test_tensors_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins on the emulated device: rows longer than K, results by rows alone; a second call is cached."""

    class Gpu(EmulatedDriver):
        name = "cuda"

    gpu = Gpu()
    monkeypatch.setattr(drivers, "driver", lambda: gpu)
    names = {name: f"torch.{name}" for name in ("float16", "float32", "uint8")}
    for name, value in names.items():
        monkeypatch.setattr(LIBRARY, name, value, raising=False)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    plain = QuantizedWeight.quantize(normal(20, 256), "u4", 64)
    plain.zeros[::3] += 16
    # on a GPU zero points are not checked; the low 6 bits count
    w = QuantizedWeight(*(Tensor(gpu, x) for x in (plain.packed, plain.scales, plain.zeros + 64)), format="u4")
    bias = normal(20, seed=3)
    for seed in range(2):
        rows = normal(5, 300, seed=seed)
        got: Any = ptxgen.gemm(Tensor(gpu, rows)[0:5, 0:256], w, bias=Tensor(gpu, bias))
        exact = product(rows[:, :256], plain) + bias
        assert np.allclose(got.numpy(), exact, atol=2e-3 * np.abs(exact).max())
        assert len(launches.launches) == 1
        monkeypatch.setattr(quantized_calls, "view", None)
    monkeypatch.undo()


def test_linear_has_gradients_of_input_and_bias() -> None:
    torch = pytest.importorskip("torch")
    import ptxgen.torch as pt

    torch.manual_seed(0)
    x = torch.randn(2, 3, 64, dtype=torch.float16, requires_grad=True)
    bias = torch.randn(10, dtype=torch.float16, requires_grad=True)
    w = QuantizedWeight.quantize(torch.randn(10, 64, dtype=torch.float16), "u4", 32)
    dense = w.dequantize()
    y = pt.linear(x, w, bias)
    assert torch.allclose(y.float(), x.float() @ dense.T + bias.float(), atol=0.05)
    y.sum().backward()
    assert torch.allclose(x.grad.float(), dense.sum(0).expand_as(x), atol=0.05)
    assert torch.equal(bias.grad, torch.full_like(bias, 6))
    compiled = torch.compile(lambda x: pt.linear(x, w, bias) * 2, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x), 2 * y)
        assert torch.equal(pt.linear(x, w, bias), y)
        with torch.autocast("cpu", torch.float16):
            assert torch.equal(pt.linear(x.float(), w, bias.float()), y)
        assert torch.equal(torch.vmap(lambda x: pt.linear(x, w, bias))(x), y)
        gated = pt.linear(x, w, bias, activation="swiglu")
    wanted = torch.nn.functional.silu(y[..., ::2].float()) * y[..., 1::2].float()
    assert torch.allclose(gated.float(), wanted, rtol=1e-2, atol=0.05)
    recorded = pt.linear(x, w, bias, activation="swiglu")
    assert recorded.requires_grad
    assert torch.allclose(recorded.float(), wanted, rtol=1e-2, atol=0.05)
    compiled = torch.compile(lambda x: pt.linear(x, w, bias, activation="swiglu"), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), recorded)
    with pytest.raises(ShapeError, match="its last axis must have 64 elements, K of weight"):
        pt.linear(x[..., 1:], w)
    with pytest.raises(ShapeError, match=r"bias has shape \(9,\); it must be \(10,\), the rows of weight"):
        pt.linear(x, w, bias[1:])
    with pytest.raises(InputError, match="scales requires a gradient"):
        QuantizedWeight(w.packed, w.scales.clone().requires_grad_(), w.zeros, format="u4")


def test_operator_of_linear() -> None:
    torch = pytest.importorskip("torch")
    import ptxgen.torch  # noqa: F401 registers the operator

    w = QuantizedWeight.quantize(torch.randn(6, 32, dtype=torch.float16), "s8", 0)
    x = torch.randn(2, 32, dtype=torch.float16, requires_grad=True)
    arguments = x, w.packed, w.scales, None, None, "s8", "exact"
    assert set(torch.library.opcheck(torch.ops.ptxgen.quantized_linear.default, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("compiled", [False, True])
def test_linear_refuses_scales_that_require_a_gradient_and_other_dtypes(compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    import ptxgen.torch as pt

    torch.compiler.reset()
    w = QuantizedWeight.quantize(torch.randn(8, 64).half(), "s4", 64)
    experts = QuantizedWeight.quantize(torch.randn(2, 8, 64).half(), "s4", 64)
    x, ends = torch.randn(3, 64).half(), torch.tensor([1, 3], dtype=torch.int32)

    def wrapped(function: Any) -> Any:
        return torch.compile(function, backend="aot_eager") if compiled else function

    calls = {
        "linear": wrapped(lambda x, bias=None: pt.linear(x, w, bias)),
        "gemm_jagged": wrapped(lambda x: pt.gemm_jagged(x, experts, ends)),
    }
    with pytest.raises(
        Exception, match=r"input is torch\.float32; with a QuantizedWeight it must be torch\.float16 or"
    ):
        calls["linear"](x.float())
    with pytest.raises(Exception, match=r"bias has shape \(7,\); it must be \(8,\), the rows of weight"):
        calls["linear"](x, torch.zeros(7).half())
    for each in (w, experts):
        each.scales.requires_grad_()
    for call in calls.values():
        with pytest.raises(Exception, match="scales of weight requires a gradient, and a QuantizedWeight has none"):
            call(x)
        with torch.no_grad():
            assert call(x).shape == (3, 8)
