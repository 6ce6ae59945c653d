"""The command-line interface. Owns typer.

A command prints its answer to standard output, as text or with ``--json`` as a document. Progress, messages and errors
go to standard error. Commands import their modules when they run, so ``--help`` does not import NumPy. The module of a
command is imported when a command line names it: ``app``, which has all commands, imports all of them.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxgen.cli.command import app as app


def __getattr__(name: str) -> Any:
    """``app``: the program with all commands."""
    if name != "app":
        raise AttributeError(f"module 'ptxgen.cli' has no attribute {name!r}")
    from ptxgen.cli.command import whole_app

    return whole_app()


def load_program() -> Any:
    """Imports Typer and what every command needs, and returns the function that runs a command line. What is imported
    before the work of a command is no garbage: to look for some there takes a tenth of a cold start."""
    gc.disable()
    from ptxgen.cli.command import run

    return run


def main() -> None:
    """The command ``ptxgen``."""
    sys.exit(load_program()(sys.argv[1:]))


__all__ = ["app", "load_program", "main"]
