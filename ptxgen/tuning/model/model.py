"""The regressor, which predicts the microseconds of configurations on a problem, and the exhaustive search with it
(sections 5 and 6 of the paper).

Boosted trees (XGBoost) learn the logarithm of the time relative to one of three baselines; the baseline with the least
error on held-out problems is taken. With enough data a network learns the same, and both predictions are averaged. The
search scores the legal space of a problem, except configurations whose time by the performance model is far above the
least one. Without measurements of a device, the performance model alone ranks configurations.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import FAMILIES, Columns, Config
from ptxgen.errors import DeviceError, InputError
from ptxgen.families import registry
from ptxgen.families.common import perf_model
from ptxgen.families.common.features import DEVICE, all_names, default_names, features, trained_names
from ptxgen.families.common.perf_preparation import share_of_call
from ptxgen.families.common.space import Candidates, candidates, members
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import DEVICES, Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning.model import model_files
from ptxgen.tuning.model.model_files import Facts
from ptxgen.tuning.model.model_trees import weighted_sum
from ptxgen.tuning.model.ranking_network import RankingNetwork, combined
from ptxgen.tuning.model.shortlist import Floats, fastest, shortlist
from ptxgen.tuning.model.training import TARGETS, Training, Usable, baseline, clock_of, threads
from ptxgen.tuning.model.tree_predictor import TreePredictor
from ptxgen.tuning.store.measurement import Measurement

FACTOR = 3.0  #: the search drops configurations that the performance model predicts slower than the best by this factor
LIMIT = 5_000  #: the most rows that are scored; each represents an equivalence class
#: stages (fraction, rows) of the search: the first trees, ``fraction`` of all, rank the rows that are left, and the
#: best ``rows`` are kept. A stage with fewer than LEAST_TREES trees is skipped
STAGES = ((0.065, 700), (0.16, 120))
LEAST_TREES = 20
#: the stage for all rows of the remaining classes; then all trees and the network rank the rows that are left
MEMBERS = (0.3, 192)
FEW, MORE = 8, 6  #: if more than FEW configurations are asked for, the limits are multiplied by MORE
ONE_THREAD = 16_000  #: most rows that one thread predicts
_predicting = threading.Lock()  #: XGBoost refuses a prediction while another thread sets a parameter
os.register_at_fork(before=_predicting.acquire, after_in_parent=_predicting.release, after_in_child=_predicting.release)
ROWS_AT_ONCE = 1 << 15  #: rows scored at a time: larger matrices do not fit the cache


@dataclass(frozen=True)
class Search:
    """The result of a search. ``best``: pairs (configuration, predicted microseconds), the fastest first; the order
    counts the time of operand preparation that falls on one call, too; ``scored``: the number of candidates that the
    model scored; ``factor``: the performance model predicts the candidates that were not scored, or the representatives
    of their classes, slower than the best by more than this factor; ``scale``: the factors by which the performance
    model's times of families without trees are multiplied.
    """

    best: list[tuple[Config, float]]
    scored: int
    factor: float
    scale: Scale


def _best(us: Floats, rows: NDArray[np.intp]) -> int:
    """The index of the fastest of ``rows``."""
    return int(rows[np.argmin(us[rows])])


#: family -> the factor by which the performance model's times of its kernels are multiplied; 1 if absent
Scale = Mapping[str, float]


def _scale_others(
    p: KernelProblem, c: Columns, scaled: Floats, us: Floats, learnt: NDArray[np.intp], scale: Scale | None = None
) -> Scale:
    """Sets in ``scaled`` the times of rows whose families the trees do not know, to the performance model's times
    ``us`` multiplied by a factor, and returns the factors. ``learnt``: the rows whose times in ``scaled`` are predicted
    by trees. ``scale``: the factors, if they are known."""
    scale = _errors(p, c, scaled, us, learnt) if scale is None else scale
    if len(learnt) < len(c):
        known = scaled[learnt]
        for code, rows in perf_model.by_family(c):
            scaled[rows] = us[rows] * np.float32(scale.get(FAMILIES[code], 1.0))
        scaled[learnt] = known
    return scale


def _errors(p: KernelProblem, c: Columns, scaled: Floats, us: Floats, learnt: NDArray[np.intp]) -> Scale:
    """For each family, the performance model's error on the fastest row that trees predict, among the families for
    which the model reads the same problem. Without this factor, families with an optimistic performance model would
    exclude families whose optimism the trees have corrected."""
    errors: dict[str, float] = {}
    for (_, families), rows in zip(registry.by_modelled(p), _by_modelled(p, c, learnt), strict=True):
        if len(rows):
            best = _best(scaled, rows)
            errors |= dict.fromkeys((family.name for family in families), float(scaled[best] / us[best]))
    return errors


def _by_modelled(p: KernelProblem, c: Columns, rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """``rows`` divided by the problem that the model reads in place of ``p`` for their families."""
    by_problem = registry.by_modelled(p)
    if len(by_problem) == 1:
        return [rows]
    codes = np.empty(len(c), np.int64)
    for code, of_family in perf_model.by_family(c):
        codes[of_family] = code
    return [rows[np.isin(codes[rows], [family.code for family in families])] for _, families in by_problem]


def _shortlists(p: KernelProblem, c: Candidates, us: Floats, limit: int) -> tuple[NDArray[np.intp], float]:
    """The union of the shortlists for each problem that the model reads in place of ``p``, and the least of their
    factors. ``us``: predicted times, which include the shares of preparations."""
    lists, factor = [np.zeros(0, np.intp)], FACTOR
    for rows in _by_modelled(p, c, np.arange(len(c))):
        near, least = shortlist(c if len(rows) == len(c) else c.take(rows), us[rows], FACTOR, limit)
        lists.append(rows[near])
        factor = min(factor, least)
    return np.sort(np.concatenate(lists)), factor


def order_of_choices(p: KernelProblem, choices: Sequence[tuple[Config, float]], d: Device) -> list[int]:
    """The indices of ``choices``, pairs (configuration, microseconds), ordered by time plus the share of the
    preparation."""
    added = share_of_call(p, Columns.of([config for config, _ in choices]), d) if p.calls and choices else ()
    us = [us for _, us in choices] if not len(added) else [us + x for (_, us), x in zip(choices, added, strict=True)]
    return sorted(range(len(us)), key=us.__getitem__)


class Model:
    """Predicts microseconds on one device. ``Model.fit``, ``Model.load`` or ``Model.analytic`` make one."""

    def __init__(
        self,
        device: Device,
        facts: Facts | None = None,
        booster: TreePredictor | None = None,
        names: tuple[str, ...] = (),
        network: RankingNetwork | None = None,
        parts: Mapping[str, Model] | None = None,
    ) -> None:
        """``names``: the features that booster and network were trained on; empty: ``features.default_names()``.
        ``parts``: by name of an operation, the models of operations that have their own model, which predicts their
        problems."""
        self.parts = dict(parts or {})
        self.device, self.facts, self._booster, self.network = device, facts, booster, network
        self._names = names or default_names()
        self._workers = 0  # threads of the booster, 0: not set yet

    @property
    def trained(self) -> bool:
        return self._booster is not None

    @property
    def booster(self) -> TreePredictor | None:
        """The trained trees; None if there are none."""
        return self._booster

    @property
    def names(self) -> tuple[str, ...]:
        """The features that the trees read."""
        return self._names

    def with_parts(self, parts: Mapping[str, Model]) -> Model:
        """The same model with ``parts`` as the models of operations."""
        return Model(self.device, self.facts, self._booster, self._names, self.network, parts)

    def of_trees(self) -> Model:
        """The same model without its network."""
        return Model(self.device, self.facts, self._booster, self._names)

    @property
    def measured_on(self) -> str:
        """The name of the device on whose measurements the model was trained; its own device, if that is one of
        several; empty if the model is not trained."""
        if self.facts is None:
            return ""
        return self.device.name if self.device.name in self.facts.also else str(self.facts.device["name"])

    @classmethod
    def analytic(cls, device: Device) -> Model:
        """The model of a device without measurements: the performance model (section 5.2 of the paper)."""
        return cls(device)

    @classmethod
    def fit(
        cls,
        measurements: Iterable[Measurement],
        device: Device,
        *,
        target: str = "",
        names: tuple[str, ...] = (),
        also: Mapping[Device, Iterable[Measurement]] | None = None,
        network: RankingNetwork | None = None,
    ) -> Model:
        """Trains a model of ``device`` on its measurements, of which those count that are ``ok`` and on the device's
        clock.

        ``target``: one of TARGETS, whose error is then not estimated; by default the target with the least error on
        held-out problems, which takes ten trainings.
        ``also``: measurements of other devices, for which the model is trained, too.
        ``names``: the features to train on, from ``features.all_names()``; empty: ``features.trained_names``, and the
        features of devices if there are several devices.
        ``network``: a network that reads these features, which the model keeps; None: a network is trained.
        InputError: nothing to train on, or no such target or feature.
        """
        if target and target not in TARGETS:
            raise InputError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
        if unknown := sorted(set(names) - set(all_names())):
            raise InputError(f"names has {', '.join(unknown)}; a feature is one of {', '.join(all_names())}")
        given = {d: Usable.of(some, d) for d, some in {device: measurements, **(also or {})}.items()}
        measured = set().union(*(usable.operations for usable in given.values()))
        names = names or (*trained_names(measured), *(DEVICE if also else ()))
        parts = [Training.of(usable, d, names) for d, usable in given.items()]
        for d, part in zip((device, *(also or ())), parts, strict=True):
            if not len(part.log_us):
                raise InputError(
                    f"measurements have no usable row for {d.name} ({part.skipped} skipped): a row must be ok, of that"
                    f" device, with clock={clock_of(d)}"
                )
        rows = Training.joined(parts)
        errors = {t: rows.validate(t) for t in TARGETS} if len(set(rows.problems)) >= 2 and not target else {}
        chosen = target or (min(errors, key=lambda t: errors[t][0]) if errors else "clock")
        everything = np.ones(len(rows.log_us), bool)
        booster = weighted_sum({rows.train(chosen, everything): 1.0}, len(names))  # with the leaves of a file
        network = network or rows.train_network(chosen, everything)
        facts = Facts(
            device=asdict(device),
            target=chosen,
            rows=len(rows.log_us),
            problems=rows.groups,
            skipped=rows.skipped,
            error=round(errors[chosen][1], 4) if errors else float("nan"),
            errors={t: round(e[0], 4) for t, e in errors.items()},
            families=rows.families,
            grouped=rows.grouped,
            commits=tuple(sorted(rows.commits)),
            newest=rows.newest,
            also=tuple(d.name for d in also or ()),
        )
        return cls(device, facts, booster, names, network)

    def trained_again(
        self, measurements: Iterable[Measurement], shipped: Callable[[str], Iterable[Measurement]]
    ) -> Model:
        """A model with the same target for the same devices, trained on ``measurements`` of this device and the
        ``shipped`` measurements of the others. The new model keeps the network, whose training takes longest."""
        facts, own = self.facts, self.device.name
        if facts is None or self.measured_on != own:
            fitted = Model.fit(measurements, self.device, target="" if facts is None else facts.target)
            return fitted.with_parts(self.parts)
        names = {str(facts.device["name"]), *facts.also} - {own}
        also = {DEVICES[name]: shipped(name) for name in sorted(names & set(DEVICES))}
        inputs = () if self.network is None else self._names
        fitted = Model.fit(
            measurements, self.device, target=facts.target, names=inputs, also=also, network=self.network
        )
        return fitted.with_parts(self.parts)

    def predict(self, problem: Problem, columns: Columns, scale: Scale | None = None) -> Floats:
        """The predicted microseconds of each configuration, by which ``rank`` orders them. The configurations must be
        legal. ``scale``: ``Search.scale`` of an earlier search; None: a search is made if the trees do not know a
        family."""
        p = lower(problem)
        if (part := self.parts.get(problem.operation)) is not None:
            return self._predict_with(part, problem, p, columns, scale)
        scale = self._scale(problem, columns) if scale is None else scale
        return self._score(p, columns, self.device, perf_model.predict(p, columns, self.device), scale)[0]

    def _predict_with(
        self, part: Model, problem: Problem, p: KernelProblem, columns: Columns, scale: Scale | None
    ) -> Floats:
        """``predict`` with ``part``, the model of an operation. ``part`` predicts the families that compute the problem
        itself, this model predicts the families that compute another form of the problem."""
        scale = self.search(problem, k=1).scale if scale is None else scale
        out, us = np.empty(len(columns), np.float32), perf_model.predict(p, columns, self.device)
        own = np.zeros(len(columns), bool)
        for code, rows in perf_model.by_family(columns):
            own[rows] = registry.by_code(code).form(p) is p
        for model, rows in ((part, np.flatnonzero(own)), (self, np.flatnonzero(~own))):
            if len(rows):
                out[rows] = model._score(p, columns.take(rows), self.device, us[rows], scale)[0]
        return out

    def _scale(self, problem: Problem, columns: Columns, k: int = 1) -> Scale:
        """``Search.scale`` of a search for ``k`` configurations; empty if the trees know the families of all
        ``columns``."""
        if not self.trained or len(self._learnt(lower(problem), columns)) == len(columns):
            return {}
        return self.search(problem, k=k).scale

    def learnt(self, p: KernelProblem, family: str) -> bool:
        """True if the trees were trained on measurements of ``family``, for problems like ``p``."""
        return self.trained and self.facts is not None and family in model_files.known(self.facts, p)

    def _learnt(self, p: KernelProblem, c: Columns) -> NDArray[np.intp]:
        """The rows whose families the trees were trained on, for problems like ``p``."""
        if not self.trained or self.facts is None:
            return np.zeros(0, np.intp)
        known = [FAMILIES.index(f) for f in model_files.known(self.facts, p)]
        if len(known) == len(FAMILIES):
            return np.arange(len(c))
        if isinstance(c, Candidates):
            every = np.arange(len(c))
            rows = [every[where] for part, where, _, _ in c.groups() if part.base.family.code in known]
            return np.sort(np.concatenate(rows)) if rows else every[:0]
        return np.flatnonzero(np.isin(c.family, known))

    def _score(
        self,
        p: KernelProblem,
        c: Columns,
        d: Device,
        us: Floats,
        scale: Scale | None = None,
        stage: tuple[float, int] | None = None,
        added: Floats | None = None,
    ) -> tuple[Floats, Scale]:
        """The predicted microseconds of rows, and ``Search.scale``. ``us``: the times by the performance model;
        ``scale``: ``Search.scale`` if it is known. ``stage``: a pair (fraction, rows): of the rows that trees predict,
        only the best ``rows`` by this fraction of the trees, in the order of time plus ``added``, get finite times."""
        learnt = self._learnt(p, c)
        out = us.copy()
        if self._booster is None or self.facts is None or not len(learnt):
            return out, _scale_others(p, c, out, us, learnt, {} if scale is None else scale)
        base = baseline(self.facts.target, p, c, d, us)
        for at in range(0, len(learnt), ROWS_AT_ONCE):
            rows = learnt[at : at + ROWS_AT_ONCE]
            x = features(p, c if len(rows) == len(c) else c.take(rows), d, us[rows], self._names)
            trees, first = 0, None
            if stage is not None and (some := self._trees(stage[0])) and len(rows) > stage[1]:
                out[rows] = np.inf
                trees, first = some, self._predicted(x, some)
                near = first + base[rows]
                if added is not None:
                    near = np.log2(np.exp2(near) + added[rows])
                left = np.sort(fastest(near, stage[1]))
                rows, x, first = rows[left], x[left], first[left]
            out[rows] = np.exp2(combined(self._predicted(x, 0, trees, first), self.network, x) + base[rows])
        return out, _scale_others(p, c, out, us, learnt, scale)

    def _predicted(self, x: Floats, trees: int, begin: int = 0, before: Floats | None = None) -> Floats:
        """The prediction of the first ``trees`` trees (0: of all trees) for rows of features. ``before``: that of the
        first ``begin`` trees, if it is known."""
        assert self._booster is not None
        if not len(x):
            return np.zeros(0, np.float32)
        with _predicting:
            # for few rows, starting a second thread takes longer than the prediction
            workers = 1 if len(x) <= ONE_THREAD else threads()
            if workers != self._workers:  # setting a parameter makes the next prediction a millisecond longer
                self._booster.set_param({"nthread": workers})
                self._workers = workers
            predicted: Floats = self._booster.inplace_predict(x, iteration_range=(begin, trees), base_margin=before)
        return predicted

    def _trees(self, fraction: float) -> int:
        """The number of trees that is this fraction of all; 0 if these are too few to rank."""
        assert self._booster is not None
        trees = round(fraction * self._booster.num_boosted_rounds())
        return trees if trees >= LEAST_TREES else 0

    def _best_classes(
        self, p: KernelProblem, c: Candidates, d: Device, us: Floats, stages: list[tuple[float, int]], added: Floats
    ) -> Candidates:
        """The rows of ``c`` that remain after ``stages``, pairs (fraction of the trees, rows): few trees rank many
        rows, then more trees rank fewer. The best row that trees predict is among them. The numbers hold for each
        problem that the model reads in place of ``p``. ``us``: the times by the performance model; ``added``: the
        shares of preparations, which are added to times before they are compared."""
        learnt = self._learnt(p, c)
        if self._booster is None or self.facts is None or not len(learnt):
            return c.take(np.sort(fastest(us + added, stages[-1][1])))
        left, scaled = np.arange(len(c)), us.copy()
        x, place = features(p, c.take(learnt), d, us[learnt], self._names), np.full(len(c), -1)
        place[learnt] = np.arange(len(learnt))
        base, sums, begin = baseline(self.facts.target, p, c, d, us), np.zeros(len(c), np.float32), 0
        for fraction, count in stages:
            trees = self._trees(fraction)
            if len(left) > count and trees:
                known = left[place[left] >= 0]
                rows = x if len(known) == len(x) else x[place[known]]
                sums[known] = self._predicted(rows, trees, begin, sums[known] if begin else None)
                scaled[known], begin = np.exp2(sums[known] + base[known]), trees
                _scale_others(p, c, scaled, us, learnt)
                near = (some[fastest((scaled + added)[some], count)] for some in _by_modelled(p, c, left))
                left = np.sort(np.concatenate(list(near)))
        return c.take(np.union1d(left, _best(scaled + added, learnt)))

    def search(
        self, problem: Problem, device: Device | None = None, k: int = 100, *, exhaustive: bool = False
    ) -> Search:
        """The ``k`` fastest legal configurations by this model. ``exhaustive``: True: all candidates are scored, which
        takes seconds instead of a fraction of a second. DeviceError: the model belongs to another device.
        """
        d, p = self._own(device), lower(problem)
        part = self.parts.get(problem.operation)
        if part is None:
            return self._search(p, d, k, exhaustive)
        searched = [part._search(replace(p, forms=()), d, k, exhaustive)]
        searched += [self._search(form, d, k, exhaustive, p) for form in p.forms]
        every = [ranked for each in searched for ranked in each.best]
        best = [every[i] for i in order_of_choices(p, every, d)[:k]]
        scale = {name: factor for each in searched for name, factor in each.scale.items()}
        scored = sum(each.scored for each in searched)
        return Search(best, scored, min(each.factor for each in searched), scale)

    def _search(
        self, p: KernelProblem, d: Device, k: int, exhaustive: bool, whole: KernelProblem | None = None
    ) -> Search:
        """``search`` with this model alone, without the models of operations. ``whole``: the problem of which ``p`` is
        a form; other families than those that compute it by this form take no part."""
        every = exhaustive or not self.trained
        c = candidates(p, d, representatives=not every, searched=not every, whole=whole)
        us, added = perf_model.predict(p, c, d), share_of_call(p, c, d)
        scored = len(c)
        factor, stage = float("inf"), None
        if not every:
            more = 1 if k <= FEW else MORE
            near, factor = _shortlists(p, c, us + added, more * LIMIT)
            scored = len(near)
            stages = [(f, max(more * n, k)) for f, n in STAGES]
            c = members(self._best_classes(p, c.take(near), d, us[near], stages, added[near]))
            us, added = perf_model.predict(p, c, d), share_of_call(p, c, d)
            scored += len(c)
            stage = MEMBERS[0], max(more * MEMBERS[1], k)
        us, scale = self._score(p, c, d, us, stage=stage, added=added)
        best = [(c.row(int(i)), float(us[i])) for i in fastest(us + added, k)]
        return Search(best, scored, factor, scale)

    def rank(
        self, problem: Problem, device: Device | None = None, k: int = 100, *, exhaustive: bool = False
    ) -> list[tuple[Config, float]]:
        """The ``k`` fastest configurations and their predicted microseconds, the fastest first. Arguments: as for
        ``search``."""
        return self.search(problem, device, k, exhaustive=exhaustive).best

    def _own(self, device: Device | None) -> Device:
        if device is None or device.name == self.device.name:
            return device or self.device
        raise DeviceError(f"device is {device.name}; the model was trained for {self.device.name}")

    def save(self, folder: Path | str) -> None:
        """Writes ``model.json.xz`` into ``folder`` atomically. InputError: the model is not trained."""
        if self._booster is None or self.facts is None:
            raise InputError("model is analytic; only a trained one can be saved")
        model_files.write(Path(folder), self.device, self.facts, self._booster, self._names, self.network)

    @classmethod
    def load(cls, folder: Path | str) -> Model:
        """The model that ``save`` wrote.

        CorruptError: the file is absent or damaged. SchemaError: it has a newer format, or features that this ptxgen
        does not compute."""
        return cls(*model_files.read(Path(folder)))


__all__ = ["TARGETS", "Facts", "Model", "Search", "fastest"]
