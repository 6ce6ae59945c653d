"""Gradients of biases: of convolutions, of lists of products, and of jagged groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptxgen
from ptxgen.errors import DtypeError, InputError, OverlapError, PtxgenError, ShapeError

torch = pytest.importorskip("torch")

import ptxgen.torch as pt  # noqa: E402 needs PyTorch
from ptxgen.torch import grouped  # noqa: E402

RNG = np.random.default_rng(1)
TYPES = ("float16", "bfloat16", "float32", "float64")


def integers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(getattr(ml_dtypes, dtype, dtype))


def sums_type(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
@pytest.mark.parametrize("dtype", TYPES)
def test_convolutions(layout: str, dtype: str) -> None:
    """Every order in memory; extents of 1 and 0; arrays with gaps."""
    for extents in ((3, 5, 4, 7), (1, 5, 4, 7), (3, 1, 4, 7), (3, 5, 1, 1), (0, 5, 4, 7), (3, 0, 2, 2)):
        shape = [extents["NCHW".index(x)] for x in layout]
        axes = tuple(i for i, x in enumerate(layout) if x != "C")
        for order in ((0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0), (3, 0, 2, 1)):
            stored = np.empty([shape[i] for i in order], integers(1, dtype=dtype).dtype)
            x = stored.transpose(np.argsort(order))
            x[...] = integers(*shape, dtype=dtype)
            wanted = x.astype(np.float64).sum(axes)
            result = ptxgen.conv2d_bias_grad(x, layout=layout)
            assert result.dtype == sums_type(dtype)
            np.testing.assert_array_equal(result, wanted)
            out = np.full_like(result, np.nan)
            assert ptxgen.conv2d_bias_grad(np.repeat(x, 2, 3)[..., ::2], layout=layout, out=out) is out
            np.testing.assert_array_equal(out, wanted)


def test_sums_are_those_of_pytorch() -> None:
    """The gradient of the bias of a layer before a ReLU, from the input gradient of the layer after it."""
    x = torch.randint(-3, 4, (2, 4, 6, 5)).float().to(memory_format=torch.channels_last)
    w1, w2 = (torch.randint(-2, 3, shape).float() for shape in ((8, 4, 3, 3), (6, 8, 3, 3)))
    b1, b2 = (torch.zeros(n, requires_grad=True) for n in (8, 6))
    hidden = torch.relu(torch.nn.functional.conv2d(x, w1, b1))
    y = torch.nn.functional.conv2d(hidden, w2, b2)
    dy = torch.randint(-2, 3, y.shape).float()
    y.backward(dy)
    hidden = hidden.detach()
    d_sums = ptxgen.conv2d_input_grad(dy, w2, hidden.shape, activation="relu_grad", aux=hidden)
    assert torch.equal(ptxgen.conv2d_bias_grad(d_sums), b1.grad)
    assert torch.equal(ptxgen.conv2d_bias_grad(dy), b2.grad)


@pytest.mark.parametrize("dtype", TYPES)
def test_experts(dtype: str) -> None:
    """Experts without rows, rows after the last offset, rows with gaps, an ``out`` with gaps."""
    ends = np.array([4, 4, 9, 10, 10], np.int32)
    for shape in ((12, 7), (12, 1), (10, 16)):
        for x in (integers(*shape, dtype=dtype), np.repeat(integers(*shape, dtype=dtype), 2, 1)[:, ::2]):
            wanted = np.stack([x[a:b].astype(np.float64).sum(0) for a, b in zip([0, *ends], ends, strict=False)])
            result = ptxgen.gemm_jagged_bias_grad(x, ends)
            assert result.dtype == sums_type(dtype)
            np.testing.assert_array_equal(result, wanted)
            out = np.full((5, shape[1] + 3), np.nan, sums_type(dtype))
            ptxgen.gemm_jagged_bias_grad(x, ends, out=out[:, : shape[1]])
            np.testing.assert_array_equal(out[:, : shape[1]], wanted)
            assert np.isnan(out[:, shape[1] :]).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_lists(dtype: str) -> None:
    dys = [integers(*shape, dtype=dtype) for shape in ((4, 7), (1, 1), (0, 5), (33, 16))]
    dys.append(integers(5, 6, dtype=dtype).T)
    outs = [np.full(dy.shape[1], np.nan, sums_type(dtype)) for dy in dys]
    assert ptxgen.gemm_grouped_bias_grad(dys, outs=outs)[0] is outs[0]
    for dy, out, result in zip(dys, outs, ptxgen.gemm_grouped_bias_grad(dys), strict=True):
        np.testing.assert_array_equal(out, dy.astype(np.float64).sum(0))
        np.testing.assert_array_equal(result, out)
        assert result.dtype == out.dtype
    assert ptxgen.gemm_grouped_bias_grad([]) == []


X, ENDS = np.ones((4, 6), np.float32), np.array([2, 4], np.int32)
IMAGES = np.ones((2, 3, 4, 5), np.float32)
ERRORS: list[tuple[Callable[[], Any], type[PtxgenError], str]] = [
    (lambda: ptxgen.conv2d_bias_grad(X), ShapeError, "grads has 2 dimensions; it must have 4, NCHW"),
    (lambda: ptxgen.conv2d_bias_grad(IMAGES, layout="HWCN"), InputError, "layout is 'HWCN'; it must be one of NCHW"),
    (lambda: ptxgen.conv2d_bias_grad(IMAGES.astype(np.int8)), DtypeError, "grads is s8; it must be f16, bf16, f32 or"),
    (
        lambda: ptxgen.conv2d_bias_grad(IMAGES, out=np.ones(4, np.float32)),
        ShapeError,
        r"out is f32 of shape \(4,\); it must be f32 of shape \(3,\)",
    ),
    (lambda: ptxgen.conv2d_bias_grad(IMAGES, out=np.ones(3)), ShapeError, "out is f64 of shape .* it must be f32"),
    (lambda: ptxgen.conv2d_bias_grad(IMAGES, out=np.ones(6, np.float32)[::2]), ShapeError, "out has a stride of 2"),
    (lambda: ptxgen.conv2d_bias_grad(IMAGES, out=IMAGES[0, :, 0, 0]), OverlapError, "out"),
    (lambda: ptxgen.gemm_jagged_bias_grad(IMAGES, ENDS), ShapeError, "dy has 4 dimensions; it must have 2"),
    (
        lambda: ptxgen.gemm_jagged_bias_grad(X, ENDS, out=np.ones((3, 6))),
        ShapeError,
        "out is f64 of shape .* f32 of sh",
    ),
    (lambda: ptxgen.gemm_jagged_bias_grad(X, ENDS + 1), InputError, "offset 5 of item 1 passes the end"),
    (lambda: ptxgen.gemm_jagged_bias_grad(X, ENDS, out=X[:2]), OverlapError, "out"),
    (lambda: ptxgen.gemm_grouped_bias_grad([X, IMAGES]), ShapeError, "item 1: dys has 4 dimensions; it must have 2"),
    (lambda: ptxgen.gemm_grouped_bias_grad([X], outs=[]), InputError, "dys has 1 items and outs has 0"),
    (lambda: ptxgen.gemm_grouped_bias_grad(x for x in [X]), InputError, "dys is generator; it must be a list"),
    (lambda: ptxgen.gemm_grouped_bias_grad([X], outs=X[0]), InputError, "outs is ndarray; it must be a list"),
    (lambda: ptxgen.gemm_grouped_bias_grad([X, X.astype("f8")]), DtypeError, "item 1: dys is f64; it must be f32, as"),
    (lambda: ptxgen.gemm_grouped_bias_grad([X], outs=[X[0, :5]]), ShapeError, r"item 0: outs is f32 of shape \(5,\)"),
]


@pytest.mark.parametrize(("call", "error", "words"), ERRORS)
def test_errors_name_the_argument(call: Callable[[], Any], error: type[PtxgenError], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "swiglu", "x + 1"])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_experts_of_pytorch_have_a_bias(mode: str, activation: str | None) -> None:
    """Values and gradients against PyTorch in float64; rows after the last offset are zero and have no gradient."""
    torch.compiler.reset()
    ends = torch.tensor([4, 4, 9], dtype=torch.int32)
    shapes = (12, 6), (3, 6, 8), (3, 8)
    values = [torch.randint(-3, 4, shape).double() / 4 for shape in shapes]

    def function(x: Any, w: Any, bias: Any) -> Any:
        return pt.gemm_jagged(x, w, ends, bias=bias, activation=activation)

    def reference(x: Any, w: Any, bias: Any) -> Any:
        pieces = [x[a:b] @ w[i] + bias[i] for i, (a, b) in enumerate(((0, 4), (4, 4), (4, 9)))]
        y = torch.cat(pieces)
        y = {
            None: lambda y: y,
            "relu": torch.relu,
            "gelu": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
            "swiglu": lambda y: torch.nn.functional.silu(y[:, ::2]) * y[:, 1::2],
            "x + 1": lambda y: y + 1,
        }[activation](y)
        return torch.cat([y, y.new_zeros(3, y.shape[1])])

    call = torch.compile(function, backend="aot_eager", fullgraph=True) if mode == "compiled" else function
    results = []
    for compute, dtype in ((call, torch.float32), (reference, torch.float64)):
        leaves = [x.to(dtype).requires_grad_() for x in values]
        y = compute(*leaves)
        y.backward(torch.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape))
        results.append([y.detach(), *(x.grad for x in leaves)])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(call(*(x.float() for x in values)).double(), results[1][0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_a_bias_of_experts_with_gaps_is_copied(activation: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels on a GPU read contiguous elements."""
    x, w, ends = torch.ones(4, 6), torch.ones(2, 6, 8), torch.tensor([1, 4], dtype=torch.int32)
    compute, given = grouped.jagged.gemm_jagged, []

    def noted(*arrays: Any, bias: Any, **options: Any) -> Any:
        given.append(bias.is_contiguous())
        return compute(*arrays, bias=bias, **options)

    monkeypatch.setattr(grouped.jagged, "gemm_jagged", noted)
    with torch.no_grad():
        y = pt.gemm_jagged(x, w, ends, bias=torch.arange(16.0).reshape(8, 2).T, activation=activation)
    assert y[:, 1].tolist() == [8, 9, 9, 9]
    assert given == [True]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_one_kernel_computes_the_activation_of_experts(
    mode: str, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel also stores the sums if a gradient is recorded."""
    torch.compiler.reset()
    calls, multiply = [], grouped.jagged.gemm_jagged

    def recorded(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return multiply(*args, **options)

    monkeypatch.setattr(grouped.jagged, "gemm_jagged", recorded)
    x, w, bias = (torch.randn(shape) for shape in ((5, 6), (2, 6, 8), (2, 8)))
    ends = torch.tensor([2, 4], dtype=torch.int32)

    def function(x: Any, w: Any, bias: Any) -> Any:
        return pt.gemm_jagged(x, w, ends, bias=bias if biased else None, activation="gelu")

    call = torch.compile(function, backend="aot_eager", fullgraph=True) if mode == "compiled" else function
    y = call(x, w.requires_grad_(), bias)
    [stored] = calls
    assert stored["activation"] == "gelu"
    sums = torch.stack([x[i] @ w[i // 2] + (bias[i // 2] if biased else 0) for i in range(4)])
    torch.testing.assert_close(stored["sums"][:4], sums.detach())
    assert not stored["sums"][4].any()
    assert not y[4].any()
    with torch.no_grad():
        assert torch.equal(call(x, w, bias), y)
    assert len(calls) == 2
    assert calls[1]["sums"] is None


def test_one_kernel_computes_the_activation_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel also stores the sums; first and second derivatives are those of PyTorch."""
    calls, multiply = [], grouped.grouped.gemm_grouped

    def recorded(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return multiply(*args, **options)

    monkeypatch.setattr(grouped.grouped, "gemm_grouped", recorded)
    shapes = ((3, 4), (2, 5), (4, 6), (5, 2))
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    y = pt.gemm_grouped(leaves[:2], leaves[2:], activation="x*x*x")
    assert [list(x.shape) for x in calls[0]["sums"]] == [[3, 6], [2, 2]]
    assert len(calls) == 1
    wanted = [(a @ b) ** 3 for a, b in zip(leaves[:2], leaves[2:], strict=True)]
    results = []
    for parts in (y, wanted):
        first = torch.autograd.grad(parts[0].sum() + parts[1].square().sum(), leaves, create_graph=True)
        results.append(
            [*parts, *first, *torch.autograd.grad(sum(x.square().sum() for x in first), leaves, retain_graph=True)]
        )
    for got, exact in zip(*results, strict=True):
        torch.testing.assert_close(got, exact)
    y = pt.gemm_grouped(leaves[:2], leaves[2:], activation="x*x*x")
    got = torch.autograd.grad(y[0].sum(), leaves, allow_unused=True)  # one result has no gradient
    for x, z in zip(got, torch.autograd.grad(wanted[0].sum(), leaves, allow_unused=True), strict=True):
        torch.testing.assert_close(x, torch.zeros_like(x) if z is None else z)


def test_a_bias_of_experts_is_checked() -> None:
    x, w, ends = torch.ones(4, 6), torch.ones(2, 6, 8), torch.tensor([1, 4], dtype=torch.int32)
    arguments = (x.requires_grad_(), w.requires_grad_(), ends, torch.ones(2, 8, requires_grad=True))
    assert set(torch.library.opcheck(torch.ops.ptxgen.gemm_jagged_bias.default, arguments).values()) == {"SUCCESS"}
    arguments = (*arguments, "swiglu", True)
    operator = torch.ops.ptxgen.gemm_jagged_activation.default
    assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}
    for bias, error, words in (
        (torch.ones(8), ShapeError, r"bias has shape \(8,\); it must be \(2, 8\), E×N of w"),
        (torch.ones(4, 1), ShapeError, r"bias has shape \(4, 1\)"),
        (torch.ones(2, 8).half(), DtypeError, "x is torch.float32 and bias is torch.float16"),
    ):
        for activation in (None, "relu"):
            with torch.no_grad(), pytest.raises(error, match=words):
                pt.gemm_jagged(x, w, ends, bias=bias, activation=activation)
    quantized = ptxgen.QuantizedWeight.quantize(torch.randn(2, 8, 64).half(), "s4", 64)
    with pytest.raises(InputError, match="bias is given and w is a QuantizedWeight"):
        pt.gemm_jagged(torch.ones(4, 64).half(), quantized, ends, bias=torch.ones(2, 8))
