"""What further measurements of a problem are expected to gain: it decides which problem is measured next, and when to
stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxgen.codegen.config import Config
from ptxgen.problem.registry import Problem
from ptxgen.tuning.measurement import Measurement

MIN_GAIN = 0.01  #: a problem is not measured further if the predicted gain is less
PRIOR_WEIGHT = 4  #: number of measurements that the prior error of a model counts as
STEPS = 64  #: of the numerical integral
_erf = np.vectorize(math.erf, otypes=[float])


def expected_gain(predicted: Sequence[float], best: float, error: float) -> float:
    """The fraction of ``best`` that the fastest of several candidates is expected to save.

    ``predicted``: microseconds of each; the logarithms of their true times are normal around it with deviation
    ``error``, independently; ``best``: microseconds of the fastest measured configuration.
    """
    if not len(predicted) or not math.isfinite(best):
        return float(bool(len(predicted)))
    ahead = math.log(best) - np.log(np.asarray(predicted, float))  # of each candidate's mean
    error = max(error, 1e-3)
    saved = np.linspace(0.0, max(float(ahead.max()), 0.0) + 5 * error, STEPS)
    none_saves_more = np.prod((1 + _erf((saved[:, None] - ahead) / (error * math.sqrt(2)))) / 2, axis=1)
    step, more = float(saved[1] - saved[0]), 1 - none_saves_more
    return 1 - math.exp(-step * float(more.sum() - (more[0] + more[-1]) / 2))


def calibration(pairs: Sequence[tuple[float, float]], error: float) -> tuple[float, float]:
    """(bias, error) of a model on one problem, both of the logarithm of measured / predicted time. ``pairs``: predicted
    and measured microseconds; ``error``: the error of the model on unseen problems, which the first pairs replace
    gradually."""
    residuals = np.array([math.log(measured / predicted) for predicted, measured in pairs])
    bias = float(residuals.sum()) / (len(residuals) + 1)
    squares = float(((residuals - bias) ** 2).sum())
    return bias, math.sqrt((PRIOR_WEIGHT * error**2 + squares) / (PRIOR_WEIGHT + len(residuals)))


@dataclass
class GainHistory:
    """The mean gain of the first measurements of a kind in this run, where no model predicts it. ``prior``: the gain
    assumed at first, which counts as two observations."""

    prior: float
    seen: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return (2 * self.prior + sum(self.seen)) / (2 + len(self.seen))


@dataclass
class ProblemQueue:
    """The configurations still to be measured for one problem. ``weight``: how often the problem occurs; ``ranked``:
    candidates with predicted microseconds (NaN: unknown), best first, None until the model has ranked them; ``next``:
    the first that was not measured; ``rounds``: completed refinement rounds, ``last_gain``: the gain of the last;
    ``open``: False when the problem is finished."""

    problem: Problem
    weight: float = 1.0
    seeds: Sequence[Config] = ()
    ranked: list[tuple[Config, float]] | None = None
    measured: list[tuple[float, Measurement]] = field(default_factory=list)  #: predicted microseconds, measurement
    next: int = 0
    rounds: int = 0
    last_gain: float = 0.0
    open: bool = True

    def batch(self, size: int) -> list[tuple[Config, float]]:
        """The next candidates."""
        return (self.ranked or [])[self.next : self.next + size]

    def batch_gain(self, size: int, best: float, error: float) -> float:
        """The gain that the next candidates promise. ``error``: of the model on unseen problems."""
        pairs = [(us, m.us) for us, m in self.measured if m.outcome == "ok" and us > 0]
        bias, error = calibration(pairs, error)
        known = [us * math.exp(bias) for _, us in self.batch(size) if us > 0]
        return expected_gain(known, best, error)


__all__ = ["MIN_GAIN", "GainHistory", "ProblemQueue", "calibration", "expected_gain"]
