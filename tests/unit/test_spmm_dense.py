"""The product of the dense matrix as a form of a sparse product: kernel problem, kernels, features, choice, commands."""

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
from ptxgen.errors import ConfigError, ShapeError
from ptxgen.families.common import perf_model, space
from ptxgen.families.common.features import features
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.dense_matrix import DenseMatrix
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.selection import select
from ptxgen.tuning.store.database import Database

H200 = device("h200")
P = Spmm(512, 64, 510, dtype="f16", pattern="bernoulli:density=0.3", calls=1000, ldb=72)
G = Gemm(512, 64, 510, "NN", "f16", lda=512, ldb=72, deterministic=True)
GEMMS = {"simt", "mma", "wgmma", "skinny"}
ROW = parse_config("family=row_split row_lanes=8 vec_b=8")
WGMMA = parse_config("family=wgmma ml=64 nl=64 u=64 kg=1 stages=4 epilogue_smem=1 transposed_mma=1")


def dense(p: Spmm) -> KernelProblem | None:
    forms = lower(p).forms
    return forms[0] if forms else None


def test_the_form_is_the_problem_of_a_gemm() -> None:
    form = dense(P)
    assert form == lower(G)
    assert form is not None
    assert form.operand("A").prepared == DenseMatrix(2)
    source, gemm = (render(plan_for(p, WGMMA, H200)) for p in (P, G))
    assert source.digest == gemm.digest
    assert "// prepared a sparse matrix in CSR as a dense row-major matrix" in source.text


def test_the_header_repeats_the_problem() -> None:
    plan = plan_for(replace(P, dense_bytes=1 << 20), WGMMA, H200)
    options = "--pattern bernoulli:density=0.3,seed=0 --calls 1000 --dense-bytes 1048576"
    assert f"emit spmm --shape 512,64,510 --layout NN --dtype f16 {options} --device h200" in plan.command


@pytest.mark.parametrize(
    ("change", "has"),
    [
        ({}, True),
        ({"calls": 1}, True),
        ({"calls": 0}, False),
        ({"exact_nonfinite": True}, False),
        ({"pattern": "even:nnz=80000"}, False),  # columns repeat
        ({"pattern": "bernoulli:density=0.03"}, True),
        ({"pattern": "bernoulli:density=0.025"}, False),
        ({"pattern": "bernoulli:density=0.025", "dense_bytes": 512 * 512 * 2}, True),
        ({"dense_bytes": 512 * 512 * 2 - 1}, False),
        ({"dense_bytes": 0}, False),
        ({"dtype": "f32", "pattern": "bernoulli:density=0.033"}, True),
        ({"dtype": "f32", "pattern": "bernoulli:density=0.028"}, False),
        ({"dtype": "f64", "pattern": "bernoulli:density=0.043"}, True),
        ({"dtype": "f64", "pattern": "bernoulli:density=0.04"}, False),
    ],
    ids=str,
)
def test_the_form_needs_calls_and_memory(change: dict[str, object], has: bool) -> None:
    fields = {"compute": "", "out": "", **change} if "dtype" in change else change
    assert (dense(replace(P, **fields)) is not None) == has  # type: ignore[arg-type]


def test_dense_bytes_is_checked() -> None:
    with pytest.raises(ShapeError, match=r"dense_bytes is -2; it must be"):
        replace(P, dense_bytes=-2)
    assert parse(replace(P, dense_bytes=12345).key()).key().endswith("dense_bytes=12345")


def test_a_family_without_the_form_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"family wgmma lacks .*sparse matrices in CSR that are not prepared"):
        plan_for(replace(P, calls=0), WGMMA, H200)
    assert {f.name for f in space.families(lower(P), H200)} >= {"simt", "mma", "wgmma", "row_split"}


# ---- what the model reads


def test_features_and_bounds_are_those_of_each_problem() -> None:
    """Kernels of the dense matrix have those of the GEMM; others have those of the sparse product."""
    p, g = lower(P), lower(G)
    c = Columns.of([WGMMA, WGMMA.replace(stages=6)])
    np.testing.assert_array_equal(features(p, c, H200), features(g, c, H200))
    row = Columns.of([ROW])
    sparse = lower(replace(P, calls=0))
    np.testing.assert_array_equal(features(p, row, H200), features(sparse, row, H200))
    both = Columns.of([ROW, WGMMA])
    np.testing.assert_array_equal(
        features(p, both, H200), np.vstack([features(sparse, row, H200), features(g, c, H200)[:1]])
    )
    expected = [perf_model.least_us(sparse, H200), perf_model.least_us(g, H200)]
    assert perf_model.least_us_of(p, both, H200).tolist() == pytest.approx(expected)
    candidates = space.candidates(p, H200)
    some = candidates.take(np.arange(0, len(candidates), 997))
    plain = Columns.of([some.row(i) for i in range(len(some))])
    np.testing.assert_array_equal(features(p, some, H200), features(p, plain, H200))
    np.testing.assert_array_equal(perf_model.least_us_of(p, some, H200), perf_model.least_us_of(p, plain, H200))


def test_the_ranking_has_the_times_of_gemms_and_of_the_performance_model() -> None:
    """Trees that saw GEMMs rank kernels of the dense matrix as those of the GEMM. The factor by which they correct the
    performance model there does not hold for kernels of the sparse matrix."""
    p = Spmm(2048, 64, 2048, dtype="f16", pattern="bernoulli:density=0.01", calls=1000, dense_bytes=1 << 23)
    gemm = model_for(H200).search(Gemm(2048, 64, 2048, "NN", "f16", deterministic=True), H200, 20)
    model = model_for(H200).with_parts({})
    ranked = model.search(p, H200, 100_000)
    tiles = [x for x in ranked.best if x[0].family in GEMMS][:20]
    assert [us for _, us in tiles] == pytest.approx([us for _, us in gemm.best], rel=1e-5)
    assert [c for c, _ in tiles[:1]] == [c for c, _ in gemm.best[:1]]
    rows = [x for x in ranked.best if x[0].family not in GEMMS]
    assert rows
    assert [us for _, us in rows] == pytest.approx(
        perf_model.predict(lower(p), Columns.of([c for c, _ in rows]), H200).tolist()
    )
    assert model.predict(p, Columns.of([ROW]))[0] == pytest.approx(perf_model.predict(lower(p), ROW, H200))


def test_density_decides_between_formats() -> None:
    families = {
        density: select(
            Spmm(4096, 512, 4096, dtype="f16", pattern=f"bernoulli:density={density}", calls=1000, dense_bytes=1 << 30),
            H200,
        )[0].config.family
        for density in (0.5, 0.002)
    }
    assert families[0.5] == "wgmma"
    assert families[0.002] not in GEMMS


# ---- commands

TILE = "family=mma ms=16 ns=16 ml=32 nl=32 u=32 vec_a=8 vec_b=8"


@pytest.mark.parametrize("name", ["select", "emit", "check", "bench", "explain", "tune"])
def test_commands_take_problems_with_calls(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    words = [name, "spmm", "--shape", "32,24,40", "--dtype", "f16", "--pattern", "bernoulli:density=0.4"]
    words += ["--calls", "1000", "--device", "emulated", "--json"]
    words += ["--samples", "6", "--search", "3", "--rounds", "1"] if name == "tune" else []
    words += ["--config", TILE] if name in ("emit", "check", "bench") else []
    code = command.run(words)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    [row] = document.get("rows", [document])
    key = "spmm 32,24,40 NN f16 pattern=bernoulli:density=0.4,seed=0 calls=1000"
    assert row["problem"]["key"] == key
    if name == "tune":
        with Database(tmp_path / "tuning.sqlite") as database:
            rows = list(database.measurements())
            assert {m.outcome for m in rows} == {"ok"}
            assert len({m.config.family for m in rows}) > 1
            assert select(parse(key), device("emulated"), database)[0].origin == "winner"
