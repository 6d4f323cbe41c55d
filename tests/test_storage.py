from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from voicelab.errors import StoreError
from voicelab.storage import (
    BlobFolder,
    DamagedFile,
    Database,
    FileLock,
    data_home,
    make_folder,
    open_atomic,
    write_atomic,
)

TABLE = "CREATE TABLE word (text TEXT NOT NULL)"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "data"))
    assert data_home() == tmp_path / "data"
    monkeypatch.setenv("VOICELAB_HOME", "")
    assert data_home().name == "voicelab"


# Atomic writes.


def test_files_are_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert write_atomic(path, b"first")
    assert not write_atomic(path, b"second", replace=False)
    assert path.read_bytes() == b"first"
    with pytest.raises(TypeError), open_atomic(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]  # to fail in between
    assert path.read_bytes() == b"first"
    with open_atomic(path) as file:
        file.write(b"second")
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"
    assert _names(path.parent) == ["file"]


def test_concurrent_writers_without_replace(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def write(number: int) -> bool:
        start.wait()
        return write_atomic(tmp_path / "file", b"%d" % number * 1000, replace=False)

    with ThreadPoolExecutor(8) as pool:
        wrote = list(pool.map(write, range(8)))
    assert wrote.count(True) == 1
    assert (tmp_path / "file").read_bytes() == b"%d" % wrote.index(True) * 1000
    assert _names(tmp_path) == ["file"]


def test_without_replace_on_a_disk_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    assert write_atomic(tmp_path / "file", b"first", replace=False)
    assert not write_atomic(tmp_path / "file", b"second", replace=False)
    assert (tmp_path / "file").read_bytes() == b"first"


def test_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "own" / "file", b"x", private=True)
        write_atomic(tmp_path / "all" / "file", b"x")
        (tmp_path / "odd").touch(0o640)
        write_atomic(tmp_path / "odd", b"x")
    finally:
        os.umask(before)
    assert (_mode(tmp_path / "own"), _mode(tmp_path / "own" / "file")) == (0o700, 0o600)
    assert (_mode(tmp_path / "all"), _mode(tmp_path / "all" / "file")) == (0o755, 0o644)
    assert _mode(tmp_path / "odd") == 0o640


def test_order_of_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_sync(handle)

    def replace(path: Path, target: Path) -> Path:
        done.append("rename")
        return real_replace(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomic(tmp_path / "file", b"sound")
    assert done == ["file", "rename", "folder"]
    write_atomic(tmp_path / "file", b"sound", sync=False)
    assert done[3:] == ["rename"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "no space left"), (errno.EIO, os.strerror(errno.EIO))])
def test_disk_errors_leave_the_old_file(
    tmp_path: Path, call: str, number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic(tmp_path / "file", b"before")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os if call == "fsync" else Path, call, fail)
    with pytest.raises(StoreError, match=words) as caught:
        write_atomic(tmp_path / "file", b"after")
    assert caught.value.errno == number
    assert _names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").write_bytes(b"")
    for replace in (True, False):
        with pytest.raises(StoreError, match="folder"):
            write_atomic(tmp_path / "folder" / "file", b"x", replace=replace)
    with pytest.raises(OSError, match="folder"):
        make_folder(tmp_path / "folder" / "below")


# Files named by their digest.


@pytest.fixture
def blobs(tmp_path: Path) -> BlobFolder:
    return BlobFolder(tmp_path / "files", private=True)


def test_blobs_are_read_by_digest(blobs: BlobFolder) -> None:
    assert blobs.empty()
    digest = blobs.put(b"sound")
    assert digest == hashlib.sha256(b"sound").hexdigest()
    assert blobs.get(digest) == b"sound"
    assert blobs.put(b"sound") == digest
    assert _names(blobs.folder) == [digest]
    assert not blobs.empty()
    assert _mode(blobs.folder / digest) == 0o600


@pytest.mark.parametrize("name", ["../keys.sqlite3", "/etc/passwd", "", "A" * 64, "0" * 63 + "\n", "0" * 64 + "\x00"])
def test_names_other_than_digests_are_rejected(blobs: BlobFolder, name: str) -> None:
    (blobs.folder.parent / "keys.sqlite3").write_bytes(b"secret")
    with pytest.raises(StoreError, match="must be a SHA-256"):
        blobs.get(name)
    with pytest.raises(StoreError, match="must be a SHA-256"):
        blobs.remove([name])


def test_damaged_blobs_are_moved_and_repaired(blobs: BlobFolder) -> None:
    data = bytes(range(64))
    for at in range(64):
        digest = blobs.put(data)
        broken = bytearray(data)
        broken[at] ^= 1
        (blobs.folder / digest).write_bytes(broken)
        with pytest.raises(DamagedFile, match="moved to"):
            blobs.get(digest)
        assert _names(blobs.folder) == []
    assert len(_names(blobs.damaged)) == 64
    (blobs.folder / blobs.put(data)).write_bytes(b"other")
    assert blobs.get(blobs.put(data)) == data


def test_damaged_blob_that_cannot_be_moved_stays(blobs: BlobFolder, caplog: pytest.LogCaptureFixture) -> None:
    name = blobs.put(b"data")
    (blobs.folder / name).write_bytes(b"other")
    blobs.damaged.touch()
    with pytest.raises(DamagedFile) as caught:
        blobs.get(name)
    assert str(caught.value) == f"{blobs.folder / name} is damaged (its bytes have changed)"
    assert f"could not be moved to {blobs.damaged}" in caplog.text


def test_remove_unused(blobs: BlobFolder) -> None:
    kept, old, young = blobs.put(b"kept"), blobs.put(b"old"), blobs.put(b"young")
    half = blobs.folder / "unfinished-0"
    half.write_bytes(b"ha")
    stranger = blobs.folder / "README"
    stranger.write_bytes(b"not ours")
    for path in (blobs.folder / kept, blobs.folder / old, half, stranger):
        os.utime(path, (1, 1))
    assert blobs.remove_unused({kept}, 3600) == 2
    assert _names(blobs.folder) == sorted([kept, young, "README"])
    os.utime(blobs.folder / young, (1, 1))
    blobs.put(b"young")  # which makes it young again
    assert blobs.remove_unused(set(), 3600) == 1


# SQLite. Damage and power failure are tested in tests/voices.


def test_database_is_created_on_first_use_and_migrated(tmp_path: Path) -> None:
    path = tmp_path / "home" / "words"
    database = Database(path, "list of words", [TABLE])
    assert not path.parent.exists()
    with database.writing() as db:
        db.execute("INSERT INTO word VALUES ('ah')")
    database.close()
    assert (_mode(path.parent), _mode(path)) == (0o700, 0o600)
    later = Database(path, "list of words", [TABLE, "ALTER TABLE word ADD COLUMN language TEXT DEFAULT 'en'"])
    with later.reading() as db:
        assert db.execute("SELECT * FROM word").fetchall() == [("ah", "en")]
        # Kept so: a write-ahead log can be corrupted by two writers, and less than EXTRA (3) can undo a commit.
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("PRAGMA synchronous").fetchone() == (3,)
    later.close()
    with pytest.raises(StoreError, match=r"list of words .* newer voicelab"):
        database.open()


def test_failed_transaction_is_rolled_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "words", "list of words", [TABLE])
    with pytest.raises(StoreError, match="NOT NULL"), database.writing() as db:
        db.executemany("INSERT INTO word VALUES (?)", [("ah",), (None,)])
    with database.writing() as db:
        assert db.execute("SELECT * FROM word").fetchall() == []
    database.close()


def test_permissions_of_a_private_database_are_restricted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "words"
    beside = [path.with_name(f"words{suffix}") for suffix in ("-journal", "-wal", "-shm")]
    database = Database(path, "list of words", [TABLE])
    database.open()
    database.close()
    for file in (path, *beside):
        file.touch()
        file.chmod(0o664)
    # A disk without permissions, as FAT, or a file of another owner.
    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", lambda *_: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted")))
        database.open()
    database.close()
    assert _mode(path) == 0o664
    database.open()
    database.close()
    assert {_mode(file) for file in (path, *beside) if file.exists()} == {0o600}


@pytest.mark.parametrize("damage", [b"no database, but long enough to look at" * 30, None])
def test_damaged_database(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "words"
    if damage is None:
        path.mkdir()
    else:
        path.write_bytes(damage)
    with pytest.raises(StoreError, match="words"):
        Database(path, "list of words", [TABLE]).open()


def test_busy_or_deleted_database(tmp_path: Path) -> None:
    path = tmp_path / "words"
    database = Database(path, "list of words", [TABLE], busy_s=0.05)
    database.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="not available: database is locked"), database.writing():
        pass
    other.close()
    path.unlink()
    with pytest.raises(StoreError, match="deleted or replaced"), database.reading():
        pass
    database.close()


def test_file_lock_is_exclusive(tmp_path: Path) -> None:
    with FileLock(tmp_path / "new" / "lock", "taken"), pytest.raises(StoreError, match="taken"):
        FileLock(tmp_path / "new" / "lock", "taken")
    FileLock(tmp_path / "new" / "lock", "taken").close()
    with pytest.raises(StoreError):
        FileLock(tmp_path, "taken")
