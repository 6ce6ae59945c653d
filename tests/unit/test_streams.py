"""Calls whose arrays are of libraries with streams of their own."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, drivers, grouped, launches, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection
from tests.tensors import LIBRARY, Tensor

ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
LEGACY = 1  # PyTorch's default stream


class Gpu(EmulatedDriver):
    """A GPU that records the order of streams, and the streams of its launches."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []

    def order(self, before: int, after: int) -> None:
        self.done.append((before, after))

    def launch(self, kernel: Any, step: Any, parameters: bytes, stream: int = 0) -> None:
        self.done.append(stream)
        super().launch(kernel, step, parameters, stream)


class Foreign:
    """An array whose interface names the stream on which its library works."""

    def __init__(self, tensor: Tensor, stream: int) -> None:
        self.tensor, self.shape = tensor, tensor.shape
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "typestr": "<f4",
            "data": (tensor.address, False),
            "strides": tuple(4 * s for s in tensor.strides),
            "stream": stream,
        }


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver = Gpu()
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(selection, "select", lambda p, *_, **__: [selection.Selection(p, ANY, "given")])
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    yield driver
    grouped._launchers.clear()


def integers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)


def test_streams_of_all_arrays_are_ordered(gpu: Gpu) -> None:
    x, f = integers(16, 16), integers(3, 2, 3, 3)
    t, out = Tensor(gpu, x), Tensor(gpu, x)
    b = Foreign(Tensor(gpu, x), 7)
    expected = [(7, LEGACY), LEGACY, (LEGACY, 7)]
    ptxgen.gemm(t, b, out=out)
    assert np.array_equal(out.numpy(), x @ x)
    assert gpu.done == expected
    gpu.done.clear()
    ptxgen.gemm_grouped([t, t], [t, b], [out, Tensor(gpu, x)])
    assert gpu.done == expected
    gpu.done.clear()
    ptxgen.conv2d(Tensor(gpu, integers(1, 2, 5, 5)), Foreign(Tensor(gpu, f), 7))
    assert gpu.done == expected
    gpu.done.clear()
    ptxgen.gemm(t, t, out=out, residual=Foreign(Tensor(gpu, x), 7))
    assert gpu.done == expected
    gpu.done.clear()
    ptxgen.gemm(b, t, out=Foreign(out, 9))  # on the stream of the first operand
    assert sorted(map(str, gpu.done)) == sorted(map(str, [(LEGACY, 7), (9, 7), 7, (7, LEGACY), (7, 9)]))
    assert gpu.done[2] == 7


def test_arrays_on_one_stream_need_no_order(gpu: Gpu) -> None:
    x = integers(16, 16)
    t, out = Tensor(gpu, x), Tensor(gpu, x)
    for _ in range(2):  # the second call is cached
        ptxgen.gemm(t, t, out=out)
    ptxgen.gemm(t, Foreign(Tensor(gpu, x), LEGACY), out=out)
    ptxgen.gemm_grouped([t, t], [t, t])
    assert gpu.done == [LEGACY] * 4
