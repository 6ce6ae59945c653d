"""Bounds of the errors of expressions that kernels compute: each instruction rounds, and passes on the errors of its
operands."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.expr.evaluate import numpy_type, values
from ptxgen.expr.node import Node, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import PRED, type_of

Array = NDArray[Any]
#: by float type: the relative rounding error, the greatest finite number, the least normal number
UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
GREATEST = {"f64": 1.7e308, "f32": 3.4e38, "f16": 65504.0, "bf16": 3.38e38}
LEAST_NORMAL = {"f64": 2.3e-308, "f32": 1.2e-38, "f16": 6.2e-5, "bf16": 1.2e-38}
#: operator -> the number of roundings that bounds the relative error of its instructions
_ROUNDINGS = {"/": 4, "sqrt": 4, "rsqrt": 4, "exp": 8, "exp2": 4, "log": 8, "log2": 8, "erf": 1, "tanh": 8, "pow": 16}
#: operator -> additional absolute error of its f32 approximation, in rounding errors of the number 1
_ABSOLUTE = {"log": 4, "log2": 4, "erf": 8}


def known(error: Array) -> Array:
    """An array of errors with infinity in place of NaN."""
    return np.where(np.isnan(error), np.inf, error)


def rounding_error(value: Array, type: str, operand_error: Array, roundings: int = 0) -> Array:
    """The rounding error of a result, 0 if the result is exact. ``roundings``: the number of roundings of an
    approximate function; 0: the result is rounded once, correctly."""
    value = np.asarray(value, float)
    if roundings:
        exact = np.zeros(value.shape, bool)
    elif type == "f64":  # rounded here, too: only multiples of 1/1024 that are not large are seen to be exact
        exact = (value * 1024 == np.floor(value * 1024)) & (np.abs(value) <= 1 << 23)
    else:
        exact = value.astype(numpy_type(type)).astype(float) == value
    exact = exact & (operand_error == 0)
    size = np.abs(value)
    error = np.where(exact | ~np.isfinite(value), 0, max(roundings, 1) * UNIT[type] * size + LEAST_NORMAL[type])
    return np.where(np.isfinite(value) & (size + error + operand_error > GREATEST[type]), np.inf, error)


def with_errors(
    expressions: Sequence[Node], variables: Mapping[str, Array], errors: Mapping[str, Array]
) -> list[tuple[Array, Array]]:
    """The value of each expression and the bound of its error. ``errors``: the errors of variables by name; others have
    the error 0. The error of a condition is 1 where rounding may change the condition."""
    order = list(walk(*expressions))
    value = dict(zip(order, values(order, variables), strict=True))
    error: dict[Node, Array] = {}
    for x in order:
        arguments = [(value[y], error[y]) for y in x.arguments]
        if x.op == "variable" and x.value in errors:
            error[x] = errors[x.value]
        elif not x.arguments or not (type_of(x.type).floating or any(e.any() for _, e in arguments)):
            error[x] = np.zeros(np.shape(value[x]))
        else:
            error[x] = known(np.asarray(_error(x, value[x], arguments), float))
    return [(value[x], error[x]) for x in expressions]


def _error(x: Node, value: Array, arguments: list[tuple[Array, Array]]) -> Array:
    """The error of a node, from the values and errors of its operands."""
    (a, ea), *rest = arguments
    floating = type_of(x.type).floating
    if x.op == "select":
        (b, eb), (c, ec) = rest
        apart = np.abs(np.asarray(b, float) - np.asarray(c, float))
        return np.where(ea > 0, apart + eb + ec, np.where(a, eb, ec))
    if x.op == "cast":
        return _cast_error(x, value, ea)
    operator = OPERATORS[x.op]
    if x.type == PRED:
        if not operator.compares:
            return np.minimum(1.0, sum((e for _, e in arguments), np.zeros(())))
        (b, eb), both = rest[0], ea + rest[0][1]
        apart = np.abs(np.asarray(a, float) - np.asarray(b, float))
        return np.where((both > 0) & ~(apart > both), 1.0, 0.0)
    if x.op in ("&", "|", "^", "~", "<<", ">>", "popcount"):
        return np.where(sum((e for _, e in arguments), np.zeros(())) > 0, np.inf, 0.0)
    passed = known(_passed(x.op, [(np.asarray(v, float), e) for v, e in arguments]))
    changed = np.where(np.isfinite(np.asarray(value, float)), passed, np.where(passed > 0, np.inf, 0.0))
    if not floating:
        return changed if x.op in ("min", "max") else _wrapped(x.type, value, changed)
    if x.op in ("min", "max", "fmin", "fmax", "neg", "abs"):
        return changed
    roundings = _ROUNDINGS.get(x.op, 0)
    if x.op == "exp":  # the argument of exp2 is rounded, too
        changed = changed + 2 * UNIT[x.type] * np.abs(np.where(np.isfinite(a), a * value, 0))
    changed = changed + _ABSOLUTE.get(x.op, 0) * UNIT[x.type]
    return changed + rounding_error(value, x.type, changed, roundings)


def _wrapped(type: str, value: Array, error: Array) -> Array:
    """The error of an integer, infinite where the value may wrap around."""
    t, wide = type_of(type), np.asarray(value, float)
    beyond = (wide + error > float(t.greatest)) | (wide - error < float(t.least))
    return np.where((error > 0) & beyond, np.inf, error)


def _cast_error(x: Node, value: Array, error: Array) -> Array:
    source = type_of(x.arguments[0].type)
    if source.name == PRED:
        return error
    if not type_of(x.type).floating:
        return np.where(error > 0, np.floor(error) + 1, 0.0)
    # a value that is not exact may round to a neighbour
    return np.where(error > 0, error + 2 * UNIT[x.type] * np.abs(value), 0.0)


def _passed(op: str, operands: list[tuple[Array, Array]]) -> Array:
    """The error of a result that the errors of its operands cause, without the rounding of the result."""
    (a, ea), *rest = operands
    if op in ("neg", "abs"):
        return ea
    if op in ("+", "-", "min", "max", "fmin", "fmax"):
        eb = rest[0][1]
        return ea + eb if op in ("+", "-") else np.maximum(ea, eb)
    if op == "*":
        b, eb = rest[0]
        return _product(a, ea, b, eb)
    if op == "fma":
        (b, eb), (_, ec) = rest
        return _product(a, ea, b, eb) + ec
    if op == "/":
        return _quotient(a, ea, *rest[0])
    if op == "rcp":
        return _quotient(np.ones(np.shape(a)), np.zeros(np.shape(a)), a, ea)
    compute = OPERATORS[op].compute
    if op == "pow":
        b, eb = rest[0]
        ends = [np.abs(compute(x, y) - compute(a, b)) for x in (a - ea, a + ea) for y in (b - eb, b + eb)]
        greatest = functools.reduce(np.maximum, ends)  # NaN if an end is
        certain = (ea == 0) & (eb == 0)
        return np.where(certain, 0.0, np.where((a - ea > 0) | ((ea == 0) & (a == 0)), known(greatest), np.inf))
    if not np.any(ea):
        return np.zeros(np.shape(a))
    middle = compute(a)
    ends = [np.abs(compute(end) - middle) for end in (a - ea, a + ea)]
    return np.where(ea == 0, 0.0, np.fmax(known(ends[0]), known(ends[1])))


def _quotient(a: Array, ea: Array, b: Array, eb: Array) -> Array:
    """The error of a / b; infinite where b may be 0."""
    room = np.abs(b) - eb
    return np.where((ea == 0) & (eb == 0), 0.0, np.where(room > 0, (ea + np.abs(a / b) * eb) / room, np.inf))


def _product(a: Array, ea: Array, b: Array, eb: Array) -> Array:
    first = np.where(ea == 0, 0.0, np.abs(b) * ea)
    second = np.where(eb == 0, 0.0, np.abs(a) * eb)
    return np.asarray(first + second + ea * eb)
