"""``plan``: a call without data, whose problem can be read, tuned and loaded. ``device``: the facts of a device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ptxgen.api import call_lock, choice, drivers, on_host, runners
from ptxgen.api.conv import (
    conv1d,
    conv2d,
    conv2d_input_grad,
    conv2d_weight_grad,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from ptxgen.api.gemm import gemm
from ptxgen.api.spmm import spmm
from ptxgen.api.task import TaskFunction, matmul_over
from ptxgen.arguments import shown
from ptxgen.codegen.config.config import Config
from ptxgen.errors import ConfigError, InputError
from ptxgen.problem import device as devices
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import DTYPES
from ptxgen.problem.registry import Problem
from ptxgen.settings import settings
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.search.tuner import Tuned, tune
from ptxgen.tuning.selection import Selection, why_unsupported
from ptxgen.tuning.store.database import Database

#: the text of an array without data, for example f16[2560,16]
_ARRAY = re.compile(r"(\w+)\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]")
_CALLS = (
    *(gemm, spmm, matmul_over),
    *(conv1d, conv2d, conv3d, conv2d_input_grad, conv2d_weight_grad),
    *(conv_transpose1d, conv_transpose2d, conv_transpose3d),
)


class _PlannedError(BaseException):
    """Ends a call once its problem is known. ``problem``: that problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class CallPlan:
    """The problem of a call, which can be selected, tuned and loaded before there are data. ``problem``: what the call
    computes."""

    def __init__(self, problem: Problem, call: Callable[..., Any] | None, options: dict[str, Any]) -> None:
        self.problem = problem
        self._call, self._options = call, options

    @property
    def selection(self) -> Selection:
        """The configuration of the problem, its source and its measured or predicted time. ConfigError: no kernel
        computes the problem on this device."""
        on = drivers.driver()
        selected = choice.chosen(self.problem, on)
        if selected is None:
            why = why_unsupported(self.problem, on.device)
            raise ConfigError(
                f"{self.problem.key()}: no kernel supports this problem on {on.device.name}: {why}", "space"
            )
        return selected

    @property
    def config(self) -> Config:
        """The configuration of ``selection``."""
        return self.selection.config

    def tune(self, time_limit: float = 60.0) -> Tuned:
        """Tunes the problem for ``time_limit`` seconds and stores the winner in the user's database, for this and
        later processes. InputError: ``time_limit`` is not a positive number. DatabaseError, LaunchError: the database
        or the device cannot be used."""
        if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
            raise InputError(f"time_limit is {time_limit!r}; it must be a positive number of seconds")
        with Database(settings().database) as database:
            (tuned,) = tune([self.problem], drivers.driver().selector, database, deadline=Deadline(time_limit))
        runners.reselect([self.problem])
        return tuned

    def warm_up(self) -> None:
        """Selects, assembles and loads the kernel, so that the first call need not."""
        with call_lock.lock:
            runners.runner_for(self.problem)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Makes the call on arrays, which may differ from the planned ones, and returns its result."""
        if self._call is None:
            raise InputError("the plan is that of a problem; it must be that of a function to be called")
        return self._call(*arguments, **{**self._options, **options})

    def __repr__(self) -> str:
        return f"CallPlan({self.problem.key()})"


def plan(call: Any, *arguments: Any, **options: Any) -> CallPlan:
    """The plan of ``call(*arguments, **options)``; nothing is computed: ``plan(ptxgen.gemm, "f16[2560,16]",
    "f16[16,2560]")``. Texts stand for contiguous, aligned arrays in row-major order; arrays may be given too.

    ``call``: ``gemm``, ``spmm``, ``matmul_over``, a convolution, or a function that ``task`` made; a call that launches
    several kernels one after the other has the plan of the first. ``call`` may also be a problem, such as a
    ``ptxgen.Gemm``, without arguments; the plan can then not be called. Errors: as for the call. InputError: ``call``
    is something else, or the type of a text is unknown.
    """
    if isinstance(call, Problem):
        if arguments or options:
            raise InputError("call is a problem and arguments are given; it must have none")
        return CallPlan(call, None, {})
    if call not in _CALLS and not isinstance(call, TaskFunction):
        raise InputError(
            f"call is {shown(call)}; it must be a problem, gemm, spmm, matmul_over, a convolution, or a function that"
            " task made"
        )
    given = [_array(x) for x in arguments]
    with on_host.intercepted(_planned):
        try:
            call(*given, **{name: _array(x) for name, x in options.items()})
        except _PlannedError as planned:
            kept = {name: x for name, x in options.items() if not _is_array(x)}
            return CallPlan(planned.problem, call, kept)
    raise InputError("the call computes no kernel; its arrays must be in host memory and have elements")


def _planned(problem: Problem) -> None:
    raise _PlannedError(problem)


def _is_array(x: Any) -> bool:
    return isinstance(x, str) and _ARRAY.fullmatch(x.strip()) is not None


def _array(x: Any) -> Any:
    """The array that a text describes; anything else as it is."""
    match = _ARRAY.fullmatch(x.strip()) if isinstance(x, str) else None
    if match is None:
        return x
    element = DTYPES.get(match[1])
    if element is None:
        raise InputError(f"{x!r} has the type {match[1]}; it must be one of {', '.join(DTYPES)}")
    return np.empty([int(n) for n in match[2].split(",")], element.numpy)


def device(name: str | None = None) -> Device:
    """The facts of the device with this name, for example ``h200`` or ``sm_86``; None: of the device that computes on
    host arrays. DeviceError: the name is unknown."""
    return drivers.driver().device if name is None else devices.device(name)


__all__ = ["CallPlan", "device", "plan"]
