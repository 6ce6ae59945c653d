"""Calls of float32 tasks that list pairs by a threshold, or reduce each row: tensor cores select candidate pairs, and
only these are computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ptxgen.api import driver_state, drivers, launch_function, new_arrays, on_host, runners
from ptxgen.api.arrays import View, tensor
from ptxgen.codegen.source import Source
from ptxgen.operations.task import exact_parts
from ptxgen.operations.task.exact_select import ExactSelect, Launch
from ptxgen.operations.task.problem import Task
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import Array
from ptxgen.runtime.device_tables import Part, allocate_parts
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.runner import Buffers

MAX_FULL = 1024  #: problems whose last call had more candidates than the lists hold
RETRY = 16  #: so many later calls of such a problem compute all pairs in float32
#: driver and problem whose last call had too many candidates -> calls left that compute all pairs in float32
_full: dict[tuple[Driver, Task], int] = {}


@lru_cache(maxsize=256)
def _exact(problem: Task, on: Driver) -> ExactSelect | None:
    return exact_parts.chosen(problem, on.device)


@lru_cache(maxsize=64)
def _kernel(source: Source, on: Driver) -> Kernel:
    """The loaded kernel that computes listed pairs; it stays loaded for later calls."""
    return driver_state.state_of(on).kernel(source)


def exact_of(problem: Task, on: Driver) -> ExactSelect | None:
    """The launches that filter candidates for a call; None: the float32 kernel computes all pairs."""
    if left := _full.pop((on, problem), 0):
        if left > 1:
            _full[on, problem] = left - 1
        return None
    return _exact(problem, on)


def may_filter(problem: Task, on: Driver) -> bool:
    """True if calls of the problem may let tensor cores select the candidates."""
    return _exact(problem, on) is not None


def compute_on_host(
    problem: Task, arrays: Mapping[str, Array], scalars: Mapping[str, float]
) -> dict[str, Array] | None:
    """The results of a call on host arrays, which are copied to the device. None: the float32 kernel must compute all
    pairs. ``arrays``: inputs and results by role."""
    on = drivers.driver()
    exact = exact_of(problem, on)
    if exact is None:
        return None
    on_host.warn_if_slow(problem)
    scratch: Mapping[str, Part] = allocate_parts(on, {name: 4 * n for name, n in exact.scratch.items()})
    with Buffers(on, arrays) as buffers:
        addresses = {**buffers.addresses, **{name: part.address for name, part in scratch.items()}}
        if not launched(exact, problem, addresses, scalars, on, 0, on.synchronize):
            return None
        results = {name: np.empty_like(arrays[name]) for name in problem.outputs}
        for name, out in results.items():
            on.download(addresses[name], out)
    return results


def compute_on_device(
    problem: Task, views: Mapping[str, View], scalars: Mapping[str, float], origin: Any, on: Driver, stream: int
) -> bool:
    """Computes the results of a call on arrays of a GPU. False: nothing is computed, the float32 kernel must compute
    all pairs. ``views``: inputs and results by role; ``origin``: an array of the library that allocates."""
    exact = exact_of(problem, on)
    if exact is None:
        return False
    made = {name: new_arrays.empty_array(origin, (n,), dtype("s32")) for name, n in exact.scratch.items()}
    addresses = {name: v.address for name, v in views.items()} | {n: tensor(x, n).address for n, x in made.items()}
    return launched(exact, problem, addresses, scalars, on, stream, partial(on.wait, stream))


def launched(
    exact: ExactSelect,
    problem: Task,
    addresses: Mapping[str, int],
    scalars: Mapping[str, float],
    on: Driver,
    stream: int,
    wait: Callable[[], None],
) -> bool:
    """Launches the kernels, and reads the number of candidates. False: there were more candidates than the lists hold.
    ``addresses``: those of the arrays of the problem and of ``exact.scratch``; ``wait``: waits for the stream."""

    def make_launch(p: Task, numbers: Mapping[str, float]) -> Launch:
        return launch_function.make_launch(runners.runner_for(p, stream, on), scalars=numbers)

    kernel = _kernel(exact.source, on)
    exact.launch(on, kernel, make_launch, addresses, scalars, stream)
    wait()
    if exact_parts.has_room(exact, on, addresses):
        return True
    if len(_full) >= MAX_FULL:
        _full.clear()
    _full[on, problem] = RETRY
    return False
