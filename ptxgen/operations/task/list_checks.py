"""Compares the lists of selected results with the oracle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.expr.node import variable
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.task.oracle import Listed, difference
from ptxgen.operations.task.program import Select
from ptxgen.problem.reference import Array


def list_error(output: Select, expected: Listed, out: Mapping[str, Array]) -> str:
    """The fault of the lists and the count in ``out``; empty if they are correct. List elements without a result must
    have all bits set."""
    count = int(out[SelectValues.COUNT][0])
    surely = int((expected.certain & expected.holds).sum())
    if not surely <= count <= surely + int((~expected.certain).sum()):
        return f"the count is {count}; it must be {surely}, or that with some of {(~expected.certain).sum()}"
    lists = [out[name] for name in list_names(len(output.values))]
    stored = min(count, len(lists[0]))
    if any((x[stored:].view(np.uint8) != 0xFF).any() for x in lists):
        return "an element after the last result has changed"
    if stored == count:
        return difference(expected, tuple(x[:stored] for x in lists))
    return _part_error(output, expected, [x[:stored] for x in lists])


def _part_error(output: Select, expected: Listed, lists: list[Array]) -> str:
    """The fault of lists that have only some of the results, if the lists have i and j; empty if they are correct."""
    axes = [next((x for x, v in zip(lists, output.values, strict=True) if v is variable(a, "s32")), None) for a in "ij"]
    if any(x is None for x in axes):
        return ""
    places = {pair: n for n, pair in enumerate(zip(expected.i.tolist(), expected.j.tolist(), strict=True))}
    pairs = list(zip(*(x.tolist() for x in axes if x is not None), strict=True))
    if len(set(pairs)) < len(pairs):
        return "a pair is twice in the list"
    if not set(pairs) <= set(places):
        return "a pair is in the list that is not selected"
    at = np.array([places[pair] for pair in pairs], int)
    values, errors = ([x[at] for x in each] for each in (expected.values, expected.errors))
    sure = np.ones(len(at), bool)
    part = Listed(tuple(values), tuple(errors), expected.i[at], expected.j[at], sure, sure)
    return difference(part, tuple(lists))
