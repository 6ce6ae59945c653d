"""Random expressions, and values of their variables."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ptxgen.expr.evaluate import numpy_type
from ptxgen.expr.node import Node, constant, node, select, variable, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import PRED, type_of

TYPES = ("f32", "f64", "f16", "s32", "u8", PRED)


def random_expression(rng: random.Random, type: str, depth: int) -> Node:
    """An expression of variables named by type and number, and of constants that laws have."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.35:
            t = type_of(type)
            numbers: list[Any] = [0, 1, 2, t.least, t.greatest] if type != PRED else [True, False]
            if t.floating:
                numbers += [-1, 0.0, -0.0, 0.3]
            return constant(rng.choice(numbers), type)
        return variable(f"{type}_{rng.randrange(3)}", type)

    def inner(t: str) -> Node:
        return random_expression(rng, t, depth - 1)

    choice = rng.random()
    if choice < 0.12:
        return select(inner(PRED), inner(type), inner(type))
    if choice < 0.24:
        return cast(inner(rng.choice(TYPES)), type)
    if type == PRED and choice < 0.6:
        of = rng.choice([t for t in TYPES if t != PRED])
        return node(rng.choice(["<", "<=", "==", "!="]), PRED, inner(of), inner(of))
    if choice < 0.32 and type_of(type).floating:  # the forms of the laws
        u, v = inner(type), inner(type)
        test, difference = node(rng.choice(["<", "<="]), PRED, u, v), node("-", type, *rng.choice([(u, v), (v, u)]))
        if rng.random() < 0.5:
            return select(test, difference, constant(0.0, type))
        return node("*", type, cast(test, type), difference)
    group = type_of(type).group
    unlike = {
        "exp",
        "exp2",
        "log",
        "log2",
        "erf",
        "tanh",
        "pow",
    }  # near their ends NumPy's functions of f32 and f64 differ
    chosen = [o for o in OPERATORS.values() if group in o.groups and not o.compares and o.name not in unlike]
    o = rng.choice(chosen)
    return node(o.name, type, *(inner(type) for _ in range(o.operands)))


def random_roots(seed: int, count: int) -> list[Node]:
    """Expressions whose values are exact: without approximations, without minima, of which the sign of zeros is any,
    and without fma in f64, which NumPy rounds twice."""
    rng = random.Random(seed)
    made = [random_expression(rng, rng.choice(TYPES), rng.randrange(2, 5)) for _ in range(count)]
    inexact = {"rsqrt", "min", "max", "fmin", "fmax"}
    return [x for x in made if not any(y.op in inexact or (y.op, y.type) == ("fma", "f64") for y in walk(x))]


def random_values(rng: np.random.Generator, n: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for type in TYPES:
        t = type_of(type)
        for i in range(3):
            if t.floating:
                special = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e-7, 60000.0]
                x = np.where(rng.random(n) < 0.6, rng.choice(special, n), rng.normal(size=n) * 4)
            elif type == PRED:
                x = rng.random(n) < 0.5
            else:
                low, high = int(t.least), int(t.greatest)
                x = np.where(rng.random(n) < 0.5, rng.integers(-2, 40, n) % 256, rng.integers(low, high, n))
            with np.errstate(over="ignore"):
                values[f"{type}_{i}"] = np.asarray(x).astype(numpy_type(type))
    return values
