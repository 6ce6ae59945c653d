"""Tuning at the first call of a problem, now or in the background: ``PTXGEN_TUNE``."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

from ptxgen import settings
from ptxgen.api import choice
from ptxgen.errors import AssembleError, DatabaseError, LaunchError
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.tuning import selection
from ptxgen.tuning.search.first_use import FirstUse

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@cache
def first_use(selector: str, path: Path) -> FirstUse:
    """The object that times configurations for ``PTXGEN_TUNE``. ``selector``: the text that selects the driver;
    ``path``: the tuning database."""
    return FirstUse(selector, path)


@cache
def _background(on: Driver, path: Path) -> Queue[tuple[Problem, Callable[[], None]]]:
    """The queue of a background thread, which tunes queued problems one after the other and then has each one selected
    again."""
    queue: Queue[tuple[Problem, Callable[[], None]]] = Queue()

    def work() -> None:
        while True:
            problem, reselect = queue.get()
            try:
                if first_use(on.selector, path).choose(problem, on.device) is not None:
                    reselect()
            except (DatabaseError, LaunchError, AssembleError) as error:
                _log.warning("PTXGEN_TUNE: %s is not tuned: %s", problem.key(), error)
            finally:
                queue.task_done()

    threading.Thread(target=work, name="ptxgen-tune", daemon=True).start()
    return queue


def tune(problem: Problem, on: Driver, reselect: Callable[[], None]) -> None:
    """Tunes a problem that has no measured winner: times its top-ranked configurations, now or in the background
    (``PTXGEN_TUNE``). ``reselect`` is called once the background thread has tuned the problem. Failures are logged as
    warnings, and the call uses the current selection."""
    selected = selection.select(problem, on.device, choice.database())
    if not selected or (selected[0].origin in ("winner", "shipped") and not selected[0].predicted):
        return
    now = settings.settings()
    if now.tune == "background":
        _background(on, now.database).put((problem, reselect))
        return
    try:
        first_use(on.selector, now.database).choose(problem, on.device)
    except (DatabaseError, LaunchError) as error:
        _log.warning("PTXGEN_TUNE: %s is not tuned: %s", problem.key(), error)
    choice.reopen_database()


def _after_fork(caches: tuple[Any, ...] = (first_use, _background)) -> None:
    """Forgets the measuring process and the background thread in a forked child: they belong to the parent."""
    for each in caches:
        each.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
