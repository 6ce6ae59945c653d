"""Tuning results as files: those that ship in ``tuning_db/``, and exports of databases. One folder per device.

- ``winners.txt``: comment lines with the format version and origin of the file, then one line per winner, sorted:
 ``problem | configuration | microseconds | digest | environment``. Text, to be read, compared and merged.
 The environment may have ``sass``: the machine code, as ``ptxgen.runtime.sass.machine_code`` returns it.
 ``stale.txt``: winners in the same form whose kernels have changed since; ``db recheck`` times them again.
 ``measurements.jsonl.xz``: the raw measurements, one JSON object per line; the first line is the header.
 ``measurements-NAME.jsonl.xz``: further ones. A collection adds a file, and no file is written again.
 ``withdrawn.txt``: ``problem | family`` of measurements that no longer count, because the kernels did not compute this
 problem. Readers of a device's measurements leave them out.
 ``fastest.txt.xz``: the fastest measurement of each problem, which ``ptxgen.tuning.store.fastest`` reads and writes.
 ``model.json.xz``: the model, which ``ptxgen.tuning.model.model`` reads and writes.
 ``paper/``: documents of tables and figures of papers (``ptxgen.tuning.store.paper_files``).

The same content gives the same bytes.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from ptxgen.codegen.config.config import Config, default_family, parse_config
from ptxgen.errors import CorruptError, InputError, PtxgenError
from ptxgen.problem.registry import Problem, parse
from ptxgen.settings import shipped_dir
from ptxgen.tuning.store.exchange import (
    FORMAT,
    Header,
    decompressed_lines,
    errors_with_line,
    from_json,
    microseconds,
    read_text,
    replacing,
    require_format,
    require_header,
    to_json,
)
from ptxgen.tuning.store.fastest import FASTEST, Fastest
from ptxgen.tuning.store.measurement import OUTCOMES, Environment, Measurement
from ptxgen.tuning.store.records import parse_problem, require_valid
from ptxgen.tuning.store.time_floor import require_possible

WINNERS, STALE, MEASUREMENTS, MODEL = "winners.txt", "stale.txt", "measurements.jsonl.xz", "model.json.xz"
ALL_MEASUREMENTS, WITHDRAWN = "measurements*.jsonl.xz", "withdrawn.txt"
_TITLE = "ptxgen winners, format "
_COLUMNS = ("problem", "configuration", "microseconds", "digest", "environment")
_FAMILY = re.compile(r"family=(\w+)")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_SASS = re.compile(r"[0-9]+(\.[0-9]+)+ sm_[0-9]+[a-z]? [0-9a-f]{16}")

Current = Callable[[Problem, Config], str]
CurrentOn = Callable[[str, Problem, Config], str]


class Store(Protocol):
    """The methods of ``ptxgen.tuning.store.database.Database`` that this module uses."""

    def best(self, problem: Problem, device: str, clock: str = "hardware") -> Measurement | None: ...
    def devices(self) -> list[tuple[str, str]]: ...
    def winners(self, device: str | None = None, clock: str | None = None) -> Iterator[Measurement]: ...
    def measurements(self, *, device: str | None = None, clock: str | None = None) -> Iterator[Measurement]: ...
    def merge(
        self,
        measurements: Iterable[Measurement],
        winners: Iterable[Measurement],
        current: CurrentOn | None = None,
    ) -> dict[str, int]: ...


def clock_of(device: str) -> str:
    """The clock of valid times of a device: ``model`` on the emulated device, else ``hardware``."""
    return "model" if device == "emulated" else "hardware"


def winners_path(device: str, folder: Path | None = None) -> Path:
    """The path of a device's winners. ``folder``: the folder to use in place of the shipped one."""
    return (folder or shipped_dir()) / device / WINNERS


def measurements_path(device: str, folder: Path | None = None) -> Path:
    """The path of the raw measurements that ``export_text`` writes. ``folder``: as for ``winners_path``."""
    return (folder or shipped_dir()) / device / MEASUREMENTS


def measurement_files(device: str, folder: Path | None = None) -> list[Path]:
    """The files with raw measurements of a device, sorted; empty if it has none. ``folder``: as for
    ``winners_path``."""
    return sorted(measurements_path(device, folder).parent.glob(ALL_MEASUREMENTS))


def existing_measurements(device: str, folder: Path | None = None) -> list[Path]:
    """``measurement_files`` of a device that has some. InputError: the device has no measurements."""
    files = measurement_files(device, folder)
    if not files:
        path = measurements_path(device, folder)
        known = sorted({p.parent.name for p in path.parents[1].glob(f"*/{ALL_MEASUREMENTS}")})
        rule = (
            f"it must be one with measurements: {', '.join(known)}"
            if known
            else "the measurements are in the repository of ptxgen"
        )
        raise InputError(f"device is {device!r}; {rule} ({path} does not exist)")
    return files


def read_all(files: Iterable[Path], problems: Collection[Problem] | None = None) -> Iterator[Measurement]:
    """The measurements of ``files``, each one checked, without withdrawn ones. ``problems``: only the measurements of
    these problems, which takes a tenth of the time. SchemaError, CorruptError: as for ``read_measurements``."""
    for path in files:
        absent = withdrawn(path.parent)
        for m in read_measurements(path, problems)[1]:
            if not absent or (m.problem.key(), m.config.family) not in absent:
                yield m


def plain_all(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """As ``read_all``, but the measurements are plain data and not checked, which takes a tenth of the time.
    CorruptError: as for ``plain_measurements``."""
    for path in files:
        absent = withdrawn(path.parent)
        for values in plain_measurements(path):
            if not absent or (values["problem"], family_of(values["config"])) not in absent:
                yield values


def family_of(config: str) -> str:
    """The family in the text of a configuration."""
    family = _FAMILY.search(config)
    return family[1] if family else default_family()


def withdrawn(folder: Path) -> frozenset[tuple[str, str]]:
    """The withdrawn pairs (problem, family) of a device, read from ``withdrawn.txt`` in its folder. CorruptError: a
    line has another form."""
    path = folder / WITHDRAWN
    lines = read_text(path).splitlines() if path.exists() else []
    rows = [tuple(line.split(" | ")) for line in lines if line and not line.startswith("#")]
    if any(len(row) != 2 for row in rows):
        raise CorruptError(f"{path}: a line has other columns; it must have problem | family")
    return frozenset((problem, family) for problem, family in rows)


def fastest_path(device: str, folder: Path | None = None) -> Path:
    """The path of the fastest measurements of a device. ``folder``: as for ``winners_path``."""
    return (folder or shipped_dir()) / device / FASTEST


def model_path(device: str, folder: Path | None = None) -> Path:
    """The path of a device's model. ``folder``: as for ``winners_path``."""
    return (folder or shipped_dir()) / device / MODEL


# --- winners -------------------------------------------------------------------------------------------------


def write_winners(path: Path, header: Header, winners: Iterable[Measurement]) -> None:
    """Writes ``winners.txt`` atomically.

    Samples are reduced to their median with six digits. InputError: a measurement is not ``ok``, is of another device
    or clock, has no digest, or is the second one of its problem.
    """
    lines: dict[str, str] = {}
    for m in winners:
        key = m.problem.key()
        require_header(m, header)
        if m.outcome != "ok":
            raise InputError(f"winner of {key} has outcome {m.outcome!r}; it must be ok")
        if not _DIGEST.fullmatch(m.digest):
            raise InputError(f"winner of {key} has digest {m.digest!r}; it must have 16 hexadecimal digits")
        if key in lines:
            raise InputError(f"{key} has two winners; it must have one")
        environment = {n: v for n, v in asdict(m.environment).items() if v and n not in ("device", "clock")}
        if m.sass:
            environment["sass"] = m.sass
        cells = (key, str(m.config), f"{microseconds(m.us):.6g}", m.digest, to_json(environment))
        lines[key] = " | ".join(cells)
    head = [f"{_TITLE}{FORMAT}", *(f"{name}: {value}" for name, value in asdict(header).items())]
    head += [f"winners: {len(lines)}", " | ".join(_COLUMNS)]
    text = [f"# {line}".rstrip() for line in head] + [lines[key] for key in sorted(lines)]
    with replacing(path) as file:
        file.write(("\n".join(text) + "\n").encode())
    _load.cache_clear()


def read_winners(path: Path) -> tuple[Header, list[Measurement]]:
    """Reads ``winners.txt`` and checks every line. Each winner has one sample, its median.

    SchemaError: another format. CorruptError: names the line and the rule.
    """
    winners = _Winners(path)
    return winners.header, list(winners.values())


def _number(text: str) -> float:
    """The time of a winner, read from its text. InputError: the text is not a number."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"microseconds are {text!r:.60}; they must be a number") from None


class _Winners(Mapping[str, Measurement]):
    """The winners of a file by problem key. A line is parsed when its problem is looked up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = read_text(path).rstrip("\n").split("\n")
        comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
        if not comments or not lines[0].startswith(f"# {_TITLE}"):
            raise CorruptError(f"{path}, line 1 has another title; it must be '# {_TITLE}{FORMAT}'")
        require_format(path, comments[0].removeprefix(_TITLE))
        named = dict(c.partition(":")[::2] for c in comments if ":" in c)
        with errors_with_line(path, 1):
            self.header = Header(**{f.name: named.get(f.name, "").strip() for f in fields(Header)})
        self.lines: dict[str, tuple[int, str]] = {}
        for number, line in enumerate(lines, 1):
            if line and not line.startswith("#"):
                key = line.partition(" | ")[0]
                if key in self.lines:
                    raise CorruptError(f"{path}, line {number}: {key} occurs twice; a problem has one winner")
                self.lines[key] = number, line
        stated = named.get("winners", "").strip()
        if stated != str(len(self.lines)):
            raise CorruptError(f"{path}, line {len(lines)}: its header says {stated!r} winners, it has {len(self)}")

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __contains__(self, key: object) -> bool:
        return key in self.lines

    def __getitem__(self, key: str) -> Measurement:
        number, line = self.lines[key]
        with errors_with_line(self.path, number):
            cells = line.split(" | ", len(_COLUMNS) - 1)
            if len(cells) != len(_COLUMNS):
                raise InputError(f"has {len(cells)} columns; it must have {len(_COLUMNS)}: {', '.join(_COLUMNS)}")
            problem = parse(cells[0])
            if problem.key() != key:
                raise InputError(f"problem is {key!r}; it must be written as {problem.key()!r}")
            if not _DIGEST.fullmatch(cells[3]):
                raise InputError(f"digest is {cells[3]!r}; it must be 16 hexadecimal digits")
            values = from_json(cells[4])
            sass = values.pop("sass", "")
            if sass and not (isinstance(sass, str) and _SASS.fullmatch(sass)):
                raise InputError(f"sass is {sass!r}; it must be a release of ptxas, a target and 16 hexadecimal digits")
            environment = _environment(self.header.device, self.header.clock, to_json(values))
            samples = (microseconds(_number(cells[2])),)
            config = parse_config(cells[1])
            m = Measurement(problem, config, "ok", environment, samples, cells[3], sass=sass)
            require_valid(m, winner=True)
            return m


@lru_cache(maxsize=256)
def _environment(device: str, clock: str, text: str) -> Environment:
    values = from_json(text)
    names = [f.name for f in fields(Environment) if f.name not in ("device", "clock")]
    for name, value in values.items():
        if name not in names or not isinstance(value, str):
            raise InputError(f"environment has {name!r}: {value!r}; it may have texts for {', '.join(names)}")
    return Environment(device, clock, **values)


# --- raw measurements ----------------------------------------------------------------------------------------


def write_measurements(path: Path, header: Header, measurements: Iterable[Measurement]) -> int:
    """Writes ``measurements.jsonl.xz`` with sorted lines; returns the number of rows. All lines are in memory at once.

    InputError: a measurement breaks a rule, or its device or clock differs from that of the header.
    """
    lines = []
    for m in measurements:
        require_header(m, header)
        values = m.as_dict()
        values["samples"] = [float(x) for x in m.samples]
        measurement_of(values)  # written rows must pass the checks of a reader
        lines.append(to_json(values))
    lines.sort()
    title = {"ptxgen": "measurements", "format": FORMAT, **asdict(header), "measurements": len(lines)}
    with replacing(path) as file, lzma.open(file, "wb", format=lzma.FORMAT_XZ, preset=6) as packed:
        for line in (to_json(title), *lines):
            packed.write(f"{line}\n".encode())
    return len(lines)


def read_measurements(path: Path, problems: Collection[Problem] | None = None) -> tuple[Header, Iterator[Measurement]]:
    """Reads ``measurements.jsonl.xz``: the header at once, rows on demand, each one checked. ``problems``: only the
    measurements of these problems; other lines are not checked.

    SchemaError: another format. CorruptError: names the line and the rule.
    """
    title = next(rows := _objects(path), None)
    rows.close()
    if title is None or title.pop("ptxgen", None) != "measurements":
        raise CorruptError(f'{path}, line 1 is something else; it must be an object with "ptxgen": "measurements"')
    require_format(path, title.pop("format", None))
    count = title.pop("measurements", None)
    with errors_with_line(path, 1):
        header = Header(**title)
    starts = None if problems is None else {to_json({"problem": p.key()})[:-2].encode() for p in problems}
    return header, _measurements(path, header, count, starts)


def measured_problems(files: Iterable[Path]) -> list[str]:
    """The keys of the problems of ``files``, sorted. Lines are not checked."""
    starts: set[bytes] = set()
    for path in files:
        with closing(decompressed_lines(path)) as lines:
            next(lines, None)
            starts.update(map(_start, lines))
    return sorted(str(from_json(start.decode() + '"}')["problem"]) for start in starts)


def _start(line: bytes) -> bytes:
    """The beginning of a line, up to the end of its problem key, which the characters quote, comma, quote follow."""
    return line[: line.find(b'","')]


def _measurements(path: Path, header: Header, count: object, starts: Collection[bytes] | None) -> Iterator[Measurement]:
    """The measurements of a file. ``count``: the number of lines by the header; ``starts``: the beginnings of the lines
    to read, None: all lines."""
    number = 1
    with closing(decompressed_lines(path)) as lines:
        next(lines)
        for number, line in enumerate(lines, 2):
            if starts is not None and _start(line) not in starts:
                continue
            with errors_with_line(path, number):
                m = measurement_of(from_json(line.decode()))
                require_header(m, header)
            yield m
    if number - 1 != count:
        raise CorruptError(f"{path}, line {number}: its header says {count!r} measurements, it has {number - 1}")


def plain_measurements(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of ``measurements.jsonl.xz`` after the first as plain data, unchecked. CorruptError: the file is
    damaged, or a line is not JSON."""
    with closing(_objects(path)) as rows:
        next(rows, None)
        yield from rows


def _objects(path: Path) -> Generator[dict[str, Any], None, None]:
    for number, line in enumerate(decompressed_lines(path), 1):
        with errors_with_line(path, number):
            values = from_json(line.decode())
        yield values


_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("problem", "config", "outcome", "digest", "message", "purpose", "sass", "operands"), str),
    **dict.fromkeys(("registers", "spills"), int),
    "created": (int, float),
    "samples": list,
    "environment": dict,
}


_REQUIRED = ("problem", "config", "outcome", "environment")
_ENVIRONMENT = sorted(f.name for f in fields(Environment))


@lru_cache(maxsize=16)
def _are_fields(names: tuple[str, ...], types: tuple[type, ...]) -> bool:
    """True if values with these names and types can form a measurement."""
    known = all(name in _TYPES and issubclass(of, _TYPES[name]) for name, of in zip(names, types, strict=True))
    return known and bool not in types and set(_REQUIRED).issubset(names)


def _require_fields(values: dict[str, Any]) -> None:
    """Raises InputError if a value is missing, unknown or of a wrong type."""
    if _are_fields(tuple(values), tuple(map(type, values.values()))):
        return
    for name in _REQUIRED:
        if name not in values:
            raise InputError(f"lacks {name}")
    for name, value in values.items():
        if name not in _TYPES:
            raise InputError(f"has {name!r}; a measurement has {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise InputError(f"{name} is {value!r}, which is of the wrong type")


def _environment_of(facts: dict[str, Any]) -> Environment:
    """The environment that plain data describe. InputError: a value breaks a rule."""
    if set(map(type, facts.values())) <= {str}:
        return _environment_of_texts(tuple(facts.items()))
    name, value = next((n, v) for n, v in facts.items() if not isinstance(v, str))
    raise InputError(f"environment has {name!r}: {value!r}; it may have texts for {', '.join(_ENVIRONMENT)}")


@lru_cache(maxsize=64)
def _environment_of_texts(facts: tuple[tuple[str, str], ...]) -> Environment:
    for name, value in facts:
        if name not in _ENVIRONMENT:
            raise InputError(f"environment has {name!r}: {value!r}; it may have texts for {', '.join(_ENVIRONMENT)}")
    values = dict(facts)
    if "device" not in values:
        raise InputError("environment lacks device")
    return Environment(**values)


def measurement_of(values: dict[str, Any]) -> Measurement:
    """The measurement that plain data describe. ValueError (InputError included), TypeError: a value breaks a rule."""
    _require_fields(values)
    environment = _environment_of(values["environment"])
    if values["outcome"] not in OUTCOMES:
        raise InputError(f"outcome is {values['outcome']!r}; it must be one of {', '.join(OUTCOMES)}")
    samples = tuple([microseconds(x) for x in values.get("samples", ())])
    if (values["outcome"] == "ok") != bool(samples):
        raise InputError(f"outcome {values['outcome']} has {len(samples)} samples; ok has some, a failure none")
    if not (-1 <= values.get("registers", -1) < 1 << 31 and -1 <= values.get("spills", -1) < 1 << 31):
        raise InputError(
            f"registers is {values.get('registers')} and spills is {values.get('spills')}; they must be counts, or -1"
        )
    made = {
        "problem": parse_problem(values["problem"]),
        "config": parse_config(values["config"]),
        "environment": environment,
        "samples": samples,
        "created": float(values.get("created", 0)),
    }
    m = Measurement(**{**values, **made})
    require_valid(m)
    return m


# --- shipped files -------------------------------------------------------------------------------------------


def devices(folder: Path | None = None) -> list[str]:
    """The devices that have shipped winners, sorted. ``folder``: as for ``winners_path``."""
    return sorted(path.parent.name for path in (folder or shipped_dir()).glob(f"*/{WINNERS}"))


def shipped_winners(device: str, folder: Path | None = None) -> Mapping[str, Measurement]:
    """The shipped winners of a device by problem key; empty if it has none. Cached in the process.

    The structure of the file is checked at once, a line when its problem is looked up. SchemaError, CorruptError: as
    for ``read_winners``.
    """
    return _load(winners_path(device, folder), device)


@lru_cache(maxsize=64)
def _load(path: Path, device: str) -> Mapping[str, Measurement]:
    if not path.exists():
        return {}
    winners = _Winners(path)
    if winners.header.device != device:
        raise CorruptError(f"{path}, line 1: is of device {winners.header.device!r}; its folder says {device!r}")
    return winners


def lookup(
    problem: Problem,
    device: str,
    database: Store | None = None,
    *,
    clock: str | None = None,
    current: Current | None = None,
    folder: Path | None = None,
) -> Measurement | None:
    """The winner of exactly this problem: that of the database, else the shipped one; None if there is none.

    ``clock``: default ``clock_of(device)``. ``current``: returns the digest of the kernel that this version generates;
    winners with another digest are ignored.
    """
    clock = clock or clock_of(device)
    mine = database.best(problem, device, clock) if database else None
    if mine and _is_current(mine, current):
        return mine
    shipped = shipped_winners(device, folder).get(problem.key())
    return shipped if shipped and shipped.environment.clock == clock and _is_current(shipped, current) else None


def _is_current(m: Measurement, current: Current | None) -> bool:
    """True if the kernel of a winner has the digest that ``current`` returns."""
    try:
        return current is None or current(m.problem, m.config) == m.digest
    except PtxgenError:
        return False


# --- exchange with a database --------------------------------------------------------------------------------


def export_text(
    database: Store,
    folder: Path,
    *,
    device: str | None = None,
    commit: str = "",
    command: str = "",
    date: str = "",
    raw: bool = True,
) -> list[Path]:
    """Writes the winners of a database that are not stale and, if ``raw``, its measurements into one folder per device;
    returns the paths of the files.

    ``device``: only the results of this device. Only times of the device's own clock (``clock_of``) are exported.
    Existing files are replaced; to merge with them, import them first. InputError: the database has no measurements of
    ``device``.
    """
    names = [name for name, clock in database.devices() if clock == clock_of(name) and device in (None, name)]
    if device is not None and not names:
        raise InputError(f"device is {device!r}; the database has no measurements of it")
    written = []
    for name in names:
        header = Header(name, clock_of(name), commit, command, date)
        write_winners(winners_path(name, folder), header, database.winners(name, header.clock))
        written.append(winners_path(name, folder))
        if raw:
            path, best = measurements_path(name, folder), Fastest()
            rows = database.measurements(device=name, clock=header.clock)
            write_measurements(path, header, best.passing(rows))
            written += [path, best.write([path])]
    return written


def import_text(database: Store, path: Path, current: CurrentOn | None = None) -> dict[str, int]:
    """Imports exported files into a database: all of them, or nothing if any line breaks a rule.

    ``path``: an exported folder, the folder of one device, or one file. Of two winners the faster one stays. A time
    below ``time_floor`` is an error. ``current``: returns the digest of the kernel that this version generates for a
    device; winners with another digest are imported as stale. Returns the counts of ``Database.merge``. InputError:
    ``path`` has no files to import. SchemaError, CorruptError: a line breaks a rule; the message names file, line and
    rule.
    """
    path = Path(path)
    files = [path] if path.is_file() else sorted(f for n in (WINNERS, ALL_MEASUREMENTS) for f in _files(path, n))
    if not files:
        names = f"{WINNERS}, {MEASUREMENTS}, results.jsonl, results.parquet"
        raise InputError(f"path is {path}; it must be one of {names}, or a folder that holds them")
    winners = [m for f in files if f.suffix != ".xz" for m in require_possible(f, read_winners(f)[1])]
    raw = (require_possible(f, read_all([f])) for f in files if f.suffix == ".xz")
    return database.merge(chain.from_iterable(raw), winners, current)


def _files(path: Path, name: str) -> list[Path]:
    return [*path.glob(name), *path.glob(f"*/{name}")]
