"""``fastest.txt.xz``: a file with the fastest configuration of every problem. The files of measurements beside it, from
which it is made, would take seconds to read.

The file has comment lines with the format, the device and the digest of the measurements, then one line per problem,
sorted: ``problem | configuration | microseconds``. ``tuning_files.export_text`` writes both files.
"""

from __future__ import annotations

import hashlib
import lzma
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import CorruptError, InputError
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store.exchange import (
    FORMAT,
    decompressed_lines,
    errors_with_line,
    microseconds,
    replacing,
    require_format,
)
from ptxgen.tuning.store.measurement import Measurement

FASTEST = "fastest.txt.xz"
_TITLE = "# ptxgen fastest measurements, format "


class Row(NamedTuple):
    """The fastest configuration of a problem, as text, and its time."""

    config: str
    us: float


class Fastest:
    """Collects the fastest measurement of each problem."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def passing(self, measurements: Iterable[Measurement]) -> Iterator[Measurement]:
        """The same measurements; each is collected when it is read."""
        for m in measurements:
            if m.outcome == "ok":
                self._add(m.problem.key(), str(m.config), m.us)
            yield m

    def add_plain(self, rows: Iterable[dict[str, Any]]) -> None:
        """Collects measurements that ``tuning_files.plain_measurements`` returned, in the current format."""
        for row in rows:
            if row["outcome"] == "ok":
                self._add(row["problem"], row["config"], statistics.median(row["samples"]))

    def _add(self, problem: str, config: str, us: float) -> None:
        if problem not in self.rows or us < self.rows[problem].us:
            self.rows[problem] = Row(config, us)

    def write(self, measurements: Sequence[Path]) -> Path:
        """Writes ``fastest.txt.xz`` beside ``measurements``, the paths of the files of measurements; returns its
        path."""
        path = measurements[0].with_name(FASTEST)
        lines = [f"{_TITLE}{FORMAT}", f"# device: {path.parent.name}", f"# measurements: {digest_of(measurements)}"]
        for key, row in sorted(self.rows.items()):
            lines.append(f"{key} | {parse_config(row.config)} | {row.us:.6g}")
        with replacing(path) as file, lzma.open(file, "wb", format=lzma.FORMAT_XZ, preset=6) as packed:
            packed.write(("\n".join(lines) + "\n").encode())
        return path


def digest_of(measurements: Sequence[Path]) -> str:
    """The digest of files of measurements, by which ``fastest.txt.xz`` names the files it was made from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in measurements)).hexdigest()[:16]


def read(path: Path) -> dict[str, Row]:
    """The rows of a file by problem key; empty if there is no file. SchemaError: it has another format. CorruptError:
    it is damaged."""
    return _read(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> dict[str, Row]:
    rows = {}
    for number, line in enumerate(decompressed_lines(path), 1):
        with errors_with_line(path, number):
            text = line.decode()
            if number == 1:
                if not text.startswith(_TITLE):
                    raise CorruptError(f"{path}, line 1 has another title; it must be '{_TITLE}{FORMAT}'")
                require_format(path, text.removeprefix(_TITLE))
            elif not text.startswith("#"):
                cells = text.split(" | ")
                if len(cells) != 3:
                    raise InputError(f"has {len(cells)} columns; it must have problem, configuration, microseconds")
                rows[cells[0]] = Row(cells[1], microseconds(float(cells[2])))
    return rows


def comparable(keys: Iterable[str], problem: Problem) -> Iterator[str]:
    """The problem keys in ``keys`` whose operation, layout and type are those of ``problem``."""
    wanted = [problem.operation, problem.layout, problem.dtype]
    for key in keys:
        words = key.split(" ", 4)
        if [words[0], *words[2:4]] == wanted:
            yield key
