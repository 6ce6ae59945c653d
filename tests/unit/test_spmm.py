"""Sparse products without a device: text form, patterns, lowering, rules, candidates, commands."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ptxgen.cli import command
from ptxgen.codegen.config.config import Columns, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError, DtypeError, InputError, ShapeError
from ptxgen.families.common.features import all_names, features
from ptxgen.families.common.rules import first_violation, legal
from ptxgen.families.common.space import candidates, families
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of, product
from ptxgen.problem.device import device
from ptxgen.problem.registry import from_dict, parse
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.selection import select
from ptxgen.tuning.store.database import Database
from tests.cases import SOURCES

H200 = device("h200")
P = Spmm(64, 32, 48, dtype="f16", pattern="bernoulli:density=0.1,seed=7")
KEY = "spmm 4096,512,4096 NN f16 pattern=bernoulli:density=0.1,seed=0"


def test_the_text_form_names_the_pattern() -> None:
    p = parse(KEY)
    assert isinstance(p, Spmm)
    assert p.key() == KEY
    assert parse("spmm 4096,512,4096 NN f16") == p
    assert from_dict(p.as_dict()) == p
    assert parse("spmm 8,8,8 NN f32 pattern=lognormal:sigma=1.50,density=0.10").key() == (
        "spmm 8,8,8 NN f32 pattern=lognormal:density=0.1,sigma=1.5,seed=0"
    )
    assert (P.flops, P.reduction) == (2 * P.nnz * 32, P.row_lengths.max())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pattern=random", "pattern is 'random'; it must be one of bernoulli:density=…,seed=…"),
        ("pattern=bernoulli:density=2", "density must be from 0 to 1"),
        ("pattern=bernoulli:density=x", "density must be of type float"),
        ("pattern=bernoulli:seed=1", "it must be one of"),
        ("pattern=even:nnz=1,width=2", "it must be one of"),
        ("out=f32", "out is f32; it must be dtype, f16"),
        ("ldb=4", "ldb is 4; it must be from 8, a row's length"),
        ("layout_c=T ldc=4", "ldc is 4; it must be from 8, a column's length"),
        ("layout_c=X", "layout_c is 'X'; it must be one of N, T"),
        ("index=i16", "index is 'i16'; it must be one of i32, i64"),
        ("dense_bytes=-1", "dense_bytes must be an integer"),
        ("aligned_b=1", "aligned_b is 1 bytes; it must be a power of two from 2 to 16"),
        ("epilogue=relu", "epilogue is 'relu'"),
    ],
)
def test_wrong_fields_are_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(f"spmm 8,8,8 NN f16 {text}")
    assert issubclass(ShapeError, InputError)
    assert issubclass(DtypeError, InputError)


def test_the_product_adds_duplicates() -> None:
    p = Spmm(2, 3, 4, pattern="even:nnz=3")
    arrays = arrays_of(p) | {"indptr": np.array([0, 2, 3]), "indices": np.array([1, 1, 0])}
    v, b = arrays["values"].astype(np.float64), arrays["B"].astype(np.float64)
    exact, scale = product(p, arrays)
    np.testing.assert_allclose(exact, [(v[0] + v[1]) * b[1], v[2] * b[0]])
    np.testing.assert_allclose(scale, [(abs(v[0]) + abs(v[1])) * abs(b[1]), abs(v[2] * b[0])])
    np.testing.assert_array_equal(product(p, arrays, slice(1, 2))[0], exact[1:])


def test_families_compute_it() -> None:
    p = lower(P)
    assert p.needs == {"plus_times", "csr", "gathered_rows", "store_tile", "strided_output"}
    assert p.arrays == ("values", "B", "C", "indptr", "indices")
    assert set(p.arrays) == set(P.arrays)
    assert [f.name for f in families(p, H200)] == ["row_split", "shared_slab"]
    with pytest.raises(
        ConfigError, match="family simt lacks sparse matrices in CSR that are not prepared and rows of B"
    ):
        plan_for(P, parse_config("family=simt"), H200)
    with pytest.raises(ConfigError, match="it computes products of a sparse matrix in CSR and a matrix"):
        plan_for(Gemm(16, 16, 16), parse_config("family=row_split"), H200)


@pytest.mark.parametrize(
    ("problem", "config", "message"),
    [
        (P, "vec_b=16", "vec_b=16: a power of two, at most 16 bytes"),
        (replace(P, n=33, ldb=0, ldc=0), "vec_b=2", "no wider than rows of B and C are aligned"),
        (replace(P, aligned_c=4), "vec_b=4", "no wider than rows of B and C are aligned"),
        (P, "row_lanes=4 block_groups=4", "16 threads; a block has whole warps"),
        (P, "row_lanes=64", "row_lanes=64 must be a power of two from 1 to 32"),
        (replace(P, dtype="f16", out="f16", compute="f16"), "", "row_split multiplies f16"),
        (Spmm(8, 1 << 20, 0, pattern="even:nnz=0"), "row_lanes=2 block_groups=16", "a grid has at most 65535"),
        (Spmm(8, 8, 8, dtype="f64", ldb=1 << 30), "", "rows of B must begin less than 4294967296 bytes"),
    ],
)
def test_rules(problem: Spmm, config: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_for(problem, parse_config(f"family=row_split {config}"), H200)


def test_candidates_are_the_legal_rows_of_a_plain_search() -> None:
    for p in (Spmm(64, 32, 5000, dtype="f16"), Spmm(100, 33, 5000), Spmm(9, 64, 5000, dtype="f64")):
        columns = candidates(lower(p), H200)
        family = families(lower(p), H200)[0]
        every = Columns.product(dict(family.axes)).replace(family=family.code)
        threads = every.row_lanes * every.nonzero_groups * every.block_groups
        plain = legal(lower(p), every, H200) & (threads >= 64) & (threads <= 512)
        assert len(columns) == plain.sum() > 20
        assert legal(lower(p), columns.take(np.arange(len(columns))), H200).all()


SLAB = "family=shared_slab tile_k=64"
PREPARED = replace(P, calls=1)


@pytest.mark.parametrize(
    ("problem", "config", "message"),
    [
        (replace(P, n=33, ldb=0, ldc=0), f"{SLAB} vec_b=2", "no wider than rows of B and C are aligned"),
        (replace(P, compute="f16"), SLAB, "shared_slab multiplies f16, bf16, f32 and f64 from sm_80 on"),
        (P, f"{SLAB} slab_columns=512", "slab_columns=512 must be a power of two from 32 to 256"),
        (Spmm(8, 8, 8), f"{SLAB} slab_columns=256", "a warp reads at most 512 bytes of a row of a tile"),
        (P, f"{SLAB} slab_columns=64 block_warps=1", "a thread copies at most one vector of a row"),
        (P, f"{SLAB} slab_columns=32 nonzeros_in_flight=8", "no more than the share of 4 lanes of nonzeros_staged=32"),
        (P, f"{SLAB} nonzeros_in_flight=1", "at least nonzeros_read=2"),
        (Spmm(8, 8, 8, dtype="f64"), SLAB, "a lane reads at most 16 bytes of staged nonzeros, one in f64"),
        (PREPARED, f"{SLAB} tile_buffers=2", "k_tiles=one has one tile"),
        (
            P,
            f"{SLAB} k_tiles=several",
            "k_tiles=several needs a matrix that is prepared .calls=1 or more. and whose columns",
        ),
        (P, "family=shared_slab tile_k=47", "the tile must have all 48 rows of B"),
        (P, "family=shared_slab tile_k=4096", "bytes of shared memory; h200 has 232448 a block"),
        (replace(P, n=1 << 22, m=1, ldb=0, ldc=0), SLAB, "65536 slabs of slab_columns=64; a grid has at most 65535"),
    ],
)
def test_rules_of_shared_slab(problem: Spmm, config: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_for(problem, parse_config(config), H200)


def test_shared_slab_needs_increasing_columns_in_several_tiles() -> None:
    p = lower(PREPARED)
    repeated = p.with_access("values", distinct=False)
    for problem, allowed in ((p, True), (repeated, False)):
        c = parse_config(f"{SLAB} k_tiles=several")
        assert (first_violation(problem, c, H200) is None) == allowed
        assert first_violation(problem, parse_config(SLAB), H200) is None


@pytest.mark.parametrize(("k", "tiles"), [(48, {(64, 0)}), (500, {(512, 0)}), (5000, set())])
def test_one_tile_has_all_rows_of_b_and_is_the_smallest(k: int, tiles: set[tuple[int, int]]) -> None:
    def tiles_of(p: Spmm) -> set[tuple[int, int]]:
        c = candidates(lower(p), H200)
        rows = (c.take(np.array([i])) for i in np.flatnonzero(c.family == FAMILIES["shared_slab"].code))
        return {(int(r.tile_k[0]), int(r.k_tiles[0])) for r in rows}

    p = Spmm(64, 64, k, dtype="f16")
    assert tiles_of(p) == tiles
    several = tiles_of(replace(p, calls=150)) - tiles
    assert all(tile_k < k and count == 1 for tile_k, count in several)
    assert bool(several) == (k > 48)


def test_the_choice_prefers_wide_accesses() -> None:
    best = select(Spmm(4096, 256, 4096, dtype="f16"), H200)[0].config
    assert best.vec_b == 8


def test_features_of_the_pattern() -> None:
    p = Spmm(64, 32, 64, pattern="even:nnz=512")
    c = Columns.of([parse_config("family=row_split")])
    x = dict(zip(all_names(), features(lower(p), c, H200, None, all_names())[0].tolist(), strict=True))
    assert (x["m"], x["n"], x["k"], x["pattern_mean_length"], x["pattern_longest"]) == (6, 5, 6, 3, 3)
    assert (x["pattern_variation"], x["pattern_empty_rows"]) == (0, 0)
    gemm = features(lower(Gemm(16, 16, 16)), Columns.of([parse_config("")]), H200, None, ("pattern_longest",))
    assert gemm.item() == 0


def test_a_kernel_serves_every_pattern_and_shape() -> None:
    config = parse_config("family=row_split vec_b=4")
    other = Spmm(7, 16, 9, dtype="f16", pattern="banded:width=3")
    assert render(plan_for(P, config, H200)).digest == render(plan_for(other, config, H200)).digest


def test_cases_are_legal() -> None:
    assert len({p.dtype for p, _ in SOURCES["spmm"].cases(1, 30, H200)}) == 4


@pytest.mark.parametrize("name", ["select", "emit", "check", "bench", "explain", "tune"])
def test_commands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    words = [name, "spmm", "--shape", "24,16,24", "--dtype", "f16", "--pattern", "even:nnz=90", "--device", "emulated"]
    few = ["--samples", "4", "--search", "1", "--rounds", "1"] if name == "tune" else []
    code = command.run([*words, *few, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    [row] = document.get("rows", [document])
    assert row["problem"]["key"] == "spmm 24,16,24 NN f16 pattern=even:nnz=90,seed=0"
    if name == "tune":
        with Database(tmp_path / "tuning.sqlite") as database:
            assert {(m.outcome, m.config.family) for m in database.measurements()} == {
                ("ok", "row_split"),
                ("ok", "shared_slab"),
            }
            assert select(row_problem(row), device("emulated"), database)[0].origin == "winner"


def row_problem(row: dict[str, dict[str, str]]) -> Spmm:
    p = parse(row["problem"]["key"])
    assert isinstance(p, Spmm)
    return p
