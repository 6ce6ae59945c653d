"""Sparse matrices in CSR, and matrices whose rows are read by column index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import Access, Extents, MatrixAccess

INDEX_BYTES = {"i32": 4, "i64": 8}  #: bytes of a row pointer and of a column, by their type


@dataclass(frozen=True)
class Csr(Access):
    """A sparse matrix: the operand has the nonzeros row by row. ``indptr`` has the first nonzero of each row, and their
    number; ``indices`` the columns.

    ``prepared``: True if kernels may read what is prepared from it; ``distinct``: the columns of each row
    increase, so that no place has two nonzeros; ``nonfinite``: absent nonzeros must not be multiplied, because
    B may have infinities and NaN; ``index_type``: that of row pointers and columns, i32 or i64; ``graphs``: the rows of
    several graphs follow each other, and columns count from the first row of each; ``offsets`` has their ends.
    """

    prepared: bool = False
    distinct: bool = True
    nonfinite: bool = False
    index_type: str = "i32"
    graphs: bool = False
    capability: ClassVar[str] = "csr"

    @property
    def needs(self) -> frozenset[str]:
        """``prepared_csr``: families may read prepared arrays instead of the nonzeros themselves; ``wide_indices``:
        row pointers and columns have 64 bits; ``graph_batches``: ``graphs``."""
        needs = {"prepared_csr" if self.prepared else self.capability}
        needs |= set() if self.distinct else {"repeated_columns"}
        needs |= {"graph_batches"} if self.graphs else set()
        needs |= {"wide_indices"} if self.index_type == "i64" else set()
        return frozenset(needs | ({"nonfinite"} if self.nonfinite else set()))

    @property
    def index_bytes(self) -> int:
        return INDEX_BYTES[self.index_type]

    @property
    def arrays(self) -> tuple[str, ...]:
        return "indptr", "indices", *(("offsets",) if self.graphs else ())


@dataclass(frozen=True)
class GatheredRows(MatrixAccess):
    """A matrix, the right operand of a sparse one: kernels read the rows that its column indices name. ``kmajor``: it
    is stored by columns, and read by single elements."""

    capability: ClassVar[str] = "gathered_rows"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(("gathered_columns" if self.kmajor else self.capability,))


@dataclass(frozen=True)
class ColumnMajor(MatrixAccess):
    """A matrix that is stored by columns, and accessed by single elements. ``rows``: its columns."""

    capability: ClassVar[str] = "column_major"


@dataclass(frozen=True)
class SparseExtents(Extents):
    """The extents of a product of a sparse matrix of M rows and K columns and a matrix of N columns. ``nnz``: nonzeros;
    ``longest``: those of the longest row; ``vectors``: 8×1 vectors that have a nonzero, estimated; ``longest_window``:
    nonzeros of the largest row window; ``groups``: graphs of a batch, 0: none."""

    m: Any
    n: Any
    k: Any
    nnz: Any
    longest: Any
    vectors: Any = 1
    longest_window: Any = 1
    groups: Any = 0

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
