"""Devices without measurements: the nearest device's model and winners, scaled by the facts of both."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from ptxgen.cli import report
from ptxgen.cli.command import run
from ptxgen.codegen.config.config import Columns
from ptxgen.families.common import perf_model, rules, space
from ptxgen.families.common.features import DEVICE
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import Device, device
from ptxgen.problem.operation import Case
from ptxgen.settings import shipped_dir
from ptxgen.tuning import selection
from ptxgen.tuning.choice import models, sources
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.choice.nearest import ScaledModel, nearest, scaled_measurements, time_ratio, transferred
from ptxgen.tuning.model import model_files
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.model.training import Training
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.exchange import Header
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.seeds import seeds
from tests.forests import first_trees

H100, H200, A100, T4 = (device(name) for name in ("h100", "h200", "a100", "t4"))
H800 = replace(H100, name="h800")  # without measurements
WINNER = next(iter(tuning_files.shipped_winners("h200").values())).problem


def test_the_nearest_device_has_the_same_compute_capability_or_else_the_nearest():
    assert nearest(H100, [A100, H200, device("b200")]) is H200
    assert nearest(device("rtx3090"), [H200, A100, T4]) is A100
    assert nearest(replace(H200, name="h20", sms=78), [H100, H200, A100]).sm == 90
    assert nearest(H100, []) is None


@pytest.mark.parametrize("d", [H800, A100, T4, replace(H200, name="gh200", bandwidth=4000)], ids=lambda d: d.name)
def test_a_device_without_data_is_answered_by_the_nearest_model(d: Device):
    for p in (Gemm(37, 1000, 515, "TN"), Gemm(256, 384, 512, "NT", "f16"), Conv(4, 16, 20, 20, 24, 3, 3, padding=1)):
        (selections,) = select(p, d)
        assert (selections.origin, selections.scaled_from) == ("model", "h200")
        assert selections.predicted
        assert rules.first_violation(lower(p), selections.config, d) is None
        assert selections.us > 0


MEMORY_BOUND = [
    Gemm(1, 8192, 8192, "NT", "f16"),
    Gemm(8192, 1, 8192, "NN"),
    Gemm(4, 16384, 16384, "NN", "bf16"),
    Gemm(16384, 8192, 1, "NN"),
    Gemm(3368, 8, 24, "NN", "bf16"),
    Gemm(12288, 16, 12288, "TN", "f64"),
    Gemm(37, 8191, 63, "TT"),
]


@pytest.mark.parametrize("p", MEMORY_BOUND, ids=lambda p: p.key())
def test_a_device_with_less_bandwidth_is_never_predicted_faster(p: Gemm):
    here, there = (select(p, d, use_model=True, k=8) for d in (H200, H800))
    assert there[0].us >= here[0].us * (1 - 1e-6)
    same = {s.config: s.us for s in here}
    assert all(s.us >= same.get(s.config, 0.0) * (1 - 1e-6) for s in there)


def test_large_memory_bound_products_take_as_much_longer_as_the_memory_is_slower():
    p = Gemm(16384, 1, 16384, "NN")
    here, there = (select(p, d, use_model=True)[0] for d in (H200, H800))
    assert 1.25 < there.us / here.us < 1.5  # 4800 / 3350 GB/s, and the launch


def test_time_ratios_of_every_candidate_follow_the_facts():
    for p in MEMORY_BOUND:
        c = space.candidates(lower(p), H200)
        rows = [c.row(int(i)) for i in np.linspace(0, len(c) - 1, 200)]
        assert (time_ratio(p, Columns.of(rows), H100, H200) >= 1 - 1e-6).all()


def test_a_shipped_winner_of_the_nearest_device_is_used_and_its_time_is_a_prediction():
    (here,), (there,) = (select(WINNER, d) for d in (H200, H100))
    assert here.origin == there.origin == "shipped"
    assert here.config == there.config
    assert (here.predicted, there.predicted, there.source) == (False, True, "shipped (h200)")
    assert there.us >= here.us
    assert select(WINNER, A100)[0].origin == "model"  # its kernels differ


SEEDED = Gemm(1536, 1536, 1536, "TN", "f16")  # has seeds of an h200, and no winner


def test_seeds_of_another_device_and_the_models_choice_are_ranked_by_prediction():
    model = model_for(H100)
    selections = select(SEEDED, H100, k=8)
    assert [s.us for s in selections] == sorted(s.us for s in selections)
    assert all(s.predicted for s in selections)
    assert len({s.config for s in selections}) == len(selections)
    fastest = select(SEEDED, H100, use_model=True)[0]
    assert selections[0].us <= fastest.us * (1 + 1e-6)
    known = seeds(SEEDED, "h200")
    assert known
    assert select(SEEDED, H200)[0] == selection.Selection(SEEDED, known[0], "seed")  # was timed on this device
    us = model.predict(SEEDED, Columns.of(known))
    assert selections[0].us == pytest.approx(min(fastest.us, *us), rel=1e-5)


def test_a_seed_of_another_device_that_the_model_predicts_fastest_comes_first(monkeypatch):
    best, second = (s.config for s in select(SEEDED, H100, use_model=True, k=2))
    monkeypatch.setattr(sources, "seeds", lambda p, name: [second, best] if name == "h200" else [])
    selections = select(SEEDED, H100, k=8)
    assert (selections[0].config, selections[0].source) == (best, "seed (h200)")
    assert second in [s.config for s in selections]  # as a seed or as the model's: the predictions are equal
    assert "model" in {s.source for s in selections}
    assert select(WINNER, H100, k=2)[0].source == "shipped (h200)"  # a winner comes before any prediction


def test_the_source_is_printed_and_marked():
    case = Case("x", WINNER)
    texts = [
        report.source_text(report.selection_fields(case, select(WINNER, d, use_model=model)[0]))
        for d, model in ((H200, False), (H200, True), (H800, False), (H800, True), (H100, True))
    ]
    assert texts == ["shipped", "model", "shipped (h200)", "model (h200)", "model"]


def test_a_model_of_few_measurements_gives_way_to_that_of_the_nearest_device(tmp_path: Path, monkeypatch):
    from ptxgen.tuning.model.model import Model

    shipped = Model.load(shipped_dir() / "h200")
    source = Model(H200, shipped.facts, first_trees(shipped, 20), shipped.names)
    source.save(tmp_path / "h200")
    monkeypatch.setattr(tuning_files, "shipped_dir", lambda: tmp_path)
    for rows, scaled in ((50, True), (50_000, False)):
        assert source.facts is not None
        facts = replace(source.facts, rows=rows, device=asdict(H800))
        Model(H800, facts, source.booster, source.names).save(tmp_path / "h800")
        assert isinstance(model_for(H800), ScaledModel) == scaled
    (tmp_path / "h200" / "model.json.xz").unlink()
    facts = replace(source.facts, rows=50, device=asdict(H800))
    Model(H800, facts, source.booster, source.names).save(tmp_path / "h800")
    assert model_for(H800).trained  # few are better than none
    assert json.loads(model_files.content_of(tmp_path / "h800" / "model.json.xz"))["rows"] == 50


def test_scaled_measurements_train_the_model_of_a_device_with_few():
    p = Gemm(4096, 4096, 1, "NN")
    c = space.candidates(lower(p), H200)
    rows = [
        Measurement(p, c.row(i), "ok", Environment("h200"), (10.0, 12.0), created=1.0) for i in range(0, len(c), 999)
    ]
    failed = replace(rows[0], outcome="timeout", samples=())
    scaled = list(scaled_measurements([*rows, failed], H100, H200))
    assert [m.config for m in scaled] == [m.config for m in rows]
    ratios = time_ratio(p, Columns.of([m.config for m in rows]), H100, H200)
    assert [m.us for m in scaled] == pytest.approx(11.0 * ratios)
    assert len(Training.gather(scaled, H100).log_us) == len(scaled)
    assert (models.model_for(H800).measured_on, models.model_for(H100).measured_on) == ("h200", "h100")


def test_one_model_is_trained_on_the_measurements_of_several_devices(tmp_path: Path, capsys) -> None:
    """H100: what depends on its facts takes twice as long as the performance model says; the model learns that."""
    rng = np.random.default_rng(0)
    for d, factor in ((H200, 1.0), (H100, 2.0)):
        rows = []
        for p in (Gemm(512, 512, 64 * n, "NN") for n in range(1, 9)):
            c = space.candidates(lower(p), d)
            c = c.take(rng.choice(len(c), 40, replace=False))
            us = factor * perf_model.predict(lower(p), c, d)
            of = Environment(d.name)
            rows += [Measurement(p, c.row(i), "ok", of, (round(float(us[i]), 4),)) for i in range(len(c))]
        path = tuning_files.measurements_path(d.name, tmp_path)
        path.parent.mkdir()
        tuning_files.write_measurements(path, Header(d.name, "hardware"), rows)
    command = ["model", "train", "--also", "h100", "--target", "clock", "--folder", str(tmp_path)]
    for out in ("one", "two"):
        assert run([*command, "--out", str(tmp_path / out), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 640
    one, two = (tuning_files.model_path("h200", tmp_path / out) for out in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()  # the same trees
    shared = Model.load(one.parent)
    assert set(DEVICE) < set(shared.names)
    assert shared.facts is not None
    assert shared.facts.also == ("h100",)
    p, c = Gemm(512, 512, 320, "NN"), space.candidates(lower(Gemm(512, 512, 320, "NN")), H200)
    c = c.take(np.arange(0, len(c), 997))
    on_far = transferred(H100, shared)
    for model, factor in ((shared, 1.0), (on_far, 2.0)):
        ratio = model.predict(p, c) / perf_model.predict(lower(p), c, model.device)
        assert np.median(ratio) == pytest.approx(factor, rel=0.2)
    assert (shared.measured_on, on_far.measured_on) == ("h200", "h100")
    other = replace(H100, name="other")  # without measurements: scaled as before
    assert isinstance(transferred(other, shared), ScaledModel)
    assert run([*command, "--device", "h100", "--out", str(tmp_path)]) == 2
    assert "also is h100; the devices must be different" in capsys.readouterr().err
    assert run([*command, "--also", "a100", "--out", str(tmp_path)]) != 0
