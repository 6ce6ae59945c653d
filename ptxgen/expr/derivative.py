"""Derivatives of expressions of floats, and the terms of an expression.

At points without a derivative the rules are PyTorch's: the derivative of ``abs`` at 0 is 0; with equal operands,
``min`` and ``max`` give half of the derivative to each, but all of it to an operand beside a number, as
``torch.clamp``; ``fmin`` and ``fmax`` give all of it to the first. Conditions have the derivative 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, constant, node, select, walk
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import PRED, type_of


def derivatives(root: Node, names: Collection[str]) -> dict[str, Node]:
    """The derivatives of a float expression with respect to the variables ``names``, by name, in f32 or f64.
    Derivatives that are 0 everywhere are absent. TaskError: between a variable and the result is an operator without
    derivative."""
    order, reached = list(walk(root)), dict[Node, bool]()
    for x in order:  # conditions have the derivative 0
        named = x.op == "variable" and x.value in names
        reached[x] = x.type != PRED and (named or any(reached[y] for y in x.arguments))
    outer = {root: constant(1, _wide(root.type))}
    terms: dict[str, Node] = {}
    for x in reversed(order):
        if x not in outer or not reached[x]:
            continue
        if x.op == "variable":
            terms[x.value] = outer[x]
            continue
        parts = _logistic_parts(x, outer[x]) or zip(x.arguments, _parts(x, outer[x]), strict=True)
        for y, part in parts:
            if part is not None and reached[y]:
                outer[y] = plus(outer[y], part) if y in outer else part
    return terms


def _logistic_parts(x: Node, outer: Node) -> list[tuple[Node, Node | None]]:
    """The operands and derivatives of n / (1 + exp(u)), with respect to n and u; empty for other nodes. The chain rule
    alone would give 0 times infinity where exp(u) is infinite."""
    if x.op != "/" or x.type not in ("f32", "f64") or x.arguments[1].op != "+":
        return []
    n, sum = x.arguments
    powers = [y for y in sum.arguments if y.op in ("exp", "exp2") and y.type == x.type]
    if len(powers) != 1 or len(sum.arguments) != 2 or not any(is_number(y, 1) for y in sum.arguments):
        return []
    one = constant(1, x.type)
    rest = node("-", x.type, one, x if is_number(n, 1) else over(one, sum))  # exp(u) / (1 + exp(u))
    slope = negative(times(times(outer, x), rest))
    return [
        (n, over(outer, sum)),
        (powers[0].arguments[0], scaled(slope, math.log(2) if powers[0].op == "exp2" else 1)),
    ]


def check_differentiable(x: Node) -> None:
    """TaskError: the operator of the node has no derivative."""
    if x.op != "select" and not type_of(x.type).floating:
        name = x.type if x.op == "cast" else x.op
        what = f"`{name}(…)`" if name.isidentifier() else f"`{name}`"
        raise TaskError(f"{what} has no derivative; a gradient must reach inputs through operators of floats")
    if x.op not in ("cast", "select") and x.op not in _RULES:
        known = " ".join(DIFFERENTIABLE)
        raise TaskError(f"`{x.op}` has no derivative; between inputs with gradients and results there may be {known}")


def _wide(type: str) -> str:
    """The type of derivatives of values of a type."""
    return "f64" if type == "f64" else "f32"


def _parts(x: Node, outer: Node) -> list[Node | None]:
    """The chain rule at a node: from ``outer``, the derivative with respect to the node, the derivatives with respect
    to its operands; None stands for 0."""
    check_differentiable(x)
    if x.op == "select":
        test, zero = x.arguments[0], constant(0, outer.type)
        return [None, select(test, outer, zero), select(test, zero, outer)]
    if x.op == "cast":
        return [outer]
    return list(_RULES[x.op](x, outer))


def joined(a: Node, b: Node) -> tuple[Node, Node]:
    """Two floats in the wider one of their types, at least f32."""
    type = "f64" if "f64" in (a.type, b.type) else "f32"
    return cast(a, type), cast(b, type)


def is_number(x: Node, value: float) -> bool:
    """True for the constant with this value."""
    return x.op == "constant" and x.value == value


def plus(a: Node, b: Node) -> Node:
    """a + b, in the wider type."""
    a, b = joined(a, b)
    if a is b:
        return scaled(a, 2)
    if b.op == "neg":
        return node("-", a.type, a, b.arguments[0])
    return node("+", a.type, a, b)


def times(a: Node, b: Node) -> Node:
    """a · b, in the wider type, without factors 1 and -1."""
    a, b = joined(a, b)
    for x, y in ((a, b), (b, a)):
        if is_number(x, 1):
            return y
        if is_number(x, -1):
            return negative(y)
        if x.op == "neg":
            return negative(times(x.arguments[0], y))
    if a.op == b.op == "constant":
        return constant(a.value * b.value, a.type)
    return node("*", a.type, a, b)


def over(a: Node, b: Node) -> Node:
    """a / b, in the wider type."""
    a, b = joined(a, b)
    if a.op == "neg":
        return negative(over(a.arguments[0], b))
    return a if is_number(b, 1) else node("/", a.type, a, b)


def negative(a: Node) -> Node:
    """-a."""
    if a.op == "constant":
        return constant(-a.value, a.type)
    return a.arguments[0] if a.op == "neg" else node("neg", a.type, a)


def scaled(a: Node, factor: float) -> Node:
    """``factor`` · a."""
    return times(constant(factor, _wide(a.type)), a)


def where(test: Node, a: Node, b: Node | float = 0.0) -> Node:
    """``a`` where a condition holds, else ``b``."""
    other = b if isinstance(b, Node) else constant(b, a.type)
    return select(test, *joined(a, other))


def less(a: Node, b: Node) -> Node:
    """a < b."""
    return node("<", PRED, a, b)


def _sign(x: Node, outer: Node) -> Node:
    """``outer`` times the sign of ``x``. The sign is the difference of two comparisons, for each of which f32 has an
    instruction that gives 0 or 1."""
    a, b = x.arguments if x.op == "-" else (x, constant(0, x.type))
    greater, smaller = (cast(y, outer.type) for y in (less(b, a), less(a, b)))
    return times(outer, node("-", outer.type, greater, smaller))


def _share(a: Node, b: Node, type: str) -> Node:
    """2 where ``a`` is less than ``b``, 1 where they are equal, else 0."""
    return node("+", type, cast(less(a, b), type), cast(node("<=", PRED, a, b), type))


def _bounded(x: Node, outer: Node, value: Node, number: Node) -> Node:
    """The derivative of the minimum or maximum ``x`` of a value and a number with respect to the value."""
    inside = node("<=", PRED, *((number, value) if x.op == "max" else (value, number)))
    return times(outer, cast(inside, outer.type)) if outer.op == "constant" else where(inside, outer)


def _extreme(x: Node, outer: Node) -> tuple[Node | None, Node | None]:
    a, b = x.arguments
    if b.op == "constant":
        return _bounded(x, outer, a, b), None
    if a.op == "constant":
        return None, _bounded(x, outer, b, a)
    low, high = (b, a) if x.op == "max" else (a, b)
    if outer.op == "constant":  # as ``_sign``; other values may be infinite, and 0 times infinity is NaN
        half = scaled(outer, 0.5)
        return times(half, _share(low, high, outer.type)), times(half, _share(high, low, outer.type))
    half = where(node("==", PRED, a, b), scaled(outer, 0.5))
    return where(less(low, high), outer, half), where(less(high, low), outer, half)


def _extreme_of_numbers(x: Node, outer: Node) -> tuple[Node, Node]:
    a, b = x.arguments
    before = node("<=", PRED, b, a) if x.op == "fmax" else node("<=", PRED, a, b)
    first = node("|", PRED, before, node("!=", PRED, b, b))
    return where(first, outer), where(first, constant(0, outer.type), outer)


def _power(x: Node, outer: Node) -> tuple[Node, Node]:
    """As PyTorch: the derivative with respect to the base is 0 where the exponent is 0, and that with respect to the
    exponent is 0 where the base is 0 and the exponent is not negative."""
    base, exponent = x.arguments
    zero = constant(0, x.type)
    if exponent.op == "constant":
        less_one = constant(exponent.value - 1, x.type)
    else:
        less_one = node("-", x.type, exponent, constant(1, x.type))
    of_base = times(outer, times(exponent, node("pow", x.type, base, less_one)))
    if exponent.op != "constant" or exponent.value == 0:
        of_base = where(node("==", PRED, exponent, zero), constant(0, of_base.type), of_base)
    at_zero = node("&", PRED, node("==", PRED, base, zero), node("<=", PRED, zero, exponent))
    of_exponent = times(outer, times(x, node("log", x.type, base)))
    return of_base, where(at_zero, constant(0, of_exponent.type), of_exponent)


def _gaussian(a: Node) -> Node:
    """exp(-a²)."""
    wide = cast(a, _wide(a.type))
    return node("exp", wide.type, negative(times(wide, wide)))


def _one_less_square(a: Node) -> Node:
    """1 - a²."""
    wide = cast(a, _wide(a.type))
    return node("-", wide.type, constant(1, wide.type), times(wide, wide))


Rule = Callable[[Node, Node], tuple[Node | None, ...]]
#: operator -> function of a node and the derivative with respect to it, which returns the derivatives with respect to
#: the operands
_RULES: dict[str, Rule] = {
    "+": lambda x, d: (d, d),
    "-": lambda x, d: (d, negative(d)),
    "*": lambda x, d: (times(d, x.arguments[1]), times(d, x.arguments[0])),
    "/": lambda x, d: (over(d, x.arguments[1]), negative(over(times(d, x), x.arguments[1]))),
    "neg": lambda x, d: (negative(d),),
    "abs": lambda x, d: (_sign(x.arguments[0], d),),
    "min": _extreme,
    "max": _extreme,
    "fmin": _extreme_of_numbers,
    "fmax": _extreme_of_numbers,
    "fma": lambda x, d: (times(d, x.arguments[1]), times(d, x.arguments[0]), d),
    "sqrt": lambda x, d: (over(scaled(d, 0.5), x),),
    "rsqrt": lambda x, d: (times(scaled(d, -0.5), times(x, times(x, x))),),
    "exp": lambda x, d: (times(d, x),),
    "exp2": lambda x, d: (times(scaled(d, math.log(2)), x),),
    "log": lambda x, d: (over(d, x.arguments[0]),),
    "log2": lambda x, d: (over(scaled(d, 1 / math.log(2)), x.arguments[0]),),
    "tanh": lambda x, d: (times(d, _one_less_square(x)),),
    "pow": _power,
    "erf": lambda x, d: (times(scaled(d, 2 / math.sqrt(math.pi)), _gaussian(x.arguments[0])),),
}
#: the operators of floats that have a derivative
DIFFERENTIABLE = tuple(_RULES)


# ---- terms


@dataclass(frozen=True)
class Term:
    """A product of factors in two groups: ``outside`` · ``inside``."""

    outside: Node
    inside: Node


def terms(root: Node, is_outside: Callable[[Node], bool], most: int) -> list[Term]:
    """The expression as a sum of at most ``most`` products. In each, the factors for which ``is_outside`` holds are
    ``outside``. An expression of more products is returned as one term."""
    products = _products(root) if most > 1 else [root]
    made = []
    for product in products if len(products) <= most else [root]:
        outside = inside = constant(1, product.type)
        for factor, divides in _factors(product):
            if is_outside(factor):
                outside = over(outside, factor) if divides else times(outside, factor)
            else:
                inside = over(inside, factor) if divides else times(inside, factor)
        made.append(Term(outside, inside))
    return made


def _products(x: Node) -> list[Node]:
    if x.op in ("+", "-"):
        first, second = map(_products, x.arguments)
        return [*first, *(second if x.op == "+" else map(negative, second))]
    if x.op == "neg":
        return [negative(y) for y in _products(x.arguments[0])]
    if x.op == "*":
        first, second = map(_products, x.arguments)
        return [times(a, b) for a in first for b in second]
    if x.op == "/":
        return [over(y, x.arguments[1]) for y in _products(x.arguments[0])]
    return [x]


def _factors(x: Node, divides: bool = False) -> list[tuple[Node, bool]]:
    """The factors of a product; each has True beside it if the product is divided by it."""
    if x.op == "*":
        return [y for z in x.arguments for y in _factors(z, divides)]
    if x.op == "neg":
        return [(constant(-1, x.type), divides), *_factors(x.arguments[0], divides)]
    if x.op == "/":
        return [*_factors(x.arguments[0], divides), *_factors(x.arguments[1], not divides)]
    return [(x, divides)]
