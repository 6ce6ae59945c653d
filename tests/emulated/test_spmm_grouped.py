"""Batches of graphs in one launch, executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.families.common.space import families
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.graph_batches import global_columns, graph_ends
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.device import device
from ptxgen.problem.reference import reference, verdict
from ptxgen.problem.registry import parse
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

CONFIG = parse_config("family=row_split row_lanes=2 block_groups=16")


@pytest.fixture(autouse=True)
def on_the_emulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")


@pytest.mark.parametrize(
    ("dtype", "n", "groups", "config"),
    [
        ("f32", 8, 5, CONFIG.replace(vec_b=4)),
        ("f16", 3, 1, CONFIG),
        ("f64", 5, 100, CONFIG.replace(nonzero_groups=4)),  # more graphs than rows: some are empty
        ("bf16", 16, 8, CONFIG.replace(index_loads=1, nonzeros_in_flight=2, vec_b=8, lane_vectors=2)),
    ],
    ids=lambda x: str(x) if isinstance(x, str) else None,
)
def test_products_of_every_graph(dtype: str, n: int, groups: int, config: Config) -> None:
    p = Spmm(70, n, 70, dtype=dtype, pattern="uniform:degree=6", groups=groups)
    assert parse(p.key()) == p
    wrong = [
        str(r.deviation)
        for r in check_some(EmulatedDriver(), p, config, row_padding=3 if config.vec_b == 1 else 0)
        if not r.ok
    ]
    assert not wrong


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(6))
def test_random_problems_and_configurations(n: int) -> None:
    for p, c in SOURCES["spmm graphs"].cases(40 + n, 1, device(("emulated", "h200")[n % 2]), threads=256):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(), p, c, n) if not r.ok]
        assert not wrong, f"{p.key()} | {c}"


def test_only_families_that_search_graphs_compute_them() -> None:
    p = Spmm(70, 8, 70, pattern="uniform:degree=6", groups=3)
    assert [f.name for f in families(lower(p), device("h200"))] == ["row_split"]


def test_generated_graphs_have_all_rows() -> None:
    for m, groups in ((1000, 7), (5, 9), (1, 1)):
        ends = graph_ends(m, groups)
        assert len(ends) == groups
        assert ends[-1] == m
        assert (np.diff(ends) >= 0).all()
    p = Spmm(500, 8, 500, pattern="uniform:degree=6", groups=7)
    arrays, ends = arrays_of(p), graph_ends(500, 7)
    rows = np.repeat(np.arange(500), np.diff(arrays["indptr"]))
    columns = global_columns(p, arrays)
    assert (np.searchsorted(ends, rows, "right") == np.searchsorted(ends, columns, "right")).all()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"k": 71}, ShapeError, "k is 71; it must be m, 70, where A has groups"),
        ({"calls": 9}, InputError, "calls is 9; it must be 0 where A has groups"),
        ({"layout": "NT"}, InputError, "layout is NT; it must be NN where A has groups"),
        ({"index": "i64"}, InputError, "index is i64; it must be i32 where A has groups"),
    ],
)
def test_rules_of_problems(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Spmm(**{"m": 70, "n": 8, "k": 70, "groups": 3, **fields})


def batch(sizes: list[int], n: int, more: int = 0) -> tuple[ptxgen.SparseMatrix, Any, Any, list[Any]]:
    """Random graphs of these sizes, B with ``more`` rows after them, the offsets, and the dense matrices."""
    rng = np.random.default_rng(3)
    dense = [rng.integers(-2, 3, (s, s)) * (rng.random((s, s)) < 0.3) for s in sizes]
    rows = [row for graph in dense for row in graph] + [np.zeros(1)] * more
    indptr = np.concatenate([[0], np.cumsum([np.count_nonzero(row) for row in rows])]).astype(np.int32)
    indices = np.concatenate([np.flatnonzero(row) for row in rows]).astype(np.int32)
    values = np.concatenate([row[row != 0] for row in rows]).astype(np.float32)
    total = len(rows)
    a = ptxgen.SparseMatrix(indptr, indices, values, (total, max(sizes)))
    b = rng.integers(-3, 4, (total, n)).astype(np.float32)
    return a, b, np.cumsum(sizes).astype(np.int32), dense


def expected(b: Any, offsets: Any, dense: list[Any]) -> Any:
    starts = [0, *offsets[:-1]]
    return np.concatenate([g @ b[s:e] for g, s, e in zip(dense, starts, offsets, strict=True)])


def test_calls_multiply_each_graph_and_leave_other_rows() -> None:
    a, b, offsets, dense = batch([5, 0, 33, 1, 12], 6, more=4)
    out = np.full((55, 6), 7, np.float32)
    got = ptxgen.spmm_grouped(a, b, offsets, out, alpha=2, beta=1)
    assert got is out
    np.testing.assert_array_equal(out[:51], 2 * expected(b, offsets, dense) + 7)
    np.testing.assert_array_equal(out[51:], 7)
    new = ptxgen.spmm_grouped(a, b[:, 0].copy(), offsets)
    np.testing.assert_array_equal(new[:51], expected(b[:, :1], offsets, dense)[:, 0])


def test_no_graphs_write_nothing() -> None:
    a, b, _, _ = batch([5], 6)
    out = np.full((5, 6), 7, np.float32)
    ptxgen.spmm_grouped(a, b, np.zeros(0, np.int32), out)
    np.testing.assert_array_equal(out, 7)


def test_bad_arguments_are_errors() -> None:
    a, b, offsets, _ = batch([5, 7], 6)
    with pytest.raises(ShapeError, match="b has 11 rows; it must have 12, as a"):
        ptxgen.spmm_grouped(a, b[:11], offsets)
    with pytest.raises(DtypeError, match="offsets is int64; it must be int32"):
        ptxgen.spmm_grouped(a, b, offsets.astype(np.int64))
    with pytest.raises(InputError, match=r"offsets\[1\] is 13; it must be from 5 to 12"):
        ptxgen.spmm_grouped(a, b, np.array([5, 13], np.int32))
    with pytest.raises(InputError, match="less than 2, the rows of its graph"):
        ptxgen.spmm_grouped(a, b, np.array([2, 12], np.int32))
    wide = ptxgen.SparseMatrix(a.indptr.astype(np.int64), a.indices.astype(np.int64), a.values, a.shape)
    with pytest.raises(DtypeError, match="a has int64 indices; they must be int32"):
        ptxgen.spmm_grouped(wide, b, offsets)


def test_offsets_are_read_by_the_kernel() -> None:
    """One kernel computes batches of other graphs: their number is a parameter, their sizes are in memory."""
    p = Spmm(60, 4, 60, pattern="uniform:degree=6", groups=6)
    runner = Runner.of(EmulatedDriver(), p, CONFIG)
    for ends in ([10, 20, 30, 40, 50, 60], [0, 0, 60, 60, 60, 60]):
        arrays = arrays_of(p, 1, "integers")
        arrays["offsets"] = np.array(ends, np.int32)
        sizes = np.diff([0, *ends])
        rows = np.repeat(np.arange(60), np.diff(arrays["indptr"]))
        arrays["indices"] = (arrays["indices"] % sizes[np.searchsorted(ends, rows, "right")]).astype(np.int32)
        got = runner.compute(arrays)["C"]
        assert verdict("integers", got, reference(p, {**arrays, "C": np.zeros_like(arrays["C"])})).ok
