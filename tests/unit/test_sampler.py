"""The generative sampler: legal, reproducible, and far better than uniform draws."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import AXIS, Columns
from ptxgen.errors import ConfigError
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.tuning.search import sampler
from ptxgen.tuning.search.sampler import ALPHA, Categorical, samples_per_family, table, weighted_by_speed
from tests.lowered import rules, space

H200 = device("h200")
P = Gemm(2560, 16, 2560, "TN")
HALF = Gemm(512, 512, 4096, "NT", "f16")
LEGAL = 500  #: legal draws of a family from which a sampler learns


@pytest.fixture(scope="module")
def learnt() -> Categorical:
    return Categorical.learn(lower(P), H200, seed=1, wanted=LEGAL)


@pytest.fixture(scope="module")
def half() -> Categorical:
    return Categorical.learn(lower(HALF), H200, wanted=LEGAL)


def same(a: Columns, b: Columns) -> bool:
    return all((a.column(x.name) == b.column(x.name)).all() for x in AXIS.values())


def test_samples_are_legal_and_as_many_as_requested(learnt):
    c = learnt.sample(500, np.random.default_rng(0))
    assert len(c) == 500
    assert rules.legal(P, c, H200).all()
    assert len(learnt.sample(0, np.random.default_rng(0))) == 0
    assert len({c.row(i) for i in range(500)}) > 490


def test_equal_seeds_give_equal_samples(learnt):
    assert same(learnt.sample(50, np.random.default_rng(5)), learnt.sample(50, np.random.default_rng(5)))
    assert not same(learnt.sample(50, np.random.default_rng(5)), learnt.sample(50, np.random.default_rng(6)))
    again = Categorical.learn(lower(P), H200, seed=1, wanted=LEGAL)
    assert all((again.variables[0][n].chances == v.chances).all() for n, v in learnt.variables[0].items())


def test_probabilities_are_counts_over_a_prior(learnt):
    assert tuple(learnt.family) == (0,)
    assert learnt.family[0] == 1
    chances = {names: v.chances for names, v in learnt.variables[0].items()}
    assert tuple(chances) == tuple((name,) for name in space.SPACES[0].axes)
    for p in chances.values():
        assert p.sum() == pytest.approx(1)
        counts = p * (len(p) * ALPHA + learnt.accepted) - ALPHA
        assert counts == pytest.approx(np.round(counts), abs=1e-6)
        assert counts.min() > -1e-6
    # A is not K-major: keeping it so is never legal, and never ruled out
    p = chances["kmajor_smem_a",]
    assert p[1] == pytest.approx(ALPHA / (2 * ALPHA + learnt.accepted))


def test_family_is_a_sampled_axis(half):
    assert tuple(half.family) == (0, 1, 2)
    assert sum(half.family.values()) == pytest.approx(1)
    assert all(t.accepted >= 500 for t in half.learnt.values())
    c = half.sample(600, np.random.default_rng(0))
    assert rules.legal(HALF, c, H200).all()
    counts = np.bincount(c.family, minlength=3)
    assert (counts > 30).all()
    for code in half.family:
        one = half.only(code).sample(50, np.random.default_rng(code))
        assert set(one.family.tolist()) == {code}
        assert rules.legal(HALF, one, H200).all()


@pytest.mark.parametrize("p", [HALF, Gemm(77, 33, 129, "TN", "f16"), Gemm(512, 512, 512, "NT", "s8")])
def test_variables_hold_every_axis_of_a_family_once(p):
    for f in space.families(p, H200):
        variables = f.variables(lower(p))
        names = [name for axes in variables for name in axes]
        assert len(names) == len(set(names))
        assert set(names) == set(f.axes)
        for axes, values in variables.items():
            assert values
            assert len(set(values)) == len(values)
            assert {len(v) for v in values} == {len(axes)}


def test_problems_of_one_class_share_probabilities(half):
    other = Gemm(2048, 256, 1024, "NT", "f16")
    assert space.class_key(other, H200) == space.class_key(HALF, H200)
    c = half.of(lower(other)).sample(200, np.random.default_rng(1))
    assert rules.legal(other, c, H200).all()


#: of the table of the samplers
DRAWS = 10_000


@cache
def rows_of(p: Gemm) -> dict[str, dict[str, Any]]:
    """The table of the samplers, by name."""
    return {r["sampler"]: r for r in table(lower(p), H200, DRAWS)}


def test_acceptance_is_reported_by_family():
    rows = rows_of(HALF)
    for row in rows.values():
        assert [f["family"] for f in row["families"]] == ["simt", "mma", "wgmma"]
        assert sum(f["draws"] for f in row["families"]) == row["draws"] == DRAWS
        assert sum(f["accepted"] for f in row["families"]) == row["accepted"]
    for learnt, uniform in zip(rows["categorical"]["families"], rows["uniform"]["families"], strict=True):
        assert learnt["acceptance"] > 10 * uniform["acceptance"]


def test_uniform_phase_is_short_and_counted():
    few = Categorical.learn(lower(P), H200, wanted=10, limit=200_000)
    assert few.accepted >= 10
    assert few.draws <= 200_000
    none = Categorical.learn(lower(P), H200, limit=100)
    assert none.draws == 100


@pytest.mark.parametrize("p", [P, Gemm(777, 1000, 1333, "NT"), HALF], ids=lambda p: p.key())
def test_categorical_sampler_beats_uniform_draws(p):
    rows = rows_of(p)
    learnt, uniform = rows["categorical"], rows["uniform"]
    assert learnt["draws"] == uniform["draws"] == DRAWS
    assert learnt["acceptance"] == learnt["accepted"] / DRAWS
    assert learnt["acceptance"] > 0.04
    assert learnt["acceptance"] > 10 * uniform["acceptance"]
    assert learnt["learnt_from_draws"] > 0
    assert uniform["learnt_from_draws"] == 0


def test_values_follow_their_probabilities():
    flat = sampler.Variable.flat([(2,), (4,), (8,), (16,)])
    uneven = replace(flat, chances=np.array([0.5, 0.0, 0.25, 0.25]))
    for variable in (flat, uneven):
        seen = np.bincount(variable.draw(np.random.default_rng(1), 40_000), minlength=4) / 40_000
        assert np.abs(seen - variable.chances).max() < 0.02


def test_tally_counts_legal_draws(learnt):
    n = 40_000
    tallies = learnt.tally(n, np.random.default_rng(2)).values()
    assert sum(t.draws for t in tallies) == n
    rng = np.random.default_rng(2)
    legal = 0
    for start in range(0, n, sampler.BATCH):
        size = min(sampler.BATCH, n - start)
        drawn = {k[0]: v.values[v.draw(rng, size), 0] for k, v in learnt.variables[0].items()}
        legal += int((rules.rejections(P, Columns(drawn, size), H200) < 0).sum())
    assert sum(t.accepted for t in tallies) == legal
    assert not any(t.draws for t in learnt.tally(0, rng).values())


def test_sampler_without_legal_draws_ends():
    with pytest.raises(ConfigError, match=r"40000 draws had \d+ legal configurations; 100000 are requested"):
        Categorical.uniform(lower(P), H200).sample(100_000, np.random.default_rng(0), limit=40_000)


def test_weighted_by_speed_rows_are_fast_distinct_and_repeatable():
    us = np.random.default_rng(0).uniform(1, 50, 5000).astype(np.float32)
    picked = weighted_by_speed(us, 300, np.random.default_rng(1))
    assert len(set(picked.tolist())) == 300
    assert us[picked].mean() < us.mean() / 3
    assert us[picked].max() > 10  # but anywhere
    assert (picked == weighted_by_speed(us, 300, np.random.default_rng(1))).all()
    assert sorted(weighted_by_speed(us[:7], 20, np.random.default_rng(1))) == list(range(7))
    assert len(weighted_by_speed(us, 0, np.random.default_rng(1))) == 0


def test_weighted_by_speed_follows_its_power():
    us = np.array([1.0, 2.0], np.float32)
    rng = np.random.default_rng(0)
    first = np.mean([weighted_by_speed(us, 1, rng, power=2.0)[0] == 0 for _ in range(4000)])
    assert first == pytest.approx(4 / 5, abs=0.03)


def test_samples_follow_the_predicted_speed_of_families():
    us = np.array([10.0, 50.0, 12.0, 30.0, 31.0], np.float32)
    family = np.array([0, 0, 1, 2, 2])
    shares = samples_per_family(us, family, 100)
    assert sum(shares.values()) == 100
    assert shares[0] > shares[1] > shares[2] > 2
    assert (
        samples_per_family(us, np.array([0, 0, 1, 1, 2]), 100)[2] == 2
    )  # more than 3 times slower than the best: in proportion to its speed alone
    assert samples_per_family(us, np.zeros(5, int), 7) == {0: 7}
    assert samples_per_family(us[:0], family[:0], 7) == {}
