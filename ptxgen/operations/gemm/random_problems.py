"""Random GEMMs to measure. Each function draws a problem; ``values`` has the fields of its arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.operations.gemm.problem import LAYOUTS, THIN, Gemm
from ptxgen.tuning.draws import Limits, log_uniform, varied_extent

BATCH = 512  #: the most products of a batch
MULTIPLE = 8  #: half of the problems have extents that are multiples of this


def extent(rng: np.random.Generator, largest: int, multiple: int) -> int:
    """A random multiple of ``multiple`` up to ``largest``, whose logarithm is about uniform."""
    value = log_uniform(rng, largest)
    return min(-(-value // multiple) * multiple, max(largest // multiple, 1) * multiple)


def gemm(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Gemm:
    """A GEMM of random layout, whose extents have uniform logarithms."""
    multiple = MULTIPLE if rng.random() < 0.5 else 1
    m, n, k = (extent(rng, limits.extent, multiple) for _ in "mnk")
    return Gemm(m, n, k, str(rng.choice(LAYOUTS)), **values)


def thin(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Gemm:
    """A GEMM with one small extent."""
    p = gemm(rng, values, limits)
    long = {name: max(getattr(p, name), extent(rng, limits.extent, MULTIPLE)) for name in "mnk"}
    return replace(p, lda=0, ldb=0, ldc=0, **{**long, str(rng.choice(list("mnk"))): log_uniform(rng, THIN)})


def batch(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Gemm:
    """A batch of GEMMs, with smaller extents."""
    smaller = replace(limits, extent=max(limits.extent // 4, 1))
    return replace(gemm(rng, values, smaller), batch=1 + log_uniform(rng, min(BATCH, limits.extent)))


def varied(rng: np.random.Generator, p: Gemm, limits: Limits) -> Gemm:
    """The problem with other extents. Extents up to THIN stay within THIN, and a batch remains a batch."""
    extents = {name: getattr(p, name) for name in "mnk"}
    new: dict[str, Any] = {
        name: varied_extent(rng, x, THIN if x <= THIN else limits.extent) for name, x in extents.items()
    }
    count = max(2, varied_extent(rng, p.batch, BATCH, 1)) if p.batch > 1 else 1
    return replace(p, lda=0, ldb=0, ldc=0, batch=count, **new)
