"""Arrays with items first: how many products they make, and where such a batch is one larger product."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.api.arrays import View
from ptxgen.errors import ShapeError
from ptxgen.problem.base import EXTENT_LIMIT

#: stages of an epilogue that tell rows of an item apart, or columns
BY_ROWS, BY_COLUMNS = {"scale_rows", "bias_row"}, {"scale_rows", "bias_column"}


def items(a: View, b: View) -> tuple[int, ...]:
    """The items of a·b: none where both are matrices; one matrix, or a lone item, serves all items of the other.
    ShapeError: a and b have different numbers of them."""
    counts = [v.shape[0] for v in (a, b) if len(v.shape) == 3]
    several = {n for n in counts if n != 1}
    if len(several) > 1:
        raise ShapeError(f"a has {a.shape[0]} items and b {b.shape[0]}; they must have as many, or one of them one")
    return (several.pop() if several else 1,) if counts else ()


def between(v: View) -> int:
    """Elements from one item to the next; 0 where there is one for all."""
    return v.strides[0] if len(v.shape) == 3 and v.shape[0] != 1 else 0


def transposed(v: View) -> View:
    """The transpose, of each item."""
    return replace(v, shape=(*v.shape[:-2], *v.shape[:-3:-1]), strides=(*v.strides[:-2], *v.strides[:-3:-1]))


def folded(a: View, b: View, c: View, stages: tuple[str, ...]) -> tuple[View, View, View]:
    """The same product with the items' rows (or columns) one below the other, where the other operand is one for all
    and nothing tells the rows of different items apart; else what was given."""
    if len(c.shape) == 3 and c.shape[0] > 1:
        if not between(b) and not BY_ROWS & set(stages) and (rows := (_stacked(a), _stacked(c))) and all(rows):
            return rows[0] or a, _one(b), rows[1] or c
        columns = _stacked(transposed(b)), _stacked(transposed(c))
        if not between(a) and not BY_COLUMNS & set(stages) and all(columns):
            return _one(a), transposed(columns[0] or b), transposed(columns[1] or c)
    return a, b, c


def _one(v: View) -> View:
    return replace(v, shape=v.shape[-2:], strides=v.strides[-2:])


def _stacked(v: View) -> View | None:
    """The rows of all items as one matrix, if they are equally far apart and contiguous."""
    if len(v.shape) != 3:
        return None
    (count, rows, columns), (item, row, along) = v.shape, v.strides
    row = item if rows == 1 else row
    whole = along == 1 or columns == 1
    if not whole or item != rows * row or row < columns or count * rows >= EXTENT_LIMIT:
        return None
    return replace(v, shape=(count * rows, columns), strides=(row, along))
