"""Matrices B and C of sparse products: their rules, and the problem that they make with a sparse matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.api import new_arrays
from ptxgen.api.arrays import View, alignment_of, as_numpy, matrix_layout, tensor
from ptxgen.api.sparse_matrix import Csr
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.dtypes import Dtype

TYPES = ("f16", "bf16", "f32", "f64")


def check_dtype(a: Csr) -> None:
    """DtypeError: sparse products are not computed in the type of a."""
    if a.values.dtype.name not in TYPES:
        raise DtypeError(f"a has dtype {a.values.dtype}; it must be one of {', '.join(TYPES)}")


def dense(x: Any, argument: str) -> tuple[View, bool]:
    """(a matrix, or a vector as a matrix of one column; True for a vector). ShapeError: it has other dimensions."""
    v = tensor(x, argument)
    vector = len(v.shape) == 1
    if vector:
        v = replace(v, shape=(*v.shape, 1), strides=(*v.strides, 0))
    if len(v.shape) != 2:
        raise ShapeError(f"{argument} has shape {v.shape}; it must have 1 or 2 dimensions")
    return replace(v, strides=tuple(s if n != 1 else 0 for n, s in zip(v.shape, v.strides, strict=True))), vector


def check_b(shape: tuple[int, int], kind: Dtype, b: View, **arrays: View) -> None:
    """DtypeError, ShapeError, InputError: a, of this shape, dtype and arrays, and b cannot be multiplied."""
    if kind is not b.dtype:
        raise DtypeError(f"a is {kind} and b is {b.dtype}; they must be the same")
    if shape[1] != b.shape[0]:
        raise ShapeError(f"a has {shape[1]} columns and b has {b.shape[0]} rows; they must be as many")
    for name, v in arrays.items():
        if v.host != b.host:
            raise InputError(f"{name} and b must be in the same memory: both in host memory, or both on the GPU")


def result_for(m: int, b: View, vector: bool, out: Any, beta: float) -> tuple[Any, View]:
    """(the array of the result, its view): ``out``, or a new array. ``vector``: it has one dimension, as b. ShapeError,
    DtypeError, InputError: ``out`` cannot store the product."""
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
    if c.host != b.host:
        raise InputError("out must be in the same memory as a and b")
    if not c.host and matrix_layout(c) is None:
        raise ShapeError(f"out has strides {c.strides}; its rows or its columns must be contiguous")
    return out, c


def with_b_and_c(problem: Spmm, b: View, c: View) -> tuple[Spmm, View]:
    """The problem with the layouts, leading dimensions and alignments of b and c, and b: a copy, if neither its rows
    nor its columns are contiguous."""
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


def with_contiguous_rows(x: Any) -> Any:
    """A matrix of an array library, or a copy of it whose rows are contiguous."""
    v, _ = dense(x, "b")
    return x if matrix_layout(v) == ("N", v.strides[0]) else _contiguous(v, "b").origin


def _contiguous(v: View, argument: str) -> View:
    """A copy with contiguous rows. ShapeError: the library of the array makes none."""
    copy = getattr(v.origin, "contiguous", None) or getattr(v.origin, "copy", None)
    if copy is None:
        raise ShapeError(f"{argument} has strides {v.strides}; its rows or its columns must be contiguous")
    return dense(copy(), argument)[0]


def host_arrays(b: View, c: View, beta: float) -> dict[str, Any]:
    """B and C in host memory, with contiguous rows; C without values, unless they are read."""
    into = as_numpy(c).reshape(c.shape)
    read = np.ascontiguousarray(into) if beta != 0 else np.empty(into.shape, into.dtype)
    return {"B": np.ascontiguousarray(as_numpy(b).reshape(b.shape)), "C": read}


def store_on_host(c: View, computed: Any) -> None:
    """Writes the result into the array of C in host memory."""
    into = as_numpy(c)
    into[...] = computed.reshape(into.shape)
