"""Measures in a child process: a kernel that crashes, hangs or poisons its context takes only the child with it.

Parent and child exchange JSON, a line each way. The parent alone writes the database. The child ends with its parent,
also while it waits for a kernel that hangs: the kernel of the operating system signals that a pipe between them closed.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from ptxgen.codegen.config import Config, parse_config
from ptxgen.errors import ConfigError, LaunchError
from ptxgen.problem.registry import Problem, parse
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver
from ptxgen.tuning.bench import SEARCH_TIMING, Bench
from ptxgen.tuning.measurement import ENDED_OUTSIDE, Environment, Measurement, from_dict

START_SECONDS = 120.0
MEASURE_SECONDS = 60.0
#: what the child runs: the parent's ptxgen, from the folder that is its first argument. That folder goes to the end of
#: the search path then: with -P, neither it nor the current folder hides a module of the standard library.
CHILD = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import ptxgen
sys.path.append(sys.path.pop(0))
from ptxgen.tuning.worker import main
main()
"""
#: signals that people and other programs send; a kernel at fault ends a process in other ways
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Worker:
    """A child process with a driver of its own, replaced when it dies.

    ``driver``: its name; ``seconds``: after which a measurement has timed out.
    """

    def __init__(self, driver: str = "auto", seconds: float = MEASURE_SECONDS, commit: str = "") -> None:
        self.driver, self.seconds, self.commit = driver, seconds, commit
        self.child: subprocess.Popen[str] | None = None
        self.alive: IO[bytes] | None = None  # the child ends when this end of a pipe is closed
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.drain: threading.Thread | None = None
        self.environment = Environment("")
        self.log: list[str] = []

    def start(self) -> dict[str, Any]:
        """Starts the child; returns what it says of its device. LaunchError: it did not start."""
        home, pipe = Path(__file__).resolve().parents[2], subprocess.PIPE
        ends, alive = os.pipe()
        self.alive = os.fdopen(alive, "wb")
        command = [sys.executable, "-P", "-c", CHILD, str(home), self.driver, self.commit, str(ends)]
        try:
            self.child = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                bufsize=1,
                env=surroundings(os.environ),
                pass_fds=(ends,),
            )
        finally:
            os.close(ends)
        self.lines = queue.Queue()
        self.log = []
        threading.Thread(target=self._read, args=(self.child, self.lines), daemon=True).start()
        self.drain = threading.Thread(target=self._drain, args=(self.child, self.log), daemon=True)
        self.drain.start()
        try:
            hello = self._answer(START_SECONDS)
            if hello is not None:
                self.environment = Environment(**hello["environment"])
                return hello
            why = self._said(20)
        except queue.Empty:
            why = f"no answer in {START_SECONDS:g} s"
        except (ValueError, TypeError, KeyError) as error:
            why = f"it answered nonsense: {error}"
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
        """The child's next line; None if it died. queue.Empty: it took too long. ValueError: it is no object."""
        line = self.lines.get(timeout=seconds)
        answer = json.loads(line) if line is not None else None
        if not isinstance(answer, dict | None):
            raise ValueError(f"{line!r} is no object")
        return answer

    def _said(self, lines: int) -> str:
        """The end of what a child that died wrote to its standard error."""
        if self.drain is not None:
            self.drain.join(timeout=2.0)
        return "".join(self.log[-lines:])[-2000:]

    def _ended(self, child: subprocess.Popen[str]) -> str:
        """Why a child that closed its output ended: its signal, if it had one, and what it wrote last."""
        said = self._said(5)[-500:]
        try:
            code = child.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            code = 0
        if code >= 0:
            return said or f"the measuring process ended with status {code}"
        name = signal.Signals(-code).name
        if -code in OUTSIDE:
            return f"{ENDED_OUTSIDE}, by {name}"
        return f"the measuring process ended by {name}: {said}"

    def measure(
        self, problem: Problem, config: Config, timing: Timing = SEARCH_TIMING, purpose: str = "", full: bool = False
    ) -> Measurement:
        """As ``Bench.measure``, with two more outcomes: ``timeout`` and ``crashed``."""
        if self.child is None or self.child.poll() is not None:
            self.start()
        assert self.child is not None
        assert self.child.stdin is not None
        order = {
            "problem": problem.key(),
            "config": " ".join(f"{n}={v}" for n, v in config.items()),
            "timing": asdict(timing),
            "purpose": purpose,
            "full": full,
        }
        outcome, message = "crashed", ""
        try:
            self.child.stdin.write(json.dumps(order) + "\n")
            answer = self._answer(self.seconds)
            if answer is not None:
                poisoned = answer.pop("poisoned", False)
                found = from_dict(answer)
                if (found.problem, found.config) != (problem, config):
                    raise ValueError("it is of another configuration")
                if poisoned:
                    self.stop()
                return found
            message = self._ended(self.child)
        except queue.Empty:
            outcome, message = "timeout", f"no answer in {self.seconds:g} s"
        except BrokenPipeError:
            message = self._ended(self.child)
        except (ValueError, TypeError, KeyError) as error:
            message = f"the measuring process answered nonsense: {error}"[:500]
        self.stop()
        return Measurement(problem, config, outcome, self.environment, message=message, purpose=purpose)

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None
        if self.alive is not None:
            self.alive.close()
            self.alive = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()


def surroundings(given: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: its products in float64 take a quarter of the cores, unless somebody says otherwise.
    Kernels are assembled on the others, and threads that wait for each other on cores that are taken waste them."""
    return {"OPENBLAS_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 4)), **given}


def end_with_parent(pipe: int) -> None:
    """Have SIGIO end this process when the parent's end of ``pipe`` is closed, by the parent or by its end.

    No thread of Python's could do that: a call of the driver may keep the interpreter's lock while a kernel hangs.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:
        sys.exit("the parent has ended")


def main() -> None:
    """The child: reads orders, writes measurements. Arguments: the driver, the commit, the pipe to the parent."""
    from ptxgen.tuning.bench import environment

    end_with_parent(int(sys.argv[3]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    driver = open_driver(sys.argv[1])
    work = Bench(driver, sys.argv[2])
    hello = {"environment": asdict(environment(driver, SEARCH_TIMING, work.commit)), "device": asdict(driver.device)}
    print(json.dumps(hello), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        problem, config = parse(order["problem"]), parse_config(order["config"])
        timing = Timing(**order["timing"])
        try:
            done = work.measure(problem, config, timing, order["purpose"], order["full"])
        except ConfigError as error:
            done = Measurement(problem, config, "launch_error", environment(driver, timing), message=str(error))
        answer = done.as_dict()
        # a launch that failed on hardware may have poisoned the context: the parent starts another child
        answer["poisoned"] = done.outcome == "launch_error" and driver.clock == "hardware"
        print(json.dumps(answer), file=answers, flush=True)
