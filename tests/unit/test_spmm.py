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
from ptxgen.families.common.rules import legal
from ptxgen.families.common.space import candidates, families
from ptxgen.families.plan_factory import plan_for
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
        ("ldb=4", "ldb is 4; it must be from 8"),
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


def test_one_family_computes_it() -> None:
    p = lower(P)
    assert p.needs == {"plus_times", "csr", "gathered_rows", "store_tile", "strided_output"}
    assert p.arrays == ("values", "B", "C", "indptr", "indices")
    assert set(p.arrays) == set(P.arrays)
    assert [f.name for f in families(p, H200)] == ["row_split"]
    with pytest.raises(
        ConfigError, match="family simt lacks sparse matrices in CSR that are not prepared and rows of B"
    ):
        plan_for(P, parse_config("family=simt"), H200)
    with pytest.raises(ConfigError, match="it computes products of a sparse matrix in CSR and a row-major matrix"):
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
    for p in (P, Spmm(100, 33, 7), Spmm(9, 64, 9, dtype="f64")):
        found = candidates(lower(p), H200)
        family = families(lower(p), H200)[0]
        every = Columns.product(dict(family.axes)).replace(family=family.code)
        threads = every.row_lanes * every.nonzero_groups * every.block_groups
        plain = legal(lower(p), every, H200) & (threads >= 64) & (threads <= 512)
        assert len(found) == plain.sum() > 20
        assert legal(lower(p), found.take(np.arange(len(found))), H200).all()


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
            assert {(m.outcome, m.config.family) for m in database.measurements()} == {("ok", "row_split")}
            assert select(row_problem(row), device("emulated"), database)[0].origin == "winner"


def row_problem(row: dict[str, dict[str, str]]) -> Spmm:
    p = parse(row["problem"]["key"])
    assert isinstance(p, Spmm)
    return p
