"""Finds problems that a vendor's library computes faster than the winner, by measurements of both in one run."""

from __future__ import annotations

from typing import Protocol

from ptxgen.problem.device import Device
from ptxgen.problem.operation import vendor_of
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import VendorMeasurement


class Timed(Protocol):
    """A record with a time in microseconds."""

    @property
    def us(self) -> float: ...


MARGIN = 0.005  #: the least relative gain for which calls use the vendor's library


def faster_vendor(problem: Problem, device: Device, database: Database | None) -> VendorMeasurement | None:
    """The measurement of the vendor's library, if the library was faster than the winner in the database and still has
    the same version. None: the winner is as fast, or the library or the winner was not measured."""
    clock = tuning_files.clock_of(device.name)
    library = vendor_of(problem, clock)
    if database is None or library is None or library.calls is None:
        return None
    theirs, ours = database.vendor(problem, device.name, clock), database.best(problem, device.name, clock)
    if theirs is None or ours is None or theirs.library != library.name or not is_faster(theirs, ours):
        return None
    return theirs if library.calls.version() == theirs.version else None


def is_faster(theirs: Timed, ours: Timed) -> bool:
    """True if a vendor's library is faster than a configuration by more than ``MARGIN``."""
    return theirs.us < (1 - MARGIN) * ours.us
