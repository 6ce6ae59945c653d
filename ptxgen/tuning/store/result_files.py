"""Exports and imports the whole database as one table of results for other programs, as JSON lines or Parquet.

Each row is a measurement; ``winner`` is true for the winners of problems, stale ones included. Both forms have the same
columns, and reading returns the measurements that were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

from ptxgen.errors import CorruptError, InputError
from ptxgen.tuning.store import parquet_file, tuning_files
from ptxgen.tuning.store.exchange import (
    FORMAT,
    LINE_LIMIT,
    errors_with_line,
    from_json,
    replacing,
    require_file,
    require_format,
    to_json,
)
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.time_floor import require_possible
from ptxgen.tuning.store.tuning_files import CurrentOn, measurement_of

#: name of a column -> its type, a key of ``parquet_file.TYPES``
COLUMNS = {
    "problem": "text",
    **{f.name: "text" for f in fields(Environment)},
    "config": "text",
    "outcome": "text",
    "us": "number",
    "samples": "numbers",
    "digest": "text",
    "registers": "count",
    "spills": "count",
    "message": "text",
    "purpose": "text",
    "created": "number",
    "winner": "flag",
}
FORMS = ("jsonl", "parquet")
NAME = "results"  #: the name of the file, without suffix


class Store(Protocol):
    """The methods of a database that an export uses."""

    def devices(self) -> list[tuple[str, str]]: ...

    def measurements(self, *, device: str | None = None, clock: str | None = None) -> Iterator[Measurement]: ...

    def winners(
        self, device: str | None = None, clock: str | None = None, *, stale: bool = False
    ) -> Iterator[Measurement]: ...


def require_form(form: str) -> None:
    """Raises InputError if the form is unknown, UnavailableError if it is Parquet and pyarrow is not installed."""
    if form not in FORMS:
        raise InputError(f"format is {form!r}; it must be text, {' or '.join(FORMS)}")
    if form == "parquet":
        parquet_file.require()


def write_results(database: Store, folder: Path, form: str, device: str | None = None, raw: bool = True) -> Path:
    """Writes the measurements of a database as ``results.<form>`` into ``folder``, and returns the path. ``device``:
    only the measurements of this device; ``raw``: False: only the winners.

    InputError: the form is unknown, or the database has no measurements of the device. UnavailableError: the form is
    Parquet, and pyarrow is not installed."""
    require_form(form)
    pairs = [pair for pair in database.devices() if device in (None, pair[0])]
    if device is not None and not pairs:
        raise InputError(f"device is {device!r}; the database has no measurements of it")
    winners = [m for name, clock in pairs for m in database.winners(name, clock, stale=True)]
    known = set(map(_identity, winners))
    measured = (m for name, clock in pairs for m in database.measurements(device=name, clock=clock))
    rows = ((m, _identity(m) in known) for m in measured) if raw else ((m, True) for m in winners)
    path = folder / f"{NAME}.{form}"
    with replacing(path) as file:
        if form == "parquet":
            values = (tuple(_row(m, winner).values()) for m, winner in rows)
            parquet_file.write(file, COLUMNS, values, {"ptxgen": NAME, "format": str(FORMAT)})
        else:
            file.write(f"{to_json({'ptxgen': NAME, 'format': FORMAT})}\n".encode())
            count = 0
            for count, (m, winner) in enumerate(rows, 1):  # noqa: B007
                file.write(f"{to_json(_row(m, winner))}\n".encode())
            file.write(f"{to_json({'rows': count})}\n".encode())
    return path


def _identity(m: Measurement) -> tuple[Any, ...]:
    return m.problem, m.config, m.environment, m.digest, m.samples, m.created


def _row(m: Measurement, winner: bool) -> dict[str, Any]:
    values = {**m.as_dict(), **asdict(m.environment), "us": m.us if m.samples else None, "winner": winner}
    values["samples"] = [float(x) for x in m.samples]
    return {name: values[name] for name in COLUMNS}


def read_results(path: Path) -> Iterator[tuple[Measurement, bool]]:
    """The measurements of a file; each has True beside it if it is a winner. Every row is checked.

    InputError: there is no such file. SchemaError: it has another format. CorruptError: a row breaks a rule; the
    message names both."""
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
    for number, values in rows:
        with errors_with_line(path, number):
            if values.keys() != COLUMNS.keys():
                raise InputError(f"has the columns {', '.join(values)}; it must have {', '.join(COLUMNS)}")
            environment = {f.name: values.pop(f.name) for f in fields(Environment)}
            us, winner = values.pop("us"), values.pop("winner")
            if not isinstance(winner, bool):
                raise InputError(f"winner is {winner!r}; it must be true or false")
            m = measurement_of({**values, "environment": environment})
            if us != (m.us if m.samples else None):
                raise InputError(f"us is {us!r}; the median of the samples is {m.us!r}")
        yield m, winner


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    facts, rows = parquet_file.read(path, COLUMNS)
    if facts.get("ptxgen") != NAME:
        raise CorruptError(f"{path} is no file of results: its metadata has no 'ptxgen': '{NAME}'")
    require_format(path, facts.get("format"))
    yield from enumerate(rows, 1)


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    require_file(path)
    number, ended = 0, False
    with path.open("rb") as file:
        while line := file.readline(LINE_LIMIT + 1):
            number += 1
            with errors_with_line(path, number):
                if len(line) > LINE_LIMIT:
                    raise InputError(f"has more than {LINE_LIMIT} bytes")
                if ended:
                    raise InputError("follows the last line")
                values = from_json(line.decode())
                if number == 1 and values.get("ptxgen") != NAME:
                    raise InputError(f'is something else; it must be an object with "ptxgen": "{NAME}"')
            if number == 1:
                require_format(path, values.get("format"))
            elif values.keys() == {"rows"}:
                ended = True
                if values["rows"] != number - 2:
                    raise CorruptError(f"{path}, line {number}: says {values['rows']!r} rows; there are {number - 2}")
            else:
                yield number, values
    if not number:
        raise CorruptError(f"{path} is empty; it must have the lines that db export --format jsonl writes")
    if not ended:
        raise CorruptError(f"{path}, line {number}: the file ends without its last line, the number of rows")


def import_files(database: tuning_files.Store, path: Path, current: CurrentOn | None = None) -> dict[str, int]:
    """Imports exported files of every form: all of them, or nothing if any row breaks a rule. ``path``: a folder that
    ``write_results`` or ``tuning_files.export_text`` wrote, or one file. Errors and result: as for ``import_text``."""
    files = [path] if path.is_file() else [f for form in FORMS if (f := path / f"{NAME}.{form}").is_file()]
    files = [f for f in files if f.suffix.removeprefix(".") in FORMS]
    if not files:
        return tuning_files.import_text(database, path, current)
    winners = [m for f in files for m in require_possible(f, (m for m, winner in read_results(f) if winner))]
    measured = (m for f in files for m in require_possible(f, (m for m, _ in read_results(f))))
    return database.merge(measured, winners, current)
