"""What every exchange file obeys: who made it, its format version, JSON that other programs can read."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ptxgen.errors import CorruptError, InputError, SchemaError
from ptxgen.measurement import CLOCKS, Measurement

FORMAT = 1
_DEVICE = re.compile(r"[a-z0-9_][a-z0-9_.+]*")


@dataclass(frozen=True)
class Header:
    """What made a file: the device and clock of all its rows, ptxgen's commit, the command, and when."""

    device: str
    clock: str = "hardware"
    commit: str = ""
    command: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) or "\n" in value or value != value.strip():
                raise InputError(f"{name} is {value!r}; it must be one line of text")
        if not _DEVICE.fullmatch(self.device):
            raise InputError(f"device is {self.device!r}; it must name a folder: small letters, digits, . _ +")
        if self.clock not in CLOCKS:
            raise InputError(f"clock is {self.clock!r}; it must be one of {', '.join(CLOCKS)}")


@contextmanager
def placed(path: Path, number: int) -> Iterator[None]:
    """Give a broken rule its place."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # InputError is a ValueError
        raise CorruptError(f"{path}, line {number}: {error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its place when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def require_format(path: Path, version: object) -> None:
    if not str(version).isdigit() or int(str(version)) < 1:
        raise CorruptError(f"{path}, line 1: format is {version!r}; it must be a number from 1 to {FORMAT}")
    if int(str(version)) > FORMAT:
        raise SchemaError(f"{path}, line 1: has format {version}, and this ptxgen knows formats up to {FORMAT}")


def require_header(m: Measurement, header: Header) -> None:
    for name in ("device", "clock"):
        if getattr(m.environment, name) != getattr(header, name):
            raise InputError(f"{name} is {getattr(m.environment, name)!r}; the file is of {getattr(header, name)!r}")


def microseconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"time is {value!r}; it must be positive and finite, in microseconds")
    return float(value)


def to_json(values: dict[str, Any]) -> str:
    return json.dumps(values, allow_nan=False, separators=(",", ":"))


def _not_json(name: str) -> None:
    raise InputError(f"has {name}, which is not JSON")


def from_json(text: str) -> dict[str, Any]:
    values = json.loads(text, parse_constant=_not_json)
    if not isinstance(values, dict):
        raise InputError(f"is {text[:60]!r}; it must be a JSON object")
    return values
