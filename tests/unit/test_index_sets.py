"""Conditions on the corners of tiles, compared with the condition of every pair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.index_sets import INDEX, possible
from ptxgen.expr.node import variable
from ptxgen.operations.task.language.parser import parse

M, N, TILE = 12, 15, 4


def condition(text: str):
    program = parse(f"where (i, j) when ({text}) {{ reduce (k) {{ accum += A[i,k]*B[k,j]; }} C[i,j] = accum; }}", TYPES)
    assert program.when is not None
    return program.when


TYPES = {"A": "f32", "B": "f32", "g": "s32", "s": "s32"}
CORNERS = {name: (variable(f"first_{name}", INDEX), variable(f"last_{name}", INDEX)) for name in ("i", "j")}
RANGES = CORNERS | {name: (variable(name, INDEX),) * 2 for name in ("M", "N")}


def tiles():
    for i, j in itertools.product(range(0, M, TILE), range(0, N, TILE)):
        yield i, j, min(i + TILE, M) - 1, min(j + TILE, N) - 1


@pytest.mark.parametrize(
    "text",
    [
        "i < j",
        "i <= j",
        "j < i - 3",
        "i == j",
        "i + 2 == j",
        "not (i < j)",
        "not (i == j)",
        "abs(i - j) < 3",
        "abs(j - i) > 9",
        "not (abs(j - i) > 2)",
        "i < 4 and j >= N - 2",
        "i < 2 or j < 2",
        "not (i < 6 or j < 6)",
        "not (i < 6 and j < 6)",
        "-i > -3",
        "i - j > M - N",
        "5 < j - i and g[i] == 0",
        "i < 0",
    ],
)
def test_a_tile_without_a_pair_is_impossible_and_no_other(text):
    when = condition(text)
    may_have_pairs = possible(when, RANGES)
    for i, j, last_i, last_j in tiles():
        known = {"first_i": i, "last_i": last_i, "first_j": j, "last_j": last_j, "M": M, "N": N}
        pairs = {"i": np.arange(i, last_i + 1)[:, None], "j": np.arange(j, last_j + 1)[None], "M": M, "N": N}
        holds = np.asarray(evaluate(when, {**pairs, "g[i]": 0})).any()
        exact = "==" not in text or "not" not in text
        may = True if may_have_pairs is None else bool(evaluate(may_have_pairs, known))
        assert may == holds if exact else may >= holds, (i, j)


@pytest.mark.parametrize(
    "text", ["g[i] == 1", "i < s", "g[i] == 1 or i < j", "i != j", "i + j < 4", "2 * i < j", "f32(i) < 3.0"]
)
def test_a_condition_of_other_values_says_nothing(text):
    assert possible(condition(text), RANGES) is None


def test_sums_that_wrap_say_nothing():
    assert possible(condition("i + 2147483000 < j"), RANGES) is None
    assert possible(condition("i + 60000 < j"), RANGES) is not None
