"""Choices of models, cached on disk. Without the cache a model must be loaded, and takes tens of milliseconds to
choose.

A choice has a file, named by the digest of all that the choice depends on: the package, the models and other tuning
files, the device, the problem. The cache is optional: errors of the file system are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ptxgen import disk_cache, file_digests
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.common.array_cache import package_key
from ptxgen.settings import settings

MOST = 8192  #: files; if there are more, the older half is removed
EVERY = "0"  #: the number of files is checked after one write in sixteen: where the key ends in this digit


class Choice(NamedTuple):
    """A chosen configuration. ``origin``, ``us``, ``scaled_from``: as in ``selection.Selection``."""

    config: Config
    origin: str
    us: float = math.nan
    scaled_from: str = ""


def key(files: Iterable[Path], *facts: object) -> str:
    """The key of a choice that depends on the ``repr`` of ``facts``, on ``files``, and on the package; a file may be
    absent. Empty: a plugin registered a kernel family, so the choice cannot be cached."""
    known = file_digests.of_files((str(path), str(path)) for path in files)
    return package_key(*facts, known)


def read(key: str) -> list[Choice] | None:
    """The configurations of a cached choice, the fastest first. None: the choice is not cached, or its file is
    damaged."""
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
            disk_cache.remove_oldest(path.parent, MOST)


def _file(key: str) -> Path:
    return settings().cache / "choices" / f"{key}.json"
