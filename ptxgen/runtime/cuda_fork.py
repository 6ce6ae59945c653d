"""What becomes of a CUDA driver in a forked process."""

from __future__ import annotations

import atexit
import os
import weakref
from functools import partial
from typing import Any

from ptxgen.errors import LaunchError


def watch(driver: Any) -> None:
    """From now on, ``driver`` is a ``Forked`` in every process that is forked from this one."""
    os.register_at_fork(after_in_child=partial(_after_fork, weakref.ref(driver)))


class Forked:
    """What a driver is in a forked process: CUDA does not work there, and nothing may be given back to it."""

    def __getattr__(self, name: str) -> Any:
        raise LaunchError(
            "this process was forked from one that uses CUDA, and CUDA does not work after a fork; start"
            ' it with multiprocessing.get_context("spawn")'
        )

    def _unload(self, functions: dict[str, Any]) -> None:
        _of_parent.append(functions)

    def close(self) -> None:
        """The parent closes its driver."""


#: in a forked process: objects whose destructors would call CUDA
_of_parent: list[Any] = []


def _after_fork(found: weakref.ref[Any]) -> None:
    driver = found()
    if driver is not None:
        atexit.unregister(driver.close)
        _of_parent.append(dict(driver.__dict__))
        driver.__dict__.clear()
        driver.__class__ = Forked
