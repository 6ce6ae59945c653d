"""PyTorch tensors in host memory: the accepted kinds of operands, and the class of the result."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError, InputError
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection

torch = pytest.importorskip("torch")

ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EmulatedDriver()
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(selection, "select", lambda p, *_: [selection.Selection(p, ANY, "given")])


class Plain(torch.Tensor):
    """A subclass whose operations are those of tensors."""


class Opposite(torch.Tensor):
    """A subclass that stores the negative of its values."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(function, types, args, kwargs or {})
        return -made if isinstance(made, torch.Tensor) else made


class Wrapped(torch.Tensor):
    """A subclass without memory of its own, as those of distributed and quantized tensors."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = [x.inner if isinstance(x, Wrapped) else x for x in args]
        return function(*inner, **(kwargs or {}))


def numbers(*shape: int) -> Any:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(len(shape))).float()


def test_parameters_and_plain_subclasses_are_multiplied() -> None:
    x, y = numbers(8, 6), numbers(6, 5)
    weight = torch.nn.Parameter(y)
    with pytest.raises(InputError, match=r"b requires a gradient.*torch\.no_grad"):
        ptxgen.gemm(x, weight)
    with torch.no_grad():
        made = ptxgen.gemm(x, weight)
        assert torch.equal(made, x @ y)
        assert type(made) is torch.Tensor
        out = torch.nn.Parameter(torch.zeros(8, 5))
        ptxgen.gemm(x, weight, out=out)
        assert torch.equal(out, x @ y)
    assert torch.equal(ptxgen.gemm(x, torch.nn.Buffer(y)), x @ y)
    made = ptxgen.gemm(x.as_subclass(Plain), y)
    assert type(made) is Plain
    assert torch.equal(made.as_subclass(torch.Tensor), x @ y)


def fake(x: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(x)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x.as_subclass(Opposite), InputError, "is a Opposite, a tensor subclass with its own __torch_funct"),
        (lambda x: Wrapped(x), InputError, "is a Wrapped, a tensor subclass with its own __torch_dispatch__"),
        (fake, InputError, "is a FakeTensor"),
        (lambda x: x.to("meta"), InputError, "is on the device 'meta'; it must be on cpu or cuda"),
        (lambda x: torch._neg_view(x), InputError, "negative bit; pass .*resolve_neg"),
        (lambda x: torch.imag(torch.complex(x, x).conj()), InputError, "negative bit"),
        (lambda x: x.to(torch.complex32), DtypeError, "has dtype torch.complex32"),
        (lambda x: x.to_sparse(), InputError, "is a Tensor without memory of its own"),
    ],
)
@pytest.mark.parametrize("named", ["b", "out", "bias", "images", "w", "item"])
def test_tensors_whose_memory_does_not_hold_their_values_are_refused(
    change: Callable[[Any], Any], error: type[Exception], message: str, named: str
) -> None:
    x, offsets = numbers(6, 6), torch.tensor([3, 6], dtype=torch.int32)
    calls = {
        "images": lambda: ptxgen.conv2d(change(numbers(1, 2, 4, 4)), numbers(3, 2, 3, 3)),
        "w": lambda: ptxgen.gemm_jagged(x, change(numbers(2, 6, 6)), offsets),
        "item": lambda: ptxgen.gemm_grouped([x, change(x)], [x, x]),
    }
    with pytest.raises(error, match=message):
        calls.get(named, lambda: ptxgen.gemm(**{"a": x, "b": x, named: change(x)}))()


def test_resolved_views_are_multiplied() -> None:
    x = torch.complex(numbers(4, 4), numbers(4, 4)).conj()
    assert torch.equal(ptxgen.gemm(x.imag.resolve_neg(), numbers(4, 4)), x.imag @ numbers(4, 4))
    assert np.array_equal(ptxgen.gemm(x.real, numbers(4, 4)), x.real @ numbers(4, 4))
