"""Kernels of the family shared_slab, executed with checks for races, bounds and uninitialised reads; every element is
compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.shared_slab.tile_starts import TileStarts
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.pattern_statistics import statistics_of
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.device import device
from ptxgen.problem.reference import reference, verdict
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import PreparedOperands
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

SMALL = "family=shared_slab c_rows=4 block_warps=2 nonzeros_in_flight=2"
ONE = parse_config(f"{SMALL} slab_columns=32 tile_k=80 vec_b=4")
SEVERAL = parse_config(f"{SMALL} slab_columns=32 tile_k=10 k_tiles=several tile_buffers=2 vec_b=4")
NARROW = parse_config(f"{SMALL} slab_columns=64 tile_k=17 k_tiles=several nonzeros_read=1 nonzeros_staged=64")
IDS = ["one", "several", "narrow"]


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(18))
def test_random_problems_and_configurations(n: int) -> None:
    on = ("emulated", "a100", "b200")[n % 3]
    driver = EmulatedDriver()
    for p, c in SOURCES["spmm shared_slab"].cases(700 + n, 1, device(on), threads=128):
        wrong = [
            f"{r.inputs}: {r.deviation}"
            for r in check_some(driver, p, c, n, (0, 3)[n % 2] if c.vec_b == 1 else 0)
            if not r.ok
        ]
        assert not wrong, f"{p.key()} | {c}"


def computed(p: Spmm, arrays: dict[str, Any], config: Config, alpha: float = 1.0, beta: float = 0.0) -> Any:
    return Runner.of(EmulatedDriver(), p, config).compute(arrays, alpha, beta)["C"]


def of_rows(rows: list[list[int]], k: int, n: int, dtype: str = "f32") -> tuple[Spmm, dict[str, Any]]:
    """The problem and the arrays of a matrix whose rows have these columns."""
    p = Spmm(len(rows), n, k, dtype=dtype, pattern="banded:width=1", calls=1000)  # its columns increase
    arrays = arrays_of(p, 3, "integers")
    values = np.random.default_rng(3).integers(-4, 5, sum(map(len, rows)))
    arrays["values"] = values.astype(arrays["values"].dtype)
    arrays["indptr"] = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    arrays["indices"] = np.array([column for row in rows for column in row], np.int32)
    return replace(p, pattern=statistics_of(k, arrays["indptr"], arrays["indices"]).text()), arrays


@pytest.mark.each_value
@pytest.mark.parametrize("config", [ONE, SEVERAL, NARROW], ids=IDS)
@pytest.mark.parametrize(
    "rows",
    [
        [[], [1], [], [], [0, 2, 3], []],
        [[]] * 5,
        [[], list(range(77)), []],
        [[10], [9], [76], [0], [29, 30], [19, 20, 40]],
        [list(range(i)) for i in (*range(1, 20), *range(30, 36), *range(62, 67))],
    ],
    ids=["empty_rows", "no_nonzeros", "one_long_row", "ends_of_tiles", "every_length"],
)
def test_rows_of_every_kind(rows: list[list[int]], config: Config) -> None:
    p, arrays = of_rows(rows, 77, 33 if config is NARROW else 44)
    assert verdict("integers", computed(p, arrays, config, 2.0, -1.0), reference(p, arrays, 2.0, -1.0)).ok
    arrays["C"] = np.full_like(arrays["C"], np.nan)
    assert verdict("integers", computed(p, arrays, config), reference(p, arrays, 1.0, 0.0)).ok


def test_one_tile_takes_columns_in_any_order() -> None:
    p, arrays = of_rows([[3, 3, 1, 3], [2, 0, 1], [36, 0, 36], []], 37, 44)
    assert verdict("integers", computed(p, arrays, ONE, 1.0, 1.0), reference(p, arrays, 1.0, 1.0)).ok


@pytest.mark.parametrize("config", [ONE, SEVERAL, NARROW], ids=IDS)
def test_alpha_0_reads_no_operand(config: Config) -> None:
    p, arrays = of_rows([[0, 5, 20], [3], []], 77, 40)
    prepared = Runner.of(driver := EmulatedDriver(), p, config)
    expected = 2 * arrays["C"]
    # the pattern is prepared before it is destroyed
    held = {name: Allocation(driver, x.nbytes) for name, x in arrays.items()}
    for name, x in arrays.items():
        driver.upload(held[name].address, np.ascontiguousarray(x))
    at = {name: x.address for name, x in held.items()}
    launch = prepared.bind(at, 0.0, 2.0)
    for name, poison in (("values", np.nan), ("B", np.nan), ("indices", 1 << 30)):
        driver.upload(at[name], np.full_like(arrays[name], poison))
    launch()
    driver.download(at["C"], got := np.empty_like(arrays["C"]))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("config", [ONE, SEVERAL, NARROW], ids=IDS)
def test_absent_nonzeros_are_not_multiplied(config: Config) -> None:
    """The nonzeros that fill up a step multiply zeros and not rows of B."""
    p, arrays = of_rows([[1, 5, 21, 40, 76], [3], [], [17, 18]], 77, 40)
    expected = computed(p, arrays, config)
    absent = np.setdiff1d(np.arange(77), arrays["indices"])
    arrays["B"][absent] = np.inf
    np.testing.assert_array_equal(computed(p, arrays, config), expected)


@pytest.mark.parametrize("config", [ONE, SEVERAL], ids=IDS[:2])
def test_repeated_calls_give_the_same_bits(config: Config) -> None:
    p = Spmm(16, 24, 77, pattern="bernoulli:density=0.5", calls=1000)
    arrays = arrays_of(p)
    np.testing.assert_array_equal(computed(p, arrays, config, 1.5, 0.5), computed(p, arrays, config, 1.5, 0.5))


@pytest.mark.parametrize("tile_k", [1, 7, 32, 100])
def test_the_starts_of_rows_in_tiles(tile_k: int) -> None:
    p = Spmm(37, 8, 100, pattern="lognormal:density=0.3,sigma=2", calls=1000)
    arrays = arrays_of(p)
    driver = EmulatedDriver()
    held = {name: Allocation(driver, arrays[name].nbytes) for name in ("indptr", "indices")}
    for name, x in held.items():
        driver.upload(x.address, arrays[name])
    operands = PreparedOperands(driver, {name: x.address for name, x in held.items()})
    [made] = operands.make((TileStarts(tile_k),), lower(p))
    tiles = -(-100 // tile_k)
    got = np.empty((p.m, tiles + 1), np.uint32)
    driver.download(made.arrays["tile_starts"].address, got)
    for row in range(p.m):
        begin, end = arrays["indptr"][row : row + 2]
        expected = begin + np.searchsorted(arrays["indices"][begin:end], np.arange(tiles + 1) * tile_k)
        assert got[row].tolist() == expected.tolist()
    assert operands.bytes == 4 * p.m * (tiles + 1)


def test_a_kernel_of_one_tile_prepares_nothing() -> None:
    p = Spmm(16, 24, 77, pattern="bernoulli:density=0.5", calls=1000)
    assert plan_for(p, ONE, device("emulated")).preparations == ()
    assert plan_for(p, SEVERAL, device("emulated")).preparations == (TileStarts(10),)
