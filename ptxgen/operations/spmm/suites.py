"""Suites of sparse products, and the table columns that identify a problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.operation import Case, Suite, by_name

COLUMNS = (16, 64, 128, 256, 512)  #: N of each matrix
CALLS = 1000  #: value of ``calls``: products for which a matrix may be prepared
#: the most elements of B and C; larger problems are left out
ELEMENTS = 1 << 28


class Matrix(NamedTuple):
    """A matrix of a suite: its name, extents and pattern text."""

    name: str
    m: int
    k: int
    pattern: str


#: M, N, K, pattern
_SMALL = (
    (64, 32, 64, "bernoulli:density=0.1"),
    (64, 32, 64, "lognormal:density=0.1,sigma=1"),
    (96, 16, 64, "even:nnz=700"),
    (64, 24, 64, "banded:width=5"),
    (64, 32, 64, "poisson3d:points=7"),
    (80, 16, 64, "zipf:mean=4,exponent=0.9,empty=0.1"),
    (64, 32, 72, "blocky:density=0.1,rows=8,columns=1"),
    (64, 32, 64, "rmat:degree=4"),
    (64, 24, 64, "attachment:links=2"),
    (64, 32, 64, "uniform:degree=4"),
    (64, 32, 64, "communities:degree=4,size=16,inside=0.8"),
)

LAYERS = ((512, 512), (2048, 512), (512, 2048), (4096, 4096))
BACKWARD_SPARSITIES = (0.7, 0.9, 0.98)
BACKWARD_COLUMNS = (64, 128)  #: N of each matrix of the suite of transposes
SPARSITIES = (0.5, 0.7, 0.9, 0.95, 0.98, 0.99, 0.995)


def _layer(m: int, k: int, sparsity: float) -> Matrix:
    return Matrix(f"dlmc-{m}x{k}-{sparsity:g}", m, k, f"bernoulli:density={1 - sparsity:g}")


DLMC = (
    *(_layer(m, k, sparsity) for m, k in LAYERS for sparsity in SPARSITIES),
    Matrix("logn-4096x4096-0.9", 4096, 4096, "lognormal:density=0.1,sigma=1"),
    Matrix("logn-2048x512-0.95", 2048, 512, "lognormal:density=0.05,sigma=1"),
    Matrix("vec8-4096x4096-0.9", 4096, 4096, "blocky:density=0.1,rows=8,columns=1"),
    Matrix("vec8-4096x4096-0.98", 4096, 4096, "blocky:density=0.02,rows=8,columns=1,fill=0.8"),
)


def _square(name: str, m: int, pattern: str) -> Matrix:
    return Matrix(name, m, m, pattern)


GRAPHS = (
    _square("rmat-2^16-d16", 1 << 16, "rmat:degree=16"),
    _square("rmat-2^16-d32", 1 << 16, "rmat:degree=32"),
    _square("rmat-2^18-d16", 1 << 18, "rmat:degree=16"),
    _square("rmat-2^20-d16", 1 << 20, "rmat:degree=16"),
    _square("ba-2^16-m4", 1 << 16, "attachment:links=4"),
    _square("ba-2^18-m8", 1 << 18, "attachment:links=8"),
    _square("ba-2^20-m8", 1 << 20, "attachment:links=8"),
    _square("uniform-2^17-d8", 1 << 17, "uniform:degree=8"),
    _square("communities-2^17-d32", 1 << 17, "communities:degree=32,size=256,inside=0.8"),
)
MESH = (
    _square("poisson27-64", 64**3, "poisson3d:points=27"),
    _square("poisson7-100", 100**3, "poisson3d:points=7"),
    _square("banded-2^17-w32", 1 << 17, "banded:width=32"),
)
SKEWED = (
    _square("zipf-2^17-d16", 1 << 17, "zipf:mean=16,exponent=0.9,empty=0.1"),
    Matrix("zipf-4096-d128", 4096, 65536, "zipf:mean=128,exponent=1.1,empty=0.1"),
)


def _transpose(a: Matrix) -> Matrix:
    return Matrix(f"{a.name} transposed", a.k, a.m, f"transpose:{a.pattern}")


def _small(**fields: Any) -> Iterator[Case]:
    for m, n, k, pattern in _SMALL:
        yield Case(f"{pattern.partition(':')[0]} {m}x{n}x{k}", Spmm(m, n, k, **{"pattern": pattern, **fields}))


def _products(matrices: Iterable[Matrix], columns: Iterable[int] = COLUMNS, **fields: Any) -> Iterator[Case]:
    """The products of each matrix with each N."""
    for a in matrices:
        for n in columns:
            if max(a.m, a.k) * n <= ELEMENTS:
                yield Case(f"{a.name} N={n}", Spmm(a.m, n, a.k, **{"pattern": a.pattern, "calls": CALLS, **fields}))


#: transposes of matrices, as in the gradients of products
BACKWARD = tuple(
    _transpose(a)
    for a in (*(_layer(m, k, x) for m, k in LAYERS for x in BACKWARD_SPARSITIES), *GRAPHS[:1], *GRAPHS[4:5], *SKEWED)
)
DECODE_LAYERS = ((4096, 4096), (14336, 4096))
DECODE_SPARSITIES = (0.5, 0.7, 0.9, 0.95, 0.99)
DECODE_COLUMNS = (1, 8, 16)  #: N of each matrix
DECODE = tuple(
    Matrix(f"decode-{m}x{k}-{sparsity:g}", m, k, f"bernoulli:density={1 - sparsity:g}")
    for m, k in DECODE_LAYERS
    for sparsity in DECODE_SPARSITIES
)


#: (number of graphs, rows of all graphs, pattern) of mini-batches of small graphs, and of neighbourhoods in a large
#: graph
GRAPH_BATCHES = (
    (128, 1 << 12, "uniform:degree=4"),
    (1024, 1 << 15, "uniform:degree=4"),
    (4096, 1 << 17, "uniform:degree=4"),
    (32, 1 << 15, "rmat:degree=16"),
    (256, 1 << 17, "rmat:degree=16"),
    (64, 1 << 17, "communities:degree=32,size=256,inside=0.8"),
)
GRAPH_COLUMNS = (16, 64, 128)  #: N of each batch


def _graph_batches(**fields: Any) -> Iterator[Case]:
    for groups, m, pattern in GRAPH_BATCHES:
        for n in GRAPH_COLUMNS:
            name = f"{groups} graphs, {m} rows, {pattern.partition(':')[0]} N={n}"
            yield Case(name, Spmm(m, n, m, **{"pattern": pattern, "groups": groups, **fields}))


SUITES = by_name(
    Suite("small", "one matrix of each generator, small enough for the emulated device", _small),
    Suite("dlmc", "layers with sparsity 0.5 to 0.995: Bernoulli, lognormal, 8×1 vectors", partial(_products, DLMC)),
    Suite(
        "graphs",
        "R-MAT, preferential attachment, uniform, communities: 2^16 to 2^20 rows, degree 8 to 32",
        partial(_products, GRAPHS),
    ),
    Suite("mesh", "the stencils of 7 and 27 points, a band", partial(_products, MESH)),
    Suite(
        "decode",
        "layers of 4096×4096 and 14336×4096 with sparsity 0.5 to 0.99, N = 1, 8, 16: A is read from memory",
        partial(_products, DECODE, DECODE_COLUMNS),
    ),
    Suite(
        "backward",
        "transposes of layers, graphs and skewed matrices, as gradients have them; `--baseline cusparse_transposed`",
        partial(_products, BACKWARD, BACKWARD_COLUMNS),
    ),
    Suite("grouped-graphs", "batches of 32 to 4096 graphs in one launch, 2^12 to 2^17 rows", _graph_batches),
    Suite("skewed", "row lengths by Zipf's law", partial(_products, SKEWED)),
)


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    return [f"{p['m']},{p['n']},{p['k']}", p["pattern"], p["dtype"]]


TITLES = ("M,N,K", "pattern", "dtype")
