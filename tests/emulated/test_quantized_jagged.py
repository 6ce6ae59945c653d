"""Jagged products with quantized weights on the emulated device, with checks for races, bounds and uninitialised reads;
calls of ``gemm_jagged`` with a ``QuantizedWeight``."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptxgen
from ptxgen import QuantizedWeight
from ptxgen.api import choice, drivers, launches, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError, InputError, OverlapError, PtxgenError, ShapeError
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged
from ptxgen.problem.device import device
from ptxgen.runtime.check import CASES, SCALE_CASES
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right
from tests.tensors import LIBRARY, Tensor

ON = ("h200", "a100", "rtx4090", "b200")
FEW_SMS = replace(device("h200"), sms=3)  #: blocks compute several tiles
ROWS = (3, 0, 5, 70, 1, 0)
BYTES = "family=wgmma u=128 stages=2 persistent=1 transposed_mma=1 ml=16 nl=64"


@pytest.mark.first(3)
@pytest.mark.parametrize(("family", "n"), [("mma", 0), ("mma", 1), ("wgmma", 1), ("mma", 2), ("mma", 3), ("wgmma", 2)])
def test_random_experts(family: str, n: int) -> None:
    """Formats, groups, zero points, extents, longer rows, alignment, epilogues, experts without rows, every axis."""
    on = FEW_SMS if family == "wgmma" else replace(device(ON[n]), sms=3)
    [(p, c)] = SOURCES[f"grouped_quantized_{family}"].cases(60 + n, 1, on, 90, 128 if family == "mma" else 1024)
    right(p, c, n, on, ((*CASES, *SCALE_CASES)[(n + 3) % 6],))


@pytest.mark.parametrize("config", ["family=quantized_mma ms=4 ns=2 ml=16 nl=32 u=128 kl=1 vec_a=8 vec_b=8", BYTES])
def test_adversarial_scales_of_one_expert(config: str) -> None:
    """Scales that are 0, infinite, NaN and negative: results of other rows of weights, and of other experts, are
    right."""
    p = QuantizedJagged(tuple((m, 40, 128) for m in ROWS), weights="u4", group=64, zeros=True, out="f32")
    arrays = random_group(p, 1)
    arrays["scales"][2, [1, 4, 7, 9], 1] = 0, np.inf, np.nan, -1
    arrays["C"][...] = np.nan
    runner = Runner.of(EmulatedDriver(FEW_SMS), p, parse_config(config))
    out = runner.compute(arrays, 1.0, 0.0)["C"]
    deviation = group_deviation(p, arrays, out, "normal")
    assert deviation.ok, deviation
    rows = np.isfinite(out.reshape(-1, 40)).sum(axis=1)
    assert rows.tolist() == [40] * 3 + [38] * 5 + [40] * 71


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    on = EmulatedDriver()
    for module, name in ((launches, "launches"), (runners, "runners")):
        monkeypatch.setattr(module, name, OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: on)
    monkeypatch.setattr(choice, "database", lambda: None)
    return on


def normal(*shape: int, dtype: Any = np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


OFFSETS = np.array([4, 4, 9, 15], np.int32)


def expected(x: np.ndarray, w: QuantizedWeight, offsets: np.ndarray = OFFSETS) -> np.ndarray:
    dense, out = w.dequantize().astype(np.float64), np.zeros((len(x), w.shape[1]))
    for i, (start, end) in enumerate(zip([0, *offsets[:-1]], offsets, strict=True)):
        out[start:end] = x[start:end].astype(np.float64) @ dense[i].T
    return out


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("name", "group", "dtype"), [("s4", 128, np.float16), ("u4", 32, ml_dtypes.bfloat16), ("s8", 0, np.float16)]
)
def test_rows_of_experts_are_multiplied_by_their_weights(name: str, group: int, dtype: Any) -> None:
    """An expert without rows, and rows after the last expert, which keep their values."""
    x, w = normal(17, 128, dtype=dtype), QuantizedWeight.quantize(normal(4, 40, 128, dtype=dtype), name, group)
    assert (w.shape, w.group, w.dequantize().shape) == ((4, 40, 128), group % 128, (4, 40, 128))
    out = np.full((17, 40), 5, dtype)
    assert ptxgen.gemm_jagged(x, w, OFFSETS, out=out) is out
    exact = expected(x, w)
    tolerance = (2e-2 if dtype is not np.float16 else 2e-3) * np.abs(exact).max()
    assert np.allclose(out[:15].astype(np.float64), exact[:15], atol=tolerance)
    assert (out[15:] == 5).all()


@pytest.mark.usefixtures("emulated")
def test_arguments_of_calls() -> None:
    """Strides of x, beta, alpha, a bias of each expert, an activation, float32 results; no experts, and no rows."""
    x, w = normal(64, 17).T, QuantizedWeight.quantize(normal(4, 10, 64, seed=1), "u8", 0)
    exact, bias, out = 2 * expected(x, w), normal(4, 10, dtype=np.float32), np.ones((17, 10), np.float32)
    ptxgen.gemm_jagged(x, w, OFFSETS, out=out, alpha=2.0, beta=3.0, bias=bias, activation="relu")
    rows = np.repeat(np.arange(4), np.diff(OFFSETS, prepend=0))
    assert np.allclose(out[:15], np.maximum(exact[:15] + 3 + bias[rows], 0), atol=1e-3 * np.abs(exact).max())
    ptxgen.gemm_jagged(np.full_like(x, np.nan), w, OFFSETS, out=out, alpha=0.0, beta=2.0, bias=bias)  # reads no x
    assert np.allclose(out[:15], 2 * np.maximum(exact[:15] + 3 + bias[rows], 0) + bias[rows], atol=0.1)
    none = QuantizedWeight(w.packed[:0], w.scales[:0], w.zeros[:0], format="u8")
    assert ptxgen.gemm_jagged(x, none, OFFSETS[:0]).shape == (17, 10)
    assert ptxgen.gemm_jagged(x[:0], w, np.zeros(4, np.int32)).shape == (0, 10)
    assert repr(w) == "QuantizedWeight(4 experts of 10 rows of 64, u8, a scale for each row, zero points)"


X, W = normal(17, 128), QuantizedWeight.quantize(normal(4, 40, 128), "u4", 32)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ptxgen.gemm_jagged(X, W, OFFSETS[:3]), ShapeError, r"w has the shape \(4, 40, 128\); .* E=3"),
        (lambda: ptxgen.gemm_jagged(X[:, 2:], W, OFFSETS), ShapeError, "x has 126 columns and w has K=128"),
        (lambda: ptxgen.gemm_jagged(X.astype(np.float32), W, OFFSETS), DtypeError, "x is f32; with quantized weights"),
        (lambda: ptxgen.gemm_jagged(X, W, OFFSETS[::-1].copy()), InputError, "offset 9 of item 1 is less than 15"),
        (lambda: ptxgen.gemm_jagged(X, W, OFFSETS + 3), InputError, "offset 18 of item 3 passes the end of the rows"),
        (lambda: ptxgen.gemm_jagged(X, W, OFFSETS.astype(np.int64)), DtypeError, "offsets is int64; it must be int32"),
        (
            lambda: ptxgen.gemm_jagged(X, W, OFFSETS, compute="f16"),
            DtypeError,
            "compute is f16; with quantized weights",
        ),
        (lambda: ptxgen.gemm_jagged(X, W, OFFSETS, beta=1.0), InputError, "beta is 1 and out is None"),
        (lambda: ptxgen.gemm_jagged(X, W, OFFSETS, out=X[:, :40]), OverlapError, "out shares memory with x"),
        (lambda: ptxgen.gemm(X, W), ShapeError, "b has the weights of 4 experts; gemm_jagged takes them"),
        (
            lambda: QuantizedWeight(W.packed, W.scales[:3], W.zeros, format="u4"),
            ShapeError,
            r"scales has shape \(3, 40, 4\); with 4x40 rows of 128 weights it must be one of \(4, 40, 1\)",
        ),
        (
            lambda: QuantizedWeight(W.packed[:, 1:], W.scales[:, 1:].copy(), W.zeros[:, 1:].copy(), format="u4"),
            ShapeError,
            "packed has strides .*; its rows must be contiguous, and experts without gaps",
        ),
        (
            lambda: ptxgen.gemm_jagged_input_grad(normal(17, 40), W, OFFSETS),
            InputError,
            r"w is a QuantizedWeight; its input gradient takes w.dequantize\(\)",
        ),
        (
            lambda: QuantizedWeight.quantize(normal(4, 0), "s8"),
            ShapeError,
            "weight has 0 columns; it must have at least",
        ),
        (lambda: QuantizedWeight.quantize(normal(2, 4, 40)), ShapeError, "group is 128; it must divide the 40 columns"),
        (lambda: QuantizedJagged(((2, 4, 33),), weights="s4"), ShapeError, "k is 33; with weights of 4 bits"),
        (lambda: QuantizedJagged(((2, 4, 40),), group=32), ShapeError, "group is 32; it must divide K, 40"),
        (lambda: QuantizedJagged(((2, 4, 32),), jagged="k"), InputError, "jagged is 'k'; with quantized weights"),
        (lambda: QuantizedJagged(((2, 4, 32), (2, 8, 32))), ShapeError, "n of item 1 is 8; with jagged=m it must be 4"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[PtxgenError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_tensors_on_a_gpu(emulated: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins on the emulated device: rows longer than K, weights between other ones."""

    class Gpu(EmulatedDriver):
        name = "cuda"

    gpu = Gpu()
    monkeypatch.setattr(drivers, "driver", lambda: gpu)
    for name in ("float16", "uint8", "int32"):
        monkeypatch.setattr(LIBRARY, name, f"torch.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    plain = QuantizedWeight.quantize(normal(4, 24, 128), "u4", 64)
    w = QuantizedWeight(*(Tensor(gpu, x) for x in (plain.packed, plain.scales, plain.zeros)), format="u4")
    x = normal(15, 160)
    got: Any = ptxgen.gemm_jagged(Tensor(gpu, x)[0:15, 0:128], w, Tensor(gpu, OFFSETS))
    exact = expected(x[:, :128], plain)
    assert np.allclose(got.numpy(), exact, atol=2e-3 * np.abs(exact).max())
    monkeypatch.undo()


@pytest.mark.usefixtures("emulated")
def test_torch_has_a_gradient_of_the_rows() -> None:
    torch = pytest.importorskip("torch")
    import ptxgen.torch as pt

    torch.manual_seed(0)
    x = torch.randn(12, 64, dtype=torch.float16, requires_grad=True)
    w = QuantizedWeight.quantize(torch.randn(3, 10, 64, dtype=torch.float16), "u4", 32)
    offsets, dense = torch.tensor([5, 5, 11], dtype=torch.int32), w.dequantize()
    y = pt.gemm_jagged(x, w, offsets)
    exact = torch.cat([x[:5].float() @ dense[0].T, x[5:11].float() @ dense[2].T, torch.zeros(1, 10)])
    assert torch.allclose(y.float(), exact, atol=0.05)
    y.sum().backward()
    grads = torch.cat([dense[0].sum(0).expand(5, 64), dense[2].sum(0).expand(6, 64), torch.zeros(1, 64)])
    assert torch.allclose(x.grad.float(), grads, atol=0.05)
    with torch.no_grad():
        compiled = torch.compile(lambda x: pt.gemm_jagged(x, w, offsets) * 2, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x), 2 * y)
        with torch.autocast("cpu", torch.float16):
            assert torch.equal(pt.gemm_jagged(x.float(), w, offsets), y)
        gated = pt.gemm_jagged(x, w, offsets, activation="swiglu")
    recorded = pt.gemm_jagged(x, w, offsets, activation="swiglu")
    assert torch.allclose(gated, torch.nn.functional.silu(y[:, ::2]) * y[:, 1::2], atol=0.2)
    assert torch.allclose(gated, recorded, atol=0.2)
    assert recorded.requires_grad
    assert (pt.gemm_jagged(x, w, offsets, activation="sigmoid")[11] == 0).all()
    arguments = x, w.packed, w.scales, w.zeros, offsets, "u4", "fast"
    checked = torch.library.opcheck(torch.ops.ptxgen.quantized_jagged.default, arguments)
    assert set(checked.values()) == {"SUCCESS"}
