"""The operation ``gemm``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.problem.gemm import Gemm
from ptxgen.problem.gemm_suites import SUITES, TITLES, cells, from_column_major
from ptxgen.problem.operation import Baseline, Operation, RandomKind
from ptxgen.problem.reference import Array, as_matrices

VARY = "ptxgen.tuning.random_gemm:varied"  #: other extents of a random GEMM


def product(p: Gemm, a: Array, b: Array, region: None = None) -> tuple[Array, Array]:
    """Σab and Σ|a||b| of each element in float64. The first axis of a batch is the item."""
    wide_a, wide_b = as_matrices(p, a, b)
    exact = wide_a @ wide_b
    scale = np.abs(wide_a, out=wide_a) @ np.abs(wide_b, out=wide_b)
    if exact.ndim == 3 and len(exact) < p.batch:  # A and B have batch stride 0
        return np.repeat(exact, p.batch, axis=0), np.repeat(scale, p.batch, axis=0)
    return exact, scale


def slices(p: Gemm, region: Any = None) -> tuple[slice, ...]:
    """The whole result. Regions are not used: a part of a GEMM is a smaller GEMM."""
    return ()


GEMM = Operation(
    Gemm,
    lowering="ptxgen.lowering.kernel_gemm:lower_gemm",
    product=product,
    slices=slices,
    checks="ptxgen.runtime.check:check_gemm",
    operand_sets="ptxgen.tuning.measure.bench:GemmOperandSets",
    titles=TITLES,
    cells=cells,
    column_major=from_column_major,
    suites=SUITES,
    baselines={
        "cublas": Baseline(
            "cublas", "cuBLASLt", "ptxgen.runtime.vendor.cublaslt:CublasLt", "ptxgen.runtime.vendor.cublaslt:_library"
        )
    },
    random_kinds={
        "gemm": RandomKind("ptxgen.tuning.random_gemm:gemm", 0.45, VARY),
        "thin": RandomKind("ptxgen.tuning.random_gemm:thin", 0.25, VARY),
        "batch": RandomKind("ptxgen.tuning.random_gemm:batch", 0.08, VARY),
    },
)
