"""Random legal problems and configurations of the wgmma family for ``compute=f32_bf16x6``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import Device
from tests.cases import wgmma
from tests.cases.source import RandomCases, extents
from tests.cases.wgmma import SMS, config

#: N may be odd; the rows of A are added in one plane alone
EPILOGUES = [e for e in wgmma.EPILOGUES if e not in (*wgmma.GATED, "sum_a")]


def problem(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """Any layout, row length and alignment."""
    m, n, k = extents(rng, limit)
    if rng.random() < 0.3:
        k = int(rng.integers(1, 4 * limit))
    aligned = [int(v) for v in rng.choice([16, 16, 8, 4], 3)]
    epilogue = EPILOGUES[rng.integers(len(EPILOGUES))] if rng.random() < 0.25 else ""
    p = Gemm(
        m,
        n,
        k,
        LAYOUTS[rng.integers(4)],
        "f32",
        "f32_bf16x6",
        aligned_a=aligned[0],
        aligned_b=aligned[1],
        aligned_c=aligned[2],
        epilogue=epilogue,
        deterministic=bool(rng.random() < 0.3),
    )
    if rng.random() < 0.25 and not p.sums_columns:
        p = replace(
            p, batch=int(rng.integers(2, 4)), stride_a=int(rng.choice([-1, 0])), stride_b=int(rng.choice([-1, 0]))
        )
    pad = [int(v) for v in rng.choice([0, 0, 1, 3, 4], 3)]
    return replace(p, lda=p.lda + pad[0], ldb=p.ldb + pad[1], ldc=p.ldc + pad[2])


SOURCE = RandomCases("bf16x3", problem, config, limit=300, sms=SMS)
