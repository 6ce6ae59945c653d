"""Times of configurations on a user's arrays, stored in the tuning database."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ptxgen.api import choice
from ptxgen.errors import DatabaseError
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.runner import Runner
from ptxgen.settings import settings
from ptxgen.tuning.measure.bench import environment
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


def measurement(runner: Runner, samples: Sequence[float], timing: Timing, purpose: str) -> Measurement:
    """The measurement of a kernel. ``samples``: its times in microseconds."""
    kernel = runner.kernel
    return Measurement(
        runner.problem,
        runner.plan.config,
        "ok",
        environment(runner.driver, timing),
        tuple(round(us, 4) for us in samples),
        kernel.source.digest,
        kernel.registers,
        kernel.spills,
        purpose=purpose,
        created=round(time.time(), 3),
    )


def store(rows: Sequence[Measurement], winner: Measurement) -> None:
    """Stores measurements, and the winner, which later choices use. If the database cannot be used, a warning is
    logged."""
    try:
        with Database(settings().database) as database:
            database.add_all(rows)
            database.set_winner(winner)
    except DatabaseError as error:
        _log.warning("the times of %s are not stored: %s", winner.problem.key(), error)
    choice.reopen_database()
