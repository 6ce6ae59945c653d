"""Tables and figures of the paper: from documents of commands, as text, CSV and pictures."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import documents, model, paper_tables, pictures, problems
from ptxgen.cli.command import Answer, run
from ptxgen.cli.report import config_fields, plain, problem_fields
from ptxgen.cli.tables import text_of
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError, UnavailableError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.suites import cases
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.measurement import Environment, Measurement

CONFIG = {"family": "simt", "ms": 8, "ns": 4, "ml": 64, "nl": 32, "u": 8, "ks": 1, "kl": 1, "kg": 1}


def bench_document(operation: str, vendor: str, layout: str = "") -> dict[str, Any]:
    rows = []
    for i, case in enumerate(cases("isaac", operation, **({"layout": layout} if layout else {}))):
        us, known = 10.0 + i, {"vendor_us": 20.0 + 2 * i, "vendor_first_us": 40.0 + 4 * i}
        times = {"us": us, **known, "tflops": case.problem.flops / us * 1e-6, "note": ""}
        rows.append({**problem_fields(case), **times, "config": {**_axes(), **CONFIG}, "origin": "shipped"})
    return plain({"command": "bench", "device": "h200", "baseline": vendor, "rows": rows})


def _axes() -> dict[str, Any]:
    return parse_config("ms=8 ns=4 ml=64 nl=32 u=8").values()


def regressor(hidden: tuple[int, ...], samples: int, mse: float) -> dict[str, Any]:
    return {"hidden": list(hidden), "weights": 100 * len(hidden), "samples": samples, "mse": mse, "first": 0.9}


EVALUATION = {
    "command": "model evaluate",
    "device": "h200",
    "architectures": [*(regressor(h, 1000, 0.1) for h in paper_tables.TABLE_2), regressor((), 1000, 0.05)],
    "samples": [regressor((), 500, 0.2), regressor((), 1000, 0.1), regressor((64, 32), 1000, 0.3)],
}
GEMM_CASES = list(cases("isaac", "gemm"))
SAMPLERS = {
    "command": "sampler",
    "device": "h200",
    "rows": [
        {**problem_fields(case), "samplers": [{"sampler": s, "acceptance": a} for s, a in legal.items()]}
        for case, legal in (
            (GEMM_CASES[0], {"categorical": 0.2, "uniform": 0.002}),
            (GEMM_CASES[1], {"categorical": 0.1, "uniform": 0.004}),
            (next(iter(cases("isaac", "conv"))), {"categorical": 0.3, "uniform": 0.0}),
        )
    ],
}
DOCUMENTS = {
    "table1": SAMPLERS,
    "table2": EVALUATION,
    "figure5": EVALUATION,
    "table4": bench_document("gemm", "cublas"),
    "table5": bench_document("conv", "cudnn"),
    "table6": bench_document("gemm", "cublas"),
}


def split_time(splits: str, us: float, text: str) -> dict[str, Any]:
    return {"splits": splits, "us": us, "measured": 3, **config_fields(parse_config(text))}


DOCUMENTS["splitting"] = {
    "command": "paper splitting",
    "device": "h200",
    "rows": [
        {
            **problem_fields(GEMM_CASES[0]),
            "splits": [
                split_time("none", 12.0, "family=simt"),
                split_time("kg", 6.0, "family=simt kg=4"),
                split_time("all", 4.0, "family=simt kg=2 kl=2"),
            ],
        },
        {**problem_fields(GEMM_CASES[1]), "splits": [split_time("all", 5.0, "family=simt ks=2")]},
        {**problem_fields(GEMM_CASES[2]), "splits": []},
    ],
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    for name, document in DOCUMENTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return {name: tmp_path / f"{name}.json" for name in DOCUMENTS}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_text_and_csv_have_the_same_rows(name: str, files: dict[str, Path], capsys: Any) -> None:
    assert run(["paper", name, "--from", str(files[name])]) == 0
    text = capsys.readouterr().out
    assert run(["paper", name, "--from", str(files[name]), "--csv"]) == 0
    table = paper_tables.TABLES[name](DOCUMENTS[name])
    [head, *rows] = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert head == list(table.titles)
    assert len(rows) == len(table.rows) == sum(row[0] in text for row in rows)
    assert run(["paper", name, "--from", str(files[name]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plain(documents.read(files[name], DOCUMENTS[name]["command"]))


@pytest.mark.each_value
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("ending", pictures.FORMATS)
def test_pictures_are_drawn(name: str, ending: str, files: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"picture{ending}"
    assert run(["paper", name, "--from", str(files[name]), "--picture", str(picture)]) == 0
    magic = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert picture.read_bytes().startswith(magic[ending])


def test_table_1_has_the_means_of_each_operation() -> None:
    gemm, conv = paper_tables.table1(SAMPLERS).rows
    assert gemm == ["gemm", 2, "15.000%", "0.300%", "20.0%", "0.1%"]
    assert conv[:4] == ["conv", 1, "30.000%", "0.000%"]


def test_speeds_are_of_ptxgen_the_best_candidate_and_the_heuristic() -> None:
    table = paper_tables.table4(DOCUMENTS["table4"])
    first = dict(zip(table.titles, table.rows[0], strict=True))
    us = 10.0
    flops = 2 * 512**3
    assert first["name"] == "LINPACK 512"
    assert first["ptxgen"] == pytest.approx(flops / us * 1e-6)
    assert first["cuBLASLt best candidate"] == pytest.approx(first["ptxgen"] / 2)
    assert first["cuBLASLt heuristic"] == pytest.approx(first["ptxgen"] / 4)
    assert (first["ratio"], first["ratio to heuristic"]) == pytest.approx((2, 4))
    assert table.notes[-1] == "geometric mean of the ratios, cuBLASLt heuristic: 4.00"


def test_row_without_a_vendors_time_is_empty() -> None:
    document = bench_document("gemm", "cublas")
    document["rows"] = document["rows"][:1]
    document["rows"][0].update(vendor_us=None, vendor_first_us=None, note="no algorithm")
    table = paper_tables.table4(document)
    assert table.rows[0][-3:] == [None, None, "no algorithm"]
    assert list(table.chart.series) == ["ptxgen", "cuBLASLt best candidate"]
    assert "nan" not in text_of(table.parts)


def test_table_2_has_the_errors_without_logarithms() -> None:
    first = {**regressor((64,), 500, 0.1), "plain_mse": 0.25, "seeds": 3, "mse_deviation": 0.004}
    regressors = [first, regressor((64, 128, 256, 128, 64), 500, 0.1), regressor((), 500, 0.1)]
    table = paper_tables.table2({**EVALUATION, "architectures": regressors})
    assert table.titles[-4:] == ("±", "MSE, no log", "paper", "paper, no log")
    last = [["0.0040", "0.250", "0.170", "1.200"], [None, None, "0.067", None], [None] * 4]
    assert [row[-4:] for row in table.rows] == last
    assert "means over 3 seeds; ±: standard deviation of the MSE" in table.notes


def test_table_6_has_the_problems_and_axes_of_the_paper() -> None:
    table = paper_tables.table6(DOCUMENTS["table6"])
    assert tuple(row[0] for row in table.rows) == tuple(sorted(paper_tables.TABLE_6, key=_order))
    assert table.titles[2:11] == ("M_S", "N_S", "M_L", "N_L", "U", "K_S", "K_L", "K_G", "paper")


def test_table_6_is_column_major_beside_the_paper() -> None:
    """The configuration is ms=8 ns=4 ml=64 nl=32 of the row-major product."""
    table = paper_tables.table6(DOCUMENTS["table6"])
    assert table.rows[0][2:11] == [4, 8, 32, 64, 8, 1, 1, 1, "2 8 32 32 8 1 1 1"]
    assert table.chart.cells[:2] == [[4, 8, 32, 64, 8, 1, 1, 1], [2, 8, 32, 32, 8, 1, 1, 1]]
    assert table.chart.labels[:2] == ["LINPACK 512", "in the paper"]


def test_gains_are_of_measured_configurations_alone() -> None:
    table = paper_tables.splitting(DOCUMENTS["splitting"])
    first, second, third = (dict(zip(table.titles, row, strict=True)) for row in table.rows)
    assert [first[t] for t in ("none µs", "K_G µs", "all µs", "gain K_G", "gain all")] == [12, 6, 4, 2, 3]
    assert (first["fastest"], second["fastest"], third["fastest"]) == ("1 2 2", "2 1 1", "")
    assert [t for t in table.titles if second[t] != second[t]] == ["none µs", "K_G µs", "gain K_G", "gain all"]
    [line] = [line for line in text_of(table.parts, 80).splitlines() if line.startswith("LINPACK 2048")]
    assert line.split()[2:] == ["-"] * 5
    assert table.notes[-1] == "geometric mean of the gains, K_S, K_L and K_G: 3.00"


def test_splitting_reads_the_shipped_measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    first, other = GEMM_CASES[0].problem, Gemm(64, 64, 64)
    environment = Environment("h200", "hardware", "cuda 13.0", "13.0.88", "graph", "abc")

    def row(problem: Any, config: str, us: float, created: float = 1.0, outcome: str = "ok") -> Measurement:
        samples = (us,) if outcome == "ok" else ()
        return Measurement(problem, parse_config(config), outcome, environment, samples, created=created)

    rows = [
        row(first, "family=simt", 70.0),
        row(first, "family=simt", 90.0, created=2.0),
        row(first, "family=simt ms=2", 80.0),
        row(first, "family=simt kl=2", 60.0),
        row(first, "family=simt ks=2", 50.0, outcome="wrong_result"),
        row(other, "family=simt kg=2", 40.0),
    ]
    header = tuning_files.Header("h200", "hardware", "abc", "tune", "2026-01-31")
    tuning_files.write_measurements(tmp_path / "h200" / "measurements.jsonl.xz", header, rows)
    monkeypatch.setattr(tuning_files, "shipped_dir", lambda: tmp_path)
    assert run(["paper", "splitting", "--json"]) == 0
    [measured, *others] = json.loads(capsys.readouterr().out)["rows"]
    splits = [(s["splits"], s["us"], s["measured"], s["config"]["kl"]) for s in measured["splits"]]
    assert splits == [("none", 80.0, 2, 1), ("kg", 80.0, 2, 1), ("all", 60.0, 3, 2)]
    assert not any(r["splits"] for r in others)
    assert run(["paper", "splitting", "--device", "h100"]) == 2
    assert "device is 'h100'; it must be one with measurements: h200" in capsys.readouterr().err


def _order(name: str) -> int:
    return [case.name for case in cases("isaac", "gemm")].index(name)


@pytest.mark.parametrize("name", ["table4", "table5"])
def test_speeds_need_a_gpu(name: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert run(["paper", name]) == 3
    error = capsys.readouterr().err
    assert "needs an NVIDIA GPU" in error
    assert "--from FILE" in error


@pytest.mark.parametrize(
    ("name", "replaced", "operations"),
    [
        ("table1", (problems, "sampler"), ["gemm", "conv"]),
        ("table6", (problems, "select"), ["gemm"]),
    ],
)
def test_without_a_file_a_command_runs_on_the_suites(
    name: str, replaced: Any, operations: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    seen = []

    def answer(target: Any, *_: Any) -> Answer:
        seen.append((target.operation, target.suite, target.device))
        return Answer(DOCUMENTS[name], "")

    monkeypatch.setattr(*replaced, answer)
    assert run(["paper", name, "--device", "h200"]) == 0
    assert seen == [(operation, "isaac", "h200") for operation in operations]
    assert capsys.readouterr().out


def test_figure_5_compares_curves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def compare_sample_curves(*arguments: Any) -> Answer:
        seen.append(arguments)
        return Answer(EVALUATION, "")

    monkeypatch.setattr(model, "compare_sample_curves", compare_sample_curves)
    assert run(["paper", "figure5"]) == 0
    assert run(["paper", "figure5", "--samples", "77", "--no-perceptron", "--device", "h100"]) == 0
    assert seen == [("h200", 4, "clock", None, True, 1), ("h100", 4, "clock", 77, False, 1)]


def test_table_2_compares_regressors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def compare_regressors(*arguments: Any) -> Answer:
        seen.append(arguments)
        return Answer(EVALUATION, "")

    monkeypatch.setattr(model, "compare_regressors", compare_regressors)
    assert run(["paper", "table2", "--perceptrons", "77", "--folds", "3", "--seeds", "2", "--jobs", "5"]) == 0
    assert seen == [("h200", 3, "clock", 77, 2, 5)]


def test_other_documents_are_errors(files: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    assert run(["paper", "table4", "--from", str(files["table2"])]) == 2
    assert "must be the output of bench --json" in capsys.readouterr().err
    (tmp_path / "less.json").write_text(json.dumps({**EVALUATION, "architectures": []}))
    assert run(["paper", "table2", "--from", str(tmp_path / "less.json")]) == 2
    assert "use model evaluate --perceptrons" in capsys.readouterr().err
    (tmp_path / "text.json").write_text("no JSON")
    assert run(["paper", "table1", "--from", str(tmp_path / "text.json")]) == 2
    assert "is not a JSON document" in capsys.readouterr().err


def test_device_must_be_that_of_the_document(files: dict[str, Path], capsys: Any) -> None:
    words = ["paper", "table4", "--from", str(files["table4"]), "--device"]
    own = DOCUMENTS["table4"]["device"]
    assert run([*words, own]) == 0
    assert run([*words, "t4"]) == 2
    assert f"is of {own}" in capsys.readouterr().err
    assert run(["paper", "table4", "--device", "emulated"]) == 3


def test_picture_of_another_format_is_an_error() -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg, \.pdf"):
        pictures.require(Path("picture.jpg"))


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnavailableError, match=r"ptxgen\[pictures\]"):
        pictures.require(Path("picture.png"))
