"""Counts the problems that a program computes: observers of launches, and the shapes file of ``PTXGEN_RECORD``."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from ptxgen.errors import InputError
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.settings import setting
from ptxgen.tuning.progress import counted
from ptxgen.tuning.store import shapes_file

FLUSH_SECONDS = 10.0  #: interval between writes of the shapes file

#: functions called after each launch with its problem, the handle of its stream (0: operands in host memory) and its
#: driver
Observer = Callable[[Problem, int, Driver], None]
observers: list[Observer] = []


def active() -> tuple[Observer, ...]:
    """The current observers."""
    path = setting("record")
    return (*observers, *((recorder(path).count,) if path is not None else ()))


def observed(problem: Problem, on: Driver, launch: Callable[..., None]) -> Callable[..., None]:
    """A function that calls ``launch`` and then the current observers; ``launch`` itself if there are no observers, or
    if the problem cannot be measured."""
    notified = active() if problem.measurable else ()
    if not notified:
        return launch

    def launch_and_notify(addresses: tuple[int, ...], stream: int, own: int | None = None) -> None:
        launch(addresses, stream, own)
        for observer in notified:
            observer(problem, stream, on)

    return launch_and_notify


def notify(problem: Problem, on: Driver) -> None:
    """Calls the observers after a computation on host arrays, unless the problem cannot be measured."""
    for observer in active() if problem.measurable else ():
        observer(problem, 0, on)


class Recorder:
    """Adds the number of launches of each problem to a shapes file, every ``FLUSH_SECONDS`` and at the end of the
    process. Several processes may use one file."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # the program may change its folder
        self._counts: Counter[Problem] = Counter()
        self._lock = threading.Lock()  # of the counts
        self._writing = threading.Lock()
        self._begin_process()
        atexit.register(self.finish)
        # Not during a write: the child would inherit the lock of the file, and keep it. A thread that counts may hold
        # the lock of the launch cache, for which a fork waits, so a fork must not hold ``_lock``.
        os.register_at_fork(
            before=self._writing.acquire, after_in_parent=self._writing.release, after_in_child=self._begin_child
        )

    def _begin_process(self) -> None:
        self._timer: threading.Timer | None = None
        self._finalizer: Finalize | None = None
        self._finished = False

    def _begin_child(self) -> None:
        """Resets the state after a fork: the parent writes its own counts."""
        self._lock = threading.Lock()
        self._counts.clear()
        self._begin_process()
        self._writing.release()

    def count(self, problem: Problem, stream: int = 0, on: Driver | None = None) -> None:
        """Counts one launch."""
        with self._lock:
            self._counts[problem] += 1
            if self._timer is None and not self._finished:
                self._timer = threading.Timer(FLUSH_SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()
            if self._finalizer is None:
                # processes of multiprocessing end without the functions of atexit, and forget finalizers of the parent
                self._finalizer = Finalize(None, self.finish, exitpriority=0)
        if self._finished:
            self.flush()

    def finish(self) -> None:
        """Writes the counts at the end of the process; launches counted after that are written at once."""
        self._finished = True
        self.flush()

    def flush(self) -> None:
        """Writes the counts. RuntimeWarning: the file cannot be read or written; it is not changed, and the next write
        tries again."""
        try:
            with self._writing:
                with self._lock:
                    counts, self._timer = self._counts.copy(), None
                if counts:
                    shapes_file.add(self.path, counts)
                with self._lock:
                    self._counts -= counts
        except (OSError, InputError) as error:
            what = f"{counted(counts.total(), 'call')} of {counted(len(counts), 'problem')}"
            warnings.warn(f"PTXGEN_RECORD: {what} not recorded: {error}", RuntimeWarning, stacklevel=1)


@cache
def recorder(path: Path) -> Recorder:
    """The recorder of a shapes file."""
    return Recorder(path)


__all__ = ["Observer", "Recorder", "active", "notify", "observed", "observers", "recorder"]
