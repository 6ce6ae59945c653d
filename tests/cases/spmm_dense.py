"""Random legal sparse products that kernels of GEMMs compute on the dense matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import Device
from tests.cases import mma, simt, skinny, spmm, wgmma
from tests.cases.source import RandomCases

DENSE = 1 << 30  #: most bytes of the dense matrix
FAMILIES = (simt, mma, skinny, wgmma)


def problem(rng: np.random.Generator, limit: int, d: Device) -> Spmm | None:
    """As ``spmm.problem``, with distinct columns and calls for which A is prepared; a third has few columns of B."""
    p = spmm.problem(rng, limit, d)
    p = replace(p, calls=1000, dense_bytes=DENSE, exact_nonfinite=False)
    if rng.random() < 0.3:
        n = int(rng.integers(1, 9))
        p = replace(p, n=n, ldb=n, ldc=n)
    return p if lower(p).forms else None


def gemm(p: Spmm) -> Gemm:
    """The product of the dense matrix."""
    form = lower(p).forms[0]
    ld = {f"ld{name.lower()}": form.operand(name).access.ld for name in "ABC"}
    aligned = {"aligned_b": p.aligned_b, "aligned_c": p.aligned_c}
    return Gemm(p.m, p.n, p.k, "NN", p.dtype, p.compute, **ld, **aligned, deterministic=True)


def config(p: Spmm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A configuration of a family of GEMMs, or None if none was drawn."""
    family = FAMILIES[rng.integers(len(FAMILIES))]
    return family.config(gemm(p), d, rng, threads) if family.SOURCE.supports(d) else None


SOURCE = RandomCases("spmm_dense", problem, config, limit=90)
