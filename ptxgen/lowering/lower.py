"""Lowering: from the problem that a user states to the GEMM that kernels compute."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.base import ProblemBase
from ptxgen.problem.operation import operation_of, resolve

KEPT = 256  #: lowered problems that are kept


@lru_cache(maxsize=KEPT)
def lower(problem: ProblemBase) -> KernelGemm:
    """The GEMM that kernels compute for ``problem``; a lowered problem itself. Cached, with its offset tables.

    ShapeError: 32 bits do not hold an offset or a coordinate of a convolution.
    """
    if isinstance(problem, KernelGemm):
        return problem
    lowered: KernelGemm = resolve(operation_of(problem).lowering)(problem)
    return lowered
