"""The command run."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ptxgen.cli.command import USE_COMMANDS, Answer, Common, app, command
from ptxgen.errors import InputError, UnavailableError


@command(app, "run", "program.py", "train.py --epochs 3", panel=USE_COMMANDS, tables=False, verbatim=True)
def run_program(
    common: Common,
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A Python program.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Its arguments, as they are.")
    ] = None,
) -> Answer:
    """Run a Python program whose products and convolutions in PyTorch are then computed by ptxgen.

    At its end, a line on standard error says what was computed by whom. The program replaces this process.
    """
    if not program.is_file():
        raise InputError(f"PROGRAM is {program}; it must be a file")
    if find_spec("torch") is None:
        raise UnavailableError("run needs PyTorch: pip install torch")
    sys.stdout.flush()
    environment = {**os.environ, "PTXGEN_TORCH": "on"}  # of its child processes
    module = [sys.executable, "-m", "ptxgen.torch_backend"]
    os.execve(sys.executable, [*module, str(program), *(arguments or ())], environment)
