"""Lowering: from the user's problem to the kernel problem."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.base import ProblemBase
from ptxgen.problem.operation import operation_of

CACHE_SIZE = 256  #: the number of kernel problems that are cached


@lru_cache(maxsize=CACHE_SIZE)
def lower(problem: ProblemBase) -> KernelProblem:
    """The kernel problem of ``problem``, cached with its offset tables. A kernel problem is returned unchanged.

    ShapeError: an offset or a coordinate of a convolution does not fit 32 bits.
    """
    if isinstance(problem, KernelProblem):
        return problem
    operation = operation_of(problem)
    lowered: KernelProblem = operation.lowering(problem)
    if not operation.features:
        return lowered
    return replace(lowered, features=tuple((name, of(problem)) for name, of in operation.features.items()))
