"""The tuning database: one SQLite file that remembers every measurement and each problem's winner."""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ptxgen.config import AXIS, Config, parse_config
from ptxgen.errors import CorruptError, DatabaseError, InputError, PtxgenError, SchemaError
from ptxgen.measurement import OUTCOMES, Environment, Measurement
from ptxgen.problem import Problem, parse

SCHEMA_VERSION = 1
#: marks the file as ptxgen's ("PTXG"), in the header that SQLite leaves to applications
APPLICATION = 0x50545847
CLOCKS = ("hardware", "model")

#: statements end with ";\n", and no comment holds a semicolon
SCHEMA = """
-- History, one line a version (PRAGMA user_version):
--   1  the first

-- What was computed. `key` is the one line that names the problem. The columns that most queries want are
-- beside it, and `fields` has all of them as JSON, for json_extract().
CREATE TABLE problem (
    id        INTEGER PRIMARY KEY,
    key       TEXT NOT NULL UNIQUE,
    operation TEXT NOT NULL,
    m         INTEGER,
    n         INTEGER,
    k         INTEGER,
    layout    TEXT,
    dtype     TEXT,
    compute   TEXT,
    fields    TEXT NOT NULL
);

-- What a time depends on beside problem and configuration. `clock` is `hardware`, or `model` on the emulated
-- device. `revision` is the commit of ptxgen.
CREATE TABLE environment (
    id       INTEGER PRIMARY KEY,
    device   TEXT NOT NULL,
    clock    TEXT NOT NULL,
    driver   TEXT NOT NULL,
    ptxas    TEXT NOT NULL,
    policy   TEXT NOT NULL,
    revision TEXT NOT NULL,
    UNIQUE (device, clock, driver, ptxas, policy, revision)
);

-- One row a measurement, failures among them. `config` has every axis as `name=value`. `us` is the median of
-- `samples` (a JSON list, microseconds a launch), NULL unless `outcome` is `ok`. `digest` is of the kernel's
-- source. `registers` a thread and `spills` in bytes are -1 where ptxas was not asked. `created` is in
-- seconds since 1970.
CREATE TABLE measurement (
    id          INTEGER PRIMARY KEY,
    problem     INTEGER NOT NULL REFERENCES problem (id),
    environment INTEGER NOT NULL REFERENCES environment (id),
    config      TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    us          REAL,
    samples     TEXT NOT NULL,
    digest      TEXT NOT NULL,
    registers   INTEGER NOT NULL,
    spills      INTEGER NOT NULL,
    message     TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    created     REAL NOT NULL
);
CREATE INDEX measurement_of_problem ON measurement (problem, environment, digest);

-- The measurement that a problem is answered with. `stale` is empty, or says why the winner no longer counts.
CREATE TABLE winner (
    problem     INTEGER NOT NULL REFERENCES problem (id),
    device      TEXT NOT NULL,
    clock       TEXT NOT NULL,
    measurement INTEGER NOT NULL REFERENCES measurement (id),
    stale       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (problem, device, clock)
);

-- Everything in one place, to query by hand.
CREATE VIEW result AS
    SELECT measurement.id AS id, key, operation, m, n, k, layout, dtype, compute, fields, config, outcome, us,
           samples, digest, registers, spills, message, purpose, created,
           device, clock, driver, ptxas, policy, revision
    FROM measurement
    JOIN problem ON problem.id = measurement.problem
    JOIN environment ON environment.id = measurement.environment;
"""

_COLUMNS = (
    "result.id, key, config, outcome, samples, digest, registers, spills, message, purpose, created,"
    " result.device, result.clock, driver, ptxas, policy, revision"
)
_WINNERS = f"SELECT {_COLUMNS}, stale FROM winner JOIN result ON result.id = winner.measurement"

Row = tuple[Any, ...]
#: gives the digest of the kernel that this version generates for a configuration
Current = Callable[[Problem, Config], str]
#: the same, for any device (by name)
CurrentOn = Callable[[str, Problem, Config], str]


def config_text(config: Config) -> str:
    """Every axis as ``name=value``: the form in which the database compares configurations."""
    return " ".join(f"{name}={value}" for name, value in config.items())


class Database:
    """A tuning database; a context manager.

    ``readonly``: nothing is written, not even a missing file, and any thread may ask; otherwise only the thread
    that opened it. ``timeout``: seconds to wait while another process writes. Every write is a transaction of
    its own, on disk when the call returns. Rows whose problem or axes this version does not know are kept but
    not returned; ``info`` counts them. SchemaError: a newer ptxgen wrote the file; CorruptError: it is damaged,
    or something else's; both leave it as it is. DatabaseError: it cannot be opened, read or written.
    """

    def __init__(self, path: str | Path, readonly: bool = False, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self._numbers: dict[str | Environment, int] = {}  # rows of problems (by key) and environments
        self._inspect()
        if not readonly:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DatabaseError(f"{self.path}: cannot make its folder: {error}") from error
        uri = f"{self.path.absolute().as_uri()}?{self._mode()}"
        with self._guard():
            # SQLite serialises calls. Reads may come from any thread; two threads would share a transaction.
            self._db = sqlite3.connect(
                uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=not readonly
            )
        try:
            with self._guard():
                self._prepare(timeout)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def _inspect(self) -> None:
        """Refuse what is not ours by the file's first bytes, before SQLite writes anything beside it."""
        try:
            with self.path.open("rb") as file:
                head = file.read(100)
        except FileNotFoundError:
            if self.readonly:
                raise DatabaseError(f"{self.path} does not exist, and was to be read only") from None
            return
        except OSError as error:
            raise DatabaseError(f"{self.path} cannot be read: {error}") from error
        # An interrupted first write leaves half a file, and a journal from which SQLite empties it again.
        if not head or Path(f"{self.path}-journal").exists():
            return
        if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
            raise CorruptError(f"{self.path} is not an SQLite database; it was left as it is")
        version, application = (int.from_bytes(head[at : at + 4], "big") for at in (60, 68))
        self._accept(version, application)

    def _accept(self, version: int, application: int) -> None:
        if application != APPLICATION or version < 1:
            raise CorruptError(f"{self.path} is a database, but not one of ptxgen's; it was left as it is")
        if version > SCHEMA_VERSION:
            raise SchemaError(
                f"{self.path} has schema version {version}, and this ptxgen knows versions up to"
                f" {SCHEMA_VERSION}: a newer one wrote it; it was left as it is"
            )

    def _mode(self) -> str:
        if not self.readonly:
            return "mode=rwc"
        # Even a reader needs SQLite's index of the log. Where it cannot be made and there is no log, there is
        # no writer either.
        log = Path(f"{self.path}-wal")
        return "mode=ro" if os.access(self.path.parent, os.W_OK) or log.exists() else "mode=ro&immutable=1"

    def _prepare(self, timeout: float) -> None:
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA synchronous = FULL")
        if self._empty():
            if self.readonly:
                raise DatabaseError(f"{self.path} is empty, and was to be read only")
            self._create()
        self._accept(self._pragma("user_version"), self._pragma("application_id"))
        if not self.readonly and self._pragma("journal_mode") != "wal":
            self._log_ahead(timeout)

    def _empty(self) -> bool:
        marks = self._pragma("user_version"), self._pragma("application_id")
        return not any(marks) and not self._one("SELECT count(*) FROM sqlite_master")

    def _create(self) -> None:
        with self._transaction():
            if self._empty():  # another process may have been first
                for statement in SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _log_ahead(self, timeout: float) -> None:
        """Journal mode WAL: readers and a writer do not wait for each other. The file keeps the mode."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:  # here SQLite does not wait for other processes by itself
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            # The class itself means: malformed, or no database. Its subclasses: locked, full, unreadable.
            kind = CorruptError if type(error) is sqlite3.DatabaseError else DatabaseError
            raise kind(f"{self.path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self.readonly:
            raise DatabaseError(f"{self.path} was opened for reading only")
        with self._guard():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._numbers.clear()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _one(self, sql: str, *values: Any) -> Any:
        row = self._db.execute(sql, values).fetchone()
        return row[0] if row else None

    def _pragma(self, name: str) -> Any:
        return self._one(f"PRAGMA {name}")

    def _rows(self, sql: str, **equal: Any) -> Iterator[Row]:
        """Rows of ``sql`` where each named column of ``result`` has the given value; None: any value."""
        given = {name: value for name, value in equal.items() if value is not None}
        where = " AND ".join(f"result.{name} = ?" for name in given)
        sql += f" WHERE {where} ORDER BY result.id" if given else " ORDER BY result.id"
        with self._guard():
            for row in self._db.execute(sql, (*given.values(),)):  # noqa: UP028 it would close the cursor, perhaps too late
                yield row

    def _measurement(self, row: Row) -> Measurement | None:
        """The measurement of a row of ``_COLUMNS``; None: this version does not know its problem or axes."""
        try:
            problem, config = _parse_problem(row[1]), parse_config(row[2])
        except ValueError:
            return None
        try:
            samples = tuple(float(x) for x in json.loads(row[4]))
        except (TypeError, ValueError) as error:
            raise CorruptError(f"{self.path}: measurement {row[0]} has samples {row[4]!r}: {error}") from error
        return Measurement(problem, config, row[3], _make_environment(*row[11:17]), samples, *row[5:11])

    def add(self, measurement: Measurement) -> int:
        """Store a measurement, on disk when this returns; the number of its row.

        ``created`` becomes now if it is zero. InputError: an unknown outcome or clock, or samples that do not
        go with the outcome.
        """
        _check(measurement)
        with self._transaction():
            return self._insert(measurement, measurement.created or time.time())

    def _insert(self, m: Measurement, created: float) -> int:
        values = {
            **self._place(m),
            "us": float(m.us) if m.samples else None,
            "registers": int(m.registers),
            "spills": int(m.spills),
            "message": _text(m.message),
            "purpose": m.purpose,
            "samples": _samples(m),
            "created": float(created),
        }
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO measurement ({', '.join(values)}) VALUES ({marks})"
        return int(self._db.execute(sql, (*values.values(),)).lastrowid or 0)

    def _place(self, m: Measurement) -> dict[str, Any]:
        """What says which kernel ran where: columns of ``measurement``. Makes the rows that they refer to."""
        return {
            "problem": self._problem(m.problem),
            "environment": self._environment(m.environment),
            "digest": m.digest,
            "config": config_text(m.config),
            "outcome": m.outcome,
        }

    def _problem(self, problem: Problem) -> int:
        key = problem.key()
        if key not in self._numbers:
            fields = problem.as_dict()
            shown = {n: fields.get(n) for n in ("operation", "m", "n", "k", "layout", "dtype", "compute")}
            self._numbers[key] = self._number("problem", {"key": key}, fields=json.dumps(fields), **shown)
        return self._numbers[key]

    def _environment(self, environment: Environment) -> int:
        if environment not in self._numbers:
            values = asdict(environment)
            values["revision"] = values.pop("commit")
            self._numbers[environment] = self._number("environment", values)
        return self._numbers[environment]

    def _number(self, table: str, unique: dict[str, Any], **others: Any) -> int:
        """The row that ``unique`` names, made if need be."""
        values = {**unique, **others}
        marks = ", ".join("?" * len(values))
        sql = f"INSERT OR IGNORE INTO {table} ({', '.join(values)}) VALUES ({marks})"
        self._db.execute(sql, (*values.values(),))
        where = " AND ".join(f"{name} = ?" for name in unique)
        return int(self._one(f"SELECT id FROM {table} WHERE {where}", *unique.values()))

    def _find(self, m: Measurement, *, close: bool = False) -> int | None:
        """The row that holds ``m``. ``close``: samples may have been reduced to a median of six digits."""
        place = self._place(m)
        where = " AND ".join(f"{name} = ?" for name in place)
        sql = f"SELECT id, us, samples, message, purpose, created FROM measurement WHERE {where}"
        text = _samples(m)
        for number, us, samples, message, purpose, created in self._db.execute(sql, (*place.values(),)):
            if close and math.isclose(us, m.us, rel_tol=1e-5):
                return int(number)
            same = (samples, message, purpose) == (text, _text(m.message), m.purpose)
            if same and m.created in (0, created):
                return int(number)
        return None

    def measurements(
        self,
        *,
        problem: Problem | None = None,
        device: str | None = None,
        clock: str | None = None,
        outcome: str | None = None,
        purpose: str | None = None,
    ) -> Iterator[Measurement]:
        """The stored measurements that match, in the order in which they were stored."""
        key = None if problem is None else problem.key()
        sql = f"SELECT {_COLUMNS} FROM result"
        rows = self._rows(sql, key=key, device=device, clock=clock, outcome=outcome, purpose=purpose)
        return (m for m in map(self._measurement, rows) if m is not None)

    def seen(self, device: str, clock: str, purpose: str | None = None) -> set[tuple[str, str]]:
        """What tuning, resumed, need not measure again, failures included: (problem key, config_text)."""
        rows = self._rows("SELECT key, config FROM result", device=device, clock=clock, purpose=purpose)
        return {(key, text) for key, config in rows if (text := _canonical(config))}

    def devices(self) -> list[tuple[str, str]]:
        """Every (device, clock) that has measurements."""
        with self._guard():
            return self._db.execute("SELECT DISTINCT device, clock FROM result ORDER BY 1, 2").fetchall()

    def _winner(self, problem: Problem, device: str, clock: str) -> Row | None:
        sql = (
            f"{_WINNERS} WHERE winner.problem = (SELECT id FROM problem WHERE key = ?)"
            " AND winner.device = ? AND winner.clock = ?"
        )
        with self._guard():
            return self._db.execute(sql, (problem.key(), device, clock)).fetchone()  # type: ignore[no-any-return]

    def best(self, problem: Problem, device: str, clock: str = "hardware") -> Measurement | None:
        """The winner for exactly this problem; None if there is none, or it is stale.

        A time of the emulated device (clock ``model``) is never the answer for ``hardware``.
        """
        row = self._winner(problem, device, clock)
        return None if row is None or row[-1] else self._measurement(row)

    def set_winner(self, measurement: Measurement) -> None:
        """Make a measurement its problem's winner on its device and clock, storing it if it is not stored.

        InputError: its outcome is not ``ok``.
        """
        _check(measurement, winner=True)
        with self._transaction():
            row = self._find(measurement)
            self._crown(measurement, row or self._insert(measurement, measurement.created or time.time()))

    def _crown(self, m: Measurement, row: int, stale: str = "") -> None:
        values = (self._problem(m.problem), m.environment.device, m.environment.clock, row, stale)
        self._db.execute("INSERT OR REPLACE INTO winner VALUES (?, ?, ?, ?, ?)", values)

    def winners(self, device: str | None = None, clock: str | None = None) -> Iterator[Measurement]:
        """The winners that are not stale."""
        rows = self._rows(_WINNERS, device=device, clock=clock)
        return (m for m in (self._measurement(row) for row in rows if not row[-1]) if m is not None)

    def stale(self, device: str | None = None) -> list[tuple[str, str, str, str]]:
        """The winners that no longer count: problem key, device, clock, reason."""
        return [(row[1], row[11], row[12], row[-1]) for row in self._rows(_WINNERS, device=device) if row[-1]]

    def demote(self, device: str, current: Current) -> list[tuple[str, str]]:
        """Mark the winners whose kernel this version would generate differently; the (problem key, reason)
        of those newly marked.

        ``current`` gives the digest of the kernel as generated now; a PtxgenError that it raises demotes too.
        A stale winner whose digest matches again counts again.
        """
        changed, demoted = [], []
        for row in list(self._rows(_WINNERS, device=device)):
            m = self._measurement(row)
            reason = _judge(m, current) if m else "its problem or an axis of its configuration is unknown now"
            if reason != row[-1]:
                changed.append((reason, row[0]))
            if reason and not row[-1]:
                demoted.append((row[1], reason))
        if changed:
            with self._transaction():
                self._db.executemany("UPDATE winner SET stale = ? WHERE measurement = ?", changed)
        return demoted

    def merge(
        self,
        measurements: Iterable[Measurement],
        winners: Iterable[Measurement],
        current: CurrentOn | None = None,
    ) -> dict[str, int]:
        """Take in measurements and winners from elsewhere: all, or (if either iterable raises) nothing.

        What is stored is not stored again. Of two winners the one that is not stale stays, then the faster.
        ``current``: gives digests; a winner with another digest comes in stale, and replaces none.
        Returns counts: ``measurements`` added, ``known`` (stored before), ``winners`` new, ``kept`` (the one
        here is as good), ``stale``.
        """
        judged = [(m, _judge(m, partial(current, m.environment.device)) if current else "") for m in winners]
        counts = dict.fromkeys(("measurements", "known", "winners", "kept", "stale"), 0)
        with self._transaction():
            for m in measurements:
                _check(m)
                known = self._find(m) is not None
                counts["known" if known else "measurements"] += 1
                if not known:
                    self._insert(m, m.created)
            for m, reason in judged:
                _check(m, winner=True)
                counts[self._merge_winner(m, reason, verified=current is not None)] += 1
        return counts

    def _merge_winner(self, m: Measurement, reason: str, *, verified: bool) -> str:
        held = self._winner(m.problem, m.environment.device, m.environment.clock)
        mine = self._measurement(held) if held else None
        if held and mine and (mine.config, mine.digest) == (m.config, m.digest):
            if not (held[-1] and verified and not reason):
                return "kept"
            self._crown(mine, held[0])
            return "winners"
        if held and reason:
            return "stale"
        if held and mine and not held[-1] and mine.us <= m.us:
            return "kept"
        self._crown(m, self._find(m, close=True) or self._insert(m, m.created), reason)
        return "stale" if reason else "winners"

    def info(self) -> dict[str, Any]:
        """What the database holds, as plain data.

        ``path``; ``bytes``, log included; ``schema``; ``problems``; ``measurements``; ``unreadable``: those
        whose axes this version does not know; ``rows``: counts per device, clock and outcome; ``winners``:
        counts per device and clock, ``stale`` ones apart.
        """
        rows = "SELECT device, clock, outcome, count(*) AS count FROM result GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        winners = (
            "SELECT device, clock, sum(stale = '') AS count, sum(stale != '') AS stale FROM winner"
            " GROUP BY 1, 2 ORDER BY 1, 2"
        )
        files = (self.path, Path(f"{self.path}-wal"))
        with self._guard():
            return {
                "path": str(self.path),
                "bytes": sum(f.stat().st_size for f in files if f.exists()),
                "schema": self._pragma("user_version"),
                "problems": self._one("SELECT count(*) FROM problem"),
                "measurements": self._one("SELECT count(*) FROM measurement"),
                "unreadable": sum(not _known(c) for (c,) in self._db.execute("SELECT config FROM measurement")),
                "rows": self._dicts(rows),
                "winners": self._dicts(winners),
            }

    def _dicts(self, sql: str) -> list[dict[str, Any]]:
        cursor = self._db.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


_parse_problem = lru_cache(maxsize=4096)(parse)
_make_environment = lru_cache(maxsize=256)(Environment)
_VALUE = re.compile(r"=-?\d+")


@lru_cache(maxsize=64)
def _axes_known(names: str) -> bool:
    return all(name in AXIS for name in names.split())


def _known(config: str) -> bool:
    return _axes_known(_VALUE.sub("", config))


def _canonical(config: str) -> str:
    """``config_text`` of a stored text (rows older than an axis lack it); empty: an axis is unknown."""
    try:
        return config_text(parse_config(config))
    except InputError:
        return ""


def _samples(m: Measurement) -> str:
    return json.dumps([float(x) for x in m.samples])


def _text(message: str) -> str:
    """What a program printed may hold halves of characters, which SQLite refuses."""
    return message.encode(errors="replace").decode()


def _judge(m: Measurement, current: Current) -> str:
    """Why a winner no longer counts; empty if it does."""
    try:
        now = current(m.problem, m.config)
    except PtxgenError as error:
        return f"no kernel now: {error}"
    return "" if now == m.digest else f"its kernel was {m.digest or 'not recorded'}, now it is {now}"


def _check(m: Measurement, *, winner: bool = False) -> None:
    if m.outcome not in OUTCOMES:
        raise InputError(f"outcome is {m.outcome!r}; it must be one of {', '.join(OUTCOMES)}")
    if winner and m.outcome != "ok":
        raise InputError(f"winner of {m.problem.key()} has outcome {m.outcome!r}; it must be ok")
    if m.environment.clock not in CLOCKS:
        raise InputError(f"clock is {m.environment.clock!r}; it must be one of {', '.join(CLOCKS)}")
    if (m.outcome == "ok") != bool(m.samples):
        raise InputError(f"outcome {m.outcome} has {len(m.samples)} samples; ok has some, a failure none")
    if not all(0 < x < math.inf for x in m.samples):
        raise InputError("samples must be positive and finite")
