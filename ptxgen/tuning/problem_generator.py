"""Draws problems to measure from a mixture of classes. The seed and the number of a problem determine it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ptxgen.arguments import shown
from ptxgen.errors import InputError, ShapeError
from ptxgen.problem.operation import RandomProblems, operations
from ptxgen.problem.registry import Problem
from ptxgen.tuning.collect.problem_groups import kernel_class
from ptxgen.tuning.draws import Limits, weighted_choice

VARIANTS_TRIED = 32  #: variants tried before a problem of another class is drawn

#: arithmetic -> the fields of a problem, and its default weight
ARITHMETIC: dict[str, tuple[dict[str, str], float]] = {
    "f32": ({"dtype": "f32"}, 1.0),
    "tf32": ({"dtype": "f32", "compute": "tf32"}, 1.0),
    "bf16": ({"dtype": "bf16"}, 1.5),
    "f16": ({"dtype": "f16"}, 1.0),
    "f64": ({"dtype": "f64"}, 0.7),
}


@dataclass(frozen=True)
class ProblemGenerator:
    """An endless sequence of random problems; problem number i of a seed is always the same. ``mixture``,
    ``arithmetic``: weights by name; an absent name has weight 0. In each ``group`` of consecutive problems, all have
    the kernel class of the first one, with other extents. InputError: an unknown name, or no positive weight."""

    seed: int = 0
    mixture: Mapping[str, float] = field(
        default_factory=lambda: {name: each.weight for name, each in generators().items()}
    )
    arithmetic: Mapping[str, float] = field(
        default_factory=lambda: {n: weight for n, (_, weight) in ARITHMETIC.items()}
    )
    limits: Limits = field(default_factory=Limits)
    group: int = 1

    def __post_init__(self) -> None:
        check_weights("mixture", self.mixture, generators())
        check_weights("dtypes", self.arithmetic, ARITHMETIC)

    def __iter__(self) -> Iterator[Problem]:
        """The problems in order, without end."""
        number = 0
        while True:
            yield self.problem(number)
            number += 1

    def problem(self, number: int) -> Problem:
        first, member = divmod(number, self.group)
        generator, drawn = self._drawn(np.random.default_rng([self.seed, first]))
        return self._variant(generator, drawn, np.random.default_rng([self.seed, first, member])) if member else drawn

    def _drawn(self, rng: np.random.Generator) -> tuple[RandomProblems, Problem]:
        generator = generators()[weighted_choice(rng, self.mixture)]
        values = ARITHMETIC[weighted_choice(rng, self.arithmetic)][0]
        while True:
            try:
                drawn = generator.draw(rng, values, self.limits)
            except ShapeError:  # a filter that is larger than its image, or more memory than a GPU has
                continue
            if self.limits.admits(drawn):
                return generator, drawn

    def _variant(self, generator: RandomProblems, first: Problem, rng: np.random.Generator) -> Problem:
        """A problem of the kernel class of ``first``, or of any class if VARIANTS_TRIED draws give none."""
        key = kernel_class(first)
        if generator.vary is None:
            return self._drawn(rng)[1]
        for _ in range(VARIANTS_TRIED):
            with suppress(ShapeError):
                variant = generator.vary(rng, first, self.limits)
                if variant != first and self.limits.admits(variant) and kernel_class(variant) == key:
                    return variant
        return self._drawn(rng)[1]


def generators() -> dict[str, RandomProblems]:
    """The random problems of all operations, by name."""
    return {name: generator for operation in operations() for name, generator in operation.random_problems.items()}


def check_weights(name: str, weights: Mapping[str, float], known: Mapping[str, object]) -> None:
    """Raises InputError if a weight is negative or not finite, a name is unknown, or no weight is positive."""
    for key, weight in weights.items():
        if key not in known:
            raise InputError(f"{name} has {shown(key)}; it must be one of {', '.join(known)}")
        if not 0 <= weight < math.inf:
            raise InputError(f"{name} has {key}={weight:g}; a weight must be finite and not negative")
    if not sum(weights.values()) > 0:
        raise InputError(f"{name} has no positive weight; one of {', '.join(known)} must have one")


def read_weights(name: str, text: str) -> dict[str, float]:
    """Weights written as ``f32=2,f16=1``; a name alone has weight 1. InputError: the text has another form."""
    out: dict[str, float] = {}
    for part in text.split(","):
        key, _, number = part.strip().partition("=")
        try:
            out[key] = float(number or 1)
        except ValueError:
            raise InputError(f"{name} has {shown(part)}; it must be names with weights, as f32=2,f16=1") from None
    return out
