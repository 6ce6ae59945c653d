"""Validation of the model's choices: which configurations are compared, and the numbers of the summary."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from ptxgen.cli import app
from ptxgen.errors import InputError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.tuning.collect.validation import Validated, compare, read_rows, summaries, timed_at_first_use
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.store.measurement import Environment, Measurement

P = Gemm(64, 64, 64)
CONFIGS = [config for config, _ in Model.analytic(device("h200")).rank(P, None, 12)]


def measured(speeds):
    rows = [
        Measurement(P, config, "ok", Environment("h200", "hardware"), (us,))
        for config, us in zip(CONFIGS, speeds, strict=False)
    ]
    return sorted(rows, key=lambda m: m.us)


class StandIn:
    """A worker whose configurations take these microseconds."""

    def __init__(self, times, vendor=(8.0, 9.0, 12.0)):
        self.times, self.answer, self.compared = times, vendor, []

    def compare(self, problem, configs, rounds):
        self.compared = list(configs)
        return [[self.times[CONFIGS.index(c)]] * rounds for c in configs]

    def vendor(self, problem, baseline):
        assert baseline == "cublas"
        return self.answer


def test_the_choice_is_compared_with_the_fastest_of_the_first_and_of_all():
    times = [10.0, 9.0, 8.5, 12.0, 7.0, 7.5, 6.5, 20.0]
    worker = StandIn(times)
    row = compare(worker, P, CONFIGS[:3], measured(times), vendor=True)
    assert worker.compared == [CONFIGS[i] for i in (0, 2, 6, 4, 5)]
    assert (row.first, row.top, row.best) == (10.0, 8.5, 6.5)
    assert (row.vendor, row.vendor_first, row.vendor_same_layout, row.ratio) == (8.0, 9.0, 12.0, 0.8)
    assert row.configs == (CONFIGS[0], CONFIGS[6])
    assert row.measured == 8


def test_a_lucky_time_in_the_rounds_that_determine_the_fastest_is_not_counted():
    worker = StandIn([5.0, 6.0])
    worker.compare = lambda problem, configs, rounds: [[5.0] * rounds, [4.0, 6.0] * (rounds // 2)]
    row = compare(worker, P, [CONFIGS[0]], measured([5.0, 6.0]), vendor=False)
    assert (row.first, row.best, row.configs) == (5.0, 6.0, (CONFIGS[0], CONFIGS[1]))


def test_only_measured_choices_are_timed_at_first_use_besides_the_selected_one():
    ranked = {c: 1.0 + i / 100 for i, c in enumerate(CONFIGS)}
    chosen = timed_at_first_use(ranked, measured([1.0] * 11)[1:])
    assert chosen[0] == CONFIGS[0]
    assert len(chosen) == 8
    assert CONFIGS[11] not in chosen
    assert set(chosen) < set(CONFIGS)


def test_the_choice_counts_although_it_was_not_measured():
    times = [3.0, 5.0, 4.0]
    row = compare(StandIn(times), P, [CONFIGS[0]], measured(times)[1:], vendor=False)
    assert (row.first, row.top, row.best) == (3.0, 3.0, 3.0)
    assert math.isnan(row.vendor)


def test_a_failed_comparison_has_no_row():
    worker = StandIn([1.0])
    worker.compare = lambda *_, **__: []
    assert compare(worker, P, [CONFIGS[0]], measured([1.0]), vendor=True) is None


def test_a_row_is_read_back():
    row = Validated(P, 5, 2.0, 1.5, 1.0, configs=(CONFIGS[0], CONFIGS[1]))
    again = Validated.from_dict(json.loads(json.dumps(row.as_dict())))
    assert (again.problem, again.configs, again.first) == (P, row.configs, 2.0)
    assert math.isnan(again.vendor)


def test_summary():
    one = Validated(P, 9, 2.0, 1.0, 1.0, vendor=1.0, vendor_first=4.0, configs=(CONFIGS[0], CONFIGS[1]))
    two = replace(
        one, problem=Gemm(64, 64, 65, dtype="f16"), first=1.0, vendor=4.0, vendor_first=4.0, vendor_same_layout=8.0
    )
    rows = {(s.group, s.name): s for s in summaries([one, two])}
    whole = rows["all", ""]
    assert (whole.problems, whole.compared) == (2, 2)
    assert whole.first == pytest.approx(math.sqrt(0.5))
    assert whole.worst == 0.5
    assert whole.top == 1.0
    assert whole.ratio == pytest.approx(math.sqrt(0.5 * 4))
    assert whole.ratio_first == pytest.approx(math.sqrt(2 * 4))
    assert whole.ratio_best == 2.0
    assert whole.slower == 0.5
    assert (whole.compared_same_layout, whole.slower_same_layout) == (1, 0.0)
    assert whole.ratio_same_layout == pytest.approx(8.0)
    assert rows["dtype", "f16"].first == 1.0
    assert rows["operation", "gemm"].problems == 2


def test_a_problem_that_the_vendor_does_not_compute_is_not_compared():
    only = next(summaries([Validated(P, 9, 2.0, 1.0, 1.0, configs=(CONFIGS[0],))]))
    assert only.compared == 0
    assert math.isnan(only.slower)


@pytest.mark.first(1)
@pytest.mark.parametrize("children", [2, 1])
def test_command_on_the_emulated_device(tmp_path, monkeypatch, children):
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rows, arguments = tmp_path / "rows.jsonl", "--problems 3 --configurations 3 --jobs 1 --max-extent 8 --mixture gemm"
    result = CliRunner().invoke(
        app,
        [
            "model",
            "validate",
            *arguments.split(),
            f"--children={children}",
            "--database",
            str(tmp_path / "t.sqlite"),
            "--rows",
            str(rows),
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["problems"] == 3
    assert document["scores"][0]["problems"] == 3
    assert 0 < document["scores"][0]["first"] <= 1
    header, read = read_rows(rows)
    assert (header["device"], header["seed"]) == ("emulated", 0)
    assert [row.measured >= 3 for row in read] == [True] * 3
    (tmp_path / "rows.jsonl.xz").write_bytes(lzma.compress(rows.read_bytes()))
    again = CliRunner().invoke(app, ["model", "validate", "--from", str(tmp_path / "rows.jsonl.xz"), "--json"])
    assert json.loads(again.stdout) == document


@pytest.mark.parametrize("text", ["", "[]\n", '{"device": "h200"}\n{"problem": "gemm"}\n'])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match="it must be a file that model validate --rows wrote"):
        read_rows(path)


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InputError, match=r"from .*rows\.jsonl cannot be read"):
        read_rows(tmp_path / "rows.jsonl")
