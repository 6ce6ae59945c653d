"""Section 4.1: draws legal configurations, each axis an independent categorical variable.

Uniform draws over the product of all axes are hardly ever legal. A short phase of them is enough to learn how often
each value is part of a legal one; counts start at ALPHA, so that no value is ever ruled out (a Dirichlet prior).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxgen.config import AXIS, Columns
from ptxgen.device import Device
from ptxgen.errors import ConfigError
from ptxgen.problem import Problem
from ptxgen.rules import legal
from ptxgen.space import SIMT_AXES

Probabilities = Mapping[str, NDArray[np.float64]]

ALPHA = 100  #: what the count of every value starts at
WANTED = 2000  #: legal draws that end the uniform phase
LIMIT = 4_000_000  #: draws that end it, or a vain search, in any case
BATCH = 1 << 15


def flat() -> Probabilities:
    """Every value of every axis of the SIMT family as likely as the next."""
    return {name: np.full(len(AXIS[name].values), 1 / len(AXIS[name].values)) for name in SIMT_AXES}


@dataclass(frozen=True)
class Categorical:
    """Independent axes with the given probabilities of their values, for one problem on one device.

    ``draws``, ``accepted``: of the uniform phase that it was learnt from; 0 if it was not learnt.
    """

    problem: Problem
    device: Device
    probabilities: Probabilities
    draws: int = 0
    accepted: int = 0

    @classmethod
    def uniform(cls, problem: Problem, device: Device) -> Categorical:
        return cls(problem, device, flat())

    @classmethod
    def learn(
        cls, problem: Problem, device: Device, seed: int = 0, wanted: int = WANTED, limit: int = LIMIT
    ) -> Categorical:
        """From uniform draws, until ``wanted`` of them were legal or ``limit`` were made."""
        counts = {name: np.full(len(AXIS[name].values), float(ALPHA)) for name in SIMT_AXES}
        draws = accepted = 0
        for size, found in cls.uniform(problem, device)._batches(np.random.default_rng(seed), limit):
            draws, accepted = draws + size, accepted + len(found)
            for name, count in counts.items():
                count += (found.columns[name][:, None] == np.array(AXIS[name].values)).sum(axis=0)
            if accepted >= wanted:
                break
        return cls(problem, device, {n: c / c.sum() for n, c in counts.items()}, draws, accepted)

    def _batches(self, rng: np.random.Generator, limit: int) -> Iterator[tuple[int, Columns]]:
        """(draws made, the legal ones of them), again and again until ``limit`` draws were made."""
        for start in range(0, limit, BATCH):
            size = min(BATCH, limit - start)
            drawn = {n: rng.choice(np.array(AXIS[n].values), size, p=p) for n, p in self.probabilities.items()}
            c = Columns(drawn, size)
            yield size, c.take(legal(self.problem, c, self.device))

    def sample(self, n: int, rng: np.random.Generator, limit: int = LIMIT) -> Columns:
        """``n`` legal configurations. ConfigError: ``limit`` draws did not hold so many."""
        found, have, draws = [Columns({}, 0)], 0, 0
        for size, part in self._batches(rng, limit if n else 0):
            found, have, draws = [*found, part], have + len(part), draws + size
            if have >= n:
                break
        if have < n:
            raise ConfigError(
                f"{self.problem.key()} on {self.device.name}: {draws} draws held {have} legal"
                f" configurations; {n} are asked for"
            )
        return Columns.concat(found).take(np.arange(n))

    def acceptance(self, n: int, rng: np.random.Generator) -> float:
        """The share of ``n`` draws that is legal."""
        return sum(len(part) for _, part in self._batches(rng, n)) / max(n, 1)


def table(problem: Problem, device: Device, n: int = 200_000, seed: int = 0) -> list[dict[str, str | int | float]]:
    """Table 1 of the paper for one problem: of ``n`` draws each, how many the learnt sampler and a uniform one got
    legal. The draws that the first was learnt from are counted apart."""
    learnt = Categorical.learn(problem, device, seed)
    rows: list[dict[str, str | int | float]] = []
    for name, sampler in (("categorical", learnt), ("uniform", Categorical.uniform(problem, device))):
        accepted = sum(len(part) for _, part in sampler._batches(np.random.default_rng([seed, 1]), n))
        rows.append({
            "sampler": name, "draws": n, "accepted": accepted, "acceptance": accepted / max(n, 1),
            "learnt_from_draws": sampler.draws, "learnt_from_accepted": sampler.accepted,
        })  # fmt: skip
    return rows


def promising(us: NDArray[np.float32], n: int, rng: np.random.Generator, power: float = 3.0) -> NDArray[np.intp]:
    """Indices of ``n`` distinct rows, drawn with chances ∝ us^-power: near a model's best more often, but anywhere.

    For measurements that a search learns from: uniform draws of a large space are nearly all slow.
    """
    weight = -power * np.log(np.maximum(us.astype(np.float64), 1e-9))
    keys = weight + rng.gumbel(size=len(us))  # the largest of these are a draw without replacement
    n = min(n, len(us))
    if n == 0:
        return np.zeros(0, np.intp)
    picked = np.argpartition(-keys, n - 1)[:n]
    return picked[np.argsort(-keys[picked], kind="stable")]
