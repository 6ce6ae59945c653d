"""Calls on host arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ptxgen import settings
from ptxgen.api import drivers, recording, runners, vendor_calls
from ptxgen.problem.registry import Problem

SLOW_SECONDS = 5.0  #: estimated time of a call on the emulated device, in seconds, above which a warning is given
_warned = False
#: called with the problem of each call before it is computed
_intercept: ContextVar[Callable[[Problem], None] | None] = ContextVar("intercept", default=None)


@contextmanager
def intercepted(intercept: Callable[[Problem], None]) -> Iterator[None]:
    """Within the block, calls on host arrays call ``intercept`` with their problem before they compute it."""
    token = _intercept.set(intercept)
    try:
        yield
    finally:
        _intercept.reset(token)


def compute_on_host(
    problem: Problem,
    arrays: Mapping[str, Any],
    alpha: complex = 1.0,
    beta: complex = 0.0,
    scalars: Mapping[str, float] | None = None,
    use: str | None = None,
) -> Any:
    """``Runner.compute`` for host arrays. ``use``: as in ``launch_function.make_launch``."""
    intercept = _intercept.get()
    if intercept is not None:
        intercept(problem)
    warn_if_slow(problem)
    runner = runners.runner_for(problem)
    if scalars is None:
        done = runner.compute(arrays, bind=lambda at: vendor_calls.bind(runner, at, alpha, beta, use))
    else:
        done = runner.compute(arrays, scalars=scalars)
    recording.notify(problem, drivers.driver())
    return done


def warn_if_slow(problem: Problem) -> None:
    """Warns once per process if a call takes long on the emulated device, although no setting asks for that device."""
    global _warned
    from ptxgen.runtime.emulated import estimate_text, estimated_seconds

    if drivers.driver().clock != "model":
        return
    seconds = estimated_seconds([problem.flops])
    if not _warned and seconds > SLOW_SECONDS and settings.settings().driver == "auto":
        _warned = True
        warnings.warn(
            f"there is no usable NVIDIA GPU: the emulated device computes {problem.key()}, {estimate_text(seconds)};"
            " PTXGEN_DRIVER=emulated hides this warning",
            RuntimeWarning,
            stacklevel=2,
        )
