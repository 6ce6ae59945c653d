"""Evaluation of the model: groups of problems, lost speed, held-out problems, the command."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from ptxgen.cli import model
from ptxgen.cli.command import run
from ptxgen.codegen.config.config import FAMILIES
from ptxgen.errors import InputError, UnavailableError
from ptxgen.families.common import features, perf_model, space, tile_family
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.tuning.model import evaluation, perceptron, training
from ptxgen.tuning.model.model_trees import LEAF_STEP, weighted_sum
from ptxgen.tuning.model.training import Training
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.exchange import Header
from ptxgen.tuning.store.measurement import Environment, Measurement

H200 = device("h200")
PROBLEMS = [Gemm(512, 512, 64 * (i + 2), "TN") for i in range(6)] + [Gemm(512, 8, 512, "NN", "f64")]


def measured(problems: list[Gemm], each: int) -> list[Measurement]:
    rng, rows = np.random.default_rng(3), []
    for p in problems:
        c = space.candidates(lower(p), H200)
        c = c.take(rng.choice(len(c), each, replace=False))
        us = perf_model.predict(lower(p), c, H200) * np.where(c.stages == 2, 1.5, 1.0)
        environment = Environment("h200")
        rows += [Measurement(p, c.row(i), "ok", environment, (round(float(us[i]), 4),)) for i in range(len(c))]
    return rows


@pytest.fixture(scope="module")
def rows() -> Training:
    return Training.gather(measured(PROBLEMS, 40), H200)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(training, "TREES", 10)


def test_weighted_sum_of_boosters(rows):
    every = np.ones(len(rows.log_us), bool)
    members = [rows.train(target, every) for target in ("time", "clock")]
    weights = (0.25, -0.5)
    total = weighted_sum(dict(zip(members, weights, strict=True)), rows.x.shape[1])
    expected = sum(w * booster.inplace_predict(rows.x) for booster, w in zip(members, weights, strict=True))
    assert (
        np.abs(total.inplace_predict(rows.x) - expected).max() < 20 * LEAF_STEP / 2
    )  # the leaves of 20 trees are rounded
    assert total.num_boosted_rounds() == 20
    first = total.inplace_predict(rows.x, iteration_range=(0, 6))
    assert np.abs(first - expected).mean() < np.abs(first).mean()


def test_ranker_scores_faster_configurations_of_a_problem_higher(rows):
    behind = rows.log_us - rows.best()[rows.group]
    known = rows.group % 4 != 0
    _, group = np.unique(rows.group[known], return_inverse=True)
    booster = rows._ranker(rows.x[known], behind[known], group)
    scores = booster.inplace_predict(rows.x)
    for problem in np.unique(rows.group):
        same = rows.group == problem
        assert np.corrcoef(scores[same], behind[same])[0, 1] < -0.3


def test_average_of_regressors_predicts_times(rows, monkeypatch):
    monkeypatch.setattr(training, "TREES", 60)
    held_out = rows.group % 4 == 0
    booster = rows.train("average", ~held_out)
    predicted = booster.inplace_predict(rows.x) + rows.bases["average"]
    assert rows.bases["average"] == pytest.approx((rows.bases["clock"] + rows.bases["roofline"]) / 2)
    assert evaluation.error(rows, predicted, ~held_out) < 0.15
    assert evaluation.error(rows, predicted, held_out) < 0.6


def test_kinds_of_problems():
    layer = Conv(8, 64, 56, 56, 64, 3, 3, padding=1)
    depthwise = Conv(8, 64, 56, 56, 64, 3, 3, padding=1, groups=64)
    batch = Gemm(64, 64, 64, "NN", batch=3)
    classes = [p.problem_class for p in (*PROBLEMS[-2:], batch, layer, depthwise)]
    assert classes == ["gemm", "thin gemm", "batch", "conv", "depthwise"]
    assert [evaluation.arithmetic(p) for p in (PROBLEMS[-1], Gemm(8, 8, 8, "NN", "f32", compute="tf32"))] == [
        "f64",
        "tf32",
    ]


def test_perfect_predictions_lose_nothing(rows):
    total, *others = evaluation.scores(rows, rows.log_us)
    assert (total.group, total.problems) == ("all", len(PROBLEMS))
    assert {(s.group, s.name) for s in others if s.group != "family"} == {
        ("dtype", "f32"),
        ("dtype", "f64"),
        ("kind", "gemm"),
        ("kind", "thin gemm"),
    }
    assert {s.name for s in others if s.group == "family"} <= set(FAMILIES)
    assert all(s.first == s.fifth == s.worst == s.top == 1 for s in (total, *others))
    assert evaluation.error(rows, rows.log_us) == 0


def test_reversed_predictions_choose_the_slowest(rows):
    total = evaluation.scores(rows, -rows.log_us)[0]
    lost, top = [], []
    for i in range(rows.groups):
        us = np.sort(np.exp2(rows.log_us[rows.group == i]))
        lost.append(us[0] / us[-1])
        top.append(us[0] / us[-evaluation.TOP])
    assert total.first == pytest.approx(np.exp(np.mean(np.log(lost))), rel=1e-5)
    assert total.worst == pytest.approx(min(lost), rel=1e-5)
    assert total.top == pytest.approx(np.exp(np.mean(np.log(top))), rel=1e-5)
    assert total.worst <= total.fifth <= 1


def test_problems_with_few_configurations_do_not_count():
    few = Training.gather(measured(PROBLEMS[:2], 20) + measured(PROBLEMS[2:4], evaluation.MEASURED - 1), H200)
    assert evaluation.scores(few, few.log_us)[0].problems == 2


def test_each_problem_is_held_out_whole(rows, monkeypatch):
    seen = []
    real = Training.train

    def train(self, target, mask):
        seen.append(set(self.group[mask].tolist()))
        return real(self, target, mask)

    monkeypatch.setattr(Training, "train", train)
    predicted = evaluation.cross_validate(rows, "clock", 3)
    fold = rows.folds(3)
    assert seen == [set(np.flatnonzero(fold != turn).tolist()) for turn in range(3)]
    assert np.isfinite(predicted).all()
    assert evaluation.error(rows, predicted) < 1


def test_learning_curve_uses_more_and_more_problems(rows):
    points = evaluation.learning_curve(rows, "clock", 3)
    sizes = [p.problems for p in points]
    assert sizes == sorted(sizes)
    assert sizes[-1] == int((rows.folds(3) != 0).sum())
    assert all(0 < p.first <= 1 and p.error > 0 for p in points)


def test_sample_curve_is_cross_validated(rows, monkeypatch):
    """Every fold is held out for every number of rows, and no training row is of a problem that is held out."""
    seen = []
    real = Training.train

    def train(self, target, mask):
        seen.append((int(mask.sum()), frozenset(self.group[mask].tolist())))
        return real(self, target, mask)

    monkeypatch.setattr(Training, "train", train)
    curve = evaluation.sample_curve(rows, "clock", 3)
    fold = rows.folds(3)
    sizes = [r.samples for r in curve]
    assert sizes == sorted({size for size, _ in seen})
    most = min(int((fold[rows.group] != turn).sum()) for turn in range(3))
    assert sizes == sorted(most >> n for n in range(most.bit_length()))
    for size in sizes:
        for turn, (_, problems) in enumerate(s for s in seen if s[0] == size):
            assert not problems & set(np.flatnonzero(fold == turn).tolist())
    assert all(r.hidden == () and r.mse > 0 and 0 < r.first <= 1 for r in curve)
    assert curve[-1].mse < curve[0].mse


def test_perceptrons_and_trees_learn_from_the_same_rows(rows, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(evaluation, "HIDDEN_LAYERS", ((8,), (4, 4)))
    errors = evaluation.architectures(rows, "clock", 3, 100)
    assert [r.hidden for r in errors] == [(8,), (4, 4), ()]
    assert {r.samples for r in errors} == {100}
    inputs = rows.x.shape[1]
    assert [r.weights for r in errors] == [8 * (inputs + 2) + 1, 4 * (inputs + 1) + 4 * 5 + 5, 0]
    assert all(r.mse > 0 for r in errors)
    assert [r.plain_mse is not None for r in errors] == [True, True, False]
    assert all(r.plain_mse not in (None, r.mse) for r in errors[:2])


def test_sample_curves_of_regressors_have_the_same_range(rows):
    pytest.importorskip("sklearn")
    trees, network = (evaluation.sample_curve(rows, "clock", 3, hidden=h, most=60) for h in ((), (4,)))
    assert [r.samples for r in trees] == [r.samples for r in network] == [1, 3, 7, 15, 30, 60]
    assert {r.hidden for r in network} == {(4,)}


def test_errors_of_seeds_are_averaged(rows, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(evaluation, "HIDDEN_LAYERS", ((8,),))
    [first, _] = evaluation.architectures(rows, "clock", 3, 100)
    [network, trees] = evaluation.architectures(rows, "clock", 3, 100, seeds=3)
    assert (first.seeds, first.mse_deviation, network.seeds, trees.seeds) == (1, None, 3, 3)
    data = evaluation._Data(rows, "clock", rows.folds(3)[rows.group])
    fits = [evaluation._Fit((8,), 100, 0, seed) for seed in range(3)]
    mses = [evaluation._regressor(data, [fit], [evaluation._fit(data, fit)]).mse for fit in fits]
    assert evaluation.architectures(rows, "clock", 3, 100, seeds=3, jobs=2) == [network, trees]
    assert mses[0] == first.mse
    assert len(set(mses)) == 3
    assert network.mse == pytest.approx(np.mean(mses))
    assert network.mse_deviation == pytest.approx(np.std(mses, ddof=1))
    assert trees.plain_mse is None
    assert network.plain_mse != first.plain_mse


@pytest.mark.parametrize("problem", [PROBLEMS[0], Gemm(1024, 1024, 1024, "NT", "f16"), Conv(8, 64, 56, 56, 64, 3, 3)])
def test_numbers_replace_all_logarithms_and_nothing_else(problem, monkeypatch):
    p = lower(problem)
    c = space.candidates(p, H200)
    c = c.take(np.random.default_rng(3).choice(len(c), 50, replace=False))
    us, names = perf_model.predict(p, c, H200), features.default_names()
    logarithms = features.features(p, c, H200, us, names)
    for module in (features, tile_family):
        monkeypatch.setattr(module, "log", lambda x: np.maximum(np.float32(x), np.float32(1e-6)))
    expected = features.features(p, c, H200, us, names)
    for i, name in enumerate(names):
        if name.startswith("row_alignment") or name in features._BOTH:
            expected[:, i] = logarithms[:, i] if name in ("wave_efficiency", "blocks_sm") else 2 ** logarithms[:, i]
    given = (logarithms != 0).any(axis=0)  # a family that lacks a feature gives 0
    result = features.without_logarithms(logarithms, names)
    wrong = ~np.isclose(result, expected, rtol=1e-3).all(axis=0) & given
    assert [name for name, differs in zip(names, wrong, strict=True) if differs] == []
    assert given.sum() > 40


def test_perceptron_learns_a_line(rows, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(perceptron, "BATCH", 16)
    # the weights of training almost ignore slow rows, here those of a large slope
    monkeypatch.setattr(Training, "weights", lambda self: np.ones(len(self.log_us), np.float32))
    base, slope = rows.bases["clock"], rows.x[:, 0]
    line = Training(**{**vars(rows), "log_us": (base + 3 * slope).astype(np.float32)})
    everything = np.ones(len(base), bool)
    network = perceptron.Perceptron((32,), line, "clock", everything)
    assert np.abs(network.predict(line.x) - 3 * slope).mean() < 0.3 * (3 * slope).std()


def test_values_beyond_the_training_rows_do_not_explode(rows):
    pytest.importorskip("sklearn")
    everything = np.ones(len(rows.log_us), bool)
    network = perceptron.Perceptron((8,), rows, "clock", everything)
    seen = network.predict(rows.x)
    assert np.abs(network.predict(rows.x + 1e6)).max() < 100 * max(np.abs(seen).max(), 1)


def test_missing_scikit_learn_names_the_extra(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UnavailableError, match=r"ptxgen\[evaluation\]"):
        evaluation.architectures(rows, "clock", 3, 100)


def test_weights_balance_problems():
    """A problem with four times the rows counts twice as much, not four times."""
    t = Training(
        x=np.zeros((5, 1), np.float32),
        log_us=np.ones(5, np.float32),
        group=np.array([0, 0, 0, 0, 1]),
        bases={},
        groups=2,
        skipped=0,
        commits=frozenset(),
        newest=0.0,
    )
    w = t.weights()
    assert w[:4].sum() == pytest.approx(2 * w[4])
    assert w.mean() == pytest.approx(1)


def test_command_prints_scores_and_curve(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(evaluation, "HALVINGS", 3)
    path = tmp_path / "measurements.jsonl.xz"
    tuning_files.write_measurements(path, Header("h200"), measured(PROBLEMS, 20))
    assert run(["model", "evaluate", str(path), "--folds", "2"]) == 0
    text = capsys.readouterr().out
    assert "kind thin gemm" in text
    assert "training problems" in text
    assert f"2 folds of {len(PROBLEMS)} problems" in text
    assert run(["model", "evaluate", str(path), "--folds", "2", "--no-curve", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["curve"] == document["samples"] == document["architectures"] == []
    assert run(["model", "evaluate", str(path), "--folds", "2", "--no-curve", "--samples"]) == 0
    assert "MSE" in capsys.readouterr().out
    assert document["scores"][0]["problems"] == len(PROBLEMS)
    assert run(["model", "evaluate", str(path), "--folds", "9"]) == 2
    assert "9 folds need more" in capsys.readouterr().err
    assert run(["model", "evaluate", str(path), "--target", "speed"]) == 2
    assert "target is 'speed'" in capsys.readouterr().err


def test_comparison_of_regressors_reads_some_problems(tmp_path, monkeypatch):
    """Twice as many as rows; of each problem all measurements, for the choice among them."""
    pytest.importorskip("sklearn")
    path = tmp_path / "h200" / "measurements.jsonl.xz"
    tuning_files.write_measurements(path, Header("h200"), measured(PROBLEMS, 20))
    monkeypatch.setattr(tuning_files, "shipped_dir", lambda: tmp_path)
    for module in (evaluation, perceptron):
        monkeypatch.setattr(module, "HIDDEN_LAYERS", ((8,),))
    monkeypatch.setattr(model, "LEAST_PROBLEMS", 4)
    document = model.compare_regressors("h200", 2, "clock", 2, 1, 1).document
    assert (document["problems"], document["rows"]) == (4, 80)
    assert [(r["hidden"], r["samples"]) for r in document["architectures"]] == [((8,), 2), ((), 2)]
    assert model.compare_regressors("h200", 2, "clock", 3, 1, 1).document["problems"] == 6
    samples = model.compare_sample_curves("h200", 2, "clock", 3, True, 1).document["samples"]
    assert [(r["hidden"], r["samples"]) for r in samples] == [((), 1), ((), 3), ((8,), 1), ((8,), 3)]
    alone = model.compare_sample_curves("h200", 2, "clock", 3, False, 1).document
    assert (alone["samples"], alone["problems"]) == (samples[:2], 6)
    with pytest.raises(InputError, match="7 problems with usable rows for h200; 9 folds need more"):
        model.compare_regressors("h200", 9, "clock", 100, 1, 1)
