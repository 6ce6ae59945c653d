"""Choices of models, cached on disk: a model takes tens of milliseconds to choose, and must be loaded before.

A choice has a file, named by the digest of all that the choice depends on: the package, the models and other tuning
files, the device, the problem. The cache is optional: errors of the file system are ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from ptxgen import disk_cache
from ptxgen.codegen.config import Config, parse_config
from ptxgen.families.registry import SPACES
from ptxgen.settings import settings, templates_dir

MOST = 8192  #: files; the oldest half of more is removed
EVERY = "0"  #: the last digit of a key whose choice has the number of files checked, so one of sixteen
PACKAGE = Path(__file__).resolve().parents[1]


class Choice(NamedTuple):
    """A configuration, with its fields of ``selection.Selection``."""

    config: Config
    origin: str
    us: float
    scaled_from: str


def key(files: Iterable[Path], *facts: object) -> str:
    """The key of a choice that depends on the ``repr`` of ``facts``, on ``files``, and on the package; a file may be
    absent. Empty: a kernel family is from outside the package, so the choice cannot be cached."""
    if not all(type(space).__module__.startswith("ptxgen.") for space in SPACES):
        return ""
    return hashlib.sha256(repr((package_digest(), *facts, [_file_digest(path) for path in files])).encode()).hexdigest()


def read(key: str) -> list[Choice] | None:
    """The cached choice, fastest first. None: there is none, or its file is damaged."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return None
    try:
        rows = json.loads(path.read_bytes())
        return [Choice(parse_config(str(text)), str(origin), float(us), str(other)) for text, origin, us, other in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write(key: str, choices: Sequence[Choice]) -> None:
    """Stores a choice. If several processes write it at once, a reader finds the whole file of one of them."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return
    rows = [(c.config.full_text(), *c[1:]) for c in choices]
    with suppress(OSError):
        disk_cache.create(path.parent)
        disk_cache.replace(path, json.dumps(rows).encode())
        if key.endswith(EVERY):
            _remove_oldest(path.parent)


def _remove_oldest(folder: Path) -> None:
    files = list(folder.iterdir())
    if len(files) > MOST:
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)[: len(files) // 2]:
            path.unlink()


@cache
def package_digest() -> str:
    """The digest of the code and the templates of this package."""
    return tree_digest((PACKAGE, templates_dir()), (".py", ".mako"))


def tree_digest(roots: Iterable[Path], suffixes: tuple[str, ...]) -> str:
    """The digest of the files in folders whose names end in ``suffixes``."""
    state = hashlib.sha256()
    for root in roots:
        for path in sorted(path for path in root.rglob("*") if path.suffix in suffixes):
            state.update(f"{path.relative_to(root)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def _file_digest(path: Path) -> tuple[str, str]:
    """The path, and the digest of its content; empty if it cannot be read."""
    try:
        status = path.stat()
        return str(path), _content_digest(path, status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError:
        return str(path), ""


@lru_cache(maxsize=64)
def _content_digest(path: Path, *changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _file(key: str) -> Path:
    return settings().cache / "choices" / f"{key}.json"
