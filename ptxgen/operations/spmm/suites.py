"""A suite of products of sparse matrices, and the columns that identify a problem in tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.operation import Case, Suite, by_name

#: M, N, K, pattern
_SMALL = (
    (64, 32, 64, "bernoulli:density=0.1"),
    (64, 32, 64, "lognormal:density=0.1,sigma=1"),
    (96, 16, 64, "even:nnz=700"),
    (64, 24, 64, "banded:width=5"),
)


def _small(**fields: Any) -> Iterator[Case]:
    for m, n, k, pattern in _SMALL:
        yield Case(f"{pattern.partition(':')[0]} {m}x{n}x{k}", Spmm(m, n, k, **{"pattern": pattern, **fields}))


SUITES = by_name(Suite("small", "one matrix of each generator, small enough for the emulated device", _small))


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    return [f"{p['m']},{p['n']},{p['k']}", p["pattern"], p["dtype"]]


TITLES = ("M,N,K", "pattern", "dtype")
