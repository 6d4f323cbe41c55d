from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

import pytest

from voicelab.errors import StoreError
from voicelab.voices.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "files")


def _names(blobs: Blobs) -> list[str]:
    return sorted(path.name for path in blobs.folder.iterdir())


def test_bytes_come_back_under_their_hash(blobs: Blobs) -> None:
    assert blobs.empty()
    digest = blobs.put(b"sound")
    assert digest == hashlib.sha256(b"sound").hexdigest()
    assert blobs.get(digest) == b"sound"
    assert blobs.put(b"sound") == digest
    assert _names(blobs) == [digest]
    assert not blobs.empty()
    assert stat.S_IMODE((blobs.folder / digest).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../keys.sqlite3", "/etc/passwd", "", "A" * 64, "0" * 63 + "\n", "0" * 64 + "\x00"])
def test_only_a_digest_is_a_way_in(blobs: Blobs, name: str) -> None:
    (blobs.folder.parent / "keys.sqlite3").write_bytes(b"secret")
    with pytest.raises(StoreError, match="cannot have written"):
        blobs.get(name)


def test_every_flipped_byte_is_noticed_set_aside_and_mended_by_the_next_put(blobs: Blobs) -> None:
    data = bytes(range(64))
    for at in range(64):
        digest = blobs.put(data)
        broken = bytearray(data)
        broken[at] ^= 1
        (blobs.folder / digest).write_bytes(broken)
        with pytest.raises(StoreError, match="damaged"):
            blobs.get(digest)
        assert _names(blobs) == []
    assert len(list(blobs.damaged.iterdir())) == 64
    (blobs.folder / blobs.put(data)).write_bytes(b"other")
    assert blobs.get(blobs.put(data)) == data


def test_a_missing_file_is_named(blobs: Blobs) -> None:
    digest = blobs.put(b"sound")
    (blobs.folder / digest).unlink()
    with pytest.raises(StoreError, match=digest):
        blobs.get(digest)


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_leaves_nothing(
    blobs: Blobs, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put(b"before")
    names = _names(blobs)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os if call == "fsync" else Path, call, fail)
    with pytest.raises(StoreError, match=os.strerror(number)):
        blobs.put(b"sound")
    assert _names(blobs) == names


def test_the_folder_is_synced_after_the_name_is_there(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs.put(b"before")
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
    blobs.put(b"sound")
    assert done == ["file", "rename", "folder"]


def test_a_sweep_takes_what_is_old_and_nobodys(blobs: Blobs) -> None:
    kept, old, young = blobs.put(b"kept"), blobs.put(b"old"), blobs.put(b"young")
    half = blobs.folder / "unfinished-0"
    half.write_bytes(b"ha")
    stranger = blobs.folder / "README"
    stranger.write_bytes(b"not ours")
    for path in (blobs.folder / kept, blobs.folder / old, half, stranger):
        os.utime(path, (1, 1))
    assert blobs.sweep({kept}, 3600) == 2
    assert _names(blobs) == sorted([kept, young, "README"])


def test_what_is_put_again_is_young_again(blobs: Blobs) -> None:
    digest = blobs.put(b"sound")
    os.utime(blobs.folder / digest, (1, 1))
    blobs.put(b"sound")
    assert blobs.sweep(set(), 3600) == 0
