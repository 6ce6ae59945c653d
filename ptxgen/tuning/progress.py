"""Progress reports of long tasks. The default discards them."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A receiver of progress reports. Phases follow each other; within a phase, steps are counted up to its total."""

    def phase(self, name: str, total: int) -> None:
        """A phase of ``total`` steps begins; 0: the total is unknown."""

    def step(self, text: str = "") -> None:
        """One step is complete; ``text``: current status, the best time so far for example."""

    def message(self, text: str) -> None:
        """Reports one line of text that stays visible."""


class Silent:
    """A receiver that discards all reports."""

    def phase(self, name: str, total: int) -> None: ...

    def step(self, text: str = "") -> None: ...

    def message(self, text: str) -> None: ...


SILENT = Silent()


def counted(count: int, noun: str) -> str:
    """A number and its noun: 1 problem, 2 problems."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
