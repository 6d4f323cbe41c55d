"""Files and databases: atomic writes, quarantine of damaged files, SQLite.

Files are written under a temporary name and renamed when complete, so that readers see the old content or the new.
Functions raise StoreError, except where a docstring says OSError.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import platformdirs

from voicelab.errors import StoreError, WeightsError, some
from voicelab.lifecycle import Closeable, ProcessOwner

UNFINISHED: Final = "unfinished-"
"""Prefix of temporary file names, followed by 16 hexadecimal digits; a killed writer leaves such a file."""

_LOG = logging.getLogger("voicelab.storage")
_MAX_LISTED: Final = 5
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DamagedFile(StoreError):
    """A file does not match its digest; the message names the path to which the file was moved."""


def data_home() -> Path:
    """Return the data folder: ``VOICELAB_HOME``, or the platform's user data folder."""
    folder = os.environ.get("VOICELAB_HOME")
    return Path(folder) if folder else Path(platformdirs.user_data_dir("voicelab", appauthor=False))


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_published(package: str, paths: Sequence[Path], *sha256: str) -> list[bytes]:
    """Read a model's files from a third-party package and verify them.

    ``sha256`` are the accepted digests of the concatenated files. Raises WeightsError for missing or different files.
    """
    try:
        contents = [path.read_bytes() for path in paths]
    except OSError as error:
        raise WeightsError(f"{package}: the model cannot be read ({error}); reinstall the package") from error
    if digest_of(b"".join(contents)) not in sha256:
        names = ", ".join(path.name for path in paths)
        raise WeightsError(f"{package}: SHA-256 of {names} differs from the published one; reinstall the package")
    return contents


def disk_error(error: OSError, path: Path) -> StoreError:
    """Convert an OSError to a StoreError with path and ``errno``."""
    reason = "no space left on the disk" if error.errno in _DISK_FULL else error.strerror or str(error)
    store_error = StoreError(f"{path}: {reason}")
    store_error.errno = error.errno
    return store_error


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Convert each OSError of the block to a StoreError with the path."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise disk_error(error, path) from error


def make_folder(path: Path, *, private: bool = False) -> None:
    """Create a folder and its missing parents durably (synced to disk). Raises OSError.

    With ``private``, new folders are accessible only to the owner.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        sync_folder(folder.parent)


def restrict(path: Path) -> None:
    """Remove the permissions of group and others from a file, if it exists and the file system supports permissions."""
    with suppress(OSError):
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            path.chmod(mode & 0o700)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk; a new file is durable only after that. Raises OSError."""
    # Windows cannot sync folders and does not need to.
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(path: Path) -> None:
    """Raise StoreError if a file cannot be written at a path. Writes nothing; call it before a long computation."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} cannot be written: it is a {'folder' if path.is_dir() else 'device or pipe'}")
    check_folder(path.parent, path)


def check_folder(folder: Path, path: Path | None = None) -> None:
    """Raise StoreError if a folder cannot be written to or created; the message names ``path``, or by default the folder."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise StoreError(f"{path or folder} cannot be written: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"{path or folder} cannot be written: no write permission for {existing}")


def check_own(folder: Path, names: Iterable[str], marker: str) -> None:
    """Raise StoreError if a folder has files with these names but no ``marker``, which earlier output would have."""
    existing = [] if (folder / marker).is_file() else [name for name in names if (folder / name).exists()]
    if existing:
        message = f"must be new or contain earlier output, got {some(existing, _MAX_LISTED)} without {marker}"
        raise StoreError(f"{folder} {message}; choose another folder")


@contextmanager
def open_atomic(path: Path, *, replace: bool = True, sync: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file for reading and writing, and rename it to ``path`` if the block succeeds.

    Args:
        path: file to write.
        replace: replace an existing file; if False, raise FileExistsError.
        sync: sync file and folder to disk.
        private: make the file readable by its owner only; otherwise it gets the permissions of the replaced file.

    Raises OSError.
    """
    unfinished = path.parent / f"{UNFINISHED}{secrets.token_hex(8)}"
    try:
        opener = (lambda name, flags: os.open(name, flags, 0o600)) if private else None
        with open(unfinished, "x+b", opener=opener) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if replace or not _link(unfinished, path):
            if not private:
                with suppress(FileNotFoundError):
                    unfinished.chmod(path.stat().st_mode & 0o777)
            unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()
    if sync:
        sync_folder(path.parent)


def write_atomic(path: Path, data: bytes, *, replace: bool = True, sync: bool = True, private: bool = False) -> bool:
    """Write a file atomically, creating its folder. Return True, or False if the file exists and ``replace`` is False.

    Arguments are those of ``open_atomic``.
    """
    try:
        make_folder(path.parent, private=private)
        with open_atomic(path, replace=replace, sync=sync, private=private) as file:
            file.write(data)
    except OSError as error:
        if not replace and isinstance(error, FileExistsError) and path.is_file():
            return False
        raise disk_error(error, path) from error
    return True


def quarantine(path: Path, reason: str, folder: Path) -> DamagedFile:
    """Move a damaged file into ``folder`` if the disk is writable, log a warning, and return the error to raise."""
    target = folder / f"{path.name}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=path.parent.stat().st_mode & 0o777, exist_ok=True)
        path.replace(target)
    except OSError:
        _LOG.warning("%s is damaged (%s); it could not be moved to %s", path, reason, folder)
        return DamagedFile(f"{path} is damaged ({reason})")
    _LOG.warning("%s is damaged (%s); moved to %s", path, reason, target)
    return DamagedFile(f"{path.name} is damaged ({reason}); moved to {target}")


class BlobFolder:
    """Folder of files named by their SHA-256, which is verified on reading. Safe for threads and processes.

    Damaged files are moved to ``damaged`` next to the folder. With ``private``, new files are readable only by the
    owner; with ``sync``, they are synced to disk.
    """

    def __init__(self, folder: Path, *, private: bool = False, sync: bool = True) -> None:
        self.folder = folder
        self.damaged = folder.parent / "damaged"
        self._private = private
        self._sync = sync

    def put(self, data: bytes, suffix: str = "") -> str:
        """Store ``data`` and return the file name, the digest followed by ``suffix``."""
        name = f"{digest_of(data)}{suffix}"
        path = self.folder / name
        with on_disk(path):
            if path.is_file() and path.read_bytes() == data:
                os.utime(path)  # for ``remove_unused``
                return name
        write_atomic(path, data, private=self._private, sync=self._sync)
        return name

    def get(self, name: str) -> bytes:
        """Read a file. If its content does not match the digest, move it to ``damaged`` and raise DamagedFile."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"missing file: {path}") from None
        except OSError as error:
            raise disk_error(error, path) from error
        if digest_of(data) != path.stem:
            raise quarantine(path, "its bytes have changed", self.damaged)
        with suppress(OSError):
            os.utime(path)
        return data

    def size(self, names: Iterable[str]) -> int:
        """Return the total size of files in bytes; missing files count as 0."""
        paths = map(self._path, names)
        return sum(path.stat().st_size for path in paths if path.is_file())

    def remove(self, digests: Iterable[str]) -> None:
        """Remove files; missing files are ignored."""
        for digest in digests:
            path = self._path(digest)
            with on_disk(path):
                path.unlink(missing_ok=True)

    def remove_unused(self, keep: Container[str], older_than: float) -> int:
        """Remove temporary files and files not in ``keep`` that are older than ``older_than`` seconds; return their count."""
        cutoff = time.time() - older_than
        count = 0
        with suppress(OSError):
            for path in list(self.folder.iterdir()):
                blob = path.name.startswith(UNFINISHED) or _DIGEST.fullmatch(path.name) is not None
                if blob and path.name not in keep and path.stat().st_mtime <= cutoff:
                    path.unlink()
                    count += 1
        return count

    def empty(self) -> bool:
        """Return True if the folder has no stored files."""
        return not self.folder.is_dir() or not any(_DIGEST.fullmatch(path.name) for path in self.folder.iterdir())

    def _path(self, name: str) -> Path:
        if _DIGEST.fullmatch(name.partition(".")[0]) is None or "/" in name:
            raise StoreError(f"a file name in {self.folder} must be a SHA-256, got {name[:80]!r}")
        return self.folder / name


class Database:
    """SQLite file with one connection, shared by threads under a lock.

    On first use, the file is opened, checked for damage and migrated. A missing file is created with its folder, and both
    are accessible only to the owner. Several processes may use the file; concurrent writes are serialized.

    Args:
        path: the file.
        name: name in messages, such as ``voice store``.
        migrations: SQL statements (separated by semicolons) from each schema version to the next; ``user_version`` is
            the number of migrations applied.
        busy_s: seconds for which a write waits for another process.
    """

    def __init__(self, path: Path, name: str, migrations: Sequence[str], *, busy_s: float = 2.0) -> None:
        with on_disk(path):  # the working directory may be deleted
            self.path = path.absolute()
        self._name = f"{name} {path}"
        self._migrations = migrations
        self._busy_s = busy_s
        self._lock = threading.RLock()
        self._owner = ProcessOwner()
        self._inherited: list[sqlite3.Connection | None] = []
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @property
    def opened(self) -> bool:
        """True if the file is open."""
        return self._db is not None

    def open(self) -> None:
        """Open the file now instead of on first use."""
        with self._process_lock(), self._store_errors():
            self._connection()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._process_lock():
            if self._db is not None:
                self._db.close()
            self._db = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a read transaction: SELECTs see a consistent state."""
        with self._process_lock(), self._store_errors(), self._connection() as db:
            db.execute("BEGIN")
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a write transaction, which is committed durably when the block ends."""
        # The connection's context manager commits, or rolls back after an error or a failed commit.
        with self._process_lock(), self._store_errors(), self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def _process_lock(self) -> threading.RLock:
        """Return the lock. A fork gets a new lock, and leaves the inherited connection open and unused."""
        if self._owner.forked:
            self._owner, self._lock = ProcessOwner(), threading.RLock()
            self._inherited.append(self._db)
            self._db = None
        return self._lock

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None:
            # Writes to a deleted file would succeed and be lost.
            if inode(self.path) != self._file:
                raise StoreError(f"the {self._name} was deleted or replaced")
            return self._db
        make_folder(self.path.parent, private=True)
        # SQLite would create a file readable by everyone; its journals get the permissions of the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        for suffix in ("", "-journal", "-wal", "-shm"):
            restrict(self.path.with_name(self.path.name + suffix))
        # Explicit transactions: a write must hold the lock from its first read on. A rollback journal, because SQLite
        # before 3.51.3 can corrupt a write-ahead log of two connections.
        db = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA foreign_keys = ON")
            # FULL, the default, does not sync the folder after removing the journal: after a power failure the journal
            # could reappear and roll back a committed transaction.
            db.execute("PRAGMA synchronous = EXTRA")
            self._migrate(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, inode(self.path)
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if result != "ok":
            raise StoreError(f"the {self._name} is damaged: {result}")
        with db:
            db.execute("BEGIN IMMEDIATE")
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if version > len(self._migrations):
                raise StoreError(f"the {self._name} was written by a newer voicelab (version {version})")
            for migration in self._migrations[version:]:
                for statement in migration.split(";"):
                    db.execute(statement)
            if version < len(self._migrations):
                db.execute(f"PRAGMA user_version = {len(self._migrations)}")

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            with on_disk(self.path):
                yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"the {self._name} is not available: {error}") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's messages quote damaged text
            raise StoreError(f"the {self._name} is damaged: {error}") from error


class FileLock(Closeable):
    """Exclusive lock that a process holds until it closes the lock or ends.

    Args:
        path: lock file.
        message: message of the StoreError if another process holds the lock.
        temporary: remove the file on closing; otherwise the file is kept, and a new folder is accessible only to the owner.
    """

    # SQLite instead of the filelock package: its locks are not inherited by forked workers, which outlive a killed parent.
    def __init__(self, path: Path, message: str, *, temporary: bool = False) -> None:
        self._temporary = path if temporary else None
        try:
            with on_disk(path):
                make_folder(path.parent, private=not temporary)
                while not self._lock(path):
                    pass
        except sqlite3.Error as error:
            busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            raise StoreError(message if busy else f"{path}: {error}") from error

    def _lock(self, path: Path) -> bool:
        """Lock the file; return False if another process removed it meanwhile."""
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
        file = inode(path)
        self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            self._db.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY or inode(path) == file:
                raise
            return False
        if inode(path) == file:
            return True
        self._db.close()
        return False

    def close(self) -> None:
        """Release the lock; a second call has no effect."""
        if self._temporary is not None:
            with suppress(OSError):
                self._temporary.unlink()
            self._temporary = None
        self._db.close()


def _link(unfinished: Path, path: Path) -> bool:
    """Link a temporary file to its final name; return False if the file system has no links. Raises FileExistsError."""
    try:
        # Unlike a rename, a link fails if another writer was faster.
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError as error:
        if path.is_file():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        return False
    return True


def inode(file: Path | int) -> tuple[int, int] | None:
    """Return (device, inode) of a path or file descriptor; None if the file does not exist."""
    try:
        status = os.stat(file)  # noqa: PTH116 - a file descriptor has no path
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
