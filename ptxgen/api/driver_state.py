"""State shared by all calls on one driver: workspaces, device tables and loaded kernels."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import lru_cache

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source
from ptxgen.errors import AssembleError
from ptxgen.runtime import kept_sources
from ptxgen.runtime.assemble import CachedSource
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspaces


class DriverState:
    """Objects that all calls on one driver use. ``workspaces``: device memory of launches; ``kernels``: loaded kernels,
    which are unloaded with the last runner, cached launch or captured graph that refers to them."""

    def __init__(self, on: Driver) -> None:
        self.driver = on
        self.workspaces = Workspaces(on)
        self.tables = self.workspaces.own.tables
        self.kernels: weakref.WeakValueDictionary[CachedSource, Kernel] = weakref.WeakValueDictionary()

    def kernel(self, source: Source) -> Kernel:
        """The loaded kernel of ``source``. AssembleError: the driver rejected it."""
        key = source if isinstance(source, CachedSource) else CachedSource.of(source)
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels[key] = self.driver.load(source)
        return kernel

    def kernel_of(self, plan: Plan) -> Kernel:
        """The loaded kernel of a plan, which is rendered unless the disk cache has its machine code. AssembleError: the
        driver rejected it."""
        key = kept_sources.key(plan) if self.driver.assembler.startswith("ptxas") else ""
        if (kept := kept_sources.read(key)) is not None:
            with suppress(AssembleError):
                return self.kernel(kept)
        source = render(plan)
        kernel = self.kernel(source)
        kept_sources.write(key, CachedSource.of(source))
        return kernel


@lru_cache(maxsize=64)  # more than the GPUs of a machine
def state_of(on: Driver) -> DriverState:
    """The shared state of a driver."""
    return DriverState(on)
