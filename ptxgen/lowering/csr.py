"""Sparse matrices in CSR, and matrices whose rows are read by column index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import Access, Extents, MatrixAccess

#: calls from which a sparse matrix may be prepared: row order takes about 10 products, other formats about 50
ORDERED_CALLS, FORMAT_CALLS = 30, 150


@dataclass(frozen=True)
class Csr(Access):
    """A sparse matrix: the operand has the nonzeros row by row. ``indptr`` has the first nonzero of each row, and their
    number; ``indices`` the columns.

    ``calls``: products for which the matrix may be prepared, 0: for none; ``distinct``: the columns of each row
    increase, so that no place has two nonzeros; ``nonfinite``: absent nonzeros must not be multiplied, because
    B may have infinities and NaN.
    """

    calls: int = 0
    distinct: bool = True
    nonfinite: bool = False
    kind: ClassVar[str] = "csr"

    @property
    def needs(self) -> frozenset[str]:
        """``prepared_csr``: families may read prepared arrays instead of the nonzeros themselves."""
        found = {"prepared_csr" if self.calls >= FORMAT_CALLS else self.kind}
        found |= set() if self.distinct else {"repeated_columns"}
        return frozenset(found | ({"nonfinite"} if self.nonfinite else set()))

    @property
    def arrays(self) -> tuple[str, ...]:
        return "indptr", "indices"

    def representative(self) -> Csr:
        """Only the kinds of preparation that pay count."""
        return replace(self, calls=max(n for n in (0, ORDERED_CALLS, FORMAT_CALLS) if n <= self.calls))


@dataclass(frozen=True)
class GatheredRows(MatrixAccess):
    """A row-major matrix, the right operand of a sparse one: kernels read the rows that its column indices name."""

    kind: ClassVar[str] = "gathered_rows"


@dataclass(frozen=True)
class SparseExtents(Extents):
    """The extents of a product of a sparse matrix of M rows and K columns and a matrix of N columns. ``nnz``: nonzeros;
    ``longest``: those of the longest row; ``vectors``: 8×1 vectors that have a nonzero, estimated; ``longest_window``:
    nonzeros of the largest window of 8 rows."""

    m: Any
    n: Any
    k: Any
    nnz: Any
    longest: Any
    vectors: Any = 1
    longest_window: Any = 1

    @property
    def results(self) -> Any:
        return self.m * self.n

    @property
    def flops(self) -> Any:
        return 2 * self.nnz * self.n

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.m, self.n, self.k, self.nnz

    @property
    def most_longest(self) -> Any:
        """The most nonzeros of the longest row: handles state 3 leading bits of their number."""
        return self.longest + self.longest // 4

    def representative(self) -> SparseExtents:
        return SparseExtents(1, 1, 1, 1, 1)
