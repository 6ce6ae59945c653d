"""The speed of tasks, and the ceiling that their instructions set."""

from __future__ import annotations

from ptxgen.lowering import step_rate
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from ptxgen.problem.operation import Speed


def steps(p: Task) -> float:
    """The number of steps M·N·K of a task, times its batch."""
    return float(p.batch * p.m * p.n * p.k)


def computed_steps(p: Task) -> float:
    """The number of steps that kernels compute: about half as many if results are mirrored."""
    return p.flops / 2


def least_us(p: Task, d: Device) -> float:
    """The microseconds that the steps take at the predicted ceiling of the device (``step_rate.ceiling``)."""
    return computed_steps(p) / (step_rate.ceiling(lower(p), d) * d.sms * d.clock)


#: the metric of Gamut's paper: steps per nanosecond, M·N·K / (10⁹ · seconds)
SPR = Speed("spr", "SPR", lambda p, us: steps(p) / us * 1e-3)
