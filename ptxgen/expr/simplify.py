"""Rewrites expressions to cheaper ones with the same value, and proves that zeros do not change a reduction.

``simplified`` keeps every value, also -0, infinities and NaN (of any bits). With ``relaxed`` it also applies laws that
hold, up to the sign of a zero, wherever every part of the expression as written is a finite number:

- x + 0 is x; 0 - x is -x; x · 0 is 0 where x is a finite number for all variables;
- (u < v) · (v - u) is max(v - u, 0), and (u < v) · (u - v) is min(u - v, 0). If the factor 0 meets an infinity, the
  product as written is NaN, and the right side is 0; if u or v is NaN, both sides are NaN.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ptxgen.expr.evaluate import evaluate, numpy_type
from ptxgen.expr.node import Node, constant, node, rewritten, select, substituted, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.ranges import Range, ranges
from ptxgen.expr.value_types import PRED, type_of


def cast(x: Node, type: str) -> Node:
    """``x`` as a value of another type."""
    return x if x.type == type else node("cast", type, x)


def simplified(root: Node, relaxed: bool = False) -> Node:
    """The expression with constants computed, operations without effect removed, and operands of commutative operators
    in one order."""
    keys: dict[Node, bytes] = {}
    return rewritten(root, lambda x: _simple(x, relaxed, keys))


def value_at_zero(step: Node, zeroed: frozenset[str] | set[str]) -> float | int | bool | None:
    """The value of ``step`` if the variables ``zeroed`` are 0; None if it depends on other variables."""
    types = {x.value: x.type for x in walk(step) if x.op == "variable"}
    zeros = {name: constant(0, types[name]) for name in zeroed if name in types}
    result = simplified(substituted(step, zeros), relaxed=True)
    return result.value if result.op == "constant" else None


def is_identity_at_zero(step: Node, reduction: str, zeroed: frozenset[str] | set[str]) -> bool:
    """True if steps whose variables ``zeroed`` are 0 do not change a reduction, so that operands may be padded with
    zeros."""
    identity = OPERATORS[reduction].identity if reduction in OPERATORS else None
    value = value_at_zero(step, zeroed)
    return identity is not None and value is not None and value == identity(type_of(step.type))


def is_absorbed_at_zero(
    step: Node, reduction: str, zeroed: frozenset[str] | set[str], known: Mapping[str, Range] | None = None
) -> bool:
    """True if steps whose variables ``zeroed`` are 0 do not change the minimum or maximum of other steps. This holds if
    no step can be beyond the value of such a step, as in max(|p - r|). False for fmin and fmax, which drop steps that
    are NaN. ``known``: the ranges of variables by name."""
    value = value_at_zero(step, zeroed)
    if value is None or reduction not in ("max", "min"):
        return False
    r = ranges(step, known)[step]
    return r.low >= value if reduction == "max" else r.high <= value


def key(x: Node, keys: dict[Node, bytes]) -> bytes:
    """A digest of an expression, the same in every process. ``keys``: a cache of digests."""
    for y in walk(x):
        if y not in keys:
            text = f"{y.op}.{y.type}.{y.value!r}".encode() + b"".join(keys[z] for z in y.arguments)
            keys[y] = hashlib.sha256(text).digest()[:12]
    return keys[x]


def _simple(x: Node, relaxed: bool, keys: dict[Node, bytes]) -> Node:
    """The simplified form of a node whose arguments are already simplified."""
    if x.op == "constant":
        return _rounded(x)
    if not x.arguments:
        return x
    while True:
        new = _rule(x, relaxed)
        if new is x:
            break
        arguments = [_simple(y, relaxed, keys) if y not in x.arguments else y for y in new.arguments]
        x = node(new.op, new.type, *arguments, value=new.value) if arguments else new
        if x.op in ("constant", "variable"):
            return _rounded(x) if x.op == "constant" else x
    return _ordered(x, keys)


def _rounded(x: Node) -> Node:
    """The constant rounded to its type."""
    t = type_of(x.type)
    return constant(float(numpy_type(x.type).type(x.value)), x.type) if t.floating else x


def _ordered(x: Node, keys: dict[Node, bytes]) -> Node:
    """The node with the operands of a commutative operator in one order: by their digests, constants last."""
    if x.op != "fma" and not (x.op in OPERATORS and OPERATORS[x.op].commutative):
        return x
    a, b = x.arguments[:2]
    order = sorted((a, b), key=lambda y: (y.op == "constant", key(y, keys)))
    return x if order == [a, b] else node(x.op, x.type, *order, *x.arguments[2:])


def _is(x: Node, number: float) -> bool:
    """True if the node is the constant ``number``, with the same sign if it is 0."""
    return x.op == "constant" and x.value == number and str(float(x.value))[0] == str(float(number))[0]


def _rule(x: Node, relaxed: bool) -> Node:
    """The node that one rule makes of ``x``; ``x`` itself if no rule applies."""
    if all(y.op == "constant" for y in x.arguments):
        return constant(evaluate(x, {}, exact=False).item(), x.type)
    if x.op == "select":
        return _select(x)
    if x.op == "cast":
        return _cast(x)
    if x.type == PRED:
        return _predicate(x)
    rewritten = _float(x) if type_of(x.type).floating else _integer(x)
    if rewritten is x and relaxed:
        rewritten = _relaxed(x)
    return rewritten


def _select(x: Node) -> Node:
    condition, yes, no = x.arguments
    if condition.op == "constant":
        return yes if condition.value else no
    if yes is no:
        return yes
    if condition.op == "not":
        return select(condition.arguments[0], no, yes)
    if x.type == PRED and yes.op == no.op == "constant":
        return condition if yes.value else node("not", PRED, condition)
    # v - u where u < v, else 0: a difference of unequal numbers is not rounded to 0
    if condition.op == "<" and type_of(x.type).floating and _is(no, 0.0) and yes.op == "-":
        u, v = condition.arguments
        if yes.arguments == (v, u):
            return node("fmax", x.type, yes, no)
    return x


def _cast(x: Node) -> Node:
    inner = x.arguments[0]
    if inner.type == x.type:
        return inner
    if inner.op == "cast" and _exact(inner.arguments[0].type, inner.type):
        source = inner.arguments[0]
        if source.type == x.type:
            return source
        if _exact(inner.type, x.type) and PRED not in (source.type, inner.type):
            return node("cast", x.type, source)
    return x


def _exact(source: str, to: str) -> bool:
    """True if every value of ``source`` is a value of ``to``."""
    s, t = type_of(source), type_of(to)
    if s.group == "predicate":
        return t.group != "predicate"
    if s.floating:
        wider = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",), "f64": ()}
        return to in wider[source]
    if t.integer:
        return t.least <= s.least and s.greatest <= t.greatest
    return t.floating and s.bits - (s.group == "signed") <= {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[to]


def _predicate(x: Node) -> Node:
    a = x.arguments
    if x.op == "not":
        if a[0].op == "not":
            return a[0].arguments[0]
        if a[0].op in ("==", "!="):
            return node("!=" if a[0].op == "==" else "==", PRED, *a[0].arguments)
        if a[0].op in ("<", "<=") and not type_of(a[0].arguments[0].type).floating:
            return node("<=" if a[0].op == "<" else "<", PRED, *reversed(a[0].arguments))
        return x
    if x.op in ("&", "|", "^") and a[0].type == PRED:
        if a[0] is a[1]:
            return constant(False, PRED) if x.op == "^" else a[0]
        known, other = (a[0], a[1]) if a[0].op == "constant" else (a[1], a[0])
        if known.op == "constant":
            if x.op == "^":
                return node("not", PRED, other) if known.value else other
            return other if bool(known.value) == (x.op == "&") else known
    return x


def _float(x: Node) -> Node:
    """The node that a law of floats makes of ``x``; ``x`` itself if no law applies. These laws keep -0, infinities and
    NaN."""
    a = x.arguments
    if x.op == "*":
        for one, other in ((a[0], a[1]), (a[1], a[0])):
            if _is(one, 1.0):
                return other
            if _is(one, -1.0):
                return node("neg", x.type, other)
    if x.op == "+":
        for zero, other in ((a[0], a[1]), (a[1], a[0])):
            if _is(zero, -0.0):
                return other
            if zero.op == "neg":
                return node("-", x.type, other, zero.arguments[0])
    if x.op == "-":
        if _is(a[1], 0.0):
            return a[0]
        if a[1].op == "neg":
            return node("+", x.type, a[0], a[1].arguments[0])
    if x.op == "/" and _is(a[1], 1.0):
        return a[0]
    return _any_number(x)


def _integer(x: Node) -> Node:
    """The node that a law of arithmetic modulo a power of two makes of ``x``; ``x`` itself if no law applies."""
    a = x.arguments
    if len(a) == 2:
        for known, other in ((a[0], a[1]), (a[1], a[0])):
            if known.op != "constant":
                continue
            identity = OPERATORS[x.op].identity
            if identity is not None and known.value == identity(type_of(x.type)):
                return other
            if x.op in ("*", "&") and known.value == 0:
                return known
        if a[1].op == "constant" and a[1].value == 0 and x.op in ("-", "<<", ">>"):
            return a[0]
        if a[0] is a[1] and x.op in ("-", "^"):
            return constant(0, x.type)
    if x.op == "~" and a[0].op == "~":
        return a[0].arguments[0]
    return _any_number(x)


def _any_number(x: Node) -> Node:
    a = x.arguments
    if x.op == "neg" and a[0].op == "neg":
        return a[0].arguments[0]
    if x.op == "abs" and a[0].op in ("abs", "neg"):
        return a[0] if a[0].op == "abs" else node("abs", x.type, a[0].arguments[0])
    if x.op in OPERATORS and OPERATORS[x.op].idempotent and a[0] is a[1]:
        return a[0]
    if x.op in ("min", "max"):  # fmin and fmax drop NaN
        identity = constant(type_of(x.type).greatest if x.op == "min" else type_of(x.type).least, x.type)
        for known, other in ((a[0], a[1]), (a[1], a[0])):
            if known is identity:
                return other
    return x


def _relaxed(x: Node) -> Node:
    """The node that a relaxed law makes of ``x``; ``x`` itself if no law applies. A relaxed law holds, up to the sign
    of a zero, where the value as written is a finite number."""
    a = x.arguments
    if x.op in ("+", "*") and type_of(x.type).floating:
        for zero, other in ((a[0], a[1]), (a[1], a[0])):
            if zero.op == "constant" and zero.value == 0:
                if x.op == "+":
                    return other
                if ranges(other)[other].finite:
                    return constant(0.0, x.type)
    if x.op == "-" and a[0].op == "constant" and a[0].value == 0:
        return node("neg", x.type, a[1])
    if x.op == "*":
        for test, difference in ((a[0], a[1]), (a[1], a[0])):
            if test.op != "cast" or test.arguments[0].op not in ("<", "<=") or difference.op != "-":
                continue
            u, v = test.arguments[0].arguments
            zero = constant(0, x.type)
            if difference.arguments == (v, u):
                return node("max", x.type, difference, zero)
            if difference.arguments == (u, v):
                return node("min", x.type, difference, zero)
    return x
