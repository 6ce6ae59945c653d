"""conv2d and its gradients; only the selection of configurations is replaced."""

from __future__ import annotations

import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, driver_state, drivers, launches, runners, streams
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ShapeError
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.reference import operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers, Runner
from ptxgen.tuning import selection
from tests.tensors import LIBRARY, Tensor

#: serves every problem, whatever its alignment
ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EmulatedDriver()
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(selection, "select", lambda p, *_: [selection.Selection(p, ANY, "given")])


def integers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
def test_convolution_and_its_gradients_are_adjoint(layout: str) -> None:
    axes = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "CHWN": (1, 2, 3, 0)}[layout]
    x, f = integers(0, 2, 4, 6, 5).transpose(axes), integers(1, 6, 2, 3, 3).transpose(axes)
    how: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 0), (1, 1)), "groups": 2, "layout": layout}
    y = ptxgen.conv2d(x, f, **how)
    dy = integers(2, *y.shape)
    dx, df = ptxgen.conv2d_input_grad(dy, f, x.shape, **how), ptxgen.conv2d_weight_grad(x, dy, f.shape, **how)
    assert np.sum(y * dy) == np.sum(dx * x) == np.sum(df * f) != 0


def test_identity_filter_returns_the_image() -> None:
    x = integers(0, 1, 1, 5, 7)
    f = np.zeros((1, 1, 3, 3), np.float32)
    f[0, 0, 1, 1] = 1
    assert np.array_equal(ptxgen.conv2d(x, f, padding="same"), x)
    made = ptxgen.conv2d(x, f, padding=1, bias=np.full(1, -2, np.float32), residual=x, activation="relu")
    assert np.array_equal(made, np.maximum(2 * x - 2, 0))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_device_tensors(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of any strides, in either order of the operands; the second call is cached."""
    driver = EmulatedDriver()
    driver.name = "cuda"
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 2, 3, 1)
    x, f, bias = integers(0, 2, 4, 5, 5), integers(1, 6, 4, 3, 3), integers(2, 6)
    want = ptxgen.conv2d(x, f, padding=1, bias=bias)
    held = [Tensor(driver, v, order) for v in (x, f)]
    for _ in range(2):
        y = ptxgen.conv2d(*held, padding=[(1, 1), [1, 1]], stride=[1, 1], bias=Tensor(driver, bias))
        assert np.array_equal(y.numpy(), want)
    assert len(launches.launches) == 1
    residual = Tensor(driver, want, order)
    again = ptxgen.conv2d(*held, padding=1, bias=Tensor(driver, bias), residual=residual)
    assert np.array_equal(again.numpy(), 2 * want)
    with pytest.raises(ShapeError, match=f"residual has strides .* it must have the memory layout of out, {layout}"):
        ptxgen.conv2d(*held, padding=1, residual=Tensor(driver, want, (0, 1, 3, 2)))
    dx = ptxgen.conv2d_input_grad(y, held[1], x.shape, padding=1)
    assert np.array_equal(dx.numpy(), ptxgen.conv2d_input_grad(want, f, x.shape, padding=1))
    df = ptxgen.conv2d_weight_grad(held[0], y, f.shape, padding=1)
    assert np.array_equal(df.numpy(), ptxgen.conv2d_weight_grad(x, want, f.shape, padding=1))


class Counting(EmulatedDriver):
    """The emulated device as a GPU, with a count of allocations. ``graph``: receives the launches, as a capture does."""

    name = "cuda"
    graph = False

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self.held[address] = size
        return address

    def release(self, address: int) -> None:
        super().release(address)
        del self.held[address]

    def capturing(self, stream: int) -> bool:
        return self.graph

    def capture(self, stream: int) -> SimpleNamespace:
        return SimpleNamespace(id=1, watch=lambda: lambda: True)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    driver = Counting()
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


def tables() -> int:
    return driver_state.state_of(drivers.driver()).tables.bytes


def right(held: dict[int, tuple[Any, Any]], width: int) -> None:
    """A weight gradient of ``width`` results, computed from tensors that are created once."""
    x, dy = integers(width, 1, 2, 3, width + 1), integers(width + 1, 1, 2, 3, width)
    if width not in held:
        held[width] = Tensor(drivers.driver(), x), Tensor(drivers.driver(), dy)  # type: ignore[arg-type]
    df = ptxgen.conv2d_weight_grad(*held[width], (2, 2, 1, 2))
    want = [[[[np.sum(x[0, c, :, s : s + width] * dy[0, k]) for s in (0, 1)]] for c in (0, 1)] for k in (0, 1)]
    assert np.array_equal(df.numpy(), want)


def test_memory_of_offset_tables_is_limited(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used tables are freed, and their call is right when repeated; used tables keep their address."""
    held: dict[int, tuple[Any, Any]] = {}
    right(held, 9)
    one, often = tables(), next(iter(runners.runners.values())).tables
    monkeypatch.setattr(runners, "MAX_TABLE_BYTES", 4 * one)
    addresses = {t.address for t in often}
    del often
    for width in range(3, 17):
        right(held, 9)  # between all others
        right(held, width)
        assert tables() <= 4 * one
        assert addresses <= counting.held.keys()
    known = len(launches.launches)
    assert 2 < known < 14
    assert {t.address for bound in runners.runners.values() for t in bound.tables} <= counting.held.keys()
    for width in (3, 16, 4):
        right(held, width)
    taken = tables()
    before = sum(counting.held.values())
    launches.launches.clear()
    runners.runners.clear()
    assert tables() == 0
    assert before - sum(counting.held.values()) == taken


def test_number_of_cached_calls_is_limited(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used call is dropped with its tables."""
    monkeypatch.setattr(launches, "MAX_CALLS", 3)
    held: dict[int, tuple[Any, Any]] = {}
    for width in (3, 4, 5, 3, 6):
        right(held, width)
    widths = [images[3] for *_, images in (key[:9] for key in launches.launches)]
    assert widths == [6, 4, 7]  # images are one wider: 5, 3, 6


def test_graph_keeps_its_tables_and_kernel(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the call is dropped from the cache."""
    monkeypatch.setattr(runners, "MAX_TABLE_BYTES", 0)
    held: dict[int, tuple[Any, Any]] = {}
    monkeypatch.setattr(streams, "current_stream", lambda x: 42)
    right(held, 3)
    addresses = {t.address for bound in runners.runners.values() for t in bound.tables}
    counting.graph = True
    right(held, 3)
    counting.graph = False
    right(held, 4)
    right(held, 5)
    assert len(runners.runners) == len(launches.launches) == 1  # the newest
    assert addresses
    assert addresses <= counting.held.keys()


def test_bound_launch_owns_its_tables() -> None:
    """Its runner may be gone, and the workspace released."""
    driver = Counting()
    p = Conv(1, 2, 3, 5, 2, 2, 2)
    runner = Runner.of(driver, p, ANY)
    a, b, c = operands(p, 0, "integers").values()
    with Buffers(driver, {"A": a, "B": b, "C": c}) as at:
        go = runner.bind(at.addresses)
        runner.workspace.release()
        del runner
        go()
        driver.download(at.addresses["C"], c)
        assert np.array_equal(c, reference(p, {"A": a, "B": b}).exact)
        assert len(driver.held) > 3
        del go
        assert len(driver.held) == 3
