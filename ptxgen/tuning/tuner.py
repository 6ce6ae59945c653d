"""Finds the fastest configuration of each problem: sample, train the model, search, refine, time the best again,
store."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from ptxgen.codegen.config import FAMILIES, Config
from ptxgen.codegen.render import render
from ptxgen.errors import AssembleError, ConfigError, DatabaseError, InputError, PtxgenError, ShapeError
from ptxgen.families import perf_model as clock
from ptxgen.families import rules, space
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.runtime.assemble import assemble, find_ptxas
from ptxgen.tuning.bench import FINAL_TIMING, SEARCH_TIMING
from ptxgen.tuning.claims import Claims
from ptxgen.tuning.database import Database, config_text
from ptxgen.tuning.measurement import Measurement
from ptxgen.tuning.model import Model
from ptxgen.tuning.progress import SILENT, Progress
from ptxgen.tuning.sampler import Categorical, promise, promising
from ptxgen.tuning.seeds import seeds as shipped_seeds
from ptxgen.tuning.selection import model_folder, model_for
from ptxgen.tuning.tuning_files import measurements_path, read_measurements
from ptxgen.tuning.worker import Worker

FAMILY_RATIO = 1.5  #: a family's fastest configuration is refined if its time is within this factor of the fastest
MAX_SIMILAR = 8  #: similar problems whose fastest configuration is measured
RETRAIN_AFTER = 200  #: new measurements after which the model is trained again
MAX_PREVIOUS = 16  #: fastest configurations of earlier kernel versions that are measured again
POLL_SECONDS = 0.1  #: between checks whether another tuner has finished a configuration
DRAWS = 1_000_000  #: limit of draws from the generative model for one problem


@dataclass(frozen=True)
class Budget:
    """The number of measurements per problem: ``samples`` random configurations, the ``search`` best of the model's
    ranking, then ``refine_rounds`` rounds of at most ``refine`` neighbours of the ``keep`` fastest; the ``final``
    fastest are timed again with the final policy. ``seconds``: approximate time budget of the whole run; each phase
    and problem has a part of it, and measures at least once."""

    samples: int = 60
    search: int = 100
    refine_rounds: int = 3
    refine: int = 60
    keep: int = 3
    final: int = 4
    seconds: float = math.inf


#: phase -> fraction of the time budget after which it ends; the rest is for the final timing
PHASE_ENDS = {"sample": 0.6, "search": 0.75, "refine": 0.9}


@dataclass
class Tuned:
    """The result of tuning one problem. ``winner``: None if no kernel succeeded; ``failures``: counts of outcomes
    other than ok."""

    problem: Problem
    winner: Measurement | None = None
    measured: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Session:
    """One tuning run on one device: the worker that measures, threads that assemble ahead of it, the database, the
    model."""

    def __init__(
        self,
        driver: str,
        database: Database,
        budget: Budget,
        seed: int = 0,
        progress: Progress = SILENT,
        jobs: int | None = None,
        commit: str = "",
        retry: bool = False,
    ) -> None:
        self.database, self.budget, self.progress = database, budget, progress
        self.rng = np.random.default_rng(seed)
        self.worker = Worker(driver, commit=commit)
        self.device = Device(**self.worker.start()["device"])
        self.clock = self.worker.environment.clock
        self.pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
        self.assemble_ahead = self.clock == "hardware" and find_ptxas() is not None
        self.samplers: dict[Hashable, Categorical] = {}
        self.known: dict[tuple[str, str], Measurement] = {}
        self.newest = 0  #: id of the last row in ``known``
        self._read_new_rows()
        if retry:
            self.known = {key: m for key, m in self.known.items() if m.outcome == "ok"}
        self.claims = Claims(database, self.device.name, self.clock)
        try:
            self.model = model_for(self.device, database)
        except DatabaseError:  # the model is of an older ptxgen: this run trains a new one
            self.model = Model.analytic(self.device)
        self.results: dict[Problem, Tuned] = {}
        self.digests: dict[tuple[str, str], str] = {}  #: digests of the kernels that this version generates
        self.began, self.until = time.monotonic(), math.inf

    def set_deadline(self, phase: str, part: float) -> None:
        """Sets the time until which the following measurements may run: ``part`` (0 to 1) of the phase."""
        names = list(PHASE_ENDS)
        before = PHASE_ENDS[names[names.index(phase) - 1]] if phase != names[0] else 0.0
        self.until = self.began + self.budget.seconds * (before + part * (PHASE_ENDS[phase] - before))

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.worker.stop()
        self.claims.release()

    # ---- measuring

    def _assemble(self, problem: Problem, config: Config) -> None:
        """Assembles into the disk cache, for the worker. Errors are ignored here: they occur again in the worker."""
        with suppress(AssembleError):
            assemble(render(plan_for(problem, config, self.device)))

    def measure(self, problem: Problem, configs: Iterable[Config], purpose: str) -> list[Measurement]:
        """Measures the configurations that the database does not hold; returns the rows of all of ``configs``."""
        chosen = list(dict.fromkeys(configs))
        self.results.setdefault(problem, Tuned(problem))
        waiting: dict[Config, Future[None]] = {}
        if self.assemble_ahead:
            fresh = [c for c in chosen if self._stored(problem, c) is None]
            waiting = {c: self.pool.submit(self._assemble, problem, c) for c in fresh}
        out: list[Measurement] = []
        while chosen:
            claimed = []
            for config in chosen:
                if out and time.monotonic() > self.until:
                    return out
                found = self._stored(problem, config) or self._measure_one(
                    problem, config, purpose, waiting.get(config)
                )
                if found is None:
                    claimed.append(config)
                    continue
                self.progress.step(problem.key())
                out.append(found)
            if len(claimed) == len(chosen):
                time.sleep(POLL_SECONDS)
            chosen = claimed
        return out

    def _measure_one(
        self, problem: Problem, config: Config, purpose: str, assembled: Future[None] | None
    ) -> Measurement | None:
        """Measures a configuration and stores the row. None: another tuner that shares the database is measuring it."""
        if not self.claims.take(problem, config):
            return None
        self._read_new_rows()
        if (found := self._stored(problem, config)) is not None:  # another tuner stored it before the claim
            self.claims.release()
            return found
        if assembled is not None:
            assembled.result()
        found = self.worker.measure(problem, config, SEARCH_TIMING, purpose)
        self.database.add(found)
        key = problem.key(), config_text(config)
        self.known[key] = found
        if found.digest:
            self.digests[key] = found.digest
        tuned = self.results[problem]
        tuned.measured += 1
        if found.outcome != "ok":
            tuned.failures[found.outcome] += 1
        return found

    def _read_new_rows(self) -> None:
        """Reads the rows that are new in the database: those of earlier runs and of tuners that share it."""
        newest = self.database.newest()
        for m in self.database.measurements(device=self.device.name, clock=self.clock, after=self.newest):
            if m.purpose != "final":
                self.known[m.problem.key(), config_text(m.config)] = m
        self.newest = newest

    def _stored(self, problem: Problem, config: Config) -> Measurement | None:
        """The stored measurement of a configuration; None if its kernel has changed or the measurement was
        inconclusive."""
        found = self.known.get((problem.key(), config_text(config)))
        return found if found is not None and not found.inconclusive and self._current(found) else None

    def _current(self, m: Measurement) -> bool:
        """Whether a measurement is of the kernel that this version generates. A failure without a digest counts as
        current."""
        if not m.digest:
            return True
        key = m.problem.key(), config_text(m.config)
        if key not in self.digests:
            self.digests[key] = ""
            with suppress(PtxgenError):
                self.digests[key] = render(plan_for(m.problem, m.config, self.device)).digest
        return self.digests[key] == m.digest

    def fastest(self, problem: Problem, n: int, family: str | None = None) -> list[Measurement]:
        """The ``n`` fastest stored measurements of a problem, of all families or of one."""
        rows = [
            m
            for m in self.known.values()
            if m.problem == problem and m.outcome == "ok" and family in (None, m.config.family)
        ]
        return list(islice(filter(self._current, sorted(rows, key=lambda m: m.us)), n))

    # ---- phases

    def sample(self, problems: Sequence[Problem]) -> None:
        """Measures the training data: legal configurations of every problem. Each family gets a number by its
        predicted speed; half are drawn from the generative model (section 4.1 of the paper), half from the legal
        space, weighted by the performance model."""
        n = self.budget.samples
        self.progress.phase("sample", n * len(problems))
        for nth, problem in enumerate(problems, 1):
            self.set_deadline("sample", nth / len(problems))
            whole = space.candidates(lower(problem), self.device)
            us, family = clock.predict(lower(problem), whole, self.device), whole.family
            configs: list[Config] = []
            for code, count in promise(us, family, n).items():
                drawn = self._draw(problem, code, count // 2)
                rows = np.flatnonzero(family == code)
                likely = rows[promising(us[rows], count - len(drawn), self.rng)]
                configs += drawn + [whole.row(int(i)) for i in likely]
            if self.budget.seconds < math.inf:  # time may run out: no family may lose more samples than another
                configs = [configs[int(i)] for i in self.rng.permutation(len(configs))]
            self.measure(problem, configs, "sample")

    def _draw(self, problem: Problem, code: int, n: int) -> list[Config]:
        """``n`` configurations of a family from the generative model, which similar problems share; none if it finds
        too few."""
        p = lower(problem)
        key = space.kind(p, self.device)
        if key not in self.samplers:
            self.samplers[key] = Categorical.learn(p, self.device, int(self.rng.integers(1 << 31)))
        with suppress(ConfigError):
            found = self.samplers[key].of(p).only(code).sample(n, self.rng, DRAWS)
            return [found.row(i) for i in range(len(found))]
        return []

    def fit(self) -> None:
        """Trains the model on the measurements of this device, those of this run and those shipped, if enough are
        new."""
        facts = self.model.facts
        seen = facts.newest if facts is not None else 0.0
        if sum(m.outcome == "ok" and m.created > seen for m in self.known.values()) < RETRAIN_AFTER:
            return
        path = measurements_path(self.device.name)
        rows = [*(read_measurements(path)[1] if path.exists() else ()), *self.known.values()]
        good = list({(m.problem, m.config): m for m in rows if m.outcome == "ok"}.values())
        self.progress.message(f"training on {len(good)} measurements")
        self.model = Model.fit(good, self.device, target=facts.target if facts is not None else "")
        self.model.save(model_folder(self.database, self.device.name))

    def search(self, problem: Problem, seeds: Iterable[Config] = ()) -> None:
        """Measures the model's best configurations of the whole legal space, and ``seeds`` (section 6 of the paper).
        The configuration that an untuned selection would use comes first, so no winner is slower than it."""
        count = max(self.budget.search, 1)
        ranked = [c for c, _ in self.model.rank(problem, self.device, count, exhaustive=True)]
        fast = [*self._previously_fast(problem), *self._fast_for_similar(problem)]
        self.measure(problem, [*seeds, *ranked[:1], *fast, *ranked[1:]], "search")
        if self.database.best(problem, self.device.name, self.clock) is None:
            # a preliminary winner, until ``finish`` stores one with the final timing
            for m in self.fastest(problem, 1):
                self.database.set_winner(m, over=lambda held: False)

    def _previously_fast(self, problem: Problem) -> list[Config]:
        """The fastest stored configurations, also those of kernels that have changed since: they are good
        candidates."""
        rows = (m for m in self.known.values() if m.problem == problem and m.outcome == "ok")
        return self._legal(problem, sorted(rows, key=lambda m: m.us)[:MAX_PREVIOUS])

    def _fast_for_similar(self, problem: Problem) -> list[Config]:
        """The fastest configuration of each of the nearest problems of the same operation, layout and element size."""
        best: dict[Problem, Measurement] = {}
        for m in self.known.values():
            other = m.problem
            if other == problem or m.outcome != "ok" or similarity_class(other) != similarity_class(problem):
                continue
            if other not in best or m.us < best[other].us:
                best[other] = m
        nearest = sorted(best, key=lambda other: distance(other, problem))[:MAX_SIMILAR]
        return self._legal(problem, (best[other] for other in nearest))

    def _legal(self, problem: Problem, rows: Iterable[Measurement]) -> list[Config]:
        """The configurations of ``rows`` that are legal for ``problem``."""
        return [m.config for m in rows if rules.first_violation(lower(problem), m.config, self.device) is None]

    def refine(self, problem: Problem) -> None:
        """Measures neighbours of the fastest few, on every axis, until a round finds none that is faster."""
        budget = self.budget
        for _ in range(budget.refine_rounds):
            best = self._refine_starts(problem)
            if not best:
                return
            near: list[Config] = []
            for m in best:
                c = space.refinements(lower(problem), self.device, m.config)
                picked = self.rng.permutation(len(c))[: budget.refine // len(best)]
                near += [c.row(int(i)) for i in picked]
            self.measure(problem, near, "refine")
            if self.fastest(problem, 1)[0].us >= best[0].us:
                return

    def _refine_starts(self, problem: Problem) -> list[Measurement]:
        """The fastest few, and the fastest of each family within ``FAMILY_RATIO``, so that one poorly compiled
        kernel does not exclude its family."""
        best = self.fastest(problem, self.budget.keep)
        for family in FAMILIES if best else ():
            mine = self.fastest(problem, 1, family)
            best += [m for m in mine if m not in best and m.us <= FAMILY_RATIO * best[0].us]
        return best

    def finish(self, problem: Problem) -> Tuned:
        """Times the fastest few again with the final policy, compares all of C, and stores the winner."""
        tuned = self.results.setdefault(problem, Tuned(problem))
        stored = self.database.best(problem, self.device.name, self.clock)
        configs = [m.config for m in self.fastest(problem, self.budget.final)]
        if stored is not None and self._current(stored):
            configs.append(stored.config)
        again = [
            self.worker.measure(problem, config, FINAL_TIMING, "final", full=True) for config in dict.fromkeys(configs)
        ]
        for m in again:
            self.database.add(m)
        good = sorted((m for m in again if m.outcome == "ok"), key=lambda m: m.us)
        if good:
            tuned.winner = best = good[0]

            def loses(held: Measurement) -> bool:
                if held.purpose != "final" or not self._current(held):
                    return True
                retimed = held == stored and held.config != best.config  # timed in this run, and slower
                return retimed or best.us < held.us

            self.database.set_winner(best, over=loses)
        return tuned


def tune(
    problems: Sequence[Problem],
    driver: str = "auto",
    database: Database | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    jobs: int | None = None,
    commit: str = "",
    seeds: dict[Problem, list[Config]] | None = None,
    retry: bool = False,
) -> list[Tuned]:
    """Tunes every problem; stores measurements and winners as it proceeds.

    Configurations that the database holds are not measured again, so an interrupted run continues where it stopped.
    Processes that share a database share the work: each measures what no other has measured or is measuring. ``seeds``:
    configurations to measure first, in place of the shipped seeds. ``retry``: measure again the configurations that
    failed in earlier runs. LaunchError: the device cannot be used.
    """
    if database is None:
        raise InputError("database is None; tune requires a database")
    for problem in problems:
        if 0 in (lower(problem).m, lower(problem).n):
            raise ShapeError(f"problem {problem.key()} has an empty C; its extents must be positive")
    session = Session(driver, database, budget or Budget(), seed, progress or SILENT, jobs, commit, retry)
    try:
        session.sample(problems)
        session.fit()
        total = session.budget.search * len(problems)
        session.progress.phase("search", total)
        for n, problem in enumerate(problems, 1):
            session.set_deadline("search", n / len(problems))
            session.search(problem, (seeds or {}).get(problem) or shipped_seeds(problem, session.device.name))
        session.fit()
        session.progress.phase("refine", session.budget.refine * session.budget.refine_rounds * len(problems))
        out = []
        for n, problem in enumerate(problems, 1):
            session.set_deadline("refine", n / len(problems))
            session.refine(problem)
            out.append(session.finish(problem))
            session.progress.message(summary(out[-1]))
        return out
    finally:
        session.close()


def similarity_class(p: Problem) -> tuple[object, ...]:
    """The properties by which problems are compared: one configuration tends to suit problems of one class with near
    extents."""
    return p.operation, p.layout, p.element.bytes, p.accumulator.bytes


def distance(p: Problem, q: Problem) -> float:
    """The distance of two problems: the sum over m, n, k of |log2| of the ratio of their extents."""
    pairs = ((getattr(lower(p), name), getattr(lower(q), name)) for name in "mnk")
    return sum(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in pairs)


def summary(t: Tuned) -> str:
    """One line on the result of one problem."""
    failed = ", ".join(f"{n} {outcome}" for outcome, n in t.failures.items())
    head = t.problem.key()
    tail = f"{t.measured} measured" + (f" ({failed})" if failed else "")
    if t.winner is None:
        return f"{head}: no kernel succeeded; {tail}"
    return f"{head}: {t.winner.us:.2f} us, {t.winner.tflops:.2f} TFLOP/s with {t.winner.config}; {tail}"


__all__ = ["Budget", "Session", "Tuned", "summary", "tune"]
