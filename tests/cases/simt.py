"""Random legal problems and configurations of the SIMT family."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxgen.codegen.config.config import Columns, Config, axes_of
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import Device
from tests.cases.columns import choices
from tests.cases.source import RandomCases, extents
from tests.lowered import legal

TYPES = (("f32", ""), ("f32", ""), ("f64", ""), ("f16", "f32"), ("f16", "f16"))
DRAWS = 4000
WIDE_DRAWS = 20000
PACKING = 0.3  #: share of the drawn configurations that may pack operands


def problem(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """A random problem: types, layout, extents, leading dimensions longer than rows, unaligned starts."""
    dtype, compute = TYPES[rng.integers(len(TYPES))]
    m, n, k = extents(rng, limit)
    layout = LAYOUTS[rng.integers(4)]
    extra = {}
    plain = Gemm(m, n, k, layout, dtype, compute)
    if rng.random() < 0.4:
        pads = rng.choice([0, 1, 2, 3, 4, 8, 16], 3)
        extra = {"lda": plain.columns_a + int(pads[0]), "ldb": plain.columns_b + int(pads[1]), "ldc": n + int(pads[2])}
        extra = {name: max(value, 1) for name, value in extra.items()}
    return Gemm(m, n, k, layout, dtype, compute, deterministic=bool(rng.random() < 0.15), **extra)


def config(
    p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024, fixed: Mapping[str, int] | None = None
) -> Config | None:
    """A random legal configuration of the values that the search visits, or None if none was drawn. ``fixed``: axes with
    one value."""
    values = {
        a.name: rng.choice(np.array((*choices(a), *((3, 5, 7) if a.name == "kg" else ()))), DRAWS)
        for a in axes_of("simt")
        if a.name not in ("column_pairs", "listed_tiles")
    }
    sliced = rng.random(DRAWS) < 0.5
    values["kg"] = np.where(sliced, values["kg"], 1)
    values["splitk"] = np.where(sliced, values["splitk"], 0)
    packs = rng.random(DRAWS) < PACKING
    values |= {name: np.where(packs, values[name], 0) for name in ("operand_path_a", "operand_path_b")}
    values |= {name: np.full(DRAWS, value) for name, value in (fixed or {}).items()}
    if not d.has_async_copy:
        values |= {name: np.zeros(DRAWS, np.int64) for name in ("cp_async_a", "cp_async_b")}
    c = Columns(values, DRAWS)
    c = c.take(np.flatnonzero(c.ml // c.ms * (c.nl // c.ns) * c.kl <= threads))
    rows = np.flatnonzero(legal(p, c, d))
    return c.row(int(rng.choice(rows))) if len(rows) else None


def columns(rng: np.random.Generator, n: int) -> Columns:
    """``n`` configurations of any values: tiles from one element a thread, any depth, stages, slices and raster."""

    def powers(low: int, high: int) -> np.ndarray:
        return 1 << rng.integers(low, high + 1, n)

    switches = (
        "cp_async_a",
        "cp_async_b",
        "kmajor_smem_a",
        "kmajor_smem_b",
        "epilogue_smem",
        "lane_interleave",
        "fragment_prefetch",
        "deferred_sts",
        "store_policy",
    )
    c = {name: rng.integers(0, 2, n) for name in switches}
    c |= {"ms": powers(0, 5), "ns": powers(0, 5), "lanes_m": powers(0, 5), "ks": powers(0, 2), "kl": powers(0, 4)}
    c["ml"] = c["lanes_m"] * c["ms"] * powers(0, 3)
    c["nl"] = 32 // c["lanes_m"] * c["ns"] * powers(0, 3)
    c["u"] = np.maximum(c["kl"] * c["ks"], 2) * powers(0, 4)
    scalar = rng.random(n) < 0.6
    c |= {f"vec_{x}": np.where(scalar, 1, powers(0, 3)) for x in "abc"}
    c["kg"] = np.where(rng.random(n) < 0.5, 1, rng.integers(1, 9, n))
    c["splitk"] = np.where(c["kg"] == 1, 0, rng.integers(0, 3, n))
    c |= {"stages": rng.integers(2, 9, n), "bounds": rng.integers(0, 3, n), "mma_order": rng.integers(0, 3, n)}
    c |= {
        "prefetch_k": rng.integers(0, 9, n),
        "raster_group": rng.integers(1, 20, n),
        "min_ctas_per_sm": rng.integers(1, 5, n),
    }
    packs = rng.random(n) < PACKING
    c |= {f"operand_path_{x}": np.where(packs, rng.integers(0, 2, n), 0) for x in "ab"}
    return Columns({name: v.astype(np.int64) for name, v in c.items()}, n)


def wide_config(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration that the search need not visit, or None if none was drawn."""
    return _one_of(columns(rng, WIDE_DRAWS), p, d, rng, threads)


def unstaged_config(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration without shared memory, or None if none was drawn."""
    zero = ("stages", "cp_async_a", "cp_async_b", "kmajor_smem_a", "kmajor_smem_b", "epilogue_smem", "prefetch_k")
    fixed = dict.fromkeys((*zero, "fragment_prefetch", "deferred_sts"), 0) | {"ks": 1, "kl": 1}
    c = columns(rng, WIDE_DRAWS).replace(**fixed)
    return _one_of(c.replace(u=1 << rng.integers(0, 5, WIDE_DRAWS)), p, d, rng, threads)


def _one_of(c: Columns, p: Gemm, d: Device, rng: np.random.Generator, threads: int) -> Config | None:
    """A random row that is legal and has at most ``threads`` threads, or None."""
    c = c.take(np.flatnonzero(c.ml // c.ms * (c.nl // c.ns) * c.kl <= threads))
    rows = np.flatnonzero(legal(p, c, d))
    return c.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("simt", problem, config)
WIDE = RandomCases("simt_wide", problem, wide_config)
UNSTAGED = RandomCases("simt_unstaged", problem, unstaged_config)
