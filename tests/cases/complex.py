"""Random legal products of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import COMPLEX_LAYOUTS, Gemm
from ptxgen.problem.device import Device
from tests.cases import mma, simt
from tests.cases.source import RandomCases, extents

TYPES = ("c64", "c128")


def problem(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """A random problem: type, layout with conjugation, extents, leading dimensions longer than rows, a batch."""
    m, n, k = extents(rng, limit)
    plain = Gemm(m, n, k, COMPLEX_LAYOUTS[rng.integers(16)], TYPES[rng.integers(2)])
    extra: dict[str, Any] = {}
    if rng.random() < 0.5:
        a, b, c = (int(n) for n in rng.choice([0, 1, 2, 3], 3))
        extra = {"lda": plain.columns_a + a, "ldb": plain.columns_b + b, "ldc": n + c}
    if rng.random() < 0.2:
        extra |= {"batch": 3, "stride_b": int(rng.choice([-1, 0]))}
    return Gemm(m, n, k, plain.layout, plain.dtype, deterministic=bool(rng.random() < 0.15), **extra)


def config(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn."""
    draw = simt.config if rng.random() < 0.5 else simt.wide_config
    if p.dtype == "c128" and d.sm >= 80 and rng.random() < 0.6:
        draw = mma.config
    return draw(p, d, rng, threads)


SOURCE = RandomCases("complex", problem, config, limit=100)
