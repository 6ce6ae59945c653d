"""Reads the expressions of a text: computes the value of each part of the syntax tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxgen.expr.node import constant
from ptxgen.expr.value_types import PRED
from ptxgen.operations.task.language.scope import Scope, instead
from ptxgen.operations.task.typed import (
    CAST_TYPES,
    FUNCTIONS,
    Number,
    Value,
    binary,
    both,
    call,
    cast,
    choice,
    unary,
)

#: node of the syntax tree -> operator
BINARY = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "bit_or_": "|",
    "bit_xor_": "^",
    "bit_and_": "&",
}


class Expressions:
    """Computes the values of expressions in a scope, which knows their names."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def value(self, x: Any) -> Value:
        with self.scope.at(x):
            read: Callable[[Any], Value] = getattr(self, f"read_{x.data}", self.operator)
            return read(x)

    def operator(self, x: Any) -> Value:
        a, b = (self.value(y) for y in x.children)
        return binary(BINARY[x.data], a, b)

    def read_group(self, x: Any) -> Value:
        return self.value(x.children[0])

    def read_pair(self, x: Any) -> Value:
        raise self.scope.fail(x, "a pair is no value; only argmin and argmax have a pair, (value, k)")

    def read_choice(self, x: Any) -> Value:
        test, yes, no = (self.value(y) for y in x.children)
        return choice(test, yes, no)

    def read_or_(self, x: Any) -> Value:
        return both("|", *(self.value(y) for y in x.children))

    def read_and_(self, x: Any) -> Value:
        return both("&", *(self.value(y) for y in x.children))

    def read_not_(self, x: Any) -> Value:
        return unary("not", self.value(x.children[0]))

    def read_compare(self, x: Any) -> Value:
        left, op, right = x.children
        if left.data == "compare":
            raise self.scope.fail(op, f"comparisons are chained; write a {left.children[1]} b and b {op} c")
        return binary(str(op), self.value(left), self.value(right))

    def read_shifted(self, x: Any) -> Value:
        left, op, right = x.children
        return binary(str(op), self.value(left), self.value(right))

    def read_negative(self, x: Any) -> Value:
        return unary("neg", self.value(x.children[0]))

    def read_complement(self, x: Any) -> Value:
        return unary("~", self.value(x.children[0]))

    def read_number(self, x: Any) -> Value:
        text = str(x.children[0])
        if text[:2] in ("0x", "0X"):
            number: int | float = int(text, 16)
        elif text.isdigit():
            number = int(text) if len(text) <= 20 else 1 << 64
        else:
            return Number(float(text))
        if number >= 1 << 64:
            raise self.scope.fail(x, "the integer has more than 64 bits; write a float, with a point")
        return Number(number)

    def read_infinity(self, x: Any) -> Value:
        return Number(float("inf"))

    def read_nan(self, x: Any) -> Value:
        return Number(float("nan"))

    def read_true(self, x: Any) -> Value:
        return constant(True, PRED)

    def read_false(self, x: Any) -> Value:
        return constant(False, PRED)

    def read_call(self, x: Any) -> Value:
        name, arguments = x.children[0], [y for y in x.children[1].children if y is not None]
        if name in CAST_TYPES:
            if len(arguments) != 1:
                raise self.scope.fail(name, f"the cast {name} has {len(arguments)} arguments; it must have one")
            return cast(self.value(arguments[0]), str(name))
        if name not in FUNCTIONS:
            near = self.scope.near(name, (*FUNCTIONS, *CAST_TYPES))
            raise self.scope.fail(
                name,
                f"{name} is no function; it must be one of {', '.join(FUNCTIONS)}, or a type{instead(near)}",
            )
        return call(str(name), tuple(self.value(y) for y in arguments))

    def read_chosen(self, x: Any) -> Value:
        return call("where", tuple(self.value(y) for y in x.children[0].children if y is not None))

    def read_name(self, x: Any) -> Value:
        return self.scope.named(x.children[0])

    def read_index(self, x: Any) -> Value:
        name, arguments = x.children
        indices = [y for y in arguments.children if y is not None]
        for y in indices:
            if y.data == "index":
                raise self.scope.fail(
                    y,
                    f"the index is an element of an array; it must be an axis: gather rows of {name} before the call",
                )
            if y.data != "name":
                raise self.scope.fail(
                    y, f"the index is an expression; it must be an axis: {', '.join(self.scope.axes)}"
                )
        tokens = [y.children[0] for y in indices]
        if not tokens:
            raise self.scope.fail(x, f"{name} has no index; it must have one or two axes: write {name}[i, k]")
        axes = tuple(self.scope.axis(y, tokens) for y in tokens)
        if len(axes) > 2:
            raise self.scope.fail(tokens[2], f"{name} has {len(axes)} axes; it must have one or two of the three")
        if "k" in axes and self.scope.place != "reduce":
            raise self.scope.fail(
                x, f"{name} has the reduced axis {tokens[axes.index('k')]}; it must be read in reduce"
            )
        return self.scope.input(name, axes, x)
