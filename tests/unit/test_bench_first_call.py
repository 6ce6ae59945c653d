"""scripts/bench-first-call: the steps of first calls, with and without the disk cache."""

from __future__ import annotations

import json

import pytest

from tests.scripts import script as load

script = load("bench-first-call")
SMALL = [
    "--count",
    "3",
    "--processes",
    "2",
    "--extent",
    "16",
    "--bytes",
    "100000",
    "--mixture",
    "gemm",
    "--dtypes",
    "f32",
]


def test_rows_have_every_phase_in_both_passes(monkeypatch, capsys):
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert script.main([*SMALL, "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    cold, cached = out["empty_cache"], out["disk_cache"]
    assert len(cold) == 3
    assert [len(rows) for rows in cached] == [2, 1]
    assert {row["problem"] for rows in cached for row in rows} == {row["problem"] for row in cold}
    for row in cold:
        assert min(row[step] for step in ("choose", "render", "load", "run", "again")) > 0
        assert row["total"] == pytest.approx(sum(row[step] for step in script.STEPS[:5]), abs=0.01)
        assert row["prepare"] == pytest.approx(row["total"] - row["choose"], abs=0.01)
    # the templates are compiled in the first call of all, and loaded in other processes
    assert cached[0][0]["render"] < cold[0]["render"]


def test_table_has_percentiles():
    rows = [dict.fromkeys(script.STEPS, float(n)) | {"problem": "p", "config": "c"} for n in range(1, 21)]
    lines = script.table("title", rows).splitlines()
    assert lines[0] == "title: 20 calls"
    assert all(line.split()[1:] == ["10.0", "18.0", "19.0", "20.0"] for line in lines[2:])
    assert [line.split()[0] for line in lines[2:]] == list(script.STEPS)
    assert script.slowest(rows).splitlines()[0].split()[:2] == ["20.0", "ms"]


def test_number_of_processes_is_checked(capsys):
    with pytest.raises(SystemExit):
        script.main(["--count", "2", "--processes", "3"])
    assert "--processes is 3; it must be from 1 to --count, 2" in capsys.readouterr().err
