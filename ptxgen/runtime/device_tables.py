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
    """Device memory that is freed with the last reference. ``size``: bytes; ``address``: the address of memory that the
    driver has already allocated; None: the constructor allocates it. LaunchError: out of memory."""

    __slots__ = ("__weakref__", "address", "size")

    def __init__(self, driver: Driver, size: int, address: int | None = None) -> None:
        self.size = size
        self.address = driver.allocate(size) if address is None else address
        weakref.finalize(self, _free, driver, self.address).atexit = False  # the driver frees the rest at exit


class Part(NamedTuple):
    """One of several arrays in one allocation. ``memory``: the allocation, to which each part holds a reference."""

    memory: Allocation
    address: int
    size: int


def allocate_parts(driver: Driver, sizes: Mapping[str, int]) -> dict[str, Part]:
    """Allocates arrays together. ``sizes``: their bytes, by name. LaunchError: out of memory."""
    if not sizes:
        return {}
    at = driver.allocate_parts([max(n, 1) for n in sizes.values()])
    memory = Allocation(driver, sum(sizes.values()), at[0])
    return {name: Part(memory, address, n) for (name, n), address in zip(sizes.items(), at, strict=True)}


def _free(driver: Driver, address: int) -> None:
    with suppress(PtxgenError):  # a closed driver has freed it; a lost context or a forked process cannot
        driver.release(address)


class DeviceTable(Allocation):
    """An offset table, words of 32 bits, in device memory. A step that has the table as an argument holds a reference
    to it; packing the argument converts the table to its address."""

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
