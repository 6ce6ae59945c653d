"""The n greatest and least values of tasks, and the kernels that order records, on the emulated device."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, exact_calls, top_calls
from ptxgen.codegen.render import render_records
from ptxgen.codegen.top_records import TO, Lists, TopRecords
from ptxgen.errors import InputError, TaskError
from ptxgen.lowering.lower import lower
from ptxgen.operations.task import exact_filter, exact_parts
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.output_problems import problems_of
from ptxgen.operations.task.program import Select
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.selection import select
from tests.emulated.test_task_programs import KERNELS
from tests.random_programs import random_arrays, random_program, square
from tests.tensors import LIBRARY, Tensor

RNG = np.random.default_rng(3)
SUM = "reduce (k) { accum += P[i, k] * R[k, j]; }"
TYPES = ("f32", "f64", "f16", "s32", "s8", "u16", "bf16", "u8")


def ordered(
    element: str,
    axis: str,
    greatest: bool,
    lists: tuple[Any, Any, Any],
    extents: tuple[int, int],
    n: int,
    **fields: Any,
) -> dict[str, Any]:
    """What the kernels of records write for lists of values, i and j."""
    driver = EmulatedDriver()
    (m, columns), count = extents, len(lists[0])
    plan = TopRecords(element, axis, greatest, TopRecords.needs_wide(element, axis, m, columns), driver.device)
    plan = replace(plan, **{name: fields.pop(name) for name in ("wide",) if name in fields})
    rows = {"": 1, "i": m, "j": columns}[axis]
    x = Lists(count + 3, rows, columns, min(count + 3, m * columns // rows), n, 0, n, 0)._replace(**fields)
    poison = dict(zip(("values", "list_i", "list_j"), (np.append(y, y[:1].repeat(3)) for y in lists), strict=True))
    given = {**poison, "count": np.array([count])}
    out = {"best": np.zeros((rows, x.width), dtype(element).numpy)}
    out |= {name: np.full((rows, x.width), -7, np.int32) for name in ("best_i", "best_j")}
    sizes = {**plan.scratch(x), TO: plan.joined_bytes(x), **{name: y.nbytes for name, y in {**given, **out}.items()}}
    at = {name: driver.allocate(max(size, 1)) for name, size in sizes.items()}
    for name, y in {**given, **out}.items():
        driver.upload(at[name], np.ascontiguousarray(y))
    kernel = driver.load(render_records(plan))
    for step in plan.steps(x):
        driver.launch(kernel, step, step.pack(at))
    driver.synchronize()
    for name, y in out.items():
        driver.download(at[name], y)
    return out


def some_pairs(m: int, n: int, count: int) -> tuple[Any, Any]:
    return np.unravel_index(RNG.permutation(m * n)[:count].astype(np.int64), (m, n))


def as_type(values: Any, element: str) -> Any:
    """Values that the type has, and as its elements."""
    if element == "bf16":
        return values.astype(np.float32), (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if element.startswith("u"):
        values = np.abs(values)
    made = values.astype(dtype(element).numpy)
    return made, made


@pytest.mark.parametrize(
    ("element", "axis", "greatest"),
    [*((x, "", n % 2 == 0) for n, x in enumerate(TYPES)), ("f64", "j", True), ("f32", "i", False), ("s16", "j", True)],
)
def test_records_order_as_values_then_as_indices(element: str, axis: str, greatest: bool) -> None:
    m, n, count, width = 9, 17, 100, 11
    i, j = some_pairs(m, n, count)
    values, stored = as_type(RNG.integers(-5, 6, count).astype(float), element)
    if dtype(element).numpy.kind == "f":
        values[:8] = stored[:8] = [np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan, 0.5, -0.5]
    out = ordered(element, axis, greatest, (stored, i.astype(np.int32), j.astype(np.int32)), (m, n), width)
    best = out["best"].view(np.uint16).astype(np.uint32) << 16 if element == "bf16" else out["best"]
    best = best.view(np.float32) if element == "bf16" else best
    keys = np.where(np.isnan(values.astype(float)), np.inf, 0), values.astype(float)
    for row in range({"": 1, "i": m, "j": n}[axis]):
        own = np.nonzero({"": i * 0, "i": i, "j": j}[axis] == row)[0]
        sign = -1 if greatest else 1
        order = np.lexsort((i[own] * n + j[own], sign * np.nan_to_num(keys[1][own], nan=0), sign * keys[0][own]))
        chosen = own[order][:width]
        np.testing.assert_array_equal(best[row, : len(chosen)], values[chosen])
        if axis != "i":
            np.testing.assert_array_equal(out["best_i"][row, : len(chosen)], i[chosen])
        if axis != "j":
            np.testing.assert_array_equal(out["best_j"][row, : len(chosen)], j[chosen])
        for name in ("best_i", "best_j") if not axis else (f"best_{'j' if axis == 'i' else 'i'}",):
            assert (out[name][row, len(chosen) :] == -1).all()


@pytest.mark.parametrize(("axis", "wide", "n"), [("", False, 3000), ("", True, 4), ("i", False, 2100)])
def test_runs_are_joined(axis: str, wide: bool, n: int) -> None:
    m, columns = (2, 40_000) if not axis else (2, 5_000)
    count = (34_000 if wide else 9_000) if not axis else 4_500
    i, j = some_pairs(m, columns, count)
    values = RNG.integers(0, 500, count).astype(np.float32)
    out = ordered("f32", axis, True, (values, i.astype(np.int32), j.astype(np.int32)), (m, columns), n, wide=wide)
    for row in range(m if axis else 1):
        own = np.nonzero(i == row)[0] if axis else np.arange(count)
        chosen = own[np.lexsort((i[own] * columns + j[own], -values[own]))][:n]
        np.testing.assert_array_equal(out["best"][row], values[chosen])
        np.testing.assert_array_equal(out["best_j"][row], j[chosen])


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_100"])
def test_they_assemble_without_spills(target: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for element, axis, wide in (("f16", "i", False), ("f64", "", True)):
        made = assemble(render_records(TopRecords(element, axis, True, wide, device(target))))
        assert made.cubin
        assert not any(made.spills.values())


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bounds of the lists of calls, which are made of samples from few pairs on, also for few values."""
    names: list[str] = []
    listed = top_calls._Call._list

    def noted(self: Any, room: int, bound: Any, parts: Any = None) -> Any:
        names.append(bound.form if bound else "")
        return listed(self, room, bound, parts)

    monkeypatch.setattr(top_calls._Call, "_list", noted)
    for name, least in (("DIRECT", 16), ("LEAST_ROOM", 8), ("LEAST_SAMPLE", 2), ("MOST_KEPT", 0)):
        monkeypatch.setattr(top_calls, name, least)
    return names


@pytest.mark.first(3)
@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int, forms: list[str]) -> None:
    draw = Random(seed)
    types = (("f32",), ("f32", "s32", "u8"), ("f16", "u16", "s16"))[seed % 3]
    program = random_program(draw, replace(KERNELS, outputs=("top",), types=types))
    extents = {axis: n for group in square(program) for n in [draw.choice((0, 1, 7, 16, 17, 33))] for axis in group}
    arrays = random_arrays(program, extents, draw, special=draw.choice((0.0, 0.1)))
    given = {x.name: arrays[x.name] if x.uses else arrays[x.name][()] for x in program.inputs}
    got = ptxgen.task(canonical(program))(**given, algebra=False)
    wrong = difference(evaluate(program, arrays, extents)["C0"], got)
    assert not wrong, f"{canonical(program)}, {extents}: {wrong}"


@pytest.mark.parametrize("word", ["top", "bottom"])
def test_bounds_leave_the_best_pairs(word: str, forms: list[str]) -> None:
    """With few values, of all pairs and of rows: lists that are too short give a better bound."""
    p, r, normal = integers(40, 5), integers(5, 50), RNG.standard_normal((40, 5)).astype(np.float32)
    text = f"where (i, j) {{ {SUM} best.{word}(3, accum, i, j); }}"
    for given, expected in ((normal, ["", "loose"]), (p, ["", "loose", "exact"])):
        del forms[:]
        compared(text, P=given, R=r)
        assert forms == expected[: len(forms)]
        assert len(forms) > 1
    whole = text.replace("accum, i", "s32(accum), i")
    del forms[:]
    compared(whole, P=p, R=r)
    assert forms == ["", "exact"]
    compared(text.replace("best", "best[j]").replace("accum, i, j", "accum, i"), P=p, R=r)
    p[::2] = np.nan
    compared(text, P=p, R=r)
    assert word == "bottom" or "nan" in forms


def test_rows_of_which_another_kernel_rounded_the_sample(forms: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that some rows have too few pairs for are not used."""
    monkeypatch.setattr(top_calls, "SLACK", {"f32": -1.0})
    p, r = RNG.random((40, 5), np.float32), RNG.random((5, 50), np.float32)
    for target, index in (("best[i]", "j"), ("best", "i, j")):
        del forms[:]
        compared(f"where (i, j) {{ {SUM} {target}.top(3, accum, {index}); }}", P=p, R=r)
        assert "" in forms[forms.index("loose") :]


@pytest.mark.parametrize(("word", "axis", "other"), [("bottom", "i", "j"), ("top", "j", "i")])
def test_best_values_of_blocks_bound_rows(
    word: str, axis: str, other: str, forms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists have room for few pairs; those of a sample, which values that read indices need, have more. NaN, equal
    values, and near columns side by side."""
    rooms: list[int] = []
    listed = top_calls._Call._list
    monkeypatch.setattr(top_calls._Call, "_list", lambda self, room, *x: rooms.append(room) or listed(self, room, *x))
    monkeypatch.setattr(top_calls, "LEAST_BLOCK", 4)
    p, r = RNG.standard_normal((24, 3)).astype(np.float32), RNG.standard_normal((3, 28)).astype(np.float32)
    value = "accum * s"
    if word == "bottom":
        p[7, 1], p[20], p[::9] = np.nan, np.inf, 0
    else:
        r = r[:, np.argsort(p[0] @ r)]
    compared(f"where (i, j) {{ {SUM} best[{axis}].{word}(2, {value}, {other}); }}", P=p, R=r, s=0.5)
    assert forms[0] == "loose"
    assert rooms[0] == 6 * 2 * {"i": 24, "j": 28}[axis] + 8  # of 672 pairs
    if word == "top":
        assert forms == ["loose"]
        value += " + f32(i)"
        compared(f"where (i, j) {{ {SUM} best[{axis}].{word}(2, {value}, {other}); }}", P=p, R=r, s=0.5)
        assert rooms[-1] > rooms[0]


def test_more_pairs_than_fit_are_ordered_in_parts(forms: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_calls, "RECORDS", 60)
    p, r = integers(20, 5), integers(5, 30)
    compared(f"where (i, j) when (i != j) {{ {SUM} best[i].top(4, accum + 0.25 * f32(i), j); }}", P=p, R=r)
    assert len(forms) > 3
    compared(f"where (i, j) {{ {SUM} best[j].top(1, accum * 0, i); }}", P=p, R=r)


def test_tensor_cores_list_candidates(forms: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    launches, launched = [], exact_calls.launched
    monkeypatch.setattr(exact_calls, "launched", lambda *x: launches.append(launched(*x)) or launches[-1])
    monkeypatch.setattr(exact_filter, "LEAST", 1)
    monkeypatch.setattr(exact_filter, "room", lambda p: p.m * p.n)
    monkeypatch.setattr(exact_parts, "predicted_faster", lambda *_: True)
    exact_calls._exact.cache_clear()
    p, r = integers(40, 24), integers(24, 50)
    p[3, 2], p[5, 0] = np.nan, np.inf
    compared(f"where (i, j) {{ {SUM} best.top(3, accum, i, j); }}", P=p, R=r)
    compared(f"where (i, j) {{ {SUM} best[i].bottom(3, accum, j); }}", P=p, R=r)
    assert launches[0]
    assert launches[-1]
    exact_calls._exact.cache_clear()


@pytest.mark.parametrize(
    ("step", "word", "value"),
    [
        ("(P[i, k] - R[j, k]) * (P[i, k] - R[j, k])", "bottom", "sqrt(accum)"),
        ("P[i, k] * S[k, j]", "top", "accum"),
        ("P[i, k] * R[j, k]", "bottom", "w[j] - s * accum"),
        ("(P[i, k] - R[j, k]) * (P[i, k] - R[j, k])", "bottom", "accum * s"),
    ],
)
def test_limits_of_tensor_cores_bound_rows(
    step: str, word: str, value: str, forms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best columns are side by side, and in no block of their own; ends of rows with NaN or infinity list all their
    pairs."""
    monkeypatch.setattr(exact_filter, "LEAST", 1)
    monkeypatch.setattr(exact_filter, "room", lambda p: p.m * p.n)
    monkeypatch.setattr(top_calls, "LEAST_BLOCK", 4)
    monkeypatch.setattr(top_calls._Call, "_best_of_blocks", None)
    top_calls._limits.cache_clear()
    p, r = (RNG.standard_normal((n, 28)).astype(np.float32) for n in (10, 521))
    plain = " * " not in value
    if plain:
        p[3, 2], p[5, 0], r[40:44] = np.nan, np.inf, 0
    given = {"P": p, "S": r.T.copy()} if "S" in step else {"P": p, "R": r}
    given |= {"s": np.float32(2)} if "* s" in value or "s *" in value else {}
    given |= {"w": np.where(np.arange(521) == 1, -1000, 1000).astype(np.float32)} if "w[" in value else {}
    compared(f"where (i, j) {{ reduce (k) {{ accum += {step}; }} best[i].{word}(2, {value}, j); }}", **given)
    assert forms[0] == "loose"
    assert plain or forms == ["loose"]  # the list has enough pairs, and few
    if value == "sqrt(accum)":  # the fast product of all pairs would take more time
        monkeypatch.setattr(top_calls, "fast_distance", None)
        text = f"where (i, j) {{ reduce (k) {{ accum += {step}; }} best[i].{word}(2, {value}, j); }}"
        ptxgen.task(text)(**given, precision="fast")
    top_calls._limits.cache_clear()


def test_kernels_keep_the_best_values_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of rows or of columns; while a stream is captured, too, as the host reads nothing."""
    gpu = EmulatedDriver()
    monkeypatch.setattr(drivers, "driver_of", lambda v: gpu)
    monkeypatch.setattr(drivers, "require_device", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    monkeypatch.setattr(top_calls._Call, "_list", None)
    p, r = integers(20, 3), integers(50, 3)
    c = ((p[:, None] - r) ** 2).sum(-1)
    step = "reduce (k) { accum += (P[i, k] - R[j, k]) * (P[i, k] - R[j, k]); }"
    monkeypatch.setattr(top_calls.streams, "is_captured", lambda stream, on: True)
    monkeypatch.setattr(top_calls._Device, "read", None)
    for axis, other in ("ij", "ji"):
        rows = ptxgen.task(f"where (i, j) {{ {step} best[{axis}].bottom(n, accum, {other}); }}")
        got = getattr(rows(P=Tensor(gpu, p), R=Tensor(gpu, r), n=4), other)
        assert np.array_equal(got.numpy(), (c if axis == "i" else c.T).argsort(axis=1, kind="stable")[:, :4])


def test_tensors(forms: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = EmulatedDriver()
    monkeypatch.setattr(drivers, "driver_of", lambda v: gpu)
    monkeypatch.setattr(drivers, "require_device", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    p, r = integers(40, 5), integers(50, 5)
    step = "reduce (k) { accum += P[i, k] * R[j, k]; }"
    c = p @ r.T
    whole = ptxgen.task(f"where (i, j) {{ {step} best.top(3, s32(accum), i, j); }}")
    given = {"P": Tensor(gpu, p), "R": Tensor(gpu, r)}
    for _ in range(2):
        result = whole(**given)
        assert np.array_equal(result.values.numpy(), np.sort(c, axis=None)[:-4:-1])
    rows = ptxgen.task(f"where (i, j) {{ {step} best[i].bottom(3, accum, j); }}")
    problems: list[Any] = []
    runner_for = top_calls.runners.runner_for
    with monkeypatch.context() as patch:  # blocks of columns have one problem, whose alignment all have
        patch.setattr(top_calls.runners, "runner_for", lambda p, *rest: problems.append(p) or runner_for(p, *rest))
        patch.setattr(top_calls, "LEAST_BLOCK", 4)
        of_rows = rows(**given)
    assert np.array_equal(of_rows.j.numpy(), c.argsort(axis=1, kind="stable")[:, :3])
    assert [(p.n, p.ldb, p.aligned_b) for p in problems if "min=" in p.text] == [(8, 30, 4)]
    monkeypatch.setattr(top_calls.streams, "is_captured", lambda stream, on: True)
    with monkeypatch.context() as patch:  # of few pairs, the host reads nothing
        patch.setattr(top_calls._Device, "read", None)
        patch.setattr(top_calls, "DIRECT", 40 * 50)
        result = whole(**given)
        of_rows = rows(**given)
    assert np.array_equal(result.values.numpy(), np.sort(c, axis=None)[:-4:-1])
    assert np.array_equal(of_rows.j.numpy(), c.argsort(axis=1, kind="stable")[:, :3])
    for each in (whole, rows, ptxgen.task(f"where (i, j) {{ {step} accum > 0 ? best.top(3, accum, i, j); }}")):
        with pytest.raises(InputError, match="captured into a CUDA graph"):
            each(**given)


def integers(*shape: int) -> Any:
    return RNG.integers(-3, 4, shape).astype(np.float32)


def compared(text: str, **given: Any) -> Any:
    """The result of a text, which is that of the oracle."""
    got = ptxgen.task(text)(**given)
    kinds = {name: "s32" if isinstance(x, int) else "f32" for name, x in given.items()}
    output = next(iter(evaluate(parse(text, kinds), given).values()))
    assert not difference(output, got)
    return got


def test_commands_have_the_list_of_a_call() -> None:
    """The problem that calls compute has the kernel that commands tune and check."""
    step = "reduce (k) { accum += A[i, k] * B[k, j]; }"
    p = ptxgen.Task(33, 20, 40, text=f"where (i, j) {{ {step} best[i].top(3, accum, j); }}")
    problems = problems_of(p)
    assert list(problems) == ["list"]
    assert isinstance(problems["list"].program.outputs[0], Select)
    driver: Any = EmulatedDriver()
    assert all(x.ok for x in check(driver, problems["list"], select(problems["list"], driver.device)[0].config))
    both = ptxgen.Task(33, 20, 40, text=f"where (i, j) {{ {step} C[i, j] = accum; best.top(3, accum, i, j); }}")
    assert [x.k for x in problems_of(both).values()] == [40, 0]
    with pytest.raises(InputError, match="calls compute it from lists"):
        lower(p)


def test_a_scalar_is_the_number_of_values() -> None:
    p, r = integers(8, 5), integers(5, 9)
    text = f"where (i, j) {{ {SUM} best.top(n, accum, i, j); }}"
    for n in (0, 1, 72, 100):
        assert len(compared(text, P=p, R=r, n=n).values) == min(n, 72)
    for n, error in ((-1, "n is -1; it must be an integer from 0 to 65536"), (2.5, "the number of values, n, is f32")):
        with pytest.raises((InputError, TaskError), match=error):
            ptxgen.task(text)(P=p, R=r, n=n)
    with pytest.raises(InputError, match=r"n is 2\.5; it must be an integer"):
        ptxgen.task(f"n: s32; {text}")(P=p, R=r, n=2.5)


def test_pairs_that_do_not_count() -> None:
    p, r = integers(8, 5), integers(5, 9)
    result = compared(f"where (i, j) when (j < i) {{ {SUM} accum > 2 ? best[i].top(4, accum, j); }}", P=p, R=r)
    assert (result.j[0] == -1).all()
    assert (result.values[0] == -np.inf).all()
    one = compared(f"where (i, j) when (i == j) {{ {SUM} best.bottom(60, accum, i, j); }}", P=p, R=r)
    assert len(one.i) == 8
    none = ptxgen.task(f"where (i, j) {{ {SUM} best[j].top(3, accum, i); }}")(P=p[:0], R=r)
    assert (none.i == -1).all()
    assert none.values.shape == (9, 3)


def test_functions_batches_and_several_outputs() -> None:
    p, r = integers(8, 40), integers(40, 9)
    i, j, k = ptxgen.axes("i j k")
    number = 5

    @ptxgen.task
    def both(p: Any, r: Any) -> Any:
        c = ptxgen.sum(k, p[i, k] * r[k, j])
        return ptxgen.top(number, c, i, j), ptxgen.bottom(i, 2, c, condition=c > 0), ptxgen.max(j, c)

    whole, columns, greatest = both(p, r)
    c = p @ r
    assert np.array_equal(whole.values, np.sort(c, axis=None)[::-1][:5])
    assert np.array_equal(columns.values, np.sort(np.where(c > 0, c, np.inf), axis=0)[:2].T)
    assert np.array_equal(greatest, c.max(1))
    items = ptxgen.task(f"where (i, j) {{ {SUM} best[i].top(1, accum, j); }}")(P=np.stack((p, -p)), R=r)
    assert [x.j[:, 0].tolist() for x in items] == [x.argmax(1).tolist() for x in (c, -c)]
    with pytest.raises(InputError, match="out is given; it must be None"):
        ptxgen.task(f"where (i, j) {{ {SUM} best[i].top(1, accum, j); }}")(P=p, R=r, out=greatest)
