"""The launch cache: launch functions of earlier calls."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ptxgen.api import call_lock
from ptxgen.runtime.runner import Runner

MAX_CALLS = 4096  #: entries of the launch cache

#: key of a call -> (launch function, how the result is allocated, runner)
launches: OrderedDict[Any, tuple[Callable[..., None], Any, Runner]] = OrderedDict()
#: key of a call of ``gemm_grouped`` -> the cached call
grouped_calls: OrderedDict[Any, Any] = OrderedDict()
#: objects that keep launches of their own, for example handles of sparse matrices
holders: weakref.WeakSet[Any] = weakref.WeakSet()
#: True if a hit moves its entry to the end of ``launches``. That hashes the key again, so it is done only once entries
#: are about to be removed, the least recently used first.
_tracks_use = False


def track_use() -> None:
    """Makes hits move their entries to the end of ``launches`` from now on, because entries will soon be removed."""
    global _tracks_use
    _tracks_use = True


def store(key: Any, launch: Callable[..., None], made: Any, bound: Runner) -> None:
    """Caches the launch function of a call under ``key``. ``made``: how a later call allocates the result."""
    while len(launches) >= MAX_CALLS:
        launches.popitem(last=False)
    launches[key] = launch, made, bound
    if 2 * len(launches) > MAX_CALLS:
        track_use()


def runners_of(entry: tuple[Callable[..., None], Any, Runner]) -> tuple[Runner, ...]:
    """The runners whose kernels the launches of an entry use."""
    _, made, bound = entry
    return (bound, *getattr(made, "others", ()))


def cached(key: Any) -> tuple[Callable[..., None], Any, Runner] | None:
    """The cache entry of ``key``: (launch function, allocation of the result, runner), or None."""
    try:
        launch = launches.get(key)
    except TypeError:  # an argument is not hashable: the slow path reports it
        return None
    if launch is not None and _tracks_use:
        try:  # noqa: SIM105 suppress() costs 0.25 µs per call
            launches.move_to_end(key)
        except KeyError:  # another thread evicted it
            pass
    return launch


def forget_launches() -> None:
    """Empties the launch cache; kernels stay loaded."""
    with call_lock.lock:
        launches.clear()
        grouped_calls.clear()
        for each in holders:
            each.forget_launches()
