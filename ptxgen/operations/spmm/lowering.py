"""Lowers products of a sparse matrix and a matrix."""

from __future__ import annotations

from ptxgen.lowering.csr import Csr, GatheredRows, SparseExtents
from ptxgen.lowering.kernel_problem import KernelProblem, Operand
from ptxgen.lowering.sink import StoreTile
from ptxgen.lowering.strided import aligned_access, strided
from ptxgen.operations.spmm.dense_matrix import densified
from ptxgen.operations.spmm.problem import Spmm


def lower_spmm(p: Spmm) -> KernelProblem:
    """What kernels compute: they serve all patterns."""
    size = p.element.bytes
    vec = aligned_access(p.aligned_b, p.n, p.ldb, 0, size)
    b = GatheredRows(False, p.k, p.n, p.ldb, 0, p.aligned_b, vec)
    c = strided(p.m, p.n, p.ldc, 0, p.aligned_c, True, size)
    a = Csr(p.calls, p.statistics.distinct, p.exact_nonfinite)
    return KernelProblem(
        f"spmm_{p.dtype}",
        SparseExtents(p.m, p.n, p.k, p.nnz, p.reduction, _vectors(p), p.statistics.longest_window),
        (Operand("values", p.dtype, a), Operand("B", p.dtype, b)),
        (Operand("C", p.out, c),),
        p.compute,
        StoreTile(p.out, p.epilogue_dtype.name),
        deterministic=p.deterministic,
        moved=p.bytes,
        forms=densified(p, a),
    )


def _vectors(p: Spmm) -> int:
    """The 8×1 vectors of A that have a nonzero, estimated from samples."""
    return round(p.nnz / max(p.statistics.vector_nonzeros, 1.0))
