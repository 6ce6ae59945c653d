"""Finds the fastest configuration of each problem: sample, learn, search, refine, time again, remember."""

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

NEAR = 1.5  #: times the fastest within which a family's own fastest is refined too
NEIGHBOURS = 8  #: problems whose fastest configuration is tried
FRESH = 200  #: measurements since the regressor was trained that are worth another training
REMEMBERED = 16  #: of the fastest that older kernels gave, measured again
POLL_SECONDS = 0.1  #: between looks at what another tuner is measuring
DRAWS = 1_000_000  #: of the generative model, after which it is given up for one problem


@dataclass(frozen=True)
class Budget:
    """How much is measured for each problem: ``samples`` drawn by the generative model, ``search``: of the regressor's
    best, then ``refine_rounds`` rounds of at most ``refine`` neighbours of the ``keep`` fastest; the ``final`` fastest
    are timed again at length. ``seconds``: what all of it may take on all problems, about: each phase and each problem
    has its share, and measures at least once."""

    samples: int = 60
    search: int = 100
    refine_rounds: int = 3
    refine: int = 60
    keep: int = 3
    final: int = 4
    seconds: float = math.inf


#: phase -> share of the seconds that are gone when it ends; the rest is for the final timing
SHARES = {"sample": 0.6, "search": 0.75, "refine": 0.9}


@dataclass
class Tuned:
    """What tuning one problem came to. ``winner``: None if nothing ran; ``failures``: outcomes other than ok."""

    problem: Problem
    winner: Measurement | None = None
    measured: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Session:
    """One tuning run on one device: a worker that measures, threads that assemble ahead of it, the database."""

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
        self.ahead = self.clock == "hardware" and find_ptxas() is not None
        self.samplers: dict[Hashable, Categorical] = {}
        self.known: dict[tuple[str, str], Measurement] = {}
        self.newest = 0  #: number of the last row that is in ``known``
        self._learn()
        if retry:
            self.known = {key: m for key, m in self.known.items() if m.outcome == "ok"}
        self.claims = Claims(database, self.device.name, self.clock)
        try:
            self.model = model_for(self.device, database)
        except DatabaseError:  # of an older ptxgen: this run trains another
            self.model = Model.analytic(self.device)
        self.results: dict[Problem, Tuned] = {}
        self.digests: dict[tuple[str, str], str] = {}  #: of kernels as this version generates them
        self.began, self.until = time.monotonic(), math.inf

    def share(self, phase: str, part: float) -> None:
        """Lets what follows measure until ``part`` (of 1) of a phase's share of the seconds is gone."""
        names = list(SHARES)
        before = SHARES[names[names.index(phase) - 1]] if phase != names[0] else 0.0
        self.until = self.began + self.budget.seconds * (before + part * (SHARES[phase] - before))

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.worker.stop()
        self.claims.release()

    # ---- measuring

    def _prepare(self, problem: Problem, config: Config) -> None:
        """Assembles into the cache, which the worker then finds full; what fails there fails again in the worker."""
        with suppress(AssembleError):
            assemble(render(plan_for(problem, config, self.device)))

    def measure(self, problem: Problem, configs: Iterable[Config], purpose: str) -> list[Measurement]:
        """Measures what the database does not hold yet; the rows of all of ``configs``."""
        chosen = list(dict.fromkeys(configs))
        self.results.setdefault(problem, Tuned(problem))
        waiting: dict[Config, Future[None]] = {}
        if self.ahead:
            fresh = [c for c in chosen if self._remembered(problem, c) is None]
            waiting = {c: self.pool.submit(self._prepare, problem, c) for c in fresh}
        out: list[Measurement] = []
        while chosen:
            claimed = []
            for config in chosen:
                if out and time.monotonic() > self.until:
                    return out
                found = self._remembered(problem, config) or self._take(problem, config, purpose, waiting.get(config))
                if found is None:
                    claimed.append(config)
                    continue
                self.progress.step(problem.key())
                out.append(found)
            if len(claimed) == len(chosen):
                time.sleep(POLL_SECONDS)
            chosen = claimed
        return out

    def _take(
        self, problem: Problem, config: Config, purpose: str, assembled: Future[None] | None
    ) -> Measurement | None:
        """Measures a configuration and stores the row; None: another tuner that shares the database measures it now."""
        if not self.claims.take(problem, config):
            return None
        self._learn()
        if (found := self._remembered(problem, config)) is not None:  # the other tuner stored it before the claim
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

    def _learn(self) -> None:
        """Reads the rows that are new in the database: those of earlier runs, and of tuners that share it."""
        newest = self.database.newest()
        for m in self.database.measurements(device=self.device.name, clock=self.clock, after=self.newest):
            if m.purpose != "final":
                self.known[m.problem.key(), config_text(m.config)] = m
        self.newest = newest

    def _remembered(self, problem: Problem, config: Config) -> Measurement | None:
        """What is known of a configuration, unless it was another kernel then, or nothing was found out."""
        found = self.known.get((problem.key(), config_text(config)))
        return found if found is not None and not found.inconclusive and self._current(found) else None

    def _current(self, m: Measurement) -> bool:
        """Whether a measurement is of the kernel that this version generates; failures before it was made count."""
        if not m.digest:
            return True
        key = m.problem.key(), config_text(m.config)
        if key not in self.digests:
            self.digests[key] = ""
            with suppress(PtxgenError):
                self.digests[key] = render(plan_for(m.problem, m.config, self.device)).digest
        return self.digests[key] == m.digest

    def fastest(self, problem: Problem, n: int, family: int | None = None) -> list[Measurement]:
        """The ``n`` fastest of what is known, of all families or of one."""
        rows = [
            m
            for m in self.known.values()
            if m.problem == problem and m.outcome == "ok" and family in (None, m.config.family)
        ]
        return list(islice(filter(self._current, sorted(rows, key=lambda m: m.us)), n))

    # ---- phases

    def sample(self, problems: Sequence[Problem]) -> None:
        """What the regressor learns from: legal configurations of every problem, of each family by its promise, half of
        them drawn by the generative model (section 4.1), half from the legal space with a preference for what the clock
        model puts first."""
        n = self.budget.samples
        self.progress.phase("sample", n * len(problems))
        for nth, problem in enumerate(problems, 1):
            self.share("sample", nth / len(problems))
            whole = space.candidates(lower(problem), self.device)
            us, family = clock.predict(lower(problem), whole, self.device), whole.family
            configs: list[Config] = []
            for code, share in promise(us, family, n).items():
                drawn = self._drawn(problem, code, share // 2)
                rows = np.flatnonzero(family == code)
                likely = rows[promising(us[rows], share - len(drawn), self.rng)]
                configs += drawn + [whole.row(int(i)) for i in likely]
            if self.budget.seconds < math.inf:  # time may run out: families shall lose alike
                configs = [configs[int(i)] for i in self.rng.permutation(len(configs))]
            self.measure(problem, configs, "sample")

    def _drawn(self, problem: Problem, code: int, n: int) -> list[Config]:
        """``n`` configurations of a family by the generative model, which problems of one class share; none, where
        it finds too few."""
        p = lower(problem)
        key = space.kind(p, self.device)
        if key not in self.samplers:
            self.samplers[key] = Categorical.learn(p, self.device, int(self.rng.integers(1 << 31)))
        with suppress(ConfigError):
            found = self.samplers[key].of(p).only(code).sample(n, self.rng, DRAWS)
            return [found.row(i) for i in range(len(found))]
        return []

    def fit(self) -> None:
        """Trains the regressor on what is known of this device, measured here or shipped, once enough of it is new."""
        facts = self.model.facts
        seen = facts.newest if facts is not None else 0.0
        if sum(m.outcome == "ok" and m.created > seen for m in self.known.values()) < FRESH:
            return
        path = measurements_path(self.device.name)
        rows = [*(read_measurements(path)[1] if path.exists() else ()), *self.known.values()]
        good = list({(m.problem, m.config): m for m in rows if m.outcome == "ok"}.values())
        self.progress.message(f"training on {len(good)} measurements")
        self.model = Model.fit(good, self.device, target=facts.target if facts is not None else "")
        self.model.save(model_folder(self.database, self.device.name))

    def search(self, problem: Problem, seeds: Iterable[Config] = ()) -> None:
        """The regressor's best of the whole legal space, and ``seeds``, on the hardware (section 6). What would be
        chosen untuned comes first, whatever the budget: no winner shall be worse than that."""
        count = max(self.budget.search, 1)
        ranked = [c for c, _ in self.model.rank(problem, self.device, count, exhaustive=True)]
        fast = [*self._once_fast(problem), *self._of_kin(problem)]
        self.measure(problem, [*seeds, *ranked[:1], *fast, *ranked[1:]], "search")
        if self.database.best(problem, self.device.name, self.clock) is None:
            # answers until ``finish`` has one that was timed at length
            for m in self.fastest(problem, 1):
                self.database.set_winner(m, over=lambda held: False)

    def _once_fast(self, problem: Problem) -> list[Config]:
        """The fastest configurations known, whichever version generated their kernels: a change of the templates leaves
        them as good guesses as there are."""
        rows = (m for m in self.known.values() if m.problem == problem and m.outcome == "ok")
        return self._legal(problem, sorted(rows, key=lambda m: m.us)[:REMEMBERED])

    def _of_kin(self, problem: Problem) -> list[Config]:
        """The fastest configuration of each of the nearest problems of the same operation, layout and element size."""
        best: dict[Problem, Measurement] = {}
        for m in self.known.values():
            other = m.problem
            if other == problem or m.outcome != "ok" or kin(other) != kin(problem):
                continue
            if other not in best or m.us < best[other].us:
                best[other] = m
        nearest = sorted(best, key=lambda other: distance(other, problem))[:NEIGHBOURS]
        return self._legal(problem, (best[other] for other in nearest))

    def _legal(self, problem: Problem, rows: Iterable[Measurement]) -> list[Config]:
        return [m.config for m in rows if rules.first_violation(lower(problem), m.config, self.device) is None]

    def refine(self, problem: Problem) -> None:
        """Neighbours of the fastest few, on every axis, round by round until none is faster."""
        budget = self.budget
        for _ in range(budget.refine_rounds):
            best = self._starts(problem)
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

    def _starts(self, problem: Problem) -> list[Measurement]:
        """The fastest few, and the fastest of each family that is not far behind: what ptxas made of one kernel shall
        not decide on its family."""
        best = self.fastest(problem, self.budget.keep)
        for code in range(len(FAMILIES)) if best else ():
            mine = self.fastest(problem, 1, code)
            best += [m for m in mine if m not in best and m.us <= NEAR * best[0].us]
        return best

    def finish(self, problem: Problem) -> Tuned:
        """Times the fastest few again at length, all of C compared, and stores the winner."""
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
                retimed = held == stored and held.config != best.config  # and slower than ``best`` in this run
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
    """Tunes every problem, and stores what was measured and who won as it goes.

    What the database holds already is not measured again, so a run that was interrupted goes on where it stopped.
    Runs that share a database, one process each, share the work: each measures what no other one has measured or is
    measuring. ``seeds``: configurations to try first, where those that ship are not wanted. ``retry``: configurations
    that failed in earlier runs are measured again. LaunchError: the device cannot be used at all.
    """
    if database is None:
        raise InputError("database is None; tune needs one to remember in")
    for problem in problems:
        if 0 in (lower(problem).m, lower(problem).n):
            raise ShapeError(f"problem {problem.key()} has no element of C; there is nothing to time")
    session = Session(driver, database, budget or Budget(), seed, progress or SILENT, jobs, commit, retry)
    try:
        session.sample(problems)
        session.fit()
        total = session.budget.search * len(problems)
        session.progress.phase("search", total)
        for n, problem in enumerate(problems, 1):
            session.share("search", n / len(problems))
            session.search(problem, (seeds or {}).get(problem) or shipped_seeds(problem, session.device.name))
        session.fit()
        session.progress.phase("refine", session.budget.refine * session.budget.refine_rounds * len(problems))
        out = []
        for n, problem in enumerate(problems, 1):
            session.share("refine", n / len(problems))
            session.refine(problem)
            out.append(session.finish(problem))
            session.progress.message(summary(out[-1]))
        return out
    finally:
        session.close()


def kin(p: Problem) -> tuple[object, ...]:
    """What problems have in common that one kernel may be good at, where extents are near."""
    return p.operation, p.layout, p.element.bytes, p.accumulator.bytes


def distance(p: Problem, q: Problem) -> float:
    """How far apart the extents of two problems are, as products of matrices: in doublings."""
    pairs = ((getattr(lower(p), name), getattr(lower(q), name)) for name in "mnk")
    return sum(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in pairs)


def summary(t: Tuned) -> str:
    """One line on one problem."""
    failed = ", ".join(f"{n} {outcome}" for outcome, n in t.failures.items())
    head = t.problem.key()
    tail = f"{t.measured} measured" + (f" ({failed})" if failed else "")
    if t.winner is None:
        return f"{head}: nothing ran; {tail}"
    return f"{head}: {t.winner.us:.2f} us, {t.winner.tflops:.2f} TFLOP/s with {t.winner.config}; {tail}"


__all__ = ["Budget", "Session", "Tuned", "summary", "tune"]
