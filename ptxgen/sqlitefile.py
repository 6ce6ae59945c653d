"""An SQLite file that is ours, or refused before anything is written: owns sqlite3."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from ptxgen.errors import CorruptError, DatabaseError, SchemaError
from ptxgen.schema import APPLICATION, SCHEMA, SCHEMA_VERSION

Row = tuple[Any, ...]


class SqliteFile:
    """Opens, checks, creates and locks the file; the queries are its subclass's. Errors as ``Database`` says."""

    def __init__(self, path: str | Path, readonly: bool = False, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self._numbers: dict[Any, int] = {}  # rows of problems (by key) and environments
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

    def __enter__(self) -> Self:
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
                raise DatabaseError(f"{self.path} does not exist; tune and db import make a database") from None
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
                raise DatabaseError(f"{self.path} is empty; tune and db import make a database of it")
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

    def _rows(self, sql: str, **equal: Any) -> Iterator[Row]:
        """Rows of ``sql`` where each named column of ``result`` has the given value; None: any value."""
        given = {name: value for name, value in equal.items() if value is not None}
        where = " AND ".join(f"result.{name} = ?" for name in given)
        sql += f" WHERE {where} ORDER BY result.id" if given else " ORDER BY result.id"
        with self._guard():
            for row in self._db.execute(sql, (*given.values(),)):  # noqa: UP028 it would close the cursor, perhaps too late
                yield row
