"""Checks of option values that run before a command works: paths to read or write, packages that are needed.

A check is the third argument of ``Annotated``, after the type and the option: ``Annotated[Path, typer.Option(...),
OUTPUT_FILE]``. ``command.command`` calls the check with the value unless the value is None.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.errors import InputError


@dataclass(frozen=True)
class Check:
    """A check of an option. ``function(name, value)`` raises InputError if the value breaks a rule, and
    UnavailableError if a package that the value needs is missing."""

    function: Callable[[str, Any], None]

    def __call__(self, name: str, value: Any) -> None:
        for item in value if isinstance(value, list | tuple) else () if value is None else (value,):
            self.function(name, item)


def input_file(name: str, path: Path) -> None:
    """Requires a file, or a pipe, that can be read. InputError: it cannot."""
    _require_file(name, path)
    if not path.exists():
        raise InputError(f"{name} is {path}; there is no such file")
    if not os.access(path, os.R_OK):
        raise InputError(f"{name} is {path}; this user must be able to read it")


def output_file(name: str, path: Path) -> None:
    """Requires a file that can be written. InputError: it cannot."""
    _require_file(name, path)
    if path.exists() and not path.is_file():
        raise InputError(f"{name} is {path}; it must be a regular file")
    if not path.parent.is_dir():
        raise InputError(f"{name} is {path}; its folder must exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{name} is {path}; this user must be able to write it")


def output_folder(name: str, path: Path) -> None:
    """Requires a folder, which need not exist, in which files can be written. InputError: they cannot."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"{name} is {path}; {there} is a file, and must be a folder")
    if not os.access(there, os.W_OK):
        raise InputError(f"{name} is {path}; this user must be able to write in {there}")


def _require_file(name: str, path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{name} is {path}, a folder; it must be a file")


INPUT_FILE, OUTPUT_FILE, OUTPUT_FOLDER = Check(input_file), Check(output_file), Check(output_folder)
