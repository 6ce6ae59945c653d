"""Tensor maps of matrices in memory or in the workspace."""

from __future__ import annotations

from ptxgen.codegen.source import TensorMap
from ptxgen.lowering.kernel_problem import KernelProblem

#: (columns, rows, leading dimension in elements, bytes from one batch item to the next); 0 bytes: all items have one
#: matrix
Matrix = tuple[int, int, int, int]


def stored(p: KernelProblem, name: str) -> Matrix:
    """Operand A or B as stored in memory."""
    x = p.operand(name.upper())
    tensor: Matrix = x.access.tensor(x.element.bytes)
    return tensor


def matrix_map(
    p: KernelProblem,
    operand: str,
    element_type: str,
    matrix: Matrix,
    size: int,
    box: tuple[int, ...],
    span: int,
    batched: bool,
    offset: int = 0,
) -> TensorMap:
    """The tensor map of ``matrix``, with boxes ``box``. ``size``: bytes of an element; ``span``: bytes of a row of a
    box; ``batched``: True if the kernel takes batches, which are a third direction."""
    columns, rows, ld, item = matrix
    extents, pitches = (columns, rows), (row_pitch(columns, ld, rows, size),)
    if not batched:
        return TensorMap(operand, element_type, extents, pitches, box, span, offset=offset)
    items = p.extents.tensor_items if item else 1
    pitch = item if items > 1 else 16  # a single item has none
    return TensorMap(operand, element_type, (*extents, items), (*pitches, pitch), (*box, 1), span, offset=offset)


def row_pitch(columns: int, ld: int, rows: int, size: int) -> int:
    """The number of bytes from one row to the next. A single row has no pitch, and gets some legal number."""
    return ld * size if rows > 1 else -(-columns * size // 16) * 16
