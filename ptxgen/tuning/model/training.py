"""Training: measurements as rows, baselines of times, boosted trees and their errors."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import FAMILIES, Columns, Config
from ptxgen.codegen.vectorized import float32
from ptxgen.families import registry
from ptxgen.families.common import perf_model
from ptxgen.families.common.features import CODES, default_names, features
from ptxgen.families.common.rules import legal
from ptxgen.lowering.descriptor_table import grouped as is_group
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning.model import ranking_network
from ptxgen.tuning.model.model_trees import weighted_sum
from ptxgen.tuning.model.ranking_network import RankingNetwork
from ptxgen.tuning.model.tree_predictor import xgboost
from ptxgen.tuning.store.measurement import Measurement

Floats = NDArray[np.float32]

RATE, BINS = 0.13, 256
TREES, DEPTH, CHILD_WEIGHT = 200, 9, 8.0  #: regressor of times: trees, their depth, the least weight of a node
LEVEL_TREES, LEVEL_DEPTH, LEVEL_CHILD_WEIGHT = 60, 6, 1.0  #: the same for a problem's best time
ROWS_DRAWN, FEATURES_DRAWN = 0.8, 0.5  #: fractions of rows and features drawn for each tree
SEED = 7
THREAD_ROWS = 20_000  #: rows from which two threads train; the same on every machine, as sums depend on it
#: the ranker: its weight in the average, the number of first positions of a ranking whose pairs it learns, the least
#: weight of a node. The grade of a configuration is GRADES / (time / best time) ** GRADE_POWER
RANK_SHARE, RANK_TOP, RANK_CHILD_WEIGHT = 0.25, 8, 1.0
GRADES, GRADE_POWER = 31, 8.0
NETWORK_PROBLEMS = 1_000  #: with fewer problems no network is trained
FOLDS = 3

#: baselines of times. ``time``: none; ``roofline``: the least time by the rates of the families; ``clock``: the
#: performance model; ``average``: the geometric mean of the last two; several boosters are then averaged
TARGETS = ("time", "roofline", "clock", "average")


def threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, 8))


def baseline(target: str, p: KernelProblem, c: Columns, d: Device, us: Floats) -> Any:
    """log2 of the baseline of each configuration in microseconds. ``us``: the times by the performance model."""
    if target == "time":
        return 0 * us
    if target == "average":
        return (baseline("roofline", p, c, d, us) + baseline("clock", p, c, d, us)) / 2
    return float32(np.log2(perf_model.least_us_of(p, c, d))) + 0 * us if target == "roofline" else np.log2(us)


def clock_of(d: Device) -> str:
    return "model" if d.name == "emulated" else "hardware"


def _calibrated(scores: Floats, behind: Floats, weight: Floats, group: NDArray[np.int64]) -> tuple[float, Floats]:
    """The fit of ``behind`` by a linear function of ``scores``: its slope, which is common to all problems, and the
    mean residual of each problem."""
    total = np.bincount(group, weight)

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(group, weight * values) / total, np.float32)

    inside = scores - mean(scores)[group]
    square = float(np.sum(weight * inside**2))
    slope = float(np.sum(weight * inside * (behind - mean(behind)[group]))) / square if square > 0 else 0.0
    return slope, mean(behind - np.float32(slope) * scores)


Timed = list[tuple[Config, float]]  #: configurations with microseconds


def _by_modelled(problem: Problem, rows: Timed) -> Iterator[tuple[Problem, Timed]]:
    """The rows of a problem, sorted, in one group for each problem that the model reads in its place."""
    p = lower(problem)
    by_problem = registry.by_modelled(p) if p.forms else []
    if len(by_problem) < 2:
        yield problem, sorted(rows)
        return
    for _, families in by_problem:
        names = {family.name for family in families}
        if some := sorted(row for row in rows if row[0].family in names):
            yield problem, some


@dataclass
class Usable:
    """The measurements of a device that are usable for training: configurations and times by problem. ``skipped``: the
    number of other measurements; ``newest``: when the latest usable one was made."""

    by_problem: dict[Problem, Timed] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)
    skipped: int = 0
    newest: float = 0.0

    @classmethod
    def of(cls, measurements: Iterable[Measurement], d: Device) -> Usable:
        """The usable measurements among ``measurements``, which may be a million. Each is read once, and only its
        problem, configuration and time are kept."""
        usable = cls()
        for m in measurements:
            e = m.environment
            if m.outcome != "ok" or not m.samples or e.device != d.name or e.clock != clock_of(d) or not m.us > 0:
                usable.skipped += 1
                continue
            usable.by_problem.setdefault(m.problem, []).append((m.config, m.us))
            usable.commits.add(e.commit)
            usable.newest = max(usable.newest, m.created)
        return usable

    @property
    def operations(self) -> set[str]:
        """The names of the operations that were measured."""
        return {problem.operation for problem in self.by_problem}


@dataclass(frozen=True)
class Training:
    """Training data, one row per measurement. The rows of a problem form one group, or several if the model reads
    several problems in its place. ``x``: the features, whose names are ``names``; ``log_us``: log2 of the times;
    ``group``: the group of each row; ``bases``: log2 of the baselines by target; ``problems``: the problem of each
    group; ``choice``: for each group the first group of the same problem and device: a choice is among the rows of all
    of them; ``families``: the number of rows of each family and ``Family.training_class``; ``grouped``: the number of
    rows of groups of GEMMs; ``family``: the code of the family of each row."""

    x: Floats
    log_us: Floats
    group: NDArray[np.int64]
    bases: dict[str, Floats]
    groups: int
    skipped: int
    commits: frozenset[str]
    newest: float
    families: dict[str, int] = field(default_factory=dict)
    grouped: int = 0
    problems: tuple[Problem, ...] = ()
    family: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    choice: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    names: tuple[str, ...] = ()

    @classmethod
    def gather(cls, measurements: Iterable[Measurement], d: Device, names: tuple[str, ...] = ()) -> Training:
        """The training data of those ``measurements`` that are usable."""
        return cls.of(Usable.of(measurements, d), d, names)

    @classmethod
    def of(cls, usable: Usable, d: Device, names: tuple[str, ...] = ()) -> Training:
        """The training data of usable measurements. ``names``: the features; empty: ``features.default_names()``."""
        names = names or default_names()
        by_problem, skipped, grouped = usable.by_problem, usable.skipped, 0
        blocks, times, group = [np.zeros((0, len(names)), np.float32)], [], []
        bases: dict[str, list[Floats]] = {t: [] for t in TARGETS}
        family, classes = [np.zeros(0, np.int64)], Counter[str]()
        groups = [part for q in sorted(by_problem, key=lambda q: q.key()) for part in _by_modelled(q, by_problem[q])]
        for i, (problem, rows) in enumerate(groups):
            p = lower(problem)
            c = Columns.of([r[0] for r in rows])
            good = np.flatnonzero(legal(p, c, d))  # later rules may reject them
            skipped += len(rows) - len(good)
            grouped += len(good) * is_group(p)
            rows, c = [rows[n] for n in good], c.take(good)
            family.append(np.array([FAMILIES.index(r[0].family) for r in rows], np.int64))
            classes.update(name for r in rows if (name := registry.FAMILIES[r[0].family].training_class(p)))
            us = perf_model.predict(p, c, d)
            blocks.append(features(p, c, d, us, names))
            times.append(np.log2(np.array([r[1] for r in rows], np.float32)))
            group.append(np.full(len(rows), i))
            for t in TARGETS:
                bases[t].append(baseline(t, p, c, d, us))
        empty, first = [np.zeros(0, np.float32)], dict[Problem, int]()
        families = Counter(FAMILIES[code] for code in np.concatenate(family).tolist())
        return cls(
            x=np.concatenate(blocks),
            log_us=np.concatenate(times or empty),
            group=np.concatenate(group or empty).astype(np.int64),
            bases={t: np.concatenate(b or empty) for t, b in bases.items()},
            groups=len(groups),
            skipped=skipped,
            commits=frozenset(usable.commits - {""}),
            newest=usable.newest,
            families=dict(sorted((families + classes).items())),
            grouped=grouped,
            problems=tuple(problem for problem, _ in groups),
            family=np.concatenate(family),
            choice=np.array([first.setdefault(q, i) for i, (q, _) in enumerate(groups)], np.int64),
            names=names,
        )

    @classmethod
    def joined(cls, parts: Sequence[Training]) -> Training:
        """The rows of several devices together. Equal problems of two devices are different groups."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(part.groups for part in parts)])
        families = Counter[str]()
        for part in parts:
            families.update(part.families)
        return cls(
            x=np.concatenate([part.x for part in parts]),
            log_us=np.concatenate([part.log_us for part in parts]),
            group=np.concatenate([part.group + start for part, start in zip(parts, starts, strict=False)]),
            bases={t: np.concatenate([part.bases[t] for part in parts]) for t in TARGETS},
            groups=int(starts[-1]),
            skipped=sum(part.skipped for part in parts),
            commits=frozenset().union(*(part.commits for part in parts)),
            newest=max(part.newest for part in parts),
            families=dict(sorted(families.items())),
            grouped=sum(part.grouped for part in parts),
            problems=tuple(problem for part in parts for problem in part.problems),
            family=np.concatenate([part.family for part in parts]),
            choice=np.concatenate([part.choice + start for part, start in zip(parts, starts, strict=False)]),
            names=parts[0].names,
        )

    def folds(self, count: int) -> NDArray[np.int64]:
        """The fold of each problem, random, the same in every run. A problem has the same fold on all devices."""
        numbers = {problem: i for i, problem in enumerate(dict.fromkeys(self.problems))}
        fold = np.random.default_rng(SEED).permutation(len(numbers)) % max(min(count, len(numbers)), 1)
        return fold[[numbers[problem] for problem in self.problems]]

    def best(self) -> Floats:
        """log2 of the least time of each problem."""
        best = np.full(max(self.groups, 1), np.inf, np.float32)
        np.minimum.at(best, self.group, self.log_us)
        return best

    def weights(self) -> Floats:
        """The weight of each row; the mean is 1. Fast rows count more, in proportion to their speed, because the search
        never returns slow ones. The total of a problem grows with the square root of its rows' weights, so that a few
        problems with many rows do not outweigh all others."""
        weights: Floats = np.exp2(self.best()[self.group] - self.log_us)
        weights /= np.sqrt(np.bincount(self.group, weights, max(self.groups, 1)))[self.group].astype(np.float32)
        weights /= weights.mean()
        return weights

    def train(self, target: str, mask: NDArray[np.bool_]) -> Any:
        """A booster that predicts log2(time / baseline). ``mask``: the rows to train on; it has all rows of a problem,
        or none."""
        if target != "average":
            y = (self.log_us - self.bases[target])[mask]
            return self._regressor(self.x[mask], y, self.weights()[mask], TREES, DEPTH, CHILD_WEIGHT)
        # The errors of the members differ, so their average chooses better than each: one learns the time over that of
        # the performance model; one the time over the best of the problem; one the order of a problem's configurations,
        # above all of the fastest; and one the best time.
        _, first, group = np.unique(self.group[mask], return_index=True, return_inverse=True)
        x, best, weight = self.x[mask], self.best()[self.group][mask], self.weights()[mask]
        behind = self.log_us[mask] - best
        fixed = (x == x[first][group]).all(axis=0)  # features of the problem alone
        ranker = self._ranker(x, behind, group)
        slope, level = _calibrated(ranker.inplace_predict(x), behind, weight, group)
        members = {
            self._regressor(x, (self.log_us - self.bases["clock"])[mask], weight, TREES, DEPTH, CHILD_WEIGHT): 0.5,
            self._regressor(x, behind, weight, TREES, DEPTH, CHILD_WEIGHT): 0.5 - RANK_SHARE,
            ranker: RANK_SHARE * slope,
            self._regressor(
                np.where(fixed, x[first], np.float32(0)),
                (best - self.bases["roofline"][mask])[first] + RANK_SHARE / 0.5 * level,
                np.ones(len(first), np.float32),
                LEVEL_TREES,
                LEVEL_DEPTH,
                LEVEL_CHILD_WEIGHT,
            ): 0.5,
        }
        return weighted_sum(members, x.shape[1], np.flatnonzero(fixed).tolist())

    def train_network(self, target: str, mask: NDArray[np.bool_]) -> RankingNetwork | None:
        """A network that predicts the same as the booster of ``train``; None: there are too few problems."""
        if len(np.unique(self.group[mask])) < NETWORK_PROBLEMS:
            return None
        rows = (self.x[mask], self.log_us[mask], self.bases[target][mask], self.group[mask])
        return ranking_network.train(*rows, [self.names.index(name) for name in CODES if name in self.names])

    def _regressor(self, x: Floats, y: Floats, weight: Floats, trees: int, depth: int, child_weight: float) -> Any:
        own = {"objective": "reg:squarederror", "base_score": float(np.mean(y)), "min_child_weight": child_weight}
        return self._grown(x, y, trees, {**own, "max_depth": depth}, weight=weight)

    def _ranker(self, x: Floats, behind: Floats, group: NDArray[np.int64]) -> Any:
        """A booster whose score is larger for faster configurations of a problem. It learns from pairs of
        configurations, one of which is among the first RANK_TOP of its own ranking. ``behind``: log2 of (time / best
        time)."""
        own = {
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "topk",
            "lambdarank_num_pair_per_sample": RANK_TOP,
            "min_child_weight": RANK_CHILD_WEIGHT,
            "max_depth": DEPTH,
        }
        return self._grown(x, np.round(GRADES * np.exp2(-GRADE_POWER * behind)), TREES, own, qid=group)

    def _grown(self, x: Floats, y: Floats, trees: int, own: dict[str, Any], **of_rows: Any) -> Any:
        library, workers = xgboost(), 2 if len(y) >= THREAD_ROWS else 1
        data = library.QuantileDMatrix(x, y, max_bin=BINS, nthread=workers, **of_rows)
        options = {
            "tree_method": "hist",
            "eta": RATE,
            "seed": SEED,
            "max_bin": BINS,
            "nthread": workers,
            "subsample": ROWS_DRAWN,
            "colsample_bytree": FEATURES_DRAWN,
            "lambda": 1.0,
            "verbosity": 0,
        }
        return library.train({**options, **own}, data, trees)

    def validate(self, target: str) -> tuple[float, float]:
        """Two errors by cross-validation in FOLDS folds: the weighted root mean square of log2(predicted / measured)
        without the mean error of each problem, and with it."""
        fold, error = self.folds(FOLDS), np.zeros_like(self.log_us)
        for held_out in np.unique(fold):
            out = fold[self.group] == held_out
            model = self.train(target, ~out)
            error[out] = model.inplace_predict(self.x[out]) + self.bases[target][out] - self.log_us[out]
        w = self.weights()
        total = np.bincount(self.group, w, self.groups)
        centred = error - (np.bincount(self.group, w * error, self.groups) / total)[self.group]
        return float(np.sqrt(np.average(centred**2, weights=w))), float(np.sqrt(np.average(error**2, weights=w)))
