"""Digests of files: of the package, of a folder, of a list of files.

The disk cache keeps each digest under the sizes, times and inodes of its files, so files that have not changed are not
read again. The cache is optional: errors of the file system are ignored.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from ptxgen import disk_cache
from ptxgen.settings import settings, templates_dir

MOST_DIGESTS = 64  #: cached digests; if there are more, the older half is removed
SETTLED_NS = 2_000_000_000  #: a file that changed less than this ago may change again within one tick of its time stamp
PACKAGE = Path(__file__).resolve().parent


@cache
def of_package() -> str:
    """The digest of the code and the templates of this package. A checkout and an installation of the same files have
    the same digest, although their folders of templates differ."""
    return of_files([*_listed(PACKAGE, (".py",)), *_listed(templates_dir(), (".mako",))])


def of_tree(roots: Iterable[Path], suffixes: tuple[str, ...]) -> str:
    """The digest of the files below the folders ``roots`` whose names end in ``suffixes``."""
    return of_files(pair for root in roots for pair in _listed(root, suffixes))


def _listed(root: Path, suffixes: tuple[str, ...]) -> list[tuple[str, str]]:
    """The pair (path from ``root``, whole path) of each file below ``root`` whose name ends in one of ``suffixes``,
    sorted."""
    return sorted(_walked(root, suffixes))


def _walked(root: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    start = len(str(root)) + 1
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(suffixes):
                path = os.path.join(folder, name)
                yield path[start:], path


def of_files(files: Iterable[tuple[str, str]]) -> str:
    """The digest of the names and contents of ``files``, pairs (name, path). A file that cannot be read counts by its
    name alone."""
    return _digest_of(tuple((name, path, _identity(path)) for name, path in files))


@lru_cache(maxsize=64)
def _digest_of(files: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
    """The digest of ``files``, tuples (name, path, ``_identity`` of the path). It comes from the disk cache if no file
    has changed."""
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
            disk_cache.remove_oldest(kept.parent, MOST_DIGESTS)
    return digest


def _identity(path: str) -> tuple[int, ...]:
    """Numbers that change when a file changes, the time of the last change first; empty if the file cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
