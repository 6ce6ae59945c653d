"""The state of a CUDA driver in a forked process."""

from __future__ import annotations

import atexit
import os
import weakref
from functools import partial
from typing import Any

from ptxgen.errors import LaunchError


def watch(driver: Any) -> None:
    """Replaces ``driver`` by a ``ForkedDriver`` in every process that is forked from now on."""
    os.register_at_fork(after_in_child=partial(_after_fork, weakref.ref(driver)))


class ForkedDriver:
    """A driver in a forked process, where CUDA does not work. Every use raises LaunchError; nothing is freed."""

    def __getattr__(self, name: str) -> Any:
        raise LaunchError(
            "this process was forked from one that uses CUDA, and CUDA does not work after a fork; start"
            ' it with multiprocessing.get_context("spawn")'
        )

    def _drop(self, objects: dict[str, Any]) -> None:
        _parent_objects.append(objects)

    def close(self) -> None:
        """Does nothing. The parent closes its driver."""


#: in a forked process: objects whose destructors would call CUDA
_parent_objects: list[Any] = []


def _after_fork(reference: weakref.ref[Any]) -> None:
    driver = reference()
    if driver is not None:
        atexit.unregister(driver.close)
        _parent_objects.append(dict(driver.__dict__))
        driver.__dict__.clear()
        driver.__class__ = ForkedDriver
