"""The tuner with a fake worker, and with the real one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import InputError, LaunchError, ShapeError
from ptxgen.families.common import space
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.tuning import selection
from ptxgen.tuning.deadline import Deadline, Terminated, stop_on_signals
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.search import sampler, tuner
from ptxgen.tuning.search.gain import expected_gain
from ptxgen.tuning.search.shard import Shard
from ptxgen.tuning.search.tuner import Budget, Session, Tuned, summary, tune
from ptxgen.tuning.store import claims
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import OUTCOMES, Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header, write_measurements

P = Gemm(64, 48, 128, "TN")
Q = Gemm(32, 80, 64, "TN")
EMULATED = device("emulated")
BUDGET = Budget(samples=8, search=6, refine_rounds=2, refine=6, keep=2, final=3)


@cache
def digest(problem: Gemm, config: Any) -> str:
    return render(plan_for(problem, config, EMULATED)).digest


def time_of(config: Any, salt: str = "") -> float:
    """A made-up time, the same for the same configuration."""
    return 1.0 + zlib.crc32(f"{config}{salt}".encode()) % 1000 / 100


class Fake:
    """A worker that answers at once. ``Fake.answer`` gives the answers; ``Fake.log``: every order."""

    log: list[tuple[Gemm, Any, str]] = []  # noqa: RUF012
    compared: list[list[Any]] = []  # noqa: RUF012
    stop_after = 1 << 30
    clock = "model"

    @staticmethod
    def answer(problem: Gemm, config: Any, purpose: str) -> dict[str, Any]:
        return {"outcome": "ok", "samples": (time_of(config),)}

    def __init__(self, driver: str, commit: str = "") -> None:
        self.environment = Environment("emulated", Fake.clock, commit=commit)

    def start(self) -> dict[str, Any]:
        return {"device": asdict(EMULATED)}

    def compare(self, problem, configs, timing, rounds=1) -> list[list[float]]:
        Fake.compared.append(list(configs))
        return [[Fake.answer(problem, config, "compare")["samples"][0]] * rounds for config in configs]

    def compare_with_vendor(self, problem, configs, timing, rounds=1) -> tuple[list[list[float]], None]:
        return self.compare(problem, configs, timing, rounds), None

    def measure(self, problem, config, timing, purpose="", full=False) -> Measurement:
        if len(Fake.log) >= Fake.stop_after:
            raise KeyboardInterrupt
        assert first_violation(lower(problem), config, EMULATED) is None
        Fake.log.append((problem, config, purpose))
        made = {"digest": digest(problem, config), "created": time.time(), **Fake.answer(problem, config, purpose)}
        return Measurement(problem, config, environment=self.environment, purpose=purpose, **made)

    def stop(self) -> None:
        pass


LEARN = cache(partial(tuner.Categorical.learn, wanted=100))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(tuner, "Worker", Fake)
    monkeypatch.setattr(tuner.Categorical, "learn", LEARN)  # seconds, and the same for the same seed
    monkeypatch.setattr(sampler, "BATCH", 1 << 12)  # drawn for every few samples
    monkeypatch.setattr(Fake, "log", [])
    monkeypatch.setattr(Fake, "compared", [])
    monkeypatch.setattr(Fake, "stop_after", 1 << 30)
    return monkeypatch


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "tuning.sqlite") as opened:
        yield opened


def searched() -> list[tuple[Gemm, Any]]:
    return [(p, c) for p, c, purpose in Fake.log if purpose != "final"]


def test_run_measures_stores_and_sets_the_winner(fake, database):
    (done,) = tune([P], database=database, budget=BUDGET)
    rows = list(database.measurements())
    assert len(rows) == len(Fake.log)
    assert {m.problem for m in rows} == {P}
    purposes = Counter(purpose for _, _, purpose in Fake.log)
    assert 6 <= purposes["sample"] <= 8
    assert purposes["search"] <= 6
    assert 0 < purposes["refine"] <= 12
    assert purposes["final"] == 3
    assert len(set(searched())) == len(searched())  # nothing twice
    assert done.measured == len(searched())
    # the fastest were timed again, and the fastest of those won
    ranking = sorted((c for _, c in searched()), key=time_of)
    finals = [c for _, c, purpose in Fake.log if purpose == "final"]
    assert [time_of(c) for c in finals] == [time_of(c) for c in ranking[:3]]
    assert done.winner.config == finals[0]
    assert database.best(P, "emulated", "model") == done.winner
    assert not done.failures
    assert "µs, " in summary(done)


def test_equal_seeds_give_equal_runs(fake, tmp_path):
    logs = []
    for n, seed in enumerate((1, 1, 2)):
        Fake.log.clear()
        with Database(tmp_path / f"{n}.sqlite") as fresh:
            tune([P], database=fresh, budget=BUDGET, seed=seed)
        logs.append(list(Fake.log))
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


@pytest.mark.first(1)
@pytest.mark.parametrize("after", [18, 3])
def test_interrupted_run_continues_where_it_stopped(fake, tmp_path, after):
    with Database(tmp_path / "whole.sqlite") as whole:
        (expected,) = tune([P], database=whole, budget=BUDGET)
    total = len(searched())
    Fake.log.clear()
    fake.setattr(Fake, "stop_after", after)
    with Database(tmp_path / "cut.sqlite") as cut:
        with pytest.raises(KeyboardInterrupt):
            tune([P], database=cut, budget=BUDGET)
        assert len(list(cut.measurements())) == after  # each was committed
        fake.setattr(Fake, "stop_after", 1 << 30)
        before = set(searched())
        (done,) = tune([P], database=cut, budget=BUDGET)
        assert len(set(searched())) == len(searched())  # nothing was measured again
        assert before <= set(searched())
        assert done.measured == len(searched()) - len(before)
        assert len(searched()) <= total + BUDGET.refine * BUDGET.refine_rounds
        assert done.winner.us <= expected.winner.us * 2
        third = len(searched())
        tune([P], database=cut, budget=replace(BUDGET, refine_rounds=0))
        assert len(searched()) == third  # all of it is known by now


def test_interrupted_run_leaves_a_winner(fake, database):
    fake.setattr(
        Fake,
        "answer",
        staticmethod(
            lambda p, c, purpose: (
                (_ for _ in ()).throw(KeyboardInterrupt)
                if purpose == "refine"
                else {"outcome": "ok", "samples": (time_of(c),)}
            )
        ),
    )
    with pytest.raises(KeyboardInterrupt):
        tune([P], database=database, budget=BUDGET)
    winner = database.best(P, "emulated", "model")
    assert winner.us == min(
        time_of(c) for _, c in searched() if (P, c) in {(m.problem, m.config) for m in database.measurements()}
    )


def test_failures_are_rows(fake, database):
    """Every outcome is stored and counted; a failure neither wins nor is tried again."""

    def answer(problem, config, purpose):
        if purpose == "final":
            return {"outcome": "ok", "samples": (5.0,)}
        outcome = OUTCOMES[zlib.crc32(str(config).encode()) % len(OUTCOMES)]
        if outcome == "ok":
            return {"outcome": "ok", "samples": (time_of(config),)}
        return {
            "outcome": outcome,
            "message": f"why {outcome}",
            "digest": "" if outcome == "timeout" else digest(problem, config),
        }

    fake.setattr(Fake, "answer", staticmethod(answer))
    (done,) = tune([P, Q], database=database, budget=BUDGET)[:1]
    rows = [m for m in database.measurements() if m.purpose != "final"]
    stored = Counter(m.outcome for m in rows)
    assert set(stored) == set(OUTCOMES)
    for m in rows:
        assert m.outcome == OUTCOMES[zlib.crc32(str(m.config).encode()) % len(OUTCOMES)]
        if m.outcome != "ok":
            assert m.message == f"why {m.outcome}"
            assert m.samples == ()
    mine = Counter(m.outcome for m in rows if m.problem == P and m.outcome != "ok")
    assert done.failures == mine
    assert all(f"{n} {outcome}" in summary(done) for outcome, n in mine.items())
    finals = {c for _, c, purpose in Fake.log if purpose == "final"}
    assert finals <= {m.config for m in rows if m.outcome == "ok"}
    known = set(searched())
    Fake.log.clear()
    tune([P, Q], database=database, budget=replace(BUDGET, refine_rounds=0))
    assert not set(searched()) & known


def test_problem_without_a_working_kernel(fake, database):
    fake.setattr(Fake, "answer", staticmethod(lambda *_: {"outcome": "wrong_result", "message": "all zero"}))
    (done,) = tune([P], database=database, budget=BUDGET)
    assert done.winner is None
    assert database.best(P, "emulated", "model") is None
    assert summary(done).startswith("gemm 64,48,128 TN f32: no kernel succeeded; ")
    assert done.failures["wrong_result"] == done.measured > 0


def test_changed_kernels_are_measured_again(fake, database):
    """Stored rows of another text, failures too, do not count."""
    tune([P], database=database, budget=replace(BUDGET, refine_rounds=0))
    first = searched()
    stale = {c for _, c in first[::2]}
    rows = list(database.measurements())
    with Database(database.path.with_name("older.sqlite")) as older:
        for m in rows:
            if m.purpose == "final":
                continue
            if m.config in stale:
                m = replace(m, digest="0" * 16, outcome="wrong_result", samples=())
            older.add(m)
        Fake.log.clear()
        tune([P], database=older, budget=replace(BUDGET, refine_rounds=0))
    assert {c for _, c in searched()} == stale


def test_stale_time_does_not_enter_the_final(fake, database):
    tune([P], database=database, budget=replace(BUDGET, refine_rounds=0))
    rows = [m for m in database.measurements() if m.purpose != "final"]
    fabricated = replace(rows[0], digest="0" * 16, samples=(0.001,))
    session = Session("auto", database, BUDGET)
    session.known[next(k for k, m in session.known.items() if m.config == fabricated.config)] = fabricated
    assert fabricated.config not in [m.config for m in session.fastest(P, 100)]
    session.close()


def winner_of(database: Database, text: str, us: float, purpose: str = "final") -> Measurement:
    config = parse_config(text)
    m = Measurement(P, config, "ok", Environment("emulated", "model"), (us,), digest(P, config), purpose=purpose)
    database.set_winner(m)
    return m


STORED = "ms=2 ns=2 ml=16 nl=16 vec_a=4 vec_b=4 vec_c=2"


@pytest.mark.parametrize(("now", "stays"), [(0.5, True), (50.0, False)])
def test_stored_winner_is_timed_with_the_others(fake, database, now, stays):
    """Such as an imported winner: it stays if it is faster on this machine now."""
    stored = winner_of(database, STORED, 0.7)
    fake.setattr(
        Fake,
        "answer",
        staticmethod(lambda p, c, purpose: {"outcome": "ok", "samples": (now if c == stored.config else time_of(c),)}),
    )
    (done,) = tune([P], database=database, budget=replace(BUDGET, refine_rounds=0))
    assert Fake.log[0] == (P, stored.config, "search")
    assert ((P, stored.config, "final") in Fake.log) == stays
    assert (done.winner.config == stored.config) == stays
    winner = database.best(P, "emulated", "model")
    assert (winner.config == stored.config) == stays
    assert winner.us == (now if stays else done.winner.us)


def test_long_timing_replaces_a_short_one(fake, database):
    fake.setattr(
        Fake,
        "answer",
        staticmethod(
            lambda p, c, purpose: {"outcome": "ok", "samples": (time_of(c) * (1.5 if purpose == "final" else 1.0),)}
        ),
    )
    (done,) = tune([P], database=database, budget=replace(BUDGET, refine_rounds=0))
    winner = database.best(P, "emulated", "model")
    assert winner == done.winner
    assert winner.purpose == "final"


def test_seeds_are_tried_first(fake, database):
    seed = parse_config(STORED)
    tune([P], database=database, budget=replace(BUDGET, refine_rounds=0), seeds={P: [seed]})
    assert next(c for _, c, purpose in Fake.log if purpose == "search") == seed


def test_winners_of_similar_problems_are_tried_first(fake, database):
    """Problems of one layout and element size share winners, the most similar first; others do not."""
    tune([P], "emulated", database, BUDGET)
    best = min((m for m in database.measurements() if m.purpose != "final"), key=lambda m: m.us)
    few = replace(BUDGET, samples=0, refine_rounds=0)
    like = ((replace(P, ldc=64), True), (replace(P, k=2 * P.k), True), (Gemm(P.m, P.n, P.k, "NT"), False))
    for problem, tried in like:
        Fake.log.clear()
        tune([problem], "emulated", database, few)
        early = [c for _, c, purpose in Fake.log if purpose == "search"][:2]
        assert (best.config in early) == tried


def test_winner_is_never_worse_than_the_untuned_choice(fake, database):
    """Also if the budget allows no search: all samples may be slow."""
    [(untuned, _)] = Model.analytic(EMULATED).rank(P, EMULATED, 1, exhaustive=True)
    fake.setattr(
        Fake,
        "answer",
        staticmethod(
            lambda problem, config, purpose: {"outcome": "ok", "samples": (1.0 if config == untuned else 2.0,)}
        ),
    )
    [done] = tune([P], "emulated", database, replace(BUDGET, samples=2, search=0, refine_rounds=0))
    assert done.winner.config == untuned


def test_regressor_is_trained_once_enough_rows_are_new(fake, database, tmp_path):
    """Shipped measurements are included: a model of one tuned shape alone would choose worse for all others."""
    fake.setattr(tuner, "RETRAIN_AFTER", 6)
    elsewhere = Gemm(96, 80, 256, "TN")
    there, here = (space.candidates(lower(p), EMULATED) for p in (elsewhere, P))
    ships = [
        Measurement(elsewhere, c, "ok", Environment("emulated", "model"), (time_of(c),), created=1.0)
        for c in map(there.row, range(5))
    ]
    path = tmp_path / "measurements.jsonl.xz"
    write_measurements(path, Header("emulated", "model"), ships)
    fake.setattr(tuner, "measurement_files", lambda name: [path])
    session = Session("auto", database, BUDGET)
    whole = [here.row(n) for n in range(9)]
    session.measure(P, whole[:5], "sample")
    session.fit()
    assert not session.model.trained
    session.measure(P, whole[5:6], "sample")
    session.fit()
    first = session.model
    assert first.facts.rows == 11
    assert first.facts.problems == 2
    session.measure(P, whole[6:], "sample")
    session.fit()
    assert session.model is first  # three are new
    fake.setattr(tuner, "RETRAIN_AFTER", 3)
    fake.setattr(tuner, "RETRAIN_FRACTION", 0.5)
    session.fit()
    assert session.model is first  # three of eleven
    fake.setattr(tuner, "RETRAIN_FRACTION", 0.25)
    session.fit()
    assert session.model is not first


def test_a_run_without_a_search_trains_no_model(fake, database):
    fake.setattr(tuner, "RETRAIN_AFTER", 2)
    session = Session("auto", database, replace(BUDGET, search=0))
    c = space.candidates(lower(P), EMULATED)
    session.measure(P, [c.row(n) for n in range(5)], "sample")
    session.fit()
    assert not session.model.trained


def test_distance_of_problems():
    assert tuner.distance(P, P) == 0
    assert tuner.distance(Gemm(64, 64, 64), Gemm(128, 64, 16)) == 3
    assert tuner.distance(Gemm(0, 64, 64), Gemm(2, 64, 64)) == 1


def test_emulated_winner_is_never_used_for_a_gpu(fake, database):
    """A winner of the emulated device serves the emulated device alone."""
    (done,) = tune([P], database=database, budget=replace(BUDGET, refine_rounds=0))
    assert database.best(P, "emulated", "model") == done.winner
    assert database.best(P, "h200") is None
    assert database.best(P, "h200", "model") is None
    assert database.best(P, "emulated") is None  # by the hardware's clock
    assert selection.select(P, EMULATED, database)[0].origin == "winner"
    chosen = selection.select(P, device("h200"), database)[0]
    assert chosen.origin != "winner"
    # even if such a row is stored under the name of a GPU
    other_device = replace(done.winner, environment=Environment("h200", "model"))
    database.set_winner(other_device)
    assert database.best(P, "h200") is None
    assert selection.select(P, device("h200"), database)[0].origin == chosen.origin


def test_invalid_arguments_are_refused(fake, database):
    with pytest.raises(InputError, match="database is None"):
        tune([P])
    for p in (Gemm(0, 4, 4), Gemm(4, 0, 4)):
        with pytest.raises(ShapeError, match=f"{p.key()} has an empty C"):
            tune([P, p], database=database)
    assert not Fake.log


def test_unavailable_device(monkeypatch, database):
    monkeypatch.setenv("PTXGEN_DRIVER", "")
    with pytest.raises(LaunchError, match="did not start"):
        tune([P], driver="cuda-that-is-not", database=database, budget=BUDGET)


class Listener:
    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.steps, self.messages = 0, []

    def phase(self, name, total):
        self.phases.append((name, total))

    def step(self, text=""):
        self.steps += 1

    def message(self, text):
        self.messages.append(text)


def test_progress_is_reported(fake, database):
    listener = Listener()
    tune([P, Q], database=database, budget=BUDGET, progress=listener)
    assert [name for name, _ in listener.phases] == ["sample", "search"]
    assert listener.phases[0][1] == 16
    assert listener.steps >= len(searched())
    assert sum("TFLOP/s" in m for m in listener.messages) == 2


def test_real_worker(database, monkeypatch):
    """On the emulated device: a child process runs and checks each kernel."""
    monkeypatch.setattr(tuner.Categorical, "learn", LEARN)
    budget = Budget(samples=2, search=1, refine_rounds=1, refine=1, keep=1, final=1)
    done = tune([P], "emulated", database, budget)
    for t in done:
        assert isinstance(t, Tuned)
        assert t.winner is not None
        assert t.winner.environment.clock == "model"
        assert not t.failures
        assert t.winner.digest == digest(t.problem, t.winner.config)
        assert database.best(t.problem, "emulated", "model") == t.winner


@pytest.mark.parametrize(("theirs", "stays"), [(0.5, True), (50.0, False)])
def test_faster_winner_of_a_concurrent_process_stays(fake, database, theirs, stays):
    """Both tune the same problem, and the slower one ends last."""
    other = parse_config("ms=4 ns=4 ml=32 nl=16 u=8 lanes_m=8")
    measurement = Measurement(
        P, other, "ok", Environment("emulated", "model"), (theirs,), digest(P, other), purpose="final"
    )

    def answer(problem, config, purpose):
        if purpose == "final":  # after this run looked up the stored winner, before it stores its own
            with Database(database.path) as theirs:
                theirs.set_winner(measurement)
        return {"outcome": "ok", "samples": (time_of(config),)}

    fake.setattr(Fake, "answer", staticmethod(answer))
    (done,) = tune([P], database=database, budget=BUDGET)
    assert database.best(P, "emulated", "model") == (measurement if stays else done.winner)


# --- tuners that share a database --------------------------------------------------------------------------------


@pytest.fixture
def configs():
    columns = space.candidates(lower(P), EMULATED)
    return [columns.row(i) for i in range(4)]


def session(database, **options):
    return Session("emulated", database, BUDGET, **options)


def test_concurrent_tuners_measure_nothing_twice(fake, tmp_path):
    """Both draw the same configurations; each has measured one before either continues."""
    both, began = threading.Barrier(2, timeout=60), threading.local()

    def answer(problem, config, purpose):
        if not hasattr(began, "once"):
            began.once = True
            both.wait()
        return {"outcome": "ok", "samples": (time_of(config),)}

    def run(_):
        with Database(tmp_path / "shared.sqlite") as shared:
            return tune([P], database=shared, budget=BUDGET)[0]

    fake.setattr(Fake, "answer", staticmethod(answer))
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(run, range(2)))
    assert len(set(searched())) == len(searched())
    assert sum(t.measured for t in done) == len(searched())
    assert all(t.measured for t in done)
    assert done[0].winner.config == done[1].winner.config


def test_results_of_a_concurrent_tuner_are_not_measured_again(fake, database, configs):
    one, two = session(database), session(database)
    measured = one.measure(P, configs, "search")
    assert two.measure(P, configs, "search") == measured
    assert searched() == [(P, c) for c in configs]
    assert database.claimants() == []


def test_claimed_configurations_are_awaited_last(fake, database, configs):
    mine = session(database)
    first, *others = configs
    database.claim(P, first, "emulated", "model", "another", 60.0)
    theirs = Measurement(P, first, "ok", mine.worker.environment, (0.5,), digest(P, first))
    slept = []

    def sleep(seconds):
        slept.append([c for _, c in searched()])
        database.add(theirs)

    fake.setattr(tuner.time, "sleep", sleep)
    assert mine.measure(P, configs, "search")[-1].samples == (0.5,)
    assert slept == [others]
    assert [c for _, c in searched()] == others


@pytest.mark.parametrize(
    ("owner", "ended"),
    [
        ("{node}:{dead}:x", True),
        ("{node}:{pid}:x", False),
        ("n:{dead}:x", False),
        ("{node}:1:x", False),
        ("{node}", False),
        ("", False),
        ("{node}:" + "9" * 40 + ":x", False),
    ],
)
def test_claims_of_a_killed_process_are_released(fake, database, configs, owner, ended):
    process = subprocess.Popen(["true"])
    process.wait()
    owner = owner.format(node=claims.platform.node(), pid=os.getpid(), dead=process.pid)
    database.claim(P, configs[0], "emulated", "model", owner, 60.0)
    session(database).close()
    assert database.claimants() == ([] if ended else [owner])


def test_interrupted_tuner_releases_its_claim(fake, database):
    fake.setattr(Fake, "stop_after", 2)
    with pytest.raises(KeyboardInterrupt):
        tune([P], database=database, budget=BUDGET)
    assert database.claimants() == []


@pytest.mark.parametrize(
    ("message", "again"),
    [("the measuring process was ended from outside, by SIGKILL", True), ("", True), ("ended by SIGSEGV", False)],
)
def test_inconclusive_crash_is_measured_again(fake, database, configs, message, again):
    crashed = Measurement(P, configs[0], "crashed", Environment("emulated", "model"), message=message)
    database.add(crashed)
    measurement = session(database).measure(P, configs[:1], "search")
    assert [m.outcome for m in measurement] == ["ok" if again else "crashed"]


def test_retry_measures_earlier_failures_again(fake, database, configs):
    failing = dict(zip(configs[1:], OUTCOMES[1:], strict=False))
    fake.setattr(
        Fake,
        "answer",
        staticmethod(
            lambda p, c, purpose: {"outcome": failing.get(c, "ok"), "samples": () if c in failing else (3.0,)}
        ),
    )
    session(database).measure(P, configs, "search")
    assert session(database).measure(P, configs, "search")[1].outcome == failing[configs[1]]
    assert len(searched()) == 4
    once = session(database, retry=True)
    once.measure(P, configs, "search")
    assert [c for _, c in searched()[4:]] == configs[1:]
    once.measure(P, configs, "search")
    assert len(searched()) == 7  # once a run


# --- provisional winners, deadlines, the order of problems -------------------------------------------------------


def test_every_measured_problem_has_its_fastest_as_the_winner_at_any_time(fake, database):
    best: dict[Gemm, float] = {}

    def answer(problem, config, purpose):
        if problem in best and purpose != "final":
            assert database.best(problem, "emulated", "model").us == best[problem]
        best[problem] = min(best.get(problem, math.inf), time_of(config))
        return {"outcome": "ok", "samples": (time_of(config),)}

    fake.setattr(Fake, "answer", staticmethod(answer))
    tune([P, Q], database=database, budget=BUDGET)
    assert {p for p, _, _ in Fake.log[:2]} == {P, Q}  # the present choices first
    assert len(Fake.log) > 20


@pytest.fixture
def hardware(fake):
    """Times of a GPU, with noise: ``search`` and ``final`` times differ from those of a paired comparison."""
    fake.setattr(Fake, "clock", "hardware")
    fake.setattr(tuner, "find_ptxas", lambda: None)
    return fake


@pytest.mark.parametrize(("paired", "replaced"), [(1.1, False), (0.997, False), (0.9, True)])
def test_only_what_is_faster_in_a_paired_comparison_replaces_the_present_choice(hardware, database, paired, replaced):
    """Single times of the others are better in every phase."""
    [(untuned, _)] = Model.analytic(EMULATED).rank(P, EMULATED, 1)

    def answer(problem, config, purpose):
        others = paired if purpose == "compare" else 0.5 + time_of(config) / 1000
        return {"outcome": "ok", "samples": (1.0 if config == untuned else others,)}

    hardware.setattr(Fake, "answer", staticmethod(answer))
    seen = []
    original = Database.set_winner

    def set_winner(self, m, over=None):
        seen.append(m)
        return original(self, m, over)

    hardware.setattr(Database, "set_winner", set_winner)
    (done,) = tune([P], database=database, budget=BUDGET)
    assert (done.winner.config != untuned) == replaced
    assert (database.best(P, "emulated").config != untuned) == replaced
    assert (any(m.config != untuned for m in seen)) == replaced  # provisional winners too
    assert Fake.compared


def test_a_paired_comparison_that_fails_keeps_the_present_choice(hardware, database):
    hardware.setattr(Fake, "compare", lambda self, *arguments: [])
    [(untuned, _)] = Model.analytic(EMULATED).rank(P, EMULATED, 1)
    session = Session("auto", database, BUDGET)
    session.begin([queue := tuner.ProblemQueue(P)])
    columns = space.candidates(lower(P), EMULATED)
    session.measure(queue.problem, [columns.row(i) for i in range(40)], "sample")
    assert database.best(P, "emulated").config == untuned


class Clock:
    """A clock that each measurement advances by a second."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(fake, monkeypatch):
    clock = Clock()

    def answer(problem, config, purpose):
        clock.now += 1
        return {"outcome": "ok", "samples": (time_of(config),)}

    fake.setattr(Fake, "answer", staticmethod(answer))
    monkeypatch.setattr("ptxgen.tuning.deadline.time", clock)
    monkeypatch.setattr("ptxgen.tuning.search.tuner.time", clock)
    return clock


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 0), (2.0, 4), (10.0, 12), (20.0, 22)])
def test_a_run_ends_at_its_time_limit(clock, database, seconds, most):
    problems = [P, Q]
    done = tune(problems, database=database, budget=replace(BUDGET, seconds=seconds))
    assert min(seconds, most) <= len(Fake.log) <= most
    for t in done:
        assert (t.winner is not None) == (t.measured > 0) == (seconds > 0)
        assert database.best(t.problem, "emulated", "model") == t.winner
    if seconds >= 20:
        assert {purpose for _, _, purpose in Fake.log} == {"search", "sample", "final"}


def test_problems_with_more_weight_are_measured_more(clock, database):
    """P and Q take about the same time."""
    budget = Budget(samples=0, search=100, refine_rounds=2, refine=20, seconds=40.0)
    tune([P, Q], database=database, budget=budget, weights={P: 1.0, Q: 1000.0})
    first = Counter(p for p, _ in searched())
    assert first[Q] >= 20
    assert first[P] <= 2
    with Database(database.path.with_name("other.sqlite")) as other:
        Fake.log.clear()
        clock.now = 0.0
        tune([P, Q], database=other, budget=budget, weights={P: 1000.0})
    second = Counter(p for p, _ in searched())
    assert second[P] >= 20
    assert second[Q] <= 2


def test_a_problem_ends_where_no_gain_is_predicted(fake, database):
    """All kernels take about the time of the present choice."""
    fake.setattr(
        Fake, "answer", staticmethod(lambda p, c, purpose: {"outcome": "ok", "samples": (500 + time_of(c) / 10,)})
    )
    tune([P], database=database, budget=Budget(samples=4, search=400, refine_rounds=3, refine=30))
    purposes = Counter(purpose for _, _, purpose in Fake.log)
    assert purposes["search"] < 200
    assert 0 < purposes["refine"] <= 30  # one round, which gained little


def test_a_trained_model_is_not_given_samples_under_a_time_limit(clock, database, monkeypatch):
    monkeypatch.setattr(Model, "trained", True)
    tune([P], database=database, budget=replace(BUDGET, seconds=30.0))
    assert {purpose for _, _, purpose in Fake.log} == {"search", "refine", "final"}


def test_kernels_that_were_not_reached_are_not_assembled(hardware, database, configs):
    """Their assembling would delay that of the next problem."""
    began, release = [], threading.Event()

    def assemble(self, problem, config):
        began.append(config)
        if len(began) > 1:
            release.wait(60)

    hardware.setattr(tuner, "find_ptxas", lambda: "ptxas")
    hardware.setattr(Session, "_assemble", assemble)
    one = session(database, jobs=1)
    one.until = -1.0  # after the first
    assert len(one.measure(P, configs, "search")) == 1
    release.set()
    one.pool.submit(lambda: None).result()
    assert began == configs[: len(began)]
    assert len(began) <= 2
    one.close()


@pytest.mark.parametrize(("seconds", "trained"), [(math.inf, True), (100.0, True), (50.0, False)])
def test_the_model_is_trained_only_if_there_is_time(clock, database, configs, monkeypatch, seconds, trained):
    monkeypatch.setattr(tuner, "RETRAIN_AFTER", 2)
    one = Session("auto", database, replace(BUDGET, seconds=seconds))
    one.measure(P, configs, "sample")
    one.fit()
    assert one.model.trained == trained


def test_few_measurements_do_not_replace_a_model_of_many_that_are_not_installed(fake, database):
    """A wheel has models without the measurements on which they rest."""
    fake.setattr(tuner, "RETRAIN_AFTER", 2)
    fake.setattr(tuner, "measurement_files", lambda name: [])
    candidates = space.candidates(lower(P), EMULATED)
    session = Session("auto", database, BUDGET)
    session.measure(P, [candidates.row(n) for n in range(4)], "sample")
    session.fit()
    first = session.model
    assert first.facts.rows == 4
    fake.setattr(tuner, "RETRAIN_FRACTION", 0)
    first.facts = replace(first.facts, rows=9, newest=0.0)
    session.fit()
    assert session.model is first
    first.facts = replace(first.facts, rows=8, newest=0.0)
    session.fit()
    assert session.model is not first


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_completes_the_measurement_in_progress(fake, database, name):
    number = getattr(signal, name)

    def answer(problem, config, purpose):
        if len(Fake.log) == 5:
            os.kill(os.getpid(), number)
        return {"outcome": "ok", "samples": (time_of(config),)}

    fake.setattr(Fake, "answer", staticmethod(answer))
    deadline, told = Deadline(), []
    before = signal.getsignal(number)
    with stop_on_signals(deadline, told.append):
        (done,) = tune([P], database=database, budget=BUDGET, deadline=deadline)
    assert told == [name]
    assert signal.getsignal(number) is before
    assert len(list(database.measurements())) == len(Fake.log) == 5
    assert database.best(P, "emulated", "model") == done.winner
    with pytest.raises(Terminated if name == "SIGTERM" else KeyboardInterrupt):
        deadline.raise_for_signal()


def test_a_second_signal_ends_the_run_at_once(fake, database):
    def answer(problem, config, purpose):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        return {"outcome": "ok", "samples": (time_of(config),)}

    fake.setattr(Fake, "answer", staticmethod(answer))
    deadline = Deadline()
    with pytest.raises(Terminated), stop_on_signals(deadline):
        tune([P], database=database, budget=BUDGET, deadline=deadline)
    assert not list(database.measurements())


def test_expected_gain():
    assert expected_gain([], 0) == expected_gain([1.0, 2.0], 0) == 0
    assert expected_gain([], 5) == 1
    assert expected_gain([2.0] * 20, 20) == 0
    times = [1.0, 1.02, 1.03, 1.04, 1.05, *[1.3] * 15]
    gain = expected_gain(times, 20)
    assert gain == pytest.approx(0.5 * math.log(1.05) / (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=0.02)
    assert expected_gain([*times, *[1.3] * 20], 20) == pytest.approx(gain * 2 / 3, rel=0.02)
    assert expected_gain(times, 20, shift=0.1) < gain / 10


def test_the_expected_gain_is_the_mean_of_many_draws():
    rng, gains = np.random.default_rng(0), []
    for _ in range(2000):
        us = np.exp(-0.1 * rng.exponential(size=60))
        gains.append((1 - us.min() / us[:40].min(), expected_gain(list(us[:40]), 20)))
    true, expected = np.mean(gains, axis=0)
    assert expected == pytest.approx(true, rel=0.3)


def test_shards_divide_the_problems():
    problems = [Gemm(16 * m, 16 * n, 64) for m in range(1, 11) for n in range(1, 11)]
    parts = [Shard.parse(f"{i}/4") for i in (1, 2, 3, 4)]
    members = [[p for p in problems if part.contains(p)] for part in parts]
    assert sorted(p.key() for some in members for p in some) == sorted(p.key() for p in problems)
    assert all(len(some) > 10 for some in members)
    assert Shard.parse("1/3").contains(Gemm(64, 48, 128, "TN"))  # the same in every process
    assert Shard().contains(P)
    for text in ("0/4", "5/4", "1/0", "1", "a/b", "-1/2", ""):
        with pytest.raises(InputError, match="shard is"):
            Shard.parse(text)
