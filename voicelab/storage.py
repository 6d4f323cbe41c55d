"""Files and databases on disk: written whole or not at all, set aside when damaged, SQLite opened safely.

A file is written under another name and renamed when it is complete, so that readers and other writers see the old
file or the new one, never a part. All errors are StoreErrors, except where a docstring says OSError.
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
from typing import BinaryIO, Final, Self

import platformdirs

from voicelab.errors import EngineError, StoreError, WeightsError

UNFINISHED: Final = "unfinished-"
"""How the name of a file begins that is being written, or whose writer was killed; 16 hexadecimal digits follow."""

_LOG = logging.getLogger("voicelab.storage")
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DamagedFile(StoreError):
    """A file does not fit its digest; it was set aside as the message says."""


class Closing:
    """What a ``with`` block closes at its end."""

    def close(self) -> None:
        """Let go of what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessOwner:
    """The process that opened something: a fork shares its connections, and has none of its threads."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of that one."""
        return os.getpid() != self._process

    def check(self, name: str) -> None:
        """Raise EngineError in a fork, where a call would wait for the threads of the other process for ever."""
        if self.forked:
            raise EngineError(
                f"{name} was opened by the process {self._process} and does not work in a fork of it: call vl.connect() in "
                "the child, start processes by multiprocessing.get_context('spawn'), or give a sweep an executor="
            )


def data_home() -> Path:
    """Return the folder of voicelab's data: ``VOICELAB_HOME``, or the platform's user data folder."""
    chosen = os.environ.get("VOICELAB_HOME")
    return Path(chosen) if chosen else Path(platformdirs.user_data_dir("voicelab", appauthor=False))


def digest_of(data: bytes) -> str:
    """Return the sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_published(package: str, paths: Sequence[Path], *sha256: str) -> list[bytes]:
    """Return the bytes of the files that are the model in a package of others.

    ``sha256`` is that of all their bytes in a row, in each version whose model is known. Raises WeightsError for other
    bytes, and for a file that is not there.
    """
    try:
        contents = [path.read_bytes() for path in paths]
    except OSError as error:
        raise WeightsError(f"{package}: the model cannot be read ({error}); install the package anew") from error
    if digest_of(b"".join(contents)) not in sha256:
        names = ", ".join(path.name for path in paths)
        raise WeightsError(f"{package}: {names} are not as published (their SHA-256 differs); install the package anew")
    return contents


def disk_error(error: OSError, path: Path) -> StoreError:
    """Return the StoreError for an OSError: it names the path and keeps ``errno``."""
    why = "there is no room left on the disk" if error.errno in _FULL else error.strerror or str(error)
    failure = StoreError(f"{path}: {why}")
    failure.errno = error.errno
    return failure


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Raise the StoreError that names the path for every OSError of the block."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise disk_error(error, path) from error


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder and its missing parents, which survive a loss of power when this returns. Raises OSError.

    With ``private`` only the owner may enter the new ones.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        sync_folder(folder.parent)


def restrict(path: Path) -> None:
    """Take the permissions of group and others from a file, where it is there and the disk has permissions to change."""
    with suppress(OSError):
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            path.chmod(mode & 0o700)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: a new file is safe only when its name is. Raises OSError."""
    # Windows has no such call and keeps names by itself.
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(path: Path) -> None:
    """Raise StoreError where no file can be written at a path: before work whose result goes there. Writes nothing."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} cannot be written: it is a {'folder' if path.is_dir() else 'device or pipe'}")
    check_folder(path.parent, path)


def check_folder(folder: Path, path: Path | None = None) -> None:
    """Raise StoreError, which names ``path`` or the folder, where nothing can be written into a folder, or it made."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise StoreError(f"{path or folder} cannot be written: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"{path or folder} cannot be written: no permission to write into {there}")


@contextmanager
def open_atomic(path: Path, *, replace: bool = True, sync: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a new file, open for reading and writing, that becomes ``path`` when the block ends without an error.

    Without ``replace`` an existing file stays, and FileExistsError is raised. With ``sync`` the file survives a loss of
    power; with ``private`` only the owner may read it, otherwise it has the permissions of the file that it replaces.
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
    """Write a file whole or not at all; its folder is made. Return whether ``data`` was written.

    Options as in ``open_atomic``, but without ``replace`` an existing file makes the answer False.
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


def set_aside(path: Path, why: str, folder: Path) -> DamagedFile:
    """Move a damaged file into ``folder``, log it, and return the error to raise."""
    aside = folder / f"{path.name}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=path.parent.stat().st_mode & 0o777, exist_ok=True)
        path.replace(aside)
    except OSError:
        aside = path  # a disk that takes no changes; the error is the same
    _LOG.warning("%s is damaged (%s); it was set aside as %s", path, why, aside)
    return DamagedFile(f"{path.name} is damaged ({why}); it was set aside as {aside}")


class BlobFolder:
    """A folder of files named by the SHA-256 of their bytes, which is checked whenever one is read.

    Damaged files are moved to ``damaged`` beside the folder. With ``private`` only the owner may read what is written.
    With ``sync`` what is put survives a loss of power. Safe to use from several threads and processes.
    """

    def __init__(self, folder: Path, *, private: bool = False, sync: bool = True) -> None:
        self.folder = folder
        self.damaged = folder.parent / "damaged"
        self._private = private
        self._sync = sync

    def put(self, data: bytes, suffix: str = "") -> str:
        """Keep ``data`` and return its file's name: its digest, and ``suffix``."""
        name = f"{digest_of(data)}{suffix}"
        path = self.folder / name
        with on_disk(path):
            if path.is_file() and path.read_bytes() == data:
                os.utime(path)  # as young as if it were written now, for ``remove_unused``
                return name
        write_atomic(path, data, private=self._private, sync=self._sync)
        return name

    def get(self, name: str) -> bytes:
        """Return the bytes of a file. One whose bytes have changed is set aside, and never returned."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"a file is missing: {path}") from None
        except OSError as error:
            raise disk_error(error, path) from error
        if digest_of(data) != path.stem:
            raise set_aside(path, "its bytes have changed", self.damaged)
        with suppress(OSError):
            os.utime(path)
        return data

    def remove(self, digests: Iterable[str]) -> None:
        """Remove files; those that are gone already are no error."""
        for digest in digests:
            path = self._path(digest)
            with on_disk(path):
                path.unlink(missing_ok=True)

    def remove_unused(self, keep: Container[str], older_than: float) -> int:
        """Remove files not in ``keep`` and unfinished ones, if older than ``older_than`` seconds; return how many."""
        before = time.time() - older_than
        removed = 0
        with suppress(OSError):
            for path in list(self.folder.iterdir()):
                ours = path.name.startswith(UNFINISHED) or _DIGEST.fullmatch(path.name) is not None
                if ours and path.name not in keep and path.stat().st_mtime <= before:
                    path.unlink()
                    removed += 1
        return removed

    def empty(self) -> bool:
        """Say whether the folder holds no file of ours."""
        return not self.folder.is_dir() or not any(_DIGEST.fullmatch(path.name) for path in self.folder.iterdir())

    def _path(self, name: str) -> Path:
        if _DIGEST.fullmatch(name.partition(".")[0]) is None or "/" in name:
            raise StoreError(f"{name[:80]!r} is no SHA-256, and names no file in {self.folder}")
        return self.folder / name


class Database:
    """One SQLite file and one connection to it, which threads use in turn.

    It is opened when it is first needed: made with its folder, checked for damage and migrated. Other processes may use
    the file at the same time; a write waits for them.

    Args:
        path: the file.
        name: what it is called in messages, such as ``voice store``.
        migrations: the SQL statements (separated by semicolons) that lead from each version of the file to the next;
            ``user_version`` counts those done.
        busy_s: seconds for which a write waits for another process.
        private: whether only the owner may read the file, and enter its folder if that is made.
    """

    def __init__(
        self, path: Path, name: str, migrations: Sequence[str], *, busy_s: float = 2.0, private: bool = True
    ) -> None:
        with on_disk(path):  # the working directory may be deleted
            self.path = path.absolute()
        self._name = f"{name} {path}"
        self._migrations = migrations
        self._busy_s = busy_s
        self._private = private
        self._lock = threading.RLock()
        self._owner = ProcessOwner()
        self._inherited: list[sqlite3.Connection | None] = []
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @property
    def opened(self) -> bool:
        """Whether the file has been opened."""
        return self._db is not None

    def open(self) -> None:
        """Open the file now, to learn at once whether it can be used."""
        with self._held(), self._store_errors():
            self._connection()

    def close(self) -> None:
        """Close the file; it is opened again when it is needed again."""
        with self._held():
            if self._db is not None:
                self._db.close()
            self._db = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for SELECTs that see one state."""
        with self._held(), self._store_errors(), self._connection() as db:
            db.execute("BEGIN")
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one transaction, which survives a loss of power when the block has ended."""
        # The connection's own block commits at its end, and rolls back after an error and when the commit fails.
        with self._held(), self._store_errors(), self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def _held(self) -> threading.RLock:
        """Return the lock; in a fork a new one, and SQLite's connection, which no fork may use or close, is put aside."""
        if self._owner.forked:
            self._owner, self._lock = ProcessOwner(), threading.RLock()
            self._inherited.append(self._db)
            self._db = None
        return self._lock

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None:
            # An open file that was deleted goes on working, and is lost with the process.
            if inode(self.path) != self._file:
                raise StoreError(f"the {self._name} was deleted or replaced")
            return self._db
        make_folder(self.path.parent, private=self._private)
        # SQLite would make the file readable for all; its journals take the permissions of the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600 if self._private else 0o666))
        if self._private:
            for suffix in ("", "-journal", "-wal", "-shm"):
                restrict(self.path.with_name(self.path.name + suffix))
        # Transactions are begun by hand: a write must hold the lock from its first read on. The rollback journal is
        # kept: SQLite before 3.51.3 can corrupt a write-ahead log that two connections write.
        db = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA foreign_keys = ON")
            # FULL, the default, does not sync the folder once the journal is gone: after a loss of power the
            # journal could be back, and would roll back what was acknowledged.
            db.execute("PRAGMA synchronous = EXTRA")
            self._migrate(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, inode(self.path)
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the file to the newest version, unless it is damaged."""
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
            raise StoreError(f"the {self._name} cannot be used at the moment: {error}") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # its messages quote what is damaged
            raise StoreError(f"the {self._name} is damaged: {error}") from error


class FileLock(Closing):
    """Held by one process until it is closed, or the process ends however it ends. Raises StoreError when it is held.

    An SQLite file serves as the lock, because its locks are the same on every platform. ``refused`` is the message when
    another holds it. A ``temporary`` file goes with the lock; the folder of another is made for its owner alone.
    """

    def __init__(self, path: Path, refused: str, *, temporary: bool = False) -> None:
        self._goes = path if temporary else None
        try:
            with on_disk(path):
                make_folder(path.parent, private=not temporary)
                while not self._locked(path):
                    pass
        except sqlite3.Error as error:
            held = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            raise StoreError(refused if held else f"{path}: {error}") from error

    def _locked(self, path: Path) -> bool:
        """Lock the file; return whether it is still the one that others find there: it may go with another's lock."""
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
        """Let another process have the lock. May be called twice."""
        if self._goes is not None:
            with suppress(OSError):
                self._goes.unlink()
            self._goes = None
        self._db.close()


def _link(unfinished: Path, path: Path) -> bool:
    """Give a file its name unless another has it (FileExistsError); False where the disk has no links."""
    try:
        # Unlike a rename, a link never replaces: of several writers the first wins.
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError as error:
        if path.is_file():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        return False  # of several writers at the very same time the last wins
    return True


def inode(file: Path | int) -> tuple[int, int] | None:
    """Return what tells a file, by its path or an open one by its number, from others; None where there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116 - an open one has no path
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
