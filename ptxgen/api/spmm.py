"""``spmm``: products of a sparse matrix and a matrix, arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import call_lock, drivers, launch_function, new_arrays, on_host, runners, streams
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    is_torch,
    matrix_layout,
    require_disjoint,
    require_no_gradient,
    tensor,
    view,
)
from ptxgen.api.gemm import number
from ptxgen.arguments import integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.base import EXTENT_LIMIT

TYPES = ("f16", "bf16", "f32", "f64")
BITS = 3  #: leading bits of the number of nonzeros by which calls choose a configuration


class SparseMatrix(NamedTuple):
    """A sparse matrix in CSR. Row ``i`` has the nonzeros ``values[indptr[i]:indptr[i + 1]]`` in the columns
    ``indices[indptr[i]:indptr[i + 1]]``, in any order; nonzeros of one place are added."""

    indptr: Any
    indices: Any
    values: Any
    shape: tuple[int, int]


class _Csr(NamedTuple):
    """The checked arrays of a sparse matrix."""

    indptr: View
    indices: View
    values: View
    shape: tuple[int, int]

    @property
    def named(self) -> dict[str, View]:
        return {"a.indptr": self.indptr, "a.indices": self.indices, "a.values": self.values}


def spmm(a: Any, b: Any, out: Any = None, *, alpha: float = 1.0, beta: float = 0.0, compute: str | None = None) -> Any:
    """C = alpha·A·B + beta·out of a sparse matrix A, as an array of the same library as ``b``.

    ``a`` is M×K in CSR, of SciPy, CuPy or PyTorch, or a ``SparseMatrix``. Row pointers and columns are int32. Columns
    need not be sorted; nonzeros of one place are added; explicit zeros are multiplied, so that infinities and NaN in B
    give NaN. ``b`` is K×N and ``out`` M×N (allocated if None); their rows are contiguous. A, B and C have one dtype:
    float16, bfloat16, float32 or float64. 16-bit types are summed in float32. ``beta`` other than 0 requires ``out``
    and reads it. If ``alpha`` is 0, A and B are not read. The same inputs give the same bits: the products of a row
    are added in the order of its nonzeros.

    ``compute``: tf32 is permitted for float32; products and sums are exact to float32 all the same.

    Host arrays are checked: row pointers begin at 0, do not decrease and end at the number of nonzeros; columns are in
    [0, K). Arrays on a GPU are not, and must be so: kernels read B at the columns. All arrays are in the same memory.

    GPU arrays are multiplied on the current stream of the library of ``b``, as ``gemm`` does. ShapeError, DtypeError,
    OverlapError, InputError: an argument breaks a rule.
    """
    alpha, beta = number(alpha, "alpha"), number(beta, "beta")
    compute = word("compute", "" if compute is None else compute)
    with call_lock.lock:
        result = _launch(a, b, out, alpha, beta, compute)
    return new_arrays.result_of(result, b) if out is None else result


def _launch(a: Any, b: Any, out: Any, alpha: float, beta: float, compute: str) -> Any:
    """Checks the arguments, selects, generates and launches."""
    csr, vb = _read_csr(a), view(b, "b")
    _check_operands(csr, vb)
    shape = csr.shape[0], vb.shape[1]
    on = drivers.driver_of(vb)
    if out is None:
        if beta != 0:
            raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 requires out")
        result = new_arrays.empty_array(b, shape, vb.dtype)
    else:
        result = out
    vc = view(result, "out")
    _check_out(vb, vc, shape)
    require_disjoint(vc, b=vb, **csr.named)
    problem = Spmm(
        shape[0],
        shape[1],
        csr.shape[1],
        "NN",
        vb.dtype.name,
        compute,
        f"even:nnz={_rounded(csr.indices.shape[0])}",
    )
    views = {"indptr": csr.indptr, "indices": csr.indices, "values": csr.values, "B": vb, "C": vc}
    if vb.host:
        _check_pattern(csr)
        if 0 not in shape:
            _compute_on_host(problem, views, alpha, beta)
        return result
    drivers.require_device(on, b=vb, out=vc, **csr.named)
    if 0 in shape:
        return result
    ldb, ldc = (_row_length(v, name) for v, name in ((vb, "b"), (vc, "out")))
    problem = replace(problem, ldb=ldb, ldc=ldc, aligned_b=alignment_of(vb.address), aligned_c=alignment_of(vc.address))
    stream = streams.current_stream(b)
    launch = launch_function.make_launch(runners.runner_for(problem, stream, on), alpha, beta)
    with streams.ordered(on, stream, views.values()):
        launch(tuple(views[name].address for name in problem.arrays), stream)
    return result


def _read_csr(a: Any) -> _Csr:
    """The arrays of a sparse matrix. Attributes of the libraries are read; none is imported."""
    if is_torch(a):
        require_no_gradient(a, "a")
        if str(a.layout) != "torch.sparse_csr":
            raise InputError(f"a has layout {a.layout}; it must be torch.sparse_csr")
        arrays, shape = (a.crow_indices(), a.col_indices(), a.values()), tuple(a.shape)
    elif isinstance(a, SparseMatrix):
        arrays, shape = (a.indptr, a.indices, a.values), a.shape
    elif isinstance(form := getattr(a, "format", None), str) and hasattr(a, "indptr"):
        if form != "csr":
            raise InputError(f"a has format {form}; it must be csr: pass a.tocsr()")
        arrays, shape = (a.indptr, a.indices, a.data), a.shape
    else:
        raise InputError(
            f"a is {type(a).__name__}; it must be a sparse matrix in CSR of SciPy, CuPy or PyTorch, or a"
            " ptxgen.SparseMatrix"
        )
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ShapeError(f"a has shape {shown(shape)}; it must have 2 dimensions")
    m, k = (integer(f"a.shape[{i}]", n, 0, EXTENT_LIMIT - 1) for i, n in enumerate(shape))
    for name, x in zip(("indptr", "indices"), arrays, strict=False):
        if str(getattr(x, "dtype", "int32")).removeprefix("torch.") != "int32":
            raise DtypeError(f"a.{name} has dtype {x.dtype}; it must be int32")
    indptr, indices, values = (tensor(x, f"a.{n}") for x, n in zip(arrays, SparseMatrix._fields, strict=False))
    csr = _Csr(indptr, indices, values, (m, k))
    for name, v in csr.named.items():
        if len(v.shape) != 1:
            raise ShapeError(f"{name} has shape {v.shape}; it must have 1 dimension")
        if v.shape[0] > 1 and v.strides != (1,):
            raise ShapeError(f"{name} has strides {v.strides}; its elements must be contiguous")
    if indptr.shape[0] != m + 1:
        raise ShapeError(f"a.indptr has {indptr.shape[0]} elements; it must have {m + 1}, one more than a has rows")
    if indices.shape != values.shape:
        raise ShapeError(f"a.values has {values.shape[0]} elements; it must have {indices.shape[0]}, as a.indices")
    return csr


def _check_operands(a: _Csr, b: View) -> None:
    """DtypeError, ShapeError, InputError: a and b cannot be multiplied."""
    if a.values.dtype is not b.dtype:
        raise DtypeError(f"a is {a.values.dtype} and b is {b.dtype}; they must be the same")
    if b.dtype.name not in TYPES:
        raise DtypeError(f"a and b have dtype {b.dtype}; it must be one of {', '.join(TYPES)}")
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"a has {a.shape[1]} columns and b has {b.shape[0]} rows; they must be as many")
    for name, v in a.named.items():
        if v.host != b.host:
            raise InputError(f"{name} and b must be in the same memory: both in host memory, or both on the GPU")
    _row_length(b, "b")


def _check_out(b: View, c: View, shape: tuple[int, int]) -> None:
    """ShapeError, DtypeError, InputError: out cannot store a·b."""
    if c.shape != shape:
        raise ShapeError(f"out has shape {c.shape}; it must be {shape}, the shape of a·b")
    if c.dtype is not b.dtype:
        raise DtypeError(f"out is {c.dtype}; it must be {b.dtype}, as a and b")
    if c.host != b.host:
        raise InputError("out must be in the same memory as a and b")
    _row_length(c, "out")


def _row_length(v: View, argument: str) -> int:
    """The leading dimension of a row-major matrix, 0: contiguous. ShapeError: rows are not contiguous."""
    found = matrix_layout(v)
    if found is None or found[0] != "N":
        raise ShapeError(f"{argument} has strides {v.strides}; its rows must be contiguous")
    return found[1]


def _check_pattern(a: _Csr) -> None:
    """InputError: the pattern of a matrix in host memory is none."""
    indptr, indices = as_numpy(a.indptr), as_numpy(a.indices)
    nnz, k = len(indices), a.shape[1]
    if indptr[0] != 0 or indptr[-1] != nnz:
        raise InputError(f"a.indptr is from {indptr[0]} to {indptr[-1]}; it must be from 0 to {nnz}, the nonzeros of a")
    if len(falls := np.flatnonzero(indptr[1:] < indptr[:-1])):
        row = int(falls[0])
        raise InputError(
            f"a.indptr[{row + 1}] is {indptr[row + 1]}; it must be at least a.indptr[{row}], {indptr[row]}"
        )
    if len(outside := np.flatnonzero((indices < 0) | (indices >= k))):
        at = int(outside[0])
        raise InputError(f"a.indices[{at}] is {indices[at]}; it must be at least 0 and less than {k}, the columns of a")


def _rounded(nnz: int) -> int:
    """A number of nonzeros for which a configuration is chosen: matrices of about the same size share it."""
    dropped = max(nnz.bit_length() - BITS, 0)
    return nnz >> dropped << dropped


def _compute_on_host(problem: Spmm, views: dict[str, View], alpha: float, beta: float) -> None:
    """Copies host arrays to the device, computes there, and copies the result back."""
    into = as_numpy(views["C"])
    arrays = {name: np.ascontiguousarray(as_numpy(v)) for name, v in views.items() if name != "C"}
    arrays["C"] = np.ascontiguousarray(into) if beta != 0 else np.empty(into.shape, into.dtype)
    into[...] = on_host.compute_on_host(problem, arrays, alpha, beta)["C"]
