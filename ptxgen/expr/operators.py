"""The operators of expressions: what each computes, and the laws that hold for it.

Comparisons ``>`` and ``>=`` are ``<`` and ``<=`` with exchanged operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.expr.value_types import PRED, ValueType

FLOAT, SIGNED, UNSIGNED, PREDICATE = "float", "signed", "unsigned", "predicate"
NUMBERS = frozenset((FLOAT, SIGNED, UNSIGNED))
INTEGERS = frozenset((SIGNED, UNSIGNED))


@dataclass(frozen=True)
class Operator:
    """An operator of expressions. ``operands``: the number of operands; ``groups``: the groups of types for which the
    operator exists; ``compute``: computes it on NumPy arrays; ``compares``: the result is a predicate, else it has the
    type of the operands. ``commutative``, ``associative``, ``idempotent``: the laws that hold, for floats up to
    rounding; ``identity``: returns the identity element of a type; None: there is none."""

    name: str
    operands: int
    groups: frozenset[str]
    compute: Callable[..., Any]
    compares: bool = False
    commutative: bool = False
    associative: bool = False
    idempotent: bool = False
    identity: Callable[[ValueType], Any] | None = None


def _popcount(x: Any) -> Any:
    """The number of one bits of each integer."""
    x = np.ascontiguousarray(x)
    return np.unpackbits(x.view(np.uint8).reshape(*x.shape, x.itemsize), axis=-1).sum(-1, dtype=x.dtype)


def _erf(x: Any) -> Any:
    """The error function of each number."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _all_ones(t: ValueType) -> int:
    return -1 if t.group == SIGNED else int(t.greatest)


_LATTICE: dict[str, Any] = {"commutative": True, "associative": True, "idempotent": True}
OPERATORS = {
    o.name: o
    for o in (
        Operator("+", 2, NUMBERS, np.add, commutative=True, associative=True, identity=lambda t: 0),
        Operator("-", 2, NUMBERS, np.subtract),
        Operator("*", 2, NUMBERS, np.multiply, commutative=True, associative=True, identity=lambda t: 1),
        Operator("/", 2, frozenset((FLOAT,)), np.divide),
        Operator("neg", 1, frozenset((FLOAT, SIGNED)), np.negative),
        Operator("abs", 1, frozenset((FLOAT, SIGNED)), np.abs),
        # min and max propagate NaN, fmin and fmax return the other operand
        Operator("min", 2, NUMBERS, np.minimum, **_LATTICE, identity=lambda t: t.greatest),
        Operator("max", 2, NUMBERS, np.maximum, **_LATTICE, identity=lambda t: t.least),
        Operator("fmin", 2, frozenset((FLOAT,)), np.fmin, **_LATTICE, identity=lambda t: t.greatest),
        Operator("fmax", 2, frozenset((FLOAT,)), np.fmax, **_LATTICE, identity=lambda t: t.least),
        Operator("fma", 3, frozenset((FLOAT,)), lambda a, b, c: a * b + c),
        Operator("sqrt", 1, frozenset((FLOAT,)), np.sqrt),
        Operator("rcp", 1, frozenset((FLOAT,)), lambda x: 1 / x),
        Operator("rsqrt", 1, frozenset((FLOAT,)), lambda x: 1 / np.sqrt(x)),
        Operator("exp", 1, frozenset((FLOAT,)), np.exp),
        Operator("exp2", 1, frozenset((FLOAT,)), np.exp2),
        Operator("log", 1, frozenset((FLOAT,)), np.log),
        Operator("log2", 1, frozenset((FLOAT,)), np.log2),
        Operator("erf", 1, frozenset((FLOAT,)), _erf),
        Operator("tanh", 1, frozenset((FLOAT,)), np.tanh),
        Operator("pow", 2, frozenset((FLOAT,)), np.power),
        Operator("popcount", 1, frozenset((UNSIGNED,)), _popcount),
        Operator("&", 2, INTEGERS | {PREDICATE}, np.bitwise_and, **_LATTICE, identity=_all_ones),
        Operator("|", 2, INTEGERS | {PREDICATE}, np.bitwise_or, **_LATTICE, identity=lambda t: 0),
        Operator(
            "^", 2, INTEGERS | {PREDICATE}, np.bitwise_xor, commutative=True, associative=True, identity=lambda t: 0
        ),
        Operator("~", 1, INTEGERS, np.invert),
        Operator("not", 1, frozenset((PREDICATE,)), np.logical_not),
        Operator("<<", 2, INTEGERS, np.left_shift),
        Operator(">>", 2, INTEGERS, np.right_shift),
        Operator("<", 2, NUMBERS, np.less, compares=True),
        Operator("<=", 2, NUMBERS, np.less_equal, compares=True),
        Operator("==", 2, NUMBERS, np.equal, compares=True, commutative=True),
        Operator("!=", 2, NUMBERS, np.not_equal, compares=True, commutative=True),
    )
}


def result_type(operator: Operator, operand: str) -> str:
    """The type of the result of an operator whose operands have the type ``operand``."""
    return PRED if operator.compares else operand
