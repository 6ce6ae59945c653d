"""Batched matrices: batch extents and strides, and folding of a batch into one larger GEMM."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.api.arrays import View
from ptxgen.errors import ShapeError
from ptxgen.problem.base import EXTENT_LIMIT

#: epilogue operations whose operand has one element per row of an item, and those with one per column
ROW_OPERATIONS, COLUMN_OPERATIONS = {"scale_rows", "bias_row"}, {"scale_rows", "bias_column"}


def batch_shape(a: View, b: View) -> tuple[int, ...]:
    """The batch extents of a·b: empty if both are matrices. A matrix or a batch of one is broadcast.

    ShapeError: a and b have different batch extents, neither of them 1.
    """
    counts = [v.shape[0] for v in (a, b) if len(v.shape) == 3]
    several = {n for n in counts if n != 1}
    if len(several) > 1:
        raise ShapeError(
            f"a has a batch of {a.shape[0]} and b one of {b.shape[0]}; they must be equal, or one of them 1"
        )
    return (several.pop() if several else 1,) if counts else ()


def batch_stride(v: View) -> int:
    """The batch stride in elements; 0 if all items use one matrix."""
    return v.strides[0] if len(v.shape) == 3 and v.shape[0] != 1 else 0


def transposed(v: View) -> View:
    """The transpose of each matrix."""
    return replace(v, shape=(*v.shape[:-2], *v.shape[:-3:-1]), strides=(*v.strides[:-2], *v.strides[:-3:-1]))


def fold_batch(a: View, b: View, c: View, ops: tuple[str, ...]) -> tuple[View, View, View]:
    """Folds a batch into one GEMM by stacking the rows (or columns) of all items, if possible; else returns ``a``,
    ``b``, ``c`` as they are.

    Folding rows requires that all items use the same B and that no epilogue operation has operands per row; folding
    columns requires the same A and no operands per column.
    """
    if len(c.shape) == 3 and c.shape[0] > 1:
        if (
            not batch_stride(b)
            and not ROW_OPERATIONS & set(ops)
            and (rows := (_stack_rows(a), _stack_rows(c)))
            and all(rows)
        ):
            return rows[0] or a, _single_matrix(b), rows[1] or c
        columns = _stack_rows(transposed(b)), _stack_rows(transposed(c))
        if not batch_stride(a) and not COLUMN_OPERATIONS & set(ops) and all(columns):
            return _single_matrix(a), transposed(columns[0] or b), transposed(columns[1] or c)
    return a, b, c


def _single_matrix(v: View) -> View:
    return replace(v, shape=v.shape[-2:], strides=v.strides[-2:])


def _stack_rows(v: View) -> View | None:
    """The rows of all items as one matrix. None: they do not have a common leading dimension."""
    if len(v.shape) != 3:
        return None
    (count, rows, columns), (item, row, along) = v.shape, v.strides
    row = item if rows == 1 else row
    whole = along == 1 or columns == 1
    if not whole or item != rows * row or row < columns or count * rows >= EXTENT_LIMIT:
        return None
    return replace(v, shape=(count * rows, columns), strides=(row, along))
