"""Adds counts of problems to a shapes file, which several processes may share and people may edit."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ptxgen.errors import InputError
from ptxgen.problem import suites
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store.exchange import replacing

_NAMES = {stat.S_IFDIR: "folder", stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}


def add(path: Path, counts: Counter[Problem]) -> None:
    """Adds ``counts`` to the file at ``path``, which is created if it is missing, and replaced atomically.

    The count of a problem is added to its first line; the other fields and lines do not change. Problems without a line
    get new lines at the end, the most frequent first. InputError, OSError: the file is not a regular file or not a
    shapes file, or cannot be read or written; it is not changed.
    """
    with _locked(path) as old:
        lines = [line.strip() for line in old if line.strip()]
        added = counts.copy()
        for i, case in enumerate(suites.read(lines, str(path), "")):
            if more := added.pop(case.problem, 0):
                values = json.loads(lines[i])
                count = min(values.get("count", 1) + more, suites.MOST_CALLS)
                lines[i] = _line({**values, "count": count})
        lines += [_line({**p.as_dict(), "count": n}) for p, n in added.most_common()]
        with replacing(path) as new:
            os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(old.fileno()).st_mode))
            new.writelines(line + b"\n" for line in lines)


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode()


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file at ``path``, opened and locked against other processes that add counts. InputError: it is not a regular
    file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        _require_regular(path)  # before it is opened: a device may do anything then
        with os.fdopen(os.open(path, flags, 0o666), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):  # else another process has replaced it meanwhile
                yield file
                return


def _require_regular(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is a {_NAMES.get(stat.S_IFMT(mode), 'device')}; it must be a regular file")


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False
