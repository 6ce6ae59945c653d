"""Measures in a child process, so that a kernel that crashes, hangs or corrupts its CUDA context does not affect the
parent.

Parent and child exchange JSON, one line per message. The parent alone writes the database. The child ends with its
parent, even while it waits for a kernel that hangs: the operating system signals it when a pipe between them is closed.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

from ptxgen import file_digests
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import ConfigError, LaunchError, PtxgenError, UnavailableError
from ptxgen.problem.operation import VendorTimes
from ptxgen.problem.registry import Problem, parse
from ptxgen.runtime.assemble import CachedSource
from ptxgen.runtime.device_lock import LOCKED_SECONDS, DeviceLock
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver
from ptxgen.tuning.measure.bench import PAIRED_TIMING, SEARCH_TIMING, Bench
from ptxgen.tuning.store.measurement import (
    ENDED_OUTSIDE,
    Environment,
    Measurement,
    VendorMeasurement,
    from_dict,
    vendor_from_dict,
)

START_SECONDS = 120.0
MEASURE_SECONDS = 60.0
#: program of the child: imports the parent's ptxgen from the folder in its first argument, then moves that folder to
#: the end of the search path. With -P, neither it nor the current folder can hide a module of the standard library.
CHILD = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import ptxgen
sys.path.append(sys.path.pop(0))
from ptxgen.tuning.measure.worker import main
main()
"""
HANGS = "the kernel ran"  #: begins the message on a child that had the device for too long
#: signals that users and other programs send; a faulty kernel does not cause them
EXTERNAL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Request:
    """A measurement that was requested. ``policy``: its timing policy as text; ``text``: the message to the child."""

    problem: Problem
    config: Config
    purpose: str
    policy: str
    text: str


class Worker:
    """A child process with its own driver. Another child is started when it dies.

    ``driver``: the name of the driver; ``seconds``: the timeout of one measurement; ``variables``: environment
    variables of the child, for example CUDA_VISIBLE_DEVICES. ``lock``: the file descriptor of the ``DeviceLock`` of the
    device, which ``sharing`` workers share; None: no other worker uses the device. ``spent``: the seconds ``locked``
    and ``queued`` of all children, as in ``DeviceLock``.
    """

    def __init__(
        self,
        driver: str = "auto",
        seconds: float = MEASURE_SECONDS,
        commit: str = "",
        variables: Mapping[str, str] | None = None,
        lock: int | None = None,
        sharing: int = 1,
    ) -> None:
        self.driver, self.commit, self.lock, self.sharing = driver, commit, lock, sharing
        self.seconds = seconds + (sharing - 1) * LOCKED_SECONDS  # kernels of the others may hang meanwhile
        self.variables = dict(variables or {})
        self.spent: Counter[str] = Counter()
        self.requests: deque[Request] = deque()  #: those without an answer, oldest first
        self.child: subprocess.Popen[str] | None = None
        self.lifeline: IO[bytes] | None = None  # write end of a pipe; the child ends when it is closed
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.drain: threading.Thread | None = None
        self.environment = Environment("")
        self.log: list[str] = []

    def start(self) -> dict[str, Any]:
        """Starts the child; returns its first message: environment and device. LaunchError: the child did not start."""
        root, pipe = file_digests.PACKAGE.parent, subprocess.PIPE
        ends, lifeline = os.pipe()
        self.lifeline = os.fdopen(lifeline, "wb")
        lock = [] if self.lock is None else [self.lock]
        command = [sys.executable, "-P", "-c", CHILD, str(root), self.driver, self.commit, *map(str, [ends, *lock])]
        try:
            self.child = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                bufsize=1,
                env=child_environment({**os.environ, **self.variables}, self.sharing),
                pass_fds=(ends, *lock),
                process_group=0,  # Ctrl-C reaches the parent alone, which completes the measurement in progress
            )
        finally:
            os.close(ends)
        self.lines = queue.Queue()
        self.log = []
        threading.Thread(target=self._read, args=(self.child, self.lines), daemon=True).start()
        self.drain = threading.Thread(target=self._drain, args=(self.child, self.log), daemon=True)
        self.drain.start()
        try:
            greeting = self._answer(START_SECONDS)
            if greeting is not None:
                self.environment = Environment(**greeting["environment"])
                return greeting
            why = self._stderr_tail(20)
        except queue.Empty:
            why = f"no answer in {START_SECONDS:g} s"
        except (ValueError, TypeError, KeyError) as error:
            why = f"its message is invalid: {error}"
        self.stop()
        raise LaunchError(f"the measuring process did not start: {why}")

    @staticmethod
    def _read(child: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    @staticmethod
    def _drain(child: subprocess.Popen[str], log: list[str]) -> None:
        assert child.stderr is not None
        for line in child.stderr:
            log.append(line)
            del log[:-200]

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The child's next message; None if the child died. queue.Empty: timeout. ValueError: the message is not a JSON
        object."""
        line = self.lines.get(timeout=seconds)
        answer = json.loads(line) if line is not None else None
        if not isinstance(answer, dict | None):
            raise ValueError(f"{line!r} is no JSON object")
        return answer

    def _stderr_tail(self, lines: int) -> str:
        """The end of the standard error of a child that died."""
        if self.drain is not None:
            self.drain.join(timeout=2.0)
        return "".join(self.log[-lines:])[-2000:]

    def _exit_reason(self, child: subprocess.Popen[str]) -> str:
        """Why the child ended: the signal, if any, and the end of its standard error."""
        output = self._stderr_tail(5)[-500:]
        try:
            code = child.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            code = 0
        if code >= 0:
            return output or f"the measuring process ended with status {code}"
        name = signal.Signals(-code).name
        if -code == signal.SIGALRM:
            return f"{HANGS} for {LOCKED_SECONDS:g} s"
        if -code in EXTERNAL_SIGNALS:
            return f"{ENDED_OUTSIDE}, by {name}"
        return f"the measuring process ended by {name}: {output}"

    def measure(
        self,
        problem: Problem,
        config: Config,
        timing: Timing = SEARCH_TIMING,
        purpose: str = "",
        full: bool = False,
        **options: Any,
    ) -> Measurement:
        """``Bench.measure`` in the child, with two more outcomes: ``timeout`` and ``crashed``. ``options``: those of
        ``send``."""
        self.send(problem, config, timing, purpose, full, **options)
        return self.receive()

    def send(
        self,
        problem: Problem,
        config: Config,
        timing: Timing = SEARCH_TIMING,
        purpose: str = "",
        full: bool = False,
        **options: Any,
    ) -> None:
        """Requests a measurement, which ``receive`` returns. Several requests may wait: the child does not idle between
        them. ``options``: ``source``, the fields of a ``CachedSource``; ``elements`` and ``observed``, as in
        ``Bench.measure``."""
        if not self.requests and (self.child is None or self.child.poll() is not None):
            self.start()
        message = {
            "problem": problem.key(),
            "config": config.full_text(),
            "timing": asdict(timing),
            "purpose": purpose,
            "full": full,
            **options,
        }
        self.requests.append(Request(problem, config, purpose, str(timing), json.dumps(message) + "\n"))
        if self.child is not None:
            self._write(self.requests[-1])

    def _write(self, request: Request) -> None:
        """Sends a request. If the child has died, ``receive`` detects it."""
        assert self.child is not None
        assert self.child.stdin is not None
        with suppress(BrokenPipeError):
            self.child.stdin.write(request.text)

    def receive(self) -> Measurement:
        """The result of the oldest request. If the child dies during the measurement, another child gets the remaining
        requests."""
        if self.child is None:
            self.start()
            for waiting in self.requests:
                self._write(waiting)
        assert self.child is not None
        request = self.requests.popleft()
        problem, config, purpose = request.problem, request.config, request.purpose
        outcome, message = "crashed", ""
        try:
            answer = self._answer(self.seconds)
            if answer is not None:
                poisoned = answer.pop("poisoned", False)
                self.spent.update(answer.pop("spent", {}))
                received = from_dict(answer)
                if (received.problem, received.config) != (problem, config):
                    raise ValueError("it is for another configuration")
                if poisoned:
                    self.stop()
                return received
            message = self._exit_reason(self.child)
            if message.startswith(HANGS):
                outcome = "timeout"
        except queue.Empty:
            outcome, message = "timeout", f"no answer in {self.seconds:g} s"
        except (ValueError, TypeError, KeyError) as error:
            message = f"the measuring process sent an invalid message: {error}"[:500]
        self.stop()
        environment = replace(self.environment, policy=request.policy)
        return Measurement(problem, config, outcome, environment, message=message, purpose=purpose)

    def compare(
        self, problem: Problem, configs: Sequence[Config], timing: Timing = PAIRED_TIMING, rounds: int = 1
    ) -> list[list[float]]:
        """``Bench.compare`` in the child; an empty list if the comparison failed."""
        return self._compare(problem, configs, timing, rounds, False)[0]

    def compare_with_vendor(
        self, problem: Problem, configs: Sequence[Config], timing: Timing = PAIRED_TIMING, rounds: int = 1
    ) -> tuple[list[list[float]], VendorMeasurement | None]:
        """``Bench.compare_with_vendor`` in the child; an empty list and None if the comparison failed."""
        return self._compare(problem, configs, timing, rounds, True)

    def _compare(
        self, problem: Problem, configs: Sequence[Config], timing: Timing, rounds: int, with_vendor: bool
    ) -> tuple[list[list[float]], VendorMeasurement | None]:
        texts = [config.full_text() for config in configs]
        request = {"configs": texts, "timing": asdict(timing), "rounds": rounds, "with_vendor": with_vendor}
        try:
            answer = self._ask(problem, request)
            if answer is not None and len(answer["samples"]) == len(configs):
                vendor = answer["vendor"]
                samples = [[float(us) for us in row] for row in answer["samples"]]
                return samples, None if vendor is None else vendor_from_dict(vendor)
        except (ValueError, TypeError, KeyError):
            pass
        self.stop()
        return [], None

    def heuristic(self, problem: Problem, timing: Timing, elements: int) -> VendorMeasurement | None:
        """``Bench.heuristic`` in the child; None: there is no library, or the child failed. After an error another
        child gets the next request: a failed launch may have corrupted the context."""
        answer = self._ask(problem, {"heuristic": elements, "timing": asdict(timing)})
        measured = None
        try:
            if answer is not None and answer["vendor"] is not None:
                measured = vendor_from_dict(answer["vendor"])
        except (ValueError, TypeError, KeyError):
            answer = None
        if answer is None or (measured is not None and measured.outcome == "launch_error"):
            self.stop()
        return measured

    def vendor(self, problem: Problem, baseline: str, timing: Timing = SEARCH_TIMING) -> VendorTimes:
        """The times of the vendor library ``baseline``; NaN if the library or the child failed."""
        answer = self._ask(problem, {"baseline": baseline, "timing": asdict(timing)})
        fields = None if answer is None else answer.get("vendor")
        if not isinstance(fields, list) or len(fields) != len(VendorTimes._fields):
            self.stop()
            return VendorTimes(math.nan)
        return VendorTimes(*(math.nan if us is None else float(us) for us in fields))

    def _ask(self, problem: Problem, request: dict[str, Any]) -> dict[str, Any] | None:
        """The child's answer to a request. None: the child failed."""
        if self.child is None or self.child.poll() is not None:
            self.start()
        assert self.child is not None
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps({"problem": problem.key(), **request}) + "\n")
            return self._answer(self.seconds)
        except (queue.Empty, BrokenPipeError, ValueError):
            return None

    def stop(self) -> None:
        """Kills the child."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None
        if self.lifeline is not None:
            self.lifeline.close()
            self.lifeline = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()


def child_environment(given: Mapping[str, str], sharing: int = 1) -> dict[str, str]:
    """The environment variables of one of ``sharing`` children. Unless ``given`` has OPENBLAS_NUM_THREADS, the float64
    references of all children together use a quarter of the cores: the other cores assemble kernels, and more threads
    than free cores waste time."""
    return {"OPENBLAS_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 4 // sharing)), **given}


def end_with_parent(pipe: int) -> None:
    """Makes SIGIO end this process when the parent closes its end of ``pipe``, or ends.

    A Python thread cannot do this: a driver call may hold the interpreter lock while a kernel hangs.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:
        sys.exit("the parent has ended")


def main() -> None:
    """The program of the child: reads requests, writes measurements. Its arguments are the driver, the commit, and the
    file descriptors of the pipe to the parent and, if there is one, of the lock of the device."""
    from ptxgen.tuning.measure.bench import environment

    end_with_parent(int(sys.argv[3]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the messages
    driver = open_driver(sys.argv[1])
    if len(sys.argv) > 4:
        driver.lock = DeviceLock(int(sys.argv[4]))
    work = Bench(driver, sys.argv[2])
    greeting = {"environment": asdict(environment(driver, SEARCH_TIMING, work.commit)), "device": asdict(driver.device)}
    print(json.dumps(greeting), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        problem, timing = parse(request["problem"]), Timing(**request["timing"])
        if "configs" in request:
            configs = [parse_config(text) for text in request["configs"]]
            samples: list[list[float]] = []
            vendor = None
            with suppress(PtxgenError):  # the parent starts another child
                if request["with_vendor"]:
                    samples, vendor = work.compare_with_vendor(problem, configs, timing, request["rounds"])
                else:
                    samples = work.compare(problem, configs, timing, request["rounds"])
            document = {"samples": samples, "vendor": None if vendor is None else vendor.as_dict()}
            print(json.dumps(document), file=answers, flush=True)
            continue
        if "heuristic" in request:
            first = None
            with suppress(PtxgenError):
                first = work.heuristic(problem, timing, request["heuristic"])
            print(json.dumps({"vendor": None if first is None else first.as_dict()}), file=answers, flush=True)
            continue
        if "baseline" in request:
            us = work.vendor(problem, request["baseline"], timing)
            print(json.dumps({"vendor": [None if math.isnan(x) else x for x in us]}), file=answers, flush=True)
            continue
        config = parse_config(request["config"])
        lock = driver.lock
        before = lock.locked, lock.queued
        try:
            options = {name: request[name] for name in ("elements", "observed") if name in request}
            if "source" in request:
                options["source"] = CachedSource.from_dict(request["source"])
            done = work.measure(problem, config, timing, request["purpose"], request["full"], **options)
        except (ConfigError, UnavailableError) as error:
            done = Measurement(problem, config, "launch_error", environment(driver, timing), message=str(error))
        answer = done.as_dict()
        # a failed launch on hardware may have corrupted the context: the parent starts another child
        answer["poisoned"] = done.outcome == "launch_error" and driver.clock == "hardware"
        answer["spent"] = {"locked": lock.locked - before[0], "queued": lock.queued - before[1]}
        print(json.dumps(answer), file=answers, flush=True)
