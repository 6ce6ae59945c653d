"""gemm with fused epilogues, on NumPy arrays and the emulated device."""

from __future__ import annotations

import numpy as np
import pytest

import ptxgen
from ptxgen.errors import InputError, ShapeError

M, N, K = 17, 20, 30
RNG = np.random.default_rng(5)
A, B, RESIDUAL = (RNG.standard_normal(s).astype(np.float32) for s in ((M, K), (K, N), (M, N)))
COLUMN, ROW = RNG.standard_normal(N).astype(np.float32), RNG.standard_normal((M, 1)).astype(np.float32)


@pytest.fixture(autouse=True)
def _emulated(monkeypatch, tmp_path):
    from ptxgen.api import choice, drivers, runners

    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "none.sqlite"))
    for cached in (drivers.driver, choice.database):
        cached.cache_clear()
    runners.runners.clear()


def out(order: str) -> np.ndarray:
    return np.full((M, N), np.nan, np.float32, order=order)


@pytest.mark.parametrize("order", ["C", "F"])
def test_bias_residual_and_activation(order):
    """In either layout of C: a column-major C is computed as its transpose, and rows become columns."""
    wanted = A @ B + COLUMN + RESIDUAL
    got = ptxgen.gemm(A, B, out=out(order), bias=COLUMN, residual=RESIDUAL, activation="relu")
    np.testing.assert_allclose(got, np.maximum(wanted, 0), atol=1e-5)
    wanted = A @ B + ROW
    got = ptxgen.gemm(A, B, out=out(order), bias=ROW, activation="silu")
    np.testing.assert_allclose(got, wanted / (1 + np.exp(-wanted)), atol=1e-5)


@pytest.mark.parametrize("order", ["C", "F"])
def test_scales(order):
    one = np.full(1, 2, np.float32)
    np.testing.assert_allclose(ptxgen.gemm(A, B, out=out(order), scale_a=one, scale_b=one), 4 * (A @ B), atol=1e-4)
    rows, columns = np.exp2(np.arange(M) % 5).astype(np.float32), np.exp2(-np.arange(N) % 3).astype(np.float32)
    wanted = rows[:, None] * (A @ B) * columns
    np.testing.assert_allclose(
        ptxgen.gemm(A, B, out=out(order), scale_a=rows, scale_b=columns), wanted, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_relu_grad(order):
    """As torch's threshold_backward: 0 where aux <= 0, the sum elsewhere, also where aux is NaN."""
    aux = np.array(RESIDUAL[::-1], order=order)
    aux[0, :3] = 0.0, -0.0, np.nan
    residual = np.array(RESIDUAL, order=order)
    got = ptxgen.gemm(A, B, out=out(order), residual=residual, activation="relu_grad", aux=aux)
    np.testing.assert_allclose(got, np.where(aux <= 0, 0, A @ B + RESIDUAL), atol=1e-5)


def test_gelu_is_the_tanh_form():
    x = A @ B
    wanted = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(ptxgen.gemm(A, B, activation="gelu"), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"bias": COLUMN[:5]}, ShapeError, "bias has 5 elements; it must have 20"),
        ({"bias": ROW[:5]}, ShapeError, "bias has 5 elements; it must have 17"),
        ({"bias": COLUMN.astype(np.float64)}, InputError, "bias is f64"),
        ({"bias": 3.0}, InputError, "bias is float"),
        ({"bias": np.zeros(2 * N, np.float32)[::2]}, ShapeError, "stride"),
        ({"residual": RESIDUAL.T}, ShapeError, "residual is f32 of 20x17"),
        ({"activation": "relu_grad"}, InputError, "aux is None"),
        ({"activation": "relu", "aux": RESIDUAL}, InputError, "aux is an array"),
        ({"aux": RESIDUAL}, InputError, "aux is an array"),
        ({"activation": "relu_grad", "aux": RESIDUAL.T}, ShapeError, "aux is f32 of 20x17"),
        ({"activation": "sine"}, InputError, "activation is 'sine'"),
        ({"scale_a": COLUMN[:1]}, InputError, "pass both or neither"),
        ({"scale_a": COLUMN[:3], "scale_b": COLUMN[:3]}, ShapeError, "scale_a and scale_b have 3 and 3"),
    ],
)
def test_errors_name_the_argument(arguments, error, match):
    with pytest.raises(error, match=match):
        ptxgen.gemm(A, B, **arguments)
