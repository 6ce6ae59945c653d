"""States of reductions of rows: joined in any order they give what NumPy gives of all values."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.node import constant, variable
from ptxgen.lowering.states import StateReduction

NUMPY = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "u32": np.uint32}
RNG = np.random.default_rng(5)
SPECIAL = np.array([3, -np.inf, np.inf, np.nan, 3, -0.0, 0.0, np.nan, -7])


def state(op: StateReduction, values, first: int):
    """The state of values, joined one by one."""
    x = [variable(f"x{n}", t) for n, t in enumerate(op.types)]
    value, index = variable("value", op.type), variable("index", "s32")
    values_of_state = [evaluate(y, {}) for y in op.identity]
    for n, v in enumerate(values):
        known = {f"x{m}": y for m, y in enumerate(values_of_state)} | {"value": v, "index": np.int32(first + n)}
        values_of_state = [evaluate(y, known) for y in op.added(tuple(x), value, index)]
    return values_of_state


def reduced(op: StateReduction, values, parts: int):
    """The result of values in parts, whose states are joined from the last to the first."""
    x, y = ([variable(f"{name}{n}", t) for n, t in enumerate(op.types)] for name in "xy")
    values_of_state, end = [evaluate(z, {}) for z in op.identity], len(values)
    for part in reversed(np.array_split(np.asarray(values, NUMPY[op.type]), parts)):
        end -= len(part)
        other = state(op, part, end)
        known = {f"x{n}": z for n, z in enumerate(values_of_state)} | {f"y{n}": z for n, z in enumerate(other)}
        values_of_state = [evaluate(z, known) for z in op.joined(tuple(x), tuple(y))]
    return evaluate(op.finished(tuple(x)), {f"x{n}": z for n, z in enumerate(values_of_state)})


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("type", ["f32", "f64", "s32", "u32"])
@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_positions_are_those_of_numpy(op: str, type: str, parts: int) -> None:
    cases = [RNG.integers(0, 4, 13), np.full(7, 2)]
    if type[0] == "f":
        cases += [SPECIAL, SPECIAL[:3], np.full(5, np.inf), np.full(5, -np.inf), np.full(4, np.nan)]
    for values in cases:
        values = np.asarray(values, NUMPY[type])
        assert reduced(StateReduction(op, type), values, parts) == getattr(np, op)(values)
    assert reduced(StateReduction(op, type), [], 1) == -1


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], -np.inf),
        ([-np.inf, -np.inf], -np.inf),
        ([np.inf, 1, np.inf], np.inf),
        ([1, np.nan, np.inf], np.nan),
        ([800, 800], 800 + np.log(2)),
        ([-800, -900, -np.inf], -800),
    ],
)
def test_logsumexp_is_stable(values: list[float], expected: float, parts: int) -> None:
    with np.errstate(all="ignore"):
        result = reduced(StateReduction("logsumexp", "f32"), values, parts)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("op", ["+", "*", "min", "max", "mean"])
def test_operators_and_the_mean(op: str) -> None:
    values = RNG.integers(-2, 3, 24).astype(np.float32)
    expected = {"+": np.sum, "*": np.prod, "min": np.min, "max": np.max, "mean": np.mean}[op](values)
    np.testing.assert_allclose(reduced(StateReduction(op, "f32"), values, 3), expected, rtol=1e-6)
    with np.errstate(all="ignore"):
        assert np.isnan(reduced(StateReduction("mean", "f32"), [], 1))


def test_types_of_states_and_results() -> None:
    assert StateReduction("argmin", "f64").types == ("f64", "s32")
    assert StateReduction("argmin", "f64").result == "s32"
    assert StateReduction("mean", "f32").types == ("f32", "s32")
    assert StateReduction("max", "s32").identity == (constant(-(1 << 31), "s32"),)
