"""Random legal problems and configurations of the skinny family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import FAMILIES, Columns, Config
from ptxgen.families.skinny.geometry import geometry, is_kmajor, widest
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import Device
from tests.cases.source import RandomCases, extents, with_both_floats_8
from tests.lowered import legal

#: dtype, compute, out
TYPES = (
    ("f16", "f32", "f16"),
    ("f16", "f16", "f16"),
    ("f16", "f32", "f32"),
    ("bf16", "f32", "bf16"),
    ("bf16", "f32", "f32"),
    ("f32", "f32", "f32"),
    ("f32", "tf32", "f32"),
    ("f64", "f64", "f64"),
    ("s8", "s32", "s32"),
    ("s8", "s32", "f16"),
    ("e4m3", "f32", "bf16"),
    ("e5m2", "f32", "f16"),
    ("e4m3", "f32", "e4m3"),
    ("e5m2", "f32", "e5m2"),
)
DRAWS = 20000


def converts(dtype: str, d: Device) -> bool:
    """True if a device has the conversions that a type needs."""
    return d.sm >= {"bf16": 80, "e4m3": 89, "e5m2": 89}.get(dtype, 0)


def problem(rng: np.random.Generator, limit: int, d: Device, types: tuple[str, str, str] | None = None) -> Gemm:
    """A random problem with a small M or N: types that ``d`` converts, layout, extents, longer rows, unaligned starts."""
    known = [t for t in TYPES if converts(t[0], d)]
    dtype, compute, out = types or known[rng.integers(len(known))]
    m, n, k = extents(rng, limit)
    if rng.random() < 0.4:
        k = int(rng.integers(1, 8 * limit))
    if rng.random() < 0.4:
        k = -(-k // 16) * 16
    thin = int(rng.integers(1, 9)) if rng.random() < 0.8 else 1
    m, n = (thin, n) if rng.random() < 0.5 else (m, thin)
    p = Gemm(m, n, k, LAYOUTS[rng.integers(4)], dtype, compute, out=out, deterministic=bool(rng.random() < 0.15))
    if rng.random() < 0.5:
        pads = [int(x) for x in rng.choice([0, 1, 2, 3, 4, 8, 16], 3)]
        p = replace(p, lda=p.columns_a + pads[0], ldb=p.columns_b + pads[1], ldc=n + pads[2])
    if rng.random() < 0.3:
        least = (p.element.bytes, p.element.bytes, p.output.bytes)
        starts = [int(rng.choice([x for x in (1, 2, 4, 8, 16) if x >= b])) for b in least]
        p = replace(p, aligned_a=starts[0], aligned_b=starts[1], aligned_c=starts[2])
    return with_both_floats_8(p, bool(m % 2))


def config(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, wide accesses preferred, or None if none was drawn."""

    def powers(low: int, high: int) -> np.ndarray:
        return 1 << rng.integers(low, high + 1, DRAWS)

    long_n = rng.integers(0, 2, DRAWS) if max(p.m, p.n) <= 8 else np.full(DRAWS, int(p.m <= 8))
    least = np.where(long_n == 1, p.m, p.n)
    thin = np.where(rng.random(DRAWS) < 0.8, 1 << np.ceil(np.log2(np.maximum(least, 1))).astype(np.int64), powers(0, 3))
    each, lanes_long, kl = powers(0, 4), powers(0, 5), powers(0, 3)
    tile = each * lanes_long * powers(0, 2)
    c = {
        "long_n": long_n,
        "lanes_long": lanes_long,
        "kl": kl,
        "fragment_prefetch": rng.integers(0, 2, DRAWS),
        "family": np.full(DRAWS, FAMILIES.index("skinny")),
    }
    c |= {"ms": np.where(long_n == 1, thin, each), "ns": np.where(long_n == 1, each, thin)}
    c |= {"ml": np.where(long_n == 1, thin, tile), "nl": np.where(long_n == 1, tile, thin)}
    for n, name in enumerate(("vec_a", "vec_b", "vec_c")):
        most = widest(lower(p), name[-1]) if n < 2 else p.vectors[2]
        c[name] = np.where(rng.random(DRAWS) < 0.6, most, powers(0, 4))
    c["vec_c"] = np.minimum(c["vec_c"], c["nl"])
    _set_instructions(p, rng, c)
    g = geometry(lower(p), Columns({**c, "u": np.ones(DRAWS, np.int64)}, DRAWS))
    c["u"] = np.maximum(g.across * g.depth, 1) * powers(0, 3)
    c["kg"] = np.where(rng.random(DRAWS) < 0.4, rng.integers(2, 7, DRAWS), 1)
    c["splitk"] = np.where(c["kg"] == 1, 0, rng.integers(0, 3, DRAWS))
    c |= {"raster_group": rng.choice([1, 4, 8], DRAWS), "min_ctas_per_sm": rng.integers(1, 4, DRAWS)}
    c["store_policy"] = rng.integers(0, 2, DRAWS)
    columns = Columns({name: np.asarray(v, np.int64) for name, v in c.items()}, DRAWS)
    rows = np.flatnonzero(legal(p, columns, d) & (g.threads <= threads))
    for rare in (rows[columns.mma_m16[rows] > 0], rows[g.unaligned[rows]]):
        rows = rare if len(rare) and rng.random() < 0.4 else rows
    return columns.row(int(rng.choice(rows))) if len(rows) else None


def _set_instructions(p: Gemm, rng: np.random.Generator, c: dict[str, np.ndarray]) -> None:
    """Changes ``c``: half of the rows use mma, a third load unaligned rows in whole 16-byte chunks."""
    long_n, tensor_cores, shifted = c["long_n"] == 1, rng.random(DRAWS) < 0.5, rng.random(DRAWS) < 0.33
    chunk = 16 // p.element.bytes
    for own, tile, name, long in (("ms", "ml", "vec_a", ~long_n), ("ns", "nl", "vec_b", long_n)):
        each = np.where(tensor_cores, np.maximum(c[own], 2), c[own])
        along = np.maximum(c[tile] // (c[own] * c["lanes_long"]), 1) * np.where(tensor_cores, 8, c["lanes_long"])
        along = np.where(shifted, np.maximum(along, chunk), along)
        c[tile] = np.where(long, each * along, np.where(tensor_cores, 8, c[tile]))
        c[own] = np.where(long, each, np.where(tensor_cores, 2, c[own]))
        one = np.where(tensor_cores, (not is_kmajor(lower(p), name[-1])) | (rng.random(DRAWS) < 0.3), shifted)
        c[name] = np.where(long & shifted, chunk, np.where(~long & one, 1, c[name]))
    c["lanes_long"] = np.where(tensor_cores, 8, c["lanes_long"])
    c["mma_m16"] = np.where(tensor_cores, 1, 0)


SOURCE = RandomCases("skinny", problem, config)
