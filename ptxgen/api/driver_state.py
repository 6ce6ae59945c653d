"""State shared by all calls on one driver: workspaces, device tables and loaded kernels."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import lru_cache

from ptxgen.codegen.source import Source
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspaces


class DriverState:
    """Objects that all calls on one driver use. ``workspaces``: device memory of launches; ``kernels``: loaded kernels,
    which are unloaded with the last runner, cached launch or captured graph that refers to them."""

    def __init__(self, on: Driver) -> None:
        self.driver = on
        self.workspaces = Workspaces(on)
        self.tables = self.workspaces.own.tables
        self.kernels: weakref.WeakValueDictionary[Source, Kernel] = weakref.WeakValueDictionary()

    def kernel(self, source: Source) -> Kernel:
        """The loaded kernel of ``source``. AssembleError: the driver rejected it."""
        key = replace(source, text=source.digest)
        found = self.kernels.get(key)
        if found is None:
            found = self.kernels[key] = self.driver.load(source)
        return found


@lru_cache(maxsize=64)  # more than the GPUs of a machine
def state_of(on: Driver) -> DriverState:
    """The shared state of a driver."""
    return DriverState(on)
