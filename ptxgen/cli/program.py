"""The command ``run``, which runs a Python program with ptxgen's functions in place of PyTorch's."""

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
    """Run a Python program with PyTorch, in which ptxgen computes products and convolutions.

    At the end of the program, a line on standard error says which calls ptxgen and PyTorch computed. The program
    replaces this process.
    """
    if not program.is_file():
        raise InputError(f"PROGRAM is {program}; it must be a file")
    if find_spec("torch") is None:
        raise UnavailableError("run needs PyTorch: pip install torch")
    sys.stdout.flush()
    environment = {**os.environ, "PTXGEN_TORCH": "on"}  # of its child processes
    module = [sys.executable, "-m", "ptxgen.torch_backend"]
    os.execve(sys.executable, [*module, str(program), *(arguments or ())], environment)
