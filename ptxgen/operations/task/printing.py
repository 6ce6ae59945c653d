"""Prints typed expressions in the language of tasks. The text has the same nodes when it is parsed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ptxgen.expr.node import Node
from ptxgen.expr.value_types import PRED, type_of

#: operator -> its precedence; operands of the same precedence are grouped from the left
PRECEDENCE = {
    **dict.fromkeys(("<", "<=", "==", "!="), 4),
    **{"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10},
}
CHOICE, NOT, COMPARISON, UNARY, ATOM = 0, 3, 4, 11, 12
_EXACT_INTEGERS = {"f64": 2**53, "f32": 2**24, "f16": 2**11, "bf16": 2**8}


def printed(root: Node, names: Mapping[Node, str] | None = None, limit: int = 0) -> str:
    """The text of an expression, without spaces. ``names``: the names of parts that were defined before; ``limit``:
    after so many printed nodes, the others become "…"; 0: there is no limit."""
    return _Printer(names or {}, limit).text(root, CHOICE)


def number(value: float | int, type: str) -> str:
    """The shortest text of a constant that is read as ``value`` where a value of ``type`` is expected."""
    if type == PRED:
        return "true" if value else "false"
    if not type_of(type).floating:
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == math.floor(value) and abs(value) < _EXACT_INTEGERS[type] and (value or math.copysign(1, value) > 0):
        return str(int(value))
    return str(np.float32(value)) if type == "f32" else repr(float(value))


class _Printer:
    def __init__(self, names: Mapping[Node, str], limit: int) -> None:
        self._names, self._limit, self._printed = names, limit, 0

    def text(self, x: Node, least: int, bare: bool = False) -> str:
        """The text of an operand, in parentheses if its precedence is less than ``least``. ``bare``: True if another
        operand determines the type of a number."""
        if x in self._names:
            return self._names[x]
        self._printed += 1
        if 0 < self._limit < self._printed:
            return "…"
        text, precedence = self._node(x, bare)
        return text if precedence >= least else f"({text})"

    def _node(self, x: Node, bare: bool) -> tuple[str, int]:
        arguments = x.arguments
        if x.op == "constant":
            text = number(x.value, x.type)
            if bare or x.type == PRED:
                return text, UNARY if text.startswith("-") else ATOM
            return f"{x.type}({text})", ATOM
        if x.op == "variable":
            return str(x.value), ATOM
        if x.op == "cast":
            return f"{x.type}({self.text(arguments[0], CHOICE)})", ATOM
        if x.op == "select":
            test, *arms = arguments
            typed = any(y.op != "constant" for y in arms)
            yes, no = (self.text(y, CHOICE, typed) for y in arms)
            return f"{self.text(test, CHOICE + 1)}?{yes}:{no}", CHOICE
        if x.op == "not":
            return f"not({self.text(arguments[0], CHOICE)})", NOT
        if x.op in ("neg", "~"):
            return f"{'-' if x.op == 'neg' else '~'}{self.text(arguments[0], UNARY)}", UNARY
        typed = any(y.op != "constant" for y in arguments)
        if x.op not in PRECEDENCE:
            return f"{x.op}({','.join(self.text(y, CHOICE, typed) for y in arguments)})", ATOM
        mine = PRECEDENCE[x.op]
        left, right = arguments
        first = self.text(left, mine + (mine == COMPARISON), typed and x.op not in ("<<", ">>"))
        return f"{first}{x.op}{self.text(right, mine + 1, typed)}", mine
