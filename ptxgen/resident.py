"""Tables on the device, kept as long as something that may be launched reads them."""

from __future__ import annotations

import weakref
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ptxgen.drivers import Driver
from ptxgen.errors import PtxgenError
from ptxgen.implicit import Table


class Resident:
    """Numbers on the device, freed when nothing refers to them any more. It stands among a step's arguments as the
    integer that is its address: who can launch the step owns its tables. ``bytes``: how many it takes."""

    __slots__ = ("__weakref__", "address", "bytes")

    def __init__(self, driver: Driver, words: NDArray[np.uint32]) -> None:
        self.bytes = words.nbytes
        self.address = driver.allocate(self.bytes)
        weakref.finalize(self, _free, driver, self.address).atexit = False  # the driver frees what is left
        driver.upload(self.address, words)

    def __index__(self) -> int:
        return self.address


def _free(driver: Driver, address: int) -> None:
    with suppress(PtxgenError):  # a driver that is closed, or whose context a kernel has spoilt, has freed it
        driver.release(address)


class Residents:
    """The tables that are on the device, each of them once."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._found: weakref.WeakValueDictionary[Table, Resident] = weakref.WeakValueDictionary()

    def of(self, table: Table) -> Resident:
        """``table`` on the device, for as long as the caller keeps it."""
        found = self._found.get(table)
        if found is None:
            found = self._found[table] = Resident(self.driver, table.words())
        return found

    @property
    def bytes(self) -> int:
        """What all tables take together."""
        return sum(x.bytes for x in self._found.values())
