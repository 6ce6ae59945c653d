"""Threads of tests: one that hangs is a failure."""

from __future__ import annotations

import threading

SECONDS = 60.0  #: limit of a thread; one that takes longer hangs


def join(*threads: threading.Thread) -> None:
    """Waits until the threads end. AssertionError: one hangs. Threads are daemons, so that the process can end."""
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread hangs"
