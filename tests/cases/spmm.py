"""Random legal sparse products and configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.common.rules import legal
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import Device
from tests.cases.source import RandomCases, extents

DRAWS = 20000
#: dtype, compute
TYPES = (("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f32", "tf32"), ("f64", "f64"))


def problem(rng: np.random.Generator, limit: int, d: Device) -> Spmm:
    """Types that ``d`` converts, extents, generators, longer rows of B and C, unaligned starts."""
    known = [(dtype, compute) for dtype, compute in TYPES if d.sm >= (80 if dtype == "bf16" else 0)]
    dtype, compute = known[rng.integers(len(known))]
    m, n, k = extents(rng, limit)
    seed, density = rng.integers(100), rng.choice([0.02, 0.1, 0.5])
    generators = (
        f"bernoulli:density={density},seed={seed}",
        f"lognormal:density={density},sigma=2,seed={seed}",
        f"even:nnz={int(m * k * density)},seed={seed}",
        f"banded:width={rng.integers(9)}",
    )
    calls = int(rng.choice([0, 40, 1000]))
    p = Spmm(m, n, k, "NN", dtype, compute, generators[rng.integers(len(generators))], calls=calls)
    if rng.random() < 0.4:
        b, c = (int(x) for x in rng.choice([0, 1, 2, 4, 8, 16], 2))
        p = replace(p, ldb=n + b, ldc=n + c)
    if rng.random() < 0.3:
        b, c = (int(x) for x in rng.choice([x for x in (2, 4, 8, 16) if x >= p.element.bytes], 2))
        p = replace(p, aligned_b=b, aligned_c=c)
    return p


def any_layout(rng: np.random.Generator, limit: int, d: Device) -> Spmm:
    """``problem`` with column-major B or C, or indices of 64 bits."""
    p = problem(rng, limit, d)
    if rng.random() < 0.3:
        b, c = (bool(x) for x in rng.integers(0, 2, 2))
        lds = {"ldb": (p.k if b else p.n) + 3, "ldc": (p.m if c else p.n) + 1}
        p = replace(p, layout="NT" if b else "NN", layout_c="T" if c else "N", **lds)
    return replace(p, index="i64") if rng.random() < 0.2 else p


def graph_batch(rng: np.random.Generator, limit: int, d: Device) -> Spmm:
    """``problem`` with graphs, some of them empty, and at times a column-major C."""
    p = problem(rng, limit, d)
    ldc = {"layout_c": "T", "ldc": p.m + 1} if rng.random() < 0.2 else {}
    pattern = p.pattern if p.m == p.k or not p.pattern.startswith("even") else "bernoulli:density=0.1"
    return replace(p, k=p.m, pattern=pattern, calls=0, groups=int(rng.integers(1, 12)), **ldc)


def config(p: Spmm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn."""
    family = FAMILIES["row_split"]
    c = {a.name: rng.choice(a.values, DRAWS) for a in family.axes}
    c["lane_vectors"] = rng.integers(1, 5, DRAWS)
    columns = Columns({**c, "family": np.full(DRAWS, family.code)}, DRAWS)
    rows = np.flatnonzero(legal(lower(p), columns, d) & (threads_of(c) <= threads))
    return columns.row(int(rng.choice(rows))) if len(rows) else None


def threads_of(c: dict[str, Any]) -> Any:
    return c["row_lanes"] * c["nonzero_groups"] * c["block_groups"]


def slab_config(p: Spmm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """As ``config``, of the family shared_slab, with small tiles."""
    family = FAMILIES["shared_slab"]
    c = {a.name: rng.choice(a.values, DRAWS) for a in family.axes}
    c["tile_k"] = rng.choice([7, 16, 31, 40, 64, 70, 128], DRAWS)
    c["c_rows"] = rng.choice([1, 4, 16, 64], DRAWS)
    c["block_warps"] = rng.choice([1, 2, 4, 8], DRAWS)
    c["nonzeros_in_flight"] = rng.choice([1, 2, 4, 8], DRAWS)
    c["slab_columns"] = rng.choice([32, 64, 128, 256], DRAWS)
    columns = Columns({**c, "family": np.full(DRAWS, family.code)}, DRAWS)
    rows = np.flatnonzero(legal(lower(p), columns, d) & (c["block_warps"] * WARP <= threads))
    return columns.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("spmm", any_layout, config, limit=70)
GRAPHS = RandomCases("spmm graphs", graph_batch, config, limit=70)
SHARED_SLAB = RandomCases("spmm shared_slab", problem, slab_config, limit=70, sms=range(80, 1000))
