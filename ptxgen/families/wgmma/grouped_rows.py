"""Which groups a wgmma kernel computes in one launch."""

from __future__ import annotations

from ptxgen.lowering.grouped_to_gemm import GroupedKernelGemm
from ptxgen.lowering.kernel_gemm import KernelGemm


def supports(p: KernelGemm) -> bool:
    """Whether items are ranges of rows of A and C. Boxes of A then have rows of the next item, whose sums are not
    stored."""
    return isinstance(p, GroupedKernelGemm) and p.jagged == "m" and p.layout[0] == "N"
