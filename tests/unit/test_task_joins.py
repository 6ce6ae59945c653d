"""Natural joins: calls compute the pairs of equal keys of rows and columns in the order of keys."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, launches, runners, task_call
from ptxgen.cli import command
from ptxgen.errors import InputError, TaskError
from ptxgen.operations.task import joins
from ptxgen.operations.task.join_parts import parts_of_join
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.suites import QUERIES, typed_text
from ptxgen.problem.suites import cases
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

M, N, K = 24, 19, 5
#: an output, and further arguments
OUTPUTS: list[tuple[str, dict[str, Any]]] = [
    ("C[i,j] = accum + f32(i);", {}),
    ("C[j,i] = accum > t;", {"t": 2.0}),
    ("C[i] += accum;", {}),
    ("C[j] max= accum;", {}),
    ("C[g[i],h[j]] += accum > t;", {"t": 1.0, "groups": (3, 5)}),
    ("C[i,h[j]] max= accum;", {"groups": (M, 5)}),
    ("accum > t ? C.add(accum, f[i,j], i, j);", {"t": 1.0, "sorted": True}),
]


@pytest.fixture(autouse=True)
def small_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST", "LEAST_PRODUCTS", "COMPARISON"):
        monkeypatch.setattr(joins, name, 0)


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The problems of calls."""
    problems_of_calls: list[Any] = []
    runner_for = runners.runner_for
    monkeypatch.setattr(runners, "runner_for", lambda p, *rest: problems_of_calls.append(p) or runner_for(p, *rest))
    return problems_of_calls


def arrays(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    values = {name: rng.integers(-3, 4, shape).astype(np.float32) for name, shape in (("P", (M, K)), ("R", (K, N)))}
    groups = {"g": rng.integers(0, 3, M).astype(np.int32), "h": rng.integers(0, 5, N).astype(np.int32)}
    return {**values, **groups, "f": rng.random((M, N), np.float32), "x": x, "y": y}


def keys(low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(low, high, M).astype(np.int32), rng.integers(low, high, N).astype(np.int16)


def task(output: str) -> Any:
    return ptxgen.task(text_of(output))


def text_of(output: str) -> str:
    body = "reduce (k) { accum += P[i,k] * R[k,j]; }"
    return f"where (i, j) when (x[i] == y[j] and i != j) {{ {body} {output} }}"


def given(run: Any, every: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {name: every[name] for name in run.names if name in every} | more


def parts(result: Any) -> list[np.ndarray]:
    arrays_of_result = [*result.columns.values()] if hasattr(result, "columns") else [result]
    return [x.numpy() if isinstance(x, Tensor) else np.asarray(x) for x in arrays_of_result]


def written(output: str) -> np.ndarray | None:
    """An ``out`` of which elements without a pair must stay."""
    if output.startswith("C[i,j]"):
        return np.full((M, N), 7, np.float32)
    return np.zeros((N, M), bool) if output.startswith("C[j,i]") else None


@pytest.mark.parametrize(("output", "more"), OUTPUTS, ids=[x for x, _ in OUTPUTS])
def test_host_arrays_have_the_results_of_all_pairs(output: str, more: dict[str, Any]) -> None:
    run, every = task(output), arrays(*keys(-3, 4))
    result, all_pairs = (
        run(**given(run, every, more), **({} if (out := written(output)) is None else {"out": out}), algebra=algebra)
        for algebra in (True, False)
    )
    for mine, theirs in zip(parts(result), parts(all_pairs), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def in_order(output: str, result: list[np.ndarray]) -> list[np.ndarray]:
    """The parts of a result, those of a list in the order of (i, j)."""
    if ".add" not in output:
        return result
    order = np.lexsort(result[:-3:-1])
    return [x[order] for x in result]


#: outputs whose launches differ: stored at keys, permuted back, lists
ON_A_GPU = [OUTPUTS[0], OUTPUTS[2], (OUTPUTS[6][0], {"t": 1.0})]


@pytest.mark.parametrize(("output", "more"), ON_A_GPU, ids=[x for x, _ in ON_A_GPU])
def test_arrays_of_a_gpu_are_permuted_by_tasks(output, more, problems, monkeypatch):
    """Calls with other keys have the launches of the first one: nothing is read on the host."""
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    driver = EmulatedDriver()
    monkeypatch.setattr(drivers, "driver_of", lambda v: driver)
    launches.forget_launches()
    run = task(output)
    made = []
    for low, high in ((-3, 4), (5, 6)):  # the second: all keys are equal
        x, y = keys(low, high)
        every = arrays(x, y.astype(np.int32))
        out = {} if (first := written(output)) is None else {"out": first}
        before = len(problems)
        result = run(**{n: Tensor(driver, a) for n, a in (given(run, every, {}) | out).items()}, **more)
        made.append(problems[before:])
        expected = run(**given(run, every, more), **out, algebra=False)
        both = [in_order(output, parts(each)) for each in (result, expected)]
        for mine, theirs in zip(*both, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    first, second = made
    assert [p.sorted_keys for p in first].count(True) == 1
    assert not second
    types = dict.fromkeys(("P", "R", "f", "t"), "f32") | dict.fromkeys("xygh", "s32")
    roles = roles_of(parse(text_of(output), types))
    capacity = next(p.capacity for p in first if p.sorted_keys)
    parts_of_call = parts_of_join(ptxgen.Task(M, N, K, text=ptxgen.Task.text_of(roles), capacity=capacity))
    assert {part.problem for part in parts_of_call.steps} == set(first)


def test_keys_that_nothing_joins():
    """Without equal keys, matrices keep their elements, sums are 0 and lists are empty."""
    x, y = keys(0, 9)
    every = arrays(x, (y + 9).astype(np.int16))
    out = written(OUTPUTS[0][0])
    run = task(OUTPUTS[0][0])
    assert (run(**given(run, every, {"out": out})) == 7).all()
    run = task(OUTPUTS[2][0])
    assert not run(**given(run, every, {})).any()
    run = task(OUTPUTS[6][0])
    assert run(**given(run, every, {"t": 1.0})).count == 0


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        (("C[i] += accum;", "C[i] argmax= accum;"), {}),
        (("x[i] == y[j]", "x[i] <= y[j]"), {}),
        (("x[i] == y[j]", "f32(x[i]) == f32(y[j])"), {}),
        (("", ""), {"algebra": False}),
    ],
    ids=["positions", "no equality", "floats", "as written"],
)
def test_programs_that_compute_all_pairs(changed, options, monkeypatch):
    monkeypatch.setattr(task_call, "order_of", None)
    text = "where (i, j) when (x[i] == y[j]) { reduce (k) { accum += P[i,k] * R[k,j]; } C[i] += accum; }"
    run = ptxgen.task(text.replace(*changed))
    run(**given(run, arrays(*keys(-3, 4)), options))


def test_small_products_compute_all_pairs():
    joined = "where (i, j) when (x[i] == y[j]) { reduce (k) { accum += P[i,k] * R[k,j]; } C[i,j] = accum; }"
    types = {"P": "f32", "R": "f32", "x": "s32", "y": "s32"}
    f32, f16 = (roles_of(parse(joined, types | dict.fromkeys("PR", dtype))) for dtype in ("f32", "f16"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "LEAST", 1 << 33)
        patch.setattr(joins, "LEAST_PRODUCTS", 1 << 36)
        patch.setattr(joins, "COMPARISON", 16)
        extents = {"i": 2048, "j": 2048, "k": 2048}
        assert joins.pays(f32, extents)
        assert not joins.pays(f32, extents | {"k": 2047})
        assert not joins.pays(f16, extents)
        assert not joins.pays(f32, extents, "tf32")
        assert joins.pays(f16, dict.fromkeys("ijk", 4096))
        assert not joins.pays(f32, {"i": 1 << 17, "j": 1 << 17, "k": 31})
        assert joins.pays(f32, {"i": 1 << 17, "j": 1 << 17, "k": 32})
        assert not joins.pays(f32, {"i": (1 << 17) + 1, "j": 1 << 17, "k": 64})


def test_results_are_stored_at_keys():
    run = ptxgen.task("where (i, j) { reduce (k) { accum += P[i,k] * R[k,j]; } C.put(accum, p[i], q[j]); }")
    rng = np.random.default_rng(0)
    every = arrays(*keys(0, 9))
    p, q = rng.permutation(M + 3)[:M].astype(np.int32), rng.permutation(N).astype(np.int32)
    p[5] = -1  # no row of C
    out = np.full((M + 3, N), 7, np.float32)
    result = run(P=every["P"], R=every["R"], p=p, q=q, out=out)
    expected = np.full((M + 3, N), 7, np.float32)
    expected[np.delete(p, 5)[:, None], q] = np.delete(every["P"] @ every["R"], 5, 0)
    assert result is out
    np.testing.assert_array_equal(out, expected)


def test_items_of_a_batch_are_stored_at_keys():
    run = ptxgen.task("where (i, j) { reduce (k) { accum += P[i,k] * R[k,j]; } C.put(accum, p[i], j); }")
    every, p = arrays(*keys(0, 9)), np.random.default_rng(1).permutation(M).astype(np.int32)
    batch, out = np.stack([every["P"], -every["P"]]), np.zeros((2, M, N), np.float32)
    expected = np.zeros_like(out)
    expected[:, p] = batch @ every["R"]
    assert run(P=batch, R=every["R"], p=p, out=out) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("C.put(accum, p[i]);", "put has 2 values; it must have a value, a row and a column: write C.put(accum, g"),
        ("accum > 0 ? C.put(accum, i, j);", "put has a condition; write it after where: when"),
        ("C.put(accum, p[i], i);", "C has no key of the axis j; an output must have both spatial axes"),
        ("C[i].put(accum, i, j);", "the matrix has axes; write C.put"),
    ],
)
def test_errors_of_put(output, message):
    with pytest.raises(TaskError, match=re.escape(message)):
        parse(
            f"where (i, j) {{ reduce (k) {{ accum += P[i,k] * R[k,j]; }} {output} }}",
            {"P": "f32", "R": "f32", "p": "s32"},
        )


def test_sorted_keys_need_an_equality():
    text = "A:f32[i,k];B:f32[k,j];g:s32[i];where(i,j)when(g[i]<j){reduce(k){accum+=A[i,k]*B[k,j];}C[i,j]=accum;}"
    with pytest.raises(InputError, match="sorted_keys is True; it must be False where `when` has no condition x"):
        ptxgen.Task(3, 4, 5, text=text, sorted_keys=True)


def test_bench_times_what_calls_compute(capsys, monkeypatch):
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    text = typed_text(QUERIES["join"], "f32")
    words = ["--task", text, "--shape", "40,30,9", "--groups", "3,4", "--device", "emulated", "--json"]
    assert command.run(["bench", "task", *words]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["note"] == "7 kernels: order of keys, permuted arrays, join"
    assert {case.problem.groups for case in cases("join", "task")} == {f"{n},{n}" for n in (10, 100, 1000)}


def test_explain_tells_of_the_join(capsys):
    text = "where (i, j) when (x[i] == y[j]) { reduce (k) { accum += P[i,k]*R[k,j]; } C[i,j] = accum; }"
    text = f"x: s32[i]; y: s32[j]; {text}"
    assert command.run(["task", "--expr", text, "--explain"]) == 0
    assert "join: rows in the order of x[i] and columns in that of y[j]" in capsys.readouterr().out
