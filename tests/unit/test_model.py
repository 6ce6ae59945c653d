"""The regressor and the search, on a made-up device: the performance model with other constants and unknown effects.
Shapes are held out."""

from __future__ import annotations

import base64
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ptxgen.codegen.config.config import AXIS, Columns, Config, parse_config
from ptxgen.errors import CorruptError, DeviceError, InputError, SchemaError
from ptxgen.families.common import perf_costs, perf_model, rules, space
from ptxgen.families.common.features import DEVICE, PROBLEM, all_names, default_names, features, trained_names
from ptxgen.families.mma import cost as mma_cost
from ptxgen.families.registry import FAMILIES
from ptxgen.families.wgmma import cost as wgmma_cost
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.registry import Problem, parse
from ptxgen.tuning import selection
from ptxgen.tuning.choice import log, models
from ptxgen.tuning.collect.validation import read_rows
from ptxgen.tuning.model import model, model_files, model_trees, number_text, training, tree_columns
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.model.ranking_network import RankingNetwork
from ptxgen.tuning.model.shortlist import shortlist
from ptxgen.tuning.model.tree_predictor import TreePredictor
from ptxgen.tuning.search.sampler import weighted_by_speed
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.history import VALIDATION
from ptxgen.tuning.store.measurement import Environment, Measurement

MEASURED = {"gemm", "conv"}  #: the operations of measurements
H200, H100 = device("h200"), device("h100")
FUZZED = 300  #: changed model files that are read

#: a machine unlike the one that the clock was fitted to
OTHER = {
    "L2_BYTES": 18.0,
    "GLOBAL_LATENCY": 1100.0,
    "SHARED_LATENCY": 55.0,
    "RED_CYCLES": 3.5,
    "QUEUE": 20.0,
    "EXPOSED_STORE": 0.6,
    "LAUNCH_US": 2.4,
    "FEW_WARPS": 0.4,
    "PIPE": 0.85,
    "LOOP_LIMIT": 1500,
    "DRAM": 0.8,
}


def plain(c: Columns) -> Columns:
    return Columns({name: c.column(name) for name in ("family", *AXIS)}, len(c))


def kernel_noise(c: Columns) -> np.ndarray:
    """Deterministic noise of ±3 % per kernel, as from a compiler."""
    h = np.zeros(len(c), np.uint64)
    for i, a in enumerate(AXIS.values()):
        if a.name != "kg":
            h = (h ^ (c.column(a.name).astype(np.uint64) + np.uint64(977 * i))) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(31)
    return 1 + 0.06 * ((h % np.uint64(1 << 20)).astype(float) / (1 << 20) - 0.5)


def truth(p: Gemm, c: Columns) -> np.ndarray:
    """Microseconds on the made-up device, without noise."""
    c = plain(c)
    known = {n: getattr(perf_costs, n) for n in OTHER}
    try:
        for n, v in OTHER.items():
            setattr(perf_costs, n, v)
        us = perf_model.predict(lower(p), c, H200).astype(float)
    finally:
        for n, v in known.items():
            setattr(perf_costs, n, v)
    us *= np.where(c.stages == 2, 1.15 if p.m * p.n < 512 * 512 else 1.0, 1.0)
    us *= np.where((c.kmajor_smem_a == 1) != (c.kmajor_smem_b == 1), 1.1, 1.0) * np.where(c.ks == 2, 1.05, 1.0)
    us *= np.where(np.maximum(c.ml, c.nl) >= 4 * np.minimum(c.ml, c.nl), 1.12, 1.0) * np.where(c.kl >= 4, 1.06, 1.0)
    us *= np.where(c.ms * c.ns >= 128, 0.96, 1.0)
    return us * kernel_noise(c)


def shapes(n: int, seed: int) -> list[Gemm]:
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        m, k, j = (int(2 ** rng.uniform(4, 11.5)) // 8 * 8 for _ in range(3))
        if i % 3 == 0:
            m, j, k = min(m, 128), min(j, 256), 16 * k
        out.append(Gemm(max(m, 16), max(j, 16), max(k, 16), ("NN", "NT", "TN", "TT")[i % 4]))
    return out


def measure(p: Gemm, c: Columns, noise: np.random.Generator) -> list[Measurement]:
    us = truth(p, c) * np.exp(0.01 * noise.normal(size=len(c)))
    environment = Environment("h200", commit="abc")
    return [Measurement(p, c.row(i), "ok", environment, (float(us[i]),)) for i in range(len(c))]


def measured(problems: list[Gemm], each: int, seed: int = 0) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    rows = []
    for p in problems:
        c = space.candidates(lower(p), H200)
        picked = np.concatenate(
            [
                weighted_by_speed(perf_model.predict(lower(p), c, H200), each // 2, rng),
                rng.integers(0, len(c), each // 2),
            ]
        )
        rows += measure(p, c.take(picked), rng)
    return rows


HELD_OUT = [
    Gemm(2048, 2048, 2048, "TN"),
    Gemm(16, 2560, 2560, "NN"),
    Gemm(64, 2560, 2560, "NT"),
    Gemm(40, 40, 50000, "TN"),
    Gemm(500, 700, 900, "TT"),
]


@pytest.fixture(scope="module")
def rows() -> list[Measurement]:
    return measured(shapes(24, 1), 160)


@pytest.fixture(scope="module")
def fitted(rows) -> Model:
    """With the target that cross-validation selects, without its ten trainings."""
    m = Model.fit(rows, H200, target="clock")
    return Model(H200, replace(m.facts, error=0.08), m.booster, m.names)


@pytest.fixture(scope="module")
def networked(rows, fitted) -> Model:
    """The same with a network, for which there are too few problems."""
    data = training.Training.gather(rows, H200, trained_names(MEASURED))
    every = np.ones(len(data.log_us), bool)
    assert data.train_network("clock", every) is None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "NETWORK_PROBLEMS", data.groups)
        return Model(H200, fitted.facts, fitted.booster, fitted.names, data.train_network("clock", every))


def test_the_network_has_half_of_the_last_ranking(networked, fitted):
    p = HELD_OUT[0]
    ranked = networked.rank(p, H200, 20)
    columns = Columns.of([config for config, _ in ranked])
    x = features(lower(p), columns, H200, None, trained_names(MEASURED))
    network = networked.network.predict(x) + np.log2(perf_model.predict(lower(p), columns, H200))
    mean = (np.log2(fitted.predict(p, columns)) + network) / 2
    assert np.allclose(np.log2([us for _, us in ranked]), mean, atol=1e-3)
    assert not np.allclose(network, mean, atol=1e-3)
    assert np.array_equal(networked.of_trees().predict(p, columns), fitted.predict(p, columns))


@cache
def least(p: Gemm) -> float:
    """The time of the truly fastest configuration."""
    return float(truth(p, space.candidates(lower(p), H200)).min())


def lost(m: Model, p: Gemm, k: int) -> float:
    """Slowdown of the truly fastest of the model's k best, relative to the truly fastest of all."""
    ranked = m.rank(p, H200, k)
    assert len(ranked) == k
    return float(truth(p, Columns.of([c for c, _ in ranked])).min() / least(p))


@pytest.mark.parametrize("p", HELD_OUT, ids=lambda p: p.key())
def test_best_hundred_contain_a_near_optimal_kernel(fitted, p):
    assert lost(fitted, p, 100) < 1.04


def test_trained_model_beats_the_formula(fitted):
    analytic = Model.analytic(H200)
    learnt, formula = ([np.log(lost(m, p, 5)) for p in HELD_OUT] for m in (fitted, analytic))
    assert np.mean(learnt) < 0.8 * np.mean(formula)


def test_model_of_random_times_is_useless(rows):
    """A model can miss the bound of the tests above."""
    us = np.random.default_rng(0).permutation([m.us for m in rows])
    wrong = Model.fit([replace(m, samples=(float(u),)) for m, u in zip(rows, us, strict=True)], H200, target="time")
    assert max(lost(wrong, p, 100) for p in HELD_OUT) > 1.06


def test_predictions_are_close_on_held_out_shapes(fitted):
    for p in HELD_OUT:
        c = plain(space.candidates(lower(p), H200).take(np.arange(0, 4000, 40)))
        error = np.log2(fitted.predict(p, c) / truth(p, c))
        assert np.sqrt(np.mean(error**2)) < 0.3, p.key()


def test_cross_validation_selects_the_target(fitted, rows, monkeypatch):
    monkeypatch.setattr(training, "TREES", 20)
    facts = Model.fit(rows, H200).facts
    assert facts.target == fitted.facts.target
    assert set(facts.errors) == set(model.TARGETS)
    assert facts.errors[facts.target] == min(facts.errors.values())
    assert facts.errors[facts.target] <= facts.error < 0.3
    assert (facts.rows, facts.problems, facts.skipped, facts.commits) == (len(rows), 24, 0, ("abc",))
    for target in model.TARGETS:
        assert Model.fit(rows[:600], H200, target=target).facts.target == target
    with pytest.raises(InputError, match="target is 'speed'; it must be one of time, roofline, clock, average"):
        Model.fit(rows, H200, target="speed")


def test_only_ok_rows_of_the_device_train(rows, monkeypatch):
    monkeypatch.setattr(training, "TREES", 20)
    few = rows[:300]
    bad = [
        replace(few[0], outcome="wrong_result", samples=()),
        replace(few[1], outcome="timeout"),
        replace(few[2], environment=Environment("h100")),
        replace(few[3], environment=Environment("h200", clock="model")),
        replace(few[4], samples=()),
    ]
    a, b = Model.fit(few, H200), Model.fit(bad + few, H200)
    assert b.facts.skipped == 5
    assert a.facts.rows == b.facts.rows == 300
    p = HELD_OUT[0]
    c = space.candidates(lower(p), H200).take(np.arange(50))
    assert (a.predict(p, c) == b.predict(p, c)).all()
    with pytest.raises(InputError, match=r"no usable row for h200 \(5 skipped\)"):
        Model.fit(bad, H200)
    with pytest.raises(InputError, match="clock=model"):
        Model.fit(few, device("emulated"))


def test_few_rows_of_one_problem_are_enough_to_train(rows):
    one = [m for m in rows if m.problem == rows[0].problem][:3]
    m = Model.fit(one, H200)
    assert m.facts.target == "clock"
    assert np.isnan(m.facts.error)
    assert len(m.rank(HELD_OUT[0], H200, 3)) == 3
    other = [replace(r, environment=replace(r.environment, device="h100")) for r in one]
    shared = Model.fit(one, H200, also={device("h100"): other})  # nothing can be held out: the problem is the same
    assert (shared.facts.rows, shared.facts.errors) == (6, {})


def test_training_is_reproducible_in_any_order(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "TREES", 30)
    for name, some in (("a", rows[:800]), ("b", rows[:800][::-1])):
        Model.fit(some, H200).save(tmp_path / name)
    assert (tmp_path / "a" / "model.json.xz").read_bytes() == (tmp_path / "b" / "model.json.xz").read_bytes()


def test_ranks_are_sorted_distinct_and_repeatable(fitted):
    for m in (fitted, Model.analytic(H200)):
        ranked = m.rank(HELD_OUT[1], H200, 50)
        times = [us for _, us in ranked]
        assert times == sorted(times)
        assert len({c for c, _ in ranked}) == 50
        assert ranked == m.rank(HELD_OUT[1], k=50)
        assert ranked[:7] == m.rank(HELD_OUT[1], k=7)
        assert m.rank(HELD_OUT[1], k=0) == []
        c = Columns.of([c for c, _ in ranked])
        assert m.predict(HELD_OUT[1], c) == pytest.approx(times, rel=1e-4)


def test_search_agrees_with_scoring_every_candidate(fitted, monkeypatch):
    for p in HELD_OUT[2:3]:
        fast, whole = fitted.search(p, H200), fitted.search(p, H200, exhaustive=True)
        assert fast.scored < whole.scored == len(space.candidates(lower(p), H200))
        assert fast.scored < model.MORE * (model.LIMIT + 6 * model.STAGES[-1][1])
        assert fast.best[0] == whole.best[0]
        assert len({c for c, _ in fast.best} & {c for c, _ in whole.best}) >= 95
        first = fitted.search(p, H200, 1)
        assert first.best == whole.best[:1]
        assert first.scored < model.LIMIT + 6 * model.STAGES[-1][1]
    monkeypatch.setattr(model, "LIMIT", 1000)
    tight = fitted.search(HELD_OUT[2], H200, 8)
    assert 1000 < tight.scored <= 1000 + 6 * model.STAGES[-1][1]
    assert 1 < tight.factor < fast.factor
    assert tight.best[0][1] <= 1.1 * whole.best[0][1]


def test_threads_predict_at_the_same_time():
    loaded = models.model_for(device("h200"))
    x = np.zeros((64, len(loaded._names)), np.float32)
    with ThreadPoolExecutor(4) as pool:  # XGBoost raises an error if a thread sets a parameter meanwhile
        predictions = list(pool.map(lambda n: loaded._predicted(x, n % 5 + 1), range(400)))
    assert all((row == predictions[n % 5]).all() for n, row in enumerate(predictions))


def test_problems_without_elements_can_be_ranked(fitted):
    for p in (Gemm(0, 5, 3), Gemm(5, 3, 0), Gemm(1, 1, 1)):
        for m in (fitted, Model.analytic(H200)):
            assert len(m.rank(p, H200, 5)) == 5


def test_model_ranks_for_its_own_device_only(fitted):
    with pytest.raises(DeviceError, match="device is h100; the model was trained for h200"):
        fitted.rank(HELD_OUT[0], H100)
    slow = replace(H200, clock=1000)
    assert fitted.rank(HELD_OUT[0], slow, 1)[0][1] > fitted.rank(HELD_OUT[0], H200, 1)[0][1]


@pytest.fixture(scope="module")
def whole_file(networked, tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("model")
    networked.save(folder)
    return (folder / "model.json.xz").read_bytes()


@pytest.fixture(scope="module")
def small_file(whole_file) -> bytes:
    """The same with four of the trees and a network of three units, which is read and written faster."""
    content = json.loads(lzma.decompress(whole_file))
    content["forest"] = first_trees(content, 4)
    content["network"] = small_network(len(trained_names(MEASURED)))
    return packed({**content, "digest": model_files._digest(content)})


def first_trees(content, count):
    """The columns of the first trees of a file's content."""
    features = len(content["features"])
    forest = tree_columns.unpack(content["forest"], features)
    return tree_columns.pack({**forest, "trees": forest["trees"][:count]}, features)


def folder_of(file: bytes, folder: Path) -> Path:
    folder.mkdir()
    (folder / "model.json.xz").write_bytes(file)
    return folder


@pytest.fixture
def saved(whole_file, tmp_path):
    return folder_of(whole_file, tmp_path / "h200")


@pytest.fixture
def small(small_file, tmp_path):
    return folder_of(small_file, tmp_path / "h200")


def test_saved_model_is_the_same_model(fitted, networked, saved):
    again = Model.load(saved)
    assert again.facts == fitted.facts
    assert again.device == H200
    assert again.rank(HELD_OUT[3], H200, 20) == networked.rank(HELD_OUT[3], H200, 20)
    assert again.rank(HELD_OUT[3], H200, 20) != fitted.rank(HELD_OUT[3], H200, 20)
    assert [f.name for f in saved.iterdir()] == ["model.json.xz"]
    x = np.random.default_rng(0).standard_normal((500, len(trained_names(MEASURED)))).astype(np.float32) * 100
    x[::7, ::3] = np.nan
    assert np.array_equal(again._booster.inplace_predict(x), fitted._booster.inplace_predict(x))


def test_only_the_fastest_by_the_trees_are_ranked_by_the_network(networked, fitted, monkeypatch):
    monkeypatch.setattr(model, "MEMBERS", (1.0, 4))
    configs = {config for config, _ in networked.rank(HELD_OUT[0], H200, 3)}
    assert configs < {config for config, _ in fitted.rank(HELD_OUT[0], H200, 4)}


def test_a_model_trained_again_keeps_its_network_and_its_other_devices(networked, rows, monkeypatch):
    monkeypatch.setattr(training, "TREES", 4)
    other = [replace(m, environment=replace(m.environment, device="h100")) for m in rows[:640]]
    again = networked.trained_again(rows, lambda name: [])
    assert again.network is networked.network
    assert again.facts.also == ()
    shared = Model(
        H200, replace(networked.facts, also=("h100",)), networked.booster, networked.names, networked.network
    )
    again = shared.trained_again(rows, lambda name: other if name == "h100" else [])
    assert again.facts.also == ("h100",)
    assert again.facts.rows == len(rows) + len(other)


def test_a_damaged_network_is_refused(small):
    edit(small, network={**stored(small)["network"], "biases": ["AAAA"]})
    with pytest.raises(CorruptError, match="biases of the network are not 2 texts"):
        Model.load(small)


def test_analytic_model_cannot_be_saved(tmp_path):
    with pytest.raises(InputError, match="analytic"):
        Model.analytic(H200).save(tmp_path)
    assert not list(tmp_path.iterdir())


def edit(folder, **changes):
    """Changes entries of the file, or removes those that become None; updates its digest."""
    path = folder / "model.json.xz"
    content = {k: v for k, v in {**stored(folder), **changes}.items() if v is not None}
    path.write_bytes(packed({**content, "digest": model_files._digest(content)}))


def stored(folder):
    """The content of the file."""
    return json.loads(model_files.content_of(folder / "model.json.xz"))


def packed(content):
    return lzma.compress(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), preset=0)


HALVES = [
    Gemm(m, n, k, layout, "f16")
    for m, n, k, layout in (
        (512, 512, 512, "NT"),
        (1024, 1024, 1024, "TN"),
        (64, 2560, 2560, "NN"),
        (128, 4096, 1024, "NT"),
        (256, 256, 8192, "NN"),
        (768, 320, 640, "TT"),
        (2048, 1024, 512, "NT"),
        (16, 4096, 4096, "NT"),
        (333, 444, 555, "NN"),
        (999, 511, 777, "TN"),
    )
]


@pytest.fixture(scope="module")
def both(rows) -> Model:
    """The model is trained on f32 by SIMT, and on f16 by all families."""
    rng = np.random.default_rng(3)
    more = []
    for p in HALVES:
        c = space.candidates(lower(p), H200)
        us = perf_model.predict(lower(p), c, H200)
        picked = [np.flatnonzero(c.family == code) for code in np.unique(c.family)]
        picked = [some[weighted_by_speed(us[some], 60, rng)] for some in picked]
        more += measure(p, c.take(np.concatenate(picked)), rng)
    return Model.fit([*rows[:2000], *more], H200, target="clock")


def test_unmeasured_families_are_ranked_by_the_performance_model(fitted):
    assert set(fitted.facts.families) == {"simt"}
    p = Gemm(512, 512, 4096, "NT", "f16")
    ranked = fitted.rank(p, H200, 50)
    c = Columns.of([c for c, us in ranked if c.family != "simt"])
    assert len(c)
    assert [us for c, us in ranked if c.family != "simt"] == pytest.approx(
        perf_model.predict(lower(p), c, H200).tolist()
    )


def test_unmeasured_families_are_as_wrong_as_the_fastest_measured_kernel(fitted):
    """The performance model's times are scaled by its error for that kernel, where the shortlist has one."""
    p = Conv(
        8, 64, 28, 28, 64, 3, 3, padding=2
    )  # too much padding for tiles of 4x4, which would be the whole shortlist
    ranked = fitted.rank(p, H200, 10_000)
    measured = [x for x in ranked if x[0].family == "simt"]
    others = [x for x in ranked if x[0].family == "winograd"]
    best, us = measured[0]
    ratio = us / perf_model.predict(lower(p), best, H200)
    assert others
    assert abs(ratio - 1) > 0.001
    times = perf_model.predict(lower(p), Columns.of([c for c, _ in others]), H200)
    assert [us for _, us in others] == pytest.approx((ratio * times).tolist(), rel=1e-3)


def test_predicted_time_of_an_unmeasured_family_is_the_one_that_ranks(fitted):
    """Also of a configuration alone, beside no kernel whose error is known."""
    p = Conv(8, 64, 28, 28, 64, 3, 3, padding=1)
    few, many = fitted.search(p, H200, 1), fitted.search(p, H200, 10_000)
    ranked = [x for x in many.best if x[0].family == "winograd"]
    scale = few.scale["winograd"]
    assert scale != 1
    c = Columns.of([c for c, _ in ranked])
    assert fitted.predict(p, c, many.scale).tolist() == pytest.approx([us for _, us in ranked], rel=1e-6)
    times = scale * perf_model.predict(lower(p), c, H200)
    assert fitted.predict(p, c).tolist() == pytest.approx(times.tolist(), rel=1e-6)


def test_predicted_time_of_an_unmeasured_family_counts_all_phases_of_a_strided_gradient(fitted):
    """Beside a kernel of a family with trees, too: mma kernels compute each of the four phases in a launch, whose times
    the performance model adds."""
    p = parse("conv N=9,C=256,H=104,W=104,K=512,R=2,S=2,stride=2 NCHW f16 direction=input_grad")
    columns = Columns.of([parse_config(f"family={family}") for family in ("simt", "mma")])
    mma = perf_model.predict(lower(p), columns, H200)[1]
    assert set(fitted.facts.families) == {"simt"}
    assert fitted.predict(p, columns, {"mma": 1.5})[1] == pytest.approx(1.5 * mma)
    assert mma == pytest.approx(4 * perf_model.microseconds(lower(p), columns.take(np.array([1])), H200)[0])


def test_one_model_is_trained_on_every_family(both):
    assert both.facts.families == {"mma": 600, "simt": 2600, "wgmma": 600}
    for p in (Gemm(640, 512, 768, "NT", "f16"), Gemm(32, 3072, 2048, "TN", "f16"), Gemm(500, 501, 502, "NN", "f16")):
        c = space.candidates(lower(p), H200)
        us, family = perf_model.predict(lower(p), c, H200), c.family
        for code in np.unique(family):
            mine = np.flatnonzero(family == code)
            some = plain(c.take(mine[model.fastest(us[mine], 400)]))
            learnt, formula = (
                np.log2(t / truth(p, some)) for t in (both.predict(p, some), perf_model.predict(lower(p), some, H200))
            )
            assert np.sqrt(np.mean(learnt**2)) < 0.3, (p.key(), code)
            # the trees cannot improve on a formula whose only error is the noise of kernels
            assert np.sqrt(np.mean(learnt**2)) < max(1.2 * np.sqrt(np.mean(formula**2)), 0.05)
        assert lost(both, p, 100) < 1.1


def test_shortened_search_includes_every_family():
    p = Gemm(896, 896, 32, "TN", "f16")
    c = space.candidates(lower(p), H200)
    us = perf_model.predict(lower(p), c, H200)
    near = np.flatnonzero(us <= 3 * us.min())
    present = set(np.unique(c.family[near]).tolist())
    assert len(present) == 3
    short, reach = shortlist(c, us, 3.0, 600)
    assert len(short) == len(set(short.tolist())) == 600
    assert set(short.tolist()) <= set(near.tolist())
    counts = np.bincount(c.family[short], minlength=3)
    assert (counts >= 100).all()
    assert 1 < reach < 3
    every, whole = shortlist(c, us, 3.0, len(near))
    assert whole == 3.0
    assert (every == near).all()


def test_model_of_other_features_is_ignored_with_a_warning(small, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setattr(tuning_files, "model_path", lambda device: small / "model.json.xz")
    models._load.cache_clear()
    log.warn.cache_clear()
    assert models.model_for(H200).trained
    edit(small, features=["moonlight"])
    models._load.cache_clear()
    assert not models.model_for(H200).trained
    assert not models.model_for(H200).trained
    [record] = [r for r in caplog.records if r.name == "ptxgen.tuning.selection"]
    assert record.levelname == "WARNING"
    assert "trained on 1 features" in record.getMessage()
    assert capsys.readouterr().err == ""
    assert selection.select(Gemm(2048, 256, 512), H200, use_model=True)[0].origin == "analytic"
    # a local model with unknown features is ignored
    folder = models.model_folder(SimpleNamespace(path=tmp_path / "tuning.sqlite"), "h200")
    models._load.cache_clear()
    folder.mkdir(parents=True)
    (folder / "model.json.xz").write_bytes((small / "model.json.xz").read_bytes())
    edit(small, features=list(trained_names(MEASURED)))
    assert models.model_for(H200, SimpleNamespace(path=tmp_path / "tuning.sqlite")).trained
    models._load.cache_clear()


def test_shipped_model_has_the_current_features():
    m = Model.load(tuning_files.model_path("h200").parent)
    assert m.facts.families["simt"] > 9000


def test_shipped_model_predicts_shipped_measurements():
    m = Model.load(tuning_files.model_path("h200").parent)
    path = tuning_files.measurements_path("h200")
    rows = tuning_files.read_all([path])
    held_out = {row.problem for row in read_rows(path.with_name(VALIDATION))[1]}
    of: dict[Problem, list[Measurement]] = {}
    for row in islice(rows, 3000):
        if row.outcome == "ok" and row.problem not in held_out:
            of.setdefault(row.problem, []).append(row)
    errors = []
    for p, measured in of.items():
        c = Columns.of([row.config for row in measured])
        legal = rules.legal(lower(p), c, H200)
        if legal.any():
            errors.append(np.log2(m.predict(p, c.take(legal)) / np.array([row.us for row in measured])[legal]))
    assert len(errors) > 20
    assert np.sqrt(np.mean(np.concatenate(errors) ** 2)) < 0.4
    assert np.median(np.abs(np.concatenate(errors))) < 0.15


def test_model_accepts_families_that_it_was_not_trained_on(small, monkeypatch):
    monkeypatch.setattr(wgmma_cost, "WGMMA", 0.5)
    monkeypatch.setattr(mma_cost, "GLOBAL", 99.0)
    assert Model.load(small).facts.families.keys() == {"simt"}


def test_illegal_measurements_do_not_train(rows, monkeypatch):
    monkeypatch.setattr(training, "TREES", 20)
    p = rows[0].problem
    bad = replace(rows[0], config=replace(rows[0].config, ms=3))
    assert rules.first_violation(lower(p), bad.config, H200) is not None
    m = Model.fit([*rows[:300], bad], H200)
    assert (m.facts.rows, m.facts.skipped) == (300, 1)


def test_another_format_is_refused(small):
    for other in (4, 6):
        edit(small, format=other)
        with pytest.raises(SchemaError, match=f"has format {other}; this ptxgen reads format 5"):
            Model.load(small)


def test_other_features_are_refused_and_named(small):
    names = stored(small)["features"]
    edit(small, features=[*names[:-1], "moonlight"])
    with pytest.raises(SchemaError, match=f"trained on {len(names)} features.* does not compute moonlight"):
        Model.load(small)
    edit(small, features=names[::-1])
    with pytest.raises(SchemaError, match="computes differently"):
        Model.load(small)


def test_model_accepts_features_that_it_was_not_trained_on(networked, saved, tmp_path, monkeypatch):
    """A later version computes one more feature between the others, or has one more family."""
    before = networked.rank(HELD_OUT[3], H200, 20)
    names = trained_names(MEASURED)
    simt = replace(FAMILIES["simt"], features={"moonlight": lambda c: c.ml % 7})
    monkeypatch.setitem(FAMILIES, "simt", simt)
    at = trained_names(MEASURED).index("moonlight")
    assert trained_names(MEASURED) == (*names[:at], "moonlight", *names[at:])
    again = Model.load(saved)
    assert again.rank(HELD_OUT[3], H200, 20) == before
    again.save(tmp_path / "copy")
    assert stored(tmp_path / "copy")["features"] == list(names)


def test_model_may_be_trained_on_more_features_and_on_fewer(rows, tmp_path):
    """Axes that models leave out by default, and any order."""
    names = ("waves", "pdl", "ml", "kg", "predicted_us", "long_n", "blocks_sm", "m")
    assert {"pdl", "long_n", "operand_path_a"} <= set(all_names()) - set(default_names())
    m = Model.fit(rows, H200, target="clock", names=names)
    assert m.names == names
    best = m.rank(HELD_OUT[3], H200, 20)
    m.save(tmp_path)
    assert Model.load(tmp_path).rank(HELD_OUT[3], H200, 20) == best
    with pytest.raises(InputError, match="names has moonlight; a feature is one of ms, "):
        Model.fit(rows, H200, names=("ml", "moonlight"))


def test_features_are_computed_in_the_order_of_the_names():
    p = lower(HELD_OUT[3])
    c = Columns.of([Config(family="skinny", long_n=1), Config(ml=32), Config(family="wgmma", pdl=2)])
    every = dict(zip(all_names(), features(p, c, H200, None, all_names()).T, strict=True))
    assert [every[n].tolist() for n in ("pdl", "long_n", "transposed_mma")] == [[0, 0, 2], [1, 0, 0], [1, 0, 0]]
    names = ("over_roofline", "long_n", "m", "ml", "splitk", "waves")
    assert features(p, c, H200, None, names).T.tolist() == [every[n].tolist() for n in names]


def test_features_with_changed_meaning_are_refused(small, monkeypatch):
    Model.load(small)
    monkeypatch.setattr(perf_costs, "PIPE", 0.5)
    with pytest.raises(SchemaError, match=r"computes differently: .*issue_cycles"):
        Model.load(small)


def test_model_of_a_different_device_is_refused(small):
    edit(small, device={"name": "h200", "tensor": 4})
    with pytest.raises(SchemaError, match="tensor"):
        Model.load(small)


def test_damaged_model_is_reported_as_corrupt(small, tmp_path, monkeypatch):
    with pytest.raises(CorruptError, match="cannot be read"):
        Model.load(tmp_path / "nowhere")
    path = small / "model.json.xz"
    text = path.read_bytes()
    path.write_bytes(text[:-20])
    with pytest.raises(CorruptError, match="is damaged"):
        Model.load(small)
    path.write_bytes(lzma.compress(lzma.decompress(text).replace(b'"rows":', b'"rows":1', 1)))
    with pytest.raises(CorruptError, match="digest"):
        Model.load(small)
    path.write_bytes(text + text)
    with pytest.raises(CorruptError, match="one xz stream"):
        Model.load(small)
    with monkeypatch.context() as patched:
        patched.setattr(model_files, "BYTES_MOST", len(text) + 1)
        path.write_bytes(text)
        with pytest.raises(CorruptError, match=f"of at most {len(text) + 1} bytes"):
            Model.load(small)
    edit(small, probe=None)
    with pytest.raises(CorruptError, match="probe"):
        Model.load(small)
    for junk in (b"", b"{}", *(lzma.compress(text) for text in (b"", b"[]", b"{}", b'{"format": "1"}'))):
        path.write_bytes(junk)
        with pytest.raises(CorruptError, match="is damaged"):
            Model.load(small)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptError, match="must be a file"):
        Model.load(small)


@pytest.mark.parametrize(
    ("item", "rule"), [("[]", "values"), ("1.5", "values"), ("[" * 100 + "]" * 100, "lists and objects")]
)
def test_small_file_of_many_values_is_refused_before_it_is_parsed(small, monkeypatch, item, rule):
    """Each list of two bytes would be an object of Python."""
    path = small / "model.json.xz"
    text = f'{{"format":5,"features":[{item}{f",{item}" * (model_files.BYTES_MOST // (len(item) + 1) - 10)}]}}'
    path.write_bytes(lzma.compress(text.encode(), preset=0))
    assert path.stat().st_size < 1 << 14
    monkeypatch.setattr(model_files.json, "loads", None)
    with pytest.raises(CorruptError, match=f"model.json.xz has [0-9]+ {rule}; it must have at most [0-9]+"):
        Model.load(small)


def test_limits_of_a_model_file_have_room(small):
    """The shipped model is the largest one that training makes."""
    text = model_files.content_of(tuning_files.model_path("h200"))
    assert 1.5 * len(text) < model_files.BYTES_MOST
    assert 1.5 * text.count(b",") < model_files.VALUES_MOST
    assert 1.5 * text.count(b"[") < model_files.CONTAINERS_MOST


def test_killed_save_leaves_the_previous_model(small, monkeypatch):
    model, before = Model.load(small), (small / "model.json.xz").read_bytes()

    def killed(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Model(H200, replace(model.facts, rows=1), model.booster).save(small)
    assert (small / "model.json.xz").read_bytes() == before
    assert Model.load(small).facts == model.facts


def test_concurrent_saves_leave_one_model(small):
    each = [Model.load(small) for _ in range(4)]

    def save(m):
        for _ in range(3):
            m.save(small)
            assert Model.load(small).facts == m.facts

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, each))
    assert [f.name for f in small.iterdir()] == ["model.json.xz"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"split": lambda bits: bits[:-1]}, "split has 3 whole trees in .* nodes; it must have 1 to 4096, and no part"),
        ({"split": lambda bits: [*bits, 0] * 1024}, "split has 5120 whole trees"),
        ({"split": lambda bits: [1] * 4096 + [0] * 4097}, "split has a tree of 8193 nodes; it must have at most 8192"),
        ({"split": lambda bits: bits[:0]}, "split has 0 whole trees"),
        ({"split": lambda bits: bits + 1}, "split has 2; it must be from 0 to 1"),
        ({"default_left": lambda bits: bits + 2}, "default_left has 2; it must be from 0 to 1"),
        ({"feature": lambda which: which + len(trained_names(MEASURED))}, "feature has .*; it must be from 0 to"),
        ({"feature": lambda which: which[1:]}, "feature has .* numbers; it must have"),
        ({"leaf": lambda leaf: leaf[1:]}, "leaf has .* numbers; it must have"),
        ({"threshold": lambda index: index + 1}, "threshold has .* indices; it must have .*, each below"),
        ({"threshold": lambda index: index[1:]}, "threshold has .* indices; it must have .*, each below"),
    ],
)
def test_invalid_trees_are_refused(small, change, named):
    (name, changed), forest = *change.items(), stored(small)["forest"]
    edit(small, forest={**forest, name: number_text.text_of(changed(number_text.numbers(forest[name])))})
    with pytest.raises(CorruptError, match=named):
        Model.load(small)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"base": float("1e39")}, "base is 1e[+]39; it must be a finite number"),
        ({"base": 1}, "base is 1; it must be a finite number"),
        ({"thresholds": [-1, 1]}, "thresholds has sum 0; it must have counts"),
        ({"thresholds": [0.5]}, "thresholds has sum 0.5; it must have counts"),
        ({"values": "AADAfw=="}, "it must have counts with sum 1"),
        ({"values": "?"}, "base64|padding"),
        ({"feature": [1, 2]}, "a column is of type list; it must be text"),
        ({"leaf": "plain"}, "a column has the code point 97; it must have code points from 128 on"),
        ({"leaf": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_invalid_columns_are_refused(small, change, named):
    with pytest.raises((ValueError, TypeError), match=named):
        tree_columns.unpack({**stored(small)["forest"], **change}, len(trained_names(MEASURED)))


def test_an_infinite_threshold_is_refused(small):
    forest = stored(small)["forest"]
    values = np.frombuffer(base64.b64decode(forest["values"]), "<f4").copy()
    values[0] = np.nan
    edit(small, forest={**forest, "values": base64.b64encode(values.tobytes()).decode()})
    with pytest.raises(CorruptError, match="values has a number that is infinite or NaN"):
        Model.load(small)


JUNK = (
    None,
    True,
    -1,
    0,
    1,
    2,
    7,
    109,
    1 << 31,
    1 << 63,
    1 << 70,
    -(1 << 31),
    0.5,
    -1.5,
    1e39,
    1e308,
    "",
    "1",
    "nan",
    [],
    [0],
    [[0]],
    {},
    {"left": [-1]},
)


def mutate(content, rng):
    """Replaces, removes, repeats or swaps a few values anywhere in a document."""
    for _ in range(int(rng.integers(1, 4))):
        at = content
        while True:
            keys = list(at) if isinstance(at, dict) else range(len(at))
            key = keys[int(rng.integers(len(keys)))]
            if isinstance(at[key], dict | list) and len(at[key]) and rng.random() < 0.9:
                at = at[key]
                continue
            change = rng.integers(5)
            if change == 0:
                del at[key]
            elif change == 1 and isinstance(at, list):
                at.append(at[key])
            elif change == 2 and isinstance(at, list):
                other = int(rng.integers(len(at)))
                at[key], at[other] = at[other], at[key]
            elif change == 3 and isinstance(at[key], int):
                at[key] += int(rng.integers(-3, 4))
            else:
                at[key] = JUNK[int(rng.integers(len(JUNK)))]
            break
        if not content:
            return


def small_network(features):
    """A network of 3 units as a model file stores it."""
    rng = np.random.default_rng(1)
    layers = [rng.standard_normal(shape).astype(np.float32) for shape in ((features, 3), (3, 1))]
    biases = tuple(np.zeros(layer.shape[1], np.float32) for layer in layers)
    return RankingNetwork(layers[0][:, 0], np.ones(features, np.float32), tuple(layers), biases).as_dict()


def test_mutated_files_are_refused_or_predict_finite_times(small, tmp_path):
    """Each file is refused with the documented class, or predicts finite times."""
    content = stored(small)
    content["forest"] = first_trees(content, 2)
    plain_text, rng = json.dumps(content), np.random.default_rng(5)
    x = rng.standard_normal((64, len(trained_names(MEASURED)))).astype(np.float32) * 100
    folder, counts = tmp_path / "fuzzed", Counter()
    folder.mkdir()
    for _ in range(FUZZED):
        text = bytearray(plain_text.encode())
        if rng.random() < 0.2:
            for at in rng.integers(0, len(text), 3):
                text[at] = int(rng.integers(256))
        else:
            changed = json.loads(plain_text)
            mutate(changed, rng)
            with suppress(TypeError, ValueError):
                changed["digest"] = model_files._digest(changed)
            text = json.dumps(changed).encode()
        (folder / "model.json.xz").write_bytes(lzma.compress(text, preset=0))
        try:
            m = Model.load(folder)
        except (CorruptError, SchemaError) as error:
            counts[type(error)] += 1
            continue
        counts[Model] += 1
        assert np.isfinite(m._booster.inplace_predict(x)).all()
    assert min(counts[outcome] for outcome in (CorruptError, SchemaError, Model)) > FUZZED // 100, counts


def test_formula_ranks_as_hardware():
    """The search space and the performance model against winners of an H200."""
    m = Model.analytic(H200)

    def best(*shape: int, layout: str) -> list[Config]:
        return [c for c, _ in m.rank(Gemm(*shape, layout), H200, 100)]

    skinny = best(16, 2560, 2560, layout="NN")
    assert all(c.ml == 16 for c in skinny)
    assert all(c.kg >= 6 for c in skinny)
    assert any((c.ms, c.ns) in ((4, 4), (4, 8), (8, 4)) for c in skinny)
    deep = best(32, 32, 60000, layout="TN")
    assert all(c.kg * c.kl >= 66 for c in deep)
    assert any((c.ml, c.nl) == (32, 32) for c in deep)
    square = best(2048, 2048, 2048, layout="TN")
    assert all(c.kg == 1 and c.ml * c.nl >= 128 * 128 for c in square)
    assert any({c.ms, c.ns} == {8, 16} for c in square)
    flat = best(4096, 4096, 32, layout="TN")
    assert all(c.kg == 1 and c.vec_c == 4 and c.store_policy == 1 for c in flat)
    odd = best(777, 1000, 1333, layout="NT")
    assert any(1 < c.kg <= 8 for c in odd)


def test_choosing_does_not_import_xgboosts_package():
    """It imports SciPy, and scikit-learn where it is installed."""
    code = """if True:
        import sys
        from ptxgen.problem.device import device
        from ptxgen.problem.registry import parse
        from ptxgen.tuning.selection import select
        print(select(parse("gemm 100,24,300 NN f16"), device("h200"))[0].origin, {"xgboost", "scipy"} & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "model set()\n"


def test_predictor_is_that_of_xgboosts_package(fitted):
    package = pytest.importorskip("xgboost").Booster()
    package.load_model(bytearray(fitted.booster.save_raw()))
    x = np.random.default_rng(0).normal(size=(300, len(fitted.names))).astype(np.float32) * 10
    x[::7] = np.nan
    for trees in (0, 5):
        expected = package.inplace_predict(x, iteration_range=(0, trees), validate_features=False)
        assert np.array_equal(fitted.booster.inplace_predict(x, iteration_range=(0, trees)), expected)
        assert np.array_equal(fitted.booster.inplace_predict(x[:, ::-1][:, ::-1], iteration_range=(0, trees)), expected)
    first = fitted.booster.inplace_predict(x, iteration_range=(0, 5))
    for rest in (slice(None), slice(3, 50), slice(7, 8)):
        whole = fitted.booster.inplace_predict(x[rest])
        for continued in (fitted.booster, package):
            given = {} if continued is fitted.booster else {"validate_features": False}
            later = continued.inplace_predict(x[rest], iteration_range=(5, 0), base_margin=first[rest], **given)
            assert np.array_equal(later, whole)
    assert package.num_boosted_rounds() == fitted.booster.num_boosted_rounds()
    with pytest.raises(ValueError, match="XGBoosterLoadModelFromBuffer"):
        TreePredictor(b"no model")


def test_columns_are_the_same_trees(fitted):
    forest = model_trees.forest_of(fitted.booster)
    leaf = {"left": [-1], "right": [-1], "feature": [0], "value": [0.25], "default_left": [0]}
    forest["trees"][2:2] = [leaf, leaf]
    again = tree_columns.unpack(tree_columns.pack(forest, len(fitted.names)), len(fitted.names))
    assert again["base"] == forest["base"]
    for before, after in zip(forest["trees"], again["trees"], strict=True):
        assert all(np.array_equal(np.asarray(before[name], column.dtype), column) for name, column in after.items())


def test_columns_have_nodes_in_breadth_first_order():
    values = [0.5, 1.5, 0.25, 2.5, 0.75, -1.0, 6.5]  # the last leaf is above LEAF_MOST
    deep = {"left": [1, 3, -1, 5, -1, -1, -1], "right": [2, 4, -1, 6, -1, -1, -1], "value": values}
    # the same tree, depth first
    tree = {"left": [1, 2, 3, -1, -1, -1, -1], "right": [6, 5, 4, -1, -1, -1, -1], "feature": [0, 2, 1, 0, 0, 0, 0]}
    tree |= {"value": [0.5, 1.5, 2.5, -1.0, 6.5, 0.75, 0.25], "default_left": [0, 1, 0, 0, 0, 0, 0]}
    columns = tree_columns.pack({"base": 0.5, "trees": [tree]}, 3)
    assert number_text.numbers(columns["split"]).tolist() == [1, 1, 0, 1, 0, 0, 0]
    again = tree_columns.unpack(columns, 3)["trees"][0]
    assert again["value"].tolist() == [*deep["value"][:-1], 6.0]
    assert again["left"].tolist() == deep["left"]
    assert again["right"].tolist() == deep["right"]
    assert again["feature"].tolist() == [0, 2, 0, 1, 0, 0, 0]
    assert again["default_left"].tolist() == [0, 1, 0, 0, 0, 0, 0]


def test_numbers_of_a_column_are_text():
    whole = [0, 1, 127, 1919, 1920, number_text.MOST]
    assert number_text.numbers(number_text.text_of(whole)).tolist() == whole
    assert len(json.dumps(number_text.text_of(whole), ensure_ascii=False).encode()) == 2 + 2 * 4 + 3 * 2
    signed = [0, -1, 1, -960, number_text.MOST // 2]
    assert number_text.signed_numbers(number_text.signed_text(signed)).tolist() == signed


def test_trees_of_the_problem_alone_come_last(fitted):
    """The trees that rank come first, in their order; the sum is the same."""
    forest = model_trees.forest_of(fitted.booster)
    constant = [i for i, name in enumerate(fitted.names) if name in PROBLEM]
    leaf = {"left": [-1], "right": [-1], "feature": [0], "value": [0.25], "default_left": [0]}
    split = {"left": [1, -1, -1], "right": [2, -1, -1], "value": [0.0, 1.0, 2.0], "default_left": [0, 0, 0]}
    fixed, free = ({**split, "feature": [fitted.names.index(name), 0, 0]} for name in ("k", "ml"))
    ordered = model_trees.ranking_first({"base": 0.0, "trees": [fixed, free, leaf, *forest["trees"]]}, constant)
    assert ordered["trees"][0] == free
    assert ordered["trees"][-2:] == [fixed, leaf]
    assert len(ordered["trees"]) == 3 + len(forest["trees"])
    assert {"m", "flops", "row_alignment_a"} < PROBLEM
    assert PROBLEM - set(DEVICE) < set(fitted.names)  # a model of one device lacks the facts of devices
    assert not PROBLEM & {"kg", "tiles", "ml", "waves"}


def test_fastest_breaks_ties_by_order():
    us = np.array([3, 1, 2, 1, 1], np.float32)
    assert model.fastest(us, 2).tolist() == [1, 3]
    assert model.fastest(us, 9).tolist() == [1, 3, 4, 2, 0]
    assert model.fastest(us, 0).tolist() == []
    assert model.fastest(us[:0], 3).tolist() == []


def test_last_stage_scores_the_best_of_the_first_trees_by_all(fitted):
    p = lower(HELD_OUT[1])
    c = space.candidates(p, H200)
    c = c.take(np.arange(0, len(c), len(c) // 500))
    us = perf_model.predict(p, c, H200)
    every, _ = fitted._score(p, c, H200, us)
    some, _ = fitted._score(p, c, H200, us, stage=(0.5, 50))
    kept = np.isfinite(some)
    assert kept.sum() == 50
    assert (some[kept] == every[kept]).all()
    assert every[kept].min() == every.min()
    too_few, _ = fitted._score(p, c, H200, us, stage=(0.0, 50))
    assert (too_few == every).all()


def test_trees_that_saw_no_complex_products_do_not_rank_them():
    facts = model_files.Facts({}, "clock", 300, 3, 0, families={"simt": 200, "mma": 200})
    for dtype, learnt in (("f64", ["simt", "mma"]), ("c64", []), ("c128", [])):
        assert model_files.known(facts, lower(Gemm(64, 64, 64, "NN", dtype))) == learnt, dtype
    counted = model_files.Facts(
        {}, "clock", 300, 3, 0, families={"simt": 200, "mma": 200, "simt complex": model_files.FEW}
    )
    assert model_files.known(counted, lower(Gemm(64, 64, 64, "NN", "c64"))) == ["simt"]
