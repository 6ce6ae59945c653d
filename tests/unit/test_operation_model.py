"""A model of one operation, which predicts its problems beside the model of all others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxgen.cli import command
from ptxgen.codegen.config.config import Columns, parse_config
from ptxgen.families.common.features import operation_names_of
from ptxgen.families.common.space import candidates
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device, device
from ptxgen.problem.operation import operation_names
from ptxgen.tuning.choice import models
from ptxgen.tuning.choice.models import model_from
from ptxgen.tuning.model import model_files
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header, write_measurements

H100 = device("h100")
DENSE = Spmm(512, 64, 512, dtype="f16", pattern="bernoulli:density=0.5", calls=1000)
MAX_PLUS = "where (i, j) { reduce (k) { accum = max(accum, A[i,k] + B[k,j]); } C[i,j] = accum; }"
P = Spmm(4096, 64, 4096, dtype="f16", pattern="bernoulli:density=0.02", calls=1000)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements in which configurations with two lanes a row are a hundred times faster."""
    folder = tmp_path_factory.mktemp("shipped")
    rows, environment = [], Environment("h100", "hardware")
    for n in (16, 32, 64, 128):
        p = Spmm(4096, n, 4096, dtype="f16", pattern="bernoulli:density=0.02", calls=1000)
        every = candidates(lower(p), H100)
        picked = np.random.default_rng(n).choice(len(every), 300, replace=False)
        configs = [c for c in (every.row(int(i)) for i in picked) if c.family == "row_split"]
        rows += [Measurement(p, c, "ok", environment, (1.0 if c.row_lanes == 2 else 100.0 + n,)) for c in configs]
    write_measurements(folder / "h100" / "spmm" / tuning_files.MEASUREMENTS, Header("h100", "hardware"), rows)
    return folder


def test_it_reads_all_axes_of_its_families() -> None:
    names = operation_names_of("spmm", {"row_split"})
    assert {"row_lanes", "nonzero_groups", "row_order", "pattern_mean_length"} <= set(names)
    assert "strip_results" not in names


def test_it_predicts_the_problems_of_its_operation(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["model", "train", "--device", "h100", "--operation", "spmm", "--folder", str(shipped)]
    assert command.run([*words, "--out", str(tmp_path), "--target", "time", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["file"]) == tmp_path / "h100" / "spmm" / tuning_files.MODEL
    before = model_from(H100, None)
    assert set(before.parts) == {"spmm", "task"}  # shipped
    model = before.with_parts({"spmm": Model.load(Path(document["file"]).parent)})
    gemm = Gemm(512, 512, 512, dtype="f16")
    configs = Columns.of([c.config for c in select(gemm, H100, k=4)])
    np.testing.assert_array_equal(model.predict(gemm, configs), before.predict(gemm, configs))
    two, four = (
        model.predict(P, Columns.of([parse_config(f"family=row_split row_lanes={n} block_groups=32 vec_b=8")]))
        for n in (2, 4)
    )
    assert two < four / 10


def test_choices_read_the_models_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def model_of(device: Device, own: Path | None, operation: str) -> Model | None:
        read.append(operation)
        return by_operation.get(operation)

    every = model_from(H100, None)
    by_operation = {"": every.with_parts({}), **every.parts}
    monkeypatch.setattr(models, "_model_of", model_of)
    monkeypatch.setattr(model_files, "_made_arrays", [])
    for problem, needs in (
        (Gemm(64, 64, 64), {"gemm", ""}),
        (Task(64, 64, 64, text=MAX_PLUS), {"task"}),
        (Task(64, 64, 64), {"task"}),
        (P, {"spmm"}),
        (DENSE, {"spmm", ""}),  # the GEMM of the dense matrix is a form of it
    ):
        read.clear()
        model = models.model_of_problem(problem, H100, None)
        assert set(read) == needs
        assert model.search(problem, k=3) == every.search(problem, k=3)
        configs = Columns.of([config for config, _ in model.rank(problem, k=3)])
        np.testing.assert_array_equal(model.predict(problem, configs), every.predict(problem, configs))
    monkeypatch.setattr(model_files, "_made_arrays", [Path()])
    read.clear()
    models.model_of_problem(Gemm(64, 64, 64), H100, None)
    assert set(read) == {"", *operation_names()}  # one was not in the disk cache
