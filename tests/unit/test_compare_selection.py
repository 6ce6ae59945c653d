"""scripts/compare-selection: records of one checkout are equal, and differences are reported."""

from __future__ import annotations

import json

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.registry import parse
from tests.scripts import script as load

script = load("compare-selection")

ROW = {
    "problem": "gemm 1,1,1 NN f32",
    "config": str(parse_config("ms=8 kg=1")),
    "origin": "model",
    "us": 2.5,
    "ms": 4.0,
}


def test_problems_are_distinct_reproducible_and_of_all_kinds():
    drawn = list(script.problems(300, 1))
    assert len(set(drawn)) == 300
    assert drawn[:40] == list(script.problems(40, 1))
    assert drawn != list(script.problems(300, 2))
    parsed = [parse(text) for text in drawn]
    assert {p.dtype for p in parsed} == {t[0] for t in script.TYPES}
    assert {p.layout for p in parsed} >= {"NN", "NT", "TN", "TT", "NHWC", "NCHW", "CHWN"}
    assert 20 < sum(isinstance(p, Conv) for p in parsed) < 80
    extents = [p.m for p in parsed if not isinstance(p, Conv)]
    assert min(extents) < 10
    assert max(extents) > 4000


def test_records_of_one_checkout_are_equal(tmp_path, capsys):
    first, second = tmp_path / "first.jsonl.xz", tmp_path / "second.jsonl"
    assert script.main(["record", "--out", str(first), "--count", "3"]) == 0
    assert script.main(["record", "--out", str(second), "--cases", str(first)]) == 0
    assert script.main(["compare", str(first), str(second)]) == 0
    assert "3 problems in both, 0 differ (in nothing)" in capsys.readouterr().out
    assert all(row["config"] and row["us"] > 0 for row in map(json.loads, second.read_text().splitlines()[1:]))


def test_interrupted_run_continues(tmp_path, monkeypatch, capsys):
    asked, interrupt = [], iter([False, True, *[False] * 9])

    def selected(problem, device):
        if next(interrupt):
            raise KeyboardInterrupt
        asked.append(problem)
        return {"config": "ms=8", "origin": "model", "us": 1.0, "ms": 1.0}

    monkeypatch.setattr(script, "selected", selected)
    words = ["record", "--out", str(tmp_path / "out.jsonl"), "--count", "3"]
    with pytest.raises(KeyboardInterrupt):
        script.main(words)
    part = tmp_path / "out.jsonl.part"
    part.write_text(part.read_text() + '{"problem": "cut')
    assert script.main(words) == 0
    assert asked == list(script.problems(3, 0))
    assert list(script.read(tmp_path / "out.jsonl")[1]) == asked
    assert not part.exists()
    capsys.readouterr()


def test_problem_without_a_kernel_becomes_an_error_row():
    assert "error" in script.selected("gemm 4,4,4 NN nosuchtype", "h200")


def written(path, *rows):
    path.write_text("\n".join(json.dumps(r) for r in ({"commit": "c"}, *rows)) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"ms": 8.0}, 0, "median ratio 2.00"),
        ({"us": 2.5000001}, 0, "0 differ"),
        ({"us": 2.6}, 1, "us 2.5 -> 2.6"),
        ({"us": None}, 1, "us 2.5 -> None"),
        ({"config": "ms=4 kg=1"}, 1, "kg=1 -> ms=4 kg=1"),
        ({"origin": "seed"}, 1, "origin model -> seed"),
        ({"problem": "gemm 2,1,1 NN f32"}, 1, "only in one: 1 old, 1 new"),
    ],
)
def test_compare_reports_each_difference(tmp_path, capsys, changes, status, message):
    old, new = written(tmp_path / "old", ROW), written(tmp_path / "new", {**ROW, **changes})
    assert script.main(["compare", old, new]) == status
    assert message in capsys.readouterr().out


def test_error_in_one_record_is_a_difference(tmp_path, capsys):
    failed = {"problem": ROW["problem"], "error": "ConfigError: none"}
    old, new = written(tmp_path / "old", ROW), written(tmp_path / "new", failed)
    assert script.main(["compare", old, new]) == 1
    assert script.main(["compare", new, old]) == 1
    assert script.main(["compare", new, new]) == 0
    assert "ConfigError: none" in capsys.readouterr().out


def test_words_of_older_records_are_migrated(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script, "migrate", lambda problem, config: (problem, config.replace("kg=", "splitk=")))
    old, new = (
        written(tmp_path / "old", ROW),
        written(tmp_path / "new", {**ROW, "config": ROW["config"].replace("kg=", "splitk=")}),
    )
    assert script.main(["compare", old, new]) == 0
    capsys.readouterr()
