"""``spmm_grouped``: products of the sparse matrices of several graphs in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import (
    call_lock,
    drivers,
    launch_function,
    new_arrays,
    on_host,
    runners,
    spmm_operands,
    streams,
)
from ptxgen.api.arrays import View, as_numpy, matrix_layout, require_disjoint, require_same_memory, tensor
from ptxgen.api.gemm import number
from ptxgen.api.sparse_matrix import Csr, read_csr
from ptxgen.api.spmm import check_row_pointers, rounded
from ptxgen.arguments import word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.spmm.graph_batches import first_rows
from ptxgen.operations.spmm.problem import Spmm


def spmm_grouped(
    a: Any,
    b: Any,
    offsets: Any,
    out: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    compute: str | None = None,
) -> Any:
    """C = alpha·A·B + beta·out for each graph of a batch, in one launch. The rows of the graphs follow each other in
    ``a``, ``b`` and the result, as in mini-batches of graphs.

    ``a``: the sparse matrices of all graphs in CSR, one after the other: T×K with row pointers for all T rows. The
    column indices of each graph begin at 0. ``b``: T×N with contiguous rows; without N, a vector of T elements.
    ``offsets``: int32, for each graph the index of the row after its last row, as for ``gemm_jagged``. Offsets on a GPU
    are read by the kernel, and the call does not synchronise. Graphs may be empty. Rows after the last offset are not
    written, so arrays may be larger than a batch: these rows of ``out`` keep their values, those of a new result are
    undefined. The K of ``a`` is not used, because each graph has as many columns as rows. A captured CUDA graph can be
    replayed with other graphs: other offsets, row pointers, columns and values in the same arrays.

    Types, ``out``, ``alpha``, ``beta`` and ``compute`` are as for ``spmm``. Indices are int32. Host arrays are checked;
    arrays on a GPU are not, and kernels read B at the offsets and columns. ShapeError, DtypeError, OverlapError,
    InputError: an argument breaks a rule.
    """
    alpha, beta = number(alpha, "alpha"), number(beta, "beta")
    compute = word("compute", "" if compute is None else compute)
    csr = read_csr(a)
    spmm_operands.check_dtype(csr)
    if csr.index_type != "i32":
        raise DtypeError("a has int64 indices; they must be int32")
    with call_lock.lock:
        result = _launch(csr, b, offsets, out, alpha, beta, compute)
    return new_arrays.result_of(result, b) if out is None else result


def _launch(csr: Csr, b: Any, offsets: Any, out: Any, alpha: float, beta: float, compute: str) -> Any:
    """Checks the arguments, selects, generates and launches."""
    vb, vector = spmm_operands.dense(b, "b")
    rows = csr.shape[0]
    if vb.shape[0] != rows:
        raise ShapeError(f"b has {vb.shape[0]} rows; it must have {rows}, as a")
    spmm_operands.check_b((rows, rows), csr.values.dtype, vb, **csr.named)
    ends = _offsets(offsets, vb)
    result, vc = spmm_operands.result_for(rows, vb, vector, out, beta)
    require_disjoint(vc, b=vb, offsets=ends, **csr.named)
    if vb.host:
        _check_graphs(csr, as_numpy(ends))
    else:
        drivers.require_device(drivers.driver_of(vb), b=vb, out=vc, offsets=ends, **csr.named)
    if 0 in vc.shape or not ends.shape[0]:
        return result
    pattern = f"even:nnz={rounded(csr.nnz)}"
    problem = Spmm(rows, vc.shape[1], rows, "NN", vb.dtype.name, compute, pattern, groups=ends.shape[0])
    views = {"indptr": csr.indptr, "indices": csr.indices, "values": csr.values, "offsets": ends}
    if vb.host:
        arrays = {name: np.ascontiguousarray(as_numpy(v)) for name, v in views.items()}
        # rows after the last graph keep their values
        arrays |= spmm_operands.host_arrays(vb, vc, 1.0)
        spmm_operands.store_on_host(vc, on_host.compute_on_host(problem, arrays, alpha, beta)["C"])
        return result
    if (matrix_layout(vb) or ("", 0))[0] != "N":
        vb = spmm_operands.dense(spmm_operands.with_contiguous_rows(b), "b")[0]
    on, stream = drivers.driver_of(vb), streams.current_stream(b)
    problem, vb = spmm_operands.with_b_and_c(problem, vb, vc)
    launch = launch_function.make_launch(runners.runner_for(problem, stream, on), alpha, beta)
    views |= {"B": vb, "C": vc}
    with streams.ordered(on, stream, views.values()):
        launch(tuple(views[name].address for name in problem.arrays), stream)
    return result


def _offsets(offsets: Any, b: View) -> View:
    """``offsets`` as a View. InputError, DtypeError, ShapeError: it is not a vector of int32 in the memory of ``b``."""
    offset_type = str(getattr(offsets, "dtype", "int32")).removeprefix("torch.")
    if offset_type != "int32":
        raise DtypeError(f"offsets is {offset_type}; it must be int32")
    v = tensor(offsets, "offsets")
    if len(v.shape) != 1 or (v.shape[0] > 1 and v.strides[0] != 1):
        raise ShapeError(f"offsets has shape {v.shape} and strides {v.strides}; it must be a contiguous vector")
    require_same_memory("offsets", v, "b", b)
    return v


def _check_graphs(a: Csr, ends: np.ndarray[Any, Any]) -> None:
    """InputError: offsets, row pointers or columns of host arrays break a rule."""
    before = np.concatenate([[0], ends[:-1]])
    for i in np.flatnonzero((ends < before) | (ends > a.shape[0]))[:1]:
        raise InputError(f"offsets[{i}] is {ends[i]}; it must be from {before[i]} to {a.shape[0]}, the rows of a")
    check_row_pointers(a)
    used = int(ends[-1]) if len(ends) else 0
    indptr = as_numpy(a.indptr)[: used + 1]
    columns, rows = as_numpy(a.indices)[: indptr[-1]], first_rows(indptr, ends)[1]
    for at in np.flatnonzero((columns < 0) | (columns >= rows))[:1]:
        raise InputError(
            f"a.indices[{at}] is {columns[at]}; it must be at least 0 and less than {rows[at]}, the rows of its graph"
        )


__all__ = ["spmm_grouped"]
