"""Opens, checks, creates and locks an SQLite file. No other module uses sqlite3."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from ptxgen.errors import CorruptError, DatabaseError, SchemaError
from ptxgen.tuning.store.schema import APPLICATION, SCHEMA, SCHEMA_VERSION

Row = tuple[Any, ...]
#: primary result codes that the machine or another process causes; all others mean that the file is damaged
_OUTSIDE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_AUTH,
}
#: the query for the schema objects of a file, except the tables of ANALYZE
_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT IN ('sqlite_stat1', 'sqlite_stat4')"
_TYPES = {"INTEGER": "integer", "REAL": "real", "TEXT": "text"}
#: file systems whose files other machines may have open. WAL cannot be used there, because the index of its log is in
#: the memory of one machine. They include FUSE file systems (sshfs, ...) and folders shared between a host and virtual
#: machines.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|ncpfs|afs|ceph|lustre|gpfs|beegfs\w*|glusterfs|ocfs2|gfs2|pvfs2|orangefs|panfs|wekafs|davfs|coda"
    r"|fuse(\..*)?|9p|virtiofs|vboxsf|vmhgfs|prl_fs|drvfs"
)
_verified: set[tuple[int, ...]] = set()  #: states of files that this process has fully checked, or closed


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def file_system(folder: Path) -> str:
    """The type of the file system of a folder, from /proc/self/mountinfo; empty: unknown."""
    try:
        device = folder.stat().st_dev
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [line.partition(" - ")[::2] for line in lines]
    return next((after.split()[0] for before, after in reversed(mounts) if before.split()[2] == number), "")


@lru_cache
def _schema() -> tuple[frozenset[Row], tuple[str, ...]]:
    """The objects of the schema, and for each table a query that counts rows with a value of a wrong type."""
    db = sqlite3.connect(":memory:")
    _make_tables(db)
    objects = frozenset(db.execute(_OBJECTS).fetchall())
    queries = []
    for table in sorted(name for object_type, name, _, _ in objects if object_type == "table"):
        wrong = []
        for _, name, object_type, needed, _, key in db.execute(f"PRAGMA table_info({table})").fetchall():
            allowed = (_TYPES[object_type],) if needed or key else (_TYPES[object_type], "null")
            wrong.append(f"typeof({name}) NOT IN ({', '.join(map(repr, allowed))})")
        queries.append(f"SELECT '{table}', count(*) FROM {table} WHERE {' OR '.join(wrong)}")
    db.close()
    return objects, tuple(queries)


class SqliteFile:
    """An open SQLite file; subclasses add the queries. Errors: as for ``Database``."""

    def __init__(self, path: str | Path, readonly: bool = False, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self._numbers: dict[Any, int] = {}  # rows of problems (by key) and environments
        self._has_log = False
        self._inspect()
        if not readonly:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DatabaseError(f"{self.path}: cannot make its folder: {error}") from error
        self._networked = _NETWORK.fullmatch(file_system(self.path.resolve().parent)) is not None
        with self._guard():
            if not readonly:
                self._create_file()
            self._db = self._connection(timeout)
        try:
            with self._guard():
                if self._networked and self._has_log and not readonly:
                    self._end_log(timeout)
                self._prepare(timeout)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        with suppress(OSError):
            _verified.add(self._state())

    def _inspect(self) -> None:
        """Rejects files of other programs by their first bytes, before SQLite writes anything next to them."""
        for path in (self.path, *(Path(f"{self.path}{end}") for end in ("-journal", "-wal", "-shm"))):
            if path.exists() and not (path.is_file() or path.is_dir()):  # opening a FIFO would block
                raise CorruptError(f"{path} is not a regular file; it was left as it is")
        try:
            with self.path.open("rb") as file:
                head = file.read(100)
        except FileNotFoundError:
            if self.readonly:
                raise DatabaseError(f"{self.path} does not exist; tune and db import create it") from None
            return
        except OSError as error:
            raise DatabaseError(f"{self.path} cannot be read: {error}") from error
        # An interrupted first write leaves half a file, and a journal from which SQLite empties it again.
        if not head or Path(f"{self.path}-journal").exists():
            return
        if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
            raise CorruptError(f"{self.path} is not an SQLite database; it was left as it is")
        if not {*head[18:20]} <= {1, 2}:  # SQLite would open the file for reading only
            raise CorruptError(f"{self.path} is damaged: its format versions are {head[18]} and {head[19]}, not 1 or 2")
        self._has_log = 2 in head[18:20]
        version, application = (int.from_bytes(head[at : at + 4], "big") for at in (60, 68))
        self._accept(version, application)

    def _accept(self, version: int, application: int) -> None:
        if application != APPLICATION or version < 1:
            raise CorruptError(f"{self.path} is a database, but not one of ptxgen's; it was left as it is")
        if version != SCHEMA_VERSION:
            wrote = "a newer" if version > SCHEMA_VERSION else "an earlier"
            raise SchemaError(
                f"{self.path} has schema version {version}, and this ptxgen reads version {SCHEMA_VERSION}:"
                f" {wrote} one wrote it; it was left as it is"
            )

    def _mode(self) -> str:
        if not self.readonly:
            return "mode=rwc"
        # Even a reader needs SQLite's index of the log. Where it cannot be made and there is no log, there is
        # no writer either.
        log = Path(f"{self.path}-wal")
        return "mode=ro" if os.access(self.path.parent, os.W_OK) or log.exists() else "mode=ro&immutable=1"

    def _connection(self, timeout: float) -> sqlite3.Connection:
        """A connection that has not read the file yet. SQLite does not trust the file: functions in its schema are not
        called, and its schema is not writable."""
        uri = f"{self.path.absolute().as_uri()}?{self._mode()}"
        # SQLite serialises calls. Reads may come from any thread; two threads would share a transaction.
        db = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=not self.readonly)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA foreign_keys = ON")
        if sys.version_info >= (3, 12):
            db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        return db

    def _prepare(self, timeout: float) -> None:
        self._db.execute("PRAGMA synchronous = FULL")
        if self._empty():
            if self.readonly:
                raise DatabaseError(f"{self.path} is empty; tune and db import make it a database")
            self._create()
        self._accept(self._pragma("user_version"), self._pragma("application_id"))
        self._verify()
        if not self.readonly and not self._networked and self._pragma("journal_mode") != "wal":
            self._log_ahead(timeout)

    def _verify(self) -> None:
        """Rejects files with unknown schema objects. When a process opens a file for the first time, files with damaged
        pages or values of wrong types are rejected, too."""
        expected, queries = _schema()
        present = set(self._db.execute(_OBJECTS).fetchall())
        for object_type, name, *_ in sorted(present ^ expected, key=repr):
            known = any(name == row[1] for row in expected)
            fault = (
                f"whose {object_type} {name} is not that of schema version {SCHEMA_VERSION}"
                if known
                else f"with a {object_type} {name}"
            )
            raise CorruptError(f"{self.path} is a database {fault}; it was left as it is")
        if self._state() in _verified:
            return
        if (result := self._pragma("quick_check(1)")) != "ok":
            raise CorruptError(f"{self.path} is damaged: {result}")
        for query in queries:
            table, wrong = self._db.execute(query).fetchone()
            if wrong:
                raise CorruptError(
                    f"{self.path} is damaged: {wrong} rows of the table {table} have a value of a wrong type"
                )
        _verified.add(self._state())

    def _state(self) -> tuple[int, ...]:
        status = self.path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _empty(self) -> bool:
        marks = self._pragma("user_version"), self._pragma("application_id")
        return not any(marks) and not self._one("SELECT count(*) FROM sqlite_master")

    def _create_file(self) -> None:
        """Creates a missing file with its tables. The file first has another name, so that a killed process leaves no
        incomplete database. Nothing is created beside a log without a file: SQLite would apply the log to the new
        file."""
        path = self.path.resolve()
        if any(Path(f"{path}{end}").exists() for end in ("", "-journal", "-wal")):
            return
        part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = OFF")  # nobody else knows the file
                db.execute("BEGIN")
                _make_tables(db)
                db.execute("COMMIT")
            # fails if another process was first, and without hard links: then ``_create`` makes the tables
            with suppress(OSError):
                os.link(part, path)
        finally:
            part.unlink(missing_ok=True)

    def _create(self) -> None:
        with self._transaction():
            if self._empty():  # another process may have been first
                _make_tables(self._db)

    def _log_ahead(self, timeout: float) -> None:
        """Sets journal mode WAL: readers and a writer do not block each other. The file keeps the mode.

        If SQLite cannot create the shared-memory index of the log, the mode stays DELETE, and readers and writers block
        each other.
        """
        self._switch("wal", timeout)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._db.close()  # the connection caches the index
                self._db = self._connection(timeout)
                self._end_log(timeout)
                self._db.execute("PRAGMA synchronous = FULL")

    def _end_log(self, timeout: float) -> None:
        """Sets journal mode DELETE. With exclusive access, SQLite can read a log without its shared-memory index, if
        the connection has not read the file before."""
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._switch("delete", timeout)
        self._db.execute("PRAGMA locking_mode = NORMAL")
        self._one("SELECT count(*) FROM sqlite_master")  # gives the exclusive lock back

    def _switch(self, mode: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._db.execute(f"PRAGMA journal_mode = {mode}")
                return
            except sqlite3.OperationalError as error:  # here SQLite does not wait for other processes by itself
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:  # another thread, or after close()
            raise DatabaseError(f"{self.path}: {error}") from error
        except (sqlite3.Error, MemoryError, UnicodeDecodeError) as error:
            # Text that is not UTF-8 has no code. A damaged length may ask for more memory than there is.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            error_class = DatabaseError if code in _OUTSIDE else CorruptError
            raise error_class(f"{self.path}: {error}") from error

    def _require_writable(self) -> None:
        if self.readonly:
            raise DatabaseError(f"{self.path} was opened for reading only")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._require_writable()
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

    def _rows(self, sql: str, after: int = 0, **equal: Any) -> Iterator[Row]:
        """The rows of ``sql`` with an id above ``after`` in which each column of ``result`` named in ``equal`` has the
        given value; None stands for any value."""
        given = {name: value for name, value in equal.items() if value is not None}
        where = " AND ".join(["result.id > ?", *(f"result.{name} = ?" for name in given)])
        with self._guard():
            for row in self._db.execute(f"{sql} WHERE {where} ORDER BY result.id", (after, *given.values())):  # noqa: UP028 it would close the cursor, perhaps too late
                yield row
