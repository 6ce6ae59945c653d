"""Figures 6 to 11 of the paper: speeds from documents of bench, those that ship or others."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import documents, paper_figures
from ptxgen.cli.command import run
from ptxgen.cli.report import plain, problem_fields
from ptxgen.problem.suites import cases
from ptxgen.settings import shipped_dir
from ptxgen.tuning.store import paper_files


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A document of an H100 for each command of ``BENCHES``."""
    for name in paper_figures.BENCHES:
        operation, dtype = name.split("-")
        rows = []
        for i, case in enumerate(cases("isaac", operation, dtype=dtype)):
            us = 10.0 + i
            times = {"us": us, "vendor_us": 2 * us, "tflops": case.problem.flops / us * 1e-6}
            rows.append({**problem_fields(case), **times})
        document = {"command": "bench", "device": "h100", "baseline": {"gemm": "cublas", "conv": "cudnn"}[operation]}
        (tmp_path / f"{name}.json").write_text(json.dumps(plain({**document, "rows": rows})))
    return {name: tmp_path / f"{name}.json" for name in paper_figures.BENCHES}


@pytest.mark.parametrize("name", paper_figures.FIGURES)
def test_figures_have_the_problems_of_their_table(
    name: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = paper_figures.FIGURES[name]
    words = [word for d in figure.documents for word in ("--from", str(files[d]))]
    assert run(["paper", name, *words, "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    operation = figure.documents[0].split("-")[0]
    assert [row["name"] for row in rows] == [
        case.name
        for d in figure.documents
        for case in cases("isaac", operation)
        if figure.shown(case.name, d.split("-")[1])
    ]
    assert {row["ratio"] for row in rows} == {"2.0"}
    if name == "figure8":
        pytest.importorskip("matplotlib")
        assert run(["paper", name, *words, "--picture", str(tmp_path / "figure.svg")]) == 0
        assert figure.title in (tmp_path / "figure.svg").read_text()


def test_figure_8_has_the_precisions_of_the_paper(files: dict[str, Path], capsys: Any) -> None:
    words = [word for d in ("gemm-f16", "gemm-f64") for word in ("--from", str(files[d]))]
    assert run(["paper", "figure8", *words, "--csv"]) == 0
    types = {row["name"]: row["dtype"] for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert len(types) == len(list(cases("isaac", "gemm")))
    assert types["LINPACK 512"] == types["DeepBench-B 128"] == "f16"
    assert types["ICA 32"] == types["LAPACK 896"] == "f64"


def test_shipped_times_need_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    assert run(["paper", "figure6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "h200"
    assert run(["paper", "figure11", "--device", "h200"]) == 0
    assert "geometric mean of the ratios, cuDNN best candidate: 1.42" in capsys.readouterr().out
    monkeypatch.setattr(paper_files, "shipped_dir", lambda: tmp_path)
    assert run(["paper", "figure8", "--device", "t4"]) == 2
    error = capsys.readouterr().err
    assert "device is 't4'; no device has shipped times. On such a GPU: python -m ptxgen bench gemm" in error


def test_documents_must_agree(files: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**json.loads(files["gemm-f64"].read_text()), "device": "h200"}))
    assert run(["paper", "figure8", "--from", str(files["gemm-f16"]), "--from", str(other)]) == 2
    assert "the documents are of device h100 and h200; it must be one" in capsys.readouterr().err
    assert run(["paper", "figure7", "--from", str(other), "--device", "h100"]) == 2
    assert "is of device h200; it must be of h100" in capsys.readouterr().err
    assert run(["paper", "figure8", "--from", str(files["gemm-f32"])]) == 2
    assert "has no row of Figure 8" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(shipped_dir().glob("*/paper/*.json")), ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_shipped_documents_are_whole(path: Path) -> None:
    command = documents.load(path)["command"]
    document = documents.read(path, command, device=path.parts[-3])
    assert any(document.get(part) for part in ("rows", "lists", "libraries", "samples", "architectures"))
    names = {"bench": paper_figures.BENCHES, "paper anatomy": ["anatomy"], "paper batchgemm": ["batchgemm"]}
    assert path.stem in names.get(command, ["table2", "table2-200000", "figure5"])
