"""Sparse matrices of SciPy, CuPy and PyTorch, and of ``SparseMatrix``, as arrays in CSR."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import converted_matrices
from ptxgen.api.arrays import View, as_numpy, is_torch, require_no_gradient, require_same_memory, tensor
from ptxgen.arguments import integer, shown
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.dtypes import Dtype

#: index type -> the element type of row pointers and columns
INDEX_TYPES = {
    "i32": Dtype("s32", 32, np.dtype(np.int32), roundoff=0.0),
    "i64": Dtype("s64", 64, np.dtype(np.int64), roundoff=0.0),
}
INDEX_LIMIT = 1 << 31  #: number of nonzeros, or of columns, from which indices need 64 bits
TORCH_FORMATS = (*converted_matrices.INDICES, converted_matrices.COO)


class SparseMatrix(NamedTuple):
    """A sparse matrix in CSR. Row ``i`` has the nonzeros ``values[indptr[i]:indptr[i + 1]]`` in the columns
    ``indices[indptr[i]:indptr[i + 1]]``, in any order; several nonzeros at one place are added."""

    indptr: Any
    indices: Any
    values: Any
    shape: tuple[int, int]


class Csr(NamedTuple):
    """The checked arrays of a sparse matrix. ``index_type``: of row pointers and columns, i32 or i64."""

    indptr: View
    indices: View
    values: View
    shape: tuple[int, int]
    index_type: str

    @property
    def named(self) -> dict[str, View]:
        return {"a.indptr": self.indptr, "a.indices": self.indices, "a.values": self.values}

    @property
    def nnz(self) -> int:
        return self.indices.shape[0]

    @property
    def host(self) -> bool:
        return self.values.host


def read_csr(a: Any) -> Csr:
    """The arrays of a sparse matrix in CSR. No library is imported: the attributes and methods of ``a`` are used. Other
    formats than CSR are converted by their library; the conversion of a PyTorch tensor is kept while the tensor does
    not change. InputError, ShapeError, DtypeError: ``a`` breaks a rule."""
    arrays, shape = _arrays_of(a)
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ShapeError(f"a has shape {shown(shape)}; it must have 2 dimensions")
    m, k = (integer(f"a.shape[{i}]", n, 0, EXTENT_LIMIT - 1) for i, n in enumerate(shape))
    indptr, indices = (_index_array(x, f"a.{name}") for x, name in zip(arrays, ("indptr", "indices"), strict=False))
    values = tensor(arrays[2], "a.values")
    if indptr.dtype is not indices.dtype:
        raise DtypeError(
            f"a.indptr is {indptr.dtype.numpy} and a.indices is {indices.dtype.numpy}; they must be the same"
        )
    index = next(name for name, index_dtype in INDEX_TYPES.items() if index_dtype is indices.dtype)
    csr = Csr(indptr, indices, values, (m, k), index)
    for name, v in csr.named.items():
        if len(v.shape) != 1:
            raise ShapeError(f"{name} has shape {v.shape}; it must have 1 dimension")
        if v.shape[0] > 1 and v.strides != (1,):
            raise ShapeError(f"{name} has strides {v.strides}; its elements must be contiguous")
        require_same_memory(name, v, "a.values", values)
    if indptr.shape[0] != m + 1:
        raise ShapeError(f"a.indptr has {indptr.shape[0]} elements; it must have {m + 1}, one more than a has rows")
    if indices.shape != values.shape:
        raise ShapeError(f"a.values has {values.shape[0]} elements; it must have {indices.shape[0]}, as a.indices")
    if csr.nnz >= INDEX_LIMIT and index == "i32":
        raise DtypeError(f"a has {csr.nnz} nonzeros and int32 indices; from {INDEX_LIMIT} on they must be int64")
    return csr


def is_sparse(a: Any) -> bool:
    """True if ``a`` is a sparse matrix of SciPy, CuPy or PyTorch, or a ``SparseMatrix``."""
    if is_torch(a):
        return str(getattr(a, "layout", "torch.strided")) in TORCH_FORMATS
    return isinstance(a, SparseMatrix) or (isinstance(getattr(a, "format", None), str) and hasattr(a, "tocsr"))


def csc_arrays(a: Any) -> Csr | None:
    """The arrays of a matrix in CSC, which are those of its transpose in CSR; None: it is in another format."""
    if is_torch(a):
        if str(getattr(a, "layout", "")) != "torch.sparse_csc":
            return None
        require_no_gradient(a, "a")
        arrays = a.ccol_indices(), a.row_indices(), a.values()
    elif getattr(a, "format", None) == "csc" and hasattr(a, "tocsr"):
        arrays = a.indptr, a.indices, a.data
    else:
        return None
    return read_csr(SparseMatrix(*arrays, (a.shape[1], a.shape[0])))


def _arrays_of(a: Any) -> tuple[tuple[Any, Any, Any], Any]:
    """The pair ((row pointers, columns, values), shape)."""
    if is_torch(a):
        require_no_gradient(a, "a")
        layout = str(getattr(a, "layout", "torch.strided"))
        if layout not in TORCH_FORMATS:
            raise InputError(f"a has layout {layout}; it must be one of {', '.join(TORCH_FORMATS)}")
        return converted_matrices.csr_arrays(a), tuple(a.shape)
    if isinstance(a, SparseMatrix):
        return (a.indptr, a.indices, a.values), a.shape
    if isinstance(form := getattr(a, "format", None), str) and hasattr(a, "tocsr"):
        a = a if form == "csr" else a.tocsr()
        return (a.indptr, a.indices, a.data), a.shape
    raise InputError(
        f"a is {type(a).__name__}; it must be a sparse matrix of SciPy, CuPy or PyTorch, or a ptxgen.SparseMatrix"
    )


def _index_array(x: Any, argument: str) -> View:
    """A View of an array of int32 or int64. int64 is read through a view as pairs of int32, a dtype that ``tensor``
    supports."""
    name = str(getattr(x, "dtype", "int32")).removeprefix("torch.")
    if name not in ("int32", "int64"):
        raise DtypeError(f"{argument} has dtype {name}; it must be int32 or int64")
    if name == "int32":
        return replace(tensor(x, argument), dtype=INDEX_TYPES["i32"])
    if len(x.shape) != 1:
        raise ShapeError(f"{argument} has shape {tuple(x.shape)}; it must have 1 dimension")
    words = importlib.import_module("torch").int32 if is_torch(x) else np.int32
    try:
        v = tensor(x.view(words), argument)
    except (ValueError, RuntimeError):
        raise ShapeError(f"{argument} has strides; its elements must be contiguous") from None
    return replace(v, origin=x, shape=(v.shape[0] // 2,), strides=(1,), dtype=INDEX_TYPES["i64"])


def narrowed_on_host(a: Csr) -> Csr:
    """A matrix in host memory with int32 indices; ``a`` itself if its indices are int32, or need 64 bits."""
    if a.index_type == "i32" or a.nnz >= INDEX_LIMIT or not a.host:
        return a
    indptr, indices = (tensor(as_numpy(v).astype(np.int32), "a") for v in (a.indptr, a.indices))
    return a._replace(indptr=indptr, indices=indices, index_type="i32")
