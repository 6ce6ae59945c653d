"""Cached launches of tasks on tensors."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, launches, runners, task_call
from ptxgen.errors import InputError, OverlapError
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
    calls: list[Any] = []
    runner_for = runners.runner_for
    monkeypatch.setattr(runners, "runner_for", lambda p, *rest: calls.append(p) or runner_for(p, *rest))
    return calls


def integers(on: EmulatedDriver, *shape: int, seed: int = 0) -> Tensor:
    return Tensor(on, np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32))


def distances(p: Any, r: Any, s: float) -> np.ndarray:
    return np.abs(p.numpy()[:, None] - r.numpy()[None]).sum(-1) * np.float32(s)


def test_later_calls_use_the_launch_with_other_arrays_and_numbers(on, slow):
    task = ptxgen.task(DISTANCE)
    for seed, s in enumerate((2.0, 2.0, -3.0, 0.0, -0.0)):
        p, r = integers(on, 5, 6, seed=seed), integers(on, 7, 6, seed=seed + 9)
        result = task(p, r, s).numpy()
        assert np.array_equal(result, distances(p, r, s))
        assert np.array_equal(np.signbit(result), np.signbit(distances(p, r, s)))
    assert len(slow) == 1


def test_other_extents_and_types_of_numbers_are_other_calls(on, slow):
    task = ptxgen.task(DISTANCE)
    task(integers(on, 5, 6), integers(on, 7, 6), 2.0)
    p, r = integers(on, 4, 6), integers(on, 7, 6)
    assert np.array_equal(task(p, r, 2.0).numpy(), distances(p, r, 2))
    assert np.array_equal(task(p, r, 3).numpy(), distances(p, r, 3))
    assert len(slow) == 3


@pytest.mark.parametrize(
    ("dtype", "s", "rule"),
    [
        (np.int32, 2**40, "s is 1099511627776; it must be from -2147483648 to 2147483647, a number of s32"),
        (np.float32, 10**400, "s is an integer of 1329 bits; it must be a number of f32"),
    ],
    ids=["s32", "f32"],
)
def test_numbers_are_checked_at_each_call(on, slow, dtype, s, rule):
    task = ptxgen.task(DISTANCE)
    p, r = (Tensor(on, np.ones((3, 4), dtype)) for _ in "pr")
    with pytest.raises(InputError, match=rule):
        task(p, r, s)
    assert task(p, r, 2).numpy().tolist() == [[0] * 3] * 3
    with pytest.raises(InputError, match=rule):
        task(p, r, s)
    assert len(slow) == 1


def test_operands_without_elements_have_no_address(on, slow):
    """As those of PyTorch."""
    task = ptxgen.task("where (i, j) { reduce (k) { accum += P[i,k] * R[k,j]; } D[i,j] = X[i,j] * t[i]; }")
    p, r = integers(on, 4, 0), integers(on, 0, 5)
    p.address = r.address = 0
    for seed in range(3):
        x, t = integers(on, 4, 5, seed=seed), integers(on, 4, seed=seed)
        assert np.array_equal(task(p, r, x, t).numpy(), x.numpy() * t.numpy()[:, None])
    assert len(slow) == 1


def test_out_is_checked_for_shared_memory_at_each_call(on, slow):
    task = ptxgen.task(DISTANCE)
    p, r, out = integers(on, 6, 6), integers(on, 6, 6, seed=1), integers(on, 6, 6)
    for _ in range(2):
        assert task(p, r, 2.0, out=out) is out
        assert np.array_equal(out.numpy(), distances(p, r, 2))
    assert len(slow) == 1
    with pytest.raises(OverlapError):
        task(p, r, 2.0, out=p)
    task(p, r, 2.0)
    with pytest.raises(InputError):
        task(p, r, 2.0, out={})


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


# ---- several launches

OUTPUTS = "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } D[i,j] = accum; S[i] += accum * s; }"
REDUCED = (
    "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } S[i] += accum * s; T[j] = max(T[j], accum - s); }"
)
GROUPS = "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } C[g[i],h[j]] += accum; }"


def keys(on: EmulatedDriver, *values: int) -> Tensor:
    return Tensor(on, np.array(values, np.int32))


@pytest.mark.parametrize("k", [6, 40])
def test_several_outputs(on, slow, k):
    """For a large K the second output reads the first one."""
    task = ptxgen.task(OUTPUTS)
    for seed, s in enumerate((2.0, 2.0, -1.0)):
        p, r = integers(on, 5, k, seed=seed), integers(on, 7, k, seed=seed + 9)
        result = task(p, r, s=s)
        assert result._fields == ("D", "S")
        assert np.array_equal(result.D.numpy(), distances(p, r, 1))
        assert np.array_equal(result.S.numpy(), distances(p, r, s).sum(1))
    assert len(slow) == 2


def test_outputs_that_read_a_reduction_that_none_stores(on, slow):
    task = ptxgen.task(REDUCED)
    for seed, s in enumerate((2.0, 5.0, 2.0)):
        p, r = integers(on, 5, 40, seed=seed), integers(on, 7, 40, seed=seed + 9)
        result = task(p, r, s)
        assert np.array_equal(result.S.numpy(), distances(p, r, s).sum(1))
        assert np.array_equal(result.T.numpy(), distances(p, r, 1).max(0) - s)
    assert len(slow) == 3


def test_arrays_of_several_outputs_may_be_given(on, slow):
    task = ptxgen.task(OUTPUTS)
    p, r, d, s = integers(on, 5, 6), integers(on, 7, 6, seed=1), integers(on, 5, 7), integers(on, 5)
    for _ in range(2):
        result = task(p, r, 2.0, out={"D": d, "S": s})
        assert result.D is d
        assert result.S is s
        assert np.array_equal(s.numpy(), distances(p, r, 2).sum(1))
        result = task(p, r, 2.0, out={"S": s})
        assert result.S is s
        assert np.array_equal(result.D.numpy(), distances(p, r, 1))
    assert len(slow) == 4
    for _ in range(2):
        assert np.array_equal(task(p, r, 2.0, out={}).S.numpy(), distances(p, r, 2).sum(1))
    with pytest.raises(OverlapError):
        task(p, r, 2.0, out={"D": d, "S": d[0][:5]})
    with pytest.raises(OverlapError):
        task(p, r, 2.0, out={"S": p[1][:5]})


def test_items_of_a_batch(on, slow):
    task = ptxgen.task("where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } S[i] += accum * s; }")
    out = integers(on, 3, 5)
    for seed, s in enumerate((2.0, 3.0, 2.0)):
        p, r = integers(on, 3, 5, 6, seed=seed), integers(on, 7, 6, seed=seed + 9)
        expected = [distances(x, r, s).sum(1) for x in p]
        assert np.array_equal(task(p, r, s).numpy(), expected)
        assert task(p, r, s, out=out) is out
        assert np.array_equal(out.numpy(), expected)
    assert len(slow) == 6


def test_views_that_share_memory_are_told_apart(on, slow):
    """Two arguments may be parts of one array, also where an item of the one is at the address of the other."""
    task = ptxgen.task("where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } S[i] += accum; }")
    x, y = integers(on, 8, 4, 6), integers(on, 8, 4, 6, seed=1)
    for p, r in ((x[0:3], x[1]), (x[0:3], x[4]), (x[0:3], y[1]), (y[1:4], x[0]), (x[4:7], x[5]), (x[4:7], x[4])):
        assert np.array_equal(task(p, r).numpy(), [distances(item, r, 1).sum(1) for item in p])
    # the first call computes half of an item's pairs, and is not cached; the last is another call: the arrays begin at
    # one address
    assert [problem.mirrored for problem in slow] == [False, True, False, *3 * [False], True, False, False]


def test_groups_of_known_extents(on, slow):
    task, g, h = ptxgen.task(GROUPS), keys(on, 0, 2, 1, 2, 0), keys(on, 1, 0, 1, 1)
    expected = np.zeros((3, 2), np.float32)
    for seed in range(3):
        p, r = integers(on, 5, 6, seed=seed), integers(on, 4, 6, seed=seed + 9)
        expected[...] = 0
        np.add.at(expected, (g.numpy()[:, None], h.numpy()[None]), distances(p, r, 1))
        assert np.array_equal(task(P=p, R=r, g=g, h=h, groups=(3, 2)).numpy(), expected)
        assert np.array_equal(task(P=p, R=r, g=g, h=h, groups=[3, 2]).numpy(), expected)
        out = integers(on, 3, 2)
        assert task(P=p, R=r, g=g, h=h, out=out) is out
        assert np.array_equal(out.numpy(), expected)
    assert len(slow) == 2


def test_keys_are_read_at_each_call(on, slow, monkeypatch):
    for name in ("min", "max"):
        monkeypatch.setattr(Tensor, name, lambda x, name=name: getattr(x.numpy(), name)(), raising=False)
    task, p, r, h = ptxgen.task(GROUPS), integers(on, 5, 6), integers(on, 4, 6, seed=1), keys(on, 1, 0, 1, 1)
    assert task(p, r, keys(on, 0, 2, 1, 2, 0), h).shape == (3, 2)
    assert task(p, r, keys(on, 0, 4, 1, 2, 0), h).shape == (5, 2)
    assert len(slow) == 2


def test_sums_of_groups_before_the_product(on, slow, monkeypatch):
    monkeypatch.setattr(task_call, "pays", lambda *arguments: True)
    task = ptxgen.task("where (i, j) { reduce (k) { accum += P[i,k] * R[k,j]; } C[g[i],h[j]] += accum; }")
    rng = np.random.default_rng(0)
    g, h = (keys(on, *rng.integers(0, n, 64)) for n in (2, 3))
    for seed in range(2):
        p, r = integers(on, 64, 32, seed=seed), integers(on, 32, 64, seed=seed + 9)
        expected = np.zeros((2, 3), np.float32)
        np.add.at(expected, (g.numpy()[:, None], h.numpy()[None]), p.numpy() @ r.numpy())
        assert np.array_equal(task(p, r, g, h, groups=(2, 3)).numpy(), expected)
    assert len({problem.text for problem in slow}) == len(slow) > 1


def test_fast_distances(on, slow):
    task = ptxgen.task(
        "where (i, j) { reduce (k) { accum += (P[i,k] - R[j,k])*(P[i,k] - R[j,k]); } D[i,j] = accum*s; }"
    )
    for seed, s in enumerate((2.0, 3.0)):
        p, r = integers(on, 5, 6, seed=seed), integers(on, 7, 6, seed=seed + 9)
        expected = ((p.numpy()[:, None] - r.numpy()[None]) ** 2).sum(-1) * s
        assert np.array_equal(task(p, r, s, precision="fast").numpy(), expected)
    assert len(slow) == 3


def test_conditions_are_truth_values(on, slow):
    task = ptxgen.task("where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } D[i,j] = accum > t; }")
    out = Tensor(on, np.zeros((5, 7), np.uint8)).view("torch.bool")
    for seed, t in enumerate((12.0, 20.0, 12.0)):
        p, r = integers(on, 5, 6, seed=seed), integers(on, 7, 6, seed=seed + 9)
        result = task(p, r, t)
        assert result.dtype == "torch.bool"
        assert np.array_equal(result.numpy(), distances(p, r, 1) > t)
        assert task(p, r, t, out=out) is out
        assert np.array_equal(out.numpy(), distances(p, r, 1) > t)
    assert len(slow) == 2


def test_copies_are_not_cached(on, slow):
    task = ptxgen.task(DISTANCE)
    p, r = integers(on, 5, 6), Tensor(on, integers(on, 7, 12, seed=1).numpy())
    r.shape, r.strides = (7, 6), (12, 2)  # every second element
    for _ in range(2):
        expected = np.abs(p.numpy()[:, None] - r.contiguous().numpy()[None]).sum(-1)
        assert np.array_equal(task(p, r, 1.0).numpy(), expected)
    assert len(slow) == 2


def test_reselection_of_any_launch_forgets_the_call(on, slow):
    task, p, r = ptxgen.task(OUTPUTS), integers(on, 5, 40), integers(on, 7, 40, seed=1)
    for n in range(2):
        task(p, r, 2.0)
        problems = list(dict.fromkeys(slow))
        assert len(problems) == 2
        runners.reselect([problems[n]])
        assert not launches.launches
    task(p, r, 2.0)
    assert len(slow) == 6


def test_truth_values_are_read_as_bytes(on, slow):
    rng = np.random.default_rng(2)
    hamming = ptxgen.task("where (i, j) { reduce (k) { accum += P[i,k] != R[j,k]; } D[i,j] = accum; }")
    for _ in range(2):
        p, r = (Tensor(on, rng.random(shape) < 0.5) for shape in ((6, 40), (5, 40)))
        assert np.array_equal(hamming(p, r).numpy(), (p.numpy()[:, None] != r.numpy()).sum(-1))
        assert len(slow) == 1
    for _ in range(2):
        p, r = (Tensor(on, rng.random(shape) < 0.3) for shape in ((6, 40), (40, 5)))
        result = ptxgen.matmul_over("or_and", p, r)
        assert result.dtype == "torch.bool"
        assert np.array_equal(result.numpy(), p.numpy() @ r.numpy())
    assert len(slow) == 2
    words = ptxgen.pack_bits(Tensor(on, np.ones((3, 40), bool)), Tensor(on, np.zeros((3, 2), np.uint32)))
    assert words.numpy().tolist() == [[2**32 - 1, 255]] * 3
