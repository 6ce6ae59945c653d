"""The accuracy of the model on problems held out of training: the error of predicted times, and the speed lost by
choices.

All numbers are offline: a choice is the best-ranked of the configurations that were measured for a problem, and the
reference is the fastest of them. Nothing is timed.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import FAMILIES
from ptxgen.families.common.features import default_names, without_logarithms
from ptxgen.problem.registry import Problem
from ptxgen.tuning.model.perceptron import HIDDEN_LAYERS, Perceptron
from ptxgen.tuning.model.ranking_network import combined
from ptxgen.tuning.model.training import SEED, Floats, Training

MEASURED = 16  #: the least number of measured configurations of an evaluated problem: among fewer, any choice is good
TOP = 8  #: the fastest of so many best-ranked configurations is reported, too
FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  #: the learning curve's points: fractions of the training problems
HALVINGS = 10  #: points of the sample curve; each has half as many rows as the next
Mask = NDArray[np.bool_]
Step = Callable[[str], None]


@dataclass(frozen=True)
class Score:
    """The quality of the model's choices for a group of problems: the time of the fastest measured configuration over
    that of the choice. ``first``, ``fifth``, ``worst``: the geometric mean, the 5th percentile and the minimum of this
    ratio for the first choice; ``top``: the geometric mean for the fastest of the first ``TOP`` choices."""

    group: str
    name: str
    problems: int
    first: float
    fifth: float
    worst: float
    top: float


@dataclass(frozen=True)
class Point:
    """A point of the learning curve. ``error``: root mean square of log2(predicted / measured), weighted as in
    training; ``first``: as in ``Score``."""

    problems: int
    rows: int
    error: float
    first: float


@dataclass(frozen=True)
class Regressor:
    """A regressor trained on ``samples`` rows, and its accuracy on problems held out of training. ``hidden``: the sizes
    of the hidden layers of a perceptron, empty for the trees; ``weights``: the number of weights of a perceptron, 0 for
    the trees; ``mse``: the mean square of log2(predicted / measured), weighted as in training; ``first``: as in
    ``Score``; ``plain_mse``: ``mse`` after training on features in place of their logarithms, None if this was not
    done. The figures are means over ``seeds`` draws of the rows and of the initial weights; ``mse_deviation``: the
    standard deviation of ``mse`` over the draws, None for one draw."""

    hidden: tuple[int, ...]
    weights: int
    samples: int
    mse: float
    first: float
    plain_mse: float | None = None
    seeds: int = 1
    mse_deviation: float | None = None

    @classmethod
    def mean(cls, of_seeds: Sequence[Regressor]) -> Regressor:
        """The mean of regressors that differ only in their seeds."""
        first, count = of_seeds[0], len(of_seeds)
        plain = [r.plain_mse for r in of_seeds if r.plain_mse is not None]
        return replace(
            first,
            mse=statistics.fmean(r.mse for r in of_seeds),
            first=statistics.fmean(r.first for r in of_seeds),
            plain_mse=statistics.fmean(plain) if plain else None,
            seeds=count,
            mse_deviation=statistics.stdev(r.mse for r in of_seeds) if count > 1 else None,
        )


def arithmetic(p: Problem) -> str:
    """The arithmetic of a problem: the type of the operands, or, for f32, the value of ``compute``."""
    return p.compute if p.dtype == "f32" else p.dtype


def cross_validate(rows: Training, target: str, count: int, step: Step = lambda _: None) -> Floats:
    """log2 of the microseconds predicted for each row by a model that was trained without the problems of its fold."""
    fold = rows.folds(count)[rows.group]
    predicted = np.zeros_like(rows.log_us)
    for held_out in np.unique(fold):
        predicted[fold == held_out] = _predict(rows, target, fold != held_out, fold == held_out)
        step(f"fold {held_out + 1}")
    return predicted


def _predict(rows: Training, target: str, train: Mask, out: Mask) -> Floats:
    x = np.ascontiguousarray(rows.x[out])
    trees: Floats = rows.train(target, train).inplace_predict(x)
    return combined(trees, rows.train_network(target, train), x) + rows.bases[target][out]


def learning_curve(rows: Training, target: str, count: int, step: Step = lambda _: None) -> list[Point]:
    """Errors on the first fold of models that were trained on growing fractions of the other problems."""
    fold = rows.folds(count)
    out = (fold == 0)[rows.group]
    others = np.random.default_rng(SEED + 1).permutation(np.flatnonzero(fold))
    points = []
    for fraction in FRACTIONS:
        used = others[: max(int(len(others) * fraction), 1)]
        train = np.isin(rows.group, used)
        predicted = np.full_like(rows.log_us, np.nan)
        predicted[out] = _predict(rows, target, train, out)
        losses = [best for _, best, _ in _losses(rows, predicted)]
        points.append(Point(len(used), int(train.sum()), error(rows, predicted, out), geometric_mean(losses)))
        step(f"{len(used)} problems")
    return points


def architectures(
    rows: Training,
    target: str,
    count: int,
    samples: int,
    step: Step = lambda _: None,
    seeds: int = 1,
    jobs: int = 1,
) -> list[Regressor]:
    """The accuracy of perceptrons with the sizes of the paper's Table 2, then of the trees. All are trained on the same
    ``samples`` random rows of all folds but the first, and evaluated on the first. The perceptrons are also trained on
    features without logarithms; trees split at the same rows either way. ``seeds``: the number of draws of the rows and
    of the perceptrons' initial weights; ``jobs``: the number of regressors that are trained at a time, each in a
    process. UnavailableError: scikit-learn is missing."""
    sizes = (*HIDDEN_LAYERS, ())
    fits = [
        _Fit(hidden, samples, 0, seed, plain) for hidden in sizes for seed in range(seeds) for plain in (False, True)
    ]
    fits = [fit for fit in fits if fit.hidden or not fit.plain]
    data = _Data(rows, target, rows.folds(count)[rows.group])
    regressors = {fit: _regressor(data, [fit], [result]) for fit, result in _fitted(data, fits, jobs, step)}
    out = []
    for hidden in sizes:
        of_seeds = []
        for seed in range(seeds):
            one = regressors[_Fit(hidden, samples, 0, seed)]
            plain = regressors.get(_Fit(hidden, samples, 0, seed, True))
            of_seeds.append(replace(one, plain_mse=plain.mse if plain else None))
        out.append(Regressor.mean(of_seeds))
    return out


def sample_curve(
    rows: Training,
    target: str,
    count: int,
    step: Step = lambda _: None,
    hidden: tuple[int, ...] = (),
    most: int | None = None,
    jobs: int = 1,
) -> list[Regressor]:
    """The cross-validated error of a regressor by the number of training rows, as in the paper's Figure 5. The rows are
    drawn at random from the problems that are not held out; sizes and rows are the same for every regressor.

    ``hidden``: as in ``Regressor``; ``most``: the largest number of rows, None: all; ``jobs``: as in ``architectures``.
    UnavailableError: scikit-learn is missing.
    """
    data = _Data(rows, target, rows.folds(count)[rows.group])
    test_folds = [int(test_fold) for test_fold in np.unique(data.fold)]
    every = min(int((data.fold != test_fold).sum()) for test_fold in test_folds)
    largest = min(every, most or every)
    sizes = sorted({largest >> n for n in range(HALVINGS)} - {0})
    fits = [_Fit(hidden, size, test_fold) for size in sizes for test_fold in test_folds]
    fitted = dict(_fitted(data, fits, jobs, step))
    out = []
    for size in sizes:
        of_size = [fit for fit in fits if fit.samples == size]
        out.append(_regressor(data, of_size, [fitted[fit] for fit in of_size]))
    return out


@dataclass(frozen=True)
class _Data:
    """The data that regressors are trained on. ``fold``: the fold of each row."""

    rows: Training
    target: str
    fold: NDArray[np.int64]


@dataclass(frozen=True)
class _Fit:
    """The training of a regressor on ``samples`` random rows of all folds but ``test_fold``, on all such rows if they
    are fewer. ``hidden``: as in ``Regressor``; ``plain``: True if the regressor is trained on features in place of
    their logarithms."""

    hidden: tuple[int, ...]
    samples: int
    test_fold: int
    seed: int = 0
    plain: bool = False

    def __str__(self) -> str:
        name = "-".join(map(str, self.hidden)) or "trees"
        rest = f", seed {self.seed + 1}" * bool(self.seed) + ", no logarithms" * self.plain
        return f"{name}, {self.samples} rows, fold {self.test_fold + 1}{rest}"


@dataclass(frozen=True)
class _Fitted:
    """The result of a ``_Fit``. ``predicted``: the predictions for the rows of the test fold; ``weights``: as in
    ``Regressor``; ``used``: the number of rows it was trained on."""

    predicted: Floats
    weights: int
    used: int


def _fit(data: _Data, fit: _Fit) -> _Fitted:
    rows, out = data.rows, data.fold == fit.test_fold
    if fit.plain:
        rows = replace(rows, x=without_logarithms(rows.x, default_names()))
    train = np.zeros(len(out), bool)
    drawn = np.random.default_rng(SEED + 2 + fit.seed).permutation(np.flatnonzero(~out))[: fit.samples]
    train[drawn] = True
    if not fit.hidden:
        return _Fitted(_predict(rows, data.target, train, out), 0, len(drawn))
    network = Perceptron(fit.hidden, rows, data.target, train, SEED + fit.seed)
    return _Fitted(network.predict(rows.x[out]) + rows.bases[data.target][out], network.weights, len(drawn))


def _fitted(data: _Data, fits: Sequence[_Fit], jobs: int, step: Step) -> Iterator[tuple[_Fit, _Fitted]]:
    """Fits and their results, in any order. With several ``jobs`` the longest trainings start first."""
    if jobs == 1:
        for fit in fits:
            yield fit, _fit(data, fit)
            step(str(fit))
        return
    ordered = sorted(fits, key=lambda f: -f.samples * (sum(a * b for a, b in pairwise((100, *f.hidden))) or 100_000))
    context = multiprocessing.get_context("fork")  # the rows are not copied
    with ProcessPoolExecutor(jobs, context, _share, (data,)) as pool:
        futures = {pool.submit(_fit_shared, fit): fit for fit in ordered}
        for done in as_completed(futures):
            yield futures[done], done.result()
            step(str(futures[done]))


_shared: list[_Data] = []  #: the data of the process, if ``_fitted`` started it


def _share(data: _Data) -> None:
    _shared.append(data)


def _fit_shared(fit: _Fit) -> _Fitted:
    return _fit(_shared[0], fit)


def _regressor(data: _Data, fits: Sequence[_Fit], results: Sequence[_Fitted]) -> Regressor:
    """The accuracy of a regressor over the test folds of ``fits``."""
    rows, predicted = data.rows, np.full_like(data.rows.log_us, np.nan)
    for fit, result in zip(fits, results, strict=True):
        predicted[data.fold == fit.test_fold] = result.predicted
    losses = [best for _, best, _ in _losses(rows, predicted)]
    mse = error(rows, predicted, np.isin(data.fold, [fit.test_fold for fit in fits])) ** 2
    last = results[-1]
    return Regressor(fits[0].hidden, last.weights, last.used, mse, geometric_mean(losses))


def error(rows: Training, predicted: Floats, out: Mask | None = None) -> float:
    """The root mean square of log2(predicted / measured) over the rows ``out`` (None: all), weighted as in training."""
    out = np.ones(len(rows.log_us), bool) if out is None else out
    return float(np.sqrt(np.average((predicted - rows.log_us)[out] ** 2, weights=rows.weights()[out])))


def _losses(rows: Training, predicted: Floats) -> Iterator[tuple[int, float, float]]:
    """For each problem with predictions and at least ``MEASURED`` configurations: its index, the best time over that of
    the first choice, and the best time over that of the fastest of the first ``TOP`` choices."""
    group = rows.choice[rows.group]
    order = np.lexsort((predicted, group))
    starts = np.searchsorted(group[order], np.arange(rows.groups + 1))
    for i in range(rows.groups):
        rows_of_problem = order[starts[i] : starts[i + 1]]
        if len(rows_of_problem) >= MEASURED and np.isfinite(predicted[rows_of_problem]).all():
            gap = rows.log_us[rows_of_problem].min() - rows.log_us[rows_of_problem]
            yield i, float(np.exp2(gap[0])), float(np.exp2(gap[:TOP].max()))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; NaN if there are no values."""
    return statistics.geometric_mean(values) if values else math.nan


def scores(rows: Training, predicted: Floats) -> list[Score]:
    """The scores of all problems, and of the problems of each arithmetic, problem class, and family of the fastest
    configuration."""
    members: dict[tuple[str, str], list[tuple[float, float]]] = {}
    order = np.argsort(-rows.log_us, kind="stable")
    fastest = dict(zip(rows.choice[rows.group[order]].tolist(), rows.family[order].tolist(), strict=True))
    for i, first, top in _losses(rows, predicted):
        p = rows.problems[i]
        for key in (
            ("all", ""),
            ("dtype", arithmetic(p)),
            ("kind", p.problem_class),
            ("family", FAMILIES[fastest[i]]),
        ):
            members.setdefault(key, []).append((first, top))
    out = []
    for (group, name), losses in sorted(members.items(), key=lambda m: (_GROUPS.index(m[0][0]), m[0][1])):
        first_choices, tops = [f for f, _ in losses], [t for _, t in losses]
        fifth, worst = float(np.quantile(first_choices, 0.05)), min(first_choices)
        out.append(Score(group, name, len(losses), geometric_mean(first_choices), fifth, worst, geometric_mean(tops)))
    return out


_GROUPS = ("all", "dtype", "kind", "family")
