"""The family compressed_tiles without a device: capabilities, rules, candidates, choice, the order of a tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Columns, parse_config
from ptxgen.codegen.render import render, render_preparation
from ptxgen.errors import ConfigError
from ptxgen.families import registry
from ptxgen.families.common.perf_model import predict
from ptxgen.families.common.rules import legal
from ptxgen.families.common.space import candidates, families
from ptxgen.families.compressed_tiles.layout import bit_fields, number, offset_fields, word_fields
from ptxgen.families.compressed_tiles.plan import CompressedTilesPlan
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device

H200 = device("h200")
P = Spmm(64, 8, 48, dtype="f16", pattern="bernoulli:density=0.5,seed=7", calls=1000)
F32 = replace(P, dtype="f32", compute="f32", out="f32")


def test_it_computes_problems_that_may_be_prepared() -> None:
    assert "compressed_tiles" in [f.name for f in families(lower(P), H200)]
    repeated = replace(P, pattern=P.statistics.text().replace("distinct=1", "distinct=0"))
    for other in (replace(P, calls=0), replace(P, exact_nonfinite=True), replace(P, index="i64"), repeated):
        assert "compressed_tiles" not in [f.name for f in families(lower(other), H200)]


@pytest.mark.parametrize(
    ("problem", "config", "message"),
    [
        (replace(P, calls=0), "", "lacks sparse matrices in CSR that are not prepared"),
        (P, "vec_b=16", "vec_b=16: a power of two, at most 16 bytes"),
        (replace(P, n=7, ldb=0, ldc=0), "vec_b=8", "no wider than rows of B are aligned"),
        (P, "vec_b=4", "b_columns=8 vec_b=4: MMA instructions take 8 columns"),
        (P, "b_columns=4", "b_columns=4 vec_b=1: MMA instructions take 8 columns"),
        (F32, "b_columns=2 vec_b=4", "others take at least vec_b columns"),
        (P, "vector_b=1", "vector_b=1 takes b_columns=8 vec_b=1 and a B of 16-bit .* in one column, not 8"),
        (replace(P, n=1, ldb=2, ldc=0), "vector_b=1", "elements that follow each other"),
        (replace(P, n=1, ldb=0, ldc=0, aligned_b=8), "vector_b=1", "from a multiple of 16 bytes on"),
        (P, "b_columns=32", "b_columns=32 must be a power of two from 1 to 16"),
        (replace(P, dtype="f64", out="f64", compute="f64"), "", "from sm_80 on and sums in f32, not f64 in f64"),
        (P, "tile_warps=32 stages=8", "bytes of shared memory"),
        (P, "tile_warps=32 b_columns=16", "about 80 registers a thread"),
        (Spmm(1 << 20, 8, 1 << 12, dtype="f16", pattern="even:nnz=9", calls=9), "", "4194304 tiles of 32 rows and 32"),
        (replace(P, n=1 << 21, k=1, ldb=0, ldc=0), "", "a grid has at most 65535"),
        (replace(F32, ldb=1 << 30), "", "rows of B must begin less than 4294967296 bytes"),
    ],
)
def test_rules(problem: Spmm, config: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_for(problem, parse_config(f"family=compressed_tiles {config}"), H200)


def test_targets_before_sm_80_lack_the_copies() -> None:
    with pytest.raises(ConfigError, match="not f16 in f32 into f16 on sm_75"):
        plan_for(P, parse_config("family=compressed_tiles"), device("t4"))


def test_candidates_are_the_legal_rows_of_a_plain_search() -> None:
    family = registry.FAMILIES["compressed_tiles"]
    for p in (P, F32, replace(P, n=7, ldb=0, ldc=0), replace(P, n=1, ldb=0, ldc=0)):
        columns = candidates(lower(p), H200)
        mine = columns.take(np.flatnonzero(columns.family == family.code))
        every = Columns.product(dict(family.candidates.axes)).replace(family=family.code)
        assert len(mine) == legal(lower(p), every, H200).sum() > 5


def plan(p: Spmm, config: str) -> CompressedTilesPlan:
    made = plan_for(p, parse_config(f"family=compressed_tiles {config}"), H200)
    assert isinstance(made, CompressedTilesPlan)
    return made


def test_a_kernel_and_its_preparation_serve_every_pattern_and_shape() -> None:
    other = Spmm(7, 16, 9, dtype="f16", pattern="banded:width=3", calls=500)
    first, second = plan(P, "vec_b=8"), plan(other, "vec_b=8")
    assert render(first).digest == render(second).digest
    assert first.preparations == second.preparations == plan(P, "stages=2").preparations
    [tiles] = first.preparations
    assert render_preparation(tiles, H200).entries == (
        "count_tile_nonzeros",
        "scan_tiles",
        "mark_nonzeros",
        "place_nonzeros",
    )
    assert tiles.limits(lower(P)) == {"pieces": 2 * 2 * (8 + 128)}
    [offsets] = plan(P, "tile_index=offsets").preparations
    assert render_preparation(offsets, H200).entries == ("count_tile_nonzeros", "scan_tiles", "place_nonzeros")
    assert offsets.limits(lower(P)) == {"pieces": 2 * 2 * (129 + 128)}


def test_a_launch_has_a_block_for_32_rows_and_a_slab() -> None:
    p = replace(P, m=70, n=13, ldb=0, ldc=0)
    assert [s.grid for s in plan(p, "").launch(lower(p), {"pieces": 40}).steps] == [(3, 2, 1)]
    empty = replace(P, n=0, ldb=0, ldc=0)
    assert plan(empty, "").launch(lower(empty), {"pieces": 40}).steps == ()


@pytest.mark.parametrize("size", [2, 4])
def test_each_element_of_a_tile_has_a_bit_of_its_own(size: int) -> None:
    words, bits = word_fields(size), bit_fields(size)
    places = {(number(words, r, c), number(bits, r, c)) for r in range(32) for c in range(32)}
    assert places == {(w, b) for w in range(32) for b in range(32)}
    offsets = {number(offset_fields(size), r, c) for r in range(32) for c in range(32)}
    assert offsets == set(range(1024))


def test_lanes_have_16_adjacent_bytes_of_an_expanded_tile() -> None:
    """The registers of a fragment in their order; 4 columns of a row."""
    for n, (k, m) in enumerate(plan(P, "").mainloop.fragments):
        for lane in range(32):
            rows = [16 * m + lane // 4 + 8 * (r % 2) for r in range(4) for _ in range(2)]
            columns = [16 * k + 2 * (lane % 4) + 8 * (r // 2) + h for r in range(4) for h in range(2)]
            offsets = [number(offset_fields(2), r, c) for r, c in zip(rows, columns, strict=True)]
            assert offsets == [8 * (32 * n + lane) + i for i in range(8)]
    for row in range(32):
        for c in range(0, 32, 4):
            assert [number(offset_fields(4), row, c + i) - 32 * c for i in range(4)] == [4 * row + i for i in range(4)]


def test_the_performance_model_prefers_bitmaps_of_many_nonzeros() -> None:
    """An offset takes 2 bytes, a bit of each element 1/8; but bits take more instructions."""
    family = registry.FAMILIES["compressed_tiles"]
    for density, offsets in ((0.6, 0), (0.05, 1), (0.01, 1)):
        p = lower(Spmm(14336, 8, 4096, dtype="f16", pattern=f"bernoulli:density={density}", calls=1000))
        every = Columns.product(dict(family.candidates.axes)).replace(family=family.code)
        every = every.take(np.flatnonzero(legal(p, every, H200)))
        assert every.row(int(np.argmin(predict(p, every, H200)))).tile_index == offsets


def test_a_lane_has_the_elements_of_its_fragment_registers() -> None:
    """PTX ISA, matrix fragments for mma.m16n8k16: register r of lane 4 g + t has row g + 8 (r mod 2) and the columns
    2 t + 8 (r div 2) and the next one."""
    words, bits = word_fields(2), bit_fields(2)
    for n, (k, m) in enumerate(plan(P, "").mainloop.fragments):
        for lane in range(32):
            for r in range(4):
                row, column = 16 * m + lane // 4 + 8 * (r % 2), 16 * k + 2 * (lane % 4) + 8 * (r // 2)
                for h in (0, 1):
                    assert number(words, row, column + h) == 2 * (4 * n + r) + lane // 16
                    assert number(bits, row, column + h) == 2 * (lane % 16) + h
