"""Calls of tasks that list selected results: capacity, overflow, order, on the host and on a GPU."""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, drivers, launches, runners, selection
from ptxgen.cli import command
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import CapacityError, InputError, ShapeError
from ptxgen.operations.task import checks
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import Listed
from ptxgen.problem.suites import cases
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection as tuning_selection
from tests.tensors import LIBRARY, Tensor

QUERY = """where (i in [0, M], j in [0, N]) {
    reduce (k in [0, K]) { accum += P[i, k] * R[k, j]; }
    accum > thres ? hits.add(accum, i, j);
}"""
M, N, K = 48, 40, 12


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_last_counts", {})


def inputs() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    p, r = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((M, K), (K, N)))
    return {"P": p, "R": r, "thres": 4.0}


def expected() -> Any:
    given = inputs()
    product = given["P"] @ given["R"]
    return product, product > given["thres"]


def launches_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The capacities of the launches that follow."""
    entries: list[int] = []
    compute = selection.on_host.compute_on_host

    def counted(problem: Any, arrays: Any, *rest: Any, **named: Any) -> Any:
        entries.append(named["scalars"]["capacity"])
        return compute(problem, arrays, *rest, **named)

    monkeypatch.setattr(selection.on_host, "compute_on_host", counted)
    return entries


def test_results_have_values_and_indices() -> None:
    product, selected = expected()
    hits = ptxgen.task(QUERY)(**inputs())
    assert hits.count == len(hits) == selected.sum()
    assert (hits.i.dtype, hits.j.dtype, hits.values.dtype) == (np.int32, np.int32, np.float32)
    assert {*zip(hits.i.tolist(), hits.j.tolist(), strict=True)} == {*map(tuple, np.argwhere(selected).tolist())}
    assert (hits.values == product[hits.i, hits.j]).all()
    assert repr(hits) == f"Selection(count={hits.count}, capacity=1024)"


def test_sorted_results_have_the_order_of_i_and_j() -> None:
    product, selected = expected()
    hits = ptxgen.task(QUERY)(**inputs(), sorted=True)
    assert (np.stack([hits.i, hits.j], 1) == np.argwhere(selected)).all()
    assert (hits.values == product[selected]).all()


def test_lists_grow_once_and_later_calls_begin_with_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    capacities, count = launches_of(monkeypatch), int(expected()[1].sum())
    query = ptxgen.task(QUERY)
    assert query(**inputs(), capacity=7).count == count
    assert capacities == [7, count]
    hits = query(**inputs())
    assert len(hits) == count
    assert capacities[2:] == [max(1024, count + count // 8)]


def test_the_first_lists_have_an_element_for_64_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    capacities = launches_of(monkeypatch)
    p, r = np.zeros((512, 2), np.float32), np.zeros((2, 256), np.float32)
    assert ptxgen.task(QUERY)(P=p, R=r, thres=1.0).count == 0
    assert ptxgen.task(QUERY)(P=p[:3], R=r[:, :5], thres=-1.0).count == 15
    assert capacities == [512 * 256 // 64, 15]


@pytest.mark.parametrize("capacity", [0, 1, -1, 0.5, "count"])
def test_overflow(capacity: Any) -> None:
    product, selected = expected()
    count = int(selected.sum())
    query = ptxgen.task(QUERY)
    if capacity == "count":
        assert query(**inputs(), capacity=count, overflow="error").count == count
        capacity = count - 1
    if capacity not in (0, 1, count - 1):
        with pytest.raises(ShapeError, match=r"capacity is .*; it must be an integer from 0 to"):
            query(**inputs(), capacity=capacity)
        return
    with pytest.raises(CapacityError, match=f"capacity is {capacity}; it must be at least {count}") as caught:
        query(**inputs(), capacity=capacity, overflow="error")
    assert (caught.value.count, caught.value.capacity) == (count, capacity)
    assert pickle.loads(pickle.dumps(caught.value)).count == count
    part = query(**inputs(), capacity=capacity, overflow="truncate")
    assert (part.count, len(part), len(part.values)) == (count, capacity, capacity)
    assert selected[part.i, part.j].all()
    assert (part.values == product[part.i, part.j]).all()


def test_several_values_and_no_indices() -> None:
    product, selected = expected()
    given = inputs()
    hits = ptxgen.task(QUERY.replace("accum, i, j", "accum * 2, i, accum < 9"))(**given)
    doubled, small = hits.values
    assert hits.j is None
    assert sorted(doubled.tolist()) == sorted((2 * product[selected]).tolist())
    assert small.dtype == np.uint8
    assert ((doubled < 18) == small).all()
    hits = ptxgen.task(QUERY.replace("accum, i, j", "j, i"))(**given, sorted=True)
    assert hits.values == ()
    assert (hits.i == np.argwhere(selected)[:, 0]).all()


def test_empty_extents() -> None:
    query = ptxgen.task(QUERY)
    for m, n in ((0, 3), (3, 0)):
        hits = query(P=np.zeros((m, 2), np.float32), R=np.zeros((2, n), np.float32), thres=-1.0, sorted=True)
        assert (hits.count, len(hits.values), hits.i.shape) == (0, 0, (0,))
    assert query(P=np.zeros((3, 0), np.float32), R=np.zeros((0, 2), np.float32), thres=-1.0).count == 6


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        (QUERY, {"overflow": "wrap"}, "overflow is 'wrap'; it must be one of grow, error, truncate"),
        (QUERY, {"sorted": 1}, "sorted is 1; it must be True or False"),
        (QUERY, {"out": np.zeros((M, N))}, "out is given; a task with lists makes them, and takes capacity"),
        (QUERY.replace("accum, i, j", "accum, j"), {"sorted": True}, "sorted is True; hits.add must then have i and j"),
        (
            QUERY.replace("accum > thres ? hits.add(accum, i, j)", "C[i, j] = accum + thres"),
            {"capacity": 3},
            "capacity, overflow and sorted are for tasks with lists; this one has none",
        ),
    ],
    ids=["overflow", "sorted", "out", "indices", "matrix"],
)
def test_arguments_that_are_refused(text: str, named: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        ptxgen.task(text)(**inputs(), **named)


# ---- on a GPU


class Typed(Tensor):
    """A tensor of any type."""

    def __init__(self, driver: EmulatedDriver, x: Any) -> None:
        super().__init__(driver, x)
        self.element, self.dtype = x.dtype, f"torch.{x.dtype}"

    def numpy(self) -> Any:
        out = np.empty(self.shape, self.element)
        if out.size:
            self.driver.download(self.address, out)
        return out

    def new_empty(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return Typed(self.driver, np.full(shape, -1, str(dtype).removeprefix("torch.")))

    def __getitem__(self, part: slice) -> Any:
        return self.numpy()[part]


Typed.__module__ = "torch"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    driver = EmulatedDriver()
    driver.name = "cuda"  # type: ignore[misc]
    config = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(choice, "database", lambda: None)
    given = tuning_selection.Selection
    monkeypatch.setattr(tuning_selection, "select", lambda p, *_, **__: [given(p, config, "given")])
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


def on_device(driver: EmulatedDriver) -> dict[str, Any]:
    return {name: Typed(driver, x) if isinstance(x, np.ndarray) else x for name, x in inputs().items()}


@pytest.mark.parametrize("capacity", [None, 5])
def test_tensors(gpu: EmulatedDriver, capacity: int | None) -> None:
    product, selected = expected()
    hits = ptxgen.task(QUERY)(**on_device(gpu), capacity=capacity, sorted=True)
    assert hits.count == selected.sum()
    assert (np.stack([hits.i, hits.j], 1) == np.argwhere(selected)).all()
    assert (hits.values == product[selected]).all()
    part = ptxgen.task(QUERY)(**on_device(gpu), capacity=5, overflow="truncate")
    assert (part.count, len(part.i)) == (selected.sum(), 5)
    assert selected[part.i, part.j].all()
    with pytest.raises(CapacityError):
        ptxgen.task(QUERY)(**on_device(gpu), capacity=5, overflow="error")


def test_other_capacities_and_thresholds_load_no_kernel(gpu: EmulatedDriver) -> None:
    query, given = ptxgen.task(QUERY), on_device(gpu)
    for capacity, thres in ((1, 4.0), (900, 1.0), (2000, -9.0)):
        query(**{**given, "thres": thres}, capacity=capacity, overflow="truncate")
    assert len(runners.runners) == 1


def test_a_captured_call_reads_the_count_later(gpu: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    selected = expected()[1]
    query, given = ptxgen.task(QUERY), on_device(gpu)
    query(**given)
    monkeypatch.setattr(selection.streams, "is_captured", lambda stream, on: True)
    waits: list[int] = []
    monkeypatch.setattr(gpu, "wait", waits.append)
    for named in ({}, {"overflow": "error"}, {"overflow": "truncate", "sorted": True}):
        with pytest.raises(InputError, match=r"during a CUDA graph capture; .*overflow must be 'truncate'"):
            query(**given, **named)
    hits = query(**given, capacity=9, overflow="truncate")
    assert waits == []
    assert (hits.count, len(hits.values)) == (selected.sum(), 9)
    gpu.upload(hits._read.address, np.array([2], np.int64))  # the next launch selects two
    assert (hits.count, len(hits.i)) == (2, 2)


def test_later_calls_use_the_launch(gpu: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the thresholds and the numbers of results of each; longer lists are made by a call that makes all again."""
    query, given, slow = ptxgen.task(QUERY), on_device(gpu), []
    runner_for = runners.runner_for
    monkeypatch.setattr(runners, "runner_for", lambda *rest: slow.append(rest[0]) or runner_for(*rest))
    monkeypatch.setattr(selection, "LEAST", 64)
    product = expected()[0]
    largest = float(np.sort(product, axis=None)[-50])
    for thres in (largest, largest + 1, largest):
        hits, wanted = query(**{**given, "thres": thres}, sorted=True), np.argwhere(product > thres)
        assert hits.count == len(wanted)
        assert (np.stack([hits.i, hits.j], 1) == wanted).all()
        assert (hits.values == product[product > thres]).all()
    assert len(slow) == 1
    for _ in range(2):
        assert query(**{**given, "thres": -1e3}, sorted=True).count == product.size
    assert len(slow) == 4  # a call without room, the same again for its count; then all at once
    assert query(**{**given, "thres": largest}, sorted=True).count == (product > largest).sum()
    assert len(slow) == 4
    for overflow in ("truncate", "error"):
        for _ in range(2):
            assert query(**{**given, "thres": largest}, capacity=60, overflow=overflow).count < 60
    assert len(slow) == 6
    assert query(**{**given, "thres": -1e3}, capacity=60, overflow="truncate").count == product.size
    assert len(slow) == 6
    for _ in range(2):
        with pytest.raises(CapacityError):
            query(**{**given, "thres": -1e3}, capacity=60, overflow="error")
    monkeypatch.setattr(selection.streams, "is_captured", lambda stream, on: True)
    with pytest.raises(InputError, match="during a CUDA graph capture"):
        query(**given, sorted=True)
    known = len(slow)
    hits = query(**{**given, "thres": largest}, capacity=60, overflow="truncate")
    assert isinstance(hits._read, selection._DeviceCount)
    assert hits.count == (product > largest).sum()
    assert len(slow) == known


# ---- commands


def test_the_command_saves_a_list_as_an_array_with_fields(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    product, selected = expected()
    given = inputs()
    words = []
    for name in ("P", "R"):
        np.save(tmp_path / f"{name}.npy", given[name])
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    words += ["--input", f"thres={given['thres']}", "--save", str(tmp_path / "hits.npy")]
    assert command.run(["task", "--expr", QUERY, *words]) == 0
    assert f"result: value float32, i int32, j int32, {selected.sum()}" in capsys.readouterr().out
    hits = np.load(tmp_path / "hits.npy")
    assert (np.stack([hits["i"], hits["j"]], 1) == np.argwhere(selected)).all()
    assert (hits["value"] == product[selected]).all()


@pytest.mark.parametrize("name", ["q5", "q6"])
def test_suites_list_one_pair_of_1000(name: str) -> None:
    p = next(iter(cases(name, "task"))).problem
    small = replace(p, m=256, n=256, k=512, lda=0, ldb=0, ldc=0)
    lists = checks.expected(small, checks.random_arrays(small), small.typical_scalars)
    assert isinstance(lists, Listed)
    assert 20 < lists.count < 200
    assert p.capacity == p.m * p.n // 64


def test_explanation_tells_pairs_and_lists() -> None:
    types = {"P": "f32", "R": "f32", "thres": "f32", "g": "s32"}
    for when, tiles in (("i < j", "tiles without such a pair are not computed"), ("g[i] == 1", "computed by whole")):
        lines = explanation(parse(QUERY.replace(" {", f" when ({when}) {{", 1), types))
        assert any(line.startswith("pairs: ") and tiles in line for line in lines)
        assert "list C: accum, i, j if scalar0<accum; each warp reserves elements by one atomic" in lines


def test_lists_are_of_one_product() -> None:
    text = "where (i, j) { reduce (k) { accum += A[i,k] * B[k,j]; } accum > 0 ? L.add(i); }"
    with pytest.raises(InputError, match="batch is 2; a task with lists of selected results takes batch 1"):
        ptxgen.Task(3, 4, 5, dtype="f32", text=text, batch=2)
    assert ptxgen.Task(3, 4, 5, dtype="f32", text=text, capacity=7).key().endswith("capacity=7")
    plain = ptxgen.Task(3, 4, 5, dtype="f32", capacity=7)
    assert plain.capacity == 0
