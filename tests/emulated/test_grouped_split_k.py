"""Lists whose blocks split K, executed with checks for bounds and races: slices, shares of iterations, planted faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import AsyncFault, RaceFault
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.grouped.checks import random_group
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import Device, device
from ptxgen.runtime.check import CASES
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.emulated.gemm_runs import right

SLICED = {
    "simt": "ms=4 ns=4 ml=32 nl=32 u=8 vec_a=1 vec_b=1 vec_c=1 kl=2 ks=2",
    "mma": "family=mma ms=16 ns=16 ml=32 nl=32 u=8 vec_a=1 vec_b=1 vec_c=1",
    "f16x2": "ms=4 ns=4 ml=32 nl=32 u=8 vec_a=1 vec_b=1 vec_c=1 cp_async_a=0 cp_async_b=0",
}


def launched_twice(p: GroupedGemm, c: Config, on: Device, seed: int) -> Runner:
    """The runner after two launches, whose results are equal."""
    runner = Runner.of(EmulatedDriver(on, seed=seed), p, c)
    arrays = random_group(p, 1, "integers")
    np.testing.assert_array_equal(*(runner.compute(arrays, 1.0, 0.0)["C"] for _ in range(2)))
    return runner


def table_words(runner: Runner, size: int) -> np.ndarray:
    """The first ``size`` bytes of the descriptor table, as 32-bit words."""
    (table,) = runner.tables
    words = np.zeros(size // 4, np.uint32)
    runner.driver.download(table.address, words)
    return words


@pytest.mark.parametrize(
    ("family", "dtype", "compute", "kg", "case"),
    [
        ("simt", "f32", "", 2, 3),
        ("simt", "f32", "", 5, 0),
        ("mma", "f64", "", 5, 2),
        ("f16x2", "f16", "f16", 3, 1),
    ],
)
def test_slices_of_k(family, dtype, compute, kg, case):
    """Blocks of several slices of the longest items; the counters of tiles are zero after every launch."""
    items = ((33, 17, 20), (0, 5, 5), (7, 9, 0), (40, 31, 60), (1, 1, 1), (13, 37, 61))
    p = GroupedGemm(items, dtype=dtype, compute=compute)
    c = parse_config(f"{SLICED[family]} kg={kg} splitk=last_cta")
    on = replace(device("h200"), sms=3)
    right(p, c, kg, on, (CASES[case],))
    runner = launched_twice(p, c, on, kg)
    layout = runner.plan.scheduler.table
    words = table_words(runner, layout.bytes(len(items), layout.split_tiles(p.extents)))
    assert layout.split_tiles(p.extents) > 3
    assert not words[layout.bytes(len(items)) // 4 :].any()


SHARED_ITEMS = ((33, 17, 20), (0, 5, 5), (7, 9, 0), (40, 31, 60), (1, 1, 1), (13, 37, 61), (34, 34, 9), (9, 9, 200))


@pytest.mark.parametrize(
    ("family", "dtype", "compute", "sms", "case"),
    [
        ("simt", "f32", "", 1, 3),
        ("simt", "f32", "", 7, 0),
        ("mma", "f64", "", 3, 2),
        ("f16x2", "f16", "f16", 7, 1),
    ],
)
def test_shares_of_k_iterations(family, dtype, compute, sms, case):
    """Blocks compute parts of tiles, and several tiles have more than two parts; all counters are zero after every launch."""
    p = GroupedGemm(SHARED_ITEMS, dtype=dtype, compute=compute)
    c = parse_config(f"{SLICED[family]} stream_k=1")
    on = replace(device("h200"), sms=sms)
    right(p, c, sms, on, (CASES[case],))
    runner = launched_twice(p, c, on, sms)
    layout = runner.plan.scheduler.table
    shares = layout.shares(p.extents)
    blocks = len(shares) - 1
    assert blocks == runner.launch.steps[0].grid[0] > 3
    words = table_words(runner, layout.bytes(len(SHARED_ITEMS), 2 * blocks + 1))
    np.testing.assert_array_equal(words[-2 * blocks - 1 : -blocks], shares)
    assert not words[-blocks:].any()


#: what a faulty kernel with shares of K iterations has instead
SHARE_FAULTS = {
    "no barrier between the stores of sums and the counter": (
        "fence.acq_rel.gpu;\n    bar.sync 0;\n    add.u32 %tmp0, %blocks, 1;",
        "fence.acq_rel.gpu;\n    add.u32 %tmp0, %blocks, 1;",
    ),
    "a counter without release": (
        "@%fetches atom.acq_rel.gpu.global.add.u32",
        "@%fetches atom.relaxed.gpu.global.add.u32",
    ),
    "no barrier before thread groups add their sums": (
        "bar.sync 0;\n    mad.lo.u32 %sums_addr, %thread, 16, %smem;",
        "mad.lo.u32 %sums_addr, %thread, 16, %smem;",
    ),
    "no barrier before the next tile": (
        "add.u32 %tile, %tile, %tmp0;\n    bar.sync 0;",
        "add.u32 %tile, %tile, %tmp0;",
    ),
}


@pytest.mark.parametrize("fault", SHARE_FAULTS)
def test_race_between_shares_is_reported(fault):
    """The fence precedes the counter, and the one after it: without both, the atomic orders nothing."""
    p, on = GroupedGemm(SHARED_ITEMS), replace(device("h200"), sms=2)
    driver = EmulatedDriver(on)
    plan = plan_for(p, parse_config(SLICED["simt"].replace("ks=2", "stream_k=1")), on)
    text = render(plan).text
    right, wrong = SHARE_FAULTS[fault]
    assert text.count(right) == 1
    wrong = text.replace(right, wrong)
    if "release" in fault:
        wrong = wrong.replace("fence.acq_rel.gpu;", "")
    runner = Runner(driver, plan, driver.load(replace(render(plan), text=wrong)), p)
    with pytest.raises((RaceFault, AsyncFault)):
        runner.compute(random_group(p))
