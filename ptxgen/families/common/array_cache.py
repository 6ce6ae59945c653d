"""The disk cache of arrays that take tens of milliseconds to compute, for a class of problems or for a model.

A file holds a checksum of the rest, a line of JSON with the name, dtype and shape of each array, and the bytes of the
arrays. Its name is a digest of the package and of all that the arrays depend on. The cache is optional: errors of the
file system and damaged files are ignored.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen import disk_cache, file_digests
from ptxgen.families.registry import SPACES
from ptxgen.settings import settings

MOST = 256  #: the most files, which have a megabyte on average; if there are more, the older half is removed
DELAY = 0.5  #: seconds from the first pending ``write_later`` until all pending arrays are written
WORD = 8  #: bytes of a word; arrays begin at multiples of it
NUMBERS = "biuf"  #: NumPy dtype kinds that are stored: truth values, integers, floating-point numbers

Arrays = dict[str, NDArray[Any]]


def package_key(*facts: object) -> str:
    """A digest of the package and of the ``repr`` of ``facts``: the cache key of results that depend on both. Empty if
    a kernel family is from outside the package, because the digest would miss changes of that family."""
    if not all(type(space).__module__.startswith("ptxgen.") for space in SPACES):
        return ""
    return hashlib.sha256(repr((file_digests.of_package(), *facts)).encode()).hexdigest()


def read(key: str) -> Arrays | None:
    """The arrays that ``write`` stored, read-only. None: there are none, or their file is damaged."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return None
    try:
        content = path.read_bytes()
        if _checksum(memoryview(content)[WORD:]) != content[:WORD]:
            return None
        at = content.index(b"\n", WORD) + 1
        out = {}
        for name, dtype, shape in json.loads(content[WORD:at]):
            if np.dtype(dtype).kind not in NUMBERS:  # an object would be an address in the file
                return None
            out[name] = np.ndarray(tuple(shape), dtype, content, at)
            at += _aligned(out[name].nbytes)
        return out
    except (OSError, ValueError, TypeError):
        return None


def write(key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Stores arrays of numbers. If several processes write at once, a reader finds the whole file of one of them."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return
    line = json.dumps([(n, v.dtype.str, v.shape) for n, v in arrays.items()]).encode()
    line = line.ljust(_aligned(len(line) + 1) - 1) + b"\n"
    parts = [memoryview(line), *(_words(v) for v in arrays.values())]
    with suppress(OSError):
        disk_cache.create(path.parent)
        disk_cache.replace(path, _checksum(*parts), *parts)


_later: dict[str, Mapping[str, NDArray[Any]]] = {}  #: arrays that ``write_later`` has not written yet, by key
_later_lock, _flush_lock = threading.Lock(), threading.Lock()


def write_later(key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Stores arrays as ``write`` does, but in a thread after DELAY, at exit at the latest, so that a first call does
    not wait for the disk. The arrays must not change."""
    with _later_lock:
        starts = not _later
        _later[key] = arrays
    if starts:
        timer = threading.Timer(DELAY, flush)
        timer.daemon = True
        with suppress(RuntimeError):  # no thread can be started, as at exit
            timer.start()


@atexit.register
def flush() -> None:
    """Writes all pending arrays of ``write_later``, and removes old files."""
    with _flush_lock:
        written = 0
        while True:
            with _later_lock:
                if not _later:
                    break
                key = next(iter(_later))
            write(key, _later[key])
            written += 1
            with _later_lock:
                del _later[key]
        if written:
            with suppress(OSError):
                disk_cache.remove_oldest(_folder(), MOST)


def _renew_in_child() -> None:
    """Resets this module in a forked child. The parent writes the pending arrays; a lock that another thread of the
    parent held is free in the child."""
    global _later_lock, _flush_lock
    _later.clear()
    _later_lock, _flush_lock = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_renew_in_child)


def _words(values: NDArray[Any]) -> memoryview:
    """The bytes of an array, padded to whole words."""
    content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    missing = -len(content) % WORD
    return (np.append(content, np.zeros(missing, np.uint8)) if missing else content).data


def _aligned(size: int) -> int:
    """``size`` rounded up to whole words."""
    return -(-size // WORD) * WORD


def _checksum(*parts: bytes | memoryview) -> bytes:
    """The CRC-32 of the parts in sequence, as one word; it takes less time than a cryptographic digest."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc.to_bytes(WORD, "little")


def _folder() -> Path:
    return settings().cache / "arrays"


def _file(key: str) -> Path:
    return _folder() / key
