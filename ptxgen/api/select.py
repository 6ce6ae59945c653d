"""``select``: the configuration of a problem; in a task, the list of the pairs for which a condition holds."""

from __future__ import annotations

from typing import Any, overload

from ptxgen.api import choice
from ptxgen.api.plans import CallPlan
from ptxgen.arguments import shown
from ptxgen.errors import InputError
from ptxgen.operations.task.tracing import functions
from ptxgen.operations.task.tracing.operands import Reduced, Traced
from ptxgen.problem import device as devices
from ptxgen.problem.registry import Problem
from ptxgen.tuning.selection import Selection, require


@overload
def select(subject: Problem, /, *, device: str | None = None) -> Selection: ...


@overload
def select(subject: Any, /, *values: Any) -> Reduced: ...


def select(subject: Any, /, *values: Any, device: str | None = None) -> Selection | Reduced:
    """Selects the configuration that computes a problem such as ``ptxgen.Gemm(2560, 16, 2560)``. The result has the
    configuration, its source and its measured or predicted time. No GPU is needed.

    ``device``: the name of a device, for example ``h200``; None: the device that computes on host arrays, whose calls
    use the same configuration.

    In a task, ``select(condition, *values)`` is the output that lists the values of the pairs for which the condition
    holds.

    InputError: the first argument outside a task is no problem. DeviceError: the name is unknown. ConfigError: no
    kernel computes the problem on the device. TaskError: the list has no values.
    """
    if not isinstance(subject, Problem):
        if device is not None or not (values or isinstance(subject, Traced)):
            raise InputError(
                f"the first argument is {shown(subject)}; it must be a problem, as ptxgen.Gemm(2560, 16, 2560), or the "
                "condition of a list, as in ptxgen.select(condition, c, i, j)"
            )
        return functions.select(subject, *values)
    if values:
        raise InputError(f"{subject.key()} is a problem and values are given; values are those of a condition")
    if device is None:
        return CallPlan(subject, None, {}).selection
    return require(subject, devices.device(device), choice.database())[0]


__all__ = ["select"]
