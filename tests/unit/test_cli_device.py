"""The option --device: targets, files, and notes on choices that are extrapolated from another GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxgen.cli.command import run
from ptxgen.cli.report import extrapolation_notes

SHAPE = ["gemm", "--shape", "512,384,256", "--dtype", "f16"]
CONFIG = "cp_async_a=0 cp_async_b=0"
OF_H200 = "extrapolated from measurements of h200, not measured on a100"


def notes(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("note: ")]


@pytest.fixture
def described(tmp_path: Path) -> str:
    path = tmp_path / "h20.json"
    path.write_text(json.dumps({"name": "h20", "sm": 90, "sms": 78, "bandwidth": 4000}))
    return str(path)


def test_select_says_what_is_extrapolated(capsys: pytest.CaptureFixture[str], described: str) -> None:
    assert run(["select", *SHAPE, "--device", "a100"]) == 0
    out, err = capsys.readouterr()
    assert OF_H200 in out.splitlines()
    assert notes(err) == []
    assert run(["select", *SHAPE, "--device", "h200"]) == 0
    assert "extrapolated" not in capsys.readouterr().out
    assert run(["select", *SHAPE, "--device", described]) == 0
    assert "not measured on h20" in capsys.readouterr().out


def test_emit_says_it_on_standard_error(capsys: pytest.CaptureFixture[str], described: str) -> None:
    assert run(["emit", *SHAPE, "--device", "a100"]) == 0
    out, err = capsys.readouterr()
    assert notes(err) == [f"note: the configuration is {OF_H200}"]
    assert ".target sm_80" in out
    assert run(["emit", *SHAPE, "--device", "h200"]) == 0
    assert notes(capsys.readouterr().err) == []
    assert run(["emit", *SHAPE, "--device", "a100", "--config", CONFIG]) == 0
    assert notes(capsys.readouterr().err) == []  # the user's choice
    assert run(["emit", *SHAPE, "--device", described]) == 0
    assert "--device h20.json --config" in capsys.readouterr().out


def test_export_says_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["export", *SHAPE, "--device", "a100", "--folder", str(tmp_path / "out")]
    assert run(words) == 0
    assert OF_H200 in capsys.readouterr().out.splitlines()
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [OF_H200]
    [problem] = json.loads((tmp_path / "out" / "manifest.json").read_text())["problems"]
    assert problem["source"] == "model (h200)"


def test_a_target_is_a_device_and_a_note_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emit", *SHAPE, "--device", "sm_90a", "--config", CONFIG]) == 0
    of_target, err = capsys.readouterr()
    [line] = notes(err)
    assert line.startswith("note: sm_90a is taken for the h200 (132 multiprocessors, 1980 MHz, 4800 GB/s)")
    assert run(["emit", *SHAPE, "--device", "h200", "--config", CONFIG]) == 0
    of_device, err = capsys.readouterr()
    assert (of_device, notes(err)) == (of_target, [])


def test_report_takes_every_form_of_a_device(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, described: str
) -> None:
    pytest.importorskip("matplotlib")
    for device, name in ((described, "h20"), ("sm_75", "t4")):
        assert run(["report", "--device", device, "--no-history", "--out", str(tmp_path / "out.html"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["device"] == name


def test_notes_count_the_configurations() -> None:
    sources = [("model", "h200"), ("shipped", ""), ("shipped", "h100"), ("model", "h200"), ("analytic", "")]
    assert extrapolation_notes("x", sources) == [
        "1 of 5 configurations: predicted by the performance model, without measurements of any GPU",
        "1 of 5 configurations: extrapolated from measurements of h100, not measured on x",
        "2 of 5 configurations: extrapolated from measurements of h200, not measured on x",
    ]
    assert extrapolation_notes("emulated", [("analytic", "")]) == []
    assert extrapolation_notes("x", [("winner", ""), ("model", "")]) == []
