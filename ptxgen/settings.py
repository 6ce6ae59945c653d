"""Settings from environment variables, all in one table, and the locations of the package's own files."""

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
TUNE_MODES = ("off", "first", "background")


@dataclass(frozen=True)
class Settings:
    """The values of the variables. ``ptxas``: None: search for it; ``record``: None: shapes are not recorded."""

    database: Path
    cache: Path
    driver: str
    ptxas: Path | None
    record: Path | None = None
    tune: str = "off"
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variable:
    """A row of the table. ``read``: converts name and text to a value, or raises InputError; ``shown``: the default
    as documentation prints it."""

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


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _tune(name: str, text: str) -> str:
    return word(name, text.lower(), TUNE_MODES)


VARIABLES = (
    Variable(
        "PTXGEN_DATABASE",
        "database",
        _path,
        lambda: platformdirs.user_data_path("ptxgen") / "tuning.sqlite",
        "tuning.sqlite in the user's data directory",
        "the SQLite file of the tuning database",
    ),
    Variable(
        "PTXGEN_CACHE",
        "cache",
        _path,
        lambda: platformdirs.user_cache_path("ptxgen"),
        "the user's cache directory",
        "the folder of the cache of compiled kernels; safe to delete",
    ),
    Variable(
        "PTXGEN_DRIVER",
        "driver",
        _driver,
        lambda: "auto",
        "auto",
        "the driver: cuda, emulated, or auto (cuda if there is a GPU)",
    ),
    Variable(
        "PTXGEN_PTXAS",
        "ptxas",
        _path,
        lambda: None,
        "found automatically",
        "the ptxas to use; by default that of the nvidia-cuda-nvcc wheel, else the first on the PATH",
    ),
    Variable(
        "PTXGEN_PLUGINS",
        "plugins",
        _names,
        tuple,
        "none",
        "functions `module:function` that register operations and kernel families, separated by commas",
    ),
    Variable(
        "PTXGEN_RECORD",
        "record",
        _path,
        lambda: None,
        "none",
        "a shapes file to which the problems that calls compute are added, with counts; tune reads it",
    ),
    Variable(
        "PTXGEN_TUNE",
        "tune",
        _tune,
        lambda: "off",
        "off",
        "the first call of a problem without a winner times the 8 best configurations (first), or they are timed"
        " later in a thread of its own (background)",
    ),
)


def settings() -> Settings:
    """The settings from the present environment; an empty variable counts as unset.

    The environment is read at each call. InputError names the variable and the rule that it breaks.
    """
    texts = {v.field: os.environ.get(v.name, "").strip() for v in VARIABLES}
    return Settings(**{v.field: v.read(v.name, texts[v.field]) if texts[v.field] else v.default() for v in VARIABLES})


def docs() -> Iterator[tuple[str, str, str]]:
    """The table for the documentation: name, default, meaning."""
    return ((v.name, v.shown, v.meaning) for v in VARIABLES)


def templates_dir() -> Path:
    """The folder of the Mako templates. UnavailableError: the installation lacks it."""
    found = _own("_templates", "templates")
    if not found.is_dir():
        raise UnavailableError(f"ptxgen's templates are missing: {found} is not a folder; reinstall ptxgen")
    return found


def shipped_dir() -> Path:
    """The folder of the shipped tuning results, with one folder per device. It may be absent."""
    return _own("_tuning_db", "tuning_db")


def _own(packaged: str, checked_out: str, package: Path | None = None) -> Path:
    """A folder of the package: inside an installed package, next to the package in a checkout."""
    # The packaged folder is tried first: a folder "templates" next to an installed package belongs to another one.
    package = package or Path(__file__).resolve().parent
    inside = package / packaged
    return inside if inside.is_dir() else package.parent / checked_out
