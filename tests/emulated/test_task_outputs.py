"""Tasks with several outputs, and batches of tasks whose results are reduced or listed, on the emulated device."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, task_call
from ptxgen.cli import command
from ptxgen.errors import DtypeError, InputError, OverlapError, ShapeError
from ptxgen.lowering.lower import lower
from ptxgen.operations.task import several
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.output_problems import problems_of
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

RNG = np.random.default_rng(8)
BODY = "reduce (k) { accum += P[i,k] * R[k,j]; }"
ALL = (
    f"where (i, j) {{ {BODY} C[i,j] = accum; D[i] += accum * t[i] / f32(K); accum > s ? L.add(accum, i, j);"
    " G[g[i],h[j]] += accum > s; E[j,i] = accum > 0; }"
)


def integers(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.integers(-3, 4, shape).astype(dtype)


def inputs(m: int, n: int, k: int) -> dict[str, Any]:
    return {
        "P": integers(m, k),
        "R": integers(k, n),
        "t": integers(m),
        "s": 3.0,
        "g": RNG.integers(0, 3, m).astype(np.int32),
        "h": RNG.integers(0, 4, n).astype(np.int32),
    }


def grouped(x: Any, g: Any, h: Any, groups: tuple[int, int]) -> Any:
    total = np.zeros(groups, int)
    np.add.at(total, (g[:, None], h[None]), x)
    return total


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[ptxgen.Task]:
    """The problems that are made for calls."""
    problems: list[ptxgen.Task] = []
    made = task_call.Task

    def noted(*args: Any, **fields: Any) -> Any:
        problems.append(p := made(*args, **fields))
        return p

    noted.text_of, noted.result_type = made.text_of, made.result_type  # type: ignore[attr-defined]
    monkeypatch.setattr(task_call, "Task", noted)
    return problems


@pytest.mark.parametrize("k", [7, 40])
def test_every_output_is_computed(k: int, called: list[ptxgen.Task]) -> None:
    given = inputs(35, 21, k)
    result = ptxgen.task(ALL)(**given, sorted=True, groups=(3, 4))
    assert [p.k for p in called] == ([7] * 5 if k == 7 else [40, 0, 0, 0, 0])
    c = given["P"] @ given["R"]
    assert result._fields == ("C", "D", "L", "G", "E")
    np.testing.assert_array_equal(result.C, c)
    np.testing.assert_allclose(result.D, (c * given["t"][:, None] / k).sum(1), rtol=1e-5, atol=1e-5)
    assert result.L.count == (c > 3).sum()
    np.testing.assert_array_equal(result.L.values, c[c > 3])
    np.testing.assert_array_equal(result.L.j, np.nonzero(c > 3)[1])
    np.testing.assert_array_equal(result.G, grouped(c > 3, given["g"], given["h"], (3, 4)))
    assert result.E.dtype == bool
    np.testing.assert_array_equal(result.E, c.T > 0)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 40), (5, 0, 3), (5, 4, 0)])
def test_extents_of_0(m: int, n: int, k: int) -> None:
    result = ptxgen.task(ALL)(**inputs(m, n, k), groups=(3, 4))
    assert [result.C.shape, result.D.shape, result.L.count, result.G.shape] == [(m, n), (m,), 0, (3, 4)]
    assert not result.C.any()
    assert not result.G.any()


@pytest.mark.each_value
@pytest.mark.parametrize("reduction", ["max=", "mean=", "argmin="])
@pytest.mark.parametrize("when", ["", "when (i <= j)"])
def test_reductions_that_no_output_stores_are_held(reduction: str, when: str, called: list[ptxgen.Task]) -> None:
    p, r = integers(20, 33), integers(33, 25)
    step = p[:, :, None] + r[None] - 1
    reduced = {"max=": step.max(1), "mean=": step.mean(1), "argmin=": step.argmin(1)}[reduction]
    text = f"where (i, j) {when} {{ reduce (k) {{ accum {reduction} P[i,k] + R[k,j] - 1; }} C[i] max= accum; D[j] += accum; }}"
    result = ptxgen.task(text)(p, r)
    assert [x.k for x in called] == [33, 0, 0]
    computed = np.ones((20, 25), bool) if not when else np.triu(np.ones((20, 25), bool))
    low = -np.inf if reduced.dtype.kind == "f" else np.iinfo(np.int32).min
    np.testing.assert_allclose(result.C, np.where(computed, reduced, low).max(1), rtol=1e-6)
    np.testing.assert_allclose(result.D, np.where(computed, reduced, 0).sum(0), rtol=1e-4, atol=1e-4)


def test_elements_that_when_excludes_keep_their_values() -> None:
    p, r = integers(20, 40), integers(40, 25)
    text = f"where (i, j) when (i < j) {{ {BODY} C[i,j] = accum; D[i] max= accum; }}"
    c = np.full((20, 25), 1e6, np.float32)
    result = ptxgen.task(text)(p, r, out={"C": c})
    assert result.C is c
    above = np.triu(np.ones((20, 25), bool), 1)
    np.testing.assert_array_equal(c, np.where(above, p @ r, 1e6))
    np.testing.assert_array_equal(result.D, np.where(above, p @ r, -np.inf).max(1))


def test_too_large_matrices_are_not_held(monkeypatch: pytest.MonkeyPatch, called: list[ptxgen.Task]) -> None:
    monkeypatch.setattr(several, "MOST_BYTES", 4 * 20 * 25 - 1)
    text = f"where (i, j) {{ {BODY} C[i] += accum; D[j] += accum; }}"
    p, r = integers(20, 40), integers(40, 25)
    result = ptxgen.task(text)(p, r)
    assert [x.k for x in called] == [40, 40]
    np.testing.assert_array_equal(result.D, (p @ r).sum(0))


def test_functions_have_several_outputs() -> None:
    i, j, k = ptxgen.axes("i j k")

    @ptxgen.task
    def both(p: Any, r: Any) -> Any:
        c = ptxgen.sum(k, p[i, k] * r[k, j])
        return {"least": ptxgen.min(j, c), "product": c}

    p, r = integers(9, 5), integers(5, 8)
    least, product = both(p, r)
    np.testing.assert_array_equal(product, p @ r)
    np.testing.assert_array_equal(least, (p @ r).min(1))


TWO = f"where (i, j) {{ {BODY} C[i,j] = accum; D[g[i],h[j]] += accum; accum > 0 ? L.add(accum); }}"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"out": np.zeros(3)}, InputError, "the task has the outputs C, D, L, so it must be arrays by output"),
        (
            {"out": {"c": np.zeros(3)}},
            InputError,
            "out has 'c', which is no output of the task; it must be one of C, D",
        ),
        ({"out": {"L": np.zeros(3)}}, InputError, "out has L, which is a list; the call makes it, and takes capacity"),
        ({"out": {"C": np.zeros((3, 2), np.float32)}}, ShapeError, "out has shape (3, 2); it must be (4, 6)"),
        ({"out": {"C": np.zeros((4, 6))}}, DtypeError, "out is f64; it must be f32"),
        ({"groups": {"C": (2, 2)}}, InputError, "groups is (2, 2); it must be None where no keys select"),
        ({"groups": {"E": (2, 2)}}, InputError, "groups has 'E', which is no output of the task"),
        ({"sorted": True}, InputError, "sorted is True; L.add must then have i and j among its values"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_are_refused(options: Any, error: type[Exception], message: str) -> None:
    given = {k: v for k, v in inputs(4, 6, 5).items() if k in "PRgh"}
    with pytest.raises(error) as raised:
        ptxgen.task(TWO)(**given, **options)
    assert message in str(raised.value)


def test_results_may_not_share_memory() -> None:
    given = {k: v for k, v in inputs(4, 6, 5).items() if k in "PRgh"}
    memory = np.zeros((4, 6), np.float32)
    with pytest.raises(OverlapError, match=r"out shares memory with out\['D'\]"):
        ptxgen.task(TWO)(**given, out={"C": memory, "D": memory[:3, :4]})


def test_options_of_lists_need_a_list() -> None:
    with pytest.raises(InputError, match="capacity, overflow and sorted are for tasks with lists; this one has none"):
        ptxgen.task(f"where (i, j) {{ {BODY} C[i,j] = accum; D[i] += accum; }}")(
            integers(3, 4), integers(4, 5), capacity=3
        )


@pytest.mark.parametrize("k", [7, 40])
def test_commands_have_the_kernels_of_calls(
    k: int, called: list[ptxgen.Task], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    text = f"where (i, j) {{ {BODY} D[i] += accum * t[i]; accum > s ? L.add(accum, i, j); G[g[i],h[j]] += accum > s; }}"
    types = "t: f32[i]; g: s32[i]; h: s32[j]; "
    given = ["--task", types + text, "--shape", f"20,24,{k}", "--groups", "3,4", "--capacity", "512", "--json"]
    rows = {}
    for name in ("select", "check", "bench"):
        assert command.run([name, "task", *given, "--device", "emulated"]) == 0
        rows[name] = json.loads(capsys.readouterr().out)["rows"]
    names = ["output 1", "output 2", "output 3"]
    names = names if k == 7 else ["the reduction", *names]
    assert [x["name"].partition(": ")[2] for x in rows["select"]] == names
    keys = [x["problem"]["key"] for x in rows["select"]]
    assert keys == [x["problem"]["key"] for x in rows["check"]] == [x["problem"]["key"] for x in rows["bench"]]
    ptxgen.task(types + text)(**inputs(20, 24, k), groups=(3, 4), capacity=512)
    assert [x["problem"]["text"] for x in rows["select"]] == [p.text for p in called]


def test_a_kernel_has_one_output() -> None:
    p = ptxgen.Task(8, 8, 8, dtype="f32", text=f"where (i, j) {{ {BODY} C[i,j] = accum; D[i] += accum; }}")
    with pytest.raises(InputError, match="the text of the task has 2 outputs; a kernel has one, so it must have one"):
        lower(p)
    both = f"where (i, j) {{ {BODY} C[i,j] = accum; E[j,i] = accum; }}"
    with pytest.raises(InputError, match="stores matrices by rows and by columns; a problem has one of them: write a"):
        problems_of(ptxgen.Task(8, 8, 8, dtype="f32", text=both))


def test_the_command_prints_and_saves_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    given, words = inputs(5, 4, 6), []
    for name, x in given.items():
        if name == "s":
            words += ["--input", "s=3.0"]
        else:
            np.save(tmp_path / f"{name}.npy", x)
            words += ["--input", f"{name}={tmp_path / name}.npy"]
    assert command.run(["task", "--expr", ALL, *words, "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "outputs: C, D, L, G, E; 5 kernels if K is 32 or more: others read the elements of C; else 5" in shown
    for line in ("C: float32, 5 x 4", "D: float32, 5", "L: value float32, i int32, j int32, ", "E: bool, 4 x 5"):
        assert line in shown
    save = tmp_path / "all.npz"
    assert command.run(["task", "--expr", ALL, *words, "--save", str(save), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [x["name"] for x in document["outputs"]] == ["C", "D", "L", "G", "E"]
    saved = np.load(save)
    np.testing.assert_array_equal(saved["C"], given["P"] @ given["R"])
    np.testing.assert_array_equal(saved["L"]["value"], saved["C"][saved["C"] > 3])
    assert command.run(["task", "--expr", ALL, *words, "--save", str(tmp_path / "all.npy")]) == 2
    assert "it must end in .npz, because the task has the outputs C, D, L, G, E" in capsys.readouterr().err


def test_the_explanation_counts_the_matrix_that_is_held() -> None:
    text = f"where (i, j) {{ {BODY} C[i] += accum; D[j] += accum; }}"
    lines = explanation(parse(text, {"P": "f32", "R": "f32"}))
    [line] = [x for x in lines if x.startswith("outputs: ")]
    assert line.startswith("outputs: C, D; 3 kernels if K is 32 or more: others read the elements of a matrix of up to")


# ---- batches


@pytest.mark.parametrize("shared", ["", "P", "R"])
def test_batches_of_reduced_results_have_the_batch_first(shared: str) -> None:
    p = integers(*((10, 7) if shared == "P" else (3, 10, 7)))
    r = integers(*((7, 9) if shared == "R" else (3, 7, 9)))
    c, t = p @ r, integers(10)
    rows = ptxgen.task(f"where (i, j) {{ {BODY} D[i] max= accum + t[i]; }}")
    np.testing.assert_array_equal(rows(P=p, R=r, t=t), (c + t[:, None]).max(2))
    out = np.zeros((3, 10), np.float32)
    assert rows(P=p, R=r, t=t, out=out) is out
    np.testing.assert_array_equal(out, (c + t[:, None]).max(2))
    groups = ptxgen.task(f"where (i, j) {{ {BODY} G[g[i],h[j]] += accum; }}")
    g, h = np.arange(10, dtype=np.int32) % 3, np.arange(9, dtype=np.int32) % 2
    expected = np.stack([grouped(x, g, h, (3, 2)) for x in c])
    np.testing.assert_array_equal(groups(P=p, R=r, g=g, h=h), expected)
    made = np.zeros((3, 3, 2), np.float32)
    groups(P=p, R=r, g=g, h=h, out=made)
    np.testing.assert_array_equal(made, expected)


def test_batches_of_lists_are_a_tuple() -> None:
    p, r = integers(3, 10, 7), integers(7, 9)
    result = ptxgen.task(f"where (i, j) {{ {BODY} accum > s ? L.add(accum, i, j); }}")(P=p, R=r, s=2.0, sorted=True)
    assert isinstance(result, tuple)
    for each, c in zip(result, p @ r, strict=True):
        np.testing.assert_array_equal(each.values, c[c > 2])
    [one] = ptxgen.task(f"where (i, j) {{ {BODY} accum > s ? L.add(accum); }}")(P=p[:1], R=r, s=2.0)
    assert one.count == (p[0] @ r > 2).sum()


def test_batches_of_several_outputs() -> None:
    p, r = integers(2, 10, 40), integers(40, 9)
    result = ptxgen.task(f"where (i, j) {{ {BODY} C[i,j] = accum; D[j] += accum; accum > 9 ? L.add(i); }}")(p, r)
    np.testing.assert_array_equal(result.C, p @ r)
    np.testing.assert_array_equal(result.D, (p @ r).sum(1))
    assert [x.count for x in result.L] == [(c > 9).sum() for c in p @ r]


def test_empty_batches_and_wrong_results() -> None:
    rows = ptxgen.task(f"where (i, j) {{ {BODY} D[i] += accum; }}")
    assert rows(np.zeros((0, 4, 5), np.float32), integers(5, 6)).shape == (0, 4)
    with pytest.raises(ShapeError, match=r"out has shape \(4,\); it must be \(2, 4\), the batch and the result"):
        rows(integers(2, 4, 5), integers(5, 6), out=np.zeros(4, np.float32))
    with pytest.raises(ShapeError, match="P has a batch of 2 and R one of 3; they must be equal, or one of them 1"):
        rows(integers(2, 4, 5), integers(3, 5, 6))
    assert rows(integers(1, 4, 5), integers(5, 6)).shape == (1, 4)


# ---- arrays on a device


@pytest.fixture
def device_driver(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    driver = EmulatedDriver()
    driver.name = "cuda"
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


@pytest.mark.parametrize("k", [7, 40])
def test_several_outputs_of_tensors(k: int, device_driver: EmulatedDriver) -> None:
    p, r = integers(19, k), integers(k, 23)
    held = Tensor(device_driver, p), Tensor(device_driver, r)
    out = Tensor(device_driver, np.zeros((19, 23), np.float32))
    both = ptxgen.task(f"where (i, j) {{ {BODY} D[i] max= accum; C[i,j] = accum; E[j] += accum * 0.5; }}")
    for _ in range(2):
        result = both(*held, out={"C": out})
        assert result.C is out
        np.testing.assert_array_equal(out.numpy(), p @ r)
        np.testing.assert_array_equal(result.D.numpy(), (p @ r).max(1))
        np.testing.assert_array_equal(result.E.numpy(), (p @ r).sum(0) / 2)
