"""Tasks of rows and columns in the order of keys: tiles without equal keys are skipped; results that are stored at keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.task.checks import random_arrays, stored
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.selection import require

H200 = device("h200")
HEAD = "A:{0}[i,k];B:{0}[k,j];g:s32[i];h:u8[j];"
PRODUCT = "{reduce(k){accum+=A[i,k]*B[k,j];}C[i,j]=accum;}"
#: configuration, rows and columns of its tiles, the share of a tile's products that an instruction has
CONFIGS = {
    "threads": ("ms=4 ns=4 ml=64 nl=32 u=16", 64, 32),
    "mma": ("family=mma ms=32 ns=16 ml=64 nl=32 u=32 vec_a=8 vec_b=8", 64, 32),
    "listed": ("ms=4 ns=4 ml=64 nl=32 u=16 listed_tiles=1", 64, 32),
    "listed_mma": ("family=mma ms=32 ns=16 ml=64 nl=32 u=32 vec_a=8 vec_b=8 listed_tiles=1", 64, 32),
    "one_tile": ("family=wgmma ml=64 nl=32 u=32 stages=2", 64, 32),
    "multicast_2d": (
        "family=wgmma ml=16 nl=64 u=32 stages=2 cluster_x=2 cluster_y=2 transposed_mma=1 persistent=1",
        32,
        128,
    ),
    "listed_multicast": (
        "family=wgmma ml=16 nl=64 u=32 stages=2 cluster_x=2 cluster_y=2 transposed_mma=1 persistent=1 listed_tiles=1",
        32,
        128,
    ),
    "listed_pingpong": (
        "family=wgmma ml=64 nl=32 u=32 stages=2 math_warpgroups=2 pingpong=1 persistent=1 listed_tiles=1",
        64,
        32,
    ),
    "pingpong": ("family=wgmma ml=64 nl=32 u=32 stages=2 math_warpgroups=2 pingpong=1 persistent=1", 64, 32),
}


@pytest.mark.parametrize(("config", "rows", "columns"), CONFIGS.values(), ids=CONFIGS)
def test_tiles_whose_ranges_of_keys_are_disjoint_are_not_multiplied(config: str, rows: int, columns: int) -> None:
    m, n, k = 230, 152, 32
    dtype, rng = "f16" if "family" in config else "f32", np.random.default_rng(3)
    shapes = (("A", (m, k)), ("B", (k, n)))
    arrays: dict[str, Any] = {name: rng.integers(-3, 4, shape).astype(f"float{dtype[1:]}") for name, shape in shapes}
    g, h = np.sort(rng.integers(-20, 200, m)).astype("i4"), np.sort(rng.integers(10, 256, n)).astype("u1")
    arrays |= {"input0": g, "input1": h}
    driver = EmulatedDriver(H200)
    launch, counts = driver.machine.launch, []

    def counted(*given: Any, **named: Any) -> Any:
        stats = launch(*given, **named)
        counts.append(stats.mma or stats.lane_instructions["fp32"])
        return stats

    driver.machine.launch = counted  # type: ignore[method-assign]
    multiplied = []
    text = f"{HEAD.format(dtype)}where(i,j)when(g[i]==h[j] and i!=j){PRODUCT}"
    holds = (g[:, None] == h) & (np.arange(m)[:, None] != np.arange(n))
    whole = arrays["A"].astype("f4") @ arrays["B"].astype("f4")
    for sorted_keys in (False, True):
        p = Task(m, n, k, dtype=dtype, text=text, sorted_keys=sorted_keys)
        counts.clear()
        c = parse_config(config if sorted_keys else config.removesuffix(" listed_tiles=1")).replace(vec_c=1)
        out = Runner.of(driver, p, c).compute({**arrays, "C": np.full((m, n), np.nan, "f4")})["C"]
        assert np.array_equal(out, np.where(holds, whole, np.nan), equal_nan=True)
        multiplied.append(sum(counts))
    corners = [(a, b) for a in range(0, m, rows) for b in range(0, n, columns)]
    ends = [(g[a : a + rows][[0, -1]], h[b : b + columns][[0, -1]]) for a, b in corners]
    share = np.mean([x[0] <= y[1] and y[0] <= x[1] for x, y in ends])
    assert 0 < share < 0.8
    every, some = multiplied
    assert every * share * 0.9 <= some <= every * share * 1.1


ROWS, COLUMNS = "C[i]+=accum", "C[j]max=accum"
GROUPS, LIST = "C[input2[i],input3[j]]+=accum", "L.add(accum,i,j)"
#: the keys of 70 rows and of 50 columns, and two outputs
KEYS = {
    "no pair": (np.full(70, 5), np.full(50, 7), (COLUMNS, GROUPS)),
    "one key": (np.full(70, 5), np.full(50, 5), (ROWS, LIST)),
    "one tile": (np.arange(70), np.full(50, 69), (ROWS, GROUPS)),
    "skewed": (*(np.sort(np.random.default_rng(4).zipf(1.5, n) % 200) for n in (70, 50)), (COLUMNS, LIST)),
    "gaps": (np.arange(70) // 20 * 20, np.arange(50) // 9 * 9, (ROWS, COLUMNS)),
}


def test_untuned_joins_loop_over_the_list() -> None:
    for m, k in ((4096, 256), (65536, 64)):
        p = Task(m, m, k, text=f"{HEAD.format('f32')}where(i,j)when(g[i]==h[j]){PRODUCT}", sorted_keys=True)
        assert require(p, H200)[0].config.listed_tiles == 1
        assert require(replace(p, sorted_keys=False), H200)[0].config.listed_tiles == 0


@pytest.mark.parametrize("name", KEYS)
def test_blocks_loop_over_the_list_of_tiles(name: str) -> None:
    """The results of rows, columns and groups, those without a pair too, and lists; two blocks compute all tiles."""
    m, n, k, rng = 70, 50, 4, np.random.default_rng(5)
    *keys, outputs = KEYS[name]
    a, b = rng.integers(-3, 4, (m, k)).astype("f4"), rng.integers(-3, 4, (k, n)).astype("f4")
    g, h = (x.astype(t) for x, t in zip(keys, ("i4", "u1"), strict=True))
    holds, whole = g[:, None] == h, a @ b
    row_groups, column_groups = rng.integers(0, 3, m).astype("i4"), rng.integers(0, 4, n).astype("i4")
    in_groups = np.zeros((3, 4), "f4")
    np.add.at(in_groups, (row_groups[:, None], column_groups), np.where(holds, whole, 0))
    results = {
        ROWS: np.where(holds, whole, 0).sum(1),
        COLUMNS: np.where(holds, whole, -np.inf).max(0),
        GROUPS: in_groups,
        LIST: whole[holds],
    }
    driver = EmulatedDriver(replace(H200, sms=1, blocks_sm=2))
    for output in outputs:
        groups, expected = output == GROUPS, results[output]
        inputs = HEAD.format("f32") + "input2:s32[i];input3:s32[j];" * groups
        text = f"{inputs}where(i,j)when(g[i]==h[j]){PRODUCT.replace('C[i,j]=accum', output)}"
        fields: dict[str, Any] = {"groups": "3,4"} if groups else {"capacity": m * n} if output == LIST else {}
        p = Task(m, n, k, text=text, sorted_keys=True, **fields)
        arrays = {"A": a, "B": b, "input0": g, "input1": h}
        arrays |= {"input2": row_groups, "input3": column_groups} if groups else {}
        runner = Runner.of(driver, p, parse_config("ms=2 ns=2 ml=16 nl=16 u=8 stages=2 vec_c=1 listed_tiles=1"))
        assert [step.grid for step in runner.launch.steps if step.entry == runner.plan.entry] == [(2, 1, 1)]
        got = runner.compute(stored(p, random_arrays(p) | arrays))
        if output == LIST:
            count = int(got["count"][0])
            order = np.lexsort((got["C_2"][:count], got["C_1"][:count]))
            np.testing.assert_array_equal(got["C"][:count][order], expected)
        else:
            np.testing.assert_array_equal(got["C"].ravel(), expected.ravel())


@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (1, 1, 0), (1, 40, 3), (33, 1, 5)], ids=str)
@pytest.mark.parametrize(
    ("output", "fields"),
    [
        ("C[i,j]=accum", {}),
        ("C.put(accum,p[i],q[j])", {"groups": "30,40"}),
        ("C[i]+=accum", {}),
        ("C[p[i],q[j]]+=accum", {"groups": "3,4"}),
        ("L.add(accum,i,j)", {"capacity": 99}),
    ],
    ids=["matrix", "put", "rows", "groups", "list"],
)
def test_small_extents(shape: tuple[int, int, int], output: str, fields: dict[str, Any]) -> None:
    keys = "p:u8[i];q:s16[j];" if "p[i]" in output else ""
    body = PRODUCT.replace("C[i,j]=accum", output)
    text = f"{HEAD.format('f32')}{keys}where(i,j)when(g[i]==h[j]){body}"
    p = Task(*shape, text=text, sorted_keys=True, **fields)
    for row in check(EmulatedDriver(), p, parse_config("ms=2 ns=2 ml=16 nl=16 u=8")):
        assert row.ok, f"{row.inputs}: {row.deviation}"
