"""Generators of patterns that are graphs. Repeated edges are dropped.

Each function takes the extents, a seed and the parameters of its name in ``patterns.GENERATORS``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.operations.spmm.pattern import Pattern, from_places
from ptxgen.operations.spmm.random_numbers import Ints, in_blocks, integers, permutation, random_bits, uniform

DRAW = 16  #: random bits that choose the quadrants of two levels


def rmat(m: int, k: int, seed: int, degree: int, a: float, b: float, c: float, permute: int) -> Pattern:
    """An R-MAT graph: to place an edge, one of the four quadrants of the matrix is chosen with the probabilities a, b,
    c and 1 - a - b - c, and so on within the quadrant until one place is left. ``permute``: 1: rows and columns are in
    random order, which is the same for both if A is square."""
    levels = max(m - 1, k - 1, 1).bit_length()
    quadrants = _two_levels(np.array([a, b, c, 1 - a - b - c]))
    rows_order = permutation(seed, 0, m) if permute else np.arange(m)
    columns_order = rows_order if m == k else permutation(seed, 1, k) if permute else np.arange(k)
    scaled = (m, k) != (1 << levels, 1 << levels)

    def edges(places: Ints) -> Ints:
        row, column = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
        draws = -(-levels // 2)
        for draw in range(draws):
            if draw % 4 == 0:
                bits = random_bits(seed, 2 + draw // 4, places)
            chosen = quadrants[bits & np.uint64((1 << DRAW) - 1)]
            bits = bits >> np.uint64(DRAW)
            row, column = row << 2 | chosen >> 2, column << 2 | chosen & 3
        row, column = row >> levels % 2, column >> levels % 2
        if scaled:
            row, column = row * m >> levels, column * k >> levels
        return rows_order[row] * k + columns_order[column]

    return from_places(m, k, in_blocks(m * degree, edges))


def _two_levels(probabilities: NDArray[np.float64]) -> NDArray[np.uint8]:
    """A table from 16 random bits to the quadrants of two levels: two bits of the row, then two bits of the column."""
    first, second = np.divmod(np.arange(16), 4)
    row, column = first & 2 | second >> 1, (first & 1) << 1 | second & 1
    ends = np.cumsum(np.outer(probabilities, probabilities))
    levels = np.searchsorted(ends, (np.arange(1 << DRAW) + 0.5) / (1 << DRAW), "right")
    return (row << 2 | column)[np.minimum(levels, 15)].astype(np.uint8)


def attachment(m: int, k: int, seed: int, links: int) -> Pattern:
    """A graph by preferential attachment: node i links to ``links`` earlier nodes, each the node i·u² for a random u,
    so that low numbers are more likely. The matrix is symmetric."""

    def edges(places: Ints) -> tuple[Ints, Ints]:
        node = 1 + places // links
        return node, (node * uniform(seed, 0, places) ** 2).astype(np.int64)

    def forward(places: Ints) -> Ints:
        node, other = edges(places)
        return node * k + other

    def backward(places: Ints) -> Ints:
        node, other = edges(places)
        return other * k + node

    count = max(m - 1, 0) * links
    return from_places(m, k, np.concatenate([in_blocks(count, forward), in_blocks(count, backward)]))


def random_edges(m: int, k: int, seed: int, degree: int) -> Pattern:
    """A graph with m · degree edges between random nodes."""

    def edges(places: Ints) -> Ints:
        return integers(seed, 0, places, m) * k + integers(seed, 1, places, k)

    return from_places(m, k, in_blocks(m * degree, edges))


def communities(m: int, k: int, seed: int, degree: int, size: int, inside: float) -> Pattern:
    """A graph with m · degree edges, in which ``size`` adjacent nodes form a community. A fraction ``inside`` of the
    edges stays within a community, the others are random."""

    def edges(places: Ints) -> Ints:
        row = integers(seed, 0, places, m)
        near = np.minimum(row // size * size + integers(seed, 1, places, size), k - 1)
        far = integers(seed, 2, places, k)
        return row * k + np.where(uniform(seed, 3, places) < inside, near, far)

    return from_places(m, k, in_blocks(m * degree, edges))
