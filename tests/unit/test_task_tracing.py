# ruff: noqa: N803 arrays have the names of their texts
"""Python functions as tasks: their programs are those of texts, and errors name the user's line."""

from __future__ import annotations

import inspect
import math
import operator
import traceback
from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import TaskError
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.program import Input
from ptxgen.operations.task.tracing import functions as ptxgen
from ptxgen.operations.task.tracing.traced_function import TracedFunction

i, j, k = ptxgen.axes("i j k")
TYPES = {"P": "f32", "R": "f32", "g": "s32", "h": "s32", "t": "f32", "b": "u8", "n": "s32"}
LIMIT = 0.25
FLAG = True


def program(function: Callable[..., Any], **types: Any) -> Any:
    known = {**TYPES, **types}
    return TracedFunction(function).program({x: known[x] for x in inspect.signature(function).parameters})


def mutual(P, R, g, h, t):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return ptxgen.sum_by(g[i], h[j], c > t)


def spectra(P, R, t):
    p = P[i, k] * R[k, j]
    return ptxgen.sum(k, p + (p > t[i]) * (p - t[i]))


def hits(P, R, t):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return {"hits": ptxgen.select(c > t, c, i, j)}


def many(P, R, g):
    c = ptxgen.min(k, abs(P[i, k] - R[k, j]) ** 2, initial=7)
    rows = ptxgen.sum(j, c), ptxgen.argmin(i, c), ptxgen.logsumexp(j, -c), ptxgen.mean(i, ptxgen.sqrt(c))
    return (*rows, ptxgen.max_by(g[i], j, c), ptxgen.where((c > 0) & ~(c < 1), 1, c))


def bits(b, n):
    ptxgen.when(i < j)
    ptxgen.when(n[i, j] != 0)
    c = ptxgen.sum(k, ptxgen.popcount(b[i, k] ^ b[j, k]))
    return (
        ptxgen.cast(c, "u8"),
        ptxgen.maximum(c, 3, 5),
        np.float32(2) * ptxgen.cast(c, np.float32),
        c / k.extent if False else c * 2,
    )


def anything(P, R):
    c = ptxgen.any(k, (P[i, k] > 0) & (R[k, j] < 0))
    return ptxgen.select(c, i, j)


#: function -> the body of its text
TEXTS = {
    mutual: "{ reduce (k) { accum += P[i, k] * R[k, j]; } out[g[i], h[j]] += accum > t; }",
    spectra: "{ reduce (k) { p = P[i, k] * R[k, j]; accum += p + (p > t[i]) * (p - t[i]); } out[i, j] = accum; }",
    hits: "{ reduce (k) { accum += P[i, k] * R[k, j]; } accum > t ? hits.add(accum, i, j); }",
    many: "{ accum = 7; reduce (k) { d = abs(P[i, k] - R[k, j]); accum min= d * d; } out0[i] += accum; out1[j] argmin= accum;"
    " out2[i] logsumexp= -accum; out3[j] mean= sqrt(accum); out4[g[i], j] max= accum;"
    " out5[i, j] = accum > 0 and not accum < 1 ? 1 : accum; }",
    bits: "when (i < j and n[i, j] != 0) { reduce (k) { accum += popcount(b[i, k] ^ b[j, k]); }"
    " out0[i, j] = u8(accum); out1[i, j] = max(accum, 3, 5); out2[i, j] = 2 * f32(accum); out3[i, j] = accum * 2; }",
    anything: "{ reduce (k) { accum |= s32(P[i, k] > 0 and R[k, j] < 0); } accum != 0 ? out.add(i, j); }",
}  # fmt: skip


@pytest.mark.parametrize("function", TEXTS, ids=lambda f: f.__name__)
def test_functions_are_the_programs_of_texts(function: Callable[..., Any]) -> None:
    traced = program(function)
    assert canonical(traced) == canonical(parse(f"where (i, j) {TEXTS[function]}", TYPES))
    assert parse(canonical(traced)) == traced


def test_axes_have_the_roles_of_their_use() -> None:
    depth, column, row = ptxgen.axes("depth, row, column")

    def product(P, R):
        return ptxgen.sum(depth, P[column, depth] * R[depth, row]) / ptxgen.cast(depth.extent + column, "f32")

    text = "where (i, j) { reduce (k) { accum += P[i, k] * R[k, j]; } out[i, j] = accum / f32(K + i); }"
    assert program(product) == parse(text, TYPES)


def test_numbers_around_a_function_are_scalars() -> None:
    limit = 0.5

    def scaled(x):
        return x * LIMIT + 2

    def near(P, R, t):
        return ptxgen.select(scaled(ptxgen.sum(k, P[i, k] * R[k, j])) > limit, i, j) if FLAG else None

    task = TracedFunction(near)
    assert task.numbers() == {"limit": 0.5, "LIMIT": 0.25}
    traced = task.program({"P": "f64", "R": "f64", "t": None})
    assert traced.inputs[2:] == (Input("limit", "f64"), Input("LIMIT", "f64"))
    assert task.program({"P": "f32", "R": "f64", "t": None}).inputs[2:] == (
        Input("limit", "f64"),
        Input("LIMIT", "f64"),
    )
    assert task.program({"P": "f32", "R": "f32", "t": "int"}).inputs[2:] == (
        Input("limit", "f32"),
        Input("LIMIT", "f32"),
    )
    calls = len(task._programs)
    limit = 0.75
    assert task.numbers()["limit"] == 0.75
    assert task.program({"P": "f64", "R": "f64", "t": None}) is traced
    assert len(task._programs) == calls
    limit = 3
    task.program({"P": "f64", "R": "f64", "t": None})
    assert len(task._programs) == calls + 1


def test_a_function_is_called_once_for_equal_types() -> None:
    calls = []

    def product(P, R, scale=2.0):
        calls.append(scale)
        return ptxgen.sum(k, P[i, k] * R[k, j]) * scale

    task = TracedFunction(product)
    first = task.program({"P": "f32", "R": "f32"})
    assert task.program({"R": "f32", "P": "f32"}) is first
    assert calls == [2.0]  # no type: the default is a constant
    assert task.program({"P": "f32", "R": "f32", "scale": "float"}).inputs[2] == Input("scale", "f32")
    assert task.program({"P": "f16", "R": "f32"}) is not first


def test_f16_sums() -> None:
    def product(P, R):
        return ptxgen.sum(k, P[i, k] * R[k, j], accum="f16")

    text = "accum: f16; where (i, j) { reduce (k) { accum += P[i, k] * R[k, j]; } out[i, j] = accum; }"
    types = {"P": "f16", "R": "f16"}
    assert program(product, **types) == parse(text, types)


def if_(P, R, t):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    if c > t:
        return c
    return c * 2


def and_(P, R, t):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return ptxgen.select(c > t and c < 1, c)


def chain(P, R, t):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return ptxgen.select(0 < c < 1, c)


def builtin_max(P, R):
    return max(ptxgen.sum(k, P[i, k] * R[k, j]), 0)


def math_exp(P, R):
    return math.exp(ptxgen.sum(k, P[i, k] * R[k, j]))


def bare_exp(P, R):
    return exp(ptxgen.sum(k, P[i, k] * R[k, j])) + 1


def numpy_exp(P, R):
    return np.exp(ptxgen.sum(k, P[i, k] * R[k, j]))


def numpy_where(P, R):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return np.where(c > 0, c, 0)


def math_sin(P, R):
    return math.sin(ptxgen.sum(k, P[i, k] * R[k, j]))


def float_(P, R):
    return float(ptxgen.sum(k, P[i, k] * R[k, j]))


def loop(P, R):
    return sum(P[i, x] * R[x, j] for x in k)


def loop_to_scalar(P, R, n):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    for _ in range(n):
        c = c * c
    return c


def mixed(P, n):
    return ptxgen.sum(k, P[i, k] * n[k, j])


def early(P, R):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return ptxgen.sum(k, c * P[i, k])


def second(P, R):
    return ptxgen.sum(k, P[i, k] * R[k, j]) + ptxgen.sum(k, P[i, k])


def late(P, R):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    return c * P[i, k]


def number_index(P, R):
    return ptxgen.sum(k, P[i, 0] * R[k, j])


def slices(P, R):
    return ptxgen.sum(k, P[i, :] * R[k, j])


def transposed(P, R):
    return ptxgen.sum(k, P.T[k, i] * R[k, j])


def assigned(P, R):
    P[i, k] = 0
    return ptxgen.sum(k, P[i, k] * R[k, j])


def row_used(P, R):
    return ptxgen.sum(j, ptxgen.sum(k, P[i, k] * R[k, j])) * 2


def float_key(P, R, t):
    return ptxgen.sum_by(t[i], t[j], ptxgen.sum(k, P[i, k] * R[k, j]))


def axis_last(P, R):
    return ptxgen.sum(P[i, k] * R[k, j], k)


def matmul(P, R):
    return P @ R


def power(P, R):
    return ptxgen.sum(k, ptxgen.cast(P[i, k], "s32") ** 1.5 * R[k, j])


def string(P, R):
    return ptxgen.sum(k, P[i, k] * "2")


def when_accum(P, R):
    c = ptxgen.sum(k, P[i, k] * R[k, j])
    ptxgen.when(c > 0)
    return c


def method(P, R):
    return (P[i, k] * R[k, j]).sum()


def bad_cast(P, R):
    return ptxgen.cast(ptxgen.sum(k, P[i, k] * R[k, j]), "complex64")


def no_reduction(P, R):
    return P[i, j] * R[i, j]


def nothing(P, R):
    ptxgen.sum(k, P[i, k] * R[k, j])


def one_axis(P):
    return ptxgen.sum(k, P[i, k])


#: function -> (what its line executes, a part of the message)
ERRORS = {
    if_: ("c > t", "write ptxgen.where(condition, a, b) for if"),
    and_: ("c > t", "write & for and"),
    chain: ("0 < c < 1", "(a < b) & (b < c)"),
    builtin_max: ("max(ptxgen.sum(k, P[i, k] * R[k, j]), 0)", "write ptxgen.maximum"),
    math_exp: ("math.exp(ptxgen.sum(k, P[i, k] * R[k, j]))", "write ptxgen.exp"),
    bare_exp: ("exp(ptxgen.sum(k, P[i, k] * R[k, j]))", "write ptxgen.exp"),
    numpy_exp: ("np.exp(ptxgen.sum(k, P[i, k] * R[k, j]))", "write ptxgen.exp"),
    numpy_where: ("np.where(c > 0, c, 0)", "write ptxgen.where"),
    math_sin: ("math.sin(ptxgen.sum(k, P[i, k] * R[k, j]))", "the language has no sin"),
    float_: ("float(ptxgen.sum(k, P[i, k] * R[k, j]))", "write ptxgen.cast(…, 'f32')"),
    loop: ("", "write ptxgen.sum(k, …)"),
    loop_to_scalar: ("range(n)", "write its value in the function"),
    mixed: ("P[i, k] * n[k, j]", "write f32(n[k,j])"),
    early: ("ptxgen.sum(k, c * P[i, k])", "changes with its axis k"),
    second: ("ptxgen.sum(k, P[i, k])", "second reduction"),
    late: ("c * P[i, k]", "changes with its axis k"),
    number_index: ("P[i, 0]", "it must be an axis"),
    slices: ("P[i, :]", "it must be an axis"),
    transposed: ("P.T", "write P[k, i]"),
    assigned: ("P[i, k]", "return the result"),
    row_used: ("ptxgen.sum(j, ptxgen.sum(k, P[i, k] * R[k, j])) * 2", "it must be returned"),
    float_key: ("ptxgen.sum_by(t[i], t[j], ptxgen.sum(k, P[i, k] * R[k, j]))", "it must be an integer"),
    axis_last: ("ptxgen.sum(P[i, k] * R[k, j], k)", "write ptxgen.sum(k, …)"),
    matmul: ("P @ R", "ptxgen.sum(k, …)"),
    power: ('ptxgen.cast(P[i, k], "s32") ** 1.5', "cast the other operand: write f32"),
    string: ('P[i, k] * "2"', "an operand is str"),
    when_accum: ("ptxgen.when(c > 0)", "write ptxgen.select"),
    method: ("(P[i, k] * R[k, j]).sum", "write ptxgen.sum"),
    bad_cast: ('ptxgen.cast(ptxgen.sum(k, P[i, k] * R[k, j]), "complex64")', "it must be one of f64"),
    no_reduction: ("def no_reduction(P, R):", "write ptxgen.sum(k, …)"),
    nothing: ("def nothing(P, R):", "returns nothing"),
    one_axis: ("def one_axis(P):", "the number of spatial axes is 1"),
}  # fmt: skip


@pytest.mark.parametrize("function", ERRORS, ids=lambda f: f.__name__)
def test_errors_show_the_line_and_what_to_write(function: Callable[..., Any]) -> None:
    part, message = ERRORS[function]
    with pytest.raises(TaskError) as caught:
        program(function)
    first, line, carets = str(caught.value).split("\n")
    assert message in first
    if part != "c * P[i, k]" or function is late:
        assert line[carets.index("^") : carets.rindex("^") + 1].startswith(part) or function is early
    lines, start = inspect.getsourcelines(function)
    assert first.startswith(f"{__file__}, line {caught.value.line}")
    assert start <= caught.value.line < start + len(lines)
    assert lines[caught.value.line - start].strip() == line.strip()


def test_an_error_has_no_frames_of_the_trace() -> None:
    with pytest.raises(TaskError) as caught:
        program(if_)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "program"
    assert "if_" not in names
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_errors_of_users_pass() -> None:
    def divided(P):
        return ptxgen.sum(k, P[i, k] / (1 // 0))

    with pytest.raises(ZeroDivisionError):
        program(divided)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *arrays: arrays, "is no parameter of one array"),
        (lambda K: K, "K is a word of the language"),
        (lambda ä: ä, "letters outside ASCII"),
        (operator.add, "it must be a function or a text"),
    ],
)
def test_parameters_have_rules(function: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        TracedFunction(function)


def test_functions_of_tasks_are_for_tasks() -> None:
    with pytest.raises(TaskError, match=r"write @ptxgen\.task"):
        ptxgen.exp(1.0)
    with pytest.raises(TaskError, match=r"write @ptxgen\.task"):
        i + 1
    with pytest.raises(TaskError, match="different names"):
        ptxgen.axes("i i k")


def test_functions_inside_a_function_read_numbers_around_it() -> None:
    def near(P, R):
        c = ptxgen.sum(k, P[i, k] * R[k, j])
        return tuple(scale(c) for scale in (lambda x: x * LIMIT, lambda x: x + LIMIT))

    task = TracedFunction(near)
    assert task.numbers() == {"LIMIT": 0.25}
    assert task.program({"P": "f32", "R": "f32"}).inputs[2] == Input("LIMIT", "f32")


def test_names_of_outputs_and_inputs_differ() -> None:
    out, größe = 2.0, 3.0

    def scaled(P, R):
        return ptxgen.sum(k, P[i, k] * R[k, j]) * out + größe

    traced = program(scaled)
    assert [x.name for x in traced.inputs] == ["P", "R", "out", "number"]
    assert traced.outputs[0].name == "out_"
    assert parse(canonical(traced)) == traced
    for wrong in (
        lambda P, R: {"P": ptxgen.sum(k, P[i, k] * R[k, j])},
        lambda P, R: {"max": ptxgen.sum(k, P[i, k] * R[k, j])},
    ):
        with pytest.raises(TaskError, match="the name of an input or a word"):
            program(wrong)


def test_recursion_and_helpers_keep_their_surroundings() -> None:
    depth = 2

    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    def cubes(P, R):
        return power(ptxgen.sum(k, P[i, k] * R[k, j]), 2) * depth

    traced = program(cubes)
    assert canonical(traced).count("accum*") == 3 or "accum*accum" in canonical(traced)
    assert traced.inputs[2] == Input("depth", "f32")
