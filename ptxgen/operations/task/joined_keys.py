"""Finds the arrays of keys that a natural join compares: ``when (x[i] == y[j])``."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.expr.node import Node
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import axes_of


def joined_keys(when: Node | None) -> tuple[Node, Node] | None:
    """The elements x[i] and y[j] of the first condition x[i] == y[j] on integers, among the conditions that ``when``
    combines by ``and``; None: there is no such condition."""
    for x in _conditions(when):
        if x.op != "==":
            continue
        elements = [exact_source(y) for y in x.arguments]
        by_axes = {axes_of(str(y.value)): y for y in elements if y.op == "variable" and type_of(y.type).integer}
        if by_axes.keys() == {("i",), ("j",)}:
            return by_axes["i",], by_axes["j",]
    return None


def _conditions(x: Node | None) -> Iterator[Node]:
    """The conditions that a condition combines by ``and``, in their order."""
    if x is not None and x.op == "&" and x.type == PRED:
        for y in x.arguments:
            yield from _conditions(y)
    elif x is not None:
        yield x


def exact_source(x: Node) -> Node:
    """The operand of ``x`` if ``x`` is a cast between integers that keeps every value, else ``x``."""
    if x.op != "cast":
        return x
    source, to = type_of(x.arguments[0].type), type_of(x.type)
    exact = source.integer and to.integer and to.least <= source.least and source.greatest <= to.greatest
    return x.arguments[0] if exact else x
