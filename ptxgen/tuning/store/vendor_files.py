"""``vendor*.jsonl.xz``: times of vendors' libraries, one JSON object a line, sorted; the first line is the header.

A time is that of the algorithm that the library's heuristic names, as a program without tuning gets it. A collection
adds a file, ``vendor-NAME.jsonl.xz``, and no file is written again. The rows of ``validation*.jsonl.xz``, which
``model validate --rows`` wrote, have such times, too.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ptxgen.errors import CorruptError, InputError
from ptxgen.problem.operation import operation_of
from ptxgen.problem.registry import Problem
from ptxgen.settings import shipped_dir
from ptxgen.tuning.store.exchange import (
    FORMAT,
    Header,
    decompressed_lines,
    errors_with_line,
    from_json,
    microseconds,
    replacing,
    require_format,
    to_json,
)
from ptxgen.tuning.store.records import parse_problem

FILES, VALIDATIONS = "vendor*.jsonl.xz", "validation*.jsonl.xz"
_FIELDS = {"problem": str, "library": str, "version": str, "us": float}


class VendorTime(NamedTuple):
    """Microseconds of a vendor's library for a problem. ``library``: the name of its ``Baseline``; ``version``: name
    and version, empty: not recorded."""

    problem: Problem
    library: str
    version: str
    us: float


def write(path: Path, header: Header, rows: Iterable[VendorTime]) -> int:
    """Writes a file; returns the number of rows. The same rows give the same bytes."""
    lines = sorted(to_json({**row._asdict(), "problem": row.problem.key(), "us": round(row.us, 4)}) for row in rows)
    title = {"ptxgen": "vendor", "format": FORMAT, **asdict(header), "measurements": len(lines)}
    with replacing(path) as file, lzma.open(file, "wb", format=lzma.FORMAT_XZ, preset=6) as packed:
        for line in (to_json(title), *lines):
            packed.write(f"{line}\n".encode())
    return len(lines)


def files(device: str, folder: Path | None = None) -> list[Path]:
    """The files of a device with times of vendors' libraries, sorted. ``folder``: replaces the shipped one."""
    of_device = (folder or shipped_dir()) / device
    return [path for pattern in (FILES, VALIDATIONS) for path in sorted(of_device.glob(pattern))]


def read(path: Path) -> tuple[Header, list[VendorTime]]:
    """The header and the rows of one of ``files``. SchemaError: another format. CorruptError: names the line and the
    rule."""
    rows: list[VendorTime] = []
    with closing(decompressed_lines(path)) as lines:
        with errors_with_line(path, 1):
            title = from_json(next(lines, b"null").decode())
            if not isinstance(title, dict):
                raise InputError("is something else; it must be an object")
            validation = title.pop("ptxgen", None) != "vendor"
            if not validation:
                require_format(path, title.pop("format", None))
            count = title.pop("measurements", None)
            header = Header(**{name: x for name, x in title.items() if name != "seed"})
        for number, line in enumerate(lines, 2):
            with errors_with_line(path, number):
                values = from_json(line.decode())
                rows += _validated(values) if validation else [_time(values)]
    if not validation and count != len(rows):
        raise CorruptError(f"{path}: its header says {count!r} measurements, it has {len(rows)}")
    return header, rows


def _time(values: dict[str, Any]) -> VendorTime:
    """The record of one line, read from JSON. InputError: a value breaks a rule."""
    if set(values) != set(_FIELDS) or not all(isinstance(values[name], of) for name, of in _FIELDS.items()):
        raise InputError(f"has {', '.join(values)}; it must have {', '.join(_FIELDS)}, texts and a number")
    return VendorTime(**{**values, "problem": parse_problem(values["problem"]), "us": microseconds(values["us"])})


def _validated(values: dict[str, Any]) -> Iterator[VendorTime]:
    """The time of the heuristic's algorithm in a row of ``model validate``, if it was measured."""
    us = values.get("vendor_first")
    if us is not None:
        problem = parse_problem(values["problem"])
        yield VendorTime(
            problem,
            next(name for name, b in operation_of(problem).baselines.items() if not b.emulated),
            "",
            microseconds(us),
        )
