"""The expected gain of further measurements of a problem, by which tuning chooses the next problem, and decides when to
end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxgen.codegen.config.config import Config
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store.measurement import Measurement

MIN_GAIN = 0.01  #: a problem is not measured further if the predicted gain is less
FASTEST = 5  #: so many of the least times serve to estimate the spread of fast times


def expected_gain(measured: Sequence[float], count: int, shift: float = 0.0) -> float:
    """The fraction of the best time that measurements of ``count`` more candidates are expected to save. ``measured``:
    the times so far in microseconds.

    Near the best, logarithms of times have an exponential tail: with scale s, the differences between successive order
    statistics have the means s, s/2, s/3, …. Of m + n candidates in random order, the best is one of the last n with
    probability n / (m + n), and it is better than the best before by s in the mean. ``shift``: the logarithm of the
    factor by which the model expects the new candidates to be slower.
    """
    times = sorted(x for x in measured if x > 0 and math.isfinite(x))[:FASTEST]
    if len(times) < 2 or not count:
        return float(bool(count))
    scale = math.log(times[-1] / times[0]) / sum(1 / i for i in range(1, len(times)))
    if scale <= 0:
        return 0.0
    chance = count / (len(measured) + count)
    return 1 - math.exp(-chance * scale * math.exp(-max(shift, 0.0) / scale))


@dataclass
class GainHistory:
    """The mean observed gain of a phase of tuning, which serves as a prediction where no model gives one. ``prior``:
    the gain assumed at first, which counts as two observations; ``seen``: the observed gains."""

    prior: float
    seen: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return (2 * self.prior + sum(self.seen)) / (2 + len(self.seen))


@dataclass
class ProblemQueue:
    """The configurations still to be measured for one problem. ``weight``: how often the problem occurs; ``ranked``:
    candidates with predicted microseconds, the best first, None until the model has ranked them; ``next``: the index of
    the first candidate that was not measured; ``rounds``: the number of completed refinement rounds; ``last_gain``: the
    gain of the last round; ``open``: False when the problem is finished."""

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
        """The next ``size`` candidates with their predicted microseconds."""
        return (self.ranked or [])[self.next : self.next + size]

    def batch_gain(self, size: int) -> float:
        """The expected gain of measuring the next ``size`` candidates."""
        good = [(us, m.us) for us, m in self.measured if m.outcome == "ok"]
        following = [us for _, us in self.batch(size)]
        known = [us for us, _ in good]
        shift = math.log(min(following) / min(known)) if known and following else 0.0
        return expected_gain([us for _, us in good], len(following), shift)


__all__ = ["MIN_GAIN", "GainHistory", "ProblemQueue", "expected_gain"]
