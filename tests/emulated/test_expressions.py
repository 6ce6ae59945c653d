"""Each row of the table of instructions gives the value that NumPy computes, on each target."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.instructions import rows
from ptxgen.expr.node import constant, node, variable
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import VALUE_TYPES, type_of
from tests.expression_kernels import ARRAYS, computed
from tests.expression_rows import compare_rows
from tests.expressions import random_roots, random_values

TARGETS = (75, 80, 90, 100)
finfo: Any = ml_dtypes.finfo


@pytest.mark.each_value
@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("type", VALUE_TYPES)
def test_rows_give_numpys_values(type: str, sm: int) -> None:
    compare_rows(type, sm, lambda roots, values: computed(roots, values, sm))


def test_every_operator_has_rows_for_its_types() -> None:
    missing = set()
    for o in OPERATORS.values():
        for t in VALUE_TYPES.values():
            if t.group in o.groups and not any(key[:2] == (o.name, t.name) for key in rows()):
                missing.add((o.name, t.name))
    assert missing == {("pow", "f64")}


@pytest.mark.parametrize("type", [t for t in VALUE_TYPES if t != "pred"])
def test_constants_are_operands(type: str) -> None:
    """A constant may be any operand of any row, and all of them."""
    t = type_of(type)
    rng = np.random.default_rng(1)
    a = rng.integers(1, 50, 64).astype(ARRAYS[type])
    b = rng.integers(1, 4, 64).astype(ARRAYS[type])
    operators = [o for o in OPERATORS.values() if t.group in o.groups and o.operands == 2]
    operators = [o for o in operators if (o.name, type) not in (("-", "u8"), ("pow", "f64"))]
    roots, wanted = [], []
    three, two = constant(3, type), constant(2, type)
    for o in operators:
        x, y = variable("a", type), variable("b", type)
        result = "pred" if o.compares else type
        for left, right in ((x, two), (three, y), (three, two)):
            roots.append(node(o.name, result, left, right))
            values = {x: a, y: b, two: np.full(64, 2, a.dtype), three: np.full(64, 3, a.dtype)}
            wanted.append(np.asarray(o.compute(values[left], values[right])).astype(ARRAYS[result]))
    for got, want, root in zip(computed(roots, {"a": (type, a), "b": (type, b)}, 90), wanted, roots, strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=repr(root))


def test_extreme_constants_are_exact() -> None:
    roots, want = [], []
    for name, t in VALUE_TYPES.items():
        numbers = [True, False] if name == "pred" else [t.least, t.greatest, 1, 0]
        if t.floating:
            numbers += [-0.0, math.nan, math.pi, float(finfo(ARRAYS[name]).smallest_subnormal)]
        for x in numbers:
            roots.append(constant(x, name))
            want.append(np.array(x, ARRAYS[name]))
    for got, w, root in zip(computed(roots, {"a": ("f32", np.zeros(1))}, 80), want, roots, strict=True):
        assert got[0] == w or (got[0] != got[0] and w != w), root
        if root.type in ("f16", "bf16", "f32", "f64"):
            assert np.signbit(got[0]) == np.signbit(w) or w != w


@pytest.mark.parametrize("sm", TARGETS)
def test_random_expressions_give_the_values_of_numpy(sm: int) -> None:
    """Casts, common expressions and selections in one text, without contraction."""
    inputs = random_values(np.random.default_rng(sm), 200)
    roots = random_roots(sm, 60)
    named = {name: (name.split("_")[0], x) for name, x in inputs.items()}
    for root, got in zip(roots, computed(roots, named, sm, contract=False), strict=True):
        want = np.broadcast_to(evaluate(root, inputs, exact=False), got.shape)
        np.testing.assert_array_equal(got, want, err_msg=repr(root))
    assert len(roots) > 25


def test_the_hyperbolic_tangent_is_accurate_near_0_and_far_from_it() -> None:
    x = np.concatenate([np.linspace(-12, 12, 20000), np.geomspace(1e-44, 1, 20000)]).astype(np.float32)
    [got] = computed([node("tanh", "f32", variable("a", "f32"))], {"a": ("f32", x)}, 90)
    want = np.tanh(x.astype(np.float64))
    assert (np.abs(got - want) <= 2.0**-22 * np.abs(want) + 2.0**-149).all()


def test_the_error_of_powers_does_not_grow_with_the_exponent() -> None:
    rng = np.random.default_rng(4)
    near = 1 + rng.uniform(-1, 1, 20000) * 2.0 ** -rng.integers(1, 23, 20000)
    bases = np.concatenate([2.0 ** rng.uniform(-149, 127, 20000), rng.uniform(0.5, 2, 20000), near])
    x = bases.astype(np.float32)
    with np.errstate(all="ignore"):
        y = (rng.uniform(-126, 127, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    y[~np.isfinite(y)] = 0.5
    [got] = computed(
        [node("pow", "f32", variable("a", "f32"), variable("b", "f32"))], {"a": ("f32", x), "b": ("f32", y)}, 90
    )
    want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
    assert (np.abs(got - want) <= 2.0**-20 * want + 2.0**-148)[want < 3.4e38].all()


def test_special_values_of_powers_are_those_of_c() -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -8.0, 3.0, -3.0, 2.0**24 + 2, math.inf, -math.inf, math.nan, 1e-44]
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(ends, ends))
    [got] = computed(
        [node("pow", "f32", variable("a", "f32"), variable("b", "f32"))], {"a": ("f32", x), "b": ("f32", y)}, 90
    )
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2.0**-20, atol=2.0**-148)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


def test_the_error_of_exp_does_not_grow_with_its_argument() -> None:
    x = np.concatenate([np.linspace(-87.3, 88.7, 20000), np.linspace(-104, -87, 500)]).astype(np.float32)
    [got] = computed([node("exp", "f32", variable("a", "f32"))], {"a": ("f32", x)}, 90)
    want = np.exp(x.astype(np.float64))
    error = np.abs(got - want)
    assert (error <= 2.0**-23 * want + 2.0**-149).all()
