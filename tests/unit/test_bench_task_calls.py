"""scripts/bench-task-calls: the steps of first calls of tasks."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.scripts import script as load

script = load("bench-task-calls")
ROW = dict.fromkeys(script.STEPS, 1.0)


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_a_first_call_has_its_steps(tmp_path):
    arguments = script.argparse.Namespace(device="h100", cpu=True)
    row = script.run_child("l1", 16, arguments, str(tmp_path), 7)
    steps = {step: row[step] for step in script.STEPS if step not in ("models", "total")}
    assert row["total"] == pytest.approx(sum(steps.values()), abs=0.05)
    assert min(steps.values()) > 0
    assert row["models"] < row["choose"]
    assert min(row["again"], row["gemm"]) > 0


def test_each_task_has_its_passes(monkeypatch, capsys):
    called = []

    def child(name, n, arguments, folder, calls):
        called.append((name, n, calls))
        return {**ROW, "again": 5.0, "gemm": 4.0} if calls else ROW

    monkeypatch.setattr(script, "run_child", child)
    assert script.main(["--tasks", "l1,batch", "--extents", "64,100", "--calls", "70"]) == 0
    assert called[:4] == [("l1", 64, 0), ("l1", 64, 70), ("max_plus", 64, 0), ("l1", 64, 0)]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[1:13:3]] == ["l1 64", "l1 100", "batch 64", "batch 100"]
    assert lines[-1].split() == ["batch", "100", "5.0", "4.0"]
    assert script.main(["--tasks", "l1", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["l1 1024"]) == set(script.PASSES)
    with pytest.raises(SystemExit):
        script.main(["--tasks", "l3"])
    assert "--tasks has l3" in capsys.readouterr().err
