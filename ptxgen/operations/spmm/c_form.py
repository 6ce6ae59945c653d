"""The C form of sparse products, for exported libraries. Their kernels read the arrays of the sparse matrix without
preparation."""

from __future__ import annotations

from ptxgen.errors import InputError
from ptxgen.lowering.csr import INDEX_BYTES
from ptxgen.operations.gemm import c_form as gemm
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.c_form import CForm


def _require(p: Spmm) -> None:
    if p.calls:
        raise InputError(f"calls is {p.calls}; it must be 0: exported kernels read sparse matrices as they are")
    if p.groups:
        raise InputError(f"groups is {p.groups}; it must be 0: batches of graphs have no C function")


def _elements(p: Spmm) -> tuple[int, int, int]:
    rows_b, rows_c = p.n if p.column_major_b else p.k, p.n if p.column_major_c else p.m
    return p.nnz, rows_b * p.ldb, rows_c * p.ldc


def _without_sum(p: Spmm) -> Gemm:
    """The GEMM that computes C if the sum over K is empty, on the matrix C as it is stored."""
    m, n = (p.n, p.m) if p.column_major_c else (p.m, p.n)
    made = Gemm(
        m,
        n,
        0,
        dtype=p.dtype,
        compute=p.compute,
        ldc=p.ldc,
        aligned_c=p.aligned_c,
        out=p.out,
        deterministic=p.deterministic,
    )
    return gemm.without_sum(made)


C_FORM = CForm(
    "spmm",
    "C = alpha A B + beta C of a sparse A in CSR; a: its values",
    "export/spmm.c.mako",
    alignments=lambda p: (p.element.bytes, p.aligned_b, p.aligned_c),
    elements=_elements,
    without_sum=_without_sum,
    require=_require,
    arrays={
        "indptr": lambda p: (p.m + 1) * INDEX_BYTES[p.index],
        "indices": lambda p: p.nnz * INDEX_BYTES[p.index],
    },
)
