"""Arguments of tasks: what is refused, and how it is said."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.cli import command
from ptxgen.errors import DtypeError, InputError, OverlapError, ShapeError, TaskError

DISTANCE = "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } D[i,j] = accum * s; }"


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"P": zeros(3, 4), "R": zeros(5, 6), "s": 1.0},
            ShapeError,
            "axis k has the extent 4 in P and 6 in R; they must be",
        ),
        (
            {"P": zeros(4), "R": zeros(5, 4), "s": 1.0},
            ShapeError,
            "P has shape (4,); the task reads P[i,k], so it must have 2",
        ),
        ({"P": zeros(3, 4), "s": 1.0}, InputError, "R must be given; the inputs of the task are P, R, s"),
        (
            {"P": zeros(3, 4), "R": zeros(5, 4), "s": 1.0, "t": 2},
            InputError,
            "t is no input of the task; its inputs are P, R, s",
        ),
        (
            {"P": zeros(3, 4), "R": zeros(5, 4, dtype=complex), "s": 1.0},
            DtypeError,
            "R has dtype complex128; the elements of a task must be real",
        ),
        (
            {"P": zeros(3, 4), "R": zeros(5, 4), "s": 1.0, "out": zeros(3, 4)},
            ShapeError,
            "out has shape (3, 4); it must be (3, 5)",
        ),
        (
            {"P": zeros(3, 4), "R": zeros(5, 4), "s": 1.0, "out": zeros(3, 5, dtype=np.int32)},
            DtypeError,
            "out is s32; it must be f32",
        ),
        (
            {"P": zeros(3, 4), "R": zeros(5, 4), "s": "1"},
            InputError,
            "s is '1'; it must be a real number, or an array",
        ),
        (
            {"P": zeros(3, 4), "R": zeros(5, 4), "s": 2j},
            InputError,
            "s is 2j; it must be a real number, or an array",
        ),
        (
            {"P": zeros(3, 4, dtype=np.int64), "R": zeros(5, 4), "s": 1.0},
            DtypeError,
            "P has dtype int64; it must be an integer of at most 32 bits, unless it is only a key",
        ),
        (
            {"P": zeros(3, 4, dtype=np.int32), "R": zeros(5, 4, dtype=np.int32), "s": 1 << 31},
            InputError,
            "s is 2147483648; it must be from -2147483648 to 2147483647",
        ),
        (
            {"P": zeros(3, 4, dtype=np.int32), "R": zeros(5, 4, dtype=np.int32), "s": np.int64(1 << 31)},
            InputError,
            "s is 2147483648; it must be from -2147483648 to 2147483647",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_are_refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        ptxgen.task(DISTANCE)(**given)


@pytest.mark.parametrize("text", ["accum += P[i, l]; } C[i, j] = accum;", "accum += P[i, k]; } C[i, l] = accum;"])
def test_an_index_that_is_no_axis_is_no_input(text: str) -> None:
    with pytest.raises(TaskError, match="l is no axis; it must be i, j, k"):
        ptxgen.task(f"where (i, j) {{ reduce (k) {{ {text} }}")


@pytest.mark.parametrize(
    ("s", "message"),
    [
        (2.0, "s is 2.0; it must be an integer, a number of s32"),
        (np.float32(2), "it must be an integer, a number of s32"),
        (np.zeros((), np.int32), "s is an array with shape (); it must be a number"),
        (np.zeros(3, np.int32), "s is an array with shape (3,); it must be a number"),
    ],
    ids=["float", "numpy", "scalar array", "array"],
)
def test_a_number_of_a_declared_type_has_it(s: Any, message: str) -> None:
    text = "s: s32; where (i, j) { reduce (k) { accum += P[i, k] * R[j, k]; } D[i, j] = accum * f32(s); }"
    with pytest.raises(InputError, match=re.escape(message)):
        ptxgen.task(text)(P=zeros(3, 4), R=zeros(5, 4), s=s)


@pytest.mark.parametrize(("name", "near"), [("p", "P"), ("grups", "groups"), ("Out", "out"), ("zzzz", "")])
def test_names_that_are_no_inputs_have_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(InputError) as error:
        ptxgen.task(DISTANCE)(**{"P": zeros(3, 4), "R": zeros(5, 4), "s": 1.0, name: zeros(3)})
    rule = f": write {near}" if near else ""
    assert str(error.value) == f"{name} is no input of the task; its inputs are P, R, s{rule}"
    with pytest.raises(InputError, match="P is given twice; it must be given by name or in order"):
        ptxgen.task(DISTANCE)(zeros(3, 4), P=zeros(3, 4))


def test_the_command_names_the_nearest_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["task", "--expr", DISTANCE, "--input", "r=2.0"]) == 2
    assert "r is no input of the task; its inputs are P, R, s: write R" in capsys.readouterr().err


def test_the_result_may_not_overlap_an_input() -> None:
    memory = zeros(8, 8)
    with pytest.raises(OverlapError, match="out shares memory with a; they must not overlap"):
        ptxgen.matmul_over("min_plus", memory, zeros(8, 8), out=memory)


def test_semirings_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="semiring is 'min_sum'; it must be one of plus_times, min_plus,"):
        ptxgen.matmul_over("min_sum", zeros(2, 2), zeros(2, 2))
    with pytest.raises(DtypeError, match="a and b are f32; with the semiring or_and they must be integers"):
        ptxgen.matmul_over("or_and", zeros(2, 2), zeros(2, 2))
    with pytest.raises(DtypeError, match="a is f32 and b is f64; they must be the same"):
        ptxgen.matmul_over("min_plus", zeros(2, 2), zeros(2, 2, dtype=np.float64))


def test_strided_arrays_are_read_where_they_are_or_copied() -> None:
    rng = np.random.default_rng(0)
    p, r = rng.integers(-4, 5, (12, 22)).astype(np.float32), rng.integers(-4, 5, (9, 22)).astype(np.float32)
    expected = np.abs(p[::2, None, ::2] - r[None, :, ::2]).sum(-1)
    np.testing.assert_array_equal(ptxgen.task(DISTANCE)(P=p[::2, ::2], R=r[:, ::2], s=1.0), expected)


def test_the_text_form_names_the_program() -> None:
    from ptxgen.problem.registry import parse

    p = ptxgen.Task(3, 4, 5, dtype="f64", text=DISTANCE)
    assert p.layout == "NT"
    assert (p.dtype, p.compute, p.out) == ("f64", "f64", "f64")
    assert parse(p.key()) == p
    renamed = DISTANCE.replace("P", "U").replace("R", "V").replace("D[", "E[")
    assert ptxgen.Task(3, 4, 5, dtype="f64", text=renamed) == p


def test_the_command_shows_the_place_of_an_error_in_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = "where (i, j) { reduce (k) { accum += P[i,k]*R[j,k]; } C[i,j] = accum }"
    assert command.run(["task", "--expr", text]) == 2
    error, line, caret = capsys.readouterr().err.splitlines()[-3:]
    assert error == "error: line 1, column 69: `;` is missing; write ; here"
    assert line.strip() == text
    assert caret.index("^") - line.index(text) == 68


def test_a_name_like_accum_is_no_missing_input() -> None:
    run = ptxgen.task("where (i, j) { reduce (k) { accum += P[i,k]*R[j,k]; } C[i,j] = acum; }")
    with pytest.raises(InputError, match=r"acum must be given; .*: write accum, if acum is no input"):
        run(P=zeros(3, 4), R=zeros(5, 4))
