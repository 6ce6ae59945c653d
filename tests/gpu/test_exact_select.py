"""Lists of candidates of tensor cores on a GPU: the bound of their error, and lists that must be exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, exact_calls
from ptxgen.operations.task import exact_filter, exact_parts
from ptxgen.operations.task.suites import SUITES
from ptxgen.runtime.driver import Timing
from ptxgen.tuning.measure.bench import bench
from ptxgen.tuning.selection import select

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(8)
PRODUCT = "where (i, j) { reduce (k) { accum += P[i,k] * R[j,k]; } C[i,j] = accum; }"
QUERY = "where (i, j) { reduce (k) { accum += P[i,k] * R[j,k]; } accum > t ? hits.add(accum, i, j); }"


def operands(dtype: str, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Normal values; positive ones, whose sums grow with k; ones with lower bits, which tf32 loses."""
    p, r = (RNG.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
    if dtype == "positive":
        p, r = abs(p) + 1, abs(r) + 1
    if dtype == "lost":
        p, r = (np.float32(1 + 2**-11 - 2**-23) * np.ones_like(x) for x in (p, r))
    return p, r


@pytest.mark.parametrize("dtype", ["normal", "positive", "lost"])
@pytest.mark.parametrize("k", [1, 61, 4096, 1 << 16])
def test_the_bound_covers_the_sums_of_tensor_cores(dtype: str, k: int) -> None:
    p, r = operands(dtype, 200, 136, k)
    result = ptxgen.task(PRODUCT)(P=p, R=r, compute="tf32").astype("f8")
    w = exact_filter.weights(k, 0)
    weights = w[exact_filter.ALPHA] + w[exact_filter.BETA] * (k - np.arange(k))
    exact = p.astype("f8") @ r.T.astype("f8")
    bound = np.sqrt((p.astype("f8") ** 2 @ weights)[:, None] * (r.astype("f8") ** 2 @ weights))
    assert (abs(result - exact) < bound).all(), float((abs(result - exact) / bound).max())


@pytest.mark.parametrize("dtype", ["normal", "lost"])
def test_lists_are_those_of_f32(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_filter, "LEAST", 1)
    monkeypatch.setattr(exact_parts, "predicted_faster", lambda *_: True)
    exact_calls._exact.cache_clear()
    m, n, k = 1500, 1100, 700
    p, r = operands(dtype, m, n, k)
    if dtype == "lost":  # only the lowest bits of few rows exceed the threshold
        p[5::100] = np.float32(1 + 2**-11)
        r[:1000, ::2] = 0.5
    exact = p.astype("f8") @ r.T.astype("f8")
    t = np.float32(np.sort(exact.ravel())[-min(1500, m * n // 200)])
    hits = ptxgen.task(QUERY)(P=p, R=r, t=t)
    error = k * 2.0**-24 * (abs(p).astype("f8") @ abs(r).T.astype("f8"))
    listed = np.zeros((m, n), bool)
    listed[hits.i, hits.j] = True
    assert listed.sum() == hits.count
    assert not (listed & (exact < t - error)).any()
    assert not (~listed & (exact > t + error)).any()
    assert (abs(hits.values - exact[hits.i, hits.j]) <= error[hits.i, hits.j]).all()


def test_nearest_rows_by_a_value_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen columns have the least values, within the rounding of f32."""
    monkeypatch.setattr(exact_filter, "LEAST", 1)
    monkeypatch.setattr(exact_parts, "predicted_faster", lambda *_: True)
    exact_calls._exact.cache_clear()
    p, r = operands("normal", 1500, 1100, 160)
    u, w = (1 / np.linalg.norm(x, axis=1).astype(np.float32) for x in (p, r))
    w[::3] *= -1
    text = "where (i, j) { reduce (k) { accum += P[i,k] * R[j,k]; } C[i] argmin= 1 - accum * u[i] * w[j]; }"
    chosen = ptxgen.task(text)(P=p, R=r, u=u, w=w)
    exact = 1 - (p.astype("f8") @ r.T.astype("f8")) * u[:, None] * w
    assert (exact[np.arange(1500), chosen] - exact.min(1) < 1e-6).all()
    exact_calls._exact.cache_clear()


def test_bench_times_the_launches_of_query_5() -> None:
    case = next(x for x in SUITES["q5"].build() if x.name == "q5 2048")
    timing = Timing(samples=3, target_ms=0.5)
    [row] = bench([case], drivers.driver(), lambda p, d: select(p, d)[0], timing=timing)
    assert row.us > 0
    assert row.note.endswith("kernels: tensor cores list candidates, f32 decides")
