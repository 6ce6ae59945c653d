"""scripts/bench-top on the device of calls, beside NumPy."""

from __future__ import annotations

import json

import pytest

from tests.scripts import script as load

script = load("bench-top")


def test_small_cases_have_the_results_of_numpy(capsys):
    assert script.main(["--small", "--suite", "knn", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["case"] for row in rows] == [case.name for case in script.cases(["knn"], True)]
    assert not any("note" in row for row in rows)
    assert len(list(script.cases(["q7", "knn"], False))) == 3 + 3 * len(script.SHAPES)
    with pytest.raises(SystemExit):
        script.main(["--suite", "q8"])
    assert "--suite has q8" in capsys.readouterr().err
