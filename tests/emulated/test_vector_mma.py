"""Kernels that multiply row windows on tensor cores, and their preparation, executed with checks for races, bounds and
uninitialised reads; every element is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.vector_mma.row_windows import ABSENT, RowWindows
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.device import device
from ptxgen.problem.reference import Array, reference, verdict
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import PreparedOperands
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

CONFIG = parse_config("family=vector_mma block_windows=2 blocks_in_flight=2 vec_b=4")
SPLIT = CONFIG.replace(row_order=1, longest_part=4, columns_ahead=0)
#: dtype, compute
TYPES = (("f16", "f32"), ("bf16", "f32"), ("f32", "tf32"))


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(24))
def test_random_problems_and_configurations(n: int) -> None:
    on = ("emulated", "a100", "h200", "b200")[n % 4]
    for p, c in SOURCES["vector_mma"].cases(700 + n, 1, device(on), threads=128):
        wrong = [
            f"{r.inputs}: {r.deviation}"
            for r in check_some(EmulatedDriver(), p, c, n, (0, 3)[n % 2] if c.vec_b == 1 else 0)
            if not r.ok
        ]
        assert not wrong, f"{p.key()} | {c}"


def with_rows(rows: list[list[int]], k: int, n: int, dtype: str = "f16", compute: str = "f32") -> tuple[Spmm, Any]:
    """A problem and its arrays, with a matrix whose rows have these columns, in this order."""
    nnz = sum(map(len, rows))
    arrays = arrays_of(Spmm(len(rows), n, k, dtype=dtype, pattern=f"even:nnz={nnz}"), 3, "integers")
    arrays["indptr"] = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    arrays["indices"] = np.array([column for row in rows for column in row], np.int32)
    return Spmm(len(rows), n, k, dtype=dtype, compute=compute, pattern="bernoulli:density=0.1", calls=1000), arrays


RNG = np.random.default_rng(5)
ROWS: dict[str, list[list[int]]] = {
    "empty_rows": [[], [1], [], [], [0, 2, 3], [], [], [], [], [5], []],
    "empty_windows": [[3]] + [[]] * 23 + [[4]],
    "no_nonzeros": [[]] * 5,
    "one_long_row": [[], list(range(97)), [], [5]],
    "unsorted": [[3, 2, 1, 9], [2, 0, 1], [96, 0, 36], list(range(96, -1, -1))],
    "every_length": [list(range(i)) for i in range(35)],
    "banded": [[x for x in range(i - 3, i + 3) if 0 <= x < 97] for i in range(40)],
    "blocks": [[x for b in sorted(RNG.permutation(12)[:3]) for x in range(8 * b, 8 * b + 8)] for _ in range(24)],
}


@pytest.mark.parametrize(
    ("rows", "config", "kinds"),
    [
        pytest.param(rows, (CONFIG, SPLIT)[n // 2 % 2], TYPES[(n + n // 2 % 2) % len(TYPES)], id=name)
        for n, (name, rows) in enumerate(ROWS.items())
    ],
)
def test_rows_of_every_kind(rows: list[list[int]], config: Config, kinds: tuple[str, str]) -> None:
    """Configurations and types in turn."""
    p, arrays = with_rows(rows, 97, 44, *kinds)
    runner = Runner.of(EmulatedDriver(), p, config)
    alpha, beta = ((1.0, 0.0), (2.0, -1.0))[len(rows) % 2]
    given = dict(arrays)
    if beta == 0:
        given["C"] = np.full_like(arrays["C"], np.nan)
    got = runner.compute(given, alpha, beta)["C"]
    assert verdict("integers", got, reference(p, given, alpha, beta)).ok


@pytest.mark.each_value
@pytest.mark.parametrize("kinds", TYPES, ids=lambda x: x[0])
@pytest.mark.parametrize("n", [1, 7, 40, 100])
def test_types_and_odd_columns(kinds: tuple[str, str], n: int) -> None:
    p = Spmm(23, n, 31, dtype=kinds[0], compute=kinds[1], pattern="lognormal:density=0.2,sigma=1", calls=1000)
    vec = 4 if n % 4 == 0 else 1
    config = parse_config(f"family=vector_mma block_windows=2 lane_vectors=2 blocks_in_flight=4 vec_b={vec}")
    assert all(r.ok for r in check_some(EmulatedDriver(), p, config, row_padding=0 if vec > 1 else 5))


def test_alpha_0_reads_neither_a_nor_b() -> None:
    p = Spmm(9, 8, 7, dtype="f16", pattern="banded:width=3", calls=1000)
    arrays = arrays_of(p)
    expected = 2 * arrays["C"].astype(np.float64)
    arrays["values"][:], arrays["B"][:] = np.nan, np.nan
    got = Runner.of(EmulatedDriver(), p, CONFIG).compute(arrays, 0.0, 2.0)["C"]
    np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_the_same_inputs_give_the_same_bits() -> None:
    """Blocks are added in order, whatever the configuration."""
    p = Spmm(16, 24, 200, dtype="f16", pattern="bernoulli:density=0.3", calls=1000)
    arrays = arrays_of(p)
    configs = [CONFIG, parse_config("family=vector_mma block_windows=1 lane_vectors=4 blocks_in_flight=1 vec_b=1")]
    first, second = (Runner.of(EmulatedDriver(), p, c).compute(arrays, 1.5, 0.5)["C"] for c in configs)
    np.testing.assert_array_equal(first, second)


def test_parts_of_windows_are_added_in_order() -> None:
    """Whatever the order in which they arrive, and in a workspace that is zero again."""
    p, arrays = with_rows([list(range(400)), [3], [], *([7, 9] for _ in range(30))], 400, 72)
    arrays["values"] = np.random.default_rng(2).standard_normal(len(arrays["values"])).astype(np.float16)
    results = []
    for seed in range(3):
        driver = EmulatedDriver(seed=seed)
        with Buffers(driver, arrays) as buffers:
            runner = Runner.of(driver, p, SPLIT).on(buffers.addresses)
            assert runner.prepared is not None
            assert [made.sizes for made in runner.prepared] == [{"blocks": 29}, {"items": 11, "parts": 7}]
            call = runner.bind(buffers.addresses)
            for _ in range(2):
                call()
                results.append(np.empty_like(arrays["C"]))
                driver.download(buffers.addresses["C"], results[-1])
                assert not runner.workspace_dirty()
    assert verdict("normal", results[0], reference(p, arrays)).ok
    for x in results[1:]:
        np.testing.assert_array_equal(x, results[0])


def test_the_order_of_windows_does_not_change_sums() -> None:
    p, arrays = with_rows([list(range(3 * i % 90)) for i in range(60)], 97, 40)
    configs = [CONFIG, CONFIG.replace(row_order=1), CONFIG.replace(columns_ahead=0)]
    first, *others = (Runner.of(EmulatedDriver(), p, c).compute(arrays)["C"] for c in configs)
    for x in others:
        np.testing.assert_array_equal(x, first)


# ---- the preparation


def prepared(p: Spmm, arrays: Mapping[str, Array], windows: RowWindows) -> dict[str, Array]:
    """The arrays that it makes."""
    driver = EmulatedDriver()
    with Buffers(driver, arrays) as buffers:
        [made] = PreparedOperands(driver, buffers.addresses).make((windows,), lower(p))
        blocks = made.sizes["blocks"]
        out = {
            "window_starts": np.empty(-(-p.m // 8) + 1, np.uint32),
            "window_columns": np.empty((blocks, windows.depth), np.uint32),
            "window_values": np.empty((blocks, 8, windows.depth), p.element.numpy),
        }
        for name, x in out.items():
            if x.size:
                driver.download(made.arrays[name].address, x)
    return out


def expected_windows(p: Spmm, arrays: Mapping[str, Array], windows: RowWindows) -> dict[str, Array]:
    """The same arrays by NumPy."""
    depth, count = windows.depth, -(-p.m // 8)
    rows = np.repeat(np.arange(p.m), np.diff(arrays["indptr"]))
    per_window = [np.unique(arrays["indices"][rows // 8 == w]) for w in range(count)]
    blocks = np.array([-(-len(x) // depth) for x in per_window], np.int64)
    starts = np.concatenate([[0], np.cumsum(blocks)]).astype(np.uint32)
    columns = np.full((starts[-1], depth), ABSENT, np.uint32)
    values = np.zeros((starts[-1], 8, depth), p.element.numpy)
    for w, vectors in enumerate(per_window):
        for rank, column in enumerate(vectors):
            block, place = starts[w] + rank // depth, windows.place(rank % depth)
            columns[block, place] = column
            for at in np.flatnonzero((rows // 8 == w) & (arrays["indices"] == column)):
                values[block, rows[at] % 8, place] = arrays["values"][at]
    return {"window_starts": starts, "window_columns": columns, "window_values": values}


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_windows_have_the_columns_in_order(rows: list[list[int]], dtype: str) -> None:
    p, arrays = with_rows(rows, 97, 8, dtype, "tf32" if dtype == "f32" else "f32")
    windows = RowWindows(dtype, 16 if dtype == "f16" else 8)
    got = prepared(p, arrays, windows)
    for name, x in expected_windows(p, arrays, windows).items():
        np.testing.assert_array_equal(got[name], x, name)


def test_windows_wider_than_the_bitmap_are_prepared_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bitmap has 256 words here, for 8192 columns."""
    monkeypatch.setattr(RowWindows, "threads", 64)
    monkeypatch.setattr(RowWindows, "bitmap", 256)
    rng, k = np.random.default_rng(1), 30_000
    rows = [rng.permutation(k)[:n].tolist() for n in (0, 3, 400, 7, 50, 0, 9, 1, 90, 0, 5)]
    rows[3] = [0, k - 1, 8191, 8192, 16383, 16384]
    p, arrays = with_rows(rows, k, 1)
    windows = RowWindows("f16", 16)
    got = prepared(p, arrays, windows)
    for name, x in expected_windows(p, arrays, windows).items():
        np.testing.assert_array_equal(got[name], x, name)


def test_the_last_range_may_end_at_the_greatest_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """With matrices that are not validated, columns may be negative: no loop over ranges wraps around."""
    monkeypatch.setattr(RowWindows, "threads", 32)
    monkeypatch.setattr(RowWindows, "bitmap", 1024)
    p, arrays = with_rows([[-1], [-40_000]], 97, 1)
    got = prepared(p, arrays, RowWindows("f16", 16))
    assert got["window_columns"][0, [0, 4]].tolist() == [(1 << 32) - 40_000, (1 << 32) - 1]


def test_many_windows_are_scanned_in_several_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowWindows, "scan_threads", 1024)
    monkeypatch.setattr(RowWindows, "scan_each", 1)
    monkeypatch.setattr(RowWindows, "threads", 32)
    monkeypatch.setattr(RowWindows, "bitmap", 128)
    rows = [[i % 7] if i % 3 else [] for i in range(8 * 1030)]
    p, arrays = with_rows(rows, 7, 1)
    windows = RowWindows("f16", 16)
    got = prepared(p, arrays, windows)
    np.testing.assert_array_equal(got["window_starts"], np.arange(1031))


def test_values_of_f32_are_rounded_to_tf32() -> None:
    p, arrays = with_rows([[0, 1, 2]], 3, 4, "f32", "tf32")
    arrays["values"][:] = np.array([0x3F800FFF, 0x3F801000, 0xBF801000], np.uint32).view(np.float32)
    got = prepared(p, arrays, RowWindows("f32", 8))["window_values"].view(np.uint32)
    windows = RowWindows("f32", 8)
    assert [int(got[0, 0, windows.place(i)]) for i in range(3)] == [0x3F800000, 0x3F802000, 0xBF802000]


def test_changed_values_are_prepared_again() -> None:
    p, arrays = with_rows(ROWS["every_length"], 97, 8)
    driver = EmulatedDriver()
    runner = Runner.of(driver, p, CONFIG)
    with Buffers(driver, arrays) as buffers:
        operands = PreparedOperands(driver, buffers.addresses)
        ready = runner.on(operands)
        changed = {**arrays, "values": (2 * arrays["values"]).astype(arrays["values"].dtype)}
        driver.upload(buffers.addresses["values"], changed["values"])
        operands.update()
        ready.bind(buffers.addresses)()
        got = np.empty_like(arrays["C"])
        driver.download(buffers.addresses["C"], got)
    assert verdict("integers", got, reference(p, changed)).ok


def test_extents_of_0() -> None:
    for m, n, k in ((0, 4, 5), (4, 0, 5), (4, 3, 0)):
        p = Spmm(m, n, k, dtype="f16", pattern="even:nnz=0", calls=1000)
        arrays = {**arrays_of(p), "C": np.full((m, n), np.nan, np.float16)}
        got = Runner.of(EmulatedDriver(), p, parse_config("family=vector_mma lane_vectors=2")).compute(arrays)["C"]
        np.testing.assert_array_equal(got, np.zeros((m, n)))


# ---- counts


@pytest.mark.parametrize(("kinds", "depth"), [(TYPES[0], 16), (TYPES[1], 16), (TYPES[2], 8)], ids=str)
def test_mma_instructions_are_those_of_the_blocks(kinds: tuple[str, str], depth: int) -> None:
    """One for 16 columns of C and a block."""
    rows = ROWS["every_length"]
    p, arrays = with_rows(rows, 97, 64, *kinds)
    driver, counted = EmulatedDriver(), []
    launch = driver.machine.launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.machine, "launch", lambda *a, **b: counted.append((x := launch(*a, **b)).mma) or x)
        Runner.of(driver, p, CONFIG).compute(arrays)
    columns = [len({x for row in rows[i : i + 8] for x in row}) for i in range(0, len(rows), 8)]
    assert counted == [0, 0, 0, sum(-(-n // depth) for n in columns) * 64 // 16]


# ---- handles


def test_handles_multiply_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    p = Spmm(512, 64, 512, dtype="f16", pattern="banded:width=40")
    arrays = arrays_of(p, 1, "integers")
    a = ptxgen.SparseMatrix(arrays["indptr"], arrays["indices"], arrays["values"], (512, 512))
    handle = ptxgen.spmm_prepare(a, calls=10_000, n=64)
    assert handle.config is not None
    assert handle.config.family == "vector_mma"
    zero = {**arrays, "C": np.zeros_like(arrays["C"])}
    assert verdict("integers", handle(arrays["B"]), reference(p, zero)).ok
    changed = (2 * arrays["values"]).astype(np.float16)
    handle.update(changed)
    assert verdict("integers", handle(arrays["B"]), reference(p, {**zero, "values": changed})).ok


def test_handles_of_matrices_with_repeated_columns_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of vectors has one value for each place."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    p = Spmm(512, 64, 512, dtype="f16", pattern="banded:width=40")
    arrays = arrays_of(p, 1, "integers")
    arrays["indices"][1] = arrays["indices"][0]
    a = ptxgen.SparseMatrix(arrays["indptr"], arrays["indices"], arrays["values"], (512, 512))
    handle = ptxgen.spmm_prepare(a, calls=10_000, n=64)
    assert handle.config is not None
    assert handle.config.family != "vector_mma"
    zero = {**arrays, "C": np.zeros_like(arrays["C"])}
    assert verdict("integers", handle(arrays["B"]), reference(p, zero)).ok
