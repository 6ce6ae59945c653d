"""The kernel of listed pairs, executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.pair_products import PairProducts
from ptxgen.codegen.render import render_pairs
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.emulated import EmulatedDriver

INPUTS = "A:f32[i,k];B:f32[j,k];t:f32;w:f32[i];accum:f32;"
BODY = "reduce(k){accum+=A[i,k]*B[j,k];}"
LISTED = f"{INPUTS}where(i,j)when(i!=j){{{BODY}accum>t+w[i]?C.add(j,accum,i);}}"
POISON = -1


def task(m: int, n: int, k: int, capacity: int = 500, **fields: Any) -> Task:
    return Task(m, n, k, "NT", "f32", text=LISTED, capacity=capacity, **fields)


def computed(p: Task, a: Any, b: Any, pairs: Any, t: float, w: Any, room: int | None = None) -> dict[str, Any]:
    """The lists of the pairs, and their count."""
    driver = EmulatedDriver()
    plan = PairProducts(lower(p), driver.device)
    out = {name: np.full(x.shape, POISON, x.dtype.numpy) for name, x in p.result_arrays.items()}
    i, j = (np.ascontiguousarray(x, np.int32) for x in pairs)
    given = {"A": a, "B": b, "input0": w, "pairs_i": i, "pairs_j": j, "pair_count": np.array([len(i)]), **out}
    at: dict[str, Any] = {name: driver.allocate(max(x.nbytes, 1)) for name, x in given.items()}
    for name, x in given.items():
        driver.upload(at[name], np.ascontiguousarray(x))
    numbers = {"pair_room": len(i) if room is None else room, "scalar0": t, "capacity": p.capacity}
    kernel = driver.load(render_pairs(plan))
    for step in plan.steps(lower(p), len(i)):
        driver.launch(kernel, step, step.pack({**at, **numbers}))
    driver.synchronize()
    for name, x in out.items():
        driver.download(at[name], x)
    return out


def some(m: int, n: int, k: int, count: int, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """A, B, w of small integers, and different pairs."""
    rng = np.random.default_rng(seed)
    a, b, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (n, k), m))
    return a, b, w, np.unravel_index(rng.permutation(m * n)[:count], (m, n))


@pytest.mark.each_value
@pytest.mark.parametrize("count", [0, 1, 31, 33, 400])
@pytest.mark.parametrize(("m", "n", "k"), [(37, 29, 64), (37, 29, 67), (20, 33, 3), (23, 31, 530)])
def test_each_listed_pair_is_computed_once(m: int, n: int, k: int, count: int) -> None:
    a, b, w, (i, j) = some(m, n, k, count)
    out = computed(task(m, n, k), a, b, (i, j), 2.0, w)
    total = (a @ b.T)[i, j]
    listed = (total > 2 + w[i]) & (i != j)
    triples = sorted(zip(out["C_2"].tolist(), out["C"].tolist(), out["C_1"].tolist(), strict=True))
    expected = sorted(zip(i[listed].tolist(), j[listed].tolist(), total[listed].tolist(), strict=True))
    assert out["count"] == [len(expected)]
    assert triples == [(POISON,) * 3] * (500 - len(expected)) + expected


def test_more_pairs_than_warps_share_the_list() -> None:
    m = n = 80
    a, b, w, pairs = some(m, n, 5, m * n)
    out = computed(task(m, n, 5, m * n), a, b, pairs, 0.0, w)
    assert out["count"] == [((a @ b.T > w[:, None]) & ~np.eye(m, dtype=bool)).sum()]


def test_rows_that_are_not_aligned() -> None:
    a, b, w, pairs = some(9, 8, 10, 72)
    for vec, fields in ((2, {}), (1, {"lda": 11}), (1, {"aligned_b": 4})):
        p = task(9, 8, 10, **fields)
        assert PairProducts(lower(p), device("h100")).vec == vec
        given = np.full((9, p.lda), np.nan, np.float32)
        given[:, :10] = a
        assert computed(p, given, b, pairs, 0.0, w)["count"] == [
            ((a @ b.T > w[:, None])[pairs] & (pairs[0] != pairs[1])).sum()
        ]


def test_nothing_is_computed_without_room_for_all_pairs() -> None:
    a, b, w, pairs = some(9, 8, 10, 50)
    out = computed(task(9, 8, 10), a, b, pairs, -np.inf, w, room=49)
    assert out["count"] == [0]
    assert (out["C"] == POISON).all()


def test_nan_and_infinities_reach_the_sums_of_their_rows_alone() -> None:
    a, b, w, pairs = some(9, 8, 70, 72)
    a[2, 69], b[3, 0], a[4, 1] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        expected = (a @ b.T > w[:, None]) & (np.arange(9)[:, None] != np.arange(8))
    out = computed(task(9, 8, 70), a, b, pairs, 0.0, w)
    listed = np.zeros((9, 8), bool)
    listed[out["C_2"][: expected.sum()], out["C"][: expected.sum()]] = True
    assert (listed == expected).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_it_assembles_without_spills(target: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for p in (task(40, 40, 40), task(40, 40, 41)):
        made = assemble(render_pairs(PairProducts(lower(p), device(target))))
        assert made.cubin
        assert not any(made.spills.values())
