"""Settings from environment variables, and the locations of files in the package."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import platformdirs

from ptxgen.arguments import shown, word
from ptxgen.errors import InputError, UnavailableError

#: packages that load and launch kernels on a GPU, in the order in which they are tried
LIBRARIES = ("pycuda", "cuda-bindings")
DRIVERS = ("auto", "cuda", *LIBRARIES, "emulated")
#: the name of a driver for GPUs: its library, or ``cuda`` for the first library that can be imported, and optionally
#: the index of a GPU
GPU_DRIVER = re.compile(rf"({'|'.join(('cuda', *LIBRARIES))})(?::([0-9]{{1,3}}))?")
TUNE_MODES = ("off", "first", "background")
SWITCH = ("on", "off")
LOGS = ("off", "select")
VENDORS = ("auto", "never")
OBJECTIVES = ("time", "energy")


@dataclass(frozen=True)
class Settings:
    """The values of the environment variables of ptxgen. If ``ptxas`` is None, ptxas is searched for; if ``record`` is
    None, shapes are not recorded."""

    database: Path
    cache: Path
    driver: str
    ptxas: Path | None
    record: Path | None = None
    tune: str = "off"
    plugins: tuple[str, ...] = ()
    winograd: str = "on"
    log: str = "off"
    torch: str = "off"
    vendor: str = "auto"
    objective: str = "time"


@dataclass(frozen=True)
class Variable:
    """A row of the table of environment variables. ``name``: PTXGEN_ and the name of the field of Settings in capitals;
    ``read``: converts the name of the variable and its text to the value, or raises InputError; ``default``: makes the
    value of an unset variable; ``shown``: the default as documentation prints it."""

    name: str
    read: Callable[[str, str], Any]
    default: Callable[[], Any]
    shown: str
    meaning: str

    @property
    def field(self) -> str:
        return self.name.removeprefix("PTXGEN_").lower()


def _path(name: str, text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{name} is {shown(text)}; it must be a path; ~name must be a known user") from None


def _driver(name: str, text: str) -> str:
    if text.lower() not in DRIVERS and not GPU_DRIVER.fullmatch(text.lower()):
        raise InputError(f"{name} is {shown(text)}; it must be {driver_names()}")
    return text.lower()


def driver_names() -> str:
    """The names of drivers, for error messages."""
    return f"one of {', '.join(DRIVERS)}, or cuda:N with the index of a GPU"


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _tune(name: str, text: str) -> str:
    return word(name, text.lower(), TUNE_MODES)


def _switch(name: str, text: str) -> str:
    return word(name, text.lower(), SWITCH)


def _torch(name: str, text: str) -> str:
    return _switch(name, {"1": "on", "0": "off"}.get(text, text))


def _log(name: str, text: str) -> str:
    return word(name, text.lower(), LOGS)


def _vendor(name: str, text: str) -> str:
    return word(name, text.lower(), VENDORS)


def _objective(name: str, text: str) -> str:
    return word(name, text.lower(), OBJECTIVES)


VARIABLES = (
    Variable(
        "PTXGEN_DATABASE",
        _path,
        lambda: platformdirs.user_data_path("ptxgen") / "tuning.sqlite",
        "tuning.sqlite in the user's data directory",
        "the SQLite file of the tuning database",
    ),
    Variable(
        "PTXGEN_CACHE",
        _path,
        lambda: platformdirs.user_cache_path("ptxgen"),
        "the user's cache directory",
        "the folder of the cache of choices, spaces, programs of tasks, compiled kernels and templates; safe to delete",
    ),
    Variable(
        "PTXGEN_DRIVER",
        _driver,
        lambda: "auto",
        "auto",
        "the driver: cuda, emulated, or auto (cuda if there is a GPU); cuda:1 is the GPU with the index 1. cuda loads"
        " kernels with PyCUDA, or with cuda-bindings where PyCUDA is not installed; pycuda and cuda-bindings (and"
        " pycuda:1) require that package: if it is missing, that is an error. Arrays on a GPU are computed there in any"
        " case",
    ),
    Variable(
        "PTXGEN_PTXAS",
        _path,
        lambda: None,
        "found automatically",
        "the path of ptxas; default: the nvidia-cuda-nvcc wheel, else the first ptxas on the PATH",
    ),
    Variable(
        "PTXGEN_PLUGINS",
        _names,
        tuple,
        "none",
        "functions `module:function` that register operations and kernel families, separated by commas",
    ),
    Variable(
        "PTXGEN_RECORD",
        _path,
        lambda: None,
        "none",
        "a shapes file for tune: calls add the problems that they compute, with counts",
    ),
    Variable(
        "PTXGEN_TUNE",
        _tune,
        lambda: "off",
        "off",
        "times 8 of the top-ranked configurations of a problem without a winner: in its first call (first), or in a"
        " background thread (background); off: never",
    ),
    Variable(
        "PTXGEN_LOG",
        _log,
        lambda: "off",
        "off",
        "select: a line on standard error when a process first meets a problem: its configuration, the source of that"
        " (winner, shipped, seed, model, analytic), and its measured or predicted time",
    ),
    Variable(
        "PTXGEN_TORCH",
        _torch,
        lambda: "off",
        "off",
        "on (or 1): PyTorch's products and convolutions are computed by ptxgen from the import of PyTorch on, where"
        " ptxgen is an installed distribution",
    ),
    Variable(
        "PTXGEN_VENDOR",
        _vendor,
        lambda: "auto",
        "auto",
        "auto: tuning times cuBLASLt and cuDNN, too, and problems for which one was measured or is predicted to be"
        " faster go to it, unless they must be deterministic; never: ptxgen computes all; read when a process first"
        " meets a call",
    ),
    Variable(
        "PTXGEN_OBJECTIVE",
        _objective,
        lambda: "time",
        "time",
        "energy: problems that tune --objective energy measured get the configuration with the least energy of a call;"
        " time: the fastest one; read when a process first meets a problem",
    ),
    Variable(
        "PTXGEN_WINOGRAD",
        _switch,
        lambda: "on",
        "on",
        "off: no convolution is computed by Winograd's algorithm; read when a process first meets a problem",
    ),
)

_NAMES = tuple(v.name for v in VARIABLES)
_BY_FIELD = {v.field: v for v in VARIABLES}
#: the variables of the environment on which the user's directories depend
_FOLDERS = ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA", "USERPROFILE")


def settings() -> Settings:
    """The settings from the current environment. An empty variable counts as unset.

    Each call reads the environment. InputError: a variable breaks a rule; the message names the variable and the rule.
    """
    return _settings(tuple(map(os.environ.get, (*_NAMES, *_FOLDERS))))


def setting(field: str) -> Any:
    """One field of ``settings()``, for calls that read no other."""
    v = _BY_FIELD[field]
    text = os.environ.get(v.name, "").strip()
    return v.read(v.name, text) if text else v.default()


@lru_cache(maxsize=64)
def _settings(texts: tuple[str | None, ...]) -> Settings:
    """The settings from the texts of the variables of ptxgen, then those of ``_FOLDERS``."""
    given = {v.field: (v, (text or "").strip()) for v, text in zip(VARIABLES, texts, strict=False)}
    return Settings(**{name: v.read(v.name, text) if text else v.default() for name, (v, text) in given.items()})


def docs() -> Iterator[tuple[str, str, str]]:
    """The rows of the table of environment variables in the documentation: name, default, meaning."""
    return ((v.name, v.shown, v.meaning) for v in VARIABLES)


def templates_dir() -> Path:
    """The folder of the Mako templates. UnavailableError: it is missing."""
    folder = _own("_templates", "templates")
    if not folder.is_dir():
        raise UnavailableError(f"ptxgen's templates are missing: {folder} is not a folder; reinstall ptxgen")
    return folder


@cache
def shipped_dir() -> Path:
    """The folder of the shipped tuning results, with one folder per device. It may be absent."""
    return _own("_tuning_db", "tuning_db")


def _own(packaged: str, checked_out: str, package: Path | None = None) -> Path:
    """A data folder: inside the package if installed, next to the package in a checkout."""
    # First the folder in the package: a folder "templates" next to an installed package is another package.
    package = package or Path(__file__).resolve().parent
    inside = package / packaged
    return inside if inside.is_dir() else package.parent / checked_out
