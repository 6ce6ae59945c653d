"""Reference-counted device memory, and offset tables in device memory."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import PtxgenError
from ptxgen.lowering.table import Table
from ptxgen.runtime.driver import Driver


class Allocation:
    """Device memory that is freed with the last reference. ``size``: in bytes; ``address``: of memory that the driver
    has allocated, None: it is allocated. LaunchError: out of memory."""

    __slots__ = ("__weakref__", "address", "size")

    def __init__(self, driver: Driver, size: int, address: int | None = None) -> None:
        self.size = size
        self.address = driver.allocate(size) if address is None else address
        weakref.finalize(self, _free, driver, self.address).atexit = False  # the driver frees the rest at exit


class Part(NamedTuple):
    """One of several arrays in an allocation, which it holds."""

    memory: Allocation
    address: int
    size: int


def allocate_parts(driver: Driver, sizes: Mapping[str, int]) -> dict[str, Part]:
    """Arrays of these sizes in bytes, by name, in one allocation. LaunchError: out of memory."""
    if not sizes:
        return {}
    at = driver.allocate_parts([max(n, 1) for n in sizes.values()])
    memory = Allocation(driver, sum(sizes.values()), at[0])
    return {name: Part(memory, address, n) for (name, n), address in zip(sizes.items(), at, strict=True)}


def _free(driver: Driver, address: int) -> None:
    with suppress(PtxgenError):  # a closed driver has freed it; a lost context or a forked process cannot
        driver.release(address)


class DeviceTable(Allocation):
    """A table of uint32 in device memory. As an argument of a step it converts to its address, so a step holds
    references to its tables."""

    __slots__ = ()

    def __init__(self, driver: Driver, words: NDArray[np.uint32]) -> None:
        super().__init__(driver, words.nbytes)
        driver.upload(self.address, words)

    def __index__(self) -> int:
        return self.address


class DeviceTables:
    """All offset tables in device memory, each stored once."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._tables: weakref.WeakValueDictionary[Table, DeviceTable] = weakref.WeakValueDictionary()

    def of(self, table: Table) -> DeviceTable:
        """``table`` in device memory. It is freed with the last reference to the result."""
        stored = self._tables.get(table)
        if stored is None:
            stored = self._tables[table] = DeviceTable(self.driver, table.words())
        return stored

    @property
    def bytes(self) -> int:
        """The size of all tables."""
        return sum(x.size for x in self._tables.values())
