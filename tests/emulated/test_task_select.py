"""Kernels that append selected results to lists, and that compute some pairs alone, executed with checks for races,
bounds and uninitialised reads; every result is compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some


@pytest.mark.first(4)
@pytest.mark.parametrize("n", range(24))
def test_random_problems_and_configurations(n: int) -> None:
    on, driver = ("emulated", "t4", "a100", "b200")[n % 4], EmulatedDriver()
    for p, c in SOURCES["task_select"].cases(800 + n, 1, device(on), limit=90, threads=128):
        padding = 3 if n % 2 and c.vec_a == c.vec_b == 1 else 0
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(driver, p, c, n, padding) if not r.ok]
        assert not wrong, f"{p.key()} | {c}"


MATRIX = "A:f32[i,k];B:f32[k,j];s:f32;where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}"
TILES = {
    "registers": "ms=4 ns=4 ml=16 nl=32 u=8",
    "shared_memory": "ms=4 ns=4 ml=16 nl=32 u=8 epilogue_smem=1",
    "thread_groups": "ms=4 ns=4 ml=16 nl=32 u=8 kl=2",
    "sets": "ms=4 ns=4 ml=16 nl=32 u=8 ks=2",
    "slices": "ms=4 ns=4 ml=16 nl=32 u=8 kg=3 splitk=workspace",
    "no_stages": "ms=2 ns=2 ml=16 nl=16 u=32 stages=0 cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1 fragment_prefetch=0",
}
SELECT = MATRIX + "accum>s?L.add(accum,j,i);}"


def lists(text: str, arrays: dict[str, Any], scalar: float, capacity: int, config: str) -> dict[str, Any]:
    """The lists of a task and the count, of arrays by role; elements that no result has written are −1 or NaN."""
    (m, k), n = arrays["A"].shape, arrays["B"].shape[1]
    p = Task(m, n, k, "NN", "f32", text=text, capacity=capacity)
    given = {name: np.full(x.shape, -1, x.dtype.numpy) for name, x in p.result_arrays.items()}
    runner = Runner.of(EmulatedDriver(), p, parse_config(config))
    return runner.compute({**arrays, **given}, scalars={"scalar0": scalar})


def integers(m: int, n: int, k: int) -> dict[str, Any]:
    rng = np.random.default_rng([m, n, k])
    return {"A": rng.integers(-3, 4, (m, k)).astype("f4"), "B": rng.integers(-3, 4, (k, n)).astype("f4")}


@pytest.mark.parametrize("config", TILES.values(), ids=TILES)
def test_the_capacity_limits_what_is_stored_and_not_the_count(config: str) -> None:
    arrays = integers(37, 41, 29)
    product = arrays["A"] @ arrays["B"]
    scalar = 6.0
    selected = product > scalar
    count = int(selected.sum())
    capacities = (0, 1, count - 1, count, count + 1, product.size)
    for capacity in capacities[[*TILES.values()].index(config) % 3 :: 3]:
        out = lists(SELECT, arrays, scalar, capacity, config)
        assert out["count"] == [count]
        size = min(capacity, count)
        i, j = out["C_2"][:size], out["C_1"][:size]
        assert len({*zip(i.tolist(), j.tolist(), strict=True)}) == size
        assert selected[i, j].all()
        assert (out["C"][:size] == product[i, j]).all()
        assert all((out[name][size:] == -1).all() for name in ("C", "C_1", "C_2"))


@pytest.mark.each_value
@pytest.mark.parametrize("config", TILES.values(), ids=TILES)
@pytest.mark.parametrize("scalar", [-np.inf, np.inf, 0.0, np.nan], ids=["all", "none", "ties", "nan"])
def test_all_none_ties_and_nan(scalar: float, config: str) -> None:
    arrays = integers(17, 33, 24)
    arrays["A"][3, 2], arrays["A"][5, 1] = np.nan, np.inf
    with np.errstate(all="ignore"):
        product = arrays["A"] @ arrays["B"]
        selected = product > scalar
    out = lists(SELECT, arrays, scalar, product.size, config)
    assert out["count"] == [selected.sum()]
    mask = np.zeros_like(selected)
    mask[out["C_2"][: selected.sum()], out["C_1"][: selected.sum()]] = True
    assert (mask == selected).all()


def test_empty_k_gives_the_identity() -> None:
    arrays = {"A": np.zeros((5, 0), "f4"), "B": np.zeros((0, 7), "f4")}
    assert lists(SELECT, arrays, -1.0, 35, TILES["registers"])["count"] == [35]
    assert lists(SELECT, arrays, 0.0, 35, TILES["registers"])["count"] == [0]


def test_a_count_beyond_32_bits_keeps_its_high_word() -> None:
    """The count of the main kernel is added to what the counter holds: the carry is not lost."""
    arrays = integers(16, 32, 8)
    p = Task(16, 32, 8, "NN", "f32", text=SELECT, capacity=4)
    runner = Runner.of(EmulatedDriver(), p, parse_config(TILES["registers"]))
    reset, main = runner.launch.steps
    assert reset.entry == ""
    given = {name: np.full(x.shape, -1, x.dtype.numpy) for name, x in p.result_arrays.items()}
    given["count"][0] = 2**32 - 3
    runner.launch = replace(runner.launch, steps=(main,))
    out = runner.compute({**arrays, **given}, scalars={"scalar0": -np.inf})
    assert out["count"] == [2**32 - 3 + 16 * 32]
    assert (out["C"] == -1).all()


@pytest.mark.each_value
@pytest.mark.parametrize("slices", ["", " kg=2 splitk=workspace"])
@pytest.mark.parametrize(("pairs", "tiles"), [("i<j", 10), ("j<i", 10), ("abs(i-j)<3", 10), ("i<0", 0), ("i!=j", 16)])
def test_blocks_whose_tile_has_no_pair_do_not_multiply(pairs: str, tiles: int, slices: str) -> None:
    """The multiply-adds of each of 4 × 4 tiles are as many."""
    text = MATRIX.replace("where(i,j)", f"where(i,j)when({pairs})") + "C[i,j]=accum*s;}"
    arrays = integers(64, 64, 32)
    driver = EmulatedDriver()
    launch, multiplied = driver.machine.launch, []

    def counted(*given: Any, **named: Any) -> Any:
        stats = launch(*given, **named)
        multiplied.append(stats.lane_instructions["fp32"])
        return stats

    driver.machine.launch = counted  # type: ignore[method-assign]
    runner = Runner.of(
        driver, Task(64, 64, 32, "NN", "f32", text=text), parse_config(f"ms=2 ns=2 ml=16 nl=16 u=8{slices}")
    )
    given = {"C": np.full((64, 64), np.nan, "f4")}
    out = runner.compute({**arrays, **given}, scalars={"scalar0": 1.0})["C"]
    i, j = np.mgrid[:64, :64]
    holds = eval(pairs, {"i": i, "j": j, "abs": np.abs})
    assert np.array_equal(out, np.where(holds, arrays["A"] @ arrays["B"], np.nan), equal_nan=True)
    whole = 64 * 64 * 32
    assert whole * tiles / 16 <= multiplied[0] < whole * (tiles + 1) / 16


def test_tf32_is_for_products() -> None:
    p = Task(33, 40, 61, "NN", "f32", "tf32", text=SELECT, capacity=400)
    assert parse(p.key()) == p
    config = "family=mma ms=16 ns=16 ml=32 nl=32 u=32 kl=2 cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1"
    assert all(r.ok for r in check(EmulatedDriver(), p, parse_config(config)))
    with pytest.raises(DtypeError, match="compute is tf32; it must be f32: the step is no product"):
        lower(Task(3, 4, 6, "NN", "f32", "tf32", text=SELECT.replace("A[i,k]*B[k,j]", "abs(A[i,k]-B[k,j])")))
    with pytest.raises(DtypeError, match=r"compute is f16; it must be .*, because the program has f32"):
        Task(3, 4, 6, "NN", "f32", "f16", text=SELECT)
