"""The tuning database: one SQLite file with every measurement and the winner of each problem."""

from __future__ import annotations

import json
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ptxgen.codegen.config.config import Config
from ptxgen.errors import CorruptError, DatabaseError
from ptxgen.lowering.kernel_problem import GemmExtents
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store.measurement import ENERGY, Environment, Measurement, VendorMeasurement
from ptxgen.tuning.store.records import (
    Current,
    CurrentOn,
    config_text,
    has_known_axes,
    make_environment,
    parse_problem,
    require_valid,
    samples_text,
    stale_reason,
    stored_config,
    utf8_text,
)
from ptxgen.tuning.store.schema import APPLICATION, SCHEMA, SCHEMA_VERSION
from ptxgen.tuning.store.sqlite_file import Row, SqliteFile

_COLUMNS = (
    "result.id, key, config, outcome, samples, digest, registers, spills, message, purpose, created,"
    " operands, result.device, result.clock, driver, ptxas, policy, revision"
)
BATCH = 256  #: rows that an import stores in one transaction
_WINNERS = f"SELECT {_COLUMNS}, stale FROM winner JOIN result ON result.id = winner.measurement"


_CLAIM_MATCH = "problem = ? AND config = ? AND device = ? AND clock = ?"


def _claim_key(problem: Problem, config: Config | None, device: str, clock: str) -> tuple[str, ...]:
    return problem.key(), config_text(config) if config is not None else "", device, clock


_ENVIRONMENT = ("device", "clock", "driver", "ptxas", "policy", "revision")
#: columns of the table ``measurement`` whose values ``_facts`` returns
_FACTS = (
    "config",
    "outcome",
    "us",
    "samples",
    "digest",
    "registers",
    "spills",
    "message",
    "purpose",
    "operands",
    "created",
)
_KEPT = (*_FACTS[4:-2], "created", "operands")  #: columns from the digest on, in the order of ``_COLUMNS``
_STORED = ("problem", "environment", *_FACTS)
_EQUAL = ("problem", "environment", "digest", "config", "outcome", "samples", "message", "purpose")
_VALUES = f"VALUES ({', '.join('?' * len(_STORED))})"
_INSERT = f"INSERT INTO measurement ({', '.join(_STORED)})"
#: stores a measurement if there is no equal one; a measurement without a date equals one with any date
_INSERT_NEW = (
    f"{_INSERT} WITH new ({', '.join(_STORED)}) AS ({_VALUES}) SELECT * FROM new WHERE NOT EXISTS (SELECT 1 FROM"
    f" measurement AS old WHERE {' AND '.join(f'old.{name} = new.{name}' for name in _EQUAL)}"
    " AND (new.created = 0 OR old.created = new.created))"
)


_VENDOR = "vendor="  #: the start of ``config`` in rows of a vendor's library, which has no configuration


def _facts(m: Measurement | VendorMeasurement) -> Row:
    """The values of the columns ``_FACTS`` for a measurement. Rows of a vendor's library have its version as digest,
    and the algorithm as message."""
    if isinstance(m, VendorMeasurement):
        kept = f"{_VENDOR}{m.library}", -1, -1, m.algorithm or m.message, ""
    else:
        kept = config_text(m.config), int(m.registers), int(m.spills), m.message, m.operands
    config, registers, spills, message, operands = kept
    return (
        config,
        m.outcome,
        float(m.us) if m.samples else None,
        samples_text(m),
        m.digest,
        registers,
        spills,
        utf8_text(message),
        m.purpose,
        operands,
        float(m.created),
    )


def _problem_facts(problem: Problem) -> str:
    """The columns of the table ``problem`` other than the key, as JSON. Only products of matrices have m, n, k."""
    shown = {n: getattr(problem, n) for n in ("operation", "layout", "dtype", "compute")}
    extents = lower(problem).extents
    shown |= dict(zip("mnk", extents.sizes if isinstance(extents, GemmExtents) else (None,) * 3, strict=True))
    return json.dumps({"fields": json.dumps(problem.as_dict()), **shown})


def _checked_rows(measurements: Iterable[Measurement]) -> Iterator[Row]:
    """The fields of each measurement, after a check: the key of its problem, ``_problem_facts`` if the problem is not
    that of the measurement before, the values of ``_ENVIRONMENT``, the values of ``_FACTS``. InputError: a measurement
    is invalid."""
    problem, key = None, ""
    for m in measurements:
        require_valid(m)
        facts = None
        if m.problem is not problem:  # files have hundreds of rows of one problem
            problem, key, facts = m.problem, m.problem.key(), _problem_facts(m.problem)
        e = m.environment
        yield (key, facts, e.device, e.clock, e.driver, e.ptxas, e.policy, e.commit, *_facts(m))


class Database(SqliteFile):
    """A tuning database, which is a context manager.

    ``readonly``: the file must exist, nothing is written, and any thread may read; otherwise only the thread that
    opened the database may use it. ``timeout``: seconds to wait for a lock of another process. Each write is one
    transaction, durable when the call returns. Rows whose problem or axes this version does not know stay in the file
    but are not returned; ``info`` counts them. SchemaError: another version of ptxgen wrote the file. CorruptError: the
    file is damaged, or not a database of ptxgen. Both errors leave the file unchanged. DatabaseError: the file cannot
    be opened, read or written.
    """

    def _measurement(self, row: Row) -> Measurement | None:
        """The measurement of a row of ``_COLUMNS``; None: this version does not know its problem or axes."""
        try:
            problem, config = parse_problem(row[1]), stored_config(row[2])
        except ValueError:
            return None
        try:
            samples = json.loads(row[4])
            if not isinstance(samples, list):
                raise TypeError("it must be a list")
            m = Measurement(
                problem,
                config,
                row[3],
                make_environment(*row[12:18]),
                tuple(map(float, samples)),
                **dict(zip(_KEPT, row[5:12], strict=True)),
            )
            require_valid(m)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CorruptError(f"{self.path}: measurement {row[0]} has samples {row[4]!r:.60}: {error}") from error
        return m

    def add(self, measurement: Measurement) -> int:
        """Stores a measurement, durable when the call returns; returns the id of its row.

        ``created`` becomes the present time if it is zero. InputError: the outcome or clock is unknown, or the samples
        do not match the outcome.
        """
        return self.add_all([measurement])[0]

    def add_all(self, measurements: Iterable[Measurement]) -> list[int]:
        """Stores measurements in one transaction, as ``add`` does; returns the ids of their rows."""
        rows = list(measurements)
        for m in rows:
            require_valid(m)
        ids = []
        with self._transaction():
            for m in rows:
                self._db.execute(
                    f"DELETE FROM claim WHERE {_CLAIM_MATCH}",
                    _claim_key(m.problem, m.config, m.environment.device, m.environment.clock),
                )
                ids.append(self._insert(m, m.created or time.time()))
        return ids

    def add_vendor(self, measurement: VendorMeasurement) -> int:
        """Stores a measurement of a vendor's library, as ``add`` does. ``measurements``, ``best`` and models ignore
        such rows."""
        require_valid(measurement)
        with self._transaction():
            return self._insert(measurement, measurement.created or time.time())

    def vendor(self, problem: Problem, device: str, clock: str = "hardware") -> VendorMeasurement | None:
        """The last measurement of a vendor's library for exactly this problem; None: there is none."""
        return next(self.vendors(device, clock, problem), None)

    def vendors(self, device: str, clock: str, problem: Problem | None = None) -> Iterator[VendorMeasurement]:
        """The last measurement of a vendor's library for each problem, or for one."""
        sql = f"SELECT {_COLUMNS.replace('result.id', 'max(result.id)', 1)} FROM result"
        given = (device, clock, f"{_VENDOR}%", *(() if problem is None else (problem.key(),)))
        where = f"device = ? AND clock = ? AND config LIKE ?{'' if problem is None else ' AND key = ?'}"
        with self._guard():
            rows = self._db.execute(f"{sql} WHERE {where} GROUP BY key ORDER BY key", given).fetchall()
        return (m for m in map(self._vendor_measurement, rows) if m is not None)

    def _vendor_measurement(self, row: Row) -> VendorMeasurement | None:
        """The vendor measurement of a row of ``_COLUMNS``; None: this version does not know its problem."""
        try:
            problem = parse_problem(row[1])
        except ValueError:
            return None
        try:
            samples = tuple(map(float, json.loads(row[4])))
            names = ("algorithm", "message") if row[3] == "ok" else ("message", "algorithm")
            texts = dict(zip(names, (row[8], ""), strict=True))
            environment, library = make_environment(*row[12:18]), row[2].removeprefix(_VENDOR)
            m = VendorMeasurement(problem, library, row[5], row[3], environment, samples, created=row[10], **texts)
            require_valid(m)
        except (TypeError, ValueError, RecursionError) as error:
            raise CorruptError(f"{self.path}: measurement {row[0]} has samples {row[4]!r:.60}: {error}") from error
        return m

    def measured(self, problem: Problem, device: str, clock: str, policy: str) -> dict[str, str]:
        """The configurations of a problem that were measured with a timing policy -> the digests of their kernels."""
        sql = "SELECT config, digest FROM result WHERE key = ? AND device = ? AND clock = ? AND policy = ?"
        with self._guard():
            return dict(self._db.execute(sql, (problem.key(), device, clock, policy)).fetchall())

    def fastest(self, device: str, clock: str) -> Iterator[Measurement]:
        """The fastest measurement of each problem."""
        columns = _COLUMNS.replace("result.id", "result.id, min(us)", 1)
        where = "device = ? AND clock = ? AND outcome = 'ok' AND config NOT LIKE ?"
        sql = f"SELECT {columns} FROM result WHERE {where} GROUP BY key"
        with self._guard():
            rows = self._db.execute(sql, (device, clock, f"{_VENDOR}%")).fetchall()
        return (m for m in (self._measurement((row[0], *row[2:])) for row in rows) if m is not None)

    def claim(
        self, problem: Problem, config: Config | None, device: str, clock: str, owner: str, seconds: float
    ) -> bool:
        """Claims a configuration (None: the problem as a whole) for the tuner ``owner``, which is about to measure it.
        False: another owner has the claim.

        A claim ends when ``add`` stores a measurement of the configuration, with ``release``, or after ``seconds``.
        """
        key, now = _claim_key(problem, config, device, clock), time.time()
        with self._guard():
            self._db.execute("PRAGMA synchronous = NORMAL")  # a claim need not survive a power failure
        try:
            with self._transaction():
                self._db.execute("DELETE FROM claim WHERE expires < ?", (now,))
                self._db.execute("INSERT OR IGNORE INTO claim VALUES (?, ?, ?, ?, ?, ?)", (*key, owner, now + seconds))
                return bool(self._one(f"SELECT owner FROM claim WHERE {_CLAIM_MATCH}", *key) == owner)
        finally:
            with self._guard():
                self._db.execute("PRAGMA synchronous = FULL")

    def claimants(self) -> list[str]:
        """The owners of claims."""
        with self._guard():
            return [owner for (owner,) in self._db.execute("SELECT DISTINCT owner FROM claim ORDER BY 1").fetchall()]

    def release(self, owner: str, problem: Problem | None = None) -> None:
        """Ends all claims of an owner, or its claims for one problem."""
        with self._transaction():
            if problem is None:
                self._db.execute("DELETE FROM claim WHERE owner = ?", (owner,))
            else:
                self._db.execute("DELETE FROM claim WHERE owner = ? AND problem = ?", (owner, problem.key()))

    def newest(self) -> int:
        """The id of the last stored row; 0 if there is none."""
        with self._guard():
            return int(self._one("SELECT max(id) FROM measurement") or 0)

    def _insert(self, m: Measurement | VendorMeasurement, created: float) -> int:
        row = (self._problem(m.problem), self._environment(m.environment), *_facts(m)[:-1], float(created))
        return int(self._db.execute(f"{_INSERT} {_VALUES}", row).lastrowid or 0)

    def _identity_columns(self, m: Measurement) -> dict[str, Any]:
        """The columns of the table ``measurement`` that identify kernel and environment of ``m``. Creates the rows of
        problem and environment to which they refer."""
        return {
            "problem": self._problem(m.problem),
            "environment": self._environment(m.environment),
            "digest": m.digest,
            "config": config_text(m.config),
            "outcome": m.outcome,
        }

    def _problem(self, problem: Problem) -> int:
        key = problem.key()
        return self._numbers.get(key) or self._problem_of(key, _problem_facts(problem))

    def _problem_of(self, key: str, facts: str | None = None) -> int:
        """The id of a problem, whose row is created if it is absent. ``facts``: the value of ``_problem_facts``, if it
        is known."""
        if key not in self._numbers:
            values = json.loads(facts or _problem_facts(parse_problem(key)))
            self._numbers[key] = self._number("problem", {"key": key}, **values)
        return self._numbers[key]

    def _environment(self, environment: Environment) -> int:
        if environment not in self._numbers:
            values = asdict(environment)
            values["revision"] = values.pop("commit")
            self._numbers[environment] = self._number("environment", values)
        return self._numbers[environment]

    def _number(self, table: str, unique: dict[str, Any], **others: Any) -> int:
        """The id of the row that ``unique`` identifies; the row is created if it is absent."""
        values = {**unique, **others}
        marks = ", ".join("?" * len(values))
        sql = f"INSERT OR IGNORE INTO {table} ({', '.join(values)}) VALUES ({marks})"
        self._db.execute(sql, (*values.values(),))
        where = " AND ".join(f"{name} = ?" for name in unique)
        number = self._one(f"SELECT id FROM {table} WHERE {where}", *unique.values())
        if number is None:
            raise CorruptError(f"{self.path} is damaged: an index of the table {table} names a row that is not there")
        return int(number)

    def _find(self, m: Measurement, *, close: bool = False) -> int | None:
        """The id of the row that equals ``m``; None: there is none. ``close``: True if the row may have a median of six
        digits in place of the samples."""
        place = self._identity_columns(m)
        where = " AND ".join(f"{name} = ?" for name in place)
        sql = f"SELECT id, us, samples, message, purpose, created FROM measurement WHERE {where}"
        text = samples_text(m)
        for number, us, samples, message, purpose, created in self._db.execute(sql, (*place.values(),)):
            if close and math.isclose(us, m.us, rel_tol=1e-5):
                return int(number)
            same = (samples, message, purpose) == (text, utf8_text(m.message), m.purpose)
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
        after: int = 0,
    ) -> Iterator[Measurement]:
        """The stored measurements that match, in the order of their ids. ``after``: only rows with larger ids."""
        key = None if problem is None else problem.key()
        sql = f"SELECT {_COLUMNS} FROM result"
        rows = self._rows(sql, after, key=key, device=device, clock=clock, outcome=outcome, purpose=purpose)
        return (m for m in map(self._measurement, rows) if m is not None)

    def devices(self) -> list[tuple[str, str]]:
        """The pairs (device, clock) that have measurements."""
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
        """The winner of exactly this problem; None if there is none, or if it is stale.

        A time of the emulated device (clock ``model``) is never returned for ``hardware``.
        """
        row = self._winner(problem, device, clock)
        return None if row is None or row[-1] else self._measurement(row)

    def least_energy(self, problem: Problem, device: str, clock: str = "hardware") -> Measurement | None:
        """The measurement with the least energy per call for exactly this problem; each configuration counts with its
        last measurement that observed energy. None: there is none."""
        rows = self.measurements(problem=problem, device=device, clock=clock, outcome="ok", purpose=ENERGY)
        last = {m.config: (m.observed.millijoules, m) for m in rows if m.observed is not None}
        return min(last.values(), key=lambda pair: pair[0], default=(0.0, None))[1]

    def set_winner(self, measurement: Measurement, over: Callable[[Measurement], bool] | None = None) -> bool:
        """Makes a measurement the winner of its problem, device and clock; stores it if it is not stored.

        ``over``: called with a stored winner that is not stale, returns True if the measurement replaces it (None:
        always). The call is inside the transaction, so no other process stores a winner in between. Returns True if the
        measurement became the winner. InputError: its outcome is not ``ok``.
        """
        require_valid(measurement, winner=True)
        with self._transaction():
            if over is not None:
                environment = measurement.environment
                held = self.best(measurement.problem, environment.device, environment.clock)
                if held is not None and not over(held):
                    return False
            row = self._find(measurement)
            self._write_winner(measurement, row or self._insert(measurement, measurement.created or time.time()))
        return True

    def _write_winner(self, m: Measurement, row: int, stale: str = "") -> None:
        values = (self._problem(m.problem), m.environment.device, m.environment.clock, row, stale)
        self._db.execute("INSERT OR REPLACE INTO winner VALUES (?, ?, ?, ?, ?)", values)

    def winners(
        self, device: str | None = None, clock: str | None = None, *, stale: bool = False
    ) -> Iterator[Measurement]:
        """The winners that are not stale; with ``stale``, all winners."""
        rows = self._rows(_WINNERS, device=device, clock=clock)
        return (m for m in (self._measurement(row) for row in rows if stale or not row[-1]) if m is not None)

    def stale(self, device: str | None = None) -> list[tuple[str, str, str, str]]:
        """The stale winners: problem key, device, clock, reason."""
        return [(row[1], row[12], row[13], row[-1]) for row in self._rows(_WINNERS, device=device) if row[-1]]

    def demote(self, device: str, current: Current) -> list[tuple[str, str]]:
        """Marks winners as stale if this version generates another kernel for them; returns (problem key, reason) of
        each newly marked one.

        ``current`` returns the digest of the kernel that this version generates; if ``current`` raises a PtxgenError,
        the winner is stale, too. A stale winner whose digest matches again is valid again.
        """
        changed, demoted = [], []
        for row in list(self._rows(_WINNERS, device=device)):
            m = self._measurement(row)
            reason = stale_reason(m, current) if m else "its problem or an axis of its configuration is unknown now"
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
        """Imports measurements and winners: all of them, or nothing if a row breaks a rule.

        All rows are read and checked first, then stored in transactions of ``BATCH`` rows, between which other
        processes can write. If the process is killed or the disk fails, the completed batches remain, and another
        import adds the rest. Rows that are stored already are not stored again. Of two winners of a problem, one that
        is not stale wins, then the faster one. ``current``: returns the digests of this version's kernels; a winner
        with another digest is imported as stale, and replaces no winner. Returns counts: ``measurements`` and
        ``winners`` that were added; ``already_present`` measurements; winners ``not_replaced``, because the stored
        winner is as good; ``stale`` winners.
        """
        self._require_writable()
        judged = [(m, stale_reason(m, partial(current, m.environment.device)) if current else "") for m in winners]
        for m, _ in judged:
            require_valid(m, winner=True)
        counts = dict.fromkeys(("measurements", "already_present", "winners", "not_replaced", "stale"), 0)
        with closing(self._staged(measurements)) as batches:
            for batch in batches:
                with self._transaction():
                    rows = [
                        (self._problem_of(*problem), self._environment(make_environment(*where)), *facts)
                        for problem, where, facts in batch
                    ]
                    added = self._db.executemany(_INSERT_NEW, rows).rowcount
                    counts["measurements"] += added
                    counts["already_present"] += len(rows) - added
        for start in range(0, len(judged), BATCH):
            with self._transaction():
                for m, reason in judged[start : start + BATCH]:
                    counts[self._merge_winner(m, reason, verified=current is not None)] += 1
        return counts

    def _staged(self, measurements: Iterable[Measurement]) -> Generator[list[tuple[Row, Row, Row]], None, None]:
        """The rows of ``measurements`` in lists of ``BATCH``. A row has three parts: the key and ``_problem_facts``,
        the values of ``_ENVIRONMENT``, the values of ``_FACTS``. The first list is returned after the last measurement
        is read and checked.

        Rows wait in a temporary table, which is a file of its own, so no lock of the database is held.
        """
        names = ("key", "facts", *_ENVIRONMENT, *_FACTS)
        end = 2 + len(_ENVIRONMENT)
        insert = f"INSERT INTO staged VALUES (NULL, {', '.join('?' * len(names))})"
        select = f"SELECT {', '.join(names)} FROM staged WHERE id BETWEEN ? AND ? ORDER BY id"
        with self._guard():
            self._db.execute(f"CREATE TEMP TABLE staged (id INTEGER PRIMARY KEY, {', '.join(names)})")
            try:
                self._db.execute("BEGIN")  # of the temporary file alone; else each row is a transaction
                self._db.executemany(insert, _checked_rows(measurements))
                self._db.execute("COMMIT")
                for first in range(1, int(self._one("SELECT count(*) FROM staged")) + 1, BATCH):
                    rows = self._db.execute(select, (first, first + BATCH - 1)).fetchall()
                    yield [(row[:2], row[2:end], row[end:]) for row in rows]
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._db.execute("DROP TABLE temp.staged")

    def _merge_winner(self, m: Measurement, reason: str, *, verified: bool) -> str:
        held = self._winner(m.problem, m.environment.device, m.environment.clock)
        mine = self._measurement(held) if held else None
        if held and mine and (mine.config, mine.digest) == (m.config, m.digest):
            if not (held[-1] and verified and not reason):
                return "not_replaced"
            self._write_winner(mine, held[0])
            return "winners"
        if held and reason:
            return "stale"
        if held and mine and not held[-1] and mine.us <= m.us:
            return "not_replaced"
        self._write_winner(m, self._find(m, close=True) or self._insert(m, m.created), reason)
        return "stale" if reason else "winners"

    def info(self) -> dict[str, Any]:
        """The content of the database as plain data.

        Its keys are ``path``; ``bytes``, the size including the log; ``schema``, the version; ``problems`` and
        ``measurements``, their numbers; ``unreadable``, the number of measurements with unknown axes; ``rows``, counts
        by device, clock and outcome; ``winners``, counts by device and clock, those of ``stale`` winners separately.
        """
        rows = "SELECT device, clock, outcome, count(*) AS count FROM result GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        winners = (
            "SELECT device, clock, sum(stale = '') AS count, sum(stale != '') AS stale FROM winner"
            " GROUP BY 1, 2 ORDER BY 1, 2"
        )
        files = (self.path, Path(f"{self.path}-wal"))
        with self._guard():
            configs = self._db.execute("SELECT config FROM measurement WHERE config NOT LIKE ?", (f"{_VENDOR}%",))
            return {
                "path": str(self.path),
                "bytes": sum(f.stat().st_size for f in files if f.exists()),
                "schema": self._pragma("user_version"),
                "problems": self._one("SELECT count(*) FROM problem"),
                "measurements": self._one("SELECT count(*) FROM measurement"),
                "unreadable": sum(not has_known_axes(c) for (c,) in configs),
                "rows": self._dicts(rows),
                "winners": self._dicts(winners),
            }

    def _dicts(self, sql: str) -> list[dict[str, Any]]:
        cursor = self._db.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


@contextmanager
def destination(path: Path) -> Iterator[Database]:
    """The database at ``path``, for an import. A new database gets its name at the end of the block, so that an error
    in the block leaves no file. DatabaseError: another process has created the file meanwhile."""
    if path.exists():
        with Database(path) as database:
            yield database
        return
    place = path.resolve()
    part = place.with_name(f"{place.name}.{secrets.token_hex(8)}.part")
    try:
        with Database(part) as database:
            yield database
        try:
            os.link(part, place)
        except FileExistsError:
            raise DatabaseError(f"{path} was created by another process; repeat the command to add the rows") from None
        except OSError:  # there are no hard links
            part.rename(place)
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{part}{end}").unlink(missing_ok=True)


def readable(path: Path) -> Database | None:
    """The database at ``path``, opened for reading. None: there is no file, or, with a ``RuntimeWarning``, the file
    cannot be used because it is empty or damaged, or another version of ptxgen wrote it."""
    try:
        return Database(path, readonly=True) if path.exists() else None
    except (DatabaseError, OSError) as error:
        warnings.warn(f"{error}; its winners and models are not used", RuntimeWarning, stacklevel=2)
        return None


__all__ = [
    "APPLICATION",
    "SCHEMA",
    "SCHEMA_VERSION",
    "Current",
    "CurrentOn",
    "Database",
    "config_text",
    "destination",
    "readable",
]
