"""The lock that calls hold while they select, generate or load a kernel, and its handling when the process forks."""

from __future__ import annotations

import os
import threading

lock = threading.RLock()


def _before_fork() -> None:
    """Holds the lock during a fork, so that no other thread selects, generates or loads a kernel or computes on host
    arrays. The state in the child is then consistent."""
    lock.acquire()


def _after_fork_in_child() -> None:
    """Creates a new lock."""
    global lock
    lock = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=lambda: lock.release(), after_in_child=_after_fork_in_child)
