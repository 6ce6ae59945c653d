"""Times vendors' libraries on many problems, as training data of the models that predict them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ptxgen.problem.operation import vendor_of
from ptxgen.problem.registry import Problem
from ptxgen.tuning.collect.collect import CHECKED_ELEMENTS, COLLECT_TIMING, MeasuringProcesses
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.progress import SILENT, Progress
from ptxgen.tuning.store.vendor_files import VendorTime


@dataclass
class Collected:
    """The result of ``collect``. ``rows``: the times, one a problem; ``failed``: problems without a time, by outcome or
    first words of the error; ``without``: problems that no library computes for calls."""

    rows: list[VendorTime] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    without: int = 0


def collect(
    processes: MeasuringProcesses,
    problems: Iterable[Problem],
    clock: str,
    deadline: Deadline,
    progress: Progress = SILENT,
) -> Collected:
    """Times the algorithm that the heuristic of a problem's library names, after a check of its result, until the
    problems end or the deadline passes. ``processes``: started processes, each of which takes the next problem when it
    is idle; ``clock``: the clock of their devices."""
    done, lock, source = Collected(), threading.Lock(), iter(problems)
    known: set[Problem] = set()

    def take() -> Problem | None:
        """The next problem that a library computes; None: there is none."""
        with lock:
            while not deadline.passed:
                problem = next(source, None)
                if problem is None:
                    return None
                if problem in known:
                    continue
                known.add(problem)
                if vendor_of(problem, clock) is not None:
                    return problem
                done.without += 1
        return None

    def work(worker: Worker) -> None:
        while (problem := take()) is not None:
            m = worker.heuristic(problem, COLLECT_TIMING, CHECKED_ELEMENTS)
            with lock:
                if m is not None and m.outcome == "ok":
                    done.rows.append(VendorTime(problem, m.library, m.version, m.us))
                else:
                    done.failed["no answer" if m is None else f"{m.outcome}: {m.message}"[:60]] += 1
                progress.step(problem.key())

    with ThreadPoolExecutor(len(processes.workers)) as threads:
        list(threads.map(work, processes.workers))
    return done
