"""The dense matrices B and C of sparse products: their rules, and the problem of a product with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.api import new_arrays
from ptxgen.api.arrays import View, alignment_of, as_numpy, matrix_layout, require_same_memory, tensor
from ptxgen.api.sparse_matrix import Csr
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.dtypes import Dtype

TYPES = ("f16", "bf16", "f32", "f64")


def check_dtype(a: Csr) -> None:
    """DtypeError: no kernel computes sparse products in the dtype of ``a``."""
    if a.values.dtype.name not in TYPES:
        raise DtypeError(f"a has dtype {a.values.dtype}; it must be one of {', '.join(TYPES)}")


def dense(x: Any, argument: str) -> tuple[View, bool]:
    """The pair (view of a matrix, or of a vector as a matrix of one column; True for a vector). ShapeError: ``x`` has
    neither one nor two dimensions."""
    v = tensor(x, argument)
    vector = len(v.shape) == 1
    if vector:
        v = replace(v, shape=(*v.shape, 1), strides=(*v.strides, 0))
    if len(v.shape) != 2:
        raise ShapeError(f"{argument} has shape {v.shape}; it must have 1 or 2 dimensions")
    return replace(v, strides=tuple(s if n != 1 else 0 for n, s in zip(v.shape, v.strides, strict=True))), vector


def check_b(shape: tuple[int, int], element: Dtype, b: View, **arrays: View) -> None:
    """DtypeError, ShapeError, InputError: ``b`` cannot be multiplied by the sparse matrix with this shape, dtype and
    arrays."""
    if element is not b.dtype:
        raise DtypeError(f"a is {element} and b is {b.dtype}; they must be the same")
    if shape[1] != b.shape[0]:
        raise ShapeError(f"a has {shape[1]} columns and b has {b.shape[0]} rows; they must be as many")
    for name, v in arrays.items():
        require_same_memory(name, v, "b", b)


def result_for(m: int, b: View, vector: bool, out: Any, beta: float) -> tuple[Any, View]:
    """The pair (the array of the result, its view): ``out``, or a new array. ``vector``: the result has one dimension,
    like b. ShapeError, DtypeError, InputError: ``out`` cannot store the product."""
    shape = (m,) if vector else (m, b.shape[1])
    if out is None:
        if beta != 0:
            raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 requires out")
        out = new_arrays.empty_array(b.origin, shape, b.dtype)
    if (given := tensor(out, "out").shape) != shape:
        raise ShapeError(f"out has shape {given}; it must be {shape}, the shape of a·b")
    c, _ = dense(out, "out")
    if c.dtype is not b.dtype:
        raise DtypeError(f"out is {c.dtype}; it must be {b.dtype}, as a and b")
    require_same_memory("out", c, "b", b)
    if not c.host and matrix_layout(c) is None:
        raise ShapeError(f"out has strides {c.strides}; its rows or its columns must be contiguous")
    return out, c


def with_b_and_c(problem: Spmm, b: View, c: View) -> tuple[Spmm, View]:
    """The pair (problem, b): the problem with the layouts, leading dimensions and alignments of ``b`` and ``c``; ``b``,
    or a copy if neither its rows nor its columns are contiguous."""
    if matrix_layout(b) is None:
        b = _contiguous(b, "b")
    (layout_b, ldb), (layout_c, ldc) = matrix_layout(b) or ("N", 0), matrix_layout(c) or ("N", 0)
    return replace(
        problem,
        n=c.shape[1],
        layout=f"N{layout_b}",
        layout_c=layout_c,
        ldb=ldb,
        ldc=ldc,
        aligned_b=alignment_of(b.address),
        aligned_c=alignment_of(c.address),
    ), b


def sampled(x: Any, y: Any, shape: tuple[int, int], element: Dtype, **arrays: View) -> tuple[View, View]:
    """Views of the operands x and y of a sampled product with a matrix of this shape, dtype and arrays; an operand
    whose rows are not contiguous is copied. DtypeError, ShapeError, InputError: an operand breaks a rule."""
    views = [dense(each, name)[0] for name, each in (("x", x), ("y", y))]
    for name, v, rows, of in zip("xy", views, shape, ("rows", "columns"), strict=True):
        if v.dtype is not element:
            raise DtypeError(f"{name} is {v.dtype}; it must be {element}, as a")
        if v.shape[0] != rows:
            raise ShapeError(f"{name} has {v.shape[0]} rows; it must have {rows}, the {of} of a")
        for other, each in arrays.items():
            require_same_memory(other, each, name, v)
    if views[0].shape[1] != views[1].shape[1]:
        raise ShapeError(f"x has {views[0].shape[1]} columns and y has {views[1].shape[1]}; they must be as many")
    a, b = (
        v if v.host or _rows_are_contiguous(v) else _contiguous(v, name) for name, v in zip("xy", views, strict=True)
    )
    return a, b


def nonzeros_for(nnz: int, x: View, out: Any) -> tuple[Any, View]:
    """The pair (the array with one result per nonzero, its view): ``out``, or a new array. ShapeError, DtypeError,
    InputError: ``out`` cannot store these results."""
    if out is None:
        out = new_arrays.empty_array(x.origin, (nnz,), x.dtype)
    v = tensor(out, "out")
    if v.shape != (nnz,):
        raise ShapeError(f"out has shape {v.shape}; it must be ({nnz},), the nonzeros of a")
    if v.dtype is not x.dtype:
        raise DtypeError(f"out is {v.dtype}; it must be {x.dtype}, as x and y")
    require_same_memory("out", v, "x", x)
    if not v.host and nnz > 1 and v.strides != (1,):
        raise ShapeError(f"out has strides {v.strides}; its elements must be contiguous")
    return out, v


def leading_dimension(v: View) -> int:
    """The number of elements from one row to the next, for a matrix with contiguous rows."""
    return max((matrix_layout(v) or ("N", 0))[1], v.shape[1], 1)


def _rows_are_contiguous(v: View) -> bool:
    return (matrix_layout(v) or ("", 0))[0] == "N"


def with_contiguous_rows(x: Any) -> Any:
    """``x`` if its rows are contiguous, else a copy of it whose rows are."""
    v, _ = dense(x, "b")
    return x if _rows_are_contiguous(v) else _contiguous(v, "b").origin


def _contiguous(v: View, argument: str) -> View:
    """A copy of ``v`` with contiguous rows. ShapeError: the library of the array makes no copies."""
    copy = getattr(v.origin, "contiguous", None) or getattr(v.origin, "copy", None)
    if copy is None:
        raise ShapeError(f"{argument} has strides {v.strides}; its rows or its columns must be contiguous")
    return dense(copy(), argument)[0]


def host_arrays(b: View, c: View, beta: float) -> dict[str, Any]:
    """B and C as host arrays with contiguous rows. The values of C are copied only if ``beta`` is not 0."""
    into = as_numpy(c).reshape(c.shape)
    read = np.ascontiguousarray(into) if beta != 0 else np.empty(into.shape, into.dtype)
    return {"B": np.ascontiguousarray(as_numpy(b).reshape(b.shape)), "C": read}


def store_on_host(c: View, computed: Any) -> None:
    """Writes the result into the array of C in host memory."""
    into = as_numpy(c)
    into[...] = computed.reshape(into.shape)
