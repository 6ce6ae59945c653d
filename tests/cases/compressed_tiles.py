"""Random legal products of sparse matrices in compressed tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.common.rules import legal
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import Device
from tests.cases.source import RandomCases, extents

DRAWS = 1000
#: dtype, compute
TYPES = (("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f32", "tf32"))


def problem(rng: np.random.Generator, limit: int, d: Device) -> Spmm:
    """Types, extents with few columns, generators of distinct columns, longer rows of B and C, unaligned starts."""
    dtype, compute = TYPES[rng.integers(len(TYPES))]
    m, _, k = extents(rng, limit)
    n = int(rng.choice([0, 1, 2, 3, 7, 8, 9, 16, 17, 24]))
    seed, density = rng.integers(100), rng.choice([0.0, 0.02, 0.1, 0.5, 1.0])
    generators = (
        f"bernoulli:density={density},seed={seed}",
        f"lognormal:density={density},sigma=2,seed={seed}",
        f"banded:width={rng.integers(40)}",
    )
    p = Spmm(m, n, k, "NN", dtype, compute, generators[rng.integers(len(generators))], calls=1000)
    if rng.random() < 0.25:  # a vector of adjacent elements
        return replace(p, n=1, ldb=0, ldc=0)
    if rng.random() < 0.4:
        b, c = (int(x) for x in rng.choice([0, 1, 2, 4, 8, 16], 2))
        p = replace(p, ldb=n + b, ldc=n + c)
    if rng.random() < 0.3:
        b, c = (int(x) for x in rng.choice([x for x in (2, 4, 8, 16) if x >= p.element.bytes], 2))
        p = replace(p, aligned_b=b, aligned_c=c)
    return p


def config(p: Spmm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn."""
    family = FAMILIES["compressed_tiles"]
    c = {a.name: rng.choice(a.values, DRAWS) for a in family.axes}
    c["tile_warps"] = rng.choice([1, 2, 4, 8, 16, 32], DRAWS)
    columns = Columns({**c, "family": np.full(DRAWS, family.code)}, DRAWS)
    rows = np.flatnonzero(legal(lower(p), columns, d) & (c["tile_warps"] * WARP <= threads))
    return columns.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("compressed_tiles", problem, config, limit=130, sms=range(80, 1000))
