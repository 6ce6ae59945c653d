"""The command-line interface. Owns typer.

A command prints its answer to standard output, as text or with ``--json`` as a document. Progress, messages and errors
go to standard error. Commands import their modules when they run, so ``--help`` does not import NumPy.
"""

from __future__ import annotations

import sys

from ptxgen.cli import batchgemm as _batchgemm
from ptxgen.cli import collect as _collect
from ptxgen.cli import emulate as _emulate
from ptxgen.cli import explain as _explain
from ptxgen.cli import export as _export
from ptxgen.cli import model as _model
from ptxgen.cli import page as _page
from ptxgen.cli import paper as _paper
from ptxgen.cli import paper_figures as _paper_figures
from ptxgen.cli import problems as _problems
from ptxgen.cli import program as _program
from ptxgen.cli import stored as _stored
from ptxgen.cli import task as _task
from ptxgen.cli import task_library as _task_library
from ptxgen.cli.command import app, run

__all__ = ["app", "main"]

#: importing these modules registers their commands
_COMMANDS = (
    _problems,
    _program,
    _collect,
    _stored,
    _model,
    _emulate,
    _explain,
    _export,
    _page,
    _paper,
    _paper_figures,
    _batchgemm,
    _task,
    _task_library,
)
#: the order of commands in --help
_ORDER = (
    "tune",
    "collect",
    "select",
    "explain",
    "emit",
    "export",
    "run",
    "check",
    "bench",
    "sampler",
    "emulate",
    "report",
    "doctor",
    "build-pycuda",
)
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name or ""))


def main() -> None:
    """The command ``ptxgen``."""
    sys.exit(run(sys.argv[1:]))
