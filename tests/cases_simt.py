"""Random legal SIMT configurations, also with values that the search never visits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxgen.codegen.config import Columns, Config
from ptxgen.families.rules import legal
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device
from tests.cases import pairs, problem

DRAWS = 20000


def columns(rng: np.random.Generator, n: int) -> Columns:
    """Tiles from one element a thread up, any depth, any number of stages, slices and tiles walked together."""

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
    return Columns({name: v.astype(np.int64) for name, v in c.items()}, n)


def wide(p: KernelGemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration of ``columns``, or None if none was drawn."""
    c = columns(rng, DRAWS)
    small = c.ml // c.ms * (c.nl // c.ns) * c.kl <= threads
    rows = np.flatnonzero(legal(p, c, d) & small)
    return c.row(int(rng.choice(rows))) if len(rows) else None


def wide_cases(
    seed: int, count: int, d: Device, limit: int = 160, threads: int = 1024
) -> Iterator[tuple[KernelGemm, Config]]:
    """``count`` random pairs."""
    rng = np.random.default_rng(seed)
    return pairs(count, lambda: problem(rng, limit), lambda p: wide(p, d, rng, threads))
