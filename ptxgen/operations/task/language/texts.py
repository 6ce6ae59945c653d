"""Reads texts of tasks, and keeps their programs in the disk cache.

A process that reads only known texts imports no parser generator and makes no parser. A file of the cache has a program
as JSON. The cache is optional: errors of the file system and damaged files are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from ptxgen import disk_cache
from ptxgen.expr.operators import OPERATORS
from ptxgen.families.common.array_cache import package_key
from ptxgen.operations.task.language.program_json import from_lists, to_lists
from ptxgen.operations.task.program import Program
from ptxgen.settings import settings

MOST = 8192  #: files; if there are more, the older half is removed
EVERY = "0"  #: the number of files is checked after one write in sixteen: where the key ends in this digit


def input_ranks(text: str) -> dict[str, int]:
    """``parser.input_ranks``, from the disk cache if it has the text."""
    return dict(_ranks(text))


def parse(text: str, dtypes: Mapping[str, str] | None = None) -> Program:
    """``parser.parse``, from the disk cache if it has the text with these types. TaskError: the text breaks a rule."""
    return _program(text, tuple(sorted((dtypes or {}).items())))


@lru_cache(maxsize=256)
def _ranks(text: str) -> dict[str, int]:
    key = _key("ranks", text)
    with suppress(ValueError, TypeError):
        return {str(name): int(rank) for name, rank in read(key)}

    from ptxgen.operations.task.language import parser  # it imports a parser generator

    ranks = parser.input_ranks(text)
    write(key, list(ranks.items()))
    return ranks


@lru_cache(maxsize=256)
def _program(text: str, dtypes: tuple[tuple[str, str], ...]) -> Program:
    key = _key("program", text, dtypes)
    with suppress(ValueError, TypeError, KeyError, IndexError):
        return from_lists(read(key))

    from ptxgen.operations.task.language import parser

    program = parser.parse(text, dict(dtypes))
    write(key, to_lists(program))
    return program


def kept_programs() -> Iterator[Program]:
    """The programs in the disk cache: those of texts that any process has read."""
    folder = _file("").parent
    for path in () if disk_cache.unsafe(folder) else sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError, IndexError, RecursionError):
            yield from_lists(json.loads(path.read_bytes()))


def _key(*facts: object) -> str:
    """The key of a result that depends on the package and on ``facts``. Empty: a plugin registered a kernel family, so
    results are not cached."""
    return package_key(*facts, tuple(OPERATORS))


def read(key: str) -> Any:
    """The lists that ``write`` stored under a key. None: there are none, or the file is damaged."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return None
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def write(key: str, lists: Any) -> None:
    """Stores lists under a key. If several processes write at once, a reader finds the whole file of one of them."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return
    with suppress(OSError):
        disk_cache.create(path.parent)
        disk_cache.replace(path, json.dumps(lists).encode())
        if key.endswith(EVERY):
            disk_cache.remove_oldest(path.parent, MOST)


def _file(key: str) -> Path:
    return settings().cache / "programs" / f"{key}.json"
