"""The roofline: the least time of a problem on a device, by the peak rates of its units and of its memory."""

from __future__ import annotations

from ptxgen.lowering import step_rate
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem import peak_rates
from ptxgen.problem.device import Device

LEAST_US = 1e-3


def peak_flops(p: KernelProblem, d: Device) -> float:
    """Floating-point operations per second of the fastest units of the device, even if no kernel family uses them. The
    step of an inner expression counts as a multiply-add, two operations."""
    if isinstance(p.algebra, InnerExpression):
        return 2e6 * d.clock * d.sms * step_rate.bound(p.algebra, d)
    return peak_rates.peak_flops(p.element, p.compute, d)


def memory_us(p: KernelProblem, d: Device) -> float:
    """The microseconds that the memory traffic takes at the peak bandwidth."""
    return float(p.bytes) / (d.bandwidth * 1e3)


def roofline_us(p: KernelProblem, d: Device) -> float:
    """A lower bound of the time in microseconds: the time of the multiply-adds or of the memory traffic, whichever is
    longer."""
    return max(float(p.flops) * 1e6 / peak_flops(p, d), memory_us(p, d), LEAST_US)
