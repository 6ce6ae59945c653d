"""The folders of the disk cache, in which other users cannot write, and the atomic replacement of their files."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

_log = logging.getLogger(__name__)


def unsafe(folder: Path) -> str:
    """The reason why other users could replace files in ``folder``; empty if they cannot, or if ``folder`` does not
    exist.

    The folder and its parent must belong to this user or root, and must not be writable by group and others; a parent
    with the sticky bit may be.
    """
    for path, allowed in ((folder, 0), (folder.parent, stat.S_ISVTX)):
        try:
            status = path.stat()
        except OSError:  # absent: it will be created; unreadable: it will not be used
            continue
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to user {status.st_uid}; it must belong to user {os.geteuid()} or root"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & allowed:
            mode = stat.S_IMODE(status.st_mode)
            return f"{path} has mode {mode:04o}; group and others must not write it: chmod go-w {path}"
    return ""


def create(folder: Path) -> None:
    """Creates ``folder`` and its parent so that only this user can read and write them. OSError: a folder cannot be
    created; the first such error of a process is logged."""
    try:
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _warn(f"nothing is cached: {folder.parent}, the folder of PTXGEN_CACHE, cannot be created: {error.strerror}")
        raise


@cache
def _warn(message: str) -> None:
    _log.warning(message)


def replace(path: Path, *content: bytes | memoryview) -> None:
    """Replaces ``path`` atomically: a reader sees the old file or the new one, which has the parts of ``content`` one
    after the other. OSError: the file cannot be written."""
    handle, name = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_oldest(folder: Path, most: int) -> None:
    """Removes the older half of the files of ``folder`` if there are more than ``most``. OSError: a file cannot be
    removed, or another process has just removed it."""
    files = list(folder.iterdir())
    if len(files) > most:
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)[: len(files) // 2]:
            path.unlink()
