"""Lowering: from the problem that a user states to the GEMM that kernels compute."""

from __future__ import annotations

from ptxgen.errors import ShapeError
from ptxgen.lowering.conv_to_gemm import product_of
from ptxgen.problem.conv import Conv
from ptxgen.problem.gemm import Gemm
from ptxgen.problem.registry import Problem


def lower(problem: Problem) -> Gemm:
    """The GEMM that kernels compute for ``problem``: itself, or a convolution's implicit GEMM.

    ShapeError: words of 32 bits do not hold a convolution's offsets or coordinates.
    """
    if not isinstance(problem, Conv):
        return problem
    try:
        return product_of(problem)
    except ShapeError as error:
        raise ShapeError(f"extents or padding are too large: {error} ({problem.shape()})") from None
