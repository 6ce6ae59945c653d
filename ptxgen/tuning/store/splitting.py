"""Shows the value of splitting the reduction: the fastest measured configuration of a problem with certain splits
alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.measurement import Measurement

#: name of a set of splits (K_S, K_L, K_G) -> True if a configuration has no other splits; each set includes the one
#: before
SPLITS: dict[str, Callable[[Config], bool]] = {
    "none": lambda c: c.ks == c.kl == c.kg == 1,
    "kg": lambda c: c.ks == c.kl == 1,
    "all": lambda c: True,
}


@dataclass(frozen=True)
class SplitTime:
    """The fastest configuration of a problem among those with allowed splits. ``us``: the median of its samples in
    microseconds; ``measured``: the number of measured configurations with allowed splits."""

    us: float
    config: Config
    measured: int


def by_splits(measurements: Iterable[Measurement]) -> dict[Problem, dict[str, SplitTime]]:
    """For each problem and each name in ``SPLITS``, the fastest configuration with no other splits. A name is absent if
    no such configuration was measured. The last measurement of a configuration counts."""
    times: dict[Problem, dict[Config, Measurement]] = {}
    for m in measurements:
        if m.outcome == "ok" and m.samples:
            known = times.setdefault(m.problem, {})
            if m.config not in known or known[m.config].created <= m.created:
                known[m.config] = m
    return {problem: _fastest(list(known.values())) for problem, known in times.items()}


def _fastest(measured: list[Measurement]) -> dict[str, SplitTime]:
    out = {}
    for name, allowed in SPLITS.items():
        if rows := [m for m in measured if allowed(m.config)]:
            best = min(rows, key=lambda m: m.us)
            out[name] = SplitTime(best.us, best.config, len(rows))
    return out


def shipped(device: str, problems: Collection[Problem]) -> dict[Problem, dict[str, SplitTime]]:
    """``by_splits`` of the shipped measurements of ``problems``. InputError: the device has no measurements."""
    return by_splits(tuning_files.read_all(tuning_files.existing_measurements(device), problems))
