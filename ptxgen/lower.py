"""Lowering: from the problem that a user states to the GEMM that kernels compute."""

from __future__ import annotations

from ptxgen.operations import Problem
from ptxgen.problem import Gemm
from ptxgen.sliding import Conv
from ptxgen.walks import product_of


def lower(problem: Problem) -> Gemm:
    """The GEMM that kernels compute for ``problem``: itself, or a convolution's implicit GEMM."""
    return product_of(problem) if isinstance(problem, Conv) else problem
