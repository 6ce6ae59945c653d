"""Progress of commands: a bar on a terminal, else lines of a log."""

from __future__ import annotations

import io
import sys
import time

import pytest

from ptxgen.cli import progress


class Log(io.StringIO):
    def wait_for(self, *lines: str) -> None:
        until = time.monotonic() + 60
        while self.getvalue().splitlines() != list(lines) and time.monotonic() < until:
            time.sleep(0.01)
        assert self.getvalue().splitlines() == list(lines)


def test_a_log_says_what_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, also of a command without phases, and again when something was done."""
    log = Log()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    lines = ["emit, running"]
    with progress.running("emit") as shown:
        log.wait_for(*lines)
        with progress.progress("select", 2) as inner:
            assert inner is shown
            log.wait_for(*(lines := [*lines, "emit: select, 0 of 2 done"]))
            inner.step("first [x]")
            log.wait_for(*(lines := [*lines, "emit: select, 1 of 2 done, first [x]"]))
        log.wait_for(*(lines := [*lines, "emit, running"]))
        shown.message("kept")
        log.wait_for(*(lines := [*lines, "kept"]))
    assert not shown.thread.is_alive()  # type: ignore[attr-defined]


def test_a_short_command_without_a_terminal_prints_its_messages_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as bar:
        bar.phase("search", 10)
        bar.step("best 3")
        bar.message("[bold]kept as it is[/bold]")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "[bold]kept as it is[/bold]\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.progress() as bar:
        bar.start.join()  # type: ignore[attr-defined]
        bar.phase("search [x]", 3)
        bar.step("[red]best[/red]")
        bar.step()
        bar.message("one [thing]")
        bar.live.refresh()  # type: ignore[attr-defined]
        shown = terminal.getvalue()
        bar.phase("refine", 0)
        bar.step()
    assert "2/3" in shown
    assert "search [x]" in shown
    assert "[red]best[/red]" in shown
    assert "one [thing]\n" in shown.replace("\r", "")
    assert capsys.readouterr().out == ""


def test_bar_of_a_short_task_does_not_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "DELAY", 60.0)
    with progress.progress("read", 1) as bar:
        bar.step()
    assert terminal.getvalue() == ""
