"""``autotune``: tunes the problems that the calls in a block compute."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ptxgen.api import launches, recording, runners, streams
from ptxgen.errors import InputError
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.settings import settings
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.search.tuner import Tuned, tune
from ptxgen.tuning.store.database import Database

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@contextmanager
def autotune(time_limit: float = 60.0) -> Iterator[list[Tuned]]:
    """Tunes the problems that calls within the block compute. Tuning runs for ``time_limit`` seconds at the end of the
    block; later calls use the winners, which are stored in the user's database.

    Each problem is timed on the GPU that computed it, once for each GPU model. Problems that are computed more often or
    take longer are measured more; several GPUs have equal parts of the time. The ``with`` statement yields a list, to
    which the results are added. Nothing is tuned if the block raises an error or if one of its streams is being
    captured into a graph. InputError: ``time_limit`` is not a positive number. DatabaseError: the database cannot be
    used; a damaged one raises it before the block runs. LaunchError: the device cannot be used.
    """
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
        raise InputError(f"time_limit is {time_limit!r}; it must be a positive number of seconds")
    if (path := settings().database).exists():
        Database(path).close()
    counts: dict[Driver, Counter[Problem]] = {}
    used: set[tuple[int, Driver]] = set()

    def observe(problem: Problem, stream: int, on: Driver) -> None:
        same = next((other for other, seen in counts.items() if other.device == on.device and problem in seen), on)
        counts.setdefault(same, Counter())[problem] += 1
        used.add((stream, on))

    results: list[Tuned] = []
    recording.observers.append(observe)
    launches.forget_launches()  # later calls create launch functions with observers
    try:
        yield results
    finally:
        recording.observers.remove(observe)
        launches.forget_launches()
    if any(streams.is_captured(stream, on) for stream, on in used):
        _log.warning("autotune: a stream is being captured into a graph; nothing was tuned")
        return
    if counts:
        with Database(settings().database) as database:
            for on, seen in counts.items():
                weights = {problem: float(n) for problem, n in seen.items()}
                deadline = Deadline(time_limit / len(counts))
                results += tune(list(weights), on.selector, database, weights=weights, deadline=deadline)
        runners.reselect({problem for seen in counts.values() for problem in seen})


__all__ = ["autotune"]
