"""Progress of commands on standard error: a bar on a terminal, else lines of a log. Only this module imports rich.

Each command has one progress object, from its start to its answer. Short commands show no progress.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ptxgen.cli.tables import lines_of
from ptxgen.tuning.progress import Progress

DELAY = 0.7  #: seconds after which a bar appears
QUIET = 2.0  #: seconds after which the first line of a log appears
EVERY = 30.0  #: seconds between further lines of a log


class Log:
    """Progress output without a terminal: messages, a line after ``QUIET`` seconds, and a line every ``EVERY`` seconds
    if something was done meanwhile."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.state = "", 0, 0, ""  # name, steps and finished steps of the phase, text; one object: a thread reads it
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="ptxgen progress", daemon=True)

    def __enter__(self) -> Log:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        said, wait = "", QUIET
        while not self.ended.wait(wait):
            if (line := self.line()) != said:
                self.message(line)
            said, wait = line, EVERY

    def line(self) -> str:
        """The line on what the command does now."""
        name, total, done, text = self.state
        phase = self.command if name in ("", self.command) else f"{self.command}: {name}"
        count = f"{done} of {total} done" if total else f"{done} done" if done else "running"
        return ", ".join(part for part in (phase, count, text) if part)

    def phase(self, name: str, total: int) -> None:
        self.state = name, total, 0, ""

    def step(self, text: str = "") -> None:
        name, total, done, before = self.state
        self.state = name, total, done + 1, text or before

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar:
    """Progress output on a terminal: a bar for the current phase, and messages above the bar, which appears after
    ``DELAY`` seconds."""

    def __init__(self, command: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Live
        from rich.table import Column

        columns = (
            "{task.description}",
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            "left",
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        )
        self.command = command
        self.live = Live(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self.task = self.live.add_task(command, total=None, text="")
        self.start = threading.Timer(DELAY, self.live.start)
        self.start.daemon = True

    def __enter__(self) -> Bar:
        self.start.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.start.cancel()
        self.start.join()
        self.live.stop()

    def phase(self, name: str, total: int) -> None:
        from rich.markup import escape

        self.live.reset(self.task, description=escape(name or self.command), total=total or None, text="")

    def step(self, text: str = "") -> None:
        self.live.advance(self.task)
        if text:
            self.live.update(self.task, text=text)

    def message(self, text: str) -> None:
        lines = lines_of(text, self.live.console.width)
        self.live.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


_running: list[Progress] = []


@contextmanager
def running(command: str) -> Iterator[Progress]:
    """Shows the progress of a command; within the ``with`` block, ``progress`` returns the same object."""
    with (Bar if sys.stderr.isatty() else Log)(command) as shown:
        _running.append(shown)
        try:
            yield shown
        finally:
            _running.pop()


@contextmanager
def progress(name: str = "", total: int = 0) -> Iterator[Progress]:
    """The progress object of the running command. ``name``, ``total``: the name and the number of steps of its first
    phase; empty: the command has no phase yet."""
    if not _running:
        with running(name) as shown:
            shown.phase(name, total)
            yield shown
        return
    shown = _running[-1]
    if name:
        shown.phase(name, total)
    yield shown
    shown.phase("", 0)
