"""Parses and prints arguments with one number per spatial axis: stride, padding, dilation."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ptxgen.arguments import is_integer, plain, shown
from ptxgen.errors import ShapeError
from ptxgen.problem.base import EXTENT_LIMIT

#: one number for all axes, or one per axis; padding also as (begin, end) pairs per axis
PerAxis = int | Sequence[int]


def per_axis(name: str, value: Any, depth: bool, count: int = 1, rest: int = 1) -> tuple[int, ...]:
    """``value`` as ``count`` integers, at least ``rest``, for each of depth, height and width. One integer applies to
    every axis; a sequence applies to the last axes, and the other axes get ``rest``. ShapeError: ``value`` has another
    form."""
    given = plain(value)
    values = given if isinstance(given, tuple) else (given,) * (3 if depth else 2)
    if count == 2 and len(values) in (1, 2, 3):
        values = tuple(x for x in values for _ in (0, 1))
    if len(values) not in (count, 2 * count, 3 * count) or not all(
        is_integer(x, rest, EXTENT_LIMIT - 1) for x in values
    ):
        raise ShapeError(
            f"{name} is {shown(value)}; it must be an integer from {rest} to {EXTENT_LIMIT - 1}, or one per"
            " spatial axis"
        )
    return (rest,) * (3 * count - len(values)) + tuple(map(operator.index, values))


def per_axis_text(values: Sequence[Any], deep: bool) -> str:
    """The text of numbers, or pairs, along depth, height and width, as the text of a shape has it; "" for the
    default."""
    pairs = [x if isinstance(x, tuple) else (x,) for x in values]
    if all(x == (1,) or not any(x) for x in pairs):
        return ""
    some = pairs if deep or pairs[0] not in ((1,), (0, 0)) else pairs[1:]
    if all(len(set(x)) == 1 for x in some):
        some = [x[:1] for x in some]
    if len(set(some)) == 1 and len(some) == 2 + deep and len(some[0]) == 1:
        some = some[:1]
    return "x".join(str(n) for x in some for n in x)
