"""Ends a long run at a time limit, or after SIGINT or SIGTERM. The measurement in progress is completed."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM ended the run."""


class Deadline:
    """The time limit of a run, and the signal that ended it. ``seconds``: the limit, counted from now; ``signal``: 0 if
    there was none."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self.began = time.monotonic()
        self.signal = 0

    def time_of(self, part: float) -> float:
        """The value of ``time.monotonic()`` when ``part`` (0 to 1) of the time has passed."""
        return self.began + self.seconds * part

    @property
    def passed(self) -> bool:
        """True if the run must end."""
        return self.signal != 0 or time.monotonic() >= self.time_of(1.0)

    def raise_for_signal(self) -> None:
        """Raises KeyboardInterrupt if SIGINT ended the run, Terminated if SIGTERM did."""
        if self.signal:
            raise Terminated if self.signal == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def stop_on_signals(deadline: Deadline, notify: Callable[[str], None] = lambda name: None) -> Iterator[None]:
    """Within the block, the first SIGINT or SIGTERM sets ``deadline.signal`` and calls ``notify`` with its name; the
    second one raises KeyboardInterrupt or Terminated at once. Signal handlers belong to the main thread: in another
    thread the block changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if deadline.signal:
            deadline.raise_for_signal()
        deadline.signal = number
        notify(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["Deadline", "Terminated", "stop_on_signals"]
