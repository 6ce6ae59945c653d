"""Simplified expressions have the same values; proofs about zeros hold for random values."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.evaluate import evaluate, values
from ptxgen.expr.node import Node, constant, node, select, variable, walk
from ptxgen.expr.ranges import Range, ranges
from ptxgen.expr.simplify import (
    cast,
    is_absorbed_at_zero,
    is_identity_at_zero,
    simplified,
    value_at_zero,
)
from ptxgen.expr.value_types import PRED
from tests.expressions import TYPES, random_expression, random_values

P, R, T, X, Y = (variable(x, "f32") for x in "prtxy")


def f32(op: str, *arguments: Node) -> Node:
    return node(op, "f32", *arguments)


def number(value: float) -> Node:
    return constant(value, "f32")


def same(a: Any, b: Any, signs: bool = True) -> Any:
    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    equal = (a == b) & ((np.signbit(a) == np.signbit(b)) | (not signs))
    return equal | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("seed", range(6))
def test_simplified_expressions_have_the_same_values(seed: int) -> None:
    rng = random.Random(seed)
    inputs = random_values(np.random.default_rng(seed), 300)
    changed = 0
    for _ in range(400):
        root = random_expression(rng, rng.choice(TYPES), rng.randrange(1, 5))
        exact, relaxed = simplified(root), simplified(root, relaxed=True)
        assert exact.type == relaxed.type == root.type
        assert simplified(exact) is exact
        changed += exact is not root
        before, after, loose = values([root, exact, relaxed], inputs, exact=False)
        parts = values(list(walk(root)), inputs, exact=False)
        finite = np.all([np.broadcast_to(np.isfinite(x), (300,)) for x in parts], axis=0)
        if any(x.op in ("min", "max", "fmin", "fmax") for x in walk(root, exact)):
            # of minima of two zeros NumPy gives the sign of either
            assert (same(before, after, signs=False) | ~finite).all(), (root, exact)
        else:
            assert same(before, after).all(), (root, exact)
        assert (same(before, loose, signs=False) | ~finite).all(), (root, relaxed)
    assert changed > 100


@pytest.mark.parametrize("seed", range(4))
def test_ranges_contain_all_values(seed: int) -> None:
    rng = random.Random(seed)
    inputs = random_values(np.random.default_rng(seed), 300)
    known = {f"f32_{i}": Range(-1, 2) for i in range(2)}
    for name in known:
        inputs[name] = np.clip(np.nan_to_num(inputs[name]), -1, 2)
    for _ in range(300):
        root = random_expression(rng, rng.choice(("f32", "f16", "s32")), rng.randrange(1, 5))
        interval = ranges(root, known)[root]
        x = np.asarray(evaluate(root, inputs, exact=False)).astype(np.float64)
        assert interval.nan or not np.isnan(x).any(), root
        numbers = x[~np.isnan(x)]
        assert ((numbers >= interval.low) & (numbers <= interval.high)).all(), (root, interval)


def test_laws() -> None:
    one, zero, minus_zero = number(1), number(0.0), number(-0.0)
    assert simplified(f32("*", one, X)) is X
    assert simplified(f32("-", X, zero)) is X
    assert simplified(f32("+", X, minus_zero)) is X
    assert simplified(f32("+", X, zero)).op == "+"  # -0 + 0 is 0
    assert simplified(f32("*", X, zero)).op == "*"  # NaN, infinities and -0
    assert simplified(f32("neg", f32("neg", X))) is X
    assert simplified(f32("max", X, number(-np.inf))) is X
    assert simplified(f32("fmax", X, number(-np.inf))).op == "fmax"  # of NaN it is minus infinity
    assert simplified(f32("+", X, Y)) is simplified(f32("+", Y, X))
    assert simplified(f32("fma", X, Y, P)) is simplified(f32("fma", Y, X, P))
    assert simplified(f32("+", number(2), number(3))) is number(5)
    assert simplified(number(0.1)) is number(float(np.float32(0.1)))
    wide = cast(cast(variable("h", "f16"), "f32"), "f64")
    assert simplified(wide) is cast(variable("h", "f16"), "f64")
    narrow = cast(cast(X, "f16"), "f32")
    assert simplified(narrow) is narrow
    less = node("<", PRED, X, Y)
    assert simplified(select(node("not", PRED, less), X, Y)) is select(less, Y, X)
    assert simplified(node("not", PRED, less)) is node("not", PRED, less)  # of NaN both are false
    assert simplified(node("not", PRED, node("==", PRED, X, Y))) in (node("!=", PRED, X, Y), node("!=", PRED, Y, X))


def test_a_comparison_times_its_difference_is_a_maximum() -> None:
    above = f32("*", cast(node("<", PRED, T, P), "f32"), f32("-", P, T))
    query = f32("+", P, above)
    assert simplified(query).op == "+"
    assert instructions_by_pipe([simplified(query)], 90) == {"fma": 2, "alu": 1}
    root = simplified(query, relaxed=True)
    assert root in (
        f32("+", P, f32("max", f32("-", P, T), number(0))),
        f32("+", f32("max", f32("-", P, T), number(0)), P),
    )
    assert instructions_by_pipe([root], 90) == {"fma": 2, "alu": 1}
    chosen = select(node("<", PRED, T, P), f32("-", P, T), number(0.0))
    assert simplified(chosen).op == "fmax"


def test_steps_of_zeros() -> None:
    difference = f32("-", P, R)
    l1, l2 = f32("abs", difference), f32("*", difference, difference)
    zeros = {"p", "r"}
    assert is_identity_at_zero(f32("*", P, R), "+", zeros)
    assert is_identity_at_zero(l1, "+", zeros)
    assert is_identity_at_zero(l2, "+", zeros)
    assert not is_identity_at_zero(f32("+", P, R), "min", zeros)
    assert not is_identity_at_zero(f32("+", P, T), "+", zeros)
    assert value_at_zero(f32("+", P, number(3)), {"p"}) == 3
    masked = f32("*", P, cast(node("<", PRED, T, P), "f32"))
    assert is_identity_at_zero(masked, "+", {"p"})
    assert not is_identity_at_zero(f32("*", P, T), "+", {"p"})  # t may be infinite
    bits = node("&", "u32", variable("a", "u32"), variable("b", "u32"))
    assert is_identity_at_zero(bits, "|", {"a", "b"})
    assert not is_identity_at_zero(bits, "&", {"a", "b"})
    assert is_identity_at_zero(node("popcount", "u32", node("^", "u32", *bits.arguments)), "+", {"a", "b"})
    assert not is_identity_at_zero(f32("*", P, R), "argmin", zeros)
    # a maximum of distances is at least that of zeros
    assert is_absorbed_at_zero(l1, "max", zeros)
    assert is_absorbed_at_zero(l2, "max", zeros)
    assert not is_absorbed_at_zero(l1, "min", zeros)
    assert not is_absorbed_at_zero(difference, "max", zeros)
    assert not is_absorbed_at_zero(l1, "fmax", zeros)  # of a step that is NaN, only the zeros would be left
    assert is_absorbed_at_zero(f32("min", P, R), "max", zeros, {"p": Range(0, 1), "r": Range(0, 5)})


def test_keys_do_not_depend_on_the_order_in_which_nodes_are_made() -> None:
    names = list(itertools.permutations("abc"))
    made = set()
    for order in names:
        a, b, c = (variable(x, "f64") for x in order)
        made.add(simplified(node("+", "f64", node("*", "f64", a, b), node("*", "f64", c, constant(2, "f64")))))
    assert len(made) == 3


def test_signs_are_modifiers_of_operands() -> None:
    l1 = f32("+", T, f32("abs", f32("-", P, R)))
    assert instructions_by_pipe([l1], 90) == {"fma": 2}
    assert instructions_by_pipe([f32("abs", f32("-", P, R))], 90) == {"fma": 2}
    assert instructions_by_pipe([f32("-", f32("*", P, R), T)], 90) == {"fma": 1}
    signs = [node("cast", "f32", node("<", PRED, *x)) for x in ((R, P), (P, R))]  # set.lt gives 0 or 1
    assert instructions_by_pipe([f32("*", T, f32("-", *signs))], 90) == {"fma": 2, "alu": 2}
    assert instructions_by_pipe([f32("max", T, f32("+", P, R))], 90) == {"fma": 1, "alu": 1}
    assert instructions_by_pipe([f32("max", T, f32("+", P, R))], 75) == {"fma": 1, "alu": 3}
    wide = cast(variable("p", "f16"), "f32")
    assert instructions_by_pipe([f32("+", wide, X)], 90, {wide: "%p", X: "%x"}) == {"fma": 1}
