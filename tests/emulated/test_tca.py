"""Kernels of TCA-SpMM, executed with checks for races, bounds and uninitialised reads: results, the distribution of rows to
warps, counts of instructions, and the faults of the published program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.emulator import Stats
from ptxgen.errors import LaunchError, ShapeError
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.tca.preparation import AssignWarps
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.checks import SpmmOperandSets
from ptxgen.operations.spmm.family_baseline import FamilyProduct
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.device import device
from ptxgen.problem.operation import operation_named
from ptxgen.problem.reference import Array, reference, verdict
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import PreparedOperands
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

WIDE, SINGLE = (parse_config(f"family=tca vec_b={vec}") for vec in (8, 1))
BLOCK = 8  #: warps
PRODUCTS = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"


class Counting(EmulatedDriver):
    """Keeps the statistics of each launch, by entry."""

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, Stats] = {}
        launch = self.machine.launch

        def counted(module: Any, entry: str, *arguments: Any, **named: Any) -> Stats:
            stats: Stats = launch(module, entry, *arguments, **named)
            self.stats[entry] = stats
            return stats

        self.machine.launch = counted  # type: ignore[method-assign]


@dataclass(frozen=True)
class Product:
    """A product of a matrix whose rows have these lengths."""

    ok: bool
    got: Array
    stats: Stats

    @property
    def opcodes(self) -> Mapping[str, int]:
        return self.stats.opcodes


def multiplied(
    lengths: Sequence[int],
    n: int,
    config: Config = WIDE,
    alpha: float = 1.0,
    beta: float = 0.0,
    k: int = 0,
    dtype: str = "f16",
    nnz: int = 0,
    **changed: Any,
) -> Product:
    """The product, whose columns do not repeat in a row. ``nnz``: the number that the problem
    states, 0: the right one; ``changed``: other values of arrays of integers."""
    k = k or max(*lengths, 8)
    p = Spmm(len(lengths), n, k, dtype=dtype, pattern=f"even:nnz={sum(lengths)}", calls=1000)
    arrays = arrays_of(p, 3, "integers")
    stated = replace(p, pattern=f"even:nnz={nnz or sum(lengths)}")
    rng = np.random.default_rng(n)
    arrays["indptr"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    arrays["indices"] = np.concatenate([rng.permutation(k)[:x] for x in lengths]).astype(np.int32)
    if beta == 0:
        arrays["C"] = np.full_like(arrays["C"], np.nan)
    arrays |= changed
    driver = Counting()
    got = Runner.of(driver, stated, config).compute(arrays, alpha, beta)["C"]
    return Product(
        verdict("integers", got, reference(p, arrays, alpha, beta)).ok, got, driver.stats.get(f"spmm_{dtype}", Stats())
    )


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(12))
def test_random_problems_and_configurations(n: int) -> None:
    on = ("emulated", "t4", "a100", "b200")[n % 4]
    for p, c in SOURCES["tca"].cases(700 + n, 1, device(on), limit=40):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(), p, c, n) if not r.ok]
        assert not wrong, f"{p.key()} | {c}"


# ---- the distribution of rows to warps


def warps_of(length: int, n: int) -> int:
    """The paper's number of warps of a row."""
    for warps, limit in ((0, 0), (1, 8), (2, 16), (4, 32), (8, 64)):
        if length <= limit:
            return warps
    return BLOCK * min(-(-length // 64), -(-n // 64))


def distribution(lengths: Array, n: int) -> dict[str, Array]:
    """The three arrays as the device makes them."""
    p = Spmm(len(lengths), n, 1 << 20, dtype="f16", pattern=f"even:nnz={lengths.sum()}", calls=1000)
    indptr, driver = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), EmulatedDriver()
    with Buffers(driver, {"indptr": indptr}) as buffers:
        [made] = PreparedOperands(driver, buffers.addresses).make((AssignWarps(-(-n // 64)),), lower(p))
        warps = {}
        for name, x in made.arrays.items():
            warps[name] = np.empty(x.size // 4, np.int32)
            driver.download(x.address, warps[name])
        assert made.sizes == {"blocks": len(warps["row_id_for_each_warp"]) // BLOCK}
    return warps


@pytest.mark.parametrize(("rows", "n"), [(1, 64), (31, 100), (1024, 64), (1025, 512), (3000, 200)])
def test_each_row_has_its_warps(rows: int, n: int) -> None:
    rng = np.random.default_rng(rows)
    lengths = rng.choice([0, 1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 250, 700], rows)
    warps = distribution(lengths, n)
    row, place = warps["row_id_for_each_warp"], warps["warpid_within_row"]
    expected = np.array([warps_of(x, n) for x in lengths])
    np.testing.assert_array_equal(warps["num_warps_per_row"], expected)
    at = [np.flatnonzero(row == i) for i in range(rows)]
    for i in range(rows):
        assert len(at[i]) == max(expected[i], 1)  # the warp of an empty row sets it
        assert place[at[i]].tolist() == list(range(len(at[i])))
        assert (np.diff(at[i]) == 1).all()
        if expected[i] <= BLOCK:
            assert len(set(at[i] // BLOCK)) == 1, f"row {i} is packed into two blocks"
    blocks = row.reshape(-1, BLOCK)
    assert (blocks[:, 0] >= 0).all()
    assert set(row.tolist()) <= set(range(-1, rows))
    for block in blocks:  # the length of the first row chooses the function of all
        assert len({min(warps_of(lengths[i], 64), 16) + (lengths[i] > 64) for i in block if i >= 0}) == 1


def test_rows_of_a_class_are_in_order() -> None:
    lengths = np.random.default_rng(1).integers(1, 9, 2500)
    row = distribution(lengths, 64)["row_id_for_each_warp"]
    assert row[row >= 0].tolist() == list(range(2500))


def test_products_of_other_widths_share_the_distribution() -> None:
    """It depends on N through the tiles of columns of long rows alone."""
    plans = [
        plan_for(Spmm(64, n, 512, dtype="f16", pattern="even:nnz=12800", calls=1000), SINGLE, device("h200"))
        for n in (129, 192, 256, 500, 64)
    ]
    first, *others = (plan.preparations for plan in plans)
    assert [x == first for x in others] == [True, False, False, False]
    assert plans[2].preparations == plans[3].preparations  # rows of 200 nonzeros have 4 parts
    assert not first[0].reads_values


def test_a_handle_may_state_leading_bits_of_the_number_of_nonzeros() -> None:
    got = multiplied([639], 1024, nnz=512)
    assert got.ok
    assert got.stats.blocks == 10


# ---- counts of executed instructions


def products(length: int, n: int) -> int:
    """The paper's equation 2, for N a multiple of 64."""
    for limit, divisor in ((0, 0), (8, 16), (16, 8), (32, 4), (64, 2)):
        if length <= limit:
            return n // divisor if divisor else 0
    return n // 2 * -(-length // 64)


@pytest.mark.each_value
@pytest.mark.parametrize("n", [64, 192])
@pytest.mark.parametrize("length", [0, 1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 300])
def test_instructions_of_a_row(length: int, n: int) -> None:
    """Products, shuffles, accesses of 16 bytes, loads of nonzeros and barriers of one row of this length."""
    got = multiplied([length], n)
    tiles, parts, warps = n // 64, -(-length // 64), min(warps_of(length, 64), 8)
    assert got.ok
    assert got.stats.mma == got.opcodes[PRODUCTS] == products(length, n)
    fragments = min(products(length, n), n // 2)  # a long row adds the diagonals of a fragment once
    exchanges = {0: 0, 1: 0, 2: 1, 4: 2, 8: 3}[warps]
    assert got.stats.warp_instructions["warp"] == 2 * exchanges * fragments
    assert got.opcodes["ld.global.nc.v4.b32"] == 2 * warps * max(parts, 1) * tiles
    assert got.opcodes["st.global.v4.b32"] == (tiles if length else 1)
    # short rows load the sparse operand once for all tiles, long ones a part ahead; guards of the others are false
    several = (parts + 1) * tiles if length > 64 else 1
    assert got.opcodes["ld.global.nc.b16"] == (2 * BLOCK * several if length else 0)
    blocks = min(parts, tiles) if length > 64 else 1
    waits = (2 * parts + 1) * tiles if length > 64 else 1 + 2 * tiles
    assert got.stats.barriers == (BLOCK * waits if length else 0)
    assert got.stats.blocks == max(blocks, 1)


def test_products_of_long_rows_are_equation_1() -> None:
    """M·N·K·(1 - s) / 128 products of 64 nonzeros and 2 columns: sparsity 0.9 takes a fifth of those of 0.5."""
    m, n, k = 2, 128, 1280
    counts = []
    for sparsity in (0.5, 0.9):
        got = multiplied([round(k * (1 - sparsity))] * m, n, k=k)
        assert got.ok
        counts.append(got.stats.mma)
        assert got.stats.mma == round(m * n * k * (1 - sparsity) / 128)
    assert counts[0] == 5 * counts[1]


def test_rows_of_all_classes_take_the_sum_of_their_products() -> None:
    lengths = [0, 3, 70, 8, 12, 33, 20, 1, 0, 64, 30, 9, 200]
    got = multiplied(lengths, 128)
    assert got.ok
    assert got.stats.mma == sum(products(x, 128) for x in lengths)


@pytest.mark.parametrize("length", [8, 16, 32, 64, 192])
def test_gathering_has_no_bank_conflicts(length: int) -> None:
    """Nor have the fragments; only the eight lanes that load sums to store them have two more wavefronts per tile."""
    stats, tiles_of_rows = multiplied([length] * 16, 128).stats, 2 * 16
    assert stats.shared.wavefronts > 20 * tiles_of_rows
    assert stats.bank_conflicts <= 2 * tiles_of_rows


# ---- faults of the published program


@pytest.mark.parametrize("config", [WIDE, SINGLE], ids=["wide", "single"])
def test_rows_of_few_warps_are_in_one_block(config: Config) -> None:
    """In the published kernel rows are packed one after the other, also into two blocks, which then share no memory."""
    assert multiplied([20, 10, 20, 3, 40, 5, 30, 12, 50, 7], 64, config).ok


@pytest.mark.parametrize("config", [WIDE, SINGLE], ids=["wide", "single"])
def test_empty_rows_are_set(config: Config) -> None:
    """In the published kernel C of empty rows stays as it was."""
    assert multiplied([0, 5, 0, 0, 100], 72, config).ok  # C was NaN
    assert multiplied([0] * 11, 72, config).ok
    assert multiplied([0, 5, 0, 0, 100], 72, config, beta=-0.5).ok


@pytest.mark.parametrize("lengths", [[7] * 9, [12] * 3, [30, 25, 17], [64, 40], [100, 150]])
def test_alpha_and_beta_count(lengths: list[int]) -> None:
    """The published kernel ignores both."""
    alpha, beta = ((-2.0, 0.5), (0.5, 1.0))[len(lengths) % 2]
    assert multiplied(lengths, 72, alpha=alpha, beta=beta).ok


@pytest.mark.parametrize("length", [3, 13, 23])
def test_warps_without_a_row_wait_at_barriers(length: int) -> None:
    """In the published kernel they leave before. A block of one row of 1, 2 or 4 warps has 7, 6 or 4 without a row."""
    got = multiplied([length], 192)
    assert got.ok
    assert got.stats.barriers == BLOCK * (1 + 2 * 3)


@pytest.mark.parametrize(("length", "barriers"), [(3, 0), (13, 2 * 7), (23, 4 * 7), (50, 8 * 7), (100, 8 * 15)])
def test_rows_may_wait_for_their_own_warps_alone(length: int, barriers: int) -> None:
    """Each of 1, 2, 4 or 8 warps waits once for the nonzeros and twice in each of three tiles. A warp with a row of its
    own needs no barrier, and warps without a row leave."""
    got = multiplied([length], 192, WIDE.replace(row_barriers=1))
    assert got.ok
    assert got.stats.barriers == barriers


def test_rows_of_any_number_of_warps_wait_for_their_own_warps() -> None:
    assert multiplied([100, 2, 1, 10, 20, 9, 30, 0, 64] * 2, 72, SINGLE.replace(row_barriers=1), beta=0.5).ok


def test_shuffles_name_all_lanes() -> None:
    """In the published kernel masks omit lanes that execute the shuffle."""
    p = Spmm(64, 64, 64, dtype="f16", calls=1000)
    masks = re.findall(r"shfl\.sync.*, (\S+);", render(plan_for(p, WIDE, device("h200"))).text)
    assert set(masks) == {"0xffffffff"}


@pytest.mark.parametrize("n", [8, 40, 64])
def test_narrow_products_have_all_nonzeros(n: int) -> None:
    """In the published kernel N = 64 drops the nonzeros of a row after the 64th, N < 64 drops such rows."""
    assert multiplied([65, 64, 200, 3, 127, 128], n).ok


@pytest.mark.parametrize("lengths", [[193, 0, 256, 5], [257, 64]])
def test_blocks_with_several_tiles_store_their_own_row(lengths: list[int]) -> None:
    """In the published kernel with N = 320, rows of 193 to 256 nonzeros (4 blocks, 5 tiles) write into the next row."""
    assert multiplied(lengths, 320).ok


@pytest.mark.parametrize("config", [WIDE, SINGLE], ids=["wide", "single"])
def test_addresses_have_64_bits(config: Config) -> None:
    """In the published kernel K·N of 2³¹ elements overflows. Here B begins 2³³ bytes before its rows that are in memory, so that
    also loads of padding positions, which have no row, are faults."""
    m, n, first = 8, 64, 1 << 26
    fields: dict[str, Any] = {"dtype": "f16", "pattern": "even:nnz=300", "calls": 1000}
    small = Spmm(m, n, 16, **fields)
    arrays = arrays_of(small, 5, "integers")
    arrays["indptr"] = np.array([0, 3, 5, 20, 25, 50, 90, 200, 300], np.int32)
    arrays["indices"] = np.random.default_rng(0).integers(0, 16, 300).astype(np.int32)
    expected = reference(small, arrays)
    driver = EmulatedDriver()
    runner = Runner.of(driver, Spmm(m, n, first + 16, **fields), config)
    moved = arrays | {"indices": arrays["indices"] + first, "C": np.full_like(arrays["C"], np.nan)}
    with Buffers(driver, moved) as buffers:
        at = buffers.addresses
        runner.bind(at | {"B": (at["B"] - 2 * n * first) % (1 << 64)})()
        driver.download(at["C"], moved["C"])
    assert verdict("integers", moved["C"], expected).ok


# ---- values of B


@pytest.mark.parametrize("length", [5, 12, 20, 60, 90])
def test_absent_nonzeros_are_not_multiplied(length: int) -> None:
    """NaN and infinities of B appear only in columns of C where a nonzero multiplies them."""
    k, n = 200, 72
    b = np.random.default_rng(3).integers(-4, 5, (k, n)).astype(np.float16)
    b[0], b[1], b[7, 5] = np.nan, np.inf, np.nan
    indices = np.tile(np.arange(2, 2 + length, dtype=np.int32), 3)  # no nonzero is in columns 0 and 1 of A
    got = multiplied([length] * 3, n, k=k, B=b, indices=indices).got
    wrong = ~np.isfinite(got.astype(np.float64))
    assert wrong[:, 5].all() == (length > 5)
    assert not np.delete(wrong, 5, axis=1).any()


def test_repeated_and_unsorted_columns_add() -> None:
    indices = np.array([3, 3, 1, 3, 2, 0, 1] + [7, 0] * 40, np.int32)
    assert multiplied([4, 3, 0, 80], 24, k=8, indices=indices).ok


def test_alpha_0_reads_no_operand() -> None:
    p = Spmm(9, 8, 100, dtype="f16", pattern="lognormal:density=0.4,sigma=2", calls=1000)
    arrays = arrays_of(p)
    expected = 2 * arrays["C"]
    arrays["values"][:], arrays["B"][:], arrays["indices"][:] = np.nan, np.nan, 1 << 30
    got = Runner.of(EmulatedDriver(), p, WIDE).compute(arrays, 0.0, 2.0)["C"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("n", [1, 7, 40, 65])
def test_types_and_odd_columns(dtype: str, n: int) -> None:
    p = Spmm(23, n, 131, dtype=dtype, pattern="lognormal:density=0.3,sigma=1.5", calls=1000)
    config = parse_config(f"family=tca vec_b={8 if n == 40 else 1}")
    assert all(r.ok for r in check_some(EmulatedDriver(), p, config, row_padding=3 if n != 40 else 0))


# ---- the baseline


def test_the_baseline_times_the_family_on_the_operands() -> None:
    driver, p = EmulatedDriver(), Spmm(5, 8, 30, dtype="f16", pattern="even:nnz=45")
    operands = SpmmOperandSets(driver, p, Timing(most=2, l2_multiple=0))
    made = operation_named("spmm").baselines["tca"]
    made.require()
    times = made.best(driver, p, operands.sets, Timing())
    assert 0 < times.best <= times.heuristic
    assert made.title == "TCA-SpMM"
    product = FamilyProduct("tca", driver, p)
    assert [c.family for c in product.configs] == ["tca"] * 8
    assert product.configs[0].vec_b == 8
    with pytest.raises(LaunchError, match="TCA-SpMM does not compute spmm 5,8,30 NN f32"):
        made.load()(driver, Spmm(5, 8, 30, pattern="even:nnz=9"), {})
    with pytest.raises(ShapeError, match="number of nonzeros is 0"):
        made.load()(driver, Spmm(5, 8, 30, dtype="f16", pattern="even:nnz=0"), {})


def test_the_baseline_does_not_time_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, p = EmulatedDriver(), Spmm(5, 8, 30, dtype="f16", pattern="even:nnz=45")
    operands = SpmmOperandSets(driver, p, Timing(most=1, l2_multiple=0))
    monkeypatch.setattr(Runner, "bind", lambda runner, addresses: lambda: None)
    with pytest.raises(LaunchError, match="its result is wrong"):
        FamilyProduct("tca", driver, p).best(operands.sets, Timing())
