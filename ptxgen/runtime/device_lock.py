"""A lock for processes that share a GPU: the kernels of only one process run at a time, so times do not overlap."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time

from ptxgen.runtime.driver import NoLock

LOCKED_SECONDS = 20.0  #: a process that has the device for longer is ended: a kernel hangs


class DeviceLock(NoLock):
    """The lock as one process sees it. The lock is released when the process ends, for any reason.

    The lock is reentrant. SIGALRM ends a process that holds the lock for ``LOCKED_SECONDS``, even inside a call of the
    driver; other processes then go on.
    """

    def __init__(self, file: int) -> None:
        """``file``: the descriptor that ``create`` returned, inherited from the parent."""
        # Processes that inherit a descriptor share one lock: each needs a description of its own of the file.
        self._file = os.open(f"/dev/fd/{file}", os.O_RDWR)
        self._since = 0.0
        self._depth = 0

    @staticmethod
    def create() -> int:
        """Creates a lock and returns its file descriptor."""
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        began = time.monotonic()
        fcntl.flock(self._file, fcntl.LOCK_EX)
        signal.setitimer(signal.ITIMER_REAL, LOCKED_SECONDS)
        self._since = time.monotonic()
        self.queued += self._since - began

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self.locked += time.monotonic() - self._since
