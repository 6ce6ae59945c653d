"""What the environment decides: every variable in one table, and where the package's own files lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from ptxgen.arguments import shown, word
from ptxgen.errors import InputError, UnavailableError

DRIVERS = ("auto", "cuda", "emulated")


@dataclass(frozen=True)
class Settings:
    """The variables' values, typed. ``ptxas``: None means that it is looked for."""

    database: Path
    cache: Path
    driver: str
    ptxas: Path | None


@dataclass(frozen=True)
class Variable:
    """One row of the table. ``read`` turns the variable's name and text into a value (InputError if it cannot);
    ``shown``: the default, in words, as documentation prints it."""

    name: str
    field: str
    read: Callable[[str, str], Any]
    default: Callable[[], Any]
    shown: str
    meaning: str


def _path(name: str, text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{name} is {shown(text)}; it must be a path, and ~name the home of a known user") from None


def _driver(name: str, text: str) -> str:
    return word(name, text.lower(), DRIVERS)


VARIABLES = (
    Variable(
        "PTXGEN_DATABASE",
        "database",
        _path,
        lambda: platformdirs.user_data_path("ptxgen") / "tuning.sqlite",
        "tuning.sqlite in the user's data directory",
        "the SQLite file that remembers what was measured",
    ),
    Variable(
        "PTXGEN_CACHE",
        "cache",
        _path,
        lambda: platformdirs.user_cache_path("ptxgen"),
        "the user's cache directory",
        "where compiled kernels are kept; safe to delete",
    ),
    Variable(
        "PTXGEN_DRIVER",
        "driver",
        _driver,
        lambda: "auto",
        "auto",
        "what runs the kernels: cuda, emulated, or auto (a GPU where there is one)",
    ),
    Variable(
        "PTXGEN_PTXAS",
        "ptxas",
        _path,
        lambda: None,
        "looked for",
        "the ptxas that assembles; without it: the nvidia-cuda-nvcc wheel, then the PATH",
    ),
)


def settings() -> Settings:
    """The settings as the environment has them now; a variable that is empty counts as unset.

    The environment is read anew at each call. InputError names a variable whose value breaks its rule.
    """
    texts = {v.field: os.environ.get(v.name, "").strip() for v in VARIABLES}
    return Settings(**{v.field: v.read(v.name, texts[v.field]) if texts[v.field] else v.default() for v in VARIABLES})


def docs() -> Iterator[tuple[str, str, str]]:
    """The table for documentation: name, default in words, meaning."""
    return ((v.name, v.shown, v.meaning) for v in VARIABLES)


def templates_dir() -> Path:
    """Where the Mako templates lie. UnavailableError: the installation lacks them."""
    found = _own("_templates", "templates")
    if not found.is_dir():
        raise UnavailableError(f"ptxgen's templates are missing: {found} is no folder; install ptxgen again")
    return found


def shipped_dir() -> Path:
    """Where the shipped tuning results lie, a folder a device. It may be absent: then nothing is shipped."""
    return _own("_tuning_db", "tuning_db")


def _own(packaged: str, checked_out: str, package: Path | None = None) -> Path:
    """A folder of the package's own: inside an installed package, beside the package in a checkout."""
    # The packaged name goes first: beside an installed package, a folder called "templates" is someone else's.
    package = package or Path(__file__).resolve().parent
    inside = package / packaged
    return inside if inside.is_dir() else package.parent / checked_out
