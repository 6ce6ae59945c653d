"""Common parts of exchange files: header, format version, checked JSON, atomic replacement, bounded decompression."""

from __future__ import annotations

import json
import lzma
import math
import os
import re
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ptxgen.errors import CorruptError, InputError, SchemaError
from ptxgen.problem.device import DEVICE_NAME
from ptxgen.tuning.store.measurement import CLOCKS, Measurement

FORMAT = 4  #: the format of files of winners and of measurements
LINE_LIMIT = 1 << 20  #: the most bytes of one line
TEXT_LIMIT = 1 << 26  #: the most bytes of a file that is read whole
MEMORY_LIMIT = 80 << 20  #: the most bytes that the decompressor may allocate; every preset of xz needs less


@dataclass(frozen=True)
class Header:
    """The origin of a file: device and clock of all its rows, commit of ptxgen, command, date."""

    device: str
    clock: str = "hardware"
    commit: str = ""
    command: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) or "\n" in value or value != value.strip() or not is_utf8(value):
                raise InputError(f"{name} is {value!r}; it must be one line of text")
        require_device_name(self.device)
        if self.clock not in CLOCKS:
            raise InputError(f"clock is {self.clock!r}; it must be one of {', '.join(CLOCKS)}")


def require_device_name(name: str) -> None:
    """Raises InputError if a device cannot have this name."""
    if not DEVICE_NAME.fullmatch(name):
        raise InputError(f"device is {name!r}; it must name a folder: small letters, digits, . _ +")


def is_utf8(text: str) -> bool:
    """True if ``text`` can be encoded as UTF-8. Lone surrogates cannot."""
    return text.isascii() or text.encode(errors="replace").decode() == text


class errors_with_line:  # noqa: N801 a context manager; contextlib's take longer, and files have a million lines
    """Converts errors within the block to a CorruptError that names file and line."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number

    def __enter__(self) -> None:
        pass

    def __exit__(self, exception_class: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | TypeError | OverflowError | RecursionError):  # InputError is a ValueError
            raise CorruptError(f"{self.path}, line {self.number}: {error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that is flushed to disk and replaces ``path`` when the block ends. If ``path`` is a link, the
    file that it names is replaced. InputError: ``path`` exists and is not a regular file."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; only a regular file can be replaced")
    made = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:  # a new file: no link to another one
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        for folder in (path.parent, path.parent.parent) if made else (path.parent,):
            _sync_folder(folder)
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flushes a folder to disk, which makes a rename durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def require_file(path: Path) -> None:
    """Raises InputError if ``path`` does not exist, CorruptError if it is not a regular file (to open a FIFO would
    block)."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_file():
        raise CorruptError(f"{path} is not a regular file")


def read_text(path: Path) -> str:
    """The text of a file of at most ``TEXT_LIMIT`` bytes. InputError, CorruptError: as ``require_file``. CorruptError:
    also if the file is too large or not UTF-8."""
    require_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(TEXT_LIMIT + 1)
        if len(content) > TEXT_LIMIT:
            raise CorruptError(f"{path} has more than {TEXT_LIMIT} bytes, the limit for a file of winners")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptError(f"{path} cannot be read as text: {error}") from error


def decompressed_lines(path: Path) -> Generator[bytes, None, None]:
    """The lines of a single-stream .xz file, without line ends. Memory use is bounded for any content.

    InputError, CorruptError: as ``require_file``. CorruptError: also if the file is damaged, or a line exceeds
    ``LINE_LIMIT`` bytes.
    """
    require_file(path)
    number, rest = 0, b""
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_LIMIT)
        with path.open("rb") as file:
            while not unpacker.eof:
                packed = file.read(1 << 16) if unpacker.needs_input else b""
                if unpacker.needs_input and not packed:
                    raise EOFError("the file ends inside its stream")
                *lines, rest = (rest + unpacker.decompress(packed, LINE_LIMIT)).split(b"\n")
                if max(map(len, (*lines, rest))) > LINE_LIMIT:
                    raise CorruptError(f"{path}, after line {number}: a line has more than {LINE_LIMIT} bytes")
                for line in lines:
                    number += 1
                    yield line
            if unpacker.unused_data or file.read(1):
                raise CorruptError(f"{path} has data after the end of its stream")
    except (EOFError, lzma.LZMAError, OSError) as error:
        raise CorruptError(f"{path}, after line {number}: damaged or cut short: {error}") from error
    if rest:
        yield rest


def require_format(path: Path, version: object) -> None:
    """Checks the format of a file. CorruptError: ``version`` is not a number. SchemaError: it is not ``FORMAT``."""
    text = str(version)
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise CorruptError(f"{path}, line 1: format is {version!r:.60}; it must be {FORMAT}")
    if int(text) != FORMAT:
        raise SchemaError(f"{path}, line 1: has format {text}, and this ptxgen reads format {FORMAT}")


def require_header(m: Measurement, header: Header) -> None:
    """Raises InputError if the device or the clock of a measurement differs from that of the header."""
    for name in ("device", "clock"):
        if getattr(m.environment, name) != getattr(header, name):
            raise InputError(f"{name} is {getattr(m.environment, name)!r}; the file is of {getattr(header, name)!r}")


def microseconds(value: object) -> float:
    """A time in microseconds that was read from JSON. InputError: ``value`` is not a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"time is {value!r}; it must be positive and finite, in microseconds")
    return float(value)


def to_json(values: dict[str, Any]) -> str:
    """``values`` as compact JSON."""
    return json.dumps(values, allow_nan=False, separators=(",", ":"))


def _not_json(name: str) -> None:
    raise InputError(f"has {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_not_json)  #: made once: files have hundreds of thousands of lines


def from_json(text: str) -> dict[str, Any]:
    """The JSON object that ``text`` describes. InputError, ValueError: the text is not a JSON object, or has NaN or
    infinity."""
    values = _DECODER.decode(text)
    if not isinstance(values, dict):
        raise InputError(f"is {text[:60]!r}; it must be a JSON object")
    return values
