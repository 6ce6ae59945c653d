"""The command line: reads arguments, calls the layers below, writes one answer. Owns typer.

Standard output has the answer's text, or with ``--json`` its document, and nothing else; progress, messages and errors
go to standard error. What a command needs is imported when it runs: ``--help`` costs no NumPy.
"""

from __future__ import annotations

import sys

from ptxgen.cli import emulate as _emulate
from ptxgen.cli import problems as _problems
from ptxgen.cli import stored as _stored
from ptxgen.cli.command import app, start

__all__ = ["app", "main"]

_COMMANDS = (_problems, _stored, _emulate)  #: importing these is what fills the application
#: as --help lists them
_ORDER = ("tune", "select", "emit", "check", "bench", "sampler", "emulate", "doctor")
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name or ""))


def main() -> None:
    """The command ``ptxgen``."""
    sys.exit(start(sys.argv[1:]))
