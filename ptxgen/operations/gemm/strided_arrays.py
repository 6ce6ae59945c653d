"""Operands of GEMMs in memory with leading dimensions and batch strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.reference import Array

A, B, C = range(3)


def stored_strides(p: Gemm, operand: int) -> tuple[int, ...]:
    """The batch stride, only for batches, and the leading dimension of an operand, in elements."""
    ld, stride = (p.lda, p.ldb, p.ldc)[operand], p.strides[operand]
    return (ld,) if p.batch == 1 else (stride, ld)


def span(p: Gemm, operand: int) -> int:
    """The size of an operand in memory in elements. The last row counts as a full leading dimension."""
    *items, rows, _ = p.stored[operand]
    *outer, ld = stored_strides(p, operand)
    return rows * ld + sum((n - 1) * s for n, s in zip(items, outer, strict=True)) if rows else 0


def elements(p: Gemm, operand: int, memory: Array) -> Array:
    """The operand as a strided view of contiguous ``memory``, which begins with the first element of the operand."""
    return strided(memory, p.stored[operand], (*stored_strides(p, operand), 1))


def strided(memory: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of contiguous ``memory`` with ``strides`` in elements. NumPy's ``as_strided`` does not support fp8."""
    if 0 in shape:
        return np.empty(shape, memory.dtype)
    size = memory.dtype.itemsize
    flat = memory.reshape(-1).view(np.uint8)
    return np.ndarray(shape, memory.dtype, flat, 0, [s * size for s in strides])


def extent(p: Gemm, operand: int) -> int:
    """The number of elements of memory from the first to the last element of an operand."""
    shape, strides = p.stored[operand], (*stored_strides(p, operand), 1)
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def store_operand(p: Gemm, operand: int, array: Array, fill: Any = 0) -> Array:
    """``array`` stored with the strides of the operand, with ``fill`` in the gaps. The result has the shape (rows,
    leading dimension) without a batch; for a batch it is flat. Items that share memory have the values of the last
    item."""
    out = np.full(span(p, operand), fill, array.dtype)
    elements(p, operand, out)[...] = array
    return out if p.batch != 1 else out.reshape(array.shape[0], -1) if out.size else array


def stored_epilogue_operands(p: Gemm, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The block scales and the epilogue operands, as stored. The elementwise operands of a batch have the strides of
    C."""
    moved = p.elementwise_operands if p.batch != 1 else ()
    names = (*p.scale_shapes, *p.epilogue_operands)
    stored = {n: store_operand(p, C, arrays[n]) if n in moved else arrays[n] for n in names}
    if p.stores_sums and p.batch != 1:
        stored["sums"] = store_operand(p.of_sums(), C, arrays["sums"], p.output.poison)
    return stored


def padded(p: Gemm, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """A, B and C stored with the problem's strides, with poisoned gaps; and the block scales and epilogue operands, as
    stored."""
    elements = zip("ABC", p.types, strict=True)
    stored = {name: store_operand(p, i, arrays[name], element.poison) for i, (name, element) in enumerate(elements)}
    return stored | stored_epilogue_operands(p, arrays)
