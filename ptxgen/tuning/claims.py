"""Tuners that share a database share the work: each claims a configuration before it measures it."""

from __future__ import annotations

import os
import platform
import uuid
from contextlib import suppress

from ptxgen.codegen.config import Config
from ptxgen.errors import DatabaseError
from ptxgen.problem.registry import Problem
from ptxgen.tuning.database import Database

SECONDS = 90.0  #: after which another tuner may measure a claimed configuration


class Claims:
    """One tuner's claims on configurations for a device and a clock. Making one releases those of ended processes."""

    def __init__(self, database: Database, device: str, clock: str) -> None:
        self.database, self.device, self.clock = database, device, clock
        self.owner = f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        for other in filter(has_ended, database.claimants()):
            database.release(other)

    def take(self, problem: Problem, config: Config) -> bool:
        """Claim a configuration; False: another tuner is measuring it. ``Database.add`` ends the claim."""
        return self.database.claim(problem, config, self.device, self.clock, self.owner, SECONDS)

    def release(self) -> None:
        """End every claim. A database that cannot be written ends them by their age."""
        with suppress(DatabaseError):
            self.database.release(self.owner)


def has_ended(owner: str) -> bool:
    """Whether the process that an owner names has ended, as far as this machine can tell."""
    node, _, process = owner.rpartition(":")[0].rpartition(":")
    if node != platform.node() or not process.isdecimal():
        return False
    try:
        with suppress(PermissionError, OverflowError):
            os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    return False
