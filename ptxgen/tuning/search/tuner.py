"""Finds the fastest configuration of each problem in phases: measure the present choice, sample, train the model,
search, refine, compare the best with the present choice, store the winner."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from ptxgen.arguments import word
from ptxgen.codegen.config.config import FAMILIES, Columns, Config
from ptxgen.codegen.render import render
from ptxgen.errors import AssembleError, ConfigError, DatabaseError, InputError, PtxgenError, ShapeError
from ptxgen.families.common import perf_model, rules, space
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.operation import operation_of, vendor_of
from ptxgen.problem.registry import Problem
from ptxgen.runtime.assemble import assemble, find_ptxas
from ptxgen.settings import OBJECTIVES, VENDORS, settings
from ptxgen.tuning.choice.models import model_folder, model_for
from ptxgen.tuning.choice.nearest import FEW_ROWS, scaled_measurements
from ptxgen.tuning.choice.vendor import is_faster
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.measure.bench import FINAL_TIMING, PAIRED_TIMING, SEARCH_TIMING
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.progress import SILENT, Progress
from ptxgen.tuning.search.gain import MIN_GAIN, GainHistory, ProblemQueue
from ptxgen.tuning.search.sampler import Categorical, samples_per_family, weighted_by_speed
from ptxgen.tuning.selection import untuned
from ptxgen.tuning.store.claims import Claims
from ptxgen.tuning.store.database import Database, config_text
from ptxgen.tuning.store.measurement import ENERGY, Measurement, VendorMeasurement
from ptxgen.tuning.store.seeds import seeds as shipped_seeds
from ptxgen.tuning.store.tuning_files import measurement_files, read_all

#: the present model is replaced only if the new one has at least this fraction of its measurements, unless the
#: measurements of the present model are installed
LEAST_OF_ROWS = 0.5
FAMILY_RATIO = 1.5  #: a family's fastest configuration is refined if its time is within this factor of the best
MAX_SIMILAR = 8  #: similar problems whose fastest configurations are measured
#: the model is trained again after at least so many new measurements, which are at least this fraction of all
RETRAIN_AFTER, RETRAIN_FRACTION = 200, 0.02
#: the model is trained only if enough time is left: so many seconds, plus so many per measurement
TRAIN_SECONDS, TRAIN_SECONDS_PER_ROW = 60.0, 1e-3
MAX_PREVIOUS = 16  #: fastest configurations of earlier kernel versions that are measured again
POLL_SECONDS = 0.1  #: seconds between checks whether another tuner has finished a configuration
DRAWS = 1_000_000  #: limit of draws from the generative model for one problem


BATCH = 20  #: candidates of the model's ranking that are measured before the gain of the next ones is predicted again
SWITCH_RATIO = 1.5  #: another problem is continued only if its expected gain is this factor above the present one's
FIRST_GAIN, REFINE_GAIN = 0.14, 0.05  #: gains assumed of the first batch, and of the first refinement round
PAIRED_ROUNDS, PROVISIONAL_ROUNDS = 8, 3  #: rounds of the final paired comparison, and of that for a provisional winner
MARGIN = 0.005  #: the least relative gain for which another configuration replaces the present choice
FAR = 1.25  #: a present choice that is slower than the best by more than this factor is not timed again
NEAR_BEST = 1.05  #: finalists slower than the best by more than this factor are not compared again


@dataclass(frozen=True)
class Budget:
    """The most measurements per problem: ``samples`` random configurations, the ``search`` best of the model's
    ranking, then ``refine_rounds`` rounds of at most ``refine`` neighbours of the ``keep`` fastest; the ``final``
    fastest are timed again with the final policy. ``efficient``: the most configurations whose energy is observed if
    the objective is energy. ``seconds``: the time limit of the whole run."""

    samples: int = 60
    search: int = 100
    refine_rounds: int = 3
    refine: int = 60
    keep: int = 3
    final: int = 4
    efficient: int = 16
    seconds: float = math.inf


#: fractions of the time limit: no sample is measured after the first, no configuration after the second; the rest is
#: for the final comparisons
SAMPLE_END, SEARCH_END = 0.4, 0.9


@dataclass
class Tuned:
    """The result of tuning one problem. ``winner``: the measurement that is best by the objective, None if no kernel
    succeeded; ``measured``: the number of measurements; ``failures``: counts of outcomes other than ok; ``vendor``: the
    measurement of the vendor's library, None if the library was not timed."""

    problem: Problem
    winner: Measurement | None = None
    measured: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    vendor: VendorMeasurement | None = None


class Session:
    """One tuning run on one device, with the worker that measures, the threads that assemble kernels ahead, the
    database and the model."""

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
        deadline: Deadline | None = None,
        vendor: str = "never",
        objective: str = "time",
        observed: bool = False,
    ) -> None:
        self.database, self.budget, self.progress = database, budget, progress
        self.vendor = vendor
        self.objective, self.observed = objective, observed or objective == "energy"
        self.deadline = deadline or Deadline(budget.seconds)
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
        self.incumbents: dict[Problem, list[Config]] = {}  #: the answers of ``select`` before this run
        self.held: dict[Problem, Measurement] = {}  #: the measurement of the winner, provisional or not, of this run
        self.gains = {"search": GainHistory(FIRST_GAIN), "refine": GainHistory(REFINE_GAIN)}
        self.until = math.inf  #: when ``measure`` returns; it measures one configuration in any case

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.worker.stop()
        self.claims.release()

    # ---- measuring

    def _assemble(self, problem: Problem, config: Config) -> None:
        """Assembles a kernel into the disk cache, from which the worker takes it. Errors are ignored here: they occur
        again in the worker."""
        with suppress(AssembleError):
            assemble(render(plan_for(problem, config, self.device)))

    def measure(
        self, problem: Problem, configs: Iterable[Config], purpose: str, *, wait: bool = True
    ) -> list[Measurement]:
        """Measures the configurations that the database does not have; returns the measurements of all ``configs``. The
        fastest becomes the provisional winner. ``wait``: True: waits for configurations that another tuner is
        measuring; False: omits them. After the deadline or a signal, the remaining configurations are omitted."""
        chosen = list(dict.fromkeys(configs))
        self.results.setdefault(problem, Tuned(problem))
        waiting: dict[Config, Future[None]] = {}
        if self.assemble_ahead:
            fresh = [c for c in chosen if self._stored(problem, c) is None]
            waiting = {c: self.pool.submit(self._assemble, problem, c) for c in fresh}
        try:
            return self._measure_all(problem, chosen, purpose, waiting, wait)
        finally:
            for future in waiting.values():  # those that were not reached must not delay the next problem's
                future.cancel()

    def _measure_all(
        self, problem: Problem, chosen: list[Config], purpose: str, waiting: dict[Config, Future[None]], wait: bool
    ) -> list[Measurement]:
        out: list[Measurement] = []
        while chosen:
            claimed = []
            for config in chosen:
                if self.deadline.signal or (out and time.monotonic() >= self.until):
                    return out
                measurement = self._stored(problem, config) or self._measure_one(
                    problem, config, purpose, waiting.get(config)
                )
                if measurement is None:
                    claimed.append(config)
                    continue
                self.progress.step(problem.key())
                out.append(measurement)
                self._promote(measurement)
            if not wait:
                return out
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
        if (measurement := self._stored(problem, config)) is not None:  # another tuner stored it before the claim
            self.claims.release()
            return measurement
        if assembled is not None:
            assembled.result()
        measurement = self.worker.measure(problem, config, SEARCH_TIMING, purpose)
        self.database.add(measurement)
        key = problem.key(), config_text(config)
        self.known[key] = measurement
        if measurement.digest:
            self.digests[key] = measurement.digest
        tuned = self.results[problem]
        tuned.measured += 1
        if measurement.outcome != "ok":
            tuned.failures[measurement.outcome] += 1
        return measurement

    def _promote(self, m: Measurement) -> None:
        """Makes a measurement the provisional winner of its problem if its configuration is faster than the one that
        ``select`` would answer with."""
        held = self.held.get(m.problem)
        if m.outcome != "ok" or (held is not None and (m.config == held.config or not self._is_faster(m, held))):
            return
        self.held[m.problem] = m
        replaced = {*self.incumbents.get(m.problem, ()), *([held.config] if held is not None else [])}

        def is_replaced(stored: Measurement) -> bool:
            if not self._current(stored):
                return True
            return held is not None and (stored.config in replaced or m.us < stored.us)

        self.database.set_winner(m, over=is_replaced)

    def _is_faster(self, m: Measurement, held: Measurement) -> bool:
        """True if the configuration of ``m`` is faster than that of ``held``, the provisional winner; on hardware a
        paired comparison decides."""
        if m.us >= held.us or self.clock == "model":  # the model has no noise
            return m.us < held.us
        samples = self.worker.compare(m.problem, [held.config, m.config], PAIRED_TIMING, PROVISIONAL_ROUNDS)
        return bool(samples) and paired_ratio(samples[1], samples[0]) < 1 - MARGIN

    def _read_new_rows(self) -> None:
        """Reads the rows that are new in the database: those of earlier runs and of tuners that share it."""
        newest = self.database.newest()
        for m in self.database.measurements(device=self.device.name, clock=self.clock, after=self.newest):
            if m.purpose not in ("final", ENERGY):
                self.known[m.problem.key(), config_text(m.config)] = m
        self.newest = newest

    def _stored(self, problem: Problem, config: Config) -> Measurement | None:
        """The stored measurement of a configuration; None if there is none, its kernel has changed, or it is
        inconclusive."""
        stored = self.known.get((problem.key(), config_text(config)))
        return stored if stored is not None and not stored.inconclusive and self._current(stored) else None

    def _current(self, m: Measurement) -> bool:
        """True if the measured kernel is the one that this version generates. A failure without a digest counts as
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

    def begin(self, queues: Sequence[ProblemQueue]) -> None:
        """Measures, for each problem, the first seed and the answer of ``select``, so that the problem has a winner."""
        self.until = self.deadline.time_of(1.0)
        for queue in sorted(queues, key=lambda queue: -queue.weight):
            if self.deadline.passed:
                return
            problem = queue.problem
            stored = self.database.best(problem, self.device.name, self.clock)
            present = untuned(problem, self.device, self.database)
            configs = [stored.config] if stored is not None and self._current(stored) else []
            configs += [present.config] if present is not None else []
            self.incumbents[problem] = self._legal(problem, configs)
            first = self._legal(problem, queue.seeds)[:1]
            self.measure(problem, [*first, *self.incumbents[problem]], "search", wait=False)
            for m in self.fastest(problem, 1):  # of an earlier run
                self._promote(m)

    def sample(self, queues: Sequence[ProblemQueue]) -> None:
        """Measures legal configurations of every problem as training data. The number of each family depends on its
        predicted speed; half of them are drawn from the generative model (section 4.1 of the paper), half from the
        legal space, weighted by the performance model. If there is a time limit and a trained model, nothing is
        sampled."""
        if self.model.trained and self.deadline.seconds < math.inf:
            return  # the configurations at the top of the model's ranking have a larger expected gain
        n = self.budget.samples
        self.progress.phase("sample", n * len(queues))
        for nth, queue in enumerate(queues, 1):
            problem = queue.problem
            self.until = self.deadline.time_of(SAMPLE_END * nth / len(queues))
            if self.deadline.signal or time.monotonic() >= self.until:
                continue
            whole = space.candidates(lower(problem), self.device)
            us, family = perf_model.predict(lower(problem), whole, self.device), whole.family
            configs: list[Config] = []
            for code, count in samples_per_family(us, family, n).items():
                drawn = self._draw(problem, code, count // 2)
                rows = np.flatnonzero(family == code)
                likely = rows[weighted_by_speed(us[rows], count - len(drawn), self.rng)]
                configs += drawn + [whole.row(int(i)) for i in likely]
            if self.deadline.seconds < math.inf:  # time may run out: no family may lose more samples than another
                configs = [configs[int(i)] for i in self.rng.permutation(len(configs))]
            self.measure(problem, [*self.incumbents.get(problem, ()), *configs], "sample")

    def _draw(self, problem: Problem, code: int, n: int) -> list[Config]:
        """``n`` configurations of a family, drawn from the generative model, which similar problems share; empty if it
        finds fewer than ``n`` legal ones."""
        if not n:
            return []
        p = lower(problem)
        key = space.class_key(p, self.device)
        if key not in self.samplers:
            self.samplers[key] = Categorical.learn(p, self.device, int(self.rng.integers(1 << 31)))
        with suppress(ConfigError):
            drawn = self.samplers[key].of(p).only(code).sample(n, self.rng, DRAWS)
            return [drawn.row(i) for i in range(len(drawn))]
        return []

    def fit(self) -> None:
        """Trains the model on the measurements of this device, in the database and shipped. It does so only if the
        search uses the model, enough measurements are new, enough time is left, and the measurements of the present
        model are installed or not many more. If this device has few measurements, those of the device whose model is
        used are added, with scaled times."""
        if self.deadline.signal or not self.budget.search:
            return
        facts = self.model.facts
        seen = facts.newest if facts is not None else 0.0
        new = sum(m.outcome == "ok" and m.created > seen for m in self.known.values())
        trained = facts.rows if facts is not None and self.model.measured_on == self.device.name else 0
        if new < max(RETRAIN_AFTER, RETRAIN_FRACTION * trained):
            return
        rows = [*_shipped(self.device.name), *self.known.values()]
        good = list({(m.problem, m.config): m for m in rows if m.outcome == "ok"}.values())
        if facts is not None and len(good) < LEAST_OF_ROWS * facts.rows and not measurement_files(facts.device["name"]):
            self.progress.message(
                f"the model is not trained again: it rests on {facts.rows} measurements, which are in the repository of"
                " ptxgen and not installed"
            )
            return
        seconds = max(TRAIN_SECONDS, TRAIN_SECONDS_PER_ROW * len(good))
        if time.monotonic() + seconds > self.deadline.time_of(1.0):
            return
        if facts is not None and len(good) < FEW_ROWS and self.model.measured_on != self.device.name:
            other = Device(**facts.device)
            good += scaled_measurements(_shipped(other.name), self.device, other)
        self.progress.message(f"training on {len(good)} measurements")
        self.model = self.model.trained_again(good, _shipped)
        self.model.save(model_folder(self.database, self.device.name))

    def pursue(self, queues: Sequence[ProblemQueue]) -> None:
        """Repeatedly measures the next configurations of the problem for which they have the largest expected saving
        (weight × time × gain). When the predicted gain of a problem is small, or its budget is spent, its winner is
        decided."""
        budget = self.budget
        self.progress.phase("search", (budget.search + budget.refine * budget.refine_rounds) * len(queues))
        self.until = self.deadline.time_of(SEARCH_END)
        present: ProblemQueue | None = None
        while waiting := [queue for queue in queues if queue.open]:
            if self.deadline.signal or time.monotonic() >= self.until:
                break
            savings = [self._expected_saving(queue) for queue in waiting]
            queue = waiting[int(np.argmax(savings))]
            if present is not None and present.open and max(savings) < SWITCH_RATIO * self._expected_saving(present):
                queue = present
            present = queue
            if self.predicted_gain(queue) < MIN_GAIN:
                self.conclude(queue)
            else:
                self._continue(queue)
        for queue in sorted(queues, key=self._expected_saving, reverse=True):
            if queue.open and not self.deadline.passed:
                self.conclude(queue)

    def conclude(self, queue: ProblemQueue) -> None:
        """Decides the winner of a problem."""
        queue.open = False
        self.progress.message(summary(self.finish(queue.problem)))

    def _expected_saving(self, queue: ProblemQueue) -> float:
        """The microseconds that the next measurements of a problem are expected to save, over all its calls."""
        held = self.held.get(queue.problem)
        return queue.weight * (held.us if held is not None else math.inf) * max(self.predicted_gain(queue), 1e-9)

    def predicted_gain(self, queue: ProblemQueue) -> float:
        """The fraction of time that the next measurements of a problem are expected to save."""
        held = self.held.get(queue.problem)
        if queue.ranked is None:
            return self.gains["search"].mean
        if queue.batch(BATCH):
            if (gain := queue.batch_gain(BATCH)) >= MIN_GAIN:
                return gain
            queue.next = len(queue.ranked)
        if held is None or queue.rounds >= self.budget.refine_rounds:
            return 0.0
        return queue.last_gain / 2 if queue.rounds else self.gains["refine"].mean

    def _continue(self, queue: ProblemQueue) -> None:
        """Measures the next batch of a problem, or its next refinement round."""
        before, first = self._held_us(queue.problem), queue.ranked is None
        if queue.ranked is None:
            queue.ranked = self.rank(queue.problem, queue.seeds)
        if batch := queue.batch(BATCH):
            queue.next += len(batch)
            predicted = dict(batch)
            measured = self.measure(queue.problem, predicted, "search")
            queue.measured += [(predicted[m.config], m) for m in measured]
            phase = "search"
        else:
            self._refine_round(queue.problem)
            queue.rounds += 1
            phase, first = "refine", queue.rounds == 1
        after = self._held_us(queue.problem)
        queue.last_gain = 1 - after / before if math.isfinite(before) else float(math.isfinite(after))
        if first:
            self.gains[phase].seen.append(queue.last_gain)

    def _held_us(self, problem: Problem) -> float:
        held = self.held.get(problem)
        return held.us if held is not None else math.inf

    def rank(self, problem: Problem, seeds: Iterable[Config] = ()) -> list[tuple[Config, float]]:
        """The configurations to measure, with predicted microseconds: the legal ``seeds``, the model's first choice,
        configurations that were fast before or for similar problems, then the model's other choices (section 6 of the
        paper)."""
        thorough = self.deadline.seconds == math.inf  # seconds, to score all of the space
        ranking = self.model.search(problem, self.device, max(self.budget.search, 1), exhaustive=thorough)
        ranked = dict(ranking.best)
        fast = [*self._previously_fast(problem), *self._fast_for_similar(problem)]
        order = list(dict.fromkeys([*self._legal(problem, seeds), *list(ranked)[:1], *fast, *ranked]))
        others = [config for config in order if config not in ranked]
        if others:
            us = self.model.predict(problem, Columns.of(others), ranking.scale)
            ranked |= {config: float(x) for config, x in zip(others, us, strict=True)}
        return [(config, ranked[config]) for config in order]

    def _previously_fast(self, problem: Problem) -> list[Config]:
        """The fastest stored configurations. Those whose kernels have changed since are included, because they are good
        candidates."""
        rows = (m for m in self.known.values() if m.problem == problem and m.outcome == "ok")
        return self._legal(problem, (m.config for m in sorted(rows, key=lambda m: m.us)[:MAX_PREVIOUS]))

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
        return self._legal(problem, (best[other].config for other in nearest))

    def _legal(self, problem: Problem, configs: Iterable[Config]) -> list[Config]:
        """Those of ``configs`` that are legal for ``problem``, each once."""
        legal = (c for c in configs if rules.first_violation(lower(problem), c, self.device) is None)
        return list(dict.fromkeys(legal))

    def _refine_round(self, problem: Problem) -> None:
        """Measures neighbours, along every axis, of the configurations of ``_refine_starts``."""
        best = self._refine_starts(problem)
        near: list[Config] = []
        for m in best:
            c = space.refinements(lower(problem), self.device, m.config)
            picked = self.rng.permutation(len(c))[: self.budget.refine // len(best)]
            near += [c.row(int(i)) for i in picked]
        self.measure(problem, near, "refine")

    def _refine_starts(self, problem: Problem) -> list[Measurement]:
        """The ``keep`` fastest measurements, and the fastest one of each family within a factor of ``FAMILY_RATIO``, so
        that one poorly compiled kernel does not exclude its family."""
        best = self.fastest(problem, self.budget.keep)
        for family in FAMILIES if best else ():
            mine = self.fastest(problem, 1, family)
            best += [m for m in mine if m not in best and m.us <= FAMILY_RATIO * best[0].us]
        return best

    def finish(self, problem: Problem) -> Tuned:
        """Times the fastest few again with the final policy and a full check of C, compares the best with the present
        choice alternately, and stores the winner."""
        tuned = self.results.setdefault(problem, Tuned(problem))
        stored = self.database.best(problem, self.device.name, self.clock)
        present = untuned(problem, self.device, self.database)  # by the model as it is now
        replaced = [*self.incumbents.get(problem, ()), *([present.config] if present is not None else [])]
        configs = [m.config for m in self.fastest(problem, self.budget.final)]
        if stored is not None and self._current(stored):
            configs.append(stored.config)
        again: list[Measurement] = []
        for config in self._legal(problem, [*configs, *(c for c in replaced if not self._is_far(problem, c))]):
            if self.deadline.signal:
                return tuned
            again.append(self.worker.measure(problem, config, FINAL_TIMING, "final", full=True))
        again, tuned.vendor = self._compare(problem, again, replaced)
        for m in again:
            self.database.add(m)
        if tuned.vendor is not None:
            self.database.add_vendor(tuned.vendor)
        good = [m for m in again if m.outcome == "ok"]
        if good:
            tuned.winner = best = final_winner(good, replaced, 0.0 if self.clock == "model" else MARGIN)

            def loses(held: Measurement) -> bool:
                if held.purpose != "final" or not self._current(held):
                    return True
                retimed = held == stored and held.config != best.config  # timed in this run, and slower
                return retimed or best.us < held.us

            self.database.set_winner(best, over=loses)
            self.held[problem] = best
            if self.observed:
                tuned.winner = self._observe(problem, best)
        return tuned

    def _observe(self, problem: Problem, winner: Measurement) -> Measurement:
        """Observes the energy of ``winner``, the fastest configuration, and of the next fastest ones, and stores it
        with their times. Returns the measurement of the winner by the objective."""
        most = self.budget.efficient if self.objective == "energy" else self.budget.final
        configs = dict.fromkeys([winner.config, *(m.config for m in self.fastest(problem, most))])
        rows: list[Measurement] = []
        for config in islice(configs, most):
            if self.deadline.signal:
                break
            rows.append(self.worker.measure(problem, config, FINAL_TIMING, ENERGY, observed=True))
            self.database.add(rows[-1])
        known = {m.config: (m.observed.millijoules, m) for m in rows if m.observed is not None}
        if self.objective == "time":
            return known.get(winner.config, (0.0, winner))[1]
        return min(known.values(), key=lambda pair: pair[0], default=(0.0, winner))[1]

    def _is_far(self, problem: Problem, config: Config) -> bool:
        """True if a configuration was measured and is slower than the best by more than a factor of FAR."""
        m = self._stored(problem, config)
        return m is not None and m.us > FAR * self._held_us(problem)

    def _compare(
        self, problem: Problem, rows: Sequence[Measurement], replaced: Sequence[Config]
    ) -> tuple[list[Measurement], VendorMeasurement | None]:
        """Times again, alternately, those of ``rows`` that are near the best or present choices, and returns them with
        the new samples, and the measurement of the vendor's library with samples of the same rounds. With the clock
        ``model``, which has no noise, nothing is timed again."""
        best = min((m.us for m in rows if m.outcome == "ok"), default=math.inf)
        some = [m for m in rows if m.outcome == "ok" and (m.us <= NEAR_BEST * best or m.config in replaced)]
        configs, theirs = [m.config for m in some], None
        if some and self.vendor == "auto" and vendor_of(problem, self.clock) is not None:
            samples, theirs = self.worker.compare_with_vendor(problem, configs, PAIRED_TIMING, PAIRED_ROUNDS)
        elif self.clock == "hardware" and len(some) > 1:
            samples = self.worker.compare(problem, configs, PAIRED_TIMING, PAIRED_ROUNDS)
        else:
            samples = []
        if not samples or self.clock == "model":
            return list(rows), theirs
        paired = {m: replace(m, samples=tuple(round(x, 4) for x in us)) for m, us in zip(some, samples, strict=True)}
        return [paired.get(m, m) for m in rows if m in paired or m.outcome != "ok"], theirs


def paired_ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds of a paired comparison of (time of one configuration / time of the other)."""
    return statistics.median(x / y for x, y in zip(mine, theirs, strict=True))


def final_winner(rows: Sequence[Measurement], replaced: Sequence[Config], margin: float) -> Measurement:
    """The winner among ``rows``, whose samples were taken alternately: the fastest one, if it is faster by more than
    ``margin`` than the fastest of the present choices ``replaced``; otherwise that present choice."""
    best = min(rows, key=lambda m: m.us)
    present = min((m for m in rows if m.config in replaced), key=lambda m: m.us, default=None)
    if present is None or present is best:
        return best
    same_rounds = len(best.samples) == len(present.samples)
    ratio = paired_ratio(best.samples, present.samples) if same_rounds else best.us / present.us
    return best if max(ratio, best.us / present.us) < 1 - margin else present


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
    weights: Mapping[Problem, float] | None = None,
    deadline: Deadline | None = None,
    vendor: str | None = None,
    objective: str = "time",
    observed: bool = False,
) -> list[Tuned]:
    """Tunes every problem; stores measurements and winners as it proceeds.

    Each problem has a winner as soon as one of its kernels is measured. The problem with the largest expected saving is
    measured next; the saving is the weight of the problem (``weights``, default 1) times its time times the predicted
    gain. Configurations that the database holds are not measured again, so an interrupted run continues where it
    stopped. Processes that share a database share the work: each measures configurations that no other measures.
    ``seeds``: configurations to measure first, in place of the shipped seeds. ``retry``: measure again the
    configurations that failed in earlier runs. ``deadline``: the end of the run, by default ``budget.seconds`` from
    now; after SIGINT or SIGTERM, the function returns the results so far. ``vendor``: auto: the final comparison times
    the vendor's library, too; never: it does not; None: as ``PTXGEN_VENDOR`` says. ``observed``: energy, power and
    clock of the finalists are observed and stored. ``objective``: energy: they are observed for ``budget.efficient``
    configurations, and the returned winner has the least energy per call; the stored winner is always the fastest
    configuration. LaunchError: the device cannot be used. UnavailableError: the device has no energy counter.
    """
    if database is None:
        raise InputError("database is None; tune requires a database")
    for problem in problems:
        if not lower(problem).extents.item[0]:
            raise ShapeError(f"problem {problem.key()} has an empty {problem.outputs[0]}; its extents must be positive")
    use = settings().vendor if vendor is None else word("vendor", vendor, VENDORS)
    word("objective", objective, OBJECTIVES)
    given = budget or Budget(), seed, progress or SILENT, jobs, commit, retry, deadline, use, objective, observed
    session = Session(driver, database, *given)
    try:
        queues = []
        for problem in dict.fromkeys(problems):
            first = (seeds or {}).get(problem) or shipped_seeds(problem, session.device.name)
            queues.append(ProblemQueue(problem, (weights or {}).get(problem, 1.0), first))
            session.results[problem] = Tuned(problem)
        session.begin(queues)
        session.sample(queues)
        session.fit()
        session.pursue(queues)
        session.fit()
        for problem, tuned in session.results.items():
            tuned.winner = tuned.winner or session.held.get(problem)
        return [session.results[problem] for problem in problems]
    finally:
        session.close()


def _shipped(device: str) -> Iterable[Measurement]:
    """The shipped measurements of a device."""
    return read_all(measurement_files(device))


def similarity_class(p: Problem) -> tuple[object, ...]:
    """The properties of a problem that similar problems share: one configuration tends to suit problems of one class
    with similar extents."""
    return p.operation, p.layout, p.element.bytes, p.accumulator.bytes


def distance(p: Problem, q: Problem) -> float:
    """The distance of two problems of one operation: the sum over m, n, k of |log2| of the ratio of their extents."""
    pairs = zip(lower(p).extents.sizes, lower(q).extents.sizes, strict=True)
    return sum(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in pairs)


def summary(t: Tuned) -> str:
    """One line on the result of one problem."""
    failed = ", ".join(f"{n} {outcome}" for outcome, n in t.failures.items())
    head = t.problem.key()
    tail = f"{t.measured} measured" + (f" ({failed})" if failed else "")
    if t.winner is None:
        return f"{head}: no kernel succeeded; {tail}"
    mark = "~" if t.winner.environment.clock == "model" else ""
    unit = operation_of(t.problem).speed.title
    speed = f"{mark}{t.winner.us:.2f} µs, {mark}{t.winner.speed:.2f} {unit}"
    if t.winner.observed is not None:
        speed += f", {t.winner.observed.millijoules:.4g} mJ at {t.winner.observed.watts:.0f} W"
    theirs = ""
    if t.vendor is not None and is_faster(t.vendor, t.winner):
        theirs = f"; {t.vendor.version} takes {mark}{t.vendor.us:.2f} µs: calls use it"
    return f"{head}: {speed} with {t.winner.config}{theirs}; {tail}"


__all__ = ["Budget", "Session", "Tuned", "summary", "tune"]
