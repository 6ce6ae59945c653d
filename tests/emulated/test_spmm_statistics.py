"""Statistics and faults of patterns, computed by kernels: equal to those of NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.operations.spmm import pattern_statistics, patterns
from ptxgen.operations.spmm.device_statistics import PatternRecord, read_pattern
from ptxgen.operations.spmm.pattern_statistics import statistics_of
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers


def record(indptr: Any, indices: Any, k: int, index: str = "i32") -> PatternRecord:
    driver = EmulatedDriver()
    dtype = {"i32": np.int32, "i64": np.int64}[index]
    arrays = {"indptr": np.asarray(indptr, dtype), "indices": np.asarray(indices, dtype)}
    with Buffers(driver, arrays) as buffers:
        return read_pattern(driver, buffers.addresses, len(indptr) - 1, k, len(indices), index)


@pytest.mark.each_value
@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(
    ("m", "k", "text"),
    [
        (70, 50, "bernoulli:density=0.2"),
        (129, 3000, "lognormal:density=0.02,sigma=2"),
        (33, 40, "even:nnz=700"),
        (300, 300, "banded:width=9"),
        (5, 100_000, "even:nnz=2500"),
        (1, 9, "even:nnz=4000"),
        (64, 7, "even:nnz=0"),
        (0, 7, "even:nnz=0"),
    ],
)
def test_the_record_is_that_of_numpy(m: int, k: int, text: str, index: str) -> None:
    pattern = patterns.pattern(m, k, patterns.canonical(text))
    got = record(pattern.indptr, pattern.indices, k, index)
    assert got.statistics == statistics_of(k, pattern.indptr, pattern.indices)
    assert (got.first, got.last, got.fall, got.outside) == (0, len(pattern.indices), None, None)


def test_samples_of_many_rows() -> None:
    """More rows than samples contain: distances between samples vary."""
    m = 64 * 700 + 5
    lengths = np.zeros(m, np.int64)
    lengths[::9] = 2
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.random.default_rng(0).integers(0, 1000, indptr[-1])
    got = record(indptr, indices, 1000)
    assert len(pattern_statistics.sampled_rows(m)) == 256
    assert got.statistics == statistics_of(1000, indptr, indices)


@pytest.mark.parametrize("text", ["bernoulli:density=0.3", "even:nnz=900"])
def test_unsorted_and_repeated_columns_are_not_distinct(text: str) -> None:
    pattern = patterns.pattern(40, 60, patterns.canonical(text))
    rows = np.repeat(np.arange(40), pattern.lengths)
    unique = np.unique(rows * 60 + pattern.indices)
    indptr = np.searchsorted(unique, 60 * np.arange(41))
    assert record(indptr, unique % 60, 60).statistics.distinct
    backwards = unique % 60
    at = int(indptr[7])
    backwards[at], backwards[at + 1] = backwards[at + 1], backwards[at]
    got = record(indptr, backwards, 60).statistics
    assert not got.distinct
    assert got == statistics_of(60, indptr, backwards)
    assert replace(got, distinct=True) != got


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("indptr", "indices", "expected"),
    [
        ([0, 2, 1, 3], [0, 1, 2], (0, 3, 1, None)),
        ([1, 2, 2, 3], [0, 1, 2], (1, 3, None, None)),
        ([0, 1, 2, 9], [0, 1, 2], (0, 9, None, None)),
        ([0, 1, 2, 3], [0, 4, -1], (0, 3, None, 1)),
        ([-5, 2000000000, -7, 3], [0, 1, 2], (-5, 3, 1, None)),
        ([0, 3, 2, 1], [9, 9, 9], (0, 1, 1, 0)),
    ],
)
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_faults_are_found_without_an_access_outside(
    indptr: list[int], indices: list[int], expected: tuple[int, int, int | None, int | None], index: str
) -> None:
    got = record(indptr, indices, 4, index)
    assert (got.first, got.last, got.fall, got.outside) == expected
