"""Tunes a problem at its first use: times a few configurations in a measuring process, and stores the winner."""

from __future__ import annotations

import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.render import render
from ptxgen.errors import AssembleError
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import Device
from ptxgen.problem.operation import vendor_of
from ptxgen.problem.registry import Problem
from ptxgen.runtime.assemble import assemble, find_ptxas
from ptxgen.settings import settings
from ptxgen.tuning.measure.bench import PAIRED_TIMING, SEARCH_TIMING
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.search.acquisition import POOL, explore
from ptxgen.tuning.search.tuner import MARGIN, NEAR_BEST, PROVISIONAL_ROUNDS, final_winner
from ptxgen.tuning.selection import select
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement

IDLE_SECONDS = 30.0  #: seconds after which the idle measuring process ends, and frees its device memory


class FirstUse:
    """Times configurations on the driver named ``driver``, and stores the results in the database at ``path``. Its
    methods may be called from any thread."""

    def __init__(self, driver: str, path: Path) -> None:
        self.path, self.worker = path, Worker(driver)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def choose(self, problem: Problem, device: Device) -> Measurement | None:
        """Times the present choice and some of the ``POOL`` configurations that ``select`` answers; stores and returns
        the winner. None: no configuration succeeded. LaunchError, DatabaseError: the device or the database cannot be
        used."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            try:
                with Database(self.path) as database:
                    return self._choose(problem, device, database)
            finally:
                self._timer = threading.Timer(IDLE_SECONDS, self.stop)
                self._timer.daemon = True
                self._timer.start()

    def _choose(self, problem: Problem, device: Device, database: Database) -> Measurement | None:
        present = [s.config for s in select(problem, device, database)]
        selected = select(problem, device, database, k=POOL)
        rows: list[Measurement] = []

        def measure(configs: list[Config]) -> dict[Config, float]:
            new = self._measured(problem, configs, device, database)
            rows.extend(new)
            return {m.config: m.us if m.outcome == "ok" else math.nan for m in new}

        explore(present, {s.config: s.us for s in selected}, measure)
        good = [m for m in rows if m.outcome == "ok"]
        if not good:
            return None
        hardware = good[0].environment.clock == "hardware"
        best = min(m.us for m in good)
        near = [m for m in good if m.us <= NEAR_BEST * best or m.config in present]
        configs, theirs = [m.config for m in near], None
        if settings().vendor == "auto" and vendor_of(problem, good[0].environment.clock) is not None:
            samples, theirs = self.worker.compare_with_vendor(problem, configs, PAIRED_TIMING, PROVISIONAL_ROUNDS)
        elif hardware and len(near) > 1:
            samples = self.worker.compare(problem, configs, PAIRED_TIMING, PROVISIONAL_ROUNDS)
        else:
            samples = []
        near = [replace(m, samples=tuple(us)) for m, us in zip(near, samples, strict=True)] if samples else near
        if theirs is not None:
            database.add_vendor(theirs)
        winner = final_winner(near, present, MARGIN if hardware else 0.0)
        database.set_winner(winner, over=lambda held: held.purpose != "final" and winner.us < held.us)
        return winner

    def _measured(
        self, problem: Problem, configs: list[Config], device: Device, database: Database
    ) -> list[Measurement]:
        """Assembles the kernels in parallel, then times the configurations one after another and stores the
        measurements."""
        if device.name != "emulated" and find_ptxas() is not None:
            with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
                list(threads.map(lambda config: _assemble(problem, config, device), configs))
        rows = [self.worker.measure(problem, config, SEARCH_TIMING, "search") for config in configs]
        for m in rows:
            database.add(m)
        return rows

    def stop(self) -> None:
        """Ends the measuring process; the next call starts another one."""
        with self._lock:
            self.worker.stop()


def _assemble(problem: Problem, config: Config, device: Device) -> None:
    """Assembles a kernel into the disk cache, from which the measuring process takes it. An error is ignored here: it
    occurs again in that process."""
    with suppress(AssembleError):
        assemble(render(plan_for(problem, config, device)))


__all__ = ["FirstUse"]
