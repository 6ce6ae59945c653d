"""Conditions of index sets for ranges of indices: whether a tile may have a pair of the set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptxgen.expr.node import Node, constant, node
from ptxgen.expr.value_types import PRED, type_of

INDEX = "s32"  #: the type of indices
LARGEST = (1 << 31) - 1
#: upper limit of indices and extents in sums: above it, the sum of an index and a constant could wrap
LIMIT = LARGEST - (1 << 16)

_COMPLEMENTS = {"<": "<=", "<=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class _Interval:
    """The values of an expression, from ``low`` to ``high``, which are expressions themselves. ``least``, ``most``:
    numbers between which ``low`` and ``high`` are for all indices."""

    low: Node
    high: Node
    least: int
    most: int


def possible(condition: Node, ranges: Mapping[str, tuple[Node, Node]]) -> Node | None:
    """A condition on the ends of ranges, which is true if values of the variables in these ranges may satisfy
    ``condition``. ``ranges``: by name, the least and the greatest value of each index or array element. None: no such
    condition is known."""
    return _possible(condition, ranges, False)


def _possible(x: Node, ranges: Mapping[str, tuple[Node, Node]], negated: bool) -> Node | None:
    if x.op == "not":
        return _possible(x.arguments[0], ranges, not negated)
    if x.op in ("&", "|") and x.type == PRED:
        first, second = (_possible(y, ranges, negated) for y in x.arguments)
        both = (x.op == "&") != negated
        if first is None or second is None:
            return (first or second) if both else None
        return node("&" if both else "|", PRED, first, second)
    if x.op not in _COMPLEMENTS:
        return None
    a, b = (_interval(y, ranges) for y in x.arguments)
    if a is None or b is None:
        return None
    op = x.op
    if negated:
        op = _COMPLEMENTS[op]
        if op in ("<", "<="):
            a, b = b, a
    if op == "!=":
        return None
    if op == "==":
        return node("&", PRED, node("<=", PRED, a.low, b.high), node("<=", PRED, b.low, a.high))
    return node(op, PRED, a.low, b.high)


def _interval(x: Node, ranges: Mapping[str, tuple[Node, Node]]) -> _Interval | None:
    """The values of an integer expression; None if they are not known, or may wrap."""
    t = type_of(x.type)
    if not t.integer:
        return None
    if x.op == "constant":
        return _Interval(x, x, x.value, x.value)
    if x.op == "variable":
        interval, element = ranges.get(x.value), "[" in x.value
        if interval is None:
            return None
        return _Interval(*interval, int(t.least), int(t.greatest)) if element else _Interval(*interval, 0, LIMIT)
    if x.op == "cast":
        inner = _interval(x.arguments[0], ranges)
        if inner is None or inner.least < t.least or inner.most > t.greatest:
            return None
        low, high = (node("cast", x.type, end) for end in (inner.low, inner.high))
        return _Interval(low, high, inner.least, inner.most)
    if x.type != INDEX:
        return None
    if x.op not in ("+", "-", "neg", "abs"):
        return None
    parts = [_interval(y, ranges) for y in x.arguments]
    known = [y for y in parts if y is not None]
    if len(known) < len(parts):
        return None
    if x.op == "abs":
        made = _absolute(known[0])
    elif x.op == "neg":
        made = _negated(known[0])
    else:
        a, b = known
        made = _sum(a, b if x.op == "+" else _negated(b))
    return made if made.least >= -LARGEST and made.most <= LARGEST else None


def _sum(a: _Interval, b: _Interval) -> _Interval:
    low, high = node("+", INDEX, a.low, b.low), node("+", INDEX, a.high, b.high)
    return _Interval(low, high, a.least + b.least, a.most + b.most)


def _negated(a: _Interval) -> _Interval:
    return _Interval(node("neg", INDEX, a.high), node("neg", INDEX, a.low), -a.most, -a.least)


def _absolute(a: _Interval) -> _Interval:
    opposite = _negated(a)
    low = node("max", INDEX, constant(0, INDEX), node("max", INDEX, a.low, opposite.low))
    high = node("max", INDEX, a.high, opposite.high)
    return _Interval(low, high, 0, max(a.most, opposite.most))
