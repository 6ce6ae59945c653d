"""Arithmetic on integers and on columns."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.codegen.vectorized import ceil_div, log2, register_cap, where
from ptxgen.problem.device import device


def test_where_takes_integers_and_columns():
    assert where(True, 1, 2) == 1
    assert where(np.bool_(False), 1, 2) == 2
    assert where(np.array([True, False]), np.array([1, 2]), 9).tolist() == [1, 9]
    assert where(np.array([True]), np.array([1, 2]), 9).tolist() == [1, 2]
    column = np.array([[1, 2]])
    assert where(np.array([[True]]), column, 9) is column  # a condition of all rows of a grid
    assert where(np.array([[False]]), column, 9) == 9


def test_ceil_div_rounds_up():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 1 << 31, 1000), rng.integers(1, 1 << 16, 1000)
    assert ceil_div(a, b).tolist() == [ceil_div(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    for x, y in ((0, 5), (1, 5), (5, 5), (6, 5), (2**31 - 1, 256)):
        assert ceil_div(x, y) == len(range(0, x, y)) if x < 100 else -(-x // y)


def test_log2_refuses_other_than_powers_of_two():
    assert [log2(1 << n) for n in range(40)] == list(range(40))
    for n in (0, -1, -8, 3, 12, (1 << 40) + 1):
        with pytest.raises(ValueError, match=str(n)):
            log2(n)


def test_register_cap_by_resident_blocks():
    d = device("h200")
    assert register_cap(d, 256, 1) == 255
    assert register_cap(d, 256, 2) == 128
    assert register_cap(d, 256, 3) == 80  # 85 rounded down to eights
    assert register_cap(d, 1024, 2) == 32
    columns = register_cap(d, np.array([256, 256, 1024]), np.array([1, 3, 2]))
    assert columns.tolist() == [255, 80, 32]
