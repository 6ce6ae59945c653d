"""Random numbers for patterns. They are functions of a seed, a stream and a place, and so the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

AT_ONCE = 1 << 16  #: numbers that are made at once, so that they stay in a CPU's cache
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _mixed(x: Any) -> Any:
    """The finalizer of SplitMix64 for 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


def random_bits(seed: int, stream: int, places: Any) -> NDArray[np.uint64]:
    """64 random bits for each place of a stream: SplitMix64, whose state begins at a random number of the stream."""
    with np.errstate(over="ignore"):
        key = _mixed(_mixed((np.uint64(seed) + np.uint64(1)) * _GOLDEN) + np.uint64(stream))
        bits: NDArray[np.uint64] = _mixed(key + (np.asarray(places, np.uint64) + np.uint64(1)) * _GOLDEN)
    return bits


def uniform(seed: int, stream: int, places: Any) -> NDArray[np.float64]:
    """A random number for each place, at least 0 and less than 1."""
    return (random_bits(seed, stream, places) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(seed: int, stream: int, places: Any, limit: Any) -> Ints:
    """A random integer from 0 to ``limit`` - 1 for each place."""
    out: Ints = (uniform(seed, stream, places) * limit).astype(np.int64)
    return out


def permutation(seed: int, stream: int, n: int) -> Ints:
    """The integers from 0 to n - 1 in random order."""
    out: Ints = np.argsort(random_bits(seed, stream, np.arange(n)), kind="stable")
    return out


def in_blocks(count: int, make: Callable[[Ints], Ints]) -> Ints:
    """The array ``make(places)`` for the places from 0 to ``count`` - 1, which is made in blocks."""
    out = np.empty(count, np.int64)
    for first in range(0, count, AT_ONCE):
        out[first : first + AT_ONCE] = make(np.arange(first, min(first + AT_ONCE, count)))
    return out
