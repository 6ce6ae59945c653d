"""Statistics of patterns of sparse matrices: counts, text form, what is derived from them."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest

from ptxgen.errors import InputError
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm import patterns
from ptxgen.operations.spmm.pattern_statistics import (
    COUNTED,
    PatternStatistics,
    column_step,
    read_statistics,
    sampled_rows,
    statistics_of,
)
from ptxgen.operations.spmm.problem import FEATURES, Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.registry import parse

P = Spmm(100, 32, 300, pattern="lognormal:density=0.05,sigma=2,seed=3")


def counted(rows: list[list[int]], k: int) -> PatternStatistics:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    return statistics_of(k, indptr, np.array([column for row in rows for column in row], np.int32))


def plain(rows: list[list[int]], k: int) -> dict[str, object]:
    """The same counts, one nonzero at a time."""
    out = dict.fromkeys(("counted", "vectors", "columns", "gaps", "gap_bits"), 0)
    step = -(-k // COUNTED) or 1
    for i, first in enumerate(sampled_rows(len(rows))):
        sample = rows[first : first + 64]
        chosen = [(r, c) for r, row in enumerate(sample) for c in row if c % step == i % step]
        out["counted"] += len(chosen)
        out["vectors"] += len({(r // 8, c) for r, c in chosen})
        out["columns"] += len({c for _, c in chosen})
        out["gaps"] += sum(max(len(row) - 1, 0) for row in sample)
        out["gap_bits"] += sum(abs(b - a).bit_length() for row in sample for a, b in pairwise(row))
    lengths = [len(row) for row in rows]
    bins = [[n for n in lengths if (math.ceil(math.log2(n)) + 1 if n else 0) == i] for i in range(33)]
    return out | {
        "nnz": sum(lengths),
        "longest": max(lengths, default=0),
        "longest_window": max((sum(lengths[i : i + 8]) for i in range(0, len(rows), 8)), default=0),
        "squares": sum(n * n for n in lengths),
        "rows": tuple(map(len, bins)),
        "nonzeros": tuple(map(sum, bins)),
        "distinct": all(a < b for row in rows for a, b in pairwise(row)),
    }


@pytest.mark.parametrize(("m", "k"), [(70, 50), (200, 100_000), (17_000, 40), (0, 5), (3, 0)])
@pytest.mark.parametrize("pattern", ["sorted", "any"])
def test_counts_are_those_of_a_plain_loop(m: int, k: int, pattern: str) -> None:
    rng = np.random.default_rng(m + k)
    lengths = rng.choice([0, 1, 2, 3, 4, 5, 8, 9, 16, 17], m) if k else np.zeros(m, int)
    rows = [rng.integers(0, k, n).tolist() for n in lengths]
    if pattern == "sorted":
        rows = [sorted(set(row)) for row in rows]
    assert asdict(counted(rows, k)) == plain(rows, k)


def test_samples_lie_in_the_matrix() -> None:
    for m in (1, 64, 65, 256 * 64, 256 * 64 + 1, 100_000, 1 << 30):
        first = sampled_rows(m)
        assert first == sorted(set(first))
        assert len(first) == min(-(-m // 64), 256)
        assert 0 <= first[0] <= m / 200 + 64
        assert m * 0.98 - 64 <= first[-1] < m
    assert [column_step(k) for k in (0, COUNTED, COUNTED + 1, 1 << 20)] == [1, 1, 2, 32]


def test_derived_numbers() -> None:
    s = counted([[0, 1, 2, 3]] * 8 + [[]] * 7 + [[0] * 40], 8)
    assert (s.m, s.nnz, s.mean, s.empty) == (16, 72, 4.5, 7 / 16)
    assert s.variation == pytest.approx(np.std([4] * 8 + [0] * 7 + [40]) / 4.5)
    assert s.longest_share == 40 / 72
    assert s.vector_nonzeros == 72 / 5
    assert s.column_share == 4 / 72
    assert s.mean_gap_bits == 24 / (24 + 39)
    assert [s.quantile(q) for q in (0.1, 0.5, 0.9, 1)] == [0, 4, 4, 40]
    assert not s.distinct
    assert (counted([], 8).longest_share, counted([[]], 8).quantile(0.5), counted([], 0).variation) == (0, 0, 0)


def test_quantiles_are_near_those_of_the_lengths() -> None:
    lengths = patterns.row_lengths(4000, 5000, patterns.canonical("lognormal:density=0.02,sigma=1"))
    s = patterns.statistics(4000, 5000, patterns.canonical("lognormal:density=0.02,sigma=1"))
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert s.quantile(share) == pytest.approx(np.quantile(lengths, share), rel=0.15)
    assert s.longest_share == pytest.approx(np.sort(lengths)[-40:].sum() / lengths.sum(), rel=0.3)


def test_even_rows_need_no_matrix() -> None:
    text = "even:nnz=1999,seed=4"
    pattern = patterns.pattern(900, 800, text)
    counted_ = statistics_of(800, pattern.indptr, pattern.indices)
    assert patterns.statistics(900, 800, text) == replace(counted_, distinct=False)
    assert patterns.statistics(1 << 20, 1 << 20, "even:nnz=1000000000,seed=0").nnz == 1_000_000_000


def test_a_text_states_statistics() -> None:
    s = P.statistics
    stated = replace(P, pattern=s.text())
    assert stated.statistics == s
    assert parse(stated.key()) == stated
    assert (stated.nnz, stated.reduction, stated.bytes) == (P.nnz, P.reduction, P.bytes)
    assert lower(stated).extents == lower(P).extents
    assert {name: f(stated) for name, f in FEATURES.items()} == {name: f(P) for name, f in FEATURES.items()}
    for make in (arrays_of, lambda p: p.row_lengths):
        with pytest.raises(InputError, match=r"pattern is statistics:.*; it must be one of bernoulli:.* to make a"):
            make(stated)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("statistics:nnz=3", "it must be statistics:nnz=…,longest=…,longest_window=…,squares=…,rows=…"),
        ("statistics:{},more=1", "it must be statistics:nnz=…"),
        (("nnz=[0-9]+", "nnz=-1"), "pattern has nnz=-1; it must be an integer of at most 19 digits"),
        (("rows=[0-9/]+", "rows=1/x"), "pattern has rows=1/x; it must be at most 33 integers with / between them"),
        (("rows=[0-9/]+", "rows=" + "/".join("1" * 34)), "it must be at most 33 integers"),
        (("distinct=1", "distinct=2"), "pattern has distinct=2; it must be 0 or 1"),
    ],
)
def test_wrong_statistics_are_named(text: str | tuple[str, str], message: str) -> None:
    import re

    known = P.statistics.text()
    changed = re.sub(*text, known) if isinstance(text, tuple) else text.format(known.partition(":")[2])
    with pytest.raises(InputError, match=message):
        replace(P, pattern=changed)


@pytest.mark.parametrize(
    "text", ["bernoulli:density=0.05", "lognormal:density=0.05,sigma=2", "even:nnz=2000", "banded:width=7"]
)
def test_rounded_statistics_are_near(text: str) -> None:
    s = patterns.statistics(500, 400, patterns.canonical(text))
    r = s.rounded()
    assert read_statistics(r.text()) == r
    assert r.nnz == pytest.approx(s.nnz, rel=0.25)
    assert r.variation == pytest.approx(s.variation, abs=0.13)
    assert r.vector_nonzeros == pytest.approx(s.vector_nonzeros, rel=0.05)
    assert r.column_share == pytest.approx(s.column_share, abs=0.02)
    assert r.mean_gap_bits == pytest.approx(s.mean_gap_bits, abs=0.2)
    assert r.quantile(0.5) == pytest.approx(s.quantile(0.5), rel=0.5)


def test_similar_matrices_share_rounded_statistics() -> None:
    texts = (patterns.canonical(f"bernoulli:density=0.05,seed={seed}") for seed in range(3))
    assert len({patterns.statistics(4096, 4096, text).rounded() for text in texts}) <= 2
