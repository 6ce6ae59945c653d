"""Cached launches of tasks on tensors."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, launches, runners
from ptxgen.errors import OverlapError
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

DISTANCE = "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } D[i,j] = accum * s; }"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    """An emulated device whose memory counts as that of a GPU."""
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    driver = EmulatedDriver()
    monkeypatch.setattr(drivers, "driver_of", lambda v: driver)
    launches.forget_launches()
    return driver


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The problems of calls without a cached launch."""
    found: list[Any] = []
    runner_for = runners.runner_for
    monkeypatch.setattr(runners, "runner_for", lambda p, *rest: found.append(p) or runner_for(p, *rest))
    return found


def integers(on: EmulatedDriver, *shape: int, seed: int = 0) -> Tensor:
    return Tensor(on, np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32))


def distances(p: Any, r: Any, s: float) -> np.ndarray:
    return np.abs(p.numpy()[:, None] - r.numpy()[None]).sum(-1) * np.float32(s)


def test_later_calls_use_the_launch_with_other_arrays_and_numbers(on, slow):
    task = ptxgen.task(DISTANCE)
    for seed, s in enumerate((2.0, 2.0, -3.0, 0.0, -0.0)):
        p, r = integers(on, 5, 6, seed=seed), integers(on, 7, 6, seed=seed + 9)
        found = task(p, r, s).numpy()
        assert np.array_equal(found, distances(p, r, s))
        assert np.array_equal(np.signbit(found), np.signbit(distances(p, r, s)))
    assert len(slow) == 1


def test_other_extents_and_types_of_numbers_are_other_calls(on, slow):
    task = ptxgen.task(DISTANCE)
    task(integers(on, 5, 6), integers(on, 7, 6), 2.0)
    p, r = integers(on, 4, 6), integers(on, 7, 6)
    assert np.array_equal(task(p, r, 2.0).numpy(), distances(p, r, 2))
    assert np.array_equal(task(p, r, 3).numpy(), distances(p, r, 3))
    assert len(slow) == 3


def test_out_is_checked_for_shared_memory_at_each_call(on, slow):
    task = ptxgen.task(DISTANCE)
    p, r, out = integers(on, 6, 6), integers(on, 6, 6, seed=1), integers(on, 6, 6)
    for _ in range(2):
        assert task(p, r, 2.0, out=out) is out
        assert np.array_equal(out.numpy(), distances(p, r, 2))
    assert len(slow) == 1
    with pytest.raises(OverlapError):
        task(p, r, 2.0, out=p)


def test_numbers_and_functions_around_a_traced_function_are_read_at_each_call(on, slow):
    i, j, k = ptxgen.axes("i j k")
    scale = 2.0

    def absolute(x: Any, y: Any) -> Any:
        return abs(x - y)

    combined = absolute

    @ptxgen.task
    def task(p, r):
        return ptxgen.sum(k, combined(p[i, k], r[j, k])) * scale

    p, r = integers(on, 5, 6), integers(on, 7, 6, seed=1)
    for scale in (2.0, 5.0):
        assert np.array_equal(task(p, r).numpy(), distances(p, r, scale))
    assert len(slow) == 1

    combined = operator.mul
    assert np.array_equal(task(p, r).numpy(), p.numpy() @ r.numpy().T * 5)
    assert len(slow) == 2


def test_matmul_over_uses_the_launch(on, slow):
    for seed in range(3):
        a, b = integers(on, 5, 6, seed=seed), integers(on, 6, 7, seed=seed + 5)
        expected = (a.numpy()[:, :, None] + b.numpy()[None]).min(1)
        assert np.array_equal(ptxgen.matmul_over("min_plus", a, b).numpy(), expected)
    assert len(slow) == 1


def test_one_array_with_two_names_is_another_call(on, slow):
    task = ptxgen.task(DISTANCE)
    p, r = integers(on, 9, 6), integers(on, 9, 6, seed=1)
    for x, y in ((p, p), (p, r), (r, r), (r, p), (p, p)):
        assert np.array_equal(task(x, y, 2.0).numpy(), distances(x, y, 2))
    assert [problem.mirrored for problem in slow] == [True, False]
    out = integers(on, 9, 9, seed=2)
    for _ in range(2):
        assert task(p, p, 3.0, out=out) is out
        assert np.array_equal(out.numpy(), distances(p, p, 3))
    assert len(slow) == 3
    with pytest.raises(OverlapError):
        ptxgen.task(DISTANCE)(out, out, 3.0, out=out)
