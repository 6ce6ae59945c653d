"""Random sparse products: kinds of matrices, limits, groups that share kernels, a run of ``collect``."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import command
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.random_problems import NONZEROS, RANDOM_PROBLEMS
from ptxgen.problem.registry import parse
from ptxgen.tuning.collect.problem_groups import groups, kernel_class
from ptxgen.tuning.draws import Limits
from ptxgen.tuning.problem_generator import ProblemGenerator, generators
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import from_dict
from ptxgen.tuning.store.tuning_files import Header, read_measurements, write_measurements

GENERATORS = {
    "spmm_layer": {"bernoulli", "lognormal", "blocky"},
    "spmm_graph": {"rmat", "attachment", "communities", "uniform"},
    "spmm_mesh": {"poisson3d", "banded"},
    "spmm_skewed": {"zipf"},
}


def test_default_mixtures_have_no_sparse_products() -> None:
    assert set(RANDOM_PROBLEMS) == set(GENERATORS) <= set(generators())
    assert not any(isinstance(p, Spmm) for p in islice(ProblemGenerator(0), 100))


@pytest.mark.parametrize("generator", GENERATORS)
def test_kinds_have_their_generators(generator: str) -> None:
    drawn: list[Any] = list(islice(ProblemGenerator(3, {generator: 1}, limits=Limits(2048)), 60))
    assert {p.pattern.partition(":")[0] for p in drawn} == GENERATORS[generator]
    assert {p.dtype for p in drawn} == {"f16", "bf16", "f32", "f64"}
    assert {p.calls for p in drawn} == {0, 1000}
    assert len({p.n for p in drawn}) > 10
    assert {16, 64, 128} & {p.n for p in drawn}
    assert min(p.m for p in drawn) < 2000
    assert max(p.m for p in drawn) > 2048
    assert len({p.pattern for p in drawn}) == 60
    assert all(p.n <= 512 and p.m <= 32 * 2048 and 0 < p.nnz <= NONZEROS / 4 * 1.3 for p in drawn)
    assert all(parse(p.key()) == p for p in drawn)


@pytest.mark.parametrize("name", GENERATORS)
def test_groups_share_kernels_and_some_share_the_matrix(name: str) -> None:
    generator, matrices = ProblemGenerator(2, {name: 1}, limits=Limits(512), group=6), []
    for first in range(0, 30, 6):
        group: list[Any] = [generator.problem(first + i) for i in range(6)]
        assert len(set(group)) == 6
        assert len({kernel_class(p) for p in group}) == 1
        matrices.append(len({p.pattern for p in group}))
    assert max(matrices) > 2
    assert min(matrices) < 6


def test_the_kernel_class_has_types_alignment_and_preparation() -> None:
    p = Spmm(64, 32, 64, dtype="f16", pattern="banded:width=3")
    same = Spmm(512, 128, 300, dtype="f16", pattern="even:nnz=7")
    assert kernel_class(p) == kernel_class(same)
    others = [Spmm(64, 32, 64, dtype="bf16"), Spmm(64, 33, 64, dtype="f16"), Spmm(64, 32, 64, dtype="f16", calls=1000)]
    assert len({kernel_class(x) for x in (p, *others)}) == 4
    assert [len(g) for g in groups([p, *others, same], 4)] == [2, 1, 1, 1]


@pytest.mark.parametrize("generator", GENERATORS)
def test_small_limits_bound_the_problems(generator: str) -> None:
    limits = Limits(32, 1 << 20, 1 << 18)  # those of the emulated device
    drawn: list[Any] = list(islice(ProblemGenerator(4, {generator: 1}, limits=limits), 40))
    assert all(limits.admits(p) and p.n <= 32 and p.m <= 1024 for p in drawn)


def test_collect_measures_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    path = tmp_path / "tuning.sqlite"
    mixture = ",".join(GENERATORS)
    words = ["collect", "--database", str(path), "--problems", "4", "--mixture", mixture, "--dtypes", "f16,f32"]
    code = command.run([*words, "--configurations", "2", "--jobs", "1", "--group", "4", "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    assert document["problems"] == 4
    assert set(document["outcomes"]) == {"ok"}
    with Database(path, readonly=True) as database:
        rows = list(database.measurements())
    assert all(isinstance(m.problem, Spmm) and m.operands == m.problem.operands_digest != "" for m in rows)
    assert [from_dict(m.as_dict()).operands for m in rows] == [m.operands for m in rows]
    files = tmp_path / "measurements.jsonl.xz"
    write_measurements(files, Header("emulated", "model"), rows)
    assert {m.operands for m in read_measurements(files)[1]} == {m.operands for m in rows}
