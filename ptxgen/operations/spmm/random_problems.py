"""Random sparse products to measure: layers, graphs, meshes, skewed matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ptxgen.operations.spmm.patterns import SEED_LIMIT
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.operation import RandomProblems
from ptxgen.tuning.draws import Limits, log_uniform, varied_extent

COLUMNS = 512  #: the largest N
USUAL = (16, 32, 64, 128, 256, 512)  #: half of the problems have one of these N
NONZEROS = 1 << 22  #: the most nonzeros of a matrix, which is then made in less than a second
LEAST = 256  #: the least number of rows
CALLS, SHARES = (0, 1000), (0.2, 0.8)  #: values of ``calls``, without and with preparation, and their probabilities
ROWS, LAYER = 32, 2  #: the most rows of a graph and of a layer, as multiples of the largest extent of a GEMM
LONGEST_ROW = 512  #: the most nonzeros, as a multiple of the largest extent of a GEMM
#: (M, K, pattern text); the function that draws a matrix within limits of its extents and its nonzeros
Matrix = tuple[int, int, str]
Draw = Callable[[np.random.Generator, int, int], Matrix]


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    """A random number from ``low`` to ``high`` with three digits, whose logarithm is uniform."""
    return float(f"{math.exp(rng.uniform(math.log(low), math.log(max(low, high)))):.3g}")


def _rows(rng: np.random.Generator, largest: int) -> int:
    """A random number of rows, in half of the cases a power of two."""
    low = min(LEAST, largest)
    drawn = int(_log(rng, low, largest))
    return 1 << drawn.bit_length() - 1 if rng.random() < 0.5 else drawn


def layer(rng: np.random.Generator, extent: int, nonzeros: int) -> Matrix:
    """A random pruned layer with nonzeros by Bernoulli or lognormal rows, in 8×1 vectors, or in square blocks; extents
    are multiples of 8."""
    m, k = (-(-_rows(rng, LAYER * extent) // 8) * 8 for _ in "mk")
    most = min(0.5, nonzeros / (m * k))
    density = _log(rng, min(0.003, most), most)
    fill = round(float(rng.uniform(0.5, 1.0)), 2) if rng.random() < 0.5 else 1.0
    density = min(density, fill)
    block = int(rng.choice([4, 8, 16, 32]))
    texts = (
        f"bernoulli:density={density}",
        f"lognormal:density={density},sigma={rng.uniform(0.2, 2):.2f}",
        f"blocky:density={density},rows=8,columns=1,fill={fill}",
        f"blocky:density={density},rows={block},columns={block},fill={fill}",
    )
    return m, k, texts[rng.integers(len(texts))]


def graph(rng: np.random.Generator, extent: int, nonzeros: int) -> Matrix:
    """A random graph: R-MAT in random or natural order, preferential attachment, communities, or uniform edges."""
    m = _rows(rng, min(ROWS * extent, nonzeros // 2))
    degree = max(int(_log(rng, 2, min(64, nonzeros // m))), 1)
    a = round(float(rng.uniform(0.45, 0.6)), 2)
    b = round((1 - a) * 0.44, 2)
    size = 1 << int(rng.integers(5, 11))
    texts = (
        f"rmat:degree={degree},a={a},b={b},c={b},permute=1",
        f"rmat:degree={degree},a={a},b={b},c={b},permute=0",
        f"attachment:links={max(degree // 2, 1)}",
        f"communities:degree={degree},size={size},inside={rng.uniform(0.5, 0.95):.2f}",
        f"uniform:degree={degree}",
    )
    return m, m, texts[rng.choice(len(texts), p=[0.3, 0.1, 0.2, 0.25, 0.15])]


def mesh(rng: np.random.Generator, extent: int, nonzeros: int) -> Matrix:
    """A random mesh: a stencil on a cube, or a band."""
    if rng.random() < 0.5:
        points = int(rng.choice([7, 27]))
        most = int((min(ROWS * extent, nonzeros // points) + 0.5) ** (1 / 3))
        m = int(rng.integers(min(6, most), most + 1)) ** 3
        return m, m, f"poisson3d:points={points}"
    m = _rows(rng, min(ROWS * extent, nonzeros // 2))
    return m, m, f"banded:width={max(int(_log(rng, 2, min(128, nonzeros // m))), 1)}"


def skewed(rng: np.random.Generator, extent: int, nonzeros: int) -> Matrix:
    """A random matrix whose row lengths follow Zipf's law, with empty rows in half of the cases."""
    m, k = (_rows(rng, min(ROWS * extent, nonzeros // 2)) for _ in "mk")
    mean = _log(rng, 1, min(128, nonzeros / m - 1, k / 2))
    empty = round(float(rng.uniform(0, 0.6)), 2) if rng.random() < 0.5 else 0.0
    return m, k, f"zipf:mean={mean},exponent={rng.uniform(0.4, 1.5):.2f},empty={empty}"


def _columns(rng: np.random.Generator, largest: int) -> int:
    """A random N: one of USUAL, a multiple of 8, or any."""
    usual = [n for n in USUAL if n <= largest]
    if usual and rng.random() < 0.5:
        return int(rng.choice(usual))
    drawn = log_uniform(rng, largest)
    return max(drawn // 8 * 8, 1) if rng.random() < 0.5 else drawn


def _matrix(draw: Draw, rng: np.random.Generator, n: int, limits: Limits) -> Matrix:
    """A random matrix, with a random seed, whose product with N columns is about within the limits."""
    each = max(n * 8, 1)  # bytes of a row of B or C
    extent = max(min(limits.extent, limits.bytes // (4 * each * ROWS)), 1)
    nonzeros = max(min(NONZEROS, limits.extent * LONGEST_ROW, limits.flops // (3 * max(n, 1))), 8)
    m, k, text = draw(rng, extent, nonzeros)
    return m, k, f"{text},seed={rng.integers(SEED_LIMIT)}"


def drawn(draw: Draw, rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Spmm:
    """A product of a random matrix, which may be prepared in most cases."""
    n = _columns(rng, max(min(COLUMNS, limits.extent), 1))
    m, k, text = _matrix(draw, rng, n, limits)
    calls = int(rng.choice(CALLS, p=SHARES))
    return Spmm(m, n, k, pattern=text, calls=calls, **values)


def varied(draw: Draw, rng: np.random.Generator, p: Spmm, limits: Limits) -> Spmm:
    """The problem with another N, and in half of the cases with another matrix of the same generator."""
    n = varied_extent(rng, p.n, max(min(COLUMNS, limits.extent), 1))
    m, k, text = _matrix(draw, rng, n, limits) if rng.random() < 0.5 else (p.m, p.k, p.pattern)
    return replace(p, m=m, n=n, k=k, pattern=text, ldb=0, ldc=0)


#: the random sparse products, whose default weight is 0
RANDOM_PROBLEMS = {
    f"spmm_{draw.__name__}": RandomProblems(partial(drawn, draw), 0.0, partial(varied, draw))
    for draw in (layer, graph, mesh, skewed)
}
