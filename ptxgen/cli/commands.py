"""The names of commands and the modules that define them. A command line imports only the modules of its command."""

from __future__ import annotations

from importlib import import_module

#: command or group, in the order of --help -> the modules of this package that register it
COMMANDS = {
    "tune": ("problems",),
    "collect": ("collect",),
    "select": ("problems",),
    "explain": ("explain",),
    "emit": ("problems",),
    "export": ("export",),
    "run": ("program",),
    "check": ("problems",),
    "bench": ("problems",),
    "sampler": ("problems",),
    "emulate": ("emulate",),
    "report": ("page",),
    "doctor": ("stored",),
    "build-pycuda": ("stored",),
    "task": ("task", "task_library"),
    "db": ("stored",),
    "model": ("model",),
    "paper": ("paper", "paper_figures", "batchgemm"),
}


def load(*names: str) -> None:
    """Imports the modules of commands, which registers them."""
    for name in names:
        for module in COMMANDS[name]:
            import_module(f"ptxgen.cli.{module}")
