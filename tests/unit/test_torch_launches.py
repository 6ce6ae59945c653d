"""Cached launches of ``ptxgen.torch``: tensors on the CPU stand for those on a GPU, and NumPy for the kernels."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

from torch.nn import functional  # noqa: E402
from torch.utils._device import DeviceContext  # noqa: E402

import ptxgen.torch as pt  # noqa: E402
from ptxgen.api import arrays, drivers, launch_function, launches, runners, streams  # noqa: E402
from ptxgen.errors import ShapeError  # noqa: E402
from ptxgen.operations.conv.problem import Conv  # noqa: E402
from ptxgen.torch import conv, launching, products, recent_calls  # noqa: E402


def at(address: int, extents: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """The f32 array at an address of host memory; ``steps``: strides in elements."""
    size = 1 + sum((n - 1) * s for n, s in zip(extents, steps, strict=True))
    memory = np.frombuffer((ctypes.c_float * size).from_address(address), np.float32)
    return np.lib.stride_tricks.as_strided(memory, extents, [4 * s for s in steps])


def multiply(p: Any, a: int, b: int, c: int, bias: tuple[int, ...]) -> None:
    """What the kernel of a GEMM does."""
    steps = p.strides
    for item in range(p.batch):
        x, y = (
            at(address + 4 * item * step, (rows, columns) if letter == "N" else (columns, rows), (ld, 1))
            for address, step, letter, rows, columns, ld in (
                (a, steps[0], p.layout[0], p.m, p.k, p.lda),
                (b, steps[1], p.layout[1], p.k, p.n, p.ldb),
            )
        )
        x, y = (z if letter == "N" else z.T for z, letter in zip((x, y), p.layout, strict=True))
        sums = x @ y + (at(bias[0], (p.n,), (1,)) if bias else 0)
        at(c + 4 * item * steps[2], (p.m, p.n), (p.ldc, 1))[...] = sums


def convolve(p: Any, a: int, b: int, c: int, bias: tuple[int, ...]) -> None:
    """What the kernel of a convolution with two spatial axes does."""
    operands = {}
    for tensor, address in zip(p.tensors, (a, b, c), strict=True):
        extents, steps = p.extents(tensor), p.steps(tensor)
        order = {"x": "nchw", "w": "kcrs", "y": "nkpq"}[tensor]
        view = at(address, tuple(extents[i] for i in order), tuple(steps[i] for i in order))
        operands[tensor] = torch.from_numpy(view)
    x, w, y = operands["x"], operands["w"], operands["y"]
    pads = p.padding[2::2]
    rest = (p.strides[1:], pads, p.dilations[1:])
    if p.direction == "forward":
        add = torch.from_numpy(at(bias[0], (p.k,), (1,))) if bias else None
        y.copy_(functional.conv2d(x, w, add, *rest, p.groups))
        return
    grads = torch.ops.aten.convolution_backward(y, x, w, None, *rest, False, [0, 0], p.groups, [True, True, False])
    operands[p.tensors[2]].copy_(grads[p.direction == "weight_grad"])


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The problems that are launched. Their operands count as memory of a GPU."""
    recorded: list[Any] = []

    def launch_of(
        runner: Any, alpha: float = 1.0, beta: float = 0.0, names: tuple[str, ...] = (), use: str | None = None
    ) -> Any:
        p = runner.problem

        def launch(addresses: tuple[int, ...], stream: int, own: Any = None) -> None:
            assert stream == 1
            recorded.append(p)
            named = dict(zip(names or p.arrays, addresses, strict=True))
            a, b, c, *epilogue_args = (named[name] for name in p.arrays)
            (convolve if isinstance(p, Conv) else multiply)(p, a, b, c, tuple(epilogue_args))

        return launch

    host = arrays._torch
    monkeypatch.setattr(arrays, "_torch", lambda x, name: replace(host(x, name), host=False, device=0))
    monkeypatch.setattr(drivers, "driver_of", lambda v: drivers.driver())
    monkeypatch.setattr(drivers, "require_device", lambda *_, **named: None)
    monkeypatch.setattr(streams, "current_stream", lambda x: 1)
    runner = SimpleNamespace(workspace=0)
    monkeypatch.setattr(runners, "runner_for", lambda p, *_: SimpleNamespace(problem=p, launch=runner))
    monkeypatch.setattr(launch_function, "make_launch", launch_of)
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(launching, "_current_stream", lambda device: 0)
    return recorded


def integers(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


CALLS = {
    "linear": (pt.linear, functional.linear, ((2, 3, 8), (4, 8), (4,))),
    "weight_grad": (
        products.LINEAR_WEIGHT_GRAD,
        lambda x, dy: dy.flatten(0, 1).T @ x.flatten(0, 1),
        ((2, 3, 8), (2, 3, 4)),
    ),
    "matmul": (pt.matmul, torch.matmul, ((3, 4, 8), (3, 8, 5))),
    "vector": (pt.matmul, torch.matmul, ((4, 8), (8,))),
    "conv": (
        lambda *a: pt.conv2d(*a, 2, 1),
        lambda *a: functional.conv2d(*a, 2, 1),
        ((2, 3, 7, 5), (4, 3, 3, 3), (4,)),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_second_call_uses_the_cached_launch(launched, monkeypatch, name):
    ours, theirs, shapes = CALLS[name]
    for seed in range(3):
        given = [integers(*shape, seed=seed + i) for i, shape in enumerate(shapes)]
        assert torch.equal(ours(*given), theirs(*given))
        assert len(launched) == seed + 1
        if not seed:
            refuse = lambda *_, **__: pytest.fail("a cached call makes a launch")  # noqa: E731
            monkeypatch.setattr(launch_function, "make_launch", refuse)


def test_operands_that_are_copied_are_copied_in_every_call(launched):
    w = integers(4, 8)
    for seed in range(3):
        for x in (
            integers(8, 6, seed=seed).T,
            integers(3, 2, 8, seed=seed).transpose(0, 1),
            integers(6, 17, seed=seed)[:, 1:9],
            integers(1, 8, seed=seed).expand(6, 8),
            integers(6, 16, seed=seed)[:, ::2],
        ):
            assert torch.equal(pt.linear(x, w), functional.linear(x, w))
            assert torch.equal(pt.matmul(x, w.T), torch.matmul(x, w.T))
        bias = integers(8, seed=seed)[::2]
        assert torch.equal(pt.linear(integers(3, 8), w, bias), functional.linear(integers(3, 8), w, bias))
        images = integers(2, 6, 5, 3, seed=seed).permute(0, 3, 1, 2)[:, :, ::2]
        filters = integers(4, 3, 2, 2)
        assert torch.equal(pt.conv2d(images, filters), functional.conv2d(images, filters))


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_third_step_finds_both_gradients_at_once(launched, monkeypatch, name):
    ours, theirs, shapes = CALLS[name]
    called: list[str] = []
    for module in (products, conv):
        for operator in {"MATMUL", "LINEAR_WEIGHT_GRAD", "CONV_INPUT_GRAD", "CONV_WEIGHT_GRAD"} & {*vars(module)}:
            call = getattr(module, operator)
            monkeypatch.setattr(
                module, operator, lambda *a, call=call, name=operator: (called.append(name), call(*a))[1]
            )
    given = [integers(*shape).requires_grad_() for shape in shapes]
    for step in range(6):
        with torch.no_grad():
            for i, operand in enumerate(given):
                operand.copy_(integers(*operand.shape, seed=step + i))
        wanted = theirs(*given)
        dy = integers(*wanted.shape, seed=step)
        gradients = torch.autograd.grad(wanted, given, dy)
        if step == 4:  # launches that were removed are made again, by the operators
            launches.forget_launches()
        called.clear()
        derivatives = torch.autograd.grad(ours(*given), given, dy)
        assert all(map(torch.equal, derivatives, gradients))
        assert len(called) == (0 if step in (2, 3) else 2)
    assert len(launched) == 18
    # one of the gradients alone
    for _ in range(4):
        assert torch.equal(torch.autograd.grad(ours(given[0].detach(), *given[1:]), given[1], dy)[0], gradients[1])


def count_keys(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys that calls look up from now on."""
    keys: list[Any] = []
    cached = launches.cached
    monkeypatch.setattr(launches, "cached", lambda key: (keys.append(key), cached(key))[1])
    return keys


def test_a_recent_call_is_not_taken_for_another_one(launched, monkeypatch):
    x, w, b = integers(4, 8), integers(6, 8), integers(6)
    for _ in range(3):
        pt.linear(x, w, b)
    keys = count_keys(monkeypatch)
    assert torch.equal(pt.linear(integers(4, 8, seed=1), w, b), functional.linear(integers(4, 8, seed=1), w, b))
    assert not keys
    others = {
        "shape": (integers(2, 2, 8), w, b),
        "strides": (integers(4, 9)[:, :8], w, b),
        "address": (integers(33)[1:].view(4, 8), w, b),
        "no bias": (x, w, None),
        "another bias": (x, w, integers(8)[1:7]),
        "a parameter": (torch.nn.Parameter(x), w, b),
        "negative": (torch._neg_view(x), w, b),
    }
    for what, operands in others.items():
        keys.clear()
        assert torch.equal(pt.linear(*operands), functional.linear(*operands)), what
        assert keys, what
        for _ in range(3):
            assert torch.equal(pt.linear(*operands), functional.linear(*operands)), what
            pt.linear(x, w, b)
    with pytest.raises(ShapeError):
        pt.linear(x.reshape(2, 16), w, b)
    for _ in range(2):
        pt.linear(x, w, b)
    torch.use_deterministic_algorithms(True)
    try:
        pt.linear(x, w, b)
    finally:
        torch.use_deterministic_algorithms(False)
    assert launched[-1].deterministic
    recent = products.LINEAR._recent
    for _ in range(2):
        pt.linear(x, w, b)
    assert recent.get((x, w, b))
    for mode in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), DeviceContext(torch.device("meta"))):
        with mode:
            assert recent.get((x, w, b)) is None


def test_without_guards_every_call_looks_up_its_key(launched, monkeypatch):
    monkeypatch.setattr(recent_calls, "_guards", None)
    x, w = integers(4, 8), integers(6, 8)
    pt.linear(x, w)
    keys = count_keys(monkeypatch)
    for _ in range(3):
        assert torch.equal(pt.linear(x, w), functional.linear(x, w))
    assert len(keys) == 3


@pytest.mark.parametrize("last", [False, True])
def test_backward_step_copies_no_gradient_twice(launched, last):
    """A gradient in another memory format is copied once, before both kernels."""
    x, w = integers(2, 3, 6, 5).requires_grad_(), integers(4, 3, 3, 3).requires_grad_()
    formats = torch.channels_last, torch.contiguous_format
    given = [t.detach().clone(memory_format=formats[not last]).requires_grad_() for t in (x, w)]
    wanted = functional.conv2d(x, w, padding=1)
    grad = integers(*wanted.shape).to(memory_format=formats[last])
    wanted.backward(grad)
    for _ in range(2):
        y = pt.conv2d(*given, padding=1)
        y.backward(grad)
    assert torch.equal(given[0].grad, 2 * x.grad)
    assert torch.equal(given[1].grad, 2 * w.grad)
    assert [p.direction for p in launched] == ["forward", "input_grad", "weight_grad"] * 2
    assert {p.layout for p in launched} == {"NHWC" if last else "NCHW"}
    assert len(launches.launches) == 3  # no operand was copied


def test_channels_last_has_the_problems_of_the_suites(launched):
    """Winners are stored for the natural layout of filters, which filters of one tap have as well."""
    for taps, groups in ((3, 1), (1, 1), (3, 8)):
        shapes = (2, 8, 6, 5), (8, 8 // groups, taps, taps)
        x, w = (integers(*s).to(memory_format=torch.channels_last).requires_grad_() for s in shapes)
        pt.conv2d(x, w, groups=groups).sum().backward()
    assert len(launched) == 9
    assert {(p.layout, p.filters) for p in launched} == {("NHWC", "KRSC")}


def test_tf32_is_used_where_pytorch_allows_it(launched, monkeypatch):
    monkeypatch.setattr(launching, "settings", lambda x, operation: (operation == "conv", False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    images = integers(1, 4, 6, 5)
    pt.conv2d(images, integers(2, 4, 3, 3))
    pt.conv2d(images, integers(4, 1, 3, 3), groups=4)  # by the depthwise family
    pt.linear(integers(2, 4), integers(3, 4))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    pt.conv2d(images, integers(3, 4, 3, 3))
    assert [p.compute for p in launched] == ["tf32", "f32", "f32", "f32"]


def test_types_alignments_and_settings_have_launches_of_their_own(launched):
    x, w = integers(4, 9)[:, :8], integers(4, 8)
    for start in (0, 1, 0, 1):
        part = integers(4, 9)[:, start : start + 8]
        assert torch.equal(pt.linear(part, w), functional.linear(part, w))
    assert len(launches.launches) == 2
    torch.use_deterministic_algorithms(True)
    try:
        pt.linear(x, w)
    finally:
        torch.use_deterministic_algorithms(False)
    assert [p.deterministic for p in launched] == [False] * 4 + [True]
