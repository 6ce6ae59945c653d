"""Derivatives of expressions against differences of their values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ptxgen.errors import TaskError
from ptxgen.expr import derivative
from ptxgen.expr.derivative import derivatives, terms
from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.node import Node, constant, node, select, variable, variables
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import PRED

X, Y = variable("x", "f64"), variable("y", "f64")
#: where x is less than y, and where it is greater
POINTS = {"x": np.array([0.7, 1.9]), "y": np.array([1.2, 0.4])}


def check(root: Node) -> None:
    gradients = derivatives(root, ("x", "y"))
    for name in variables(root):
        ends = [evaluate(root, {**POINTS, name: POINTS[name] + h}) for h in (2.0**-20, -(2.0**-20))]
        value = evaluate(gradients[name], POINTS) if name in gradients else 0.0
        np.testing.assert_allclose(value, (ends[0] - ends[1]) * 2.0**19, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", derivative.DIFFERENTIABLE)
def test_operators(name: str) -> None:
    operands = (X, Y, node("*", "f64", X, X))[: OPERATORS[name].operands]
    check(node(name, "f64", *operands))
    check(node("*", "f64", node(name, "f64", *operands), node("neg", "f64", Y)))


def test_choices_casts_and_conditions() -> None:
    test = node("<", PRED, X, Y)
    check(select(test, node("*", "f64", X, Y), Y))
    check(node("cast", "f64", node("*", "f64", X, X)))
    assert derivatives(node("cast", "f64", test), ("x", "y")) == {}
    narrow = node("cast", "f32", variable("h", "f16"))
    assert derivatives(node("*", "f32", narrow, narrow), ("h",))["h"].type == "f32"


@pytest.mark.parametrize("power", ["exp", "exp2"])
@pytest.mark.parametrize("numerator", [constant(1, "f64"), constant(3, "f64"), X])
def test_logistic_functions(power: str, numerator: Node) -> None:
    """They saturate: their derivatives are numbers where the power is infinite."""
    root = node("/", "f64", numerator, node("+", "f64", node(power, "f64", node("neg", "f64", X)), constant(1, "f64")))
    check(root)
    with np.errstate(over="ignore"):
        ends = evaluate(derivatives(root, ("x",))["x"], {"x": np.array([-2000.0, 2000.0])})
    np.testing.assert_allclose(ends, [0, 1 if numerator is X else 0], atol=1e-12)


def test_at_points_without_derivative() -> None:
    """As PyTorch has them."""
    tie = {"x": 2.0, "y": 2.0}
    for name, wanted in (("max", (0.5, 0.5)), ("min", (0.5, 0.5)), ("fmax", (1.0, 0.0)), ("fmin", (1.0, 0.0))):
        gradients = derivatives(node(name, "f64", X, Y), ("x", "y"))
        assert tuple(evaluate(gradients[x], tie) for x in "xy") == wanted
    assert evaluate(derivatives(node("abs", "f64", X), ("x",))["x"], {"x": 0.0}) == 0
    for name, bound in (("max", 2.0), ("min", 2.0), ("max", 1.5), ("min", 1.5)):  # torch.clamp
        for operands in ((X, constant(bound, "f64")), (constant(bound, "f64"), X)):
            for factor, of_one in ((X, 2.0), (constant(1, "f64"), 1.0)):
                root = node("*", "f64", factor, node(name, "f64", *operands))
                got = evaluate(derivatives(root, ("x",))["x"], {"x": bound})
                assert got == (2 * bound if factor is X else of_one)
    power = derivatives(node("pow", "f64", X, Y), ("x", "y"))
    for point, wanted in (((0.0, 0.0), (0.0, 0.0)), ((0.0, 2.0), (0.0, 0.0)), ((0.0, 1.0), (1.0, 0.0))):
        assert tuple(float(evaluate(power[x], dict(zip("xy", point, strict=True)))) for x in "xy") == wanted
    nan = derivatives(node("fmin", "f64", X, Y), ("x", "y"))
    assert [float(evaluate(nan[x], {"x": 1.0, "y": np.nan})) for x in "xy"] == [1, 0]


def test_operators_without_derivative() -> None:
    with pytest.raises(TaskError, match=r"`popcount\(…\)` has no derivative"):
        derivatives(node("cast", "f32", node("popcount", "u32", node("cast", "u32", X))), ("x",))
    with pytest.raises(TaskError, match=r"`rcp` has no derivative; .* there may be \+ - \*"):
        derivatives(node("rcp", "f64", X), ("x",))
    integers = node("cast", "f64", node("<<", "s32", variable("n", "s32"), constant(1, "s32")))
    assert list(derivatives(node("*", "f64", X, integers), ("x",))) == ["x"]


def test_a_derivative_as_a_sum_of_products() -> None:
    difference = node("-", "f64", X, Y)
    root = node("*", "f64", constant(2, "f64"), node("neg", "f64", difference))

    def of_x(x: Node) -> bool:
        return "y" not in variables(x)

    [one] = terms(root, of_x, 1)
    assert one.outside == constant(-2, "f64")
    assert one.inside is difference
    two = terms(root, of_x, 2)
    assert Counter(x.inside.op for x in two) == {"constant": 1, "variable": 1}
    whole = sum(evaluate(x.outside, POINTS) * evaluate(x.inside, POINTS) for x in two)
    np.testing.assert_allclose(whole, evaluate(root, POINTS))
    assert len(terms(node("*", "f64", root, difference), of_x, 3)) == 1
