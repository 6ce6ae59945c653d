"""``autotune``: tunes the problems that the calls in a block compute."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ptxgen.api import launch_cache, recording
from ptxgen.errors import InputError
from ptxgen.problem.registry import Problem
from ptxgen.settings import settings
from ptxgen.tuning.database import Database
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.tuner import Tuned, tune

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@contextmanager
def autotune(time_limit: float = 60.0) -> Iterator[list[Tuned]]:
    """Tunes the problems that calls within the block compute, for ``time_limit`` seconds at the end of the block; later
    calls use the winners, which are stored in the user's database.

    Problems that are computed more often or take longer are measured more. The ``with`` statement yields a list, to
    which the results are added. Nothing is tuned if the block raises an error or if one of its streams is being
    captured into a graph. InputError: ``time_limit`` is not a positive number. LaunchError, DatabaseError: the device
    or the database cannot be used.
    """
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
        raise InputError(f"time_limit is {time_limit!r}; it must be a positive number of seconds")
    counts: Counter[Problem] = Counter()
    streams: set[int] = set()

    def observe(problem: Problem, stream: int) -> None:
        counts[problem] += 1
        streams.add(stream)

    results: list[Tuned] = []
    recording.observers.append(observe)
    launch_cache.forget_launches()  # later calls create launch functions with observers
    try:
        yield results
    finally:
        recording.observers.remove(observe)
        launch_cache.forget_launches()
    if any(launch_cache.is_captured(stream) for stream in streams):
        _log.warning("autotune: a stream is being captured into a graph; nothing was tuned")
        return
    if counts:
        weights = {problem: float(n) for problem, n in counts.items()}
        with Database(settings().database) as database:
            name = launch_cache.driver().name
            results += tune(list(weights), name, database, weights=weights, deadline=Deadline(time_limit))
        launch_cache.reselect(weights)


__all__ = ["autotune"]
