"""The family vector_mma without a device: capabilities, rules, candidates, choice, fragments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Columns, Config, parse_config
from ptxgen.codegen.render import render, render_preparation
from ptxgen.errors import ConfigError
from ptxgen.families import registry
from ptxgen.families.common.perf_model import predict
from ptxgen.families.common.rules import legal
from ptxgen.families.common.space import candidates, families
from ptxgen.families.common.work_list import WorkList
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.vector_mma.plan import VectorMmaPlan
from ptxgen.families.vector_mma.row_windows import BLOCK_LIMIT, RowWindows
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.pattern_statistics import statistics_of
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device

H200 = device("h200")
P = Spmm(64, 32, 48, dtype="f16", pattern="bernoulli:density=0.1,seed=7", calls=1000)
TF32 = Spmm(64, 32, 48, dtype="f32", compute="tf32", pattern="bernoulli:density=0.1", calls=1000)


def test_it_computes_problems_that_may_be_prepared() -> None:
    assert "vector_mma" in [f.name for f in families(lower(P), H200)]
    for other in (replace(P, calls=0), replace(P, exact_nonfinite=True)):
        assert "vector_mma" not in [f.name for f in families(lower(other), H200)]


@pytest.mark.parametrize(
    ("problem", "config", "message"),
    [
        (replace(P, calls=0), "", "lacks sparse matrices in CSR that are not prepared"),
        (P, "vec_b=16", "vec_b=16: a power of two, at most 16 bytes"),
        (replace(P, n=33, ldb=0, ldc=0), "vec_b=2", "no wider than rows of B and C are aligned"),
        (P, "", "lane_vectors=1 of vec_b=1: a lane loads an even number of elements of a row"),
        (P, "vec_b=2 lane_vectors=5", "lane_vectors=5 must be an integer from 1 to 4"),
        (P, "vec_b=2 longest_part=64", "longest_part=64: 0, or with row_order=length at least 4"),
        (P, "vec_b=2 row_order=length longest_part=3", "longest_part=3: 0, or with row_order=length at least 4"),
        (replace(P, dtype="f32", out="f32", compute="f32"), "vec_b=2", "f32 in tf32, from sm_80 on, not f32 in f32"),
        (replace(P, dtype="f16", out="f16", compute="f16"), "vec_b=2", "not f16 in f16"),
        (replace(P, n=1 << 21, k=1, ldb=0, ldc=0), "vec_b=2", "a grid has at most 65535"),
        (replace(TF32, ldb=1 << 30), "vec_b=2", "rows of B must begin less than 4294967296 bytes"),
    ],
)
def test_rules(problem: Spmm, config: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_for(problem, parse_config(f"family=vector_mma {config}"), H200)


def test_targets_before_sm_80_lack_the_instructions() -> None:
    with pytest.raises(ConfigError, match="not f16 in f32 into f16 on sm_75"):
        plan_for(P, parse_config("family=vector_mma vec_b=2"), device("t4"))


def test_candidates_are_the_legal_rows_of_a_plain_search() -> None:
    family = registry.FAMILIES["vector_mma"]
    for p in (P, TF32, replace(P, n=33, ldb=0, ldc=0)):
        columns = candidates(lower(p), H200)
        mine = columns.take(np.flatnonzero(columns.family == family.code))
        every = Columns.product(dict(family.candidates.axes)).replace(family=family.code)
        assert len(mine) == legal(lower(p), every, H200).sum() > 5


def plan(p: Spmm, config: str) -> VectorMmaPlan:
    made = plan_for(p, parse_config(f"family=vector_mma {config}"), H200)
    assert isinstance(made, VectorMmaPlan)
    return made


def test_a_kernel_and_its_preparation_serve_every_pattern_and_shape() -> None:
    other = Spmm(7, 16, 9, dtype="f16", pattern="banded:width=3", calls=500)
    first, second = plan(P, "vec_b=4"), plan(other, "vec_b=4")
    assert render(first).digest == render(second).digest
    assert first.preparations == second.preparations == plan(P, "lane_vectors=2").preparations
    [windows] = first.preparations
    assert render_preparation(windows, H200).entries == (
        "count_window_blocks",
        "scan_window_blocks",
        "fill_window_blocks",
    )


def test_work_lists_order_windows_and_split_them() -> None:
    windows, work = plan(P, "vec_b=2 row_order=length longest_part=16").preparations
    assert (windows, work) == (RowWindows("f16", 16), WorkList("window_starts", 8, 16))
    made = plan(P, "vec_b=2 row_order=length longest_part=16 block_windows=4")
    launch = made.launch(lower(P), {"blocks": 100, "items": 9, "parts": 5})
    assert launch.steps[0].grid == (3, 2, 1)
    assert (launch.workspace, launch.zeroed) == (48 + 5 * 8 * 32 * 4, True)
    whole = made.launch(lower(P), {"blocks": 100, "items": 8, "parts": 0})
    assert (whole.steps[0].grid, whole.workspace) == ((2, 2, 1), 0)


def fastest(longest: int) -> Config:
    """The configuration that the performance model prefers for rows of 16 nonzeros, and one of ``longest``."""
    lengths = np.full(4096, 16)
    lengths[7] = longest
    indptr, rng = np.concatenate([[0], np.cumsum(lengths)]), np.random.default_rng(0)
    indices = np.concatenate([np.sort(rng.choice(65536, n, replace=False)) for n in lengths])
    text = statistics_of(65536, indptr, indices).text()
    p, family = lower(Spmm(4096, 128, 65536, dtype="f16", pattern=text, calls=1000)), registry.FAMILIES["vector_mma"]
    every = Columns.product(dict(family.candidates.axes)).replace(family=family.code)
    every = every.take(np.flatnonzero(legal(p, every, H200)))
    return every.row(int(np.argmin(predict(p, every, H200))))


def test_the_choice_splits_long_windows() -> None:
    assert fastest(32768).longest_part > 0
    assert fastest(16).longest_part == 0


def test_places_of_vectors() -> None:
    """Load i of lane t is of vector 4 i + t: those of one load are adjacent, and so are the places of a lane."""
    for windows in (RowWindows("f16", 16), RowWindows("f32", 8)):
        n = windows.lane_places
        assert [windows.place(4 * i + t) for t in range(4) for i in range(n)] == list(range(windows.depth))


def test_sizes_are_limited() -> None:
    windows = RowWindows("f16", 16)
    assert windows.limits(lower(P)) == {"blocks": 8 * 3}
    huge = Spmm(1 << 22, 1, 1 << 22, dtype="f16", pattern="even:nnz=0", calls=1000)
    assert windows.limits(lower(huge)) == {"blocks": BLOCK_LIMIT}


@pytest.mark.parametrize(
    ("p", "config", "pieces"),
    [
        (P, "vec_b=8", ["prmt.b32"] * 4),
        (P, "lane_vectors=2", ["mov.b32"] * 4),
        (TF32, "vec_b=4", ["cvt.rna.tf32.f32"] * 4),
    ],
)
def test_left_operands_are_composed_of_loaded_words(p: Spmm, config: str, pieces: list[str]) -> None:
    loop = plan(p, config).mainloop
    assert [line.split()[0] for line in loop.fragment(0, 0)] == pieces
    assert loop.product(0, 0).startswith("mma.sync.aligned.m16n8k16" if p is P else "mma.sync.aligned.m16n8k8")
