"""Rows, columns and groups of results, reduced on the emulated device."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.api import drivers, streams
from ptxgen.api.task import task
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.launches import result_ranges
from ptxgen.codegen.launches.sink_kernels import AggregateKernels, TileReduceKernels
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.errors import InputError, ShapeError
from ptxgen.expr.node import constant
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.lowering.states import StateReduction
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some
from tests.tensors import LIBRARY, Tensor

H200 = device("h200")
SIMT = "ms=4 ns=4 ml=32 nl=32 u=8 vec_a=1 vec_b=1 vec_c=4 "
CONFIGS = {
    "one_slice": SIMT,
    "thread_groups": SIMT + "kl=2",
    "slices": SIMT + "kg=3 splitk=workspace",
    "wide": "ms=2 ns=8 ml=16 nl=128 u=8 vec_a=1 vec_b=1 vec_c=4",
    "tall": "ms=8 ns=2 ml=128 nl=16 u=8 vec_a=1 vec_b=1 vec_c=4",
}
TALL_RASTER = SIMT.replace("vec_c=4", "vec_c=1") + "raster_group=4"
PRODUCT = "reduce(k){accum+=A[i,k]*B[k,j];}"
HEAD = "A:f32[i,k];B:f32[k,j];"
READ = "input0:f32[i];input1:f32[j];input2:f32[i,j];input3:f32[j,i];"
VALUE = "C[AXIS]argmin=accum+2*input0[i]-input1[j]+3*input2[i,j]-input3[j,i];"
RANGES = {
    "NN": f"{HEAD}{READ}where(i,j){{{PRODUCT}{VALUE}}}",
    "TT": f"A:f32[k,i];B:f32[j,k];{READ}where(i,j){{reduce(k){{accum+=A[k,i]*B[j,k];}}{VALUE}}}",
}
RNG = np.random.default_rng(3)


def integers(*shape: int) -> Any:
    return RNG.integers(-3, 4, shape).astype(np.float32)


def ran(p: Task, arrays: dict[str, Any], config: str = SIMT, **options: Any) -> dict[str, Any]:
    """The outputs of a task. Before the launch, they hold 77."""
    driver = EmulatedDriver(H200, **options)
    outputs = {name: np.full(x.shape, 77, x.dtype.numpy) for name, x in p.result_arrays.items()}
    return Runner.of(driver, p, parse_config(config)).compute(arrays | outputs)


@pytest.mark.first(1)
@pytest.mark.parametrize("seed", range(3))
def test_random_reductions_equal_the_oracle(seed: int) -> None:
    driver = EmulatedDriver(H200)
    for n, (p, c) in enumerate(SOURCES["task_reduce"].cases(seed, 8, H200, limit=50)):
        for result in check_some(driver, p, c, seed=n):
            assert result.ok, f"{result.inputs}: {result.deviation}: {p.key()} | {c}"


@pytest.mark.each_value
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_positions_of_ties_nans_and_infinities(op: str, axis: str, config: str) -> None:
    a, b = integers(70, 30), integers(30, 52)
    a[5, 0], a[9, 0], b[0, 7], b[0, 9] = np.nan, np.inf, -np.inf, np.nan
    p = Task(70, 52, 30, text=f"{HEAD}where(i,j){{{PRODUCT}C[{axis}]={op}(C[{axis}],accum);}}")
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(a @ b, axis="ij".index(axis) ^ 1)
    np.testing.assert_array_equal(ran(p, {"A": a, "B": b}, config)["C"], expected)


@pytest.mark.each_value
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("axis", ["i", "j"])
def test_logsumexp_of_large_values(axis: str, config: str) -> None:
    a, b = 100 * integers(66, 24), integers(24, 36)
    p = Task(66, 36, 24, text=f"{HEAD}where(i,j){{{PRODUCT}C[{axis}]=logsumexp(C[{axis}],accum);}}")
    expected = np.logaddexp.reduce((a @ b).astype(np.float64), axis="ij".index(axis) ^ 1)
    np.testing.assert_allclose(ran(p, {"A": a, "B": b}, config)["C"], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "empty"),
    [("+=", 0), ("*=", 1), ("=min", np.inf), ("=max", -np.inf), ("=argmin", -1), ("=logsumexp", -np.inf)],
)
@pytest.mark.parametrize("extents", [(5, 0, 4), (0, 5, 4)])
def test_reductions_of_nothing_are_the_identity(extents: tuple[int, int, int], op: str, empty: float) -> None:
    m, n, k = extents
    axis = "i" if m else "j"
    value = f"{op}(C[{axis}],accum)" if op[0] == "=" else f"{op}accum"
    p = Task(m, n, k, text=f"{HEAD}where(i,j){{{PRODUCT}C[{axis}]{value};}}")
    out = ran(p, {"A": integers(m, k), "B": integers(k, n)}, SIMT.replace("vec_c=4", "vec_c=1"))["C"]
    np.testing.assert_array_equal(out, np.full(5, empty, out.dtype))


def test_pairs_outside_the_index_set_are_not_reduced() -> None:
    a, b = integers(40, 9), integers(9, 40)
    p = Task(40, 40, 9, text=f"{HEAD}where(i,j)when(i<j){{{PRODUCT}C[i]=mean(C[i],accum);}}")
    product, above = a @ b, np.triu(np.ones((40, 40), bool), 1)
    with np.errstate(all="ignore"):
        expected = np.where(above, product, 0).sum(1) / above.sum(1).astype(np.float32)
    np.testing.assert_allclose(ran(p, {"A": a, "B": b})["C"], expected, rtol=1e-6)


PAIRS = {
    "i<j": np.less,
    "i==j": np.equal,
    "j<=i": np.greater_equal,
    "i+40<j": lambda i, j: i + 40 < j,
    "j>200": lambda i, j: (i < 0) & (j < 0),
}


@pytest.mark.each_value
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("when", PAIRS)
def test_tiles_without_a_pair_have_states_of_no_value(when: str, axis: str, config: str) -> None:
    a, b = integers(100, 17), integers(17, 76)
    p = Task(100, 76, 17, text=f"{HEAD}where(i,j)when({when}){{{PRODUCT}C[{axis}]argmax=accum;}}")
    taken, along = PAIRS[when](np.arange(100)[:, None], np.arange(76)), "ij".index(axis) ^ 1
    expected = np.where(taken.any(along), np.where(taken, a @ b, -np.inf).argmax(along), -1)
    np.testing.assert_array_equal(ran(p, {"A": a, "B": b}, config)["C"], expected)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "config", [CONFIGS["one_slice"], CONFIGS["slices"], TALL_RASTER], ids=["tiles", "slices", "raster"]
)
@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_ranges_of_results_use_one_workspace(
    layout: str, axis: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range reads its parts of A or B, of vectors and of a matrix."""
    m, n, k = 70, 52, 30
    p = Task(m, n, k, layout, text=RANGES[layout].replace("AXIS", axis))
    a, b, e = integers(m, k), integers(k, n), integers(m, n)
    rows, columns = integers(m), integers(n)
    given = {"A": a if layout == "NN" else a.T, "B": b if layout == "NN" else b.T}
    given |= {"input0": rows, "input1": columns, "input2": e, "input3": integers(m, n).T}
    expected = (a @ b + 2 * rows[:, None] - columns + 3 * e - given["input3"].T).argmin("ij".index(axis) ^ 1)
    whole = plan_for(p, parse_config(config), H200).launch(lower(p))
    monkeypatch.setattr(result_ranges, "LIMIT", whole.workspace // 3)
    monkeypatch.setattr(result_ranges, "STEP", 16)
    parts = plan_for(p, parse_config(config), H200).launch(lower(p))
    assert len(parts.steps) >= 3 * len(whole.steps)
    assert parts.workspace <= whole.workspace / 2
    given = {name: np.ascontiguousarray(x) for name, x in given.items()}
    np.testing.assert_array_equal(ran(p, given, config)["C"], expected)


def test_states_of_large_problems_take_little_workspace() -> None:
    """A reduction of 2^32 results in tiles of 32 × 32 has up to 8 states for each result and tile; 64 results of a range
    may take more than the limit."""
    text = "A:f32[i,k];B:f32[j,k];where(i,j){reduce(k){accum+=A[i,k]*B[j,k];}C[AXIS]argmin=accum;}"
    for axis, m, n, ranges in (("i", 1 << 16, 1 << 16, 32), ("i", 1 << 12, 1 << 20, 32), ("j", 1 << 16, 1 << 16, 256)):
        p = Task(m, n, 16, "NT", text=text.replace("AXIS", axis))
        launch = plan_for(p, parse_config(SIMT), H200).launch(lower(p))
        assert [step.entry for step in launch.steps] == ["task_f32_nt", "task_f32_nt_join"] * ranges
        assert launch.workspace == result_ranges.LIMIT
    p = replace(p, m=1 << 20, n=100, ldb=0)
    assert plan_for(p, parse_config(SIMT), H200).launch(lower(p)).workspace == 8 * 8 * (1 << 15) * result_ranges.STEP


@pytest.mark.each_value
@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_ranges_of_results_share_the_planes_of_the_other_operand(
    layout: str, axis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = 330, 270, 72
    text = "A:f32[i,k];B:f32[k,j];where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}C[AXIS]argmax=accum;}"
    text = text if layout == "NN" else text.replace("[i,k]", "[k,i]").replace("[k,j]", "[j,k]")
    p = Task(m, n, k, layout, text=text.replace("AXIS", axis), compute="f32_bf16x6")
    config = "family=wgmma ml=128 nl=64 u=32 kg=1 stages=2"
    monkeypatch.setattr(result_ranges, "LIMIT", 1 << 11)
    launch = plan_for(p, parse_config(config), H200).launch(lower(p))
    extents = (m, n) if axis == "i" else (n, m)
    splits = [step.grid[0] for step in launch.steps if step.entry.endswith("split_bf16x3")]
    blocks = [2 * -(-x // 32) for x in extents]  # of 32 rows, and 64 elements along K
    assert len(splits) > 2
    assert splits[0] == splits[1] + blocks[1]
    assert blocks[0] <= sum(splits) - blocks[1] < blocks[0] + 2 * len(splits)
    a, b = integers(m, k), integers(k, n)
    given = {"A": a if layout == "NN" else a.T, "B": b if layout == "NN" else b.T}
    given = {name: np.ascontiguousarray(x) for name, x in given.items()}
    np.testing.assert_array_equal(ran(p, given, config)["C"], (a @ b).argmax("ij".index(axis) ^ 1))


# ---- groups


def aggregated(product: Any, g: Any, h: Any, groups: tuple[int, int], op: Any = np.add, start: float = 0) -> Any:
    """The pair (the groups of a product, the number of pairs whose keys are out of range)."""
    out = np.full(groups, start, product.dtype)
    rows, columns = np.broadcast_arrays(g[:, None].astype(int), h[None].astype(int))
    inside = (rows >= 0) & (rows < groups[0]) & (columns >= 0) & (columns < groups[1])
    op.at(out, (rows[inside], columns[inside]), product[inside])
    return out, int((~inside).sum())


@pytest.mark.each_value
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("keys", ["random", "sorted", "one group", "out of range"])
def test_groups(keys: str, deterministic: bool, config: str) -> None:
    a, b = integers(70, 30), integers(30, 52)
    g, h = RNG.integers(-1, 6, 70).astype(np.int32), RNG.integers(0, 4, 52).astype(np.uint8)
    if keys == "sorted":
        g.sort(), h.sort()
    elif keys != "random":
        g[:], h[:] = (2, 3) if keys == "one group" else (5, 200)
    text = f"{HEAD}g:s32[i];h:u8[j];where(i,j){{{PRODUCT}C[g[i],h[j]]+=accum;}}"
    p = Task(70, 52, 30, text=text, groups="5,4", deterministic=deterministic)
    roles = {u.name: u.role for u in p.roles.uses}
    result = ran(p, {"A": a, "B": b, roles.get("g", "input0"): g, roles.get("h", "input1"): h}, config)
    expected, rejected = aggregated(a @ b, g, h, (5, 4))
    np.testing.assert_array_equal(result["C"], expected)
    assert result["rejected"] == rejected


@pytest.mark.parametrize("value", ["accum", "f64(accum)"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_of_groups_propagate_nan(op: str, value: str) -> None:
    a, b = integers(37, 8) - 1, integers(8, 41)
    a[3, 0], a[11, 0], a[20] = np.nan, -np.nan, np.inf
    b[0, ::5] = -0.0
    g, h = RNG.integers(0, 7, 37).astype(np.int32), RNG.integers(0, 3, 41).astype(np.int32)
    text = f"{HEAD}g:s32[i];h:s32[j];where(i,j){{{PRODUCT}C[g[i],h[j]]={op}(C[g[i],h[j]],{value});}}"
    p = Task(37, 41, 8, text=text, groups="9,3")
    result = ran(p, {"A": a, "B": b, "input0": g, "input1": h}, SIMT.replace("vec_c=4", "vec_c=1"))["C"]
    with np.errstate(all="ignore"):
        product = (a @ b).astype(result.dtype)
        ufunc = np.minimum if op == "min" else np.maximum
        expected, _ = aggregated(product, g, h, (9, 3), ufunc, np.inf if op == "min" else -np.inf)
    np.testing.assert_array_equal(result, expected)


def sums(deterministic: bool, seed: int) -> Any:
    """Sums of groups whose rounding depends on their order."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 16), (16, 64)))
    g, h = rng.integers(0, 3, 64).astype(np.int32), rng.integers(0, 2, 64).astype(np.int32)
    text = f"{HEAD}g:s32[i];h:s32[j];where(i,j){{{PRODUCT}C[g[i],h[j]]+=accum;}}"
    p = Task(64, 64, 16, text=text, groups="3,2", deterministic=deterministic)
    return ran(p, {"A": a, "B": b, "input0": g, "input1": h}, seed=seed)["C"]


def test_deterministic_sums_do_not_depend_on_timing() -> None:
    assert len({sums(True, seed).tobytes() for seed in range(4)}) == 1
    assert len({sums(False, seed).tobytes() for seed in range(4)}) > 1  # the order of atomics changes with the seed


def unfilled(kernels: AggregateKernels, launched: Any) -> tuple[Any, ...]:
    return ()


PLANTED = {
    "C is not filled": (AggregateKernels, "before", unfilled),
    "zero is no identity of max": (GroupReduction, "identity", property(lambda _: "0f00000000")),
    "a state without a value counts": (StateReduction, "identity", property(lambda _: (constant(0, "f32"),))),
    "a part of the states is not joined": (TileReduceKernels, "counts", lambda kernels, p: [1]),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_planted_errors_are_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = planted
    groups = "C[g[i],h[j]]" if where in (AggregateKernels, GroupReduction) else "C[i]"
    keys = "g:s32[i];h:s32[j];" if groups != "C[i]" else ""
    text = f"{HEAD}{keys}where(i,j){{{PRODUCT}{groups}=max({groups},accum-500);}}"
    p = Task(64, 64, 16, text=text, groups="3,2" if keys else "")
    assert all(result.ok for result in check(EmulatedDriver(H200), p, parse_config(SIMT)))
    monkeypatch.setattr(where, name, wrong)
    assert not all(result.ok for result in check(EmulatedDriver(H200), p, parse_config(SIMT)))


# ---- calls


BODY = "accum = 0; reduce (k in [0, K]) { accum += P[i, k] * R[k, j]; }"
GROUPED = task(f"where (i in [0, M], j in [0, N]) {{ {BODY} C[g[i], h[j]] += accum > t; }}")


def call(**options: Any) -> Any:
    p, r = integers(37, 21), integers(21, 50)
    g, h = np.arange(37, dtype=np.int32) % 4, (np.arange(50) % 3).astype(np.int32)
    expected, _ = aggregated((p @ r > 0.5).astype(np.int32), g, h, (4, 3))
    return GROUPED(P=p, R=r, g=g - options.pop("less", 0), h=h, t=0.5, **options), expected


def test_groups_are_as_many_as_the_keys_need() -> None:
    result, expected = call()
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


def test_groups_of_an_output_and_given_ones() -> None:
    out = np.full((6, 5), 9, np.int32)
    result, expected = call(out=out)
    assert result is out
    np.testing.assert_array_equal(out, np.pad(expected, ((0, 2), (0, 2))))
    result, expected = call(groups=(4, 4))
    np.testing.assert_array_equal(result, np.pad(expected, ((0, 0), (0, 1))))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"groups": (4, 2)},
            InputError,
            r"592 pairs \(i, j\) have keys out of range; keys of rows must be from 0 to 3",
        ),
        ({"less": 1}, InputError, "g has the key -1; keys must be 0 or more"),
        ({"groups": 4}, ShapeError, r"groups is 4; it must be \(G, H\)"),
        ({"out": np.empty(3, np.int32)}, ShapeError, r"out has shape \(3,\); it must have two dimensions"),
    ],
)
def test_errors_of_groups(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(**options)


def test_rows_of_arrays() -> None:
    p, r = integers(20, 5), integers(5, 30)
    nearest = task(f"where (i in [0, M], j in [0, N]) {{ {BODY} C[i] = argmax(C[i], accum); }}")
    result = nearest(p, r)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, (p @ r).argmax(1))
    np.testing.assert_array_equal(nearest(p, r[:, :0]), np.full(20, -1))
    with pytest.raises(ShapeError, match=r"out has shape \(30,\); it must be \(20,\), the extents of its axes"):
        nearest(p, r, out=np.empty(30, np.int32))
    with pytest.raises(InputError, match=r"groups is \(1, 2\); it must be None where no keys select"):
        nearest(p, r, groups=(1, 2))


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_logsumexp_of_float64(axis: int, k: int) -> None:
    """Far from the greatest value, of infinities and NaN, and without a value: -inf."""
    made = task(
        f"where (i, j) {{ reduce (k) {{ accum += P[i, k] * R[k, j]; }} C[{'ij'[1 - axis]}] logsumexp= accum; }}"
    )
    rng = np.random.default_rng(k)
    p, r = 30 * rng.standard_normal((37, k)), rng.standard_normal((k, 70))
    result = made(p, r)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, np.logaddexp.reduce(p @ r, axis=axis), rtol=1e-14, atol=1e-13)
    p[:4, 0], p[:4, 1:], r[0] = (np.inf, -np.inf, np.nan, 1e308), 0, abs(r[0])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(made(p, r), np.logaddexp.reduce(p @ r, axis=axis), rtol=1e-14, atol=1e-13)
    empty = np.zeros((k, 0)) if axis else np.zeros((0, k))
    assert (made(p, empty) if axis else made(empty, r)).tolist() == [-np.inf] * (37 if axis else 70)


@pytest.mark.parametrize("output", ["C[j] += exp(accum)", "C[i, j] = exp(accum)"])
def test_exponentials_of_float64(output: str) -> None:
    made = task(f"where (i, j) {{ reduce (k) {{ accum += P[i, k] * R[k, j]; }} {output}; }}")
    p, r = (np.random.default_rng(3).standard_normal(shape) for shape in ((3, 4), (4, 5)))
    expected = np.exp(p @ r)
    np.testing.assert_allclose(made(p, r), expected.sum(0) if "+=" in output else expected, rtol=1e-14)


@pytest.mark.parametrize("groups", ["", "4", "4,x", "4,5,6"])
def test_errors_of_the_problem(groups: str) -> None:
    text = f"{HEAD}g:s32[i];h:s32[j];where(i,j){{{PRODUCT}C[g[i],h[j]]+=accum;}}"
    with pytest.raises(ShapeError, match=f"groups is '{groups}'; it must be G,H"):
        Task(4, 4, 4, text=text, groups=groups)
    with pytest.raises(ShapeError, match="groups is '1,2'; it must be empty"):
        Task(4, 4, 4, groups="1,2")


# ---- arrays on a device


class Integers(Tensor):
    """A tensor of 32-bit integers."""

    def __init__(self, driver: EmulatedDriver, x: Any) -> None:
        super().__init__(driver, x.astype(np.int32))
        self.dtype = "torch.int32"

    def numpy(self) -> Any:
        return super().numpy().view(np.int32)

    def min(self) -> Any:
        return self.numpy().min()

    def max(self) -> Any:
        return self.numpy().max()


Integers.__module__ = "torch"


@pytest.fixture
def device_driver(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    driver = EmulatedDriver()
    driver.name = "cuda"
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


def test_rows_of_tensors(device_driver: EmulatedDriver) -> None:
    p, r = integers(20, 5), integers(5, 30)
    largest = task(f"where (i in [0, M], j in [0, N]) {{ {BODY} C[j] = max(C[j], accum); }}")
    held = [Tensor(device_driver, x) for x in (p, r)]
    for _ in range(2):
        np.testing.assert_array_equal(largest(*held).numpy(), (p @ r).max(0))
    out = Tensor(device_driver, np.zeros((2, 30), np.float32)).permute((1, 0))
    out.shape, out.strides = (30,), (2,)
    with pytest.raises(ShapeError, match=r"out has strides \(2,\); its elements must be consecutive"):
        largest(*held, out=out)


def test_groups_of_tensors(device_driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    p, r = integers(37, 21), integers(21, 50)
    g, h = np.arange(37) % 4, np.arange(50) % 3
    held = {"P": Tensor(device_driver, p), "R": Tensor(device_driver, r)}
    keys = {"g": Integers(device_driver, g), "h": Integers(device_driver, h)}
    sums = task(f"where (i in [0, M], j in [0, N]) {{ {BODY} C[g[i], h[j]] += accum; }}")
    expected, _ = aggregated(p @ r, g, h, (4, 3))
    np.testing.assert_array_equal(sums(**held, **keys).numpy(), expected)
    # pairs with keys out of range are not reduced, and the call does not wait for their number
    np.testing.assert_array_equal(sums(**held, **keys, groups=(2, 3)).numpy(), expected[:2])
    monkeypatch.setattr(streams, "is_captured", lambda stream, on: True)
    with pytest.raises(InputError, match="groups is None; it must be given while a stream is captured"):
        sums(**held, **keys)
