"""Runners of problems: each kernel is selected, generated and loaded once, and evicted together with its cached
calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ptxgen import settings
from ptxgen.api import call_lock, choice, driver_state, drivers, first_call, launches, streams, vendor_calls
from ptxgen.codegen.config.config import Config
from ptxgen.errors import DtypeError
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.operation import operation_of
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning import selection

#: bytes of device tables of cached calls; ResNet-50 with 400 images in all three directions needs less
MAX_TABLE_BYTES = 1 << 30
MAX_KERNELS = 512  #: distinct kernels of cached calls that stay loaded

runners: OrderedDict[tuple[Driver, Problem], Runner] = OrderedDict()


def runner_for(problem: Problem, stream: int = 0, on: Driver | None = None) -> Runner:
    """The runner of ``problem`` on a driver (default: ``driver()``): its kernel is selected, generated and loaded once.
    ``stream``: the stream of the call; if it is being captured, nothing is timed."""
    on = on or drivers.driver()
    runner = runners.get((on, problem))
    if runner is None:
        while len(runners) >= launches.MAX_CALLS:
            runners.popitem(last=False)
        shared = driver_state.state_of(on)
        if settings.settings().tune != "off" and not streams.is_captured(stream, on):
            first_call.tune(problem, on, lambda: reselect([problem], load=True))
        runner = runners[on, problem] = make_runner(problem, shared)
        _evict(problem, shared)
    runners.move_to_end((on, problem))
    return runner


def _evict(newest: Problem, shared: driver_state.DriverState) -> None:
    """Removes cached calls of a driver, except the newest, while its device tables or kernels exceed their limits.
    Runners without a launch cache entry are removed first, then the least recently used."""
    on = shared.driver
    if 2 * shared.tables.bytes > MAX_TABLE_BYTES or 2 * len(shared.kernels) > MAX_KERNELS:
        launches.track_use()
    _evict_while(
        (on, newest), lambda: shared.tables.bytes > MAX_TABLE_BYTES, lambda bound: bound.driver is on and bound.tables
    )
    _evict_while((on, newest), lambda: len(shared.kernels) > MAX_KERNELS, lambda bound: bound.driver is on)


def _evict_while(newest: tuple[Driver, Problem], over_limit: Callable[[], bool], counts: Callable[..., Any]) -> None:
    """Removes cached calls in the order of ``_evict`` while ``over_limit``. ``counts``: tells if removing a runner
    helps."""
    if not over_limit():
        return
    cached_calls = [
        (key, (bound.driver, bound.problem))
        for key, entry in list(launches.launches.items())
        for bound in launches.runners_of(entry)
        if counts(bound)
    ]
    with_entry = {at for _, at in cached_calls}
    uncached = [at for at, bound in runners.items() if counts(bound) and at not in with_entry]
    for key, at in (*((None, at) for at in uncached), *cached_calls):
        if not over_limit():
            return
        if at != newest:
            launches.launches.pop(key, None)
            runners.pop(at, None)


def reselect(problems: Iterable[Problem], load: bool = False) -> None:
    """Makes the next calls of problems select their configurations again; if ``load``, they are selected and loaded
    now, so that a later graph capture finds the kernels loaded."""
    with call_lock.lock:
        choice.refresh()
        vendor_calls.faster.cache_clear()
        launches.grouped_calls.clear()
        for problem in problems:
            for key, entry in list(launches.launches.items()):
                if any(bound.problem == problem for bound in launches.runners_of(entry)):
                    launches.launches.pop(key, None)
            for on, _ in [at for at in runners if at[1] == problem]:
                del runners[on, problem]
                if load:
                    runners[on, problem] = make_runner(problem, driver_state.state_of(on))


def selection_digest() -> str:
    """A digest of the selections of this process, made of the configuration and the kernel of each computed problem.
    Processes that computed the same problems (for example the ranks of a program) have equal digests if they selected
    the same configurations."""
    with call_lock.lock:
        return selection.digest_of({(p, r.plan.config, _code(p, on, r)) for (on, p), r in runners.items()})


def _code(problem: Problem, on: Driver, bound: Runner) -> str:
    """The text that identifies the code which computes a problem: the digest of the kernel, or the vendor's library and
    its algorithm."""
    theirs = vendor_calls.faster(problem, on) if settings.settings().vendor == "auto" else None
    return bound.kernel.source.digest if theirs is None else f"{theirs.version} {theirs.algorithm}"


def make_runner(problem: Problem, shared: driver_state.DriverState, config: Config | None = None) -> Runner:
    """A runner of ``problem`` that is not cached. ``config``: the configuration to use if it is legal; None: the
    selected one. DtypeError: no kernel computes the problem."""
    on = shared.driver
    legal = config is not None and first_violation(lower(problem), config, on.device) is None
    chosen = config if legal else choice.choose(problem, on)
    if chosen is None:
        arithmetic = f"{problem.dtype} summed in {problem.compute} into {problem.out}"
        names = operation_of(problem).operands
        raise DtypeError(
            f"{names} are {problem.dtype}; no kernel multiplies {arithmetic} on {on.device.name}:"
            f" {selection.why_unsupported(problem, on.device)}"
        )
    plan = plan_for(problem, chosen, on.device)
    return Runner(on, plan, shared.kernel_of(plan), problem, shared.workspaces.own)
