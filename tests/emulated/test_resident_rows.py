"""Kernels with resident rows, executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

TEXT = (
    "A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){{reduce(k){{accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}}C[i]{op}=accum;}}"
)
CONFIG = "family=resident_rows resident_k=2 thread_rows=2 row_warps=1 tile_columns=32 column_parts=2"


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(16))
def test_random_problems_and_configurations(n: int) -> None:
    on = device(("emulated", "t4", "a100", "b200")[n % 4])
    for p, c in SOURCES["resident_rows"].cases(300 + n, 1, on, limit=150, threads=128):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(), p, c, n, 3 * (n % 2)) if not r.ok]
        assert not wrong, f"{p.key()} | {c}"


@pytest.mark.parametrize(
    ("output", "columns"),
    [
        ("C[i]min=max(1-accum*r[i]*t[j],0)", 4),
        ("C[i]argmin=r[i]+t[j]-accum*2", 8),
        ("accum*t[j]<r[i]?L.add(j,accum*t[j])", 2),
    ],
)
def test_values_read_arrays_along_j(output: str, columns: int) -> None:
    step = "accum+=A[i,k]*B[k,j]"
    text = f"A:f32[i,k];B:f32[k,j];r:f32[i];t:f32[j];accum:f32;where(i,j){{reduce(k){{{step};}}{output};}}"
    p = Task(70, 67, 2, "NT", text=text, capacity=4690 if "add" in output else 0)
    c = parse_config(f"{CONFIG} columns_at_once={columns}")
    assert all(r.ok for r in check_some(EmulatedDriver(), p, c, 1, 3))


def best(op: str, a: Any, b: Any) -> list[int]:
    p = Task(len(a), len(b), a.shape[1], "NT", text=TEXT.format(op=op))
    runner = Runner.of(EmulatedDriver(), p, parse_config(CONFIG))
    return runner.compute({"A": a, "B": b, "C": np.zeros(len(a), np.int32)})["C"].tolist()


@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_ties_infinities_and_nans(op: str) -> None:
    """The first position of equal values, of a NaN before any number, and of infinities alone."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, (70, 2)).astype(np.float32), rng.integers(0, 2, (101, 2)).astype(np.float32)
    d = ((a[:, None] - b) ** 2).sum(-1)
    assert best(op, a, b) == getattr(d, op)(1).tolist()
    a[3], a[4, 0], b[:, 1] = np.inf, np.nan, 0
    assert best(op, a, b)[3:5] == [0, 0]
    b[[50, 77], 0] = np.nan
    assert best(op, a, b) == [50 if n != 4 else 0 for n in range(70)]


def test_logsumexp_of_infinities_and_large_values() -> None:
    """Groups of 8 columns in both parts; a row of each special value."""
    text = "A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}C[i]logsumexp=accum;}"
    config = CONFIG.replace("resident_k=2", "resident_k=1 columns_at_once=8")
    runner = Runner.of(EmulatedDriver(), Task(7, 37, 1, "NT", text=text), parse_config(config))
    a = np.array([[2.5], [np.inf], [-np.inf], [np.nan], [1e6], [-1e6], [80]], np.float32)
    for least in (1, -np.inf):
        b = np.where(np.arange(37)[:, None] < 9, least, 1).astype(np.float32)
        values = (a * b.T).astype("f8")
        greatest = values.max(1, keepdims=True)
        with np.errstate(invalid="ignore"):
            sums = np.exp(np.where(values == greatest, 0, values - greatest)).sum(1)
        result = runner.compute({"A": a, "B": b, "C": np.zeros(7, np.float32)})["C"].reshape(-1)
        np.testing.assert_allclose(result, greatest[:, 0] + np.log(sums), rtol=4e-7)


BOUNDED = "family=resident_rows thread_rows=2 row_warps=2 tile_columns=32 column_parts=2 lower_bounds=1"
POINTS = (
    "A:f32[i,k];B:f32[j,k];{arrays}accum:f32;where(i,j){when}{{reduce(k){{accum+=(A[i,k]-B[j,k])*(A[i,k]-B[j,k]);}}"
    "{output};}}"
)


def squares(a: Any, b: Any) -> Any:
    """Squared distances in f32, by fused multiply-adds."""
    d = np.zeros((len(a), len(b)), np.float32)
    with np.errstate(all="ignore"):
        for k in range(a.shape[1]):
            x = (a[:, None, k] - b[None, :, k]).astype("f8")
            d = (x * x + d).astype(np.float32)
    return d


def kept(output: str, config: str, a: Any, b: Any, count: int, when: str = "") -> Any:
    """The best values of each row, and their columns."""
    p = Task(len(a), len(b), a.shape[1], "NT", text=POINTS.format(arrays="", when=when, output=output))
    columns = config.replace("columns_at_once=8", "columns_at_once=4").replace("tile_columns=32", "tile_columns=128")
    runner = Runner.of(EmulatedDriver(), p, parse_config(f"{columns} resident_k={a.shape[1]}"))
    made = {"C": np.zeros((len(a), count), "f4"), "C_1": np.zeros((len(a), count), "i4")}
    return runner.compute({"A": a, "B": b, **made})


@pytest.mark.parametrize("bounds", [0, 1])
def test_best_values_of_rows(bounds: int) -> None:
    """Many equal values in several tiles, NaN, infinities, pairs that do not count, and more values than columns."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-2, 3, (rows, 2)).astype(np.float32) for rows in (13, 290))
    a[3], a[4, 0], b[[7, 200]], b[[9, 77, 150], 1] = np.inf, np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        d = ((a[:, None] - b) ** 2).sum(-1)
    config = f"family=resident_rows thread_rows=3 row_warps=2 columns_at_once=4 tile_columns=128 lower_bounds={bounds}"
    for word, count, columns, when in [
        ("bottom", 10, 290, ""),
        ("bottom", 32, 20, "when(i!=j)"),
        *([("top", 16, 290, "when(i!=j)"), ("top", 2, 1, "")] if not bounds else []),
    ]:
        out = kept(f"best[i].{word}({count},accum,j)", config, a, b[:columns], count, when)
        values = d[:, :columns] if word == "bottom" else -d[:, :columns]
        nan = np.isnan(values)
        for i, row in enumerate(values):
            order = np.lexsort((np.arange(columns), np.where(nan[i], 0, row), nan[i] ^ (word == "top")))
            order = order[order != i] if when else order
            expected = np.full(count, -1)
            expected[: len(order)] = order[:count]
            np.testing.assert_array_equal(out["C_1"][i], expected)
            worst = np.inf if word == "bottom" else -np.inf
            np.testing.assert_array_equal(out["C"][i], np.where(expected < 0, worst, d[i, expected]))


@pytest.mark.parametrize(
    ("scale", "offset"), [(1, 0), (1, 3e4), (1e-22, 0), (3e15, 0), (1e18, 0)], ids=["", "far", "tiny", "large", "huge"]
)
def test_lower_bounds_leave_no_sum_out(scale: float, offset: float) -> None:
    """Results are those of all sums in f32, also where these are less than the error of a bound."""
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal((rows, 3)) * scale + offset).astype(np.float32) for rows in (70, 107))
    b[50], b[100], a[7] = b[3], a[5], b[60]
    a[9, 0], a[10], a[11], b[70] = np.nan, np.inf, 3e18, 3e18
    d = squares(a, b)
    near = np.sort(d, axis=1)[:, 10] if offset == 0 else np.full(70, 3, "f4")
    near[3:6] = -1, np.inf, np.nan
    config = f"{BOUNDED} columns_at_once={4 if offset else 8}"
    listed = "accum<r[i] or (accum==r[i] and i<j)?L.add(accum,i,j)"
    for output, expected in {
        "C[i]argmin=accum": d.argmin(1).astype(np.int32),
        "C[i]min=accum": d.min(1),
        "C[i]+=accum<=r[i]": (d <= near[:, None]).sum(1, dtype=np.int32),
        "C[i]+=sqrt(accum)<=r[i]": (np.sqrt(d) <= near[:, None]).sum(1, dtype=np.int32),
    }.items():
        arrays = {"input0": near} if "r[i]" in output else {}
        text = POINTS.format(arrays="r:f32[i];" if arrays else "", when="", output=output)
        runner = Runner.of(EmulatedDriver(), Task(70, 107, 3, "NT", text=text), parse_config(config))
        result = runner.compute({"A": a, "B": b, "C": np.zeros_like(expected), **arrays})["C"]
        np.testing.assert_array_equal(result, expected, output)
    for count in (3, 32):
        out = kept(f"best[i].bottom({count},accum,j)", config.replace("column_parts=2", ""), a, b, count)
        order = np.argsort(d, 1, kind="stable")[:, :count]
        np.testing.assert_array_equal(out["C_1"], order)
        np.testing.assert_array_equal(out["C"], np.take_along_axis(d, order, 1))
    text = POINTS.format(arrays="r:f32[i];", when="when(i!=j)", output=listed)
    p = Task(70, 107, 3, "NT", text=text, capacity=7490)
    lists = {"C": np.zeros(7490, "f4"), "C_1": np.zeros(7490, "i4"), "C_2": np.zeros(7490, "i4")}
    given = {"A": a, "B": b, "input0": near, "count": np.zeros(1, "u8"), **lists}
    result = Runner.of(EmulatedDriver(), p, parse_config(config)).compute(given)
    i, j = np.ogrid[:70, :107]
    wanted = np.nonzero(((d < near[:, None]) | ((d == near[:, None]) & (i < j))) & (i != j))
    count = int(result["count"][0])
    assert sorted(zip(result["C_1"][:count].tolist(), result["C_2"][:count].tolist(), strict=True)) == list(
        zip(*(x.tolist() for x in wanted), strict=True)
    )
