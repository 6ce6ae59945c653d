"""The problems of 8-bit floats that wgmma computes in some configuration. mma.sync on sm_90 converts 8-bit floats to
f16."""

from __future__ import annotations

from ptxgen.families.wgmma import grouped_rows
from ptxgen.families.wgmma.rules import maps_im2col
from ptxgen.lowering.block_scales import block_scaled
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


def native(p: KernelProblem, d: Device) -> bool:
    """True if ``p`` has 8-bit floats and wgmma has a kernel for it, provided that TMA can load its operands."""
    if not p.element.fp8 or d.sm != 90:
        return False
    if grouped(p):  # without scales, only jagged groups in these layouts have kernels
        layouts = {"m": ("NN", "NT"), "k": ("NT",), "": ()}[grouped_rows.jagged(p)]
        return (block_scaled(p) or p.layout in layouts) and p.k > 0
    return "strided" in p.needs or (im2col(p) is not None and maps_im2col(p))
