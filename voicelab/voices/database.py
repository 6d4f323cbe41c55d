"""The one SQLite file of a voice store: opened when it is first needed, migrated, checked, and never without its lock."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from voicelab.errors import StoreError
from voicelab.voices.folders import make_folder

__all__ = ["Database", "ServerLock"]

_MIGRATIONS = (
    """
    CREATE TABLE voices (
      id TEXT PRIMARY KEY,
      owner TEXT NOT NULL,
      visibility TEXT NOT NULL CHECK (visibility IN ('public', 'unlist', 'private')),
      state TEXT NOT NULL CHECK (state IN ('created', 'training', 'trained', 'failed')),
      created_at REAL NOT NULL,
      updated_at REAL NOT NULL,
      task_count INTEGER NOT NULL DEFAULT 0 CHECK (task_count >= 0),
      told TEXT NOT NULL,
      cover TEXT,
      digest TEXT NOT NULL
    );
    CREATE TABLE samples (
      voice TEXT NOT NULL REFERENCES voices (id) ON DELETE CASCADE,
      number INTEGER NOT NULL,
      title TEXT NOT NULL,
      text TEXT NOT NULL,
      audio TEXT NOT NULL,
      PRIMARY KEY (voice, number)
    );
    CREATE TABLE embeddings (
      voice TEXT NOT NULL REFERENCES voices (id) ON DELETE CASCADE,
      fingerprint TEXT NOT NULL,
      data BLOB NOT NULL,
      digest TEXT NOT NULL,
      PRIMARY KEY (voice, fingerprint)
    );
    """,
)
"""What brings a database from each version to the next; ``user_version`` counts those done."""


class Database:
    """One connection to ``path``, whose users take turns. All its errors are StoreErrors.

    A write waits at most ``busy_s`` seconds for another process.
    """

    def __init__(self, path: Path, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @property
    def opened(self) -> bool:
        """Whether the file has been opened."""
        return self._db is not None

    def close(self) -> None:
        """Close the file; it is opened again when it is needed again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for a few SELECTs that see one state."""
        with self._lock, self._telling():
            db = self._opened()
            db.execute("BEGIN")
            try:
                yield db
            finally:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one transaction, which is on the disk when the block has ended."""
        with self._lock, self._telling():
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None:
            # An open file that was deleted goes on working, and is lost with the process.
            if _identity(self.path) != self._file:
                raise StoreError(f"the database of the voice store was deleted or replaced: {self.path}")
            return self._db
        make_folder(self.path.parent)
        # SQLite would make it readable for all; its journals take the permissions of the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        # The rollback journal is kept: SQLite before 3.51.3 can corrupt a write-ahead log that two
        # connections write, and notebooks may use the store beside each other.
        db = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA foreign_keys = ON")
            # FULL, the default, does not sync the folder once the journal is gone: after a loss of power the
            # journal could be back, and would roll back what was acknowledged.
            db.execute("PRAGMA synchronous = EXTRA")
            self._check(db)
            self._migrate(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, _identity(self.path)
        return db

    def _check(self, db: sqlite3.Connection) -> None:
        (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise StoreError(f"the database of the voice store is damaged: {self.path}: {found}")

    def _migrate(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            for migration in _MIGRATIONS[self._version(db) :]:
                for statement in migration.split(";"):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _version(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(_MIGRATIONS):
            raise StoreError(f"the voice store {self.path} was made by a later version of voicelab")
        return version

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"the voice store {self.path} cannot be used at the moment: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"the database of the voice store is damaged: {self.path}: {error}") from error
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"the voice store {self.path} cannot be used: {error}") from error


class ServerLock:
    """Held by the one server of a store until it is closed, or its process ends however it ends.

    An SQLite file serves as the lock, because its locks are the same on every platform.
    """

    def __init__(self, path: Path) -> None:
        try:
            make_folder(path.parent)
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the voice store {path.parent} cannot be used: {error}") from error
        try:
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            self._db.close()
            raise StoreError(f"another server uses the voice store {path.parent}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another server have the store."""
        self._db.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
