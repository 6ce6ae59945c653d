"""Compares stored winners with the kernels that this version generates, and times those whose machine code changed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source
from ptxgen.errors import AssembleError, InputError, PtxgenError
from ptxgen.families.common import rules
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.runtime import sass
from ptxgen.runtime.assemble import find_ptxas
from ptxgen.runtime.driver import Timing
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.choice.winners import current_digest
from ptxgen.tuning.measure.bench import FINAL_TIMING
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.progress import SILENT, Progress
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.tuning_files import STALE, WINNERS, clock_of, read_winners, winners_path, write_winners

CHECK_TIMING = Timing(samples=1, target_ms=0.1, l2_multiple=0.0, most=1)
CHECKERS = 4  #: processes that check kernels in parallel; each computes references on a quarter of the cores
ROUNDS = 2
DROP_RATIO = 1.1  #: a kernel slower than the fastest of a round by this factor is not timed again
SAVE_INTERVAL = 20  #: number of timed winners between calls of ``save``

#: ``current``: unchanged; ``text``: the PTX changed, the machine code did not; ``timed``: the kernel was timed again
#: and is the fastest; ``replaced``: the model's choice is faster; ``stale``: the kernel changed and was not timed;
#: ``failed``: no kernel gives correct results
STATES = ("current", "text", "timed", "replaced", "stale", "failed")


@dataclass
class Rechecked:
    """A stored winner and the result of its recheck. ``old``: the stored winner; ``state``: one of STATES; ``new``: the
    valid winner, None if there is none; ``reason``: why the winner is stale or failed."""

    old: Measurement
    state: str = "stale"
    new: Measurement | None = None
    reason: str = ""


Save = Callable[[Sequence[Rechecked]], None]


class Recheck:
    """Rechecks the winners of one device. ``jobs``: number of kernels assembled in parallel."""

    def __init__(self, device: Device, jobs: int, progress: Progress = SILENT) -> None:
        self.device, self.jobs, self.progress = device, jobs, progress
        self._until = math.inf

    def _past_deadline(self) -> bool:
        return time.monotonic() > self._until

    def compare(self, winners: Iterable[Measurement]) -> list[Rechecked]:
        """Determines which winners are current, which changed only their PTX text, and which are stale. Records the
        machine code of valid winners if there is a ptxas. Needs no GPU."""
        stored = list(winners)
        self.progress.phase("compare", len(stored))
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(self._compare, stored))

    def _compare(self, m: Measurement) -> Rechecked:
        try:
            return self._judge(m, self._source(m.problem, m.config))
        except PtxgenError as error:
            return Rechecked(m, reason=f"no kernel now: {error}")
        finally:
            self.progress.step(m.problem.key())

    def _source(self, problem: Problem, config: Config) -> Source:
        rules.require(lower(problem), config, self.device)
        return render(plan_for(problem, config, self.device))

    def _judge(self, m: Measurement, source: Source) -> Rechecked:
        same = source.digest == m.digest
        if not same and not m.sass:
            m = replace(m, sass=sass.cached_machine_code(m.digest, source.target))
        if not same and not m.sass:
            return Rechecked(m, reason=f"its kernel was {m.digest}, now it is {source.digest}")
        now = sass.machine_code(source) or m.sass * same
        if same:
            return Rechecked(m, "current", replace(m, sass=now))
        if now == m.sass:
            return Rechecked(m, "text", replace(m, digest=source.digest))
        return Rechecked(m, reason=f"its machine code was {m.sass}, now it is {now or 'unknown: there is no ptxas'}")

    def retime(self, rows: Sequence[Rechecked], driver: str, save: Save, seconds: float, commit: str = "") -> None:
        """Checks and times the stale winners among ``rows`` again, each together with the choice of the model, and
        updates the rows.

        Kernels are assembled and checked in parallel, and timed one at a time. Winners that handles of sparse matrices
        stored stay stale, because their matrices are not known. ``save`` is called every ``SAVE_INTERVAL`` rows and at
        the end. ``seconds``: time after which no further winner is begun; the others stay stale.
        """
        model_for(self.device)  # cached before the threads use it
        self._until = time.monotonic() + seconds
        stale = (row for row in rows if row.state == "stale" and row.old.problem.measurable)
        waiting = sorted(stale, key=lambda row: row.old.problem.flops)
        if not waiting:
            return
        self.progress.message(f"{len(waiting)} of {len(rows)} winners are stale: each is checked, then timed")
        try:
            checked = self._check(waiting, driver, commit)
            self.progress.phase("time", len(waiting))
            with _workers(driver, 1, commit) as workers:
                worker = workers.get()
                for number, (row, measured) in enumerate(zip(waiting, checked, strict=True), 1):
                    if self._past_deadline():
                        break
                    self._time(worker, row, measured)
                    self.progress.step(f"{row.old.problem.key()}: {row.state}")
                    if number % SAVE_INTERVAL == 0:
                        save(rows)
                        self.progress.message(f"{number} of {len(waiting)} stale winners timed")
        finally:
            save(rows)

    def _check(self, rows: Sequence[Rechecked], driver: str, commit: str) -> list[list[Measurement]]:
        """The checked contenders of each row. Several kernels run at once, so these times are not used."""
        self.progress.phase("check", len(rows))
        count = CHECKERS if self.jobs >= 2 * CHECKERS else 1
        with _workers(driver, count, commit) as workers, ThreadPoolExecutor(self.jobs) as pool:

            def check(row: Rechecked) -> list[Measurement]:
                configs = [] if self._past_deadline() else self._contenders(row.old)
                worker, measured = workers.get(), []
                try:
                    for config in configs:
                        if not self._past_deadline():
                            measured.append(worker.measure(row.old.problem, config, CHECK_TIMING, "check", full=True))
                finally:
                    workers.put(worker)
                self.progress.step(row.old.problem.key())
                return measured

            try:
                return list(pool.map(check, rows))  # which cancels the rows that no thread has begun
            except BaseException:
                self._until = -math.inf  # threads that have begun a row start no further check
                raise

    def _contenders(self, m: Measurement) -> list[Config]:
        """The stored configuration and the model's choice, assembled. Errors of ptxas are ignored here: they occur
        again at the measurement."""
        choice = [c for c, _ in model_for(self.device).rank(m.problem, self.device, 1)]
        legal = [c for c in (m.config, *choice) if rules.first_violation(lower(m.problem), c, self.device) is None]
        for config in dict.fromkeys(legal):
            with suppress(AssembleError):
                sass.machine_code(self._source(m.problem, config))
        return list(dict.fromkeys(legal))

    def _time(self, worker: Worker, row: Rechecked, checked: Sequence[Measurement]) -> None:
        """Times the contenders with correct results, alternating between them. Those that could not be checked in
        parallel are checked again first."""
        problem, ready = row.old.problem, []
        for m in checked:
            if m.outcome not in ("ok", "wrong_result", "ptxas_error"):
                # with the timing policy of the next measurements, which reuse the operands
                m = worker.measure(problem, m.config, FINAL_TIMING, "check", full=True)
            if m.outcome == "ok":
                ready.append(m.config)
            else:
                row.reason = f"{m.config}: {m.outcome}: {m.message}"
        samples: dict[Config, list[Measurement]] = {}
        for _ in range(ROUNDS):
            for config in ready:
                samples.setdefault(config, []).append(worker.measure(problem, config, FINAL_TIMING, "final"))
            best = min((min(m.us for m in runs) for runs in samples.values()), default=0.0)
            ready = [c for c in ready if samples[c][-1].us <= DROP_RATIO * best]
            if len(ready) < 2:
                break
        timed = [
            replace(runs[-1], samples=tuple(x for m in runs for x in m.samples))
            for runs in samples.values()
            if all(m.outcome == "ok" for m in runs)
        ]
        if not timed:
            row.state = "failed" if checked else row.state
            return
        fastest = min(timed, key=lambda m: m.us)
        row.state = "timed" if fastest.config == row.old.config else "replaced"
        row.new = replace(
            fastest, sass=sass.machine_code(self._source(problem, fastest.config)) if find_ptxas() else ""
        )


class Winners(Protocol):
    """A store of winners."""

    def devices(self, requested: str | None) -> list[str]:
        """The names of the devices that have winners, or only ``requested``. InputError: no such device has winners."""

    def read(self, device: str) -> list[Measurement]:
        """The winners of a device, including stale ones."""

    def save(self, device: Device, rows: Sequence[Rechecked]) -> None:
        """Stores the results of a recheck."""


def _select_devices(devices: list[str], requested: str | None, where: object) -> list[str]:
    """``devices``, or only ``requested``. InputError: there are no devices, or ``requested`` is not one of them."""
    if not devices or (requested is not None and requested not in devices):
        raise InputError(f"{where} has no winners" + (f" of device {requested!r}" if requested else ""))
    return devices if requested is None else [requested]


class FolderWinners:
    """Winners in a folder that ``db export`` wrote. Stale ones are in ``stale.txt`` until they are timed."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder, self.commit = folder, commit

    def devices(self, requested: str | None) -> list[str]:
        return _select_devices(tuning_files.devices(self.folder), requested, self.folder)

    def read(self, device: str) -> list[Measurement]:
        path = winners_path(device, self.folder)
        winners = read_winners(path)[1]
        known = {m.problem for m in winners}
        return winners + [m for m in _stale(path) if m.problem not in known]

    def save(self, device: Device, rows: Sequence[Rechecked]) -> None:
        """Writes the file of the winners and that of the stale winners. A winner that moves from one file to the other
        is in both for a moment, so that an interruption loses none."""
        path = winners_path(device.name, self.folder)
        header = replace(read_winners(path)[0], commit=self.commit)
        winners = [row.new for row in rows if row.new is not None]
        stale = [row.old for row in rows if row.new is None]
        both = {m.problem: m for m in (*_stale(path), *stale)}.values()
        for name, some in ((STALE, both), (WINNERS, winners), (STALE, stale)):
            if some or name == WINNERS:
                write_winners(path.with_name(name), header, some)
            else:
                path.with_name(name).unlink(missing_ok=True)


def _stale(path: Path) -> list[Measurement]:
    """The stale winners in the folder of a winners file."""
    stale = path.with_name(STALE)
    return read_winners(stale)[1] if stale.exists() else []


class DatabaseWinners:
    """Winners in a database, where stale ones are marked."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def devices(self, requested: str | None) -> list[str]:
        pairs = self.database.devices()
        return _select_devices([n for n, clock in pairs if clock == clock_of(n)], requested, self.database.path)

    def read(self, device: str) -> list[Measurement]:
        return list(self.database.winners(device, clock_of(device), stale=True))

    def save(self, device: Device, rows: Sequence[Rechecked]) -> None:
        for row in rows:
            if row.new is not None and row.state != "current":
                # another process may have stored a winner
                self.database.set_winner(row.new, over=lambda held, row=row: held in (row.old, row.new))  # type: ignore[misc]
        self.database.demote(device.name, lambda problem, config: current_digest(problem, config, device))


@contextmanager
def _workers(driver: str, count: int, commit: str) -> Iterator[SimpleQueue[Worker]]:
    """A queue of ``count`` measuring processes, which threads take and put back."""
    every = [Worker(driver, commit=commit) for _ in range(count)]
    queue: SimpleQueue[Worker] = SimpleQueue()
    for worker in every:
        queue.put(worker)
    try:
        yield queue
    finally:
        for worker in every:
            worker.stop()


__all__ = ["STATES", "DatabaseWinners", "FolderWinners", "Recheck", "Rechecked", "Winners"]
