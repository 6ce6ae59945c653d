"""Lowers sparse products."""

from __future__ import annotations

from ptxgen.lowering.csr import ColumnMajor, Csr, GatheredRows, SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess, Operand
from ptxgen.lowering.sink import StoreTile
from ptxgen.lowering.strided import aligned_access, strided
from ptxgen.operations.spmm.dense_matrix import densified
from ptxgen.operations.spmm.problem import Spmm


def lower_spmm(p: Spmm) -> KernelProblem:
    """A sparse product as a kernel problem, whose kernels serve all patterns."""
    size = p.element.bytes
    a = Csr(p.calls > 0, p.statistics.distinct, p.exact_nonfinite, p.index, p.groups > 0)
    if p.column_major_b:
        b = GatheredRows(True, p.n, p.k, p.ldb, 0, p.aligned_b, 1)
    else:
        b = GatheredRows(False, p.k, p.n, p.ldb, 0, p.aligned_b, aligned_access(p.aligned_b, p.n, p.ldb, 0, size))
    c: MatrixAccess = strided(p.m, p.n, p.ldc, 0, p.aligned_c, True, size)
    if p.column_major_c:
        c = ColumnMajor(False, p.n, p.m, p.ldc, 0, p.aligned_c, 1)
    capabilities = (
        ("_wide", p.index == "i64"),
        ("_nt", p.column_major_b),
        ("_ct", p.column_major_c),
        ("_graphs", p.groups > 0),
    )
    return KernelProblem(
        f"spmm_{p.dtype}{''.join(name for name, given in capabilities if given)}",
        SparseExtents(p.m, p.n, p.k, p.nnz, p.reduction, _vectors(p), p.statistics.longest_window, p.groups),
        (Operand("values", p.dtype, a), Operand("B", p.dtype, b)),
        (Operand("C", p.out, c),),
        p.compute,
        StoreTile(p.out, p.epilogue_dtype.name),
        deterministic=p.deterministic,
        moved=p.bytes,
        calls=p.calls,
        forms=densified(p, a),
    )


def _vectors(p: Spmm) -> int:
    """The number of 8×1 vectors of A with a nonzero, estimated from samples."""
    return round(p.nnz / max(p.statistics.vector_nonzeros, 1.0))
