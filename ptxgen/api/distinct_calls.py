"""Calls of tasks that list the distinct pairs of keys: one launch marks the groups that have a pair, another lists
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ptxgen.api import new_arrays, selection, task_call
from ptxgen.api.arrays import View, tensor
from ptxgen.operations.task.distinct_pairs import MARKS, listing, marking
from ptxgen.operations.task.program import Program


class DistinctKeys(NamedTuple):
    """Distinct pairs of keys, in the order of (row, column). ``rows``, ``columns``: the row keys and the column keys of
    these pairs."""

    rows: Any
    columns: Any


def distinct(
    program: Program, arrays: Mapping[str, View], scalars: Mapping[str, float], own: task_call.Options
) -> DistinctKeys:
    """The distinct pairs of keys of a program. The arguments are those of ``task_call.call``.

    ShapeError, DtypeError, InputError: an argument breaks a rule."""
    own.recording.refuse()  # the list has another length in each call
    marks = task_call.call(marking(program), arrays, scalars, None, {}, own)
    x = tensor(marks, MARKS)
    empty = task_call.without_elements(listing(), marks, own.recording, *x.shape)
    in_order = selection.Options(sorted=True)
    first_pairs = selection.select(listing(), {**empty, MARKS: x}, {}, {}, in_order, task_call.Options())
    origin = next(iter(arrays.values())).origin
    return DistinctKeys(new_arrays.result_of(first_pairs.i, origin), new_arrays.result_of(first_pairs.j, origin))
