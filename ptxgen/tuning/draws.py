"""Random extents and random choices, from which problems are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ptxgen.problem.registry import Problem

VARIATION = 4.0  #: the largest ratio of an extent of a variant to that of the first problem of its group
ALIGNMENT = 16  #: variants keep the common divisors of extents with this number


@dataclass(frozen=True)
class Limits:
    """The limits of drawn problems: the extents of a GEMM, the bytes of the operands, the floating-point operations."""

    extent: int = 8192
    bytes: int = 1 << 30
    flops: int = 2_000_000_000_000

    def admits(self, p: Problem) -> bool:
        return bool(p.bytes <= self.bytes and p.flops <= self.flops)


def varied_extent(rng: np.random.Generator, extent: int, largest: int, alignment: int = ALIGNMENT) -> int:
    """A random extent up to ``largest`` that differs from ``extent`` by less than a factor of VARIATION, and has the
    same greatest common divisor with ``alignment``, a power of two."""
    unit = math.gcd(extent, alignment)
    most = max(largest // unit, 1)
    up = min(max(largest / extent, 1.0), VARIATION)
    new = extent * math.exp(rng.uniform(-math.log(VARIATION), math.log(up)))
    count = min(max(1, round(new / unit)), most)
    if unit < alignment and count % 2 == 0:
        count -= 1
    return count * unit


def weighted_choice(rng: np.random.Generator, weights: Mapping[str, float]) -> str:
    """A random name. The probability of a name is in proportion to its weight."""
    total = sum(weights.values())
    return str(rng.choice(list(weights), p=[w / total for w in weights.values()]))


def log_uniform(rng: np.random.Generator, largest: int) -> int:
    """A random integer from 1 to ``largest``, whose logarithm is distributed uniformly."""
    return min(int(2.0 ** rng.uniform(0.0, math.log2(largest + 1))), largest)
