"""The oracle of tasks: against NumPy's own formulas, against loops over single pairs, and its errors against f32 arithmetic."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import ShapeError
from ptxgen.expr.evaluate import evaluate as value_of
from ptxgen.expr.evaluate import numpy_type
from ptxgen.expr.node import variables
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task import oracle
from ptxgen.operations.task.assembling import array_of, axes_of
from ptxgen.operations.task.checks import random_values
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import Dense, Listed, difference, evaluate, extents_of
from ptxgen.operations.task.program import Aggregate, Program, RowReduce, Select, Store
from tests.random_programs import random_arrays, random_program, square

RANDOM = np.random.default_rng(7)
P = RANDOM.integers(-8, 9, (5, 7)).astype(np.float32)
R = RANDOM.integers(-8, 9, (7, 6)).astype(np.float32)
G, H = np.array([0, 2, 1, 2, 0], np.int32), np.array([1, 0, 1, 3, 1, 0], np.int32)
C = P.astype(float) @ R.astype(float)
TYPES = {"P": "f32", "R": "f32", "G": "s32", "H": "s32", "t": "f32"}
SUM = "reduce (k) { accum += P[i, k] * R[k, j]; }"


def results(
    body: str,
    types: dict[str, str] | None = None,
    when: str = "",
    extents: Any = None,
    groups: Any = None,
    **arrays: Any,
) -> Any:
    program = parse(f"where (i, j) {when} {{ {body} }}", {**TYPES, **(types or {})})
    given = {"P": P, "R": R, "G": G, "H": H, "t": np.float32(20), **arrays}
    return evaluate(program, {x.name: given[x.name] for x in program.inputs}, extents, groups)


def test_stores_and_lists() -> None:
    out = results(f"{SUM} A[i, j] = accum; B[j, i] = accum > t; accum > t ? L.add(accum, i, j);")
    assert difference(out["A"], C) == ""
    assert not out["A"].error.any()
    assert difference(out["B"], (C > 20).T) == ""
    i, j = np.nonzero(C > 20)
    listed = out["L"]
    assert listed.count == len(i)
    assert [x.tolist() for x in listed.values] == [C[i, j].tolist(), i.tolist(), j.tolist()]
    order = RANDOM.permutation(len(i))
    assert difference(listed, [x[order] for x in listed.values]) == ""
    assert "value 2 of a row" in difference(listed, [*listed.values[:2], np.roll(listed.values[2], 1)])
    assert "must have" in difference(listed, [x[1:] for x in listed.values])
    assert "elements are wrong; element (0, 0)" in difference(out["A"], C + np.eye(5, 6))


@pytest.mark.parametrize("op", ["+", "max", "min"])
def test_groups(op: str) -> None:
    out = results(f"{SUM} A[G[i], H[j]] {op}= accum; B[H[j], i] += accum > t;", groups={"B": (3, 5)})
    reduce: Any = {"+": np.sum, "max": np.max, "min": np.min}[op]
    for g in range(3):
        for h in range(4):
            members = C[np.ix_(g == G, h == H)]
            assert out["A"].values[g, h] == (
                reduce(members) if members.size else {"+": 0, "max": -np.inf, "min": np.inf}[op]
            )
    assert out["A"].values.shape == (3, 4)
    assert out["A"].dropped == 0
    assert out["B"].values.tolist() == [(C[:, h == H] > 20).sum(axis=1).tolist() for h in range(3)]
    assert out["B"].dropped == 5  # the column with key 3


def test_keys_may_be_unsigned() -> None:
    out = results(
        f"{SUM} A[G[i], H[j]] += accum;", {"G": "u8", "H": "u32"}, G=G.astype(np.uint8), H=H.astype(np.uint32)
    )
    assert out["A"].values.shape == (3, 4)
    assert out["A"].values[0, 3] == C[np.ix_(G == 0, H == 3)].sum()
    out = results(f"{SUM} A[G[i], H[j]] += accum;", {"G": "u8"}, P=P[:0], G=np.zeros(0, np.uint8))
    assert out["A"].values.shape == (0, 4)


def test_rows_and_columns() -> None:
    out = results(
        f"{SUM} A[i] += accum; B[j] max= accum; D[i] argmin= accum; E[j] argmax= accum; F[i] logsumexp= accum / 50.0; H1[j] mean= accum;"
    )
    expected = {
        "A": C.sum(axis=1), "B": C.max(axis=0), "D": C.argmin(axis=1), "E": C.argmax(axis=0),
        "F": np.log(np.exp(C / 50).sum(axis=1)), "H1": C.mean(axis=0),
    }  # fmt: skip
    for name, values in expected.items():
        assert np.allclose(out[name].values, values, rtol=1e-12), name
    assert not out["A"].error.any()
    assert not out["D"].error.any()
    assert out["F"].error.any()


def test_pairs_that_when_selects() -> None:
    chosen = np.less.outer(np.arange(5), np.arange(6))
    out = results(
        f"{SUM} A[i, j] = accum; B[i] argmax= accum; D[i] mean= accum; E[i] logsumexp= accum; accum == accum ? L.add(i, j);",
        when="when (i < j and j != 5)",
    )
    chosen[:, 5] = False
    assert (out["A"].written == chosen).all()
    wrong = np.where(chosen, C, -1)
    assert difference(out["A"], wrong) == ""
    assert out["B"].values.tolist() == [
        int(np.where(chosen[i], C[i], -np.inf).argmax()) if chosen[i].any() else -1 for i in range(5)
    ]
    assert np.isnan(out["D"].values[4])
    assert out["E"].values[4] == -np.inf
    assert out["L"].count == chosen.sum()


@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_positions_are_the_first_of_equal_values_and_of_nans(op: str) -> None:
    p = np.array(
        [[3, 1, 1, 3], [np.nan, 1, 2, np.nan], [5, 5, np.nan, 5], [np.inf, np.inf, np.inf, np.inf]], np.float32
    )
    out = results(
        f"reduce (k) {{ accum {op}= P[i, k] + Z[j]; }} A[i, j] = accum;", {"Z": "f32"}, P=p, Z=np.zeros(2, np.float32)
    )
    assert out["A"].values.T.tolist() == [getattr(np, op)(p, axis=1).tolist()] * 2
    assert not out["A"].error.any()


def test_an_empty_k_gives_the_identity() -> None:
    p, r = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)
    for statement, initial, value in (
        ("accum += P[i, k] * R[k, j]", "", 0), ("accum max= P[i, k] * R[k, j]", "", -np.inf), ("accum max= P[i, k] * R[k, j]", "accum = 2;", 2),
        ("accum *= P[i, k] * R[k, j]", "", 1), ("accum argmin= P[i, k] * R[k, j]", "", -1), ("accum = mean(accum, P[i, k] * R[k, j])", "", np.nan),
    ):  # fmt: skip
        out = results(f"{initial} reduce (k) {{ {statement}; }} A[i, j] = accum;", P=p, R=r)
        assert np.array_equal(out["A"].values, np.full((2, 3), value, float), equal_nan=True), statement


def test_integers_wrap_around_in_their_type() -> None:
    x = np.array([[2**31 - 1, 2]], np.int32)
    y = np.array([[3], [2**30]], np.int32)
    out = results("reduce (k) { accum += X[i, k] * Y[k, j]; } A[i, j] = accum;", {"X": "s32", "Y": "s32"}, X=x, Y=y)
    assert out["A"].values.tolist() == [[3 * (2**31 - 1) + 2 * 2**30 - 2**33]]
    b = np.full((1, 600), 255, np.uint8)
    out = results("reduce (k) { accum += X[i, k] * Y[k, j]; } A[i, j] = accum;", {"X": "u8", "Y": "u8"}, X=b, Y=b.T)
    assert out["A"].values.tolist() == [[600 * 255**2]]
    out = results(
        "reduce (k) { accum += popcount(X[i, k] ^ Y[k, j]); } A[i, j] = accum;", {"X": "u8", "Y": "u8"}, X=b, Y=b.T // 2
    )
    assert out["A"].values.tolist() == [[600]]


def test_min_and_max_give_nan_as_numpy_does() -> None:
    p = np.array([[np.nan, 1, 2]], np.float32)
    r = np.zeros((3, 1), np.float32)
    out = results(
        "reduce (k) { accum max= P[i, k] + R[k, j]; } A[i, j] = accum; B[i, j] = fmax(accum, 1); D[i, j] = min(accum, 1);",
        P=p,
        R=r,
    )
    assert [float(out[name].values[0, 0]) for name in "ABD"] == pytest.approx([math.nan, 1, math.nan], nan_ok=True)
    out = results("reduce (k) { accum = fmax(accum, P[i, k] + R[k, j]); } A[i, j] = accum;", P=p, R=r)
    assert out["A"].values[0, 0] == 2


def test_initial_values_count_once() -> None:
    out = results("accum = bias[j]; " + SUM + " A[i, j] = accum;", {"bias": "f32"}, bias=np.arange(6, dtype=np.float32))
    assert difference(out["A"], C + np.arange(6)) == ""


def test_extents_that_disagree_are_an_error_with_both() -> None:
    program = parse(f"where (i, j) {{ {SUM} A[i, j] = accum; }}", TYPES)
    with pytest.raises(ShapeError, match="R has 7 elements along k; it must have 6, as P has"):
        extents_of(program, {"P": P[:, :6], "R": R})
    with pytest.raises(ShapeError, match="it must have 2 axes"):
        extents_of(program, {"P": P[0], "R": R})


@pytest.mark.parametrize(
    "step",
    ["P[i, k] * R[k, j]", "abs(P[i, k] - R[k, j])", "exp(-abs(P[i, k] * R[k, j]))", "P[i, k] / (1 + R[k, j] * R[k, j])", "sqrt(abs(P[i, k])) * R[k, j]"],
)  # fmt: skip
def test_errors_bound_f32_arithmetic(step: str) -> None:
    program = parse(f"where (i, j) {{ reduce (k) {{ accum += {step}; }} A[i, j] = accum * accum - accum; }}", TYPES)
    p, r = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((9, 300), (300, 11)))
    value = evaluate(program, {"P": p, "R": r})["A"]
    assert isinstance(value, Dense)
    total = np.zeros((9, 11), np.float32)
    for k in range(300):
        total += value_of(program.step, {"P[i,k]": p[:, k, None], "R[k,j]": r[k]}, exact=False)
    result = total * total - total
    assert difference(value, result, 1.0) == ""
    assert 0 < value.error.min() < value.error.max() < 0.1 * np.abs(value.values).max()
    assert difference(value, result * 1.01, 1.0) != ""


def test_f64_results_have_an_error_unless_they_are_small_integers() -> None:
    types = {"P": "f64", "R": "f64"}
    for p, exact in ((P, True), (P / 3, False), (P * 1e9, False)):
        out = results(
            "reduce (k) { accum *= P[i, k] * R[k, j]; } A[i, j] = accum;",
            types,
            P=p[:, :2].astype(float),
            R=R[:2].astype(float),
        )
        zero = out["A"].values == 0
        assert (out["A"].error[~zero] == 0).all() == exact


def test_conditions_that_rounding_may_change_are_known() -> None:
    p = np.full((1, 3), 0.1, np.float32)
    r = np.array([[1, 2]] * 3, np.float32)
    total = float(p[0, 0]) * 3
    out = results(
        "reduce (k) { accum += P[i, k] * R[k, j] * R[k, j]; } accum > t ? L.add(accum); A[i, j] = accum > t ? 1.0 : 5.0;",
        P=p / 3,
        R=r,
        t=np.float32(total / 3),
    )
    assert out["L"].certain.tolist() == [False, True]
    assert out["A"].error.tolist() == [[4, 0]]
    assert difference(out["L"], [out["L"].values[0][1:]]) == ""
    assert difference(out["L"], [np.zeros(3)]) != ""


def naive(program: Program, arrays: dict[str, Any], extents: dict[str, int]) -> dict[str, Any]:
    """The results, pair by pair."""
    m, n, depth = (extents[axis] for axis in "ijk")
    place: dict[str, int] = {}

    def at(root: Any, accum: Any = None) -> Any:
        known: dict[str, Any] = {
            "i": place["i"],
            "j": place["j"],
            "k": place.get("k"),
            "M": m,
            "N": n,
            "K": depth,
            "accum": accum,
        }
        for name in variables(root):
            if name not in known:
                known[name] = arrays[array_of(name)][tuple(place[axis] for axis in axes_of(name))]
        return np.asarray(value_of(root, known))[()]

    def fold(op: str, items: list[Any], type: str) -> Any:
        if op in ("argmin", "argmax"):
            return getattr(np, op)(items) if items else -1
        if op == "logsumexp":
            return np.logaddexp.reduce(np.array(items, float), initial=-np.inf)
        if op == "mean":
            return np.sum(np.array(items, float)) / np.float64(len(items))
        held: Any = np.float64 if type_of(type).floating else numpy_type(type)
        total = np.array(OPERATORS[op].identity(type_of(type)), held)  # type: ignore[misc]
        for item in items:
            total = np.asarray(OPERATORS[op].compute(total, np.asarray(item, held)))
        return total[()]

    rows: dict[str, Any] = {output.name: {} for output in program.outputs}
    for place["i"] in range(m):
        for place["j"] in range(n):
            if program.when is not None and not at(program.when):
                continue
            steps = []
            for place["k"] in range(depth):
                steps.append(at(program.step))
            if program.initial is not None:
                steps.append(at(program.initial))
            accum = fold(program.reduction, steps, program.accumulator)
            for output in program.outputs:
                result, value = rows[output.name], at(output.value, accum)
                if isinstance(output, Aggregate):
                    result.setdefault((int(at(output.row)), int(at(output.column))), []).append(value)
                elif isinstance(output, RowReduce):
                    result.setdefault(place[output.axis], {})[place["j" if output.axis == "i" else "i"]] = value
                elif isinstance(output, Select):
                    if at(output.condition, accum):
                        result[place["i"], place["j"]] = [at(x, accum) for x in output.values]
                else:
                    result[tuple(place[axis] for axis in output.axes)] = value  # type: ignore[attr-defined]
    for output in program.outputs:
        result = rows[output.name]
        if isinstance(output, Aggregate):
            rows[output.name] = {key: fold(output.op, items, output.value.type) for key, items in result.items()}
        elif isinstance(output, RowReduce):
            for key, items in result.items():
                value = fold(output.op, list(items.values()), output.value.type)
                result[key] = list(items)[int(value)] if output.op in ("argmin", "argmax") else value
    return rows


@pytest.mark.parametrize("seed", range(60))
def test_blocks_compute_what_loops_compute(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Random(seed)
    program = random_program(draw)
    extents = {axis: extent for group in square(program) for extent in [draw.randint(0, 4)] for axis in group}
    arrays = random_arrays(program, extents, draw, special=draw.choice((0, 0.1)))
    monkeypatch.setattr(oracle, "_BLOCK", 6)
    evaluated = evaluate(program, arrays, extents)
    with np.errstate(all="ignore"):
        loops = naive(program, arrays, extents)
    for output in program.outputs:
        mine, theirs = evaluated[output.name], loops[output.name]
        if isinstance(mine, Listed):
            assert mine.count == len(theirs)
            held = {
                (int(i), int(j)): [x[n] for x in mine.values]
                for n, (i, j) in enumerate(zip(mine.i, mine.j, strict=True))
                if mine.holds[n]
            }
            pairs = [(held[key], theirs[key]) for key in theirs]
        else:
            pairs = [([mine.values[key]], [value]) for key, value in theirs.items()]
            if isinstance(output, Store) and mine.written is None:
                assert len(theirs) == mine.values.size
        for a, b in pairs:
            assert np.allclose(np.array(a, float), np.array(b, float), rtol=1e-9, atol=1e-9, equal_nan=True), canonical(
                program
            )


@pytest.mark.parametrize("inputs", ["f32", "f16", "f64"])
@pytest.mark.parametrize("values", ["integers", "normal", "special"])
def test_large_sums_of_products_are_products_of_matrices(
    inputs: str, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    a, b = (random_values(values, inputs, shape, rng) for shape in ((9, 17), (30, 17)))
    step = "f32(P[i,k])*f32(R[j,k])" if inputs == "f16" else "R[j,k]*P[i,k]"
    text = f"where (i, j) {{ reduce (k) {{ accum += {step}; }} C[i,j] = accum; D[i] += accum > 2; }}"
    program = parse(text, {"P": inputs, "R": inputs})
    slow = evaluate(program, {"P": a, "R": b})
    monkeypatch.setattr(oracle, "PRODUCTS", 1)
    monkeypatch.setattr(oracle, "_BLOCK", 120)
    fast = evaluate(program, {"P": a, "R": b})
    for name in "CD":
        one, other = slow[name], fast[name]
        assert isinstance(one, Dense)
        assert isinstance(other, Dense)
        np.testing.assert_allclose(other.values, one.values, rtol=1e-12, atol=1e-12)
        if values == "normal":
            assert (one.error <= 2 * other.error + 1e-30).all()
            assert (other.error <= 4 * one.error + 1e-30).all()
        else:
            np.testing.assert_array_equal(other.error, one.error)


def test_other_steps_are_no_products_of_matrices() -> None:
    steps = [("P[i,k]+R[j,k]", "f32"), ("P[i,k]*R[j,k]", "s32"), ("f32(P[i,k])*f32(R[j,k])", "f64")]
    for step, dtype in [*steps, ("P[i,k]*P[i,k]*R[j,k]", "f32")]:
        text = f"where (i, j) {{ reduce (k) {{ accum += {step}; }} C[i,j] = accum; }}"
        assert oracle.factors_of(parse(text, {"P": dtype, "R": dtype})) is None
