"""Sparse matrices in CSR, and matrices whose rows are read by column index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import Access, Extents, MatrixAccess


@dataclass(frozen=True)
class Csr(Access):
    """A sparse matrix: the operand has the nonzeros row by row. ``indptr`` has the first nonzero of each row, and their
    number; ``indices`` the columns."""

    kind: ClassVar[str] = "csr"

    @property
    def arrays(self) -> tuple[str, ...]:
        return "indptr", "indices"


@dataclass(frozen=True)
class GatheredRows(MatrixAccess):
    """A row-major matrix, the right operand of a sparse one: kernels read the rows that its column indices name."""

    kind: ClassVar[str] = "gathered_rows"


@dataclass(frozen=True)
class SparseExtents(Extents):
    """The extents of a product of a sparse matrix of M rows and K columns and a matrix of N columns. ``nnz``: nonzeros;
    ``longest``: those of the longest row."""

    m: Any
    n: Any
    k: Any
    nnz: Any
    longest: Any

    @property
    def results(self) -> Any:
        return self.m * self.n

    @property
    def flops(self) -> Any:
        return 2 * self.nnz * self.n

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.m, self.n, self.k, self.nnz

    def representative(self) -> SparseExtents:
        return SparseExtents(1, 1, 1, 1, 1)
