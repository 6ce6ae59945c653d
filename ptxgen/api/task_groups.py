"""The extents of task results: those in groups, and those with one axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxgen.api import drivers, streams
from ptxgen.api.arrays import View, as_numpy, tensor
from ptxgen.arguments import shown
from ptxgen.errors import InputError, ShapeError
from ptxgen.expr.node import Node
from ptxgen.operations.task.assembling import array_of
from ptxgen.operations.task.program import AXES, Aggregate, Output, RowReduce, Scatter
from ptxgen.problem.base import EXTENT_LIMIT


def result_shape(output: Output, extents: Mapping[str, int], groups: tuple[int, int] | None) -> tuple[int, ...]:
    """The shape of the result of an output."""
    if isinstance(output, RowReduce):
        return (extents[output.axis],)
    return groups or (extents["i"], extents["j"])


def extents_of(
    output: Output, arrays: Mapping[str, View], extents: Mapping[str, int], out: Any, given: Any
) -> tuple[int, int] | None:
    """Rows and columns of a result in groups; None: the output has no keys. ``given``: the extents that the caller
    gives.

    ShapeError, InputError: the extents are not two integers, or the keys that determine them cannot be read."""
    if not isinstance(output, Aggregate | Scatter):
        if given is not None:
            raise InputError(f"groups is {shown(given)}; it must be None where no keys select elements of the result")
        return None
    if given is not None:
        if (
            not isinstance(given, tuple | list)
            or len(given) != 2
            or not all(isinstance(n, int | np.integer) and n >= 0 for n in given)
        ):
            raise ShapeError(f"groups is {shown(given)}; it must be (G, H), the rows and columns of the result")
        return _room("groups", tuple(map(int, given)), extents)
    if out is not None:
        shape = tensor(out, "out").shape
        if len(shape) != 2:
            raise ShapeError(f"out has shape {shape}; it must have two dimensions, the groups of rows and of columns")
        return _room("out", shape, extents)
    needed = _needed(output.row, arrays, extents), _needed(output.column, arrays, extents)
    other = ', or keys="any", which takes any integers' if isinstance(output, Aggregate) else ""
    if least := next((f"{name} has the key {n}" for name, n, _ in needed if n < 0), ""):
        raise InputError(f"{least}; keys must be 0 or more{other}")
    rows, columns = (extent for _, _, extent in needed)
    if rows * columns >= EXTENT_LIMIT:
        raise InputError(
            f"the greatest keys of {' and '.join(name for name, _, _ in needed)} give a result of {rows}×{columns}"
            f" elements; it must have less than {EXTENT_LIMIT}: give groups=(G, H){other}"
        )
    return rows, columns


def _room(name: str, groups: tuple[int, ...], extents: Mapping[str, int]) -> tuple[int, int]:
    """``groups`` as a pair. ShapeError: there are pairs (i, j), and no group."""
    if 0 in groups and extents["i"] and extents["j"]:
        what = "is" if name == "groups" else "has shape"
        raise ShapeError(
            f"{name} {what} {groups}; both extents must be 1 or more, because there are {extents['i']}×{extents['j']}"
            " pairs (i, j)"
        )
    return groups[0], groups[1]


def _needed(key: Node, arrays: Mapping[str, View], extents: Mapping[str, int]) -> tuple[str, int, int]:
    """The name of a key, its least value, and the number of groups that it needs, one more than its largest value;
    these are read from the array. InputError: the array cannot be read."""
    if key.value in AXES:
        return str(key.value), 0, extents[key.value]
    name = array_of(key.value)
    v = arrays[name]
    if 0 in v.shape:
        return name, 0, 0
    if v.host:
        values = as_numpy(v)
        least, largest = int(values.min()), int(values.max())
    else:
        on = drivers.driver_of(v)
        if streams.is_captured(streams.current_stream(v.origin), on):
            raise InputError(
                f"groups is None; it must be given while a stream is captured, where {name} cannot be read"
            )
        if not hasattr(v.origin, "max"):
            raise InputError(f"groups is None; it must be given, because the library of {name} finds no largest key")
        least, largest = int(v.origin.min()), int(v.origin.max())
    return name, least, largest + 1
