"""Measures the speed of the selected configurations on the device, for problems that were never measured before.

First each problem is tuned thoroughly, as ``collect`` does with many configurations. Then these are timed again in
turn: the selected configuration, the fastest one of those that tuning at first use would time, the fastest ones of all,
and the best candidate of the vendor's library. The selected configuration never depends on the measurements of this
run.
"""

from __future__ import annotations

import json
import lzma
import math
import multiprocessing
import os
import queue
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import InputError
from ptxgen.problem.device import Device
from ptxgen.problem.operation import VendorTimes, operation_of
from ptxgen.problem.registry import Problem, parse
from ptxgen.tuning.choice.models import model_from
from ptxgen.tuning.collect.collect import Collector, MeasuringProcesses, one_blas_thread
from ptxgen.tuning.collect.executor import DevicePoolOptions
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.model.evaluation import arithmetic, geometric_mean
from ptxgen.tuning.progress import SILENT, Progress
from ptxgen.tuning.search.acquisition import POOL, explore
from ptxgen.tuning.store.database import Database, config_text
from ptxgen.tuning.store.exchange import microseconds
from ptxgen.tuning.store.measurement import Measurement

FINALISTS = 3  #: fastest configurations of all that are timed again
#: rounds of the paired comparison. Every second round determines the fastest configurations, the others give the times:
#: if the same rounds did both, the fastest of several would be the one with the luckiest time.
ROUNDS = 10
SLOWER = 1.0  #: a ratio to the vendor's time below which a row counts as slower


@dataclass(frozen=True)
class Validated:
    """The times of one problem in microseconds, from one comparison. ``measured``: the number of configurations that
    were timed before. ``first``: the time of the selected configuration; ``top``: the time of the fastest one of those
    that tuning at first use times; ``best``: the time of the fastest known configuration; ``vendor``, ``vendor_first``,
    ``vendor_same_layout``: the times of the best candidate of the vendor's library, of the candidate that its heuristic
    names, and of the best candidate on operands in the layout of the problem; NaN if the library has none. ``configs``:
    the selected configuration and the fastest ones."""

    problem: Problem
    measured: int
    first: float
    top: float
    best: float
    vendor: float = math.nan
    vendor_first: float = math.nan
    vendor_same_layout: float = math.nan
    configs: tuple[Config, ...] = ()

    @property
    def ratio(self) -> float:
        """The vendor's best time over that of the selected configuration."""
        return self.vendor / self.first

    def as_dict(self) -> dict[str, Any]:
        values = {name: value for name, value in asdict(self).items() if name not in ("problem", "configs")}
        known = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}
        return {"problem": self.problem.key(), "configs": [c.full_text() for c in self.configs], **known}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Validated:
        """The inverse of ``as_dict``. ValueError, TypeError, KeyError, AttributeError: a value is missing or
        invalid."""
        values = {**row}
        problem, measured = parse(values.pop("problem")), int(values.pop("measured"))
        configs = tuple(parse_config(text) for text in values.pop("configs"))
        if not configs:
            raise InputError("configs is []; it must have the selected configuration")
        times = {name: math.nan if value is None else microseconds(value) for name, value in values.items()}
        return cls(problem, measured, configs=configs, **times)


@dataclass(frozen=True)
class Summary:
    """Ratios of times in a group of problems. ``first``: the geometric mean of (time of the fastest known configuration
    / time of the choice); ``fifth``, ``worst``: the 5th percentile and the minimum of this ratio; ``top``: as
    ``first``, with the fastest configuration that tuning at first use times in place of the choice. ``compared``: the
    number of problems that the vendor's library computes; ``ratio``, ``ratio_worst``: for these, the geometric mean and
    the minimum of (the vendor's best time / time of the choice); ``ratio_first``: the mean with the candidate of the
    vendor's heuristic; ``ratio_best``: the mean with the fastest known configuration in place of the choice;
    ``slower``: the fraction of these problems whose choice is slower. ``compared_same_layout``, ``ratio_same_layout``,
    ``slower_same_layout``: as ``compared``, ``ratio`` and ``slower``, with the vendor's best time on operands in the
    layout of the problem."""

    group: str
    name: str
    problems: int
    first: float
    fifth: float
    worst: float
    top: float
    compared: int
    ratio: float
    ratio_worst: float
    ratio_first: float
    ratio_best: float
    slower: float
    compared_same_layout: int
    ratio_same_layout: float
    slower_same_layout: float


def _choices(arguments: tuple[Problem, Device, Path | None]) -> dict[Config, float]:
    """The first choices of the model for a problem, the selected one first, and their predicted microseconds."""
    problem, device, models = arguments
    model = model_from(device, models)
    return dict(model.rank(problem, device, 1)) | dict(model.rank(problem, device, POOL))


def timed_at_first_use(choices: Mapping[Config, float], measured: Sequence[Measurement]) -> list[Config]:
    """The configurations that tuning at first use would time, the selected one first, with the times in ``measured``.
    ``choices``: configurations and predicted microseconds, the selected one first."""
    us = {config_text(m.config): m.us for m in reversed(measured)}
    selected = next(iter(choices))
    pool = {c: predicted for c, predicted in choices.items() if config_text(c) in us}
    return list(explore([selected], pool, lambda some: {c: us.get(config_text(c), math.nan) for c in some}))


def _one_thread() -> None:
    os.environ["OMP_THREAD_LIMIT"] = "1"  # one process per core


class Validator:
    """Tunes new problems, then compares the choices for them with the fastest configurations and the vendor's
    library."""

    def __init__(
        self, database: Database, options: DevicePoolOptions, vendor: bool = True, progress: Progress = SILENT
    ) -> None:
        self.database, self.options, self.vendor, self.progress = database, options, vendor, progress

    def run(
        self,
        problems: Sequence[Problem],
        seconds: float = math.inf,
        keep: Callable[[Validated], object] = lambda _: None,
    ) -> list[Validated]:
        """One row for each problem that has measurements; ``keep`` is called with each row when it is complete.
        ``seconds``: the time limit of the measurements before the comparison."""
        options = self.options
        rows: list[Validated] = []
        with options.start() as device_pool:
            device, clock, jobs = device_pool.device, device_pool.clock, device_pool.jobs
            Collector(self.database, device_pool, options.budget, self.progress).run(iter(problems), Deadline(seconds))
        measured = {p: self._measured(p, device.name, clock) for p in problems}
        tuned = [p for p in problems if measured[p]]
        own = options.models / device.name if options.models is not None else None
        spawn = multiprocessing.get_context("spawn")
        with one_blas_thread(), ProcessPoolExecutor(jobs, spawn, _one_thread) as pool:
            choices = list(pool.map(_choices, [(p, device, own) for p in tuned], chunksize=4))
        self.progress.phase("compare", len(tuned))
        with MeasuringProcesses(options.driver, options.devices, options.children, options.commit) as processes:
            idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
            for worker in processes.workers:
                idle.put(worker)

            def timed(problem: Problem, ranked: Mapping[Config, float]) -> Validated | None:
                worker = idle.get()
                try:
                    chosen = timed_at_first_use(ranked, measured[problem])
                    return compare(worker, problem, chosen, measured[problem], self.vendor)
                finally:
                    idle.put(worker)

            with ThreadPoolExecutor(len(processes.workers)) as threads:
                for problem, row in zip(tuned, threads.map(timed, tuned, choices), strict=True):
                    self.progress.step(problem.key())
                    if row is None:
                        self.progress.message(f"{problem.key()} is left out: the comparison failed")
                        continue
                    keep(row)
                    rows.append(row)
        return rows

    def _measured(self, problem: Problem, device: str, clock: str) -> list[Measurement]:
        """The valid measurements of a problem, fastest first."""
        rows = self.database.measurements(problem=problem, device=device, clock=clock, outcome="ok")
        return sorted((m for m in rows if m.us > 0), key=lambda m: m.us)


def compare(
    worker: Worker, problem: Problem, chosen: Sequence[Config], measured: Sequence[Measurement], vendor: bool
) -> Validated | None:
    """Times in turn the first choice, the fastest configuration of ``chosen`` and the fastest ones of ``measured``.
    Half of the rounds determine the fastest configuration, the other half gives the times. None: a configuration
    failed."""
    of_text = {config_text(m.config): m for m in reversed(measured)}
    known = [of_text[text].config for text in map(config_text, chosen) if text in of_text]
    fastest_choice = min(known, key=lambda c: of_text[config_text(c)].us, default=chosen[0])
    finals = list(dict.fromkeys([chosen[0], fastest_choice, *(m.config for m in islice(measured, FINALISTS))]))
    baseline = next(iter(operation_of(problem).baselines), "") if vendor else ""
    samples = worker.compare(problem, finals, rounds=ROUNDS)
    if not samples:
        return None
    best = int(np.argmin([statistics.median(row[::2]) for row in samples]))
    us = [statistics.median(row[1::2] or row) for row in samples]  # a model clock has one round
    return Validated(
        problem,
        len(measured),
        us[0],
        us[finals.index(fastest_choice)],
        us[best],
        *(worker.vendor(problem, baseline) if baseline else VendorTimes(math.nan)),
        (finals[0], finals[best]),
    )


#: errors that reading rows of another form raises
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, EOFError)


def read_rows(path: Path) -> tuple[dict[str, Any], list[Validated]]:
    """The first line and the rows of a file that ``model validate --rows`` wrote. The file is compressed if its name
    ends in .xz.
    InputError: the file cannot be read, or has another form."""
    try:
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
            header = json.loads(next(lines, "null"))
            rows = [Validated.from_dict(json.loads(line)) for line in lines]
            return {**header, "device": str(header["device"])}, rows
    except OSError as error:
        raise InputError(f"from {path} cannot be read: {error.strerror or error}") from error
    except (*_DAMAGED, lzma.LZMAError) as error:
        raise InputError(
            f"from {path} is damaged; it must be a file that model validate --rows wrote: {error}"
        ) from error


def summaries(rows: Sequence[Validated]) -> Iterator[Summary]:
    """The summaries of all problems, then of the problems of each operation, problem class, arithmetic, and family of
    the fastest configuration."""
    members: dict[tuple[str, str], list[Validated]] = {}
    for row in rows:
        p = row.problem
        names = {
            "all": "",
            "operation": operation_of(p).name,
            "kind": p.problem_class,
            "dtype": arithmetic(p),
            "family": row.configs[-1].family,
        }
        for key in names.items():
            members.setdefault(key, []).append(row)
    order = list(dict.fromkeys(group for group, _ in members))
    for (group, name), part in sorted(members.items(), key=lambda m: (order.index(m[0][0]), m[0][1])):
        first = [r.best / r.first for r in part]
        compared = [r for r in part if r.vendor > 0]
        ratios = [r.ratio for r in compared]
        same_layout = [r.vendor_same_layout / r.first for r in part if r.vendor_same_layout > 0]
        yield Summary(
            group,
            name,
            len(part),
            geometric_mean(first),
            float(np.quantile(first, 0.05)),
            min(first),
            geometric_mean([r.best / r.top for r in part]),
            len(compared),
            geometric_mean(ratios),
            min(ratios, default=math.nan),
            geometric_mean([r.vendor_first / r.first for r in compared if r.vendor_first > 0]),
            geometric_mean([r.vendor / r.best for r in compared]),
            _slower(ratios),
            len(same_layout),
            geometric_mean(same_layout),
            _slower(same_layout),
        )


def _slower(ratios: Sequence[float]) -> float:
    return sum(x < SLOWER for x in ratios) / len(ratios) if ratios else math.nan
