"""Patterns of sparse matrices: a generator with parameters, as ``bernoulli:density=0.1,seed=0``, or the statistics of a
matrix that no generator makes.

Every process makes the same matrix of a text: numbers come from a counter-based function of the seed and of a place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.arguments import shown
from ptxgen.errors import InputError
from ptxgen.operations.spmm.pattern_statistics import FORM as STATISTICS_FORM
from ptxgen.operations.spmm.pattern_statistics import (
    Ints,
    PatternStatistics,
    read_statistics,
    statistics_of,
    statistics_of_rows,
)

SEED_LIMIT = NONZEROS_LIMIT = 1 << 31
PLACES = 1 << 24  #: random numbers that are made at once
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _mixed(x: Any) -> Any:
    """The finalizer of SplitMix64, of 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


def random_bits(seed: int, stream: int, places: Any) -> NDArray[np.uint64]:
    """64 random bits for each place of a stream: SplitMix64, whose state begins at a random number of the stream."""
    with np.errstate(over="ignore"):
        key = _mixed(_mixed((np.uint64(seed) + np.uint64(1)) * _GOLDEN) + np.uint64(stream))
        bits: NDArray[np.uint64] = _mixed(key + (np.asarray(places, np.uint64) + np.uint64(1)) * _GOLDEN)
    return bits


def uniform(seed: int, stream: int, places: Any) -> NDArray[np.float64]:
    """A number from 0 to 1 for each place, without 1."""
    return (random_bits(seed, stream, places) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Pattern:
    """The places of the nonzeros of a matrix in CSR: row ``i`` has the columns ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]

    @property
    def lengths(self) -> Ints:
        wide: Ints = self.indptr.astype(np.int64)
        return wide[1:] - wide[:-1]


def _of_rows(lengths: Ints, columns: Callable[[Ints, Ints], Ints]) -> Pattern:
    """The pattern of rows of these lengths. ``columns(rows, places)``: the column of each nonzero, in any order."""
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    found = columns(rows, np.arange(indptr[-1]) - indptr[rows])
    order = np.lexsort((found, rows))
    return Pattern(indptr.astype(np.int32), found[order].astype(np.int32))


def _chosen(m: int, k: int, seed: int, densities: NDArray[np.float64]) -> Pattern:
    """The pattern that has each place of row i with the probability ``densities[i]``."""
    lengths, indices = np.zeros(m, np.int64), [np.zeros(0, np.int32)]
    step = max(PLACES // max(k, 1), 1)
    for first in range(0, m, step):
        rows = np.arange(first, min(first + step, m), dtype=np.uint64)
        places = rows[:, None] * np.uint64(k) + np.arange(k, dtype=np.uint64)
        row, column = np.nonzero(uniform(seed, 0, places) < densities[first : first + step, None])
        lengths[first : first + step] = np.bincount(row, minlength=len(rows))
        indices.append(column.astype(np.int32))
    return Pattern(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), np.concatenate(indices))


def _bernoulli(m: int, k: int, seed: int, density: float) -> Pattern:
    return _chosen(m, k, seed, np.full(m, density))


def _lognormal(m: int, k: int, seed: int, density: float, sigma: float) -> Pattern:
    angle, radius = (uniform(seed, stream, np.arange(m)) for stream in (1, 2))
    normal = np.cos(2 * np.pi * angle) * np.sqrt(-2 * np.log1p(-radius))
    return _chosen(m, k, seed, np.minimum(np.exp(sigma * normal - sigma * sigma / 2) * density, 0.95))


def _even(m: int, k: int, seed: int, nnz: int) -> Pattern:
    lengths = even_lengths(m, nnz)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Pattern(indptr, _even_columns(m, k, seed, nnz, 0, m).astype(np.int32))


def _even_columns(m: int, k: int, seed: int, nnz: int, first: int, last: int) -> Ints:
    """The columns of the rows from ``first`` to ``last``, without ``last``."""
    lengths = even_lengths(m, nnz)
    begin = int(lengths[:first].sum())
    rows = np.repeat(np.arange(first, last), lengths[first:last])
    found = (uniform(seed, 0, np.arange(begin, begin + len(rows))) * k).astype(np.int64)
    return found[np.lexsort((found, rows))]


def even_lengths(m: int, nnz: int) -> Ints:
    """Rows of about equal length, the longer ones first."""
    return nnz // max(m, 1) + (np.arange(m) < nnz % max(m, 1)).astype(np.int64)


def _banded(m: int, k: int, seed: int, width: int) -> Pattern:
    first = np.arange(m) * k // max(m, 1) - width // 2
    low, high = np.clip(first, 0, k), np.clip(first + width, 0, k)
    return _of_rows(high - low, lambda rows, places: low[rows] + places)


@dataclass(frozen=True)
class Generator:
    """``parameters``: name -> (type, least, most); ``make(m, k, seed, **parameters)``: the pattern; ``meaning``."""

    parameters: dict[str, tuple[type, float, float]]
    make: Callable[..., Pattern]
    meaning: str


_DENSITY = (float, 0.0, 1.0)
#: generators by name
GENERATORS = {
    "bernoulli": Generator({"density": _DENSITY}, _bernoulli, "each place has the same probability"),
    "lognormal": Generator(
        {"density": _DENSITY, "sigma": (float, 0.0, 8.0)}, _lognormal, "the densities of rows are lognormal"
    ),
    "even": Generator({"nnz": (int, 0, NONZEROS_LIMIT - 1)}, _even, "rows of equal length, columns that may repeat"),
    "banded": Generator({"width": (int, 0, NONZEROS_LIMIT - 1)}, _banded, "adjacent columns along the diagonal"),
}
GENERATOR_FORM = "; ".join(
    f"{name}:{','.join(f'{x}=…' for x in g.parameters)},seed=…" for name, g in GENERATORS.items()
)
FORM = f"{GENERATOR_FORM}; or {STATISTICS_FORM}"


def read(text: str) -> tuple[str, dict[str, Any]]:
    """(generator, its parameters and seed). InputError: the text names no pattern."""
    name, _, rest = text.partition(":")
    given = dict(item.partition("=")[::2] for item in rest.split(",") if item)
    known = {**GENERATORS[name].parameters, "seed": (int, 0, SEED_LIMIT - 1)} if name in GENERATORS else {}
    values: dict[str, Any] = {"seed": 0}
    for parameter, (kind, least, most) in known.items():
        if parameter in given or parameter not in values:
            try:
                values[parameter] = kind(given.pop(parameter, ""))
            except ValueError:
                known = {}
                break
            if not least <= values[parameter] <= most:
                raise InputError(f"pattern is {shown(text)}; {parameter} must be from {least:.10g} to {most:.10g}")
    if given or not known:
        raise InputError(f"pattern is {shown(text)}; it must be one of {FORM}")
    return name, {n: values[n] for n in known}


def canonical(text: str) -> str:
    """The text with all parameters in order."""
    if stated := stated_statistics(text):
        return stated.text()
    name, values = read(text)
    return f"{name}:{','.join(f'{n}={v:.10g}' if isinstance(v, float) else f'{n}={v}' for n, v in values.items())}"


@lru_cache(maxsize=64)
def stated_statistics(text: str) -> PatternStatistics | None:
    """The statistics that a text states. None: it names a generator."""
    return read_statistics(text) if text.startswith("statistics:") else None


@lru_cache(maxsize=8)
def pattern(m: int, k: int, text: str) -> Pattern:
    """The pattern of a matrix of ``m`` rows and ``k`` columns. InputError: 2³¹ nonzeros or more are expected, or the
    text states statistics."""
    if stated_statistics(text):
        raise InputError(f"pattern is {text}; it must be one of {GENERATOR_FORM} to make a matrix: statistics do not")
    name, values = read(text)
    expected = m * max(values.get("density", 0) * k, min(values.get("width", 0), k))
    if expected >= NONZEROS_LIMIT:
        raise InputError(f"pattern is {text}; it must have less than {NONZEROS_LIMIT} nonzeros, not {expected:.3g}")
    if k == 0 or m == 0:
        return Pattern(np.zeros(m + 1, np.int32), np.zeros(0, np.int32))
    return GENERATORS[name].make(m, k, **values)


@lru_cache(maxsize=64)
def row_lengths(m: int, k: int, text: str) -> Ints:
    """The lengths of the rows, without columns where these are not needed."""
    if stated_statistics(text) is None:
        name, values = read(text)
        if name == "even" and k:
            return even_lengths(m, values["nnz"])
    return pattern(m, k, text).lengths


@lru_cache(maxsize=64)
def statistics(m: int, k: int, text: str) -> PatternStatistics:
    """The statistics of the pattern. Those of ``even`` need no matrix; they say that its columns repeat."""
    if stated := stated_statistics(text):
        return stated
    name, values = read(text)
    if name == "even" and k:
        lengths = even_lengths(m, values["nnz"])
        columns = partial(_even_columns, m, k, values["seed"], values["nnz"])
        return statistics_of_rows(k, lengths, columns, bool(lengths.max(initial=0) <= 1))
    found = pattern(m, k, text)
    return statistics_of(k, found.indptr, found.indices)
