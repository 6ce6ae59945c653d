"""Measures many problems, a few configurations of each, as training data for the model.

Processes of a pool prepare groups of problems that share kernels: they rank the configurations with the present model,
draw others at random, and assemble the kernels into the disk cache. Several child processes per device check and time
the kernels; a lock lets one of them at a time run kernels. Each child has a thread, which takes prepared problems from
a queue. The main thread alone uses the database, and stores measurements in batches.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import queue
import re
import signal
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from multiprocessing.synchronize import Event as EventOfProcesses
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from ptxgen.arguments import shown
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.render import render
from ptxgen.errors import InputError, LaunchError, PtxgenError
from ptxgen.families.common import perf_model, rules, space
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.runtime.assemble import CachedSource, assemble, find_ptxas
from ptxgen.runtime.device_lock import DeviceLock
from ptxgen.runtime.driver import Timing
from ptxgen.tuning.choice.models import model_from
from ptxgen.tuning.choice.nearest import others_tuned
from ptxgen.tuning.collect.problem_groups import groups
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.progress import SILENT, Progress, counted
from ptxgen.tuning.search.sampler import weighted_by_speed
from ptxgen.tuning.search.tuner import distance, similarity_class
from ptxgen.tuning.store.claims import Claims
from ptxgen.tuning.store.database import Database, config_text
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.seeds import seeds as shipped_seeds
from ptxgen.tuning.store.tuning_files import lookup, shipped_winners

#: the timing policy of collect, which is shorter than those of ``tune``
COLLECT_TIMING = Timing(samples=3, target_ms=0.4)
CHECKED_ELEMENTS = 1 << 15  #: elements of C that are compared, spread over its rows from the first to the last
SLOW = 3.0  #: a configuration has one sample if it takes more than this many times the fastest of its problem
REQUESTS_AHEAD = 3  #: requests that wait at a child, so that it does not idle between measurements
BATCH_SECONDS = 0.5  #: seconds between transactions of the database
CLAIM_SECONDS = 600.0  #: seconds after which the claim of a problem expires
REPORT_SECONDS = 10.0  #: seconds between messages on the progress
POLL_SECONDS = 0.1
KILLS_MOST = 3  #: a run ends when preparing processes are killed so many times in succession
READY_JOBS = 4  #: jobs per device that may be prepared ahead of the measurement
SHARED_KERNELS = 2.0  #: kernels of a group of problems, as a multiple of the configurations of one problem
DRAWN = 1 << 12  #: random rows of a space, from which configurations are drawn with a preference for fast ones
MOST_CHILDREN, CORES_PER_CHILD = 4, 4  #: measuring processes of a device, if their number is not given
PURPOSE = "collect"
NICENESS = 10  #: niceness of the preparing processes, so that the measuring ones have priority


@dataclass(frozen=True)
class CollectBudget:
    """The configurations to measure for each problem: ``configurations`` of them, besides shipped seeds and the fastest
    configurations of the ``nearest`` problems.

    A problem brings configurations of its own: the fraction ``model_share`` from the top of the model's ranking, the
    others at random from the legal space. Problems that share kernels are measured in groups of up to ``group``. In a
    group each problem brings fewer configurations; to complete its number, the model picks the fastest of those that
    the others bring. ``seed``: the seed of the random draws."""

    configurations: int = 28
    model_share: float = 0.7
    nearest: int = 3
    seed: int = 0
    group: int = 1

    def __post_init__(self) -> None:
        if self.configurations < 1:
            raise InputError(f"configurations is {self.configurations}; it must be at least 1")
        if not 0.0 <= self.model_share <= 1.0:
            raise InputError(f"model-share is {self.model_share:g}; it must be from 0 to 1")
        if self.group < 1:
            raise InputError(f"group is {self.group}; it must be at least 1")

    def own(self, problems: int) -> int:
        """The number of configurations that each problem adds to its group, which has ``problems`` problems."""
        return min(self.configurations, math.ceil(SHARED_KERNELS * self.configurations / problems))


@dataclass(frozen=True)
class Job:
    """Problems to prepare together. ``stored``: for each problem the configurations that are already measured, with the
    digests of their kernels; ``near``: the fastest configurations of problems similar to the first one."""

    problems: tuple[Problem, ...]
    stored: tuple[Mapping[str, str], ...] = ()
    near: tuple[Config, ...] = ()


@dataclass(frozen=True)
class Usage:
    """The seconds that the processes of device pools spent, summed over processes. Measuring processes: ``waited``
    without a prepared problem, ``measured`` with one; of the latter, ``locked`` with the device to themselves and
    ``queued`` waiting for the device. Preparing processes: ``choosing``, ``rendering``, ``assembling``."""

    waited: float = 0.0
    measured: float = 0.0
    locked: float = 0.0
    queued: float = 0.0
    choosing: float = 0.0
    rendering: float = 0.0
    assembling: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Prepared:
    """A problem and its configurations to measure. Each configuration has the fields of its ``CachedSource`` beside it
    if the disk cache has its kernel, else None."""

    problem: Problem
    configs: tuple[tuple[Config, dict[str, Any] | None], ...]


class Preparer:
    """Chooses configurations for problems and assembles their kernels. ``models``: the folder of the user's model;
    ``assembles``: True if kernels are assembled; ``stopping``: if it returns True, the work ends with CancelledError;
    ``seconds``: the time spent, by phase."""

    def __init__(
        self,
        device: Device,
        models: Path | None,
        budget: CollectBudget,
        assembles: bool,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.device, self.budget, self.assembles, self.stopping = device, budget, assembles, stopping
        self.model = model_from(device, models)
        self.seconds: dict[str, float] = {}

    def prepare(self, job: Job) -> list[Prepared | Failed]:
        """The problems of a job, each with its configurations or with the error that choosing them raised."""
        with self._timed("choosing"):
            chosen = self.choose(job)
        assembled: set[str] = set()
        out: list[Prepared | Failed] = []
        known = job.stored or ({},) * len(job.problems)
        for problem, configs, stored in zip(job.problems, chosen, known, strict=True):
            try:
                if isinstance(configs, Exception):
                    raise configs
                out.append(self._assembled(problem, configs, stored, assembled))
            except CancelledError:
                raise
            except Exception as error:  # the others of the group are measured
                out.append(Failed(problem, f"{type(error).__name__}: {error}"))
        return out

    def _assembled(
        self, problem: Problem, configs: Sequence[Config], stored: Mapping[str, str], assembled: set[str]
    ) -> Prepared:
        """A problem and those of its configurations that are not measured yet, assembled. ``assembled``: the digests of
        kernels that are in the disk cache; the method adds those of new kernels."""
        out: list[tuple[Config, dict[str, Any] | None]] = []
        for config in configs:
            self._check()
            text, source = config_text(config), None
            if self.assembles:
                with suppress(PtxgenError):  # the child gets the same error and reports it
                    with self._timed("rendering"):
                        made = render(plan_for(problem, config, self.device))
                    if stored.get(text) == made.digest:
                        continue
                    if made.digest not in assembled:
                        with self._timed("assembling"):
                            assemble(made)
                        assembled.add(made.digest)
                    source = asdict(CachedSource.of(made))
            elif text in stored:
                continue
            out.append((config, source))
        return Prepared(problem, tuple(out))

    def choose(self, job: Job) -> list[list[Config] | Exception]:
        """For each problem its configurations, or an error. They are the model's first choice, known good
        configurations, the other choices of the model, random configurations, and the fastest configurations of the
        group's other problems."""
        own: list[Chosen | Exception] = []
        for problem in job.problems:
            self._check()
            try:
                own.append(self._chosen(problem, self.budget.own(len(job.problems)), job.near))
            except Exception as error:  # the others of the group are prepared
                own.append(error)
        shared = list(dict.fromkeys(config for one in own if isinstance(one, Chosen) for config in one.own))
        return [
            self._completed(problem, one, shared) if isinstance(one, Chosen) else one
            for problem, one in zip(job.problems, own, strict=True)
        ]

    def _chosen(self, problem: Problem, number: int, near: Sequence[Config]) -> Chosen:
        """The configurations of one problem: ``number`` of them, and known good ones in addition."""
        budget, p = self.budget, lower(problem)
        count = round(number * budget.model_share)
        ranked = [config for config, _ in self.model.rank(problem, self.device, count)] if count else []
        known = [*self._winners(problem), *shipped_seeds(problem, self.device.name), *near]
        legal = [config for config in known if rules.first_violation(p, config, self.device) is None]
        whole = space.candidates(p, self.device)
        rng = np.random.default_rng([budget.seed, zlib.crc32(problem.key().encode())])
        if len(whole) > DRAWN:
            whole = whole.take(np.sort(rng.choice(len(whole), DRAWN, replace=False)))
        us = perf_model.predict(p, whole, self.device)
        drawn = [whole.row(int(i)) for i in weighted_by_speed(us, budget.configurations - count, rng)]
        configs = list(dict.fromkeys([*ranked[:1], *legal, *ranked[1:], *drawn[: number - count]]))
        return Chosen(configs, drawn[number - count :], budget.configurations + len(set(legal) - set(ranked)))

    def _winners(self, problem: Problem) -> list[Config]:
        """The shipped winner of the device, or else of the nearest device of its compute capability that has one."""
        devices = self.device, *others_tuned(self.device)
        return [m.config for d in devices if (m := lookup(problem, d.name)) is not None][:1]

    def _completed(self, problem: Problem, chosen: Chosen, shared: Sequence[Config]) -> list[Config]:
        """The problem's own configurations, then those of ``shared`` that the model predicts to be fastest, then random
        ones if these are too few."""
        p, missing = lower(problem), chosen.number - len(chosen.own)
        others = [c for c in shared if c not in chosen.own and rules.first_violation(p, c, self.device) is None]
        if missing < len(others):
            us = self.model.predict(problem, Columns.of(others))
            others = [others[i] for i in np.argsort(us, kind="stable")[: max(missing, 0)]]
        return list(dict.fromkeys([*chosen.own, *others, *chosen.spare[: max(missing - len(others), 0)]]))

    def _check(self) -> None:
        if self.stopping():
            raise CancelledError

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began


@dataclass(frozen=True)
class Chosen:
    """The configurations chosen for a problem of a group. ``own``: those that the problem brings; ``spare``: random
    ones in reserve; ``number``: how many to measure."""

    own: list[Config]
    spare: list[Config]
    number: int


_preparer: Preparer | None = None  #: the preparer of a process of the pool


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Processes that are started within the block use one thread for NumPy's matrix products, because there is one
    process per core."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _start_preparing(
    stopping: EventOfProcesses, device: Device, models: Path | None, budget: CollectBudget, assembles: bool
) -> None:
    global _preparer
    os.environ["OMP_THREAD_LIMIT"] = "1"  # one process per core: XGBoost, loaded later, must not start more threads
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _preparer = Preparer(device, models, budget, assembles, stopping.is_set)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _prepare(job: Job) -> tuple[list[Prepared | Failed], Usage]:
    """The prepared problems of a job, and the seconds that the preparation took."""
    assert _preparer is not None
    _preparer.seconds.clear()
    return _preparer.prepare(job), Usage(**_preparer.seconds)


class NearestConfigs:
    """The fastest known configurations of problems, which can be looked up for similar problems."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], dict[Problem, Config]] = {}

    def add(self, problem: Problem, config: Config) -> None:
        self._known.setdefault(similarity_class(problem), {})[problem] = config

    def of(self, problem: Problem, count: int) -> tuple[Config, ...]:
        """The fastest known configurations of the ``count`` other problems of the similarity class that are nearest to
        ``problem``."""
        known = self._known.get(similarity_class(problem), {})
        others = sorted((q for q in known if q != problem), key=lambda q: distance(q, problem))
        return tuple(dict.fromkeys(known[q] for q in others[:count]))


@dataclass(frozen=True)
class Finished:
    """All configurations of a problem are measured."""

    problem: Problem


@dataclass(frozen=True)
class Failed:
    """A problem could not be prepared. ``why``: the error."""

    problem: Problem
    why: str


#: the events of a job, with which ``Notify`` is called in threads of the device pool; an exception means that the pool
#: cannot continue
Event = Measurement | Finished | Failed | Exception
Notify = Callable[[Event], None]


class DeviceThread(threading.Thread):
    """Measures prepared problems with one child. ``waited``, ``measured``: seconds without and with a prepared
    problem."""

    def __init__(self, worker: Worker, ready: queue.Queue[tuple[Prepared, Notify]]) -> None:
        super().__init__(daemon=True)
        self.worker, self.ready = worker, ready
        self.stopping = threading.Event()
        self.waited = self.measured = 0.0

    def run(self) -> None:
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                prepared, notify = self.ready.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            finally:
                self.waited += time.monotonic() - began
            began = time.monotonic()
            try:
                self._measure(prepared, notify)
            except Exception as error:
                notify(error)
                return
            finally:
                self.measured += time.monotonic() - began

    def _measure(self, prepared: Prepared, notify: Notify) -> None:
        """Measures a problem, with requests sent ahead of their answers. When ``stopping`` is set, the requests that
        were sent are still answered."""
        worker, best, rest = self.worker, math.inf, list(reversed(prepared.configs))
        while True:
            while rest and len(worker.requests) < REQUESTS_AHEAD and not self.stopping.is_set():
                config, source = rest.pop()
                options = {"source": source} if source is not None else {}
                timing = replace(COLLECT_TIMING, limit_us=SLOW * best)
                worker.send(prepared.problem, config, timing, PURPOSE, elements=CHECKED_ELEMENTS, **options)
            if self.stopping.is_set() and worker.child is None:  # Ctrl-C ended the child, too
                worker.requests.clear()
            if not worker.requests:
                break
            measurement = worker.receive()
            best = min(best, measurement.us)
            notify(measurement)
        if not rest:
            notify(Finished(prepared.problem))


class JobRunner(Protocol):
    """The interface through which a ``Collector`` submits jobs to devices, of this machine or of several."""

    device: Device
    clock: str
    capacity: int

    @property
    def usage(self) -> Usage: ...

    def submit(self, job: Job, notify: Notify) -> None: ...

    def stop(self) -> None: ...


class MeasuringProcesses:
    """The processes that measure on the GPUs of this machine, as a context manager. The ``children`` processes of a GPU
    use it in turn. ``driver``: as for ``open_driver``; ``devices``: the numbers of the GPUs."""

    def __init__(self, driver: str, devices: Sequence[int], children: int | None = None, commit: str = "") -> None:
        """``children``: processes for each GPU; by default one per CORES_PER_CHILD cores, at most MOST_CHILDREN."""
        name = driver.partition(":")[0]  # a process sees one GPU
        cores = (os.cpu_count() or 1) // len(devices)
        self.children = children = children or max(1, min(MOST_CHILDREN, cores // CORES_PER_CHILD))
        self.locks = [DeviceLock.create() for _ in devices] if children > 1 else []
        self.workers = [
            Worker(name, commit=commit, variables=visible_device(i), lock=lock, sharing=children)
            for i, lock in zip_longest(devices, self.locks)
            for _ in range(children)
        ]

    def start(self) -> list[Device]:
        """Starts all processes, and returns the device of each. LaunchError: a device cannot be used. InputError: the
        devices are not of one model."""
        try:
            with ThreadPoolExecutor(len(self.workers)) as starters:
                gpus = [Device(**started["device"]) for started in starters.map(Worker.start, self.workers)]
            if len(set(gpus)) > 1:
                raise InputError(f"devices are {', '.join(d.name for d in gpus)}; they must be one model")
        except BaseException:
            self.stop()
            raise
        return gpus

    def stop(self) -> None:
        """Ends all processes."""
        for worker in self.workers:
            worker.stop()
        for lock in self.locks:
            os.close(lock)
        self.locks = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class PreparingProcesses:
    """The ``jobs`` processes that prepare problems, each with a ``Preparer``. If a process is killed, for example for
    lack of memory, all processes are started again, and the jobs that were lost are prepared once more."""

    def __init__(self, jobs: int, device: Device, models: Path | None, budget: CollectBudget, assembles: bool) -> None:
        self.jobs = jobs
        self.context = multiprocessing.get_context("spawn")
        self.stopping = self.context.Event()
        self.arguments = self.stopping, device, models, budget, assembles
        self.lock = threading.Lock()
        self.kills = 0  #: since a job was prepared
        self.usage = Usage()
        self.pools = [self._started()]  #: the last one works, the others are broken

    @property
    def pool(self) -> ProcessPoolExecutor:
        return self.pools[-1]

    def _started(self) -> ProcessPoolExecutor:
        with one_blas_thread():
            pool = ProcessPoolExecutor(self.jobs, self.context, _start_preparing, self.arguments)
            pool.submit(os.getpid)  # starts all processes
        return pool

    def submit(
        self, job: Job, notify: Callable[[Sequence[Prepared | Failed | Exception]], None], lost: int = 0
    ) -> None:
        """Prepares the problems of a job; ``notify`` receives the prepared problems, or an error, for example if
        processes are killed again and again. ``lost``: how often the job was lost so far."""
        pool = self.pool

        def prepared(done: Future[tuple[list[Prepared | Failed], Usage]]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, BrokenExecutor):
                self._prepare_again(pool, job, notify, lost + 1, error)
            elif error is not None:
                notify([Failed(problem, f"{type(error).__name__}: {error}") for problem in job.problems])
            else:
                prepared_rows, usage = done.result()
                with self.lock:
                    self.kills = 0
                    self.usage += usage
                notify(prepared_rows)

        try:
            future = pool.submit(_prepare, job)
        except BrokenExecutor as error:
            self._prepare_again(pool, job, notify, lost, error)
        except RuntimeError:  # the processes were stopped
            return
        else:
            future.add_done_callback(prepared)

    def _prepare_again(
        self,
        broken: ProcessPoolExecutor,
        job: Job,
        notify: Callable[[Sequence[Prepared | Failed | Exception]], None],
        lost: int,
        error: BrokenExecutor,
    ) -> None:
        with self.lock:
            if self.stopping.is_set():
                return
            if self.pool is broken:
                self.kills += 1
                if self.kills <= KILLS_MOST:
                    self.pools.append(self._started())
            ended = self.kills > KILLS_MOST
        if ended:
            notify([LaunchError(f"processes that prepare problems ended {self.kills} times in succession: {error}")])
        elif lost > 1:
            notify([Failed(problem, f"{type(error).__name__}: {error}") for problem in job.problems])
        else:
            self.submit(job, notify, lost)

    def stop(self) -> None:
        """Ends the jobs that run, and waits for the processes."""
        with self.lock:
            self.stopping.set()
        for pool in self.pools:
            pool.shutdown(cancel_futures=True)


class DevicePool:
    """The devices of this machine and the processes that prepare problems for them; a context manager.

    ``device``, ``clock``: the common model and clock of all devices; ``capacity``: the number of jobs to submit ahead;
    ``jobs``: the number of preparing processes; ``children``: the number of measuring processes of each device.
    LaunchError: a device cannot be used. InputError: the devices are not of one model.
    """

    def __init__(
        self,
        budget: CollectBudget,
        driver: str = "auto",
        devices: Sequence[int] = (0,),
        jobs: int | None = None,
        models: Path | None = None,
        commit: str = "",
        children: int | None = None,
    ) -> None:
        """``jobs``: the number of preparing processes; by default the number of cores minus one per device. ``models``:
        the folder that has, for each device, a folder with the user's model. ``children``: the number of measuring
        processes of each device; by default one per CORES_PER_CHILD cores, at most MOST_CHILDREN."""
        self.ready: queue.Queue[tuple[Prepared, Notify]] = queue.Queue()
        self.processes = MeasuringProcesses(driver, devices, children, commit)
        self.workers, self.children = self.processes.workers, self.processes.children
        gpus = self.processes.start()
        self.device, self.clock = gpus[0], self.workers[0].environment.clock
        self.threads = [DeviceThread(worker, self.ready) for worker in self.workers]
        self.jobs = jobs = jobs or max(1, (os.cpu_count() or 1) - len(devices))
        self.capacity = jobs + READY_JOBS * len(devices)
        folder = models / self.device.name if models is not None else None
        assembles = self.clock == "hardware" and find_ptxas() is not None
        self.preparing = PreparingProcesses(jobs, self.device, folder, budget, assembles)
        for thread in self.threads:
            thread.start()

    @property
    def usage(self) -> Usage:
        """The seconds that all processes have spent since the start."""
        spent = [worker.spent for worker in self.workers]
        return self.preparing.usage + Usage(
            waited=sum(thread.waited for thread in self.threads),
            measured=sum(thread.measured for thread in self.threads),
            locked=sum(s["locked"] for s in spent),
            queued=sum(s["queued"] for s in spent),
        )

    def submit(self, job: Job, notify: Notify) -> None:
        """Prepares and measures the problems of a job; for each problem, ``notify`` receives its measurements and then
        ``Finished``, or else ``Failed`` or an exception."""

        def prepared(kernels: Sequence[Prepared | Failed | Exception]) -> None:
            for one in kernels:
                if isinstance(one, Prepared):
                    self.ready.put((one, notify))
                else:
                    notify(one)

        self.preparing.submit(job, prepared)

    def stop(self) -> None:
        """Ends all processes, after the measurements that the devices have begun."""
        for thread in self.threads:
            thread.stopping.set()
        # waited for below: a pool that still ends when the interpreter exits can fail there, as that writes to its pipe
        ending = threading.Thread(target=self.preparing.stop)
        ending.start()
        for thread in self.threads:
            thread.join()
        self.processes.stop()
        ending.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def visible_device(index: int) -> dict[str, str]:
    """The environment variables of a child that sees one of the GPUs that this process sees."""
    seen = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if seen and index >= len(seen):
        raise InputError(f"devices has {index}; CUDA_VISIBLE_DEVICES lists {len(seen)}, counted from 0")
    return {"CUDA_VISIBLE_DEVICES": seen[index] if seen else str(index)}


def read_devices(text: str) -> tuple[int, ...]:
    """Device numbers written as ``0-3`` or ``0,2``. InputError: the text has another form, or names a device twice."""
    out: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", part.strip())
        if match is None:
            raise InputError(f"devices is {shown(text)}; it must be numbers and ranges, as 0-3 or 0,2")
        out += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(out)) != len(out) or not out:
        raise InputError(f"devices is {shown(text)}; it must name at least one device, and each one once")
    return tuple(out)


@dataclass
class Collected:
    """The result of a run. ``problems``: the number of completed problems; ``skipped``: the number that had enough
    measurements, or that another collector measures; ``failed``: the number for which no configurations could be
    chosen; ``measurements``, ``outcomes``: the number of measurements, in all and by outcome; ``seconds``: the time
    since the start of the deadline; ``usage``: the times of the processes."""

    problems: int = 0
    skipped: int = 0
    failed: int = 0
    measurements: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    usage: Usage = Usage()

    @property
    def rate(self) -> float:
        """Measurements per second."""
        return self.measurements / self.seconds if self.seconds else 0.0


class Collector:
    """Submits problems to a device pool, and stores the measurements in the database."""

    def __init__(
        self, database: Database, device_pool: JobRunner, budget: CollectBudget, progress: Progress = SILENT
    ) -> None:
        self.database, self.device_pool, self.budget, self.progress = database, device_pool, budget, progress
        self.device, self.clock = device_pool.device.name, device_pool.clock
        self.claims = Claims(database, self.device, self.clock)
        self.result = Collected()
        self.events: queue.Queue[Event] = queue.Queue()
        self.unsaved: list[Measurement] = []
        self.active: dict[Problem, Measurement | None] = {}  #: submitted problems and their fastest measurement
        self.nearest = NearestConfigs()
        shipped = shipped_winners(self.device)
        for m in (*(shipped[key] for key in shipped), *database.fastest(self.device, self.clock)):
            self.nearest.add(m.problem, m.config)

    def run(self, problems: Iterable[Problem], deadline: Deadline | None = None) -> Collected:
        """Measures ``problems`` until all are done, or until ``deadline``. When the method returns or raises, all
        measurements are stored."""
        deadline = deadline or Deadline()
        saved = reported = deadline.began
        source: Iterator[list[Problem]] | None = groups(filter(_has_results, problems), self.budget.group)
        most = self.device_pool.capacity * self.budget.group
        try:
            while True:
                ended, now = deadline.passed, time.monotonic()
                self.result.seconds, self.result.usage = now - deadline.began, self.device_pool.usage
                if ended:
                    break
                if now - saved >= BATCH_SECONDS:
                    self._save()
                    saved = now
                if now - reported >= REPORT_SECONDS:
                    self.progress.message(summary(self.result))
                    reported = now
                while source is not None and len(self.active) < most:
                    group = next(source, None)
                    if group is None:
                        source = None
                    elif not self._submit(group):
                        break  # many may be skipped: the time limit also applies meanwhile
                if source is None and not self.active:
                    break
                self._take(POLL_SECONDS if len(self.active) >= most or source is None else 0.0)
        finally:
            self.device_pool.stop()
            while not self.events.empty():
                event = self.events.get()
                if isinstance(event, Measurement):
                    self._measured(event)
            self._save()
            self.claims.release()
        return self.result

    def _submit(self, group: Sequence[Problem]) -> bool:
        """Submits the problems of a group that are not measured yet. False: all of them are skipped."""
        stored: dict[Problem, Mapping[str, str]] = {}
        for problem in group:
            if problem in self.active:
                continue
            known = self.database.measured(problem, self.device, self.clock, str(COLLECT_TIMING))
            if len(known) >= self.budget.configurations or not self.claims.take(problem, seconds=CLAIM_SECONDS):
                self.result.skipped += 1
                continue
            stored[problem], self.active[problem] = known, None
        if not stored:
            return False
        near = self.nearest.of(next(iter(stored)), self.budget.nearest)
        self.device_pool.submit(Job(tuple(stored), tuple(stored.values()), near), self.events.put)
        return True

    def _take(self, seconds: float) -> None:
        """Handles the next event, if one comes within ``seconds``."""
        try:
            event = self.events.get(timeout=seconds) if seconds else self.events.get_nowait()
        except queue.Empty:
            return
        if isinstance(event, Measurement):
            self._measured(event)
        elif isinstance(event, Finished):
            self._finished(event.problem)
        elif isinstance(event, Failed):
            self._failed(event)
        else:
            raise event

    def _measured(self, m: Measurement) -> None:
        if m.inconclusive:  # the child was ended from outside
            return
        self.unsaved.append(m)
        self.result.measurements += 1
        self.result.outcomes[m.outcome] += 1
        best = self.active.get(m.problem)
        if m.outcome == "ok" and (best is None or m.us < best.us):
            self.active[m.problem] = m
        self.progress.step(m.problem.key())

    def _finished(self, problem: Problem) -> None:
        best = self.active.pop(problem)
        self.result.problems += 1
        if best is not None:
            self.nearest.add(problem, best.config)
        self._save()
        self.claims.release(problem)

    def _failed(self, event: Failed) -> None:
        del self.active[event.problem]
        self.result.failed += 1
        self.progress.message(f"{event.problem.key()} is skipped: {event.why}")
        self.claims.release(event.problem)

    def _save(self) -> None:
        """Stores the new measurements in one transaction."""
        if self.unsaved:
            self.database.add_all(self.unsaved)
            self.unsaved.clear()


def _has_results(problem: Problem) -> bool:
    return bool(lower(problem).extents.item[0])


def summary(done: Collected) -> str:
    """One line on the progress of a run."""
    failed = ", ".join(f"{n} {outcome}" for outcome, n in done.outcomes.items() if outcome != "ok")
    return (
        f"{done.seconds:.0f} s: {counted(done.problems, 'problem')}, {counted(done.measurements, 'measurement')}"
        + (f" ({failed})" if failed else "")
        + f", {done.rate:.1f} per second; {done.skipped} skipped"
        + (f", {done.failed} failed" if done.failed else "")
    )


def usage_summary(usage: Usage) -> str:
    """Two lines on where the time of a run went."""
    host = max(usage.measured - usage.locked - usage.queued, 0.0)
    return (
        f"seconds of measuring processes: {usage.waited:.1f} without a prepared problem, {usage.locked:.1f} with the"
        f" device, {usage.queued:.1f} waiting for it, {host:.1f} other\n"
        f"seconds of preparing processes: {usage.choosing:.1f} choosing, {usage.rendering:.1f} rendering,"
        f" {usage.assembling:.1f} assembling"
    )


__all__ = [
    "COLLECT_TIMING",
    "CollectBudget",
    "Collected",
    "Collector",
    "DevicePool",
    "read_devices",
    "summary",
    "usage_summary",
]
