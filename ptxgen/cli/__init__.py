"""The command-line interface. Only this package imports typer.

A command prints its answer to standard output, as text or with ``--json`` as a document. Progress, messages and errors
go to standard error. Commands import other packages when they run, so ``--help`` does not import NumPy. The module of a
command is imported when a command line names the command; ``app``, which has all commands, imports all modules.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxgen.cli.command import app as app


def __getattr__(name: str) -> Any:
    """The attribute ``app``: the program with all commands. AttributeError: ``name`` is another one."""
    if name != "app":
        raise AttributeError(f"module 'ptxgen.cli' has no attribute {name!r}")
    from ptxgen.cli.command import whole_app

    return whole_app()


def load_program() -> Any:
    """Imports Typer and what every command needs, and returns the function that runs a command line. Garbage collection
    is disabled meanwhile: imported objects are no garbage, and searching them takes a tenth of a cold start."""
    gc.disable()
    from ptxgen.cli.command import run

    return run


def main() -> None:
    """Runs the command line of the program ``ptxgen``, and exits."""
    sys.exit(load_program()(sys.argv[1:]))


__all__ = ["app", "load_program", "main"]
