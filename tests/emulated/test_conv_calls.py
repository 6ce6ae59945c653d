"""conv2d and its gradients, nothing of the way to the result replaced but which configuration is chosen."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen import calls, dispatch
from ptxgen.config import parse_config
from ptxgen.drivers.emulated import EmulatedDriver
from ptxgen.errors import ShapeError
from tests.tensors import LIBRARY, Tensor

#: serves every problem, whatever its alignment
ANY = parse_config("ms=2 ns=2 ml=16 nl=16 copy_a=0 copy_b=0 stages=2")


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EmulatedDriver()
    for name in ("ready", "workspaces", "runners"):
        monkeypatch.setattr(calls, name, {})
    monkeypatch.setattr(calls, "database", lambda: None)
    monkeypatch.setattr(calls, "driver", lambda: driver)
    monkeypatch.setattr(dispatch, "select", lambda p, *_: [dispatch.Selection(p, ANY, "given")])


def integers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
def test_a_convolution_and_its_gradients_are_adjoint(layout: str) -> None:
    axes = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "CHWN": (1, 2, 3, 0)}[layout]
    x, f = integers(0, 2, 4, 6, 5).transpose(axes), integers(1, 6, 2, 3, 3).transpose(axes)
    how: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 0), (1, 1)), "groups": 2, "layout": layout}
    y = ptxgen.conv2d(x, f, **how)
    dy = integers(2, *y.shape)
    dx, df = ptxgen.conv2d_input_grad(dy, f, x.shape, **how), ptxgen.conv2d_weight_grad(x, dy, f.shape, **how)
    assert np.sum(y * dy) == np.sum(dx * x) == np.sum(df * f) != 0


def test_one_tap_of_one_is_the_image() -> None:
    x = integers(0, 1, 1, 5, 7)
    f = np.zeros((1, 1, 3, 3), np.float32)
    f[0, 0, 1, 1] = 1
    assert np.array_equal(ptxgen.conv2d(x, f, padding="same"), x)
    made = ptxgen.conv2d(x, f, padding=1, bias=np.full(1, -2, np.float32), residual=x, activation="relu")
    assert np.array_equal(made, np.maximum(2 * x - 2, 0))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_arrays_of_a_gpu(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors where they lie, in either order of the operands; the second call is a prepared one."""
    driver = EmulatedDriver()
    driver.name = "cuda"
    monkeypatch.setattr(calls, "driver", lambda: driver)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 2, 3, 1)
    x, f, bias = integers(0, 2, 4, 5, 5), integers(1, 6, 4, 3, 3), integers(2, 6)
    want = ptxgen.conv2d(x, f, padding=1, bias=bias)
    held = [Tensor(driver, v, order) for v in (x, f)]
    for _ in range(2):
        y = ptxgen.conv2d(*held, padding=[(1, 1), [1, 1]], stride=[1, 1], bias=Tensor(driver, bias))
        assert np.array_equal(y.numpy(), want)
    assert len(calls.ready) == 1
    residual = Tensor(driver, want, order)
    again = ptxgen.conv2d(*held, padding=1, bias=Tensor(driver, bias), residual=residual)
    assert np.array_equal(again.numpy(), 2 * want)
    with pytest.raises(ShapeError, match=f"residual has strides .* they must lie as out's, {layout}"):
        ptxgen.conv2d(*held, padding=1, residual=Tensor(driver, want, (0, 1, 3, 2)))
    dx = ptxgen.conv2d_input_grad(y, held[1], x.shape, padding=1)
    assert np.array_equal(dx.numpy(), ptxgen.conv2d_input_grad(want, f, x.shape, padding=1))
    df = ptxgen.conv2d_weight_grad(held[0], y, f.shape, padding=1)
    assert np.array_equal(df.numpy(), ptxgen.conv2d_weight_grad(x, want, f.shape, padding=1))
