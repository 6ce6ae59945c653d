"""scripts/bench-joins on the device of calls, beside NumPy."""

from __future__ import annotations

import json

import numpy as np

from tests.scripts import script as load

script = load("bench-joins")


def test_small_cases_have_the_results_of_numpy(capsys):
    assert script.main(["--small", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["case"] for row in rows] == [case.name for case in script.cases(True)]
    assert not any(row["note"] for row in rows)


def test_keys_are_equally_frequent_or_of_zipf():
    uniform, zipf = (np.bincount(script.Case(4096, 10, law).drawn(0), minlength=10) for law in (False, True))
    assert uniform.min() > 300
    assert zipf[0] > 1.7 * zipf[1] > 5 * zipf[9] > 0
    assert len(list(script.cases(False))) == 12
