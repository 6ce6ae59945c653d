"""Counts the problems that a program computes: observers of launches, and the shapes file of ``PTXGEN_RECORD``."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ptxgen.errors import InputError
from ptxgen.problem import suites
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.settings import settings
from ptxgen.tuning.exchange import replacing
from ptxgen.tuning.progress import counted

FLUSH_SECONDS = 10.0  #: interval between writes of the shapes file

#: called after each launch with its problem, the raw handle of its stream (0: operands in host memory) and its driver
Observer = Callable[[Problem, int, Driver], None]
observers: list[Observer] = []


def active() -> tuple[Observer, ...]:
    """The current observers."""
    path = settings().record
    return (*observers, *((recorder(path).count,) if path is not None else ()))


def observed(problem: Problem, on: Driver, launch: Callable[..., None]) -> Callable[..., None]:
    """A function that calls ``launch`` and then the current observers; ``launch`` itself if there are none."""
    notified = active()
    if not notified:
        return launch

    def launch_and_notify(a: int, b: int, c: int, stream: int, *rest: Any, **options: Any) -> None:
        launch(a, b, c, stream, *rest, **options)
        for observer in notified:
            observer(problem, stream, on)

    return launch_and_notify


def notify(problem: Problem, on: Driver) -> None:
    """Calls the observers after a computation on host arrays."""
    for observer in active():
        observer(problem, 0, on)


class Recorder:
    """Adds the number of launches of each problem to a shapes file, every ``FLUSH_SECONDS`` and at exit. Several
    processes may use one file: each adds its counts since its last write, and replaces the file atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._counts: Counter[Problem] = Counter()
        self._timer: threading.Timer | None = None
        atexit.register(self.flush)
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._begin_child
        )

    def count(self, problem: Problem, stream: int = 0, on: Driver | None = None) -> None:
        """Counts one launch."""
        with self._lock:
            self._counts[problem] += 1
            if self._timer is None:
                self._timer = threading.Timer(FLUSH_SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def _begin_child(self) -> None:
        """Resets counts and timer after a fork: the parent writes its own counts."""
        self._counts.clear()
        self._timer = None
        self._lock.release()

    def flush(self) -> None:
        """Writes the counts. RuntimeWarning: the file cannot be read or written; it is not changed, and the next write
        tries again."""
        with self._lock:
            counts, self._counts, self._timer = self._counts, Counter(), None
        if not counts:
            return
        try:
            if self.path.is_dir():
                raise InputError(f"{self.path} is a folder; it must be a file")
            with _locked(self.path):
                total = Counter(counts)
                if self.path.exists():
                    with self.path.open("rb") as file:
                        for case in suites.read(file, str(self.path), ""):
                            total[case.problem] += int(case.count)
                lines = [json.dumps({**p.as_dict(), "count": n}) for p, n in total.most_common()]
                with replacing(self.path) as file:
                    file.write("".join(f"{line}\n" for line in lines).encode())
        except (OSError, InputError) as error:
            with self._lock:
                self._counts.update(counts)
            what = f"{counted(counts.total(), 'call')} of {counted(len(counts), 'problem')}"
            warnings.warn(f"PTXGEN_RECORD: {what} not recorded: {error}", RuntimeWarning, stacklevel=1)


@cache
def recorder(path: Path) -> Recorder:
    """The recorder of a shapes file."""
    return Recorder(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file. The lock is a separate file, because the file itself is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


__all__ = ["Observer", "Recorder", "active", "notify", "observed", "observers", "recorder"]
