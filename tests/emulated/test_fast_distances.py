"""Squares of differences as sums of squares and products, executed on the emulated device."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.cli import command
from ptxgen.errors import InputError
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.fast_distances import fast_distance
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.roles import roles_of

RNG = np.random.default_rng(4)
L2 = "reduce (k) { accum += (P[i,k] - R[j,k]) * (P[i,k] - R[j,k]); }"
MATRIX = f"where (i, j) {{ {L2} C[i,j] = accum; }}"
M, N, K = 37, 29, 45


def operands(dtype: Any = np.float32) -> tuple[Any, Any]:
    """Points, some of which are equal, or near each other."""
    p, r = (RNG.standard_normal((rows, K)).astype(dtype) for rows in (M, N))
    r[:4] = p[:4]
    r[4:9] = (p[4:9] * (1 + 1e-3)).astype(dtype)
    return p, r


def distances(p: Any, r: Any) -> tuple[Any, Any]:
    """The squared distances, and the sums of squares that their errors are relative to."""
    p, r = p.astype("f8"), r.astype("f8")
    return ((p[:, None] - r) ** 2).sum(-1), (p**2).sum(-1)[:, None] + (r**2).sum(-1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64], ids=lambda x: x.__name__)
def test_errors_are_relative_to_the_sums_of_squares(dtype: Any) -> None:
    p, r = operands(dtype)
    expected, squares = distances(p, r)
    text = MATRIX
    if dtype == np.float16:
        text = text.replace("P[i,k]", "f32(P[i,k])").replace("R[j,k]", "f32(R[j,k])")
    result = ptxgen.task(text)(P=p, R=r, precision="fast")
    unit = 2.0**-53 if dtype == np.float64 else 2.0**-24
    assert (abs(result - expected) <= (K + 8) * unit * squares).all()
    assert (result >= 0).all()
    exact = ptxgen.task(text)(P=p, R=r)
    assert (exact[np.arange(4), np.arange(4)] == 0).all()
    assert (exact != result).any()


def test_tf32_is_allowed_for_the_product() -> None:
    p, r = operands()
    expected, squares = distances(p, r)
    result = ptxgen.task(MATRIX)(P=p, R=r, precision="fast", compute="tf32")
    assert (abs(result - expected) <= 2.0**-9 * squares).all()


@pytest.mark.parametrize("order", ["ik,jk", "ki,jk", "ik,kj", "swapped"])
def test_layouts(order: str) -> None:
    p, r = operands()
    expected, _ = distances(p, r)
    given, text = {"P": p, "R": r}, MATRIX
    if order == "swapped":
        text, expected = text.replace("C[i,j]", "C[j,i]").replace("P[i,k] - R[j,k]", "R[j,k] - P[i,k]"), expected.T
    elif order.startswith("ki"):
        given, text = given | {"P": p.T.copy()}, text.replace("P[i,k]", "P[k,i]")
    elif order.endswith("kj"):
        given, text = given | {"R": r.T.copy()}, text.replace("R[j,k]", "R[k,j]")
    np.testing.assert_allclose(ptxgen.task(text)(**given, precision="fast"), expected, atol=1e-3)


def test_every_output() -> None:
    p, r = operands()
    expected, _ = distances(p, r)
    g, h = RNG.integers(0, 3, M).astype(np.int32), RNG.integers(0, 4, N).astype(np.int32)
    given = {"P": p, "R": r, "precision": "fast"}
    nearest = ptxgen.task(MATRIX.replace("C[i,j] = accum", "C[i] argmin= accum"))(**given)
    assert (nearest == expected.argmin(1)).all()
    grouped = ptxgen.task(MATRIX.replace("C[i,j] = accum", "C[g[i],h[j]] max= sqrt(accum)"))(**given, g=g, h=h)
    greatest = np.zeros((3, 4))
    np.maximum.at(greatest, (g[:, None], h[None]), np.sqrt(expected))
    np.testing.assert_allclose(grouped, greatest, rtol=1e-5)
    hits = ptxgen.task(MATRIX.replace("C[i,j] = accum", "accum < s * s ? L.add(i, accum, j)"))(
        **given, s=np.float32(8), sorted=True
    )
    i, j = np.nonzero(expected < 64)
    assert (hits.i.tolist(), hits.j.tolist()) == (i.tolist(), j.tolist())
    np.testing.assert_allclose(hits.values, expected[i, j], atol=1e-3)
    out = np.full((M, N), 7, np.float32)
    assert ptxgen.task(MATRIX.replace("where (i, j)", "where (i, j) when (i < j)"))(**given, out=out) is out
    np.testing.assert_allclose(out, np.where(np.arange(M)[:, None] < np.arange(N), expected, 7), atol=1e-3)


def test_norms_give_cosine_distances() -> None:
    p, r = operands()
    norms = {"n": np.linalg.norm(p, axis=1), "m": np.linalg.norm(r, axis=1)}
    step = "(P[i,k] / n[i] - R[j,k] / m[j])"
    text = f"where (i, j) {{ reduce (k) {{ accum += {step} * {step}; }} C[i,j] = accum / 2; }}"
    result = ptxgen.task(text)(P=p, R=r, **norms, precision="fast")
    expected = 1 - (p.astype("f8") @ r.T) / norms["n"][:, None] / norms["m"]
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize(
    "step",
    [
        "abs(P[i,k] - R[j,k])",
        "(P[i,k] - R[j,k]) * (P[i,k] + R[j,k])",
        "(P[i,k] - w[k] * R[j,k]) * (P[i,k] - w[k] * R[j,k])",
        "(P[i,k] - x[i] * R[j,k]) * (P[i,k] - x[i] * R[j,k])",
        "(1 / P[i,k] - R[j,k]) * (1 / P[i,k] - R[j,k])",
        "(P[i,k] - P[i,k] * R[j,k]) * (P[i,k] - P[i,k] * R[j,k])",
    ],
)
def test_other_steps_are_computed_as_written(step: str) -> None:
    text = f"where (i, j) {{ reduce (k) {{ accum += {step}; }} C[i,j] = accum; }}"
    assert fast_distance(roles_of(parse(text, dict.fromkeys("PRwx" if "w" in step else "PRx", "f32")))) is None


def test_one_array_no_k_and_batches() -> None:
    p, _ = operands()
    result = ptxgen.task(MATRIX.replace("R[", "P["))(P=p, precision="fast")
    np.testing.assert_allclose(result, distances(p, p)[0], atol=1e-3)
    empty = ptxgen.task(MATRIX)(P=p[:, :0], R=p[:5, :0], precision="fast")
    assert (empty == np.zeros((M, 5))).all()
    batched = ptxgen.task(MATRIX)(P=p[None, :4], R=p[:3], precision="fast")
    np.testing.assert_allclose(batched, distances(p[:4], p[:3])[0][None], atol=1e-3)


def test_the_word_is_checked_and_explained(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    p, r = operands()
    with pytest.raises(InputError, match="precision is 'quick'; it must be one of exact, fast"):
        ptxgen.task(MATRIX)(P=p, R=r, precision="quick")
    program = parse(MATRIX, dict.fromkeys("PR", "f32"))
    assert any("sums of squares" in line for line in explanation(program, fast=True))
    assert not any("sums of squares" in line for line in explanation(program))
    words = ["--save", str(tmp_path / "c.npy")]
    for name, x in (("P", p), ("R", r)):
        np.save(tmp_path / f"{name}.npy", x)
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    assert command.run(["task", "--expr", MATRIX, *words, "--precision", "fast", "--explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any("tensor cores" in line for line in document["explanation"])
    assert (np.load(tmp_path / "c.npy") == ptxgen.task(MATRIX)(P=p, R=r, precision="fast")).all()
    assert command.run(["task", "--expr", MATRIX, "--precision", "quick"]) == 2
    assert "precision is 'quick'" in capsys.readouterr().err
