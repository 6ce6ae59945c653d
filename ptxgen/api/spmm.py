"""``spmm``: products of a sparse and a dense matrix, on arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import (
    call_lock,
    drivers,
    launch_function,
    new_arrays,
    on_host,
    prepared_spmm,
    runners,
    spmm_operands,
    streams,
)
from ptxgen.api.arrays import View, as_numpy, require_disjoint, tensor
from ptxgen.api.gemm import number
from ptxgen.api.sparse_matrix import INDEX_LIMIT, Csr, SparseMatrix, csc_arrays, is_sparse, narrowed_on_host, read_csr
from ptxgen.arguments import flag, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.spmm.problem import Spmm

BITS = 3  #: calls choose a configuration by so many leading bits of the number of nonzeros


def spmm(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    compute: str | None = None,
    transpose: bool = False,
) -> Any:
    """C = alpha·A·B + beta·out with a sparse matrix A and a dense B, or the reverse, as an array of the same library as
    the dense operand.

    Zeros stored in A are multiplied, so infinities and NaN in B give NaN there. Where the call uses a handle (below),
    an infinity or NaN in row k of B may also give NaN in rows of C whose row of A has no nonzero in column k.

    ``a`` is M×K, of SciPy, CuPy or PyTorch, or a ``SparseMatrix``. Other formats than CSR (CSC, COO, BSR) are converted
    by their library: PyTorch tensors once, as long as they exist and do not change, others at each call; a handle of
    ``spmm_prepare`` avoids that. Row pointers and columns are int32 or int64. Columns need not be sorted; several
    nonzeros at one place are added. ``b`` is K×N and ``out`` M×N (allocated if None), row-major or column-major; a
    ``b`` that is neither is copied first. ``b`` may also be a vector of K elements; the result is then a vector of M.
    A, B and C have one dtype: float16, bfloat16, float32 or float64. 16-bit types are summed in float32. ``beta`` other
    than 0 requires ``out`` and reads it. If ``alpha`` is 0, A and B are not read. The same inputs give the same bits.

    ``compute``: tf32 is permitted for float32. ``transpose``: C = alpha·Aᵀ·B + beta·out, where B has as many rows as A.
    The transpose is made at each call; that of a PyTorch tensor is made once and kept as long as the tensor exists and
    does not change. A matrix in CSC needs no transposition: its arrays are those of the transpose in CSR.

    ``spmm(x, a)`` with a dense ``x`` is alpha·X·A + beta·out, with ``transpose`` alpha·X·Aᵀ + beta·out. ``x`` is copied
    unless its columns are contiguous; a result allocated for ``out=None`` has contiguous columns.

    The call prepares nothing. If a handle of ``spmm_prepare`` exists for the same PyTorch tensors, and they did not
    change since, the handle computes the product.

    Host arrays are checked: row pointers begin at 0, do not decrease and end at the number of nonzeros; columns are in
    [0, K). Arrays on a GPU are not checked; if they break these rules, kernels read outside B. All arrays are in the
    same memory.

    GPU arrays are multiplied on the current stream of the library of ``b``, as ``gemm`` does. ShapeError, DtypeError,
    OverlapError, InputError: an argument breaks a rule.
    """
    alpha, beta = number(alpha, "alpha"), number(beta, "beta")
    compute = word("compute", "" if compute is None else compute)
    transpose = flag("transpose", transpose)
    if is_sparse(b) and not is_sparse(a):
        return _dense_times_sparse(a, b, out, alpha, beta, compute, transpose)
    csr = csc_arrays(a) if transpose else None
    if csr is None:
        csr = read_csr(a)
        if transpose:
            spmm_operands.check_dtype(csr)
            return prepared_spmm.kept_handle(a, csr, compute).transposed(b, out, alpha, beta)
        handle = prepared_spmm.handle_of(csr, compute)
        if handle is not None:
            return handle(b, out, alpha, beta)
    with call_lock.lock:
        result = _launch(csr, b, out, alpha, beta, compute)
    return new_arrays.result_of(result, b) if out is None else result


def sddmm(a: Any, x: Any, y: Any, out: Any = None, *, scaled: bool = False) -> Any:
    """The elements of x·yᵀ at the nonzeros of a sparse matrix A, in the order of A in CSR. The arguments are those of
    ``PreparedSpmm.sddmm``.

    ``a``: as for ``spmm``. A handle of ``a`` is made at each call; that of a PyTorch tensor is made once and kept as
    long as the tensor exists and does not change. ShapeError, DtypeError, OverlapError, InputError: an argument breaks
    a rule.
    """
    csr = read_csr(a)
    spmm_operands.check_dtype(csr)
    return prepared_spmm.kept_handle(a, csr, "").sddmm(x, y, out, scaled=scaled)


def _dense_times_sparse(x: Any, a: Any, out: Any, alpha: float, beta: float, compute: str, transpose: bool) -> Any:
    """X·A, or X·Aᵀ, computed as the transpose of a product with the sparse matrix on the left."""
    vx, vector = spmm_operands.dense(x, "a")
    (rows, results), columns = tuple(a.shape)[::-1] if transpose else tuple(a.shape), vx.shape[0 if vector else 1]
    shape = (results,) if vector else (vx.shape[0], results)
    if rows != columns:
        raise ShapeError(f"a has {columns} columns and b has {rows} rows; they must be as many")
    dtypes = [_dtype_name(each) for each in (x, a.values if isinstance(a, SparseMatrix) else a)]
    if all(dtypes) and dtypes[0] != dtypes[1]:
        raise DtypeError(f"a is {dtypes[0]} and b is {dtypes[1]}; they must be the same")
    if out is not None and (given := tensor(out, "out").shape) != shape:
        raise ShapeError(f"out has shape {given}; it must be {shape}, the shape of a·b")
    right = x if vector else x.T
    if not vector and not vx.host and right.shape[1] > 1:
        right = spmm_operands.with_contiguous_rows(right)
    into = out if out is None or vector else out.T
    result = spmm(a, right, into, alpha=alpha, beta=beta, compute=compute or None, transpose=not transpose)
    return out if out is not None else result if vector else result.T


def _dtype_name(x: Any) -> str:
    return str(getattr(x, "dtype", "")).removeprefix("torch.")


def _launch(csr: Csr, b: Any, out: Any, alpha: float, beta: float, compute: str) -> Any:
    """Checks the arguments, selects, generates and launches."""
    vb, vector = spmm_operands.dense(b, "b")
    (m, k), on = csr.shape, drivers.driver_of(vb)
    spmm_operands.check_dtype(csr)
    spmm_operands.check_b(csr.shape, csr.values.dtype, vb, **csr.named)
    result, vc = spmm_operands.result_for(m, vb, vector, out, beta)
    require_disjoint(vc, b=vb, **csr.named)
    pattern = f"even:nnz={rounded(csr.nnz)}"
    if vb.host:
        _check_pattern(csr)
        csr = narrowed_on_host(csr)
    problem = Spmm(m, vc.shape[1], k, "NN", vb.dtype.name, compute, pattern, index=csr.index_type)
    if vb.host:
        if 0 not in vc.shape:
            _compute_on_host(problem, csr, vb, vc, alpha, beta)
        return result
    drivers.require_device(on, b=vb, out=vc, **csr.named)
    if 0 in vc.shape:
        return result
    problem, packed = spmm_operands.with_b_and_c(problem, vb, vc)
    stream = streams.current_stream(b)
    launch = launch_function.make_launch(runners.runner_for(problem, stream, on), alpha, beta)
    views = {"indptr": csr.indptr, "indices": csr.indices, "values": csr.values, "B": packed, "C": vc}
    with streams.ordered(on, stream, views.values()):
        launch(tuple(views[name].address for name in problem.arrays), stream)
    return result


def _check_pattern(a: Csr) -> None:
    """InputError: the arrays of a matrix in host memory are no CSR pattern."""
    check_row_pointers(a)
    indices, k = as_numpy(a.indices), a.shape[1]
    if len(outside := np.flatnonzero((indices < 0) | (indices >= k))):
        at = int(outside[0])
        raise InputError(f"a.indices[{at}] is {indices[at]}; it must be at least 0 and less than {k}, the columns of a")


def check_row_pointers(a: Csr) -> None:
    """InputError: the row pointers of a matrix in host memory decrease, do not begin at 0, or do not end at its number
    of nonzeros."""
    indptr, nnz = as_numpy(a.indptr), a.nnz
    if indptr[0] != 0 or indptr[-1] != nnz:
        raise InputError(f"a.indptr is from {indptr[0]} to {indptr[-1]}; it must be from 0 to {nnz}, the nonzeros of a")
    if len(falls := np.flatnonzero(indptr[1:] < indptr[:-1])):
        row = int(falls[0])
        raise InputError(
            f"a.indptr[{row + 1}] is {indptr[row + 1]}; it must be at least a.indptr[{row}], {indptr[row]}"
        )


def rounded(nnz: int) -> int:
    """The number of nonzeros by which a configuration is chosen: ``nnz`` rounded, so that matrices of similar size
    share the configuration."""
    nnz = min(nnz, INDEX_LIMIT - 1)
    dropped = max(nnz.bit_length() - BITS, 0)
    return nnz >> dropped << dropped


def _compute_on_host(problem: Spmm, a: Csr, b: View, c: View, alpha: float, beta: float) -> None:
    """Copies host arrays to the device, computes there, and copies the result back."""
    named = {"indptr": a.indptr, "indices": a.indices, "values": a.values}
    arrays = {name: np.ascontiguousarray(as_numpy(v)) for name, v in named.items()}
    arrays |= spmm_operands.host_arrays(b, c, beta)
    spmm_operands.store_on_host(c, on_host.compute_on_host(problem, arrays, alpha, beta)["C"])
