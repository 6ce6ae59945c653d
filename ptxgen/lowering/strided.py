"""The access to matrices with leading dimensions, and products of such matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import (
    STRIDED,
    GemmExtents,
    KernelProblem,
    MatrixAccess,
    Operand,
    array_of,
    at_least_one,
)
from ptxgen.lowering.sink import StoreGated, StoreTile, is_gated
from ptxgen.problem import dtypes
from ptxgen.problem.base import COMPUTE_MODES, OUT_DTYPES, arithmetic_dtype

#: the value of a batch stride for items that follow each other without a gap
CONTIGUOUS = -1


@dataclass(frozen=True)
class Strided(MatrixAccess):
    """The access to a matrix with a leading dimension. ``stride`` is 0 if there is one item."""

    capability: ClassVar[str] = STRIDED


def aligned_access(aligned: Any, columns: Any, ld: Any, stride: Any, size: int) -> Any:
    """The widest access, in elements, that is aligned in every row and item of a matrix. ``aligned``: alignment of the
    matrix in bytes; ``columns``: length of a row; ``ld``: elements from one row to the next; ``stride``: elements from
    one item to the next; ``size``: bytes of an element."""
    bits = 16 | aligned | columns * size | ld * size | stride * size
    return (bits & -bits) // size  # the lowest bit is the greatest power of two that divides all


def strided(rows: Any, columns: Any, ld: Any, stride: Any, aligned: Any, kmajor: bool, size: int) -> Strided:
    """The access to a matrix by the widest vectors that are aligned in all its rows and items. ``size``: bytes of an
    element."""
    return Strided(kmajor, rows, columns, ld, stride, aligned, aligned_access(aligned, columns, ld, stride, size))


def types_text(dtype: str, dtype_b: str = "") -> str:
    """The types of A and B in the name of a kernel, once if they are the same."""
    return "_".join(dict.fromkeys((dtype, dtype_b or dtype)))


def matrix_product(
    m: Any,
    n: Any,
    k: Any,
    layout: str = "NN",
    dtype: str = "f32",
    compute: str = "",
    *,
    out: str = "",
    ld: tuple[Any, Any, Any] = (None, None, None),
    aligned: tuple[Any, Any, Any] = (16, 16, 16),
    batch: Any = 1,
    strides: tuple[Any, Any, Any] = (CONTIGUOUS, CONTIGUOUS, CONTIGUOUS),
    epilogue: str = "",
    deterministic: bool = False,
    swapped: bool = False,
    dtype_b: str = "",
    problem_type: type[KernelProblem] = KernelProblem,
) -> KernelProblem:
    """The kernel problem C[M,N] = alpha · op(A)[M,K] · op(B)[K,N] + beta · C for matrices with leading dimensions.
    Numbers may be integers, NumPy columns or symbols; arguments have the meaning of the fields of ``Gemm``.
    ``swapped``: True if A is the second array of the call; ``dtype_b``: the type of B, empty: that of A."""
    element, output = dtypes.dtype(dtype), dtypes.dtype(out or OUT_DTYPES[dtype][0])
    types = element, dtypes.dtype(dtype_b or dtype), output
    compute = compute or COMPUTE_MODES[dtype][0]
    a, b = layout[0] == "N", layout[1] == "T"
    shapes = ((m, k) if a else (k, m), (n, k) if b else (k, n), (m, n))
    operands, shared = [], []
    for name, each, kmajor, (rows, columns), pitch, at, step in zip(
        "ABC", types, (a, b, True), shapes, ld, aligned, strides, strict=True
    ):
        row = at_least_one(columns) if pitch is None else pitch
        stride = 0 if batch <= 1 else rows * row if step == CONTIGUOUS else step
        access = strided(rows, columns, row, stride, at, kmajor, each.bytes)
        operands.append(Operand(name, each.name, access, array_of(name, swapped)))
        shared.append(1 if batch > 1 and step == 0 else batch)
    return problem_type(
        f"gemm_{types_text(dtype, dtype_b)}_{layout.lower()}",
        GemmExtents(m, n, k, batch),
        tuple(operands[:2]),
        tuple(operands[2:]),
        compute,
        (StoreGated if is_gated(epilogue) else StoreTile)(
            output.name, arithmetic_dtype(compute, output.name).name, epilogue
        ),
        deterministic=deterministic,
        moved=(types[0].bytes * shared[0] * m + types[1].bytes * shared[1] * n) * k + output.bytes * batch * m * n,
    )
