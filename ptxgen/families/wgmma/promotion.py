"""Two-level sums (promotion): wgmma adds the products of a few K steps to accumulators that start from zero, and
add.f32 adds these accumulators to the totals. The accumulators of wgmma truncate their terms: with fp8 they keep 13
bits below the largest term, with other types 25 bits."""

from __future__ import annotations

from typing import Any

from ptxgen.families.wgmma import bf16x3
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import quantized_rows
from ptxgen.problem.dtypes import promotion_k


def depth(p: KernelProblem) -> int:
    """The most elements of K that wgmma sums before promotion; 0: all of K."""
    weights = quantized_rows(p)
    if weights is not None:  # the sum of a group is multiplied by its scale, unless its weights are
        return 0 if weights.rounded else weights.group
    return bf16x3.PROMOTED if bf16x3.planes(p) > 1 else promotion_k(p.element, p.compute)


def per_stage(p: KernelProblem, c: Any) -> Any:
    """The number of sums of a stage that are added to the totals one after the other."""
    return 1 if bf16x3.planes(p) > 1 else c.u // max(depth(p), 1)


def promotes(p: KernelProblem) -> bool:
    """True if the kernel has two-level sums."""
    return depth(p) > 0
