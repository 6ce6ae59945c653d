"""What a long task tells whoever waits for it. The default listens to nothing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Phases follow each other; within one, steps are counted up to its total."""

    def phase(self, name: str, total: int) -> None:
        """A phase of ``total`` steps begins; 0: nobody knows how many."""

    def step(self, text: str = "") -> None:
        """One step is done; ``text``: what is worth a glance now (the best so far, say)."""

    def message(self, text: str) -> None:
        """One line that is worth keeping."""


class Silent:
    """A Progress that says nothing."""

    def phase(self, name: str, total: int) -> None: ...

    def step(self, text: str = "") -> None: ...

    def message(self, text: str) -> None: ...


SILENT = Silent()
