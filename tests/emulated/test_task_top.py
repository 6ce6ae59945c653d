"""The n greatest and least values of tasks, and the kernels that order records, on the emulated device."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.render import render_records
from ptxgen.codegen.top_records import Lists, TopRecords
from ptxgen.errors import InputError, TaskError
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.random_programs import random_arrays, random_program, square
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.emulated import EmulatedDriver
from tests.emulated.test_task_programs import KERNELS

RNG = np.random.default_rng(3)
SUM = "reduce (k) { accum += P[i, k] * R[k, j]; }"
TYPES = ("f32", "f64", "f16", "s32", "s8", "u16", "bf16", "u8")


def ordered(
    kind: str, axis: str, greatest: bool, lists: tuple[Any, Any, Any], extents: tuple[int, int], n: int, **fields: Any
) -> dict[str, Any]:
    """What the kernels of records write for lists of values, i and j."""
    driver = EmulatedDriver()
    (m, columns), count = extents, len(lists[0])
    plan = TopRecords(kind, axis, greatest, TopRecords.needs_wide(kind, axis, m, columns), driver.device)
    plan = replace(plan, **{name: fields.pop(name) for name in ("wide",) if name in fields})
    rows = {"": 1, "i": m, "j": columns}[axis]
    x = Lists(count + 3, rows, columns, min(count + 3, m * columns // rows), n, 0, n, 0)._replace(**fields)
    poison = dict(zip(("values", "list_i", "list_j"), (np.append(y, y[:1].repeat(3)) for y in lists), strict=True))
    given = {**poison, "count": np.array([count])}
    out = {"best": np.zeros((rows, x.width), dtype(kind).numpy)}
    out |= {name: np.full((rows, x.width), -7, np.int32) for name in ("best_i", "best_j")}
    sizes = {**plan.scratch(x), **{name: y.nbytes for name, y in {**given, **out}.items()}}
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


def as_type(values: Any, kind: str) -> Any:
    """Values that the type has, and as its elements."""
    if kind == "bf16":
        return values.astype(np.float32), (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind.startswith("u"):
        values = np.abs(values)
    made = values.astype(dtype(kind).numpy)
    return made, made


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize(("kind", "axis"), [*((x, "") for x in TYPES), ("f64", "j"), ("f32", "i"), ("s16", "j")])
def test_records_order_as_values_then_as_indices(kind: str, axis: str, greatest: bool) -> None:
    m, n, count, width = 9, 17, 100, 11
    i, j = some_pairs(m, n, count)
    values, stored = as_type(RNG.integers(-5, 6, count).astype(float), kind)
    if dtype(kind).numpy.kind == "f":
        values[:8] = stored[:8] = [np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan, 0.5, -0.5]
    out = ordered(kind, axis, greatest, (stored, i.astype(np.int32), j.astype(np.int32)), (m, n), width)
    best = out["best"].view(np.uint16).astype(np.uint32) << 16 if kind == "bf16" else out["best"]
    best = best.view(np.float32) if kind == "bf16" else best
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


@pytest.mark.parametrize(("axis", "wide", "n"), [("", False, 3000), ("", True, 40), ("i", False, 2100)])
def test_runs_are_joined(axis: str, wide: bool, n: int) -> None:
    m, columns = (2, 40_000) if not axis else (2, 5_000)
    count = 36_000 if not axis else 7_000
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
    for kind, axis, wide in (("f16", "i", False), ("f64", "", True)):
        made = assemble(render_records(TopRecords(kind, axis, True, wide, device(target))))
        assert made.cubin
        assert not any(made.spills.values())


@pytest.mark.parametrize("seed", range(9))
def test_random_programs(seed: int) -> None:
    draw = Random(seed)
    types = (("f32",), ("f32", "s32", "u8"), ("f16", "u16", "s16"))[seed % 3]
    program = random_program(draw, replace(KERNELS, outputs=("top",), types=types))
    extents = {axis: n for group in square(program) for n in [draw.choice((0, 1, 7, 16, 17))] for axis in group}
    arrays = random_arrays(program, extents, draw, special=draw.choice((0.0, 0.1)))
    given = {x.name: arrays[x.name] if x.uses else arrays[x.name][()] for x in program.inputs}
    got = ptxgen.task(canonical(program))(**given, algebra=False)
    wrong = difference(evaluate(program, arrays, extents)["C0"], got)
    assert not wrong, f"{canonical(program)}, {extents}: {wrong}"


def integers(*shape: int) -> Any:
    return RNG.integers(-3, 4, shape).astype(np.float32)


def compared(text: str, **given: Any) -> Any:
    """The result of a text, which is that of the oracle."""
    got = ptxgen.task(text)(**given)
    kinds = {name: "s32" if isinstance(x, int) else "f32" for name, x in given.items()}
    output = next(iter(evaluate(parse(text, kinds), given).values()))
    assert not difference(output, got)
    return got


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
    found = compared(f"where (i, j) when (j < i) {{ {SUM} accum > 2 ? best[i].top(4, accum, j); }}", P=p, R=r)
    assert (found.j[0] == -1).all()
    assert (found.values[0] == -np.inf).all()
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
