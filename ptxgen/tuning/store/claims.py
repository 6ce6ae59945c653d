"""Claims: tuners that share a database reserve each configuration before they measure it."""

from __future__ import annotations

import os
import platform
import uuid
from contextlib import suppress

from ptxgen.codegen.config.config import Config
from ptxgen.errors import DatabaseError
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store.database import Database

CLAIM_SECONDS = 90.0  #: seconds after which a claim expires


class Claims:
    """One tuner's claims for a device and a clock. The constructor releases claims of processes that have ended."""

    def __init__(self, database: Database, device: str, clock: str) -> None:
        self.database, self.device, self.clock = database, device, clock
        self.owner = f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        for other in filter(process_has_ended, database.claimants()):
            database.release(other)

    def take(self, problem: Problem, config: Config | None = None, seconds: float = CLAIM_SECONDS) -> bool:
        """Claims a configuration, or the problem as a whole; False: another tuner is measuring it. ``Database.add``
        ends the claim of a configuration."""
        return self.database.claim(problem, config, self.device, self.clock, self.owner, seconds)

    def release(self, problem: Problem | None = None) -> None:
        """Ends all claims of this tuner, or its claims for one problem. If the database cannot be written, the claims
        expire."""
        with suppress(DatabaseError):
            self.database.release(self.owner, problem)


def process_has_ended(owner: str) -> bool:
    """True if the process that owns a claim has ended; False also if the process is on another machine."""
    node, _, process = owner.rpartition(":")[0].rpartition(":")
    if node != platform.node() or not process.isdecimal():
        return False
    try:
        with suppress(PermissionError, OverflowError):
            os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    return False
