"""Queries in groups: their suites, and the timing of what calls compute in place of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.api import task_call
from ptxgen.api.task import task
from ptxgen.cli import command
from ptxgen.errors import InputError
from ptxgen.operations.task import checks, group_sums
from ptxgen.operations.task.oracle import Dense
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.suites import QUERIES, typed_text
from ptxgen.operations.task.sum_parts import parts_of
from ptxgen.problem.device import device
from ptxgen.problem.suites import cases
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure import bench
from ptxgen.tuning.search import tuner
from ptxgen.tuning.selection import select


def smaller(p: Any, **fields: Any) -> Task:
    made: Task = replace(p, **{"m": 256, "n": 256, "k": 512, "lda": 0, "ldb": 0, "ldc": 0, "groups": "8,8", **fields})
    return made


def test_suites_of_groups_have_the_groups_of_the_released_code() -> None:
    for name in ("q2", "q3", "q4"):
        for p in (case.problem for case in cases(name, "task")):
            assert isinstance(p, Task)
            assert p.group_extents == (128, 128)
            assert (parts_of(p) is None) == (name == "q3")
        assert next(x.problem.groups for x in cases(name, "task", groups="3,4")) == "3,4"  # type: ignore[attr-defined]
    assert [x.name for x in cases("q3", "task", dtype="s32")] == [
        f"q3 half {n}" for n in (1024, 2048, 4096, 8192, 16384)
    ]
    with pytest.raises(InputError, match="suite is 'q9'; for task it must be one of q1, q2"):
        cases("q9", "task")


@pytest.mark.parametrize(("share", "least", "most"), [("half", 0.4, 0.6), ("1/1000", 0.0003, 0.003)])
def test_query_3_counts_half_or_one_pair_in_1000(share: str, least: float, most: float) -> None:
    p = smaller(next(x.problem for x in cases("q3", "task") if x.name.startswith(f"q3 {share}")), k=64)
    arrays = checks.random_arrays(p, "normal")
    arrays |= checks.random_keys(p, "integers", np.random.default_rng(0))
    expected = checks.expected(p, arrays, p.typical_scalars)
    assert isinstance(expected, Dense)
    assert expected.dropped == 0
    assert least < expected.values.sum() / (p.m * p.n) < most


@pytest.mark.parametrize("name", ["q2", "q4"])
@pytest.mark.parametrize("dtype", ["f32", "s32", "f16"])
def test_sums_that_timed_kernels_are_compared_with(name: str, dtype: str) -> None:
    p = Task(60, 50, 20, text=typed_text(QUERIES[name].replace("+= accum;", "+= accum*4;"), dtype), groups="5,4")
    arrays = checks.random_arrays(p) | checks.random_keys(p, "integers", np.random.default_rng(0))
    sums, expected = checks.sums_in_groups(p, arrays), checks.expected(p, arrays, p.typical_scalars)
    assert isinstance(expected, Dense)
    np.testing.assert_allclose(sums.values, expected.values, rtol=1e-9, atol=1e-9)
    assert (sums.error <= 40 * expected.error).all()


@pytest.mark.parametrize("all_pairs", [0, 1 << 15])
def test_parts_are_the_problems_of_a_call(all_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are many groups, a kernel makes the products of different ones 0."""
    monkeypatch.setattr(group_sums, "LEAST", 1)
    monkeypatch.setattr(group_sums, "ALL_PAIRS", all_pairs)
    called: list[Task] = []
    made = task_call.Task

    def noted(*args: Any, **fields: Any) -> Task:
        called.append(made(*args, **fields))
        return called[-1]

    noted.text_of, noted.result_type = made.text_of, made.result_type  # type: ignore[attr-defined]
    monkeypatch.setattr(task_call, "Task", noted)
    rng = np.random.default_rng(1)
    p, r = rng.random((40, 9), np.float32), rng.random((9, 30), np.float32)
    g, h = (rng.integers(0, 3, n).astype(np.int32) for n in (40, 30))
    for name in ("q2", "q4"):
        called.clear()
        task(QUERIES[name])(P=p, R=r, Pzip=g, Rzip=h, groups=(3, 4))
        parts = parts_of(Task(40, 30, 9, text=typed_text(QUERIES[name], "f32"), groups="3,4"))
        assert parts is not None
        assert {x.problem for x in parts.steps} == set(called)
        assert parts.moved == 4 * 9 * 70
        assert len(parts.steps) == 3 + (name == "q4" and not all_pairs)


def bench_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    text = typed_text(QUERIES["q4"], "f32")
    given = ["--task", text, "--shape", "40,30,9", "--groups", "3,4", "--device", "emulated", "--json"]
    assert command.run(["bench", "task", *given, *words]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    return row


def test_bench_times_what_calls_compute(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_sums, "LEAST", 1)
    row = bench_row(capsys, monkeypatch)
    assert row["note"] == "3 kernels: sums of rows and of columns in groups, their product"
    assert row["bandwidth"] == pytest.approx(4 * 9 * 70 / row["us"] * 1e-3)
    assert row["ceiling_share"] == pytest.approx(row["bandwidth"] / device("emulated").bandwidth)
    for direct in (["--no-algebra"], ["--config", "ms=4 ns=4 ml=16 nl=32"]):
        other = bench_row(capsys, monkeypatch, *direct)
        assert other["note"] == ""
        assert other["bandwidth"] is None
        assert other["us"] != row["us"]


def test_bench_finds_wrong_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_sums, "LEAST", 1)
    p = Task(40, 30, 9, text=typed_text(QUERIES["q2"], "f32"), groups="4,4")
    parts = parts_of(p)
    assert parts is not None
    arrays = {**parts.steps[-1].arrays, "A": "sums of B", "B": "sums of A"}
    wrong = replace(parts, steps=(*parts.steps[:-1], replace(parts.steps[-1], arrays=arrays)))
    driver = EmulatedDriver()
    work = bench.Bench(driver)
    configs = [select(x.problem, driver.device)[0].config for x in parts.steps]
    assert work.measure_parts(p, parts, configs, bench.FINAL_TIMING).outcome == "ok"
    assert work.measure_parts(p, wrong, configs, bench.FINAL_TIMING).outcome == "wrong_result"


def test_select_and_tune_have_the_kernels_of_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(group_sums, "LEAST", 1)
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    tuned: list[Task] = []

    def tune(problems: list[Task], *options: Any, **named: Any) -> list[Any]:
        tuned.extend(problems)
        return [SimpleNamespace(winner=None, measured=0, failures={}, vendor=None) for _ in problems]

    monkeypatch.setattr(tuner, "tune", tune)
    given = ["task", "--task", typed_text(QUERIES["q4"], "f32"), "--shape", "40,30,9", "--groups", "3,4", "--json"]
    for direct, names in (([], ["sums of A", "sums of B", "product"]), (["--no-algebra"], [""])):
        assert command.run(["select", *given, *direct, "--device", "emulated"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [x["name"].partition(": ")[2] for x in rows] == names
        tuned.clear()
        command.run(["tune", *given, *direct, "--device", "emulated", "--database", str(tmp_path / "tuning.sqlite")])
        assert [p.key() for p in tuned] == [x["problem"]["key"] for x in rows]
        capsys.readouterr()


@pytest.mark.parametrize("name", ["q3", "q5"])
def test_large_products_are_compared(name: str) -> None:
    p = next(x.problem for x in cases(name, "task"))
    large = replace(p, m=512, n=512, k=512, lda=0, ldb=0, ldc=0, **({"groups": "8,8"} if name == "q3" else {}))
    assert isinstance(large, Task)
    sets = checks.TaskOperandSets(EmulatedDriver(), large, bench.FINAL_TIMING)
    sets.poison()  # nothing was computed
    assert not sets.deviation(bench.FULL_ELEMENTS).ok


def test_sums_of_one_array_are_compared() -> None:
    text = "where (i, j) { reduce (k) { accum += X[i,k] * X[j,k]; } C[g[i],g[j]] += accum; }"
    p = Task(40, 40, 12, text=f"g:s32[i];{text}", groups="5,5")
    arrays = checks.random_arrays(p) | checks.random_keys(p, "integers", np.random.default_rng(0))
    sums, expected = checks.sums_in_groups(p, arrays), checks.expected(p, arrays, p.typical_scalars)
    assert isinstance(expected, Dense)
    np.testing.assert_allclose(sums.values, expected.values, rtol=1e-9, atol=1e-9)


def test_timed_launches_read_matrices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that kernels stream is read from memory, not from the L2 cache: vectors alone are shared."""
    text = "A:f32[i,k];B:f32[k,j];g:s32[i];x:f32[i,j];where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}C[g[i],j]+=x[i,j];}"
    driver = EmulatedDriver(replace(device("emulated"), l2=1 << 14))
    monkeypatch.setattr(driver, "clock", "hardware")
    first, second, *_ = checks.TaskOperandSets(
        driver, Task(32, 32, 0, text=text, groups="4,32"), bench.FINAL_TIMING
    ).sets
    assert {name for name in first if first[name] == second[name]} == {"input0"}
