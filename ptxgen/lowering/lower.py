"""Lowering: from the problem that a user states to the GEMM that kernels compute."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.errors import ShapeError
from ptxgen.lowering.conv_to_gemm import product_of
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.conv import Conv
from ptxgen.problem.registry import Problem

KEPT = 256  #: lowered problems that are kept


@lru_cache(maxsize=KEPT)
def lower(problem: Problem) -> KernelGemm:
    """The GEMM that kernels compute for ``problem``. Cached, with its offset tables.

    ShapeError: words of 32 bits do not hold a convolution's offsets or coordinates.
    """
    if isinstance(problem, KernelGemm):
        return problem
    if not isinstance(problem, Conv):
        return KernelGemm.of(problem)
    try:
        return product_of(problem)
    except ShapeError as error:
        raise ShapeError(f"extents or padding are too large: {error} ({problem.shape()})") from None
