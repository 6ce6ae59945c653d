"""Stale winners on a GPU: checked, and timed together with the model's choice."""

from __future__ import annotations

import pytest

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.open_driver import open_driver
from ptxgen.tuning import selection
from ptxgen.tuning.choice import winners
from ptxgen.tuning.measure.recheck import FolderWinners, Recheck
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header, read_winners, winners_path, write_winners

pytestmark = pytest.mark.gpu


def test_stale_winners_are_timed_again(tmp_path):
    driver = open_driver("cuda")
    d = driver.device
    problems = [Gemm(64 * n, 128, 256, "NT", "f16") for n in range(1, 7)]
    stale = [
        Measurement(
            p, selection.select(p, d, use_model=True, k=3)[-1].config, "ok", Environment(d.name), (1e6,), "0" * 16
        )
        for p in problems
    ]
    write_winners(winners_path(d.name, tmp_path), Header(d.name), stale)
    store = FolderWinners(tmp_path, "now")
    work = Recheck(d, 8)
    rows = work.compare(store.read(d.name))
    assert {row.state for row in rows} == {"stale"}
    work.retime(rows, driver.name, lambda rows: store.save(d, rows), 300.0, "now")
    assert {row.state for row in rows} <= {"timed", "replaced"}
    winner = read_winners(winners_path(d.name, tmp_path))[1]
    assert len(winner) == len(problems)
    for m in winner:
        assert m.digest == winners.current_digest(m.problem, m.config, d)
        assert m.environment.commit == "now"
        assert m.sass
        assert 0 < m.us < 1e5
