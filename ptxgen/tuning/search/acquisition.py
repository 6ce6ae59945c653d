"""Chooses the configurations to time next, as in Bayesian optimisation.

The error of the model, log(measured / predicted time), is treated as a Gaussian process over configurations: errors of
similar configurations are correlated. A measurement therefore corrects the predictions of similar configurations, and
makes them less uncertain. The next configuration is the one with the least lower confidence bound of its time: fast by
prediction, or uncertain because nothing like it was timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import FAMILIES, Config

POOL = 40  #: top-ranked configurations of the model, of which ``TIMED`` are timed
TIMED = 8
BATCH = 4  #: configurations that are timed together; their times decide on the next ones
DEVIATION = 0.15  #: prior standard deviation of the error
NOISE = 0.1  #: variance of the timing noise, divided by the prior variance of the error
LENGTH = 8.0  #: the number of different axes at which the correlation of two errors is 1/e
FAMILY_AXES = 4  #: a different family counts as so many different axes, besides the axes that only one family has

Floats = NDArray[np.float64]


def explore(
    present: Sequence[Config],
    pool: Mapping[Config, float],
    measure: Callable[[list[Config]], Mapping[Config, float]],
) -> dict[Config, float]:
    """Times ``present`` and the most promising of ``pool``, ``TIMED`` in all, and returns their microseconds.

    ``pool``: configurations with their predicted microseconds. ``measure``: times configurations, and returns the
    microseconds of each; NaN: the configuration failed.
    """
    measured: dict[Config, float] = {}
    configs = list(dict.fromkeys([*present, *pool]))
    predicted = [pool.get(c, math.nan) for c in configs]
    while len(measured) < min(TIMED, len(configs)):
        given = [] if measured else list(present)
        count = min(BATCH, TIMED - len(measured)) - len(given)
        known = measured | dict.fromkeys(given, math.nan)
        measured |= measure([*given, *next_to_time(configs, predicted, known, count)])
    return measured


def next_to_time(
    configs: Sequence[Config], predicted: Sequence[float], measured: Mapping[Config, float], count: int
) -> list[Config]:
    """Up to ``count`` of ``configs`` that are not in ``measured``, most promising first.

    ``predicted``: microseconds of each configuration; NaN (unknown) counts as the least. ``measured``: microseconds of
    configurations that were timed; NaN: the configuration failed.
    """
    times = np.asarray(predicted, float)
    least = np.nanmin(times) if np.isfinite(times).any() else 1.0
    log_us = np.log(np.where(np.isnan(times), least, times))
    correlation = _correlation(configs)
    known = [i for i, c in enumerate(configs) if math.isfinite(measured.get(c, math.nan))]
    mean = log_us
    if known:
        error = np.log([measured[configs[i]] for i in known]) - log_us[known]
        weights = np.linalg.solve(_noisy(correlation, known), error - error.mean())
        mean = log_us + error.mean() + correlation[:, known] @ weights
    left = [i for i, c in enumerate(configs) if c not in measured]
    chosen: list[int] = []
    while left and len(chosen) < count:
        bound = mean - DEVIATION * np.sqrt(_variance(correlation, known + chosen))
        chosen.append(min(left, key=lambda i: (bound[i], i)))
        left.remove(chosen[-1])
    return [configs[i] for i in chosen]


def _correlation(configs: Sequence[Config]) -> Floats:
    """The prior correlation of the errors of each pair of configurations."""
    names = sorted({name for c in configs for name in c.names})
    rows = [
        [FAMILIES.index(c.family)] * FAMILY_AXES + [getattr(c, n) if n in c.names else -1 for n in names]
        for c in configs
    ]
    table = np.array(rows, np.int64)
    different = (table[:, None, :] != table[None, :, :]).sum(-1)
    return np.asarray(np.exp(-different / LENGTH), float)


def _noisy(correlation: Floats, rows: list[int]) -> Floats:
    """The covariance of the measurements of ``rows``, divided by the prior variance."""
    return correlation[np.ix_(rows, rows)] + NOISE * np.eye(len(rows))


def _variance(correlation: Floats, rows: list[int]) -> Floats:
    """The variance of each error after measurements of ``rows``, divided by the prior variance."""
    if not rows:
        return np.ones(len(correlation))
    explained = correlation[:, rows] * np.linalg.solve(_noisy(correlation, rows), correlation[rows, :]).T
    return np.asarray(np.maximum(1.0 - explained.sum(1), 0.0), float)


__all__ = ["POOL", "TIMED", "explore", "next_to_time"]
