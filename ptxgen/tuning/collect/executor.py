"""Collects measurements on several machines: sends jobs to a ``concurrent.futures.Executor``, for example Dask's.

A process of the executor keeps one ``DevicePool``, with the devices of its machine, for all jobs that run in its
threads. Only this module imports distributed.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ptxgen.arguments import shown
from ptxgen.errors import InputError, UnavailableError
from ptxgen.install_advice import install_extra
from ptxgen.problem.device import Device
from ptxgen.tuning.collect.collect import (
    POLL_SECONDS,
    CollectBudget,
    DevicePool,
    Event,
    Failed,
    Finished,
    Job,
    Notify,
    Usage,
)
from ptxgen.tuning.store.measurement import Measurement

IDLE_SECONDS = 60.0  #: seconds after which a process without jobs stops its device pool
STOP_SECONDS = 60.0  #: seconds to wait at the end of a run for jobs that have not ended
CONNECT_SECONDS = 30.0  #: seconds to wait for a scheduler, and for its first worker
SCHEME = "dask://"
PROCESS = uuid.uuid4().hex  #: names this process among those of all machines


@dataclass(frozen=True)
class DevicePoolOptions:
    """The arguments of a ``DevicePool``."""

    budget: CollectBudget
    driver: str = "auto"
    devices: tuple[int, ...] = (0,)
    jobs: int | None = None
    models: Path | None = None
    commit: str = ""
    children: int | None = None

    def start(self) -> DevicePool:
        if multiprocessing.current_process().daemon:
            raise UnavailableError("a daemonic process cannot start others; start the Dask worker with --no-nanny")
        return DevicePool(self.budget, self.driver, self.devices, self.jobs, self.models, self.commit, self.children)


class SharedDevicePool:
    """The device pool of a process, which all threads that run jobs with these options share. A context manager: its
    block has the pool, which is started if necessary. The pool is stopped after ``IDLE_SECONDS`` without a job, or by
    ``discard``."""

    def __init__(self, options: DevicePoolOptions) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.device_pool: DevicePool | None = None
        self.running = 0
        self.timer: threading.Timer | None = None

    def __enter__(self) -> DevicePool:
        with self.lock:
            if self.timer is not None:
                self.timer.cancel()
            if self.device_pool is None:
                self.device_pool = self.options.start()
            self.running += 1
            return self.device_pool

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.running -= 1
            if not self.running:
                self.timer = threading.Timer(IDLE_SECONDS, self.stop)
                self.timer.daemon = True
                self.timer.start()

    def stop(self) -> None:
        """Stops the device pool, unless jobs use it."""
        with self.lock:
            if self.device_pool is not None and not self.running:
                self.device_pool.stop()
                self.device_pool = None

    def discard(self, device_pool: DevicePool) -> None:
        """Stops ``device_pool``, which cannot continue, so that the next job starts a new one."""
        with self.lock:
            if self.device_pool is device_pool:
                self.device_pool = None
                device_pool.stop()


_shared: dict[DevicePoolOptions, SharedDevicePool] = {}  #: the device pools of this process
_shared_lock = threading.Lock()


def _of_process(options: DevicePoolOptions) -> SharedDevicePool:
    with _shared_lock:
        return _shared.setdefault(options, SharedDevicePool(options))


@dataclass(frozen=True)
class JobResult:
    """The result of a job. ``process``: the name of the process that ran the job; ``usage``: the times of its device
    pool since the pool started; ``events``: the events of the job in order."""

    process: str
    usage: Usage
    events: tuple[Event, ...]


def describe(options: DevicePoolOptions) -> tuple[Device, str]:
    """The device and the clock of the machine that runs this function."""
    with _of_process(options) as device_pool:
        return device_pool.device, device_pool.clock


def run_job(options: DevicePoolOptions, job: Job, device: str, clock: str) -> JobResult:
    """Prepares and measures the problems of a job on the machine that runs this function. InputError: its device or
    clock is not ``device`` or ``clock``."""
    shared = _of_process(options)
    with shared as device_pool:
        if (device_pool.device.name, device_pool.clock) != (device, clock):
            raise InputError(f"devices are {device} and {device_pool.device.name}; they must be one model")
        events: queue.Queue[Event] = queue.Queue()
        received: list[Event] = []
        left = set(job.problems)
        device_pool.submit(job, events.put)
        while left:
            try:
                event = events.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if shared.device_pool is not device_pool:  # another job reported that it cannot continue
                    received += [Failed(problem, "the device pool has ended") for problem in left]
                    break
                continue
            received.append(event)
            if isinstance(event, Finished | Failed):
                left.discard(event.problem)
            elif not isinstance(event, Measurement):
                shared.discard(device_pool)
                break
        return JobResult(PROCESS, device_pool.usage, tuple(received))


class ExecutorPool:
    """Runs each job in a thread of an executor, whose processes may be on several machines; used like ``DevicePool``.

    ``capacity``: the number of threads of the executor; each machine should have as many as it has cores. A job reports
    its measurements when it ends.
    """

    def __init__(self, executor: Executor, options: DevicePoolOptions, capacity: int) -> None:
        self.executor, self.options, self.capacity = executor, options, capacity
        self.device, self.clock = executor.submit(describe, options).result()
        self.futures: set[Future[JobResult]] = set()
        self._usage: dict[str, Usage] = {}

    @property
    def usage(self) -> Usage:
        """The seconds that all processes have spent since their device pools started."""
        return sum(self._usage.copy().values(), Usage())

    def submit(self, job: Job, notify: Notify) -> None:
        """As ``DevicePool.submit``; ``notify`` receives all events of a job when the job ends."""

        def completed(done: Future[JobResult]) -> None:
            if not done.cancelled():
                self._notify(done, notify)
            self.futures.discard(done)

        future = self.executor.submit(run_job, self.options, job, self.device.name, self.clock)
        self.futures.add(future)
        future.add_done_callback(completed)

    def _notify(self, done: Future[JobResult], notify: Notify) -> None:
        error = done.exception()
        if isinstance(error, Exception):
            notify(error)
        elif error is None:
            result = done.result()
            self._usage[result.process] = result.usage
            for event in result.events:
                notify(event)

    def stop(self) -> None:
        """Waits at most ``STOP_SECONDS`` until the submitted jobs have reported their events, then cancels the
        others."""
        until = time.monotonic() + STOP_SECONDS
        while self.futures and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        for late in self.futures.copy():
            late.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def require(address: str) -> tuple[Any, dict[str, str]]:
    """Dask's client class, and its arguments for ``address``, the argument of ``dask_executor``. InputError: the
    address has another form. UnavailableError: distributed is not installed, or the scheduler file is missing."""
    place = address.removeprefix(SCHEME)
    if not address.startswith(SCHEME) or not place:
        raise InputError(f"executor is {shown(address)}; it must be dask://HOST:PORT or dask://FILE, a scheduler file")
    try:
        import distributed
    except ImportError as error:
        raise UnavailableError(f"executor needs the package distributed: {install_extra('dask')}") from error
    if place.endswith(".json") and not Path(place).is_file():  # distributed would wait for it without end
        raise UnavailableError(f"the scheduler file {place} does not exist")
    client: Any = distributed.Client  # distributed has no complete annotations
    return client, {"scheduler_file": place} if place.endswith(".json") else {"address": f"tcp://{place}"}


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, int]]:
    """The executor of a Dask cluster, and the number of its threads. ``address``: ``dask://HOST:PORT``, or ``dask://``
    and the path of a scheduler file. InputError: the address has another form. UnavailableError: distributed is not
    installed, the scheduler does not answer, or it has no worker."""
    connect, to = require(address)
    place = address.removeprefix(SCHEME)
    try:
        client = connect(**to, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"the Dask scheduler at {place} does not answer: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise UnavailableError(f"the Dask scheduler at {place} has no worker") from error
        yield client.get_executor(pure=False), sum(client.nthreads().values())


__all__ = ["DevicePoolOptions", "ExecutorPool", "JobResult", "dask_executor", "require", "run_job"]
