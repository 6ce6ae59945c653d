"""Groups of any keys, distinct pairs of keys, and the numbers of keys that both have."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers
from ptxgen.cli import command
from ptxgen.errors import DtypeError, InputError, ShapeError, TaskError
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

M, N, K = 23, 17, 4
RNG = np.random.default_rng(3)
P, R = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((M, K), (K, N)))
SCORES = P @ R
KINDS = np.array([-(2**62), -7, 3, 2**61])
G, H = KINDS[RNG.integers(0, 4, M)], KINDS[RNG.integers(1, 4, N)]
BODY = "{ reduce (k) { accum += P[i,k] * R[k,j]; } %s }"
GROUPS = ptxgen.task("where (i, j) " + BODY % "C[g[i], h[j]] += accum;")
DISTINCT = ptxgen.task("where (i, j) " + BODY % "accum > t ? seen.distinct(g[i], h[j]);")


def summed(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    result = np.zeros(shape, values.dtype)
    np.add.at(result, (rows[:, None], columns), values)
    return result


@pytest.mark.parametrize(
    ("key_type", "n"), [("int8", 300), ("uint32", 0), ("int64", 1), ("int64", 4300), ("uint64", 300)]
)
def test_numbers_of_keys(key_type: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, and by kernels: all keys different, some equal, all equal to the key of an empty slot."""
    for name in ("int8", "int64", "uint32", "uint64"):
        monkeypatch.setattr(LIBRARY, name, f"torch.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    driver, limits = EmulatedDriver(), np.iinfo(key_type)
    monkeypatch.setattr(drivers, "driver_of", lambda v: driver)
    rng = np.random.default_rng(n)
    empty = 1 << 63 if key_type == "uint64" else limits.min
    for x in (
        rng.integers(limits.min, limits.max, n, endpoint=True, dtype=key_type),
        np.append(rng.integers(0, 5, n).astype(key_type), np.array([empty, limits.max], key_type))[2:],
        np.full(n, empty, key_type),
    ):
        keys, numbers = np.unique(x, return_inverse=True)
        for given in (x, Tensor(driver, x)):
            numbered = ptxgen.unique_keys(given)
            mine, own = (y.numpy() if isinstance(y, Tensor) else y for y in (numbered.numbers, numbered.keys))
            assert (mine.dtype, own.dtype) == (np.int32, x.dtype)
            np.testing.assert_array_equal(own, keys)
            np.testing.assert_array_equal(mine, numbers.reshape(-1))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros(3, np.float32), DtypeError, "x has dtype float32; it must be one of int8, int16"),
        (np.zeros((3, 2), np.int64), ShapeError, "x has shape (3, 2); it must have 1 dimension"),
        ([1, 2], InputError, "x is [1, 2]; it must be an array of NumPy, PyTorch or CuPy"),
    ],
)
def test_keys_that_are_refused(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        ptxgen.unique_keys(x)


def test_groups_of_any_keys() -> None:
    result = GROUPS(P=P, R=R, g=G, h=H, keys="any")
    rows, columns = np.unique(G, return_inverse=True), np.unique(H, return_inverse=True)
    np.testing.assert_array_equal(result.rows, rows[0])
    np.testing.assert_array_equal(result.columns, columns[0])
    expected = summed(rows[1], columns[1], SCORES, (len(rows[0]), len(columns[0])))
    np.testing.assert_array_equal(result.values, expected)
    one = ptxgen.task("where (i, j) " + BODY % "C[i, h[j]] += accum;")(P=P, R=R, h=H.astype(np.int8), keys="any")
    assert one.rows is None
    assert one.values.shape == (M, len(one.columns))


def test_keys_that_are_compared_are_numbered_together() -> None:
    run = ptxgen.task("where (i, j) when (g[i] == h[j] and i != j) " + BODY % "C[g[i], h[j]] += accum > t;")
    result = run(P=P, R=R, g=G, h=H, t=1.0, keys="any")
    keys = np.unique([*G, *H])
    np.testing.assert_array_equal(result.rows, keys)
    np.testing.assert_array_equal(result.columns, keys)
    holds = (SCORES > 1) & (G[:, None] == H) & (np.arange(M)[:, None] != np.arange(N))
    numbers = [np.searchsorted(keys, x) for x in (G, H)]
    np.testing.assert_array_equal(result.values, summed(*numbers, holds.astype(np.int32), (4, 4)))
    with pytest.raises(DtypeError, match="g has dtype int64 and h int32; keys that are compared must have one dtype"):
        run(P=P, R=R, g=G, h=H.astype(np.int32), t=1.0, keys="any")


@pytest.mark.parametrize("key_type", ["int64", "uint64"])
def test_keys_of_64_bits(key_type: str) -> None:
    """Keys of groups and places keep their values; keys that are compared may be any."""
    rng = np.random.default_rng(5)
    g, h = rng.integers(0, 3, M).astype(key_type), rng.integers(0, 4, N).astype(key_type)
    np.testing.assert_array_equal(GROUPS(P=P, R=R, g=g, h=h), summed(g, h, SCORES, (3, 4)))
    g[2], h[3] = np.iinfo(key_type).max, 1 << 32  # 0 in the low bits
    with pytest.raises(InputError, match=f"{M + N - 1} pairs .i, j. have keys out of range"):
        GROUPS(P=P, R=R, g=g, h=h, groups=(3, 4))
    rows, columns = rng.permutation(M).astype(key_type), rng.permutation(N).astype(key_type)
    placed = ptxgen.task("where (i, j) " + BODY % "C.put(accum, g[i], h[j]);")(
        P=P, R=R, g=rows, h=columns, groups=(M, N)
    )
    np.testing.assert_array_equal(placed[rows.astype(int)][:, columns.astype(int)], SCORES)
    g, h = (x.view(key_type) for x in (G, H))
    for compared, expected in (("==", g[:, None] == h), ("<", g[:, None] < h)):
        joined = ptxgen.task(f"where (i, j) when (g[i] {compared} h[j]) " + BODY % "C[i] += accum;")
        np.testing.assert_array_equal(joined(P=P, R=R, g=g, h=h), np.where(expected, SCORES, 0).sum(1))
    own = ptxgen.task("where (i, j) when (g[i] == g[j]) { reduce (k) { accum += P[i,k] * P[j,k]; } C[i] += accum; }")
    np.testing.assert_array_equal(own(P=P, g=g), np.where(g[:, None] == g, P @ P.T, 0).sum(1))
    with pytest.raises(
        DtypeError, match=r"g has dtype .*int64 and h int32; keys that are compared must have one dtype"
    ):
        joined(P=P, R=R, g=g, h=h.astype(np.int32))
    counted = ptxgen.task("where (i, j) when (g[i] == h[j]) " + BODY % "C[i, j] = accum * f32(g[i]);")
    with pytest.raises(DtypeError, match=r"h has dtype .*int64; .* after `when`; g is read as a number"):
        counted(P=P, R=R, g=g.astype(np.int16), h=h)


@pytest.mark.parametrize("t", [2.0, 1e9, -1e9])
def test_distinct_pairs_of_keys(t: float) -> None:
    result = DISTINCT(P=P, R=R, g=G, h=H, t=t, keys="any")
    expected = sorted({(int(G[i]), int(H[j])) for i, j in zip(*np.nonzero(t < SCORES), strict=True)})
    assert list(zip(result.rows.tolist(), result.columns.tolist(), strict=True)) == expected
    dense = [np.unique(x, return_inverse=True)[1].astype(np.int32) for x in (G, H)]
    numbers = DISTINCT(P=P, R=R, g=dense[0], h=dense[1], t=t)
    assert np.unique(G)[numbers.rows].tolist() == result.rows.tolist()
    assert np.unique(H)[numbers.columns].tolist() == result.columns.tolist()


def test_no_rows_have_no_keys() -> None:
    result = DISTINCT(P=P[:0], R=R, g=G[:0], h=H, t=0.0, keys="any")
    assert len(result.rows) == len(result.columns) == 0
    groups = GROUPS(P=P[:0], R=R, g=G[:0], h=H, keys="any")
    assert groups.values.shape == (0, len(groups.columns))


def test_a_function_has_distinct_keys_beside_other_outputs() -> None:
    i, j, k = ptxgen.axes("i j k")

    @ptxgen.task
    def both(p: Any, r: Any, g: Any, h: Any, t: Any) -> Any:
        c = ptxgen.sum(k, p[i, k] * r[k, j])
        return {
            "seen": ptxgen.distinct(g[i], h[j], c > t),
            "total": ptxgen.sum_by(g[i], j, c),
            "best": ptxgen.max(j, c),
        }

    result = both(P, R, G, H, 2.0, keys="any")
    alone = DISTINCT(P=P, R=R, g=G, h=H, t=2.0, keys="any")
    assert all(np.array_equal(x, y) for x, y in zip(result.seen, alone, strict=True))
    assert (result.total.rows.tolist(), result.total.columns) == (np.unique(G).tolist(), None)
    np.testing.assert_array_equal(result.best, SCORES.max(1))


@pytest.mark.parametrize(
    ("output", "given", "message"),
    [
        ("C[g[i], h[j]] += accum;", {"groups": (9, 9)}, "groups is given; with keys 'any' it must be None"),
        ("C[i, j] = accum;", {}, "keys is 'any'; it must be 'dense' where no keys select elements"),
        ("C[g[i], h[j]] += accum * f32(g[i]);", {}, "g is read as a number, and is an array of keys; with keys 'any'"),
    ],
)
def test_calls_that_any_keys_refuse(output: str, given: dict[str, Any], message: str) -> None:
    run = ptxgen.task("where (i, j) " + BODY % output)
    arrays = {"P": P, "R": R, "g": G.astype(np.int16), "h": H}
    with pytest.raises(InputError, match=re.escape(message)):
        run(**{name: arrays[name] for name in run.names}, **given, keys="any")


def test_the_command_reads_keys_of_64_bits_and_prints_distinct_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {"P": P, "R": R, "g": np.arange(M) % 2, "h": np.arange(N) % 3}
    words = []
    for name, x in arrays.items():
        np.save(tmp_path / f"{name}.npy", x)
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    text = "where (i, j) " + BODY % "C[g[i], h[j]] += accum; accum > t ? seen.distinct(g[i], h[j]);"
    saved = tmp_path / "out.npz"
    assert command.run(["task", "--expr", text, *words, "--input", "t=2.0", "--save", str(saved)]) == 0
    out = capsys.readouterr().out
    assert "g:s32[i];h:s32[j];" in out
    assert "seen: row int32, column int32, 6" in out
    results = np.load(saved)
    np.testing.assert_array_equal(results["C"], summed(arrays["g"], arrays["h"], SCORES, (2, 3)))
    assert results["seen"].tolist() == [(row, column) for row in range(2) for column in range(3)]
    batch = tmp_path / "P.npy"
    np.save(batch, np.stack([P, P]))
    assert command.run(
        ["task", "--expr", "where (i, j) " + BODY % "accum > t ? L.add(i);", *words[:4], "--input", "t=2"]
    )
    assert "the inputs have a batch of 2, whose lists have no common array" in capsys.readouterr().err


def test_the_command_takes_any_keys_and_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g, h = np.arange(len(SCORES)) % 2 - 2**40, np.arange(SCORES.shape[1]) % 3
    words = []
    for name, x in {"P": P, "R": R, "g": g, "h": h}.items():
        np.save(tmp_path / f"{name}.npy", x)
        words += ["--input", f"{name}={tmp_path / f'{name}.npy'}"]
    groups = ["task", "--expr", "where (i, j) " + BODY % "C[g[i], h[j]] += accum;", *words]
    saved = tmp_path / "C.npz"
    assert command.run([*groups, "--keys", "any", "--save", str(saved)]) == 0
    results = np.load(saved)
    np.testing.assert_array_equal(results["C"], summed(g + 2**40, h, SCORES, (2, 3)))
    assert (results["C_rows"].tolist(), results["C_columns"].tolist()) == ([-(2**40), 1 - 2**40], [0, 1, 2])
    assert command.run([*groups, "--keys", "any", "--save", str(tmp_path / "C.npy")])
    assert "it must end in .npz, because keys are any" in capsys.readouterr().err
    for given, message in (((), 'or keys="any"'), (("--groups", "2;3"), "groups is '2;3'; it must be (G, H)")):
        assert command.run([*groups, *given])
        assert message in capsys.readouterr().err
    rows = ["task", "--expr", "where (i, j) " + BODY % "C[i, h[j]] += accum;", *words[:4], *words[6:]]
    assert command.run([*rows, "--groups", f"{len(SCORES)},4", "--save", str(saved)]) == 0
    assert np.load(saved)["C"].shape == (len(SCORES), 4)  # one result, in a file of several
    assert command.run([*rows, "--save", str(tmp_path / "C")])
    assert "it must end in .npy or .npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("seen.distinct(g[i]);", "distinct has 1 values; it must have two keys: write seen.distinct(g[i], h[j])"),
        ("seen.distinct(g[i], i);", "seen has no key of the axis j; an output must have both spatial axes"),
        ("seen[i].distinct(g[i], h[j]);", "the list has axes; write seen.distinct"),
    ],
)
def test_errors_of_distinct(output: str, message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        parse("where (i, j) " + BODY % output, {"P": "f32", "R": "f32", "g": "s32", "h": "s32"})


def test_the_text_of_distinct() -> None:
    types = {"P": "f32", "R": "f32", "g": "s32", "h": "u8", "t": "f32"}
    for test in ("accum > t ? ", ""):
        program = parse("where (i, j) " + BODY % f"{test}seen.distinct(g[i], h[j]);", types)
        assert parse(canonical(program)) == program


def test_explain_tells_of_distinct_keys(capsys: pytest.CaptureFixture[str]) -> None:
    text = "g: s32[i]; h: s32[j]; where (i, j) " + BODY % "accum > t ? seen.distinct(g[i], h[j]);"
    assert command.run(["task", "--expr", text, "--explain"]) == 0
    assert "kernels mark groups, and list the marked ones" in capsys.readouterr().out
