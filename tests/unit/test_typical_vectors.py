"""Vectors with which tasks are timed."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.operations.task.checks import TaskOperandSets, random_arrays
from ptxgen.operations.task.pair_suites import KNN, PAIRWISE, cases
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.suites import typed_text
from ptxgen.operations.task.typical_vectors import typical_vectors
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver

SHAPE = (40, 56, 24)


def problem(name: str) -> Task:
    (case,) = (x for x in cases({**KNN, **PAIRWISE}, (SHAPE,)) if x.name.startswith(f"{name} {SHAPE[0]}"))
    assert isinstance(case.problem, Task)
    return case.problem


@pytest.mark.parametrize("name", ["1nn fast", "range fast", "density fast"])
def test_addends_of_sums_are_sums_of_squares(name: str) -> None:
    p = problem(name)
    arrays = random_arrays(p)
    rows, columns = typical_vectors(p, arrays).values()
    np.testing.assert_allclose(rows, (arrays["A"].astype(float) ** 2).sum(1), rtol=1e-6)
    np.testing.assert_allclose(columns, (arrays["B"].astype(float) ** 2).sum(1), rtol=1e-6)


@pytest.mark.parametrize("name", ["1nn cosine", "least cosine"])
def test_factors_of_sums_are_reciprocal_norms(name: str) -> None:
    p = problem(name)
    arrays = random_arrays(p)
    rows, columns = typical_vectors(p, arrays).values()
    np.testing.assert_allclose(rows, 1 / np.linalg.norm(arrays["A"].astype(float), axis=1), rtol=1e-6)
    np.testing.assert_allclose(columns, 1 / np.linalg.norm(arrays["B"].astype(float), axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "where (i, j) { reduce (k) { accum += abs(A[i,k] - B[k,j]); } C[i,j] = accum + p[i]; }",  # no product
        "where (i, j) { reduce (k) { accum += A[i,k] * B[k,j]; } C[i,j] = accum < p[i] ? 1.0 : 0.0; }",
        "where (i, j) { reduce (k) { accum += A[i,k] * B[k,j]; } C[i,j] = accum; }",
    ],
)
def test_other_vectors_are_random(text: str) -> None:
    p = Task(4, 5, 6, "NN", "f32", text=typed_text(text, "f32"))
    assert typical_vectors(p, random_arrays(p)) == {}


def test_candidates_of_timed_operands_are_few() -> None:
    shape = (64, 4096, 64)
    (case,) = cases({"1nn cosine": KNN["1nn cosine"]}, (shape,))
    assert isinstance(case.problem, Task)
    driver = EmulatedDriver()
    arrays = TaskOperandSets(driver, case.problem, Timing()).arrays
    rows, columns = (arrays[role].astype(float) for role in "AB")
    vectors = [arrays[u.role] for u in case.problem.roles.others]
    distances = np.maximum(1 - rows @ columns.T * vectors[0][:, None] * vectors[1], 0)
    assert (distances > 0.1).all()
    assert ((distances < distances.min(1, keepdims=True) + 0.02).sum(1) < 64).all()  # for which a filter has room
