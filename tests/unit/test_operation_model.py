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
from ptxgen.problem.device import device
from ptxgen.tuning.choice.models import model_from
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header, write_measurements

H100 = device("h100")
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
