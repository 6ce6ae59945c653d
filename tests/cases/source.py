"""The protocol of case sources, and the source that most families use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import FLOATS_8

P = TypeVar("P")
G = TypeVar("G", Gemm, GroupedGemm)


class CaseSource(Protocol):
    """Generates random legal cases of one family or kind: pairs of a problem and a configuration."""

    @property
    def name(self) -> str:
        """The key in ``tests.cases.SOURCES``."""
        ...

    def supports(self, device: Device) -> bool:
        """True if ``device`` runs such kernels."""
        ...

    def cases(
        self, seed: int, count: int, device: Device, limit: int | None = None, threads: int = 1024
    ) -> Iterator[tuple[Any, Config]]:
        """``count`` cases, the same for equal arguments; none if the device is not supported.

        ``limit``: the largest extent. ``threads``: the most threads of a block."""
        ...


@dataclass(frozen=True)
class RandomCases:
    """Draws a problem with ``problem(rng, limit, device)``, then a legal configuration with ``config(problem, device,
    rng, threads)``; either returns None when it finds none, and both are called again.

    ``limit``: the default. ``sms``: compute capabilities that have the instructions. ``seeds``: added to the seed.
    """

    name: str
    problem: Callable[[np.random.Generator, int, Device], Any]
    config: Callable[[Any, Device, np.random.Generator, int], Config | None]
    limit: int = 160
    sms: range = range(75, 1000)
    seeds: tuple[int, ...] = ()

    def supports(self, device: Device) -> bool:
        return device.sm in self.sms

    def cases(
        self, seed: int, count: int, device: Device, limit: int | None = None, threads: int = 1024
    ) -> Iterator[tuple[Any, Config]]:
        rng = np.random.default_rng([seed, *self.seeds])
        return pairs(
            count if self.supports(device) else 0,
            lambda: self.problem(rng, limit or self.limit, device),
            lambda p: self.config(p, device, rng, threads),
        )


def pairs(count: int, draw: Callable[[], P | None], config: Callable[[P], Config | None]) -> Iterator[tuple[P, Config]]:
    """``count`` pairs of a problem and a configuration; where either is None, both are drawn again."""
    while count:
        p = draw()
        c = None if p is None else config(p)
        if p is not None and c is not None:
            count -= 1
            yield p, c


def extents(rng: np.random.Generator, limit: int) -> tuple[int, int, int]:
    """Extents at which kernels fail: 1, primes, around tiles, multiples of vectors, and any."""
    kinds = (
        [1, 2, 3, 7, 13, 31, 61, 127, 251],
        [15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129],
        [4, 8, 24, 40, 96, 160, 256],
    )
    out = []
    for _ in range(3):
        pool = kinds[rng.integers(len(kinds))] if rng.random() < 0.8 else list(range(1, limit))
        out.append(int(min(rng.choice(pool), limit)))
    return out[0], out[1], out[2]


def with_both_floats_8(p: G, odd: bool) -> G:
    """A product of 8-bit floats; if ``odd``, B has the other type."""
    if not p.element.fp8 or not odd:
        return p
    return replace(p, dtype_b=next(name for name in FLOATS_8 if name != p.dtype))
