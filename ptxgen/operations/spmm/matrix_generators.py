"""Generators of the patterns of pruned layers, meshes and matrices with long rows.

Each function takes the extents, a seed and the parameters of its name in ``patterns.GENERATORS``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.operations.spmm.pattern import Pattern, from_lengths, from_places
from ptxgen.operations.spmm.random_numbers import AT_ONCE, Ints, in_blocks, integers, permutation, uniform

ROW_SHIFT = 32  #: random numbers of row i begin at the place i << ROW_SHIFT


def bernoulli(m: int, k: int, seed: int, density: float) -> Pattern:
    """A pattern with a nonzero at each place with the same probability."""
    return _chosen(k, seed, np.full(m, density))


def lognormal(m: int, k: int, seed: int, density: float, sigma: float) -> Pattern:
    """A pattern whose rows have lognormal densities with the mean ``density``; columns are uniform."""
    angle, radius = (uniform(seed, stream, np.arange(m)) for stream in (1, 2))
    normal = np.cos(2 * np.pi * angle) * np.sqrt(-2 * np.log1p(-radius))
    return _chosen(k, seed, np.minimum(np.exp(sigma * normal - sigma * sigma / 2) * density, 0.95))


def _chosen(k: int, seed: int, densities: NDArray[np.float64]) -> Pattern:
    """A pattern with a nonzero at each place of row i with the probability ``densities[i]``."""
    m = len(densities)
    lengths, indices = np.zeros(m, np.int64), [np.zeros(0, np.int32)]
    draws = _draws(k, densities)
    ends = np.cumsum(draws)
    first = 0
    while first < m:
        begun = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, begun + AT_ONCE, "right")), first + 1)
        rows = np.arange(first, last)
        lengths[first:last], columns = _chosen_columns(k, seed, rows, densities[first:last], draws[first:last])
        indices.append(columns)
        first = last
    return from_lengths(k, lengths, np.concatenate(indices))


def _draws(k: int, densities: NDArray[np.float64]) -> Ints:
    """For each row, the count of random numbers that suffices in most cases: few rows have more nonzeros than three
    standard deviations above the mean."""
    mean = k * densities
    return np.where(densities > 0, mean + 3 * np.sqrt(mean) + 2, 0).astype(np.int64)


def _chosen_columns(
    k: int, seed: int, rows: Ints, densities: NDArray[np.float64], draws: Ints
) -> tuple[Ints, NDArray[np.int32]]:
    """The lengths and the columns of some rows. Distances between the columns of a row have a geometric
    distribution."""
    starts = np.cumsum(draws) - draws
    number = np.repeat(np.arange(len(rows)), draws)
    places = (rows[number] << ROW_SHIFT) + np.arange(len(number)) - starts[number]
    with np.errstate(divide="ignore", over="ignore"):
        skipped = np.log(1 - uniform(seed, 0, places)) / np.log1p(-densities)[number]
    steps = np.cumsum(np.minimum(skipped, k).astype(np.int64) + 1)
    before = np.concatenate([[0], steps])[starts]
    columns = steps - before[number] - 1
    used = draws > 0
    short = np.zeros(len(rows), bool)
    short[used] = columns[(starts + draws - 1)[used]] < k
    inside = columns < k
    lengths = np.bincount(number[inside], minlength=len(rows))
    if not short.any():
        return lengths, columns[inside].astype(np.int32)
    again = np.flatnonzero(short)
    lengths[again], more = _chosen_columns(k, seed, rows[again], densities[again], 2 * draws[again])
    out = np.empty(lengths.sum(), np.int32)
    repeated = np.repeat(short, lengths)
    out[repeated], out[~repeated] = more, columns[inside & ~short[number]]
    return lengths, out


def even(m: int, k: int, seed: int, nnz: int) -> Pattern:
    """A pattern with rows of about equal length, whose columns are random and may repeat."""
    return from_lengths(k, even_lengths(m, nnz), even_columns(m, k, seed, nnz, 0, m))


def even_lengths(m: int, nnz: int) -> Ints:
    """The lengths of rows of about equal length, the longer ones first."""
    return nnz // max(m, 1) + (np.arange(m) < nnz % max(m, 1)).astype(np.int64)


def even_columns(m: int, k: int, seed: int, nnz: int, first: int, last: int) -> Ints:
    """The columns of the rows ``first`` to ``last`` - 1."""
    lengths = even_lengths(m, nnz)
    begin = int(lengths[:first].sum())
    bases = np.repeat(np.arange(last - first) * k, lengths[first:last])
    places = bases + integers(seed, 0, np.arange(begin, begin + len(bases)), k)
    places.sort()
    return places - bases


def banded(m: int, k: int, seed: int, width: int) -> Pattern:
    """A pattern with ``width`` adjacent columns along the diagonal."""
    first = np.arange(m) * k // max(m, 1) - width // 2
    low, high = np.clip(first, 0, k), np.clip(first + width, 0, k)
    lengths = high - low
    skipped = np.cumsum(lengths) - lengths
    return from_lengths(k, lengths, np.arange(lengths.sum()) + np.repeat(low - skipped, lengths))


def poisson3d(m: int, k: int, seed: int, points: int) -> Pattern:
    """The pattern of a stencil of 7 or 27 points on a cube of m points."""
    side = cube_side(m)
    i = np.arange(m)
    x = np.stack([i // (side * side), i // side % side, i % side], 1)
    steps = np.stack(np.meshgrid(*[(-1, 0, 1)] * 3, indexing="ij"), -1).reshape(-1, 3)
    steps = steps[np.abs(steps).sum(1) <= (1 if points == 7 else 3)]
    inside = np.ones((m, len(steps)), bool)
    for axis in range(3):
        moved = x[:, axis, None] + steps[:, axis]
        inside &= (moved >= 0) & (moved < side)
    columns = i[:, None] + steps @ np.array([side * side, side, 1])
    return from_lengths(k, inside.sum(1), columns[inside])


def cube_side(m: int) -> int:
    """The side of a cube of m points, rounded."""
    return int(np.rint(np.cbrt(m)))


def zipf(m: int, k: int, seed: int, mean: float, exponent: float, empty: float) -> Pattern:
    """A pattern whose row lengths are proportional to rank^-exponent, in random order; a fraction ``empty`` of the rows
    is empty. Columns are uniform; repeated ones are dropped."""
    weights = np.arange(1, m + 1, dtype=np.float64) ** -exponent
    lengths = np.clip(np.round(weights * (mean * m / weights.sum())), 1, k // 2).astype(np.int64)
    lengths[uniform(seed, 0, np.arange(m)) < empty] = 0
    lengths = lengths[permutation(seed, 1, m)]
    rows = np.repeat(np.arange(m) * k, lengths)
    return from_places(m, k, rows + in_blocks(len(rows), lambda places: integers(seed, 2, places, k)))


def blocky(m: int, k: int, seed: int, density: float, rows: int, columns: int, fill: float) -> Pattern:
    """A pattern of random blocks of ``rows`` × ``columns`` places, each of which has a nonzero with the probability
    ``fill``."""
    blocks = _chosen(-(-k // columns), seed, np.full(-(-m // rows), density / fill))
    row = (np.repeat(np.arange(blocks.m), blocks.lengths) * rows)[:, None] + np.arange(rows)
    column = (blocks.indices.astype(np.int64) * columns)[:, None] + np.arange(columns)
    places = (row * k)[:, :, None] + column[:, None, :]
    inside = (row < m)[:, :, None] & (column < k)[:, None, :]
    kept = places[inside]
    if fill < 1:
        kept = kept[uniform(seed, 1, kept) < fill]
    return from_places(m, k, kept)
