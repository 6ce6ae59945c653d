"""The access to sparse matrices in CSR, and to dense matrices whose rows are selected by column indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import Access, Extents, MatrixAccess

INDEX_BYTES = {"i32": 4, "i64": 8}  #: type of row pointers and column indices -> bytes of one


@dataclass(frozen=True)
class Csr(Access):
    """The access to a sparse matrix in CSR. The operand holds the nonzeros row by row; ``indptr`` has the position of
    the first nonzero of each row and, at the end, the number of nonzeros; ``indices`` has their columns.

    ``prepared``: True if kernels may read arrays prepared from the matrix; ``distinct``: True if the columns of each
    row increase, so that no element is stored twice; ``nonfinite``: True if absent elements must not be multiplied,
    because B may have infinities and NaN; ``index_type``: type of row pointers and columns, i32 or i64; ``graphs``:
    True if the rows are those of several graphs, one after the other; columns then count from the first row of their
    graph, and the array ``offsets`` has the ends of the graphs.
    """

    prepared: bool = False
    distinct: bool = True
    nonfinite: bool = False
    index_type: str = "i32"
    graphs: bool = False
    capability: ClassVar[str] = "csr"

    @property
    def needs(self) -> frozenset[str]:
        """The capabilities of families for these fields. ``prepared_csr``: reads prepared arrays instead of the
        nonzeros; ``wide_indices``: 64-bit row pointers and columns; ``graph_batches``: several graphs."""
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
    """The access to the dense right operand of a sparse product: kernels read the rows that the column indices name.
    ``kmajor``: True if the matrix is stored by columns; kernels then read single elements."""

    capability: ClassVar[str] = "gathered_rows"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(("gathered_columns" if self.kmajor else self.capability,))


@dataclass(frozen=True)
class ColumnMajor(MatrixAccess):
    """The access by single elements to a matrix that is stored by columns. ``rows``: the number of columns of the
    matrix."""

    capability: ClassVar[str] = "column_major"


@dataclass(frozen=True)
class SparseExtents(Extents):
    """The extents of a product of a sparse matrix (M rows, K columns) and a dense matrix of N columns. ``nnz``:
    nonzeros of the sparse matrix; ``longest``: nonzeros of its longest row; ``vectors``: estimated number of 8×1
    vectors; ``longest_window``: nonzeros of its largest row window; ``groups``: graphs of a batch, 0: not a batch."""

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
        """Upper limit of the nonzeros of the longest row. ``longest`` may be rounded down: handles state its 3 leading
        bits."""
        return self.longest + self.longest // 4

    def representative(self) -> SparseExtents:
        return SparseExtents(1, 1, 1, 1, 1)
