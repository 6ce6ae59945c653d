"""Which problems of 8-bit floats wgmma computes in some configuration. The others are left to mma.sync."""

from __future__ import annotations

from ptxgen.families.wgmma import grouped_rows
from ptxgen.families.wgmma.rules import maps_im2col
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm


def computes_fp8(p: KernelGemm) -> bool:
    """True if wgmma has a kernel for ``p``, whose operands TMA can load."""
    if p.grouped:  # nothing packs the operands of items, and the weight gradient of experts has none that is K-major
        return grouped_rows.jagged(p) == "m" and p.k > 0
    plain = p.addr_a == p.addr_b == p.addr_c == STRIDED
    return plain or (p.im2col is not None and maps_im2col(p))
