"""The number of threads of NumPy's matrix products."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()  #: a limit that ends restores the number of threads at its start, so limits must not overlap


@cache
def _controller() -> Any:
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the ``with`` block, the process computes matrix products in one thread each. A product of a millisecond
    gains little from more threads, and waits for the last of them where other programs use the processor."""
    with _lock, _controller().limit(limits=1, user_api="blas"):
        yield
