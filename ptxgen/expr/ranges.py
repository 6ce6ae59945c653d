"""Ranges of the values of expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ptxgen.expr.evaluate import numpy_type
from ptxgen.expr.node import Node, walk
from ptxgen.expr.value_types import type_of


@dataclass(frozen=True)
class Range:
    """The values that an expression may have. ``low``, ``high``: the least and the greatest value, infinities included;
    ``nan``: the value may be NaN."""

    low: float
    high: float
    nan: bool = False

    @property
    def finite(self) -> bool:
        """True if the value is a finite number."""
        return not self.nan and self.low > -math.inf and self.high < math.inf


def everything(type: str) -> Range:
    """The range of all values of a type."""
    t = type_of(type)
    if t.group == "predicate":
        return Range(0, 1)
    return Range(t.least, t.greatest, t.floating)


def ranges(root: Node, known: Mapping[str, Range] | None = None) -> dict[Node, Range]:
    """The range of an expression and of each of its subexpressions. ``known``: the ranges of variables by name; other
    variables have any value."""
    by_node: dict[Node, Range] = {}
    for x in walk(root):
        by_node[x] = _range(x, [by_node[y] for y in x.arguments], known or {})
    return by_node


def _range(x: Node, a: list[Range], known: Mapping[str, Range]) -> Range:
    every = everything(x.type)
    if x.op == "constant":
        value = numpy_type(x.type).type(x.value).item()
        return Range(0, 0, True) if value != value else Range(value, value)
    if x.op == "variable":
        return known.get(x.value, every)
    if x.op == "select":
        return Range(min(a[1].low, a[2].low), max(a[1].high, a[2].high), a[1].nan or a[2].nan)
    if x.op == "cast":
        return _cast(x, a[0])
    if x.op in ("min", "max", "fmin", "fmax"):
        choose = min if x.op.endswith("min") else max
        if x.op[0] == "f" and (a[0].nan or a[1].nan):  # the other operand
            return Range(min(a[0].low, a[1].low), max(a[0].high, a[1].high), a[0].nan and a[1].nan)
        return Range(choose(a[0].low, a[1].low), choose(a[0].high, a[1].high), a[0].nan or a[1].nan)
    if not type_of(x.type).floating:
        return every  # integers wrap
    if x.op == "abs":
        inner = a[0]
        low = 0.0 if inner.low <= 0 <= inner.high else min(abs(inner.low), abs(inner.high))
        return Range(low, max(abs(inner.low), abs(inner.high)), inner.nan)
    if x.op == "neg":
        return Range(-a[0].high, -a[0].low, a[0].nan)
    if x.op in ("+", "-"):
        b = a[1] if x.op == "+" else Range(-a[1].high, -a[1].low, a[1].nan)
        infinite = (a[0].high == math.inf and b.low == -math.inf) or (a[0].low == -math.inf and b.high == math.inf)
        return _outward(_sum(a[0].low, b.low, -1), _sum(a[0].high, b.high, 1), a[0].nan or b.nan or infinite)
    if x.op == "*":
        return _product(x, a)
    if x.op in ("sqrt", "exp", "exp2"):
        undefined = a[0].nan or (x.op == "sqrt" and a[0].low < 0)
        return Range(0, math.inf, undefined)
    if x.op in ("erf", "tanh"):
        return Range(-1, 1, a[0].nan)
    return every


def _sum(a: float, b: float, direction: int) -> float:
    """A bound of a sum: the lower one for ``direction`` -1, the upper one for 1. The sum of infinities of both signs is
    the infinity in that direction."""
    return direction * math.inf if a == -b and math.isinf(a) else a + b


def _outward(low: float, high: float, nan: bool) -> Range:
    """The range widened for rounded results: each finite bound other than 0 moves outward by one part in 100."""

    def moved(x: float, direction: int) -> float:
        return x if x == 0 or math.isinf(x) else x + direction * abs(x) / 100

    low, high = moved(low, -1), moved(high, 1)
    largest = 60000.0  # a larger result may be infinite in f16
    return Range(low if low > -largest else -math.inf, high if high < largest else math.inf, nan)


def _product(x: Node, a: list[Range]) -> Range:
    if x.arguments[0] is x.arguments[1]:
        largest = max(abs(a[0].low), abs(a[0].high))
        return _outward(0, largest * largest, a[0].nan)
    ends = [0.0 if p == 0 or q == 0 else p * q for p in (a[0].low, a[0].high) for q in (a[1].low, a[1].high)]
    zero = [r.low <= 0 <= r.high for r in a]
    infinite = [r.low == -math.inf or r.high == math.inf for r in a]
    undefined = (zero[0] and infinite[1]) or (zero[1] and infinite[0])
    return _outward(min(ends), max(ends), a[0].nan or a[1].nan or undefined)


def _cast(x: Node, a: Range) -> Range:
    source, to = type_of(x.arguments[0].type), type_of(x.type)
    every = everything(x.type)
    if source.group == "predicate":
        return Range(0, 1)
    if to.floating:
        return _outward(a.low, a.high, a.nan)
    if to.integer and source.integer and to.least <= a.low and a.high <= to.greatest:
        return a
    return every
