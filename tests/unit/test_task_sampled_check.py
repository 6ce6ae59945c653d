"""Checks of large reductions and lists of tasks, of which some rows are compared with the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.operations.task import checks
from ptxgen.operations.task.checks import TaskOperandSets
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.suites import typed_text
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.selection import select

SQUARES = "where (i, j) {{ reduce (k) {{ accum += (A[i,k] - B[j,k]) * (A[i,k] - B[j,k]); }} {}; }}"
ROWS = 4  #: of 40 rows are compared


def computed(text: str, monkeypatch: pytest.MonkeyPatch) -> TaskOperandSets:
    """The operand sets of a task of 40 × 36 × 5 whose kernel has run, of which ROWS rows are compared."""
    driver = EmulatedDriver()
    p = Task(40, 36, 5, "NT", "f32", text=typed_text(text, "f32"), capacity=1440 if ".add(" in text else 0)
    monkeypatch.setattr(checks, "STEPS", ROWS * p.n * p.k)
    monkeypatch.setattr(checks, "ALL_STEPS", 1)
    monkeypatch.setattr(checks, "ALL_PRODUCTS", 1)
    sets = TaskOperandSets(driver, p, Timing())
    sets.poison()
    Runner.of(driver, p, select(p, driver.device)[0].config).bind(sets.sets[0])()
    driver.synchronize()
    return sets


@pytest.mark.parametrize("output", ["C[i] argmin= accum", "C[i] += accum", "C[i] = max(C[i], sqrt(accum))"])
def test_some_rows_of_a_reduction_are_compared(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = computed(SQUARES.format(output), monkeypatch)
    assert sets.deviation(1).ok
    whole = sets._reduced()
    whole[13] += 1  # rows 0, 13, 26 and 39 are compared
    sets.driver.upload(sets.sets[0]["C"], whole)
    wrong = sets.deviation(1)
    assert (wrong.ok, wrong.where) == (False, (13,))


def test_some_columns_of_a_reduction_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = computed(SQUARES.format("C[j] min= accum + f32(j)"), monkeypatch)
    assert sets.deviation(1).ok
    whole = sets._reduced()
    whole[23] += 100  # columns 0, 11, 23 and 35 are compared, or 0, 17 and 35
    whole[17] += 100
    sets.driver.upload(sets.sets[0]["C"], whole)
    assert not sets.deviation(1).ok


@pytest.mark.parametrize("name", ["C", "C_1"])
def test_the_best_values_of_some_rows_are_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = computed(SQUARES.format("near[i].bottom(3, accum, j)"), monkeypatch)
    assert sets.problem.keeps_best
    assert sets.deviation(1).ok
    results = sets.problem.result_arrays[name]
    whole = np.empty(results.shape, results.dtype.numpy)
    sets.driver.download(sets.sets[0][name], whole)
    whole[13, 1] += 1
    sets.driver.upload(sets.sets[0][name], whole)
    assert not sets.deviation(1).ok


@pytest.mark.parametrize(("name", "change"), [("C", 9), ("C_1", 1)])
def test_the_first_rows_of_a_list_are_compared(name: str, change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = computed(SQUARES.format("accum < 8 ? hits.add(accum, i, j)"), monkeypatch)
    assert sets.deviation(1).ok
    assert sets.problem.selected is not None
    rows = np.empty(1440, np.int32)
    sets.driver.download(sets.sets[0]["C_1"], rows)
    at, t = int(np.flatnonzero((rows >= 0) & (rows < ROWS))[0]), sets.problem.result_arrays[name].dtype
    one = np.empty(1, t.numpy)
    sets.driver.download(sets.sets[0][name] + 4 * at, one)
    sets.driver.upload(sets.sets[0][name] + 4 * at, one + one.dtype.type(change))
    assert not sets.deviation(1).ok


def test_lists_without_rows_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = computed(SQUARES.format("accum < 8 ? hits.add(accum, j)"), monkeypatch)
    sets.driver.fill(sets.sets[0]["C"], 64, 0)
    assert sets.deviation(1).where == (-1, -1)
