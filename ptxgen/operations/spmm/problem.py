"""The problem type of sparse products: a sparse matrix in CSR times a dense matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ptxgen.arguments import integer, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.lowering.csr import INDEX_BYTES
from ptxgen.operations.gemm.problem import parse_shape
from ptxgen.operations.spmm import patterns
from ptxgen.operations.spmm.pattern_statistics import Ints, PatternStatistics
from ptxgen.problem.base import EXACT_NONFINITE, EXTENT_LIMIT, MEMORY_LIMIT, ProblemBase, described

DENSE_DEFAULT = -1  #: the value of ``dense_bytes`` that means: in proportion to the sparse matrix
#: the most bytes of the dense matrix, as a multiple of those of the sparse one: for 16-bit types, and for others
RATIO_16, RATIO = 12, 16


@dataclass(frozen=True)
class Spmm(ProblemBase):
    """C[M,N] = alpha · A[M,K] · B[K,N] + beta · C, where A is a sparse matrix in CSR.

    A has the arrays ``indptr`` (M + 1 row pointers) and ``indices`` (columns), of the type ``index``, and ``values``.
    ``layout``: NN, or NT if B is stored by columns; ``layout_c``: N, or T if C is stored by columns.
    ``pattern``: the places of the nonzeros, as ``patterns`` reads it; kernels compute any pattern of A.
    ``ldb``, ``ldc``: leading dimensions in elements, 0 = contiguous; ``aligned_b``, ``aligned_c``: alignments of
    addresses in bytes. C has the type of A and B. ``calls``: the number of products for which A may be prepared, by
    which choices divide the time of a preparation; 0: A is not prepared.
    ``groups``: the number of graphs whose rows follow each other in A, B and C, 0: none; columns count from the first
    row of their graph. The array ``offsets`` has the end of the rows of each graph.
    ``exact_nonfinite``: infinities and NaN of B give NaN only where A has a nonzero; ``dense_bytes``: the most bytes of
    A as a dense matrix, 0: no dense matrix is made; DENSE_DEFAULT: ``RATIO_16`` (16-bit types) or ``RATIO`` times the
    bytes of the sparse matrix.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    m: int = field(metadata=described(c="rows of C"))
    n: int = field(metadata=described(c="columns of C"))
    k: int = field(metadata=described(c="columns of A"))
    layout: str = "NN"
    dtype: str = "f32"
    compute: str = ""
    pattern: str = field(
        default="bernoulli:density=0.1,seed=0",
        metadata=described(
            f"Places of the nonzeros of A: {patterns.FORM}. [default: bernoulli:density=0.1,seed=0]", "GENERATOR"
        ),
    )
    ldb: int = field(
        default=0,
        metadata=described(
            c="elements from one stored row of B to the next, or column of a B stored by columns; 0: contiguous"
        ),
    )
    ldc: int = field(default=0, metadata=described(c="the same of C"))
    aligned_b: int = 16
    aligned_c: int = 16
    calls: int = field(
        default=0,
        metadata=described(
            "Products for which A may be prepared, over which the time of the preparation is divided; 0: it is not"
            " prepared. [default: 0]",
            "N",
        ),
    )
    exact_nonfinite: bool = field(default=False, metadata=EXACT_NONFINITE)
    dense_bytes: int = field(
        default=DENSE_DEFAULT,
        metadata=described(
            f"Most bytes of A as a dense matrix, which products of matrices then read; 0: none. [default: {RATIO_16}"
            f" times those of the sparse matrix in 16-bit types, {RATIO} times in others]",
            "BYTES",
        ),
    )
    index: str = field(
        default="i32",
        metadata=described(
            "Type of row pointers and columns: i32 or i64. [default: i32]",
            "TYPE",
            c="type of row pointers and columns",
            words=INDEX_BYTES,
        ),
    )
    layout_c: str = field(
        default="N",
        metadata=described(
            "N: C is row-major; T: column-major. [default: N]",
            "LETTER",
            c="N: C is stored by rows; T: by columns",
            words=("N", "T"),
        ),
    )
    groups: int = field(
        default=0,
        metadata=described(
            "Graphs whose rows follow each other in A, B and C; columns of A count from the first row of each."
            " [default: 0]",
            "N",
        ),
    )
    deterministic: bool = False
    out: str = ""
    epilogue: str = ""

    operation = "spmm"
    SHAPE = ("m", "n", "k")
    SHAPE_FORM = "M,N,K"
    CODE_OPTIONS = ("compute", "pattern", "calls", "dense_bytes", "index", "layout_c", "groups")
    RUNTIME_PARAMETERS = "extents, leading dimensions"
    STEPS = "addresses and leading dimensions"
    problem_class = operation
    broadcast_shapes: ClassVar[dict[str, Any]] = {}

    @classmethod
    def epilogue_rows(cls) -> tuple[tuple[str, ...], ...]:
        return ()

    def __post_init__(self) -> None:
        self._normalize_integers(("m", "n", "k", "ldb", "ldc", "aligned_b", "aligned_c", "calls", "groups"))
        if self.dense_bytes != DENSE_DEFAULT:
            object.__setattr__(self, "dense_bytes", integer("dense_bytes", self.dense_bytes, 0, MEMORY_LIMIT))
        self._check_words_and_flags()
        self._normalize_layout("layout", ("NN", "NT"))
        self._normalize_layout("layout_c", ("N", "T"))
        word("index", self.index, INDEX_BYTES)
        self._normalize_dtypes()
        if self.out != self.dtype:
            raise DtypeError(f"out is {self.out}; it must be dtype, {self.dtype}")
        self._normalize_epilogue()
        self._check_groups()
        object.__setattr__(self, "pattern", patterns.canonical(self.pattern))
        for name, rows, columns, swapped in (
            ("ldb", self.k, self.n, self.column_major_b),
            ("ldc", self.m, self.n, self.column_major_c),
        ):
            rows, columns, line = (columns, rows, "column") if swapped else (rows, columns, "row")
            value = getattr(self, name) or max(columns, 1)
            object.__setattr__(self, name, value)
            if not columns <= value < EXTENT_LIMIT:
                raise ShapeError(
                    f"{name} is {value}; it must be from {columns}, a {line}'s length, to {EXTENT_LIMIT - 1}"
                )
            if rows * value * self.element.bytes > MEMORY_LIMIT:
                raise ShapeError(
                    f"{name[2:]} spans {rows * value * self.element.bytes} bytes; it must span at most {MEMORY_LIMIT},"
                    " the address space of a GPU"
                )
        patterns.check(self.m, self.k, self.pattern)
        for name in ("aligned_b", "aligned_c"):
            self._check_alignment(name, self.element)

    def _check_groups(self) -> None:
        """Raises ShapeError or InputError if the fields do not permit a batch of graphs."""
        if not self.groups:
            return
        if self.m != self.k:
            raise ShapeError(f"k is {self.k}; it must be m, {self.m}, where A has groups")
        for name, value, only in (
            ("calls", self.calls, 0),
            ("layout", self.layout, "NN"),
            ("index", self.index, "i32"),
        ):
            if value != only:
                raise InputError(f"{name} is {value}; it must be {only} where A has groups")

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays of A, B and C, and, with groups, of their ends."""
        return "indptr", "indices", "values", "B", "C", *(("offsets",) if self.groups else ())

    def shape(self) -> str:
        return f"{self.m},{self.n},{self.k}"

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        return dict(zip(cls.SHAPE, parse_shape(text), strict=True))

    def key(self) -> str:
        """The text form of the problem, which always has the pattern."""
        text = super().key()
        return text if " pattern=" in text else f"{text} pattern={self.pattern}"

    @property
    def column_major_b(self) -> bool:
        return self.layout == "NT"

    @property
    def column_major_c(self) -> bool:
        return self.layout_c == "T"

    @property
    def measurable(self) -> bool:
        """False if the pattern only states statistics, from which no matrix can be made."""
        return patterns.stated_statistics(self.pattern) is None

    @property
    def row_lengths(self) -> Ints:
        """The lengths of the rows of A. InputError: the pattern only states statistics."""
        return patterns.row_lengths(self.m, self.k, self.pattern)

    @property
    def statistics(self) -> PatternStatistics:
        """The statistics of the pattern of A."""
        return patterns.statistics(self.m, self.k, self.pattern)

    @property
    def nnz(self) -> int:
        """The number of nonzeros of A."""
        stated = patterns.stated_statistics(self.pattern)
        return stated.nnz if stated else int(self.row_lengths.sum())

    @property
    def operands_digest(self) -> str:
        """The digest of the pattern of A."""
        return patterns.pattern_digest(self.m, self.k, self.pattern)

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of the values of A, of B, and of C."""
        return (self.nnz,), (self.k, self.n), (self.m, self.n)

    @property
    def results(self) -> int:
        return self.m * self.n

    @property
    def reduction(self) -> int:
        stated = patterns.stated_statistics(self.pattern)
        return stated.longest if stated else int(self.row_lengths.max(initial=0))

    @property
    def flops(self) -> int:
        return 2 * self.nnz * self.n

    @property
    def sparse_bytes(self) -> int:
        """The number of bytes of A in CSR."""
        index = INDEX_BYTES[self.index]
        return self.nnz * (self.element.bytes + index) + (self.m + 1) * index

    @property
    def most_dense_bytes(self) -> int:
        """The most bytes that A may take as a dense matrix."""
        if self.dense_bytes != DENSE_DEFAULT:
            return self.dense_bytes
        return self.sparse_bytes * (RATIO_16 if self.element.bytes == 2 else RATIO)

    @property
    def bytes(self) -> int:
        """A lower bound of the bytes moved: A and the rows of B that A selects are read once, C is written once."""
        return self.sparse_bytes + (min(self.k, self.nnz) + self.m) * self.n * self.element.bytes

    @property
    def description(self) -> list[str]:
        types = f"{self.dtype}, summed in {self.compute}"
        order = [
            f"{x} {'column' if t else 'row'}-major"
            for x, t in zip("BC", (self.column_major_b, self.column_major_c), strict=True)
        ]
        if self.column_major_b == self.column_major_c:
            order = [order[0].replace("B", "B and C")]
        return [f"{self.operation}: C = alpha A B + beta C, A in CSR, {', '.join(order)}, {types}"]


def _log2(x: float) -> float:
    return float(np.log2(max(x, 2.0**-10)))


def _quantile(share: float) -> Callable[[Spmm], float]:
    return lambda p: _log2(p.statistics.quantile(share))


#: name of a feature of the model -> its value; sizes are logarithms
FEATURES: dict[str, Callable[[Spmm], float]] = {
    "m": lambda p: _log2(p.m),
    "n": lambda p: _log2(p.n),
    "k": lambda p: _log2(p.k),
    "nnz": lambda p: _log2(p.nnz),
    "bytes_b": lambda p: _log2(p.k * p.n * p.element.bytes),
    "pattern_mean_length": lambda p: _log2(p.statistics.mean),
    "pattern_longest": lambda p: _log2(p.statistics.longest),
    "pattern_variation": lambda p: p.statistics.variation,
    "pattern_quantile_10": _quantile(0.1),
    "pattern_quantile_50": _quantile(0.5),
    "pattern_quantile_90": _quantile(0.9),
    "pattern_longest_share": lambda p: p.statistics.longest_share,
    "pattern_empty_rows": lambda p: p.statistics.empty,
    "pattern_vector_nonzeros": lambda p: p.statistics.vector_nonzeros,
    "pattern_column_share": lambda p: p.statistics.column_share,
    "pattern_gap_bits": lambda p: p.statistics.mean_gap_bits,
}
