"""Draws legal configurations (section 4.1 of the paper): each axis is an independent categorical variable.

Uniform draws from the product of all axes are rarely legal. A short phase of uniform draws estimates how often each
value is part of a legal configuration; counts start at ALPHA, so that every value stays possible (a Dirichlet prior).
The family is an axis, too, and each family has axes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import FAMILIES, Columns
from ptxgen.errors import ConfigError
from ptxgen.families.common.rules import legal
from ptxgen.families.common.space import families
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

ALPHA = 100  #: initial count of every value
WANTED = 2000  #: the uniform phase of a family ends after so many legal draws
LIMIT = 4_000_000  #: the most draws of a uniform phase, and of ``sample``
BATCH = 1 << 15


@dataclass(frozen=True)
class Variable:
    """A categorical variable. ``values``: one row for each value of an axis, or of several axes together; ``chances``:
    the probability of each row."""

    values: NDArray[np.int64]
    chances: NDArray[np.float64]

    @classmethod
    def flat(cls, values: Sequence[tuple[int, ...]]) -> Variable:
        """A variable with equal probabilities."""
        return cls(np.array(values, np.int64), np.full(len(values), 1 / len(values)))

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """``size`` random indices of rows."""
        if (self.chances == self.chances[0]).all():
            return rng.integers(len(self.values), size=size)
        return rng.choice(len(self.values), size, p=self.chances)

    def seen(self, c: Columns, names: tuple[str, ...]) -> NDArray[np.int64]:
        """The number of occurrences of each value among the rows of ``c``."""
        drawn = np.stack([c.column(n) for n in names], axis=1)
        return np.asarray((drawn[:, None, :] == self.values).all(axis=2).sum(axis=0), np.int64)


#: names of axes -> their variable; most variables have one axis
Variables = Mapping[tuple[str, ...], Variable]


@dataclass
class Tally:
    """The number of draws of a family, and the number of legal ones among them."""

    draws: int = 0
    accepted: int = 0

    @property
    def share(self) -> float:
        return self.accepted / max(self.draws, 1)


@dataclass(frozen=True)
class Categorical:
    """A sampler of legal configurations for one problem on one device: axes are independent, with given probabilities
    of their values.

    ``family``: the probability of each family that computes the problem, by code; ``variables``: the variables of each
    family, by code; ``learnt``: the counts of the uniform phase of each family.
    """

    problem: KernelProblem
    device: Device
    family: Mapping[int, float]
    variables: Mapping[int, Variables]
    learnt: Mapping[int, Tally] = field(default_factory=dict)

    @classmethod
    def uniform(cls, problem: KernelProblem, device: Device) -> Categorical:
        """The sampler with uniform distributions of all axes."""
        able = families(problem, device)
        flat: dict[int, Variables] = {
            f.code: {(n,): Variable.flat([(v,) for v in values]) for n, values in f.axes.items()} for f in able
        }
        return cls(problem, device, {f.code: 1 / len(able) for f in able}, flat)

    @classmethod
    def learn(
        cls, problem: KernelProblem, device: Device, seed: int = 0, wanted: int = WANTED, limit: int = LIMIT
    ) -> Categorical:
        """The sampler with probabilities estimated from uniform draws: for each family until ``wanted`` draws are
        legal, at most ``limit`` draws."""
        variables, tallies = {}, {}
        for f in families(problem, device):
            flat = {names: Variable.flat(values) for names, values in f.variables(f.form(problem)).items()}
            counts = {names: np.full(len(v.values), float(ALPHA)) for names, v in flat.items()}
            tally = tallies[f.code] = Tally()
            uniform = cls(problem, device, {f.code: 1.0}, {f.code: flat})
            for size, legal_rows in uniform._batches(np.random.default_rng([seed, f.code]), limit):
                tally.draws, tally.accepted = tally.draws + size, tally.accepted + len(legal_rows)
                for names, count in counts.items():
                    count += flat[names].seen(legal_rows, names)
                if tally.accepted >= wanted:
                    break
            variables[f.code] = {n: Variable(flat[n].values, c / c.sum()) for n, c in counts.items()}
        # a family without a legal draw stays possible
        legal_draws = {code: ALPHA + tally.accepted for code, tally in tallies.items()}
        whole = sum(legal_draws.values())
        return cls(problem, device, {c: n / whole for c, n in legal_draws.items()}, variables, tallies)

    @property
    def draws(self) -> int:
        """The number of draws of the uniform phases; 0 for a uniform distribution."""
        return sum(t.draws for t in self.learnt.values())

    @property
    def accepted(self) -> int:
        return sum(t.accepted for t in self.learnt.values())

    def only(self, code: int) -> Categorical:
        """The same sampler for one family."""
        return replace(self, family={code: 1.0})

    def of(self, problem: KernelProblem) -> Categorical:
        """The same probabilities for another problem that the same families compute."""
        return replace(self, problem=problem)

    def _batches(self, rng: np.random.Generator, limit: int) -> Iterator[tuple[int, Columns]]:
        """For each batch, the number of draws and the legal ones among them, until ``limit`` draws are made."""
        for start in range(0, limit, BATCH):
            size = min(BATCH, limit - start)
            batches = [c.take(legal(self.problem, c, self.device)) for c in self._drawn(rng, size)]
            together = batches[0] if len(batches) == 1 else Columns.concat(batches)
            yield size, together if len(batches) == 1 else together.take(rng.permutation(len(together)))

    def _drawn(self, rng: np.random.Generator, size: int) -> list[Columns]:
        """``size`` random configurations, legal or not, in one table per family."""
        codes = list(self.family)
        sizes = [size] if len(codes) == 1 else rng.multinomial(size, list(self.family.values())).tolist()
        return [self._of_family(rng, code, n) for code, n in zip(codes, sizes, strict=True)]

    def _of_family(self, rng: np.random.Generator, code: int, size: int) -> Columns:
        values = {}
        for names, variable in self.variables[code].items():
            drawn = variable.values[variable.draw(rng, size)]
            values.update({name: drawn[:, i] for i, name in enumerate(names)})
        return Columns(values, size).replace(family=code)

    def sample(self, n: int, rng: np.random.Generator, limit: int = LIMIT) -> Columns:
        """``n`` random legal configurations. ConfigError: fewer were among ``limit`` draws."""
        batches, have, draws = [Columns({}, 0)], 0, 0
        for size, part in self._batches(rng, limit if n else 0):
            batches, have, draws = [*batches, part], have + len(part), draws + size
            if have >= n:
                break
        if have < n:
            raise ConfigError(
                f"{self.problem.name} on {self.device.name}: {draws} draws had {have} legal"
                f" configurations; {n} are requested"
            )
        return Columns.concat(batches).take(np.arange(n))

    def tally(self, n: int, rng: np.random.Generator) -> dict[int, Tally]:
        """The counts of each family in ``n`` draws."""
        out = {code: Tally() for code in self.family}
        for start in range(0, n, BATCH):
            for c in self._drawn(rng, min(BATCH, n - start)):
                if len(c):
                    tally = out[int(c.family[0])]
                    tally.draws, tally.accepted = tally.draws + len(c), tally.accepted + self._legal(c)
        return out

    def _legal(self, c: Columns) -> int:
        return int(legal(self.problem, c, self.device).sum())


def table(problem: KernelProblem, device: Device, n: int = 200_000, seed: int = 0) -> list[dict[str, Any]]:
    """Table 1 of the paper for one problem: the legal fraction of ``n`` draws of the learnt and of a uniform sampler,
    in total and by family. The draws of the uniform phase are listed separately."""
    learnt = Categorical.learn(problem, device, seed)
    rows: list[dict[str, Any]] = []
    for name, sampler in (("categorical", learnt), ("uniform", Categorical.uniform(problem, device))):
        tallies = sampler.tally(n, np.random.default_rng([seed, 1]))
        accepted = sum(t.accepted for t in tallies.values())
        rows.append(
            {
                "sampler": name,
                "draws": n,
                "accepted": accepted,
                "acceptance": accepted / max(n, 1),
                "learnt_from_draws": sampler.draws,
                "learnt_from_accepted": sampler.accepted,
                "families": [
                    {"family": FAMILIES[code], "draws": t.draws, "accepted": t.accepted, "acceptance": t.share}
                    for code, t in tallies.items()
                ],
            }
        )
    return rows


def samples_per_family(
    us: NDArray[np.float32], family: NDArray[np.int64], n: int, power: float = 3.0
) -> dict[int, int]:
    """The division of ``n`` samples among families, by code: a share is in proportion to (best time of the
    family)^-power. A family whose best time is within a factor of 3 of the best of all has at least 1/20 of the weight
    of the best family."""
    best = {int(code): float(us[family == code].min()) for code in np.unique(family)}
    if not best:
        return {}
    first = min(best.values())
    weight = {code: max((first / t) ** power, 0.05 if t <= 3 * first else 0.0) for code, t in best.items()}
    whole = sum(weight.values())
    shares = {code: int(n * w / whole) for code, w in weight.items()}
    shares[min(best, key=lambda code: best[code])] += n - sum(shares.values())
    return shares


def weighted_by_speed(
    us: NDArray[np.float32], n: int, rng: np.random.Generator, power: float = 3.0
) -> NDArray[np.intp]:
    """The indices of ``n`` distinct random rows, drawn with probabilities in proportion to us^-power, so that most are
    near the best.

    Training data are drawn so, because nearly all uniform draws from a large space are slow.
    """
    weight = -power * np.log(np.maximum(us.astype(np.float64), 1e-9))
    keys = weight + rng.gumbel(size=len(us))  # the largest of these are a draw without replacement
    n = min(n, len(us))
    if n == 0:
        return np.zeros(0, np.intp)
    picked = np.argpartition(-keys, n - 1)[:n]
    return picked[np.argsort(-keys[picked], kind="stable")]
