"""Choices of models, cached on disk: a model takes tens of milliseconds to choose, and must be loaded before.

A choice has a file, named by the digest of all that the choice depends on: the package, the models and other tuning
files, the device, the problem. The cache is optional: errors of the file system are ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
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
MOST_DIGESTS = 64  #: files with digests of lists of files
SETTLED_NS = 2_000_000_000  #: a file that changed later than this before now may change again at the same time stamp
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
    known = files_digest((str(path), str(path)) for path in files)
    return hashlib.sha256(repr((package_digest(), *facts, known)).encode()).hexdigest()


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
            _remove_oldest(path.parent, MOST)


def _remove_oldest(folder: Path, most: int) -> None:
    """Removes the older half of the files of ``folder`` if there are more than ``most``."""
    files = list(folder.iterdir())
    if len(files) > most:
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)[: len(files) // 2]:
            path.unlink()


@cache
def package_digest() -> str:
    """The digest of the code and the templates of this package."""
    return tree_digest((PACKAGE, templates_dir()), (".py", ".mako"))


def tree_digest(roots: Iterable[Path], suffixes: tuple[str, ...]) -> str:
    """The digest of the files in folders whose names end in ``suffixes``."""
    return files_digest(pair for root in roots for pair in sorted(_listed(root, suffixes)))


def _listed(root: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The files below a folder: relative and whole path."""
    start = len(str(root)) + 1
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(suffixes):
                path = os.path.join(folder, name)
                yield path[start:], path


def files_digest(files: Iterable[tuple[str, str]]) -> str:
    """The digest of the names and contents of files; a file that cannot be read has none.

    It is kept in the disk cache under a digest of the sizes, times and inodes of the files, so files that have not
    changed are not read."""
    return _digest_of(tuple((name, path, _identity(path)) for name, path in files))


@lru_cache(maxsize=64)
def _digest_of(files: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
    """``files``: name, path and ``_identity`` of each."""
    kept = settings().cache / "digests" / hashlib.sha256(repr(files).encode()).hexdigest()
    safe, now = not disk_cache.unsafe(kept.parent), time.time_ns()
    if safe:
        with suppress(OSError, ValueError):
            text = kept.read_text()
            if re.fullmatch("[0-9a-f]{64}", text):
                return text
    state = hashlib.sha256()
    for name, path, _ in files:
        try:
            content = hashlib.sha256(Path(path).read_bytes()).digest()
        except OSError:
            content = b""
        state.update(f"{name}\n".encode() + content)
    digest = state.hexdigest()
    settled = all(times[0] < now - SETTLED_NS for _, _, times in files if times)
    if safe and settled and all(_identity(path) == before for _, path, before in files):
        with suppress(OSError):
            disk_cache.create(kept.parent)
            disk_cache.replace(kept, digest.encode())
            _remove_oldest(kept.parent, MOST_DIGESTS)
    return digest


def _identity(path: str) -> tuple[int, ...]:
    """Numbers that change when a file changes, the time of the last change first; none if it cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


def _file(key: str) -> Path:
    return settings().cache / "choices" / f"{key}.json"
