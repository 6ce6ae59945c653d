"""Reductions of the elements of one array in groups of its rows or columns, on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.errors import RaceFault
from ptxgen.families.private_groups.plan import PrivateGroups
from ptxgen.operations.task import group_sums
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.suites import QUERIES, typed_text
from ptxgen.operations.task.sum_parts import parts_of
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.measure import bench
from ptxgen.tuning.selection import select
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

H200 = device("h200")
HEAD = "A:f32[i,k];B:f32[k,j];"
STEP = "reduce(k){accum+=A[i,k]*B[k,j];}"
TARGETS = {"i": "C[input0[i],j]", "j": "C[i,input0[j]]"}
CONFIGS = {
    "one_warp": "copy_warps=1 loads=4",
    "vectors": "copy_warps=3 array_vec=4 loads=2",
    "slices": "copy_warps=2 array_vec=2 loads=4 kg=2",
}
RNG = np.random.default_rng(8)


def sums(
    axis: str, m: int, n: int, groups: int, value: str = "input1[i,j]", key: str = "s32", dtype: str = "f32"
) -> Task:
    """Sums of the elements of an array of m × n in groups of rows (axis i) or columns (j)."""
    shape = f"{groups},{n}" if axis == "i" else f"{m},{groups}"
    head = f"{HEAD}input0:{key}[{axis}];input1:{dtype}[i,j];"
    return Task(m, n, 0, text=f"{head}where(i,j){{{STEP}{TARGETS[axis]}+={value};}}", groups=shape)


def added(x: Any, keys: Any, axis: str, groups: int) -> Any:
    """The sums in groups, by NumPy."""
    x = x if axis == "i" else x.T
    out = np.zeros((groups, x.shape[1]), x.dtype)
    known = (keys >= 0) & (keys < groups)
    np.add.at(out, keys[known], x[known])
    return out if axis == "i" else out.T


def ran(p: Task, x: Any, keys: Any, config: str, offset: int = 0, **options: Any) -> dict[str, Any]:
    """The outputs, which hold 77 before the launch. ``offset``: of the first element of the array and of the first key
    from an aligned address, in elements."""
    driver = EmulatedDriver(H200, **options)
    outputs = {name: np.full(y.shape, 77, y.dtype.numpy) for name, y in p.result_arrays.items()}
    none = {"A": np.zeros((p.m, 0), np.float32), "B": np.zeros((0, p.n), np.float32)}
    held, places, addresses = {"input0": keys, "input1": x}, {}, {}
    for name, array in held.items():
        places[name] = Allocation(driver, array.nbytes + 64)
        addresses[name] = places[name].address + offset * array.itemsize
        if array.size:
            driver.upload(addresses[name], np.ascontiguousarray(array))
    runner = Runner.of(driver, p, parse_config(f"family=private_groups {config}"))
    result = runner.compute({**none, **outputs}, addresses=addresses)
    runner.workspace.release()
    return result


@pytest.mark.first(1)
@pytest.mark.parametrize("seed", range(2))
def test_random_reductions_equal_the_oracle(seed: int) -> None:
    driver = EmulatedDriver(H200)
    for n, (p, c) in enumerate(SOURCES["element_groups"].cases(seed, 8, H200, limit=70)):
        for result in check_some(driver, p, c, seed=n):
            assert result.ok, f"{result.inputs}: {result.deviation}: {p.key()} | {c}"


@pytest.mark.each_pair
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("keys", ["sorted", "random", "one group", "out of range"])
@pytest.mark.parametrize("axis", ["i", "j"])
def test_keys_in_any_order(axis: str, keys: str, config: str) -> None:
    m, n, groups = 70, 68, 5
    x, g = RNG.integers(-9, 10, (m, n)).astype(np.float32), RNG.integers(0, groups, m if axis == "i" else n)
    if keys == "sorted":
        g.sort()
    elif keys == "one group":
        g[:] = 3
    elif keys == "out of range":
        g[::3], g[1::7] = -1, groups
    g = g.astype(np.int32)
    result = ran(sums(axis, m, n, groups), x, g, config)
    np.testing.assert_array_equal(result["C"], added(x, g, axis, groups))
    assert result["rejected"] == np.count_nonzero((g < 0) | (g >= groups)) * (n if axis == "i" else m)


@pytest.mark.each_value
@pytest.mark.parametrize("extents", [(0, 5), (5, 0), (1, 1), (31, 33), (97, 65), (8, 131)], ids=str)
@pytest.mark.parametrize("axis", ["i", "j"])
def test_extents(axis: str, extents: tuple[int, int]) -> None:
    m, n = extents
    x, g = RNG.integers(-9, 10, (m, n)).astype(np.float32), RNG.integers(-1, 4, m if axis == "i" else n)
    for config in ("copy_warps=2 array_vec=4 loads=2", "copy_warps=1 loads=8"):
        result = ran(sums(axis, m, n, 3), x, g.astype(np.int32), config)
        np.testing.assert_array_equal(result["C"], added(x, g, axis, 3))
        assert result["rejected"] == np.count_nonzero((g < 0) | (g > 2)) * (n if axis == "i" else m)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f32", "f16", "s8"])
@pytest.mark.parametrize("axis", ["i", "j"])
def test_arrays_that_are_not_aligned(axis: str, dtype: str) -> None:
    """Vectors are loaded element by element there."""
    own = {"f32": np.float32, "f16": np.float16, "s8": np.int8}[dtype]
    x, g = RNG.integers(-9, 10, (40, 64)).astype(own), RNG.integers(0, 4, 40 if axis == "i" else 64).astype(np.uint8)
    value = {"f32": "input1[i,j]", "f16": "f32(input1[i,j])", "s8": "s32(input1[i,j])"}[dtype]
    p = sums(axis, 40, 64, 4, value, "u8", dtype)
    for offset in (0, 1, 2):
        result = ran(p, x, g, "copy_warps=2 array_vec=4 loads=4", offset)["C"]
        np.testing.assert_array_equal(result, added(x.astype(result.dtype), g, axis, 4))


def test_sums_do_not_depend_on_timing() -> None:
    """They are the same for all orders of warps and blocks, also with slices."""
    x, g = RNG.standard_normal((64, 96)).astype(np.float32), RNG.integers(0, 3, 64).astype(np.int32)
    for axis, keys in (("i", g), ("j", np.resize(g, 96))):
        for config in CONFIGS.values():
            every = {ran(sums(axis, 64, 96, 3), x, keys, config, seed=seed)["C"].tobytes() for seed in range(3)}
            assert len(every) == 1


def wrong_pairs(loop: PrivateGroups) -> list[list[tuple[int, int]]]:
    """Pairs of which the second one is reduced alone."""
    every = [(t, q) for t in range(loop.loads) for q in range(1 if loop.sink.by_rows else loop.vec)]
    return [[x] for x in every[1:]]


PLANTED = {
    "one is no identity of a sum": (GroupReduction, "identity", property(lambda _: "0f3F800000")),
    "a load is not reduced": (PrivateGroups, "steps", property(wrong_pairs)),
    "keys are not taken": (PrivateGroups, "key_lines", lambda loop, register: ["mov.b32 %key_now, 1;"]),
}


@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_planted_errors_are_found(planted: Any, axis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = planted
    p, c = sums(axis, 40, 36, 3), parse_config("family=private_groups copy_warps=2 loads=2 kg=2")
    assert all(result.ok for result in check(EmulatedDriver(H200), p, c))
    monkeypatch.setattr(where, name, wrong)
    assert not all(result.ok for result in check(EmulatedDriver(H200), p, c))


def test_missing_barrier_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    p, c = sums("i", 40, 36, 3), "copy_warps=2 loads=2"
    x, g = np.ones((40, 36), np.float32), np.zeros(40, np.int32)
    monkeypatch.setattr("ptxgen.codegen.render.simplified", lambda lines: [y for y in lines if "bar.sync" not in y])
    with pytest.raises(RaceFault):
        ran(p, x, g, c)


def test_sums_of_products_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_sums, "LEAST", 1)
    p = Task(64, 70, 40, text=typed_text(QUERIES["q2"], "f32"), groups="4,3")
    parts, driver = parts_of(p), EmulatedDriver(H200)
    assert parts is not None
    own = [parse_config(f"family=private_groups {c}") for c in ("copy_warps=2 loads=4", "copy_warps=3 array_vec=2")]
    last = select(parts.steps[-1].problem, H200)[0].config
    measured = bench.Bench(driver).measure_parts(p, parts, [*own, last], bench.FINAL_TIMING)
    assert measured.outcome == "ok", measured.message
