"""Random legal problems and configurations, the same for every tier of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from ptxgen.codegen.axes import Axis
from ptxgen.codegen.config import FAMILIES, Columns, Config, axes_of
from ptxgen.families.rules import legal
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device
from ptxgen.problem.gemm import LAYOUTS

P = TypeVar("P")
TYPES = (("f32", ""), ("f32", ""), ("f64", ""), ("f16", "f32"), ("f16", "f16"))
DRAWS = 4000


def extents(rng: np.random.Generator, limit: int) -> tuple[int, int, int]:
    """Extents that show mistakes: 1, primes, around tiles, multiples of vectors, and anything."""
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


def problem(rng: np.random.Generator, limit: int) -> KernelGemm:
    """A random problem: types, layout, extents, leading dimensions longer than rows, starts off alignment."""
    dtype, compute = TYPES[rng.integers(len(TYPES))]
    m, n, k = extents(rng, limit)
    layout = LAYOUTS[rng.integers(4)]
    extra = {}
    plain = KernelGemm(m, n, k, layout, dtype, compute)
    if rng.random() < 0.4:
        pads = rng.choice([0, 1, 2, 3, 4, 8, 16], 3)
        extra = {"lda": plain.columns_a + int(pads[0]), "ldb": plain.columns_b + int(pads[1]), "ldc": n + int(pads[2])}
        extra = {name: max(value, 1) for name, value in extra.items()}
    return KernelGemm(m, n, k, layout, dtype, compute, deterministic=bool(rng.random() < 0.15), **extra)


def choices(axis: Axis) -> tuple[int, ...]:
    """The values that the search visits, else all that have words, else the default."""
    return axis.values or tuple(range(len(axis.words))) or (axis.default,)


def values_of(family: str, name: str) -> tuple[int, ...]:
    """The ``choices`` of an axis of a family."""
    return next(choices(a) for a in axes_of(family) if a.name == name)


def random_columns(family: str, rng: np.random.Generator, n: int) -> Columns:
    """Rows of a family with random values, legal or not."""
    values = {a.name: rng.choice(np.array(choices(a)), n).astype(np.int64) for a in axes_of(family)}
    return Columns(values, n).replace(family=FAMILIES.index(family))


def config(p: KernelGemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration over all axes, or None if none was drawn."""
    values = {a.name: rng.choice(np.array(choices(a)), DRAWS) for a in axes_of("simt")}
    values["kg"] = rng.choice(np.array((*values_of("simt", "kg"), 3, 5, 7)), DRAWS)
    sliced = rng.random(DRAWS) < 0.5
    values["kg"] = np.where(sliced, values["kg"], 1)
    values["splitk"] = np.where(sliced, values["splitk"], 0)
    c = Columns(values, DRAWS)
    small = c.ml // c.ms * (c.nl // c.ns) * c.kl <= threads
    rows = np.flatnonzero(legal(p, c, d) & small)
    return c.row(int(rng.choice(rows))) if len(rows) else None


def cases(
    seed: int, count: int, d: Device, limit: int = 160, threads: int = 1024
) -> Iterator[tuple[KernelGemm, Config]]:
    """``count`` random pairs."""
    rng = np.random.default_rng(seed)
    return pairs(count, lambda: problem(rng, limit), lambda p: config(p, d, rng, threads))


def pairs(count: int, draw: Callable[[], P | None], config: Callable[[P], Config | None]) -> Iterator[tuple[P, Config]]:
    """``count`` pairs of a problem and a configuration; where either was not to be drawn, both are drawn again."""
    while count:
        p = draw()
        c = None if p is None else config(p)
        if p is not None and c is not None:
            count -= 1
            yield p, c
