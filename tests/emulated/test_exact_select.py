"""Lists by a threshold of sums of f32, of candidates that tensor cores select, executed on the emulated device."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, exact_calls, selection, task_call
from ptxgen.codegen.nearest_pairs import NearestPairs
from ptxgen.codegen.render import render_pairs
from ptxgen.expr.evaluate import values
from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.node import select as select_node
from ptxgen.lowering.lower import lower
from ptxgen.operations.task import exact_filter, exact_parts
from ptxgen.operations.task.checks import random_arrays
from ptxgen.operations.task.exact_select import ExactSelect
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import Listed, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.suites import QUERIES, typed_text
from ptxgen.problem.device import device
from ptxgen.problem.operation import Case
from ptxgen.problem.suites import cases
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import check
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.measure.bench import BenchRow, bench
from ptxgen.tuning.selection import select
from tests.tensors import LIBRARY
from tests.unit.test_task_lists import Typed

RNG = np.random.default_rng(3)
BODY = "reduce (k) { accum += P[i,k] * R[j,k]; }"


def query(condition: str, when: str = "") -> str:
    return f"where (i, j) {when} {{ {BODY} {condition} ? hits.add(accum, i, j); }}"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each call with a filter: False where there was no room for its candidates. A filter pays from the first
    step."""
    monkeypatch.setattr(exact_filter, "LEAST_K", 8)
    calls: list[bool] = []
    launched = exact_calls.launched

    def noted(*given: Any) -> bool:
        calls.append(launched(*given))
        return calls[-1]

    def forget() -> None:
        exact_calls._full.clear()
        exact_calls._exact.cache_clear()
        exact_filter.candidates_of.cache_clear()

    monkeypatch.setattr(exact_calls, "launched", noted)
    monkeypatch.setattr(exact_filter, "LEAST", 1)
    monkeypatch.setattr(exact_parts, "predicted_faster", lambda *_: True)
    forget()
    yield calls
    forget()


def pairs(hits: Any) -> set[tuple[int, int]]:
    listed = list(zip(hits.i.tolist(), hits.j.tolist(), strict=True))
    assert len(listed) == len({*listed}) == hits.count
    return {*listed}


def where(holds: Any) -> set[tuple[int, int]]:
    return {*map(tuple, np.argwhere(holds).tolist())}


def near(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Operands whose sums are exact in f32, close to K on either side, and K where tf32 truncates them."""
    p, r = np.ones((m, k), np.float32), np.ones((n, k), np.float32)
    p += RNG.integers(0, 3, (m, 1)).astype(np.float32) * np.float32(2**-12)
    r[RNG.random(n) < 0.5] *= np.float32(1 - 2**-12)
    return p, r


CONDITIONS = {
    "accum > t": np.greater,
    "t <= accum": np.greater_equal,
    "accum < t": np.less,
    "accum <= t": np.less_equal,
    "accum == t": np.equal,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_sums_within_the_error_of_tensor_cores_of_the_threshold(condition: str, runs: list[bool]) -> None:
    p, r = near(40, 24, 16)
    product, task = p @ r.T, ptxgen.task(query(condition))
    assert (product == p.astype("f8") @ r.T.astype("f8")).all()
    thresholds = (16, 16 + 2**-8, 16 + 2**-10, 16 - 2**-10)
    for t in thresholds[list(CONDITIONS).index(condition) % 2 :: 2]:
        expected = where(CONDITIONS[condition](product, t))
        hits = task(P=p, R=r, t=np.float32(t))
        assert pairs(hits) == expected
        assert (hits.values == product[hits.i, hits.j]).all()
    assert runs == [True] * 2


def test_without_a_bound_pairs_are_missing(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: candidates are those of the threshold itself."""
    bound = exact_filter.bound
    monkeypatch.setattr(exact_filter, "bound", lambda factors: node("*", "f32", bound(factors), constant(0.0, "f32")))
    p, r = near(40, 24, 16)
    t = np.float32(16 + 2**-10)
    expected = where(p @ r.T > t)
    result = pairs(ptxgen.task(query("accum > t"))(P=p, R=r, t=t))
    assert runs == [True]
    assert result < expected


def test_nearly_cancelled_sums(runs: list[bool]) -> None:
    """The sums are far smaller than the products, whose lowest bits decide their sign."""
    p = RNG.integers(1, 1 << 12, (30, 32)).astype(np.float32)
    r = RNG.integers(1, 1 << 8, (32, 32)).astype(np.float32)
    r[:, 16:] = -r[:, :16]
    p[:, 16:] = p[:, :16] + RNG.integers(-1, 2, (30, 16))
    product = p @ r.T
    assert (product == p.astype("f8") @ r.T).all()
    result = ptxgen.task(query("abs(accum) > t"))(P=p, R=r, t=np.float32(1200))
    assert runs == [True]
    assert pairs(result) == where(abs(product) > 1200)


@pytest.mark.parametrize("scale", [2.0**-70, 2.0**-60, 1.0, 2.0**59])
def test_magnitudes_whose_squares_leave_the_range(scale: float, runs: list[bool]) -> None:
    """A bound that is not finite, or is above all sums, makes every pair a candidate; there is room for 1,024."""
    p, r = (RNG.integers(-4, 5, shape).astype(np.float32) * np.float32(scale) for shape in ((30, 16), (32, 16)))
    product = p @ r.T
    t = np.float32(np.sort(product.ravel())[-20])
    assert pairs(ptxgen.task(query("accum > t"))(P=p, R=r, t=t)) == where(product > t)
    assert runs == [True]


def test_nan_and_infinities(runs: list[bool]) -> None:
    rng = np.random.default_rng(5)
    p, r = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((40, 24), (24, 24)))
    p[7, 0] = 1  # an infinity and a product that overflows have no sum with the other sign
    p[3, 5], p[7, 2], r[4, 1], r[9, 0] = np.nan, np.inf, -np.inf, np.float32(3e38)
    with np.errstate(all="ignore"):
        product = p.astype("f8") @ r.T.astype("f8")
        overflows = abs(product) > 1e38
    hits = ptxgen.task(query("accum > t"))(P=p, R=r, t=np.float32(60))
    assert runs == [True]
    assert pairs(hits) == where((product > 60) & (np.isinf(product) | ~overflows | (product > 0)))


def test_arrays_of_thresholds_pairs_and_parts_of_a_condition(runs: list[bool]) -> None:
    p, r = near(29, 35, 20)
    low, high = (RNG.integers(19, 22, n).astype(np.float32) for n in (29, 35))
    text = query("low[i] <= accum and accum < high[j] + s or accum > 20.01 and i > 2", "when (i + j != 7)")
    hits = ptxgen.task(text)(P=p, R=r, low=low, high=high, s=np.float32(0.001))
    i, j = np.mgrid[:29, :35]
    product = p @ r.T
    holds = (low[:, None] <= product) & (product < high + np.float32(0.001)) | (product > np.float32(20.01)) & (i > 2)
    assert runs == [True]
    assert pairs(hits) == where(holds & (i + j != 7))


@pytest.mark.parametrize("stored", ["ki,jk", "ki,kj", "ik,kj", "one"])
def test_operands_of_other_layouts_are_copied(stored: str, runs: list[bool]) -> None:
    p, r = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((37, 21), (29, 21)))
    given = {"P": p, "R": r}
    text = query("accum > t")
    if stored == "one":
        given, text, r = {"P": p}, text.replace("R[", "P["), p
    elif stored.endswith("kj"):
        given, text = given | {"R": np.ascontiguousarray(r.T)}, text.replace("R[j,k]", "R[k,j]")
    if stored.startswith("ki"):
        given, text = given | {"P": np.ascontiguousarray(p.T)}, text.replace("P[i,k]", "P[k,i]")
    hits = ptxgen.task(text)(**given, t=np.float32(30), sorted=True)
    assert runs == [True]
    assert [*zip(hits.i.tolist(), hits.j.tolist(), strict=True)] == [*map(tuple, np.argwhere(p @ r.T > 30).tolist())]


def test_one_array_whose_thresholds_differ_for_ij_and_ji(runs: list[bool]) -> None:
    p, w = RNG.integers(-3, 4, (31, 21)).astype(np.float32), RNG.integers(0, 50, 31).astype(np.float32)
    for given in ({"P": p}, {"P": p, "R": p}):
        text = query("accum > w[i]").replace("R[", "P[" if len(given) == 1 else "R[")
        assert pairs(ptxgen.task(text)(**given, w=w)) == where(p @ p.T > w[:, None])
    assert runs == [True] * 2


def test_too_many_candidates_are_left_to_the_kernel_of_f32(runs: list[bool]) -> None:
    p, r = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((48, 8), (48, 8)))
    task = ptxgen.task(query("accum > t"))
    assert pairs(task(P=p, R=r, t=np.float32(-np.inf))) == where(p @ r.T > -np.inf)
    for _ in range(exact_calls.RETRY - 1):  # it launched twice, for larger lists; calls that follow do not try
        assert runs == [False]
        assert task(P=p, R=r, t=np.float32(100)).count == 0
    assert task(P=p, R=r, t=np.float32(100)).count == 0
    assert runs == [False, True]


def test_calls_that_have_no_filter(runs: list[bool]) -> None:
    p, r = np.ones((9, 8), np.float32), np.ones((7, 8), np.float32)
    for text, named in (
        (query("accum > t"), {"algebra": False}),
        (query("accum > t"), {"compute": "tf32"}),
        (query("accum * accum > t"), {}),
        (query("accum > t + accum"), {}),
        (query("accum > t").replace("reduce", "accum = 1; reduce"), {}),
        (query("accum > t").replace("* R", "+ R"), {}),
        (query("accum != t"), {}),
        (query("t > 6").replace("add(accum", "add(accum + t"), {}),
    ):
        assert ptxgen.task(text)(P=p, R=r, t=np.float32(7), **named).count >= 0
    assert ptxgen.task(query("accum > t"))(P=p.astype("f8"), R=r.astype("f8"), t=7.0).count == 63
    assert runs == []


def test_overflow_of_lists_is_that_of_their_count(runs: list[bool]) -> None:
    p, r = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((40, 8), (24, 8)))
    task, expected = ptxgen.task(query("accum > t")), where(p @ r.T > 5)
    given = {"P": p, "R": r, "t": np.float32(5)}
    part = task(**given, capacity=4, overflow="truncate")
    assert (part.count, len(part.i)) == (len(expected), 4)
    assert pairs(task(**given, capacity=4)) == expected
    assert runs == [True] * 3


def test_a_filter_pays_where_tensor_cores_are_much_faster() -> None:
    text = typed_text(QUERIES["q5"], "f32")
    large = Task(4096, 4096, 4096, text=text, capacity=10)
    assert exact_filter.pays(large, device("h100"))
    assert ExactSelect.of(large, device("a100")) is not None
    assert not exact_filter.pays(large, device("sm_89"))
    assert not exact_filter.pays(large, device("t4"))
    assert not exact_filter.pays(Task(1024, 1024, 1024, text=text, capacity=10), device("h100"))
    assert not exact_filter.pays(Task(4096, 4096, 1 << 17, text=text, capacity=10), device("h100"))
    assert not exact_filter.pays(Task(4096, 4096, 4096, lda=4104, text=text, capacity=10), device("h100"))


def test_the_bound_covers_the_worst_operands_and_sums() -> None:
    """Rounded operands change by 2^-11 each; sums lose 2^-23 of each partial sum for each of six terms of four products."""
    for k in (1, 16, 4096, 1 << 16):
        w = exact_filter.weights(k, -(-k // 32) + 10)
        alpha, beta = w[exact_filter.ALPHA], w[exact_filter.BETA]
        lost = (1 + 2.0**-11) ** 2 - 1
        blocks = -(-k // 4)
        partial = (np.arange(blocks) + 1) * 4 / max(k, 4)  # of sums of equal products
        worst = lost + 6 * 2.0**-23 * partial.sum() + (k // 32 + 11) * 2.0**-24
        bound = alpha + beta * np.mean(k - np.arange(k))
        assert worst < bound < 1.5 * worst + 2.0**-10


@pytest.mark.parametrize(("where", "k"), [("h100", 64), ("h100", 61)])
def test_kernels_round_operands(where: str, k: int) -> None:
    """With 1 + 2^-10 - 2^-23, truncation loses 2^-10, twice what the bound allows; rounding, nearly nothing."""
    x, m, n = np.float32(1 + 2**-10 - 2**-23), 70, 50
    text = typed_text(QUERIES["q5"].replace("R[k,j]", "R[j,k]"), "f32")
    p = Task(m, n, k, "NT", "f32", "tf32", text=text, capacity=m * n)
    by_family: dict[str, list[Any]] = {}
    for chosen in select(p, device(where), k=400):
        by_family.setdefault(chosen.config.family, []).append(chosen.config)
    assert set(by_family) >= ({"wgmma", "mma"} if (where, k) == ("h100", 64) else {"mma"})
    for config, *_ in by_family.values():
        lists = {name: np.zeros(y.shape, y.dtype.numpy) for name, y in p.result_arrays.items()}
        given = {"A": np.full((m, k), x), "B": np.full((n, k), x), **lists}
        out = Runner.of(EmulatedDriver(), p, config).compute(given, scalars={"scalar0": 0.0})
        assert out["count"] == [m * n]
        assert (abs(out["C"] - k * float(x) ** 2) < k * 2.0**-18).all(), config


# ---- on a GPU


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    driver = EmulatedDriver()
    monkeypatch.setattr(drivers, "driver_of", lambda v: driver)
    monkeypatch.setattr(drivers, "require_device", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


def test_tensors_and_captured_calls(gpu: EmulatedDriver, runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    p, r = near(40, 24, 16)
    given = {"P": Typed(gpu, p), "R": Typed(gpu, r), "t": np.float32(16)}
    task, expected = ptxgen.task(query("accum > t")), where(p @ r.T > 16)
    loaded: list[Any] = []
    load = gpu.load
    monkeypatch.setattr(gpu, "load", lambda source: loaded.append(source) or load(source))
    for _ in range(2):
        assert pairs(task(**given)) == expected
        assert len(loaded) == 4  # of the sums of squares, of their roots, of candidates, of listed pairs
    assert runs == [True] * 2
    monkeypatch.setattr(selection.streams, "is_captured", lambda stream, on: True)
    assert pairs(task(**given, capacity=960, overflow="truncate")) == expected
    assert runs == [True] * 2


# ---- reports


def test_the_suite_has_the_problems_that_list_candidates() -> None:
    problems = {x.name: x.problem for x in cases("candidates", "task")}
    assert list(problems) == [f"candidates {n}" for n in (2048, 4096, 8192, 16384)]
    exact = ExactSelect.of(next(x.problem for x in cases("q5", "task") if x.name == "q5 4096"), device("h100"))  # type: ignore[arg-type]
    assert exact is not None
    assert exact.stages[-1].problem == problems["candidates 4096"]
    small = replace(exact.stages[-1].problem, m=64, n=48, k=32, lda=0, ldb=0, ldc=0, capacity=3000)
    config = select(small, device("h100"))[0].config
    assert all(x.ok for x in check(EmulatedDriver(), small, config))
    given = random_arrays(small, "normal") | small.typical_scalars
    listed = evaluate(small.program, given, {"i": 64, "j": 48, "k": 32})["C"]
    assert isinstance(listed, Listed)
    assert 0 < listed.count < 64 * 48 // 50


def test_the_explanation_tells_the_filter() -> None:
    program = parse(query("accum > t"), dict.fromkeys(("P", "R", "t"), "f32"))
    assert any(line.startswith("filter: ") for line in explanation(program))
    assert not any(line.startswith("filter: ") for line in explanation(program, algebra=False))
    near = parse(reduced("C[i] argmin= 1 - accum * u[i] * w[j]", True), dict.fromkeys(("P", "R", "u", "w"), "f32"))
    assert any(line.startswith("filter: ") and "K from 24 to" in line for line in explanation(near))
    assert exact_filter.candidates_of(roles_of(program)) is not None
    assert task_call.Options().precision == "exact"


# ---- one array on both sides


@pytest.mark.each_value
@pytest.mark.parametrize(
    "text", [query("accum > t"), query("accum > r[i] and i < j + 5"), query("accum > t", "when (i != j)")]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_candidates_of_one_array_are_of_half_of_the_pairs(
    text: str, transposed: bool, runs: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, of = [], ExactSelect.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(ExactSelect, "of", classmethod(lambda cls, *given: made.append(of(cls, *given)) or made[-1]))
    x = RNG.integers(-3, 4, (45, 16)).astype(np.float32)
    limits = (np.arange(45) % 40).astype(np.float32)
    given, least = ({"r": limits}, limits[:, None]) if "r[i]" in text else ({"t": np.float32(20)}, np.float32(20))
    i, j = np.mgrid[:45, :45]
    holds = (x @ x.T > least) & ((i < j + 5) | ("j + 5" not in text)) & ((i != j) | ("!=" not in text))
    if transposed:
        text, x = text.replace("P[i,k]", "P[k,i]").replace("R[j,k]", "R[k,j]"), np.ascontiguousarray(x.T)
    hits = ptxgen.task(text)(P=x, R=x, **given)
    assert pairs(hits) == where(holds)
    assert runs == [True]
    assert made[0].stages[-1].problem.mirrored


# ---- squares of differences


def near_distances(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Rows of integers far from the origin, of which tf32 loses the lowest bits, and their squared distances, exact in
    f32."""
    rng = np.random.default_rng(k)
    p, r = (rng.integers(2048, 2052, (rows, k)).astype(np.float32) for rows in (m, n))
    r[:3] = p[:3]  # equal rows
    return p, r, ((p[:, None] - r) ** 2).sum(-1)


def distances(condition: str, when: str = "") -> str:
    return query(condition, when).replace("P[i,k] * R[j,k]", "(P[i,k] - R[j,k]) * (P[i,k] - R[j,k])")


DISTANCES = {name: (name, CONDITIONS[name]) for name in ("accum < t", "accum == t")}
DISTANCES["root"] = ("sqrt(accum) < s", np.less)


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_within_the_error_of_tensor_cores_of_the_threshold(name: str, runs: list[bool]) -> None:
    text, op = DISTANCES[name]
    p, r, squares = near_distances(24, 20, 19)
    task = ptxgen.task(distances(text))
    for t in (0, 45):
        number = {"s": np.float32(t**0.5)} if name == "root" else {"t": np.float32(t)}
        hits = task(P=p, R=r, **number)
        assert pairs(hits) == where(op(np.sqrt(squares), np.float32(t**0.5)) if name == "root" else op(squares, t))
        assert (hits.values == squares[hits.i, hits.j]).all()
    assert runs == [True] * 2


@pytest.mark.parametrize("end", [0, 1])
def test_without_the_ends_of_distances_pairs_are_missing(
    end: int, runs: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the sums of squares have the weights 1."""
    p, r, squares = near_distances(24, 20, 16)
    monkeypatch.setattr(exact_filter, "weights", lambda *_: {exact_filter.ALPHA: 0.0, exact_filter.BETA: 0.0})
    t = np.float32(np.median(squares))
    text, op = (("accum < t", np.less), ("accum > t", np.greater))[end]
    assert pairs(ptxgen.task(distances(text))(P=p, R=r, t=t)) < where(op(squares, t))
    assert runs == [True]


def test_distances_of_huge_tiny_infinite_and_nan_elements(runs: list[bool]) -> None:
    rng = np.random.default_rng(6)
    p, r = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((40, 24), (25, 24)))
    p[3, 5], p[7, 2], r[4, 1], r[9, 0] = np.nan, np.inf, -np.inf, np.float32(3e38)
    p[8], r[8] = 2.0**62, 2.0**62  # equal rows, whose squares overflow
    p[10:12] *= np.float32(2**-66)
    r[10:12] = p[10:12]
    with np.errstate(all="ignore"):
        squares = ((p[:, None] - r) ** 2).sum(-1)
    for t in (0.0, 100.0, np.inf):
        hits = ptxgen.task(distances("accum <= t"))(P=p, R=r, t=np.float32(t))
        assert pairs(hits) == where(squares <= np.float32(t))
    assert (8, 8) in pairs(hits)
    assert runs == [True] * 3


def test_distances_of_one_array_and_bounds_of_rows(runs: list[bool]) -> None:
    p, _, _ = near_distances(31, 20, 17)
    w = RNG.integers(0, 50, 31).astype(np.float32)
    squares = ((p[:, None] - p) ** 2).sum(-1)
    text = distances("accum < w[i] or (accum == w[i] and j <= 9)", "when (i != j)").replace("R[", "P[")
    hits = ptxgen.task(text)(P=p, w=w)
    i, j = np.mgrid[:31, :31]
    assert pairs(hits) == where(((squares < w[:, None]) | (squares == w[:, None]) & (j <= 9)) & (i != j))
    assert runs == [True]


def test_short_rows_have_no_filter(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_filter, "LEAST_K", 16)
    p, r, squares = near_distances(24, 20, 15)
    assert ptxgen.task(distances("accum < t"))(P=p, R=r, t=np.float32(40)).count == (squares < 40).sum()
    assert runs == []


# ---- the nearest row


def reduced(output: str, product: bool = False) -> str:
    step = "P[i,k] * R[j,k]" if product else "(P[i,k] - R[j,k]) * (P[i,k] - R[j,k])"
    return f"where (i, j) {{ reduce (k) {{ accum += {step}; }} {output}; }}"


#: the outputs of a sum, which are the same as those of its kernel of f32, bit by bit
NEAREST = {
    "C[i] argmin= accum": False,
    "C[i] = min(C[i], sqrt(accum))": False,
    "C[j] = max(C[j], accum)": False,
    "C[i] argmax= accum": True,
    "C[i] argmin= abs(accum)": True,
}


@pytest.mark.parametrize("output", NEAREST)
def test_reduced_rows_are_those_of_the_kernel_of_f32(output: str, runs: list[bool]) -> None:
    """Normal values, with equal rows of R: the first of them is the nearest."""
    rng = np.random.default_rng(4)
    p, r = (rng.standard_normal((rows, 21)).astype(np.float32) for rows in (33, 130))
    r[40:45] = r[90:95] = p[3:8]
    task = ptxgen.task(reduced(output, NEAREST[output]))
    result = task(P=p, R=r)
    np.testing.assert_array_equal(result, task(P=p, R=r, algebra=False))
    if "C[i] argmin= accum" in output:
        assert result[3:8].tolist() == [40, 41, 42, 43, 44]
    assert runs == ([True] if "C[i]" in output else [])  # columns have no filter


#: outputs whose values are monotone in the sum, with vectors of rows and of columns, and numbers
MONOTONE = {
    "C[i] argmin= max(1 - accum * u[i] * w[j], 0)": True,
    "C[i] argmax= accum * w[j] / u[i]": True,
    "C[i] = max(C[i], min(accum * s - w[j], u[i]))": True,
    "C[i] argmin= max(u[i] + w[j] - 2 * accum, 0)": True,
    "C[i] argmin= w[j] - s * accum": False,
    "C[i] argmin= u[i] - accum": True,
    "C[i] = min(C[i], u[i] + sqrt(accum))": False,
    "C[i] argmin= sqrt(max(u[i] + w[j] - 2 * accum, 0))": True,
}


@pytest.mark.parametrize("output", MONOTONE)
@pytest.mark.parametrize("compute", ["", "f32_bf16x6"])
def test_values_that_are_monotone_in_the_sum_have_a_filter(output: str, compute: str, runs: list[bool]) -> None:
    """Factors of columns have both signs, and zeros."""
    if compute and not MONOTONE[output]:
        return  # of sums of products alone
    rng = np.random.default_rng(9)
    p, r = (rng.standard_normal((rows, 21)).astype(np.float32) for rows in (33, 130))
    given = {"P": p, "R": r, "s": np.float32(-1.25)}
    given |= {"u": abs(rng.standard_normal(33)).astype(np.float32), "w": rng.standard_normal(130).astype(np.float32)}
    given["w"][[5, 47, 101]] = 0
    given["u"][3] = -0.0
    used = {name: x for name, x in given.items() if name in "PR" or re.search(rf"\b{name}\b", output)}
    task = ptxgen.task(reduced(output, MONOTONE[output]))
    result = task(**used, **({"compute": compute} if compute else {}))
    np.testing.assert_array_equal(result, task(**used, algebra=False))
    assert runs == [True]


@pytest.mark.parametrize(
    "value",
    ["max(1 - accum * u[i] * w[j], 0)", "accum * w[j] / u[i]", "min(accum * s - w[j], u[i])", "-(accum - w[j]) * s"],
)
def test_ends_enclose_the_values_of_all_sums_between_them(value: str) -> None:
    rng = np.random.default_rng(10)
    types = dict.fromkeys(("P", "R", "u", "w", "s"), "f32")
    program = parse(reduced(f"C[i] argmin= {value}", True), types)
    root = program.outputs[0].value
    low, high = (variable(x, "f32") for x in ("low", "high"))
    is_sum = variable(exact_filter.ACCUMULATOR, "f32")

    def of_sum(x: Node, upper: bool, factors: tuple[Node, ...]) -> Node | None:
        if x is not is_sum or not factors:
            return None if x is not is_sum else (low, high)[upper]
        return select_node(exact_filter.negative_product(factors), *((low, high) if upper else (high, low)))

    ends = [exact_filter.end_of(root, upper, (), of_sum) for upper in (False, True)]
    assert None not in ends
    given = {
        name: rng.choice([-2.5, -0.0, 0.0, 1e-30, 0.7, 3e38], 4000).astype(np.float32) for name in ("u[i]", "w[j]", "s")
    }
    sums = np.sort(rng.standard_normal((3, 4000)).astype(np.float32) * np.float32(8), axis=0)
    given |= {"low": sums[0], exact_filter.ACCUMULATOR: sums[1], "high": sums[2]}
    with np.errstate(all="ignore"):
        least, inside, greatest = values([ends[0], root, ends[1]], given)
    assert not (inside < least).any()
    assert not (greatest < inside).any()
    assert (least < greatest).any()


@pytest.mark.parametrize(
    "output",
    [
        "C[i] argmin= accum * accum",
        "C[i] argmin= accum + u[i] * f32(j)",
        "C[i] argmin= exp(accum)",
        "C[i] argmin= u[i] / accum",
        "C[i] argmin= accum + f32(M)",
    ],
)
def test_values_without_a_filter(output: str, runs: list[bool]) -> None:
    p, r = (RNG.integers(-3, 4, (30, 16)).astype(np.float32) for _ in range(2))
    used = {"u": np.ones(30, np.float32)} if "u[" in output else {}
    task = ptxgen.task(reduced(output, True))
    np.testing.assert_array_equal(task(P=p, R=r, **used), task(P=p, R=r, **used, algebra=False))
    assert runs == []


def with_sums_of_0(w_77: float, q_77: float) -> dict[str, Any]:
    """Operands whose sums of column 77 are 0, and vectors w of ones and q of hundreds but for that column."""
    rng = np.random.default_rng(12)
    p, r = (rng.standard_normal((rows, 24)).astype(np.float32) for rows in (33, 130))
    p[:, 3], r[77], r[77, 3] = 0, 0, 1
    w, q = np.ones(130, np.float32), np.full(130, 100, np.float32)
    w[77], q[77] = w_77, q_77
    return {"P": p, "R": r, "w": w, "q": q}


@pytest.mark.parametrize(
    ("output", "columns"),
    [
        ("C[i] argmax= min(accum * w[j], q[j])", (np.inf, -100)),
        ("C[i] argmin= max(accum * w[j], q[j])", (np.inf, 100)),
        ("C[i] argmin= max(accum / w[j], q[j])", (0, 100)),
        ("C[i] argmin= max(3e38 * accum * w[j], q[j])", (np.inf, 100)),
    ],
)
def test_values_that_are_nan_between_their_ends_win(output: str, columns: Any, runs: list[bool]) -> None:
    given, task = with_sums_of_0(*columns), ptxgen.task(reduced(output, True))
    with np.errstate(all="ignore"):
        assert task(**given, algebra=False).tolist() == task(**given).tolist()
    assert len(runs) == 1


def test_a_factor_of_0_may_make_nan_of_an_infinite_part(runs: list[bool]) -> None:
    """The first factor makes all sums but small ones infinite, the second, of column 77, is 0."""
    given = with_sums_of_0(0, 1)
    given["R"][77] = 0.5 * given["R"][76]
    task = ptxgen.task(reduced("C[i] argmin= accum * q[j] * w[j]", True))
    given["q"][:] = 3e38
    with np.errstate(all="ignore"):
        assert task(**given, algebra=False).tolist() == task(**given).tolist()
    assert len(runs) == 1


@pytest.mark.parametrize(
    "value", ["sqrt(2 - 2 * accum)", "sqrt(u[i] + w[j] - 2 * accum)", "sqrt(accum)", "sqrt(max(accum, -1))"]
)
def test_roots_of_values_that_may_be_negative_have_no_filter(value: str, runs: list[bool]) -> None:
    x = RNG.standard_normal((60, 24)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    used = {name: np.ones(60, np.float32) for name in "uw" if f"{name}[" in value}
    task = ptxgen.task(reduced(f"C[i] argmax= {value}", True))
    np.testing.assert_array_equal(task(P=x, R=x, **used), task(P=x, R=x, **used, algebra=False))
    assert runs == []


def test_rows_that_tensor_cores_cannot_tell_apart(runs: list[bool]) -> None:
    """Distances exact in f32; of many equal ones, the first column counts."""
    p, r, squares = near_distances(24, 60, 16)
    task = ptxgen.task(reduced("C[i] argmin= accum"))
    assert task(P=p, R=r).tolist() == squares.argmin(1).tolist()
    p[:], r[:] = p[0], r[0]
    assert task(P=p, R=r).tolist() == [0] * 24
    assert runs == [True] * 2


def test_without_the_ends_of_distances_other_rows_are_nearest(
    runs: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the sums of squares have the weights 1."""
    p, r, squares = near_distances(24, 60, 16)
    monkeypatch.setattr(exact_filter, "weights", lambda *_: {exact_filter.ALPHA: 0.0, exact_filter.BETA: 0.0})
    assert ptxgen.task(reduced("C[i] argmin= accum"))(P=p, R=r).tolist() != squares.argmin(1).tolist()
    assert runs == [True]


def test_nearest_rows_of_huge_infinite_and_nan_elements(runs: list[bool]) -> None:
    rng = np.random.default_rng(7)
    p, r = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((30, 16), (66, 16)))
    p[3, 5], p[7, 2], p[8], p[9] = np.nan, np.inf, 2.0**62, np.float32(2.0**-70)
    r[60] = p[8]
    for last in (0.0, np.nan):
        r[65, 3] = last or r[65, 3]
        with np.errstate(all="ignore"):
            squares = ((p[:, None] - r) ** 2).sum(-1)
        task = ptxgen.task(reduced("C[i] argmin= accum"))
        assert task(P=p, R=r).tolist() == squares.argmin(1).tolist()  # NumPy's is the first NaN, too
        least = ptxgen.task(reduced("C[i] = min(C[i], accum)"))(P=p, R=r)
        np.testing.assert_array_equal(least, ptxgen.task(reduced("C[i] = min(C[i], accum)"))(P=p, R=r, algebra=False))
    assert runs == [True] * 4


def test_too_many_near_rows_are_left_to_the_kernel_of_f32(runs: list[bool]) -> None:
    """All pairs may be the nearest ones where elements are too large for a bound."""
    p, r = (RNG.integers(1, 3, (60, 16)).astype(np.float32) * np.float32(2.0**52) for _ in range(2))
    r = np.tile(r, (2, 1))
    result = ptxgen.task(reduced("C[i] argmin= accum"))(P=p, R=r)
    assert result.tolist() == ((p[:, None].astype("f8") - r) ** 2).sum(-1).argmin(1).tolist()
    assert runs == [False]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_the_kernels_of_nearest_pairs_assemble_without_spills(
    target: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for text in (reduced("C[i] argmin= accum"), reduced("C[i] = max(C[i], accum)", True)):
        p = Task(40, 36, 24, "NT", "f32", text=text)
        made = assemble(render_pairs(NearestPairs(lower(p), device(target))))
        assert made.cubin
        assert not any(made.spills.values())


def test_nearest_rows_of_tensors(gpu: EmulatedDriver, runs: list[bool]) -> None:
    """The second call launches the same kernels."""
    p, r, squares = near_distances(24, 60, 16)
    task = ptxgen.task(reduced("C[i] argmin= accum"))
    for _ in range(2):
        result = task(P=Typed(gpu, p), R=Typed(gpu, r))
        assert np.asarray(result.numpy()).tolist() == squares.argmin(1).tolist()
    assert runs == [True] * 2


# ---- times


def timed(name: str, text: str, n: int = 36, k: int = 24) -> BenchRow:
    """The row of ``bench`` for a task of the arrays P and R. P has 40 rows."""
    given = typed_text(text.replace("P[", "A[").replace("R[", "B["), "f32")
    p = Task(40, n, k, "NT", "f32", text=given, capacity=40 * n if ".add(" in text else 0)
    [row] = bench([Case(name, p)], EmulatedDriver(), lambda q, d: select(q, d)[0], timing=Timing(samples=1))
    return row


#: text -> the number of kernels that the row names
TIMED = {
    query("accum > 9"): 6,
    query("accum > 9 and accum < 11"): 6,
    reduced("C[i] argmin= accum"): 7,
}


@pytest.mark.parametrize("text", TIMED)
def test_bench_times_the_launches_of_calls(text: str, runs: list[bool]) -> None:
    row = timed("filter", text)
    assert row.note == f"{TIMED[text]} kernels: tensor cores list candidates, f32 decides"
    assert row.us > 0


def test_too_many_candidates_are_timed_by_the_f32_kernel(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_filter, "LEAST_PAIRS", 1)
    row = timed("list", query("accum > -9"))
    assert row.us > 0
    assert not row.note


def test_wrong_results_of_a_filter_are_no_row(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_filter, "weights", lambda *_: {exact_filter.ALPHA: -1.0, exact_filter.BETA: 0.0})
    row = timed("nearest", reduced("C[i] argmin= accum"), 60, 16)
    assert row.note.startswith("wrong_result")
